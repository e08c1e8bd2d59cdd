"""Spark reads a partition of each kind, after each change of it, as the model of `support.trust.crossing` has it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pylog import TopicPartition
from support.trust.crossing import CHANGES, GROUP, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("timestamps", "LogAppendTime", "idempotence", "links", "broker's directory", "aborted transactions")


def marked(name: str) -> Any:
    return pytest.param(name, id=name, marks=pytest.mark.pair("Spark", name))


def read(spark: SparkSession, scene: Scene, **options: str) -> dict[int, bytes | None]:
    given = {"path": str(scene.path), "subscribe": scene.topic, **options}
    rows = spark.read.format("pylog").options(**given).load().select("offset", "value").collect()
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: None if row[1] is None else bytes(row[1]) for row in rows}


def values(scene: Scene) -> dict[int, bytes | None]:
    return {offset: row.value for offset, row in scene.expected.items()}


@pytest.mark.parametrize("name", [marked(name) for name in (*CHANGES, *KINDS)])
def test_spark_reads_what_the_model_has(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Beside the store that is open, and after it has closed."""
    scene = Scene(tmp_path, {name, "Spark"})
    scene.change(name if name in CHANGES else "roll")
    scene.append(2)
    assert read(spark, scene) == values(scene)
    committed = read(spark, scene, **{"kafka.isolation.level": "read_committed"})
    assert committed == {offset: value for offset, value in values(scene).items() if offset not in scene.aborted}
    scene.verify()
    assert read(spark, scene) == values(scene)


@pytest.mark.pair("Spark", "time search")
def test_spark_begins_at_the_time_that_it_is_given(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"timestamps", "Spark"})
    scene.change("roll")
    scene.change("delete_records")
    times = sorted({row.timestamp for row in scene.expected.values() if row.timestamp >= 0})
    for time in times[:: len(times) // 3]:
        first = next(offset for offset, row in scene.expected.items() if row.timestamp >= time)
        wanted = {offset: value for offset, value in values(scene).items() if offset >= first}
        assert read(spark, scene, startingTimestamp=str(time)) == wanted


@pytest.mark.pair("Spark", "scan and follow")
def test_spark_and_a_scan_that_was_begun_before_give_the_same_records(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"scan and follow", "Spark"})
    scan = scene.log.scan(columns=["offset", "value"], max_rows=2)
    first = next(scan)
    seen = read(spark, scene)
    scanned = dict(pair for frame in (first, *scan) for pair in zip(*frame.to_pydict().values(), strict=True))
    assert scanned == seen == values(scene)
    scene.change("roll")
    frames = scene.log.follow(scene.start, columns=["offset", "value"], timeout_ms=0)
    followed = dict(pair for frame in frames for pair in zip(*frame.to_pydict().values(), strict=True))
    assert followed == read(spark, scene) == values(scene)


@pytest.mark.pair("Spark", "groups")
def test_a_group_goes_on_with_what_spark_appended(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(tmp_path, {"groups", "Spark"})
    frame = spark.createDataFrame([(b"k", b"from Spark %d" % number) for number in range(20)], "key BINARY, value BINARY")
    frame.write.format("pylog").mode("append").options(path=str(scene.path), topic=scene.topic).save()
    with scene.store.consumer(scene.topic, group_id=GROUP, enable_auto_commit=False) as consumer:
        polled: dict[int, bytes | None] = {}
        while len(polled) < scene.end - scene.committed + 20:
            polled |= {each.offset: each.value for records in consumer.poll().values() for each in records}
        consumer.commit()
    assert sorted(polled) == list(range(scene.committed, scene.end + 20))
    assert {polled[offset] for offset in range(scene.end, scene.end + 20)} == {b"from Spark %d" % number for number in range(20)}
    assert scene.store.group(GROUP).lag()[TopicPartition(scene.topic, 0)] == 0
    assert {offset: value for offset, value in read(spark, scene).items() if offset >= scene.committed} == polled
