"""Decides how a group changes: pure functions from one state to the next, without files or clocks.

The caller holds the lock of the group's log and has caught up. A partition never has two owners in the log: a member takes a
partition only after its previous owner has released it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pylog.errors import FencedMemberError, InconsistentGroupProtocolError, UnreleasedInstanceIdError
from pylog.groups.assignors import ASSIGNORS, choose
from pylog.groups.state import GroupState, Member, PartitionSet, Topics
from pylog.groups.types import Subscriber
from pylog.record.types import TopicPartition
from pylog.text import counted

CONSUMERS = "consumer"  # the classic protocol's name for them


# ---- members ----------------------------------------------------------------------------------------------------------------


def join(
    state: GroupState, newcomer: Member, available: Topics, *, dead: Collection[str], expired: Collection[str]
) -> GroupState:
    """Adds a member.

    Args:
        state: the group.
        newcomer: it has no partitions and no target yet.
        available: the existing topics.
        dead: members whose processes have ended; a static one can be replaced.
        expired: members to remove.

    Raises:
        InconsistentGroupProtocolError: it shares no assignor with the remaining members, or the group is not one of consumers.
        UnreleasedInstanceIdError: a living member has the same instance id.
    """
    _check_consumers(state)
    staying = {member_id: each for member_id, each in state.members.items() if member_id not in expired and not state.classic}
    old = _same_instance(staying, newcomer)
    if old is not None and old.member_id not in dead:
        raise UnreleasedInstanceIdError(
            f"the group has a member {old.member_id} with group_instance_id={newcomer.instance_id!r} that is running; close that "
            "consumer, or give each its own group_instance_id"
        )
    if old is None:
        return _shared_out(state, {**staying, newcomer.member_id: newcomer}, available)
    del staying[old.member_id]
    members = {**staying, newcomer.member_id: newcomer._replace(target=old.target)}
    same = (old.topics, old.assignors) == (newcomer.topics, newcomer.assignors)
    if same and len(members) == len(state.members) and not topics_changed(state, available):
        return _with_members(state, members)  # it takes its predecessor's partitions: no other member changes
    return _shared_out(state, members, available)


def _check_consumers(state: GroupState) -> None:
    if state.classic and state.members and state.protocol_type != CONSUMERS:
        raise InconsistentGroupProtocolError(
            f"the group has {counted(len(state.members), 'member')} of kind {state.protocol_type!r}, not consumers; "
            "use another group"
        )


def _same_instance(members: Mapping[str, Member], newcomer: Member) -> Member | None:
    if newcomer.instance_id is None:
        return None
    return next((each for each in members.values() if each.instance_id == newcomer.instance_id), None)


def remove(state: GroupState, member_ids: Collection[str], available: Topics) -> GroupState:
    """Removes members, whose partitions are free at once."""
    members = {member_id: each for member_id, each in state.members.items() if member_id not in member_ids}
    return state if len(members) == len(state.members) else _shared_out(state, members, available)


def subscribe(state: GroupState, member_id: str, topics: frozenset[str], available: Topics) -> GroupState:
    """Changes a member's subscription."""
    me = state.members[member_id]
    if me.topics == topics:
        return state
    return _shared_out(state, {**state.members, member_id: me._replace(topics=topics)}, available)


def refresh_topics(state: GroupState, available: Topics) -> GroupState:
    """Assigns partitions again if topics were created or deleted, or have new partitions."""
    return _shared_out(state, state.members, available) if topics_changed(state, available) else state


def topics_changed(state: GroupState, available: Topics) -> bool:
    """Returns whether the partitions of the subscribed topics differ from those that were assigned."""
    wanted = _wanted(state.members, available)
    return wanted.keys() != state.topics.keys() or any(
        (info.topic_id, len(info.numbers)) != (state.ids[name], state.topics[name]) for name, info in wanted.items()
    )


def created_partitions(before: GroupState, after: GroupState, available: Topics, created: Collection[str]) -> PartitionSet:
    """Returns the partitions that were created while the group had members that follow their topics.

    Args:
        before, after: the group before and after the change.
        available: the existing topics.
        created: topics that were created while the deciding member was running.
    """
    members = [member for member in before.members.values() if member.assignors]  # a broker's members ended with the broker
    if not members or after.epoch == before.epoch:
        return frozenset()
    followed = frozenset(created).union(*(member.topics for member in members))
    found = set[TopicPartition]()
    for name in after.topics.keys() & available.keys() & followed:
        info = available[name]
        known = before.topics.get(name, 0) if before.ids.get(name) == info.topic_id else 0
        found.update(TopicPartition(name, number) for number in info.numbers[known:])
    return frozenset(found)


# ---- owners of partitions --------------------------------------------------------------------------------------------------


def give_up(state: GroupState, member_id: str, partitions: Collection[TopicPartition]) -> GroupState:
    """Releases partitions that a member has stopped reading. A revocation that was begun is completed even if the member will
    get the partitions back; otherwise the log would show it as their owner forever.
    """
    me = state.members[member_id]
    return _with_member(state, me._replace(owned=me.owned.difference(partitions)))


def to_take(state: GroupState, member_id: str, reading: PartitionSet, blocked: PartitionSet = frozenset()) -> PartitionSet:
    """Returns the partitions in a member's target that it does not read and no other member owns.

    Args:
        state: the group.
        member_id: the member.
        reading: what it reads.
        blocked: partitions with offsets that an open transaction has committed: the position to read from is not known yet.
    """
    return state.members[member_id].target - reading - blocked - state.owned_by_others(member_id)


def is_settled(state: GroupState, member_id: str, reading: PartitionSet, blocked: PartitionSet = frozenset()) -> bool:
    """Returns whether the log is up to date for a member that has released everything it must."""
    me = state.members[member_id]
    return me.owned == reading and me.epoch == state.epoch and not to_take(state, member_id, reading, blocked)


def settle(state: GroupState, member_id: str, reading: PartitionSet, blocked: PartitionSet = frozenset()) -> GroupState:
    """Gives a member the free partitions of its target, and releases those that it neither reads nor should have. The member
    moves to the group's epoch once it owns nothing outside its target. As `to_take`.
    """
    me = state.members[member_id]
    owned = me.owned & reading | to_take(state, member_id, reading, blocked)
    me = me._replace(owned=owned)
    if owned <= me.target and me.epoch != state.epoch:
        me = me._replace(epoch=state.epoch, previous_epoch=me.epoch)
    return _with_member(state, me)


def check_commit(state: GroupState, member_id: str, epoch: int, partitions: Collection[TopicPartition]) -> None:
    """Checks that a member may commit.

    Raises:
        FencedMemberError: it is no longer in the group, is in it with another epoch, or does not own all of the partitions.
    """
    me = state.members.get(member_id)
    if me is None:
        raise FencedMemberError(f"member {member_id} is no longer in the group; poll to learn what it has lost and to join again")
    if me.epoch != epoch:
        raise FencedMemberError(f"member {member_id} is in the group with epoch {me.epoch}, not {epoch}; poll again")
    foreign = sorted(frozenset(partitions) - me.owned)
    if foreign:
        named = ", ".join(f"{partition.topic}-{partition.partition}" for partition in foreign[:10])
        raise FencedMemberError(f"member {member_id} does not own {named}; it can commit only for what it is assigned")


# ---- assigning --------------------------------------------------------------------------------------------------------------


def _with_members(state: GroupState, members: Mapping[str, Member]) -> GroupState:
    return state._replace(members=dict(sorted(members.items())), classic=False, protocol_type="")


def _with_member(state: GroupState, member: Member) -> GroupState:
    return state._replace(members={**state.members, member.member_id: member})


def _wanted(members: Mapping[str, Member], available: Topics) -> Topics:
    names = frozenset[str]().union(*(member.topics for member in members.values()))
    return {name: available[name] for name in sorted(names & available.keys())}


def _shared_out(state: GroupState, members: Mapping[str, Member], available: Topics) -> GroupState:
    """Returns the group in its next epoch, with new targets."""
    wanted = _wanted(members, available)
    kept = {member_id: _without_deleted_topics(state, member, available) for member_id, member in members.items()}
    targets = {}
    if kept:
        assign = ASSIGNORS[choose([kept[member_id].assignors for member_id in sorted(kept)])]
        subscribers = [Subscriber(each.member_id, each.topics, each.target, each.instance_id) for each in kept.values()]
        targets = assign(subscribers, {name: info.numbers for name, info in wanted.items()})
    after = state._replace(
        epoch=state.epoch + 1,
        topics={name: len(info.numbers) for name, info in wanted.items()},
        ids={name: info.topic_id for name, info in available.items()},
    )
    return _with_members(after, {member_id: each._replace(target=targets[member_id]) for member_id, each in kept.items()})


def _without_deleted_topics(state: GroupState, member: Member, available: Topics) -> Member:
    """Drops partitions of deleted topics: they have no owner, even if a new topic has the name."""

    def exists(partition: TopicPartition) -> bool:
        return partition.topic in available and state.ids.get(partition.topic) == available[partition.topic].topic_id

    return member._replace(owned=frozenset(filter(exists, member.owned)), target=frozenset(filter(exists, member.target)))
