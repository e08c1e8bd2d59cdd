"""A log and a store are what their models say, whatever is done to them and however they end (reliability 8.3, suite 5)."""

from __future__ import annotations

import os

import pytest
from hypothesis.stateful import run_state_machine_as_test

from support.campaign import models
from support.campaign.disk_machine import DiskMachine
from support.campaign.log_machine import LogMachine
from support.campaign.processes import new_seed
from support.campaign.store_machine import StoreMachine
from support.campaign.transaction_machine import TransactionMachine

EXAMPLES, STEPS = 50 * int(os.environ.get("PYLOG_TIMES", "1")), 50  # PYLOG_TIMES=20: that many times as long
CHOSEN = "PYLOG_SEED" in os.environ  # other steps than each time: those of a seed


@pytest.mark.parametrize("machine", [LogMachine, StoreMachine, DiskMachine])
def test_every_order_of_steps_leaves_what_the_model_promises(machine: type[LogMachine | StoreMachine]) -> None:
    examples = EXAMPLES // 3 if machine is DiskMachine else EXAMPLES  # real files take longer
    if CHOSEN:
        models.seeded(machine, str(new_seed()), examples, STEPS)
    else:
        run_state_machine_as_test(machine, settings=models.ordinary(examples, STEPS))


@pytest.mark.pair("aborted transactions", "crash", "second process")
@pytest.mark.pair("aborted transactions", "truncation")
@pytest.mark.pair("aborted transactions", "delete_records")
@pytest.mark.pair("aborted transactions", "compaction")
@pytest.mark.pair("aborted transactions", "option change")
def test_snapshots_have_what_is_committed_in_every_order_of_steps() -> None:
    if CHOSEN:
        models.seeded(TransactionMachine, str(new_seed()), EXAMPLES // 5, STEPS // 2)
    else:
        run_state_machine_as_test(TransactionMachine, settings=models.ordinary(EXAMPLES // 5, STEPS // 2))


@pytest.mark.pair("retention by time", "timestamps", "second process")
@pytest.mark.parametrize("machine", [StoreMachine, DiskMachine])
@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_records_age_in_the_model_as_in_a_store_after_the_clock_was_set_back(machine: type[StoreMachine], time_type: str) -> None:
    steps = machine()
    try:
        steps.create(0, "first", 1, {"retention_ms": 1000, "message_timestamp_type": time_type})
        steps.append(0, 0, 0.0, [(0, 5, None)], True, "sync")
        steps.wait(-4000)
        steps.append(1, 0, 0.0, [(0, 5, None)], True, "sync")
        steps.wait(1000)
        steps.tick(1)
        assert steps.world["first"].promises[0].first_start == 0
        steps.wait(1)
        steps.tick(1)
        steps.every_process_sees_what_is_there()
        assert steps.world["first"].promises[0].first_start == 2
    finally:
        steps.teardown()


@pytest.mark.pair("scan and follow", "close")
@pytest.mark.parametrize("machine", [StoreMachine, DiskMachine])
@pytest.mark.parametrize("how", ["records", "scan", "follow"])
@pytest.mark.parametrize("who", [0, 1])
def test_a_reader_of_a_deleted_topic_refuses_after_its_store_was_closed(machine: type[StoreMachine], how: str, who: int) -> None:
    steps = machine()
    try:
        steps.create(0, "first", 1, {"segment_bytes": 200})
        for _ in range(3):
            steps.append(0, 0, 0.0, [(0, 50, None), (1, 50, None)], True, "sync")
        steps.open_reader(0, 0, 0.0, how)
        assert steps.kept
        steps.delete(who, "first")
        steps.close(0)
        assert not steps.kept
    finally:
        steps.teardown()
