"""The stateful models of a log and of a store, with seeds of their own: for `./dev torture models` (reliability 8.1, suite 5)."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Final

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from support.campaign.disk_machine import DiskMachine
from support.campaign.log_machine import LogMachine
from support.campaign.processes import CampaignError
from support.campaign.store_machine import StoreMachine
from support.campaign.transaction_machine import TransactionMachine

MACHINES: Final[dict[str, type[RuleBasedStateMachine]]] = {
    "log": LogMachine,
    "store": StoreMachine,
    "disk": DiskMachine,
    "transactions": TransactionMachine,
}
_EXAMPLES: Final = 4  # of one machine, before the time is looked at
_STEPS: Final = 100


def ordinary(examples: int, steps: int) -> settings:
    """Settings of a run; what it does is the same each time unless it is given a seed."""
    checks = list(HealthCheck)
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=checks,
    )


def run(seed_given: int, seconds: float) -> dict[str, Any]:
    """Lets the machines take random steps until the time is over.

    Args:
        seed_given: decides all steps.
        seconds: how long; an example that was begun is ended.

    Returns:
        How many examples of each machine there were.

    Raises:
        CampaignError: a model and what it models differ; the steps that show it are in the error that it comes from.
    """
    began = time.monotonic()
    done: Counter[str] = Counter()
    turn = 0
    while time.monotonic() - began < seconds:
        for name, machine in MACHINES.items():
            seeded(machine, f"{seed_given} {turn}")
            done[f"{name}_examples"] += _EXAMPLES
        turn += 1
    return {"seed": seed_given, **done, "seconds": round(time.monotonic() - began, 1)}


def seeded(machine: type[RuleBasedStateMachine], text: str, examples: int = _EXAMPLES, steps: int = _STEPS) -> None:
    """Some random examples of a machine."""
    randomly = settings(ordinary(examples, steps), derandomize=False)
    given = seed(text)(type(machine.__name__, (machine,), {}))
    try:
        run_state_machine_as_test(given, settings=randomly)
    except Exception as error:
        raise CampaignError(f"{machine.__name__}, seed {text!r}: {error}") from error
