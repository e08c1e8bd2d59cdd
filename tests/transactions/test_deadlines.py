"""An open transaction is aborted by others when its owner is dead, or has had its time as an observer counts it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pylog import Durability, TopicPartition, TransactionAbortedError
from pylog.testing import MemoryFileSystem
from pylog.transactions.deadlines import TransactionDeadlines, opened_at, why_due
from pylog.transactions.metadata import TransactionMetadata, TransactionOwner, TransactionState
from support.transactional import committed, coordinator_of, new_store, opened

NOW = 1_700_000_000_000
OWNER = TransactionOwner.of(1 << 42, Durability.SYNC)
OPEN = TransactionMetadata("a", 1 << 48, 3, 10_000, TransactionState.ONGOING, (TopicPartition("t", 0),), NOW, NOW, owner=OWNER)


def test_an_observer_adds_up_how_long_the_same_transaction_is_open() -> None:
    deadlines = TransactionDeadlines(3)
    assert [bool(deadlines.overdue([OPEN], second)) for second in (100, 103, 106, 109, 110, 111)] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("change", [{"producer_epoch": 4}, {"producer_id": 7}, {"start_timestamp_ms": NOW + 1}], ids=str)
def test_the_next_transaction_of_an_id_has_its_own_time(change: dict[str, int]) -> None:
    deadlines = TransactionDeadlines(3)
    for second in (0, 5, 9):
        deadlines.overdue([OPEN], second)
    other = replace(OPEN, **change)  # type: ignore[arg-type]
    assert not deadlines.overdue([other], 14)
    assert not deadlines.overdue([other], 19)
    assert deadlines.overdue([other], 24) == {opened_at(other)}


def test_a_transaction_that_was_at_rest_between_two_looks_has_its_own_time() -> None:
    deadlines = TransactionDeadlines(3)
    for second in (0, 5, 9):
        deadlines.overdue([OPEN], second)
    assert not deadlines.overdue([replace(OPEN, state=TransactionState.COMPLETE_COMMIT)], 14)
    assert not deadlines.overdue([OPEN], 15)


def test_an_observer_that_was_suspended_or_whose_clock_jumps_aborts_nothing() -> None:
    deadlines = TransactionDeadlines(3)
    assert not deadlines.overdue([OPEN], 0)
    assert not deadlines.overdue([OPEN], 1_000_000)  # counts six seconds
    assert not deadlines.overdue([OPEN], 5)  # back: counts none
    assert not deadlines.overdue([OPEN], 8)
    assert deadlines.overdue([OPEN], 9) == {opened_at(OPEN)}


def test_a_transaction_without_time_is_due_at_the_second_look() -> None:
    deadlines = TransactionDeadlines(3)
    brief = replace(OPEN, timeout_ms=0)
    assert not deadlines.overdue([brief], 0)
    assert deadlines.overdue([brief], 0) == {opened_at(brief)}


def test_a_transaction_is_due_for_one_reason() -> None:
    late = NOW + 10**9
    assert why_due(OPEN, owner_lives=True, is_overdue=False, now_ms=late) is None
    assert why_due(OPEN, owner_lives=False, is_overdue=False, now_ms=NOW - 5) == "its process has ended"
    assert why_due(OPEN, owner_lives=True, is_overdue=True, now_ms=NOW) == "it has been open for timeout_ms=10000"
    brokers = replace(OPEN, owner=None)
    assert why_due(brokers, owner_lives=False, is_overdue=True, now_ms=NOW + 10_000) is None
    assert why_due(brokers, owner_lives=False, is_overdue=False, now_ms=NOW + 10_001) is not None
    for state in set(TransactionState) - {TransactionState.ONGOING}:
        assert why_due(replace(OPEN, state=state), owner_lives=False, is_overdue=True, now_ms=late) is None


def test_the_time_that_a_transaction_has_used_up_never_aborts_the_next_one_of_its_id() -> None:
    """The owner commits and begins the next transaction between another process's two looks: at the time, and at the state."""
    fs = MemoryFileSystem()
    with new_store(fs) as store, opened(fs) as other:
        first = store.transaction("billing", timeout_ms=1000)
        first.append("out", b"first", partition=0)
        first.flush()
        other.tick()
        fs.clock.advance(3000)
        other.tick()  # aborts the first one, and has its time in memory
        with pytest.raises(TransactionAbortedError):
            first.commit()
        first.abort()
        second = store.transaction("billing")
        second.append("out", b"second", partition=0)
        second.flush()
        coordinator_of(other).finish("billing", abort=False)
        second.commit()
        assert committed(store, "out") == [b"second"]
