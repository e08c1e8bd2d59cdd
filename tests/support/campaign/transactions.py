"""The search through all states of the model of transactions, for `./dev torture transactions` (transactions 15).

In tests/, with pylog's sources on the path, `python -m support.campaign.transactions [rule ...]`: all scenarios with all rules,
and then each rule, or those named, left out. The whole takes some minutes.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from typing import Any, Final, NamedTuple

from support.campaign.processes import CampaignError
from support.campaign.transaction_judge import Judge
from support.campaign.transaction_model import Model, State
from support.campaign.transaction_rules import RULES, SCENARIOS

ALL: Final = frozenset(RULES)


class Found(NamedTuple):
    """How a search ended: the states visited, the violation if there was one, and the steps to it."""

    states: int
    violation: str | None
    steps: tuple[str, ...] = ()


def search(scenario: str, rules: frozenset[str] = ALL, limit: int = 10**9) -> Found:
    """Visits the states of a scenario, nearest first, up to the first violation.

    Args:
        scenario: a name in `SCENARIOS`.
        rules: those that hold.
        limit: how many states at most.
    """
    model = Model(scenario, rules)
    judge = Judge(model.rules, model.is_single)
    start = model.start()
    back: dict[State, tuple[str, State] | None] = {start: None}
    waiting, judged = deque([start]), set()
    while waiting and len(back) < limit:
        state = waiting.popleft()
        for label, following, violation in model.steps(state):
            if violation:
                return Found(len(back), violation, (*_steps_to(state, back), label))
            if following in back:
                continue
            back[following] = label, state
            waiting.append(following)
            question = (following.states, tuple(log._replace(holder=-1) for log in following.data), following.past)
            if question in judged:
                continue
            judged.add(question)
            end = judge.violation(*question, following.left.power == model.scope.power)
            if end is not None:
                return Found(len(back), end[1], (*_steps_to(following, back), end[0]))
    return Found(len(back), None)


def _steps_to(state: State, back: dict[State, tuple[str, State] | None]) -> tuple[str, ...]:
    steps = []
    known = back[state]
    while known is not None:
        steps.append(known[0])
        known = back[known[1]]
    return tuple(reversed(steps))


def without(rule: str) -> Found:
    """Searches the scenario in which the lack of a rule shows."""
    return search(RULES[rule].scenario, ALL - {rule})


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Searches scenarios and leaves out rules, in an order of the seed, until the time is over.

    Raises:
        CampaignError: a scenario has a violation, or a rule that is left out has none.
    """
    began = time.monotonic()
    asked: list[tuple[str | None, str]] = [(None, name) for name in SCENARIOS] + [(rule, "") for rule in RULES]
    random.Random(seed).shuffle(asked)
    states = done = 0
    for rule, scenario in asked:
        if done and time.monotonic() - began > seconds:
            break
        found = search(scenario) if rule is None else without(rule)
        if (found.violation is None) != (rule is None):
            raise CampaignError(f"{rule or scenario}: {found.violation}; {' · '.join(found.steps)}")
        states, done = states + found.states, done + 1
    return {"seed": seed, "searches": done, "states": states, "seconds": round(time.monotonic() - began, 1)}


def main(*rules: str) -> None:
    for scenario in () if rules else SCENARIOS:
        began, found = time.process_time(), search(scenario)
        seconds = time.process_time() - began
        print(f"{scenario:8} {found.states:8} states, {found.violation or 'no violation'} ({seconds:.0f} s)", flush=True)
    for rule in rules or RULES:
        began, found = time.process_time(), without(rule)
        seconds = time.process_time() - began
        print(f"without “{rule}”: {found.states} states, {found.violation or 'NO VIOLATION'} ({seconds:.1f} s)", flush=True)
        print("    " + " · ".join(found.steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
