"""pylog gives the answers of Spark's Kafka connector: the same rows, the same micro-batches, the same kind of error.

What is asked is in `connector_table`; what the connector answered was recorded with `./dev record-connector`. Every case goes
through the data source's own methods, in the order in which Spark calls them; some go through Spark as well.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from connector_answers import SCHEMAS, Answer, Rows, Runner, plain, ranges
from connector_data import write_topics
from connector_table import BAD_REQUEST, CASES, EVERYTHING, NOT_THERE, Case, Stream
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError, PylogError, UnknownTopicOrPartitionError
from pylog.spark import PylogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "connector"

# Kinds of errors: what the connector raises (class and message), and what pylog does.
LOST, NO_SUCH_TIME = "lost", "no such time"
CONNECTORS_KINDS = (
    (r"IllegalArgumentException: No offset matched from request", NO_SUCH_TIME),
    (r"UnknownTopicOrPartitionException", NOT_THERE),
    (r"OffsetOutOfRangeException|KafkaIllegalStateException: .*(some data may have been missed|are gone)", LOST),
    (r"AssertionError: .*(is after the ending offset|does not equal)", BAD_REQUEST),
    (r"KafkaIllegalStateException: Partitions specified .* don't match what are assigned", BAD_REQUEST),
    (r"IllegalArgumentException|NumberFormatException|NoSuchElementException|PatternSyntaxException|ConfigException", BAD_REQUEST),
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
    """A data source as Spark uses it: made anew for each query, asked on the driver, pickled to where it reads."""

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
            for key, value, topic, partition, offset, *others in zip(*(column.to_pylist() for column in exact.columns)):
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
    """What kind of error the connector raised."""
    said = f"{error['class']}: {error['message']}"
    return next(kind for pattern, kind in CONNECTORS_KINDS if re.search(pattern, said))


# ---- batch ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case.name)
def test_a_batch_gives_what_the_connector_gives(case: Case, directory: Path, answers: dict[str, Answer], records: Rows):
    answer = answers[case.name]
    if case.differs:
        assert_differs(case, answer, directory)
    elif "error" in answer:
        assert kind_of(answer["error"]) in kinds(lambda: Source(directory, case.options).batch())
    else:
        source = Source(directory, case.options)
        assert SCHEMAS[source.schema.simpleString()] == answer["schema"]
        rows = source.batch()
        assert offsets_of(rows) == answer["rows"]
        assert_content(rows, records, headers=answer["schema"] == "with headers")


def assert_differs(case: Case, answer: Answer, directory: Path) -> None:
    """pylog's answer is the one that the table expects instead, and is another one than the connector's."""
    if isinstance(case.instead, str):
        assert case.instead in kinds(lambda: Source(directory, case.options).batch())
        assert "error" not in answer or kind_of(answer["error"]) != case.instead
    else:
        assert offsets_of(Source(directory, case.options).batch()) == case.instead != answer.get("rows")


def offsets_of(rows: Rows) -> dict[str, str]:
    return {name: ranges(rows[name]) for name in sorted(rows)}


def assert_content(rows: Rows, records: Rows, *, headers: bool) -> None:
    """Each row has the connector's columns."""
    for name, found in rows.items():
        for offset, cells in found.items():
            assert cells == records[name][offset][: 5 if headers else 4], f"{name}, offset {offset}"


# ---- streams -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_a_stream_gives_the_connectors_micro_batches(case: Case, directory: Path, answers: dict[str, Answer], records: Rows):
    checkpoint: list[Answer] = []
    if case.differs:
        assert case.instead in kinds(lambda: list(micro_batches(case, case.streams[0], directory, checkpoint)))
        assert "error" not in answers[case.name]["runs"][0]
        return
    for stream, answer in zip(case.streams, answers[case.name]["runs"], strict=True):
        for topic, partitions in stream.moved.items():
            checkpoint[-1][topic] |= partitions
        batches: list[Answer] = []
        found = kinds(lambda: batches.extend(micro_batches(case, stream, directory, checkpoint)))  # noqa: B023
        assert [(batch["end"], offsets_of(batch["rows"])) for batch in batches] == [
            (batch["end"], batch["rows"]) for batch in answer.get("batches", [])
        ]
        if "error" in answer:
            assert kind_of(answer["error"]) in found
        else:
            assert found == ()
        for batch in batches:
            assert_content(batch["rows"], records, headers=case.options.get("includeHeaders") == "true")


def micro_batches(case: Case, stream: Stream, directory: Path, checkpoint: list[Answer]) -> Iterator[Answer]:
    yield from Source(directory, {**case.options, **stream.options}).stream(checkpoint)
