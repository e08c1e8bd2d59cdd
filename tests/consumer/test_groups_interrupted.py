"""Consumers of a group that are interrupted, or slow: no partition is lost or kept too long."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import Any

import pytest

import pylog
from pylog import Consumer, ConsumerRebalanceListener, TopicPartition
from pylog.clock import ManualClock
from support.engines import assignment_of
from support.faults.interruptions import steps
from support.groups import consumers
from support.groups.consumers import PLACES, Told, committed, member, owned, taken

clock = pytest.fixture(consumers.clock)
store = pytest.fixture(consumers.store)


# ---- interrupts --------------------------------------------------------------------------------------------------------------


class Interrupt:
    """Ctrl-C at one line of the modules that keep an assignment: the first one of what runs inside, the second, and so on."""

    def __init__(self, line: int, *modules: str) -> None:
        self._left = line
        self._modules = tuple(f"/pylog/{module}.py" for module in modules)

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, _event: str, _given: object) -> Any:
        return self._line if frame.f_code.co_filename.endswith(self._modules) else None

    def _line(self, frame: FrameType, event: str, _given: object) -> Any:
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).split()
        self._left -= event == "line" and text[0] != "with"  # Python lets none come between a block and its lock's release
        if self._left == 0:
            raise KeyboardInterrupt
        return self._line


def is_interrupted(line: int, modules: tuple[str, ...], consumer: Consumer, seen: list[tuple[int, int]]) -> bool:
    """Polls once; whether the interrupt came."""
    try:
        with Interrupt(line, *modules):
            found = consumer.poll()
    except KeyboardInterrupt:
        return True
    seen += [(record.partition, record.offset) for part in found.values() for record in part]
    return False


INSIDE = [("consumer/assignment",), ("consumer/assignment", "groups/member", "consumer/standalone_membership")]

EVERYTHING = [(number, offset) for number in range(4) for offset in range(10)]


@pytest.mark.slow
@pytest.mark.parametrize("modules", INSIDE)
def test_a_partition_that_a_member_is_assigned_is_not_lost_by_an_interrupt(store: pylog.Store, modules: tuple[str, ...]) -> None:
    for line in steps(3):
        seen: list[tuple[int, int]] = []
        with member(store, enable_auto_commit=False) as one:
            was_interrupted = is_interrupted(line, modules, one, seen)
            assert sorted(seen + taken(one)) == EVERYTHING, line
        if not was_interrupted:
            break
    assert line > 10


@pytest.mark.slow
@pytest.mark.parametrize("modules", INSIDE)
def test_a_partition_that_a_member_must_release_is_released_despite_an_interrupt(
    store: pylog.Store, modules: tuple[str, ...]
) -> None:
    for line in steps(3):
        seen: list[tuple[int, int]] = []
        with member(store, enable_auto_commit=False) as one, member(store, enable_auto_commit=False) as two:
            one.poll(max_records=1)
            two.poll()
            was_interrupted = is_interrupted(line, modules, one, seen)
            taken(one, two)
            assert (len(owned(one)), len(owned(two))) == (2, 2), line
            assert owned(one) | owned(two) == set(range(4)), line
        if not was_interrupted:
            break
    assert line > 10


@pytest.mark.slow
@pytest.mark.parametrize("modules", INSIDE)
def test_a_partition_that_a_member_leaves_is_released_despite_an_interrupt(store: pylog.Store, modules: tuple[str, ...]) -> None:
    for line in steps(3):
        with member(store, enable_auto_commit=False) as one, member(store, enable_auto_commit=False) as two:
            one.poll(max_records=1)
            one.subscribe(pattern="nothing")
            was_interrupted = is_interrupted(line, modules, one, [])
            taken(one, two)
            assert (owned(one), owned(two)) == (set(), set(range(4))), line
        if not was_interrupted:
            break
    assert line > 10


@pytest.mark.slow
def test_lost_partitions_are_not_read_after_an_interrupt(store: pylog.Store, clock: ManualClock) -> None:
    for line in steps(3):
        with member(store, enable_auto_commit=False, max_poll_interval_ms=10_000) as slow, member(store) as other:
            slow.poll()
            while len(owned(other)) < 4:
                clock.advance(200)
                other.poll()
            was_interrupted = is_interrupted(line, INSIDE[0], slow, [])
            taken(slow, other)
            assert (len(owned(slow)), len(owned(other))) == (2, 2), line
            assert owned(slow).isdisjoint(owned(other)), line
        if not was_interrupted:
            break
    assert line > 10


@pytest.mark.slow
def test_a_single_member_misses_no_partition_after_an_interrupt(store: pylog.Store) -> None:
    for line in steps(3):
        seen: list[tuple[int, int]] = []
        with store.consumer("t", auto_offset_reset="earliest") as consumer:
            was_interrupted = is_interrupted(line, INSIDE[1], consumer, seen)
            assert sorted(seen + taken(consumer)) == EVERYTHING, line
        if not was_interrupted:
            break
    assert line > 10


def test_a_seek_after_an_interrupted_assignment_stays(store: pylog.Store) -> None:
    class Interrupted(ConsumerRebalanceListener):
        told = 0

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            self.told += 1
            if self.told == 1:
                raise KeyboardInterrupt

    listener = Interrupted()
    with member(store, listener) as one:
        with pytest.raises(KeyboardInterrupt):
            one.poll()
        for place in PLACES:
            one.seek(place, 8)
        assert sorted(taken(one)) == [(number, offset) for number in range(4) for offset in (8, 9)]
        assert listener.told == 2


# ---- slow members ------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("groups", "second process")
def test_a_slow_iteration_keeps_its_partitions_and_commits_by_itself(store: pylog.Store, clock: ManualClock) -> None:
    listener, read = Told(store), list[tuple[int, int]]()
    slow = member(store, listener, max_poll_interval_ms=5_000, auto_commit_interval_ms=1_000, max_poll_records=40)
    with slow, member(store, max_poll_records=1) as other:
        for record in slow:
            clock.advance(1_000)
            assert record.partition in owned(slow)
            read.append((record.partition, record.offset))
            other.poll(max_records=1)
            if len(read) == 15:
                break
        assert "lost" not in [what for what, *_ in listener.told]
        assert len(owned(slow)) == 2
        assert sum(committed(store).values()) >= 10
    assert len(set(read)) == 15


def _taken_over(other: Consumer, clock: ManualClock) -> None:
    """Another member is given all partitions, because more time passes than a member may take between two polls."""
    while len(owned(other)) < 4:
        clock.advance(500)
        other.poll(max_records=1)


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("left", [False, True], ids=["in one loop", "in a loop that begins again"])
def test_an_iteration_that_becomes_slow_is_handed_nothing_before_it_is_told_what_it_lost(
    store: pylog.Store, clock: ManualClock, left: bool
) -> None:
    listener = Told(store)
    slow = member(store, listener, max_poll_interval_ms=5_000, max_poll_records=40, consumer_timeout_ms=0)
    with slow, member(store, max_poll_records=1) as other:
        records = iter(slow)
        for _ in range(3):  # at once: a loop that reads the clock for some records only would not read it now
            next(records)
        _taken_over(other, clock)
        next(iter(slow) if left else records, None)
        assert "lost" in [what for what, *_ in listener.told]


@pytest.mark.pair("groups", "second process")
def test_a_commit_in_the_background_of_an_old_membership_is_refused(store: pylog.Store, clock: ManualClock) -> None:
    slow = member(store, max_poll_interval_ms=10_000, enable_auto_commit=False)
    slow.poll(max_records=3)
    old = assignment_of(slow).identity
    with member(store) as other:
        while len(owned(other)) < 4:
            clock.advance(200)
            other.poll()
    slow.poll()  # which learns that it was put out, and joins again
    while owned(slow) != set(range(4)):
        slow.poll()
    before = committed(store)
    late = slow._commits.commit_async({PLACES[0]: 1}, None, chosen=True, logs=slow._offsets.logs_of([PLACES[0]]), identity=old)
    assert isinstance(late.exception(60), pylog.FencedMemberError)
    assert committed(store) == before
    assert slow.commit_async({PLACES[0]: 7}).exception(60) is None
    slow.close()


def test_commits_in_the_background_that_wait_together_are_one_append_and_the_newest_offsets_stay(store: pylog.Store) -> None:
    told: list[object] = []
    with member(store, enable_auto_commit=False) as consumer:
        consumer.poll()
        log = store.log("__consumer_offsets", 0)
        before = log.end_offset
        with assignment_of(consumer)._turn:  # one is under way, so that the others wait together
            calls = [
                consumer.commit_async({place: number % 10}, lambda *given: told.append(given))
                for number in range(500)
                for place in PLACES[:2]
            ]
        assert [call.exception(60) for call in calls] == [None] * 1_000
        assert log.end_offset - before < 20
        assert [committed(store)[number] for number in range(2)] == [9, 9]
        consumer.commit()
        assert len(told) == 1_000
        assert all(len(offsets) == 1 and error is None for offsets, error in told)  # type: ignore[misc]
