"""`KafkaProducer`: kafka-python's producer on a pylog store."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pylog.compat.clusters import CLUSTERS
from pylog.compat.kafka import errors
from pylog.compat.kafka.answers import native_offsets
from pylog.compat.kafka.arguments import checking
from pylog.compat.kafka.future import FutureProduceResult, FutureRecordMetadata, RecordMetadata, Refused, new_future
from pylog.compat.kafka.metadata import ClusterMetadata
from pylog.compat.kafka.options import PRODUCER, warn_of_ignored
from pylog.compat.kafka.partitioner import choose_of
from pylog.compat.kafka.producer_metrics import ProducerMetrics
from pylog.compat.kafka.producer_options import CLIENT, native_options, producer_config
from pylog.compat.kafka.serializer import call_of, close_all
from pylog.compat.kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from pylog.compat.kafka.translation import Translating, reconfigured
from pylog.compat.kafka.util import ensure_valid_topic_name
from pylog.errors import (
    InvalidRecordError,
    InvalidTransactionStateError,
    PylogError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pylog.limits import INT32_MAX
from pylog.offsets.group_metadata import ConsumerGroupMetadata as GroupMetadata
from pylog.producer.config import producer_config as check_options

__all__ = ["FutureProduceResult", "FutureRecordMetadata", "KafkaProducer", "RecordMetadata"]

_OVERHEAD: Final = 82  # the most that a batch's header and a record's lengths take
_BYTES: Final = (bytes, bytearray, memoryview)


class KafkaProducer:
    """Appends records to topics, as kafka-python's producer does. Any thread may call it.

    Args:
        configs: kafka-python's options. Those that only mean something on a network are ignored, with one line in the log.

    Raises:
        ValueError: an option does not exist. KafkaConfigurationError: options contradict each other.

    >>> import pylog.compat.kafka as kafka
    >>> producer = kafka.KafkaProducer(bootstrap_servers="pylog+memory://producer", value_serializer=str.encode)
    >>> producer.send("orders", "paid", key=b"42").get(timeout=60)[:3]
    ('orders', 0, TopicPartition(topic='orders', partition=0))
    >>> producer.close()
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = PRODUCER

    def __init__(self, **configs: Any) -> None:
        self._closed = True  # until it is complete: `__del__` runs in any case
        self.config = producer_config(configs)
        options = native_options(self.config, configs)
        try:
            self._key = call_of(self.config, "key_serializer")
            self._value = call_of(self.config, "value_serializer")
            self._choose = choose_of(self.config["partitioner"])
        except TypeError as error:
            raise errors.KafkaConfigurationError(str(error)) from error
        with Translating(reconfigured):
            check_options(options)  # what is wrong must be refused before the store is created
            self._cluster = CLUSTERS.of(self.config["bootstrap_servers"])
            self._native = self._cluster.store.producer(**options)
        self._metadata = ClusterMetadata(self._cluster)
        self._metrics = ProducerMetrics(self.config) if self.config["metrics_enabled"] else None
        self._sizes = None if self._metrics is None else self._metrics.sizes
        self._is_plain = self._key is None and self._value is None and self._choose is None
        self._send = self._native.send
        self._small = self.config["max_request_size"] // 2  # a longer value is measured with its key
        self._closed = False
        self._cluster.clients.add(self)
        warn_of_ignored(CLIENT, PRODUCER, configs, self._cluster.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._closed = True  # pylog's producer, which is dropped next, appends what was sent

    def __str__(self) -> str:
        return f"<KafkaProducer client_id={self.config['client_id']} transactional_id={self.config['transactional_id']}>"

    # ---- sending -------------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Accepts one record, which the producer's thread appends soon after.

        Args:
            topic: the topic, which is created if it is missing and that is allowed.
            value: bytes or None, or the argument of the value's serializer.
            key: the same for the key.
            headers: pairs of a name and bytes.
            partition: the partition's number; None lets the partitioner choose.
            timestamp_ms: milliseconds since 1970; None is the time when the record is appended.

        Returns:
            A future of `RecordMetadata`.

        Raises:
            ValueError: key and value are None, or the topic's name or the partition is wrong. TypeError: a wrong type.
            IllegalStateError: the producer is closed. MessageSizeTooLargeError: the record exceeds `max_request_size`.
            KafkaTimeoutError: the topic does not exist and nothing creates it, or the buffer was full for `max_block_ms`.
        """
        if (
            self._is_plain
            and type(value) is bytes
            and (key is None or type(key) is bytes)
            and headers is None
            and partition is None
            and timestamp_ms is None
            and len(value) < self._small
        ):
            try:
                native = self._send(topic, value, key)
            except (PylogError, TypeError):
                return self._send_with_care(topic, value, key, None, None, None)
            key_size, size = -1 if key is None else len(key), len(value)
            value_size = size
            if (meter := self._sizes) is not None:  # `Meter.add` inline: this runs for each record
                if key is not None:
                    size += key_size
                meter.count += 1
                meter.total += size
                if size > meter.largest:
                    meter.largest = size
            return new_future(native, key_size, value_size, -1)
        return self._send_with_care(topic, value, key, headers, partition, timestamp_ms)

    def _send_with_care(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> FutureRecordMetadata:
        """Accepts a record with any option: checks all of it first."""
        if self._closed:
            raise errors.IllegalStateError("the producer is closed; create another one")
        _check_numbers(partition, timestamp_ms)
        if value is None and key is None:
            raise ValueError("a record needs a key or a value")
        ensure_valid_topic_name(topic)
        pairs = _checked_headers(headers)
        key_bytes = _as_bytes("key", key if self._key is None else self._key(topic, pairs, key))
        value_bytes = _as_bytes("value", value if self._value is None else self._value(topic, pairs, value))
        sizes = _size(key_bytes), _size(value_bytes), _header_size(pairs)
        self._check_size(sizes)
        with Translating(ValueError):
            if partition is None and self._choose is not None:
                partition = self._chosen(topic, key, key_bytes, value, value_bytes)
            native = self._accepted(topic, value_bytes, key_bytes, pairs or None, partition, timestamp_ms)
        if self._metrics is not None:
            self._metrics.sent(*sizes[:2])
        return new_future(native, *sizes)

    def _check_size(self, sizes: tuple[int, int, int]) -> None:
        size = _OVERHEAD + sum(max(each, 0) for each in sizes)
        if size > self.config["max_request_size"]:
            message = f"a record of up to {size} bytes exceeds max_request_size={self.config['max_request_size']}"
            raise errors.MessageSizeTooLargeError(f"{message}; raise that option, or send smaller records")

    def _accepted(self, topic: str, value: bytes | None, key: bytes | None, headers: Any, partition: Any, stamp: Any) -> Any:
        """Returns the native future of a record. Creates the topic if it is missing and that is allowed."""
        self._cluster.check_process()
        for _ in range(2):
            try:
                return self._native.send(topic, value, key, headers, partition, stamp)
            except UnknownTopicOrPartitionError:
                self._check_topic(topic)
                if partition is not None:
                    self._check_partition(topic, partition)
            except (InvalidRecordError, RecordTooLargeError) as error:  # a broker refuses it, so the future fails
                if self._metrics is not None:
                    self._metrics.refused.add(1)
                return Refused(error)
            except InvalidTransactionStateError as error:
                raise errors.IllegalStateError(str(error)) from error
        return self._native.send(topic, value, key, headers, partition, stamp)

    def _check_topic(self, topic: str) -> None:
        if not self._cluster.create_on_demand(topic, allowed=bool(self.config["allow_auto_create_topics"])):
            raise errors.KafkaTimeoutError(f"topic {topic!r} does not exist in {self._cluster.name}, and nothing creates it")

    def _check_partition(self, topic: str, partition: int) -> None:
        known = self._cluster.partitions(topic) or ()
        if partition not in known:
            raise ValueError(f"topic {topic!r} has no partition {partition}; it has {len(known)}")

    def _chosen(self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None) -> int:
        """Returns the choice of the program's partitioner."""
        assert self._choose is not None
        if self._cluster.partitions(topic) is None:
            self._check_topic(topic)
        chosen = self._choose(topic, key, key_bytes, value, value_bytes, self._metadata)
        if chosen is None:
            raise ValueError(f"the partitioner chose no partition for topic {topic!r}")
        self._check_partition(topic, chosen)
        return int(chosen)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all records sent so far are appended, or have failed; at most `timeout` seconds.

        Raises:
            KafkaTimeoutError: the time is over.
        """
        with Translating(ValueError):
            self._native.flush(timeout)

    def partitions_for(self, topic: str) -> set[int]:
        """Returns the numbers of a topic's partitions. The topic is created if it is missing and that is allowed.

        Raises:
            KafkaTimeoutError: the topic does not exist, and nothing creates it.
        """
        ensure_valid_topic_name(topic)
        with Translating(ValueError):
            self._check_topic(topic)
            return set(self._cluster.partitions(topic) or ())

    # ---- transactions --------------------------------------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Fences older producers with the same `transactional_id`, and aborts what they have open. Repeating it does nothing.

        Raises:
            IllegalStateError: the producer has no `transactional_id`.
        """
        with self._transacting():
            self._native.init_transactions()

    def begin_transaction(self) -> None:
        """Begins a transaction.

        Raises:
            IllegalStateError: the producer has no `transactional_id`.
            InvalidTxnStateError: `init_transactions` was not called, or a transaction is open.
        """
        with self._transacting():
            self._native.begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Adds offsets of a consumer group, which are committed with the transaction.

        Args:
            offsets: an OffsetAndMetadata for each TopicPartition.
            group_metadata: the consumer's group metadata, or the name of a group without running consumers.

        Raises:
            TypeError: a wrong type. ValueError: `group_metadata` has a generation and no member id.
            InvalidTxnStateError: no transaction is open.
        """
        with self._transacting():
            self._native.send_offsets_to_transaction(native_offsets(offsets), _native_group(group_metadata))

    def commit_transaction(self) -> None:
        """Commits the transaction: its records and offsets become visible together.

        Raises:
            ProducerFencedError: a newer producer has the `transactional_id`; close this one.
            CommitFailedError: the consumer has lost a partition whose offset was sent; abort.
            TransactionAbortableError: the transaction was aborted by another call; abort, and begin again.
        """
        with self._transacting():
            self._native.commit_transaction()

    def abort_transaction(self) -> None:
        """Aborts the transaction. Records that were not written yet fail.

        Raises:
            InvalidTxnStateError: no transaction is open. ProducerFencedError: as `commit_transaction`.
        """
        with self._transacting():
            self._native.abort_transaction()

    def _transacting(self) -> Translating:
        if self.config["transactional_id"] is None:
            raise errors.IllegalStateError("the producer has no transactions; create it with a transactional_id")
        if self._closed:
            raise errors.IllegalStateError("the producer is closed; create another one")
        self._cluster.check_process()
        return Translating(ValueError)

    # ---- the rest ------------------------------------------------------------------------------------------------------------

    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:
        """Returns the metrics by group and name; None if `metrics_enabled` is false."""
        return None if self._metrics is None else self._metrics.answer(raw=raw)

    def bootstrap_connected(self) -> bool:
        """Returns True until the producer is closed."""
        return not self._closed

    @classmethod
    def max_usable_produce_magic(cls, api_version: tuple[int, ...]) -> int:
        """Returns the format of record batches for a broker's version."""
        return 2 if api_version >= (0, 11) else 1 if api_version >= (0, 10, 0) else 0

    @checking
    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Appends the sent records and ends the producer's thread. May be called twice, and from a callback.

        Args:
            timeout: seconds to wait; records not appended by then fail.
            null_logger: ignored.

        Raises:
            ValueError: the timeout is negative or too large.
        """
        if self._closed:
            return
        if timeout is not None and not 0 <= timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout={timeout!r} is not a number of seconds")
        self._closed = True
        with Translating(ValueError):
            self._native.close(timeout)
        close_all(self.config["key_serializer"], self.config["value_serializer"])
        if self._metrics is not None:
            self._metrics.close()

    def _abandon(self) -> None:
        """Closes the producer, for a test that did not close it."""
        self.close()


def _native_group(given: ConsumerGroupMetadata | str) -> GroupMetadata:
    if isinstance(given, str):
        return GroupMetadata(given)
    if not isinstance(given, ConsumerGroupMetadata) or given.group_id is None:
        raise TypeError(f"group_metadata={given!r} is not the metadata or the name of a group")
    if given.generation_id > 0 and not given.member_id:
        raise ValueError(f"generation_id={given.generation_id} needs a member_id")
    return GroupMetadata(given.group_id, given.member_id, given.generation_id, given.group_instance_id)


def _check_numbers(partition: Any, timestamp_ms: Any) -> None:
    if isinstance(partition, bool | float):
        raise ValueError(f"partition={partition!r} is not the number of a partition")  # noqa: TRY004 - as kafka-python
    for name, given in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise TypeError(f"{name}={given!r} is not an int")
    if partition is not None and not 0 <= partition <= INT32_MAX:  # before the topic is created to look
        raise ValueError(f"no topic has a partition {partition}: they are numbered from 0")


def _checked_headers(given: Any) -> list[tuple[str, bytes]]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise TypeError(f"headers of type {type(given).__name__} are not a list")
    for each in given:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) and isinstance(each[1], bytes)):
            raise TypeError(f"a header must be a tuple of str and bytes, not {each!r}")
    return given


def _as_bytes(name: str, made: Any) -> bytes | None:
    if made is None or type(made) is bytes:
        return made
    if isinstance(made, _BYTES):
        return bytes(made)
    raise TypeError(f"a {name} of type {type(made).__name__} is not bytes; encode it first, or set {name}_serializer")


def _size(given: bytes | None) -> int:
    return -1 if given is None else len(given)


def _header_size(pairs: list[tuple[str, bytes]]) -> int:
    try:
        return sum(len(name.encode()) + len(value) for name, value in pairs) if pairs else -1
    except UnicodeEncodeError as error:
        raise ValueError(f"the name {error.object!r} of a header cannot be written as UTF-8") from error
