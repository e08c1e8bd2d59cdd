"""Hands a directory of Kafka partition directories to a fresh broker, without any Kafka tool.

A broker that finds `bootstrap.checkpoint` and no metadata log yet takes the records in that file as the beginning of its
metadata. So a topic is made known by writing a TopicRecord, its ConfigRecords and a PartitionRecord per partition there.
"""

from __future__ import annotations

import base64
import secrets
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NODE_ID = 1
UNASSIGNED_DIRECTORY = bytes(16)  # the broker fills in its own directory.id


def new_uuid() -> str:
    """A random Kafka id: 16 bytes as 22 characters of base64url, never with a leading '-'."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii").rstrip("=")).startswith("-"):
        pass
    return text


@dataclass(frozen=True)
class AdoptedTopic:
    """A topic whose partition directories are already in place; `topic_id` must be the one in their partition.metadata."""

    name: str
    partitions: int
    topic_id: str = field(default_factory=new_uuid)
    config: Mapping[str, str] = field(default_factory=lambda: {"retention.ms": "-1"})
    leader_epoch: int = 0  # at least the highest partitionLeaderEpoch in the batches


FEATURES_4_3 = {  # what `kafka-storage.sh format` of 4.3.0 writes
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def adopt(log_dir: Path, topics: Iterable[AdoptedTopic], next_producer_id: int = 0) -> None:
    """Turns a directory of partition directories into one that a fresh broker boots from, without any Kafka tool.

    Writes meta.properties, bootstrap.checkpoint (the topics as KRaft records) and each missing partition.metadata.
    `next_producer_id` must exceed every producer id in the batches.
    """
    records = [frame(12, 0, text(name) + struct.pack(">h", level)) for name, level in FEATURES_4_3.items()]
    for topic in topics:
        topic_id = base64.urlsafe_b64decode(topic.topic_id + "==")
        records.append(frame(2, 0, text(topic.name) + topic_id))
        for key, value in topic.config.items():
            records.append(frame(4, 0, b"\x02" + text(topic.name) + text(key) + text(value)))
        node, none = struct.pack(">i", NODE_ID), array([])
        for partition in range(topic.partitions):
            body = struct.pack(">i", partition) + topic_id + array([node]) + array([node]) + none + none
            body += node + struct.pack(">ii", topic.leader_epoch, 0) + array([UNASSIGNED_DIRECTORY])
            records.append(frame(3, 1, body))
            metadata = log_dir / f"{topic.name}-{partition}" / "partition.metadata"
            metadata.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_text(f"version: 0\ntopic_id: {topic.topic_id}")
    if next_producer_id:
        records.append(frame(15, 0, struct.pack(">iqq", NODE_ID, 0, next_producer_id)))
    log_dir.joinpath("meta.properties").write_text(
        f"version=1\ncluster.id={new_uuid()}\nnode.id={NODE_ID}\ndirectory.id={new_uuid()}\n"
    )
    snapshot = batch(0, [(b"\0\0\0\x03", bytes(2 + 8 + 1))], attributes=0x20)  # header: version, last log timestamp, tags
    snapshot += batch(1, [(None, record) for record in records])
    snapshot += batch(1 + len(records), [(b"\0\0\0\x04", bytes(3))], attributes=0x20)  # footer
    log_dir.joinpath("bootstrap.checkpoint").write_bytes(snapshot)


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def text(value: str) -> bytes:
    """A compact string: length + 1, UTF-8."""
    data = value.encode()
    return uvarint(len(data) + 1) + data


def array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A metadata record as it lies in the log: frame version 1, which record, its fields, no tagged fields."""
    return uvarint(1) + uvarint(api_key) + uvarint(version) + body + b"\0"


def batch(base_offset: int, records: Sequence[tuple[bytes | None, bytes | None]], attributes: int = 0) -> bytes:
    """One uncompressed magic-2 batch."""
    payload = b""
    for index, pair in enumerate(records):
        record = b"\0" + varint(0) + varint(index)
        for part in pair:
            record += varint(-1) if part is None else varint(len(part)) + part
        record += varint(0)
        payload += varint(len(record)) + record
    now = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", attributes, len(records) - 1, now, now, -1, -1, -1, len(records)) + payload
    return struct.pack(">qiibI", base_offset, len(checked) + 9, 0, 2, crc32c(checked)) + checked


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF
