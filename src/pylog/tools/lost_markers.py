"""Finds transactions whose end marker a repair removes while their records stay, and how readers see them afterwards.

For a `read_committed` reader, the first marker of a producer after a record decides whether the record was committed. If a repair
removes that marker, the producer's next marker decides. Without another marker the transaction is open, and readers stop at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.record.batch import Table, scan_batches
from pylog.record.control_batch import control_record
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    CONTROL_COMMIT,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.segment.batch_walk import WalkedRange, walk
from pylog.segment.segment import LogSegment
from pylog.tools.pieces import EndMarker

Stays = Callable[[LogSegment, int, int], bool]


class LostEnd(NamedTuple):
    """A transaction that loses its marker while some of its records stay.

    Attributes:
        producer_id: producer id of the transaction.
        first_offset: offset of the first record that stays.
        marker_offset: offset of the marker.
        committed: True for a COMMIT marker, False for ABORT, None if the marker is too damaged.
        becomes: True if the producer's next marker commits the transaction, False if it aborts it, None without a next marker.
        epoch: producer epoch of the marker.
        timestamp: timestamp of the last record of the transaction that stays.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    committed: bool | None
    becomes: bool | None
    epoch: int
    timestamp: int

    def marker(self, *, is_committed: bool) -> EndMarker:
        """Returns a marker that takes the place of the lost one, with its outcome; if that is unknown, with the given one."""
        committed = is_committed if self.committed is None else self.committed
        return EndMarker(self.marker_offset, 0, self.producer_id, self.epoch, committed, self.timestamp)

    def __str__(self) -> str:
        """Describes the consequences."""
        marker = {True: "COMMIT", False: "ABORT", None: "marker, too damaged to tell which,"}[self.committed]
        message = f"the {marker} at offset {self.marker_offset} is removed, and records of its transaction stay"
        if self.becomes is None:
            after = "the transaction is open then: read_committed readers stop before that offset until it is aborted"
        else:
            seen = "see its records" if self.becomes else "do not see its records"
            after = f"the producer's next marker ends the transaction then: read_committed readers {seen}"
        return f"{message} (producer {self.producer_id}, from offset {self.first_offset} on); {after}"


class _Event(NamedTuple):
    """A transactional batch or a marker. `committed` is None if the marker is too damaged."""

    producer_id: int
    epoch: int
    offset: int
    timestamp: int
    stays: bool
    ends: bool = False
    committed: bool | None = None


def lost_ends(segments: Iterable[tuple[LogSegment, int | None]], stays: Stays) -> list[LostEnd]:
    """Returns the transactions that change for `read_committed` readers.

    Args:
        segments: segments of the log, each with the base offset of the next one.
        stays: returns True if the repair keeps the bytes of a segment between two positions.

    Cost: one pass over the log; memory for open transactions.
    """
    fates = _Fates()
    for segment, following in segments:
        for walked in walk(segment, 0, segment.size, following, verify=True):
            for event in _events_of(segment, walked, stays):
                fates.take(event)
    return fates.settled()


class _Fates:
    """Follows the transactions of each producer through a pass over the batches."""

    def __init__(self) -> None:
        self._first: dict[int, _Event] = {}  # first batch that stays of the open transaction, by producer id
        self._last: dict[int, _Event] = {}  # the last one
        self._waiting: dict[int, list[LostEnd]] = {}  # transactions that wait for the producer's next marker, by producer id
        self._settled: list[LostEnd] = []

    def take(self, event: _Event) -> None:
        if not event.ends:
            if event.stays:
                self._first.setdefault(event.producer_id, event)
                self._last[event.producer_id] = event
            return
        first = self._first.pop(event.producer_id, None)
        if event.stays:
            self._settled += [lost._replace(becomes=event.committed) for lost in self._waiting.pop(event.producer_id, ())]
        elif first is not None:
            last = self._last[event.producer_id]
            epoch = event.epoch if 0 <= event.epoch - last.epoch <= 1 else min(last.epoch + 1, limits.MAX_PRODUCER_EPOCH)
            lost = LostEnd(event.producer_id, first.offset, event.offset, event.committed, None, epoch, last.timestamp)
            self._waiting.setdefault(event.producer_id, []).append(lost)

    def settled(self) -> list[LostEnd]:
        """Returns the transactions that change, in the order of their markers. Called after the last batch."""
        found = [*self._settled, *chain.from_iterable(self._waiting.values())]
        changed = (lost for lost in found if lost.committed is None or lost.becomes is not lost.committed)
        return sorted(changed, key=lambda lost: lost.marker_offset)


def _events_of(segment: LogSegment, walked: WalkedRange, stays: Stays) -> Iterator[_Event]:
    """Yields the transactional batches of a range, then the damaged ones after it whose headers are readable."""
    table = walked.table
    for batch in _transactional(table):
        start = walked.shift + int(table[POSITION, batch])
        event = _Event(*_producer_of(table, batch), stays(segment, start, start + int(table[SIZE, batch])))
        if not table[ATTRIBUTES, batch] & CONTROL_BIT:
            yield event
        elif (marker := control_record(walked.buffer, table, batch)) is not None and marker.ends_transaction:
            yield event._replace(ends=True, committed=marker.type == CONTROL_COMMIT)
    damage = walked.damage
    if damage is not None:
        size = min(damage.end - damage.position, limits.READ_CHUNK_BYTES)
        found = scan_batches(segment.file().read(damage.position, size)).table
        for batch in _transactional(found):
            yield _Event(*_producer_of(found, batch), False, bool(found[ATTRIBUTES, batch] & CONTROL_BIT))


def _transactional(table: Table) -> list[int]:
    return np.flatnonzero((table[ATTRIBUTES] & TRANSACTIONAL_BIT) != 0).tolist()


def _producer_of(table: Table, batch: int) -> tuple[int, int, int, int]:
    producer_id, epoch, offset, timestamp = table[[PRODUCER_ID, PRODUCER_EPOCH, BASE_OFFSET, MAX_TIMESTAMP], batch].tolist()
    return producer_id, epoch, offset, timestamp
