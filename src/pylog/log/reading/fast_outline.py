"""A partition's outline without the engine: from the names in its directory, its header and the batch headers at its end.

Who plans reads of ten thousand partitions, or starts a process to plan one, asks for little of each, and nearly all are in
order. So this takes no kernel and makes no segments, and judges nothing: whatever is not as it should be, or is just being
changed, gets no answer, and who asks opens the partition as `outline_at` does. What it does answer is the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from pylog import limits
from pylog.errors import PylogError
from pylog.fs import FILES, File, FileSystem, join, read_derived
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex, TimestampOffset
from pylog.log.durable_point import DurablePoint, open_header
from pylog.log.reading.outline import PartitionExtent
from pylog.record.format import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET, LEADER_EPOCH, MAX_TIMESTAMP, SIZE
from pylog.record.header import header_column
from pylog.segment.names import DURABLE_POINT, INDEX, LOG, TIME_INDEX, file_name, plain_plan

_MOST: Final = 64  # batches behind an index entry; at Kafka's default interval even small ones are fewer


class Glance(NamedTuple):
    """What a glance found.

    Attributes:
        outline: of the partition.
        slot: what its header says, None without one.
    """

    outline: PartitionExtent
    slot: DurablePoint | None


def glance(fs: FileSystem, directory: str, log_start: int, *, ours: bool) -> Glance | None:
    """A partition's outline, as an open log has it, where nothing about it is out of the ordinary.

    Args:
        fs, directory: the partition.
        log_start: Kafka's checkpointed log start, 0 without one.
        ours: no broker was here since pylog, so that the header knows the start better than the checkpoint.

    Returns:
        What was found; None where a partition must be opened to say more, or to say what is wrong with it.

    Cost: one listing, the index of the last segment, and the headers behind its last entry; half of what opening costs.
    """
    try:
        if fs.link_target(directory) is not None:  # whether it may be followed is not seen at a glance
            return None
        fs.check_directory(directory, write=False)
        slot = _slot_of(fs, directory)  # before the files are listed: what it publishes is among them (11a)
        outline = _outline(fs, directory, slot, log_start, ours=ours)
        return Glance(outline, slot) if outline is not None and _slot_of(fs, directory) == slot else None
    except PylogError:
        return None


def is_still_so(fs: FileSystem, directory: str, seen: Glance) -> bool:
    """Whether a partition is as an earlier glance found it: its header tells, or without one the `.log` files' names and sizes.

    Args:
        fs, directory: the partition.
        seen: the earlier glance.

    Raises:
        StorageFailedError: it cannot be looked at; it may have been deleted.

    Cost: a small file, or without it a listing.
    """
    if seen.slot is not None:
        return _slot_of(fs, directory) == seen.slot and _size_of(fs, directory, seen.outline.bases[-1]) == seen.outline.sizes[-1]
    found = _segments(fs, directory)
    return found == (seen.outline.bases, seen.outline.sizes, False)


def _slot_of(fs: FileSystem, directory: str) -> DurablePoint | None:
    """What a partition's header says, if it has one and that is of this boot. Cost: 10 µs."""
    header = open_header(fs, directory)
    if header is None:
        return None
    try:
        slot = header.refresh()
        return slot if header.same_boot else None
    finally:
        header.close()


def _size_of(fs: FileSystem, directory: str, base: int) -> int:
    """Bytes in a segment's file: a broker that goes on with it says nothing in the header."""
    file = fs.open(join(directory, file_name(base, LOG)))
    try:
        return file.size()
    finally:
        file.close()


def _outline(fs: FileSystem, directory: str, slot: DurablePoint | None, log_start: int, *, ours: bool) -> PartitionExtent | None:
    found = _segments(fs, directory)
    if found is None:
        return None
    bases, sizes, has_header = found
    if has_header != (slot is not None):  # or it is of another boot
        return None
    if slot is not None:
        log_start = slot.log_start_offset if ours else max(log_start, slot.log_start_offset)
    start = max(bases[0], log_start)
    end = _end(fs, directory, bases[-1], sizes[-1], slot)
    segment = functools.cache(lambda index: _Segment(fs, directory, bases[index], sizes[index]))
    return None if end is None else PartitionExtent(start, max(start, end), bases, sizes, segment)


def _segments(fs: FileSystem, directory: str) -> tuple[list[int], list[int], bool] | None:
    """Base offsets and sizes of the `.log` files, and whether there is a header; None where something is left half done."""
    entries = fs.list(directory, sizes=LOG)
    names = [entry.name for entry in entries if entry.is_file]
    plan = plain_plan(names)
    sizes = [entry.size for entry in entries if LOG in entry.name]
    if plan is None or not sizes or len(sizes) != len(plan.segments):
        return None
    return list(plan.segments), sizes, DURABLE_POINT in names


# ---- the end -----------------------------------------------------------------------------------------------------------------

_Column = tuple[int, ...]  # a batch, as in a batch table


def _end(fs: FileSystem, directory: str, base: int, size: int, slot: DurablePoint | None) -> int | None:
    """The offset behind the last record, if the header, the indexes and the last batches agree that this is where it ends."""
    file = fs.open(join(directory, file_name(base, LOG)))
    try:
        if slot is not None and (slot.flags or slot.epoch % 2 or _published(slot) != (base, file.identity()[1], size)):
            return None
        end = _end_of_segment(fs, directory, base, size, file) if size else base
        return end if slot is None or end == slot.published_offset else None
    finally:
        file.close()


def _published(slot: DurablePoint) -> tuple[int, int, int]:
    return slot.active_base, slot.active_inode, slot.published_position


def _end_of_segment(fs: FileSystem, directory: str, base: int, size: int, file: File) -> int | None:
    offsets = _offset_index(fs, directory, base, size)
    times = read_derived(fs, join(directory, file_name(base, TIME_INDEX)), limits.LEAST_INDEX_LIMIT_BYTES).data
    if offsets is None or times is None:
        return None
    time_index, damaged = TimeIndex.from_bytes(base, times)
    tail = list(islice(_batches(file, offsets.last.position, size), _MOST + 1))
    known = not damaged and len(time_index) and _is_whole(tail, offsets, size) and _is_named(tail, time_index.last, offsets, file)
    return tail[-1][LAST_OFFSET] + 1 if known else None


def _batches(file: File, position: int, size: int) -> Iterator[_Column]:
    """The batches of magic 2 from a position to the file's end, as far as they are whole."""
    while position < size:
        column = header_column(memoryview(file.read(HEADER_SIZE, position)), position)
        if column is None or position + column[SIZE] > size:
            return
        yield column
        position += column[SIZE]


def _is_whole(tail: Sequence[_Column], offsets: OffsetIndex, size: int) -> bool:
    """Whether the batches begin where the index says and go on to the segment's end, without a gap and under one epoch."""
    if not tail or len(tail) > _MOST or tail[-1][0] + tail[-1][SIZE] != size or not _fits(tail[0], offsets):
        return False
    following = tail[0][BASE_OFFSET]
    for column in tail:
        if column[BASE_OFFSET] != following or column[LEADER_EPOCH] != tail[0][LEADER_EPOCH]:
            return False
        following = column[LAST_OFFSET] + 1
    return following - tail[0][BASE_OFFSET] <= limits.MAX_RELATIVE_OFFSET


def _fits(column: _Column, offsets: OffsetIndex) -> bool:
    """Whether a batch is the one that the last entry of the index names; the segment's first one without any."""
    if not len(offsets):
        return column[BASE_OFFSET] == offsets.base_offset
    return offsets.base_offset <= column[BASE_OFFSET] and column[LAST_OFFSET] == offsets.last.offset


def _is_named(tail: Sequence[_Column], entry: TimestampOffset, offsets: OffsetIndex, file: File) -> bool:
    """Whether a time entry's offset lies in a batch whose largest timestamp is the entry's."""
    if entry.offset < tail[0][BASE_OFFSET]:
        tail = list(islice(_batches(file, offsets.lower(entry.offset + 1).position, tail[0][0]), _MOST))
    found = next((column for column in tail if column[LAST_OFFSET] >= entry.offset), None)
    return found is not None and found[BASE_OFFSET] <= entry.offset and found[MAX_TIMESTAMP] == entry.timestamp


# ---- where it can be cut -----------------------------------------------------------------------------------------------------


class _Segment:
    """A segment that is cut: its index, looked up where that is as it should be, else the one that the engine makes again."""

    def __init__(self, fs: FileSystem, directory: str, base: int, size: int) -> None:
        self._fs = fs
        self._directory = directory
        self._base = base
        self._size = size

    @functools.cached_property
    def _index(self) -> OffsetIndex:
        index = _offset_index(self._fs, self._directory, self._base, self._size)
        if index is not None and self._is_of_this(index):
            return index
        from pylog.segment.segment import LogSegment

        segment = LogSegment(self._fs, self._directory, self._base, size=self._size, mtime_ms=0, open_files=FILES)
        return segment.offset_index()

    def _is_of_this(self, index: OffsetIndex) -> bool:
        file = self._fs.open(join(self._directory, file_name(self._base, LOG)))
        try:
            first = next(_batches(file, index.last.position, self._size), None)
            return first is not None and _fits(first, index)
        finally:
            file.close()

    def offset_index(self) -> OffsetIndex:
        return self._index


def _offset_index(fs: FileSystem, directory: str, base: int, size: int) -> OffsetIndex | None:
    """A segment's index, None when it is missing or damaged."""
    data = read_derived(fs, join(directory, file_name(base, INDEX)), limits.LEAST_INDEX_LIMIT_BYTES).data
    index, damaged = OffsetIndex.from_bytes(base, b"" if data is None else data, size)
    return None if data is None or damaged else index
