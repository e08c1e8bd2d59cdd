"""How large a range of a log is, where it can be cut, what of it is recent: from segment sizes and indexes, never from data."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from pylog import limits
from pylog.log.state import LogState
from pylog.segment.segment import LogSegment


class _Piece(NamedTuple):
    """The part of a range that lies in one segment: bytes from `first` to before `end`."""

    segment: LogSegment
    first: int
    end: int


class Cut(NamedTuple):
    """A range's size in bytes, about, and the batch boundaries that cut it."""

    size: int
    offsets: list[int]


def cut(state: LogState, start: int, end: int, max_bytes: int) -> Cut:
    """The range's size, and where to cut it into parts of about `max_bytes`: what the two below say, in one walk."""
    pieces = list(_pieces(state, start, end))
    size = _size(pieces)
    return Cut(size, _inner(pieces, start, end, max_bytes) if size > max_bytes else [])


def size_between(state: LogState, start: int, end: int) -> int:
    """About how many bytes the records from `start` to before `end` take."""
    return _size(_pieces(state, start, end))


def _size(pieces: Iterable[_Piece]) -> int:
    return sum(piece.end - piece.first for piece in pieces)


def split_offsets(state: LogState, start: int, end: int, max_bytes: int) -> list[int]:
    """Batch boundaries that cut a range into parts of about `max_bytes`; a part may span segments."""
    return _inner(_pieces(state, start, end), start, end, max_bytes)


def _inner(pieces: Iterable[_Piece], start: int, end: int, max_bytes: int) -> list[int]:
    return sorted({offset for offset in _cuts(pieces, max_bytes) if start < offset < end})


def first_cut(state: LogState, start: int, end: int, max_bytes: int) -> int:
    """The first of them, or `end`: so far `max_bytes` reach, about, but one batch at least."""
    return next((offset for offset in _cuts(_pieces(state, start, end), max_bytes) if start < offset < end), end)


def _cuts(pieces: Iterable[_Piece], max_bytes: int) -> Iterator[int]:
    """The same in order, one after the other; some may come twice."""
    used = 0
    for piece in pieces:
        if used and used + min(piece.end - piece.first, max_bytes) > max_bytes:
            yield piece.segment.base_offset
            used = 0
        used = yield from _cuts_inside(piece, used, max_bytes)


def _cuts_inside(piece: _Piece, used: int, max_bytes: int) -> Generator[int, None, int]:
    """The cuts within a segment's part; returns the bytes behind the last one."""
    first = piece.first
    while used + piece.end - first > max_bytes:
        index = piece.segment.offset_index()  # of a segment that is not cut it is not read
        offset = index.upper_bound_offset(first + max_bytes - used)
        entry = None if offset is None else index.upper(offset)
        if entry is None or not first < entry.position < piece.end:
            break
        yield entry.offset + 1  # an entry names its batch's last offset, so the next batch begins here
        first, used = entry.position, 0
    return used + piece.end - first


def _pieces(state: LogState, start: int, end: int) -> Iterator[_Piece]:
    for segment, segment_end in _segments(state, start):
        if segment.base_offset >= end:
            return
        first = segment.offset_index().lookup(start).position if start > segment.base_offset else 0
        upper = segment.offset_index().upper(end) if end < segment_end else None
        yield _Piece(segment, first, state.size_of(segment) if upper is None else upper.position)


def _segments(state: LogState, start: int) -> Iterator[tuple[LogSegment, int]]:
    """The same as `state.from_offset` for who wants most of them: looked up all at once."""
    segments = state.segments.values()
    first = max(0, bisect_right(segments, start, key=_base_offset) - 1)
    ends = [*map(_base_offset, segments[first + 1 :]), state.end_offset]
    for segment, end in zip(segments[first:], ends, strict=False):  # of a log without segments there is an end only
        if segment.base_offset >= max(state.end_offset, 1):
            return
        if segment is state.active:
            yield segment, state.end_offset
            return
        yield segment, end


_base_offset = attrgetter("base_offset")


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
