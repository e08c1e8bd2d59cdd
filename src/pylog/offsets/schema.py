"""The records of `__consumer_offsets`: Kafka's keys and values, every version read, the current one written.

A key begins with a number that is the kind of record; a value with the version of its layout. Kinds that are not named here
belong to other uses: their records are kept and not parsed (groups-and-transactions 1.4 to 1.7).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.record.primitives import Reader, parsing
from pylog.record.types import OffsetAndMetadata, TopicPartition

OFFSETS_TOPIC: Final = "__consumer_offsets"

# Kinds of records: the first two bytes of their keys. Both kinds of offsets mean the same; those of Kafka's newer protocol are
# in `membership`.
OLD_OFFSET: Final = 0
OFFSET: Final = 1
GROUP: Final = 2

CONSUMER_PROTOCOL: Final = "consumer"  # the protocol type of groups whose members are consumers

_NEWEST: Final = 4  # version of values
_CURRENT: Final = 3  # of those written
_KIND: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_VALUE: Final = struct.Struct(">hqih")  # version 3 as far as the metadata: version, offset, leader epoch, size
_TIME: Final = struct.Struct(">q")
_PLAIN: Final = struct.Struct(">hqihq")  # version 3 without metadata
_CURRENT_BYTES: Final = _KIND.pack(_CURRENT)
_NO_EPOCH: Final = -1
_NO_TIME: Final = -1


# ---- which partition ---------------------------------------------------------------------------------------------------------


def java_hash(text: str) -> int:
    """Returns Java's `String.hashCode`: over UTF-16 code units, in 32 bits with a sign (groups-and-transactions 4.5).

    >>> java_hash("my-group"), java_hash("polygenelubricants")
    (-1906497762, -2147483648)
    """
    found = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (found >> 31 << 32)


def partition_of_group(group: str, partitions: int) -> int:
    """Returns the partition of `__consumer_offsets` that has a group's records. As Kafka's `abs`, 0 for the smallest number.

    >>> partition_of_group("my-group", 50), partition_of_group("polygenelubricants", 50)
    (12, 0)
    """
    found = java_hash(group)
    return 0 if found == -(2**31) else abs(found) % partitions


# ---- keys --------------------------------------------------------------------------------------------------------------------


def group_name(encoded: bytes) -> str:
    """Decodes a group's name from the bytes in a key.

    Raises:
        CorruptionError: they are no UTF-8.
    """
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError("a group's name is not UTF-8") from error


def format_partition_key(partition: TopicPartition) -> bytes:
    """Returns the part of an offset's key that names the partition, which identifies an offset within its group."""
    topic = partition.topic.encode()
    return _SIZE.pack(len(topic)) + topic + _PARTITION.pack(partition.partition)


def parse_partition_key(key: bytes) -> TopicPartition:
    """Returns the partition that such a part names.

    Raises:
        CorruptionError: it is not one.

    >>> parse_partition_key(format_partition_key(TopicPartition("orders", 7)))
    TopicPartition(topic='orders', partition=7)
    """
    with parsing("a key"):
        read = Reader(key)
        return TopicPartition(read.text(), read.int32())


def offset_key(group: bytes, partition_key: bytes, kind: int = OFFSET) -> bytes:
    """Returns the key of an offset's record.

    >>> offset_key(b"g", format_partition_key(TopicPartition("t", 7))).hex()
    '000100016700017400000007'
    """
    return _KIND.pack(kind) + _SIZE.pack(len(group)) + group + partition_key


def group_key(group: bytes) -> bytes:
    """Returns the key of the record with a group's members.

    >>> group_key(b"g").hex()
    '0002000167'
    """
    return _KIND.pack(GROUP) + _SIZE.pack(len(group)) + group


# ---- offsets -----------------------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """The value of an offset's record.

    Attributes:
        committed: the offset and metadata that the group receives.
        expire_timestamp: when it expires, in milliseconds; None unless the commit has its own time.
    """

    committed: OffsetAndMetadata
    expire_timestamp: int | None = None


def format_offset(offset: int, metadata: bytes, leader_epoch: int | None, timestamp: int) -> bytes:
    """Returns the value of an offset's record, in version 3, which every Kafka since 2.1 reads.

    >>> format_offset(258, b"hi", 5, 1_700_000_000_000).hex()
    '0003000000000000010200000005000268690000018bcfe56800'
    """
    epoch = _NO_EPOCH if leader_epoch is None else leader_epoch
    return _VALUE.pack(_CURRENT, offset, epoch, len(metadata)) + metadata + _TIME.pack(timestamp)


def format_plain_offset(offset: int, timestamp: int) -> bytes:
    """Returns `format_offset` of an offset without metadata and leader epoch, as most are. Cost: 0.1 µs.

    >>> format_plain_offset(258, 7) == format_offset(258, b"", None, 7)
    True
    """
    return _PLAIN.pack(_CURRENT, offset, _NO_EPOCH, 0, timestamp)


def parse_offset(value: bytes) -> Commit:
    """Parses the value of an offset's record, in any version.

    Raises:
        CorruptionError: it does not parse.
        UnsupportedFormatError: it is of a later version.
    """
    with parsing("an offset's value"):
        if value[:2] == _CURRENT_BYTES:
            return Commit(_current(value))
        read = Reader(value)
        version = _checked_version(read.int16(), "offset")
        read.flexible = version == _NEWEST
        offset = read.int64()
        epoch = read.int32() if version >= 3 else _NO_EPOCH
        metadata = read.text()
        timestamp = read.int64()
        expires = read.int64() if version == 1 else _NO_TIME
        read.tags()
    found = OffsetAndMetadata(offset, metadata, None if epoch < 0 else epoch, timestamp)
    return Commit(found, None if expires == _NO_TIME else expires)


def _current(value: bytes) -> OffsetAndMetadata:
    """Parses version 3, which nearly all values have, in a third of the time."""
    _, offset, epoch, size = _VALUE.unpack_from(value)
    end = _VALUE.size + size
    if size < 0:
        raise IndexError("the metadata has a negative size")
    (timestamp,) = _TIME.unpack_from(value, end)
    return OffsetAndMetadata(offset, value[_VALUE.size : end].decode(), None if epoch < 0 else epoch, timestamp)


def _checked_version(version: int, what: str) -> int:
    if version > _NEWEST:
        raise UnsupportedFormatError(f"a value of an {what} has version {version}; this pylog reads versions 0 to {_NEWEST}")
    if version < 0:
        raise CorruptionError(f"a value of an {what} has version {version}")
    return version


# ---- groups ------------------------------------------------------------------------------------------------------------------


class ClassicMember(NamedTuple):
    """A member of a group of Kafka's classic protocol. Times in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A group of Kafka's classic protocol, as its coordinator wrote it last.

    Attributes:
        protocol_type: "consumer" for consumers, "" if no member has joined yet.
        generation: how often its members were given partitions.
        protocol: the assignor's name.
        leader: id of the member that assigned.
        state_timestamp: since when it has been as it is, in milliseconds; None where the record does not say.
        members: those that it has.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int | None
    members: tuple[ClassicMember, ...]


def parse_group(value: bytes) -> GroupMetadata:
    """Parses the value of a group's record, in any version.

    Raises:
        CorruptionError: it does not parse.
        UnsupportedFormatError: it is of a later version.
    """
    with parsing("a group's value"):
        read = Reader(value)
        version = _checked_version(read.int16(), "group")
        read.flexible = version == _NEWEST
        head = (read.text(), read.int32(), read.optional_text(), read.optional_text())
        since = read.int64() if version >= 2 else _NO_TIME
        members = tuple(read.array(lambda: _member(read, version)))
        read.tags()
    return GroupMetadata(*head, None if since == _NO_TIME else since, members)


def _member(read: Reader, version: int) -> ClassicMember:
    member_id = read.text()
    instance_id = read.optional_text() if version >= 3 else None
    client_id, client_host = read.text(), read.text()
    rebalance = read.int32() if version >= 1 else -1
    session = read.int32()
    found = ClassicMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        session if rebalance < 0 else rebalance,
        session,
        read.sized(),
        read.sized(),
    )
    read.tags()
    return found


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Returns the topics that a consumer has subscribed to, in any version; None if the bytes do not parse."""
    try:
        with parsing("a subscription"):
            read = Reader(subscription)
            read.int16()
            return frozenset(read.array(read.text))
    except CorruptionError:
        return None


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Returns the partitions assigned to a member, in any version; none if the bytes do not parse."""
    try:
        with parsing("an assignment"):
            read = Reader(assignment)
            read.int16()
            topics = read.array(lambda: (read.text(), read.array(read.int32)))
    except CorruptionError:
        return ()
    return tuple(sorted(TopicPartition(topic, number) for topic, numbers in topics for number in numbers))


def format_empty_group(protocol_type: str, generation: int, timestamp: int) -> bytes:
    """Returns the value of a group's record, in version 3, as its coordinator writes it when the last member has left.

    Args:
        protocol_type: the protocol type of the members that it had.
        generation: the number after theirs.
        timestamp: since when it is empty, in milliseconds.

    >>> parse_group(format_empty_group("consumer", 4, 1_700_000_000_000))[:5]
    ('consumer', 4, None, None, 1700000000000)
    """
    name = protocol_type.encode()
    head = _KIND.pack(_CURRENT) + _SIZE.pack(len(name)) + name + _PARTITION.pack(generation) + 2 * _SIZE.pack(-1)
    return head + _TIME.pack(timestamp) + _PARTITION.pack(0)
