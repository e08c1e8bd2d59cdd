"""Records of groups of Kafka's newer consumer-group protocol (KIP-848; groups-and-transactions 1.8).

Each is a structure of version 0, in the compact forms. What later versions add is in tagged fields, which are kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.record.primitives import Reader, Tags, Writer, parsing

GROUP_EPOCH: Final = 3  # kinds of records: one a group
GROUP_TOPICS: Final = 4
MEMBER: Final = 5  # one a member
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
PATTERN: Final = 16  # one for each pattern that members subscribe to, with its matches; not parsed
DELETION_ORDER: Final = (CURRENT, TARGET, TARGET_EPOCH, MEMBER, PATTERN, GROUP_TOPICS, GROUP_EPOCH)  # Kafka's; it refuses others
OF_MEMBERS: Final = (MEMBER, TARGET, CURRENT)

STABLE: Final = 0  # states of a member: it has its target assignment,
UNREVOKED: Final = 1  # more than that,
UNRELEASED: Final = 2  # or less, because others have it

_PREFIX: Final = struct.Struct(">hh")  # kind and the group's size
_SIZE: Final = struct.Struct(">h")
_VERSION: Final = 0
Value = TypeVar("Value")


# ---- keys --------------------------------------------------------------------------------------------------------------------


def group_record_key(kind: int, group: bytes) -> bytes:
    """Returns the key of a record of which a group has one.

    >>> group_record_key(GROUP_EPOCH, b"g").hex()
    '0003000167'
    """
    return _PREFIX.pack(kind, len(group)) + group


def member_record_key(kind: int, group: bytes, member_id: str) -> bytes:
    """Returns the key of a record of which each member has one.

    >>> member_record_key(MEMBER, b"g", "m").hex()
    '000500016700016d'
    """
    name = member_id.encode()
    return group_record_key(kind, group) + _SIZE.pack(len(name)) + name


def member_of(key: bytes) -> str:
    """Returns the member that such a key names.

    Raises:
        CorruptionError: it is none.

    >>> member_of(member_record_key(TARGET, b"g", "m"))
    'm'
    """
    with parsing("a member's key"):
        read = Reader(key)
        read.int16(), read.text()
        return read.text()


# ---- values ------------------------------------------------------------------------------------------------------------------


class Epoch(NamedTuple):
    """The number of a group's last change (kind 3), or of the one that its targets are computed for (kind 6)."""

    epoch: int
    tags: Tags = ()


class PartitionRacks(NamedTuple):
    """Where the replicas of a partition are."""

    partition: int
    racks: tuple[str, ...]
    tags: Tags = ()


class TopicMetadata(NamedTuple):
    """A topic that a group reads. `topic_id` has 16 bytes."""

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[PartitionRacks, ...] = ()
    tags: Tags = ()


class GroupTopics(NamedTuple):
    """The topics that a group reads, as they were when its partitions were assigned (kind 4)."""

    topics: tuple[TopicMetadata, ...]
    tags: Tags = ()


class MemberMetadata(NamedTuple):
    """A member and its subscription (kind 5)."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    tags: Tags = ()


class TopicPartitions(NamedTuple):
    """Partitions of one topic."""

    topic_id: bytes
    partitions: tuple[int, ...]
    tags: Tags = ()


class TargetAssignment(NamedTuple):
    """A member's target assignment (kind 7)."""

    assigned: tuple[TopicPartitions, ...]
    tags: Tags = ()


class CurrentAssignment(NamedTuple):
    """A member's current assignment (kind 8). It owns both `assigned` and `revoking` until it has released them."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: tuple[TopicPartitions, ...]
    revoking: tuple[TopicPartitions, ...] = ()
    tags: Tags = ()


# ---- reading -----------------------------------------------------------------------------------------------------------------


def _parsed(what: str, value: bytes, read_fields: Callable[[Reader], Value]) -> Value:
    with parsing(what):
        read = Reader(value)
        version = read.int16()
        if version > _VERSION:
            raise UnsupportedFormatError(f"{what} has version {version}; this pylog reads version {_VERSION}; upgrade pylog")
        if version < 0:
            raise CorruptionError(f"{what} has version {version}")
        read.flexible = True
        return read_fields(read)


def parse_epoch(value: bytes) -> Epoch:
    """Parses a record of kind 3 or 6. Here as below:

    Raises:
        CorruptionError: it does not parse.
        UnsupportedFormatError: it is of a later version.
    """
    return _parsed("an epoch", value, lambda read: Epoch(read.int32(), read.tags()))


def parse_topics(value: bytes) -> GroupTopics:
    """Parses a record of kind 4."""

    def racks(read: Reader) -> PartitionRacks:
        return PartitionRacks(read.int32(), tuple(read.array(read.text)), read.tags())

    def topic(read: Reader) -> TopicMetadata:
        head = read.uuid(), read.text(), read.int32()
        return TopicMetadata(*head, tuple(read.array(lambda: racks(read))), read.tags())

    return _parsed("a group's topics", value, lambda read: GroupTopics(tuple(read.array(lambda: topic(read))), read.tags()))


def parse_member(value: bytes) -> MemberMetadata:
    """Parses a record of kind 5."""

    def member(read: Reader) -> MemberMetadata:
        who = read.optional_text(), read.optional_text(), read.text(), read.text()
        topics = tuple(read.array(read.text))
        return MemberMetadata(*who, topics, read.optional_text(), read.int32(), read.optional_text(), read.tags())

    return _parsed("a member", value, member)


def parse_target(value: bytes) -> TargetAssignment:
    """Parses a record of kind 7."""
    return _parsed("a target assignment", value, lambda read: TargetAssignment(_partitions(read), read.tags()))


def parse_current(value: bytes) -> CurrentAssignment:
    """Parses a record of kind 8."""

    def current(read: Reader) -> CurrentAssignment:
        head = read.int32(), read.int32(), read.int8()
        return CurrentAssignment(*head, _partitions(read), _partitions(read), read.tags())

    return _parsed("an assignment", value, current)


def _partitions(read: Reader) -> tuple[TopicPartitions, ...]:
    return tuple(read.array(lambda: TopicPartitions(read.uuid(), tuple(read.array(read.int32)), read.tags())))


# ---- writing -----------------------------------------------------------------------------------------------------------------


def format_epoch(given: Epoch) -> bytes:
    """Returns the bytes of a record of kind 3 or 6.

    >>> format_epoch(Epoch(1)).hex()
    '00000000000100'
    """
    return bytes(Writer().int16(_VERSION).int32(given.epoch).tags(given.tags).data)


def format_topics(given: GroupTopics) -> bytes:
    """Returns the bytes of a record of kind 4."""
    write = Writer().int16(_VERSION)

    def racks(each: PartitionRacks) -> None:
        write.int32(each.partition).array(each.racks, write.text).tags(each.tags)

    def topic(each: TopicMetadata) -> None:
        write.uuid(each.topic_id).text(each.name).int32(each.partitions).array(each.racks, racks).tags(each.tags)

    return bytes(write.array(given.topics, topic).tags(given.tags).data)


def format_member(given: MemberMetadata) -> bytes:
    """Returns the bytes of a record of kind 5."""
    write = Writer().int16(_VERSION).text(given.instance_id).text(given.rack_id).text(given.client_id).text(given.client_host)
    write.array(given.topics, write.text).text(given.topic_regex).int32(given.rebalance_timeout_ms)
    return bytes(write.text(given.server_assignor).tags(given.tags).data)


def format_target(given: TargetAssignment) -> bytes:
    """Returns the bytes of a record of kind 7."""
    write = Writer().int16(_VERSION)
    return bytes(_write_partitions(write, given.assigned).tags(given.tags).data)


def format_current(given: CurrentAssignment) -> bytes:
    """Returns the bytes of a record of kind 8."""
    write = Writer().int16(_VERSION).int32(given.epoch).int32(given.previous_epoch).int8(given.state)
    return bytes(_write_partitions(_write_partitions(write, given.assigned), given.revoking).tags(given.tags).data)


def _write_partitions(write: Writer, given: tuple[TopicPartitions, ...]) -> Writer:
    def one(each: TopicPartitions) -> None:
        write.uuid(each.topic_id).array(each.partitions, write.int32).tags(each.tags)

    return write.array(given, one)
