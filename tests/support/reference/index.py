"""What the kernels of `pylog.index` do, in plain Python over plain values: the tests hold the two against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

INT32_MAX = 2**31 - 1

Entry = tuple[int, int]


class Batch(NamedTuple):
    """What an index wants to know of a batch."""

    position: int
    size: int
    last_offset: int
    max_timestamp: int


def floor(entries: Sequence[Entry], key: int, none: Entry) -> Entry:
    """The last entry whose first field is at most `key`."""
    return max((entry for entry in entries if entry[0] <= key), default=none)


def valid_offset_entries(entries: Sequence[Entry], log_size: int) -> int:
    """How many leading (relative offset, position) pairs may stand in a `.index` file."""
    for index, (relative, position) in enumerate(entries):
        before = entries[index - 1] if index else (-1, 1)
        if not (relative > before[0] and before[1] <= position < log_size):
            return index
    return len(entries)


def valid_time_entries(entries: Sequence[Entry]) -> int:
    """How many leading (timestamp, relative offset) pairs may stand in a `.timeindex` file."""
    valid = len(entries)
    for index, (timestamp, relative) in enumerate(entries):
        before = entries[index - 1] if index else (-1, 0)
        if timestamp <= before[0] or relative < before[1]:
            valid = index
            break
    zeros_only = valid == 1 and len(entries) > 1 and entries[0] == (0, 0)
    return 0 if zeros_only else valid


def index_batches(base_offset: int, interval: int, batches: Sequence[Batch], *, closed: bool) -> tuple[list[Entry], list[Entry]]:
    """The (offset, position) and (timestamp, offset) entries of a segment, as storage-format 4.2.4 and 5.2 word it.

    A batch is indexed when it begins more than `interval` bytes behind the last indexed one, or behind the segment's start.
    """
    offsets: list[Entry] = []
    times: list[Entry] = []
    indexed_position = 0
    largest = (-1, base_offset)
    for batch in batches:
        if batch.max_timestamp > largest[0]:
            largest = (batch.max_timestamp, batch.last_offset)
        if batch.position - indexed_position > interval:
            offsets.append((batch.last_offset, batch.position))
            _append_time(times, largest)
            indexed_position = batch.position
    if closed:
        _append_time(times, largest)
    return offsets, times


def _append_time(times: list[Entry], largest: Entry) -> None:
    if largest[0] > (times[-1][0] if times else -1):
        times.append(largest)
