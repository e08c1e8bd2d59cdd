"""What becomes of a group when something happens: pure functions from one state to the next. No files, no clocks.

Whoever decides holds the lock of the group's log and has caught up. The promise is that a partition never has two owners in the
log: a member gives up what is not its own any more, and only then another takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pylog.errors import FencedMemberError, InconsistentGroupProtocolError, UnreleasedInstanceIdError
from pylog.groups.assignors import ASSIGNORS, choose
from pylog.groups.state import GroupState, Member, PartitionSet, Topics
from pylog.groups.types import Subscriber
from pylog.record.types import TopicPartition

CONSUMERS = "consumer"  # the classic protocol's name for them


# ---- who is in the group -----------------------------------------------------------------------------------------------------


def join(
    state: GroupState, newcomer: Member, available: Topics, *, dead: Collection[str], expired: Collection[str]
) -> GroupState:
    """A member comes.

    Args:
        state: the group.
        newcomer: it has and is to have nothing yet.
        available: the topics that there are.
        dead: members whose processes are gone: a static one's place can be taken.
        expired: members that are put out.

    Raises:
        InconsistentGroupProtocolError: it has no assignor in common with those that stay, or the group is not one of consumers.
        UnreleasedInstanceIdError: a living member has the same instance id.
    """
    _check_consumers(state)
    staying = {member_id: each for member_id, each in state.members.items() if member_id not in expired and not state.classic}
    old = _same_instance(staying, newcomer)
    if old is not None and old.member_id not in dead:
        raise UnreleasedInstanceIdError(
            f"the group has a member {old.member_id} with group_instance_id={newcomer.instance_id!r} that lives; close that "
            "consumer, or give each its own group_instance_id"
        )
    if old is None:
        return _shared_out(state, {**staying, newcomer.member_id: newcomer}, available)
    del staying[old.member_id]
    members = {**staying, newcomer.member_id: newcomer._replace(target=old.target)}
    same = (old.topics, old.assignors) == (newcomer.topics, newcomer.assignors)
    if same and len(members) == len(state.members) and not topics_changed(state, available):
        return _with_members(state, members)  # it goes on where its predecessor was: nobody else notices
    return _shared_out(state, members, available)


def _check_consumers(state: GroupState) -> None:
    if state.classic and state.members and state.protocol_type != CONSUMERS:
        raise InconsistentGroupProtocolError(
            f"the group has {len(state.members)} members of kind {state.protocol_type!r}, not consumers; take another group"
        )


def _same_instance(members: Mapping[str, Member], newcomer: Member) -> Member | None:
    if newcomer.instance_id is None:
        return None
    return next((each for each in members.values() if each.instance_id == newcomer.instance_id), None)


def remove(state: GroupState, member_ids: Collection[str], available: Topics) -> GroupState:
    """Members leave, or are put out: their partitions are free at once."""
    members = {member_id: each for member_id, each in state.members.items() if member_id not in member_ids}
    return state if len(members) == len(state.members) else _shared_out(state, members, available)


def subscribe(state: GroupState, member_id: str, topics: frozenset[str], available: Topics) -> GroupState:
    """A member wants to read other topics."""
    me = state.members[member_id]
    if me.topics == topics:
        return state
    return _shared_out(state, {**state.members, member_id: me._replace(topics=topics)}, available)


def look_at_topics(state: GroupState, available: Topics) -> GroupState:
    """Topics came, went or gained partitions."""
    return _shared_out(state, state.members, available) if topics_changed(state, available) else state


def topics_changed(state: GroupState, available: Topics) -> bool:
    """Whether the partitions that the group's members want to read are others than those that were shared out."""
    wanted = _wanted(state.members, available)
    return wanted.keys() != state.topics.keys() or any(
        (info.topic_id, len(info.numbers)) != (state.ids[name], state.topics[name]) for name, info in wanted.items()
    )


def created_partitions(before: GroupState, after: GroupState, available: Topics, created: Collection[str]) -> PartitionSet:
    """The partitions that were created while the group had members that follow their topics.

    Args:
        before, after: the group, and what becomes of it.
        available: the topics that there are.
        created: topics that came to be while the member was running that decides.
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


# ---- who has which partition -------------------------------------------------------------------------------------------------


def give_up(state: GroupState, member_id: str, partitions: Collection[TopicPartition]) -> GroupState:
    """A member has stopped to read partitions. It says so even if it is to have them again meanwhile: a revocation that was begun
    is finished, or the log would say for ever that it has what it does not read.
    """
    me = state.members[member_id]
    return _with_member(state, me._replace(owned=me.owned.difference(partitions)))


def to_take(state: GroupState, member_id: str, reading: PartitionSet, blocked: PartitionSet = frozenset()) -> PartitionSet:
    """The partitions that a member is to have, does not read, and that nobody else has any more.

    Args:
        state: the group.
        member_id: the member.
        reading: what it reads.
        blocked: partitions for which a transaction has committed offsets that has not ended: nobody knows yet where to go on.
    """
    return state.members[member_id].target - reading - blocked - state.owned_by_others(member_id)


def is_settled(state: GroupState, member_id: str, reading: PartitionSet, blocked: PartitionSet = frozenset()) -> bool:
    """Whether the log says what it has to of a member that has given up everything it had to."""
    me = state.members[member_id]
    return me.owned == reading and me.epoch == state.epoch and not to_take(state, member_id, reading, blocked)


def settle(state: GroupState, member_id: str, reading: PartitionSet, blocked: PartitionSet = frozenset()) -> GroupState:
    """A member takes what it is to have and can, lets go of what it neither reads nor is to have, and follows the group's epoch
    once it has nothing that is not meant for it. As `to_take`.
    """
    me = state.members[member_id]
    owned = me.owned & reading | to_take(state, member_id, reading, blocked)
    me = me._replace(owned=owned)
    if owned <= me.target and me.epoch != state.epoch:
        me = me._replace(epoch=state.epoch, previous_epoch=me.epoch)
    return _with_member(state, me)


def check_commit(state: GroupState, member_id: str, epoch: int, partitions: Collection[TopicPartition]) -> None:
    """Whether a member may commit.

    Raises:
        FencedMemberError: it is no longer in the group, or has been in it under another epoch, or has not all of the partitions.
    """
    me = state.members.get(member_id)
    if me is None:
        raise FencedMemberError(f"member {member_id} is no longer in the group; poll tells what it has lost, and joins again")
    if me.epoch != epoch:
        raise FencedMemberError(f"member {member_id} is in the group with epoch {me.epoch}, not {epoch}; poll again")
    foreign = sorted(frozenset(partitions) - me.owned)
    if foreign:
        told = ", ".join(f"{partition.topic}-{partition.partition}" for partition in foreign[:10])
        raise FencedMemberError(f"member {member_id} does not own {told}; it can commit only for what it is assigned")


# ---- sharing out -------------------------------------------------------------------------------------------------------------


def _with_members(state: GroupState, members: Mapping[str, Member]) -> GroupState:
    return state._replace(members=dict(sorted(members.items())), classic=False, protocol_type="")


def _with_member(state: GroupState, member: Member) -> GroupState:
    return state._replace(members={**state.members, member.member_id: member})


def _wanted(members: Mapping[str, Member], available: Topics) -> Topics:
    names = frozenset[str]().union(*(member.topics for member in members.values()))
    return {name: available[name] for name in sorted(names & available.keys())}


def _shared_out(state: GroupState, members: Mapping[str, Member], available: Topics) -> GroupState:
    """The group in its next epoch, with new targets."""
    wanted = _wanted(members, available)
    kept = {member_id: _without_gone_topics(state, member, available) for member_id, member in members.items()}
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


def _without_gone_topics(state: GroupState, member: Member, available: Topics) -> Member:
    """Partitions of a topic that was deleted are nobody's, also if there is another one of its name now."""

    def there(partition: TopicPartition) -> bool:
        return partition.topic in available and state.ids.get(partition.topic) == available[partition.topic].topic_id

    return member._replace(owned=frozenset(filter(there, member.owned)), target=frozenset(filter(there, member.target)))
