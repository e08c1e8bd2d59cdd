"""Where a log may start after retention, in plain Python that knows times and options."""

from __future__ import annotations

from typing import Any

import pylog
from pylog.testing.models import Promise
from support.campaign.crashing import GAP

Times = list[int]  # by offset: when the record was appended, in milliseconds of the wall clock as it is set now
Segment = tuple[int, int, int]  # base offset, end, size


def starts_allowed(log: pylog.Log, promise: Promise, config: dict[str, Any], times: Times, now_ms: int) -> set[int]:
    """Returns the offsets at which a log may start after `tick`.

    There is one, unless segments have records without a timestamp or of the future: a log knows their age as far as it knows when
    they were appended. They never count as older than that.

    Args:
        log: as it is before.
        promise: of the log.
        config: the options as they stand.
        times: when each record was appended, by the clock as it is set now.
        now_ms: the wall clock.
    """
    start = promise.first_start
    if not log.segments or "delete" not in config.get("cleanup_policy", "delete"):
        return {start}
    left = [segment for segment in _segments(log) if segment[1] > start or segment[0] == log.segments[-1].base_offset]
    sizes = sum(size for _, _, size in left)
    most = config.get("retention_bytes", -1)
    excess = sizes - most if most >= 0 else 0
    while left and 0 < left[0][2] <= excess:
        excess -= left[0][2]
        start = max(start, left.pop(0)[1])
    return _by_time(left, start, promise, config.get("retention_ms", pylog.TopicConfig().retention_ms), times, now_ms)


def _segments(log: pylog.Log) -> list[Segment]:
    segments = log.segments
    bases = [segment.base_offset for segment in segments]
    sizes = [segment.size for segment in segments]  # of the last one, without a torn tail
    return list(zip(bases, [*bases[1:], log.end_offset], sizes, strict=True))


def _by_time(left: list[Segment], start: int, promise: Promise, keep_ms: int, times: Times, now_ms: int) -> set[int]:
    starts = {start}
    for base, end, size in left:
        records: list[tuple[int, Any]] = [(each, promise.records[each]) for each in range(base, end)]
        there = [(times[offset], record[3]) for offset, record in records if record is not GAP]
        young = any(now_ms - oldest(*each, now_ms) <= keep_ms for each in there)
        if keep_ms < 0 or (size == 0 and end == log_end(left)) or young:
            return starts
        must = bool(there) and all(timestamp >= 0 and now_ms - timestamp > keep_ms for _, timestamp in there)
        start = max(start, end)
        starts = {start} if must else starts | {start}
    return starts


def log_end(left: list[Segment]) -> int:
    return left[-1][1]


def oldest(appended: int, timestamp: int, now_ms: int) -> int:
    """The earliest time that a record may count as having: that of its append if it has no timestamp, or one of the future."""
    return timestamp if 0 <= timestamp <= now_ms else appended
