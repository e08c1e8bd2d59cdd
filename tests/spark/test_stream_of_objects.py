"""Streams from an archive's URL, from a broker's tier, and from a tiered topic: new segments, restarts, and what is refused."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.spark.driver import Driver, JsonObject
from pylog.spark.options import stream_options
from pylog.spark.reader import read_slice
from pylog.spark.roots import Root
from support.kafka_tiers import unpacked_tiers
from support.spark.patience import ended, waited_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stream:
    """The driver of a query, and what its executors read. `restarted` stands for a new process with the same checkpoint."""

    def __init__(self, checkpoint: JsonObject | None = None, **options: str) -> None:
        self.options = stream_options({"startingOffsets": "earliest", **options})
        self.clock = ManualClock(0)
        self.driver = Driver(self.options, self.clock)
        self.at = self.driver.initial() if checkpoint is None else checkpoint

    def next(self) -> dict[tuple[str, int], list[int]]:
        """Returns the offsets of the next micro-batch, by partition."""
        self.clock.advance(2000)
        end = json.loads(json.dumps(self.driver.next_end(self.at, limited=True)))
        found = self.planned(self.at, end)
        self.at = end
        return found

    def planned(self, start: JsonObject, end: JsonObject) -> dict[tuple[str, int], list[int]]:
        parts = pickle.loads(pickle.dumps(self.driver.plan(start, end)))
        found: dict[tuple[str, int], list[int]] = {}
        for part in parts:
            batches = read_slice(part, self.options.scan)
            found.setdefault((part.topic, part.partition), []).extend(o for b in batches for o in b["offset"].to_pylist())
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", partition_count=2, segment_bytes=5000)
    return tmp_path / "shop"


def archive(shop: Path, url: str, *counts: int) -> None:
    """Appends so many records to each partition, and archives all."""
    with pylog.open(shop) as store:
        for number, count in enumerate(counts):
            store.log("orders", number).append_many([b"an order"] * count)
        store.archive(url, include_active=True)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_stream_from_an_archive_reads_each_new_run_once(shop: Path, tmp_path: Path, isolation: str) -> None:
    url = f"file://{tmp_path}/archive"
    archive(shop, url, 100, 40)
    stream = Stream(path=url, subscribe="orders", isolationLevel=isolation, maxBytesPerPartition="500")
    assert stream.next() == {("orders", 0): list(range(100)), ("orders", 1): list(range(40))}
    assert stream.next() == {}
    archive(shop, url, 0, 7)
    assert stream.next() == {("orders", 1): list(range(40, 47))}
    shutil.rmtree(shop)  # nothing reads the store
    assert stream.next() == {}


def test_a_restart_goes_on_and_repeats_a_micro_batch_exactly(shop: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    archive(shop, url, 100, 40)
    first = Stream(path=url, subscribe="orders", maxOffsetsPerTrigger="70")
    start = first.at
    wanted = first.next()
    assert sum(map(len, wanted.values())) == 70
    archive(shop, url, 30, 0)
    again = Stream(checkpoint=first.at, path=url, subscribe="orders")
    assert again.planned(start, first.at) == wanted
    rest = again.next()
    read = {partition: offsets + rest[partition] for partition, offsets in wanted.items()}
    assert read == {("orders", 0): list(range(130)), ("orders", 1): list(range(40))}


def test_an_archive_is_read_again_once_a_second_only(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pylog.spark.roots as roots

    url, opened = f"file://{tmp_path}/archive", list[str]()
    real = roots.open_objects
    monkeypatch.setattr(roots, "open_objects", lambda path, **access: opened.append(path) or real(path, **access))  # type: ignore[func-returns-value]
    archive(shop, url, 10, 10)
    stream = Stream(path=url, subscribe="orders")
    for _ in range(5):
        stream.driver.next_end(stream.at, limited=True)
    assert len(opened) == 1
    stream.clock.advance(1000)
    stream.driver.next_end(stream.at, limited=True)
    assert len(opened) == 2


def test_new_partitions_are_read_from_their_start_and_deleted_records_are_a_loss(shop: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    archive(shop, url, 10, 10)
    stream = Stream(path=url, subscribePattern="o.*")
    stream.next()
    with pylog.open(shop) as store:
        store.create_topic("others")
        store.log("others").append(b"x")
        store.log("orders").append_many([b"lost"] * 5)
        store.log("orders").delete_records(13)
        store.archive(url, include_active=True)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 10 to 13 \(exclusive\) of orders-0 no longer exist"):
        stream.next()
    lenient = Stream(checkpoint=stream.at, path=url, subscribePattern="o.*", failOnDataLoss="false")
    assert lenient.next() == {("orders", 0): [13, 14], ("others", 0): [0]}


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_tiered_topic_is_streamed_across_its_border(tmp_path: Path, isolation: str) -> None:
    path, url = tmp_path / "shop", f"file://{tmp_path}/archive"
    with pylog.open(path, archive=url) as store:
        store.create_topic("orders", remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1, segment_bytes=2000)
        for _ in range(20):
            store.log("orders").append_many([b"a" * 100] * 10)
        store.tick()
        assert store.log("orders").local_start_offset > 100
        stream = Stream(path=str(path), subscribe="orders", isolationLevel=isolation, maxOffsetsPerTrigger="150")
        read = stream.next()[("orders", 0)]
        assert read == list(range(150))
        for _ in range(20):
            store.log("orders").append_many([b"a" * 100] * 10)
        store.tick()  # what the stream has not read yet leaves the disk
        assert store.log("orders").local_start_offset > 300
    stream = Stream(checkpoint=stream.at, path=str(path), subscribe="orders", isolationLevel=isolation)
    assert read + stream.next()[("orders", 0)] == list(range(400))


def test_a_log_of_an_archive_is_the_one_that_was_planned(shop: Path, tmp_path: Path) -> None:
    url, partition = f"file://{tmp_path}/archive", pylog.TopicPartition("orders", 0)
    archive(shop, url, 10, 10)
    with contextlib.closing(Root(url)) as root:
        planned = root.outline(partition).end_offset
        archive(shop, url, 5, 5)
        with contextlib.closing(root.log(partition)) as log:
            assert (planned, log.end_offset) == (10, 10)


# ---- a broker's tier -----------------------------------------------------------------------------------------------------


@pytest.mark.pair("broker's directory", "Spark")
def test_a_stream_from_a_tier_alone_reads_segments_as_the_broker_copies_them(tmp_path: Path) -> None:
    tier = unpacked_tiers(tmp_path) / "aiven-plain" / "tier"
    (folder,) = [each / "0" for each in tier.iterdir() if each.name.startswith("txn-")]
    manifests = sorted(folder.glob("*.rsm-manifest"))
    assert len(manifests) > 2
    for manifest in manifests[1:]:
        manifest.rename(tmp_path / manifest.name)
    stream = Stream(tier=f"file://{tier}", assign='{"txn": [0]}')
    read = stream.next()[("txn", 0)]
    assert 0 < len(read) < 325
    for manifest in manifests[1:]:
        (tmp_path / manifest.name).rename(manifest)
    stream.clock.advance(2000)
    read += stream.next()[("txn", 0)]
    with pylog.open(pylog.KafkaTier(f"file://{tier}"), mode="r") as store:
        assert read == [record.offset for record in store.log("txn").records()]


def test_a_stream_crosses_from_a_tier_to_the_brokers_directory(tmp_path: Path) -> None:
    tiers = unpacked_tiers(tmp_path)
    tier = f"file://{tiers}/ktier/remote/kafka-tiered-storage"
    options = {"path": f"{tiers}/ktier/data", "tier": tier, "tier.layout": "local", "subscribe": "t"}
    start = {"startingOffsets": '{"t": {"0": 12000}}', "maxOffsetsPerTrigger": "3000"}
    stream = Stream(**options, **start)
    read = stream.next()[("t", 0)]
    stream = Stream(checkpoint=stream.at, **options)
    read += stream.next()[("t", 0)]
    assert (read[0], read[-1], len(read), read == sorted(set(read))) == (12000, 16500, 4500, True)


# ---- refused, and in Spark -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [{"path": "s3://bucket/shop"}, {"tier": "file:///tier"}], ids=str)
def test_a_group_cannot_commit_where_only_objects_are(where: dict[str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="groupId commits to a log directory"):
        stream_options({"subscribe": "orders", "groupId": "g", **where})


def test_spark_streams_from_an_archive_and_goes_on_from_its_checkpoint(spark: SparkSession, shop: Path, tmp_path: Path) -> None:
    url, found = f"file://{tmp_path}/archive", list[Any]()
    frame = spark.readStream.format("pylog").options(path=url, subscribe="orders", startingOffsets="earliest")
    for counts in ((100, 40), (5, 0)):
        archive(shop, url, *counts)
        writer = frame.load().writeStream.foreachBatch(lambda batch, number: found.append((number, batch.count())))
        query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
        waited_for(query.start, ended)
    assert found == [(0, 140), (1, 5)]
