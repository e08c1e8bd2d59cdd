"""The plain forms of the kernels over Kafka's index tables (`index.entries`)."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from pylog.index.entries import (
    BYTES_SINCE_ENTRY,
    DONE,
    FULL,
    INDEXED_OFFSET,
    INDEXED_TIMESTAMP,
    INDEXED_TIMESTAMP_OFFSET,
    LARGEST_TIMESTAMP,
    LARGEST_TIMESTAMP_OFFSET,
    OFFSET_COUNT,
    OUT_OF_ORDER,
    OUT_OF_RANGE,
    STATE_SIZE,
    STATUS,
    TIME_COUNT,
)
from pylog.limits import INT32_MAX
from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.record.kernel import work_of

_OFFSET: Final = Struct(">ii")  # relative offset, position
_TIME: Final = Struct(">qi")  # timestamp, relative offset


# ---- search --------------------------------------------------------------------------------------------------------------------


def _floor(table: Any, entry: Struct, count: int, key: int) -> tuple[int, int] | None:
    """Returns the last of `count` entries whose first field is at most `key`."""
    low, high = 0, min(count, len(table) // entry.size)
    while low < high:
        middle = (low + high) >> 1
        if entry.unpack_from(table, middle * entry.size)[0] <= key:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return None
    first, second = entry.unpack_from(table, (low - 1) * entry.size)
    return first, second


def lookup_offset(table: Any, count: int, base_offset: int, offset: int) -> tuple[int, int]:
    """See `entries.lookup_offset`. Cost: about 4 µs."""
    found = _floor(table, _OFFSET, count, offset - base_offset) if offset >= base_offset else None
    return (base_offset, 0) if found is None else (base_offset + found[0], found[1])


def lookup_timestamp(table: Any, count: int, base_offset: int, timestamp: int) -> tuple[int, int]:
    """See `entries.lookup_timestamp`. Cost: about 4 µs."""
    found = _floor(table, _TIME, count, timestamp)
    return (-1, base_offset) if found is None else (found[0], base_offset + found[1])


# ---- making entries ------------------------------------------------------------------------------------------------------------


def _index_work(columns: Any, first: int, end: int, *_: Any) -> int:  # noqa: ARG001 - as the kernel
    return max(1, int(end) - int(first))


@work_of(_index_work)
def index_batches(
    columns: Any,
    first: int,
    end: int,
    position: int,
    base_offset: int,
    interval: int,
    state: Any,
    offset_table: Any,
    time_table: Any,
) -> int:
    """See `entries.index_batches`. Cost: about 5 µs, and 1 µs a batch. The state changes in one step, the last one."""
    if len(state) < STATE_SIZE or columns.shape[0] < COLUMN_COUNT:
        return first
    end, index = min(end, columns.shape[1]), max(first, 0)
    new = state.tolist()
    new[STATUS] = DONE
    rows = columns[[LAST_OFFSET, POSITION, SIZE, MAX_TIMESTAMP], index:end].T.tolist() if index < end else ()
    for last_offset, start, size, largest in rows:
        batch_position = position + start
        if not base_offset <= last_offset <= base_offset + INT32_MAX or batch_position > INT32_MAX:
            new[STATUS] = OUT_OF_RANGE
            break
        if largest > new[LARGEST_TIMESTAMP]:  # strictly: the earliest batch with it counts (4.2.1)
            new[LARGEST_TIMESTAMP], new[LARGEST_TIMESTAMP_OFFSET] = largest, last_offset
        if new[BYTES_SINCE_ENTRY] > interval:
            new[STATUS] = _add_entries(new, last_offset, batch_position, base_offset, offset_table, time_table)
            if new[STATUS] != DONE:
                break
            new[BYTES_SINCE_ENTRY] = 0
        new[BYTES_SINCE_ENTRY] += size
        index += 1
    state[: len(new)] = new
    return index


def _add_entries(new: list[int], last_offset: int, position: int, base_offset: int, offset_table: Any, time_table: Any) -> int:
    """Writes the entries of one batch after the tables' last ones; returns the status."""
    later = new[LARGEST_TIMESTAMP] > new[INDEXED_TIMESTAMP]
    falls = later and new[LARGEST_TIMESTAMP_OFFSET] < new[INDEXED_TIMESTAMP_OFFSET]
    if last_offset <= new[INDEXED_OFFSET] or falls:  # 4.2.5, 5.3
        return OUT_OF_ORDER
    at, time_at = new[OFFSET_COUNT] * _OFFSET.size, new[TIME_COUNT] * _TIME.size
    if len(offset_table) - at < _OFFSET.size or len(time_table) - time_at < _TIME.size:
        return FULL
    _OFFSET.pack_into(offset_table, at, last_offset - base_offset, position)
    new[OFFSET_COUNT] += 1
    new[INDEXED_OFFSET] = last_offset
    if later:  # otherwise the last entry already has that timestamp (5.3 rule 4)
        relative = new[LARGEST_TIMESTAMP_OFFSET] - base_offset
        _TIME.pack_into(time_table, time_at, new[LARGEST_TIMESTAMP], relative)
        new[TIME_COUNT] += 1
        new[INDEXED_TIMESTAMP] = new[LARGEST_TIMESTAMP]
        new[INDEXED_TIMESTAMP_OFFSET] = new[LARGEST_TIMESTAMP_OFFSET]
    return DONE
