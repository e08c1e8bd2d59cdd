"""`Producer`: appends records to topics in batches, with the interface of kafka-python's `KafkaProducer`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Self, TypeGuard, cast

from pylog import limits
from pylog.arguments import is_int
from pylog.awaitables import refuse_awaitable, refuse_coroutine_function
from pylog.clock import Clock
from pylog.directory.topic_names import check_topic_name
from pylog.dropping import has_been_dropped
from pylog.errors import InvalidArgumentError, InvalidRecordError, PylogError, RecordTooLargeError
from pylog.factory_made import FactoryMade
from pylog.log_manager import LogManager
from pylog.partitioner import partition_called
from pylog.producer.config import ProducerConfig, called_partitioner
from pylog.producer.core import ProducerCore
from pylog.producer.future import Details, FutureRecordMetadata, RecordMetadata
from pylog.producer.route import Route, Routes, too_large
from pylog.producer.sizes import RECORD_CHARGE, charge
from pylog.producer.transaction_calls import TransactionCalls
from pylog.record.builder import keyless
from pylog.record.header_columns import check_headers
from pylog.record.rows import MAX_RECORD_OVERHEAD
from pylog.record.types import BatchMetadata, Header, K, V
from pylog.serializers import Conversion, conversion_of
from pylog.times import timestamp_of, timestamp_problem

OnDelivery = Callable[[Exception | None, RecordMetadata | None], object]


class Producer(TransactionCalls, FactoryMade, Generic[K, V], factory="Store.producer"):
    """Appends records to the partitions of a store's topics in batches. Created by `Store.producer`; a context manager.

    Every method may be called from any thread. The records that one thread sends to one partition keep their order, and each is
    appended exactly once. Sending does not create topics. If a signal handler calls a method during a call of its own thread,
    that may raise `IllegalStateError`: let the handler set a flag, and close the producer after the loop.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders", partition_count=2)
    >>> with store.producer(linger_ms=5) as producer:
    ...     futures = [producer.send("orders", b"paid", key=b"%d" % number) for number in range(1000)]
    >>> sum(store.log("orders", number).end_offset for number in range(2)), futures[0].result().offset
    (1000, 0)
    >>> store.close()
    """

    def _begin(self, manager: LogManager, clock: Clock, config: ProducerConfig, core: ProducerCore) -> None:
        self.config = config
        self._manager = manager
        self._clock = clock
        self._core = core
        self._buffer = core.buffer
        self._sender = core.sender
        self._transactions = core.transactions
        self._guard = threading.RLock()  # reentrant: a signal handler may send during a `send`
        self._routes = Routes()
        self._plain = self._routes.plain
        manager.kept.add(self._routes)
        self._key = conversion_of("key_serializer", config.key_serializer, "serialize")
        self._value = conversion_of("value_serializer", config.value_serializer, "serialize")
        closer = self._key, self._value, called_partitioner(config), self._transactions
        self._looks_closer = any(each is not None for each in closer)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # missing if an argument was refused
        if core is not None and core.is_open:
            has_been_dropped(self, f"a producer of the store {self._manager.path}", core.release)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        headers: Iterable[Header] | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> FutureRecordMetadata:
        """Accepts one record, which the producer's thread appends soon after.

        Args:
            topic: the name of the topic.
            value: bytes, or None for a tombstone; with a `value_serializer`, its argument.
            key: bytes or None; with a `key_serializer`, its argument.
            headers: pairs of (str, bytes or None).
            partition: the partition number; None lets the partitioner choose.
            timestamp: milliseconds since 1970, or a datetime with a time zone; None is when the record leaves the buffer.
            on_delivery: called with (None, metadata) or (error, None) in the producer's thread.

        Returns:
            A future of the record's `RecordMetadata`. It raises the errors of the append.

        Raises:
            UnknownTopicOrPartitionError, InvalidRecordError, RecordTooLargeError: the record was not accepted.
            InvalidTransactionStateError: with a `transactional_id`, no transaction is open, or an earlier call has failed.
            PylogTimeoutError: the buffer was full for `max_block_ms`; the record was not accepted.
            ClosedError: the producer is closed, or belongs to another process.
            Exception: that of a serializer or a partitioner.

        Cost: about 0.5 µs; more than a million records a second from one thread.
        """
        try:
            route = self._plain[topic]
        except (KeyError, TypeError):
            route = None
        if (
            route is None
            or type(value) is not bytes
            or (key is not None and (type(key) is not bytes or not route.keyed))
            or (len(value) > route.small_alone if key is None else len(value) + len(key) > route.small)  # type: ignore[arg-type]
            or headers is not None
            or partition is not None
            or timestamp is not None
            or on_delivery is not None
        ):
            return self._send_with_care(topic, value, key, headers, partition, timestamp, on_delivery)
        buffer = self._buffer
        items = buffer.items
        if len(items) >= buffer.room:
            buffer.wait_for_room()
        future = FutureRecordMetadata(route, value, key)  # type: ignore[arg-type] # the key is bytes, as checked above
        items.append(future)
        if len(items) > buffer.attention:
            buffer.wake()
        return future

    def _send_with_care(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Iterable[Header] | None,
        partition: int | None,
        timestamp: int | datetime | None,
        on_delivery: OnDelivery | None,
    ) -> FutureRecordMetadata:
        """Accepts a record with any option: checks all of it first."""
        self._buffer.check_open()
        route = self._route(topic)
        pairs = _checked_headers(headers)
        key_bytes = _serialized("key", self._key, key, topic, pairs)
        value_bytes = _serialized("value", self._value, value, topic, pairs)
        if key_bytes is None and route.compacted and self._renewed(route).compacted:
            raise keyless("a record")
        number = self._partition(route, partition, key_bytes)
        size = self._checked_size(route, value_bytes, key_bytes, pairs)
        future = self._future(route, value_bytes, key_bytes, pairs, number, timestamp)
        if on_delivery is not None:
            future.when_done(_callback_of(on_delivery))
        if self._transactions is not None:
            self._transactions.add(future, size)
        elif size > RECORD_CHARGE:
            self._buffer.add_large(future, size)
        else:
            self._buffer.add(future)
        return future

    def _future(
        self,
        route: Route,
        value: bytes | None,
        key: bytes | None,
        headers: tuple[Header, ...],
        partition: int | None,
        timestamp: int | datetime | None,
    ) -> FutureRecordMetadata:
        """Returns the future of a checked record, and notes on the route which columns its batches have."""
        stamp = _checked_timestamp(timestamp)
        if stamp is not None and route.timestamps is not None:
            route.timestamps.check_range(stamp, stamp, self._clock.now_ms())
        route.keyed = route.keyed or key is not None
        route.headed = route.headed or bool(headers)
        route.named = route.named or partition is not None
        route.timed = route.timed or stamp is not None
        details = Details(headers or None, partition, stamp) if headers or partition is not None or stamp is not None else None
        return FutureRecordMetadata(route, value, key, details)

    def _route(self, topic: str) -> Route:
        """Returns the metadata of a topic, which is read at its first record."""
        known = self._routes.of(check_topic_name(topic))
        if known is None:
            with self._guard:
                changes = self._manager.topic_changes  # read before the topic, so that a change in between is noticed next time
                made = Route(self._manager.topic(topic), self._buffer.waiting, self.config, self._clock.monotonic(), changes)
                known = self._routes.add(made, is_plain=not self._looks_closer)
                self._buffer.topics += 1  # never lowered: records of a route that was forgotten may still wait
        elif self._sender.is_old(known):
            self._renewed(known)
        return known

    def _renewed(self, route: Route) -> Route:
        """Returns the route after reading the topic again."""
        self._sender.renew_at_once(route)
        return route

    def _partition(self, route: Route, given: int | None, key: bytes | None) -> int | None:
        """Returns the explicit partition, or the choice of the user's callable; None leaves it to the partitioner."""
        if given is None:
            ask = called_partitioner(self.config)
            return None if ask is None else partition_called(ask, key, route.partitions)
        if not is_int(given):
            raise InvalidArgumentError(f"partition={given!r} is not an int")
        if given not in route.partitions:
            self._manager.log(route.topic, int(given))  # raises, unless the partition was added in between
            self._renewed(route)
        return int(given)

    def _checked_size(self, route: Route, value: bytes | None, key: bytes | None, headers: tuple[Header, ...]) -> int:
        """Returns the bytes that a record counts for in the buffer. Raises if the log or the buffer cannot take it."""
        size = _size(value, key, headers)
        if size > route.limit and size > self._renewed(route).limit:
            raise too_large(size, route)
        counted = charge(value, key, headers)
        if counted > self.config.buffer_memory:
            message = f"a record that counts for {counted} bytes exceeds buffer_memory={self.config.buffer_memory}"
            raise RecordTooLargeError(f"{message}; raise that option, or send smaller records")
        return counted

    def send_arrow(self, topic: str, table: Any) -> list[BatchMetadata]:
        """Appends the rows of a `pyarrow.Table` or `RecordBatch`, and waits until they are in the log.

        Records sent earlier are appended first. The partitioner chooses the partitions of rows that name none.

        Args:
            topic: the name of the topic.
            table: the columns `key`, `value`, `timestamp` and `headers`, as for `Log.append_arrow`, and `partition`, an integer
                or null. Each is optional; other columns are refused. Serializers and a callable partitioner are not called.

        Returns:
            The partition and offsets of each batch of rows.

        Raises:
            UnknownTopicOrPartitionError, InvalidRecordError, RecordTooLargeError: no row was appended.
            ClosedError: the producer is closed. InvalidTransactionStateError: with a `transactional_id`, no transaction is open.
            As `Log.append_arrow`: batches appended before the error stay.

        Cost: millions of records a second.

        >>> import pylog, tempfile, pyarrow
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders", partition_count=2)
        >>> table = pyarrow.table({"value": [b"a", b"b", b"c"], "partition": [1, 0, 1]})
        >>> with store.producer() as producer:
        ...     [(done.partition, done.offsets) for done in producer.send_arrow("orders", table)]
        [(0, range(0, 1)), (1, range(0, 2))]
        >>> store.close()
        """
        return self._send_table(topic, table, whole=False)

    def _send_table(self, topic: str, table: Any, *, whole: bool) -> list[BatchMetadata]:
        """Appends the rows of a table. `whole` puts those of each partition into one batch."""
        self._buffer.check_open()
        route = self._route(topic)
        if self._transactions is not None:
            return self._transactions.send_table(route, table)
        self._buffer.flush(None)
        return self._sender.send_table(route, table, whole=whole)

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all records sent so far are appended, or have failed. They do not linger.

        Failed records whose outcome the program has not checked are logged under `pylog.producer`: their number and the first
        error for each partition. As in kafka-python, `flush` does not raise for them: the `result` of their futures does.

        In a transaction, it writes the records, which `read_committed` readers see after the commit.

        Args:
            timeout: seconds to wait; None waits indefinitely.

        Raises:
            PylogTimeoutError: the timeout has expired; the records may still be appended.
            ClosedError: in a forked process. In a transaction, as `commit_transaction`.
        """
        if self._transactions is not None:
            self._transactions.flush()
        self._buffer.flush(timeout)

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic.

        Args:
            topic: the topic's name.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist. InvalidTopicError: no topic can have that name.
            ClosedError: the store is closed.

        Cost: one directory listing.
        """
        return set(self._manager.topic(check_topic_name(topic)).partition_ids)

    def close(self, timeout: float | None = None) -> None:
        """Appends the sent records and ends the producer's thread. Logs unchecked failures, as `flush` does.

        The store's `close`, the end of the interpreter, and the end of a multiprocessing child do the same. A call from a
        callback does not wait. A producer that is dropped without `close` warns with a `ResourceWarning`; its thread appends the
        sent records and ends.

        Args:
            timeout: seconds to wait; records not appended by then fail, and their futures raise. A running append is completed.
                None waits indefinitely.
        """
        self._core.close(timeout)


def new_producer(manager: LogManager, clock: Clock, config: ProducerConfig, core: ProducerCore) -> Producer[Any, Any]:
    """Creates a producer, for `Store.producer`."""
    made: Producer[Any, Any] = Producer.__new__(Producer)
    made._begin(manager, clock, config, core)
    return made


def write_sent(producer: Producer[Any, Any]) -> None:
    """Writes what was sent in an open transaction. An error is in the futures of its records."""
    if producer._transactions is not None:
        with suppress(PylogError):
            producer._transactions.flush()


def send_as_batch(producer: Producer[Any, Any], topic: str, table: Any) -> RecordMetadata:
    """Appends rows of one partition as one batch, after all earlier records: `AsyncProducer.send_batch`.

    In a transaction the rows are written with its other records, perhaps in several batches.

    Args:
        producer: an open producer.
        topic: the name of the topic.
        table: as for `Producer.send_arrow`.

    Returns:
        The metadata of the first row.

    Raises:
        As `Producer.send_arrow`.
    """
    at = table.schema.get_field_index("timestamp")
    stamps = table.column(at).fill_null(producer._clock.now_ms())
    done = producer._send_table(topic, table.set_column(at, "timestamp", stamps), whole=True)[0]
    return RecordMetadata(topic, done.partition, done.offsets.start, stamps[0].as_py(), done.durability)


def checked_record(
    value: object, key: object, headers: Iterable[Header] | None, timestamp: int | datetime | None
) -> tuple[int | None, tuple[Header, ...]]:
    """Returns the timestamp and the headers of a record of bytes. Raises InvalidRecordError for wrong types."""
    for name, given in (("value", value), ("key", key)):
        if not isinstance(given, bytes | None):
            raise InvalidRecordError(f"a {name} must be bytes or None, not {type(given).__name__}; encode it first")
    return _checked_timestamp(timestamp), _checked_headers(headers)


def send_at_once(
    producer: Producer[Any, Any],
    topic: object,
    value: object = None,
    key: object = None,
    headers: object = None,
    partition: object = None,
    timestamp: int | datetime | None = None,
    **unknown: object,
) -> FutureRecordMetadata | None:
    """Sends a record without waiting, without reading a file, and without calling the user's code.

    The topic's metadata is taken once, and the room in the buffer with the record, so other threads cannot make the call wait.

    Returns:
        The record's future. None if `Producer.send` is needed for it: nothing was sent.

    Raises:
        InvalidRecordError, IllegalStateError: as `Producer.send`.
    """
    route = producer._routes.of(topic) if isinstance(topic, str) else None
    if route is None or unknown or producer._looks_closer or producer._sender.is_old(route):
        return None
    if key is None and route.compacted:
        return None
    if partition is not None and not (is_int(partition) and partition in route.partitions):
        return None
    if not (_is_plain(value) and _is_plain(key) and _are_plain(headers)):
        return None
    pairs = _checked_headers(headers)
    size = charge(value, key, pairs)
    if _size(value, key, pairs) > route.limit or not producer._buffer.has_room(size):
        return None
    number = None if partition is None else int(partition)
    future = producer._future(route, value, key, pairs, number, timestamp)
    return future if producer._buffer.add_at_once(future, size) else None


def _is_plain(given: object) -> TypeGuard[bytes | None]:
    return given is None or type(given) is bytes


def _are_plain(given: object) -> TypeGuard[Sequence[Header] | None]:
    """Returns whether headers can be read twice without calling the user's code."""
    if given is None:
        return True
    return type(given) in (list, tuple) and all(type(each) is tuple and _is_pair(*each) for each in cast("list[Any]", given))


def _is_pair(name: object = None, value: object = None, *more: object) -> bool:
    return type(name) is str and _is_plain(value) and not more


# ---- the arguments of `send` -----------------------------------------------------------------------------------------------


def _serialized(name: str, serializer: Conversion | None, given: Any, topic: str, headers: tuple[Header, ...]) -> bytes | None:
    """Returns a key or value as bytes or None, serialized if there is a serializer."""
    if serializer is None:
        made = given
    elif serializer.of_value is not None:
        made = serializer.of_value(given)
    else:
        assert serializer.of_record is not None
        made = serializer.of_record(topic, headers, given)
    if made is None or type(made) is bytes:
        return made
    if isinstance(made, bytes | bytearray | memoryview):
        return bytes(made)
    if serializer is not None:
        refuse_awaitable(made)
    message = f"{type(made).__name__} of {name}_serializer" if serializer is not None else type(made).__name__
    raise InvalidRecordError(f"a {name} must be bytes or None, not {message}; encode it first, or set {name}_serializer")


def _checked_headers(given: Iterable[Header] | None) -> tuple[Header, ...]:
    """Returns headers as a tuple of pairs. Raises if one has a wrong type."""
    try:
        pairs = tuple((name, value) for name, value in given or ())
        for name, value in pairs:
            name.encode()
            if value is not None:
                bytes.__len__(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRecordError("headers must be pairs of (str, bytes or None)") from error
    check_headers(len(pairs), "a record")
    return pairs


def _size(value: bytes | None, key: bytes | None, headers: Sequence[Header]) -> int:
    """Returns the most bytes that a record takes with its batch header."""
    size = MAX_RECORD_OVERHEAD + len(value or b"") + len(key or b"")
    if headers:
        size += 10 + sum(10 + len(name.encode(errors="replace")) + len(held or b"") for name, held in headers)
    return size


def _checked_timestamp(given: int | datetime | None) -> int | None:
    if given is None:
        return None
    found = given if is_int(given) else timestamp_of(given)
    if found is None or not 0 <= found <= limits.INT64_MAX:
        problem = timestamp_problem(given) if found is None else "is not a number of milliseconds since 1970"
        raise InvalidRecordError(f"timestamp={given!r} {problem}")
    return int(found)


def _callback_of(on_delivery: OnDelivery) -> Callable[[FutureRecordMetadata], object]:
    """Wraps `on_delivery` as a callback that receives the future."""
    if not callable(on_delivery):
        raise InvalidArgumentError(f"on_delivery={on_delivery!r} cannot be called")
    refuse_coroutine_function("on_delivery", on_delivery, "pass a plain function, or send with pylog.aio.AsyncProducer")

    def call(future: FutureRecordMetadata) -> None:
        error = future.exception()
        refuse_awaitable(on_delivery(error, None if error is not None else future.result()))

    return call
