"""Burrow's rules, to the letter: the table of its evaluator, and what its users found."""

from __future__ import annotations

import pytest

from pylog.groups.burrow import StoredCommit, burrow_group_verdict, burrow_verdict
from pylog.groups.health import Verdict

Case = tuple[str, list[tuple[int, int, int | None]], list[int], int, int]

# expected, (time, offset, lag at that time), ends of the log at the refreshes, lag now, now
CASES: dict[str, Case] = {
    "no lag now is OK whatever was before": ("OK", [(0, 10, 5), (10, 10, 9)], [19], 0, 10_000),
    "a window that decreases somewhere is OK": ("OK", [(0, 10, 5), (10, 20, 4), (20, 30, 6)], [36], 6, 21),
    "a lag of zero in the window is OK": ("OK", [(0, 10, 5), (10, 20, 0), (20, 20, 6)], [26], 6, 21),
    "rule 1: silent for longer than the window": ("STOP", [(0, 10, 5), (10, 20, 5)], [25], 5, 21),
    "rule 1: silent for as long as the window is not longer": ("WARN", [(0, 10, 5), (10, 20, 5)], [25], 5, 20),
    "rule 1 does not hold if it had caught up meanwhile": ("WARN", [(0, 10, 5), (10, 20, 5)], [25, 20], 5, 2_000),
    "rule 1 with a single commit": ("STOP", [(0, 10, 5)], [15], 5, 1),
    "rule 2: an offset went back": ("REWIND", [(0, 10, 5), (10, 5, 10), (20, 6, 12)], [18], 12, 21),
    "rule 2 does not hold once the offset is reached": ("WARN", [(0, 10, 5), (10, 5, 10), (20, 10, 12)], [22], 12, 21),
    "rule 2 looks at the first step back": ("OK", [(0, 10, 5), (5, 5, 10), (10, 12, 3), (20, 11, 4)], [15], 4, 21),
    "rule 1 is before rule 2": ("STOP", [(0, 10, 5), (10, 5, 10)], [15], 10, 100),
    "rule 3: equal offsets": ("STALL", [(0, 10, 5), (10, 10, 5), (20, 10, 9)], [19], 9, 21),
    "rule 4: a lag that grows": ("WARN", [(0, 10, 5), (10, 20, 6), (20, 30, 7)], [37], 7, 21),
    "rule 4: a lag that stands still": ("WARN", [(0, 10, 5), (10, 20, 5), (20, 30, 5)], [35], 5, 21),
    "rule 4 skips lags that are not known": ("WARN", [(0, 10, 5), (10, 20, None), (20, 30, 6)], [36], 6, 21),
}


@pytest.mark.parametrize("name", CASES)
def test_a_partition_has_burrows_state(name: str) -> None:
    expected, commits, ends, lag, now = CASES[name]
    assert str(burrow_verdict([StoredCommit(*each) for each in commits], ends, lag, now)[0]) == expected


def test_a_group_has_its_worst_state_and_every_error_is_err() -> None:
    assert burrow_group_verdict([]) == Verdict.OK
    assert burrow_group_verdict([Verdict.OK, Verdict.WARN]) == Verdict.WARN
    for error in (Verdict.STOP, Verdict.STALL, Verdict.REWIND):
        assert burrow_group_verdict([Verdict.WARN, error]) == Verdict.ERR
