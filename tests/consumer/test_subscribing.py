"""Which partitions a consumer reads: chosen ones, topics by name and by pattern, new ones; and who may call it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Consumer, ConsumerRebalanceListener, Durability, TopicPartition
from pylog.clock import ManualClock
from pylog.consumer.guard import Guard
from pylog.fs import OsFileSystem
from pylog.testing import MemoryFileSystem
from support.groups.consumers import store_in_memory

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SECONDS = 3_000  # between two looks for new topics


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def store(clock: ManualClock) -> Iterator[pylog.Store]:
    """A topic of two partitions with two records in each."""
    with store_in_memory(clock, partitions=2, records=2) as opened:
        yield opened


def make(store: pylog.Store, topic: str, partitions: int = 1) -> None:
    store.create_topic(topic, partition_count=partitions)
    for number in range(partitions):
        store.log(topic, number).append_many([b"a", b"b"])


class Told(ConsumerRebalanceListener):
    """Remembers what it was told, and may do something then."""

    def __init__(self, action: Callable[[str], object] = lambda what: None) -> None:
        self.told: list[tuple[str, set[Any]]] = []
        self._action = action

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._take("assigned", assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._take("revoked", revoked)

    def _take(self, what: str, partitions: set[TopicPartition]) -> None:
        self.told.append((what, partitions))
        self._action(what)


def read(consumer: Consumer) -> set[tuple[str, int]]:
    """The partitions that records came from."""
    found = set()
    while records := consumer.poll():
        found |= {tuple(partition) for partition in records}
    return found


def subscribed(store: pylog.Store, listener: ConsumerRebalanceListener | None = None, **how: Any) -> Consumer:
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.subscribe(listener=listener, **how)
    return consumer


# ---- topics ------------------------------------------------------------------------------------------------------------------


def test_without_a_group_all_partitions_of_all_topics_named_are_read(store: pylog.Store) -> None:
    make(store, "u")
    make(store, "v")
    with store.consumer("t", "u", auto_offset_reset="earliest") as consumer:
        assert consumer.assignment() == set()
        assert read(consumer) == {("t", 0), ("t", 1), ("u", 0)}
        assert consumer.assignment() == {T0, T1, ("u", 0)}
        assert consumer.subscription() == {"t", "u"}


def test_partitions_that_are_added_are_found_and_reported(store: pylog.Store) -> None:
    listener = Told()
    with subscribed(store, listener, topics=["t"]) as consumer:
        consumer.poll(max_records=10)
        store.add_partitions("t", 3)
        store.log("t", 2).append(b"c")
        assert read(consumer) == {("t", 2)}
        assert listener.told == [("assigned", {T0, T1}), ("assigned", {("t", 2)})]


def test_a_pattern_matches_the_beginning_of_names_and_finds_topics_made_later(store: pylog.Store) -> None:
    make(store, "other")
    store.offsets.commit("g", {T0: 1})
    with subscribed(store, pattern="t|_") as consumer:
        assert read(consumer) == {("t", 0), ("t", 1)}
        make(store, "trade")
        assert read(consumer) == {("trade", 0)}
        assert consumer.subscription() == {"t", "trade"}


def test_a_pattern_that_matches_nothing_yet_waits(store: pylog.Store, clock: ManualClock) -> None:
    with subscribed(store, pattern="new-") as consumer:
        assert consumer.poll(timeout_ms=5) == {}
        make(store, "new-1")
        clock.advance(SECONDS)
        assert read(consumer) == {("new-1", 0)}


def test_a_pattern_that_matches_nothing_ends_the_subscription_before_it(store: pylog.Store, clock: ManualClock) -> None:
    listener = Told()
    with subscribed(store, listener, topics=["t"]) as consumer:
        consumer.poll(max_records=1)
        consumer.subscribe(pattern="new-", listener=listener)
        assert read(consumer) == set()
        assert (consumer.assignment(), consumer.subscription()) == (set(), set())
        assert listener.told == [("assigned", {T0, T1}), ("revoked", {T0, T1})]
        consumer.subscribe(["t"])
        assert read(consumer) == {("t", 0), ("t", 1)}


def test_a_topic_that_is_deleted_is_revoked_and_the_others_are_read_on(store: pylog.Store, clock: ManualClock) -> None:
    make(store, "u")
    listener = Told()
    with subscribed(store, listener, topics=["t", "u"]) as consumer:
        assert len(consumer.poll(max_records=1)) == 1
        store.delete_topic("u")
        assert read(consumer) == {("t", 0), ("t", 1)}
        clock.advance(SECONDS)
        consumer.poll()
        assert consumer.assignment() == {T0, T1}
        assert listener.told[1] == ("revoked", {("u", 0)})


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_topic_that_is_deleted_while_its_partition_is_opened_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: ManualClock, mode: Any
) -> None:
    check = OsFileSystem.check_directory

    def too_late(fs: OsFileSystem, path: str, **how: Any) -> None:
        if path.endswith("u-0") and "u" in writer.topics():
            writer.delete_topic("u")
        check(fs, path, **how)

    with pylog.open(tmp_path, durability=Durability.OS) as writer:
        make(writer, "u")
        make(writer, "t", 2)
        with pylog.open(tmp_path, mode=mode, clock=clock) as opened, subscribed(opened, pattern="t|u") as consumer:
            monkeypatch.setattr(OsFileSystem, "check_directory", too_late)
            first = read(consumer)
            clock.advance(SECONDS)
            assert first | read(consumer) == {("t", 0), ("t", 1)}
            assert consumer.assignment() == {T0, T1}


def test_a_topic_that_is_created_again_is_read_from_its_start(store: pylog.Store, clock: ManualClock) -> None:
    make(store, "u")
    store.log("u").append_many([b"c"] * 5)
    with subscribed(store, topics=["u"]) as consumer:
        assert read(consumer) == {("u", 0)}
        store.delete_topic("u")
        assert consumer.poll() == {}
        make(store, "u")
        clock.advance(SECONDS)
        assert read(consumer) == {("u", 0)}
        assert consumer.position(TopicPartition("u", 0)) == 2


def test_subscribing_again_takes_the_new_topics_and_keeps_the_positions_of_those_that_stay(store: pylog.Store) -> None:
    make(store, "u")
    listener = Told()
    with subscribed(store, listener, topics=["t"]) as consumer:
        consumer.poll(max_records=1)
        consumer.subscribe(["t", "u"], listener=listener)
        assert read(consumer) == {("t", 0), ("t", 1), ("u", 0)}
        assert listener.told == [("assigned", {T0, T1}), ("assigned", {("u", 0)})]
        consumer.subscribe(["u"], listener=listener)
        consumer.poll()
        assert listener.told[2:] == [("revoked", {T0, T1}), ("assigned", set())]


def test_a_listener_may_seek_in_what_it_is_given(store: pylog.Store) -> None:
    listener = Told(lambda what: consumer.seek(T1, 1) if what == "assigned" else None)
    with subscribed(store, listener, topics=["t"]) as consumer:
        assert {place.partition: [record.offset for record in records] for place, records in consumer.poll().items()} == {
            0: [0, 1],
            1: [1],
        }


def test_an_error_that_a_listener_raises_comes_out_of_poll_and_the_assignment_stays(store: pylog.Store) -> None:
    def fail(what: str) -> None:
        raise ZeroDivisionError(what)

    consumer = subscribed(store, Told(fail), topics=["t"])
    with pytest.raises(ZeroDivisionError, match="assigned"):
        consumer.poll()
    assert read(consumer) == {("t", 0), ("t", 1)}
    with pytest.raises(ZeroDivisionError, match="revoked"):
        consumer.close()
    with pytest.raises(pylog.ClosedError):
        consumer.poll()


def test_unsubscribing_tells_the_listener_and_another_choice_is_free(store: pylog.Store) -> None:
    listener = Told()
    consumer = subscribed(store, listener, topics=["t"])
    consumer.poll()
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (set(), set())
    assert listener.told[-1] == ("revoked", {T0, T1})
    consumer.assign([T1])
    assert read(consumer) == {("t", 1)}
    consumer.close()
    assert len(listener.told) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"topics": ["t"], "pattern": "t"},
        {"topics": "t"},
        {"topics": [7]},
        {"topics": ["a/b"]},
        {"pattern": "("},
        {"pattern": 7},
        {"pattern": b"t"},
        {"pattern": re.compile(b"t")},
        {"topics": ["t"], "listener": "no listener"},
    ],
    ids=str,
)
def test_a_subscription_that_cannot_be_is_refused(store: pylog.Store, wrong: dict[str, Any]) -> None:
    with store.consumer() as consumer, pytest.raises(pylog.InvalidArgumentError):
        consumer.subscribe(**wrong)


def test_a_topic_that_there_is_not_is_an_error_at_once(store: pylog.Store) -> None:
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="no topic 'orders'; it has t"):
        store.consumer("orders")


# ---- chosen partitions -------------------------------------------------------------------------------------------------------


def test_only_the_partitions_assigned_are_read_and_those_that_stay_keep_their_position(store: pylog.Store) -> None:
    consumer = store.consumer(auto_offset_reset="earliest")
    consumer.assign([T0])
    assert len(consumer.poll(max_records=1)[T0]) == 1
    consumer.assign([T0, T1])
    assert (consumer.position(T0), consumer.position(T1)) == (1, 0)
    consumer.assign([T1])
    assert read(consumer) == {("t", 1)}
    consumer.close()


@pytest.mark.parametrize("wrong", ["t", [("t",)], [("t", "0")], [("t", True)], [7]])
def test_partitions_that_are_none_are_refused(store: pylog.Store, wrong: Any) -> None:
    with store.consumer() as consumer, pytest.raises(pylog.InvalidArgumentError, match="partition"):
        consumer.assign(wrong)


def test_a_partition_that_there_is_not_is_refused(store: pylog.Store) -> None:
    with store.consumer() as consumer, pytest.raises(pylog.UnknownTopicOrPartitionError, match="partition 2 of"):
        consumer.assign([T0, ("t", 2)])


def test_an_assigned_partition_whose_topic_is_deleted_is_an_error_of_poll(store: pylog.Store) -> None:
    make(store, "u")
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("u", 0)])
        assert read(consumer) == {("u", 0)}
        store.delete_topic("u")
        for _ in range(2):
            with pytest.raises(pylog.UnknownTopicOrPartitionError, match="u"):
                consumer.poll()


def test_a_partition_that_is_not_assigned_is_an_error_that_names_those_that_are(store: pylog.Store) -> None:
    consumer = store.consumer()
    consumer.assign([T0])
    for ask in (consumer.position, consumer.pause, consumer.resume, consumer.seek_to_end, lambda place: consumer.seek(place, 0)):
        with pytest.raises(
            pylog.IllegalStateError,
            match="t-1 is not assigned to this consumer; its partitions are t-0; poll first, or assign it",
        ):
            ask(T1)
    consumer.close()


def test_topics_and_chosen_partitions_exclude_each_other_until_unsubscribe(store: pylog.Store) -> None:
    consumer = store.consumer("t")
    with pytest.raises(pylog.IllegalStateError, match="unsubscribe"):
        consumer.assign([T0])
    consumer.unsubscribe()
    consumer.assign([T0])
    with pytest.raises(pylog.IllegalStateError, match="unsubscribe"):
        consumer.subscribe(["t"])
    consumer.assign([])
    consumer.subscribe(["t"])
    consumer.close()


def test_a_consumer_that_reads_nothing_says_so(store: pylog.Store) -> None:
    with store.consumer() as consumer, pytest.raises(pylog.IllegalStateError, match="subscribe"):
        consumer.poll()


# ---- who may call it ---------------------------------------------------------------------------------------------------------


def test_a_second_thread_is_refused_while_the_first_is_in_a_call(store: pylog.Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait_inside(what: str) -> None:
        inside.set()
        leave.wait(60)

    with subscribed(store, Told(wait_inside), topics=["t"]) as consumer:
        first = threading.Thread(target=consumer.poll)
        first.start()
        assert inside.wait(60)
        with pytest.raises(pylog.IllegalStateError, match="another thread"):
            consumer.poll()
        leave.set()
        first.join()
        assert consumer.assignment() == {T0, T1}  # one after the other they may


def test_a_closed_consumer_says_so_and_may_be_closed_again(store: pylog.Store) -> None:
    consumer = store.consumer("t")
    consumer.close()
    consumer.close()
    for ask in (consumer.poll, consumer.assignment, consumer.topics, lambda: next(consumer)):
        with pytest.raises(pylog.ClosedError, match="consumer is closed"):
            ask()


def test_a_consumer_that_another_thread_closes_at_the_same_moment_is_closed_and_raises_nothing(
    store: pylog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = store.consumer("t")
    closed_now = property(lambda guard: (guard.close(), False)[1])  # after this call has seen that it is open
    monkeypatch.setattr(Guard, "forked", closed_now)
    consumer.close()
    monkeypatch.undo()
    with pytest.raises(pylog.ClosedError):
        consumer.poll(0)


def test_a_consumer_whose_store_is_closed_says_so(store: pylog.Store) -> None:
    consumer = store.consumer("t")
    consumer.poll()
    store.close()
    with pytest.raises(pylog.ClosedError):
        consumer.poll()
    consumer.close()


def test_closing_the_store_ends_its_consumers_without_a_commit_and_leaves_their_groups(clock: ManualClock) -> None:
    fs = MemoryFileSystem()
    store = pylog.open("/s", fs=fs, clock=clock)
    make(store, "t", 2)
    told = Told()
    consumer = store.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["t"], listener=told)
    assert read(consumer) == {("t", 0), ("t", 1)}
    store.close()
    assert told.told == [("assigned", {T0, T1}), ("revoked", {T0, T1})]
    with pylog.open("/s", fs=fs, clock=clock) as again:
        assert again.group("g").describe().state == "Empty"
        assert again.offsets.fetch("g") == {}


def test_a_listener_that_raises_keeps_no_store_from_closing(clock: ManualClock) -> None:
    def refuse(what: str) -> None:
        if what == "revoked":
            raise RuntimeError("not now")

    fs = MemoryFileSystem()
    store = pylog.open("/s", fs=fs, clock=clock)
    make(store, "t", 2)
    consumer = store.consumer()
    consumer.subscribe(["t"], listener=Told(refuse))
    consumer.poll()
    producer = store.producer()
    sent = producer.send("t", b"c", partition=0)
    with pytest.raises(RuntimeError, match="not now"):
        store.close()
    with pytest.raises(pylog.ClosedError):
        store.topics()
    assert sent.result().offset == 2
    with pylog.open("/s", fs=fs, clock=clock, exclusive=True) as again:  # all locks are free
        assert again.log("t", 0).end_offset == 3


def test_a_store_closes_beside_a_thread_that_is_in_a_call_of_its_consumer(store: pylog.Store) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay(_: str) -> None:
        inside.set()
        leave.wait(60)

    consumer = store.consumer()
    consumer.subscribe(["t"], listener=Told(stay))
    told: list[BaseException] = []

    def poll() -> None:
        try:
            while True:
                consumer.poll()
        except pylog.ClosedError as error:
            told.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    assert inside.wait(60)
    store.close()
    leave.set()
    thread.join(60)
    assert len(told) == 1
    consumer.close()


def test_a_forked_child_has_no_consumer_and_closing_it_there_does_nothing(store: pylog.Store) -> None:
    consumer = store.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.assign([T0])
    consumer.poll()
    child = os.fork()
    if child == 0:
        try:
            consumer.poll()
        except pylog.ClosedError as error:
            consumer.close()
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.offsets.fetch("g") == {}
    consumer.close()
    assert store.offsets.position("g", T0) == 2
