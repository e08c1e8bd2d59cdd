"""What encoders yield, step by step."""

from __future__ import annotations

from collections.abc import Iterable

from pylog.record.builder import Encoded


def check_steps_stay(steps: Iterable[Encoded]) -> int:
    """Looks at each step before and after the next one is made, as who writes it meanwhile does; returns how many there were."""
    count, last = 0, None
    for step in steps:
        if last is not None:
            data, table, were = last
            assert (bytes(data), table.tolist()) == were
        last = step.data, step.table, (bytes(step.data), step.table.tolist())
        count += 1
    return count
