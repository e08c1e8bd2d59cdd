"""Spark's batch jobs over topics that another process appends to, deletes from and compacts meanwhile.

What a job was planned to read it reads, or it fails and says which offsets are gone. Each value is its record's own offset, so a
wrong row is seen in itself; a count that is too small, by what may have gone.

    python -m support.campaign.spark_neighbours 120        (seconds; in tests/, with pylog's sources on the path)
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import sys
import time
import warnings
from collections import Counter
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import pylog
from support.campaign.processes import CampaignError, new_directory, new_seed

KEYS: Final = 500  # of the compacted topic, in turn: a record is superseded by the one so many offsets behind it
PIECE: Final = 200  # records of one append
TASK_BYTES: Final = 20_000
EVENTS: Final = {"segment_bytes": 30_000, "retention_bytes": 150_000, "file_delete_delay_ms": 0}
TABLE: Final = {"segment_bytes": 30_000, "cleanup_policy": "compact"}


def run(seed: int, *, seconds: float) -> dict[str, Any]:
    """Runs jobs for so long, and judges each.

    Args:
        seed: decides what is read.
        seconds: for how long.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a job has answered wrongly, or failed of something else than a loss; the directory is kept.
    """
    root = new_directory("spark-neighbours")
    with pylog.open(root / "store") as store:
        store.create_topic("events", **EVENTS)
        store.create_topic("table", **TABLE)
        for topic in ("events", "table"):
            _append(store, topic)
    context = multiprocessing.get_context("spawn")
    enough = context.Event()
    neighbour = context.Process(target=_disturb, args=(str(root / "store"), enough))
    neighbour.start()
    try:
        total = _jobs(root, random.Random(seed), seconds)
    finally:
        enough.set()
        neighbour.join()
    if neighbour.exitcode:
        raise CampaignError(f"the process beside the jobs failed; the store is {root / 'store'}")
    shutil.rmtree(root)
    return {"seed": seed, **total}


# ---- the process beside the jobs -----------------------------------------------------------------------------------------


def _disturb(path: str, enough: Event) -> None:
    """Appends all the time; deletes what is too much and compacts now and then."""
    with pylog.open(path) as store:
        while not enough.is_set():
            for topic in ("events", "table"):
                _append(store, topic)
            store.tick()
            store.compact("table")


def _append(store: pylog.Store, topic: str) -> None:
    log = store.log(topic)
    first = log.end_offset
    log.append_many([(b"%d" % (offset % KEYS), b"%d" % offset) for offset in range(first, first + PIECE)])


# ---- the jobs ------------------------------------------------------------------------------------------------------------


def _jobs(root: Path, rng: random.Random, seconds: float) -> Counter[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    total, deadline = Counter[str](), time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            job = rng.choice((_events_job, _lossy_job, _table_job))
            total[job(spark, root / "store")] += 1
    finally:
        spark.stop()
    return total


def _events_job(spark: Any, path: Path) -> str:
    """All that the log has now, in the end all of it: or an error that says what has gone."""
    start, end = _bounds(path, "events")
    from pyspark.errors import PySparkException

    try:
        found = _offsets(spark, path, "events", start, end)
    except PySparkException as error:
        if "OffsetOutOfRangeError" not in str(error):
            raise CampaignError(f"a job over {path} failed, but of no loss: {error}") from error
        return "told of a loss"
    if found != list(range(start, end)):
        raise CampaignError(f"a job over {path} has read {len(found)} records of the offsets {start} to {end}, and said nothing")
    return "read all"


def _lossy_job(spark: Any, path: Path) -> str:
    """The same with `failOnDataLoss=false`: nothing twice, and in each task's range what is missing is at its start."""
    start, end = _bounds(path, "events")
    found = _offsets(spark, path, "events", start, end, failOnDataLoss="false")
    if sorted(set(found)) != found or (found and not start <= found[0] <= found[-1] == end - 1):
        raise CampaignError(f"a job over {path} has read other records than those of the offsets {start} to {end}: {found}")
    return "read what there was" if len(found) == end - start else "read less, with a warning"


def _table_job(spark: Any, path: Path) -> str:
    """A compacted topic: only what is superseded by now may be missing."""
    start, end = _bounds(path, "table")
    found = _offsets(spark, path, "table", start, end)
    needed = range(max(start, _bounds(path, "table")[1] - KEYS), end)
    if sorted(set(found)) != found or not set(needed) <= set(found) <= set(range(start, end)):
        raise CampaignError(f"a job over {path} has not read all of the offsets {start} to {end} that count: {found}")
    return "read a table"


def _bounds(path: Path, topic: str) -> tuple[int, int]:
    with pylog.open(path, mode="r") as store:
        return store.log(topic).start_offset, store.log(topic).end_offset


def _offsets(spark: Any, path: Path, topic: str, start: int, end: int, **more: str) -> list[int]:
    """The offsets of the records that a job reads, in the order of its tasks; each value must say the same."""
    spans = {"startingOffsets": json.dumps({topic: {"0": start}}), "endingOffsets": json.dumps({topic: {"0": end}})}
    frame = spark.read.format("pylog").options(path=str(path), subscribe=topic, maxBytesPerPartition=str(TASK_BYTES), **spans)
    rows = frame.options(**more).load().selectExpr("offset", "CAST(CAST(value AS STRING) AS LONG) AS value").collect()
    wrong = [row for row in rows if row.offset != row.value]
    if wrong:
        raise CampaignError(f"a job over {path} has read wrong records: {wrong[:10]}")
    return [row.offset for row in rows]


if __name__ == "__main__":
    print(run(new_seed(), seconds=float(sys.argv[1])))  # noqa: T201
