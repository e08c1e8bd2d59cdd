"""Compaction of one log: of each key the last record stays (storage-format 7). `compaction` has the policy, `replacing` the swap.

A round reads the dirty section once and notes each key's last record, as far as memory goes; then it copies all segments from the
log's first up to there, without what is superseded, and puts each finished group in the place of its sources. It runs beside
appends and readers: it holds the partition's cleaning lock, and the partition's own only for a look before, and for each swap.

What is dropped is always superseded by a record in a sealed segment, which is synced. Groups are swapped in the order of their
offsets, so whatever is missing after a crash was superseded by something that is still there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits, trace
from pylog.clock import Clock
from pylog.errors import (
    ClosedError,
    CorruptionError,
    IllegalStateError,
    PylogError,
    StorageFailedError,
    StoreLockedError,
    UnknownTopicOrPartitionError,
)
from pylog.index.files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.maintenance import compaction_policy
from pylog.log.maintenance.compaction_policy import CompactableSegment, LogToClean, SegmentExtent
from pylog.log.maintenance.segment_swap import CleanedSegment
from pylog.log.options import Options
from pylog.log.producer_state import Producer, control_record
from pylog.log.reading.reader import OffsetRange, TransactionOutcomes, placed
from pylog.log.recovery.loaded import Source
from pylog.log.state import LogState
from pylog.log.writing.partition_writer import PartitionWriter
from pylog.log.writing.writer import LogWriter
from pylog.record.ahead import one_ahead
from pylog.record.batch import Bytes, Table
from pylog.record.compacting import F_CONTROL, F_DISCARD, F_NO_HORIZON, F_RETAIN, F_STAMP, F_TOMBSTONES_GO
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CONTROL_ABORT,
    CONTROL_BIT,
    COUNT,
    DELETE_HORIZON_BIT,
    LAST_OFFSET,
    MAGIC,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.record.key_map import KeyMap
from pylog.record.survivors import Judgement, Survivors
from pylog.record.types import TopicPartition
from pylog.segment.age import begun, is_older
from pylog.segment.batch_walk import Damage, WalkedRange, walk
from pylog.segment.segment import LogSegment, vanished

_OLD_RECORD_BYTES: Final = 8  # of batches that do not say how many records they have: compressed ones take less than plain ones


class Compaction(NamedTuple):
    """What a compaction did.

    Attributes:
        partition: of which log.
        first_dirty, end: it was clean up to the one offset before, and is up to the other one now.
        records, kept: how many it read, over all rounds, and how many of them stayed.
        read, written: bytes of the segments that it copied.
        rounds: how often it went over the log; more than once when its memory did not hold all keys.
    """

    partition: TopicPartition
    first_dirty: int
    end: int
    records: int = 0
    kept: int = 0
    read: int = 0
    written: int = 0
    rounds: int = 0


class Throttle:
    """Holds all compactions of a store to one rate together, and ends them when the store closes. Thread-safe.

    Args:
        clock: for waiting.
        rate: bytes a second, read and written; None is as fast as it goes. Time in which nothing is compacted is not made up for.
        ended: whether the store is being closed.
    """

    def __init__(self, clock: Clock, rate: float | None, ended: Callable[[], bool]) -> None:
        self._clock = clock
        self._rate = rate
        self._ended = ended
        self._guard = threading.Lock()
        self._paid = clock.monotonic()  # when the bytes of all threads so far may have passed

    def passed(self, size: int) -> None:
        """Takes note of some bytes, and waits until they may have passed.

        Raises:
            ClosedError: the store is being closed.
        """
        due = self._due(size)
        while True:
            if self._ended():
                raise ClosedError("the store is closed while it is compacted; what is not swapped in is given up")
            early = due - self._clock.monotonic()
            if early <= 0:
                return
            self._clock.sleep(min(early, 0.1))

    def _due(self, size: int) -> float:
        """When some bytes of this thread may have passed, after those of all threads that came before."""
        now = self._clock.monotonic()
        if self._rate is None:
            return now
        with self._guard:
            self._paid = max(self._paid, now) + size / self._rate
            return self._paid


@dataclass(frozen=True)
class Task:
    """One log to be compacted.

    Attributes:
        mutator, source: the log's.
        refresh: gives its state now.
        throttle: holds the work to a rate.
        buffer_size: bytes for the keys of one round.
        now_ms: the wall clock, in milliseconds.
    """

    mutator: PartitionWriter
    source: Source
    refresh: Callable[[], LogState]
    throttle: Throttle
    buffer_size: int
    now_ms: int


def clean(task: Task) -> Compaction:
    """Compacts all of a log that can be, in as many rounds as it takes.

    Raises:
        StoreLockedError: another process or thread is at it, for longer than the store waits.
        CorruptionError: a segment is damaged: it stays as it is, and those behind it too.
        StorageFailedError: there is no room for the copy (nothing has changed then), or the swap failed.
        UnknownTopicOrPartitionError: the partition was deleted meanwhile.
        IllegalStateError: the first part of the log is in a broker's remote tier.
        ClosedError: the store is being closed.

    When records are cut off or deleted meanwhile it ends early. Cost: two passes over the dirty section and one over the rest.
    """
    assert task.source.cleaning_lock is not None
    with trace.HELD, task.source.cleaning_lock.entered():
        return _clean(task)


def clean_due(tasks: Iterable[Task], spoiled: set[TopicPartition]) -> list[Compaction]:
    """Compacts the logs that are dirty enough, or dirty for too long, the filthiest first (storage-format 7.3).

    Args:
        tasks: the logs.
        spoiled: those that are damaged, or take no writes any more: they are left out, and noted here.

    Raises:
        What the first of those that failed raised, when all others are done.

    A log that another process or thread is compacting is left to it.
    """
    errors: list[PylogError] = []
    found = []
    for task in _due([task for task in tasks if task.source.partition not in spoiled]):
        assert task.source.cleaning_lock is not None
        with trace.HELD, task.source.cleaning_lock.if_free() as free:
            try:
                found += [_clean(task)] if free else []
            except UnknownTopicOrPartitionError:
                continue  # deleted meanwhile
            except IllegalStateError as error:  # nothing is wrong with the log
                _leave(task, spoiled, error)
            except PylogError as error:
                errors.append(error)
                if not isinstance(error, StorageFailedError | StoreLockedError):  # those may pass
                    _leave(task, spoiled, error)
    if errors:
        raise errors[0]
    return found


def _leave(task: Task, spoiled: set[TopicPartition], error: PylogError) -> None:
    spoiled.add(task.source.partition)
    trace.later(trace.UNCLEANABLE, task.source.partition, error=str(error))


def _due(tasks: list[Task]) -> list[Task]:
    """Those that are due, the filthiest first. What goes while it is looked at is not, now."""
    due = []
    for task in tasks:
        try:
            task.mutator.agree()
            dirt = dirt_of(task.refresh(), task.source, task.now_ms)
        except UnknownTopicOrPartitionError:
            continue
        except StorageFailedError as error:
            if vanished(error):
                continue
            raise
        if dirt.is_due(task.source.config):
            due.append((dirt.ratio, task))
    return [task for _, task in sorted(due, key=lambda pair: -pair[0])]


def _clean(task: Task) -> Compaction:
    try:
        return _clean_in_rounds(task)
    except PylogError as error:
        trace.later(trace.CLEANING_ENDED, task.source.partition, reason=str(error))
        if isinstance(error, StorageFailedError) and vanished(error):
            with contextlib.suppress(ClosedError, CorruptionError, StorageFailedError, _ChangedError):
                _view(task)  # raises that the partition was deleted meanwhile, if that is why
        raise


def _clean_in_rounds(task: Task) -> Compaction:
    try:
        view = _view(task)
    except _ChangedError:
        start = task.refresh().start_offset
        return Compaction(task.source.partition, start, start)
    done = Compaction(task.source.partition, view.dirt.first_dirty, view.dirt.first_dirty)
    try:
        done = _Round(task, view).run(done)
        while done.end < view.dirt.first_uncleanable:
            view = _view(task)
            done = _Round(task, view).run(done)
    except _ChangedError:
        why = "records were truncated or deleted while it was running"
        trace.later(trace.CLEANING_ENDED, task.source.partition, first=done.first_dirty, end=done.end, reason=why)
    if done.rounds:
        _tell(done)
    return done


def _tell(done: Compaction) -> None:
    trace.later(
        trace.CLEANED,
        done.partition,
        first=done.first_dirty,
        end=done.end,
        records=done.records,
        removed=done.records - done.kept,
        bytes_read=done.read,
        bytes_written=done.written,
        rounds=done.rounds,
        reason="of each key the last record stays",
    )


def dirt_of(state: LogState, source: Source, now_ms: int) -> LogToClean:
    """How dirty a log is. Cost: O(segments), and a look into those whose age decides."""
    facts: list[CompactableSegment] = []
    before: LogSegment | None = None
    for base, segment in state.segments:
        size = state.size_of(segment)
        facts.append(CompactableSegment(base, size, partial(is_older, segment, size), partial(begun, segment, before)))
        before = segment
    ends = {"start_offset": state.start_offset, "end_offset": state.end_offset, "stable_offset": state.stable_offset}
    checkpoint = source.cleaned.offsets().get(source.partition)
    return compaction_policy.dirt(facts, source.config, checkpoint=checkpoint, **ends, now_ms=now_ms)


class _ChangedError(Exception):
    """What the cleaning stands on was cut off or deleted meanwhile."""


# ---- what is looked at -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _View:
    """A log as it was when a round began.

    Attributes:
        state: its segments stay readable for as long as the round goes on, whatever takes their names.
        dirt: what is to be done.
        producers: as they were, by id.
        options: the topic's; the round ends when others count.
    """

    state: LogState
    dirt: LogToClean
    producers: dict[int, Producer]
    options: Options

    def segments(self, end: int) -> list[tuple[LogSegment, int]]:
        """The segments with a base below `end`, each with the base of the one behind it."""
        pairs = pairwise(self.state.segments)
        return [(segment, following) for (base, segment), (following, _) in pairs if base < end]


def _view(task: Task) -> _View:
    with task.mutator.current() as writer:
        if not task.source.config.is_compacted:
            raise _ChangedError  # the topic was altered since somebody saw that it is compacted
        _check_local(writer.state, task.source.directory)
        producers = {producer.producer_id: producer for producer in writer.producers.producers}
        return _View(writer.state, dirt_of(writer.state, task.source, task.now_ms), producers, task.source.options.now)


def _check_local(state: LogState, path: str) -> None:
    """Raises IllegalStateError if a log begins in a remote tier. Kafka compacts no such log: the broker keeps copies."""
    remote = state.remote_offsets
    if remote:
        there = f"{path} is not compacted: its offsets {remote.start} to {remote.stop - 1} are in a broker's remote tier"
        told = "which may have copies of later ones; have the broker delete them, or remove 'compact' from cleanup_policy"
        raise IllegalStateError(f"{there}, {told}", path=path)


def _stretches(segment: LogSegment, following: int) -> Iterator[WalkedRange]:
    """The batches of a whole segment.

    Raises:
        CorruptionError: any of it is not what was written.
        _ChangedError: retention took the segment before it was opened.
    """
    try:
        for stretch in walk(segment, 0, segment.size, following):
            if stretch.damage is not None:
                raise _damaged(segment, stretch.damage, following)
            yield stretch
        if (there := segment.file().size()) < segment.size:
            missing = Damage(there, segment.size, following, None, "is missing: the file ends before it")
            raise _damaged(segment, missing, following)
    except StorageFailedError as error:
        raise _ChangedError if vanished(error) else error from error


def _damaged(segment: LogSegment, damage: Damage, following: int) -> PylogError:
    error = CorruptionError(f"the batch for offset {damage.offset} {damage.why}", position=damage.position, offset=damage.offset)
    return placed(error, segment, following if damage.next_offset is None else damage.next_offset)


def _last_batches(table: Table, producers: dict[int, Producer]) -> NDArray[np.bool_]:
    """Which batches are their producer's last: they stay, be it empty, for what they say of it (storage-format 7.6.6)."""
    found = np.zeros(table.shape[1], np.bool_)
    for batch in np.flatnonzero(table[PRODUCER_ID] >= 0).tolist() if producers else ():
        producer = producers.get(int(table[PRODUCER_ID, batch]))
        if producer is not None and producer.last_offset >= 0:
            found[batch] = producer.last_offset == int(table[LAST_OFFSET, batch])
        elif producer is not None:  # it has only ended transactions: a marker holds its epoch
            marker = bool(table[ATTRIBUTES, batch] & CONTROL_BIT)
            found[batch] = marker and producer.epoch == int(table[PRODUCER_EPOCH, batch])
    return found


class _Transactions:
    """Which markers are needed no more: those of transactions of which no batch is left (storage-format 7.7).

    Attributes:
        aborted: the aborted transactions that still have batches, since somebody took them.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer → first offset of its transaction, as far as batches of it are left
        self.aborted: list[AbortedTransaction] = []

    def removable(self, buffer: Bytes, table: Table) -> NDArray[np.bool_]:
        """Which control batches are not needed. The tables come in the order of the log."""
        found = np.zeros(table.shape[1], np.bool_)
        for batch in np.flatnonzero((table[ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)) != 0).tolist():
            if table[MAGIC, batch] < 2:
                continue
            if table[ATTRIBUTES, batch] & CONTROL_BIT:
                found[batch] = self._ends_nothing(buffer, table, batch)
            else:
                self._open.setdefault(int(table[PRODUCER_ID, batch]), int(table[BASE_OFFSET, batch]))
        return found

    def _ends_nothing(self, buffer: Bytes, table: Table, batch: int) -> bool:
        marker = control_record(buffer, table, batch)
        if marker is None:
            return True  # compaction emptied it
        if not marker.ends_transaction:
            return False
        producer_id, offset = int(table[PRODUCER_ID, batch]), int(table[LAST_OFFSET, batch])
        first = self._open.pop(producer_id, None)
        if first is not None and marker.type == CONTROL_ABORT:
            stable = min(self._open.values(), default=offset + 1)
            self.aborted.append(AbortedTransaction(producer_id, first, offset, stable))
        return first is None


# ---- a round -----------------------------------------------------------------------------------------------------------------


class _Round:
    """One pass over the dirty section, and one over all segments up to where that got."""

    def __init__(self, task: Task, view: _View) -> None:
        self._task = task
        self._view = view
        self._keys = KeyMap(task.buffer_size, _records_of(view), view.dirt.first_dirty)
        self._numbers: dict[int, int] = {}  # base of a dirty segment → number of its first record
        self._transactions = _Transactions()
        self._outcomes = TransactionOutcomes(view.state, OffsetRange(0, view.dirt.first_uncleanable))

    def run(self, done: Compaction) -> Compaction:
        """Goes over the log; returns what was done so far with this round added."""
        end = self._index()
        segments = self._view.segments(end)
        entries = [(len(segment.offset_index()), len(segment.time_index())) for segment, _ in segments]
        extents = [
            SegmentExtent(segment.base_offset, segment.size, offsets * OFFSET_ENTRY_SIZE, times * TIME_ENTRY_SIZE)
            for (segment, _), (offsets, times) in zip(segments, entries, strict=True)
        ]
        for group in compaction_policy.groups(extents, segments[-1][1], self._task.source.config) if segments else ():
            done = self._rewrite(segments[group.start : group.stop], done)
        if end > self._view.dirt.first_dirty:
            self._note(end)
        return done._replace(end=end, rounds=done.rounds + 1)

    def _index(self) -> int:
        """Takes the keys of the dirty section; returns the offset that it got to (storage-format 7.5)."""
        first, end = self._view.dirt.first_dirty, self._view.dirt.first_uncleanable
        outcomes = TransactionOutcomes(self._view.state, OffsetRange(first, end))
        for segment, following in self._view.segments(end):
            if following <= first:
                continue
            self._numbers[segment.base_offset] = self._keys.number
            for stretch in _stretches(segment, following):
                table = stretch.table
                counts = (table[LAST_OFFSET] >= first) & ((table[ATTRIBUTES] & CONTROL_BIT) == 0) & ~outcomes.aborted(table)
                with _placing(segment, stretch, following):
                    if not self._keys.enter(stretch.buffer, table, counts):
                        return self._keys.latest + 1
                self._task.throttle.passed(_size_of(table))
            self._keys.latest = following - 1  # a gap at a segment's end holds nothing up
        return end

    def _rewrite(self, segments: list[tuple[LogSegment, int]], done: Compaction) -> Compaction:
        """Makes one segment of some, and puts it in their place, if that changes anything."""
        task, sources = self._task, [segment for segment, _ in segments]
        survivors = Survivors(self._keys, min(task.now_ms + task.source.config.delete_retention_ms, limits.INT64_MAX))
        self._transactions.aborted = []
        made = CleanedSegment(task.source, sources, segments[-1][1])
        try:
            with one_ahead(self._pieces(segments, survivors)) as pieces:
                for piece in pieces:
                    made.append(piece)
                    task.throttle.passed(piece.size)
            if len(sources) > 1 or survivors.changed:
                made.finish(self._transactions.aborted)
        except BaseException:
            made.discard()
            raise
        if len(sources) > 1 or survivors.changed:
            self._swap(made, sources)
        else:
            made.discard()
        return done._replace(
            records=done.records + survivors.records,
            kept=done.kept + survivors.kept,
            read=done.read + sum(segment.size for segment in sources),
            written=done.written + made.size,
        )

    def _swap(self, made: CleanedSegment, sources: list[LogSegment]) -> None:
        try:
            with self._task.mutator.changing() as writer:
                self._check_sources(writer, sources)
                made.swap_in(writer)
        except (_ChangedError, UnknownTopicOrPartitionError):  # nothing was swapped: the log is another one
            made.discard()
            raise

    def _check_sources(self, writer: LogWriter, sources: list[LogSegment]) -> None:
        sizes = {base: segment.size for base, segment in writer.state.segments}
        altered = self._task.source.options.now is not self._view.options
        if altered or self._is_cut(writer) or any(sizes.get(segment.base_offset) != segment.size for segment in sources):
            raise _ChangedError

    def _is_cut(self, writer: LogWriter) -> bool:
        """Whether the log was truncated: then the record that superseded another one may be gone."""
        return writer.state.truncation_count != self._view.state.truncation_count

    def _note(self, end: int) -> None:
        """Says how far the log is clean, which a truncation may take back at any time."""
        source = self._task.source
        assert source.root_lock is not None
        with self._task.mutator.current() as writer:
            if self._is_cut(writer) or source.options.now is not self._view.options:
                raise _ChangedError
            with source.root_lock.entered():
                source.cleaned.note({source.partition: end})

    # ---- batches ---------------------------------------------------------------------------------------------------------

    def _pieces(self, segments: list[tuple[LogSegment, int]], survivors: Survivors) -> Iterator[Bytes]:
        """The bytes of the new segment."""
        for segment, following in segments:
            number, before = self._numbers.get(segment.base_offset), survivors.records
            for stretch in _stretches(segment, following):
                start = None if number is None else number + survivors.records - before
                with _placing(segment, stretch, following):
                    fates = self._fates(segment, stretch.buffer, stretch.table)
                    yield from survivors.feed(stretch.buffer, stretch.table, Judgement(fates, start))
                self._task.throttle.passed(_size_of(stretch.table))
        yield from survivors.finish()

    def _fates(self, segment: LogSegment, buffer: Bytes, table: Table) -> NDArray[np.int64]:
        """What is to become of batches, as a whole (storage-format 7.6.4)."""
        control = (table[ATTRIBUTES] & CONTROL_BIT) != 0
        stamped = ((table[ATTRIBUTES] & DELETE_HORIZON_BIT) != 0) & (table[MAGIC] == 2)
        over = stamped & (table[BASE_TIMESTAMP] <= self._task.now_ms)
        removable = control & self._transactions.removable(buffer, table)
        retained = _last_batches(table, self._view.producers)
        retained |= table[LAST_OFFSET] + 1 == self._view.dirt.first_uncleanable  # the log's end is known without the next segment
        discarded = self._outcomes.aborted(table) | (removable & over)
        if self._old_tombstones_go(segment):
            over |= table[MAGIC] < 2
        judged = (
            (F_DISCARD, discarded),
            (F_RETAIN, retained),
            (F_TOMBSTONES_GO, over),
            (F_NO_HORIZON, ~stamped),
            (F_CONTROL, control),
            (F_STAMP, removable & ~stamped),
        )
        return sum((np.where(holds, flag, 0) for flag, holds in judged), np.zeros(table.shape[1], np.int64))

    def _old_tombstones_go(self, segment: LogSegment) -> bool:
        """Whether tombstones of formats 0 and 1 in a segment are too old: the times of appends decide (storage-format 7.6.5)."""
        clean, now_ms = self._view.segments(self._view.dirt.first_dirty), self._task.now_ms
        if not clean:
            return False
        bound = clean[-1][0].appends.last(now_ms) - self._task.source.config.delete_retention_ms
        return segment.appends.last(now_ms) <= bound


@contextlib.contextmanager
def _placing(segment: LogSegment, stretch: WalkedRange, following: int) -> Iterator[None]:
    """Gives an error about a batch its place in the file."""
    try:
        yield
    except CorruptionError as error:
        error.position = (error.position or 0) + stretch.shift
        raise placed(error, segment, following) from error


def _size_of(table: Table) -> int:
    return int(table[SIZE].sum())


def _records_of(view: _View) -> int:
    """About how many records the dirty section has. Cost: one pass over its headers."""
    total = 0
    for segment, following in view.segments(view.dirt.first_uncleanable):
        if following > view.dirt.first_dirty:
            for region in segment.regions(0):
                known = region.table[COUNT] >= 0
                total += int(region.table[COUNT, known].sum() + region.table[SIZE, ~known].sum() // _OLD_RECORD_BYTES)
    return total
