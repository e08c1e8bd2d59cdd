"""A stream on a cluster whose driver is killed: the next driver goes on from the checkpoint, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import pylog
from support.spark.cluster import Cluster, JobError
from support.spark.patience import ended, waited_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDS = [600, 300]
MICRO_BATCH = 180  # offsets


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", partition_count=len(ENDS), segment_bytes=10_000)
        for partition, end in enumerate(ENDS):
            for _ in range(0, end, 50):
                store.log("orders", partition).append_many([b"an order"] * 50)
    return tmp_path / "shop"


# ---- jobs: these run on the driver, and what they send runs on the executors ---------------------------------------------


def read_on(spark: SparkSession, path: str, directory: str, dies_in: int | None) -> None:
    """Reads what there is, and keeps each micro-batch in a file of its number; or dies when one is kept but not yet done."""

    def keep(frame: DataFrame, number: int) -> None:
        places = sorted(map(list, frame.select("partition", "offset").collect()))
        with Path(directory, f"{number}.json").open("a") as file:
            file.write(json.dumps(places) + "\n")
        if number == dies_in:
            kill_driver()

    options = {"path": path, "subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(MICRO_BATCH)}
    writer = (
        spark.readStream.format("pylog")
        .options(**options)
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
    )
    waited_for(writer.start, ended)


def kill_driver() -> None:
    """Kills this process, but first the one that it has started: Spark's own."""
    this = psutil.Process()
    for process in (*this.children(), this):
        process.kill()


# ---- tests ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("java")
def test_a_stream_goes_on_exactly_when_its_driver_was_killed(shop: Path, tmp_path: Path):
    kept, first_directory, next_directory = tmp_path / "kept", tmp_path / "first", tmp_path / "next"
    for directory in (kept, first_directory, next_directory):
        directory.mkdir()
    with Cluster(first_directory) as killed, pytest.raises(JobError, match="the driver has died"):
        killed.run(read_on, path=str(shop), directory=str(kept), dies_in=2)
    assert (kept / "2.json").exists()  # it died there and not before
    with pylog.open(shop) as store:
        store.log("orders", 1).append_many([b"a late order"] * 50)
    with Cluster(next_directory) as cluster:  # one after the other: each needs three gibibytes
        cluster.run(read_on, path=str(shop), directory=str(kept), dies_in=None)
    batches = {int(file.stem): [json.loads(line) for line in file.read_text().splitlines()] for file in kept.glob("*.json")}
    first, again = batches.pop(2)
    assert first == again  # the one that was not done is done again with the same records
    read = sorted(place for (batch,) in [*batches.values(), [first]] for place in batch)
    assert read == [[partition, offset] for partition, end in enumerate([600, 350]) for offset in range(end)]
    assert len(batches) >= 5
