"""`pylog.spark.register(spark)` through a running Spark: the same rows as the plain source gives, from fewer tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pylog
from pylog.spark import PylogDataSource, register
from support.spark.sessions import make_active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = 1_704_067_200_000  # the beginning of 2024 in UTC
HOUR = 3_600_000
ZONE = "America/New_York"
TASKS = 28  # of a whole read


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records an hour apart, a thousand to a partition, in tasks of a hundred and fifty."""
    path = tmp_path_factory.mktemp("pushdown") / "shop"
    with pylog.open(path) as store:
        for topic, partitions in (("orders", 3), ("returns", 1)):
            store.create_topic(topic, partition_count=partitions, segment_bytes=4000, index_interval_bytes=0)
            for partition in range(partitions):
                for start in range(0, 1000, 20):
                    records = [(None, b"%d" % row, None, TIME + row * HOUR) for row in range(start, start + 20)]
                    store.log(topic, partition).append_many(records)
    return path


def frame(session: SparkSession, shop: Path) -> DataFrame:
    options = {"path": str(shop), "subscribePattern": ".*", "maxRecordsPerPartition": "150"}
    return session.read.format("pylog").options(**options, columns="topic,partition,offset,timestamp,value").load()


@pytest.fixture(scope="module")
def sessions(spark: SparkSession) -> Iterator[tuple[SparkSession, SparkSession]]:
    """A plain session, and the suite's own with push-down, until the tests of this file are done.

    Spark plans `frame.rdd` with the settings of the active session; an earlier test may have made another session active.
    """
    plain = spark.newSession()
    make_active(spark)
    register(spark)
    zone = spark.conf.get("spark.sql.session.timeZone")
    for session in (plain, spark):
        session.conf.set("spark.sql.session.timeZone", ZONE)
    yield plain, spark
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    spark.dataSource.register(PylogDataSource)


@pytest.mark.parametrize(
    ("condition", "rows", "tasks"),
    [
        ("topic = 'returns'", 1000, 7),
        ("topic LIKE 'ord%' AND partition IN (0, 2)", 2000, 14),
        ("`offset` BETWEEN 100 AND 199 AND partition <> 0", 200, 2),
        ("timestamp >= '2024-02-11 00:00:00.0005'", 4 * 10, 4),  # in New York: from offset 989.0… on, five hours later in UTC
        ("timestamp = timestamp'2024-02-11 00:00:00' AND topic = 'returns'", 1, 1),
        ("to_date(timestamp) = date'2024-02-10' AND topic = 'returns'", 24, 1),
        ("timestamp < '2024-01-02' AND CAST(value AS STRING) = '3'", 4, TASKS),
        ("`offset` IS NULL OR `offset` < 2", 8, TASKS),
        ("partition = 9", 0, 1),
        ("`offset` < 5 AND `offset` > 5", 0, 1),
    ],
)
def test_the_rows_are_the_same_and_the_tasks_fewer(
    sessions: tuple[SparkSession, SparkSession], shop: Path, condition: str, rows: int, tasks: int
):
    plain, pushed = (frame(session, shop).where(condition).select("topic", "partition", "offset") for session in sessions)
    assert pushed.rdd.getNumPartitions() == tasks
    found = sorted(pushed.collect())
    assert found == sorted(plain.collect())
    assert len(found) == rows


def test_without_a_predicate_everything_is_read_and_the_plain_source_is_untouched(
    sessions: tuple[SparkSession, SparkSession], shop: Path
):
    plain, pushed = (frame(session, shop) for session in sessions)
    assert pushed.rdd.getNumPartitions() == plain.rdd.getNumPartitions() == TASKS
    assert pushed.count() == 4000
    assert plain.where("partition = 9").rdd.getNumPartitions() == TASKS
