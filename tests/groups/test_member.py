"""`GroupMember`: what a consumer is told of its partitions, in which order, and what it may commit."""

from __future__ import annotations

from typing import Any

import pytest

import pylog
from pylog import TopicPartition
from pylog.clock import ManualClock
from pylog.groups.member import PartitionsAssigned, PartitionsLost, PartitionsRevoked
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.offsets.store import offset_manager_of
from pylog.store import Store
from support.groups import joining
from support.groups.joining import HEARTBEAT_MS, PROBE_MS, T0, T1, T2, T3, Joining, dies, fenced, settled
from support.groups.members import heartbeat_of, member_of

clock = pytest.fixture(joining.clock)
fs = pytest.fixture(joining.fs)
store = pytest.fixture(joining.store)
joining = pytest.fixture(joining.joining)


def offsets_of(store: Store, group: str = "g") -> dict[TopicPartition, int]:
    return {place: each.offset for place, each in store.offsets.fetch(group).items()}


# ---- joining and sharing -----------------------------------------------------------------------------------------------------


def test_a_single_member_takes_all_partitions_from_the_groups_offsets(store: Store, joining: Joining) -> None:
    store.offsets.commit("g", {T1: 7})
    member = joining()
    assert (member.member_id, member.epoch, member.assignment) == ("", -1, frozenset())
    event = member.poll()
    assert isinstance(event, PartitionsAssigned)
    assert {place: None if each is None else each.offset for place, each in event.partitions.items()} == {
        T0: None,
        T1: 7,
        T2: None,
        T3: None,
    }
    assert member.poll() is None
    assert (len(member.member_id), member.epoch, member.assignment) == (22, 1, {T0, T1, T2, T3})


def test_nothing_happens_before_the_first_poll(store: Store, joining: Joining) -> None:
    joining()
    assert OFFSETS_TOPIC not in store.topics()
    assert member_of(store, "g").poll() is None  # nor without a subscription


def test_a_partition_moves_when_its_owner_has_given_it_up_and_not_before(store: Store, joining: Joining) -> None:
    old, new = joining(), joining()
    settled(old)
    assert new.poll() == PartitionsAssigned({})
    assert new.poll() is None  # the log does not say yet that anybody gave anything up
    revoked = old.poll()
    assert revoked == PartitionsRevoked(frozenset({T2, T3}))
    old.commit({T2: 4, T3: 5})  # still its own
    assert (old.poll(), new.poll()) == (None, None)
    assert old.assignment == {T0, T1, T2, T3}
    old.acknowledge_revocation(revoked.partitions)
    event = new.poll()
    assert isinstance(event, PartitionsAssigned)
    assert {place: each.offset for place, each in event.partitions.items() if each is not None} == {T2: 4, T3: 5}
    with pytest.raises(pylog.FencedMemberError, match="does not own t-2"):
        old.commit({T0: 1, T2: 9})
    assert offsets_of(store) == {T2: 4, T3: 5}
    assert old.poll() == PartitionsAssigned({})  # its rebalance is done too
    assert (old.epoch, new.epoch) == (2, 2)


def test_partitions_that_do_not_move_are_not_touched(joining: Joining) -> None:
    members = [joining()]
    settled(*members)
    for _ in range(3):
        before = {id(member): member.assignment for member in members}
        members.append(joining())
        told = settled(*members)
        assert sum(len(event.partitions) for event in told if isinstance(event, PartitionsRevoked)) == 4 // len(members)
        assert all(member.assignment <= before[id(member)] for member in members[:-1])
    assert sorted(place for member in members for place in member.assignment) == [T0, T1, T2, T3]


def test_a_member_that_leaves_frees_its_partitions_at_once(store: Store, joining: Joining) -> None:
    one, two = joining(), joining()
    settled(one, two)
    two.leave()
    two.leave()
    assert (two.member_id, two.assignment, two.poll()) == ("", frozenset(), None)
    assert settled(one) == [PartitionsAssigned(dict.fromkeys(sorted({T0, T1, T2, T3} - {T0, T1})))]
    one.leave()
    assert store.offsets.groups() == ["g"]


def test_a_dead_member_is_noticed_by_the_next_liveness_check(clock: ManualClock, joining: Joining) -> None:
    one, two = joining(), joining()
    settled(one, two)
    dies(two)
    assert one.poll() is None  # it has just looked
    clock.advance(PROBE_MS)
    assert settled(one) == [PartitionsAssigned({T2: None, T3: None})]
    assert two.poll() == PartitionsLost(frozenset({T2, T3}))  # if it was not dead but a slow one


def test_the_first_member_to_join_removes_all_dead_ones(joining: Joining) -> None:
    members = [joining() for _ in range(3)]
    settled(*members)
    for member in members:
        dies(member)
    assert joining().poll() == PartitionsAssigned(dict.fromkeys([T0, T1, T2, T3]))


def test_groups_that_share_a_partition_of_the_offsets_do_not_see_each_other(joining: Joining) -> None:
    members = [joining(group=f"group {number}") for number in range(6)]
    settled(*members)
    assert all(member.assignment == {T0, T1, T2, T3} for member in members)


# ---- a revocation that was begun ---------------------------------------------------------------------------------------------


def test_a_revocation_begun_is_finished_when_the_partitions_are_meant_for_it_again(clock: ManualClock, joining: Joining) -> None:
    old, new = joining(), joining()
    settled(old)
    new.poll()
    event = old.poll()
    assert isinstance(event, PartitionsRevoked)
    dies(new)
    clock.advance(PROBE_MS)
    assert old.poll() is None  # it puts the dead one out, and is still to give up
    old.commit({T3: 6})
    old.acknowledge_revocation(event.partitions)
    assert old.assignment == {T0, T1}
    told = settled(old)
    assert [sorted(each.partitions) for each in told] == [[T2, T3]]
    assert told[0].partitions[T3].offset == 6  # type: ignore[index,union-attr]


def test_a_release_that_the_log_could_not_take_is_written_later(joining: Joining, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = joining(), joining()
    settled(old)
    new.poll()
    event = old.poll()
    assert isinstance(event, PartitionsRevoked)
    with monkeypatch.context() as patch:
        patch.setattr(OffsetsPartition, "append", failing)
        with pytest.raises(pylog.StorageFailedError):
            old.acknowledge_revocation(event.partitions)
    assert old.assignment == {T0, T1}
    settled(old, new)
    assert (old.assignment, new.assignment) == ({T0, T1}, {T2, T3})


def failing(*_: object, **__: object) -> None:
    raise pylog.StorageFailedError("no room")


def test_a_partition_taken_in_the_log_only_is_taken_again(joining: Joining, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = joining(), joining()
    settled(old)
    new.poll()
    event = old.poll()
    assert isinstance(event, PartitionsRevoked)
    old.acknowledge_revocation(event.partitions)
    append = OffsetsPartition.append

    def too_late(*given: Any, **how: Any) -> None:
        append(*given, **how)
        raise pylog.StorageFailedError("it is not known whether it was written")

    with monkeypatch.context() as patch:
        patch.setattr(OffsetsPartition, "append", too_late)
        with pytest.raises(pylog.StorageFailedError):
            new.poll()
    assert new.assignment == frozenset()
    assert settled(new) == [PartitionsAssigned({T2: None, T3: None})]


def test_a_member_that_cannot_write_its_join_releases_its_slot(
    store: Store, joining: Joining, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = joining()
    with monkeypatch.context() as patch:
        patch.setattr(OffsetsPartition, "append", failing)
        with pytest.raises(pylog.StorageFailedError):
            member.poll()
    assert (member.member_id, member.assignment) == ("", frozenset())
    assert settled(member) == [PartitionsAssigned(dict.fromkeys([T0, T1, T2, T3]))]


# ---- fencing -----------------------------------------------------------------------------------------------------------------


def test_a_stopped_member_is_fenced_and_its_commits_are_refused(store: Store, clock: ManualClock, joining: Joining) -> None:
    still, other = joining(session_timeout_ms=30_000), joining()
    settled(still, other)
    still.commit({T0: 3})
    fenced(clock, other, ms=30_000)
    assert other.assignment == {T0, T1, T2, T3}
    with pytest.raises(pylog.FencedMemberError, match="no longer in the group"):
        still.commit({T0: 4})
    assert offsets_of(store) == {T0: 3}
    before = still.member_id
    assert still.poll() == PartitionsLost(frozenset({T0, T1}))
    assert (still.member_id, still.epoch, still.assignment) == ("", -1, frozenset())
    settled(still, other)
    assert still.member_id not in ("", before)
    assert len(still.assignment) == len(other.assignment) == 2


def test_a_running_member_that_does_not_poll_is_fenced_after_its_poll_interval(clock: ManualClock, joining: Joining) -> None:
    hangs, other = joining(max_poll_interval_ms=60_000), joining()
    settled(hangs, other)
    heartbeat = heartbeat_of(hangs)
    assert heartbeat is not None
    for _ in range(30):
        clock.advance(HEARTBEAT_MS)
        heartbeat._beat()
        settled(other)
    assert other.assignment == {T0, T1, T2, T3}
    assert hangs.poll() == PartitionsLost(frozenset({T0, T1}))


def test_a_clock_that_jumps_fences_no_member(clock: ManualClock, joining: Joining) -> None:
    one, two = joining(), joining()
    settled(one, two)
    for _ in range(5):
        clock.advance(10**9)
        assert settled(two) == []


def test_a_consumer_without_a_group_cannot_commit_for_one(joining: Joining) -> None:
    member = joining()
    with pytest.raises(pylog.FencedMemberError, match="subscribe and poll"):
        member.commit({T0: 1})


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ({T0: 11}, pylog.OffsetOutOfRangeError),
        ({("none", 0): 1}, pylog.UnknownTopicOrPartitionError),
        ({T0: -1}, pylog.InvalidArgumentError),
        ({T0: pylog.OffsetAndMetadata(1, "x" * 4097)}, pylog.InvalidArgumentError),
        ({"t-0": 1}, pylog.InvalidArgumentError),
    ],
)
def test_commits_are_checked_as_those_of_the_offset_store(
    store: Store, joining: Joining, offsets: Any, error: type[Exception]
) -> None:
    member = joining()
    settled(member)
    with pytest.raises(error):
        member.commit(offsets)
    member.commit({})
    assert offsets_of(store) == {}


# ---- topics ------------------------------------------------------------------------------------------------------------------


def test_partitions_and_topics_that_come_are_shared_out_within_a_heartbeat(
    store: Store, clock: ManualClock, joining: Joining
) -> None:
    one, two = joining("t", "later"), joining("t", "later")
    settled(one, two)
    with pylog.open(store.path, fs=offset_manager_of(store.offsets).fs) as other:
        other.add_partitions("t", 6)
        other.create_topic("later", partition_count=2)
    assert settled(one, two) == []
    clock.advance(HEARTBEAT_MS)
    settled(one, two)
    assert len(one.assignment) == len(two.assignment) == 4


def test_a_changed_subscription_moves_what_it_has_to(store: Store, joining: Joining) -> None:
    store.create_topic("u", partition_count=2)
    one, two = joining(), joining()
    settled(one, two)
    two.subscribe(["u"])
    settled(one, two)
    assert (one.assignment, two.assignment) == ({T0, T1, T2, T3}, {("u", 0), ("u", 1)})


def test_the_partitions_of_a_topic_that_was_deleted_are_lost(store: Store, clock: ManualClock, joining: Joining) -> None:
    store.create_topic("u")
    member = joining("t", "u")
    settled(member)
    store.delete_topic("u")
    store.create_topic("u")
    clock.advance(HEARTBEAT_MS)
    u = TopicPartition("u", 0)
    assert settled(member) == [PartitionsLost(frozenset({u})), PartitionsAssigned({u: None})]


def test_when_the_offsets_are_deleted_all_members_rejoin(store: Store, joining: Joining) -> None:
    one, two = joining(), joining()
    settled(one, two)
    one.commit({T0: 3})
    store.delete_topic(OFFSETS_TOPIC)
    told = settled(one, two)
    assert [type(event) for event in told[:2]] == [PartitionsLost, PartitionsLost]
    assert len(one.assignment) == len(two.assignment) == 2
    assert offsets_of(store) == {}
