"""Finds the good batches of a range of offsets: the walk under every read. Works on a published `LogState`, and writes nothing.

Every batch fits between its neighbours. Damage raises a `CorruptionError` with the offset where reading can continue, after all
batches before it were returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from pylog.errors import CorruptionError, OffsetOutOfRangeError, PylogError, StorageFailedError
from pylog.log.state import LogState
from pylog.record.batch import Bytes, Table
from pylog.record.format import (
    BASE_OFFSET,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET,
    MAGIC,
    SIZE,
)
from pylog.record.header import header_column
from pylog.segment.batch_walk import Damage, first_offsets, walk
from pylog.segment.segment import LogSegment, vanished

_STEPS: Final = 64  # batches between two index entries: the number that fits into Kafka's 4 KiB


class Batches(NamedTuple):
    """Good batches of one segment: POSITION counts from the buffer's start, which is at `shift` in the file."""

    segment: LogSegment
    buffer: Bytes
    table: Table
    shift: int


class OffsetRange(NamedTuple):
    """The offsets to read, from `start` up to, but not including, `end`."""

    start: int
    end: int


def good_batches(state: LogState, wanted: OffsetRange) -> Iterator[Batches]:
    """Yields the batches with the wanted offsets, in order, one region of a segment at a time, with control batches.

    The decoder of the records checks CRCs.

    Raises:
        CorruptionError: at the first wanted bytes that are not the expected batch.
        OffsetOutOfRangeError: a segment's file was deleted during the read.
    """
    reached = wanted.start
    if reached >= wanted.end:  # inside a batch, it would be read: one whose transaction is open has no outcome
        return
    for segment, segment_end in state.from_offset(wanted.start):
        if segment.base_offset >= wanted.end:
            return
        try:
            for batches in _segment_batches(state, segment, segment_end, wanted._replace(start=reached)):
                yield batches
                reached = int(batches.table[LAST_OFFSET, -1]) + 1  # a running compaction may show old and new files
        except StorageFailedError as error:
            if not vanished(error):
                raise
            offset = max(segment.base_offset, reached)
            message = f"{segment.path} was removed while it was read: offset {offset} and later ones in it were deleted"
            raise OffsetOutOfRangeError(message, path=segment.path, offset=offset) from error


def _segment_batches(state: LogState, segment: LogSegment, segment_end: int, wanted: OffsetRange) -> Iterator[Batches]:
    position = segment.locate(max(wanted.start, segment.base_offset))
    size, offset = state.size_of(segment), segment.base_offset
    for buffer, table, shift, damage in walk(segment, position, size, segment_end):
        inside = _with_wanted(table, wanted)
        if inside.shape[1]:
            yield Batches(segment, buffer, inside, shift)
        if damage is not None:
            _check_missed(state, segment, segment_end, wanted, damage)
        offset = int(table[LAST_OFFSET, -1]) + 1 if table.shape[1] else offset
        if table.shape[1] and offset >= wanted.end and table[MAGIC, -1] == 2:
            return
    found_size = segment.file().size()
    if found_size < size:
        _check_missed(
            state, segment, segment_end, wanted, Damage(found_size, size, offset, None, "is missing: the file ends before it")
        )


def _with_wanted(table: Table, wanted: OffsetRange) -> Table:
    """Returns the batches of a walk that may have a wanted offset. Their offsets rise, so usually the two at the ends tell."""
    if not table.shape[1] or (table.item(LAST_OFFSET, 0) >= wanted.start and table.item(BASE_OFFSET, -1) < wanted.end):
        return table
    inside = (table[LAST_OFFSET] >= wanted.start) & (first_offsets(table) < wanted.end)
    inside |= (table[MAGIC] < 2) & (table[LAST_OFFSET] >= wanted.start)  # the first offset of a wrapper is not known yet
    return np.ascontiguousarray(table[:, inside])


def _check_missed(state: LogState, segment: LogSegment, segment_end: int, wanted: OffsetRange, damage: Damage) -> None:
    """Raises if damaged bytes may have contained a wanted offset."""
    next_offset = segment_end if damage.next_offset is None else damage.next_offset
    if damage.offset >= wanted.end or next_offset <= max(wanted.start, damage.offset):
        return
    error = CorruptionError(f"the batch for offset {damage.offset} {damage.why}", position=damage.position, offset=damage.offset)
    raise placed(error, segment, next_offset if next_offset < state.end_offset else None)


def placed(error: PylogError, segment: LogSegment, next_offset: int | None) -> PylogError:
    """Adds the file and the next readable offset to an error whose position is already one in the file."""
    follows = "nothing readable follows" if next_offset is None else f"reading can continue at offset {next_offset}"
    error.args = (f"{segment.path} at position {error.position}: {error}; {follows}",)
    error.path, error.next_offset = segment.path, next_offset
    return error


def crc_before(state: LogState, offset: int) -> int | None:
    """Returns the stored CRC of the batch before `offset`; None if the log begins there, or the batch was deleted."""
    if offset <= state.start_offset:
        return None
    crc = _stored_crc(state, offset - 1)
    if crc is not None:
        return crc
    with contextlib.suppress(CorruptionError, OffsetOutOfRangeError):
        for _, _, table, _ in good_batches(state, OffsetRange(offset - 1, offset)):
            crc = int(table[CRC, -1])
    return crc


def _stored_crc(state: LogState, offset: int) -> int | None:
    """Returns the CRC of the batch with an offset, from headers after the index entry; None if the batch is too far away."""
    found = state.segments.floor(offset)
    if found is None:
        return None
    segment = found[1]
    with contextlib.suppress(CorruptionError, StorageFailedError):  # the full search meets the error again, and handles it
        position, size = segment.locate(offset), state.size_of(segment)
        for _ in range(_STEPS):
            column = header_column(segment.file().read(position, max(0, min(HEADER_SIZE, size - position))), position)
            if column is None:
                return None
            if column[LAST_OFFSET] >= offset:
                return column[CRC] if column[BASE_OFFSET] <= offset else None
            position += column[SIZE]
    return None
