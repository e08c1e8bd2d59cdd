"""Tells where a log ended at some times, by its records' timestamps: from batch headers, or of a large log from time indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from pylog.log.reading.good_batches import OffsetRange, good_batches
from pylog.log.state import LogState
from pylog.record.format import LAST_OFFSET, MAX_TIMESTAMP


def ends_by_time(state: LogState, times: Sequence[int], most_bytes: int) -> list[int]:
    """Returns for each time an offset: the records before it are about those with this timestamp or an earlier one.

    Args:
        state: the log.
        times: rising times in milliseconds since 1970.
        most_bytes: the size up to which the headers of all batches are read.

    Raises:
        PylogError: the log cannot be read.

    Cost: the headers of a small log; of a large one, O(log n) for each time. An offset is too small by the records of one batch,
    or of one index interval, at most; disorder of timestamps counts as records that came late.
    """
    is_small = sum(map(state.size_of, state.segments.values())) <= most_bytes
    found = _of_headers(state, times) if is_small else _of_indexes(state, times)
    return [max(state.start_offset, offset) for offset in found]


def _of_headers(state: LogState, times: Sequence[int]) -> list[int]:
    tables = [each.table for each in good_batches(state, OffsetRange(state.start_offset, state.end_offset))]
    if not tables:
        return [state.end_offset] * len(times)
    reached = np.maximum.accumulate(np.concatenate([each[MAX_TIMESTAMP] for each in tables]))
    ends = np.concatenate([np.array([state.start_offset]), *(each[LAST_OFFSET] + 1 for each in tables)])
    found: list[int] = np.minimum(ends[np.searchsorted(reached, times, "right")], state.end_offset).tolist()
    return found


def _of_indexes(state: LogState, times: Sequence[int]) -> list[int]:
    segments = state.segments.values()
    reached = list(accumulate((each.largest_timestamp() for each in segments), max))
    found = []
    for time in times:
        at = bisect_right(reached, time)
        offset = state.end_offset
        if at < len(segments):
            entry = segments[at].time_index().lookup(time)
            offset = entry.offset + (entry.timestamp >= 0)
        found.append(offset)
    return found


def begin_ms(state: LogState) -> int:
    """Returns the timestamp of the first batch that has one, or -1. Cost: one header of the first segment that has batches."""
    return next((stamp for each in state.segments.values() if (stamp := each.first_timestamp()) >= 0), -1)
