"""Consumers that share a group, in one process: whose partitions are whose, what moves with them, and who may commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import pylog
from pylog import Consumer, ConsumerRebalanceListener, TopicPartition
from pylog.clock import ManualClock
from support.groups import consumers
from support.groups.consumers import PLACES, Told, committed, member, owned, taken

clock = pytest.fixture(consumers.clock)
store = pytest.fixture(consumers.store)


def test_members_share_the_partitions_and_each_record_comes_once(store: pylog.Store) -> None:
    with member(store) as one, member(store) as two:
        assert sorted(taken(one, two)) == [(number, offset) for number in range(4) for offset in range(10)]
        assert (len(owned(one)), len(owned(two))) == (2, 2)
        assert owned(one) | owned(two) == set(range(4))


def test_a_partition_that_moves_to_another_member_is_committed_first_and_read_on_there(store: pylog.Store) -> None:
    told = Told(store)
    with member(store, told) as one:
        seen = [(record.partition, record.offset) for _ in range(4) for part in one.poll().values() for record in part]
        with member(store) as two:
            seen += taken(two, one)
            assert sorted(seen) == [(number, offset) for number in range(4) for offset in range(10)]
            moved = owned(two)
        assert [what for what, *_ in told.told] == ["assigned", "revoked", "assigned"]
        assert told.told[0] == ("assigned", set(range(4)), {})
        _, partitions, then = told.told[1]
        assert partitions == moved
        assert all(then[number] == 5 for number in moved)  # committed before the listener was told


def test_records_read_ahead_of_a_partition_that_moves_are_not_returned_by_the_old_owner(store: pylog.Store) -> None:
    with member(store, max_poll_records=1) as one:
        for _ in range(8):
            one.poll()  # all of each partition is read, and two records of each are handed out
        assert [one.position(place) for place in PLACES] == [2, 2, 2, 2]
        with member(store) as two:
            two.poll()
            handed = {place.partition for _ in range(4) for place in one.poll()}
            moved = set(range(4)) - owned(one)
            assert len(moved) == 2
            assert handed == owned(one)
            assert sorted(taken(two)) == [(number, offset) for number in sorted(moved) for offset in range(2, 10)]


def test_leaving_commits_tells_the_listener_and_frees_the_partitions(store: pylog.Store) -> None:
    told = Told(store)
    with member(store) as two:
        one = member(store, told)
        taken(one, two)
        one.close()
        assert told.told[-1][0] == "revoked"
        assert all(told.told[-1][2][number] == 10 for number in told.told[-1][1])
        taken(two)
        assert owned(two) == set(range(4))


def test_a_member_that_does_not_poll_is_put_out_its_commit_is_refused_and_its_next_poll_joins_again(
    store: pylog.Store, clock: ManualClock
) -> None:
    told = Told(store)
    with member(store, told, max_poll_interval_ms=10_000, enable_auto_commit=False) as slow, member(store) as other:
        slow.poll()
        while len(owned(other)) < 4:
            clock.advance(200)
            other.poll()
        before = committed(store)
        with pytest.raises(pylog.FencedMemberError):
            slow.commit()
        assert isinstance(slow.commit_async().exception(60), pylog.FencedMemberError)
        assert committed(store) == before
        taken(slow, other)
        assert told.told[1][0] == "lost"
        assert told.told[-1][0] == "assigned"
        assert (len(owned(slow)), len(owned(other))) == (2, 2)
        slow.commit()


def test_a_member_that_was_put_out_commits_nothing_when_it_is_closed_nor_in_the_background(
    store: pylog.Store, clock: ManualClock
) -> None:
    with member(store) as other:
        for autocommit in (True, False):
            slow = member(store, max_poll_interval_ms=10_000)
            while not owned(slow):
                slow.poll()
                other.poll()
            slow.poll()
            while len(owned(other)) < 4:
                clock.advance(200)
                other.poll()
            before = committed(store)
            outcome = slow.commit_async(dict.fromkeys(PLACES, 1))
            slow.close(autocommit=autocommit)
            assert isinstance(outcome.exception(), pylog.FencedMemberError)
            assert committed(store) == before


def test_a_commit_for_a_partition_of_another_member_is_refused(store: pylog.Store) -> None:
    with member(store) as one, member(store) as two:
        taken(one, two)
        foreign = PLACES[min(owned(two))]
        with pytest.raises(pylog.FencedMemberError):
            one.commit({foreign: 1})


def test_a_pattern_of_a_group_finds_topics_made_later(store: pylog.Store, clock: ManualClock) -> None:
    with store.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(pattern="t|u")
        taken(consumer)
        store.create_topic("u")
        store.log("u").append(b"new")
        clock.advance(3_000)
        assert taken(consumer) == [(0, 0)]
        assert consumer.subscription() == {"t", "u"}


def test_a_consumer_whose_pattern_matches_nothing_commits_leaves_and_joins_again_when_it_matches(
    store: pylog.Store, clock: ManualClock
) -> None:
    told = Told(store)
    with member(store, told) as one, member(store) as two:
        taken(one)
        one.subscribe(pattern="u", listener=told)
        store.log("t", 0).append(b"x")
        assert taken(one, two) == [(0, 10)]
        assert (owned(one), owned(two)) == (set(), set(range(4)))
        assert told.told[1:] == [("revoked", set(range(4)), dict.fromkeys(range(4), 10))]
        store.create_topic("u")
        store.log("u").append(b"y")
        clock.advance(3_000)
        assert taken(one) == [(0, 0)]
        assert one.assignment() == {TopicPartition("u", 0)}


def test_a_member_whose_pattern_lost_all_its_topics_reads_those_made_later(store: pylog.Store, clock: ManualClock) -> None:
    told = Told(store)
    with store.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(pattern="t", listener=told)
        taken(consumer)
        store.delete_topic("t")
        clock.advance(3_000)
        assert (taken(consumer), consumer.assignment(), consumer.subscription()) == ([], set(), set())
        assert [(what, numbers) for what, numbers, _ in told.told] == [("assigned", set(range(4))), ("revoked", set(range(4)))]
        store.create_topic("t")
        store.log("t").append(b"x")
        clock.advance(3_000)
        assert taken(consumer) == [(0, 0)]


def test_a_topic_of_a_group_that_is_deleted_is_lost_and_the_rest_is_read_on(store: pylog.Store, clock: ManualClock) -> None:
    store.create_topic("u")
    told = Told(store)
    with store.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t", "u"], listener=told)
        taken(consumer)
        store.delete_topic("u")
        store.log("t", 0).append(b"x")
        assert taken(consumer) == [(0, 10)]
        clock.advance(3_000)
        taken(consumer)
        assert owned(consumer) == set(range(4))
        assert consumer.assignment() == set(PLACES)


def test_a_listener_that_raises_while_it_gives_up_partitions_keeps_no_member_waiting(store: pylog.Store) -> None:
    class Failing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            raise ZeroDivisionError

    one = member(store, Failing())
    one.poll()
    with member(store) as two:
        two.poll()
        with pytest.raises(ZeroDivisionError):
            taken(one)
        taken(one, two)
        assert (len(owned(one)), len(owned(two))) == (2, 2)
        with pytest.raises(ZeroDivisionError):
            one.close()
        taken(two)
        assert owned(two) == set(range(4))


class Leaving(Told):
    """Leaves, in one way or the other, whenever it is told of one thing."""

    def __init__(self, store: pylog.Store, when: str) -> None:
        super().__init__(store)
        self.leave: Callable[[], object] = lambda: None
        self._when = when

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        super()._note(what, partitions)
        if what == self._when:
            self.leave()


@pytest.mark.parametrize("way", [Consumer.close, Consumer.unsubscribe])
@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_a_listener_may_close_or_unsubscribe_and_each_partition_is_revoked_once(
    store: pylog.Store, way: Callable[[Consumer], None], when: str
) -> None:
    listener = Leaving(store, when)
    one = member(store, listener)
    with member(store) as two:
        if when == "revoked":
            one.poll()
            two.poll()
        listener.leave = partial(way, one)
        assert one.poll() == {}
        revoked = [number for what, numbers, _ in listener.told for number in numbers if what == "revoked"]
        assert sorted(revoked) == [0, 1, 2, 3]
        with pytest.raises((pylog.ClosedError, pylog.IllegalStateError)):
            one.poll()
        taken(two)
        assert owned(two) == set(range(4))
    one.close()


@pytest.mark.parametrize("way", [Consumer.close, Consumer.unsubscribe])
def test_a_listener_that_leaves_while_it_is_called_for_leaving_is_called_once(
    store: pylog.Store, way: Callable[[Consumer], None]
) -> None:
    for leave in (Consumer.close, Consumer.unsubscribe):
        listener = Leaving(store, "revoked")
        with member(store, listener) as one:
            one.poll()
            listener.leave = partial(way, one)
            leave(one)
        assert [what for what, *_ in listener.told] == ["assigned", "revoked"]
    assert store.group("g").describe().state == "Empty"


@pytest.mark.parametrize("way", [Consumer.close, Consumer.unsubscribe])
def test_a_listener_may_close_or_unsubscribe_when_partitions_are_lost(
    store: pylog.Store, clock: ManualClock, way: Callable[[Consumer], None]
) -> None:
    listener = Leaving(store, "lost")
    slow = member(store, listener, max_poll_interval_ms=10_000)
    listener.leave = partial(way, slow)
    with member(store) as other:
        slow.poll()
        while len(owned(other)) < 4:
            clock.advance(200)
            other.poll()
        assert slow.poll() == {}
        assert [what for what, *_ in listener.told] == ["assigned", "lost"]
    slow.close()
    assert store.group("g").describe().state == "Empty"


def test_a_listener_that_subscribes_again_or_assigns_partitions_keeps_them(store: pylog.Store) -> None:
    listener = Leaving(store, "revoked")
    with member(store, listener) as one, member(store) as two:
        one.poll()
        two.poll()

        def choose() -> None:
            listener.leave = lambda: None
            one.unsubscribe()
            one.assign(PLACES)

        listener.leave = choose
        one.poll()
        assert owned(one) == set(range(4))
        one.unsubscribe()
        listener.leave = lambda: one.subscribe(["t"])
        one.subscribe(["t"], listener=listener)
        taken(one, two)
        one.subscribe(pattern="nothing", listener=listener)
        taken(one, two)
        assert (len(owned(one)), len(owned(two))) == (2, 2)


@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_a_poll_from_inside_of_a_listener_reads_and_finds_no_rebalance(store: pylog.Store, when: str) -> None:
    listener = Leaving(store, when)
    with member(store, listener) as one, member(store) as two:
        one.poll(max_records=1)
        two.poll()
        seen: list[set[TopicPartition]] = []
        listener.leave = lambda: seen.append(set(one.poll(max_records=100)))
        taken(one, two)
        assert len(seen) == 1
        assert seen[0] <= one.assignment()


def test_a_poll_from_a_listener_that_is_called_for_leaving_returns_no_records(store: pylog.Store, clock: ManualClock) -> None:
    listener = Leaving(store, "revoked")
    with member(store, listener) as one:
        one.poll()
        store.add_partitions("t", 5)
        clock.advance(3_000)
        listener.leave = one.poll
    assert [what for what, *_ in listener.told] == ["assigned", "revoked"]


def test_a_callback_of_a_commit_may_close_its_consumer(store: pylog.Store) -> None:
    told = Told(store)
    one = member(store, told)
    found = one.poll()
    one.commit_async(callback=lambda *_: one.close())
    while len(told.told) < 2:
        found = one.poll()
    assert found == {}
    assert [what for what, *_ in told.told] == ["assigned", "revoked"]


def test_members_without_a_common_assignor_are_reported(store: pylog.Store) -> None:
    with member(store, partition_assignment_strategy="range") as one:
        one.poll()
        two = member(store, partition_assignment_strategy=("sticky",))
        with pytest.raises(pylog.InconsistentGroupProtocolError):
            two.poll()
        two.close()


@pytest.mark.parametrize("wrong", [{"group_id": ""}, {"group_id": "x" * 40_000}, {"partition_assignment_strategy": "fair"}])
def test_a_membership_that_cannot_be_is_refused(store: pylog.Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(pylog.InvalidArgumentError):
        store.consumer("t", **{"group_id": "g", **wrong})


def test_a_static_member_that_comes_back_has_its_partitions_at_once(store: pylog.Store) -> None:
    with member(store) as other:
        static = member(store, group_instance_id="one")
        taken(static, other)
        had = owned(static)
        static.close()
        taken(other)
        assert owned(other) == set(range(4)) - had
        static = member(store, group_instance_id="one")
        static.poll()
        assert owned(static) == had
        static.close()
