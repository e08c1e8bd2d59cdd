"""`check`: whether everything that should always be true of an open store is true (reliability 6.5). It changes nothing.

One pass over the batch headers of each partition compares the segments with what was derived from them, and with what the open
log believes. `verification` makes the same pass over every byte. Damage is a finding, never an error.
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
UNFINISHED: Final = "is left over from something that was not finished"
_DERIVED: Final = (names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.SEAL)  # of one segment's `.log` file
MOST_FINDINGS: Final = 1000  # about one file: a disk full of damage must not fill the memory

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


def check_store(fs: FileSystem, root: str, partitions: Iterable[Look]) -> Report:
    """Checks all invariants of a store's partitions. It prints nothing, changes nothing, and raises for no damage.

    Args:
        fs, root: the log directory.
        partitions: those to look into. One that cannot be opened is a finding, one that was deleted meanwhile is not.

    Returns:
        A `Report` without verdicts.

    Cost: one pass over the batch headers, and over the files beside them. Spec: reliability 6.5.
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


# ---- what lies in a directory ------------------------------------------------------------------------------------------------


def check_files(partition: Partition) -> Iterator[Finding]:
    """What a partition's directory holds beside sound segments: sizes, names, snapshots, the header."""
    try:
        slot = partition.slot()  # before the sizes: they only grow
        entries = {entry.name: entry for entry in partition.fs.list(partition.directory) if entry.is_file}
        yield from _check_sizes(partition, entries)
        yield from _check_names(partition, entries)
        yield from _check_snapshots(partition, entries)
        if names.DURABLE_POINT in entries:
            yield from _check_header(partition, slot, entries)
    except StorageFailedError as error:
        yield of_error(error, partition.directory)


def _check_sizes(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Each segment's file is there, and holds what its log believes."""
    for segment, _ in partition.segments():
        entry, size = entries.get(segment.log_name), partition.state.size_of(segment)
        if entry is None:
            if partition.quiet:  # else retention may have taken it
                yield about("missing", segment.path, "is gone", size=size, offset=segment.base_offset)
        elif entry.size < size:
            told = f"has {entry.size} bytes, and {size} were in the log"
            yield about("missing", segment.path, told, position=entry.size, size=size - entry.size)
        elif entry.size > size and segment is not partition.state.active:
            told = f"has {entry.size} bytes, and {size} were in the log when it was sealed"
            yield about("state", segment.path, told, position=size, size=entry.size - size)


def _check_names(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Nothing unfinished and nothing of a segment that is gone is left, and no segment is unknown."""
    bases = {segment.base_offset for segment, _ in partition.segments()}
    for name in entries if partition.quiet else ():
        path, found = join(partition.directory, name), names.parse(name)
        if name.endswith((TEMPORARY, names.CLEANED, names.SWAP)):
            yield about("leftover", path, UNFINISHED)
        elif found is not None and not found.state and found.offset not in bases:
            if found.suffix == names.LOG:
                yield about("state", path, "is no segment that the log knows", size=entries[name].size, offset=found.offset)
            elif found.suffix in _DERIVED:
                yield about("leftover", path, "is left over from a segment that is gone", offset=found.offset)


def _check_snapshots(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Each producer snapshot can be read, and is named by an offset that the log has reached (storage-format 3.10)."""
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
    """What the `durable-point` file says agrees with the files, unless another program has written since (reliability 12)."""
    path = join(partition.directory, names.DURABLE_POINT)
    if slot is None:
        size = entries[names.DURABLE_POINT].size
        if size >= SLOT_SIZE and partition.state.end_offset > 0:  # else who wrote its first slot may have died amid that
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
    """What a log publishes is possible, and is what its batches say."""
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
        told = f"has batches up to position {watch.end}, and the log publishes {state.active_size} bytes"
        yield about("state", state.active.path, told, position=watch.end)
    if watch.next_offset > state.end_offset:
        told = f"has batches up to offset {watch.next_offset}, and the log ends at {state.end_offset}"
        yield about("state", state.active.path, told, offset=state.end_offset)


# ---- what lies in the root ---------------------------------------------------------------------------------------------------


def check_ends(partition: Partition, ends: Ends) -> Iterator[Finding]:
    """The checkpoints understate: the partition neither ends nor begins before what they say."""
    state, key, log_start = partition.state, partition.key, ends.log_starts.get(partition.key, 0)
    if ends.recovery_points.get(key, 0) > state.end_offset:
        now, _ = read_ends(partition.fs, ends.root)  # a truncation may have lowered it, and the end, since
        reached = now.recovery_points.get(key, 0)
        if reached > state.end_offset and not partition.has_moved():
            yield partition.short_of(reached, RECOVERY_POINT)
    if log_start > state.start_offset and partition.quiet:
        told = f"says that {partition.directory} starts at {log_start}, behind its start {state.start_offset}"
        yield about("state", join(ends.root, LOG_START), told, offset=log_start)
    yield from _check_start(partition, log_start)


def _check_start(partition: Partition, log_start: int) -> Iterator[Finding]:
    """Who removes a log's first segments moves its start, or the first leader epoch's (6.13.2); if nobody did, they are lost."""
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
        told = f"is not there: the leader epochs begin at offset {offset}, and the first segment at {first.base_offset}"
        yield about("missing", path, told, offset=offset)


# ---- a pass over batches -----------------------------------------------------------------------------------------------------


class LogWatch:
    """Compares what belongs to a partition with its batches, while they go by in order.

    Attributes:
        damaged: whether anything of the log is not what was written; then its gaps and its end prove nothing.
        end: position behind the last batch of the last segment.
        next_offset: the offset behind the last batch; -1 before the first.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._epochs = _EpochWatch(partition)
        self._gaps: list[Finding] = []
        self._cut = partition.was_cut()
        self._sparse = False  # something was compacted: gaps prove nothing
        self._thinned = False  # the same of the gap between two segments
        self._sealed_end: int | None = None  # of the segment before, as its seal says
        self._current: _SegmentWatch | None = None
        self._findings: list[Finding] = list(self._epochs.findings)
        self._counts = Report(partitions=1)
        self.damaged = False
        self.end = 0
        self.next_offset = -1

    def follow(self, segment: LogSegment, size: int, stretches: Iterator[WalkedRange]) -> FileVerdict:
        """Takes a segment's stretches, all of them, in order.

        Args:
            segment: whose they are.
            size: bytes of its file that count.
            stretches: from the first batch on. An error that they raise is a finding.
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
                watch.findings.clear()  # retention took it; if nobody did, `check_files` tells
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
        """Whether every record that was ever between two others is still there: nothing damaged, missing or compacted."""
        return not self._sparse and not self._thinned and not self.damaged and not self._gaps

    def tell(self, finding: Finding) -> None:
        """Adds what somebody else found wrong with the batches of the segment that is being taken."""
        assert self._current is not None
        self._current.tell(finding)

    def report(self) -> Report:
        """Everything found."""
        if self.damaged:  # then it is no wonder that other things do not fit
            return self._counts.with_findings(self._findings)
        gaps = [] if self._sparse else self._gaps
        return self._counts.with_findings([*self._findings, *gaps, *self._epochs.misfits])

    def _enter(self, segment: LogSegment) -> None:
        """Compares where a segment begins with the end of the one before."""
        end = self.next_offset if self._sealed_end is None else self._sealed_end
        if 0 <= end < segment.base_offset:
            path = join(segment.directory, names.file_name(end, names.LOG))
            told = f"is not there: no segment holds offset {end}, and the next one begins at {segment.base_offset}"
            finding = about("missing", path, told, offset=end)
            if self._sealed_end is not None:
                self.tell(finding)
            elif self._may_be_compacted(end, segment):
                self._thinned = True
            elif not self._cut:
                self._gaps.append(finding)
        self.next_offset = max(self.next_offset, segment.base_offset)

    def _may_be_compacted(self, end: int, following: LogSegment) -> bool:
        """Whether compaction may have left a gap before a segment: it got there, and took all files of what was in between.

        It removes a `.log` file before those that were derived from it, and its seal or `.swap` tells of the gap until they are
        gone. So one that stands there alone was left by somebody who took the `.log` file and nothing else.
        """
        if self._partition.compacted_to < following.base_offset:
            return False
        found = [names.parse(entry.name) for entry in self._partition.fs.list(self._partition.directory)]
        between = [name for name in found if name is not None and end <= name.offset < following.base_offset]
        logs = {name.offset for name in between if name.suffix == names.LOG}  # in whatever state: a broker renames what goes
        return all(name.offset in logs for name in between if name.suffix in _DERIVED and not name.state)

    def _take(self, segment: LogSegment, stretch: WalkedRange) -> None:
        table = stretch.table
        if table.shape[1]:
            self._sparse |= not _is_dense(table, self.next_offset)
            self._epochs.take(segment, table)
            self.next_offset = int(table[LAST_OFFSET, -1]) + 1


def _is_dense(table: Table, next_offset: int) -> bool:
    """Whether some batches follow on from an offset without a gap, in records too."""
    first, last = table[BASE_OFFSET], table[LAST_OFFSET]
    follows = int(first[0]) == next_offset and bool((first[1:] == last[:-1] + 1).all())
    return follows and bool((last - first + 1 == table[COUNT]).all())


class _EpochWatch:
    """Whether the leader epoch checkpoint says of each batch what it has itself (storage-format 6.13)."""

    def __init__(self, partition: Partition) -> None:
        epochs, self.findings = partition.epochs()
        self._path = join(partition.directory, names.LEADER_EPOCH_CHECKPOINT)
        self._start_offset = partition.state.start_offset  # a broker cuts entries below the start as soon as that is raised
        self._judged = not self.findings  # a damaged one says nothing
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
            told = "is not there" if self._lacking else f"does not give offset {offset} the leader epoch {epoch}"
            self.misfits.append(about("derived", self._path, f"{told}, as its batch in {segment.path} has", offset=offset))


class _SegmentWatch:
    """Compares one segment's seal and indexes with its batches, and counts them."""

    def __init__(self, partition: Partition, segment: LogSegment, size: int) -> None:
        self._segment = segment
        self._sealed = not partition.is_active(segment)  # when its state was published
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
        known = partition.known_of(segment)  # of a sealed one `walk` has compared what its seal says
        self._reader = None if known is None else SealedReader(known)

    def _load_seal(self, fs: FileSystem, size: int) -> None:
        """Takes the segment's seal, if it has a sound one of its own."""
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
        """Takes the indexes: those in memory of a segment that is appended to, else the files."""
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
            self.records += int(np.abs(table[COUNT]).sum())  # -1 where an old format does not say
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
        """That some header of the segment that is appended to is another one than the log's digest says; which, is not known."""
        told, size = f"{ALTERED}: those of {altered.end} bytes", altered.end - altered.start
        return about("corrupt", self._path, told, position=altered.start, size=size, offset=self._segment.base_offset)

    def _damaged(self, damage: Damage) -> Finding:
        position, end, offset, next_offset, why = damage
        message = f"{self._path}: the batch at position {position} (offset {offset}) {why}; {end - position} bytes are not served"
        return Finding("corrupt", self._path, position, end - position, offset, next_offset, message)

    def finish(self) -> list[Finding]:
        """Everything found about the segment."""
        return self.findings + [found for index in self._indexes for found in index.finish(whole=not self.damaged)]

    def verdict(self, size: int) -> FileVerdict:
        """What became of the `.log` file."""
        kinds = [finding.kind for finding in self.findings if finding.path == self._path]
        return FileVerdict(self._path, size, self.batches, self.seal is not None, kinds[0] if kinds else GOOD)


# ---- indexes -----------------------------------------------------------------------------------------------------------------


class _IndexWatch:
    """An index while the batches that it leads to go by; the first entry that does not fit them is told.

    Args:
        path: the index file.
        kind: of the finding.
        entry_size: bytes.
        offsets: of the entries, rising.
        complete: the segment never changes again.
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
        """The first entry that these batches can judge, and of it and those behind it, which are right."""
        raise NotImplementedError

    def entries_of(self, table: Table) -> slice:
        """The entries with offsets behind the batches before, and not behind these."""
        return slice(*self.offsets.searchsorted((self._last_offset, int(table[LAST_OFFSET, -1])), "right").tolist())

    def finish(self, *, whole: bool) -> list[Finding]:
        """What was found. `whole`: every batch went by."""
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
        """Whether the last entry of a segment that never changes again is not what its batches ask for."""
        return int(self.offsets[-1]) > self._last_offset


class _OffsetWatch(_IndexWatch):
    """Each entry leads to a batch, before which no record of its offset or a later one lies (storage-format 4.2.2)."""

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
        named = np.minimum(last.searchsorted(offsets), last.size - 1)  # an entry has the last offset of a whole append
        return first, good & ((bases[named] <= offsets) | (offsets > last[-1]))


class _TimeWatch(_IndexWatch):
    """No record at or before an entry's offset has a larger timestamp, and the batch that holds it has that one (5.1, 5.2.1)."""

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
        largest = np.maximum.accumulate(np.append(self._largest, stamps))  # … of the batches before each
        holders = last.searchsorted(offsets)
        held = (table[MAGIC, holders] == 2) & (table[BASE_OFFSET, holders] <= offsets)
        good = (largest[last.searchsorted(offsets, "right")] <= told) & (~held | (stamps[holders] == told))
        return int(entries.start), good

    def ends_wrongly(self) -> bool:
        return self._largest != self._timestamps[-1] or super().ends_wrongly()


class _AbortWatch(_IndexWatch):
    """Each entry names a control batch of its producer (storage-format 3.9)."""

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
    """An index file as far as it can be one, and what is wrong with it."""
    path, base = segment.path_of(suffix), segment.base_offset
    data, fault, *_ = read_derived(fs, path, limit_of(suffix, segment.size))
    if fault is not None:
        return None, about("derived", path, f"cannot be used: {fault}", offset=base)
    if data is None:
        needed = sealed and suffix != names.TRANSACTION_INDEX
        return None, about("derived", path, "is not there", offset=base) if needed else None
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
    return None, about("derived", path, "holds bytes that are no entry", position=position, size=len(data) - position)
