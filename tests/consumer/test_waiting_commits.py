"""Commits in the background that wait: for a lock that another process holds, for room in the queue, for a lost membership."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import pylog
from pylog import Consumer, Durability, OffsetsConfig, TopicPartition, limits
from pylog.clock import ManualClock, SystemClock
from pylog.log.partition_log import PartitionLog
from pylog.store import manager_of
from pylog.testing import MemoryFileSystem

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOCK_S = 2.0


def opened(fs: MemoryFileSystem, clock: Any) -> pylog.Store:
    few, wait_ms = OffsetsConfig(topic_num_partitions=1), int(1000 * LOCK_S)
    return pylog.open("/s", fs=fs, clock=clock, durability=Durability.OS, offsets=few, lock_timeout_ms=wait_ms)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem, clock: ManualClock) -> Iterator[pylog.Store]:
    with opened(fs, clock) as made:
        made.create_topic("t", partition_count=2)
        for number in range(2):
            made.log("t", number).append_many([b"x"] * 100)
        yield made


def joined(store: pylog.Store, **options: Any) -> Consumer:
    consumer = store.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options)
    consumer.poll()
    return consumer


def group_log(store: pylog.Store) -> PartitionLog:
    return manager_of(store).log("__consumer_offsets", 0)


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("mixed", [False, True], ids=["of offsets", "of offsets and of positions in turn"])
def test_closing_waits_for_a_lock_that_is_held_a_few_times_however_many_commits_are_waiting(
    store: pylog.Store, fs: MemoryFileSystem, clock: ManualClock, mixed: bool
) -> None:
    with opened(fs.process(), clock) as other:
        consumer = joined(store)
        with group_log(other).exclusively():
            before = clock.monotonic()
            answers = [consumer.commit_async(None if mixed and each % 2 else {T0: each}) for each in range(100)]
            with pytest.raises(pylog.StoreLockedError):
                consumer.close()
            assert clock.monotonic() - before < 6 * LOCK_S
        assert {type(answer.exception(0)) for answer in answers} == {pylog.StoreLockedError}
        assert other.offsets.fetch("g") == {}


def test_one_refused_commit_keeps_none_of_those_that_wait_with_it_from_being_made(store: pylog.Store) -> None:
    consumer = joined(store)
    with group_log(store).exclusively():  # they wait together
        answers = [consumer.commit_async({T0: offset}) for offset in (3, 10**6, 5)]
    assert isinstance(answers[1].exception(60), pylog.OffsetOutOfRangeError)
    assert [answers[0].exception(60), answers[2].exception(60)] == [None, None]
    consumer.close()
    assert store.offsets.position("g", T0) == 5


@pytest.mark.pair("groups", "second process")
def test_the_queue_of_commits_has_a_bound_and_keeps_the_newest_offset_of_each_partition(
    fs: MemoryFileSystem, store: pylog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMITS_WAITING", 10)
    answers: list[Future[None]] = []
    with opened(fs.process(), SystemClock()) as mine:
        consumer = joined(mine)

        def request() -> None:
            answers.extend(consumer.commit_async({T0: number, T1: 99 - number}) for number in range(50))

        thread = threading.Thread(target=request)
        with group_log(store).exclusively():
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()  # it waits for room
            assert len(answers) <= 22  # those that wait, and those that were taken from the queue before
        thread.join()
        assert [answer.exception(60) for answer in answers] == [None] * 50
        consumer.close()
    assert {each: store.offsets.position("g", each) for each in (T0, T1)} == {T0: 49, T1: 50}


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("again", [False, True], ids=["not seen yet", "after it has joined again"])
@pytest.mark.parametrize("closes", [False, True], ids=["awaited", "at close"])
def test_commits_that_were_requested_before_a_membership_was_lost_are_refused(
    store: pylog.Store, fs: MemoryFileSystem, clock: ManualClock, again: bool, closes: bool
) -> None:
    with opened(fs.process(), clock) as elsewhere:
        slow = joined(store, max_poll_interval_ms=5_000)
        other = joined(elsewhere)
        while len(other.assignment()) < 2:
            clock.advance(500)
            other.poll(max_records=1)
        other.commit({T0: 60, T1: 60})
        answers = [slow.commit_async({T0: 5}), slow.commit_async()]
        if again:
            slow.poll(max_records=1)
        if closes:
            slow.close()
        assert all(isinstance(answer.exception(60), pylog.FencedMemberError) for answer in answers)
        assert {each: store.offsets.position("g", each) for each in (T0, T1)} == {T0: 60, T1: 60}
        for consumer in (slow, other):
            consumer.close(autocommit=False)
