"""Batch reads on a cluster: two executors in processes of their own, planned by a driver in a third."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

import pylog
from spark_cluster import Cluster, JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDS = [1500, 900]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cluster-shop") / "shop"
    with pylog.open(path) as store:
        store.create_topic("orders", partitions=len(ENDS), segment_bytes=20_000, index_interval_bytes=0)
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
