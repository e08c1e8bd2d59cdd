"""Histories of random transactions have no anomaly, and the anomalies of planted faults are found in them."""

from __future__ import annotations

import pytest

from support.campaign import transaction_traffic
from support.campaign.processes import CampaignError, new_seed
from support.campaign.transaction_planted import FAULTS


@pytest.mark.pair("aborted transactions", "crash", "second process")
@pytest.mark.pair("aborted transactions", "compaction")
@pytest.mark.pair("aborted transactions", "delete_records")
@pytest.mark.pair("aborted transactions", "truncation")
def test_a_history_of_processes_that_are_killed_stopped_and_fenced_has_no_anomaly() -> None:
    done = transaction_traffic.run(new_seed(), rounds=1, events=5)
    assert done["committed"] > 0
    assert done["cuts"] > 0  # the last one at least


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_history_shows_a_planted_fault(name: str) -> None:
    with pytest.raises(CampaignError) as caught:
        transaction_traffic.run(1, rounds=5, events=5, fault=name)
    kinds = {kind for kind in FAULTS[name].kinds if f"{kind}: " in str(caught.value)}
    assert kinds, str(caught.value)
