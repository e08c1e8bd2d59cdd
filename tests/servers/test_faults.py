"""Spark reads an archive in a bucket that refuses a tenth of the requests, and one of its executors is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

import pylog
from spark.test_cluster import kill_executor
from support.servers.servers import ObjectServer, started
from support.servers.throttling import throttled
from support.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 2000
PARTITIONS = 2


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with started("moto", Path(), tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(java: None, moto: ObjectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), moto.environment) as made:
        yield made


@pytest.fixture(scope="module")
def java() -> None:
    from spark.conftest import require_java

    require_java()


# ---- jobs: these run on the driver, and what they send runs on the executors ---------------------------------------------


def places_though_an_executor_dies(spark: SparkSession, path: str, endpoint: str, mark: str) -> Any:
    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch.select(["partition", "offset"])
            if number == 0 and batch.column("offset")[0].as_py() == 1000:
                kill_executor(Path(mark))

    options = {"path": path, "subscribe": "orders", "maxRecordsPerPartition": "250", "s3.endpoint": endpoint}
    frame = spark.read.format("pylog").options(**options, **{"s3.region": "us-east-1"}).load()
    return sorted(map(list, frame.mapInArrow(kill_once, "partition int, offset long").collect()))


# ---- tests ---------------------------------------------------------------------------------------------------------------


def test_refused_requests_and_a_killed_executor_cost_no_row_and_double_none(
    moto: ObjectServer, cluster: Cluster, tmp_path: Path
) -> None:
    url, mark = moto.new_url(), tmp_path / "killed"
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", PARTITIONS, segment_bytes=1 << 15, retention_ms=-1)
        for partition in range(PARTITIONS):
            for _ in range(0, RECORDS, 100):
                store.log("orders", partition).append_many([b"x" * 100] * 100)
        store.archive(url, include_active=True, **moto.options)
    with throttled(moto.options["endpoint"], each=10) as proxy:
        found = cluster.run(places_though_an_executor_dies, path=url, endpoint=proxy.endpoint, mark=str(mark))
    assert found == [[partition, offset] for partition in range(PARTITIONS) for offset in range(RECORDS)]
    assert not psutil.pid_exists(int(mark.read_text()))
    assert proxy.refused >= 5
    assert proxy.passed > 40
