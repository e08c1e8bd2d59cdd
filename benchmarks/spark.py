"""P11: a Spark batch read, the length of all values summed, against the same rows fed from memory through the same API."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.data import RECORD_BYTES, fill, new_log, plain_rows, touch
from benchmarks.measure import Sample, Settings, Target, millions, race, times

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PROJECT = Path(__file__).resolve().parent.parent
PARTITIONS = 4
ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
BATCH_ROWS = 65_536


def run(settings: Settings) -> None:
    """Reports the rows of P11."""
    over_a_log(settings, settings.scaled(20_000_000, 1_000_000), _measure)


def over_a_log(
    settings: Settings, count: int, measure: Callable[[Settings, SparkSession, Path, int, tuple[str, ...]], None]
) -> None:
    """Makes a log of `count` records that the page cache has, and measures with the value alone and with all columns."""
    directory = Path(settings.directory) / "log"
    with new_log(directory) as log:
        fill(log, count)
    touch(directory)
    spark = session(settings)
    try:
        for columns in (("value",), ALL):
            measure(settings, spark, directory, count, columns)
    finally:
        spark.stop()


def _measure(settings: Settings, spark: SparkSession, directory: Path, count: int, columns: tuple[str, ...]) -> None:
    names = ",".join(columns)
    log = frame_of(spark, directory, count, columns)
    memory = spark.read.format("rows_from_memory").options(columns=names, rows=str(count // PARTITIONS)).load()
    frames = {"pylog": log, "memory": memory}
    if len(columns) == 1:  # of more columns Spark would read only the one that the query needs
        frames["parquet"] = _parquet(log, directory.parent / "parquet")
    contestants: dict[str, Callable[[], float]] = {
        name: lambda frame=frame: millions(count, lambda: count_bytes(frame, count))  # type: ignore[misc]
        for name, frame in frames.items()
    }
    speed = race(contestants, settings.repeated(3, 1))
    what = "value only" if len(columns) == 1 else "all seven columns"
    work = f"Spark local[2], sum(length(value)), {count // 1_000_000} M rows, {what}, {log.rdd.getNumPartitions()} tasks"
    for name, words, target in (
        ("memory", "the same rows from memory, same API", times(0.8)),
        ("parquet", "Spark's own Parquet reader, uncompressed", None),
    ):
        if name not in speed:
            continue
        report_beside(settings, work, speed["pylog"], words, speed[name], target)


def report_beside(settings: Settings, work: str, measured: Sample, rival: str, other: Sample, target: Target | None) -> None:
    """Reports a batch read, in millions of rows a second, beside a rival's of the same run."""
    settings.report_ratio("P11", work, "M rows/s", measured, rival, other, target=target)


def frame_of(spark: SparkSession, directory: Path, count: int, columns: tuple[str, ...]) -> DataFrame:
    """The rows of a log through pylog's data source, in four tasks."""
    return spark.read.format("pylog").options(**options_of(directory, count, columns)).load()


def options_of(directory: Path, count: int, columns: tuple[str, ...]) -> dict[str, str]:
    """What the data source is given for that."""
    split = str(int(count * RECORD_BYTES / PARTITIONS * 1.05))
    return {"path": str(directory), "subscribe": "events", "columns": ",".join(columns), "maxBytesPerPartition": split}


def count_bytes(frame: DataFrame, count: int) -> None:
    """Everything that the frame has is read, and the values looked at: Spark must not leave out columns of its own accord."""
    assert bytes_of(frame) == count * 100


def bytes_of(frame: DataFrame) -> int:
    """The length of all values together."""
    (row,) = frame.selectExpr("sum(length(value))").collect()
    return int(row[0])


def _parquet(frame: DataFrame, path: Path) -> DataFrame:
    frame.write.option("compression", "none").parquet(str(path))
    return frame.sparkSession.read.parquet(str(path))


def session(settings: Settings) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )  # workers import this
    from pyspark.sql import SparkSession

    settings_of_spark: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": settings.directory,
    }
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:  # what Spark's start says
        os.dup2(said.fileno(), 2)
        try:
            spark = SparkSession.builder.master("local[2]").appName("benchmarks").config(map=settings_of_spark).getOrCreate()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
    spark.sparkContext.setLogLevel("ERROR")
    _register(spark)
    return spark


def _register(spark: SparkSession) -> None:
    """Makes Spark know a source that has its rows in memory: the ceiling of what a source in Python can do."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.types import StructType

    from pylog.spark.schema import spark_schema

    class Rows(DataSourceReader):
        def __init__(self, columns: tuple[str, ...], rows: int) -> None:
            self.columns, self.rows = columns, rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(PARTITIONS)]

        def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
            return _rows_from_memory(self.columns, self.rows)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rows_from_memory"

        def _columns(self) -> tuple[str, ...]:
            return tuple(self.options["columns"].split(","))

        def schema(self) -> StructType:
            return spark_schema(self._columns())

        def reader(self, schema: StructType) -> Rows:  # noqa: ARG002
            return Rows(self._columns(), int(self.options["rows"]))

    spark.dataSource.register(Source)


def _rows_from_memory(columns: tuple[str, ...], count: int) -> Iterator[pa.RecordBatch]:
    """The same batch again and again, made once."""
    import pyarrow as pa

    from pylog.spark.schema import arrow_schema

    rows = plain_rows(0, BATCH_ROWS)
    numbers = pa.array(range(BATCH_ROWS), pa.int64())
    arrays = {
        "key": rows.column("key"),
        "value": rows.column("value"),
        "topic": pa.repeat(pa.scalar("events"), BATCH_ROWS),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
        "offset": numbers,
        "timestamp": rows.column("timestamp").cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        "timestampType": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
    }
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in columns], schema=arrow_schema(columns))
    for first in range(0, count, BATCH_ROWS):
        yield batch.slice(0, min(BATCH_ROWS, count - first))
