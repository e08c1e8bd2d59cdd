"""`Log`: one partition. Any number of readers, one writer at a time, no lock between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
from threading import get_ident
from typing import Any

import pyarrow as pa

from pylog import limits
from pylog.clock import Clock
from pylog.config import Durability, TopicConfig
from pylog.errors import ClosedError, InvalidRecordError, ReadOnlyError, RecordTooLargeError
from pylog.fs import process_id
from pylog.log import arguments
from pylog.log.arguments import check_positive, check_scan, is_committed, offset_given
from pylog.log.checking.report import Partition
from pylog.log.current_state import CurrentState
from pylog.log.maintenance import trimmer
from pylog.log.reading import following, lookup, planning, reader
from pylog.log.reading.following import Ends
from pylog.log.reading.lookup import TimeSearch
from pylog.log.reading.outline import outline_of
from pylog.log.recovery.loaded import Source
from pylog.log.state import LogState
from pylog.log.writing import append_batches
from pylog.log.writing.group_commit import Request
from pylog.log.writing.partition_writer import LogContext, PartitionWriter
from pylog.log.writing.refitting import fitted, spliced
from pylog.record.builder import rows_from_arrow, rows_from_record
from pylog.record.decoder import DEFAULT_COLUMNS, RECORD_COLUMNS, record_chunks
from pylog.record.few import Piece
from pylog.record.types import Acknowledgement, Header, OffsetAndTimestamp, ProducerBatch, Record, check_producer_batch


class Log(CurrentState):
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

    def __init__(self, source: Source, clock: Clock, surroundings: LogContext) -> None:
        self._times = TimeSearch()
        super().__init__(source, clock, surroundings)

    def __repr__(self) -> str:
        return f"Log({lookup.name(self.partition)}, offsets {self._state.start_offset} to {self._state.end_offset})"

    @property
    def config(self) -> TopicConfig:
        """The topic's options as they stand, whichever process altered them last. Cost: one small read."""
        return self._source.options.look()

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
        return self._append(now_ms, [rows_from_record(key, value, timestamp, headers, now_ms)], None, durability).offsets.start

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
        return self._append(now_ms, arguments.records_of(items, now_ms), compression, durability).offsets

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
        return self._append(now_ms, list(rows_from_arrow(data, now_ms)), compression, durability).offsets

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
        return self._append(now_ms, arguments.pieces_of(items, now_ms), compression, durability, given, atomic)

    def _append(
        self,
        now_ms: int,
        pieces: list[Piece],
        compression: str | None,
        durability: Durability | None,
        producer: ProducerBatch | None = None,
        atomic: bool = False,
    ) -> Acknowledgement:
        given = now_ms, pieces, compression, durability, producer, atomic
        try:
            request = fitted(self._source.options.now, *given)
        except (InvalidRecordError, RecordTooLargeError):
            if not self._writing_side().agree():
                raise
            request = fitted(self._source.options.now, *given)  # the topic was altered meanwhile
        if not request.pieces:
            self._writing_side()  # one that may not be written refuses an empty append too
            return Acknowledgement(range(end := self.end_offset, end), request.level, duplicate=False)
        return self._settled(request)

    def splice(
        self,
        parts: Sequence[append_batches.BatchRange],
        producer: ProducerBatch | None = None,
        durability: Durability | None = None,
    ) -> Acknowledgement:
        """Appends batches that were finished elsewhere. `writing.append_batches` gives them their offsets."""
        self._check_open()
        return self._settled(spliced(parts, producer, durability, self._source.options.now.durability))

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """The sequence that a producer's next batch has; None if the log remembers none of this epoch."""
        with self._gate:
            return self._writing_side().next_sequence(producer_id, epoch)

    def _settled(self, request: Request) -> Acknowledgement:
        inside, me = self._gate.inside, get_ident()
        inside.append(me)
        try:
            mutator, level = self._mutator, request.level
            if mutator is None or self._gate.is_shut:
                mutator = self._writing_side()  # raises
            if level.interval_ms is not None:
                self._surroundings.flush_every(level.interval_ms, self.flush_behind)
            done = mutator.append(request)
            if request.level is not level and request.level.interval_ms is not None:  # the topic was altered meanwhile
                self._surroundings.flush_every(request.level.interval_ms, self.flush_behind)
            return done
        except Exception as error:
            self._gate.explain(error)
            raise
        finally:
            inside.remove(me)

    def _writing_side(self) -> PartitionWriter:
        self._check_open()
        if self._mutator is None:
            raise ReadOnlyError(f"{self._source.directory} is open for reading; use mode='rw'", path=self._source.directory)
        return self._mutator

    def flush(self) -> None:
        """Makes every record appended so far durable, those of other processes too.

        Raises:
            StorageFailedError: the sync failed; the log takes no more writes until it is opened again.
        """
        with self._gate:
            if self._mutator is not None:
                self._mutator.flush()

    def flush_behind(self) -> None:
        """The same for a background thread: appends go on meanwhile."""
        try:
            with self._gate:
                self._writing_side().flush_behind()
        except ClosedError:
            if not self._gate.is_shut:  # else its close has flushed it
                raise

    def exclusively(self) -> AbstractContextManager[None]:
        """Keeps every other thread and process from changing the log: what is read inside holds for what is appended inside.
        Everybody else waits meanwhile: keep it short, and change no other log there.
        """
        return self._writing_side().exclusively()

    @contextmanager
    def at_rest(self) -> Iterator[bool]:
        """Keeps every other thread and process from changing the log, as `exclusively`. Gives false if one is compacting it."""
        writer = self._writing_side()
        cleaning = self._source.cleaning_lock
        with nullcontext(True) if cleaning is None else cleaning.if_free() as idle, writer.exclusively():
            yield idle

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
        with self._gate:
            return trimmer.delete_records(self._writing_side(), offset_given("before", before))

    def truncate(self, end: int) -> None:
        """Deletes the records from an offset on; the next record gets that offset. Durable when it returns.

        Args:
            end: an offset from the log's start on; at or behind its end nothing happens. Within a batch the whole batch goes, and
                the offsets below `end` that it held are a gap.

        Raises:
            OffsetOutOfRangeError: it lies before the log's start. As `append`.

        Spec: storage-format 6.5.
        """
        with self._gate:
            trimmer.truncate(self._writing_side(), offset_given("end", end))

    # ---- read ----------------------------------------------------------------------------------------------------------------

    def read(self, offset: int) -> Record:
        """The record at an offset; where compaction or a marker left a gap, the next one.

        Raises:
            OffsetOutOfRangeError: before `start_offset`, or at or behind `end_offset`. CorruptionError: its batch is damaged.

        Cost: O(log n) and one batch: some 6 µs from a mapped segment.
        """
        wanted = offset if type(offset) is int and 0 <= offset <= limits.INT64_MAX else offset_given("offset", offset)
        inside, me = self._gate.inside, get_ident()
        inside.append(me)  # what `with self._gate` does, in half the time
        try:
            if self._gate.is_shut:
                raise self._gate.error()  # noqa: TRY301 - this call takes microseconds, and `check` is one more
            is_known = wanted < self._state.end_offset and (self._is_exclusive or not self._may_have_changed())
            state = self._state if is_known else self.look()
            try:
                return lookup.read_one(state, self.partition, wanted)
            except lookup.MAY_PASS:
                return lookup.of_live(self.look, state, partial(lookup.read_one, partition=self.partition, offset=wanted))
        except Exception as error:
            self._gate.explain(error)
            raise
        finally:
            inside.remove(me)

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
        self._check_open()
        committed = check_scan(columns, isolation_level, max_rows)
        state = self.look(committed=committed)
        last = state.stable_offset if committed else state.end_offset
        wanted = lookup.wanted(state, self.partition, start, end, last)
        renew = partial(following.second_look, partial(self.look, committed=committed, settled=True))
        check = following.Continuity(self._current, state).check
        frames = reader.scan(
            state, wanted, columns, committed=committed, max_rows=max_rows, verify=verify, renew=renew, check=check
        )
        return self._gate.steps(frames)

    def records(
        self, start: int | None = None, end: int | None = None, *, isolation_level: str = "read_uncommitted", verify: bool = True
    ) -> Iterator[Record]:
        """The same as `Record` objects, in offset order.

        Raises:
            As `scan`.

        Cost: some 0.2 µs a record.
        """
        frames = self.scan(start, end, columns=RECORD_COLUMNS, isolation_level=isolation_level, verify=verify)
        return chain.from_iterable(self._gate.chunks(record_chunks(frames, *self.partition)))

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
        wanted, committed = offset_given("timestamp", timestamp), is_committed(isolation_level)
        with self._gate:
            state = self.look(committed=committed)
            try:
                return self._times.find(state, wanted, committed=committed)
            except lookup.MAY_PASS:
                find = partial(self._times.find, timestamp=wanted, committed=committed)
                return lookup.of_live(partial(self.look, committed=committed), state, find)

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
        self._check_open()
        ends = Ends(durable=durable)
        return ends.of(following.wait(self.look, self._clock, offset_given("offset", offset), ends, timeout_ms))

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
        self._check_open()
        check_scan(columns, isolation_level, max_rows)  # without reading: another thread or process may truncate meanwhile
        ends = Ends(durable, isolation_level == "read_committed")
        offset = self.end_offset if start is None else self._offset_within(offset_given("start", start))
        scan = partial(self.scan, columns=columns, isolation_level=isolation_level, max_rows=max_rows)
        look = partial(self.look, committed=ends.committed)
        return self._gate.explained(following.follow(look, scan, self._clock, offset, ends, timeout_ms))

    def _offset_within(self, offset: int) -> int:
        state = self.look()
        if offset > state.end_offset:
            state = self.look(settled=True)
        return lookup.wanted(state, self.partition, offset, None, state.end_offset).start

    # ---- planning ------------------------------------------------------------------------------------------------------------

    def size_between(self, start: int, end: int) -> int:
        """About how many bytes the records from `start` to before `end` take. From indexes only: O(log n)."""
        with self._gate:
            return lookup.of_live(self.look, self._current(), lambda state: planning.size_between(outline_of(state), start, end))

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

        def cut(state: LogState) -> list[int]:
            return planning.split_offsets(outline_of(state), start, end, max_bytes)

        with self._gate:
            return lookup.of_live(self.look, self._current(), cut)

    # ---- integrity -----------------------------------------------------------------------------------------------------------

    def as_partition(self, *, quiet: bool) -> Partition:
        """The log as it is now, for `Store.check` and `Store.verify`.

        Args:
            quiet: no other process has it open for writing.
        """
        state = self.look(settled=True)  # a report compares the state with the files
        writer = None if self._mutator is None else self._mutator.writer
        slot = self._follower.slot if writer is None else writer.header.slot
        known = slot is not None and slot.epoch == state.epoch and slot.published_position == state.active_size
        return Partition(
            self._source.fs,
            self.partition,
            self._source.directory,
            state,
            self._source.writable,
            quiet,
            self.recovery_report,
            (slot.published_position, slot.header_digest) if slot is not None and known else None,
            self._source.compacted_to,
        )

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flushes and closes. Returns whether the partition is left as after a clean shutdown. Its store does this.

        Raises:
            StorageFailedError: the last sync failed.
        """
        if process_id() != self._pid:
            return False
        self._gate.shut()
        with self._lock:
            if self._closed:
                return True
            self._closed = True
            try:
                return True if self._mutator is None else self._mutator.close()
            finally:
                self._follower.close()
                for segment in self._state.segments.values():
                    segment.close()
