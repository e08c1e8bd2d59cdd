"""The members of a group: a fold over its records, and the records that lead from one state to another.

The current assignments (kind 8) name the owner of each partition. The target assignments (kind 7) name its future owner.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pylog.offsets.image import Entry, GroupImage
from pylog.offsets.membership import (
    CURRENT,
    GROUP_EPOCH,
    GROUP_TOPICS,
    MEMBER,
    OF_MEMBERS,
    STABLE,
    TARGET,
    TARGET_EPOCH,
    UNRELEASED,
    UNREVOKED,
    CurrentAssignment,
    Epoch,
    GroupTopics,
    MemberMetadata,
    TargetAssignment,
    TopicMetadata,
    TopicPartitions,
    format_current,
    format_epoch,
    format_member,
    format_target,
    format_topics,
    group_record_key,
    member_of,
    member_record_key,
    parse_current,
    parse_epoch,
    parse_member,
    parse_target,
    parse_topics,
)
from pylog.offsets.schema import GroupMetadata, group_key
from pylog.record.primitives import Reader, Tags, Writer
from pylog.record.types import TopicPartition
from pylog.replayed_partition import KeyValue
from pylog.topics.topic import Topic

# Tagged fields. For a member: it is not of the classic protocol, which is a broker's default; and pylog's
# own field, the names of its assignors, because Kafka's schema holds only one. For assigned partitions: the epoch of assignment.
_NOT_CLASSIC: Final = (0, b"\0")
_ASSIGNORS_TAG: Final = 0x7079
_ASSIGNMENT_EPOCHS_TAG: Final = 0
_HOST: Final = "/127.0.0.1"

PartitionSet = frozenset[TopicPartition]


class TopicInfo(NamedTuple):
    """A topic: its id, of 16 bytes, and the numbers of its partitions, ascending."""

    topic_id: bytes
    numbers: tuple[int, ...]


Topics = Mapping[str, TopicInfo]


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        member_id: unique among all members that the group ever had.
        topics: its subscription.
        assignors: those that it supports, the preferred one first; none for a member that a broker recorded.
        instance_id: the instance id of a static member.
        client_id: for tools.
        rebalance_timeout_ms: how long it may take to release partitions.
        epoch: the group's, as far as the member has followed; 0 before it has.
        previous_epoch: the one before that.
        owned: the partitions that it has.
        target: the partitions that it should have.
    """

    member_id: str
    topics: frozenset[str]
    assignors: tuple[str, ...] = ()
    instance_id: str | None = None
    client_id: str = ""
    rebalance_timeout_ms: int = 0
    epoch: int = 0
    previous_epoch: int = 0
    owned: PartitionSet = frozenset()
    target: PartitionSet = frozenset()

    @property
    def recorded_state(self) -> int:
        """The member's state, in the encoding of its record."""
        return UNREVOKED if self.owned - self.target else UNRELEASED if self.target - self.owned else STABLE


class GroupState(NamedTuple):
    """A group. Immutable: decisions return a new one.

    Attributes:
        epoch: the number of times its partitions were assigned.
        members: by id, in the order of ids.
        topics: the number of partitions of each subscribed topic, at the last assignment.
        ids: the ids of these and all other topics.
        classic: the group has a record of Kafka's classic protocol.
        protocol_type: the kind of members in that record; "consumer" for consumers.
    """

    epoch: int = 0
    members: Mapping[str, Member] = {}
    topics: Mapping[str, int] = {}
    ids: Mapping[str, bytes] = {}
    classic: bool = False
    protocol_type: str = ""

    def owned_by_others(self, member_id: str) -> PartitionSet:
        """Returns the partitions that other members own."""
        return frozenset[TopicPartition]().union(*(each.owned for each in self.members.values() if each.member_id != member_id))


def topic_info(topic: Topic) -> TopicInfo:
    """Returns a topic's id and partitions. A topic from a broker without topic ids gets an id derived from its name."""
    if topic.id is None:
        return TopicInfo(hashlib.blake2b(topic.name.encode(), digest_size=16).digest(), topic.partition_ids)
    return TopicInfo(urlsafe_b64decode(topic.id + "=="), topic.partition_ids)


# ---- the fold ----------------------------------------------------------------------------------------------------------------


def state_of(group: GroupImage | None, available: Topics) -> GroupState:
    """Returns a group's state from its records.

    Args:
        group: the records; None if there are none.
        available: the existing topics, because current brokers record ids without names. A partition of a deleted topic has no
            owner.

    Raises:
        CorruptionError, UnsupportedFormatError: a record does not parse.
    """
    ids = {name: info.topic_id for name, info in available.items()}
    if group is None:
        return GroupState(ids=ids)
    records = _sorted(group.membership)
    written = [each for entry in records.get(GROUP_TOPICS, {}).values() for each in parse_topics(entry.value).topics]
    ids |= {each.name: each.topic_id for each in written}
    names = {info.topic_id: name for name, info in available.items()} | {each.topic_id: each.name for each in written}
    members = {
        member_id: _member(member_id, entry, records, names) for member_id, entry in sorted(records.get(MEMBER, {}).items())
    }
    epoch = max((parse_epoch(entry.value).epoch for entry in records.get(GROUP_EPOCH, {}).values()), default=0)
    found = GroupState(epoch, members, {each.name: each.partitions for each in written}, ids)
    return _with_classic(found, group.metadata())


def _with_classic(found: GroupState, classic: GroupMetadata | None) -> GroupState:
    """Adds the content of a record of the classic protocol: a broker may move a group from one protocol to the other."""
    if classic is None:
        return found
    old = {each.member_id: Member(each.member_id, frozenset()) for each in classic.members}
    epoch = max(found.epoch, classic.generation)
    return found._replace(epoch=epoch, members=old | dict(found.members), classic=True, protocol_type=classic.protocol_type)


def _sorted(records: Mapping[bytes, Entry]) -> dict[int, dict[str, Entry]]:
    """Returns records by kind and member."""
    found: dict[int, dict[str, Entry]] = defaultdict(dict)
    for key, entry in records.items():
        found[key[1]][member_of(key) if key[1] in OF_MEMBERS else ""] = entry
    return found


def _member(member_id: str, entry: Entry, records: Mapping[int, Mapping[str, Entry]], names: Mapping[bytes, str]) -> Member:
    wants = parse_member(entry.value)
    target, current = records.get(TARGET, {}).get(member_id), records.get(CURRENT, {}).get(member_id)
    has = CurrentAssignment(0, 0, STABLE, ()) if current is None else parse_current(current.value)
    return Member(
        member_id,
        frozenset(wants.topics),
        assignors_of(wants.tags),
        wants.instance_id,
        wants.client_id,
        wants.rebalance_timeout_ms,
        has.epoch,
        has.previous_epoch,
        _partitions(names, (*has.assigned, *has.revoking)),
        frozenset() if target is None else _partitions(names, parse_target(target.value).assigned),
    )


def _partitions(names: Mapping[bytes, str], given: Iterable[TopicPartitions]) -> PartitionSet:
    return frozenset(
        TopicPartition(names[each.topic_id], number) for each in given if each.topic_id in names for number in each.partitions
    )


def assignors_of(tags: Tags) -> tuple[str, ...]:
    """Returns the assignors in the record of a member of pylog; none for other members."""
    for number, value in tags:
        if number == _ASSIGNORS_TAG:
            read = Reader(value)
            read.flexible = True
            return tuple(read.array(read.text))
    return ()


# ---- records -----------------------------------------------------------------------------------------------------------------


def changes(group: bytes, before: GroupState, after: GroupState) -> list[KeyValue]:
    """Returns the records that lead from one state to another, in a broker's order (groups-and-transactions 1.8)."""
    items: list[KeyValue] = [(group_key(group), None)] if before.classic and not after.classic else []
    deleted = [member_id for member_id in before.members if member_id not in after.members and not before.classic]
    items += ((member_record_key(kind, group, member_id), None) for member_id in deleted for kind in (CURRENT, TARGET, MEMBER))
    items += _metadata(group, before, after)
    rebalanced = after.epoch != before.epoch
    if _group_topics(after) != _group_topics(before):
        items.append((group_record_key(GROUP_TOPICS, group), format_topics(_group_topics(after))))
    if rebalanced:
        items.append((group_record_key(GROUP_EPOCH, group), format_epoch(Epoch(after.epoch))))
    items += _targets(group, before, after)
    if rebalanced:
        items.append((group_record_key(TARGET_EPOCH, group), format_epoch(Epoch(after.epoch))))
    items += _currents(group, before, after)
    return items


def _group_topics(state: GroupState) -> GroupTopics:
    return GroupTopics(tuple(TopicMetadata(state.ids[name], name, count) for name, count in sorted(state.topics.items())))


def _metadata(group: bytes, before: GroupState, after: GroupState) -> Iterator[KeyValue]:
    for member in after.members.values():
        value = _wishes(member)
        known = before.members.get(member.member_id)
        if known is None or _wishes(known) != value:
            yield member_record_key(MEMBER, group, member.member_id), format_member(value)


def _wishes(member: Member) -> MemberMetadata:
    write = Writer()
    write.array(member.assignors, write.text)
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=None,
        client_id=member.client_id,
        client_host=_HOST,
        topics=tuple(sorted(member.topics)),
        topic_regex="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        tags=(_NOT_CLASSIC, (_ASSIGNORS_TAG, bytes(write.data))),
    )


def _targets(group: bytes, before: GroupState, after: GroupState) -> Iterator[KeyValue]:
    for member in after.members.values():
        known = before.members.get(member.member_id)
        assigned = _by_topic(after, member.target)
        if known is None or _by_topic(before, known.target) != assigned:
            yield member_record_key(TARGET, group, member.member_id), format_target(TargetAssignment(assigned))


def _currents(group: bytes, before: GroupState, after: GroupState) -> Iterator[KeyValue]:
    for member in after.members.values():
        known = before.members.get(member.member_id)
        assigned = _by_topic(after, member.owned)
        if known is None or known.epoch != member.epoch or _by_topic(before, known.owned) != assigned:
            has = tuple(_with_epoch(each, member.epoch) for each in assigned)
            value = CurrentAssignment(member.epoch, member.previous_epoch, member.recorded_state, has)
            yield member_record_key(CURRENT, group, member.member_id), format_current(value)


def _with_epoch(assigned: TopicPartitions, epoch: int) -> TopicPartitions:
    """Brokers since 4.3 require, for each partition, the epoch in which it was assigned."""
    write = Writer()
    write.array([epoch] * len(assigned.partitions), write.int32)
    return assigned._replace(tags=((_ASSIGNMENT_EPOCHS_TAG, bytes(write.data)),))


def _by_topic(state: GroupState, partitions: Collection[TopicPartition]) -> tuple[TopicPartitions, ...]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        numbers[partition.topic].append(partition.partition)
    return tuple(TopicPartitions(state.ids[name], tuple(each)) for name, each in numbers.items())
