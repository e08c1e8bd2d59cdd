"""aiokafka's structures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from pylog.compat.kafka.errors import KafkaError
from pylog.record.types import TopicPartition

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]

KT = TypeVar("KT")
VT = TypeVar("VT")


class BrokerMetadata(NamedTuple):
    """A broker. There is one here, with the id 0."""

    nodeId: int | str  # noqa: N815 - aiokafka's name
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition, as a broker describes it."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: the offset of the next record to read.
        metadata: text of the application.
    """

    offset: int
    metadata: str


class RecordMetadata(NamedTuple):
    """Where a record was appended.

    Attributes:
        topic: the record's topic.
        partition: the number of its partition.
        topic_partition: both.
        offset: its offset.
        timestamp: its timestamp in milliseconds.
        timestamp_type: 0 if the producer set it, 1 if the log did.
        log_start_offset: the first offset of the partition.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


@dataclass
class ConsumerRecord(Generic[KT, VT]):
    """A record.

    Attributes:
        topic: the name of its topic.
        partition: the number of its partition.
        offset: its number in the partition.
        timestamp: milliseconds since 1970; -1 if it has none.
        timestamp_type: 0 if the producer set it, 1 if the log did; from the record's batch.
        key: bytes, None, or what the deserializer returns.
        value: the same.
        checksum: None.
        serialized_key_size: bytes of the key; -1 without one.
        serialized_value_size: bytes of the value; -1 without one.
        headers: pairs of a name and bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]]


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by time.

    Attributes:
        offset: the offset of the record that was found.
        timestamp: its timestamp, in milliseconds.
    """

    offset: int
    timestamp: int | None
