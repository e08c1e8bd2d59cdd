"""Reading a log: forwards from an offset, one record, by time. Works on a published `LogState`; takes no lock, writes nothing.

Every batch that is handed out has a good CRC and fits between its neighbours. Damage raises a `CorruptionError` that says where
reading can go on; what lies before it has been handed out by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pylog import limits
from pylog.errors import CorruptionError, OffsetOutOfRangeError, PylogError, StorageFailedError
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.continuity import Neighbour, first_suspect, last_neighbour
from pylog.log.state import LogState
from pylog.record import kernels
from pylog.record.batch import WHY, Bytes, Table
from pylog.record.decoder import RecordDecoder, corruption
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAGIC_AT,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from pylog.segment.log_file import Region
from pylog.segment.segment import LogSegment, vanished


class Batches(NamedTuple):
    """Good batches of one segment: POSITION counts from the buffer's start, which lies at `shift` in the file."""

    segment: LogSegment
    buffer: Bytes
    table: Table
    shift: int


class Wanted(NamedTuple):
    """What is to be read: offsets from `start` to before `end`."""

    start: int
    end: int


class _Place(NamedTuple):
    """Where a walk through a segment stands: no batch from `position` on may have an offset below `floor`."""

    position: int
    floor: int
    before: Neighbour | None = None


def good_batches(state: LogState, wanted: Wanted) -> Iterator[Batches]:
    """The batches that hold the offsets wanted, in order, a region of a segment at a time; control batches among them.

    CRCs are left to who decodes the records.

    Raises:
        CorruptionError: at the first bytes wanted that are not the batch that should be there.
        OffsetOutOfRangeError: a segment's file was removed meanwhile.
    """
    for segment, segment_end in state.from_offset(wanted.start):
        if segment.base_offset >= wanted.end:
            return
        try:
            yield from _segment_batches(state, segment, segment_end, wanted)
        except StorageFailedError as error:
            if not vanished(error):
                raise
            offset = max(segment.base_offset, wanted.start)
            message = f"{segment.path} was removed while it was read: offset {offset} and those after it in this segment are gone"
            raise OffsetOutOfRangeError(message, path=segment.path, offset=offset) from error


def _segment_batches(state: LogState, segment: LogSegment, segment_end: int, wanted: Wanted) -> Iterator[Batches]:
    end = state.size_of(segment)
    place = _start_of_walk(segment, segment.locate(max(wanted.start, segment.base_offset)))
    while place.position < end:
        damage = None
        for region in segment.regions(place.position, end):
            table, damage = _checked(segment, region, end, None if segment is state.active else segment_end, place)
            inside = (table[LAST_OFFSET] >= wanted.start) & ((table[BASE_OFFSET] < wanted.end) | (table[MAGIC] < 2))
            if inside.any():
                yield Batches(segment, region.buffer, np.ascontiguousarray(table[:, inside]), region.shift)
            if table.shape[1]:
                place = _Place(region.end, int(table[LAST_OFFSET, -1]) + 1, last_neighbour(table))
            if damage is not None or place.floor >= wanted.end:
                break
        if damage is None or place.floor >= wanted.end:
            return
        place = _behind_damage(state, segment, segment_end, wanted, place.floor, damage)


def _start_of_walk(segment: LogSegment, position: int) -> _Place:
    """A place that an index gave. The index's word for the batch there vouches for its offsets."""
    head = _peek(segment, position) if position else None
    if head is None:
        return _Place(position, segment.base_offset)
    entry = segment.offset_index().lookup(head.last_offset)
    return _Place(position, head.base_offset if entry == (head.last_offset, position) else segment.base_offset)


def _peek(segment: LogSegment, position: int) -> Neighbour | None:
    """What the header at a position says, if there is one of magic 2."""
    head = segment.file().read(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE or head[MAGIC_AT] != 2:
        return None
    base, _, epoch, _, _, _, delta, *_ = HEADER.unpack(head)
    return Neighbour(base, base + delta, epoch)


def _checked(
    segment: LogSegment, region: Region, end: int, segment_end: int | None, place: _Place
) -> tuple[Table, CorruptionError | None]:
    """The region's batches up to the first that cannot be right, and the error for that one."""
    table = region.table
    after = _peek(segment, region.end) if region.end < end else None
    if region.end >= end and segment_end is not None and table.shape[1]:
        after = Neighbour(segment_end, segment_end, int(table[LEADER_EPOCH, -1]))
    suspect = first_suspect(table, place.floor, place.before, after)
    if suspect is not None:
        error = corruption(table, suspect.batch, suspect.why)
        error.position = (error.position or 0) + region.shift
        return np.ascontiguousarray(table[:, : suspect.batch]), error
    if region.status in (kernels.OK, kernels.FULL):
        return table, None
    offset = int(table[LAST_OFFSET, -1]) + 1 if table.shape[1] else place.floor
    return table, CorruptionError(f"the batch for offset {offset} {WHY[region.status]}", position=region.end, offset=offset)


def _behind_damage(
    state: LogState, segment: LogSegment, segment_end: int, wanted: Wanted, floor: int, damage: CorruptionError
) -> _Place:
    """Where the walk goes on when nothing that is wanted can lie in the damaged bytes; else raises."""
    found = find_behind(state, segment, damage, floor)
    offset = segment_end if found is None else _offset_at(segment, found)
    if offset <= max(wanted.start, floor):
        return _Place(state.size_of(segment) if found is None else found, offset)
    raise placed(damage, segment, offset if offset < state.end_offset else None)


def find_behind(state: LogState, segment: LogSegment, damage: PylogError, floor: int) -> int | None:
    """The position of the first good batch behind damage, with offsets not below `floor`."""
    return segment.file().find_batch((damage.position or 0) + 1, state.size_of(segment), floor)


def _offset_at(segment: LogSegment, position: int) -> int:
    return int.from_bytes(segment.file().read(position, 8).tobytes(), "big", signed=True)


def placed(error: PylogError, segment: LogSegment, next_offset: int | None) -> PylogError:
    """The error with its file, and with what to do next. Its position is one in the file already."""
    follows = "nothing readable follows" if next_offset is None else f"reading can go on at offset {next_offset}"
    error.args = (f"{segment.path} at position {error.position}: {error}; {follows}",)
    error.path = segment.path
    if isinstance(error, CorruptionError):
        error.next_offset = next_offset
    return error


# ---- isolation ---------------------------------------------------------------------------------------------------------------


def aborted_transactions(state: LogState, wanted: Wanted) -> list[AbortedTransaction]:
    """The aborted transactions with records among the offsets wanted (storage-format 3.9.5)."""
    found: list[AbortedTransaction] = []
    for segment, _ in state.from_offset(wanted.start):
        entries, complete = segment.transactions().collect(wanted.start, wanted.end)
        found += entries
        if complete:
            break
    return found


def visible(table: Table, aborted: Sequence[AbortedTransaction]) -> Table:
    """The batches whose records a reader sees: no control batches, none of aborted transactions."""
    keep = (table[ATTRIBUTES] & CONTROL_BIT) == 0
    transactional = (table[ATTRIBUTES] & TRANSACTIONAL_BIT) != 0
    if aborted and transactional.any():
        for producer_id, first, last, _ in aborted:
            keep &= ~(transactional & (table[PRODUCER_ID] == producer_id) & (table[BASE_OFFSET] >= first) & (table[LAST_OFFSET] <= last))
    return table if keep.all() else np.ascontiguousarray(table[:, keep])


# ---- frames ------------------------------------------------------------------------------------------------------------------


def scan(
    state: LogState, wanted: Wanted, columns: Sequence[str], *, committed: bool, max_rows: int, verify: bool
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the records wanted, of at most `max_rows` rows each; memory does not grow with the range."""
    decoder = RecordDecoder(columns, start=wanted.start, end=wanted.end, max_rows=max_rows, verify=verify)
    aborted = aborted_transactions(state, wanted) if committed else []
    try:
        for segment, buffer, table, shift in good_batches(state, wanted):
            try:
                yield from decoder.feed(buffer, visible(table, aborted))
            except PylogError as error:
                error.position = (error.position or 0) + shift
                raise _with_way_on(state, segment, error) from error
    except PylogError:
        yield from decoder.finish()
        raise
    yield from decoder.finish()


def _with_way_on(state: LogState, segment: LogSegment, error: PylogError) -> PylogError:
    """A decoder's error with the offset at which reading can go on."""
    found = find_behind(state, segment, error, (error.offset or 0) + 1)
    if found is not None:
        return placed(error, segment, _offset_at(segment, found))
    following = state.segments.higher(segment.base_offset) if segment is not state.active else None
    return placed(error, segment, None if following is None else following[0])
