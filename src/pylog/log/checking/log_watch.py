"""Compares the segments of a log with their seals, their indexes and the leader epochs, in one pass over the batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from pylog.directory.leader_epoch_cache import EpochEntry
from pylog.errors import PylogError, StorageFailedError
from pylog.fs import FileSystem, join
from pylog.log.checking.index_sanity import IndexWatch, OffsetWatch, TimeWatch, load_index
from pylog.log.checking.report import GOOD, FileVerdict, Partition, Report, about, of_error
from pylog.log.recovery.findings import Finding
from pylog.record.batch import Table
from pylog.record.format import (
    BASE_OFFSET,
    COUNT,
    LAST_OFFSET,
    LEADER_EPOCH,
    POSITION,
    SIZE,
)
from pylog.segment import names
from pylog.segment.batch_walk import Damage, WalkedRange
from pylog.segment.seal import ALTERED, Altered, Seal, SealedReader, foreign_reason, is_foreign, read_seal
from pylog.segment.segment import LogSegment, vanished
from pylog.text import counted

DERIVED_SUFFIXES: Final = (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.SEAL)  # of one segment's `.log` file
MOST_FINDINGS: Final = 1000  # for one file: many damaged batches must not fill the memory


class LogWatch:
    """Compares the derived files of a partition with its batches, in one pass.

    Attributes:
        damaged: true if any batch is damaged; gaps and the end are then inconclusive.
        end: the position after the last batch of the last segment.
        next_offset: the offset after the last batch; -1 before the first.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._epochs = _EpochWatch(partition)
        self._gaps: list[Finding] = []
        self._cut = partition.was_cut()
        self._sparse = False  # a compaction has run: gaps are normal
        self._thinned = False  # the gap between two segments may be a compaction's
        self._sealed_end: int | None = None  # of the previous segment, by its seal
        self._current: _SegmentWatch | None = None
        self._findings: list[Finding] = list(self._epochs.findings)
        self._counts = Report(partitions=1)
        self.damaged = False
        self.end = 0
        self.next_offset = -1

    def follow(self, segment: LogSegment, size: int, walked_ranges: Iterator[WalkedRange]) -> FileVerdict:
        """Checks all walked ranges of a segment, in order.

        Args:
            segment: the segment.
            size: the valid bytes of its file.
            walked_ranges: from the first batch on. An error that they raise becomes a finding.
        """
        watch = self._current = _SegmentWatch(self._partition, segment, size)
        self._enter(segment)
        try:
            for walked in walked_ranges:
                self._take(segment, walked)
                watch.take(walked)
        except PylogError as error:
            self.damaged = True
            if isinstance(error, StorageFailedError) and vanished(error):
                watch.findings.clear()  # deleted by retention; otherwise `check_files` reports it
            else:
                watch.add_error(error)
        for finding in self._partition.past_the_end("corrupt") if self._partition.is_active(segment) else ():
            watch.add_finding(finding)
        self._findings += watch.finish()
        self.damaged |= watch.damaged
        self.end = watch.end
        self._sealed_end = None if watch.seal is None else watch.seal.end_offset
        self._counts += Report(segments=1, batches=watch.batches, records=watch.records, bytes=watch.bytes)
        return watch.verdict(size)

    @property
    def whole(self) -> bool:
        """Whether the log is complete: nothing was damaged, lost or compacted."""
        return not self._sparse and not self._thinned and not self.damaged and not self._gaps

    def add_finding(self, finding: Finding) -> None:
        """Adds a finding about the current segment's batches from another check."""
        assert self._current is not None
        self._current.add_finding(finding)

    def report(self) -> Report:
        """Returns everything found."""
        epochs = self._epochs.found(self.next_offset)
        if self.damaged:  # further mismatches are consequences, but wrong leader epochs are the cause of gaps in a broker's tier
            return self._counts.with_findings([*self._findings, *epochs])
        gaps = [] if self._sparse else self._gaps
        return self._counts.with_findings([*self._findings, *gaps, *epochs])

    def _enter(self, segment: LogSegment) -> None:
        """Compares a segment's base with the end of the previous one."""
        end = self.next_offset if self._sealed_end is None else self._sealed_end
        if 0 <= end < segment.base_offset:
            path = join(segment.directory, names.file_name(end, names.LOG))
            message = f"is missing: no segment has offset {end}, and the next one begins at {segment.base_offset}"
            finding = about("missing", path, message, offset=end)
            if self._sealed_end is not None:
                self.add_finding(finding)
            elif self._may_be_compacted(end, segment):
                self._thinned = True
            elif not self._cut:
                self._gaps.append(finding)
        self.next_offset = max(self.next_offset, segment.base_offset)

    def _may_be_compacted(self, end: int, following: LogSegment) -> bool:
        """Returns whether compaction may have left the gap before a segment: it got there, and all files in between are deleted.

        Compaction removes a `.log` file before its derived files, and its seal or `.swap` records the gap until they are deleted.
        So a derived file alone means that only the `.log` file was lost.
        """
        if self._partition.compacted_to < following.base_offset:
            return False
        found = [names.parse(entry.name) for entry in self._partition.fs.list(self._partition.directory)]
        between = [name for name in found if name is not None and end <= name.offset < following.base_offset]
        logs = {name.offset for name in between if name.suffix == names.LOG}  # brokers rename before deleting
        return all(name.offset in logs for name in between if name.suffix in DERIVED_SUFFIXES and not name.state)

    def _take(self, segment: LogSegment, walked: WalkedRange) -> None:
        table = walked.table
        if table.shape[1]:
            self._sparse |= not _is_dense(table, self.next_offset)
            self._epochs.take(segment, table)
            self.next_offset = int(table[LAST_OFFSET, -1]) + 1


def _is_dense(table: Table, next_offset: int) -> bool:
    """Returns whether batches follow an offset without a gap, also between records."""
    first, last = table[BASE_OFFSET], table[LAST_OFFSET]
    follows = int(first[0]) == next_offset and bool((first[1:] == last[:-1] + 1).all())
    return follows and bool((last - first + 1 == table[COUNT]).all())


class _EpochWatch:
    """Compares the leader epoch checkpoint with the batches (storage-format 6.13)."""

    def __init__(self, partition: Partition) -> None:
        epochs, self.findings = partition.epochs()
        self._path = join(partition.directory, names.LEADER_EPOCH_CHECKPOINT)
        self._start_offset = partition.state.start_offset  # a broker removes entries below the start at once
        self._judged = not self.findings  # a damaged one is not compared
        self._lacking = epochs is None
        self._epochs, self._starts = np.array(epochs or [EpochEntry(-1, -1)], np.int64).T
        self._misfits: list[Finding] = []

    def found(self, end: int) -> list[Finding]:
        """Returns the contradictions, after all batches.

        Args:
            end: the offset after the last batch; -1 without one.
        """
        first, end = int(self._starts[0]), max(end, self._start_offset)  # an empty log ends where it starts
        if first <= end or self._lacking or not self._judged:
            return self._misfits
        return [about("derived", self._path, f"begins at offset {first}, after the end of the log at {end}", offset=first)]

    def take(self, segment: LogSegment, table: Table) -> None:
        asked = (table[LEADER_EPOCH] >= 0) & (table[BASE_OFFSET] >= max(self._start_offset, self._starts[0]))
        if self._misfits or not self._judged or not asked.any():
            return
        slots = self._starts.searchsorted(table[BASE_OFFSET], "right") - 1
        wrong = asked & ((slots < 0) | (self._epochs[np.maximum(slots, 0)] != table[LEADER_EPOCH]))
        if wrong.any():
            batch = int(np.argmax(wrong))
            offset, epoch = int(table[BASE_OFFSET, batch]), int(table[LEADER_EPOCH, batch])
            message = "is missing" if self._lacking else f"does not give offset {offset} the leader epoch {epoch}"
            self._misfits.append(about("derived", self._path, f"{message}, as its batch in {segment.path} has", offset=offset))


class _SegmentWatch:
    """Compares one segment's seal and indexes with its batches, and counts them."""

    def __init__(self, partition: Partition, segment: LogSegment, size: int) -> None:
        self._segment = segment
        self._sealed = not partition.is_active(segment)  # at the time of the state
        self._path = segment.path
        self._indexes: list[IndexWatch] = []
        self.findings: list[Finding] = []
        self.seal: Seal | None = None
        self.damaged = False
        self.end = self.batches = self.records = self.bytes = 0
        try:
            self._load_seal(segment.fs, size)
            self._load_indexes(partition)
        except StorageFailedError as error:
            if not vanished(error):
                self.add_error(error)
        known = partition.known_of(segment)  # `walk` has compared the seal of a sealed one
        self._reader = None if known is None else SealedReader(known)

    def _load_seal(self, fs: FileSystem, size: int) -> None:
        """Loads the segment's own seal, if it is sound."""
        if not self._sealed:
            return
        try:
            seal = read_seal(fs, self._segment)
        except PylogError as error:
            self.findings.append(of_error(error, self._segment.path_of(names.SEAL), "derived"))
            return
        if seal is not None and is_foreign(self._segment, seal, size):
            self.findings.append(about("foreign", self._path, foreign_reason(seal, size), size=size))
        else:
            self.seal = seal

    def _load_indexes(self, partition: Partition) -> None:
        """Loads the indexes: of the active segment from memory, else from files."""
        segment = self._segment
        in_memory = partition.writable and segment.builder is not None
        if in_memory:
            self._indexes.append(OffsetWatch(segment.path_of(names.INDEX), "state", segment.offset_index(), complete=False))
            self._indexes.append(TimeWatch(segment.path_of(names.TIME_INDEX), "state", segment.time_index(), complete=False))
        for suffix in (names.TRANSACTION_INDEX,) if in_memory else (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
            watch, finding = load_index(segment.fs, segment, suffix, sealed=self._sealed)
            self._indexes += [] if watch is None else [watch]
            self.findings += [] if finding is None else [finding]

    def take(self, walked: WalkedRange) -> None:
        table, shift = walked.table, walked.shift
        if table.shape[1]:
            if self._reader is not None:
                for altered in self._reader.altered(walked.buffer, table, shift):
                    self.add_finding(self._altered(altered))
            for index in self._indexes:
                index.take(walked)
            self.batches += table.shape[1]
            self.records += int(np.abs(table[COUNT]).sum())  # -1 if an old format has no count
            self.bytes += int(table[SIZE].sum())
            self.end = shift + int(table[POSITION, -1] + table[SIZE, -1])
        if walked.damage is not None:
            self.add_finding(self._damaged(walked.damage))

    def add_finding(self, finding: Finding) -> None:
        self.damaged = True
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def add_error(self, error: PylogError) -> None:
        """Adds the finding of an error, once: each read of a file that cannot be read raises the same."""
        finding = of_error(error, self._path)
        if finding not in self.findings:
            self.findings.append(finding)

    def _altered(self, altered: Altered) -> Finding:
        """Reports that a header in the active segment differs from the log's digest; it is not known which one."""
        message, size = f"{ALTERED}: those of {counted(altered.end, 'byte')}", altered.end - altered.start
        return about("corrupt", self._path, message, position=altered.start, size=size, offset=self._segment.base_offset)

    def _damaged(self, damage: Damage) -> Finding:
        position, end, offset, next_offset, why = damage
        rest = counted(end - position, "byte")
        message = f"{self._path}: the batch at position {position} (offset {offset}) {why}; {rest} cannot be served"
        return Finding("corrupt", self._path, position, end - position, offset, next_offset, message)

    def finish(self) -> list[Finding]:
        """Returns all findings about the segment."""
        return self.findings + [found for index in self._indexes for found in index.finish(whole=not self.damaged)]

    def verdict(self, size: int) -> FileVerdict:
        """Returns the verdict on the `.log` file."""
        kinds = [finding.kind for finding in self.findings if finding.path == self._path]
        return FileVerdict(self._path, size, self.batches, self.seal is not None, kinds[0] if kinds else GOOD)
