"""Crashes between every two steps of the calls that free room on a full disk, for `./dev torture full` and a short test.

The disk has no free block when a call begins. After any of its steps the process dies, or the machine loses its power. The next
process opens the store on the disk, which may be full again. It finds each acknowledged record, and finishes what the call began.
"""

from __future__ import annotations

import contextlib
import errno
import random
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pylog
from pylog import TopicPartition
from pylog.clock import ManualClock
from pylog.directory.locks import PYLOG_LOCK
from pylog.limits import RESERVE_BYTES
from pylog.testing import Crash, Moment
from support.faults.small_disk import SmallDisk

ROOT: Final = "/data"
NOW: Final = 1_700_000_000_000
BLOCKS: Final = 120
RECORD: Final = 3000  # bytes
DELETED: Final = TopicPartition("t", 0)
KEPT: Final = TopicPartition("small", 0)
NEEDS_RESERVE: Final = {"alter and tick", "truncate at a segment", "truncate in a sealed segment", "delete_topic", "pylog delete"}


class Extent(NamedTuple):
    """The records of a topic; a topic that is deleted has none."""

    start: int
    end: int


class Scene(NamedTuple):
    """A full disk, and the store that filled it.

    Attributes:
        disk, store: the disk and the open store.
        extent: the acknowledged records of the topic `t`.
        values: of these records.
    """

    disk: SmallDisk
    store: pylog.Store
    extent: Extent
    values: list[bytes]


def _alter(store: pylog.Store) -> None:
    store.alter_topic("t", retention_bytes=30_000)
    store.tick()


def _delete(store: pylog.Store) -> None:
    if "t" in store.topics():
        store.delete_topic("t")


ACTIONS: Final[dict[str, Callable[[pylog.Store], object]]] = {
    "tick": lambda store: store.tick(),
    "alter and tick": _alter,
    "delete_records at a segment": lambda store: store.log("t").delete_records(before=48),
    "delete_records in a segment": lambda store: store.log("t").delete_records(before=51),
    "truncate at a segment": lambda store: store.log("t").truncate(end=24),
    "truncate in a sealed segment": lambda store: store.log("t").truncate(end=22),
    "truncate the active segment": lambda store: store.log("t").truncate(end=56),
    "delete_topic": _delete,
    "close": lambda store: store.close(),
    "pylog retain": lambda store: store.retain("t"),
    "pylog delete": _delete,
}


def opened(disk: SmallDisk) -> pylog.Store:
    """Opens the store on a disk, with one partition for committed offsets."""
    return pylog.open(ROOT, fs=disk, clock=disk.clock, offsets=pylog.OffsetsConfig(topic_num_partitions=1))


def filled() -> Scene:
    """Fills a disk with records at SYNC, and then to the last block."""
    disk = SmallDisk(BLOCKS, clock=ManualClock(NOW))
    store = opened(disk)
    store.create_topic("t", segment_bytes=20_000, retention_bytes=60_000)
    store.create_topic("small", retention_ms=-1)
    store.log("small").append(b"kept")
    values = [b"%06d" % number + b"v" * RECORD for number in range(BLOCKS)]
    log, end = store.log("t"), 0
    with contextlib.suppress(pylog.StorageFailedError):
        for value in values:
            end = log.append(value) + 1
            if end == 10:
                store.offsets.commit("g", {DELETED: 5, KEPT: 1})
    disk.fill()
    disk.sync_file(f"{ROOT}/{PYLOG_LOCK}")  # as the system does in half a minute
    return Scene(disk, store, Extent(0, end), values[:end])


def extent_of(store: pylog.Store, values: list[bytes]) -> Extent | None:
    """Returns the records of the topic; None if it is deleted. Checks each record."""
    if "t" not in store.topics():
        return None
    log = store.log("t")
    extent = Extent(log.start_offset, log.end_offset)
    found = {record.offset: record.value for record in log.records()}
    wanted = {number: values[number] for number in range(*extent)}
    assert found == wanted, f"{extent} has the records {sorted(found)}"
    return extent


class Case:
    """One action, recorded once, whose crashes are judged.

    Args:
        name: of the action.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._action = ACTIONS[name]
        self._is_command = name.startswith("pylog")  # of another process, after the first one has closed the store
        self._scene = filled()
        disk, store = self._scene.disk, self._scene.store
        self.start = len(disk.recording)
        if self._is_command:
            store.close()
            with opened(disk) as other:
                self._action(other)
        else:
            self._action(store)
        self._end = len(disk.recording)
        self.steps = self._end - self.start
        with pylog.open(ROOT, "r", fs=disk.process(), clock=disk.clock) as reader:
            self._wanted = extent_of(reader, self._scene.values)
            self._left_segments = self._segments(reader)
        with contextlib.suppress(pylog.PylogError):
            store.close()

    @staticmethod
    def _segments(store: pylog.Store) -> int:
        return len(store.log("t").segments) if "t" in store.topics() else 0

    def moments(self) -> Iterator[Moment]:
        """Yields the moment before the action, and those after each of its steps. The same object moves on."""
        moment = Moment.of(self._scene.disk.recording, self.start)
        yield moment
        while moment.after < self._end:
            moment.advance()
            yield moment

    def problem(self, moment: Moment, crash: Crash, *, taken: bool) -> str | None:
        """Crashes, opens the store again, and finishes the action. Returns what was wrong."""
        disk = self._scene.disk.after(moment, crash, taken=taken)
        try:
            self._judge(disk)
        except Exception:  # noqa: BLE001 - whatever it is, the disk was not freed
            return f"{self.name}, {crash}, {'full again' if taken else 'as it was'}:\n{traceback.format_exc(limit=-12)}"
        return None

    def _judge(self, disk: SmallDisk) -> None:
        keeps_reserve = disk.size_of(f"{ROOT}/{PYLOG_LOCK}") >= RESERVE_BYTES
        with opened(disk) as store:
            done = self._left(extent_of(store, self._scene.values))
            self._check(store, done)
            assert disk.size_of(f"{ROOT}/{PYLOG_LOCK}") >= RESERVE_BYTES or not disk.free(), "the reserve is not whole"
            if not done and (keeps_reserve or self._segments(store) > self._left_segments):
                self._finish(store, keeps_reserve=keeps_reserve)

    def _left(self, found: Extent | None) -> bool:
        """Checks that nothing is lost that the action does not delete. Returns whether it has happened."""
        before, after = self._scene.extent, self._wanted
        if found is None or after is None:
            assert found in (before, after), found
        else:
            assert before.start <= found.start <= after.start, found
            assert before.end >= found.end >= after.end, found
        return found == after

    def _check(self, store: pylog.Store, done: bool) -> None:
        assert [record.value for record in store.log("small").records()] == [b"kept"]
        committed = store.offsets.fetch("g")
        assert committed[KEPT].offset == 1
        assert (DELETED not in committed) == (done and self._wanted is None), committed
        worse = [finding for finding in store.verify().findings if finding.kind not in ("derived", "leftover")]
        assert not worse, worse

    def _finish(self, store: pylog.Store, *, keeps_reserve: bool) -> None:
        """Repeats the call. If the room that it had at the crash and its reserve are lost, a deletion of segments needs none.

        The disk has room for more records if the repeated call deletes segments. The room of those that were deleted before the
        crash may be taken.
        """
        deletes = self._segments(store) > self._left_segments
        try:
            self._action(store)
        except pylog.StorageFailedError as error:
            if keeps_reserve or error.errno != errno.ENOSPC or self.name not in NEEDS_RESERVE:
                raise
            store.log("t").delete_records(before=12)
            self._action(store)
        assert extent_of(store, self._scene.values) in (self._wanted, self._wanted and self._wanted._replace(start=12))
        self._check(store, done=True)
        assert store.verify().ok, str(store.verify())
        if self._wanted is not None and deletes:
            assert store.log("t").append(self._scene.values[0]) == self._wanted.end
        assert store.log("small").append(b"more") == 1


def crashes(moment: Moment, draw: random.Random, most: int) -> list[Crash]:
    """Returns a process's death and some losses of power at a moment."""
    return [*moment.deaths(draw, cuts=1), *moment.crashes(draw, subsets=most, cuts=1)]


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Judges crashes until the time is up: each action's steps in a random order. Returns the figures and the violations."""
    draw, deadline = random.Random(seed), time.monotonic() + seconds
    violations: list[str] = []
    judged = rounds = 0
    while time.monotonic() < deadline and len(violations) < 5:
        rounds += 1
        for name in draw.sample(sorted(ACTIONS), len(ACTIONS)):
            case = Case(name)
            for moment in case.moments():
                if time.monotonic() >= deadline:
                    break
                crash = draw.choice(crashes(moment, draw, 4))
                found = case.problem(moment, crash, taken=draw.random() < 0.5)
                judged += 1
                violations += [] if found is None else [f"seed {seed}: {found}"]
    return {"seed": seed, "rounds": rounds, "judged": judged, "violations": violations}
