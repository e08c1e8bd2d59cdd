"""Whatever call fails, nothing acknowledged is lost, and the log goes on when the promises say so (reliability 8.1, suite 9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pylog
from pylog.testing import FAULTS
from pylog.testing.models import POWER_LOSS, PROCESS_DEATH, Found
from support.campaign.explorer import seldom_collecting
from support.campaign.faults import SCENARIOS, Case, Ledger, execute, run, sweep
from support.campaign.workloads import quiet

SHOWN = 5


@pytest.fixture(autouse=True, scope="module")
def _seldom_collecting() -> Iterator[None]:
    """Once for all sweeps, which collect what they leave: to begin and to end takes a second in a process with all tests."""
    with seldom_collecting():
        yield


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


# Scenarios that shorten no file: the call to refuse is not there.
NO_SUCH_CALL = {(scenario, "truncate EIO") for scenario in ("append", "trim", "topics")}


STEPS = {"stat EIO": 7}  # so many calls from one that fails to the next: there are very many; `./dev torture faults` has all


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_call_may_fail_once_or_forever_and_nothing_acknowledged_is_lost(scenario: str, fault: str) -> None:
    for forever in (False, True):
        executions, problems = sweep(scenario, fault, forever=forever, step=STEPS.get(fault, 1))
        assert not problems, "\n".join([f"{len(problems)} problems", *problems[:SHOWN]])
        assert (executions > 1) == ((scenario, fault) not in NO_SUCH_CALL)


def test_a_case_without_a_fault_is_refused_nothing() -> None:
    for scenario in SCENARIOS:
        assert execute(Case(scenario, "sync EIO", 1_000_000, forever=False)) == (0, [])


def test_a_case_is_the_same_in_every_run() -> None:
    case = Case("append", "short write ENOSPC", 12, forever=True)
    assert execute(case) == execute(case)


def test_the_ledger_notices_lost_altered_doubled_and_unknown_records() -> None:
    ledger = Ledger(Found(0, ("a",)))
    ledger.asked(["b", "c"])
    ledger.acknowledged(range(1, 2), ["b"], durable=False)
    legal = {
        PROCESS_DEATH: [("a", "b"), ("a", "b", "c")],
        POWER_LOSS: [("a",), ("a", "b"), ("a", "b", "c"), ("a", "c")],
    }
    wrong = [(), ("b",), ("a", "x"), ("a", "a"), ("a", "b", "b")]
    for after, states in legal.items():
        assert [list(ledger.problems(Found(0, records), after)) for records in states] == [[]] * len(states)
        assert all(list(ledger.problems(Found(0, records), after)) for records in wrong)
    assert list(ledger.problems(Found(1, ("b",)), POWER_LOSS))


def test_an_error_that_is_not_pylogs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("not translated")

    monkeypatch.setattr(pylog.Log, "append_batch", broken)
    _, problems = execute(Case("append", "sync EIO", 1, forever=False))
    assert any("not translated" in problem for problem in problems)


def test_a_long_run_reports_what_it_did() -> None:
    report = run(1, 0.0)
    assert report == {"seed": 1, "violations": []}
