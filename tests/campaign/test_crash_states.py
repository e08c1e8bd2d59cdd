"""No crash breaks a promise, wherever it comes, whatever it leaves on the disk (reliability 8.2, suite 6).

What fails here prints its workload and crash as a call of `support.campaign.explorer.replay`, which goes through it again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from pylog.fs import WRITERS
from pylog.testing import Moment
from pylog.testing.recording import CallSite
from support.campaign import explorer as exploring
from support.campaign.checker import SoundLogs
from support.campaign.explorer import Explorer, Opened, Violation, recorded, recovered, replay, run, seldom_collecting
from support.campaign.workloads import OPERATIONS, quiet, workloads

STATES = 30_000  # distinct ones, at least, of workloads of one and two operations
DEEPER = 32  # of so many states one is recovered, and its recovery crashed
SHOWN = 5


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def told(violations: list[Violation]) -> str:
    """Some of what is wrong: of each kind of problem one, the shortest replays first."""
    kinds: dict[str, Violation] = {}
    for violation in sorted(violations, key=lambda one: (len(one.crashes), len(one.workload))):
        kinds.setdefault(violation.problems[0][:60], violation)
    shown = list(map(str, list(kinds.values())[:SHOWN]))
    return "\n\n".join([f"{len(violations)} promises broken", *shown])


@pytest.fixture(scope="module")
def opened() -> Opened:
    """The states that were opened, by whichever test: none is opened, or counted, twice."""
    return {}


@pytest.fixture(scope="module")
def logs() -> SoundLogs:
    """The logs that were all right in those states: what a crash leaves of one, it leaves beside many states of the others."""
    return {}


@pytest.mark.parametrize("first", OPERATIONS)
def test_no_crash_breaks_a_promise(first: str, opened: Opened, logs: SoundLogs) -> None:
    """Of one operation, and of each other one after it: power losses with any part of what was volatile, deaths at each call."""
    with Explorer(subsets=1, cuts=1, opened=opened, logs=logs) as explorer:
        for workload in workloads(2):
            if workload[0] == first:
                explorer.explore(workload)
    assert not explorer.violations, told(explorer.violations)


def test_no_crash_breaks_a_promise_in_thirty_thousand_states(opened: Opened, logs: SoundLogs) -> None:
    """Others are drawn until there are so many."""
    for seed in itertools.takewhile(lambda _: len(opened) < STATES, itertools.count()):
        with Explorer(seed, subsets=2, cuts=1, opened=opened, logs=logs) as explorer:
            for workload in itertools.takewhile(lambda _: len(opened) < STATES, workloads(2)):
                explorer.explore(workload)
        assert not explorer.violations, told(explorer.violations)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_crash_of_a_recovery_breaks_a_promise(operation: str, logs: SoundLogs) -> None:
    """Every so many states one is recovered while it is recorded, and that is crashed everywhere too."""
    with Explorer(subsets=4, cuts=1, deeper=DEEPER, logs=logs) as explorer:
        explorer.explore((operation,))
    assert not explorer.violations, told(explorer.violations)


# ---- the explorer itself -------------------------------------------------------------------------------------------------------


def test_a_violation_says_how_to_see_it_again_and_that_shows_it() -> None:
    """With an engine that forgets the sync of an append."""

    def forgetful(site: CallSite) -> bool:
        return site.kind == "sync" and site.function == "LogWriter._commit"

    explorer = Explorer(subsets=8, cuts=0, without=forgetful)
    explorer.explore(("append",))
    lost = [one for one in explorer.violations if "promised" in one.problems[0]]
    assert lost
    line = str(lost[0]).splitlines()[-1].strip()
    assert line.startswith(f'replay({("append",)!r}, "after=')
    assert replay(lost[0].workload, *map(str, lost[0].crashes)) == []  # the engine as it is keeps the promise


def test_the_same_seed_explores_the_same_states() -> None:
    opened = []
    for seed in (1, 1, 2):
        explorer = Explorer(seed, subsets=5, cuts=3)
        explorer.explore(("append_os",))
        opened.append(set(explorer.opened))
    assert opened[0] == opened[1] != opened[2]


def test_what_dies_leaves_no_writer_open_for_later_ones_to_release() -> None:
    """Else those would release their own, too, and the states would depend on how many were opened before."""
    with seldom_collecting():
        before = len(WRITERS)
        recording, _ = recorded(("append_elsewhere",))
        recovered(recording, next(Moment.of(recording, len(recording)).deaths(random.Random(0))))
        assert len(WRITERS) == before


def test_a_recovery_is_recorded_with_the_calls_in_doubt_while_it_goes_on() -> None:
    recording, _ = recorded(("append",))
    crash = next(Moment.of(recording, len(recording)).deaths(random.Random(0)))
    again = recovered(recording, crash)
    ends = [known["t"].log.survives_death for _, known in again.marks]  # type: ignore[index]
    assert ends == sorted(ends)
    assert ends[-1] == ends[0] + 1  # the probe


def test_a_long_run_reports_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploring, "workloads", lambda length: [("flush",), ("reopen",)][:length])
    report = run(3, 60.0, length=2)
    assert report["seed"] == 3
    assert report["workloads"] == 2
    assert report["states"] > 0
    assert report["violations"] == []
