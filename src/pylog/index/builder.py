"""Builds the indexes of the active segment, or rebuilds those of a sealed one: one writer, snapshots for any number of readers.

The tables only grow: bytes below an entry count never change, and a larger table is a new array, so a snapshot never changes.
The writer takes snapshots between two calls of `add` and publishes them; readers never use a builder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pylog.errors import CorruptionError
from pylog.index.entries import (
    DONE,
    FULL,
    INDEXED_OFFSET,
    INDEXED_TIMESTAMP,
    INDEXED_TIMESTAMP_OFFSET,
    LARGEST_TIMESTAMP,
    LARGEST_TIMESTAMP_OFFSET,
    OFFSET_COUNT,
    OUT_OF_RANGE,
    STATUS,
    TIME_COUNT,
    index_batches,
    index_last_timestamp,
    new_state,
)
from pylog.index.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from pylog.index.offset_index import OffsetIndex
from pylog.index.pure import add_batch
from pylog.index.table import read_only
from pylog.index.time_index import TimeIndex
from pylog.limits import DEFAULT_INDEX_INTERVAL_BYTES
from pylog.record.format import LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE

_FIRST_CAPACITY: Final = 32  # entries: most segments of most topics are small


class SegmentIndexBuilder:
    """Builds the entries of a segment's offset index and time index in memory, batch by batch.

    Args:
        base_offset: the segment's first offset.
        interval_bytes: a batch is indexed if more than this many bytes of batches precede it since the last indexed batch.

    Spec: storage-format 4.2, 4.3, 5.2, 5.3, C.1. Not thread-safe.

    >>> from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, SIZE
    >>> batches = np.zeros((COLUMN_COUNT, 11), np.int64)  # eleven batches of one record and 1000 bytes
    >>> batches[LAST_OFFSET], batches[POSITION], batches[SIZE] = np.arange(11), np.arange(11) * 1000, 1000
    >>> builder = SegmentIndexBuilder(0, interval_bytes=4096)
    >>> builder.add(batches, 11)
    >>> [tuple(builder.offset_index().entry(i)) for i in range(2)]
    [(5, 5000), (10, 10000)]
    """

    def __init__(self, base_offset: int, interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self._state = new_state(base_offset)
        self._numbers = memoryview(self._state)  # the same array; reads one number in a third of the time
        self._grow_from(read_only(b""), read_only(b""))

    @classmethod
    def reopened(
        cls, offset_index: OffsetIndex, time_index: TimeIndex, interval_bytes: int = DEFAULT_INDEX_INTERVAL_BYTES
    ) -> SegmentIndexBuilder:
        """Continues after existing entries, copied from valid indexes (or from the part that a truncation left).

        As in Kafka, the byte count restarts at 0, and the largest timestamp is that of the last time entry. The caller must add
        the batches that neither index covers.

        Args:
            offset_index: the segment's offset index.
            time_index: the segment's time index.
            interval_bytes: as for the constructor.

        Returns:
            A builder with its own tables. O(n).

        Spec: storage-format 6.9.12, 5.3.1.

        >>> time_index, _ = TimeIndex.from_bytes(0, bytes.fromhex("00000000000454c300000005"))
        >>> SegmentIndexBuilder.reopened(OffsetIndex(0, read_only(b""), 0), time_index).max_timestamp
        283843
        """
        builder = cls(offset_index.base_offset, interval_bytes)
        state = builder._state
        state[OFFSET_COUNT], state[TIME_COUNT] = len(offset_index), len(time_index)
        builder._grow_from(offset_index.table, time_index.table)
        if len(offset_index):
            state[INDEXED_OFFSET] = offset_index.last.offset
        state[[INDEXED_TIMESTAMP, LARGEST_TIMESTAMP]] = time_index.last.timestamp
        state[[INDEXED_TIMESTAMP_OFFSET, LARGEST_TIMESTAMP_OFFSET]] = time_index.last.offset
        return builder

    def add(self, columns: Any, count: int, *, first: int = 0, position: int = 0) -> None:
        """Adds batches that follow those added before.

        Args:
            columns: a table that `scan_batches` filled, int64[COLUMN_COUNT, n].
            count: the number of batches in it; those from `first` on are added.
            first: index of the first batch to add.
            position: the position in the `.log` file, in bytes, that the table's positions count from.

        Raises:
            CorruptionError: a batch's offset or position does not fit an index (31 bits), or its offset does not rise. The
                batches before it are added.

        O(1) a batch. Spec: storage-format 4.2.1, 4.2.5, 5.3.
        """
        while True:
            first = index_batches(
                columns, first, count, position, self.base_offset, self.interval_bytes, self._state, self._offsets, self._times
            )
            if self._state[STATUS] != FULL:
                break
            self._grow_from(self._offsets, self._times)
        if self._state[STATUS] != DONE:
            raise self._refused(int(columns[LAST_OFFSET, first]), position + int(columns[POSITION, first]))

    def add_one(self, column: Sequence[int], position: int) -> None:
        """Adds one batch that follows those added before. In plain Python, which is much faster for one.

        Args:
            column: the batch's column, as in the table of `add`.
            position: the position in the `.log` file, in bytes, that the column's position counts from.

        Raises:
            CorruptionError: as for `add`.

        O(1). Spec: storage-format 4.2.1.

        >>> builder = SegmentIndexBuilder(0)
        >>> builder.add_one([0, 100, 0, 0, 1, 7, 7, *[0] * 8], 0)
        >>> builder.max_timestamp
        7
        """
        status = add_batch(
            self._numbers,
            column[LAST_OFFSET],
            position + column[POSITION],
            column[SIZE],
            column[MAX_TIMESTAMP],
            self.base_offset,
            self.interval_bytes,
            self._offsets,
            self._times,
        )
        if status != DONE:  # a table is full, or the batch is refused
            self.add(np.array(column, np.int64).reshape(-1, 1), 1, position=position)

    def finish(self) -> None:
        """Appends the time entry of a segment that rolls or closes, with the largest timestamp, if it is missing. O(1).

        Spec: storage-format 5.2.3.

        >>> builder = SegmentIndexBuilder(0)
        >>> builder.finish()
        >>> builder.time_bytes()
        b''
        """
        if index_last_timestamp(self.base_offset, self._state, self._times) == FULL:
            self._grow_from(self._offsets, self._times)
            index_last_timestamp(self.base_offset, self._state, self._times)

    def entries_left(self, segment_index_bytes: int) -> int:
        """Returns how many batches certainly fit before an index is full: each adds at most one entry. O(1).

        Args:
            segment_index_bytes: the topic's limit on an index file. The time index is full one entry early (5.3).

        Returns:
            A count; 0 means that the segment should roll.

        Spec: storage-format 6.3.1.

        >>> SegmentIndexBuilder(0).entries_left(48), SegmentIndexBuilder(0).entries_left(12)
        (3, 0)
        """
        offsets: int = segment_index_bytes // OFFSET_ENTRY_SIZE - self._numbers[OFFSET_COUNT]
        times: int = segment_index_bytes // TIME_ENTRY_SIZE - 1 - self._numbers[TIME_COUNT]
        return max(0, min(offsets, times))

    def offset_index(self) -> OffsetIndex:
        """Returns a snapshot of the offset index; later appends do not change it. O(1)."""
        return OffsetIndex(self.base_offset, self._offset_view, int(self._state[OFFSET_COUNT]))

    def time_index(self) -> TimeIndex:
        """Returns a snapshot of the time index; later appends do not change it. O(1)."""
        return TimeIndex(self.base_offset, self._time_view, int(self._state[TIME_COUNT]))

    def offset_bytes(self, first: int = 0) -> bytes:
        """Returns the `.index` file, or its entries from index `first` on. O(n)."""
        return self.offset_index().encoded(first)

    def time_bytes(self, first: int = 0) -> bytes:
        """Returns the `.timeindex` file, or its entries from `first` on. Call `finish` before a roll or close. O(n)."""
        return self.time_index().encoded(first)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the added batches, in milliseconds; -1 if there is none."""
        return int(self._state[LARGEST_TIMESTAMP])

    def _grow_from(self, offsets: Any, times: Any) -> None:
        """Copies the counted entries to larger tables; readers keep the old ones."""
        self._offsets = _grown(offsets, int(self._state[OFFSET_COUNT]) * OFFSET_ENTRY_SIZE, OFFSET_ENTRY_SIZE)
        self._times = _grown(times, int(self._state[TIME_COUNT]) * TIME_ENTRY_SIZE, TIME_ENTRY_SIZE)
        self._offset_view, self._time_view = read_only(self._offsets), read_only(self._times)

    def _refused(self, last_offset: int, position: int) -> CorruptionError:
        if self._state[STATUS] == OUT_OF_RANGE:
            reason = f"ends at offset {last_offset}, too far from the segment's base {self.base_offset} for an index"
        else:
            reason = f"ends at offset {last_offset}, which does not follow the batches before it"
        return CorruptionError(f"the batch at position {position} {reason}", position=position, offset=last_offset)


def _grown(table: Any, size: int, entry_size: int) -> Any:
    """Returns a table that begins with `size` bytes of `table` and can hold as much again: copying is O(1) an entry."""
    larger = np.zeros(2 * size + _FIRST_CAPACITY * entry_size, np.uint8)
    larger[:size] = table[:size]
    return larger
