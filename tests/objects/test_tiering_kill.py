"""A process dies before and after each request to the archive, and before each change of a file: nothing is lost or twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.objects.manifest import decode_manifest, decode_store
from pylog.objects.segment_catalogue import decode_catalogue
from pylog.testing import MemoryFileSystem
from pylog.testing.memory import Operation
from support.objects import MemoryObjects, every_url

DAY_MS = 86_400_000
Step = Callable[[pylog.Store], object]


class KilledError(BaseException):
    """The process dies."""


class Disk(MemoryFileSystem):
    """A disk whose process dies before the change with a number."""

    left = -1

    def admit(self, operation: Operation) -> bool:
        self.left -= 1
        if self.left == 0:
            raise KilledError
        return True


class Cloud(MemoryObjects):
    """An archive in whose request with a number the process dies: before it, or after it."""

    left = -1
    after = False

    def _begin(self, request: str, key: str) -> str | None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KilledError
        return super()._begin(request, key)

    def _end(self, fault: str | None, request: str, key: str) -> None:
        if self.left == 0 and self.after:
            raise KilledError
        super()._end(fault, request, key)


class Place(NamedTuple):
    disk: Disk
    cloud: Cloud
    clock: ManualClock

    def open(self) -> pylog.Store:
        return pylog.open("/shop", archive=self.cloud, fs=self.disk, clock=self.clock)


@functools.cache
def made() -> Place:
    """A tiered topic of 20 records: some are only in the archive, some in both tiers, some only on the disk."""
    place = Place(Disk(clock=ManualClock(1_700_000_000_000)), Cloud(), ManualClock(1_700_000_000_000))
    with place.open() as store:
        store.create_topic("t", remote_storage_enable=True, retention_ms=-1, local_retention_bytes=300, segment_bytes=300)
        for number in range(14):
            store.log("t").append(b"%d" % number + b"x" * 60)
        store.tick()
        assert store.log("t").local_start_offset > 0
        for number in range(14, 20):
            store.log("t").append(b"%d" % number + b"x" * 60)
    return place


def begun() -> Place:
    first, clock = made(), ManualClock(1_700_000_000_000)
    disk = Disk(clock=clock, image=first.disk.image())
    return Place(disk, Cloud(objects=dict(first.cloud.objects), times=dict(first.cloud.times)), clock)


def tick(store: pylog.Store) -> None:
    store.tick()


def delete(store: pylog.Store) -> None:
    store.log("t").delete_records(6)


def cut(store: pylog.Store) -> None:
    store.log("t").truncate(10)


STEPS: dict[str, tuple[Step, range, range]] = {  # and the log starts and ends that may be there afterwards
    "truncate": (cut, range(1), range(10, 21)),  # segments are deleted one by one
    "delete_records": (delete, range(0, 7, 6), range(20, 21)),
    "tick": (tick, range(1), range(20, 21)),
}


def died(step: Step, count: int, where: str) -> tuple[Place, bool] | None:
    """Has a process die in a step. Returns what is left, and whether it died; None if the step has fewer requests or changes."""
    place = begun()
    store = place.open()
    if where == "change":
        place.disk.left = count
    else:
        place.cloud.left, place.cloud.after = count, where == "after"
    is_dead = False
    try:
        step(store)
    except KilledError:
        is_dead = True
    left = max(place.disk.left, place.cloud.left)
    place.disk.left = place.cloud.left = -1
    if is_dead:
        place.disk.kill()
        return place._replace(disk=place.disk.process() if count % 2 else place.disk.crash()), True
    store.close()
    return None if left > 0 else (place, False)


@pytest.mark.pair("crash", "retention by size", "delete_records", "truncation")
@pytest.mark.sampled(5)
@pytest.mark.parametrize("where", ["before", "after", "change"])
@pytest.mark.parametrize("name", STEPS)
def test_a_process_that_dies_anywhere_loses_and_repeats_no_record(name: str, where: str) -> None:
    step, starts, ends = STEPS[name]
    count = deaths = 0
    while (left := died(step, count := count + 1, where)) is not None:
        place, is_dead = left
        deaths += is_dead
        with place.open() as store:
            log = store.log("t")
            start, end = log.start_offset, log.end_offset
            assert (start in starts, end in ends) == (True, True), (start, end)
            check(log, start, end)
            store.tick()
            place.clock.advance(DAY_MS + 1)
            store.tick()
            assert log.start_offset in starts
            check(log, max(start, log.start_offset), end)
            assert log.archived_end_offset == log.segments[-1].base_offset
            if deaths % 8 == 1:
                assert store.verify().ok
    assert deaths > 3


def newest(cloud: Cloud, prefix: str, suffix: str) -> bytes | None:
    """The newest document under a prefix."""
    keys = [key for key in cloud.objects if key.startswith(prefix) and key.endswith(suffix)]
    return cloud.objects[max(keys)] if keys else None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("tiered", [True, False], ids=["tick", "archive"])
def test_a_process_that_dies_in_a_first_upload_leaves_a_topic_that_a_restore_finds(after: bool, tiered: bool) -> None:
    """And the next process brings the catalogue up to date, although it uploads nothing."""
    for count in range(1, 200):
        place = Place(Disk(clock=ManualClock(1_700_000_000_000)), Cloud(), ManualClock(1_700_000_000_000))
        store = place.open()
        store.create_topic("t", remote_storage_enable=tiered, retention_ms=-1, segment_bytes=300)
        for number in range(5):
            store.log("t").append(b"%d" % number + b"x" * 60)
        place.cloud.left, place.cloud.after = count, after
        with every_url(place.cloud):
            try:
                store.tick() if tiered else store.archive()
            except KilledError:
                place.disk.kill()
            else:
                store.close()
        has_died, place.cloud.left = place.cloud.left <= 0, -1
        archived = newest(place.cloud, "pylog/partitions/t-", ".json.zst")
        named = newest(place.cloud, "pylog/store/0", ".json.zst")
        assert archived is None or (named is not None and "t" in decode_store(named, "x").topics), count
        if not has_died:
            return
        with every_url(place.cloud), place._replace(disk=place.disk.process()).open() as store:
            store.tick() if tiered else store.archive()
            catalogue = newest(place.cloud, "pylog/catalogue/t-", ".parquet")
            version = decode_manifest(newest(place.cloud, "pylog/partitions/t-", ".json.zst") or b"", "x").version
            assert catalogue is not None
            assert decode_catalogue(catalogue, "x").partitions[0].version == version, count
    pytest.fail("it never came to an end")


def check(log: pylog.Log, start: int, end: int) -> None:
    found: list[Any] = [(record.offset, record.value) for record in log.records()]
    assert found == [(number, b"%d" % number + b"x" * 60) for number in range(start, end)]
