"""How large a range of a log is, where it can be cut, what of it is recent: from segment sizes and indexes, never from data."""

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


_Piece = tuple[int, int, int]  # the part of a range that lies in one segment: its index, its first byte, the byte behind it


class Split(NamedTuple):
    """A range's size in bytes, about, and the batch boundaries that cut it."""

    size: int
    offsets: list[int]


def cut(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> Split:
    """The range's size, and where to cut it into parts of about `max_bytes`: what the two below say, in one walk."""
    pieces = _pieces(outline, start, end)
    size = _size(pieces)
    return Split(size, _inner(outline, pieces, start, end, max_bytes) if size > max_bytes else [])


def size_between(outline: PartitionExtent, start: int, end: int) -> int:
    """About how many bytes the records from `start` to before `end` take."""
    return _size(_pieces(outline, start, end))


def _size(pieces: Iterable[_Piece]) -> int:
    return sum(end - first for _, first, end in pieces)


def split_offsets(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> list[int]:
    """Batch boundaries that cut a range into parts of about `max_bytes`; a part may span segments."""
    return _inner(outline, _pieces(outline, start, end), start, end, max_bytes)


def _inner(outline: PartitionExtent, pieces: Iterable[_Piece], start: int, end: int, max_bytes: int) -> list[int]:
    return sorted({offset for offset in _cuts(outline, pieces, max_bytes) if start < offset < end})


def first_cut(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> int:
    """The first of them, or `end`: so far `max_bytes` reach, about, but one batch at least."""
    cuts = _cuts(outline, _pieces(outline, start, end), max_bytes)
    return next((offset for offset in cuts if start < offset < end), end)


def _cuts(outline: PartitionExtent, pieces: Iterable[_Piece], max_bytes: int) -> Iterator[int]:
    """The same in order, one after the other; some may come twice."""
    used = 0
    for segment, first, end in pieces:
        size = end - first
        if used + size <= max_bytes:
            used += size
            continue
        if size <= max_bytes or used >= max_bytes:
            yield outline.bases[segment]
            used = 0
        if size > max_bytes:  # a segment that is not cut is not looked into
            used = yield from _cuts_inside(outline.segment(segment), first, end, max_bytes, used)
        else:
            used = size


def _cuts_inside(segment: Indexed, first: int, end: int, max_bytes: int, used: int) -> Generator[int, None, int]:
    """The cuts between two positions of a segment, `used` bytes before which are uncut; returns the bytes behind the last one."""
    index = segment.offset_index()
    begin = first - used
    while end - begin > max_bytes:
        offset = index.upper_bound_offset(begin + max_bytes)
        entry = None if offset is None else index.upper(offset)
        if entry is None or not max(begin, first) < entry.position < end:
            break
        yield entry.offset + 1  # an entry names its batch's last offset, so the next batch begins here
        begin = entry.position
    return end - begin


def _pieces(outline: PartitionExtent, start: int, end: int) -> list[_Piece]:
    bases, sizes = outline.bases, outline.sizes
    first, last = max(0, bisect_right(bases, start) - 1), bisect_left(bases, end) - 1
    if last < first:
        return []
    pieces = list(zip(range(first, last + 1), itertools.repeat(0), sizes[first : last + 1]))
    behind = bases[last + 1] if last + 1 < len(bases) else outline.end_offset
    if end < min(behind, outline.end_offset):
        upper = outline.segment(last).offset_index().upper(end)
        pieces[-1] = pieces[-1] if upper is None else (last, 0, upper.position)
    if start > bases[first]:
        pieces[0] = (first, outline.segment(first).offset_index().lower(start + 1).position, pieces[0][2])
    return pieces


def ranges_since(state: LogState, start: int, end: int, timestamp: int) -> Iterator[tuple[int, int]]:
    """The parts of a range outside of which no record is as recent as `timestamp`, as far as the time indexes prove it.

    Args:
        state: the log.
        start, end: the range, `end` exclusive.
        timestamp: milliseconds.

    Yields:
        Ranges of offsets, ascending; two may touch. Nothing is proved of a segment whose index had to be made again: damage may
        have ended it early.

    Cost: a look at the time index of each segment.
    """
    for segment, segment_end in state.from_offset(start):
        if segment.base_offset >= end:
            return
        first, last = max(start, _first_since(segment, timestamp)), min(end, segment_end)
        if first < last:
            yield first, last


def _first_since(segment: LogSegment, timestamp: int) -> int:
    """No record of the segment below this offset is as recent as `timestamp`."""
    builder = segment.builder  # one look: sealing takes it away
    largest = segment.time_index().last.timestamp if builder is None else builder.max_timestamp
    if segment.index_is_of_headers or largest < 0:
        return segment.base_offset
    if largest < timestamp:
        return limits.INT64_MAX
    entry = segment.time_entry(timestamp - 1)
    return entry.offset + 1 if entry.timestamp >= 0 and not segment.index_is_of_headers else segment.base_offset
