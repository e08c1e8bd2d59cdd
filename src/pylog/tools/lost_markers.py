"""Which transactions lose their end when a repair takes out the marker that says how they ended, and what becomes of them then.

A committed reader learns from the first marker of a producer behind a record whether that record was committed. Without it the
next one of that producer is taken for it; without any the transaction counts as open, and committed reading stops before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.log.producer_state import control_record
from pylog.log.walk import Stretch, walk
from pylog.record.batch import Table, scan_batches
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    CONTROL_COMMIT,
    POSITION,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.segment.segment import LogSegment

Stays = Callable[[LogSegment, int, int], bool]


class LostEnd(NamedTuple):
    """A transaction whose marker goes and whose records, or some of them, stay.

    Attributes:
        producer_id: whose.
        first_offset: of the records that stay.
        marker_offset: where the marker is.
        committed: what it says; None when it is too damaged to tell.
        becomes: what the producer's next marker makes of the transaction: committed or not; None when there is none.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    committed: bool | None
    becomes: bool | None

    def __str__(self) -> str:
        """What it costs, for a person."""
        marker = {True: "COMMIT", False: "ABORT", None: "marker, too damaged to tell which,"}[self.committed]
        told = f"the {marker} at offset {self.marker_offset} goes, and records of its transaction stay"
        if self.becomes is None:
            after = "it counts as open then: committed readers stop before that offset until somebody aborts it"
        else:
            seen = "see its records" if self.becomes else "do not see its records"
            after = f"the producer's next marker is taken for its end: committed readers {seen} then"
        return f"{told} (producer {self.producer_id}, from offset {self.first_offset} on); {after}"


class _Event(NamedTuple):
    """A transactional batch, or a marker: what it ends a transaction with, None when it is too damaged to tell."""

    producer_id: int
    offset: int
    stays: bool
    ends: bool = False
    committed: bool | None = None


def lost_ends(segments: Iterable[tuple[LogSegment, int | None]], stays: Stays) -> list[LostEnd]:
    """The transactions that change for committed readers.

    Args:
        segments: of the log as it is, each with the next one's base offset.
        stays: whether the bytes of a segment from one position to another are kept.

    Cost: one pass over the bytes; memory for the transactions that are under way.
    """
    fates = _Fates()
    for segment, following in segments:
        for stretch in walk(segment, 0, segment.size, following, verify=True):
            for event in _events_of(segment, stretch, stays):
                fates.take(event)
    return fates.settled()


class _Fates:
    """What becomes of each producer's transactions, as its batches go by."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}  # of the records that stay of the transaction under way
        self._waiting: dict[int, list[LostEnd]] = {}  # for the producer's next marker that stays
        self._settled: list[LostEnd] = []

    def take(self, event: _Event) -> None:
        if not event.ends:
            if event.stays:
                self._first.setdefault(event.producer_id, event.offset)
            return
        first = self._first.pop(event.producer_id, None)
        if event.stays:
            self._settled += [lost._replace(becomes=event.committed) for lost in self._waiting.pop(event.producer_id, ())]
        elif first is not None:
            lost = LostEnd(event.producer_id, first, event.offset, event.committed, None)
            self._waiting.setdefault(event.producer_id, []).append(lost)

    def settled(self) -> list[LostEnd]:
        """Those that change, in the order of their markers, when all batches have gone by."""
        found = [*self._settled, *chain.from_iterable(self._waiting.values())]
        changed = (lost for lost in found if lost.committed is None or lost.becomes is not lost.committed)
        return sorted(changed, key=lambda lost: lost.marker_offset)


def _events_of(segment: LogSegment, stretch: Stretch, stays: Stays) -> Iterator[_Event]:
    """The transactional batches of a stretch; behind it, those whose headers can be read although they are damaged."""
    table = stretch.table
    for batch in _transactional(table):
        start = stretch.shift + int(table[POSITION, batch])
        event = _Event(*_whose(table, batch), stays(segment, start, start + int(table[SIZE, batch])))
        if not table[ATTRIBUTES, batch] & CONTROL_BIT:
            yield event
        elif (marker := control_record(stretch.buffer, table, batch)) is not None and marker.ends_transaction:
            yield event._replace(ends=True, committed=marker.type == CONTROL_COMMIT)
    damage = stretch.damage
    if damage is not None:
        size = min(damage.end - damage.position, limits.READ_CHUNK_BYTES)
        found = scan_batches(segment.file().read(damage.position, size)).table
        for batch in _transactional(found):
            yield _Event(*_whose(found, batch), False, bool(found[ATTRIBUTES, batch] & CONTROL_BIT))


def _transactional(table: Table) -> list[int]:
    return np.flatnonzero((table[ATTRIBUTES] & TRANSACTIONAL_BIT) != 0).tolist()


def _whose(table: Table, batch: int) -> tuple[int, int]:
    return int(table[PRODUCER_ID, batch]), int(table[BASE_OFFSET, batch])
