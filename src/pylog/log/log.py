"""`Log`: one partition, as users see it. It checks arguments and documents; the work is in `partition_log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from pylog import limits
from pylog.config import Durability, TopicConfig
from pylog.log.arguments import check_positive, offset_given, pieces_of, records_of
from pylog.log.partition_log import PartitionLog
from pylog.log.recovery.findings import Finding
from pylog.log.segment_view import SegmentInfo
from pylog.record.builder import rows_from_arrow, rows_from_record
from pylog.record.decoder import DEFAULT_COLUMNS
from pylog.record.types import (
    Acknowledgement,
    Header,
    OffsetAndTimestamp,
    ProducerBatch,
    Record,
    check_producer_batch,
)


class Log:
    """One partition of a topic: an ordered list of segments. Got from `Store.log`, closed with its store.

    Every method may be called from any thread.

    Attributes:
        partition: the topic's name and the number of the partition.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> log = store.log("orders", 0)
    >>> log.append(b"paid", key=b"42", timestamp=1_700_000_000_000)
    0
    >>> log.read(0).value, log.start_offset, log.end_offset
    (b'paid', 0, 1)
    >>> store.close()
    """

    def __init__(self, partition_log: PartitionLog) -> None:
        self._partition_log = partition_log
        self._clock = partition_log.clock
        self.partition = partition_log.partition

    def __repr__(self) -> str:
        state = self._partition_log.known
        topic, number = self.partition
        return f"Log({topic}-{number}, offsets {state.start_offset} to {state.end_offset})"

    @property
    def config(self) -> TopicConfig:
        """The topic's options as they stand, whichever process altered them last. Cost: one small read."""
        return self._partition_log.config

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        timestamp: int | None = None,
        *,
        durability: Durability | None = None,
    ) -> int:
        """Appends one record and returns its offset.

        Args:
            value: bytes, or None for a tombstone.
            key: bytes or None.
            headers: pairs of (str, bytes or None).
            timestamp: milliseconds since 1970; None is now. -1 means none.
            durability: the level of this acknowledgement; the store's by default.

        Raises:
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: nothing was written. (A compacted topic needs keys.)
            ReadOnlyError, ClosedError, CorruptionError: the log takes no writes.
            StorageFailedError: the record is not acknowledged.

        Cost: one write, and at `Durability.SYNC` one fdatasync.
        """
        now_ms = self._clock.now_ms()
        rows = rows_from_record(key, value, timestamp, headers, now_ms)
        return self._partition_log.append(now_ms, [rows], None, durability).offsets.start

    def append_many(self, items: Sequence[Any], *, compression: str | None = None, durability: Durability | None = None) -> range:
        """Appends records in one call: one acknowledgement, one sync.

        Args:
            items: each a value, a pair (key, value), or a triple or quadruple (key, value, headers, timestamp).
            compression: a codec's name; the topic's by default.
            durability: as for `append`.

        Returns:
            The offsets, in the order given.

        Raises:
            As `append`.

        Cost: some 50 ns a record of plain values, on top of the write.
        """
        now_ms = self._clock.now_ms()
        return self._partition_log.append(now_ms, records_of(items, now_ms), compression, durability).offsets

    def append_arrow(self, data: Any, *, compression: str | None = None, durability: Durability | None = None) -> range:
        """Appends a `pyarrow.Table` or `RecordBatch` with columns `key`, `value`, `timestamp`, `headers`.

        Args:
            data: the rows. `key` and `value` are binary or string, `timestamp` a timestamp or int64 milliseconds (null or
                missing: now), `headers` list<struct<key: string, value: binary>>. Any may be missing; others are refused.
            compression: a codec's name; the topic's by default.
            durability: as for `append`.

        Returns:
            The offsets, in the order of the rows.

        Raises:
            As `append`.

        Cost: tens of millions of records a second at `Durability.OS`.
        """
        now_ms = self._clock.now_ms()
        return self._partition_log.append(now_ms, list(rows_from_arrow(data, now_ms)), compression, durability).offsets

    def append_batch(
        self,
        items: Any,
        *,
        compression: str | None = None,
        durability: Durability | None = None,
        producer: ProducerBatch | None = None,
        atomic: bool = False,
    ) -> Acknowledgement:
        """Appends records and tells what the acknowledgement is worth; with `producer` at most once, however often it is sent.

        Args:
            items: as for `append_many`, or as for `append_arrow`.
            compression, durability: as for these.
            producer: the producer's id and epoch and the sequence of the first record. What the log has already under these
                numbers is acknowledged again, with the offsets that it has (storage-format 6.14).
            atomic: make one batch of them, so that they are there all or not at all, whatever crashes; a producer's always are.

        Returns:
            The offsets, the level that was reached (with others in one group commit it can be a higher one than asked for), and
            whether it was there already.

        Raises:
            OutOfOrderSequenceError, ProducerFencedError: it may not follow what the producer sent before.
            RecordTooLargeError: with `producer` or `atomic`, all records together are more than `max_message_bytes`. As `append`.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> for _ in range(2):
        ...     done = store.log("orders").append_batch([b"paid"], producer=pylog.ProducerBatch(1 << 48, 0, 0))
        ...     print(done.offsets, done.durability, done.duplicate)
        range(0, 1) Durability.SYNC False
        range(0, 1) Durability.SYNC True
        >>> store.close()
        """
        given = check_producer_batch(producer) if producer is not None else None
        now_ms = self._clock.now_ms()
        return self._partition_log.append(now_ms, pieces_of(items, now_ms), compression, durability, given, atomic)

    def flush(self) -> None:
        """Makes every record appended so far durable, those of other processes too.

        Raises:
            StorageFailedError: the sync failed; the log takes no more writes until it is opened again.
        """
        self._partition_log.flush()

    def exclusively(self) -> AbstractContextManager[None]:
        """Keeps every other thread and process from changing the log: what is read inside holds for what is appended inside.
        All others wait meanwhile: keep it short, and change no other log there.

        Raises:
            ReadOnlyError, ClosedError: the log takes no writes. StoreLockedError: another process kept it locked for too long.
        """
        return self._partition_log.exclusively()

    # ---- trimming ------------------------------------------------------------------------------------------------------------

    def delete_records(self, before: int) -> int:
        """Deletes the records below an offset: it becomes the log's start, and segments wholly below it go.

        Args:
            before: an offset up to the log's end; at or below its start nothing happens.

        Returns:
            The log's start.

        Raises:
            OffsetOutOfRangeError: it lies behind the end.
            InvalidArgumentError: the topic's cleanup_policy does not contain "delete". As `append`.

        Spec: storage-format 6.6.2; unlike there it is durable when this returns.
        """
        return self._partition_log.delete_records(before)

    def truncate(self, end: int) -> None:
        """Deletes the records from an offset on; the next record gets that offset. Durable when it returns.

        Args:
            end: an offset from the log's start on; at or behind its end nothing happens. Within a batch the whole batch goes, and
                the offsets below `end` that it held are a gap.

        Raises:
            OffsetOutOfRangeError: it lies before the log's start. As `append`.

        Spec: storage-format 6.5.
        """
        self._partition_log.truncate(end)

    # ---- read ----------------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> Record:
        """The record at an offset; where compaction or a marker left a gap, the next one.

        Raises:
            OffsetOutOfRangeError: before `start_offset`, or at or behind `end_offset`. CorruptionError: its batch is damaged.

        Cost: O(log n) and one batch: some 6 µs from a mapped segment.
        """
        known = type(offset) is int and 0 <= offset <= limits.INT64_MAX
        return self._partition_log.read(offset if known else offset_given("offset", offset))

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        verify: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of the records from `start` to before `end`, forwards, in bounded memory.

        Args:
            start: an offset from `start_offset` to `end_offset`; the log's start by default.
            end: exclusive; by default the end at the time of the call (`read_committed`: the stable offset).
            columns: of `offset` int64, `timestamp` timestamp[ms, UTC], `timestamp_type` int8, `key`, `value` binary, `headers`
                list<struct<key: string, value: binary>>, `leader_epoch` int32, `producer_id` int64, `producer_epoch` int16,
                `sequence` int32, in the order wanted. What is not asked for is not decoded.
            isolation_level: `read_committed` hides aborted and open transactions.
            max_rows: of one Arrow batch.
            verify: check each batch's CRC.

        Raises:
            OffsetOutOfRangeError, InvalidArgumentError: at once.
            CorruptionError: while iterating, after everything before the damage; its `next_offset` is where to go on.

        Cost: tens of millions of records a second; memory for one Arrow batch.
        """
        return self._partition_log.scan(
            start, end, columns=columns, isolation_level=isolation_level, max_rows=max_rows, verify=verify
        )

    def records(
        self, start: int | None = None, end: int | None = None, *, isolation_level: str = "read_uncommitted", verify: bool = True
    ) -> Iterator[Record]:
        """The same as `Record` objects, in offset order.

        Raises:
            As `scan`.

        Cost: some 0.2 µs a record.
        """
        return self._partition_log.records(start, end, isolation_level=isolation_level, verify=verify)

    def offset_for_timestamp(self, timestamp: int, *, isolation_level: str = "read_uncommitted") -> OffsetAndTimestamp | None:
        """The first record with `timestamp` or a later one, as Kafka's `offsetsForTimes` answers (storage-format 5.8).

        Args:
            timestamp: milliseconds since 1970.
            isolation_level: under `read_committed` an answer at or behind the stable offset is None.

        Returns:
            Its offset, timestamp and leader epoch, or None if no record is that recent. A record without a timestamp is never the
            answer. Kafka answers None in some cases where there is such a record (storage-format 5.8.2).

        Raises:
            CorruptionError: a batch that had to be looked at is damaged.

        Cost: O(log n) and one batch.
        """
        return self._partition_log.offset_for_timestamp(timestamp, isolation_level=isolation_level)

    # ---- follow --------------------------------------------------------------------------------------------------------------

    def wait_for(self, offset: int, timeout_ms: int | None = None, *, durable: bool = False) -> int:
        """Waits until the log has a record at `offset`, without a lock and without spinning.

        Args:
            offset: of the record waited for.
            timeout_ms: at most so long, in milliseconds; None: for ever.
            durable: wait until it outlives a power loss.

        Returns:
            The log's end (with `durable`, its durable end); at or below `offset` when the time is over.

        Cost: a pread each 0.1 ms at first, each millisecond later on.
        """
        return self._partition_log.wait_for(offset, timeout_ms, durable=durable)

    def follow(
        self,
        start: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        timeout_ms: int | None = None,
        durable: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches from `start` on, for ever: at the end it waits for what comes, whichever process appends it.

        Args:
            start: an offset; by default the end at the time of the call, so that only news come.
            columns, isolation_level, max_rows: as for `scan`.
            timeout_ms: end when nothing new has come for so long; None: never.
            durable: hand out only what outlives a power loss.

        Raises:
            OffsetOutOfRangeError: at once, if `start` is not from the log's start to its end; later, if retention was faster, or
                the log was truncated below what was read already. As `scan`.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> _ = store.log("orders").append_many([b"a", b"b"])
        >>> [batch.num_rows for batch in store.log("orders").follow(0, timeout_ms=1)]
        [2]
        >>> store.close()
        """
        return self._partition_log.follow(
            start, columns=columns, isolation_level=isolation_level, max_rows=max_rows, timeout_ms=timeout_ms, durable=durable
        )

    # ---- planning ------------------------------------------------------------------------------------------------------------

    def size_between(self, start: int, end: int) -> int:
        """About how many bytes the records from `start` to before `end` take. From indexes only: O(log n)."""
        return self._partition_log.size_between(start, end)

    def split_offsets(self, start: int, end: int, max_bytes: int) -> list[int]:
        """Offsets that cut the records from `start` to before `end` into parts of about `max_bytes` each.

        Args:
            start, end: a range within the log.
            max_bytes: bytes on the disk of one part.

        Returns:
            Batch boundaries strictly between `start` and `end`, ascending; from index files only, never from data.

        Raises:
            InvalidArgumentError: `max_bytes` is not positive.
        """
        check_positive("max_bytes", max_bytes)
        return self._partition_log.split_offsets(start, end, max_bytes)

    # ---- ends ----------------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The smallest offset that can be read here: of a log in a broker's remote tier the local log start offset."""
        return self._partition_log.snapshot().start_offset

    @property
    def remote_offsets(self) -> range:
        """The offsets before `start_offset` that only a Kafka broker's remote tier has; empty for a log that is all here.

        Reading without a start, and by time, raises OffsetOutOfRangeError if it would have to begin there.
        """
        return self._partition_log.snapshot().remote_offsets

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get, whichever process appended last. Cost: one pread."""
        return self._partition_log.snapshot().end_offset

    @property
    def durable_offset(self) -> int:
        """All records below outlive a power loss."""
        return self._partition_log.snapshot().durable_offset

    @property
    def stable_offset(self) -> int:
        """Where `read_committed` reading ends: before the earliest open transaction (storage-format 6.7.2)."""
        return self._partition_log.snapshot(committed=True).stable_offset

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The log's segments in numbers, oldest first: offsets, size, path. Cost: O(n), and one pread.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"paid", b"sent"])
        ...     [(segment.base_offset, segment.end_offset) for segment in store.log("orders").segments]
        [(0, 2)]
        """
        return self._partition_log.snapshot().described()

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """What was found when the log was loaded: a torn tail, damage, derived files that had to be made again."""
        return self._partition_log.recovery_report
