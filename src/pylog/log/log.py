"""`Log`: one partition. Any number of readers, one writer at a time, no lock between them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pylog import fs as files
from pylog import limits
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import ClosedError, CorruptionError, InvalidArgumentError, OffsetOutOfRangeError, ReadOnlyError
from pylog.index.skiplist import SkipList
from pylog.log import lookup, planning, reader
from pylog.log.loader import Loaded, Source, load, producers_at_end
from pylog.log.lookup import TimeSearch
from pylog.log.reader import Wanted
from pylog.log.recovery import Finding
from pylog.log.state import LogState
from pylog.log.writer import LogWriter
from pylog.record.ahead import one_ahead
from pylog.record.builder import BatchEncoder, Rows, rows_from_arrow, rows_from_records, size_bound
from pylog.record.compression import codec_id
from pylog.record.decoder import DEFAULT_COLUMNS, RECORD_COLUMNS, records_of, schema_of
from pylog.record.types import Header, OffsetAndTimestamp, Record
from pylog.segment.segment import LogSegment

ISOLATIONS = ("read_uncommitted", "read_committed")


class Log:
    """One partition of a topic: an ordered list of segments. Got from `Store.log`, closed with its store.

    Every method may be called from any thread.

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

    def __init__(
        self, source: Source, clock: Clock, durability: Durability, before_first_write: Callable[[], None] = lambda: None
    ) -> None:
        self.partition = source.partition
        self.config = source.config
        self._source = source
        self._clock = clock
        self._durability = durability
        self._before_first_write = before_first_write
        self._lock = threading.RLock()
        self._closed = False
        self._pid = files.process_id()
        self._times = TimeSearch()
        self._encoders: dict[int, BatchEncoder] = {}
        self._loaded = load(source)
        self._state = _first_state(self._loaded)
        self._writer: LogWriter | None = None  # made for the first write
        self._stable_known = self._loaded.producers is not None

    def __repr__(self) -> str:
        return f"Log({lookup.name(self.partition)}, offsets {self.start_offset} to {self.end_offset})"

    def _publish(self, state: LogState) -> None:
        self._state = state

    # ---- ends ----------------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The smallest offset that can be read."""
        return self._state.start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get."""
        return self._state.end_offset

    @property
    def durable_offset(self) -> int:
        """All records below outlive a power loss."""
        return self._state.durable_offset

    @property
    def stable_offset(self) -> int:
        """Where `read_committed` reading ends: before the earliest open transaction (storage-format 6.7.2)."""
        return self._committed_state().stable_offset

    @property
    def was_written(self) -> bool:
        """Whether anything was appended since the log was opened."""
        return self._writer is not None

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The log's segments, oldest first."""
        return tuple(segment for _, segment in self._state.segments)

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """What was found when the log was opened: a torn tail, damage, derived files that had to be made again."""
        return tuple(self._loaded.findings)

    def _committed_state(self) -> LogState:
        """The state with its open transactions known. A log opened for reading finds them when they are first asked for."""
        if not self._stable_known:
            with self._lock:
                if not self._stable_known:
                    producers, _ = producers_at_end(self._source.fs, self._source.directory, self._loaded)
                    self._state = dataclasses.replace(self._state, first_unstable_offset=producers.first_unstable_offset)
                    self._stable_known = True
        return self._state

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
            InvalidRecordError, RecordTooLargeError: nothing was written.
            ReadOnlyError, ClosedError, CorruptionError: the log takes no writes.
            StorageFailedError: the record is not acknowledged.

        Cost: one write, and at `Durability.SYNC` one fdatasync.
        """
        rows = rows_from_records([key], [value], [timestamp], [headers] if headers else None, self._clock.now_ms())
        return self._append([rows], None, durability).start

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

        Cost: about 0.1 µs a record of plain values, on top of the write.
        """
        if isinstance(items, str | bytes | dict) or not isinstance(items, Sequence):
            raise InvalidArgumentError(f"append_many takes a list of records, not {type(items).__name__}")
        if not items:
            return range(self.end_offset, self.end_offset)
        return self._append([_rows_of(items, self._clock.now_ms())], compression, durability)

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
        return self._append(list(rows_from_arrow(data, self._clock.now_ms())), compression, durability)

    def _append(self, pieces: list[Rows], compression: str | None, durability: Durability | None) -> range:
        if durability is not None and not isinstance(durability, Durability):
            raise InvalidArgumentError(f"durability={durability!r} is not a pylog.Durability")
        encoder = self._encoder(compression)
        for rows in pieces:
            encoder.check(rows)
        with self._lock:
            self._check_writable()
            if not pieces:
                return range(self.end_offset, self.end_offset)
            writer = self._ready_writer()
            encoded = self._encoded(encoder, pieces, writer)
            size = sum(map(size_bound, pieces))
            if size <= limits.APPEND_CHUNK_BYTES:
                return writer.append(encoded, durability, size)
            with one_ahead(encoded) as ahead:
                return writer.append(ahead, durability, size)

    def _encoded(self, encoder: BatchEncoder, pieces: list[Rows], writer: LogWriter) -> Iterator[Any]:
        """All pieces' batches, with offsets from the log's end on."""
        now_ms = self._clock.now_ms() if self.config.log_append_time else None
        offset = writer.state.end_offset
        for rows in pieces:
            stamped = rows if now_ms is None else rows.stamped(now_ms)
            yield from encoder.encode(stamped, offset, writer.leader_epoch)
            offset += len(rows)

    def _encoder(self, compression: str | None) -> BatchEncoder:
        """The encoder for a codec, under the lock that guards its buffers."""
        name = self.config.codec if compression is None else compression
        codec = codec_id(name)
        with self._lock:
            if codec not in self._encoders:
                self._encoders[codec] = BatchEncoder(
                    codec,
                    self.config.level(name),
                    log_append_time=self.config.log_append_time,
                    max_message_bytes=min(self.config.max_message_bytes, self.config.segment_bytes),
                )
            return self._encoders[codec]

    def _check_writable(self) -> None:
        self._check_open()
        directory = self._source.directory
        if not self._source.writable:
            raise ReadOnlyError(f"{directory} is open for reading; open the store with mode='rw'", path=directory)
        found = self._loaded.corrupt
        if found is not None:
            raise CorruptionError(
                f"{found.message}; the partition is open for reading only until that is repaired",
                path=found.path,
                position=found.position,
                offset=found.offset,
                next_offset=found.next_offset,
            )

    def _ready_writer(self) -> LogWriter:
        """The writer, made for the first write. What it makes ready is kept from then on."""
        self._before_first_write()
        if self._writer is None:
            self._writer = LogWriter(self._source, self._loaded, self._state, self._publish, self._clock, self._durability)
        return self._writer

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{lookup.name(self.partition)} is closed; open its store again", path=self._source.directory)
        if files.process_id() != self._pid:
            raise ClosedError("a store does not live on in a forked process; open it there again", path=self._source.directory)

    def flush(self) -> None:
        """Makes every record appended so far durable.

        Raises:
            StorageFailedError: the sync failed; the log takes no more writes until it is opened again.
        """
        self._check_open()
        with self._lock:
            if self._source.writable and self._loaded.corrupt is None and self.durable_offset < self.end_offset:
                self._ready_writer().flush()  # also what a process that died had not synced

    # ---- read ----------------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> Record:
        """The record at an offset; where compaction or a marker left a gap, the next one.

        Raises:
            OffsetOutOfRangeError: before `start_offset`, or at or behind `end_offset`.
            CorruptionError: the record's batch is not what was written.

        Cost: O(log n) and one batch: some 6 µs from a mapped segment.
        """
        self._check_open()
        return lookup.read_one(self._state, self.partition, _offset("offset", offset))

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation: str = "read_uncommitted",
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
            isolation: `read_committed` hides aborted and open transactions.
            max_rows: of one Arrow batch.
            verify: check each batch's CRC.

        Raises:
            OffsetOutOfRangeError, InvalidArgumentError: at once.
            CorruptionError: while iterating, after everything before the damage; its `next_offset` is where to go on.

        Cost: tens of millions of records a second; memory for one Arrow batch.
        """
        self._check_open()
        if isolation not in ISOLATIONS:
            raise InvalidArgumentError(f"isolation={isolation!r} is not one of {', '.join(ISOLATIONS)}")
        if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1:
            raise InvalidArgumentError(f"max_rows={max_rows!r} is not a positive int")
        schema_of(columns)  # a wrong choice is an error now, not at the first batch
        committed = isolation == "read_committed"
        state = self._committed_state() if committed else self._state
        wanted = self._wanted(state, start, end, state.stable_offset if committed else state.end_offset)
        return reader.scan(state, wanted, columns, committed=committed, max_rows=max_rows, verify=verify)

    def _wanted(self, state: LogState, start: int | None, end: int | None, last: int) -> Wanted:
        first = state.start_offset if start is None else _offset("start", start)
        stop = last if end is None else _offset("end", end)
        if not state.start_offset <= first <= state.end_offset:
            raise lookup.out_of_range(state, self.partition, first)
        if stop > state.end_offset:
            raise lookup.out_of_range(state, self.partition, stop)
        return Wanted(first, min(stop, last))

    def records(
        self, start: int | None = None, end: int | None = None, *, isolation: str = "read_uncommitted", verify: bool = True
    ) -> Iterator[Record]:
        """The same as `Record` objects, in offset order.

        Raises:
            As `scan`.

        Cost: some 0.2 µs a record.
        """
        frames = self.scan(start, end, columns=RECORD_COLUMNS, isolation=isolation, verify=verify)
        return chain.from_iterable(self._record_chunks(frames))

    def _record_chunks(self, frames: Iterator[pa.RecordBatch]) -> Iterator[list[Record]]:
        """Lists of records, few enough at a time to stay in the processor's cache."""
        for frame in frames:
            for first in range(0, frame.num_rows, limits.RECORD_CHUNK_ROWS):
                yield records_of(frame.slice(first, limits.RECORD_CHUNK_ROWS), *self.partition)

    def offset_for_timestamp(self, timestamp: int, *, isolation: str = "read_uncommitted") -> OffsetAndTimestamp | None:
        """The first record with `timestamp` or a later one, as Kafka's `offsetsForTimes` answers (storage-format 5.8).

        Args:
            timestamp: milliseconds since 1970.
            isolation: under `read_committed` an answer at or behind the stable offset is None.

        Returns:
            Its offset, timestamp and leader epoch, or None. Where Kafka finds nothing only because a segment has no time index
            entries, the true first record.

        Raises:
            CorruptionError: a batch that had to be looked at is damaged.

        Cost: O(log n) and one batch.
        """
        self._check_open()
        if isolation not in ISOLATIONS:
            raise InvalidArgumentError(f"isolation={isolation!r} is not one of {', '.join(ISOLATIONS)}")
        state = self._committed_state() if isolation == "read_committed" else self._state
        found = self._times.find(state, _offset("timestamp", timestamp))
        last = state.stable_offset if isolation == "read_committed" else state.end_offset
        return found if found is not None and found.offset < last else None

    # ---- planning ------------------------------------------------------------------------------------------------------------

    def size_between(self, start: int, end: int) -> int:
        """About how many bytes the records from `start` to before `end` take. From indexes only: O(log n)."""
        self._check_open()
        return planning.size_between(self._state, start, end)

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
        self._check_open()
        if max_bytes < 1:
            raise InvalidArgumentError(f"max_bytes={max_bytes} is not positive")
        return planning.split_offsets(self._state, start, end, max_bytes)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flushes and closes. Returns whether the partition is left as after a clean shutdown. Its store does this.

        Raises:
            StorageFailedError: the last sync failed.
        """
        with self._lock:
            if self._closed:
                return True
            self._closed = True
            if files.process_id() != self._pid:
                return False
            try:
                return self._loaded.sound if self._writer is None else self._writer.close()
            finally:
                for segment in self.segments:
                    segment.close()


def _first_state(loaded: Loaded) -> LogState:
    """The state of a log as it was found."""
    active = loaded.segments[-1] if loaded.segments else None
    if active is not None:
        active.builder = loaded.builder
    unstable = loaded.producers.first_unstable_offset if loaded.producers is not None else None
    segments = SkipList([(segment.base_offset, segment) for segment in loaded.segments])
    return LogState(segments, active, loaded.end, loaded.start_offset, loaded.next_offset, loaded.durable_offset, unstable)


def _offset(name: str, given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not -limits.INT64_MAX <= given <= limits.INT64_MAX:
        raise InvalidArgumentError(f"{name}={given!r} is not an int")
    if given < 0:
        error = OffsetOutOfRangeError if name != "timestamp" else InvalidArgumentError
        raise error(f"{name}={given} is negative")
    return int(given)


def _rows_of(items: Sequence[Any], now_ms: int) -> Rows:
    """Columns from a list of values, pairs, triples or quadruples."""
    if all(isinstance(item, bytes) or item is None for item in items):
        return rows_from_records(None, items, None, None, now_ms)
    keys, values, headers, timestamps = [], [], [], []
    for item in items:
        fields = (None, item) if isinstance(item, bytes) or item is None else item
        if not isinstance(fields, tuple) or not 2 <= len(fields) <= 4:
            raise InvalidArgumentError("a record is a value (bytes or None) or a tuple (key, value[, headers[, timestamp]])")
        key, value, pairs, stamp = (*fields, None, None)[:4]
        keys.append(key)
        values.append(value)
        headers.append(pairs or ())
        timestamps.append(stamp)
    return rows_from_records(keys, values, timestamps, headers if any(headers) else None, now_ms)
