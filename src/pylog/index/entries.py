"""Kernels over Kafka's index tables: sorted big-endian entries without header or checksum (storage-format 4 and 5).

An offset entry has 8 bytes: relative offset, position. A time entry has 12: timestamp, relative offset. A table is given as
(array, count), and no kernel reads behind either. Searching a damaged table gives a wrong entry but always ends, in bounds.

Indexes are sparse: an entry that is missing costs time, one that is wrong hides records. So when in doubt an entry does not
count.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from pylog.limits import INT32_MAX
from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.record.memory import (
    BYTES,
    OUT_BYTES,
    OUT_LONGS,
    address,
    be32,
    be64,
    floor32,
    floor64,
    inlined,
    kernel,
    put32,
    put64,
)

OFFSET_ENTRY_SIZE: Final = 8
POSITION_AT: Final = 4
TIME_ENTRY_SIZE: Final = 12
TIME_OFFSET_AT: Final = 8
_OFFSET_ENTRY: Final = np.dtype([("relative", ">i4"), ("position", ">i4")])
_TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])

# The state of `index_batches`, int64 each.
BYTES_SINCE_ENTRY: Final = 0  # batch bytes behind the last offset entry, counted from its batch's start
LARGEST_TIMESTAMP: Final = 1
LARGEST_TIMESTAMP_OFFSET: Final = 2  # the last offset of the first batch that holds the largest timestamp
OFFSET_COUNT: Final = 3  # entries in the offset table
INDEXED_OFFSET: Final = 4  # of the last offset entry
TIME_COUNT: Final = 5  # entries in the time table
INDEXED_TIMESTAMP: Final = 6  # of the last time entry
INDEXED_TIMESTAMP_OFFSET: Final = 7
STATUS: Final = 8  # one of the four below
STATE_SIZE: Final = 9

DONE: Final = 0
FULL: Final = 1  # an output table has no room: give a larger one and go on with the same batch
OUT_OF_RANGE: Final = 2  # the batch's last offset or position does not fit 31 bits
OUT_OF_ORDER: Final = 3  # the batch's last offset does not lie behind the last entry's

_L = types.int64
_COLUMNS = types.Array(types.int64, 2, "A", readonly=True)  # any layout: callers pass slices of a scan table
_PAIR = types.UniTuple(types.int64, 2)


def new_state(base_offset: int) -> Any:
    """The state of a segment without entries.

    Args:
        base_offset: the segment's first offset.

    Returns:
        int64[STATE_SIZE], as `index_batches` takes it.

    >>> int(new_state(100)[LARGEST_TIMESTAMP])
    -1
    """
    state = np.zeros(STATE_SIZE, np.int64)
    state[[LARGEST_TIMESTAMP, INDEXED_TIMESTAMP]] = -1
    state[[LARGEST_TIMESTAMP_OFFSET, INDEXED_TIMESTAMP_OFFSET]] = base_offset
    state[INDEXED_OFFSET] = base_offset - 1  # so that the first entry needs no special case
    return state


# ---- search: O(log n) ------------------------------------------------------------------------------------------------------


@inlined
def offset_floor(at, count, base_offset, offset):  # type: ignore[no-untyped-def]
    """(offset, position) of the last of `count` offset entries at `at` that is not behind `offset` (4.4.1)."""
    index = -1
    if offset >= base_offset:
        index = floor32(at, OFFSET_ENTRY_SIZE, count, offset - base_offset)
    if index < 0:
        return base_offset, 0
    entry = at + index * OFFSET_ENTRY_SIZE
    return base_offset + be32(entry), be32(entry + POSITION_AT)


@kernel(_PAIR(BYTES, _L, _L, _L), nogil=False)
def lookup_offset(table, count, base_offset, offset):  # type: ignore[no-untyped-def]
    """(offset, position) where a search for `offset` starts; (base_offset, 0) when no entry is that early."""
    return offset_floor(address(table), min(count, len(table) // OFFSET_ENTRY_SIZE), base_offset, offset)


@kernel(_PAIR(BYTES, _L, _L, _L), nogil=False)
def lookup_timestamp(table, count, base_offset, timestamp):  # type: ignore[no-untyped-def]
    """(timestamp, offset) of the last entry that is not later than `timestamp`; (-1, base_offset) when there is none."""
    at = address(table)
    index = floor64(at, TIME_ENTRY_SIZE, min(count, len(table) // TIME_ENTRY_SIZE), timestamp)
    if index < 0:
        return -1, base_offset
    entry = at + index * TIME_ENTRY_SIZE
    return be64(entry), base_offset + be32(entry + TIME_OFFSET_AT)


@kernel(_L(BYTES, _L, _L, _L, _L), nogil=False)
def count_at_most(table, stride, field, count, key):  # type: ignore[no-untyped-def]
    """How many of the sorted entries of `stride` bytes have an int32 at byte `field` that is at most `key`."""
    if field < 0 or field > stride - 4:
        return 0
    return floor32(address(table) + field, stride, min(count, len(table) // stride), key) + 1


# ---- what of a file is entries: O(n), once a file: numpy, which has nothing to compile ----------------------------------------


def valid_offset_entries(table: Any, count: int, log_size: int) -> int:
    """How many leading entries lie in order and point into a `.log` file of `log_size` bytes.

    Position 0 ends the table: Kafka never indexes a segment's first batch (4.2.2), a preallocated file is zero behind its
    entries, and of an entry that a broker is writing the position comes last.
    """
    entries = _whole(table, count, _OFFSET_ENTRY)
    relative, position = entries["relative"].astype(np.int64), entries["position"].astype(np.int64)
    good = position < log_size
    good[:1] &= (relative[:1] >= 0) & (position[:1] >= 1)
    good[1:] &= (relative[1:] > relative[:-1]) & (position[1:] >= position[:-1])
    return _leading(good)


def valid_time_entries(table: Any, count: int) -> int:
    """How many leading entries have rising timestamps from 0 on and offsets that do not fall; an entry of zeros ends the table.

    Time 0 at the segment's very first offset looks like the zeros of a preallocated file. It counts as an entry when
    another one follows, or when it is all there is: a preallocated file is longer. Time 0 at a later offset always counts.
    """
    entries = _whole(table, count, _TIME_ENTRY)
    timestamp, relative = entries["timestamp"].astype(np.int64), entries["relative"].astype(np.int64)
    good = np.empty(entries.size, np.bool_)
    good[:1] = (timestamp[:1] >= 0) & (relative[:1] >= 0)
    good[1:] = (timestamp[1:] > timestamp[:-1]) & (relative[1:] >= relative[:-1])
    valid = _leading(good)
    if valid == 1 and entries.size > 1 and timestamp[0] == 0 and relative[0] == 0:
        return 0
    return valid


def _whole(table: Any, count: int, entry: Any) -> Any:
    """The first `count` entries of a table, or as many as it has."""
    count = max(0, min(count, len(table) // entry.itemsize))
    return table[: count * entry.itemsize].view(entry)


def _leading(good: Any) -> int:
    """How many come before the first that is not good."""
    return good.size if good.all() else int(np.argmin(good))


def zero_filled(table: Any, start: int, end: int) -> bool:
    """Whether the bytes from `start` to `end` are zero, as far as the table has them."""
    return not table[max(start, 0) : max(end, 0)].any()


# ---- making entries: O(1) a batch ------------------------------------------------------------------------------------------


@kernel(_L(_COLUMNS, _L, _L, _L, _L, _L, OUT_LONGS, OUT_BYTES, OUT_BYTES))
def index_batches(columns, first, end, position, base_offset, interval, state, offset_table, time_table):  # type: ignore[no-untyped-def]
    """Appends the entries of batches `first` to `end` of a scan table: Kafka's live append and its recovery (4.2.1, 4.3, C.1).

    The test comes before the batch's own size is counted, so a segment's first batch is never indexed. `position` is the
    place in the file of the byte that the scan table's positions count from.

    Returns the first batch that was not taken, and says why in `state[STATUS]`; the batches before it are in the tables.
    Calling again with that batch as `first` goes on, and noting its timestamp twice changes nothing.
    """
    offsets, times = address(offset_table), address(time_table)
    if len(state) < STATE_SIZE or columns.shape[0] < COLUMN_COUNT:
        return first
    end = min(end, columns.shape[1])
    index = max(first, 0)
    state[STATUS] = DONE
    while index < end:
        last_offset = columns[LAST_OFFSET, index]
        place = position + columns[POSITION, index]
        if last_offset < base_offset or last_offset - base_offset > INT32_MAX or place > INT32_MAX:
            state[STATUS] = OUT_OF_RANGE
            break
        if columns[MAX_TIMESTAMP, index] > state[LARGEST_TIMESTAMP]:  # strictly: the earliest batch that has it counts (4.2.1)
            state[LARGEST_TIMESTAMP] = columns[MAX_TIMESTAMP, index]
            state[LARGEST_TIMESTAMP_OFFSET] = last_offset
        if state[BYTES_SINCE_ENTRY] > interval:
            later = state[LARGEST_TIMESTAMP] > state[INDEXED_TIMESTAMP]
            falls = later and state[LARGEST_TIMESTAMP_OFFSET] < state[INDEXED_TIMESTAMP_OFFSET]
            if last_offset <= state[INDEXED_OFFSET] or falls:  # 4.2.5, 5.3
                state[STATUS] = OUT_OF_ORDER
                break
            at = state[OFFSET_COUNT] * OFFSET_ENTRY_SIZE
            time_at = state[TIME_COUNT] * TIME_ENTRY_SIZE
            if len(offset_table) - at < OFFSET_ENTRY_SIZE or len(time_table) - time_at < TIME_ENTRY_SIZE:
                state[STATUS] = FULL
                break
            put32(offsets + at, last_offset - base_offset)
            put32(offsets + at + POSITION_AT, place)
            state[OFFSET_COUNT] += 1
            state[INDEXED_OFFSET] = last_offset
            if later:  # else the last entry has that timestamp already (5.3 rule 4)
                put64(times + time_at, state[LARGEST_TIMESTAMP])
                put32(times + time_at + TIME_OFFSET_AT, state[LARGEST_TIMESTAMP_OFFSET] - base_offset)
                state[TIME_COUNT] += 1
                state[INDEXED_TIMESTAMP] = state[LARGEST_TIMESTAMP]
                state[INDEXED_TIMESTAMP_OFFSET] = state[LARGEST_TIMESTAMP_OFFSET]
            state[BYTES_SINCE_ENTRY] = 0
        state[BYTES_SINCE_ENTRY] += columns[SIZE, index]
        index += 1
    return index


def index_last_timestamp(base_offset: int, state: Any, time_table: Any) -> int:
    """Appends the time entry of a segment that closes or rolls (5.2.3); returns DONE, or FULL when nothing was done."""
    if len(state) < STATE_SIZE or state[TIME_COUNT] >= len(time_table) // TIME_ENTRY_SIZE:
        return FULL
    if state[LARGEST_TIMESTAMP] > state[INDEXED_TIMESTAMP]:
        at = int(state[TIME_COUNT]) * TIME_ENTRY_SIZE
        entry = (state[LARGEST_TIMESTAMP], state[LARGEST_TIMESTAMP_OFFSET] - base_offset)
        time_table[at : at + TIME_ENTRY_SIZE].view(_TIME_ENTRY)[0] = entry
        state[TIME_COUNT] += 1
        state[INDEXED_TIMESTAMP] = state[LARGEST_TIMESTAMP]
        state[INDEXED_TIMESTAMP_OFFSET] = state[LARGEST_TIMESTAMP_OFFSET]
    return DONE
