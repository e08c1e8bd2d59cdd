"""What the end of a log is worth: whole batches, a torn tail, or damage (reliability 3).

Nothing is written here. `walk` finds what a segment holds; `is_torn` decides, as a pure function, whether bytes that are not
batches are the torn tail of a write that was under way, which may be cut, or damage, which is kept and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pylog.record import kernels
from pylog.record.batch import WHY
from pylog.record.format import BASE_OFFSET, CRC_BAD, CRC_STATE, LAST_OFFSET, MAGIC, POSITION, SIZE
from pylog.record.legacy import legacy_crc_ok
from pylog.segment.log_file import Region
from pylog.segment.segment import LogSegment


class Finding(NamedTuple):
    """Something about a partition's files that its owner should know.

    Attributes:
        kind: "torn" (cut, or to be cut, and kept aside), "corrupt" (kept, not served), "rebuilt" (a derived file),
            "missing" (a derived file names records that are not there).
        path: the file.
        position, size: the bytes concerned, where they are.
        offset: the first offset concerned.
        next_offset: where reading can go on, None when nothing follows.
        message: all of that as a sentence.
    """

    kind: str
    path: str
    position: int
    size: int
    offset: int
    next_offset: int | None
    message: str


class Damage(NamedTuple):
    """Bytes that are not batches: from `position` to `end`, where a good batch of `next_offset` begins (None: nothing does)."""

    position: int
    end: int
    offset: int
    next_offset: int | None
    why: str


class Walk(NamedTuple):
    """What a segment holds from some position on.

    Attributes:
        end: position behind its last good batch.
        next_offset: the offset behind that.
        damage: what lies between good batches, in order, and behind the last one.
    """

    end: int
    next_offset: int
    damage: list[Damage]


Sink = Callable[[Region, int], None]  # a region, and how many of its batches are good


def walk(segment: LogSegment, position: int, end: int, expected: int, *, verify: bool, sink: Sink) -> Walk:
    """Walks a segment's batches from a batch's position to `end`, going on behind damage.

    Args:
        segment: the segment.
        position: a batch's first byte.
        end: bytes of the file that count.
        expected: no offset may be below.
        verify: check each batch's CRC; else only headers and the order of offsets.
        sink: is given each region with the number of its good batches.

    Cost: one pass; damage costs a search byte by byte for the next good batch.
    """
    damage: list[Damage] = []
    while position < end:
        stop, expected, why = _good_run(segment, position, end, expected, verify, sink)
        if why is None:
            return Walk(stop, expected, damage)
        found = segment.file().find_batch(stop + 1, end, expected)
        if found is None:
            return Walk(stop, expected, [*damage, Damage(stop, end, expected, None, why)])
        damage.append(Damage(stop, found, expected, _offset_at(segment, found), why))
        position = found
    return Walk(position, expected, damage)


def _good_run(
    segment: LogSegment, position: int, end: int, expected: int, verify: bool, sink: Sink
) -> tuple[int, int, str | None]:
    """(position, next offset, what is wrong there or None) of the first byte that does not continue the batches."""
    for region in segment.regions(position, end, verify=verify):
        good, why = _good_batches(region, expected, verify)
        sink(region, good)
        if good:
            expected = int(region.table[LAST_OFFSET, good - 1]) + 1
            position = region.shift + int(region.table[POSITION, good - 1] + region.table[SIZE, good - 1])
        if why is not None or region.status not in (kernels.OK, kernels.FULL):
            return position, expected, why or WHY[region.status]
    return position, expected, None


def _good_batches(region: Region, expected: int, verify: bool) -> tuple[int, str | None]:
    """How many batches of a region, from its first, are good; and why the next one is not."""
    table = region.table
    first = np.where(table[MAGIC] == 2, table[BASE_OFFSET], table[LAST_OFFSET])
    previous = np.append(expected - 1, table[LAST_OFFSET, :-1])
    bad = (first <= previous) | (table[CRC_STATE] == CRC_BAD)
    if verify:
        for batch in np.flatnonzero(table[MAGIC] < 2).tolist():
            start = int(table[POSITION, batch])
            bad[batch] |= not legacy_crc_ok(region.buffer[start : start + int(table[SIZE, batch])])
    at = np.flatnonzero(bad)
    if not at.size:
        return table.shape[1], None
    why = WHY[kernels.BAD_CRC] if first[at[0]] > previous[at[0]] else "begins before the end of the batch before it"
    return int(at[0]), why


def _offset_at(segment: LogSegment, position: int) -> int:
    return int.from_bytes(segment.file().read(position, 8).tobytes(), "big", signed=True)


def is_torn(damage: Damage, *, durable_position: int, last_segment: bool, good_batch_at: int | None, unsynced_bytes: int) -> bool:
    """Whether bytes that are not batches are the tail of a write that was under way when the system stopped (reliability 3.3).

    Args:
        damage: the first of them in its segment.
        durable_position: everything below is known to have been synced.
        last_segment: whether the segment is the log's last one; those before it were synced when it was made.
        good_batch_at: position of a good batch of later offsets behind the damage, if there is one.
        unsynced_bytes: how far apart two batches can be that were not synced yet; 0 when nothing is known of the writer.

    >>> is_torn(Damage(90, 100, 7, None, ""), durable_position=90, last_segment=True, good_batch_at=None, unsynced_bytes=0)
    True
    """
    if damage.position < durable_position or not last_segment:
        return False
    return good_batch_at is None or good_batch_at - damage.position <= unsynced_bytes
