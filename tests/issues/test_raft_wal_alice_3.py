"""raft-wal, ALICE 3: the directory was not synced after a file was made in it, and a power loss took it with its records."""

from __future__ import annotations

import pytest

import pylog
from pylog import Durability
from pylog.testing import RecordingFileSystem
from pylog.testing.memory import SYNC_DIRECTORY
from pylog.testing.recording import CallSite

LEVELS = [Durability.SYNC, Durability.OS]


@pytest.mark.parametrize("level", LEVELS)
def test_every_name_that_an_acknowledged_record_needs_outlives_the_power(level: Durability) -> None:
    """A new directory, topic, partition and segment, and a power loss after each of the first records."""
    for count in range(1, 8):
        fs = RecordingFileSystem()
        store = pylog.open("/data", fs=fs, clock=fs.clock, durability=level)
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        for number in range(count):
            log.append(b"%d" % number)
        log.flush()
        fs = fs.crash()
        with pylog.open("/data", fs=fs, clock=fs.clock) as store:
            assert [record.value for record in store.log("t").records()] == [b"%d" % number for number in range(count)]


def test_at_every_acknowledgement_all_names_below_the_store_are_durable() -> None:
    """Stronger than that records survive: no name waits for a sync when a call returns that promises anything."""
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200, partition_count=2) and store.log("t")
        for number in range(6):
            log.append(b"%d" % number)
            assert volatile_names(fs) == []
        log.delete_records(3)
        assert volatile_names(fs) == []
        log.truncate(4)
        assert volatile_names(fs) == []
        store.add_partitions("t", 3)
        assert volatile_names(fs) == []
        store.delete_topic("t")
        assert [name for name in volatile_names(fs) if not name.endswith("-delete")] == []


def volatile_names(fs: RecordingFileSystem) -> list[str]:
    """Paths that exist in the cache only, or on the disk only; the lock files hold no data."""
    now, later = names(fs), names(fs.process(), durable=True)
    return sorted(path for path in now ^ later if not path.endswith((".lock", ".deleted")))


def names(fs: RecordingFileSystem, *, durable: bool = False) -> set[str]:
    image = fs.image(durable=durable)
    found, waiting = set(), [(1, "")]
    while waiting:
        number, path = waiting.pop()
        for name, child in image.directories[number].items():
            found.add(f"{path}/{name}")
            waiting += [(child, f"{path}/{name}")] if child in image.directories else []
    return found


def test_the_test_notices_a_directory_that_is_not_synced() -> None:
    def directories(site: CallSite) -> bool:
        return site.kind == SYNC_DIRECTORY

    fs = RecordingFileSystem(without=directories)
    store = pylog.open("/data", fs=fs, clock=fs.clock)
    store.create_topic("t")
    assert volatile_names(fs) != []
