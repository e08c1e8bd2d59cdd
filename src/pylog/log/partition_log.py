"""`PartitionLog`: the engine of one partition, like Kafka's UnifiedLog. Any number of readers, one writer at a time.

It owns the state that readers see. While this process writes, its `PartitionWriter` publishes each new state; until then a
`Follower` adds the appends of other processes. Everything inside pylog reads and appends through this class; `pylog.log.log.Log`
documents the part of it that users need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from threading import get_ident
from typing import TypeVar

from pylog.clock import Clock
from pylog.config import Durability, TopicConfig
from pylog.directory.topic_names import INTERNAL_TOPICS, internal_topic
from pylog.errors import (
    ClosedError,
    InvalidRecordError,
    PylogError,
    ReadOnlyError,
    RecordTooLargeError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import Gate, process_id
from pylog.log.checking.report import Partition
from pylog.log.maintenance import trimmer
from pylog.log.maintenance.cleaning_round import Task, log_to_clean_of
from pylog.log.maintenance.compaction_policy import LogToClean
from pylog.log.maintenance.log_tiers import LogTiers
from pylog.log.maintenance.throttler import Throttle
from pylog.log.maintenance.trimming import Retained, planned
from pylog.log.reading import lookup
from pylog.log.reading.queries import Queries
from pylog.log.reading.refresher import Refresher
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.loaded import Source
from pylog.log.recovery.loading_lines import trace_tier
from pylog.log.state import LogState
from pylog.log.writing import flushing
from pylog.log.writing.append_batches import BatchRange
from pylog.log.writing.partition_writer import LogContext, PartitionWriter
from pylog.log.writing.refitting import fitted, spliced
from pylog.log.writing.requests import Request
from pylog.log.writing.undecided import OpenProducers, open_from, open_producers_now
from pylog.metrics import Counters, FetchCounters
from pylog.record.few import Piece
from pylog.record.types import Acknowledgement, ProducerBatch
from pylog.urls import how_to_write

T = TypeVar("T")


class PartitionLog:
    """One partition of a topic, open in this process. Every method may be called from any thread.

    Args:
        source: the partition.
        clock: for timestamps and for waiting.
        context: the callbacks to the log's owner.

    Attributes:
        partition, directory, clock: the topic and the number, the partition's directory, and the given clock.
        counters, fetches: counts of what this process did to the log, and of what its consumers fetched.
        tiers: its archived segments.
        known: the last published state, without a refresh.
        public: the `Log` over this one, which its store keeps here, so that it goes with it.
        read, read_many, scan, records, follow, follow_in_slices, wait_for, offset_for_timestamp, size_between, split_offsets,
            answer: the methods of the log's `Queries`.
    """

    def __init__(self, source: Source, clock: Clock, context: LogContext) -> None:
        self.partition, self.directory, self.clock = source.partition, source.directory, clock
        self.counters, self.fetches = Counters(), FetchCounters()
        self._source, self._context = source, context
        self._is_exclusive, self._is_internal = context.exclusive, source.partition.topic in INTERNAL_TOPICS
        self.public: object | None = None
        self._gate = Gate(lookup.name(source.partition), source.directory, again="its store")
        self._closed, self._pid = False, process_id()
        self.known: LogState
        self.tiers = LogTiers(source, self)
        self._writer: PartitionWriter | None = None
        if source.writable:
            self._writer = PartitionWriter(source, clock, self._publish, context, self.counters, self._gate.check)
        self._refresher = Refresher(source, clock, self._writer, self._publish, lambda: self.known, self.tiers.shown)
        if self._writer is None:
            context.found(self._refresher.follower.loaded.findings)
        elif self._writer.writer is not None:
            self._publish(self._writer.writer.state)
        queries = Queries(self.partition, clock, self._gate, self, source)
        self.read, self.scan, self.records, self.follow = queries.read, queries.scan, queries.records, queries.follow
        self.follow_in_slices = queries.follow_in_slices
        self.answer, self.wait_for, self.offset_for_timestamp = queries.answer, queries.wait_for, queries.offset_for_timestamp
        self.size_between, self.split_offsets, self.read_many = queries.size_between, queries.split_offsets, queries.read_many
        trace_tier(self.partition, self.known.remote_offsets)

    def __repr__(self) -> str:
        return f"PartitionLog({lookup.name(self.partition)}, offsets {self.known.start_offset} to {self.known.end_offset})"

    def _publish(self, state: LogState) -> None:
        self.known = state if state.remote_start is None else self.tiers.shown(state)

    @property
    def config(self) -> TopicConfig:
        """The topic's options now, even if another process altered them last. Cost: one small read."""
        return self._source.options.read()

    @property
    def is_deleted(self) -> bool:
        """Whether this process or another one has deleted the partition."""
        return self._gate.is_deleted or self._refresher.is_deleted

    @property
    def must_reopen(self) -> bool:
        """Whether the partition was deleted, and the store should open another log if one of this name exists again.

        Not if its directory was replaced while it was open: it then takes no writes until the store is closed.
        """
        return self.is_deleted and (self._writer is None or self._writer.source.held.failure is None)

    def was_deleted(self) -> bool:
        """Checks now whether the partition was deleted, and the store can release this log. Cost: one small read."""
        if not self.is_deleted:
            with suppress(PylogError):  # of another kind: the next caller gets it
                self.snapshot()
        return self.must_reopen

    def check_names(self) -> None:
        """Raises DirectoryReplacedError if the log's names lead to other files than those that it has open for writing."""
        if self._writer is not None:
            with self._gate, self._writer.locked():
                self._writer.check_names()

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """The findings from loading the log: a torn tail, damage, rebuilt derived files."""
        return tuple((self._writer or self._refresher.follower).loaded.findings)

    # ---- state ---------------------------------------------------------------------------------------------------------------

    def snapshot(self, *, committed: bool = False, wait: bool = False, at_least: int | None = None) -> LogState:
        """Refreshes the state and returns it. A change that this process is making is not included.

        Args:
            committed: also find the open transactions.
            wait: wait for the end of a change that this process or another one is making.
            at_least: an offset; if the known state reaches it, it is returned without a refresh.

        Cost: one pread if nothing has changed.
        """
        inside, me = self._gate.inside, get_ident()
        inside.append(me)  # what `with self._gate` does, in half the time
        try:
            if self._gate.is_shut:
                raise self._gate.error()  # noqa: TRY301 - `check` is one more call for every append and read
            reached = at_least is not None and at_least <= self.known.end_offset
            if (reached and not committed) or (self._is_exclusive and not wait):
                return self.known
            return self._refresher.state(wait=wait, committed=committed)
        except Exception as error:
            self._gate.explain(error)
            raise
        finally:
            inside.remove(me)

    def open_producers(self) -> OpenProducers:
        """Returns the producers with an open transaction, by the first offsets of these. Cost: one pread if there is none."""
        if self.snapshot(committed=True).first_unstable_offset is None:
            return []
        with self._gate:
            return self._refresher.open_producers() if self._writer is None else open_producers_now(self._writer)

    def may_have_changed(self) -> bool:
        """Returns whether another process may have changed the log since the state was published. Takes no lock."""
        return not self._is_exclusive and self._refresher.may_have_changed()

    @property
    def start_offset(self) -> int:
        """The smallest offset that can be read here. Cost: one pread."""
        return self.snapshot().start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record will get. Cost: one pread."""
        writer = None if self._writer is None or self._is_exclusive or self._gate.is_shut else self._writer.writer
        try:
            is_same = writer is not None and not (writer.header.changed() or writer.is_catching_up)
        except StorageFailedError:  # closed by another thread
            is_same = False
        return self.known.end_offset if is_same else self.snapshot().end_offset

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(
        self,
        now_ms: int,
        pieces: list[Piece],
        compression: str | None = None,
        durability: Durability | str | None = None,
        producer: ProducerBatch | None = None,
        atomic: bool = False,
        *,
        by_owner: bool = False,
        check: Callable[[], object] | None = None,
    ) -> Acknowledgement:
        """Appends rows: one acknowledgement, one sync.

        Args:
            now_ms: the wall clock when the rows were created, in milliseconds.
            pieces: the rows.
            compression, durability: None is the topic's.
            producer: the numbers of the batch; None without idempotence.
            atomic: true if the rows must form one batch.
            by_owner: true if the caller is the part of pylog that owns this internal topic.
            check: called under the partition's lock before the write; if it raises, nothing is appended.

        Raises:
            As `Log.append_batch`.
        """
        if self._is_internal and not by_owner:
            raise internal_topic(self.partition.topic, self.directory)
        source = self._source
        try:
            request = fitted(source.options.now, now_ms, pieces, compression, durability, producer, atomic)
        except (InvalidRecordError, RecordTooLargeError):
            if not self.writer().agree():
                raise
            options = source.options.now  # the topic was altered meanwhile
            request = fitted(options, now_ms, pieces, compression, durability, producer, atomic)
        if not request.pieces:
            self.writer()  # a log that accepts no writes also refuses an empty append
            end = self.end_offset
            return Acknowledgement(range(end, end), request.level, duplicate=False)
        request.check = check
        return self.commit(request)

    def append_batches(
        self, parts: Sequence[BatchRange], producer: ProducerBatch | None = None, durability: Durability | str | None = None
    ) -> Acknowledgement:
        """Appends finished batches. `writing.append_batches` assigns their offsets."""
        self._gate.check()
        if self._is_internal:
            raise internal_topic(self.partition.topic, self.directory)
        return self.commit(spliced(parts, producer, durability, self._source.options.now.durability))

    def commit(self, request: Request) -> Acknowledgement:
        """Lets the writer commit a request, also to an internal topic."""
        inside, me = self._gate.inside, get_ident()
        inside.append(me)
        try:
            writer, level = self._writer, request.level
            if writer is None or self._gate.is_shut:
                writer = self.writer()  # raises
            if level.interval_ms is not None:
                self._context.flush_every(level.interval_ms, self.flush_in_background)
            done = writer.append(request)
            if request.level is not level and request.level.interval_ms is not None:  # the topic was altered meanwhile
                self._context.flush_every(request.level.interval_ms, self.flush_in_background)
            return done
        except Exception as error:
            self._gate.explain(error)
            self._context.explain(error)
            raise
        finally:
            inside.remove(me)

    def writer(self) -> PartitionWriter:
        """Returns the writer of the partition, for retention and compaction. Raises ReadOnlyError, ClosedError."""
        self._gate.check()
        if self._writer is None:
            raise ReadOnlyError(f"{self.directory} is open for reading; {how_to_write(self.directory)}", path=self.directory)
        return self._writer

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Returns the sequence of a producer's next batch; None if the log has no batch of this epoch."""
        with self._gate, self.writer().current() as writer:
            return writer.producers.next_sequence(producer_id, epoch)

    def exclusively(self) -> AbstractContextManager[None]:
        """Locks the log against changes by others, so that a read and an append can be one step. As `Log.exclusively`."""
        return self.writer().exclusively()

    @contextmanager
    def at_rest(self) -> Iterator[bool]:
        """Locks the log against changes, as `exclusively`. Yields False if it is being compacted."""
        writer = self.writer()
        cleaning = self._source.cleaning_lock
        with nullcontext(True) if cleaning is None else cleaning.if_free() as idle, writer.exclusively():
            yield idle

    def flush(self) -> None:
        """Makes every record appended so far durable, including those of other processes. Raises as `Log.flush`."""
        with self._gate:
            if self._writer is not None:
                flushing.flush(self._writer)

    def flush_in_background(self) -> None:
        """Flushes in a background thread, while appends continue."""
        try:
            with self._gate:
                flushing.flush_in_background(self.writer())
        except (ClosedError, UnknownTopicOrPartitionError):
            if not self._gate.is_shut:  # otherwise `close` has flushed it
                raise

    # ---- changes of segments -------------------------------------------------------------------------------------------------

    def freeing(self, action: Callable[[], T], first: Callable[[], object] | None = None) -> T:
        """Runs an action that frees room on the disk, even if there is none. The deleted files are removed when it returns."""
        done: T = self._context.freeing(partial(self._swept, action), first and partial(self._swept, first))
        return done

    def _swept(self, action: Callable[[], T]) -> T:
        done = action()
        self.writer().sweep()
        return done

    def delete_records(self, before: int) -> int:
        """Deletes the records below an offset and returns the log start. Raises as `Log.delete_records`."""
        if self._is_internal:
            raise internal_topic(self.partition.topic, self.directory)
        with self._gate:
            given = self.writer(), before
            with self.tiers.raising_start(before):
                return self.freeing(partial(trimmer.delete_records, *given), partial(trimmer.delete_segments, *given))

    def truncate(self, end: int) -> None:
        """Deletes the records from an offset on. Raises as `Log.truncate`."""
        if self._is_internal:
            raise internal_topic(self.partition.topic, self.directory)
        with self._gate:
            writer = self.writer()
            with self.tiers.truncating(end):
                self.freeing(partial(trimmer.truncate, writer, end), partial(trimmer.truncate_segments, writer, end))

    def retain(self, now_ms: int, group: str | None, committed: int | None, *, dry_run: bool = False) -> Retained | None:
        """Deletes the segments that retention does not keep, or plans to. Returns None if the topic waits for another group.

        Args:
            now_ms: the wall clock, in milliseconds.
            group, committed: the retention group and its committed offset; None without one.
            dry_run: true to write nothing.
        """
        with self._gate.explaining():  # `close` waits for the partition's lock, not for the gate
            if not dry_run:
                return self.tiers.retain(now_ms, group, committed)
            config, kept = self.config, open_from(self.open_producers(), now_ms)
            plan = self.answer(lambda state: planned(self._source, state, now_ms, committed, config, kept))
            return plan if config.retention_group == group else None

    def cleaning(self, throttle: Throttle, buffer_size: int, now_ms: int) -> Task:
        """Returns the log as a compaction `Task`. Raises as `writer`."""
        refreshed = partial(self.snapshot, committed=True, wait=True)
        return Task(self.writer(), self._source, refreshed, throttle, buffer_size, now_ms, self._gate.explaining)

    def to_clean(self) -> LogToClean:
        """Returns what compaction has cleaned, and what it can clean now. Raises as `read`."""
        return self.answer(lambda state: log_to_clean_of(state, self._source, self.clock.now_ms()), committed=True)

    # ---- checks ----------------------------------------------------------------------------------------------------------------

    def for_checks(self, *, quiet: bool) -> Partition:
        """Returns the current log for `Store.check` and `Store.verify`.

        Args:
            quiet: true if no other process has it open for writing.
        """
        seen = self.snapshot(wait=True)
        mine, state = self._source, seen.local or seen  # a report compares the state with the files
        writer = None if self._writer is None else self._writer.writer
        slot = self._refresher.follower.slot if writer is None else writer.header.slot
        known = slot is not None and slot.epoch == state.epoch and slot.published_position == state.active_size
        ends = (slot.published_position, slot.header_digest) if slot is not None and known else None
        found = self.recovery_report, ends, mine.compacted_to
        both, start = seen.local and seen, 0 if slot is None or mine.tier() is None else slot.log_start_offset
        return Partition(
            mine.fs, self.partition, self.directory, state, mine.writable, quiet, *found, both=both, tiered_start=start
        )

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self, *, deleted: bool = False) -> bool:
        """Flushes and closes. Returns whether the partition is left as after a clean shutdown.

        Args:
            deleted: true if its topic is being deleted. Calls then raise UnknownTopicOrPartitionError, not ClosedError.

        Raises:
            StorageFailedError: the last sync failed.
        """
        if process_id() != self._pid:
            return False
        self._gate.shut(f"{self.directory} no longer exists: its topic was deleted meanwhile" if deleted else None)
        with self._refresher.lock:
            if self._closed:
                return True
            self._closed = True
            try:
                return True if self._writer is None else self._writer.close()
            finally:
                self._refresher.close()
                for segment in self.known.segments.values():
                    segment.close()
