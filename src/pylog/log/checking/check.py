"""`check`: checks the invariants of an open store (reliability 6.5). Changes nothing.

One pass over the batch headers of each partition compares the segments with their derived files and with the state of the open
log. `verification` makes the same pass over every byte. Damage is a finding, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pylog.directory.checkpoints import LOG_START, RECOVERY_POINT, EpochEntry
from pylog.errors import PylogError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, FileSystem, join, parent_of, read_derived
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import ENTRY_SIZE, TransactionIndex
from pylog.log.checking.report import GOOD, Ends, FileVerdict, Look, Partition, Report, about, ask, of_error, read_ends
from pylog.log.durable_point import SLOT_SIZE, DurablePoint
from pylog.log.producer_state import read_snapshot
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.tier import has_tier
from pylog.record.batch import Table
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    COUNT,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_ID,
    SIZE,
)
from pylog.segment import names
from pylog.segment.batch_walk import Damage, WalkedRange, first_offsets, walk
from pylog.segment.seal import ALTERED, Altered, Seal, SealedReader, foreign_reason, is_foreign, read_seal
from pylog.segment.segment import LogSegment, limit_of, vanished

TEMPORARY: Final = ".tmp"
UNFINISHED: Final = "is left over from an unfinished operation"
_DERIVED: Final = (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.SEAL)  # of one segment's `.log` file
MOST_FINDINGS: Final = 1000  # for one file: many damaged batches must not fill the memory

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


def check_store(fs: FileSystem, root: str, partitions: Iterable[Look]) -> Report:
    """Checks all invariants of a store's partitions. Prints and changes nothing, and raises no error for damage.

    Args:
        fs, root: the log directory.
        partitions: the partitions to check. One that cannot be opened is a finding; one that was just deleted is not.

    Returns:
        A `Report` without verdicts.

    Cost: one pass over the batch headers, and over the derived files. Spec: reliability 6.5.
    """
    ends, findings = read_ends(fs, root)
    report = Report().with_findings(findings)

    def question(partition: Partition) -> Report:
        return check_partition(partition).with_findings(check_ends(partition, ends))

    for look in partitions:
        try:
            report += ask(look, question)
        except UnknownTopicOrPartitionError:
            continue
        except PylogError as error:
            report += Report(partitions=1).with_findings([of_error(error, root)])
    return report


def check_partition(partition: Partition) -> Report:
    """Checks all invariants of one partition, as `check_store`."""
    watch = LogWatch(partition)
    for segment, following in partition.segments():
        size = partition.state.size_of(segment)
        watch.follow(segment, size, walk(segment, 0, size, following))
    return watch.report().with_findings([*check_files(partition), *_check_state(partition, watch)])


# ---- files of a partition ----------------------------------------------------------------------------------------------------


def check_files(partition: Partition) -> Iterator[Finding]:
    """Checks the files of a partition's directory: sizes, names, snapshots, the header."""
    try:
        slot = partition.slot()  # before the sizes, which only grow
        entries = {entry.name: entry for entry in partition.fs.list(partition.directory) if entry.is_file}
        yield from _check_sizes(partition, entries)
        yield from _check_names(partition, entries)
        yield from _check_snapshots(partition, entries)
        if names.DURABLE_POINT in entries:
            yield from _check_header(partition, slot, entries)
    except StorageFailedError as error:
        yield of_error(error, partition.directory)


def _check_sizes(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks that each segment's file exists and has the size of the log's state."""
    for segment, _ in partition.segments():
        entry, size = entries.get(segment.log_name), partition.state.size_of(segment)
        if entry is None:
            if partition.quiet:  # otherwise retention may have deleted it
                yield about("missing", segment.path, "is gone", size=size, offset=segment.base_offset)
        elif entry.size < size:
            told = f"has {entry.size} bytes, but the log has {size}"
            yield about("missing", segment.path, told, position=entry.size, size=size - entry.size)
        elif entry.size > size and segment is not partition.state.active:
            told = f"has {entry.size} bytes, but the log had {size} when it was sealed"
            yield about("state", segment.path, told, position=size, size=entry.size - size)


def _check_names(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks for unfinished files, files of deleted segments, and unknown segments."""
    bases = {segment.base_offset for segment, _ in partition.segments()}
    for name in entries if partition.quiet else ():
        path, found = join(partition.directory, name), names.parse(name)
        if name.endswith((TEMPORARY, names.CLEANED, names.SWAP)):
            yield about("leftover", path, UNFINISHED)
        elif found is not None and not found.state and found.offset not in bases:
            if found.suffix == names.LOG:
                yield about("state", path, "is a segment that is not in the log", size=entries[name].size, offset=found.offset)
            elif found.suffix in _DERIVED:
                yield about("leftover", path, "is left over from a deleted segment", offset=found.offset)


def _check_snapshots(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks that each producer snapshot is readable and named by an offset up to the log end (storage-format 3.10)."""
    end, beyond = partition.state.end_offset, -1
    for name in entries:
        found, path = names.parse(name), join(partition.directory, name)
        if found is None or found.suffix != names.SNAPSHOT or found.state:
            continue
        beyond = max(beyond, found.offset)
        try:
            read_snapshot(partition.fs, partition.directory, found.offset)
        except PylogError as error:
            yield of_error(error, path, "derived")._replace(size=entries[name].size)
    if beyond > end and not partition.has_moved():
        yield partition.short_of(beyond, names.file_name(beyond, names.SNAPSHOT))


def _check_header(partition: Partition, slot: DurablePoint | None, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks the `durable-point` file against the files, unless another program has written since (reliability 12)."""
    path = join(partition.directory, names.DURABLE_POINT)
    if slot is None:
        size = entries[names.DURABLE_POINT].size
        if size >= SLOT_SIZE and partition.state.end_offset > 0:  # otherwise its creator may have died during the first write
            yield about("derived", path, "has no valid slot", size=size)
    elif slot.durable_base == slot.active_base and slot.durable_position > slot.published_position:
        yield about("derived", path, f"has {slot.durable_position} bytes durable, and {slot.published_position} published")
    elif partition.state.active is not None and slot.durable_base == slot.active_base and partition.is_own(slot):
        name, needed = names.file_name(slot.active_base, names.LOG), slot.durable_position
        size = entries[name].size if name in entries else needed
        if size < needed:
            told = f"has {size} bytes, and {needed} were synced"
            yield about("missing", partition.state.active.path, told, position=size, size=needed - size)


def _check_state(partition: Partition, watch: LogWatch) -> Iterator[Finding]:
    """Checks that the published state is consistent, and matches the batches."""
    state, directory = partition.state, partition.directory
    try:
        state.segments.check()
    except AssertionError as error:
        yield about("state", directory, f"has a broken list of segments: {error}")
    ends = (state.start_offset, state.durable_offset, state.end_offset)
    if not 0 <= ends[0] <= ends[1] <= ends[2] or not state.start_offset <= state.stable_offset <= state.end_offset:
        told = f"start {ends[0]}, durable {ends[1]}, stable {state.stable_offset}, end {ends[2]}"
        yield about("state", directory, f"has ends that contradict each other: {told}")
    if state.active is None or watch.damaged:
        return
    if watch.end != state.active_size:
        told = f"has batches up to position {watch.end}, but the log publishes {state.active_size} bytes"
        yield about("state", state.active.path, told, position=watch.end)
    if watch.next_offset > state.end_offset:
        told = f"has batches up to offset {watch.next_offset}, but the log ends at {state.end_offset}"
        yield about("state", state.active.path, told, offset=state.end_offset)


# ---- checkpoints -------------------------------------------------------------------------------------------------------------


def check_ends(partition: Partition, ends: Ends) -> Iterator[Finding]:
    """Checks that the checkpoints do not overstate the log start and the log end."""
    state, key, log_start = partition.state, partition.key, ends.log_starts.get(partition.key, 0)
    if ends.recovery_points.get(key, 0) > state.end_offset:
        now, _ = read_ends(partition.fs, ends.root)  # read again: a truncation may have lowered both
        reached = now.recovery_points.get(key, 0)
        if reached > state.end_offset and not partition.has_moved():
            yield partition.short_of(reached, RECOVERY_POINT)
    if log_start > state.start_offset and partition.quiet:
        told = f"gives {partition.directory} the start {log_start}, after its start {state.start_offset}"
        yield about("state", join(ends.root, LOG_START), told, offset=log_start)
    yield from _check_start(partition, log_start)


def _check_start(partition: Partition, log_start: int) -> Iterator[Finding]:
    """Reports missing first segments as lost, unless the log start or the first leader epoch is after them (6.13.2)."""
    epochs, _ = partition.epochs()
    first = next((segment for segment, _ in partition.segments()), None)
    if epochs and first is not None and max(epochs[0].start_offset, log_start) < first.base_offset:
        offset = epochs[0].start_offset
        if partition.state.remote_offsets and has_tier(partition.fs, parent_of(partition.directory)):
            last = first.base_offset - 1
            yield about(
                "remote", partition.directory, f"has offsets {log_start} to {last} in a broker's remote tier", offset=log_start
            )
            return
        path = join(partition.directory, names.file_name(offset, names.LOG))
        told = f"is missing: the leader epochs begin at offset {offset}, but the first segment at {first.base_offset}"
        yield about("missing", path, told, offset=offset)


# ---- a pass over batches -----------------------------------------------------------------------------------------------------


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

    def follow(self, segment: LogSegment, size: int, stretches: Iterator[WalkedRange]) -> FileVerdict:
        """Checks all stretches of a segment, in order.

        Args:
            segment: the segment.
            size: the valid bytes of its file.
            stretches: from the first batch on. An error that they raise becomes a finding.
        """
        watch = self._current = _SegmentWatch(self._partition, segment, size)
        self._enter(segment)
        try:
            for stretch in stretches:
                self._take(segment, stretch)
                watch.take(stretch)
        except PylogError as error:
            self.damaged = True
            if isinstance(error, StorageFailedError) and vanished(error):
                watch.findings.clear()  # deleted by retention; otherwise `check_files` reports it
            else:
                watch.findings.append(of_error(error, segment.path))
        for finding in self._partition.behind_the_end("corrupt") if self._partition.is_active(segment) else ():
            watch.tell(finding)
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

    def tell(self, finding: Finding) -> None:
        """Adds a finding about the current segment's batches from another check."""
        assert self._current is not None
        self._current.tell(finding)

    def report(self) -> Report:
        """Everything found."""
        if self.damaged:  # further mismatches are consequences
            return self._counts.with_findings(self._findings)
        gaps = [] if self._sparse else self._gaps
        return self._counts.with_findings([*self._findings, *gaps, *self._epochs.misfits])

    def _enter(self, segment: LogSegment) -> None:
        """Compares a segment's base with the end of the previous one."""
        end = self.next_offset if self._sealed_end is None else self._sealed_end
        if 0 <= end < segment.base_offset:
            path = join(segment.directory, names.file_name(end, names.LOG))
            told = f"is missing: no segment has offset {end}, and the next one begins at {segment.base_offset}"
            finding = about("missing", path, told, offset=end)
            if self._sealed_end is not None:
                self.tell(finding)
            elif self._may_be_compacted(end, segment):
                self._thinned = True
            elif not self._cut:
                self._gaps.append(finding)
        self.next_offset = max(self.next_offset, segment.base_offset)

    def _may_be_compacted(self, end: int, following: LogSegment) -> bool:
        """Whether compaction may have left the gap before a segment: it has reached it, and all files in between are deleted.

        Compaction removes a `.log` file before its derived files, and its seal or `.swap` records the gap until they are deleted.
        So a derived file alone means that only the `.log` file was lost.
        """
        if self._partition.compacted_to < following.base_offset:
            return False
        found = [names.parse(entry.name) for entry in self._partition.fs.list(self._partition.directory)]
        between = [name for name in found if name is not None and end <= name.offset < following.base_offset]
        logs = {name.offset for name in between if name.suffix == names.LOG}  # brokers rename before deleting
        return all(name.offset in logs for name in between if name.suffix in _DERIVED and not name.state)

    def _take(self, segment: LogSegment, stretch: WalkedRange) -> None:
        table = stretch.table
        if table.shape[1]:
            self._sparse |= not _is_dense(table, self.next_offset)
            self._epochs.take(segment, table)
            self.next_offset = int(table[LAST_OFFSET, -1]) + 1


def _is_dense(table: Table, next_offset: int) -> bool:
    """Whether batches follow an offset without a gap, also between records."""
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
        self.misfits: list[Finding] = []

    def take(self, segment: LogSegment, table: Table) -> None:
        asked = (table[LEADER_EPOCH] >= 0) & (table[BASE_OFFSET] >= max(self._start_offset, self._starts[0]))
        if self.misfits or not self._judged or not asked.any():
            return
        places = self._starts.searchsorted(table[BASE_OFFSET], "right") - 1
        wrong = asked & ((places < 0) | (self._epochs[np.maximum(places, 0)] != table[LEADER_EPOCH]))
        if wrong.any():
            batch = int(np.argmax(wrong))
            offset, epoch = int(table[BASE_OFFSET, batch]), int(table[LEADER_EPOCH, batch])
            told = "is missing" if self._lacking else f"does not give offset {offset} the leader epoch {epoch}"
            self.misfits.append(about("derived", self._path, f"{told}, as its batch in {segment.path} has", offset=offset))


class _SegmentWatch:
    """Compares one segment's seal and indexes with its batches, and counts them."""

    def __init__(self, partition: Partition, segment: LogSegment, size: int) -> None:
        self._segment = segment
        self._sealed = not partition.is_active(segment)  # at the time of the state
        self._path = segment.path
        self._next_offset = segment.base_offset
        self._indexes: list[_IndexWatch] = []
        self.findings: list[Finding] = []
        self.seal: Seal | None = None
        self.damaged = False
        self.end = self.batches = self.records = self.bytes = 0
        try:
            self._load_seal(partition.fs, size)
            self._load_indexes(partition)
        except StorageFailedError as error:
            if not vanished(error):
                self.findings.append(of_error(error, self._path))
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
            self._indexes.append(_OffsetWatch(segment.path_of(names.INDEX), "state", segment.offset_index(), complete=False))
            self._indexes.append(_TimeWatch(segment.path_of(names.TIME_INDEX), "state", segment.time_index(), complete=False))
        for suffix in (names.TRANSACTION_INDEX,) if in_memory else (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
            watch, finding = _load_index(partition.fs, segment, suffix, sealed=self._sealed)
            self._indexes += [] if watch is None else [watch]
            self.findings += [] if finding is None else [finding]

    def take(self, stretch: WalkedRange) -> None:
        table, shift = stretch.table, stretch.shift
        if table.shape[1]:
            if self._reader is not None:
                for altered in self._reader.altered(stretch.buffer, table, shift):
                    self.tell(self._altered(altered))
            for index in self._indexes:
                index.take(stretch)
            self.batches += table.shape[1]
            self.records += int(np.abs(table[COUNT]).sum())  # -1 if an old format has no count
            self.bytes += int(table[SIZE].sum())
            self.end = shift + int(table[POSITION, -1] + table[SIZE, -1])
            self._next_offset = int(table[LAST_OFFSET, -1]) + 1
        if stretch.damage is not None:
            self.tell(self._damaged(stretch.damage))

    def tell(self, finding: Finding) -> None:
        self.damaged = True
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)

    def _altered(self, altered: Altered) -> Finding:
        """Reports that a header in the active segment differs from the log's digest; it is not known which one."""
        told, size = f"{ALTERED}: those of {altered.end} bytes", altered.end - altered.start
        return about("corrupt", self._path, told, position=altered.start, size=size, offset=self._segment.base_offset)

    def _damaged(self, damage: Damage) -> Finding:
        position, end, offset, next_offset, why = damage
        message = f"{self._path}: the batch at position {position} (offset {offset}) {why}; {end - position} bytes are not served"
        return Finding("corrupt", self._path, position, end - position, offset, next_offset, message)

    def finish(self) -> list[Finding]:
        """Returns all findings about the segment."""
        return self.findings + [found for index in self._indexes for found in index.finish(whole=not self.damaged)]

    def verdict(self, size: int) -> FileVerdict:
        """Returns the verdict on the `.log` file."""
        kinds = [finding.kind for finding in self.findings if finding.path == self._path]
        return FileVerdict(self._path, size, self.batches, self.seal is not None, kinds[0] if kinds else GOOD)


# ---- indexes -----------------------------------------------------------------------------------------------------------------


class _IndexWatch:
    """Compares an index with its batches in one pass, and reports the first entry that does not match.

    Args:
        path: the index file.
        kind: of the finding.
        entry_size: in bytes.
        offsets: of the entries, ascending.
        complete: true if the segment is sealed.
    """

    def __init__(self, path: str, kind: str, entry_size: int, offsets: Longs, *, complete: bool) -> None:
        self._path = path
        self._kind = kind
        self.entry_size = entry_size
        self._complete = complete
        self._wrong: int | None = None
        self._last_offset = -1  # of the batches so far
        self.offsets = offsets

    def take(self, stretch: WalkedRange) -> None:
        if self._wrong is None and self.offsets.size:
            first, good = self.judge(stretch)
            if not good.all():
                self._wrong = first + int(np.argmin(good))
        self._last_offset = int(stretch.table[LAST_OFFSET, -1])

    def judge(self, stretch: WalkedRange) -> tuple[int, Flags]:
        """Returns the first entry within these batches, and for it and the next ones whether they match."""
        raise NotImplementedError

    def entries_of(self, table: Table) -> slice:
        """Returns the entries with offsets in these batches."""
        return slice(*self.offsets.searchsorted((self._last_offset, int(table[LAST_OFFSET, -1])), "right").tolist())

    def finish(self, *, whole: bool) -> list[Finding]:
        """Returns the finding, if any. `whole`: all batches were compared."""
        if self._wrong is None and whole and self._complete and self.offsets.size and self.ends_wrongly():
            self._wrong = self.offsets.size - 1
        if self._wrong is None:
            return []
        position = self._wrong * self.entry_size
        told = f"has an entry (number {self._wrong}, at position {position}) that does not fit the batches"
        return [
            about(self._kind, self._path, told, position=position, size=self.entry_size, offset=int(self.offsets[self._wrong]))
        ]

    def ends_wrongly(self) -> bool:
        """Whether the last entry of a sealed segment does not match its batches."""
        return int(self.offsets[-1]) > self._last_offset


class _OffsetWatch(_IndexWatch):
    """Checks that each entry leads to a batch, and that no earlier batch reaches its offset (storage-format 4.2.2)."""

    def __init__(self, path: str, kind: str, index: OffsetIndex, *, complete: bool) -> None:
        entries = np.frombuffer(index.encoded(), ">i4").reshape(-1, 2).astype(np.int64)
        super().__init__(path, kind, OffsetIndex.ENTRY_SIZE, entries[:, 0] + index.base_offset, complete=complete)
        self._positions = entries[:, 1].copy()

    def judge(self, stretch: WalkedRange) -> tuple[int, Flags]:
        table = stretch.table
        starts, bases, last = table[POSITION] + stretch.shift, first_offsets(table), table[LAST_OFFSET]
        first, end = self._positions.searchsorted((starts[0], starts[-1] + table[SIZE, -1])).tolist()
        positions, offsets = self._positions[first:end], self.offsets[first:end]
        batches = starts.searchsorted(positions, "right") - 1
        good = (starts[batches] == positions) & (bases[batches] <= offsets)
        named = np.minimum(last.searchsorted(offsets), last.size - 1)  # an entry has the last offset of an append
        return first, good & ((bases[named] <= offsets) | (offsets > last[-1]))


class _TimeWatch(_IndexWatch):
    """Checks that no record up to an entry's offset has a larger timestamp, and that its batch has it (5.1, 5.2.1)."""

    def __init__(self, path: str, kind: str, index: TimeIndex, *, complete: bool) -> None:
        entries = np.frombuffer(index.encoded(), np.dtype([("timestamp", ">i8"), ("relative", ">i4")]))
        offsets = entries["relative"].astype(np.int64) + index.base_offset
        super().__init__(path, kind, TimeIndex.ENTRY_SIZE, offsets, complete=complete)
        self._timestamps = entries["timestamp"].astype(np.int64)
        self._largest = -1

    def take(self, stretch: WalkedRange) -> None:
        super().take(stretch)
        self._largest = max(self._largest, int(stretch.table[MAX_TIMESTAMP].max()))

    def judge(self, stretch: WalkedRange) -> tuple[int, Flags]:
        table = stretch.table
        entries, last, stamps = self.entries_of(table), table[LAST_OFFSET], table[MAX_TIMESTAMP]
        offsets, told = self.offsets[entries], self._timestamps[entries]
        largest = np.maximum.accumulate(np.append(self._largest, stamps))  # largest timestamp before each batch
        holders = last.searchsorted(offsets)
        held = (table[MAGIC, holders] == 2) & (table[BASE_OFFSET, holders] <= offsets)
        good = (largest[last.searchsorted(offsets, "right")] <= told) & (~held | (stamps[holders] == told))
        return int(entries.start), good

    def ends_wrongly(self) -> bool:
        return self._largest != self._timestamps[-1] or super().ends_wrongly()


class _AbortWatch(_IndexWatch):
    """Checks that each entry names a control batch of its producer (storage-format 3.9)."""

    def __init__(self, path: str, index: TransactionIndex, *, complete: bool) -> None:
        aborted = [index.entry(number) for number in range(len(index))]
        offsets = np.array([entry.last_offset for entry in aborted], np.int64)
        super().__init__(path, "derived", ENTRY_SIZE, offsets, complete=complete)
        self._producers = np.array([entry.producer_id for entry in aborted], np.int64)

    def judge(self, stretch: WalkedRange) -> tuple[int, Flags]:
        table = stretch.table
        entries = self.entries_of(table)
        markers = table[LAST_OFFSET].searchsorted(self.offsets[entries])
        good = (table[LAST_OFFSET, markers] == self.offsets[entries]) & (table[PRODUCER_ID, markers] == self._producers[entries])
        return int(entries.start), good & ((table[ATTRIBUTES, markers] & CONTROL_BIT) != 0)


def _load_index(fs: FileSystem, segment: LogSegment, suffix: str, *, sealed: bool) -> tuple[_IndexWatch | None, Finding | None]:
    """Loads the valid part of an index file, with the finding about it."""
    path, base = segment.path_of(suffix), segment.base_offset
    data, fault, *_ = read_derived(fs, path, limit_of(suffix, segment.size))
    if fault is not None:
        return None, about("derived", path, f"cannot be used: {fault}", offset=base)
    if data is None:
        needed = sealed and suffix != names.TRANSACTION_INDEX
        return None, about("derived", path, "is missing", offset=base) if needed else None
    watch: _IndexWatch
    if suffix == names.INDEX:
        offsets, damaged = OffsetIndex.from_bytes(base, data, segment.size if sealed else segment.file().size())
        watch = _OffsetWatch(path, "derived", offsets, complete=sealed)
    elif suffix == names.TIME_INDEX:
        times, damaged = TimeIndex.from_bytes(base, data)
        watch = _TimeWatch(path, "derived", times, complete=sealed)
    else:
        aborted, damaged = TransactionIndex.from_bytes(base, data)
        watch = _AbortWatch(path, aborted, complete=sealed)
    if not damaged:
        return watch, None
    position = watch.offsets.size * watch.entry_size
    return None, about("derived", path, "has bytes that are not an entry", position=position, size=len(data) - position)
