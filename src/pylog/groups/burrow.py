"""Burrow's rules for a group in a partition, as its evaluator has them. Pure functions.

`health` has the corrected rules, which `Group.health` applies by default. These are for comparing pylog with a Burrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pylog.groups.health import Verdict, worst

ENDS_KEPT: Final = 10  # of the log, one for each refresh
REFRESH_MS: Final = 10_000
_ALLOWED_LAG: Final = 0


class StoredCommit(NamedTuple):
    """A commit in Burrow's window.

    Attributes:
        timestamp: in milliseconds.
        offset: the committed offset.
        lag: the log's end at that time less the offset, at least 0; None if it is not known.
    """

    timestamp: int
    offset: int
    lag: int | None


def burrow_verdict(commits: Sequence[StoredCommit], ends: Iterable[int], lag: int, now_ms: int) -> tuple[Verdict, str]:
    """Returns Burrow's state of a partition, and the rule that gave it.

    Args:
        commits: the window, oldest first; at least one.
        ends: the log's end at Burrow's last refreshes.
        lag: the log's end now less the last committed offset.
        now_ms: the wall clock, in milliseconds.

    >>> burrow_verdict([StoredCommit(0, 5, 1), StoredCommit(10, 5, 2)], [9], lag=4, now_ms=15)[0]
    <Verdict.STALL: 'STALL'>
    """
    if lag <= _ALLOWED_LAG:
        return Verdict.OK, "the current lag is 0"
    first, last = commits[0], commits[-1]
    if now_ms - last.timestamp > last.timestamp - first.timestamp and not any(end <= last.offset for end in ends):
        return Verdict.STOP, "rule 1: no commit for longer than the window is"
    if _went_back([each.offset for each in commits]):
        return Verdict.REWIND, "rule 2: an offset is smaller than the one before, and was not reached again"
    lags = [each.lag for each in commits if each.lag is not None]
    if any(each <= _ALLOWED_LAG for each in lags):
        return Verdict.OK, "a lag in the window is 0"
    if all(each.offset == first.offset for each in commits):
        return Verdict.STALL, "rule 3: all offsets in the window are equal"
    if not any(after < before for before, after in pairwise(lags)):
        return Verdict.WARN, "rule 4: the lag decreases nowhere in the window"
    return Verdict.OK, "the lag decreases in the window"


def _went_back(offsets: Sequence[int]) -> bool:
    """Returns whether the first offset that is smaller than the one before was not reached again."""
    for at in range(1, len(offsets)):
        if offsets[at] < offsets[at - 1]:
            return not any(later >= offsets[at - 1] for later in offsets[at:])
    return False


def burrow_group_verdict(partitions: Iterable[Verdict]) -> Verdict:
    """Returns Burrow's state of a group: `ERR` if a partition has an error."""
    found = worst(partitions)
    return Verdict.ERR if found.is_error else found
