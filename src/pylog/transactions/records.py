"""Keys and values of `__transaction_state`: versions 0 and 1 of Kafka's values are read, version 1 is written.

Version 1 is flexible and ends with tagged fields. pylog's own tag names the owner of a transaction (transactions 3.2, 3.4;
groups-and-transactions 6.1). Tags that neither Kafka nor pylog has are dropped, as a broker does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from pylog import limits
from pylog.directory.topic_names import is_topic_name
from pylog.errors import CorruptionError, InvalidArgumentError, UnsupportedFormatError
from pylog.offsets.arguments import encoded
from pylog.offsets.schema import partition_of_group
from pylog.record.primitives import Reader, Tags, Writer, parsing
from pylog.record.types import TopicPartition
from pylog.transactions.metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_STATE_TOPIC,
    TransactionMetadata,
    TransactionOwner,
    TransactionState,
)
from pylog.transactions.owners import ANONYMOUS

KEY_VERSION: Final = 0
NEWEST_VERSION: Final = 1  # of values; the first flexible one, too
OWNER_TAG: Final = 0x7079

_PREVIOUS_ID: Final = 0  # Kafka's tags
_NEXT_ID: Final = 1
_CLIENT_VERSION: Final = 2
_NEXT_EPOCH: Final = 3
_OWNER_VERSION: Final = 1
_SINGLE_VERSION: Final = 2  # of the owner of a transaction that is one batch
_KEY: Final = struct.Struct(">hh")
_HEAD: Final = struct.Struct(">hqhib")  # version, producer id and epoch, timeout, state
_TIMES: Final = struct.Struct(">qq")
_OWNER: Final = struct.Struct(">bqb")  # version, byte, level
_KEY_START: Final = b"\0\0"
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")
_SHOWN: Final = 100  # characters of an id that is refused, in the message
_NEVER_WRITTEN: Final = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)

Assigned = tuple[tuple[str, tuple[int, ...]], ...]  # partition numbers by topic, in the order of a record


def partition_for(transactional_id: str, partitions: int) -> int:
    """Returns the partition of `__transaction_state` with the records of an id: the rule for groups' names (4.5).

    >>> partition_for("billing", 50)
    9
    """
    return partition_of_group(transactional_id, partitions)


# ---- keys --------------------------------------------------------------------------------------------------------------------


def checked_id(given: object) -> str:
    """Returns a transactional id after checking that a key can hold it.

    Raises:
        InvalidArgumentError: it is not text, is empty, or has too many bytes.
    """
    if isinstance(given, str) and 0 < len(encoded(given, "the transactional id")) <= limits.MAX_GROUP_BYTES:
        return given
    shown = given[:_SHOWN] if isinstance(given, str) else given
    raise InvalidArgumentError(f"transactional_id={shown!r} is not a text of 1 to {limits.MAX_GROUP_BYTES} bytes")


def checked_own_id(given: object) -> str:
    """Returns a transactional id of a program: `checked_id`, and not of the form of those that pylog gives itself."""
    name = checked_id(given)
    if name.removeprefix(ANONYMOUS).isdigit() and name.startswith(ANONYMOUS):
        raise InvalidArgumentError(f"transactional_id={name!r} has the form of ids that pylog gives itself; choose another one")
    return name


def format_key(transactional_id: str) -> bytes:
    """Returns the key of an id's records.

    >>> format_key("tx").hex()
    '000000027478'
    """
    name = transactional_id.encode()
    return _KEY.pack(KEY_VERSION, len(name)) + name


def parse_key(key: bytes) -> str:
    """Returns the id that a key names.

    Raises:
        CorruptionError: the key does not parse.
        UnsupportedFormatError: the key has another version. A broker skips such records.
    """
    if key[:2] == _KEY_START and len(key) >= _KEY.size and len(key) == _KEY.size + (key[2] << 8 | key[3]):
        try:
            return key[_KEY.size :].decode()
        except UnicodeDecodeError:
            pass  # raised again below, as an error of the key
    with parsing("a key", TRANSACTION_STATE_TOPIC):
        read = Reader(key)
        version = read.int16()
        if version != KEY_VERSION:
            raise UnsupportedFormatError(f"a key in {TRANSACTION_STATE_TOPIC} has version {version}; only version 0 is known")
        return read.text()


# ---- values as they are stored -----------------------------------------------------------------------------------------------


class TransactionLogValue(NamedTuple):
    """A value with the fields of Kafka's schema, in its order, unchecked. `metadata_of` gives them a meaning.

    Attributes:
        producer_id, producer_epoch, timeout_ms, status: as in `TransactionMetadata`; `status` is the number of the state.
        partitions: by topic; None in the state Empty.
        last_update_timestamp_ms, start_timestamp_ms: as in `TransactionMetadata`.
        tags: tagged fields of version 1.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: Assigned | None
    last_update_timestamp_ms: int
    start_timestamp_ms: int
    tags: Tags = ()

    def tag(self, number: int, layout: struct.Struct, default: int) -> int:
        """Returns the number in a tagged field.

        Raises:
            struct.error: the field has another size.
        """
        return next((int(layout.unpack(data)[0]) for known, data in self.tags if known == number), default)

    @property
    def previous_producer_id(self) -> int:
        """Tag 0."""
        return self.tag(_PREVIOUS_ID, _INT64, NO_PRODUCER_ID)

    @property
    def next_producer_id(self) -> int:
        """Tag 1."""
        return self.tag(_NEXT_ID, _INT64, NO_PRODUCER_ID)

    @property
    def client_transaction_version(self) -> int:
        """Tag 2."""
        return self.tag(_CLIENT_VERSION, _INT16, 0)

    @property
    def next_producer_epoch(self) -> int:
        """Tag 3."""
        return self.tag(_NEXT_EPOCH, _INT16, NO_PRODUCER_EPOCH)


def read_value(read: Reader, version: int) -> TransactionLogValue:
    """Reads the fields of a value after its version, which is 0 or 1. For use inside `parsing`."""
    read.flexible = version >= NEWEST_VERSION
    head = (read.int64(), read.int16(), read.int32(), read.int8())
    topics = read.optional_array(lambda: _read_topic(read))
    times = (read.int64(), read.int64())
    return TransactionLogValue(*head, None if topics is None else tuple(topics), *times, read.tags())


def _read_topic(read: Reader) -> tuple[str, tuple[int, ...]]:
    found = read.text(), read.int32s()
    read.tags()
    return found


# ---- values as metadata ------------------------------------------------------------------------------------------------------


def parse_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Returns the state that a value gives an id.

    Args:
        transactional_id: from the record's key.
        value: the record's value.

    Raises:
        CorruptionError: the value does not parse, or no coordinator can have written it.
        UnsupportedFormatError: the value is of a later version.
    """
    with parsing("a value", TRANSACTION_STATE_TOPIC):
        read = Reader(value)
        version = read.int16()
        if version > NEWEST_VERSION:
            raise UnsupportedFormatError(
                f"a value in {TRANSACTION_STATE_TOPIC} has version {version}; this pylog reads versions 0 and 1"
            )
        if version < 0:
            raise CorruptionError(f"a value in {TRANSACTION_STATE_TOPIC} has version {version}")
        return metadata_of(transactional_id, read_value(read, version))


def metadata_of(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """Returns the state of a value after checking it. For use inside `parsing`.

    Raises:
        CorruptionError: no coordinator can have written the value.
    """
    state = _state(value.status)
    topics = () if state is TransactionState.EMPTY else value.partitions or ()  # Kafka reads none of them then
    partitions = tuple(TopicPartition(topic, number) for topic, numbers in topics for number in _checked_numbers(topic, numbers))
    return TransactionMetadata(
        transactional_id,
        _at_least(0, value.producer_id, "producer id"),
        _at_least(NO_PRODUCER_EPOCH, value.producer_epoch, "producer epoch"),
        _at_least(0, value.timeout_ms, "timeout"),
        state,
        partitions,
        value.last_update_timestamp_ms,
        value.start_timestamp_ms,
        _at_least(NO_PRODUCER_ID, value.previous_producer_id, "previous producer id"),
        _at_least(NO_PRODUCER_ID, value.next_producer_id, "next producer id"),
        _at_least(NO_PRODUCER_EPOCH, value.next_producer_epoch, "next producer epoch"),
        _at_least(0, value.client_transaction_version, "client transaction version"),
        _owner(value.tags, len(partitions)),
    )


def _at_least(least: int, number: int, what: str) -> int:
    if number < least:
        raise CorruptionError(f"a value in {TRANSACTION_STATE_TOPIC} has the {what} {number}, which cannot exist")
    return number


def _state(status: int) -> TransactionState:
    if not 0 <= status < len(TransactionState) or TransactionState(status) in _NEVER_WRITTEN:
        raise CorruptionError(f"a value in {TRANSACTION_STATE_TOPIC} has the state {status}, which no record can have")
    return TransactionState(status)


def _checked_numbers(topic: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Checks partitions before their topic's name, which is from a file, can become part of a path."""
    if min(numbers, default=0) < 0 or not is_topic_name(topic):
        raise CorruptionError(
            f"a value in {TRANSACTION_STATE_TOPIC} names partition {min(numbers, default=0)} of {topic!r}, which cannot exist"
        )
    return numbers


def _owner(tags: Tags, partitions: int) -> TransactionOwner | None:
    """Reads the owner, also of later versions of the field, which begin as this one."""
    found = dict(tags).get(OWNER_TAG)
    if found is None:
        return None
    read = Reader(found)
    read.flexible = True
    version, byte, level = read.int8(), read.int64(), read.int8()
    ends = read.int64s()
    is_single = version >= _SINGLE_VERSION and read.int8() == 1
    if version < _OWNER_VERSION or byte < 0 or level < 0 or min(ends, default=0) < 0 or len(ends) not in (0, partitions):
        raise CorruptionError(f"a value in {TRANSACTION_STATE_TOPIC} has an owner that pylog cannot have written")
    return TransactionOwner(byte, level, ends, is_single)


# ---- writing -----------------------------------------------------------------------------------------------------------------


def format_value(metadata: TransactionMetadata, version: int = NEWEST_VERSION) -> bytes:
    """Returns the value of a record.

    Args:
        metadata: the state.
        version: 1, or 0, which brokers before 3.5 read. Version 0 has no tagged fields, so they are lost.
    """
    write = Writer(flexible=version >= NEWEST_VERSION)
    identity = metadata.producer_id, metadata.producer_epoch
    write.data += _HEAD.pack(version, *identity, metadata.timeout_ms, metadata.state)
    topics = None if metadata.state is TransactionState.EMPTY else _by_topic(metadata.partitions)
    write.array(topics, lambda each: _write_topic(write, *each))
    write.data += _TIMES.pack(metadata.last_update_timestamp_ms, metadata.start_timestamp_ms)
    return bytes(write.tags(tuple(_tags(metadata))).data)


def _by_topic(partitions: Iterable[TopicPartition]) -> Assigned:
    grouped = groupby(partitions, key=itemgetter(0))
    return tuple((topic, tuple([number for _, number in group])) for topic, group in grouped)


def _write_topic(write: Writer, topic: str, numbers: tuple[int, ...]) -> None:
    write.text(topic).int32s(numbers).tags(())


def _tags(metadata: TransactionMetadata) -> Iterator[tuple[int, bytes]]:
    """Returns the tagged fields that differ from their default, in the order of their numbers."""
    if metadata.previous_producer_id != NO_PRODUCER_ID:
        yield _PREVIOUS_ID, _INT64.pack(metadata.previous_producer_id)
    if metadata.next_producer_id != NO_PRODUCER_ID:
        yield _NEXT_ID, _INT64.pack(metadata.next_producer_id)
    if metadata.client_transaction_version:
        yield _CLIENT_VERSION, _INT16.pack(metadata.client_transaction_version)
    if metadata.next_producer_epoch != NO_PRODUCER_EPOCH:
        yield _NEXT_EPOCH, _INT16.pack(metadata.next_producer_epoch)
    if metadata.owner is not None:
        write = Writer()
        owner = metadata.owner
        write.data += _OWNER.pack(_SINGLE_VERSION if owner.is_single else _OWNER_VERSION, owner.byte, owner.level)
        yield OWNER_TAG, bytes(write.int64s(owner.end_offsets).data) + b"\x01" * owner.is_single
