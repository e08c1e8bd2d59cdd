"""The protocol of writing transactions has no violation in any state of its model, and one follows when a rule is left out.

A part of it: `./dev torture transactions` searches all scenarios and leaves out each rule.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pylog import TopicPartition
from pylog.transactions.markers import marker_for, orphan_marker
from pylog.transactions.metadata import TransactionMetadata, TransactionState
from support.campaign import transactions
from support.campaign.transaction_logs import DataLog, StateLog, marked, orphans_epoch
from support.campaign.transaction_rules import RULES, SCENARIOS

FEW = 4_000  # states, which take half a second
SMALL = "move"  # a scenario with all states in some seconds


@pytest.mark.slow
def test_no_state_of_a_small_scenario_violates_what_is_promised() -> None:
    found = transactions.search(SMALL)
    assert (found.violation, found.states) == (None, 14_930)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["others", "forget", "single"])
def test_no_state_of_a_scenario_violates_what_is_promised(scenario: str) -> None:
    assert transactions.search(scenario, limit=12_000).violation is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("rule", [rule for rule, told in RULES.items() if told.states < FEW])
def test_a_rule_that_is_left_out_leads_to_a_violation(rule: str) -> None:
    found = transactions.without(rule)
    assert found.violation is not None, RULES[rule].text
    assert found.states == RULES[rule].states


def test_the_rules_name_scenarios_and_the_scenarios_are_used() -> None:
    assert {told.scenario for told in RULES.values()} <= set(SCENARIOS)


@pytest.mark.parametrize("kind", ["C", "A"])
def test_the_engine_writes_the_markers_of_the_model(kind: str) -> None:
    """For each epoch of a prepared transaction and each one that may be open, or none."""
    state = TransactionState.PREPARE_COMMIT if kind == "C" else TransactionState.PREPARE_ABORT
    prepared = TransactionMetadata("id", 0, 0, 1, state, (TopicPartition("t", 0),), 0)
    for epoch in range(1, 6):
        for theirs in (None, *range(6)):
            log = DataLog() if theirs is None else DataLog((("data", 0, theirs, 7),))
            new = marked(log, 0, kind, epoch, transactions.ALL).entries[len(log.entries) :]
            marker = marker_for(replace(prepared, producer_epoch=epoch), theirs)
            found = () if marker is None else (("C" if marker.is_commit else "A", marker.producer_id, marker.epoch, -1),)
            assert new == found, (epoch, theirs)
    for theirs in range(6):
        log = DataLog((("data", 0, theirs, 7),))
        assert orphan_marker(0, theirs).epoch == orphans_epoch(log, StateLog(), 0, transactions.ALL)
