"""A hollow restore: the records stay in the archive, and the directory is a whole store nevertheless."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
import pylog.restoring
from pylog import ProducerBatch
from pylog.clock import ManualClock
from pylog.errors import InvalidArgumentError, ObjectStoreError, ProducerFencedError
from pylog.objects.layout import INDEXES, LOG
from pylog.testing import MemoryFileSystem
from pylog.tools.compare import compare
from support.cli import call
from support.objects import BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000
URL = "s3://any"
CONFIG: dict[str, Any] = {"segment_bytes": 400, "retention_ms": -1}
FEW: dict[str, Any] = {
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
    "transactions": pylog.TransactionsConfig(topic_num_partitions=1),
}


@pytest.fixture
def memory() -> Iterator[MemoryObjects]:
    with every_url(MemoryObjects()) as memory:
        yield memory


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem(clock=ManualClock(NOW))


def opened(fs: MemoryFileSystem, path: str, mode: str = "rw") -> pylog.Store:
    return pylog.open(path, mode, fs=fs, clock=ManualClock(NOW), **FEW)


def archived(fs: MemoryFileSystem, **options: Any) -> None:
    """Archives a store with deleted records, an aborted transaction, a producer's numbers, a compacted topic and an offset."""
    with opened(fs, "/shop") as store:
        store.create_topic("orders", 2, **CONFIG | options)
        store.create_topic("state", cleanup_policy="compact", segment_bytes=400)
        log = store.log("orders")
        for number in range(20):
            log.append(b"%d" % number + b"x" * 80, timestamp=NOW + number)
            store.log("state").append(b"x" * 80, key=b"%d" % (number % 3))
        for commits in (False, True):
            transaction = store.transaction("id")
            transaction.append("orders", b"of a transaction", partition=0)
            transaction.commit() if commits else transaction.abort()
        log.append_batch([b"sent"], producer=ProducerBatch(70, 1, 0))
        log.delete_records(6)
        store.offsets.commit("billing", {("orders", 0): 9})
        store.archive(URL, include_active=True)


def hollow(fs: MemoryFileSystem, path: str = "/copy", **options: Any) -> pylog.restoring.RestoreReport:
    return pylog.restore(URL, path, hollow=True, fs=fs, clock=ManualClock(NOW), **options)


def logs_of(memory: MemoryObjects, topic: str) -> set[str]:
    return {key for request, key in memory.requests if request == "get_range" and key.endswith(LOG) and key.startswith(topic)}


def test_the_directory_is_a_whole_store_and_the_records_are_not_fetched(memory: MemoryObjects, fs: MemoryFileSystem) -> None:
    archived(fs)
    memory.requests.clear()
    report = hollow(fs)
    assert not logs_of(memory, "orders")
    facts = {each.partition: (each.bytes, each.remote_bytes > 0, each.lost) for each in report.partitions}
    assert facts["orders", 0] == (0, True, 0)
    assert facts["state", 0][0] > 0
    assert not facts["state", 0][1]
    with opened(fs, "/shop", "r") as left, opened(fs, "/copy", "r") as right:
        found = compare(left, right)
        assert [(each.equal, each.differing) for topic in found.topics for each in topic.partitions if each.differing] == []
        assert sum(each.equal for topic in found.topics for each in topic.partitions) > 20
        log = right.log("orders")
        assert (log.start_offset, log.local_start_offset) == (6, log.end_offset)
        committed = [record.value for record in log.records(isolation_level="read_committed")]
        assert committed[-2:] == [b"of a transaction", b"sent"]
        assert log.offset_for_timestamp(NOW + 9) == (9, NOW + 9)
        assert right.offsets.position("billing", ("orders", 0)) == 9
        assert right.topic("orders").config.remote_storage_enable
        assert not right.topic("state").config.remote_storage_enable
        assert right.verify().ok


def test_it_is_written_to_and_goes_on_with_the_archive(memory: MemoryObjects, fs: MemoryFileSystem) -> None:
    archived(fs)
    hollow(fs)
    with opened(fs, "/copy") as store:
        log = store.log("orders")
        end = log.end_offset
        again = log.append_batch([b"sent"], producer=ProducerBatch(70, 1, 0))  # a retry: the snapshot knows it
        assert (again.duplicate, log.end_offset) == (True, end)
        with pytest.raises(ProducerFencedError):
            log.append_batch([b"old"], producer=ProducerBatch(70, 0, 0))
        for _ in range(9):
            log.append(b"y" * 90)
        assert store.archive(take_over=True).ok
        store.tick()
        assert log.archived_end_offset > end
        assert store.archive(include_active=True).ok
        log.delete_records(8)
        store.tick()
    pylog.restore(URL, "/third", fs=fs, clock=ManualClock(NOW))
    with opened(fs, "/third", "r") as store:
        assert (store.log("orders").start_offset, store.log("orders").end_offset) == (8, end + 9)
        assert store.verify().ok


def test_a_topic_that_was_tiered_comes_back_as_it_was(memory: MemoryObjects, fs: MemoryFileSystem) -> None:
    with pylog.open("/shop", archive=memory, fs=fs, clock=ManualClock(NOW)) as store:
        store.create_topic("orders", remote_storage_enable=True, local_retention_bytes=500, **CONFIG)
        for number in range(20):
            store.log("orders").append(b"%d" % number + b"x" * 80)
        store.tick()
        expected = store.topic("orders").config
    report = hollow(fs)
    assert report.lost > 0
    with pylog.open("/copy", archive=memory, fs=fs, clock=ManualClock(NOW)) as store:
        log = store.log("orders")
        assert (store.topic("orders").config, log.end_offset) == (expected, 20 - report.lost)
        assert [record.offset for record in log.records()] == list(range(log.end_offset))


@pytest.mark.parametrize("broken", ["a gap", "the small files"])
def test_a_partition_that_cannot_stay_is_restored_whole(memory: MemoryObjects, fs: MemoryFileSystem, broken: str) -> None:
    archived(fs)
    if broken == "the small files":  # with the state of producers
        for key in [key for key in memory.objects if key.startswith("orders-") and key.endswith(INDEXES)]:
            memory.objects[key] = memory.objects[key][:-1] + b"?"
    else:
        with opened(fs, "/shop") as store:
            log = store.log("orders")
            first = log.end_offset
            for _ in range(12):
                log.append(b"z" * 90)
            name = f"/shop/orders-0/{first:020}.log"
        data = fs.read(name, 1 << 20)
        assert data is not None
        file = fs.open(name, write=True)
        file.write(memoryview(b"?"), 100)
        file.close()
        with opened(fs, "/shop") as store:
            assert not store.archive(include_active=True).ok
    report = {each.partition: each for each in hollow(fs).partitions}
    assert report["orders", 0].remote_bytes == 0
    assert report["orders", 0].bytes > 0
    with opened(fs, "/copy", "r") as store:
        assert store.log("orders").read(7).value == b"7" + b"x" * 80


@pytest.mark.parametrize(
    "options",
    [
        {"remote_log_copy_disable": True, "local_retention_ms": 86_400_000},
        {"retention_ms": 1000, "local_retention_ms": 2000},
        {"cleanup_policy": "compact,delete"},
    ],
)
def test_a_topic_whose_options_exclude_tiering_is_restored_whole(
    memory: MemoryObjects, fs: MemoryFileSystem, options: dict[str, Any]
) -> None:
    with opened(fs, "/shop") as store:
        store.create_topic("orders", **options)
        store.create_topic("other")
        for topic in ("orders", "other"):
            store.log(topic).append(b"paid", key=b"1")
        store.archive(URL, include_active=True)
    assert {each.partition.topic: each.remote_bytes > 0 for each in hollow(fs).partitions} == {"orders": False, "other": True}
    with opened(fs, "/copy") as store:
        assert not store.topic("orders").config.remote_storage_enable
        assert [store.log(topic).read(0).value for topic in ("orders", "other")] == [b"paid", b"paid"]


@pytest.mark.parametrize("epochs", ["as they were", "removed"])
def test_the_offsets_of_a_partition_that_is_not_open_begin_in_the_archive(
    memory: MemoryObjects, fs: MemoryFileSystem, epochs: str
) -> None:
    with opened(fs, "/shop") as store:
        store.create_topic("orders", **CONFIG)
        store.log("orders").append_many([b"x" * 80] * 9)
        store.archive(URL, include_active=True)
        store.offsets.commit("billing", {("orders", 0): 2})
    hollow(fs)
    if epochs == "removed":  # a log can be read without them
        fs.remove("/copy/orders-0/leader-epoch-checkpoint")
    partition = pylog.TopicPartition("orders", 0)
    for appends in range(3):
        with opened(fs, "/copy", "r") as reader:
            assert reader.start_and_end_offsets([partition]) == {partition: (0, 9 + appends)}
        with opened(fs, "/copy") as store:
            assert store.start_and_end_offsets([partition]) == {partition: (0, 9 + appends)}
            assert store.log("orders").append(b"y") == 9 + appends


def test_an_interrupted_one_is_continued_and_a_whole_one_is_not(memory: MemoryObjects, fs: MemoryFileSystem) -> None:
    archived(fs)
    for at in range(0, 3000, 37):
        memory.requests.clear()
        memory.fault = lambda request, key, at=at: BEFORE if len(memory.requests) == at + 1 else None  # type: ignore[misc]
        try:
            hollow(fs)
        except ObjectStoreError:
            continue
        break
    else:
        raise AssertionError("it never finished")
    memory.fault = lambda request, key: None
    with opened(fs, "/copy") as store:
        assert store.log("orders").read(7).value == b"7" + b"x" * 80
    fs.make_directory("/other")
    memory.fault = lambda request, key: BEFORE if key.startswith("state-") else None
    with pytest.raises(ObjectStoreError):
        hollow(fs, "/other")
    memory.fault = lambda request, key: None
    with pytest.raises(InvalidArgumentError, match="unfinished restore with other arguments"):
        pylog.restore(URL, "/other", fs=fs, clock=ManualClock(NOW))


@pytest.mark.parametrize("more", [{"topics": ["orders"]}, {"as_of": NOW}])
def test_it_has_the_whole_archive_as_it_is_now(memory: MemoryObjects, fs: MemoryFileSystem, more: dict[str, Any]) -> None:
    archived(fs)
    with pytest.raises(InvalidArgumentError, match="leave out topics and as_of"):
        hollow(fs, **more)
    assert not fs.exists("/copy")


def test_a_line_says_that_the_topic_is_tiered_now(
    memory: MemoryObjects, fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    archived(fs)
    with caplog.at_level(logging.INFO):
        hollow(fs)
    (altered,) = [record.message for record in caplog.records if "Changed an option" in record.message]
    assert "topic=orders" in altered
    assert "remote_storage_enable" in altered


def test_the_command_shows_what_stayed_in_the_archive(tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", **CONFIG)
        for _ in range(12):
            store.log("orders").append(b"x" * 80)
        store.archive(archive, include_active=True)
    found = call("restore", archive, str(tmp_path / "copy"), "--hollow", "--json")
    assert found.code == 0, found.complaints
    assert '"bytes": 0' in found.text
    assert call("cat", str(tmp_path / "copy"), "orders").text.count("x" * 80) == 12
