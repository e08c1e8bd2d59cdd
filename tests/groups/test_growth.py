"""What a group leaves on the disk is bounded: commits are compacted, and dead members leave no room taken."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import pylog
from pylog import Durability, OffsetsConfig
from pylog.clock import ManualClock
from pylog.groups.members_file import MEMBERS_FILE
from pylog.testing import MemoryFileSystem

SEGMENT, SLOT = 16 << 10, 128
PARTITION = "/s/__consumer_offsets-0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    return MemoryFileSystem(clock=clock)


def opened(fs: MemoryFileSystem, clock: ManualClock) -> pylog.Store:
    few = OffsetsConfig(topic_num_partitions=1, topic_segment_bytes=SEGMENT)
    return pylog.open("/s", fs=fs, clock=clock, offsets=few, durability=Durability.OS)


def size_of(fs: MemoryFileSystem, suffix: str) -> int:
    names = [entry.name for entry in fs.list(PARTITION) if entry.name.endswith(suffix)]
    return sum(len(fs.read(f"{PARTITION}/{name}", 1 << 30) or b"") for name in names)


@pytest.mark.slow
def test_a_group_that_commits_again_and_again_has_small_files_and_few_records(fs: MemoryFileSystem, clock: ManualClock) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 100)
        largest = 0
        for number in range(4_000):  # 400 KiB
            store.offsets.commit("g", {("t", 0): number % 100})
            if not number % 100:
                clock.advance(60_000)
                store.tick()
                largest = max(largest, size_of(fs, ".log"))
        assert largest < 4 * SEGMENT
    with opened(fs, clock) as store:
        assert store.offsets.position("g", ("t", 0)) == 99
        assert sum(1 for _ in store.log("__consumer_offsets").records()) < 3 * SEGMENT // 100


def joined(fs: MemoryFileSystem, clock: ManualClock, **options: Any) -> tuple[pylog.Store, pylog.Consumer]:
    store = opened(fs, clock)
    consumer = store.consumer("t", group_id="g", session_timeout_ms=10_000, **options)
    consumer.poll()
    return store, consumer


def killed(fs: MemoryFileSystem, clock: ManualClock, **options: Any) -> None:
    """A member in a process of its own, which ends at once."""
    process = fs.process()
    store, consumer = joined(process, clock, **options)
    process.kill()
    with suppress(pylog.PylogError):
        consumer.close(autocommit=False)
    with suppress(pylog.PylogError):
        store.close()


@pytest.mark.pair("groups", "crash")
def test_members_that_were_killed_leave_neither_records_nor_room_in_the_members_file(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", partition_count=4)
        for _ in range(20):
            killed(fs, clock)
        assert size_of(fs, MEMBERS_FILE) <= 4 * SLOT
        assert len(store.group("g").describe().members) == 1


@pytest.mark.slow
@pytest.mark.pair("groups", "crash")
def test_static_members_that_were_killed_are_removed_after_their_session_and_their_room_is_used_again(
    fs: MemoryFileSystem, clock: ManualClock
) -> None:
    with opened(fs, clock) as store:
        store.create_topic("t", partition_count=4)
        sizes = []
        for turn in range(3):
            for number in range(10):
                killed(fs, clock, group_instance_id=f"{turn}-{number}")
            with store.consumer("t", group_id="g") as living:
                for _ in range(8):
                    clock.advance(3_000)
                    living.poll()
                assert len(store.group("g").describe().members) == 1
            sizes.append(size_of(fs, MEMBERS_FILE))
        assert sizes[-1] <= sizes[0] + SLOT
