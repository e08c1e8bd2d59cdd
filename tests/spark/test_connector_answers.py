"""pylog gives the answers of Spark's Kafka connector: the same rows, the same micro-batches, the same kind of error.

What is asked is in `connector_table`; what the connector answered was recorded with `./dev record-connector`. Every case goes
through the data source's own methods, in the order in which Spark calls them; some go through Spark as well.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError, PylogError, UnknownTopicOrPartitionError
from pylog.spark import PylogDataSource
from support.spark.connector_answers import SCHEMAS, Answer, Rows, Runner, plain, ranges
from support.spark.connector_data import write_topics
from support.spark.connector_table import BAD_REQUEST, CASES, EVERYTHING, NOT_THERE, Case, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "connector"

# Kinds of errors: what the connector raises (class and message), and what pylog does.
LOST, NO_SUCH_TIME = "lost", "no such time"
CONNECTORS_KINDS = (
    (r"IllegalArgumentException: No offset matched from request", NO_SUCH_TIME),
    (r"UnknownTopicOrPartitionException", NOT_THERE),
    (r"OffsetOutOfRangeException|KafkaIllegalStateException: Some data may have been lost", LOST),
    (r"KafkaIllegalStateException: Partitions specified .* don't match what are assigned", BAD_REQUEST),
    (r"AssertionError: .*(is after the ending offset|does not equal|you must specify all TopicPartitions)", BAD_REQUEST),
    (
        r"IllegalArgumentException|NumberFormatException|NoSuchElementException|PatternSyntaxException|ConfigException",
        BAD_REQUEST,
    ),
)
PYLOGS_KINDS: Mapping[type[PylogError], tuple[str, ...]] = {
    InvalidArgumentError: (BAD_REQUEST,),
    UnknownTopicOrPartitionError: (NOT_THERE,),
    OffsetOutOfRangeError: (LOST, NO_SUCH_TIME),
}

BATCHES = [case for case in (EVERYTHING, *CASES) if not case.streams]
STREAMS = [case for case in CASES if case.streams]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("connector") / "data"
    write_topics(path)
    return path


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    return json.loads((GOLDEN / "answers.json").read_bytes())


@pytest.fixture(scope="module")
def records() -> Rows:
    """Every record as the connector gave it."""
    found = json.loads((GOLDEN / "rows.json").read_bytes())
    return {name: {int(offset): cells for offset, cells in rows.items()} for name, rows in found.items()}


# ---- what pylog answers --------------------------------------------------------------------------------------------------------


class Source:
    """A data source as Spark uses it: created for each query, asked on the driver, pickled to where it reads."""

    def __init__(self, directory: Path, options: Mapping[str, str]) -> None:
        self.source = PylogDataSource({"path": str(directory), **options})
        self.schema = self.source.schema()

    def batch(self) -> Rows:
        reader = self.source.reader(schema=self.schema)
        return read(reader, reader.partitions())

    def stream(self, checkpoint: list[Answer]) -> Iterator[Answer]:
        """The micro-batches of a query with `Trigger.AvailableNow` that goes on from a checkpoint, added to it as they end."""
        reader = self.source.streamReader(schema=self.schema)
        try:
            reader.prepareForTriggerAvailableNow()
            while True:
                start = checkpoint[-1] if checkpoint else json_of(reader.initialOffset())
                end = json_of(reader.latestOffset(start, reader.getDefaultReadLimit()))
                if checkpoint and end == start:  # the first micro-batch there always is
                    return
                checkpoint.append(end)
                yield {"end": without_notes(end), "rows": read(reader, reader.partitions(start, end))}
                reader.commit(end)
        finally:
            reader.stop()


def read(reader: Any, parts: list[Any]) -> Rows:
    """All rows of a reader's slices, each there once; timestamps in milliseconds."""
    rows: Rows = {}
    for part in pickle.loads(pickle.dumps(parts)):
        for batch in pickle.loads(pickle.dumps(reader)).read(part):
            times = batch.schema.get_field_index("timestamp")
            exact = batch.set_column(times, "timestamp", batch.column(times).cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
            for key, value, topic, partition, offset, *others in zip(
                *(column.to_pylist() for column in exact.columns), strict=True
            ):
                of_partition = rows.setdefault(f"{topic}-{partition}", {})
                assert offset not in of_partition, f"{topic}-{partition} has offset {offset} twice"
                of_partition[offset] = [plain(as_pairs(cell)) for cell in (key, value, *others)]
    return rows


def as_pairs(cell: Any) -> Any:
    """Headers as Spark's rows have them."""
    return [(header["key"], header["value"]) for header in cell] if isinstance(cell, list) else cell


def json_of(offset: Any) -> Any:
    """An offset that has been in Spark's checkpoint."""
    return json.loads(json.dumps(offset))


def without_notes(end: Mapping[str, Any]) -> Answer:
    """The connector's part of an offset: pylog's has notes besides, under names that no topic can have (docs/SPARK.md)."""
    return {topic: offsets for topic, offsets in end.items() if "@" not in topic}


def kinds(ask: Callable[[], Any]) -> tuple[str, ...]:
    """What kind of error, of perhaps several, something raises; none if it raises nothing."""
    try:
        ask()
    except PylogError as error:
        return PYLOGS_KINDS[type(error)]
    return ()


def kind_of(error: Answer) -> str:
    """What kind of error the connector raised, or pylog, as Spark tells it; if it is of no known kind, its words."""
    said = f"{error['class']}: {error['message']}"
    own = [kind for raised, (kind, *_) in PYLOGS_KINDS.items() if f"{raised.__name__}: " in said]
    return [*own, *(kind for pattern, kind in CONNECTORS_KINDS if re.search(pattern, said)), said][0]


def test_the_recording_is_of_the_table(answers: dict[str, Answer]):
    recorded = {name: answer["asked"] for name, answer in answers.items()}
    assert recorded == {case.name: case.asked for case in (EVERYTHING, *CASES)}, "./dev record-connector makes it anew"


# ---- batch ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case.name)
def test_a_batch_gives_what_the_connector_gives(case: Case, directory: Path, answers: dict[str, Answer], records: Rows):
    answer = answers[case.name]
    if case.differs:
        assert_differs(case, answer.get("rows", answer), lambda: offsets_of(Source(directory, case.options).batch()))
    elif "error" in answer:
        assert kind_of(answer["error"]) in kinds(lambda: Source(directory, case.options).batch())
    else:
        source = Source(directory, case.options)
        assert SCHEMAS[source.schema.simpleString()] == answer["schema"]
        rows = source.batch()
        assert offsets_of(rows) == answer["rows"]
        assert_content(rows, records)


def assert_differs(case: Case, connectors: Answer | list[Answer], ask: Callable[[], Answer | list[Answer]]) -> None:
    """pylog's answer is the one that the table expects instead, and is another one than the connector's."""
    assert connectors != case.instead
    if isinstance(case.instead, str):
        assert case.instead in kinds(ask)
        assert "error" not in connectors or kind_of(connectors["error"]) != case.instead
    else:
        assert ask() == case.instead


def offsets_of(rows: Rows) -> dict[str, str]:
    return {name: ranges(rows[name]) for name in sorted(rows)}


def assert_content(rows: Rows, records: Rows) -> None:
    """Each row has what the connector's has: key, value, time and its type, and headers where they were asked for."""
    for name, found in rows.items():
        for offset, cells in found.items():
            assert cells == records[name][offset][: len(cells)], f"{name}, offset {offset}"


# ---- streams -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_a_stream_gives_the_connectors_micro_batches(case: Case, directory: Path, answers: dict[str, Answer], records: Rows):
    checkpoint: list[Answer] = []
    for stream, answer in zip(case.streams, answers[case.name]["runs"], strict=True):
        source = partial(Source, directory, {**case.options, **stream.options})
        if case.differs:
            batches = [batch["rows"] for batch in answer["batches"]]
            assert_differs(case, batches, lambda: [offsets_of(batch["rows"]) for batch in source().stream([])])  # noqa: B023
        else:
            assert_run(source, stream, checkpoint, answer, records)


def assert_run(source: Callable[[], Source], stream: Stream, checkpoint: list[Answer], answer: Answer, records: Rows) -> None:
    """One start of a query gives the connector's micro-batches, and then its kind of error if it has one."""
    for topic, partitions in stream.moved.items():
        checkpoint[-1][topic] |= partitions
    batches: list[Answer] = []
    found = kinds(lambda: batches.extend(source().stream(checkpoint)))
    expected = [(batch["end"], batch["rows"]) for batch in answer.get("batches", [])]
    assert [(batch["end"], offsets_of(batch["rows"])) for batch in batches] == expected
    assert kind_of(answer["error"]) in found if "error" in answer else not found
    for batch in batches:
        assert_content(batch["rows"], records)


# ---- through Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "every record of every topic, with its headers",
        "many tasks over gaps",
        "an end before the start",
        "a topic that is not there",
        "headers in a stream",
        "started again where records have gone",
    ],
)
def test_through_spark_the_answer_is_the_same(
    spark: SparkSession, directory: Path, answers: dict[str, Answer], records: Rows, tmp_path: Path, name: str
):
    case = next(each for each in (EVERYTHING, *CASES) if each.name == name)
    runner = Runner(spark, "pylog", {"path": str(directory)}, tmp_path)
    assert comparable(runner.answer(case)) == comparable(answers[name])
    assert_content(runner.rows, records)


def comparable(answer: Answer) -> Answer:
    """What of an answer must be the same: how many tasks there are, and the words of an error, may differ."""
    same = {name: answer[name] for name in ("schema", "rows", "number") if name in answer}
    for name in ("runs", "batches"):
        same |= {name: [comparable(each) for each in answer[name]]} if name in answer else {}
    same |= {"end": without_notes(answer["end"])} if "end" in answer else {}
    return same | ({"error": kind_of(answer["error"])} if "error" in answer else {})
