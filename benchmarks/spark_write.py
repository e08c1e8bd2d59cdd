"""P11: a Spark batch write of rows that lie in Spark's memory, against the same rows written by Spark's own Parquet writer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pylog
from benchmarks.measure import Row, Settings, at_least, millions, race
from benchmarks.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OS_LEVEL, SYNC_LEVEL = "Durability.OS", "Durability.SYNC"
TASKS = 4
VALUE_BYTES = 100
MILLION_ROWS = 1.5  # a second: what is asked for


def run(settings: Settings) -> None:
    """Reports the row of P11 for writing."""
    count = settings.scaled(8_000_000, 1_000_000)
    spark = session(settings)
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
    }
    speed = race(contestants, settings.repeated(3, 1))
    work = f"Spark local[2], write of {count / 1e6:g} M values of {VALUE_BYTES} bytes from Spark's cache, {TASKS} tasks"
    for name, durability in (("sync", SYNC_LEVEL), ("os", OS_LEVEL)):
        settings.report(
            Row(
                part="P11",
                work=work,
                unit="M rows/s",
                measured=speed[name],
                durability=durability,
                rival="Spark's own Parquet writer, uncompressed, no sync",
                rival_measured=speed["parquet"],
                ratio=speed[name].over(speed["parquet"]),
                target=at_least(MILLION_ROWS),
            )
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
