"""`Log`: one partition, as users see it. It checks arguments and documents; the work is in `partition_log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import pyarrow as pa

from pylog import limits
from pylog.config import Durability, TopicConfig
from pylog.factory_made import FactoryMade
from pylog.log.arguments import check_positive, offset_given, pieces_of, records_of
from pylog.log.partition_log import PartitionLog
from pylog.log.recovery.findings import Finding
from pylog.log.state import SegmentInfo
from pylog.notebook import ShownAsTable, ShownTable
from pylog.record.builder import rows_from_record
from pylog.record.decoder import DEFAULT_COLUMNS
from pylog.record.from_arrow import rows_from_arrow
from pylog.record.types import BatchMetadata, Header, OffsetAndTimestamp, ProducerBatch, Record, check_producer_batch
from pylog.snapshot import Snapshot


class Log(FactoryMade, ShownAsTable, factory="Store.log"):
    """One partition of a topic: an ordered list of segments. Obtained from `Store.log`; closed with its store.

    Every method may be called from any thread. Once the topic is deleted, by this process or another one, methods raise
    `UnknownTopicOrPartitionError`; once the store is closed, `ClosedError`. A method that needs archived records of a tiered
    topic raises `ObjectStoreError` if a request fails; a later call tries again.

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

    def _begin(self, partition_log: PartitionLog) -> None:
        self._partition_log = partition_log
        self._clock = partition_log.clock
        self.partition = partition_log.partition

    def __repr__(self) -> str:
        state = self._partition_log.known
        topic, number = self.partition
        return f"Log({topic}-{number}, offsets {state.start_offset} to {state.end_offset})"

    def _table(self) -> ShownTable:
        rows = ((each.base_offset, each.end_offset, each.size) for each in reversed(self.segments))
        more = "only the newest 50 segments are shown"
        return ShownTable(repr(self), ["base offset", "end offset", "bytes"], rows, more)

    @property
    def config(self) -> TopicConfig:
        """The topic's current options, even if another process altered them. Cost: one small read."""
        return self._partition_log.config

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[Header] = (),
        timestamp: int | datetime | None = None,
        *,
        durability: Durability | str | None = None,
    ) -> int:
        """Appends one record and returns its offset.

        Args:
            value: bytes, or None for a tombstone.
            key: bytes or None.
            headers: pairs of (str, bytes or None).
            timestamp: milliseconds since 1970, or a datetime with a time zone; None is now. -1 means none.
            durability: the level of this acknowledgement, or its name ("sync", "os", "interval:MS"); by default, the topic's.

        Raises:
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: nothing was written. (A compacted topic requires
                keys.)
            ReadOnlyError, ClosedError, CorruptionError: the log accepts no writes.
            StoreLockedError: another process held the partition's lock for longer than `lock_timeout_ms`; nothing was written.
            StorageFailedError: the record is not acknowledged.

        Cost: one write, and at `Durability.SYNC` one fdatasync.
        """
        now_ms = self._clock.now_ms()
        rows = rows_from_record(key, value, timestamp, headers, now_ms)
        return self._partition_log.append(now_ms, [rows], None, durability).offsets.start

    def append_many(
        self, items: Sequence[Any], *, compression: str | None = None, durability: Durability | str | None = None
    ) -> range:
        """Appends records in one call: one acknowledgement, one sync.

        Args:
            items: each a value, a pair (key, value), or a triple or quadruple (key, value, headers, timestamp).
            compression: the name of a codec; by default, the topic's.
            durability: as for `append`.

        Returns:
            The offsets, in the order of the items.

        Raises:
            PylogError: as `append`.

        Cost: about 50 ns a record of plain values, plus the write.
        """
        now_ms = self._clock.now_ms()
        return self._partition_log.append(now_ms, records_of(items, now_ms), compression, durability).offsets

    def append_arrow(self, data: Any, *, compression: str | None = None, durability: Durability | str | None = None) -> range:
        """Appends a `pyarrow.Table` or `RecordBatch` with columns `key`, `value`, `timestamp`, `headers`.

        Args:
            data: the rows. `key` and `value` are binary or string, `timestamp` a timestamp or int64 milliseconds (null or
                missing: now), `headers` list<struct<key: string, value: binary>>. Each is optional; other columns are refused.
            compression: the name of a codec; by default, the topic's.
            durability: as for `append`.

        Returns:
            The offsets, in the order of the rows.

        Raises:
            PylogError: as `append`.

        Cost: tens of millions of records a second at `Durability.OS`.
        """
        now_ms = self._clock.now_ms()
        return self._partition_log.append(now_ms, list(rows_from_arrow(data, now_ms)), compression, durability).offsets

    def append_batch(
        self,
        items: Any,
        *,
        compression: str | None = None,
        durability: Durability | str | None = None,
        producer: ProducerBatch | None = None,
        atomic: bool = False,
    ) -> BatchMetadata:
        """Appends records and returns the details of the acknowledgement. With `producer`, a repeated batch is appended only
        once.

        Args:
            items: as for `append_many`, or as for `append_arrow`.
            compression: as for these.
            durability: as for these.
            producer: the producer's id and epoch, and the sequence of the first record. If the log already has a batch with
                these numbers, its offsets are acknowledged again (storage-format 6.14).
            atomic: true to append one batch, so that a crash leaves all records or none. A producer's batches always are.

        Returns:
            The offsets, the durability (a group commit may raise it), and whether the batch was a duplicate.

        Raises:
            OutOfOrderSequenceError, ProducerFencedError: the sequence or the epoch does not follow the producer's last batch.
            RecordTooLargeError: with `producer` or `atomic`, the batch exceeds `max_message_bytes`. As `append`.

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
        done = self._partition_log.append(now_ms, pieces_of(items, now_ms), compression, durability, given, atomic)
        return BatchMetadata(*self.partition, done.offsets, done.durability, done.duplicate)

    def flush(self) -> None:
        """Makes every record appended so far durable, including those of other processes.

        Raises:
            StorageFailedError: the sync failed; the log accepts no more writes until it is opened again.
        """
        self._partition_log.flush()

    def exclusively(self) -> AbstractContextManager[None]:
        """Locks the log against changes by other threads and processes, so that a read and an append can be one step.

        All others wait: keep it short, and change no other log inside. A producer appends in its own thread, so its calls that
        wait raise IllegalStateError inside.

        Returns:
            A context manager, for `with`.

        Raises:
            ReadOnlyError, ClosedError: the log accepts no writes. StoreLockedError: another process held the lock for too long.
        """
        return self._partition_log.exclusively()

    # ---- trimming ------------------------------------------------------------------------------------------------------------

    def delete_records(self, before: int) -> int:
        """Deletes the records below an offset, durably. It becomes the log start, and segments entirely below it are deleted.

        Args:
            before: an offset up to the log end; at or below the log start, nothing happens.

        Returns:
            The log start offset.

        Raises:
            OffsetOutOfRangeError: the offset is past the log end.
            InvalidArgumentError: the topic's cleanup_policy does not contain "delete". As `append`.
            ArchiveFencedError, ObjectStoreError: some are in an archive, which is that of another directory of the store, or
                cannot be reached. Nothing was deleted.
        """
        return self._partition_log.delete_records(offset_given("before", before))

    def truncate(self, end: int) -> None:
        """Deletes the records from an offset on, durably. The next record gets that offset.

        Args:
            end: an offset from the log start to the log end; at the log end, nothing happens. If it is inside a batch, the whole
                batch is deleted, and its offsets below `end` become a gap.

        Raises:
            OffsetOutOfRangeError: the offset is before the log start or beyond the log end. As `append`, and as `delete_records`.
            InvalidTransactionStateError: it would delete records of an open transaction, or part records from their marker.

        Spec: storage-format 6.5.
        """
        self._partition_log.truncate(offset_given("end", end))

    # ---- read ----------------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> Record:
        """Returns the record at an offset. In a gap left by compaction or a marker, returns the next one.

        Args:
            offset: from the log's start to before its end.

        Raises:
            OffsetOutOfRangeError: the offset is below `start_offset`, or not below `end_offset`.
            CorruptionError: its batch is damaged. UnsupportedFormatError, DecompressionLimitError: it cannot be decoded.

        Cost: O(log n) and one batch: about 6 µs from a mapped segment.
        """
        known = type(offset) is int and 0 <= offset <= limits.INT64_MAX
        return self._partition_log.read(offset if known else offset_given("offset", offset))

    def read_many(
        self, offsets: Any, *, columns: Sequence[str] = DEFAULT_COLUMNS, isolation_level: str = "read_uncommitted"
    ) -> pa.Table:
        """Returns the records at many offsets as one Arrow table, in the order of the offsets. Raises as `read`.

        Args:
            offsets: a list or an array of integers, in any order; one that is repeated gives its row again.
            columns: as for `scan`.
            isolation_level: as for `scan`.

        Returns:
            A row for each offset that has a record; none for one in a gap left by compaction or a marker.

        Cost: each batch with one of the offsets is checked and decoded once: 0.1 to 2 µs an offset, in batches of 16 KiB.
        """
        return self._partition_log.read_many(offsets, columns=columns, isolation_level=isolation_level)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        verify: bool = True,
        snapshot: Snapshot | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records from `start` up to, but not including, `end` as Arrow batches, in bounded memory.

        Args:
            start: an offset from `start_offset` to `end_offset`; by default, the log start.
            end: exclusive; by default, the log end at the time of the call (`read_committed`: the last stable offset).
            columns: any of `offset` int64, `timestamp` timestamp[ms, UTC], `timestamp_type` int8, `key`, `value` binary,
                `headers` list<struct<key: string, value: binary>>, `leader_epoch` int32, `producer_id` int64,
                `producer_epoch` int16, `sequence` int32, in the requested order. Other columns are not decoded.
            isolation_level: `read_committed` hides aborted and open transactions.
            max_rows: the largest number of rows of one Arrow batch.
            verify: true to check each batch's CRC.
            snapshot: a result of `Store.snapshot`: yields only the records in it, by default up to its end. `isolation_level`
                then has no effect.

        Raises:
            OffsetOutOfRangeError, InvalidArgumentError: at once. Also if records of the snapshot were deleted since it was taken.
            UnknownTopicOrPartitionError: the snapshot does not have this partition.
            CorruptionError, UnsupportedFormatError, DecompressionLimitError: during iteration, after all records before the batch
                that cannot be read. Continue at the error's `next_offset`.

        Cost: tens of millions of records a second; memory for one Arrow batch.
        """
        return self._partition_log.scan(
            start,
            end,
            columns=columns,
            isolation_level=isolation_level,
            max_rows=max_rows,
            verify=verify,
            snapshot=snapshot,
        )

    def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        isolation_level: str = "read_uncommitted",
        verify: bool = True,
        snapshot: Snapshot | None = None,
    ) -> Iterator[Record]:
        """Yields the records of a range as `Record` objects, in offset order. Raises as `scan`. Cost: about 0.2 µs a record."""
        return self._partition_log.records(start, end, isolation_level=isolation_level, verify=verify, snapshot=snapshot)

    def offset_for_timestamp(
        self, timestamp: int | datetime, *, isolation_level: str = "read_uncommitted"
    ) -> OffsetAndTimestamp | None:
        """Returns the first record at or after a timestamp, like Kafka's `offsetsForTimes` (storage-format 5.8).

        Args:
            timestamp: milliseconds since 1970, or a datetime with a time zone.
            isolation_level: `read_committed` returns None instead of a record at or after the last stable offset.

        Returns:
            The record's offset, timestamp and leader epoch, or None. A record without a timestamp is never returned. In some
            cases Kafka returns None although such a record exists (storage-format 5.8.2).

        Raises:
            CorruptionError: a batch that the search needs is damaged.

        Cost: O(log n) and one batch.
        """
        return self._partition_log.offset_for_timestamp(timestamp, isolation_level=isolation_level)

    # ---- follow --------------------------------------------------------------------------------------------------------------

    def wait_for(self, offset: int, timeout_ms: int | None = None, *, durable: bool = False) -> int:
        """Waits until the log has a record at `offset`. Holds no lock and does not spin.

        Args:
            offset: the offset of the record.
            timeout_ms: milliseconds to wait; None waits indefinitely.
            durable: true to wait until the record would survive a power loss.

        Returns:
            The log end offset (with `durable`, the durable end); at most `offset` if the timeout has expired.

        Cost: a read every 0.1 ms at first, later every millisecond.
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
        """Yields Arrow batches from `start` on, without end: at the log end it waits for appends of any process.

        Args:
            start: an offset; by default, the log end at the time of the call, so that only new records are returned.
            columns: as for `scan`.
            isolation_level: as for `scan`.
            max_rows: as for `scan`.
            timeout_ms: end after this many milliseconds without a new record; None never ends.
            durable: true to return only records that would survive a power loss.

        Raises:
            OffsetOutOfRangeError: at once, if `start` is not between log start and log end. Later, if retention has overtaken the
                reader, or the log was truncated below its position. As `scan`.

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
        """Returns the approximate size of a range of records, in bytes. Uses only indexes: O(log n). Raises as `split_offsets`.

        Args:
            start: the first offset.
            end: the offset after the last one.
        """
        return self._partition_log.size_between(offset_given("start", start), offset_given("end", end))

    def split_offsets(self, start: int, end: int, max_bytes: int) -> list[int]:
        """Returns offsets that split the records from `start` up to `end` into parts of about `max_bytes` each.

        Args:
            start: the first offset, within the log.
            end: the offset after the last one.
            max_bytes: the size of one part on disk.

        Returns:
            Batch boundaries strictly between `start` and `end`, ascending. Reads index files, never records.

        Raises:
            InvalidArgumentError: `max_bytes` is not positive, or an offset is not an int.
            OffsetOutOfRangeError: an offset is negative.
        """
        check_positive("max_bytes", max_bytes)
        return self._partition_log.split_offsets(offset_given("start", start), offset_given("end", end), max_bytes)

    # ---- ends ----------------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The log start offset, of both tiers. If a broker's remote storage has earlier records, the local log start offset."""
        return self._partition_log.snapshot().start_offset

    @property
    def local_start_offset(self) -> int:
        """The smallest offset on the disk. In a tiered topic, earlier records are in the archive. Cost: one read."""
        return self._partition_log.tiers.local().start_offset

    @property
    def archived_end_offset(self) -> int | None:
        """The offset after the last archived record, as the directory knows; None without one. Cost: one read, no request."""
        self._partition_log.snapshot()
        return self._partition_log.tiers.archived_end()

    @property
    def remote_offsets(self) -> range:
        """The offsets before `start_offset` that are only in a Kafka broker's remote storage; empty if the log is complete.

        A read without a start, or by time, raises OffsetOutOfRangeError if it would begin there.
        """
        return self._partition_log.snapshot().remote_offsets

    @property
    def end_offset(self) -> int:
        """The log end offset, which the next record will get, even if another process appended last. Cost: one read."""
        return self._partition_log.snapshot().end_offset

    @property
    def durable_offset(self) -> int:
        """Records below this offset survive a power loss."""
        return self._partition_log.snapshot().durable_offset

    @property
    def stable_offset(self) -> int:
        """The last stable offset: `read_committed` reading ends before the earliest open transaction (storage-format 6.7.2)."""
        return self._partition_log.snapshot(committed=True).stable_offset

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Returns offsets, size and path of each segment, oldest first. Cost: O(number of segments), and one read.

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
        """The findings from loading the log: a torn tail, damage, rebuilt derived files."""
        return self._partition_log.recovery_report


def log_over(partition_log: PartitionLog) -> Log:
    """Returns the public face of a `PartitionLog`, for `Store.log`."""
    made = Log.__new__(Log)
    made._begin(partition_log)
    return made


def follow_in_slices(log: Log, slice_ms: float, **options: Any) -> Iterator[pa.RecordBatch | None]:
    """Follows a log for `AsyncLog`: as `Log.follow` without end, with None whenever no record has arrived for `slice_ms`."""
    return log._partition_log.follow_in_slices(slice_ms, **options)
