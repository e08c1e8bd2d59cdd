"""The checker of histories of transactions finds each kind of anomaly that is planted, and none in a sound history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from support.campaign.transaction_history import Cut, Loss, Operation, Read, Stable, Transaction, check, interleaved

# Two committed transactions and one that was aborted; partition 0 has 10, 20, 30, 11 and markers, partition 1 has 12, 21.
FIRST: Final = Transaction(
    "one", "a", 1, {0: [10, 11], 1: [12]}, 0, 50, 60, True, True, {0: [0, 3], 1: [0]}, {0: 10, 1: 20}, [(0, 1, 20, 40)]
)
SECOND: Final = Transaction("two", "b", 2, {0: [20], 1: [21]}, 0, 30, 35, True, True, {0: [1], 1: [1]}, {0: 15, 1: 16})
ABORTED: Final = Transaction("three", "c", 3, {0: [30]}, 0, 61, 62, False, True, {0: [2]}, {0: 12})
LATER: Final = Transaction("one", "a", 4, {0: [40]}, 70, 75, 80, True, True, {0: [7]})
READ: Final = Read("reader", 0, 0, [(0, 10), (1, 20), (3, 11)], 65, 66)
DIRTY: Final = Read("reader", 0, 0, [(0, 10), (1, 20), (2, 30), (3, 11)], 65, 66, False)
CUT: Final = Cut("snapshot", {0: 0, 1: 0}, {0: [(0, 10), (1, 20), (3, 11)], 1: [(0, 12), (1, 21)]}, {"a": 1, "b": 2}, 67, 68)
STABLE: Final = Stable("reader", 0, 0, 25, 28)
LAST: Final = CUT._replace(
    records={**CUT.records, 0: [*CUT.records[0], (7, 40)]}, groups={"a": 4, "b": 2}, invoked=90, completed=91
)
PAIR: Final = Transaction("one", "a", 9, {0: [70, 71]}, 0, 1, 2, True, offsets={0: [0, 1]})
SOUND: Final[tuple[Operation, ...]] = (FIRST, SECOND, ABORTED, LATER, READ, DIRTY, CUT, STABLE, LAST)


def test_a_sound_history_has_no_anomaly() -> None:
    assert check(SOUND) == []
    assert interleaved(SOUND) == 0


def test_transactions_that_interleave_are_counted() -> None:
    other = replace(SECOND, offsets={0: [1], 1: [5]})
    assert interleaved([replace(FIRST, offsets={0: [2, 3], 1: [0]}), replace(other, offsets={0: [1], 1: [1]})]) == 1


def test_a_read_may_end_within_a_transaction_where_another_one_is_open() -> None:
    assert check([replace(PAIR, offsets={0: [0, 2]}), Read("reader", 0, 0, [(0, 70)], 65, 66)]) == []


def changed(old: Operation, new: Operation) -> list[Operation]:
    """The sound history with another operation in place of one."""
    return [new if each is old else each for each in SOUND]


def cut_with(partition: int, *records: tuple[int, int]) -> Cut:
    return LAST._replace(records={**LAST.records, partition: list(records)})


PLANTED: Final[dict[str, list[list[Operation]]]] = {
    "phantom": [[*SOUND, READ._replace(records=[*READ.records, (5, 99)])]],
    "duplicate": [
        [*SOUND, READ._replace(records=[*READ.records, (5, 20)])],
        [*SOUND, READ._replace(partition=1, records=[(0, 12), (5, 10)])],
    ],
    "inconsistent offset": [[*SOUND, DIRTY._replace(records=[(2, 40)])]],
    "dirty read": [[*SOUND, READ._replace(completed=45, invoked=44)]],
    "aborted read": [
        [*SOUND, READ._replace(records=DIRTY.records)],
        changed(FIRST, replace(FIRST, polled=[(0, 2, 30, 64)])),
        changed(CUT, CUT._replace(records={**CUT.records, 0: DIRTY.records})),
    ],
    "intermediate read": [
        [*SOUND, READ._replace(records=READ.records[1:])],
        [PAIR, Read("reader", 0, 0, [(0, 70)], 65, 66)],
    ],
    "skipped record": [[*SOUND, READ._replace(records=[(0, 10), (3, 11)])]],
    "non-monotone read": [
        [*SOUND, READ._replace(records=[(1, 20), (0, 10), (3, 11)])],
        [*SOUND, READ._replace(start=1)],
    ],
    "circular read": [changed(SECOND, replace(SECOND, polled=[(0, 0, 10, 70)]))],
    "partial snapshot": [[*SOUND, cut_with(1, (1, 21))], [*SOUND, cut_with(0, (1, 20), (3, 11), (7, 40))]],
    "stale snapshot": [[*SOUND, LAST._replace(records={**LAST.records, 0: READ.records}, groups=CUT.groups)]],
    "lost write": [changed(LAST, cut_with(0, *READ.records)), changed(LAST, cut_with(1, (0, 12)))],
    "offset without output": [
        [*SOUND, CUT._replace(groups={**CUT.groups, "c": 3})],
        [*SOUND, CUT._replace(groups={**CUT.groups, "a": 4})],
    ],
    "output without offset": [[*SOUND, CUT._replace(groups={"a": 1})], [*SOUND, LAST._replace(groups={"a": 1, "b": 2})]],
    "lost offset": [
        [*SOUND, replace(LATER, values={}, offsets={}, number=5, invoked=81, deciding=82, completed=83, process="one")]
    ],
    "fenced write": [
        [
            *SOUND,
            replace(LATER, number=0, transactional_id="b", values={0: [50]}, offsets={0: [9]}),
            *[Read("reader", 0, 9, [(9, 50)], 95, 96)],
        ]
    ],
    "unstable offset": [
        [*SOUND, STABLE._replace(offset=4)],
        [*SOUND, STABLE._replace(offset=3, invoked=42, completed=43)],
    ],
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_anomaly_is_found(kind: str) -> None:
    for history in PLANTED[kind]:
        assert kind in {anomaly.kind for anomaly in check(history)}, history[-1]


def test_the_documented_kinds_are_those_that_are_planted() -> None:
    documented = check.__doc__ or ""
    assert [kind for kind in PLANTED if f"`{kind}`" not in documented] == []
    assert documented.count("`") == 2 * len(PLANTED)


EXCUSED: Final[dict[str, tuple[Callable[[], list[Operation]], Loss]]] = {
    "deleted": (lambda: [READ._replace(start=3, records=READ.records[2:]), cut_with(0, (3, 11), (7, 40))], Loss(0, below=3)),
    "truncated": (lambda: [cut_with(0, (0, 10), (1, 20), (3, 11))._replace(groups={"a": 4, "b": 2})], Loss(0, start=4)),
}


@pytest.mark.parametrize("case", EXCUSED)
def test_what_was_deleted_may_be_missing(case: str) -> None:
    made, loss = EXCUSED[case]
    rest = [each for each in SOUND if each is not LAST]
    history = [*rest, *made(), loss]
    assert check(history) == []
    assert check(history[:-1]) != []


def test_a_transaction_whose_process_died_in_its_commit_may_be_there_or_not() -> None:
    unknown = replace(LATER, is_committed=None)
    for groups, cut in (({"a": 4, "b": 2}, LAST), ({"a": 1, "b": 2}, cut_with(0, *READ.records))):
        history = [unknown if each is LATER else each for each in changed(LAST, cut._replace(groups=groups))]
        assert check(history) == []
