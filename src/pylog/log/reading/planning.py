"""Estimates the size of offset ranges and where to split them, from segment sizes and indexes, never from records."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from pylog import limits
from pylog.log.reading.outline import Indexed, PartitionExtent

if TYPE_CHECKING:
    from pylog.log.state import LogState
    from pylog.segment.segment import LogSegment


_Piece = tuple[int, int, int]  # the part of a range in one segment: its index, its first byte, the byte after it


class Split(NamedTuple):
    """The approximate size of a range in bytes, and the batch boundaries that split it."""

    size: int
    offsets: list[int]


def cut(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> Split:
    """Returns a range's size, and where to split it into parts of about `max_bytes`, in one walk."""
    pieces = _pieces(outline, start, end)
    size = _size(pieces)
    return Split(size, _inner(outline, pieces, start, end, max_bytes) if size > max_bytes else [])


def size_between(outline: PartitionExtent, start: int, end: int) -> int:
    """Returns the approximate size of the records from `start` up to, but not including, `end`, in bytes."""
    return _size(_pieces(outline, start, end))


def _size(pieces: Iterable[_Piece]) -> int:
    return sum(end - first for _, first, end in pieces)


def split_offsets(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> list[int]:
    """Returns batch boundaries that split a range into parts of about `max_bytes`; a part may span segments."""
    return _inner(outline, _pieces(outline, start, end), start, end, max_bytes)


def _inner(outline: PartitionExtent, pieces: Iterable[_Piece], start: int, end: int, max_bytes: int) -> list[int]:
    return sorted({offset for offset in _cuts(outline, pieces, max_bytes) if start < offset < end})


def first_cut(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> int:
    """Returns the first such boundary, or `end`: about `max_bytes` after the start, and at least one batch."""
    cuts = _cuts(outline, _pieces(outline, start, end), max_bytes)
    return next((offset for offset in cuts if start < offset < end), end)


def _cuts(outline: PartitionExtent, pieces: Iterable[_Piece], max_bytes: int) -> Iterator[int]:
    """Yields the boundaries in order; some may occur twice."""
    used = 0
    for segment, first, end in pieces:
        size = end - first
        if used + size <= max_bytes:
            used += size
            continue
        if size <= max_bytes or used >= max_bytes:
            yield outline.bases[segment]
            used = 0
        if size > max_bytes:  # a segment without a split needs no index
            used = yield from _cuts_inside(outline.segment(segment), first, end, max_bytes, used)
        else:
            used = size


def _cuts_inside(segment: Indexed, first: int, end: int, max_bytes: int, used: int) -> Generator[int, None, int]:
    """Yields the splits between two positions of a segment, after `used` unsplit bytes. Returns the bytes after the last one."""
    index = segment.offset_index()
    begin = first - used
    while end - begin > max_bytes:
        offset = index.upper_bound_offset(begin + max_bytes)
        entry = None if offset is None else index.upper(offset)
        if entry is None or not max(begin, first) < entry.position < end:
            break
        yield entry.offset + 1  # an entry has its batch's last offset, so the next batch begins here
        begin = entry.position
    return end - begin


def _pieces(outline: PartitionExtent, start: int, end: int) -> list[_Piece]:
    bases, sizes = outline.bases, outline.sizes
    first, last = max(0, bisect_right(bases, start) - 1), bisect_left(bases, end) - 1
    if last < first:
        return []
    pieces = list(zip(range(first, last + 1), itertools.repeat(0), sizes[first : last + 1]))
    next_base = bases[last + 1] if last + 1 < len(bases) else outline.end_offset
    if end < min(next_base, outline.end_offset):
        upper = outline.segment(last).offset_index().upper(end)
        pieces[-1] = pieces[-1] if upper is None else (last, 0, upper.position)
    if start > bases[first]:
        pieces[0] = (first, outline.segment(first).offset_index().lower(start + 1).position, pieces[0][2])
    return pieces


def ranges_since(state: LogState, start: int, end: int, timestamp: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of a range that may have records as recent as `timestamp`, judged by the time indexes.

    Args:
        state: the log.
        start, end: the range, `end` exclusive.
        timestamp: milliseconds since 1970.

    Yields:
        Ranges of offsets, ascending; two may touch. A segment whose index was rebuilt is always included: damage may have ended
        its index early.

    Cost: one search in the time index of each segment.
    """
    for segment, segment_end in state.from_offset(start):
        if segment.base_offset >= end:
            return
        first, last = max(start, _first_since(segment, timestamp)), min(end, segment_end)
        if first < last:
            yield first, last


def _first_since(segment: LogSegment, timestamp: int) -> int:
    """Returns an offset below which no record of the segment is as recent as `timestamp`."""
    builder = segment.builder  # read once: sealing clears it
    largest = segment.time_index().last.timestamp if builder is None else builder.max_timestamp
    if segment.index_is_of_headers or largest < 0:
        return segment.base_offset
    if largest < timestamp:
        return limits.INT64_MAX
    entry = segment.time_entry(timestamp - 1)
    return entry.offset + 1 if entry.timestamp >= 0 and not segment.index_is_of_headers else segment.base_offset
