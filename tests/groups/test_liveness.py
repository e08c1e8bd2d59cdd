"""Who lives: told by locks and counters, never by comparing clocks."""

from __future__ import annotations

import pytest

from pylog import limits
from pylog.groups.liveness import FailureDetector, LivenessVerdict, MemberSlot
from pylog.groups.state import Member

HEARTBEAT_S = 3.0
SESSION_MS, POLL_MS = 10_000, 60_000
M = Member("m", frozenset("t"))
STATIC = Member("m", frozenset("t"), instance_id="i")
LIVES, DEAD, OUT = (
    LivenessVerdict(frozenset(), frozenset()),
    LivenessVerdict(frozenset("m"), frozenset()),
    LivenessVerdict(frozenset("m"), frozenset("m")),
)
ABSENT = LivenessVerdict(frozenset(), frozenset("m"))


def slot(beats: int = 0, polls: int = 0, *, locked: bool = True, name: str | None = "m") -> MemberSlot:
    return MemberSlot(locked, name, SESSION_MS, POLL_MS, beats, polls)


def verdicts(member: Member, *looks: tuple[float, list[MemberSlot]]) -> list[LivenessVerdict]:
    watch = FailureDetector(HEARTBEAT_S)
    return [watch.judge([member], slots, now) for now, slots in looks]


def test_a_member_without_a_lock_is_dead_at_once_unless_it_is_static() -> None:
    assert verdicts(M, (0.0, [slot(locked=False)])) == [OUT]
    assert verdicts(STATIC, (0.0, [slot(locked=False)])) == [DEAD]


def test_a_member_whose_slot_names_another_or_is_missing_is_dead() -> None:
    for slots in ([], [slot(name="n")], [slot(name=None, locked=False)]):
        assert verdicts(M, (0.0, slots)) == [OUT]
        assert verdicts(STATIC, (0.0, slots)) == [OUT]  # a broker's: nobody here can tell since when


def test_a_slot_that_cannot_be_read_and_is_locked_may_be_anybodys() -> None:
    assert verdicts(M, (0.0, [slot(name=None)])) == [LIVES]


def test_a_process_that_stands_still_for_its_session_timeout_is_absent() -> None:
    looks = [(float(second), [slot(7, 7)]) for second in range(0, 13, 3)]
    assert verdicts(M, *looks) == [LIVES, LIVES, LIVES, LIVES, ABSENT]


def test_a_process_that_runs_and_does_not_poll_is_absent_after_its_poll_interval() -> None:
    looks = [(float(second), [slot(second, 7)]) for second in range(0, 64, 3)]
    found = verdicts(M, *looks)
    assert found == [LIVES] * 20 + [ABSENT, ABSENT]


def test_a_member_that_moves_again_is_observed_from_the_start() -> None:
    looks = [(0.0, [slot(1, 1)]), (6.0, [slot(1, 1)]), (9.0, [slot(2, 2)]), (15.0, [slot(2, 2)]), (21.0, [slot(2, 2)])]
    assert verdicts(M, *looks) == [LIVES, LIVES, LIVES, LIVES, ABSENT]


@pytest.mark.parametrize("gap", [100.0, 1e9])
def test_an_observer_that_was_itself_stopped_or_suspended_fences_no_member(gap: float) -> None:
    assert verdicts(M, (0.0, [slot(1, 1)]), (gap, [slot(1, 1)]), (gap + 3, [slot(1, 1)])) == [LIVES] * 3


def test_an_observer_with_a_short_heartbeat_interval_fences_no_later_than_others() -> None:
    watch, looks = FailureDetector(0.01), [number * limits.MEMBER_PROBE_S for number in range(100)]
    absent = [now for now in looks if watch.judge([M], [slot(7, 7)], now) == ABSENT]
    assert min(absent) <= SESSION_MS / 1000 + limits.MEMBER_PROBE_S


def test_a_static_member_has_its_session_timeout_to_come_back() -> None:
    gone = [slot(7, 7, locked=False)]
    looks = [(float(second), gone) for second in range(0, 13, 3)]
    assert verdicts(STATIC, *looks) == [DEAD, DEAD, DEAD, DEAD, OUT]


def test_a_member_that_left_the_group_is_forgotten() -> None:
    watch = FailureDetector(HEARTBEAT_S)
    watch.judge([M], [slot(1, 1)], 0.0)
    watch.judge([], [slot(1, 1)], 6.0)
    assert watch.judge([M], [slot(1, 1)], 12.0) == LIVES
    assert watch.judge([M], [slot(1, 1)], 18.0) == LIVES
