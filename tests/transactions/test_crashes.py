"""No crash breaks a transaction: what was answered is kept, and each one is there whole or not at all.

What fails here prints its run and its crashes as a call of `support.campaign.transaction_crashes.replay`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from pylog.config import Durability
from pylog.testing import MemoryFileSystem, Moment
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.topic import TransactionsTopic
from support.campaign.explorer import seldom_collecting
from support.campaign.transaction_crashes import Explorer, Shared, inspect
from support.campaign.transaction_runs import SMALL, STEPS, recorded
from support.campaign.workloads import clock, quiet

MOMENTS = 4  # of the last step of a run, drawn at random; `./dev torture commits` has all of them
ONE, TWO, PIECEMEAL = ["commit 2"], ["commit 2", "commit 2"], ["commit 2 piecemeal"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet(), seldom_collecting():
        yield


@pytest.mark.sampled(12)
@pytest.mark.parametrize("step", STEPS)
def test_no_crash_parts_a_transaction(step: str) -> None:
    explorer = Explorer(subsets=2)
    explorer.explore(["commit 2 with offsets", step], moments=MOMENTS)
    explorer.explore([step, "commit 2 with offsets"], SMALL, moments=MOMENTS)
    assert not explorer.violations, explorer.violations[0]
    assert len(explorer.opened) > 2 * MOMENTS


def test_no_crash_of_a_recovery_parts_a_transaction() -> None:
    explorer = Explorer(1, subsets=2, deeper=1)
    explorer.explore(["commit 2 piecemeal", "abort 2", "commit 2 with offsets"], moments=1)
    assert not explorer.violations, explorer.violations[0]
    assert explorer.recoveries >= 2


def test_what_follows_equal_openings_is_the_same() -> None:
    """What the explorer asks once is asked of each state here: an opening's digest leaves nothing out that matters."""
    recording, start = recorded(["commit 2", "commit 2 with offsets"])
    moment, asked = Moment(recording), 0
    shared: Shared = {}
    while moment.after < len(recording):
        moment.advance()
        if moment.after > start and moment.after % 12 == 0:
            for crash in moment.deaths(random.Random(0), 1):
                alone = inspect(MemoryFileSystem(clock=clock(), image=moment.state(crash)[1]))
                assert inspect(MemoryFileSystem(clock=clock(), image=moment.state(crash)[1]), shared) == alone
                asked += 1
    assert 0 < len(shared) < asked


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


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("taken_out", "steps"),
    [
        (without_the_markers_synced, TWO),  # the fastest first: the fast tests have this one
        (without_the_decision_synced, ONE),
        (without_the_data_synced, ONE),
        (without_a_sweep, PIECEMEAL),
    ],
)
def test_a_protocol_without_a_rule_is_seen_to_break_a_promise(taken_out: Callable[[], list[object]], steps: list[str]) -> None:
    with ExitStack() as patches:
        for each in taken_out():
            patches.enter_context(each)  # type: ignore[arg-type]
        explorer = Explorer(cuts=0)
        explorer.explore(steps)
    assert explorer.violations
