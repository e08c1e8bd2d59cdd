"""P11: a Spark batch write of rows that lie in Spark's memory, against the same rows written by Spark's own Parquet writer.

And against a data source in Python that throws them away: what Spark takes to hand rows to any source in Python.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pylog
from benchmarks.measure import Settings, at_least, millions, race
from benchmarks.spark import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OS_LEVEL, SYNC_LEVEL = "Durability.OS", "Durability.SYNC"
TASKS = 4
VALUE_BYTES = 100
MILLION_ROWS = 1.5  # a second: what is asked for


def run(settings: Settings) -> None:
    """Reports the row of P11 for writing."""
    count = settings.scaled(8_000_000, 1_000_000)
    spark = session(settings)
    _register_nowhere(spark)
    try:
        frame = rows_in_memory(spark, count)
        _measure(settings, frame, count)
    finally:
        spark.stop()


def rows_in_memory(spark: SparkSession, count: int) -> DataFrame:
    """Values of 100 bytes, in Spark's cache."""
    value = f"CAST(lpad(CAST(id AS STRING), {VALUE_BYTES}, 'v') AS BINARY) AS value"
    frame = spark.range(0, count, 1, TASKS).selectExpr(value).persist()
    assert frame.count() == count
    return frame


def _measure(settings: Settings, frame: DataFrame, count: int) -> None:
    root = Path(settings.directory)
    contestants: dict[str, Callable[[], float]] = {
        "sync": lambda: millions(count, lambda: write(frame, root / "store", "sync")),
        "os": lambda: millions(count, lambda: write(frame, root / "store", "os")),
        "parquet": lambda: millions(count, lambda: write_parquet(frame, root / "parquet")),
        "nowhere": lambda: millions(count, lambda: frame.write.format("rows_to_nowhere").mode("append").save()),
    }
    speed = race(contestants, settings.repeated(3, 1))
    work = f"Spark local[2], write of {count / 1e6:g} M values of {VALUE_BYTES} bytes from Spark's cache, {TASKS} tasks"
    rivals = {"parquet": "Spark's own Parquet writer, uncompressed, no sync", "nowhere": "a source in Python that drops the rows"}
    for name, durability, rival in (("sync", SYNC_LEVEL, "parquet"), ("os", OS_LEVEL, "parquet"), ("os", OS_LEVEL, "nowhere")):
        settings.report_ratio(
            "P11",
            work,
            "M rows/s",
            speed[name],
            rivals[rival],
            speed[rival],
            durability=durability,
            target=at_least(MILLION_ROWS) if rival == "parquet" else None,
        )


def write(frame: DataFrame, path: Path, durability: str) -> None:
    """All rows into a new topic of one partition."""
    shutil.rmtree(path, ignore_errors=True)
    with pylog.open(path) as store:
        store.create_topic("events")
    frame.write.format("pylog").mode("append").options(path=str(path), topic="events", durability=durability).save()


def write_parquet(frame: DataFrame, path: Path) -> None:
    """All rows into files of Spark's own."""
    frame.write.mode("overwrite").option("compression", "none").parquet(str(path))


def _register_nowhere(spark: SparkSession) -> None:
    """Makes Spark know a source whose tasks take all rows, and do nothing with them."""
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Nowhere(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rows_to_nowhere"

        def writer(self, schema: StructType, overwrite: bool) -> Writer:  # noqa: ARG002
            return Writer()

    spark.dataSource.register(Nowhere)
