"""Decides what to compact, when, and which segments to merge. Pure functions (storage-format 7.2, 7.3, 7.6.2).

A compacted log has a clean section, a dirty section, and an uncleanable one. The uncleanable section starts at the active
segment, the first open transaction, or the first segment that is too young. All bounds are base offsets of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pylog import limits
from pylog.config import TopicConfig


class CompactableSegment(NamedTuple):
    """The facts about a segment that compaction needs.

    Attributes:
        base_offset: the segment's base offset.
        size: its size in bytes.
        is_older: returns whether all its records are older than an age in milliseconds, at a time (see `segment.age`).
        begun: returns the time of its first record. Both are functions, called only if the result matters, because they may read
            files.
    """

    base_offset: int
    size: int
    is_older: Callable[[int, int], bool]
    begun: Callable[[int], int]


class LogToClean(NamedTuple):
    """The clean and dirty sections of a log.

    Attributes:
        first_dirty: records below it are compacted; later ones may be superseded.
        first_uncleanable: the base of the first segment that may not be compacted yet; `first_dirty` if none may be.
        clean_bytes, dirty_bytes: sizes of the segments before and between the two; a segment with both counts twice.
        overdue: true if a dirty record is older than `max_compaction_lag_ms`.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The dirty ratio of the cleanable sections, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Returns whether the log is dirty enough, or has been dirty for long enough (storage-format 7.3.2)."""
        return self.ratio > config.min_cleanable_dirty_ratio or (self.overdue and self.dirty_bytes > 0)


def log_to_clean(
    segments: Sequence[CompactableSegment],
    config: TopicConfig,
    *,
    checkpoint: int | None,
    start_offset: int,
    end_offset: int,
    stable_offset: int,
    now_ms: int,
) -> LogToClean:
    """Measures a log.

    Args:
        segments: in order; the last one is the active one.
        config: the topic's.
        checkpoint: the end of the clean section; None if it was never compacted.
        start_offset, end_offset, stable_offset: the log's start offset, end offset and stable offset.
        now_ms: the wall clock, in milliseconds.

    Returns:
        A `LogToClean`. Cost: O(number of segments).

    >>> segments = [CompactableSegment(base, 100, lambda age, now: now > age, lambda now: 0) for base in (0, 10, 20)]
    >>> ends = {"start_offset": 0, "end_offset": 25, "stable_offset": 25}
    >>> log_to_clean(segments, TopicConfig(), checkpoint=10, **ends, now_ms=1000)[:4]
    (10, 20, 100, 100)
    """
    known = checkpoint is not None and start_offset <= checkpoint <= end_offset
    first = checkpoint if checkpoint is not None and known else start_offset
    unclean = [segment for segment, following in pairwise(segments) if following.base_offset > first]  # sealed, not all clean
    bound = min(stable_offset, _first_young(unclean, config, now_ms))
    end = max([first, *(segment.base_offset for segment in segments if segment.base_offset <= bound)])
    clean_bytes = sum(segment.size for segment in segments[:-1] if segment.base_offset < first)
    dirty = [segment for segment in unclean if segment.base_offset < end]
    return LogToClean(first, end, clean_bytes, sum(segment.size for segment in dirty), _is_overdue(dirty, config, now_ms))


def _first_young(dirty: Sequence[CompactableSegment], config: TopicConfig, now_ms: int) -> int:
    """Returns the base of the first segment with a record younger than `min_compaction_lag_ms` (7.2.2)."""
    if not config.min_compaction_lag_ms:
        return limits.INT64_MAX
    age_ms = config.min_compaction_lag_ms - 1
    return next((segment.base_offset for segment in dirty if not segment.is_older(age_ms, now_ms)), limits.INT64_MAX)


def _is_overdue(dirty: Sequence[CompactableSegment], config: TopicConfig, now_ms: int) -> bool:
    """Returns whether a record has been dirty for longer than `max_compaction_lag_ms` (7.3.3)."""
    if config.max_compaction_lag_ms == limits.INT64_MAX:
        return False
    return min((segment.begun(now_ms) for segment in dirty), default=now_ms) < now_ms - config.max_compaction_lag_ms


# ---- grouping ----------------------------------------------------------------------------------------------------------------


class SegmentExtent(NamedTuple):
    """The sizes of a segment: its file, and the entries of its two indexes, in bytes."""

    base_offset: int
    size: int
    offset_index_bytes: int
    time_index_bytes: int


def groups(segments: Sequence[SegmentExtent], end: int, config: TopicConfig) -> list[range]:
    """Groups neighbouring segments to merge: as many as fit, oldest first (storage-format 7.6.2).

    Args:
        segments: the segments to compact, in order.
        end: the base of the segment after them.
        config: its `segment_bytes` and `segment_index_bytes` limit a segment.

    Returns:
        The groups, as indexes into `segments`. A segment that is already too large forms its own group.

    >>> small = [SegmentExtent(base, 40, 8, 12) for base in (0, 10, 20)]
    >>> groups(small, 30, TopicConfig(segment_bytes=100))
    [range(0, 2), range(2, 3)]
    """
    ends = [*(segment.base_offset for segment in segments[1:]), end]
    found: list[range] = []
    for index, (segment, segment_end) in enumerate(zip(segments, ends, strict=True)):
        members = segments[found[-1].start : index] if found else ()
        if members and _fits(members, segment, segment_end, config):
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found


def _fits(members: Sequence[SegmentExtent], segment: SegmentExtent, segment_end: int, config: TopicConfig) -> bool:
    """Returns whether a segment still fits into a group; offsets in indexes have 31 bits."""
    _, size, offset_bytes, time_bytes = (sum(column) for column in zip(*members, segment, strict=True))
    reach = segment_end - 1 - members[0].base_offset
    return (
        size <= config.segment_bytes
        and max(offset_bytes, time_bytes) <= config.segment_index_bytes
        and (segment.size == 0 or reach <= limits.MAX_RELATIVE_OFFSET)
    )
