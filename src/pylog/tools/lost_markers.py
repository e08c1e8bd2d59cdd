"""Finds transactions whose end marker a repair removes while their records stay, and how readers see them afterwards.

For a `read_committed` reader, the first marker of a producer after a record decides whether the record was committed. If a repair
removes that marker, the producer's next marker decides. Without another marker the transaction is open, and readers stop at it.

Damage may also hide a marker, so that nothing of it can be read. A later epoch of its producer shows that it was there: a
producer takes one only after its transaction has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
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
from pylog.segment.batch_walk import Damage, WalkedRange, walk
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
        is_certain: False if no header of the marker can be read, and nothing that follows shows that there was one.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    committed: bool | None
    becomes: bool | None
    epoch: int
    timestamp: int
    is_certain: bool = True

    def marker(self, *, is_committed: bool) -> EndMarker:
        """Returns a marker that takes the place of the lost one, with its outcome; if that is unknown, with the given one."""
        committed = is_committed if self.committed is None else self.committed
        return EndMarker(self.marker_offset, 0, self.producer_id, self.epoch, committed, self.timestamp)

    def __str__(self) -> str:
        """Describes the consequences."""
        marker = {True: "COMMIT", False: "ABORT", None: "marker, too damaged to tell which,"}[self.committed]
        message = f"the {marker} at offset {self.marker_offset} is removed, and records of its transaction stay"
        if not self.is_certain:
            message = f"a marker may have been in the damage at offset {self.marker_offset}, and records of its transaction stay"
        if self.becomes is None:
            after = "the transaction is open then: read_committed readers stop before that offset until it is aborted"
        else:
            seen = "see its records" if self.becomes else "do not see its records"
            after = f"the producer's next marker ends the transaction then: read_committed readers {seen}"
        return f"{message} (producer {self.producer_id}, from offset {self.first_offset} on); {after}"


class _Hiding(NamedTuple):
    """Damage that may have held the marker of an open transaction.

    Attributes:
        free: its last offsets that no readable marker has, one for each open transaction, ascending; these share the list.
        is_likely: whether some of its bytes have no readable header of a batch of records.
    """

    free: list[int]
    is_likely: bool


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
            if walked.damage is not None:
                _take_damage(fates, segment, walked.damage, following)
    return fates.settled()


def _take_damage(fates: _Fates, segment: LogSegment, damage: Damage, following: int | None) -> None:
    """Takes the batches of damaged bytes whose headers are readable, then what else the bytes may have held."""
    size = min(damage.end - damage.position, limits.READ_CHUNK_BYTES)
    found = scan_batches(segment.file().read(damage.position, size)).table
    read = int(found[SIZE].sum()) if found.shape[1] else 0
    explained, used = read == damage.end - damage.position, set[int]()
    for batch in _transactional(found):
        event = _Event(*_producer_of(found, batch), False, bool(found[ATTRIBUTES, batch] & CONTROL_BIT))
        event = event._replace(offset=_offset_within(damage, following, event.offset))
        if fates.take(event):
            used.add(event.offset)
        explained = explained and (not event.ends or event.offset in used)
    end = following if damage.next_offset is None else damage.next_offset
    if end is not None:  # at the end of the log it is a torn append
        fates.hide(range(damage.offset, end), used, is_likely=not explained)


class _Fates:
    """Follows the transactions of each producer through a pass over the batches."""

    def __init__(self) -> None:
        self._first: dict[int, _Event] = {}  # first batch that stays of the open transaction, by producer id
        self._last: dict[int, _Event] = {}  # the last one
        self._hiding: dict[int, _Hiding] = {}  # damage after the last one
        self._waiting: dict[int, list[LostEnd]] = {}  # transactions that wait for the producer's next marker, by producer id
        self._settled: list[LostEnd] = []

    def take(self, event: _Event) -> bool:
        """Takes the next event. Returns whether it is a removed marker of a transaction whose records stay."""
        self._end_hidden(event)
        if not event.ends:
            if event.stays:
                self._first.setdefault(event.producer_id, event)
                self._last[event.producer_id] = event
                self._hiding.pop(event.producer_id, None)
            return False
        if event.stays:
            self._first.pop(event.producer_id, None)
            self._settled += [lost._replace(becomes=event.committed) for lost in self._waiting.pop(event.producer_id, ())]
            return False
        if event.producer_id not in self._first:
            return False
        self._lose(event.producer_id, event.offset, event.committed, event.epoch)
        return True

    def hide(self, offsets: range, used: set[int], *, is_likely: bool) -> None:
        """Notes damage that may have held the markers of the open transactions, at offsets that are not used."""
        free = islice((offset for offset in reversed(offsets) if offset not in used), len(self._first))
        hiding = _Hiding([*free][::-1], is_likely)
        for producer_id in self._first:
            self._hiding.setdefault(producer_id, hiding)

    def _end_hidden(self, event: _Event) -> None:
        """Ends the producer's open transaction in the damage after it, if only that explains the epoch of a later batch."""
        last, hiding = self._last.get(event.producer_id), self._hiding.get(event.producer_id)
        if last is not None and hiding is not None and hiding.free and event.stays and event.epoch > last.epoch + event.ends:
            self._lose(event.producer_id, hiding.free.pop(), None, last.epoch + 1)

    def _lose(self, producer_id: int, offset: int, committed: bool | None, epoch: int, *, is_certain: bool = True) -> None:
        first, last = self._first.pop(producer_id), self._last[producer_id]
        self._hiding.pop(producer_id, None)
        epoch = epoch if 0 <= epoch - last.epoch <= 1 else min(last.epoch + 1, limits.MAX_PRODUCER_EPOCH)
        lost = LostEnd(producer_id, first.offset, offset, committed, None, epoch, last.timestamp, is_certain)
        self._waiting.setdefault(producer_id, []).append(lost)

    def settled(self) -> list[LostEnd]:
        """Returns the transactions that change, in the order of their markers. Called after the last batch."""
        for producer_id, hiding in list(self._hiding.items()):
            if hiding.is_likely and hiding.free:
                self._lose(producer_id, hiding.free.pop(), None, self._last[producer_id].epoch + 1, is_certain=False)
        found = [*self._settled, *chain.from_iterable(self._waiting.values())]
        changed = (lost for lost in found if lost.committed is None or lost.becomes is not lost.committed)
        return sorted(changed, key=lambda lost: lost.marker_offset)


def _events_of(segment: LogSegment, walked: WalkedRange, stays: Stays) -> Iterator[_Event]:
    """Yields the transactional batches of a range."""
    table = walked.table
    for batch in _transactional(table):
        start = walked.shift + int(table[POSITION, batch])
        event = _Event(*_producer_of(table, batch), stays(segment, start, start + int(table[SIZE, batch])))
        if not table[ATTRIBUTES, batch] & CONTROL_BIT:
            yield event
        elif (marker := control_record(walked.buffer, table, batch)) is not None and marker.ends_transaction:
            yield event._replace(ends=True, committed=marker.type == CONTROL_COMMIT)


def _offset_within(damage: Damage, following: int | None, offset: int) -> int:
    """Returns the nearest offset that the bytes may have held: no checksum covers a batch's offset, so it may be the damage."""
    end = following if damage.next_offset is None else damage.next_offset
    return max(damage.offset, offset if end is None else min(offset, end - 1))


def _transactional(table: Table) -> list[int]:
    return np.flatnonzero((table[ATTRIBUTES] & TRANSACTIONAL_BIT) != 0).tolist()


def _producer_of(table: Table, batch: int) -> tuple[int, int, int, int]:
    producer_id, epoch, offset, timestamp = table[[PRODUCER_ID, PRODUCER_EPOCH, BASE_OFFSET, MAX_TIMESTAMP], batch].tolist()
    return producer_id, epoch, offset, timestamp
