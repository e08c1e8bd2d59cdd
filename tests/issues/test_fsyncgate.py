"""fsyncgate (PostgreSQL, 2018): a failed fsync was called again, succeeded, and what it had not written counted as durable."""

from __future__ import annotations

import pytest

import pylog
from pylog import Durability
from pylog.testing import FaultyFileSystem, MemoryFileSystem, RecordingFileSystem
from pylog.testing.memory import SYNC


def a_log(disk: MemoryFileSystem) -> tuple[FaultyFileSystem, pylog.Store, pylog.Log]:
    fs = FaultyFileSystem(disk)
    store = pylog.open("/data", fs=fs, clock=disk.clock)
    log = store.create_topic("t") and store.log("t")
    log.append(b"0")
    return fs, store, log


def test_after_a_failed_sync_nothing_is_acknowledged_and_the_sync_is_not_tried_again() -> None:
    disk = RecordingFileSystem()
    fs, store, log = a_log(disk)
    fs.fail("sync EIO", of=".log")
    with pytest.raises(pylog.StorageFailedError):
        log.append(b"1")
    assert fs.fired == 1
    before = len(disk.recording)
    for call in (log.flush, store.flush, lambda: log.append(b"2"), lambda: log.append(b"2", durability=Durability.OS)):
        with pytest.raises(pylog.ClosedError):
            call()
    assert (log.durable_offset, log.end_offset) == (1, 1)
    store.close()
    later = disk.recording.operations[before:]
    assert [operation.path for operation in later if operation.kind == SYNC and operation.path.endswith(".log")] == []
    assert not disk.exists("/data/.kafka_cleanshutdown")


@pytest.mark.parametrize("level", [Durability.SYNC, Durability.OS])
def test_records_that_the_next_opening_keeps_of_a_failed_sync_outlive_the_power(level: Durability) -> None:
    """The cache shows bytes that no sync will ever write: who believes them must write them again."""
    disk = MemoryFileSystem()
    fs, _, log = a_log(disk)
    if level == Durability.OS:
        log.append(b"acknowledged, not synced", durability=level)
    fs.fail("sync EIO", of=".log")
    with pytest.raises(pylog.StorageFailedError):
        log.append(b"refused")
    disk.kill()
    other = disk.process()
    store = pylog.open("/data", fs=other, clock=other.clock)
    log = store.log("t")
    log.append(b"next")
    kept = [record.value for record in log.records()]
    assert kept[0] == b"0"
    assert kept[-1] == b"next"
    assert log.durable_offset == len(kept)
    after = other.crash()
    with pylog.open("/data", fs=after, clock=after.clock) as store:
        assert [record.value for record in store.log("t").records()] == kept
        assert store.check().ok
