"""Batches that a program fills itself, for `AsyncProducer`: `create_batch` and `send_batch`, as in aiokafka."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa

from pylog.aio.delivery import Sent, report_sent, settle
from pylog.arguments import is_int
from pylog.errors import ClosedError, InvalidRecordError, InvalidTypeError
from pylog.producer.future import RecordMetadata
from pylog.producer.producer import Producer, checked_record, send_as_batch
from pylog.record.few import varint
from pylog.record.types import Header

F = TypeVar("F", bound="asyncio.Future[Any]")
T = TypeVar("T")
_BATCH_HEADER: Final = 61  # bytes (storage-format 1.2)
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class BatchRecord(NamedTuple):
    """A record in a batch that is not sent yet.

    Attributes:
        offset: its number in the batch.
        timestamp: milliseconds since 1970; None for the time of the append.
        size: its bytes in the batch, before compression.
        crc: None.
    """

    offset: int
    timestamp: int | None
    size: int
    crc: None = None


class BatchBuilder:
    """Collects records that are appended as one batch. `AsyncProducer.create_batch` creates it.

    Args:
        limit: the largest number of bytes. The first record may be larger.

    >>> batch = BatchBuilder(limit=200)
    >>> batch.append(value=bytes(100))
    BatchRecord(offset=0, timestamp=None, size=109, crc=None)
    >>> batch.append(value=bytes(100)) is None, batch.record_count(), batch.size()
    (True, 1, 170)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = _BATCH_HEADER
        self._closed = False
        self._taken = False
        self._rows: list[tuple[bytes | None, bytes | None, int | None, tuple[Header, ...]]] = []

    def append(
        self,
        *,
        timestamp: int | datetime | None = None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[Header] | None = None,
    ) -> BatchRecord | None:
        """Adds a record.

        Args:
            timestamp: milliseconds since 1970, or a datetime with a time zone; None is the time of the append.
            key: bytes or None. Serializers are not called.
            value: bytes or None.
            headers: pairs of a name and bytes.

        Returns:
            The record's number and size; None if the batch is closed, or full, which closes it.

        Raises:
            InvalidRecordError: a value has a wrong type.
        """
        stamp, pairs = checked_record(value, key, headers, timestamp)
        if self._closed:
            return None
        size = _size_of(value, key, pairs, stamp - self._first(stamp) if stamp is not None else 0, len(self._rows))
        if self._rows and self._size + size > self._limit:
            self.close()
            return None
        self._rows.append((value, key, stamp, pairs))
        self._size += size
        return BatchRecord(len(self._rows) - 1, stamp, size)

    def _first(self, stamp: int) -> int:
        """Returns the timestamp of the first record, which the batch's header has."""
        first = self._rows[0][2] if self._rows else None
        return stamp if first is None else first

    def size(self) -> int:
        """Returns the bytes of the batch, before compression."""
        return self._size

    def record_count(self) -> int:
        """Returns the number of records."""
        return len(self._rows)

    def close(self) -> None:
        """Makes `append` return None from now on."""
        self._closed = True

    def closed(self) -> bool:
        """Returns whether the batch is closed."""
        return self._closed

    def _take(self, partition: int) -> pa.Table:
        """Returns the records for `send_arrow`, and closes the batch. A batch is sent once.

        Args:
            partition: the number of a partition.

        Raises:
            ClosedError: it was sent already. InvalidRecordError: it has no records.
        """
        if self._taken:
            raise ClosedError("the batch was sent already; create another one")
        if not self._rows:
            raise InvalidRecordError("the batch has no records")
        self._closed = self._taken = True
        values, keys, stamps, headers = zip(*self._rows, strict=True)
        columns: dict[str, Any] = {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "timestamp": pa.array(stamps, pa.int64()),
            "partition": pa.array([partition] * len(values), pa.int64()),
        }
        if any(headers):
            rows = [[{"key": name, "value": held} for name, held in pairs] for pairs in headers]
            columns["headers"] = pa.array(rows, _HEADERS)
        return pa.table(columns)


def _size_of(value: bytes | None, key: bytes | None, headers: Iterable[Header], delta: int, number: int) -> int:
    """Returns the bytes of a record with its length (storage-format 1.4)."""
    pairs = list(headers)
    size = 1 + len(varint(delta)) + len(varint(number)) + _sized(key) + _sized(value) + len(varint(len(pairs)))
    size += sum(_sized(name.encode()) + _sized(held) for name, held in pairs)
    return len(varint(size)) + size


def _sized(data: bytes | None) -> int:
    return 1 if data is None else len(varint(len(data))) + len(data)


class AsyncBatchCalls(ABC):
    """`create_batch` and `send_batch` of `AsyncProducer`."""

    _producer: Producer[Any, Any]

    @abstractmethod
    def _line_up(self, call: Callable[[], object]) -> None:
        """Queues a call for the producer's thread."""

    @abstractmethod
    def _note(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], result: T) -> None:
        """Schedules the delivery of a result."""

    @abstractmethod
    def _settles(self, result: F) -> F:
        """Lets `flush` and `close` wait for a result."""

    @abstractmethod
    async def _worked_off(self) -> None:
        """Waits until the queued calls have been made."""

    def create_batch(self) -> BatchBuilder:
        """Returns an empty batch of at most `batch_size` bytes. `send_batch` appends it."""
        return BatchBuilder(self._producer.config.batch_size)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Appends a batch after all records that were sent before, as one batch of the log.

        Args:
            batch: created by `create_batch`. It is closed.
            topic: the name of a topic.
            partition: the number of a partition.

        Returns:
            A future of the metadata of the batch's first record, or of the error. Cancelling it does not stop the batch.

        Raises:
            ClosedError: the producer is closed, or the batch was sent already. InvalidRecordError: it has no records.
            InvalidTypeError: an argument has a wrong type.
        """
        if not isinstance(batch, BatchBuilder):
            raise InvalidTypeError(f"batch={batch!r} is not a batch; create_batch() returns one")
        if not isinstance(topic, str) or not is_int(partition):
            raise InvalidTypeError(f"topic={topic!r} must be a name, and partition={partition!r} a number")
        await self._worked_off()  # at most one batch waits for each task
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sent] = loop.create_future()
        note: Callable[[Sent], object] = partial(self._note, loop, answer)
        send = partial(_sent, self._producer, topic, batch._take(partition))
        self._line_up(partial(report_sent, send, note))
        found: asyncio.Future[RecordMetadata] = loop.create_future()
        answer.add_done_callback(partial(settle, found))
        return self._settles(found)


class _Done(Future[RecordMetadata]):
    """A settled future, which `report_sent` passes on."""

    def when_done(self, call: Callable[[Any], object]) -> None:
        """Calls at once."""
        call(self)


def _sent(producer: Producer[Any, Any], topic: str, table: pa.Table) -> Any:
    done = _Done()
    done.set_result(send_as_batch(producer, topic, table))
    return done
