"""How large a range of a log is and where it can be cut: from segment sizes and offset indexes, never from data."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from pylog.log.state import LogState
from pylog.segment.segment import LogSegment


class _Piece(NamedTuple):
    """The part of a range that lies in one segment: bytes from `first` to before `end`."""

    segment: LogSegment
    first: int
    end: int


def size_between(state: LogState, start: int, end: int) -> int:
    """About how many bytes the records from `start` to before `end` take."""
    return sum(piece.end - piece.first for piece in _pieces(state, start, end))


def split_offsets(state: LogState, start: int, end: int, max_bytes: int) -> list[int]:
    """Batch boundaries that cut a range into parts of about `max_bytes`; a part may span segments."""
    return sorted({cut for cut in _cuts(state, start, end, max_bytes) if start < cut < end})


def first_cut(state: LogState, start: int, end: int, max_bytes: int) -> int:
    """The first of them, or `end`: so far `max_bytes` reach, about, but one batch at least."""
    return next((cut for cut in _cuts(state, start, end, max_bytes) if start < cut < end), end)


def _cuts(state: LogState, start: int, end: int, max_bytes: int) -> Iterator[int]:
    """The same in order, one after the other; some may come twice."""
    used = 0
    for piece in _pieces(state, start, end):
        if used and used + min(piece.end - piece.first, max_bytes) > max_bytes:
            yield piece.segment.base_offset
            used = 0
        used = yield from _cuts_inside(piece, used, max_bytes)


def _cuts_inside(piece: _Piece, used: int, max_bytes: int) -> Generator[int, None, int]:
    """The cuts within a segment's part; returns the bytes behind the last one."""
    index, first = piece.segment.offset_index(), piece.first
    while used + piece.end - first > max_bytes:
        offset = index.upper_bound_offset(first + max_bytes - used)
        entry = None if offset is None else index.upper(offset)
        if entry is None or not first < entry.position < piece.end:
            break
        yield entry.offset + 1  # an entry names its batch's last offset, so the next batch begins here
        first, used = entry.position, 0
    return used + piece.end - first


def _pieces(state: LogState, start: int, end: int) -> Iterator[_Piece]:
    for segment, segment_end in state.from_offset(start):
        if segment.base_offset >= end:
            return
        first = segment.offset_index().lookup(start).position if start > segment.base_offset else 0
        upper = segment.offset_index().upper(end) if end < segment_end else None
        yield _Piece(segment, first, state.size_of(segment) if upper is None else upper.position)
