"""Tells where a log ended at some times, by the timestamps of its records, from time indexes alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from pylog.log.state import LogState


def ends_by_time(state: LogState, times: Sequence[int]) -> list[int]:
    """Returns for each time an offset: the records before it are about those with this timestamp or an earlier one.

    Args:
        state: the log.
        times: milliseconds since 1970.

    Cost: O(log n) for each time. An offset is too small by the records of one index interval at most; disorder of timestamps
    counts as records that came late.
    """
    segments = state.segments.values()
    reached = list(accumulate((each.largest_timestamp() for each in segments), max))
    found = []
    for time in times:
        at = bisect_right(reached, time)
        offset = state.end_offset
        if at < len(segments):
            entry = segments[at].time_index().lookup(time)
            offset = entry.offset + (entry.timestamp >= 0)
        found.append(max(state.start_offset, offset))
    return found


def begin_ms(state: LogState) -> int:
    """Returns the timestamp of the first batch that has one, or -1. Cost: one header of the first segment that has batches."""
    return next((stamp for each in state.segments.values() if (stamp := each.first_timestamp()) >= 0), -1)
