"""Decides which segments retention deletes. Pure functions (storage-format 6.11.2 to 6.11.5).

Segments are deleted oldest first, in three passes as in Kafka: below the log start offset, by size, by age. A topic can name a
consumer group that retention waits for. Then the second and third pass keep segments with uncommitted records of the group, up to
a bound. Segments below the log start, which `delete_records` may have raised, are deleted in any case.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile
from typing import NamedTuple

from pylog.config import TopicConfig


class Reason(enum.StrEnum):
    """The reason for deleting a segment.

    `START_OFFSET`: it is below the log start. `SIZE`, `TIME`: the log is too large, or the segment too old.
    `GROUP_BYTES`: the same, and the group has not read it, but the size kept for the group exceeds its bound.
    """

    START_OFFSET = "start_offset"
    SIZE = "size"
    TIME = "time"
    GROUP_BYTES = "group_bytes"


class RetainedSegment(NamedTuple):
    """The facts about a segment that retention needs.

    Attributes:
        base_offset: the segment's base offset.
        size: its size in bytes.
        is_older: returns whether all its records are older than an age in milliseconds, at a time (see `segment.age`). A
            function, called only if the result matters, because it may read an index or batches.
    """

    base_offset: int
    size: int
    is_older: Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """The planned deletions of a log.

    Attributes:
        reasons: one for each segment to delete, oldest first.
        roll_first: true if all segments are deleted, including the active one, which requires a roll first.
        new_start_offset: the log start offset afterwards.
        waiting: how many segments after those are kept only because the retention group has not read them.
    """

    reasons: tuple[Reason, ...]
    roll_first: bool
    new_start_offset: int
    waiting: int = field(default=0, compare=False)  # the reason why nothing is done

    @property
    def count(self) -> int:
        """The number of segments to delete."""
        return len(self.reasons)


def deletable(
    segments: Sequence[RetainedSegment],
    config: TopicConfig,
    *,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
    now_ms: int,
    committed: int | None = None,
) -> Decision:
    """Decides which segments to delete.

    Args:
        segments: in order; the last one is the active one.
        config: its `cleanup_policy` and `retention_*` options apply.
        start_offset, end_offset: the log's start offset and end offset.
        high_watermark: segments with offsets at or above it are kept.
        now_ms: the wall clock, in milliseconds.
        committed: the committed offset of `config.retention_group`, or None.

    Returns:
        The number of segments to delete, with reasons. A second call after the deletion finds nothing.

    Cost: O(number of segments), and the ages of the deleted ones and of one more.

    >>> old, young = (lambda age, now: now - 0 > age), (lambda age, now: now - 900 > age)
    >>> segments = [RetainedSegment(0, 100, old), RetainedSegment(10, 100, old), RetainedSegment(20, 50, young)]
    >>> found = deletable(segments, TopicConfig(retention_ms=500), start_offset=0, end_offset=25, high_watermark=25, now_ms=1000)
    >>> found.count, found.roll_first, found.new_start_offset
    (2, False, 20)
    """
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    limit = _deletable_count(segments, ends, high_watermark)
    below = _leading((end <= start_offset for end in ends[:-1]), limit)  # ends[-1] is the active one's, which is kept
    reasons = [Reason.START_OFFSET] * below
    waiting = 0
    if "delete" in config.cleanup_policy.split(","):
        asked = _size_and_time(segments[below:], limit - below, config, now_ms)
        reasons += _after_waiting(asked, segments[below:], ends[below:], config, committed)
        waiting = below + len(asked) - len(reasons)
    count = len(reasons)
    return Decision(tuple(reasons), 0 < count == len(segments), max([start_offset, *ends[:count]]), waiting)


def _deletable_count(segments: Sequence[RetainedSegment], ends: list[int], high_watermark: int) -> int:
    """Returns how many may be deleted: those below the high watermark, except an empty active segment."""
    count = _leading((end <= high_watermark for end in ends), len(segments))
    return count - 1 if 0 < count == len(segments) and segments[-1].size == 0 else count


def _size_and_time(segments: Sequence[RetainedSegment], limit: int, config: TopicConfig, now_ms: int) -> list[Reason]:
    """Returns the deletions of the second and third pass.

    The log never shrinks below `retention_bytes`; one young segment keeps all later ones.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    sums = accumulate(segment.size for segment in segments)
    by_size = 0 if config.retention_bytes < 0 else _leading((total <= excess for total in sums), limit)
    old = (segment.is_older(config.retention_ms, now_ms) for segment in segments[by_size:])
    by_time = 0 if config.retention_ms < 0 else _leading(old, limit - by_size)
    return [Reason.SIZE] * by_size + [Reason.TIME] * by_time


def _after_waiting(
    asked: list[Reason], segments: Sequence[RetainedSegment], ends: list[int], config: TopicConfig, committed: int | None
) -> list[Reason]:
    """Limits deletions if retention waits for a group: segments that it has read, and the oldest ones beyond the bound."""
    if config.retention_group is None:
        return asked
    read = 0 if committed is None else _leading((end <= committed for end in ends), len(asked))
    waiting = [segment.size for segment in segments[read : len(asked)]]
    bound = config.retention_group_max_bytes
    kept = len(waiting) if bound < 0 else _leading((size <= bound for size in accumulate(reversed(waiting))), len(waiting))
    return asked[:read] + [Reason.GROUP_BYTES] * (len(waiting) - kept)


def _leading(answers: Iterable[bool], limit: int) -> int:
    """Returns how many of the first `limit` values are true before a false one. Reads no more of them."""
    return sum(1 for _ in takewhile(bool, islice(answers, limit)))
