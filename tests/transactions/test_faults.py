"""Whatever call fails in a transaction, it is what the program was told, and whole; the next transaction succeeds.

`./dev torture refusals` lets each call fail in each way; here it is a sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from unittest.mock import patch

import pytest

import pylog
from pylog.config import Durability
from pylog.testing import FAULTS, FaultyFileSystem, MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.incarnation import Incarnation
from support.campaign.explorer import seldom_collecting
from support.campaign.transaction_faults import SCENARIOS, Case, execute, run, sweep
from support.campaign.workloads import quiet

STEP = {"stat": 401, "lock": 71, "open": 97, "read": 97}  # the others: one of STEPS calls
STEPS = 31


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet(), seldom_collecting():
        yield


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_failing_call_parts_a_transaction_or_makes_an_answer_wrong(scenario: str) -> None:
    executions = 0
    for number, fault in enumerate(FAULTS):
        step = STEP.get(FAULTS[fault].call, STEPS)
        done, problems = sweep(scenario, fault, forever=number % 2 == 0, first=1 + number % step, step=step)
        assert not problems, problems[0]
        executions += done
    assert executions > len(FAULTS)


def test_a_case_without_a_fault_is_refused_nothing() -> None:
    for scenario in SCENARIOS:
        assert execute(Case(scenario, "sync EIO", 1_000_000, forever=False)) == (0, [])


def test_a_case_is_the_same_in_every_run() -> None:
    case = Case("piecemeal", "short write ENOSPC", 12, forever=True)
    assert execute(case) == execute(case)


def test_a_long_run_reports_what_it_did() -> None:
    assert run(1, 0.0) == {"seed": 1, "violations": []}


def test_an_outcome_stays_unknown_while_the_store_that_was_opened_again_cannot_flush() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    store = pylog.open("/data", fs=fs)
    store.create_topic("out")
    store.log("out").append(b"before")
    fs.fail("sync EIO", 1, forever=True)
    transaction = store.transaction(None)
    transaction.append("out", b"in doubt")
    with pytest.raises(pylog.SyncFailedError):
        transaction.commit()
    assert transaction.outcome == "unknown"
    store.close()
    with pylog.open("/data", fs=fs) as again:
        assert [record.value for record in again.log("out").records()] == [b"before"]
        with pytest.raises(pylog.PylogError, match="cannot sync"):
            again.flush()
        fs.heal()
    with pylog.open("/data", fs=fs) as healed:
        assert [record.value for record in healed.log("out").records()] == [b"before", b"in doubt"]
        healed.flush()


# ---- the instrument sees wrong answers ---------------------------------------------------------------------------------------


def is_told(text: str, fault: str) -> bool:
    """Returns whether a problem with a text is found at one of the calls of a kind."""
    for number in count(1):
        fired, told = execute(Case("commit", fault, number, forever=False))
        if not fired or any(text in problem for problem in told):
            return fired > 0
    raise AssertionError("there is always a last call")


def test_a_decision_that_is_not_synced_is_seen() -> None:
    decide = TransactionCoordinator.prepare_commit

    def at_os(self: TransactionCoordinator, *given: object) -> object:
        return decide(self, *given[:3], Durability.OS)  # type: ignore[arg-type]

    make_durable = patch("pylog.transactions.topic.TransactionsTopic.make_durable", lambda *_: None)
    with patch.object(TransactionCoordinator, "prepare_commit", at_os), make_durable:
        assert is_told("after power loss: the answered transactions", "write EIO")


def test_an_answer_that_comes_before_the_decision_is_seen() -> None:
    decide = Incarnation.prepare_commit

    def answered(self: Incarnation, *given: object) -> object:
        try:
            return decide(self, *given)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - any
            return None

    with (
        patch.object(Incarnation, "prepare_commit", answered),
        patch.object(Incarnation, "complete", lambda *_: None),
    ):
        assert is_told("the answered transactions", "short write ENOSPC")
