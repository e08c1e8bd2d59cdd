"""No crash breaks a promise, wherever it comes, whatever it leaves on the disk (reliability 8.2, suites 6 and 7).

What fails here prints its workload and crash as a call of `campaign.explorer.replay`, which goes through it again.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest

from campaign import explorer as exploring
from campaign.explorer import Explorer, Violation, recorded, recovered, replay, run
from campaign.mutants import SAMPLES, broken_without, in_source, reached
from campaign.workloads import OPERATIONS, workloads
from pylog.testing import CallSite, Moment

STATES = 30_000 // len(OPERATIONS)  # distinct ones, at least, of the workloads that begin with an operation
SHOWN = 5

# Calls that nobody misses, by their place and their number there: what does the same for a crash.
NOT_NEEDED_AFTER_A_CRASH = {
    "sync 2 in pylog.log.writer.LogWriter._set_aside": "a log with a torn tail is not clean: `_make_durable` syncs the same file",
    "sync_directory 1 in pylog.log.trimming._cut": "the leader epochs are replaced next, and their directory is the same",
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery warns of every torn tail; here there are thousands."""
    logger = logging.getLogger("pylog")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def told(violations: list[Violation]) -> str:
    """Some of what is wrong: of each kind of problem one, the shortest replays first."""
    kinds: dict[str, Violation] = {}
    for violation in sorted(violations, key=lambda one: (len(one.crashes), len(one.workload))):
        kinds.setdefault(violation.problems[0][:60], violation)
    shown = list(map(str, list(kinds.values())[:SHOWN]))
    return "\n\n".join([f"{len(violations)} promises broken", *shown])


@pytest.mark.parametrize("first", OPERATIONS)
def test_no_crash_breaks_a_promise(first: str) -> None:
    """Of one operation, and of each other one after it: power losses with any part of what was volatile, deaths at each call."""
    with Explorer(subsets=4, cuts=2) as explorer:
        while len(explorer.opened) < STATES:
            for workload in workloads(2):
                if workload[0] == first:
                    explorer.explore(workload)
            explorer.seed += 1
    assert not explorer.violations, told(explorer.violations)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_crash_of_a_recovery_breaks_a_promise(operation: str) -> None:
    """Every so many states one is recovered while it is recorded, and that is crashed everywhere too."""
    with Explorer(subsets=6, cuts=2, deeper=12) as explorer:
        explorer.explore((operation,))
    assert not explorer.violations, told(explorer.violations)


# ---- the engine without one of its calls ---------------------------------------------------------------------------------------


def test_every_sync_and_rename_of_the_engine_is_made_in_some_workload() -> None:
    """Else it could be anywhere, or nowhere, and no test would know."""
    assert sorted(call.name for call in in_source() - reached()) == []


@pytest.mark.parametrize("name", sorted(call.name for call in in_source()))
def test_an_engine_without_one_of_its_syncs_or_renames_breaks_a_promise(name: str) -> None:
    (call,) = (call for call in in_source() if call.name == name)
    expected = name in NOT_NEEDED_AFTER_A_CRASH
    violation = broken_without(call, samples=4 if expected else SAMPLES)
    assert (violation is None) == expected, violation or "nobody noticed"


def test_every_exception_is_of_a_call_that_is_there() -> None:
    assert set(NOT_NEEDED_AFTER_A_CRASH) <= {call.name for call in in_source()}


# ---- the explorer itself -------------------------------------------------------------------------------------------------------


def test_a_violation_says_how_to_see_it_again_and_that_shows_it() -> None:
    """With an engine that forgets the sync of an append."""

    def forgetful(site: CallSite) -> bool:
        return site.kind == "sync" and site.function == "LogWriter._commit"

    explorer = Explorer(subsets=8, cuts=0, without=forgetful)
    explorer.explore(("append",))
    lost = [one for one in explorer.violations if "was promised" in one.problems[0]]
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


def test_a_recovery_is_recorded_with_what_is_known_while_it_goes_on() -> None:
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
