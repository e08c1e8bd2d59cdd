"""Batch reads on a cluster: two executors in processes of their own, planned by a driver in a third."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

import pylog
from support.spark.cluster import Cluster, JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDS = [1500, 900]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cluster-shop") / "shop"
    with pylog.open(path) as store:
        store.create_topic("orders", partition_count=len(ENDS), segment_bytes=20_000, index_interval_bytes=0)
        for partition, end in enumerate(ENDS):
            for start in range(0, end, 50):
                store.log("orders", partition).append_many([b"order %d" % row for row in range(start, start + 50)])
    return path


# ---- jobs: these run on the driver, and what they send runs on the executors ---------------------------------------------


def load(spark: SparkSession, path: str) -> DataFrame:
    options = {"path": path, "subscribe": "orders", "maxRecordsPerPartition": "300", "columns": "partition,offset,value"}
    return spark.read.format("pylog").options(**options).load()


def places_and_executors(spark: SparkSession, path: str) -> Any:
    frame = load(spark, path).mapInArrow(with_executor, "partition int, offset long, executor int")
    return sorted(map(list, frame.collect()))


def with_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    executor = os.getppid()  # the process that forks Python workers for one executor
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), batch.column(1), pa.array([executor] * batch.num_rows, pa.int32())],
            ["partition", "offset", "executor"],
        )


def places_though_an_executor_dies(spark: SparkSession, path: str, mark: str) -> Any:
    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch.select(["partition", "offset"])
            if number == 0 and batch.column(0)[0].as_py() == 1:
                kill_executor(Path(mark))

    return sorted(map(list, load(spark, path).mapInArrow(kill_once, "partition int, offset long").collect()))


def kill_executor(mark: Path) -> None:
    """Kills the executor that this task runs on, the first time that a task asks for it."""
    executor = next(process for process in psutil.Process().parents() if process.name() == "java")
    try:
        with mark.open("x") as file:
            file.write(str(executor.pid))
    except FileExistsError:
        return
    executor.kill()


def read_what_has_moved_away(spark: SparkSession, path: str) -> None:
    frame = load(spark, path)
    frame.rdd.getNumPartitions()  # plans the read
    elsewhere = Path(path).rename(f"{path}.elsewhere")
    try:
        frame.collect()
    finally:
        elsewhere.rename(path)


# ---- tests ---------------------------------------------------------------------------------------------------------------


def all_places() -> list[list[int]]:
    return [[partition, offset] for partition, end in enumerate(ENDS) for offset in range(end)]


def test_two_executors_read_each_row_once(cluster: Cluster, shop: Path):
    found = cluster.run(places_and_executors, path=str(shop))
    assert [row[:2] for row in found] == all_places()
    assert len({executor for _, _, executor in found}) == 2


def test_an_executor_that_is_killed_in_mid_job_costs_no_row(cluster: Cluster, shop: Path, tmp_path: Path):
    mark = tmp_path / "killed"
    assert cluster.run(places_though_an_executor_dies, path=str(shop), mark=str(mark)) == all_places()
    assert not psutil.pid_exists(int(mark.read_text()))


def test_a_path_that_executors_do_not_have_is_an_error_that_names_the_host(cluster: Cluster, shop: Path):
    with pytest.raises(JobError) as caught:
        cluster.run(read_what_has_moved_away, path=str(shop))
    assert f"{socket.gethostname()} cannot read {shop}" in str(caught.value)
    assert "every executor needs the store under the same path" in str(caught.value)


# ---- writing -------------------------------------------------------------------------------------------------------------


def write_though_an_executor_dies(spark: SparkSession, path: str, mark: str) -> None:
    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            kill_executor(Path(mark))  # when rows have been handed to the writer of this task

    frame = spark.range(0, 20_000, 1, 4).selectExpr("CAST(id AS STRING) AS value")
    frame.mapInArrow(kill_once, "value string").write.format("pylog").mode("append").options(path=path, topic="copy").save()


def copy_though_an_executor_dies(spark: SparkSession, path: str, mark: str, checkpoint: str) -> None:
    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            kill_executor(Path(mark))

    rows = spark.readStream.format("pylog").options(path=path, subscribe="orders", startingOffsets="earliest")
    dying = rows.option("maxOffsetsPerTrigger", "1000").load().select("value").mapInArrow(kill_once, "value binary")
    sink = dying.writeStream.format("pylog").options(path=path, topic="copy", checkpointLocation=checkpoint)
    sink.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def copy_shop(shop: Path, tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    shutil.copytree(shop, path)
    with pylog.open(path) as store:
        store.create_topic("copy", partition_count=2)
    return path


def copy_in(path: Path) -> list[bytes | None]:
    with pylog.open(path, mode="r") as store:
        return [record.value for number in (0, 1) for record in store.log("copy", number).records()]


def test_an_executor_that_is_killed_while_its_tasks_write_costs_no_row_and_doubles_none(
    cluster: Cluster, copy_shop: Path, tmp_path: Path
):
    mark = tmp_path / "killed"
    cluster.run(write_though_an_executor_dies, path=str(copy_shop), mark=str(mark))
    assert not psutil.pid_exists(int(mark.read_text()))
    assert sorted(int(value or b"") for value in copy_in(copy_shop)) == list(range(20_000))
    assert not list(copy_shop.glob("pylog-staging*"))


def test_a_stream_whose_executor_is_killed_writes_each_row_once(cluster: Cluster, copy_shop: Path, tmp_path: Path):
    mark = tmp_path / "killed"
    arguments = {"path": str(copy_shop), "mark": str(mark), "checkpoint": str(tmp_path / "checkpoint")}
    cluster.run(copy_though_an_executor_dies, **arguments)
    assert not psutil.pid_exists(int(mark.read_text()))
    with pylog.open(copy_shop, mode="r") as store:
        orders = [record.value for number in (0, 1) for record in store.log("orders", number).records()]
    assert sorted(copy_in(copy_shop), key=str) == sorted(orders, key=str)
