"""The speed of a group in a partition, and how its lag moves. Pure functions over its commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

_LEAST_CHANGE_MS: Final = 1_000  # of a lag: less is neither rising nor falling
_LEAST_SHARE: Final = 0.1  # of the larger lag, likewise


class _Commit(Protocol):
    @property
    def timestamp(self) -> int: ...
    @property
    def offset(self) -> int: ...


class Speed(NamedTuple):
    """Offsets per second over the window.

    Attributes:
        consumed: by the group; None with fewer than two commits.
        produced: by the producers of the partition; None if the log's end at the first commit is not known.
    """

    consumed: float | None
    produced: float | None


def speed_of(commits: Sequence[_Commit], end_at_first: int | None, end_offset: int, now_ms: int) -> Speed:
    """Returns the speed of a group and of its producers since the first of its commits.

    Args:
        commits: oldest first.
        end_at_first: the log's end at the time of the first commit.
        end_offset: the log's end now.
        now_ms: the wall clock, in milliseconds.
    """
    elapsed = (now_ms - commits[0].timestamp) / 1000
    if len(commits) < 2 or elapsed <= 0:
        return Speed(None, None)
    consumed = max(0.0, (commits[-1].offset - commits[0].offset) / elapsed)
    return Speed(consumed, None if end_at_first is None else max(0.0, (end_offset - end_at_first) / elapsed))


def catch_up_seconds(lag: int, speed: Speed) -> float | None:
    """Returns how long a group needs until it has read everything; None if it does not catch up, or that is not known.

    >>> catch_up_seconds(100, Speed(15.0, 5.0)), catch_up_seconds(100, Speed(5.0, 5.0))
    (10.0, None)
    """
    if speed.consumed is None or speed.produced is None or speed.consumed <= speed.produced:
        return None
    return lag / (speed.consumed - speed.produced)


def trend_of(first_ms: int | None, last_ms: int | None) -> str:
    """Returns how a lag has moved between two times. A change of less than a second, or of less than a tenth, is none.

    >>> trend_of(0, 20_000), trend_of(20_000, 1_000), trend_of(5_000, 5_200), trend_of(None, 7)
    ('rising', 'falling', 'steady', 'steady')
    """
    if first_ms is None or last_ms is None:
        return "steady"
    change = last_ms - first_ms
    if abs(change) < max(_LEAST_CHANGE_MS, _LEAST_SHARE * max(first_ms, last_ms)):
        return "steady"
    return "rising" if change > 0 else "falling"
