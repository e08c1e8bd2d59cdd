"""Compares the indexes of a segment with its batches, in one pass. Kafka's `sanityCheck` of an index only reads its size."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pylog.fs import FileKind, FileSystem
from pylog.index import kinds
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import ENTRY_SIZE, TransactionIndex
from pylog.log.checking.report import about
from pylog.log.recovery.findings import Finding
from pylog.record.batch import Table
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    LAST_OFFSET,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_ID,
    SIZE,
)
from pylog.segment import names
from pylog.segment.batch_walk import WalkedRange, first_offsets
from pylog.segment.segment import LogSegment

Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]


class IndexWatch:
    """Compares an index with its batches in one pass, and reports the first entry that does not match.

    Args:
        path: the index file.
        kind: the finding's kind.
        entry_size: in bytes.
        offsets: the offsets of the entries, ascending.
        complete: true if the segment is sealed.
    """

    def __init__(self, path: str, kind: str, entry_size: int, offsets: Longs, *, complete: bool) -> None:
        self._path = path
        self._kind = kind
        self.entry_size = entry_size
        self._complete = complete
        self._wrong: int | None = None
        self._last_offset = -1  # of the batches so far
        self.offsets = offsets

    def take(self, walked: WalkedRange) -> None:
        if self._wrong is None and self.offsets.size:
            first, good = self.judge(walked)
            if not good.all():
                self._wrong = first + int(np.argmin(good))
        self._last_offset = int(walked.table[LAST_OFFSET, -1])

    def judge(self, walked: WalkedRange) -> tuple[int, Flags]:
        """Returns the first entry within these batches, and for it and the next ones whether they match."""
        raise NotImplementedError

    def entries_of(self, table: Table) -> slice:
        """Returns the entries with offsets in these batches."""
        return slice(*self.offsets.searchsorted((self._last_offset, int(table[LAST_OFFSET, -1])), "right").tolist())

    def finish(self, *, whole: bool) -> list[Finding]:
        """Returns the finding, if any. `whole`: all batches were compared."""
        if self._wrong is None and whole and self._complete and self.offsets.size and self.ends_wrongly():
            self._wrong = self.offsets.size - 1
        if self._wrong is None:
            return []
        position = self._wrong * self.entry_size
        message = f"has an entry (number {self._wrong}, at position {position}) that does not fit the batches"
        return [
            about(self._kind, self._path, message, position=position, size=self.entry_size, offset=int(self.offsets[self._wrong]))
        ]

    def ends_wrongly(self) -> bool:
        """Returns whether the last entry of a sealed segment does not match its batches."""
        return int(self.offsets[-1]) > self._last_offset


class OffsetWatch(IndexWatch):
    """Checks that each entry leads to a batch, and that no earlier batch reaches its offset (storage-format 4.2.2)."""

    def __init__(self, path: str, kind: str, index: OffsetIndex, *, complete: bool) -> None:
        entries = np.frombuffer(index.encoded(), ">i4").reshape(-1, 2).astype(np.int64)
        super().__init__(path, kind, OffsetIndex.ENTRY_SIZE, entries[:, 0] + index.base_offset, complete=complete)
        self._positions = entries[:, 1].copy()

    def judge(self, walked: WalkedRange) -> tuple[int, Flags]:
        table = walked.table
        starts, bases, last = table[POSITION] + walked.shift, first_offsets(table), table[LAST_OFFSET]
        first, end = self._positions.searchsorted((starts[0], starts[-1] + table[SIZE, -1])).tolist()
        positions, offsets = self._positions[first:end], self.offsets[first:end]
        batches = starts.searchsorted(positions, "right") - 1
        good = (starts[batches] == positions) & (bases[batches] <= offsets)
        named = np.minimum(last.searchsorted(offsets), last.size - 1)  # an entry has the last offset of an append
        return first, good & ((bases[named] <= offsets) | (offsets > last[-1]))


class TimeWatch(IndexWatch):
    """Checks that no record up to an entry's offset has a larger timestamp, and that its batch has it (5.1, 5.2.1)."""

    def __init__(self, path: str, kind: str, index: TimeIndex, *, complete: bool) -> None:
        entries = np.frombuffer(index.encoded(), np.dtype([("timestamp", ">i8"), ("relative", ">i4")]))
        offsets = entries["relative"].astype(np.int64) + index.base_offset
        super().__init__(path, kind, TimeIndex.ENTRY_SIZE, offsets, complete=complete)
        self._timestamps = entries["timestamp"].astype(np.int64)
        self._largest = -1

    def take(self, walked: WalkedRange) -> None:
        super().take(walked)
        self._largest = max(self._largest, int(walked.table[MAX_TIMESTAMP].max()))

    def judge(self, walked: WalkedRange) -> tuple[int, Flags]:
        table = walked.table
        entries, last, stamps = self.entries_of(table), table[LAST_OFFSET], table[MAX_TIMESTAMP]
        offsets, entered = self.offsets[entries], self._timestamps[entries]
        largest = np.maximum.accumulate(np.append(self._largest, stamps))  # largest timestamp before each batch
        holders = last.searchsorted(offsets)
        held = (table[MAGIC, holders] == 2) & (table[BASE_OFFSET, holders] <= offsets)
        good = (largest[last.searchsorted(offsets, "right")] <= entered) & (~held | (stamps[holders] == entered))
        return int(entries.start), good

    def ends_wrongly(self) -> bool:
        return self._largest != self._timestamps[-1] or super().ends_wrongly()


class _AbortWatch(IndexWatch):
    """Checks that each entry names a control batch of its producer (storage-format 3.9)."""

    def __init__(self, path: str, index: TransactionIndex, *, complete: bool) -> None:
        offsets = np.array([entry.last_offset for entry in index.entries], np.int64)
        super().__init__(path, "derived", ENTRY_SIZE, offsets, complete=complete)
        self._producers = np.array([entry.producer_id for entry in index.entries], np.int64)

    def judge(self, walked: WalkedRange) -> tuple[int, Flags]:
        table = walked.table
        entries = self.entries_of(table)
        markers = table[LAST_OFFSET].searchsorted(self.offsets[entries])
        good = (table[LAST_OFFSET, markers] == self.offsets[entries]) & (table[PRODUCER_ID, markers] == self._producers[entries])
        return int(entries.start), good & ((table[ATTRIBUTES, markers] & CONTROL_BIT) != 0)


_KINDS: Final[dict[str, FileKind[..., Any]]] = {
    names.INDEX: kinds.OFFSETS,
    names.TIME_INDEX: kinds.TIMES,
    names.TRANSACTION_INDEX: kinds.TRANSACTIONS,
}


def load_index(fs: FileSystem, segment: LogSegment, suffix: str, *, sealed: bool) -> tuple[IndexWatch | None, Finding | None]:
    """Loads the valid part of an index file, with the finding about it."""
    path, base = segment.path_of(suffix), segment.base_offset
    data, fault, *_ = _KINDS[suffix].fetch_derived(fs, path, segment.size)
    if fault is not None:
        return None, about("derived", path, f"cannot be used: {fault}", offset=base)
    if data is None:
        needed = sealed and suffix != names.TRANSACTION_INDEX
        return None, about("derived", path, "is missing", offset=base) if needed else None
    watch: IndexWatch
    if suffix == names.INDEX:
        offsets, damaged = kinds.OFFSETS.parsed(data, path, base, segment.size if sealed else segment.file().size())
        watch = OffsetWatch(path, "derived", offsets, complete=sealed)
    elif suffix == names.TIME_INDEX:
        times, damaged = kinds.TIMES.parsed(data, path, base)
        watch = TimeWatch(path, "derived", times, complete=sealed)
    else:
        aborted, damaged = kinds.TRANSACTIONS.parsed(data, path, base)
        watch = _AbortWatch(path, aborted, complete=sealed)
    if not damaged:
        return watch, None
    position = watch.offsets.size * watch.entry_size
    return None, about("derived", path, "has bytes that are not an entry", position=position, size=len(data) - position)
