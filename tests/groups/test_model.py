"""Every course of a small group: no partition with two owners, none without a reader for ever, no commit without ownership."""

from __future__ import annotations

from typing import Any

import pytest

from support.groups.model import (
    DEAD_FIRST,
    FINISHED,
    GIVE_UP,
    LOOK_AGAIN,
    NAMES,
    OWNERSHIP,
    POSITION,
    RULES,
    SLOT_FIRST,
    Exploration,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "least"),
    [
        ({}, 10_000),
        ({"static": True}, 10_000),
        ({"partitions": 2, "stops": 0}, 5_000),
        ({"processes": 3, "stops": 0, "records": 1}, 40_000),
    ],
    ids=["two processes", "two static members", "two partitions", "three processes"],
)
def test_nothing_goes_wrong_whatever_happens_in_whatever_order(size: dict[str, Any], least: int) -> None:
    worlds, wrong = Exploration(**size).run()
    assert wrong == []
    assert worlds > least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "wrong"),
    [
        ({SLOT_FIRST}, "m3 is put out while it lives"),
        ({LOOK_AGAIN}, "m3 is put out while it lives"),
        ({OWNERSHIP}, "m3 commits 1 after 0"),
        ({POSITION}, "it starts at 0 and 1 was committed"),
        ({FINISHED}, "a partition has no reader for ever"),
        ({GIVE_UP}, "a partition has two owners"),
        (
            {NAMES, DEAD_FIRST},
            "a partition has no reader for ever",
        ),  # either alone keeps a dead member from being taken for alive
    ],
    ids=lambda value: ", ".join(sorted(value)) if isinstance(value, set) else "",
)
def test_without_a_rule_the_exploration_finds_what_goes_wrong(left_out: set[str], wrong: str) -> None:
    assert Exploration(RULES - left_out).run()[1][-1:] == [wrong]
