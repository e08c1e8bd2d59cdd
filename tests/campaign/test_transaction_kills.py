"""A process that writes transactions, and is killed at any moment or step of the protocol, parts and loses none."""

from __future__ import annotations

import pytest

from support.campaign import transaction_kills
from support.campaign.processes import CampaignError, new_seed

CYCLES = 2_000


@pytest.mark.pair("aborted transactions", "crash")
def test_a_process_that_is_killed_at_any_moment_leaves_each_transaction_whole_or_not_at_all() -> None:
    done = transaction_kills.run(new_seed(), cycles=CYCLES)
    assert done["cycles"] == CYCLES
    assert done["answered"] > CYCLES / 20
    assert done["unknown_kept"] > 0  # some died after the decision and before the answer
    assert done["unknown"] > done["unknown_kept"]  # and some before it
    assert done["zombies"] > 0


def test_an_engine_with_a_fault_is_seen_to_break_a_promise() -> None:
    with pytest.raises(CampaignError, match=r"was answered, and is gone|the next transaction is not read"):
        transaction_kills.run(new_seed(), cycles=50, fault="answers that are aborts")
