"""Decodes keys and values of Kafka's two internal topics into JSON documents with the field names of Kafka's tools.

A key starts with the number of its record's kind, a value with the version of its layout (groups-and-transactions 1.4 to 1.8,
6.1; kinds from 10 on as in Kafka 4.3). Layouts are tables of fields, read by one reader. A document lacks the fields that its
version does not have, and tagged fields with their default.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pylog.errors import CorruptionError, PylogError, UnsupportedFormatError
from pylog.record.primitives import Reader
from pylog.transactions.records import read_value

Document = dict[str, Any]
Kind = Callable[[Reader, int], Any]

NEWEST: Final = 2**15 - 1  # the highest possible version
_CONSUMERS: Final = "consumer"  # the protocol type of groups whose members are consumers


class Field(NamedTuple):
    """A field of a structure.

    Attributes:
        name: name in Kafka's JSON.
        kind: reads the field.
        since, until: versions with this field, inclusive.
        tag: number of a tagged field.
        default: default of a tagged field.
        shown: True if the document has the field even with its default.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = NEWEST
    tag: int | None = None
    default: Any = None
    shown: bool = False


# ---- kinds of fields ---------------------------------------------------------------------------------------------------------


def _int8(read: Reader, _: int) -> int:
    return read.int8()


def _int16(read: Reader, _: int) -> int:
    return read.int16()


def _uint16(read: Reader, _: int) -> int:
    return read.int16() & 0xFFFF


def _int32(read: Reader, _: int) -> int:
    return read.int32()


def _int64(read: Reader, _: int) -> int:
    return read.int64()


def _text(read: Reader, _: int) -> str:
    return read.text()


def _optional_text(read: Reader, _: int) -> str | None:
    return read.optional_text()


def _bytes(read: Reader, _: int) -> str:
    return base64.b64encode(read.sized()).decode()


def _optional_bytes(read: Reader, _: int) -> str | None:
    found = read.optional_sized()
    return None if found is None else base64.b64encode(found).decode()


def _uuid(read: Reader, _: int) -> str:
    return base64.urlsafe_b64encode(read.uuid()).decode().rstrip("=")


def _array(item: Kind) -> Kind:
    return lambda read, version: read.array(lambda: item(read, version))


def _optional_array(item: Kind) -> Kind:
    return lambda read, version: read.optional_array(lambda: item(read, version))


def _struct(*fields: Field) -> Kind:
    return lambda read, version: _read_struct(fields, read, version)


def _optional_struct(*fields: Field) -> Kind:
    return lambda read, version: None if read.int8() <= 0 else _read_struct(fields, read, version)


def _read_struct(fields: tuple[Field, ...], read: Reader, version: int) -> Document:
    present = [field for field in fields if field.since <= version <= field.until]
    found = {field.name: field.default if field.tag is not None else field.kind(read, version) for field in present}
    tagged = {field.tag: field for field in present if field.tag is not None}
    for number, data in read.tags():
        if number in tagged:
            inner = Reader(data)
            inner.flexible = True
            found[tagged[number].name] = tagged[number].kind(inner, version)
    hidden = {field.name for field in tagged.values() if not field.shown and found[field.name] == field.default}
    return {name: value for name, value in found.items() if name not in hidden}


# ---- layouts -----------------------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """The layout of records of one kind.

    Attributes:
        key, value: readers of the key and the value, after the number that they start with.
        newest: the newest known version of the value.
        flexible: the first version of the value with compact types; keys never have them.
    """

    key: Kind
    value: Kind
    newest: int = 0
    flexible: int = 0


_NO_UUID: Final = "A" * 22
_GROUP_ID: Final = _struct(Field("groupId", _text))
_MEMBER_ID: Final = _struct(Field("groupId", _text), Field("memberId", _text))
_PARTITIONS: Final = Field("partitions", _array(_int32))
_OWNED: Final = _struct(Field("topic", _text), _PARTITIONS)

_OFFSET_KEY: Final = _struct(Field("group", _text), Field("topic", _text), Field("partition", _int32))
_OFFSET: Final = _struct(
    Field("offset", _int64),
    Field("leaderEpoch", _int32, since=3),
    Field("metadata", _text),
    Field("commitTimestamp", _int64),
    Field("expireTimestamp", _int64, since=1, until=1),
    Field("topicId", _uuid, since=4, tag=0, default=_NO_UUID),
)
_CLASSIC_MEMBER: Final = _struct(
    Field("memberId", _text),
    Field("groupInstanceId", _optional_text, since=3),
    Field("clientId", _text),
    Field("clientHost", _text),
    Field("rebalanceTimeout", _int32, since=1),
    Field("sessionTimeout", _int32),
    Field("subscription", _bytes),
    Field("assignment", _bytes),
)
_CLASSIC_GROUP: Final = _struct(
    Field("protocolType", _text),
    Field("generation", _int32),
    Field("protocol", _optional_text),
    Field("leader", _optional_text),
    Field("currentStateTimestamp", _int64, since=2),
    Field("members", _array(_CLASSIC_MEMBER)),
)
_SUBSCRIPTION: Final = _struct(
    Field("topics", _array(_text)),
    Field("userData", _optional_bytes),
    Field("ownedPartitions", _array(_OWNED), since=1),
    Field("generationId", _int32, since=2),
    Field("rackId", _optional_text, since=3),
)
_NEWER_IN_SUBSCRIPTION: Final[Document] = {"ownedPartitions": [], "generationId": -1, "rackId": None}
_ASSIGNMENT: Final = _struct(Field("assignedPartitions", _array(_OWNED)), Field("userData", _optional_bytes))

_EPOCH: Final = Field("epoch", _int32)
_HASH: Final = Field("metadataHash", _int64)
_EPOCHS: Final = Field("assignmentEpochs", _optional_array(_int32), tag=0)
_TARGET_EPOCH: Final = _struct(Field("assignmentEpoch", _int32), Field("assignmentTimestamp", _int64, tag=0, default=0))
_TOPIC_PARTITIONS: Final = _array(_struct(Field("topicId", _uuid), _PARTITIONS))
_TOPIC_EPOCHS: Final = _array(_struct(Field("topicId", _uuid), _PARTITIONS, _EPOCHS))
_MEMBER_STATE: Final = (Field("memberEpoch", _int32), Field("previousMemberEpoch", _int32), Field("state", _int8))
_TARGET: Final = _struct(Field("topicPartitions", _TOPIC_PARTITIONS))
_WHO: Final = (
    Field("instanceId", _optional_text),
    Field("rackId", _optional_text),
    Field("clientId", _text),
    Field("clientHost", _text),
)
_CLASSIC_PROTOCOLS: Final = _array(_struct(Field("name", _text), Field("metadata", _bytes)))
_CLASSIC_METADATA: Final = _optional_struct(Field("sessionTimeoutMs", _int32), Field("supportedProtocols", _CLASSIC_PROTOCOLS))
_CONSUMER: Final = _struct(
    *_WHO,
    Field("subscribedTopicNames", _array(_text)),
    Field("subscribedTopicRegex", _optional_text),
    Field("rebalanceTimeoutMs", _int32),
    Field("serverAssignor", _optional_text),
    Field("classicMemberMetadata", _CLASSIC_METADATA, tag=0, shown=True),
)
_RACKS: Final = _array(_struct(Field("partition", _int32), Field("racks", _array(_text))))
_TOPICS: Final = _array(
    _struct(
        Field("topicId", _uuid),
        Field("topicName", _text),
        Field("numPartitions", _int32),
        Field("partitionMetadata", _RACKS),
    )
)

_SHARE_TOPICS: Final = _array(_struct(Field("topicId", _uuid), Field("topicName", _text), _PARTITIONS))
_SHARE_STATE: Final = _struct(
    Field("initializingTopics", _SHARE_TOPICS),
    Field("initializedTopics", _SHARE_TOPICS),
    Field("deletingTopics", _array(_struct(Field("topicId", _uuid), Field("topicName", _text)))),
)

_PAIRS: Final = _array(_struct(Field("key", _text), Field("value", _text)))
_TASKS: Final = _array(_struct(Field("subtopologyId", _text), _PARTITIONS))
_TASK_EPOCHS: Final = _array(_struct(Field("subtopologyId", _text), _PARTITIONS, _EPOCHS))
_TASK_LISTS: Final = ("activeTasks", "standbyTasks", "warmupTasks")
_REVOKED: Final = tuple(f"{name}PendingRevocation" for name in _TASK_LISTS)
_STREAMS_MEMBER: Final = _struct(
    *_WHO,
    Field("rebalanceTimeoutMs", _int32),
    Field("topologyEpoch", _int32),
    Field("processId", _text),
    Field("userEndpoint", _optional_struct(Field("host", _text), Field("port", _uint16))),
    Field("clientTags", _PAIRS),
)
_STREAMS_GROUP: Final = _struct(
    _EPOCH,
    _HASH,
    Field("validatedTopologyEpoch", _int32, tag=0, default=-1),
    Field("lastAssignmentConfigs", _optional_array(_struct(Field("key", _text), Field("value", _text))), tag=1),
)
_TOPIC_INFO: Final = _array(
    _struct(Field("name", _text), Field("partitions", _int32), Field("replicationFactor", _int16), Field("topicConfigs", _PAIRS))
)
_NUMBERS: Final = _array(_int16)
_COPARTITIONS: Final = _array(
    _struct(Field("sourceTopics", _NUMBERS), Field("sourceTopicRegex", _NUMBERS), Field("repartitionSourceTopics", _NUMBERS))
)
_TOPOLOGY: Final = _struct(
    _EPOCH,
    Field(
        "subtopologies",
        _array(
            _struct(
                Field("subtopologyId", _text),
                Field("sourceTopics", _array(_text)),
                Field("sourceTopicRegex", _array(_text)),
                Field("stateChangelogTopics", _TOPIC_INFO),
                Field("repartitionSinkTopics", _array(_text)),
                Field("repartitionSourceTopics", _TOPIC_INFO),
                Field("copartitionGroups", _COPARTITIONS),
            )
        ),
    ),
)

GROUPS: Final[Mapping[int, Layout]] = {
    0: Layout(_OFFSET_KEY, _OFFSET, 4, 4),
    1: Layout(_OFFSET_KEY, _OFFSET, 4, 4),
    2: Layout(_struct(Field("group", _text)), _CLASSIC_GROUP, 4, 4),
    3: Layout(_GROUP_ID, _struct(_EPOCH, _HASH._replace(tag=0, default=0))),
    4: Layout(_GROUP_ID, _struct(Field("topics", _TOPICS))),
    5: Layout(_MEMBER_ID, _CONSUMER),
    6: Layout(_GROUP_ID, _TARGET_EPOCH),
    7: Layout(_MEMBER_ID, _TARGET),
    8: Layout(
        _MEMBER_ID,
        _struct(
            *_MEMBER_STATE,
            Field("assignedPartitions", _TOPIC_EPOCHS),
            Field("partitionsPendingRevocation", _TOPIC_EPOCHS),
        ),
    ),
    10: Layout(_MEMBER_ID, _struct(*_WHO[1:], Field("subscribedTopicNames", _array(_text)))),
    11: Layout(_GROUP_ID, _struct(_EPOCH, _HASH)),
    12: Layout(_GROUP_ID, _TARGET_EPOCH),
    13: Layout(_MEMBER_ID, _TARGET),
    14: Layout(_MEMBER_ID, _struct(*_MEMBER_STATE, Field("assignedPartitions", _TOPIC_PARTITIONS))),
    15: Layout(_GROUP_ID, _SHARE_STATE),
    16: Layout(
        _struct(Field("groupId", _text), Field("regularExpression", _text)),
        _struct(Field("topics", _array(_text)), Field("version", _int64), Field("timestamp", _int64)),
    ),
    17: Layout(_GROUP_ID, _STREAMS_GROUP),
    19: Layout(_MEMBER_ID, _STREAMS_MEMBER),
    20: Layout(_GROUP_ID, _TARGET_EPOCH),
    21: Layout(_MEMBER_ID, _struct(*(Field(name, _TASKS) for name in _TASK_LISTS))),
    22: Layout(_MEMBER_ID, _struct(*_MEMBER_STATE, *(Field(name, _TASK_EPOCHS) for name in (*_TASK_LISTS, *_REVOKED)))),
    23: Layout(_GROUP_ID, _TOPOLOGY),
}

_TAGGED: Final[Document] = {  # the tagged fields with their defaults
    "previousProducerId": -1,
    "nextProducerId": -1,
    "nextProducerEpoch": -1,
    "clientTransactionVersion": 0,
}


def _transaction(read: Reader, version: int) -> Document:
    value = read_value(read, version)
    topics = value.partitions
    found: Document = {
        "producerId": value.producer_id,
        "previousProducerId": value.previous_producer_id,
        "nextProducerId": value.next_producer_id,
        "producerEpoch": value.producer_epoch,
        "nextProducerEpoch": value.next_producer_epoch,
        "transactionTimeoutMs": value.timeout_ms,
        "transactionStatus": value.status,
        "transactionPartitions": None if topics is None else [{"topic": topic, "partitionIds": ids} for topic, ids in topics],
        "transactionLastUpdateTimestampMs": value.last_update_timestamp_ms,
        "transactionStartTimestampMs": value.start_timestamp_ms,
        "clientTransactionVersion": value.client_transaction_version,
    }
    return {name: each for name, each in found.items() if name not in _TAGGED or each != _TAGGED[name]}


TRANSACTIONS: Final[Mapping[int, Layout]] = {0: Layout(_struct(Field("transactionalId", _text)), _transaction, 1, 1)}


# ---- reading -----------------------------------------------------------------------------------------------------------------


class Decoded(NamedTuple):
    """A record of an internal topic.

    Attributes:
        key: {"type", "data"}, or a message if the key cannot be decoded.
        value: {"version", "data"}; None for a tombstone, or if the key cannot be decoded.
    """

    key: Document | str
    value: Document | None


def decode(layouts: Mapping[int, Layout], offset: int, key: bytes | None, value: bytes | None) -> Decoded:
    """Decodes a record of `__consumer_offsets` (`GROUPS`) or `__transaction_state` (`TRANSACTIONS`).

    Args:
        layouts: layouts of the topic.
        offset: offset of the record, for messages.
        key, value: bytes of the record.

    Returns:
        The documents; a message like that of Kafka's tool if the record does not parse, or its kind or version is unknown.

    Raises:
        CorruptionError: the record has no key.

    >>> decode(GROUPS, 7, bytes.fromhex("000100016700017400000007"), None).key["data"]
    {'group': 'g', 'topic': 't', 'partition': 7}
    """
    if key is None:
        raise CorruptionError(
            f"the record at offset {offset} has no key, so it belongs to no group or transaction", offset=offset
        )
    try:
        return _decoded(layouts, offset, key, value)
    except (PylogError, struct.error, IndexError, UnicodeDecodeError) as error:
        return Decoded(f"Error at offset {offset}, skipping. {error}", None)


def _decoded(layouts: Mapping[int, Layout], offset: int, key: bytes, value: bytes | None) -> Decoded:
    read = Reader(key)
    kind = read.int16()
    layout = layouts.get(kind)
    if layout is None:
        return Decoded(f"Unknown record type {kind} at offset {offset}, skipping.", None)
    named = {"type": str(kind), "data": layout.key(read, 0)}
    return Decoded(named, None if value is None else _value(layout, value))


def _value(layout: Layout, value: bytes) -> Document:
    read = Reader(value)
    version = read.int16()
    if not 0 <= version <= layout.newest:
        raise UnsupportedFormatError(f"the value has version {version}; versions 0 to {layout.newest} are known")
    read.flexible = version >= layout.flexible
    data = layout.value(read, version)
    if data.get("protocolType") == _CONSUMERS:
        for member in data["members"]:
            member["subscription"] = _embedded(_SUBSCRIPTION, member["subscription"], _NEWER_IN_SUBSCRIPTION)
            member["assignment"] = _embedded(_ASSIGNMENT, member["assignment"], {})
    return {"version": str(version), "data": data}


def _embedded(kind: Kind, encoded: str, newer: Document) -> Document | str:
    """Decodes the embedded data of consumers. A later version starts like the newest known one."""
    if not encoded:
        return encoded
    read = Reader(base64.b64decode(encoded))
    found: Document = kind(read, min(read.int16(), 3))
    return found | {name: value for name, value in newer.items() if name not in found}


# ---- text --------------------------------------------------------------------------------------------------------------------

_CONTROL = re.compile(r"\\\\|\\u00[01][0-9a-f]")


def json_text(document: Document | str) -> str:
    """Returns a document as compact JSON, escaped as by Kafka's tools; a message as it is.

    >>> json_text({"a": "é\\x1f"})
    '{"a":"é\\\\u001F"}'
    """
    if isinstance(document, str):
        return document
    return _CONTROL.sub(_upper, msgspec.json.encode(document).decode())


def _upper(match: re.Match[str]) -> str:
    found = match[0]
    return found if found == r"\\" else r"\u" + found[2:].upper()
