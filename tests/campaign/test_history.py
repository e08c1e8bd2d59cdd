"""The history checker finds each sort of wrong, and nothing in histories that are right; then it judges real processes."""

from __future__ import annotations

import pytest

from support.campaign import traffic
from support.campaign.history import NEVER, Append, Operation, Outcome, Read, check
from support.campaign.processes import new_seed

ROUNDS = 20
OK, FAIL = Outcome.OK, Outcome.FAIL


def appended(process: str, values: list[int], offset: int, invoked: int, completed: int, partition: int = 0) -> Append:
    return Append(process, partition, values, invoked, completed, OK, offset)


def died(process: str, values: list[int], invoked: int) -> Append:
    return Append(process, 0, values, invoked)


def read(process: str, first: int, values: list[int], invoked: int, completed: int, *, to_end: bool = True) -> Read:
    """A read from `first` on that found these values in a row."""
    return Read(process, 0, list(enumerate(values, first)), invoked, completed, first, to_end)


GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "an empty log read": [read("r", 0, [], 1, 2)],
    "appends and a read of all": [appended("a", [1, 2], 0, 1, 2), appended("b", [3], 2, 3, 4), read("r", 0, [1, 2, 3], 5, 6)],
    "two calls at once in either order": [appended("a", [1], 1, 1, 9), appended("b", [2], 0, 2, 8), read("r", 0, [2, 1], 10, 11)],
    "a call that died and left nothing": [died("a", [1, 2], 1), appended("b", [3], 0, 5, 6), read("r", 0, [3], 7, 8)],
    "a call that died and left a part": [died("a", [1, 2], 1), appended("b", [3], 1, 5, 6), read("r", 0, [1, 3], 7, 8)],
    "a call that died and left everything": [died("a", [1, 2], 1), read("r", 0, [1, 2], 7, 8)],
    "a call that was seen before it returned": [read("r", 0, [1], 2, 3), appended("a", [1], 0, 1, 4)],
    "a read that began before a call returned and missed it": [appended("a", [1], 0, 1, 5), read("r", 0, [], 4, 6)],
    "a failed call that nobody sees": [Append("a", 0, [1], 1, 2, FAIL), appended("a", [2], 0, 3, 4), read("r", 0, [2], 5, 6)],
    "a reader that goes on": [
        appended("a", [1, 2, 3], 0, 1, 2),
        Read("r", 0, [(0, 1)], 3, 4),
        Read("r", 0, [(1, 2), (2, 3)], 5, 6),
    ],
    "a reader that begins in the middle": [appended("a", [1, 2, 3], 0, 1, 2), Read("r", 0, [(1, 2)], 3, 4)],
    "a reader that stops where it wants": [appended("a", [1, 2], 0, 1, 2), read("r", 0, [1], 3, 4, to_end=False)],
    "partitions of their own": [appended("a", [1], 0, 1, 2), appended("a", [2], 0, 3, 4, partition=1), read("r", 0, [1], 5, 6)],
}

BAD: dict[str, tuple[str, list[Operation]]] = {
    "an acknowledged record is replaced by another": (
        "lost write",
        [appended("a", [1, 2, 3], 0, 1, 2), Read("r", 0, [(0, 1), (2, 3)], 3, 4)],
    ),
    "the acknowledged end is missing for ever": ("lost write", [appended("a", [1, 2], 0, 1, 2), read("r", 0, [1], 3, 4)]),
    "a reader skips what another one sees": (
        "gap",
        [died("a", [1, 2, 3], 1), read("r", 0, [1, 2, 3], 2, 3), Read("s", 0, [(0, 1), (2, 3)], 4, 5, 0)],
    ),
    "a reader that goes on leaves one out": (
        "gap",
        [
            appended("a", [1, 2, 3], 0, 1, 2),
            Read("r", 0, [(0, 1)], 3, 4),
            Read("r", 0, [(2, 3)], 5, 6),
            read("s", 0, [1, 2, 3], 7, 8),
        ],
    ),
    "a record once seen is gone later": (
        "stale read",
        [died("a", [1], 1), read("r", 0, [1], 2, 3), read("s", 0, [], 4, 5)],
    ),
    "an acknowledged record is seen too late": (
        "stale read",
        [appended("a", [1], 0, 1, 2), read("r", 0, [], 3, 4), read("r", 0, [1], 5, 6)],
    ),
    "a record is there twice": ("duplicate", [appended("a", [1], 0, 1, 2), read("r", 0, [1, 1], 3, 4)]),
    "a record is where its writer was not told": ("duplicate", [appended("a", [1], 0, 1, 2), read("r", 3, [1], 3, 4)]),
    "a record is in another partition too": ("duplicate", [appended("a", [1], 0, 1, 2, partition=1), read("r", 0, [1], 3, 4)]),
    "two writers are told the same offset": (
        "inconsistent offset",
        [appended("a", [1], 0, 1, 2), appended("b", [2], 0, 1, 2)],
    ),
    "an offset has two contents for two readers": (
        "inconsistent offset",
        [died("a", [1], 1), died("b", [2], 1), read("r", 0, [1], 2, 3), read("s", 0, [2], 4, 5)],
    ),
    "a later call of another writer stands before": (
        "reordered",
        [appended("a", [1], 1, 1, 2), appended("b", [2], 0, 3, 4)],
    ),
    "a later call that died stands before": (
        "reordered",
        [appended("a", [1], 1, 1, 2), died("b", [2], 3), read("r", 0, [2, 1], 5, 6)],
    ),
    "a call of a process that was dead stands behind": (
        "reordered",
        [Append("a", 0, [1], 1, 2), appended("b", [2], 0, 3, 4), read("r", 0, [2, 1], 5, 6)],
    ),
    "a writer's offsets go back": ("non-monotone append", [appended("a", [1], 1, 1, 2), appended("a", [2], 0, 3, 4)]),
    "records of one call with another's between them": (
        "torn append",
        [died("a", [1, 2], 1), died("b", [3], 1), read("r", 0, [1, 3, 2], 5, 6)],
    ),
    "the end of a call without its beginning": (
        "torn append",
        [died("a", [1, 2], 1), died("b", [3], 1), read("r", 0, [3, 2], 5, 6)],
    ),
    "records of one call in another order": ("torn append", [died("a", [1, 2], 1), read("r", 0, [2, 1], 5, 6)]),
    "a read that goes back": (
        "non-monotone read",
        [appended("a", [1, 2], 0, 1, 2), Read("r", 0, [(1, 2), (0, 1)], 3, 4)],
    ),
    "a reader that goes on finds the same again": (
        "non-monotone read",
        [appended("a", [1, 2], 0, 1, 2), Read("r", 0, [(0, 1), (1, 2)], 3, 4), Read("r", 0, [(1, 2)], 5, 6)],
    ),
    "a read from before where it was asked to begin": (
        "non-monotone read",
        [appended("a", [1, 2], 0, 1, 2), Read("r", 0, [(0, 1)], 3, 4, 1)],
    ),
    "a record that nobody wrote": ("phantom", [read("r", 0, [-1], 3, 4)]),
    "a record that was read before it was appended": ("phantom", [read("r", 0, [1], 1, 2), appended("a", [1], 0, 3, 4)]),
    "a refused record is there": ("aborted read", [Append("a", 0, [1], 1, 2, FAIL), read("r", 0, [1], 3, 4)]),
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD.keys())
def test_a_history_that_a_log_can_have_is_without_anomalies(history: list[Operation]) -> None:
    assert check(history) == []


@pytest.mark.parametrize(("kind", "history"), BAD.values(), ids=BAD.keys())
def test_a_history_that_no_log_can_have_is_found_and_named(kind: str, history: list[Operation]) -> None:
    found = check(history)
    assert kind in {anomaly.kind for anomaly in found}, found
    assert check(list(reversed(history))) != []  # the order in which processes hand in their operations says nothing


def test_an_operation_that_never_ended_ends_after_all_others() -> None:
    assert died("a", [1], 1).completed == NEVER
    assert check([died("a", [1], 1), appended("b", [2], 0, 5, 6), read("r", 0, [2, 1], 7, 8)]) == []


def test_three_writers_and_two_readers_that_die_and_pause_make_a_history_that_a_log_can_have() -> None:
    done = traffic.run(new_seed(), rounds=ROUNDS)
    assert done["rounds"] == ROUNDS
    assert done["acknowledged"] > 20 * ROUNDS
    assert done["read"] > 100 * ROUNDS
