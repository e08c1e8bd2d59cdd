"""Histories of random transactions have no anomaly, and the anomalies of planted faults are found in them."""

from __future__ import annotations

import pytest

from support.campaign import transaction_traffic
from support.campaign.processes import new_seed
from support.campaign.transaction_history import check
from support.campaign.transaction_planted import FAULTS


@pytest.mark.pair("aborted transactions", "crash", "second process")
@pytest.mark.pair("aborted transactions", "compaction")
@pytest.mark.pair("aborted transactions", "delete_records")
@pytest.mark.pair("aborted transactions", "truncation")
def test_a_history_of_processes_that_are_killed_stopped_and_fenced_has_no_anomaly() -> None:
    done = transaction_traffic.run(new_seed(), rounds=1, events=5)
    assert done["committed"] > 0
    assert done["cuts"] > 0  # the last one at least


def test_a_planted_fault_names_what_a_history_would_show() -> None:
    """Whether a run shows it depends on the order of processes: `./dev torture planted` goes on until it has."""
    for fault in FAULTS.values():
        assert [kind for kind in fault.kinds if f"`{kind}`" not in (check.__doc__ or "")] == []
        assert fault.kinds


def test_a_planted_fault_is_found_in_a_history() -> None:
    """`./dev torture planted` plants all of them."""
    done = transaction_traffic.run_planted(new_seed(), names=["decisions without the data", "stable offsets that are ends"])
    assert all(done[name] > 0 for name in done if name != "seed")
