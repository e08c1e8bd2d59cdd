"""Which segments are old enough to go: pure functions (storage-format 6.11.2 to 6.11.5).

Segments go from the oldest on, in three passes as in Kafka: what lies below the log's start offset, what is too much, what is
too old. A topic can name a consumer group that retention waits for: what the second and third pass would take stays while it
holds records that the group has not committed, up to a bound. What `delete_records` took from the log goes in any case.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from typing import NamedTuple

from pylog.config import TopicConfig


class Reason(enum.StrEnum):
    """Why a segment goes.

    `START_OFFSET`: it lies below the log's start. `SIZE`, `TIME`: the log is larger, the segment older than the topic keeps.
    `GROUP_BYTES`: one of these, and the group has not read it, but what waits for the group exceeds its bound.
    """

    START_OFFSET = "start_offset"
    SIZE = "size"
    TIME = "time"
    GROUP_BYTES = "group_bytes"


class RetainedSegment(NamedTuple):
    """What retention must know of a segment.

    Attributes:
        base_offset: of the segment.
        size: bytes in it.
        is_older: whether all its records are older than an age in milliseconds, at a time (see `segment.age`). A function,
            because the answer may need an index or the batches: it is asked only where it decides.
    """

    base_offset: int
    size: int
    is_older: Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done to a log.

    Attributes:
        reasons: why each of the oldest segments goes, one reason a segment.
        roll_first: all segments go, the active one too: a new one must be there before.
        new_start_offset: the log's start afterwards.
    """

    reasons: tuple[Reason, ...]
    roll_first: bool
    new_start_offset: int

    @property
    def count(self) -> int:
        """How many of the oldest segments go."""
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
    """Decides which segments go.

    Args:
        segments: in order; the last one is the active one.
        config: its `cleanup_policy` and `retention_*` options count.
        start_offset, end_offset: of the log.
        high_watermark: no segment with offsets at or above it goes.
        now_ms: the wall clock, in milliseconds.
        committed: the next offset that `config.retention_group` will read; None when it has committed none.

    Returns:
        How many of the oldest go, and why. Doing it, and asking again, finds nothing more.

    Cost: O(number of segments); the ages of those that go, and of one more.

    >>> old, young = (lambda age, now: now - 0 > age), (lambda age, now: now - 900 > age)
    >>> segments = [RetainedSegment(0, 100, old), RetainedSegment(10, 100, old), RetainedSegment(20, 50, young)]
    >>> found = deletable(segments, TopicConfig(retention_ms=500), start_offset=0, end_offset=25, high_watermark=25, now_ms=1000)
    >>> found.count, found.roll_first, found.new_start_offset
    (2, False, 20)
    """
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    may_go = _may_go(segments, ends, high_watermark)
    below = _leading((end <= start_offset for end in ends[:-1]), may_go)  # ends[-1] is the active one's: it does not go for this
    reasons = [Reason.START_OFFSET] * below
    if "delete" in config.cleanup_policy.split(","):
        asked = _size_and_time(segments[below:], may_go - below, config, now_ms)
        reasons += _after_waiting(asked, segments[below:], ends[below:], config, committed)
    count = len(reasons)
    return Decision(tuple(reasons), 0 < count == len(segments), max([start_offset, *ends[:count]]))


def _may_go(segments: Sequence[RetainedSegment], ends: list[int], high_watermark: int) -> int:
    """How many may go at all: those below the high watermark, but no empty active segment, which would only be made again."""
    count = _leading((end <= high_watermark for end in ends), len(segments))
    return count - 1 if 0 < count == len(segments) and segments[-1].size == 0 else count


def _size_and_time(segments: Sequence[RetainedSegment], may_go: int, config: TopicConfig, now_ms: int) -> list[Reason]:
    """What the second and the third pass take.

    The log never shrinks below `retention_bytes`; one young segment keeps all behind it.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    sums = accumulate(segment.size for segment in segments)
    by_size = 0 if config.retention_bytes < 0 else _leading((taken <= excess for taken in sums), may_go)
    old = (segment.is_older(config.retention_ms, now_ms) for segment in segments[by_size:])
    by_time = 0 if config.retention_ms < 0 else _leading(old, may_go - by_size)
    return [Reason.SIZE] * by_size + [Reason.TIME] * by_time


def _after_waiting(
    asked: list[Reason], segments: Sequence[RetainedSegment], ends: list[int], config: TopicConfig, committed: int | None
) -> list[Reason]:
    """What is left of that when retention waits for a group: what it has read, and the oldest of what exceeds the bound."""
    if config.retention_group is None:
        return asked
    read = 0 if committed is None else _leading((end <= committed for end in ends), len(asked))
    waiting = [segment.size for segment in segments[read : len(asked)]]
    bound = config.retention_group_max_bytes
    kept = len(waiting) if bound < 0 else _leading((size <= bound for size in accumulate(reversed(waiting))), len(waiting))
    return asked[:read] + [Reason.GROUP_BYTES] * (len(waiting) - kept)


def _leading(answers: Iterable[bool], limit: int) -> int:
    """How many of the first `limit` are true before one is not; no more of them are looked at."""
    return sum(1 for _ in takewhile(bool, islice(answers, limit)))
