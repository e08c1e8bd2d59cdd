"""The initial metadata of a new Kafka node: KRaft records in a `bootstrap.checkpoint`.

A node without a metadata log reads its initial metadata from this file. The file has batches of magic 2: a control record that
starts a snapshot, the records, and a control record that ends it.

Spec: groups-and-transactions 9.4, interop 3.5 to 3.7.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pylog.record.few import FewRows, Plain, encode_few, few_rows
from pylog.record.format import CONTROL_BIT
from pylog.record.primitives import Writer

BOOTSTRAP: Final = "bootstrap.checkpoint"

FEATURES_4_3: Final = {  # the levels that Kafka's own tool gives a new 4.3 node (interop 3.6)
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}

_FRAME_VERSION: Final = 1
_TOPIC: Final = (2, 0)  # the number of the record's kind, and its version
_PARTITION: Final = (3, 1)
_CONFIG: Final = (4, 0)
_FEATURE: Final = (12, 0)
_PRODUCER_IDS: Final = (15, 0)
_OF_A_TOPIC: Final = 2  # the resource type of a ConfigRecord
_ANY_DIRECTORY: Final = bytes(16)  # the node replaces it with its own directory id when it starts (interop 3.7)
_SNAPSHOT_HEADER: Final = (b"\0\0\0\x03", bytes(11))  # key and value: version 0, no timestamp, no tags
_SNAPSHOT_FOOTER: Final = (b"\0\0\0\x04", bytes(3))
_BATCH_RECORDS: Final = 100


@dataclass(frozen=True)
class KafkaTopic:
    """A topic for a broker's metadata.

    Attributes:
        name: name of the topic.
        id: topic id, 22 characters as in `partition.metadata`.
        options: Kafka's names and values of its options.
        leader_epochs: by partition number, the highest leader epoch of its batches.
    """

    name: str
    id: str
    options: Mapping[str, str]
    leader_epochs: tuple[int, ...]


def bootstrap_checkpoint(topics: Iterable[KafkaTopic], node_id: int, next_producer_id: int, now_ms: int) -> bytes:
    """Returns the content of `bootstrap.checkpoint`.

    Args:
        topics: topics of the node.
        node_id: the node, which is the only replica of each partition.
        next_producer_id: the first producer id that the node may assign; 0 for any.
        now_ms: timestamp of the batches, in milliseconds.

    Cost: some microseconds per partition.

    >>> len(bootstrap_checkpoint([], 1, 0, 0))
    411
    """
    records = list(_records(topics, node_id, next_producer_id))
    first = _batch(0, [_SNAPSHOT_HEADER], now_ms, CONTROL_BIT)
    middle = [
        _batch(1 + at, [(None, record) for record in records[at : at + _BATCH_RECORDS]], now_ms, 0)
        for at in range(0, len(records), _BATCH_RECORDS)
    ]
    return b"".join([first, *middle, _batch(1 + len(records), [_SNAPSHOT_FOOTER], now_ms, CONTROL_BIT)])


def _batch(base_offset: int, pairs: list[tuple[bytes | None, bytes]], now_ms: int, attributes: int) -> bytes:
    records: list[Plain] = [(now_ms, key, value, ()) for key, value in pairs]
    rows: FewRows = few_rows(records)
    return bytes(encode_few(rows, base_offset, 0, attributes).data)


def _records(topics: Iterable[KafkaTopic], node_id: int, next_producer_id: int) -> Iterator[bytes]:
    for name, level in FEATURES_4_3.items():
        yield _framed(_FEATURE, Writer().text(name).int16(level))
    for topic in topics:
        yield from _topic_records(topic, node_id)
    if next_producer_id:
        yield _framed(_PRODUCER_IDS, Writer().int32(node_id).int64(0).int64(next_producer_id))


def _topic_records(topic: KafkaTopic, node_id: int) -> Iterator[bytes]:
    topic_id = base64.urlsafe_b64decode(topic.id + "==")
    yield _framed(_TOPIC, Writer().text(topic.name).uuid(topic_id))
    for name, value in topic.options.items():
        yield _framed(_CONFIG, Writer().int8(_OF_A_TOPIC).text(topic.name).text(name).text(value))
    for number, epoch in enumerate(topic.leader_epochs):
        yield _framed(_PARTITION, _partition(number, topic_id, node_id, epoch))


def _partition(number: int, topic_id: bytes, node_id: int, leader_epoch: int) -> Writer:
    write = Writer().int32(number).uuid(topic_id)
    for replicas in ([node_id], [node_id], [], []):  # replicas, in-sync replicas, removing, adding
        write.array(replicas, write.int32)
    write.int32(node_id).int32(leader_epoch).int32(0)
    return write.array([_ANY_DIRECTORY], write.uuid)


def _framed(kind: tuple[int, int], fields: Writer) -> bytes:
    """Returns a metadata record: the frame version, the kind and version of the record, its fields, no tagged fields."""
    return bytes((_FRAME_VERSION, *kind)) + bytes(fields.tags(()).data)
