"""kill -9 at any moment loses nothing that was acknowledged, and leaves nothing that nobody wrote (reliability 8.3, suite 8)."""

from __future__ import annotations

from support.campaign import kills
from support.campaign.processes import new_seed

CYCLES = 1_000
CROWDED_CYCLES = 100


def test_a_writer_killed_at_any_moment_loses_no_acknowledged_record() -> None:
    done = kills.run(new_seed(), cycles=CYCLES)
    assert done["cycles"] == CYCLES
    assert done["acknowledged"] > CYCLES
    assert done["unknown_kept"] > 0  # some died after the write and before the acknowledgement
    assert done["unknown_dropped"] > 0  # and some before it


def test_writers_and_a_reader_of_one_partition_survive_each_others_deaths() -> None:
    done = kills.run(new_seed(), cycles=CROWDED_CYCLES, writers=2, readers=1)
    assert done["killed"] > 2 * CROWDED_CYCLES
    assert done["acknowledged"] > CROWDED_CYCLES
    assert done["read"] > CROWDED_CYCLES


def test_readers_see_every_record_once_and_none_that_is_gone_later_while_their_writer_dies() -> None:
    done = kills.run(new_seed(), cycles=CROWDED_CYCLES, readers=2)
    assert done["read"] > 2 * CROWDED_CYCLES
