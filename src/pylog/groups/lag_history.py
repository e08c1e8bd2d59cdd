"""How the lag of a group has moved, computed from its commits and the log's ends at those times. Nobody need have watched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from pylog.groups.health import PastCommit
from pylog.groups.unread import UnreadRecords
from pylog.record.types import TopicPartition

_POINTS: Final = 60  # of a course
_PARTITIONS: Final = 20  # that are computed: those with the largest lag now
COMMITS_KEPT: Final = 240  # of each partition: every 15 seconds in an hour


class LagPoint(NamedTuple):
    """The lag of a group at a time.

    Attributes:
        timestamp: in milliseconds.
        seconds: the age of the oldest unread record then; 0 if there was none.
        offsets: unread in all partitions.
    """

    timestamp: int
    seconds: float
    offsets: int


Past = Mapping[TopicPartition, Sequence[PastCommit]]


def most_behind(lags: Iterable[tuple[TopicPartition, int]]) -> list[TopicPartition]:
    """Returns the partitions whose past is computed: at most twenty, those with the largest lag now.

    >>> found = most_behind((TopicPartition("orders", number), number) for number in range(30))
    >>> len(found), found[0]
    (20, TopicPartition(topic='orders', partition=29))
    """
    return [partition for partition, _ in sorted(lags, key=lambda each: (-each[1], each[0]))[:_PARTITIONS]]


def lag_history(
    past: Past, unread: Callable[[TopicPartition], UnreadRecords | None], since_ms: int, now_ms: int
) -> list[LagPoint]:
    """Returns the course of a group's lag, oldest point first.

    Args:
        past: the commits of the partitions, oldest first.
        unread: returns a partition; None if it does not exist.
        since_ms, now_ms: the first and the last point. It begins later if no earlier commit is known.

    Returns:
        Points at equal distances. Between two commits a group has not read more, so each point is exact, except where
        compaction has removed commits. Timestamps of producers give the log's ends of the past.

    Raises:
        PylogError: a partition cannot be read.

    Cost: for each point and partition, one search of the log; 0.1 s for twenty partitions.
    """
    logs = {partition: found for partition in past if past[partition] and (found := unread(partition)) is not None}
    first = min((past[each][0].timestamp for each in logs), default=now_ms)
    begin = max(first, since_ms)
    if begin >= now_ms:
        return []
    step = (now_ms - begin) / (_POINTS - 1)
    times = [round(begin + step * number) for number in range(_POINTS)]
    return [_point(at, [_lag_at(logs[each], past[each], at) for each in logs]) for at in times]


def _point(at: int, lags: Sequence[tuple[int, int]]) -> LagPoint:
    return LagPoint(at, max((age for age, _ in lags), default=0) / 1000, sum(offsets for _, offsets in lags))


def _lag_at(unread: UnreadRecords, commits: Sequence[PastCommit], at: int) -> tuple[int, int]:
    """Returns the age of the first unread record, in milliseconds, and the unread offsets at a time; 0 if not known."""
    number = bisect_right(commits, at, key=attrgetter("timestamp"))
    end = unread.end_at(at) if number else None
    if end is None:
        return 0, 0
    committed = commits[number - 1].offset
    if committed >= end:
        return 0, 0
    stamp = unread.first(max(committed, unread.state.start_offset)).timestamp
    return max(0, at - stamp) if stamp is not None else 0, end - committed
