"""confluent-kafka's values: partitions with offsets, and messages."""

from __future__ import annotations

from typing import Any, Final

from pylog.compat.confluent.errors import KafkaError
from pylog.record.types import Record
from pylog.record.types import TopicPartition as NativePartition

OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001
TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2


class TopicPartition:
    """A partition, and an offset in it.

    Args:
        topic, partition: the partition.
        offset: an offset, or one of `OFFSET_BEGINNING`, `OFFSET_END`, `OFFSET_STORED` and `OFFSET_INVALID`.
        metadata: the text that is committed with the offset.
        leader_epoch: kept and not used.

    Attributes:
        error: why the call that returned this has failed for it; None if it has not.

    >>> TopicPartition("orders", 0, 17)
    TopicPartition{topic=orders,partition=0,offset=17,leader_epoch=None,error=None}
    """

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    @property
    def native(self) -> NativePartition:
        """The partition, without the offset."""
        return NativePartition(self.topic, self.partition)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPartition) and self.native == other.native

    def __lt__(self, other: TopicPartition) -> bool:
        return self.native < other.native

    def __hash__(self) -> int:
        return hash(self.native)

    def __repr__(self) -> str:
        shown = f"topic={self.topic},partition={self.partition},offset={self.offset}"
        return f"TopicPartition{{{shown},leader_epoch={self.leader_epoch},error={self.error}}}"


class Message:
    """A record that was read or appended, or an error in the place of one, such as the end of a partition.

    Args:
        topic, partition, offset: the record's topic, partition and offset.
        key, value, headers: the record's.
        error: None for a record.
        timestamp: kind and milliseconds.
        latency, leader_epoch: kept and not used.
    """

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        latency: float | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self._topic = topic
        self._at = partition, offset
        self._key = key
        self._value = value
        self._headers = headers or None
        self._timestamp = timestamp
        self._error = error
        self._latency = latency
        self._leader_epoch = leader_epoch

    def topic(self) -> str | None:
        """Returns the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Returns the number of the partition."""
        return self._at[0]

    def offset(self) -> int | None:
        """Returns the offset; None if the record was not appended."""
        return self._at[1]

    def key(self) -> Any:
        """Returns the key."""
        return self._key

    def value(self) -> Any:
        """Returns the value."""
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Returns the headers; None if there are none."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Returns the kind of the timestamp, and milliseconds since 1970."""
        return self._timestamp

    def latency(self) -> float | None:
        """Returns what was given: this layer does not measure it."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Returns what was given: pylog does not have it here."""
        return self._leader_epoch

    def set_topic(self, topic: str) -> None:
        """Replaces the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replaces the key, as a deserializer does."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replaces the value, as a deserializer does."""
        self._value = value

    def set_headers(self, headers: list[tuple[str, bytes | None]] | None) -> None:
        """Replaces the headers."""
        self._headers = headers

    def set_error(self, error: KafkaError | None) -> None:
        """Replaces the error."""
        self._error = error

    def error(self) -> KafkaError | None:
        """Returns why this is no record; None if it is one."""
        return self._error

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)


def message_of(partition: NativePartition, record: Record[Any, Any]) -> Message:
    """Returns a record that was read."""
    stamp = (TIMESTAMP_CREATE_TIME, record.timestamp) if record.timestamp >= 0 else (TIMESTAMP_NOT_AVAILABLE, -1)
    return Message(*partition, record.offset, record.key, record.value, list(record.headers), timestamp=stamp)
