"""What a consumer commits: when it is told, in the background, by itself; and what it goes on from."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any

import pytest

import pylog
from pylog import Consumer, Durability, OffsetAndMetadata, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError
from pylog.offsets.store import offset_manager_of
from pylog.testing import MemoryFileSystem
from support.groups.consumers import store_in_memory

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def store(clock: ManualClock) -> Iterator[pylog.Store]:
    """A topic of two partitions with ten records in each."""
    with store_in_memory(clock, partitions=2, records=10) as opened:
        yield opened


def assigned(store: pylog.Store, **options: Any) -> Consumer:
    consumer = store.consumer(**{"group_id": "g", "auto_offset_reset": "earliest", **options})
    consumer.assign([T0, T1])
    return consumer


def committed(store: pylog.Store) -> dict[int, int]:
    return {place.partition: found.offset for place, found in store.offsets.fetch("g").items()}


# ---- when it is told ---------------------------------------------------------------------------------------------------------


def test_a_commit_is_of_what_was_returned_and_the_next_consumer_goes_on_there(store: pylog.Store) -> None:
    with assigned(store, enable_auto_commit=False) as consumer:
        consumer.poll(max_records=3)
        consumer.commit()
        assert committed(store) == {0: 3, 1: 0}  # the position of the other is known too
        consumer.poll(max_records=100)
        assert (consumer.committed(T0), consumer.position(T0)) == (3, 10)
    with assigned(store) as consumer:
        assert [record.offset for record in consumer.poll(max_records=100)[T0]] == list(range(3, 10))


def test_in_an_iteration_a_commit_is_up_to_the_record_in_hand(store: pylog.Store) -> None:
    with assigned(store, enable_auto_commit=False, consumer_timeout_ms=0) as consumer:
        consumer.pause(T1)
        for record in consumer:
            consumer.commit()
            assert committed(store)[0] == record.offset + 1


def test_offsets_of_ones_own_choice_are_committed_as_they_are_given(store: pylog.Store) -> None:
    with assigned(store, enable_auto_commit=False) as consumer:
        consumer.commit({T0: 7, ("t", 1): OffsetAndMetadata(4, "half way", 0)})
        assert consumer.committed(T0) == 7
        assert consumer.committed(T1, metadata=True)[:3] == (4, "half way", 0)
        consumer.commit({T0: 2})  # backwards too
        assert consumer.committed(T0) == 2
        consumer.commit({})
        assert consumer.committed(("t", 1)) == 4


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ({T0: 11}, pylog.OffsetOutOfRangeError, "past the end"),
        ({T0: -1}, pylog.InvalidArgumentError, "offset=-1"),
        ({TopicPartition("t", 9): 1}, pylog.UnknownTopicOrPartitionError, "partition 9 of"),
        ({TopicPartition("u", 0): 1}, pylog.UnknownTopicOrPartitionError, "no topic 'u'"),
        ({T0: OffsetAndMetadata(1, "x" * 5_000)}, pylog.InvalidArgumentError, "metadata"),
        ({"t": 1}, pylog.InvalidArgumentError, "not a partition"),
        ([(T0, 1)], pylog.InvalidArgumentError, "a mapping of partitions to offsets"),
        ({T0: "1"}, pylog.InvalidArgumentError, "offset='1'"),
    ],
)
def test_offsets_that_cannot_be_are_refused_and_nothing_is_committed(
    store: pylog.Store, offsets: Any, error: type[pylog.PylogError], words: str
) -> None:
    with assigned(store, enable_auto_commit=False) as consumer:
        with pytest.raises(error, match=words):
            consumer.commit({T1: 1, **offsets} if isinstance(offsets, dict) else offsets)
        assert committed(store) == {}


def test_without_a_group_nothing_can_be_committed(store: pylog.Store) -> None:
    with store.consumer("t") as consumer:
        for ask in (consumer.commit, consumer.commit_async, lambda: consumer.committed(T0)):
            with pytest.raises(pylog.IllegalStateError, match="no group"):
                ask()


def test_a_position_that_is_not_known_is_not_committed(store: pylog.Store) -> None:
    with assigned(store, enable_auto_commit=False) as consumer:
        consumer.commit()
        assert committed(store) == {}
        consumer.seek(T1, 4)
        consumer.commit()
        assert committed(store) == {1: 4}


def test_a_position_that_its_log_was_cut_below_keeps_no_other_from_being_committed(
    store: pylog.Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[Any] = []
    with assigned(store, auto_commit_interval_ms=1_000) as consumer, caplog.at_level(logging.WARNING):
        consumer.poll(max_records=100)
        consumer.pause(T0)
        store.log("t", 0).truncate(5)
        clock.advance(1_000)
        consumer.poll()
        assert committed(store) == {1: 10}
        assert "10 is past the end of t-0, which is 5" in caplog.text
        caplog.clear()
        consumer.seek(T1, 7)
        consumer.commit()
        assert committed(store) == {1: 7}
        consumer.seek(T1, 6)
        consumer.commit_async(callback=lambda *told: called.append(told)).result(60)
        consumer.commit()
        assert [(set(offsets), error) for offsets, error in called] == [({T1}, None)]
        assert caplog.text == ""  # it was said
        with pytest.raises(pylog.OffsetOutOfRangeError, match="past the end of t-0"):
            consumer.commit({T0: 10, T1: 9})
        store.log("t", 0).append_many([b"x"] * 5)
        consumer.seek(T1, 5)
        consumer.commit()
        assert committed(store) == {0: 10, 1: 5}


@pytest.mark.parametrize("shared", [False, True])
def test_a_topic_that_is_deleted_takes_no_progress_in_others_with_it(store: pylog.Store, *, shared: bool) -> None:
    store.create_topic("u")
    store.log("u").append_many([b"x"] * 10)
    with store.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        if shared:
            consumer.subscribe(["t", "u"])
        else:
            consumer.assign([T0, T1, TopicPartition("u", 0)])
        while consumer.poll():
            pass
        store.delete_topic("u")
    assert {tuple(place): found.offset for place, found in store.offsets.fetch("g").items()} == {T0: 10, T1: 10}


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("by", ["this store", "another"])
def test_a_topic_that_is_deleted_and_made_again_is_read_from_its_beginning(
    store: pylog.Store, group: str | None, by: str
) -> None:
    files = offset_manager_of(store.offsets).fs
    with (
        pylog.open(store.path, fs=files) as another,
        store.consumer("t", group_id=group, auto_offset_reset="earliest") as consumer,
    ):
        while consumer.poll():
            pass
        deleting = store if by == "this store" else another
        deleting.delete_topic("t")
        deleting.create_topic("t", partition_count=2)
        deleting.log("t", 0).append_many([b"new"] * 12)
        if group is not None:
            consumer.commit()  # of no position that is of the old records
            assert committed(another) == {}
        got = [record.offset for _ in range(100) for records in consumer.poll(timeout_ms=10).values() for record in records]
        assert got == list(range(12))


def test_assigned_partitions_report_once_that_they_were_created_again_and_restart(store: pylog.Store) -> None:
    with assigned(store) as consumer:
        while consumer.poll():
            pass
        store.delete_topic("t")
        store.create_topic("t", partition_count=2)
        store.log("t", 0).append_many([b"new"] * 12)
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="an assigned partition was deleted"):
            consumer.poll()
        assert [record.offset for record in consumer.poll()[T0]] == list(range(12))


def test_when_no_position_can_be_committed_nothing_is_and_that_is_no_error(store: pylog.Store) -> None:
    with assigned(store) as consumer:
        consumer.poll(max_records=100)
        store.delete_topic("t")
        consumer.commit()
        assert committed(store) == {}


# ---- in the background -------------------------------------------------------------------------------------------------------


def test_a_commit_in_the_background_has_a_future_and_its_callback_runs_in_the_consumers_thread(store: pylog.Store) -> None:
    called: list[Any] = []
    with assigned(store, enable_auto_commit=False) as consumer:
        futures = [consumer.commit_async({T0: offset}, lambda *told: called.append(told)) for offset in range(5)]
        assert [future.result(60) for future in futures] == [None] * 5
        assert (committed(store), called) == ({0: 4}, [])
        consumer.poll()
        assert [(offsets[T0].offset, error) for offsets, error in called] == [(offset, None) for offset in range(5)]


def test_a_commit_waits_for_those_before_it_and_for_their_callbacks(store: pylog.Store) -> None:
    called: list[Any] = []
    with assigned(store, enable_auto_commit=False) as consumer:
        consumer.commit_async({T0: 9}, lambda offsets, error: called.append(error))
        consumer.commit({T0: 3})
        assert (committed(store), called) == ({0: 3}, [None])


def test_failures_in_the_background_are_reported_by_future_and_callback(store: pylog.Store) -> None:
    called: list[Any] = []
    consumer = assigned(store, enable_auto_commit=False)
    future = consumer.commit_async({T0: 11}, lambda offsets, error: called.append(error))
    assert isinstance(future.exception(60), pylog.OffsetOutOfRangeError)
    consumer.close()
    assert called == [future.exception()]


@pytest.mark.parametrize("leave", [Consumer.close, Consumer.unsubscribe])
def test_callbacks_that_raise_keep_neither_the_last_commit_from_being_made_nor_each_other_from_being_called(
    store: pylog.Store, leave: Callable[[Consumer], None]
) -> None:
    called: list[int] = []

    def callback(number: int, *_: object) -> None:
        called.append(number)
        raise ValueError(number)

    consumer = assigned(store)
    consumer.poll(max_records=3)
    for number in range(3):
        consumer.commit_async({T1: number}, partial(callback, number))
    with pytest.raises(ValueError, match="0"):
        leave(consumer)
    assert called == [0, 1, 2]
    assert committed(store) == {0: 3, 1: 0}
    consumer.close()


def dropped(store: pylog.Store, offset: int) -> weakref.ref[Consumer]:
    """A consumer that nobody has any more, once it has committed in the background."""
    consumer = assigned(store, enable_auto_commit=False)
    future = consumer.commit_async({T0: offset}, lambda *_: consumer.assignment())
    future.add_done_callback(lambda _: consumer.assignment)
    assert isinstance(future.exception(60), pylog.OffsetOutOfRangeError if offset > 10 else type(None))
    return weakref.ref(consumer)


def dropped_and_collected(store: pylog.Store, offset: int) -> weakref.ref[Consumer]:
    consumer = dropped(store, offset)
    gc.collect()
    return consumer


@pytest.mark.slow
@pytest.mark.parametrize("offset", [3, 11])  # which can be committed, and cannot
def test_a_consumer_that_is_dropped_after_a_background_commit_is_collected(store: pylog.Store, offset: int) -> None:
    with pytest.warns(ResourceWarning, match=r"a consumer of the store .* in the group"):
        consumer = dropped_and_collected(store, offset)
    for _ in range(200):  # its thread may be just behind the commit
        gc.collect()
        if consumer() is None:
            return
    raise AssertionError("something keeps it")


def test_a_commit_that_is_cancelled_before_it_begins_is_told_so_and_the_others_go_on(
    store: pylog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    commit = offset_manager_of(store.offsets).commit

    def slow(*given: Any, **named: Any) -> None:
        begun.set()
        go_on.wait(60)
        commit(*given, **named)

    monkeypatch.setattr(offset_manager_of(store.offsets), "commit", slow)
    told: list[tuple[int, BaseException | None]] = []
    consumer = assigned(store, enable_auto_commit=False)

    def asked(offset: int) -> Future[None]:
        return consumer.commit_async({T0: offset}, lambda offsets, error: told.append((offsets[T0].offset, error)))

    first = asked(1)
    assert begun.wait(60)  # else it would wait together with the others, and begin with them
    second, third = asked(2), asked(3)
    assert second.cancel()
    go_on.set()
    consumer.commit({T1: 4})
    assert committed(store) == {0: 3, 1: 4}
    assert [(offset, type(error)) for offset, error in told] == [(1, type(None)), (2, CancelledError), (3, type(None))]
    assert (first.exception(), second.cancelled(), third.exception()) == (None, True, None)
    consumer.close()
    assert len(told) == 3


# ---- by itself ---------------------------------------------------------------------------------------------------------------


def test_an_automatic_commit_is_of_what_earlier_polls_returned(store: pylog.Store, clock: ManualClock) -> None:
    with assigned(store, auto_commit_interval_ms=1_000) as consumer:
        consumer.pause(T1)
        consumer.poll(max_records=4)
        assert committed(store) == {}
        clock.advance(1_000)
        consumer.poll(max_records=4)
        assert committed(store)[0] == 4  # not 8: those are in hand
        consumer.poll()
        assert committed(store)[0] == 4
    assert committed(store)[0] == 10  # when it is closed


def test_an_iteration_commits_what_was_returned_before(store: pylog.Store) -> None:
    with assigned(store, auto_commit_interval_ms=0, max_poll_records=3, consumer_timeout_ms=0) as consumer:
        consumer.pause(T1)
        seen = [(record.offset, committed(store).get(0)) for record in consumer]
    assert seen == [(0, None), (1, None), (2, None), (3, 3), (4, 3), (5, 3), (6, 6), (7, 6), (8, 6), (9, 9)]


def test_records_in_hand_when_an_exception_came_are_returned_again(store: pylog.Store) -> None:
    def use_it() -> None:
        with assigned(store) as consumer:
            consumer.poll(max_records=6)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use_it()
    assert committed(store) == {}


def test_closing_without_a_commit_commits_nothing(store: pylog.Store) -> None:
    for close in (partial(Consumer.close, autocommit=False), lambda consumer: consumer.close(False)):  # kafka-python's way
        consumer = assigned(store)
        consumer.poll()
        close(consumer)
        assert committed(store) == {}


def test_a_position_that_has_not_moved_is_not_committed_again_before_it_could_expire(
    store: pylog.Store, clock: ManualClock
) -> None:
    log = store.log
    with assigned(store, auto_commit_interval_ms=1_000) as consumer:
        consumer.poll(max_records=100)
        for _ in range(10):
            clock.advance(1_000)
            consumer.poll()
        offsets = log("__consumer_offsets", 0)
        assert offsets.end_offset == 2
        clock.advance(3_600_000)
        consumer.poll()
        assert offsets.end_offset == 4
        assert {found.commit_timestamp for found in store.offsets.fetch("g").values()} == {clock.now_ms()}


def test_a_position_that_has_not_moved_does_not_expire_while_its_consumer_polls_however_short_offsets_are_kept(
    clock: ManualClock,
) -> None:
    short = OffsetsConfig(topic_num_partitions=1, retention_minutes=10, retention_check_interval_ms=1_000)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock, durability=Durability.OS, offsets=short) as store:
        store.create_topic("t", partition_count=2)
        with assigned(store) as consumer:
            consumer.poll()
            for _ in range(60):
                clock.advance(60_000)
                consumer.poll()
                store.tick()
                assert committed(store) == {0: 0, 1: 0}
            assert store.log("__consumer_offsets", 0).end_offset == 2 * 20  # every third minute
        clock.advance(600_000)
        store.tick()
        assert committed(store) == {}


def test_an_automatic_commit_that_fails_is_logged_and_tried_again(
    store: pylog.Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise StorageFailedError("no room")

    with assigned(store, auto_commit_interval_ms=1_000) as consumer:
        consumer.poll(max_records=100)
        clock.advance(1_000)
        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
            patched.setattr(offset_manager_of(store.offsets), "commit", failing)
            assert consumer.poll() == {}
        assert "no room" in caplog.text
        assert committed(store) == {}
        clock.advance(1_000)
        consumer.poll()
        assert committed(store) == {0: 10, 1: 10}
