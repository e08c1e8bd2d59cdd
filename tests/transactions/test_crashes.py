"""No crash breaks a transaction: what was answered is kept, and each one is there whole or not at all.

What fails here prints its run and its crash as a call of `support.campaign.transaction_crashes.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from pylog.config import Durability
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.topic import TransactionsTopic
from support.campaign.transaction_crashes import STEPS, Explorer
from support.campaign.workloads import quiet

STATES = 15  # of each run, drawn at random; `./dev torture commits` has all of them
ALL = 1 << 20
ONE, TWO, PIECEMEAL = ["commit 2"], ["commit 2", "commit 2"], ["commit 2 piecemeal"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.mark.parametrize("step", STEPS)
def test_no_crash_parts_a_transaction(step: str) -> None:
    explorer = Explorer()
    explorer.explore([step, "commit 2 with offsets"], 1 << 20, subsets=2, cuts=1, most=STATES)
    assert not explorer.violations, explorer.violations[0]


def test_no_crash_parts_transactions_of_logs_that_roll() -> None:
    explorer = Explorer(1)
    explorer.explore(["commit 2", "plain", "abort 2", "commit 2 with offsets"], 250, subsets=2, cuts=1, most=STATES)
    assert not explorer.violations, explorer.violations[0]


# ---- the instrument sees an engine without one of its syncs ------------------------------------------------------------------


def unsynced(name: str, place: int) -> object:
    """A step of the protocol that syncs nothing: the level is its argument at that place."""
    step: Callable[..., object] = getattr(TransactionCoordinator, name)

    def at_os(*given: object) -> object:
        return step(*given[:place], Durability.OS, *given[place + 1 :])

    return patch.object(TransactionCoordinator, name, at_os)


def without_the_decision_synced() -> list[object]:
    return [unsynced("prepare_commit", 4), patch.object(TransactionsTopic, "make_durable", lambda *_: None)]


def without_the_data_synced() -> list[object]:
    return [unsynced("append", 7)]


def without_the_markers_synced() -> list[object]:
    return [unsynced("_write_marker", 4)]


def without_a_sweep() -> list[object]:
    return [patch.object(TransactionCoordinator, "sweep", lambda *_: 0)]


@pytest.mark.parametrize(
    ("taken_out", "steps"),
    [
        (without_the_decision_synced, ONE),
        (without_the_data_synced, ONE),
        (without_the_markers_synced, TWO),
        (without_a_sweep, PIECEMEAL),
    ],
)
def test_a_protocol_without_a_rule_is_seen_to_break_a_promise(taken_out: Callable[[], list[object]], steps: list[str]) -> None:
    with ExitStack() as patches:
        for each in taken_out():
            patches.enter_context(each)  # type: ignore[arg-type]
        explorer = Explorer()
        explorer.explore(steps, 1 << 20, subsets=3, cuts=0, most=ALL)
    assert explorer.violations
