"""Describes a group: the members in its records, its committed offsets and its lag."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pylog.groups.assignors import choose
from pylog.groups.state import assignors_of
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
    CurrentAssignment,
    MemberMetadata,
    TopicPartitions,
    member_of,
    parse_current,
    parse_epoch,
    parse_member,
    parse_target,
    parse_topics,
)
from pylog.offsets.schema import CONSUMER_PROTOCOL, ClassicMember, GroupMetadata, assigned_partitions
from pylog.record.types import OffsetAndMetadata, TopicPartition

_DEFAULT_ASSIGNOR: Final = "uniform"  # Kafka's, of a group whose members name none
_NOTHING: Final = CurrentAssignment(0, 0, STABLE, ())  # of a member that has not been given anything yet


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id: given to it when it joined.
        instance_id: the instance id of a static member; None for others.
        client_id, host: its consumer's client id and host.
        epoch: the one that it has reached; None for Kafka's classic protocol, whose members all have the group's.
        assignment: the partitions that it reads.
        target: those that it will read once their owners have released them; None for the classic protocol.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """How far a group is in a partition.

    Attributes:
        partition: the partition.
        offset: the offset that the group reads next; None without a commit.
        leader_epoch, metadata: committed with it.
        start_offset, end_offset: the log's start offset and end offset; None if the partition was deleted.
        consumer: the member that reads it; None without one.
    """

    partition: TopicPartition
    offset: int | None
    leader_epoch: int | None
    metadata: str
    start_offset: int | None
    end_offset: int | None
    consumer: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The offsets between commit and log end, with markers and gaps as in Kafka's tools; None if one is unknown."""
        return None if self.offset is None or self.end_offset is None else self.end_offset - self.offset


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: the group's name.
        type: `"Classic"` or `"Consumer"` (of Kafka's newer protocol), after its records.
        state: `"Empty"`, `"Stable"`, and for type Consumer `"Assigning"` or `"Reconciling"`.
        protocol_type: `"consumer"`; `""` for a group that has never had members.
        assignor: assigns partitions to members; `""` if none was chosen.
        epoch: raised with each change of the members of a group of type Consumer; Kafka's generation for type Classic. None if
            the group has never had members.
        target_epoch: for which the target was computed; None for type Classic.
        members: in the order of their ids.
        partitions: those with a commit or an assignment, in order.
    """

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    target_epoch: int | None
    members: tuple[MemberDescription, ...]
    partitions: tuple[PartitionDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """The content of a group's records: a description without partitions, and the committed offsets."""

    group: GroupDescription
    offsets: dict[TopicPartition, OffsetAndMetadata]

    def partitions(self) -> set[TopicPartition]:
        """Returns the partitions with a commit or an assignment."""
        return {partition for member in self.group.members for partition in member.assignment} | set(self.offsets)


def known(name: str, image: GroupImage, topics: Mapping[bytes, str]) -> KnownGroup:
    """Returns the content of a group's records.

    Args:
        name, image: the group.
        topics: names of topics by their ids of 16 bytes. Assignments of unknown topics are left out: those topics were deleted.

    Raises:
        CorruptionError, UnsupportedFormatError: a record does not parse.
    """
    group = _consumer(name, image, topics) if image.is_consumer else _classic(name, image.metadata())
    return KnownGroup(group, dict(image.offsets()))


def _classic(name: str, metadata: GroupMetadata | None) -> GroupDescription:
    if metadata is None:
        return GroupDescription(name, "Classic", "Empty", "", "", None, None, ())
    members = tuple(sorted(map(_classic_member, metadata.members), key=lambda member: member.member_id))
    state = "Stable" if members else "Empty"  # the states between are not in any record
    kind, assignor = metadata.protocol_type, metadata.protocol or ""
    return GroupDescription(name, "Classic", state, kind, assignor, metadata.generation, None, members)


def _classic_member(member: ClassicMember) -> MemberDescription:
    partitions = assigned_partitions(member.assignment)
    return MemberDescription(member.member_id, member.instance_id, member.client_id, member.client_host, None, partitions)


def _consumer(name: str, image: GroupImage, topics: Mapping[bytes, str]) -> GroupDescription:
    records = by_kind(image.membership)
    written = [each for value in records[GROUP_TOPICS].values() for each in parse_topics(value).topics]
    names = {each.topic_id: each.name for each in written} | dict(topics)
    (epoch,) = (parse_epoch(value).epoch for value in records[GROUP_EPOCH].values())
    target_epoch = next((parse_epoch(value).epoch for value in records[TARGET_EPOCH].values()), 0)
    wishes = {member_id: parse_member(value) for member_id, value in sorted(records[MEMBER].items())}
    has = {member_id: parse_current(value) for member_id, value in records[CURRENT].items()}
    targets = {member_id: parse_target(value).assigned for member_id, value in records[TARGET].items()}
    members = tuple(
        _consumer_member(names, member_id, wish, has.get(member_id, _NOTHING), targets.get(member_id, ()))
        for member_id, wish in wishes.items()
    )
    settled = all((each.state, each.epoch) == (STABLE, target_epoch) for each in (has.get(name, _NOTHING) for name in wishes))
    state = "Empty" if not wishes else "Assigning" if epoch > target_epoch else "Stable" if settled else "Reconciling"
    assignor = _assignor(list(wishes.values()))
    return GroupDescription(name, "Consumer", state, CONSUMER_PROTOCOL, assignor, epoch, target_epoch, members)


def _consumer_member(
    names: Mapping[bytes, str], member_id: str, wish: MemberMetadata, has: CurrentAssignment, target: Iterable[TopicPartitions]
) -> MemberDescription:
    return MemberDescription(
        member_id,
        wish.instance_id,
        wish.client_id,
        wish.client_host,
        has.epoch,
        _partitions(names, has.assigned),
        _partitions(names, target),
    )


def _assignor(wishes: Sequence[MemberMetadata]) -> str:
    """Returns the assignor: pylog's members use one that all have, a broker's members the one that most of them name."""
    ours = [assignors_of(wish.tags) for wish in wishes]
    if ours and all(ours):
        return choose(ours)
    named = Counter(wish.server_assignor for wish in wishes if wish.server_assignor).most_common(1)
    return str(named[0][0]) if named else _DEFAULT_ASSIGNOR


def by_kind(membership: Mapping[bytes, Entry]) -> Mapping[int, dict[str, bytes]]:
    """Returns the values of records by kind and member; the member is "" for kinds with one record a group."""
    found: dict[int, dict[str, bytes]] = defaultdict(dict)
    for key, entry in membership.items():
        found[key[1]][member_of(key) if key[1] in OF_MEMBERS else ""] = entry.value
    return found


def _partitions(names: Mapping[bytes, str], given: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    found = (
        TopicPartition(names[each.topic_id], number) for each in given if each.topic_id in names for number in each.partitions
    )
    return tuple(sorted(found))


def with_ends(found: KnownGroup, ends: dict[TopicPartition, tuple[int, int] | None]) -> GroupDescription:
    """Returns the whole description.

    Args:
        found: the content of the records.
        ends: start and end of each partition's log; None for a deleted partition.
    """
    readers = {partition: member for member in found.group.members for partition in member.assignment}
    rows = []
    for partition in sorted(ends):
        committed, (start, end) = found.offsets.get(partition), ends[partition] or (None, None)
        offset, epoch, metadata = (
            (None, None, "") if committed is None else (committed.offset, committed.leader_epoch, committed.metadata)
        )
        rows.append(PartitionDescription(partition, offset, epoch, metadata, start, end, readers.get(partition)))
    return replace(found.group, partitions=tuple(rows))
