"""Walks the batches of a segment: the good ones in order, and the damage between them.

Reading and recovery both use `walk`, so that they agree on damage. A batch is good if all of this holds:

* Its frame is whole, and it fits between its neighbours (`continuity`).
* Its header matches the segment's seal, if there is one.
* Its CRC is right, if the caller requests the check.

After damage, the walk continues at the next good batch. It searches byte by byte, so one flipped bit never costs a neighbour.
Damage that only a seal shows is traced to the batch if one bit was flipped, else to an interval of the seal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import trace
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.fs import guarded
from pylog.record import kernels
from pylog.record.batch import WHY, Bytes, Table
from pylog.record.format import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    BASE_SEQUENCE,
    COLUMN_COUNT,
    CONTROL_BIT,
    COUNT,
    CRC,
    CRC_BAD,
    CRC_STATE,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    LARGEST_MARKER,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MIN_LENGTH,
    POSITION,
    SIZE,
)
from pylog.record.legacy import legacy_crc_ok
from pylog.segment.batch_search import BatchSearch
from pylog.segment.continuity import (
    OF_A_WHOLE_BATCH,
    REACHES_BEYOND,
    Neighbour,
    Suspect,
    first_suspect,
    is_dense,
    is_gapless,
    last_neighbour,
)
from pylog.segment.culprit import narrowed
from pylog.segment.log_file import Region
from pylog.segment.names import SEAL
from pylog.segment.published_headers import REWRITTEN, altered_headers
from pylog.segment.seal import ALTERED, Seal, SealedReader, has_lost_its_end, is_foreign, read_seal
from pylog.segment.segment import LogSegment

_SECTORS: Final = 8192  # bytes: two of the largest sectors, the misplaced one and its successor


class Damage(NamedTuple):
    """A range of bytes without a good batch.

    Attributes:
        position: the first byte.
        end: the position of the next good batch, or the end of the file.
        offset: the first offset that the bytes may have held.
        next_offset: the first offset of the next good batch; None if no good batch follows in the segment.
        why: the problem at `position`, in words that follow "the batch …".
    """

    position: int
    end: int
    offset: int
    next_offset: int | None
    why: str


class WalkedRange(NamedTuple):
    """Some consecutive good batches, and the damage after them, if damage ends the range.

    Attributes:
        buffer: the bytes of the batches; valid until the next range is requested.
        table: the batches. POSITION counts from the buffer's start.
        shift: the position of the buffer's first byte in the file.
        damage: the damage after the last batch, or None.
    """

    buffer: Bytes
    table: Table
    shift: int
    damage: Damage | None


class _WalkState(NamedTuple):
    """The state of a walk. No batch from `position` on may have an offset below `floor`."""

    position: int
    floor: int
    before: Neighbour | None = None


class _Fault(NamedTuple):
    """The first problem in a region. The walk continues at `end`, or searches for the next good batch if `end` is None."""

    position: int
    why: str
    end: int | None = None


def walk(segment: LogSegment, position: int, end: int, following: int | None, *, verify: bool = False) -> Iterator[WalkedRange]:
    """Walks a segment from a batch's position to `end`.

    Args:
        segment: the segment.
        position: the first byte of a batch: 0, or a position from an index.
        end: the end of the valid bytes of the file.
        following: the next segment's base offset; None for the last segment.
        verify: true to check every CRC.

    Raises:
        PylogError: for any bytes; no other error is raised.

    Cost: one pass over the headers; with `verify`, over all bytes. Damage costs a search byte by byte.
    """
    return guarded(_walked(segment, position, end, following, verify), segment.path)


def _walked(segment: LogSegment, position: int, end: int, following: int | None, verify: bool) -> Iterator[WalkedRange]:
    seal = _seal_of(segment)
    sealed = None if seal is None else SealedReader(seal, ahead=segment)
    walked, fault = _start(segment, position if seal is None else seal.mark_before(position)), None
    search: BatchSearch | None = None
    while walked.position < end:
        fault = None
        for region in segment.regions(walked.position, end, verify=verify):
            table, fault = _checked(segment, region, end, following, walked, verify)
            if seal is not None and sealed is not None and table.shape[1]:
                table, fault = _as_sealed(segment, seal, sealed, region, table, fault)
            if table.shape[1]:
                walked = _WalkState(region.end, int(table[LAST_OFFSET, -1]) + 1, last_neighbour(table))
            damage = None
            if fault is not None:
                search = search or BatchSearch(segment.file())
                damage = _measured(segment, search, fault, walked.floor, end)
            if table.shape[1] or damage is not None:
                yield WalkedRange(region.buffer, table, region.shift, damage)
            if damage is not None:
                walked = _WalkState(damage.end, max(walked.floor, damage.next_offset or 0))
                break
        if fault is None:
            break
    if fault is None and following is not None and walked.floor < following and _has_lost_its_end(segment):
        why = "is missing: the file was longer when it was sealed"
        yield WalkedRange(
            np.empty(0, np.uint8), np.empty((COLUMN_COUNT, 0), np.int64), end, Damage(end, end, walked.floor, None, why)
        )


def _start(segment: LogSegment, position: int) -> _WalkState:
    """Returns the state at a position from an index. The index entry confirms the offsets of the batch there."""
    head = peek(segment, position) if position else None
    if segment.index_is_of_headers:
        return _WalkState(0, segment.base_offset)  # no evidence about the headers: all are walked
    if head is None:
        return _WalkState(position, segment.base_offset)
    entry = segment.offset_index().lookup(head.last_offset)
    return _WalkState(position, head.base_offset if entry == (head.last_offset, position) else segment.base_offset)


def _seal_of(segment: LogSegment) -> Seal | None:
    """Returns a sealed segment's seal; None if it has none, or one of another file. The seal is read once."""
    if segment.sealed and segment.sealed_by is None:
        found = None
        try:
            found = read_seal(segment.fs, segment)
        except (CorruptionError, UnsupportedFormatError) as error:  # derived; `verify` reports it
            trace.later(trace.IGNORED, path=segment.path_of(SEAL), reason=str(error))
        size = segment.file().size()
        own = None if found is None or (segment.vouched is None and is_foreign(segment, found, size)) else found
        segment.sealed_by = own, found is not None and own is None and has_lost_its_end(segment, found, size)
    return segment.sealed_by[0] if segment.sealed and segment.sealed_by is not None else None


def _has_lost_its_end(segment: LogSegment) -> bool:
    return segment.sealed and segment.sealed_by is not None and segment.sealed_by[1]


def _as_sealed(
    segment: LogSegment, seal: Seal, sealed: SealedReader, region: Region, table: Table, fault: _Fault | None
) -> tuple[Table, _Fault | None]:
    """Returns the batches before the first one whose header differs from the seal, or before the interval that has it."""
    altered = sealed.altered(region.buffer, table, region.shift)
    if not altered or (fault is not None and altered[0].start <= fault.position < altered[0].end):
        return table, fault  # the known fault explains why the interval differs
    start, end = narrowed(segment, seal, altered[0])
    good = int(np.searchsorted(table[POSITION] + region.shift, start))
    return np.ascontiguousarray(table[:, :good]), _Fault(max(start, region.shift), ALTERED, end)


def peek(segment: LogSegment, position: int) -> Neighbour | None:
    """Returns the header at a position, if there is one of magic 2."""
    return _header_in(segment.file().read(position, HEADER_SIZE))


def _header_in(head: Bytes) -> Neighbour | None:
    if len(head) < HEADER_SIZE or head[MAGIC_AT] != 2:
        return None
    base, _, epoch, _, _, _, delta, *_ = HEADER.unpack(head.data)
    return Neighbour(base, base + delta, epoch)


def _checked(
    segment: LogSegment, region: Region, end: int, following: int | None, walked: _WalkState, verify: bool
) -> tuple[Table, _Fault | None]:
    """Returns the region's batches before the first faulty one, and its fault."""
    table = region.table
    good = table.shape[1]
    fault = None if region.status in (kernels.OK, kernels.FULL) else _Fault(region.end, WHY[region.status])
    if fault is not None and good and not crc_is_good(region.buffer, table, good - 1):
        good -= 1  # its length may be wrong too, which explains why no batch follows it
        fault = _Fault(region.shift + int(table[POSITION, good]), WHY[kernels.BAD_CRC])
    after = _neighbour(segment, region, end, following, fault)
    fits = good > 0 and is_dense(table[:, :good], walked.floor, walked.before, after)
    altered = None if fits or segment.sealed else _first_altered(segment, region, good, walked.floor, after)
    if altered is not None:
        good, fault = int(np.searchsorted(table[POSITION, :good] + region.shift, altered.position)), altered
        after, fits = None, True  # the digest of the log tells more than the neighbours
    broken = None if fits else _first_broken_at_a_gap(region, good, walked, after)
    if broken is not None:
        good, fault = broken, _Fault(region.shift + int(table[POSITION, broken]), WHY[kernels.BAD_CRC])
        after = None
    suspect = None if fits else first_suspect(table[:, :good], walked.floor, walked.before, after)
    at_end = suspect is None and fault is None and altered is None and region.end >= end and good > 0
    if at_end and following is not None and table[LAST_OFFSET, good - 1] >= following:  # the start of the next segment is certain
        suspect = Suspect(good - 1, REACHES_BEYOND)
    if suspect is not None:
        good, why, following_good = suspect
        if why in OF_A_WHOLE_BATCH and not crc_is_good(region.buffer, table, good):
            why = WHY[kernels.BAD_CRC]  # then these are no offsets
        fault = _Fault(region.shift + int(table[POSITION, good]), why, _position_of(region, table, following_good))
    bad = _first_bad_crc(region, good) if verify else None
    if bad is not None:
        good, fault = bad, _Fault(region.shift + int(table[POSITION, bad]), WHY[kernels.BAD_CRC])
    return (table if good == table.shape[1] else np.ascontiguousarray(table[:, :good])), fault


def _first_altered(segment: LogSegment, region: Region, count: int, floor: int, after: Neighbour | None) -> _Fault | None:
    """Returns the first batches of a region whose headers are not as published; None if there is no gap, or none is known."""
    if not count or is_gapless(region.table[:, :count], floor, after):
        return None
    for start, end in altered_headers(segment):
        if end > region.shift + region.table.item(POSITION, 0) and start < region.end:
            return _Fault(max(start, region.shift + region.table.item(POSITION, 0)), REWRITTEN, end)
    return None


def _position_of(region: Region, table: Table, batch: int | None) -> int | None:
    """Returns the position in the file of a batch of a region, or of the one that follows its last one."""
    if batch is None:
        return None
    return region.end if batch == table.shape[1] else region.shift + table.item(POSITION, batch)


def _neighbour(segment: LogSegment, region: Region, end: int, following: int | None, fault: _Fault | None) -> Neighbour | None:
    """Returns the header of the batch after a region; at the end of a segment, the next segment's base offset."""
    if fault is not None:
        return None
    if region.end < end:
        head = region.buffer[region.end - region.shift :][:HEADER_SIZE]  # a part of the batch was read with the region
        return _header_in(head) if len(head) == HEADER_SIZE else peek(segment, region.end)
    if following is None or not region.table.shape[1]:
        return None
    return Neighbour(following, following, int(region.table[LEADER_EPOCH, -1]))


def _first_broken_at_a_gap(region: Region, count: int, walked: _WalkState, after: Neighbour | None) -> int | None:
    """Returns the first batch with a bad CRC next to a gap in the offsets: its offsets or its length caused the gap.

    If a batch's length is too large, it hides the batches after it. If its offsets reach too far, it overlaps its neighbours.
    Both faults leave a trace in the offsets, and the checksum shows which batch is wrong.
    """
    table = region.table[:, :count]
    if not count:
        return None
    first = table[BASE_OFFSET] if after is None else np.append(table[BASE_OFFSET], after.base_offset)
    expected = np.append(walked.floor, table[LAST_OFFSET] + 1)[: first.size]
    gaps = np.flatnonzero(first != expected)
    if walked.before is None and gaps.size and gaps[0] == 0:
        gaps = gaps[1:]  # compaction may have removed records before a segment's first batch
    if not gaps.size:
        return None
    at_gaps = np.union1d(gaps - 1, gaps)
    for batch in at_gaps[(at_gaps >= 0) & (at_gaps < count)].tolist():
        if not crc_is_good(region.buffer, table, batch):
            return int(batch)
    return None


def _first_bad_crc(region: Region, count: int) -> int | None:
    bad = region.table[CRC_STATE, :count] == CRC_BAD
    for batch in np.flatnonzero(region.table[MAGIC, :count] < 2).tolist():
        bad[batch] = not crc_is_good(region.buffer, region.table, batch)
    found = np.flatnonzero(bad)
    return int(found[0]) if found.size else None


def crc_is_good(buffer: Bytes, table: Table, batch: int) -> bool:
    """Returns whether a batch's stored checksum matches its bytes, in its format."""
    position, end = table.item(POSITION, batch), table.item(POSITION, batch) + table.item(SIZE, batch)
    if table.item(MAGIC, batch) < 2:
        return legacy_crc_ok(buffer[position:end])
    return int(kernels.checksum(buffer, position + ATTRIBUTES_AT, end)) == table.item(CRC, batch)


def first_bad_crc(buffer: Bytes, table: Table, batches: NDArray[np.int64]) -> int | None:
    """Returns the first of some batches whose stored checksum does not match its bytes; None if all match."""
    chosen = np.take(table, batches, axis=1)
    if (chosen[MAGIC] < 2).any():
        return next((batch for batch in batches.tolist() if not crc_is_good(buffer, table, batch)), None)
    first = int(kernels.first_bad_crc(buffer, chosen, 0, batches.size))
    return None if first == batches.size else int(batches[first])


def possible_markers(table: Table) -> NDArray[np.bool_]:
    """Returns which batches are markers, or may be damaged ones: the control bit may be the damaged one.

    A marker is small and has one record and no sequence. Checking all small batches would make committed reading slower.
    """
    odd = (table[BASE_SEQUENCE] < 0) | (table[COUNT] != 1)
    small = (table[SIZE] <= LARGEST_MARKER) & (table[MAGIC] == 2) & odd
    return ((table[ATTRIBUTES] & CONTROL_BIT) != 0) | small


def _measured(segment: LogSegment, search: BatchSearch, fault: _Fault, floor: int, end: int) -> Damage:
    found = fault.end if fault.end is not None and fault.end < end else None
    if fault.end is None:
        found = next_good_batch(segment, search, fault.position, end, floor)
    if found is None:
        return Damage(fault.position, end, floor, None, fault.why)
    return Damage(fault.position, found, floor, offset_at(segment, found), fault.why)


def next_good_batch(segment: LogSegment, search: BatchSearch, position: int, end: int, floor: int) -> int | None:
    """Returns the position of the first good batch after the damage at `position`, with an offset of at least `floor`.

    A value may contain the bytes of a whole batch, from a backup of another log for example. So a batch counts only if it begins
    where the damaged batch would end by its length, or if another batch or the segment's end follows it.
    """
    declared = position + _declared_size(segment.file().read(position, FRAME_SIZE))
    at = position + 1
    while (found := search.find(at, end, floor)) is not None:
        if found == declared or _is_followed(segment, search, found, end):
            return _in_place(segment, search, found, end, floor)
        at = found + 1
    return None


def _in_place(segment: LogSegment, search: BatchSearch, position: int, end: int, floor: int) -> int:
    """Returns the position of the first good batch from `position` on that was written there.

    A misplaced sector contains good batches of another place, whose offsets do not continue. Of the batches within a sector's
    length, the longest series of rising offsets is right. Of several series, the last one is: a copy may precede its batch.
    """
    positions: list[int] = []
    found: int | None = position
    while found is not None:
        positions.append(found)
        after = found + max(1, _declared_size(segment.file().read(found, FRAME_SIZE)))
        found = search.find(after, min(end, position + _SECTORS), floor) if after < end else None
    offsets = [offset_at(segment, walked) for walked in positions]
    longest: list[int] = []  # of the series that begin with each batch, from the last one on
    largest: list[int] = []  # negated: the largest offset that a series of each length begins with
    for offset in reversed(offsets):
        longest.append(bisect_left(largest, -offset) + 1)
        largest[longest[-1] - 1 : longest[-1]] = [-offset]
    return max(zip(reversed(longest), positions, strict=True))[1]


def _declared_size(head: Bytes) -> int:
    return LOG_OVERHEAD + int.from_bytes(head[8:12].tobytes(), "big", signed=True) if len(head) >= LOG_OVERHEAD else 0


def _is_followed(segment: LogSegment, search: BatchSearch, position: int, end: int) -> bool:
    """Returns whether a plausible frame with a later offset begins where the batch at `position` ends."""
    head = segment.file().read(position, FRAME_SIZE)
    after = position + _declared_size(head)
    if after >= end:
        return after == end
    following = segment.file().read(after, FRAME_SIZE)
    if not following.any():  # preallocated zeros are no frame: they are the end of the batches
        return search.is_blank(after, end)
    if len(following) < FRAME_SIZE or following[MAGIC_AT] > 2 or _declared_size(following) < LOG_OVERHEAD + MIN_LENGTH:
        return False
    last = peek(segment, position)
    return offset_at(segment, after) > (offset_at(segment, position) if last is None else last.last_offset)


def is_preallocated(segment: LogSegment, damage: Damage) -> bool:
    """Returns whether the bytes are the preallocated zeros after the end of the active segment."""
    at_end = damage.end == segment.size and not segment.sealed
    return at_end and segment.file().is_blank(damage.position, damage.end)


def offset_at(segment: LogSegment, position: int) -> int:
    """Returns the offset field of the batch at a position."""
    return int.from_bytes(segment.file().read(position, 8).tobytes(), "big", signed=True)


def start_offset_at(segment: LogSegment, position: int) -> int:
    """Returns the lowest offset that a walk from `position` may find."""
    return segment.base_offset if position == 0 else offset_at(segment, position)


def first_offsets(table: Table) -> Table:
    """Returns each batch's first offset; for a wrapper of magic 0 or 1 its last one, because it stores no other."""
    return np.where(table[MAGIC] == 2, table[BASE_OFFSET], table[LAST_OFFSET])
