"""A driver that splices micro-batches may be killed at any moment: each row is there once."""

from __future__ import annotations

from support.campaign import splices
from support.campaign.processes import new_seed

KILLS = 60


def test_a_driver_killed_at_any_moment_neither_loses_nor_doubles_a_row() -> None:
    done = splices.run(new_seed(), kills=KILLS)
    assert done["kills"] == KILLS
    assert done["micro_batches"] > KILLS / 20  # on a busy machine most lives end before they have done anything
