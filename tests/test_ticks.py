"""What is due is done in every partition that can do it; and nothing is deleted that somebody is waited for to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.errors import ClosedError, StorageFailedError
from pylog.fs import OsFileSystem
from pylog.testing import FaultyFileSystem
from support.faults.neighbours import values

DAY_MS = 86_400_000
NOW = 1_700_000_000_000
PLACE = ("audit", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    """With a topic whose retention waits for a group."""
    with pylog.open(tmp_path, clock=ManualClock(NOW)) as opened:
        opened.create_topic("audit", retention_ms=1, retention_group="billing", segment_bytes=300)
        yield opened


def append(store: pylog.Store, name: str, count: int) -> None:
    for number in range(count):
        store.log("audit").append(f"{name} {number}".encode())


def test_a_partition_that_takes_no_writes_does_not_end_the_compaction_of_the_others(tmp_path: Path) -> None:
    fs = FaultyFileSystem(OsFileSystem())
    store = pylog.open(tmp_path, fs=fs)
    store.create_topic("a-sick-one")
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=200)
    store.log("a-sick-one").append(b"x")
    for number in range(50):
        store.log("prices").append(b"%d" % number, key=b"tea")
    fs.fail("sync EIO", of="a-sick-one-0/00000000000000000000.log")
    with pytest.raises(StorageFailedError):
        store.log("a-sick-one").append(b"y")
    with pytest.raises(ClosedError):
        store.tick()
    assert len(values(store.log("prices"))) < 5
    store.close()


@pytest.mark.slow
def test_a_commit_beyond_the_log_end_does_not_release_unread_records(store: pylog.Store) -> None:
    """Of a log that was truncated since, or of a deleted topic of that name."""
    append(store, "old", 100)
    store.offsets.commit("billing", {PLACE: 100})
    store.log("audit").truncate(50)
    append(store, "new", 40)
    assert store.tick(NOW + DAY_MS) == 0
    assert store.log("audit").start_offset == 0


def test_offsets_that_retention_waits_for_do_not_expire(store: pylog.Store) -> None:
    append(store, "read", 10)
    store.offsets.commit("billing", {PLACE: 10})
    store.create_topic("other")
    store.offsets.commit("billing", {("other", 0): 0})
    store.offsets.commit("idle", {PLACE: 10})
    append(store, "unread", 10)
    store.tick(NOW)  # the first one only notes when to look
    store.tick(NOW + 8 * DAY_MS)
    assert store.groups() == ["billing"]
    assert store.offsets.fetch("billing").keys() == {pylog.TopicPartition(*PLACE)}
    with store.consumer("audit", group_id="billing") as consumer:
        assert [record.value for records in consumer.poll(timeout_ms=20_000).values() for record in records][:1] == [b"unread 0"]
