"""Kernels over Kafka's index tables; `files` describes the tables.

A table is passed as (array, count), and no kernel reads beyond either. A search of a damaged table may return a wrong entry, but
always ends and stays within bounds.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pylog.index.files import TIME_ENTRY
from pylog.index.layout import OFFSET_ENTRY_SIZE, POSITION_AT, TIME_ENTRY_SIZE, TIME_OFFSET_AT
from pylog.limits import INT32_MAX
from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.record.kernel import inlined, kernel
from pylog.record.memory import address, be32, be64, floor32, floor64, put32, put64
from pylog.record.signatures import BYTES, INT64, OUT_BYTES, OUT_LONGS, PAIR, READ_COLUMNS

# The state of `index_batches`, int64 each.
BYTES_SINCE_ENTRY: Final = 0  # batch bytes since the last offset entry, including its batch
LARGEST_TIMESTAMP: Final = 1
LARGEST_TIMESTAMP_OFFSET: Final = 2  # the last offset of the first batch with the largest timestamp
OFFSET_COUNT: Final = 3  # entries in the offset table
INDEXED_OFFSET: Final = 4  # of the last offset entry
TIME_COUNT: Final = 5  # entries in the time table
INDEXED_TIMESTAMP: Final = 6  # of the last time entry
INDEXED_TIMESTAMP_OFFSET: Final = 7
STATUS: Final = 8  # one of the four below
STATE_SIZE: Final = 9

DONE: Final = 0
FULL: Final = 1  # an output table is full: call again with a larger one and the same batch
OUT_OF_RANGE: Final = 2  # the batch's last offset or position does not fit 31 bits
OUT_OF_ORDER: Final = 3  # the batch's last offset is not larger than the last entry's

_L = INT64


def new_state(base_offset: int) -> Any:
    """Returns the state of a segment without entries.

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
    """Returns (offset, position) of the last of `count` offset entries at `at` whose offset is at most `offset` (4.4.1)."""
    index = -1
    if offset >= base_offset:
        index = floor32(at, OFFSET_ENTRY_SIZE, count, offset - base_offset)
    if index < 0:
        return base_offset, 0
    entry = at + index * OFFSET_ENTRY_SIZE
    return base_offset + be32(entry), be32(entry + POSITION_AT)


@kernel(PAIR(BYTES, _L, _L, _L), nogil=False, pure="pylog.index.pure:lookup_offset")
def lookup_offset(table, count, base_offset, offset):  # type: ignore[no-untyped-def]
    """Returns (offset, position) where a search for `offset` starts; (base_offset, 0) if no entry is that early."""
    return offset_floor(address(table), min(count, len(table) // OFFSET_ENTRY_SIZE), base_offset, offset)


@kernel(PAIR(BYTES, _L, _L, _L), nogil=False, pure="pylog.index.pure:lookup_timestamp")
def lookup_timestamp(table, count, base_offset, timestamp):  # type: ignore[no-untyped-def]
    """Returns (timestamp, offset) of the last entry whose timestamp is at most `timestamp`; (-1, base_offset) if none is."""
    at = address(table)
    index = floor64(at, TIME_ENTRY_SIZE, min(count, len(table) // TIME_ENTRY_SIZE), timestamp)
    if index < 0:
        return -1, base_offset
    entry = at + index * TIME_ENTRY_SIZE
    return be64(entry), base_offset + be32(entry + TIME_OFFSET_AT)


# ---- making entries: O(1) a batch ------------------------------------------------------------------------------------------


@kernel(_L(READ_COLUMNS, _L, _L, _L, _L, _L, OUT_LONGS, OUT_BYTES, OUT_BYTES), pure="pylog.index.pure:index_batches")
def index_batches(columns, first, end, position, base_offset, interval, state, offset_table, time_table):  # type: ignore[no-untyped-def]
    """Appends the entries of batches `first` to `end - 1` of a scan table, as Kafka's append and recovery do (4.2.1, 4.3, C.1).

    The interval is tested before the batch's own size is counted, so a segment's first batch is never indexed. `position` is the
    position in the file that the scan table's positions count from.

    Returns the first batch that was not added, with the reason in `state[STATUS]`; the batches before it are added. A further
    call continues with that batch as `first`; noting its timestamp twice is harmless.
    """
    offsets, times = address(offset_table), address(time_table)
    if len(state) < STATE_SIZE or columns.shape[0] < COLUMN_COUNT:
        return first
    end = min(end, columns.shape[1])
    index = max(first, 0)
    state[STATUS] = DONE
    while index < end:
        last_offset = columns[LAST_OFFSET, index]
        batch_position = position + columns[POSITION, index]
        if last_offset < base_offset or last_offset - base_offset > INT32_MAX or batch_position > INT32_MAX:
            state[STATUS] = OUT_OF_RANGE
            break
        if columns[MAX_TIMESTAMP, index] > state[LARGEST_TIMESTAMP]:  # strictly: the earliest batch with it counts (4.2.1)
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
            put32(offsets + at + POSITION_AT, batch_position)
            state[OFFSET_COUNT] += 1
            state[INDEXED_OFFSET] = last_offset
            if later:  # otherwise the last entry already has that timestamp (5.3 rule 4)
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
    """Appends the time entry of a segment that closes or rolls (5.2.3). Returns DONE, or FULL if it did nothing."""
    if len(state) < STATE_SIZE or state[TIME_COUNT] >= len(time_table) // TIME_ENTRY_SIZE:
        return FULL
    if state[LARGEST_TIMESTAMP] > state[INDEXED_TIMESTAMP]:
        at = int(state[TIME_COUNT]) * TIME_ENTRY_SIZE
        entry = (state[LARGEST_TIMESTAMP], state[LARGEST_TIMESTAMP_OFFSET] - base_offset)
        time_table[at : at + TIME_ENTRY_SIZE].view(TIME_ENTRY)[0] = entry
        state[TIME_COUNT] += 1
        state[INDEXED_TIMESTAMP] = state[LARGEST_TIMESTAMP]
        state[INDEXED_TIMESTAMP_OFFSET] = state[LARGEST_TIMESTAMP_OFFSET]
    return DONE
