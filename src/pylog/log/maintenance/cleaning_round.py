"""One round of a compaction: reads the dirty section once and notes each key's last record, until its memory is full.

Then it copies all segments up to that point without superseded records, and replaces each group of source segments by the copy.

A dropped record is always superseded by a record in a sealed, synced segment. Groups are swapped in offset order, so after a
crash every missing record is superseded by one that still exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog.errors import (
    CorruptionError,
    IllegalStateError,
    PylogError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.index.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from pylog.log.maintenance import compaction_policy
from pylog.log.maintenance.cleaned_transactions import CleanedTransactions, last_batches
from pylog.log.maintenance.compaction_policy import CompactableSegment, LogToClean, SegmentExtent
from pylog.log.maintenance.delete_horizon import new_horizon, old_formats_past_horizon, past_horizon, with_horizon
from pylog.log.maintenance.segment_swap import CleanedSegment
from pylog.log.maintenance.throttler import Throttle
from pylog.log.options import Options
from pylog.log.producer_state import Producer
from pylog.log.reading.good_batches import OffsetRange, placed
from pylog.log.reading.transaction_outcomes import TransactionOutcomes
from pylog.log.recovery.loaded import Source
from pylog.log.state import LogState
from pylog.log.writing.partition_writer import PartitionWriter
from pylog.log.writing.writer import LogWriter
from pylog.record.ahead import one_ahead
from pylog.record.batch import Bytes, Table
from pylog.record.compacting import F_CONTROL, F_DISCARD, F_NO_HORIZON, F_RETAIN, F_STAMP, F_TOMBSTONES_GO
from pylog.record.format import (
    ATTRIBUTES,
    CONTROL_BIT,
    COUNT,
    LAST_OFFSET,
    MAGIC,
    SIZE,
)
from pylog.record.key_map import KeyMap
from pylog.record.survivors import Judgement, Survivors
from pylog.record.types import TopicPartition
from pylog.segment.age import begun, is_older
from pylog.segment.batch_walk import Damage, WalkedRange, walk
from pylog.segment.segment import LogSegment, vanished

_OLD_RECORD_BYTES: Final = 8  # for batches without a record count; compressed records are smaller


class Compaction(NamedTuple):
    """The result of a compaction.

    Attributes:
        partition: the partition.
        first_dirty, end: the clean section ended at the first offset before, and ends at the second one now.
        records, kept: the number of records read, over all rounds, and of those that stayed.
        read, written: bytes read from and written to the copied segments.
        rounds: the number of passes; more than one if the memory did not hold all keys.
    """

    partition: TopicPartition
    first_dirty: int
    end: int
    records: int = 0
    kept: int = 0
    read: int = 0
    written: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Task:
    """One log to compact.

    Attributes:
        partition_writer, source: the log's.
        refresh: returns its current state.
        throttle: limits the rate.
        buffer_size: memory for the keys of one round, in bytes.
        now_ms: the wall clock, in milliseconds.
        explaining: a context in which an error says that the store was closed or the topic deleted, if that is its cause.
    """

    partition_writer: PartitionWriter
    source: Source
    refresh: Callable[[], LogState]
    throttle: Throttle
    buffer_size: int
    now_ms: int
    explaining: Callable[[], AbstractContextManager[None]]


def log_to_clean_of(state: LogState, source: Source, now_ms: int) -> LogToClean:
    """Measures how dirty a log is. Cost: O(segments), and a read of those whose age decides."""
    facts: list[CompactableSegment] = []
    before: LogSegment | None = None
    for base, segment in state.segments:
        size = state.size_of(segment)
        facts.append(CompactableSegment(base, size, partial(is_older, segment, size), partial(begun, segment, before)))
        before = segment
    ends = {"start_offset": state.start_offset, "end_offset": state.end_offset, "stable_offset": state.stable_offset}
    checkpoint = source.cleaned.offsets().get(source.partition)
    return compaction_policy.log_to_clean(facts, source.config, checkpoint=checkpoint, **ends, now_ms=now_ms)


class LogChangedError(Exception):
    """Records that the compaction relies on were truncated or deleted."""


@dataclass(frozen=True)
class CleaningView:
    """A log at the start of a round.

    Attributes:
        state: its segments stay readable during the round, even if their files are renamed or deleted.
        to_clean: the section to compact.
        producers: the entries of producers, by id.
        options: the topic's; the round ends if they change.
    """

    state: LogState
    to_clean: LogToClean
    producers: dict[int, Producer]
    options: Options

    def segments(self, end: int) -> list[tuple[LogSegment, int]]:
        """Returns the segments with a base below `end`, each with the base of the next one."""
        pairs = pairwise(self.state.segments)
        return [(segment, following) for (base, segment), (following, _) in pairs if base < end]


def view_of(task: Task) -> CleaningView:
    with task.partition_writer.current() as writer:
        if not task.source.config.is_compacted:
            raise LogChangedError  # the topic was altered since the caller checked that it is compacted
        _check_local(writer.state, task.source.directory)
        producers = {producer.producer_id: producer for producer in writer.producers.producers}
        to_clean = log_to_clean_of(writer.state, task.source, task.now_ms)
        return CleaningView(writer.state, to_clean, producers, task.source.options.now)


def is_shorter(task: Task, view: CleaningView) -> bool:
    """Returns whether the log was truncated, or segments were deleted, since a view of it. Raises as `view_of`."""
    now = view_of(task).state
    return now.truncation_count != view.state.truncation_count or now.start_offset != view.state.start_offset


def _check_local(state: LogState, path: str) -> None:
    """Raises IllegalStateError if a log begins in remote storage. Kafka compacts no such log."""
    remote = state.remote_offsets
    if remote:
        reason = f"{path} is not compacted: its offsets {remote.start} to {remote.stop - 1} are in a broker's remote tier"
        message = "which may have copies of later ones; have the broker delete them, or remove 'compact' from cleanup_policy"
        raise IllegalStateError(f"{reason}, {message}", path=path)


def _walked_ranges(segment: LogSegment, following: int) -> Iterator[WalkedRange]:
    """Yields the batches of a whole segment.

    Raises:
        CorruptionError: the segment is damaged.
        LogChangedError: retention deleted the segment before it was opened.
    """
    try:
        for walked in walk(segment, 0, segment.size, following):
            if walked.damage is not None:
                raise _damaged(segment, walked.damage, following)
            yield walked
        if (path_size := segment.file().size()) < segment.size:
            missing = Damage(path_size, segment.size, following, None, "is missing: the file ends before it")
            raise _damaged(segment, missing, following)
    except StorageFailedError as error:
        raise LogChangedError if vanished(error) else error from error


def _damaged(segment: LogSegment, damage: Damage, following: int) -> PylogError:
    error = CorruptionError(f"the batch for offset {damage.offset} {damage.why}", position=damage.position, offset=damage.offset)
    return placed(error, segment, following if damage.next_offset is None else damage.next_offset)


class CleaningRound:
    """One pass over the dirty section, and one over all segments up to the end of the first pass."""

    def __init__(self, task: Task, view: CleaningView) -> None:
        self._task = task
        self._view = view
        self._keys = KeyMap(task.buffer_size, _records_of(view), view.to_clean.first_dirty)
        self._numbers: dict[int, int] = {}  # base of a dirty segment → number of its first record
        self._transactions = CleanedTransactions()
        self._outcomes = TransactionOutcomes(view.state, OffsetRange(0, view.to_clean.first_uncleanable))

    def run(self, done: Compaction) -> Compaction:
        """Runs the round. Returns the result so far, including this round."""
        end = self._index()
        segments = self._view.segments(end)
        entries = [(len(segment.offset_index()), len(segment.time_index())) for segment, _ in segments]
        extents = [
            SegmentExtent(segment.base_offset, segment.size, offsets * OFFSET_ENTRY_SIZE, times * TIME_ENTRY_SIZE)
            for (segment, _), (offsets, times) in zip(segments, entries, strict=True)
        ]
        for group in compaction_policy.groups(extents, segments[-1][1], self._task.source.config) if segments else ():
            done = self._rewrite(segments[group.start : group.stop], done)
        if end > self._view.to_clean.first_dirty:
            self._note(end)
        return done._replace(end=end, rounds=done.rounds + 1)

    def _index(self) -> int:
        """Indexes the keys of the dirty section. Returns the offset where it ended (storage-format 7.5)."""
        first, end = self._view.to_clean.first_dirty, self._view.to_clean.first_uncleanable
        outcomes = TransactionOutcomes(self._view.state, OffsetRange(first, end))
        for segment, following in self._view.segments(end):
            if following <= first:
                continue
            self._numbers[segment.base_offset] = self._keys.number
            for walked in _walked_ranges(segment, following):
                table = walked.table
                counts = (table[LAST_OFFSET] >= first) & ((table[ATTRIBUTES] & CONTROL_BIT) == 0) & ~outcomes.aborted(table)
                with _placing(segment, walked, following):
                    if not self._keys.enter(walked.buffer, table, counts):
                        return self._keys.latest + 1
                self._task.throttle.passed(_size_of(table))
            self._keys.latest = following - 1  # a gap at a segment's end is skipped
        return end

    def _rewrite(self, segments: list[tuple[LogSegment, int]], done: Compaction) -> Compaction:
        """Merges segments into one and replaces them, if that changes anything."""
        task, sources = self._task, [segment for segment, _ in segments]
        survivors = Survivors(self._keys, new_horizon(task.now_ms, task.source.config.delete_retention_ms))
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
            with self._task.partition_writer.changing() as writer:
                self._check_sources(writer, sources)
                made.swap_in(writer)
        except (LogChangedError, UnknownTopicOrPartitionError):  # nothing was swapped: the log has changed
            made.discard()
            raise

    def _check_sources(self, writer: LogWriter, sources: list[LogSegment]) -> None:
        sizes = {base: segment.size for base, segment in writer.state.segments}
        altered = self._task.source.options.now is not self._view.options
        if altered or self._is_cut(writer) or any(sizes.get(segment.base_offset) != segment.size for segment in sources):
            raise LogChangedError

    def _is_cut(self, writer: LogWriter) -> bool:
        """Returns whether the log was truncated: then the superseding record of a deleted one may be lost."""
        return writer.state.truncation_count != self._view.state.truncation_count

    def _note(self, end: int) -> None:
        """Writes the end of the clean section to the checkpoint. A truncation may lower it at any time."""
        source = self._task.source
        assert source.root_lock is not None
        with self._task.partition_writer.current() as writer:
            if self._is_cut(writer) or source.options.now is not self._view.options:
                raise LogChangedError
            with source.root_lock.entered():
                source.cleaned.note({source.partition: end})

    # ---- batches ---------------------------------------------------------------------------------------------------------

    def _pieces(self, segments: list[tuple[LogSegment, int]], survivors: Survivors) -> Iterator[Bytes]:
        """Yields the bytes of the new segment."""
        for segment, following in segments:
            number, before = self._numbers.get(segment.base_offset), survivors.records
            for walked in _walked_ranges(segment, following):
                start = None if number is None else number + survivors.records - before
                with _placing(segment, walked, following):
                    fates = self._fates(segment, walked.buffer, walked.table)
                    yield from survivors.feed(walked.buffer, walked.table, Judgement(fates, start))
                self._task.throttle.passed(_size_of(walked.table))
        yield from survivors.finish()

    def _fates(self, segment: LogSegment, buffer: Bytes, table: Table) -> NDArray[np.int64]:
        """Decides for whole batches what is kept (storage-format 7.6.4)."""
        control = (table[ATTRIBUTES] & CONTROL_BIT) != 0
        stamped, over = with_horizon(table), past_horizon(table, self._task.now_ms)
        removable = control & self._transactions.removable(buffer, table)
        retained = last_batches(table, self._view.producers)
        retained |= table[LAST_OFFSET] + 1 == self._view.to_clean.first_uncleanable  # keeps the log end known
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
        clean = self._view.segments(self._view.to_clean.first_dirty)
        last_clean = clean[-1][0] if clean else None
        return old_formats_past_horizon(segment, last_clean, self._task.source.config.delete_retention_ms, self._task.now_ms)


@contextlib.contextmanager
def _placing(segment: LogSegment, walked: WalkedRange, following: int) -> Iterator[None]:
    """Adds the position in the file to an error about a batch."""
    try:
        yield
    except CorruptionError as error:
        error.position = (error.position or 0) + walked.shift
        raise placed(error, segment, following) from error


def _size_of(table: Table) -> int:
    return int(table[SIZE].sum())


def _records_of(view: CleaningView) -> int:
    """Returns the approximate number of records in the dirty section. Cost: one pass over its headers."""
    total = 0
    for segment, following in view.segments(view.to_clean.first_uncleanable):
        if following > view.to_clean.first_dirty:
            for region in segment.regions(0):
                known = region.table[COUNT] >= 0
                total += int(region.table[COUNT, known].sum() + region.table[SIZE, ~known].sum() // _OLD_RECORD_BYTES)
    return total
