"""confluent-kafka's `Producer` on a pylog store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pylog.clock import SystemClock
from pylog.compat.clusters import CLUSTERS, too_long_for_a_transaction
from pylog.compat.confluent.configuration import Given, text
from pylog.compat.confluent.contradictions import check_producer
from pylog.compat.confluent.errors import KafkaError, KafkaException, Translating, error_of, failed
from pylog.compat.confluent.events import Counts, Events, topics_of
from pylog.compat.confluent.metadata import Lookups
from pylog.compat.confluent.structs import TIMESTAMP_CREATE_TIME, Message, TopicPartition
from pylog.config import Durability
from pylog.errors import PylogError, PylogTimeoutError, UnknownTopicOrPartitionError
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.offset_manager import PartitionLike
from pylog.producer.config import producer_config
from pylog.producer.future import FutureRecordMetadata, RecordMetadata
from pylog.record.types import OffsetAndMetadata

OnDelivery = Callable[[KafkaError | None, Message], object]
_CLOCK: Final = SystemClock()
_NAP_S: Final = 0.001
_ALL_REPLICAS: Final = -1
_MOST_MESSAGES: Final = 100_000  # the default of `queue.buffering.max.messages`, which the statistics repeat


class _Sent(NamedTuple):
    """A record whose delivery was not reported yet."""

    future: FutureRecordMetadata
    on_delivery: OnDelivery | None
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Producer(Lookups):
    """Appends records, in transactions if it has a `transactional.id`.

    Keys go to the partitions that Kafka's Java client chooses. librdkafka's default partitioner chooses others. Once the producer
    is closed, each call except `close` raises RuntimeError.

    Args:
        config: the options, with confluent-kafka's names.

    Raises:
        KafkaException: an option is wrong.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        given = Given(config, more, "on_delivery")
        check_producer(given.values)
        options = _native_options(given)
        self._on_delivery: OnDelivery | None = given.take("on_delivery")
        self._reports_errors_only = given.take("delivery.report.only.error", False)
        with Translating():
            producer_config(options)  # what is wrong must be refused before the store is created
            servers = given.take("bootstrap.servers")
            self._most_messages = given.take("queue.buffering.max.messages", _MOST_MESSAGES)
            self._events = Events(given, "producer")
            self._cluster = CLUSTERS.of(servers)
            self._native = self._cluster.store.producer(**options)
        self._sent: deque[_Sent] = deque()
        self._counts = Counts()
        self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the producer is closed; create another one")

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None,
        callback: OnDelivery | None = None,
    ) -> None:
        """Accepts one record. `poll` and `flush` report its delivery.

        Args:
            topic: the topic, which is created if it is missing and that is allowed.
            value: bytes, text or None.
            key: bytes, text or None.
            partition: the number of the partition; -1 lets the key choose.
            on_delivery: called with a `KafkaError` or None, and the message.
            callback: another name of `on_delivery`.
            timestamp: milliseconds since 1970; 0 for now.
            headers: pairs of a name and bytes.

        Raises:
            KafkaException: the record was not accepted. TypeError: an argument has a wrong type.
        """
        pairs = _pairs(headers)
        record = topic, _bytes(value), _bytes(key), pairs or None, None if partition == -1 else partition, timestamp or None
        with Translating():
            try:
                future = self._native.send(*record)
            except UnknownTopicOrPartitionError:
                if not self._cluster.create_on_demand(topic, allowed=True):
                    raise
                future = self._native.send(*record)
        self._sent.append(_Sent(future, on_delivery or callback or self._on_delivery, topic, record[2], record[1], pairs))

    def produce_batch(
        self, topic: str, messages: list[dict[str, Any]], partition: int = -1, on_delivery: OnDelivery | None = None
    ) -> int:
        """Accepts several records without headers.

        Args:
            topic: the topic.
            messages: dicts with `value`, `key`, `partition`, `timestamp` and `callback`, each of them optional. One that is not
                accepted gets its error as `_error`.
            partition: for those without one.
            on_delivery: for those without a `callback`.

        Returns:
            How many were accepted.

        Raises:
            TypeError: a message has a wrong type; nothing was accepted.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        for number, each in enumerate(messages):
            _check_message(number, each)
        accepted = 0
        for each in messages:
            target, call = each.get("partition", partition), each.get("callback") or on_delivery
            try:
                self.produce(topic, each.get("value"), each.get("key"), target, call, each.get("timestamp") or 0)
            except KafkaException as error:
                each["_error"] = error.args[0]
            else:
                accepted += 1
        return accepted

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: ARG002 - nothing is purged
        """Does nothing: an accepted record is on its way to the log, and cannot be taken back.

        Args:
            in_queue: accepted and not used.
            in_flight: accepted and not used.
            blocking: accepted and not used.
        """
        self._check_open()

    def poll(self, timeout: float = 0) -> int:
        """Reports deliveries, and calls `error_cb` and `stats_cb`. Returns how many calls it made.

        Args:
            timeout: seconds to wait for the first one; negative to wait as long as it takes.
        """
        self._check_open()
        until = None if timeout < 0 else _CLOCK.monotonic() + timeout
        while not (count := self._report()) and (self._sent or self._events.are_awaited):
            left = _NAP_S if until is None else until - _CLOCK.monotonic()
            if left <= 0:
                break
            if self._sent:
                _CLOCK.sleep(min(left, _NAP_S))
            else:
                self._events.wait(left)
        return count

    def flush(self, timeout: float = -1) -> int:
        """Waits until all records were appended, and reports their deliveries.

        Args:
            timeout: seconds; negative to wait as long as it takes.

        Returns:
            How many records are still waiting.
        """
        self._check_open()
        try:
            self._native.flush(None if timeout < 0 else timeout)
        except PylogTimeoutError:
            pass  # the result tells
        except PylogError:
            pass  # the deliveries have the error
        self._report()
        return len(self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    def _report(self) -> int:
        count = 0
        while self._sent and self._sent[0].future.done():
            sent = self._sent.popleft()
            count += 1
            found, error = _outcome(sent.future)
            if found is not None:
                self._events.worked()
                self._counts.add((found.topic, found.partition), 1, len(sent.key or b"") + len(sent.value or b""))
            if error is not None:
                self._events.failed(error)
            if sent.on_delivery is not None and (error is not None or not self._reports_errors_only):
                sent.on_delivery(error, _message(sent, found, error))
        return count + self._events.deliver(self._statistics)

    def _statistics(self) -> dict[str, Any]:
        """Returns the producer's part of the statistics: what waits, and what was appended and reported."""
        records, size = self._counts.total
        waiting = sum(len(each.key or b"") + len(each.value or b"") for each in self._sent)
        partitions = {each: {"txmsgs": count, "txbytes": some, "msgs": count} for each, (count, some) in self._counts.of.items()}
        return {
            "msg_cnt": len(self._sent),
            "msg_size": waiting,
            "msg_max": self._most_messages,
            "txmsgs": records,
            "txmsg_bytes": size,
            "metadata_cache_cnt": len({topic for topic, _ in partitions}),
            "topics": topics_of(partitions, self._events.age_us),
        }

    # ---- transactions --------------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Fences older producers with the same `transactional.id`, and aborts what they have open.

        Args:
            timeout: accepted and not needed.

        Raises:
            KafkaException: `retriable()` tells whether it may be called again.
        """
        with Translating():
            self._native.init_transactions()

    def begin_transaction(self) -> None:
        """Begins a transaction.

        Raises:
            KafkaException: `init_transactions` was not called, or a transaction is open.
        """
        with Translating():
            self._native.begin_transaction()

    def send_offsets_to_transaction(
        self,
        positions: Iterable[TopicPartition],
        group_metadata: ConsumerGroupMetadata,
        timeout: float = -1,  # noqa: ARG002
    ) -> None:
        """Adds the offsets of a consumer group, which are committed with the transaction.

        Args:
            positions: `consumer.position(consumer.assignment())`. Those without an offset are left out.
            group_metadata: `consumer.consumer_group_metadata()`.
            timeout: accepted and not needed.

        Raises:
            KafkaException: nothing was added.
        """
        offsets: dict[PartitionLike, int | OffsetAndMetadata] = {
            each.native: OffsetAndMetadata(each.offset, each.metadata or "", leader_epoch=each.leader_epoch)
            for each in positions
            if each.offset >= 0
        }
        with Translating(in_transaction=True):
            self._native.send_offsets_to_transaction(offsets, group_metadata)

    def commit_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Commits the transaction, and reports the deliveries of its records.

        Args:
            timeout: accepted and not needed.

        Raises:
            KafkaException: `fatal()` means to close the producer, `txn_requires_abort()` to abort and begin again.
        """
        with Translating(in_transaction=True):
            self._native.commit_transaction()
        self._report()

    def abort_transaction(self, timeout: float = -1) -> None:  # noqa: ARG002
        """Aborts the transaction.

        Args:
            timeout: accepted and not needed.

        Raises:
            KafkaException: no transaction is open, or a newer producer has the id.
        """
        with Translating():
            self._native.abort_transaction()
        self._report()

    def close(self, timeout: float = -1) -> bool:  # noqa: ARG002
        """Appends what was sent, and closes the producer. An open transaction is aborted.

        Args:
            timeout: accepted and not needed.

        Returns:
            True.
        """
        self._is_closed = True
        with Translating():
            self._native.close()
        self._report()
        return True


def _native_options(given: Given) -> dict[str, Any]:
    """Returns the options of pylog's producer."""
    options: dict[str, Any] = {"compression": given.take("compression.codec")}
    if given.take("request.required.acks", _ALL_REPLICAS) != _ALL_REPLICAS:
        options["durability"] = Durability.OS
    name, timeout_ms = text(given.take("transactional.id")), given.take("transaction.timeout.ms", 60_000)
    if name is not None:
        if wrong := too_long_for_a_transaction(timeout_ms):
            raise failed(KafkaError.INVALID_TRANSACTION_TIMEOUT, wrong)
        options |= {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    return options


def _check_message(number: int, given: Any) -> None:
    """Raises TypeError for a message of `produce_batch` that is none."""
    if not isinstance(given, dict):
        raise TypeError(f"the message at index {number} must be a dict")
    for name in ("value", "key"):
        if not isinstance(given.get(name), bytes | str | None):
            raise TypeError(f"the {name} of the message at index {number} must be bytes or text")


def _bytes(given: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a value of type {type(given).__name__} is neither bytes nor text")


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    given = list(headers.items()) if isinstance(headers, Mapping) else headers or []
    if not isinstance(given, list) or not all(isinstance(each, tuple) and len(each) == 2 for each in given):
        raise TypeError("headers are neither a dict nor a list of pairs of a name and bytes")
    return [(name, _bytes(each)) for name, each in given]


def _outcome(future: FutureRecordMetadata) -> tuple[RecordMetadata | None, KafkaError | None]:
    """Returns the metadata of a record that was appended, or why it was not."""
    try:
        return future.result(), None
    except PylogError as error:
        return None, error_of(error)


def _message(sent: _Sent, found: RecordMetadata | None, error: KafkaError | None) -> Message:
    record: dict[str, Any] = {"key": sent.key, "value": sent.value, "headers": sent.headers}
    if found is None:
        return Message(sent.topic, -1, None, **record, error=error)
    return Message(found.topic, found.partition, found.offset, **record, timestamp=(TIMESTAMP_CREATE_TIME, found.timestamp))
