"""Runs a case of `connector_table` through Spark and writes down the answer in a form that can be compared and kept.

For the connector it runs as a program, in an environment that has nothing but PySpark, and for pylog inside the tests: so this
module needs PySpark and the standard library only, and the only difference between the two is the format and `base`.

    python connector_answers.py BOOTSTRAP JARS SCRATCH     # prints {"answers": …, "rows": …}
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from support.spark.connector_table import CASES, EVERYTHING, Case, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = dict[str, Any]
Cells = list[Any]  # key, value, timestamp in milliseconds, type of the timestamp, and headers or nothing
Rows = dict[str, dict[int, Cells]]  # "topic-partition" -> offset -> the other columns

POLL_TIMEOUT_MS = "10000"  # how long the connector waits for records that do not come; that there are none is its answer then
ERRORS = (PySparkException, Py4JError)
PLAIN = "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
SCHEMAS = {PLAIN: "plain", f"{PLAIN[:-1]},headers:array<struct<key:string,value:binary>>>": "with headers"}


class Runner:
    """Runs cases with one format, and keeps the answers.

    Args:
        spark: a session.
        source: its format, `kafka` or `pylog`.
        base: options that every case gets besides its own.
        scratch: a directory for checkpoints.
        count_tasks: whether an answer says how many tasks read its rows, which costs another planning.
    """

    def __init__(
        self, spark: SparkSession, source: str, base: Mapping[str, str], scratch: Path, *, count_tasks: bool = False
    ) -> None:
        self._spark, self._source, self._base, self._scratch = spark, source, dict(base), scratch
        self._count_tasks = count_tasks
        self.rows: Rows = {}  # all that were seen

    def answer(self, case: Case) -> Answer:
        """What the case gives: rows, or an error with the step at which it came."""
        return self._stream(case) if case.streams else self._batch(case.options)

    def _batch(self, options: Mapping[str, str]) -> Answer:
        try:
            frame = self._spark.read.format(self._source).options(**self._base, **options).load()
        except ERRORS as error:
            return {"error": {"when": "load", **described(error)}}
        try:
            return {"schema": SCHEMAS[frame.schema.simpleString()], **self._collected(frame)}
        except ERRORS as error:
            return {"error": {"when": "read", **described(error)}}

    def _collected(self, frame: DataFrame) -> Answer:
        """The offsets that a frame has; its rows are added to those that were seen."""
        exact = ["unix_millis(timestamp)" if name == "timestamp" else name for name in frame.columns]
        rows: Rows = {}
        for row in frame.selectExpr(*exact).collect():
            key, value, topic, partition, offset, *others = (plain(cell) for cell in row)
            assert offset not in rows.setdefault(f"{topic}-{partition}", {}), f"{topic}-{partition} has offset {offset} twice"
            rows[f"{topic}-{partition}"][offset] = [key, value, *others]
        self._see(rows)
        tasks = {"tasks": frame.rdd.getNumPartitions()} if self._count_tasks else {}
        return {"rows": {name: ranges(rows[name]) for name in sorted(rows)}, **tasks}

    def _see(self, rows: Rows) -> None:
        """Every read must give a record the same columns; without the headers it gives the columns before them."""
        for name, found in rows.items():
            seen = self.rows.setdefault(name, {})
            for offset, cells in found.items():
                known = seen.get(offset, cells)
                both = min(len(known), len(cells))
                assert known[:both] == cells[:both], f"{name}, offset {offset}: {known} and {cells}"
                seen[offset] = max(known, cells, key=len)

    # ---- streams -----------------------------------------------------------------------------------------------------------

    def _stream(self, case: Case) -> Answer:
        with tempfile.TemporaryDirectory(dir=self._scratch) as checkpoint:
            return {"runs": [self._run(stream, case, Path(checkpoint)) for stream in case.streams]}

    def _run(self, stream: Stream, case: Case, checkpoint: Path) -> Answer:
        """One start of a query on a checkpoint, until it has read what there is."""
        if stream.moved:
            move(checkpoint, stream.moved)
        options = {**self._base, **case.options, **stream.options}
        try:
            frame = self._spark.readStream.format(self._source).options(**options).load()
        except ERRORS as error:
            return {"error": {"when": "load", **described(error)}}
        return self._micro_batches(frame, checkpoint)

    def _micro_batches(self, frame: DataFrame, checkpoint: Path) -> Answer:
        batches: dict[int, Answer] = {}
        inside: list[Answer] = []  # errors in a micro-batch: of these Spark hands back only that Python failed

        def take(part: DataFrame, number: int) -> None:
            try:
                batches[number] = self._collected(part)
            except ERRORS as error:
                inside.append(described(error))
                raise

        answer: Answer = {}
        writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
        try:
            writer.start().awaitTermination()
        except ERRORS as error:
            answer["error"] = {"when": "read", **(inside or [described(error)])[0]}
        ends = planned(checkpoint)
        return {**answer, "batches": [{"number": number, "end": ends[number], **batches[number]} for number in sorted(batches)]}


def planned(checkpoint: Path) -> dict[int, Any]:
    """The offsets that each micro-batch of a checkpoint ends at, as Spark keeps them: the source's JSON."""
    files = [path for path in (checkpoint / "offsets").glob("*") if path.name.isdigit()]
    return {int(path.name): json.loads(path.read_text().splitlines()[2]) for path in files}


def move(checkpoint: Path, moved: Mapping[str, Mapping[str, int]]) -> None:
    """Changes offsets at which the last micro-batch of a checkpoint ended: as if records had gone since, or come back."""
    last = checkpoint / "offsets" / str(max(planned(checkpoint)))
    *head, offsets = last.read_text().splitlines()
    changed = json.loads(offsets)
    for topic, partitions in moved.items():
        changed[topic] |= partitions
    last.write_text("\n".join([*head, json.dumps(changed, separators=(",", ":"))]))
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


# ---- forms -----------------------------------------------------------------------------------------------------------------


def plain(cell: Any) -> Any:
    """A cell as JSON has it: bytes as text, one character each; headers as pairs."""
    if isinstance(cell, bytes | bytearray):
        return bytes(cell).decode("latin-1")
    return [[name, plain(value)] for name, value in cell] if isinstance(cell, list) else cell


def ranges(offsets: Iterable[int]) -> str:
    """Offsets as a person writes them.

    >>> ranges([0, 1, 2, 5])
    '0-2 5'
    """
    found: list[list[int]] = []
    for offset in sorted(offsets):
        if found and found[-1][-1] == offset - 1:
            found[-1][1:] = [offset]
        else:
            found.append([offset])
    return " ".join("-".join(map(str, each)) for each in found)


def described(error: BaseException) -> Answer:
    """An error in words that are the same in every run: the innermost cause, which is what the source itself raised."""
    causes = list(_causes(error))
    name, message = causes[-1]
    for found, instead in _VOLATILE:
        message = re.sub(found, instead, message)
    return {"class": name, "message": " ".join(message.split())}


_VOLATILE = (
    (r"127\.0\.0\.1:\d+ \(id: 1 rack: null\)", "BROKER"),
    (r", epoch=\d+", ""),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"(?s)\n\t?at .*", ""),
)


def _causes(error: BaseException) -> Iterable[tuple[str, str]]:
    """Class and message of an error of Spark's and of what caused it, outermost first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        yield type(error).__name__, str(error)
    while java is not None:
        yield java.getClass().getName(), str(java.getMessage())
        java = java.getCause()


# ---- the connector ---------------------------------------------------------------------------------------------------------


def main(bootstrap: str, jars: str, scratch: str) -> None:
    """Runs all cases with the connector, the one that reads everything first."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.task.maxFailures": "1",
    }
    spark = SparkSession.builder.master("local[2]").appName("connector").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    base = {"kafka.bootstrap.servers": bootstrap, "kafkaConsumer.pollTimeoutMs": POLL_TIMEOUT_MS}
    runner = Runner(spark, "kafka", base, Path(scratch), count_tasks=True)
    answers = {}
    for case in (EVERYTHING, *CASES):
        print(case.name, file=sys.stderr, flush=True)
        answers[case.name] = {"asked": case.asked, **runner.answer(case)}
    spark.stop()
    print(json.dumps({"answers": answers, "rows": runner.rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
