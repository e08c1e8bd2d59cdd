"""A group that copies a topic in transactions, and is killed at any moment, copies each record exactly once (KIP-447)."""

from __future__ import annotations

import pytest

from support.campaign import group_kills
from support.campaign.processes import new_seed

DEATHS = 6


@pytest.mark.pair("groups", "crash", "second process")
@pytest.mark.pair("groups", "aborted transactions")
def test_members_that_are_killed_at_any_moment_copy_each_record_exactly_once() -> None:
    done = group_kills.run(new_seed(), deaths=DEATHS)
    assert done["killed"] + done.get("zombies", 0) == DEATHS
    assert done["commits"] > 0
