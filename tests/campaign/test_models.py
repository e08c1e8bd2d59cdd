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

EXAMPLES, STEPS = 50 * int(os.environ.get("PYLOG_TIMES", "1")), 50  # PYLOG_TIMES=20: that many times as long
CHOSEN = "PYLOG_SEED" in os.environ  # other steps than each time: those of a seed


@pytest.mark.parametrize("machine", [LogMachine, StoreMachine, DiskMachine])
def test_every_order_of_steps_leaves_what_the_model_promises(machine: type[LogMachine | StoreMachine]) -> None:
    examples = EXAMPLES // 3 if machine is DiskMachine else EXAMPLES  # real files take longer
    if CHOSEN:
        models.seeded(machine, str(new_seed()), examples, STEPS)
    else:
        run_state_machine_as_test(machine, settings=models.ordinary(examples, STEPS))
