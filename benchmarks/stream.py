"""P11: a Spark stream with Trigger.AvailableNow, from its start to its end, against a batch read of the same rows.

And its micro-batches without the query's start, which is Python processes and costs the same however many rows there are.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Sample, Settings, millions, race, times
from benchmarks.spark import frame_of, options_of, over_a_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run(settings: Settings) -> None:
    """Reports the rows of P11 that are about streams."""
    over_a_log(settings, settings.scaled(20_000_000, 4_000_000), _measure)


def _measure(settings: Settings, spark: SparkSession, directory: Path, count: int, columns: tuple[str, ...]) -> None:
    batch = frame_of(spark, directory, count, columns)
    options = options_of(directory, count, columns) | {"startingOffsets": "earliest"}
    stream = spark.readStream.format("pylog").options(**options).load()
    checkpoints = (directory.parent / f"checkpoint-{len(columns)}-{number}" for number in itertools.count())
    working: list[float] = []
    speed = race(
        {
            "stream": lambda: millions(count, lambda: working.append(_drain(stream, next(checkpoints), count))),
            "batch": lambda: millions(count, lambda: batch.write.format("noop").mode("overwrite").save()),
        },
        settings.repeated(3, 1),
    )
    rounds = len(speed["stream"].rounds)
    alone = Sample(tuple(count / seconds / 1e6 for seconds in working[-rounds:]))  # what came before them was to warm up
    what = "value only" if len(columns) == 1 else "all seven columns"
    work = f"Spark local[2], a stream of {count // 1_000_000} M rows with AvailableNow to the noop sink, {what}"
    for measured, part, target in ((speed["stream"], "", times(0.7)), (alone, ", its micro-batches alone", None)):
        settings.report_ratio("P11", work + part, "M rows/s", measured, "a batch read of the same", speed["batch"], target=target)


def _drain(stream: DataFrame, checkpoint: Path, count: int) -> float:
    """Runs the query until it ends, its start and its checkpoint too; returns the seconds that its micro-batches took."""
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == count
    return sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress) / 1000
