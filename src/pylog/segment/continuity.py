"""Checks whether batches can follow each other: fields outside Kafka's CRC are compared with the neighbours.

A batch's base offset, its length and its leader epoch are outside its CRC. The length is checked by what follows it; the other
two here: offsets rise, and an epoch that only one batch has, out of order with both of its neighbours, is damage.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from pylog import limits
from pylog.record.batch import Table
from pylog.record.format import BASE_OFFSET, CRC, LAST_OFFSET, LEADER_EPOCH, MAGIC

OUT_OF_REACH: Final = "has offsets that its segment cannot hold"
_BEGINS_BEFORE: Final = "begins before the end of the batch before it"
_REPEATS: Final = "repeats an earlier batch"
REACHES_BEYOND: Final = "reaches beyond the start of what follows it"
_SAME: Final = (BASE_OFFSET, LAST_OFFSET, CRC)  # of a batch that was written twice: nothing is lost with the second one
OF_A_WHOLE_BATCH: Final = (OUT_OF_REACH, _BEGINS_BEFORE, REACHES_BEYOND)  # if its checksum is right, it was written there


class Neighbour(NamedTuple):
    """The fields of the batch before or after a table that continuity needs."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Suspect(NamedTuple):
    """A batch that cannot be as it was written.

    Attributes:
        batch: its column in the table.
        why: the reason, in words that follow "the batch …".
        end: the column of the first batch after it that is as it was written, if the offsets tell; else None.
    """

    batch: int
    why: str
    end: int | None = None


def first_suspect(table: Table, floor: int, before: Neighbour | None, after: Neighbour | None) -> Suspect | None:
    """Returns the first batch of a table that does not fit between its neighbours, or None.

    Args:
        table: consecutive batches of one segment.
        floor: the lowest possible offset: the segment's base, or the offset after `before`.
        before: the batch before the table's first one, None at a segment's start.
        after: the batch after the table's last one; None at the end of the log.

    >>> first_suspect(np.zeros((15, 0), np.int64), 0, None, None) is None
    True
    """
    if table.shape[1] == 0:
        return None
    if is_dense(table, floor, before, after):
        return None
    first, last = _ends(table)
    if after is not None:
        first, last = np.append(first, after.base_offset), np.append(last, max(after.base_offset, after.last_offset))
    previous = np.append(floor - 1, last[:-1])
    overlaps = np.flatnonzero(first <= previous)
    found = _out_of_reach(table, floor if before is None else before.base_offset)
    if overlaps.size:
        found += _overlap(table, int(overlaps[0]), first, previous, last)
    odd = _odd_epoch(table, before, after)
    if odd is not None:
        found.append(Suspect(odd, "has a leader epoch that fits neither the batch before nor the one after it"))
    return min(found) if found else None


def is_gapless(table: Table, floor: int, after: Neighbour | None) -> bool:
    """Returns whether each batch begins at the offset after the one before it: the first at `floor`, and `after`, too."""
    first, last = table[BASE_OFFSET], table[LAST_OFFSET]
    return bool(first[0] == floor and (first[1:] == last[:-1] + 1).all() and (after is None or after.base_offset == last[-1] + 1))


def is_dense(table: Table, floor: int, before: Neighbour | None, after: Neighbour | None) -> bool:
    """Returns whether there is no gap, and one leader epoch: a quick check of the usual case."""
    first, last, epoch = table[BASE_OFFSET], table[LAST_OFFSET], int(table[LEADER_EPOCH, 0])
    end = int(last[-1])
    around = [neighbour.leader_epoch for neighbour in (before, after) if neighbour is not None]
    return (
        first[0] == floor
        and end - floor < limits.MAX_RELATIVE_OFFSET
        and all(other == epoch for other in around)
        and (after is None or after.base_offset == end + 1)
        and bool((table[LEADER_EPOCH] == epoch).all())
        and bool((first[1:] == last[:-1] + 1).all())
    )


def _out_of_reach(table: Table, near: int) -> list[Suspect]:
    """Returns a batch whose offsets are further from those before it than a segment can span."""
    far = np.flatnonzero(table[LAST_OFFSET] - near > limits.MAX_RELATIVE_OFFSET)
    return [Suspect(int(far[0]), OUT_OF_REACH)] if far.size else []


def _ends(table: Table) -> tuple[Table, Table]:
    """Returns first and last offsets. A wrapper of magic 0 or 1 stores only its last one; its records are before it."""
    last = table[LAST_OFFSET]
    return np.where(table[MAGIC] == 2, table[BASE_OFFSET], last), last


def _overlap(table: Table, at: int, first: Table, previous: Table, last: Table) -> list[Suspect]:
    """Returns which of two overlapping batches is wrong: the one that does not continue its predecessor."""
    count = table.shape[1]
    row = _row_of_altered(at, first, previous, last)
    if row is not None and row[0] < count:
        start, end = row
        return [Suspect(start, _BEGINS_BEFORE if first[start] <= previous[start] else REACHES_BEYOND, end)]
    follows_on = at == 0 or first[at - 1] == previous[at - 1] + 1
    if not follows_on:
        needed, room = last[at - 1] - first[at - 1] + 1, first[at] - previous[at - 1] - 1
        return [Suspect(at - 1, REACHES_BEYOND, None if room >= needed or at == count else at + 1)]  # no room: both are wrong
    if at == count:
        return []
    repeats = (table[_SAME, :at] == table[_SAME, at][:, np.newaxis]).all(axis=0).any()  # a power loss may leave older content
    return [Suspect(at, _REPEATS if repeats else _BEGINS_BEFORE)]


def _row_of_altered(at: int, first: Table, previous: Table, last: Table) -> tuple[int, int] | None:
    """Returns the batches with wrong offsets around an overlap, as a half-open range of columns; None if that is unknown.

    They begin where the offsets stop to follow each other. A later batch that has exactly the offset that it gets if the records
    in between are counted is as it was written, so the batches before it are not.
    """
    gap = np.flatnonzero(first[:at] != previous[:at] + 1)
    for begun in (*gap[-1:].tolist(), at):
        start = begun
        while start > 0 and first[start - 1] != previous[start - 1] + 1:
            start -= 1
        counted = previous[start] + 1 + np.cumsum(last[start:] - first[start:] + 1)[:-1]
        right = start + 1 + np.flatnonzero(first[start + 1 :] == counted)
        right = right[right >= at]  # the overlap is not after it
        if right.size:
            return start, int(right[0])
    return None


def _odd_epoch(table: Table, before: Neighbour | None, after: Neighbour | None) -> int | None:
    """Returns the first batch whose epoch is a spike or a dip between two others; epochs otherwise rise, or are -1."""
    if np.any(table[MAGIC] != 2):
        return None
    epochs = table[LEADER_EPOCH]
    if before is not None:
        epochs = np.append(before.leader_epoch, epochs)
    if after is not None:
        epochs = np.append(epochs, after.leader_epoch)
    if len(epochs) < 3 or int(epochs.min()) == int(epochs.max()):
        return None
    left, middle, right = epochs[:-2], epochs[1:-1], epochs[2:]
    spike = (middle > right) & (left <= right)
    dip = (middle < left) & (right >= left)
    odd = np.flatnonzero(spike | dip)
    return int(odd[0]) + (0 if before is not None else 1) if odd.size else None


def last_neighbour(table: Table) -> Neighbour:
    """Returns the last batch of a table that is not empty, as the neighbour before the next one."""
    return Neighbour(int(table[BASE_OFFSET, -1]), int(table[LAST_OFFSET, -1]), int(table[LEADER_EPOCH, -1]))
