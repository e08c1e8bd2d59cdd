"""Calls of a transaction that fail, are interrupted or come from several threads, and what they leave to the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import pylog
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.incarnation import Incarnation
from support.transactional import committed, count_open, new_store


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs) as made:
        yield made


def commit_of(store: Store, transactional_id: str, value: bytes) -> None:
    with store.transaction(transactional_id) as transaction:
        transaction.append("out", value, partition=0)
        transaction.flush()  # more may follow, so it is prepared and gets a marker


def test_a_block_whose_commit_fails_aborts_and_the_id_can_be_used_again(store: Store) -> None:
    store.create_topic("compacted", cleanup_policy="compact")
    transaction = store.transaction("billing")

    def work() -> None:
        with transaction:
            transaction.append("out", b"never seen", partition=0)
            transaction.flush()
            transaction.append("compacted", b"no key")

    with pytest.raises(pylog.InvalidRecordError, match="has no key"):
        work()
    assert transaction.outcome == "aborted"
    assert count_open(store, "out") == 0
    commit_of(store, "billing", b"next")
    assert committed(store, "out") == [b"next"]


@pytest.mark.parametrize("decided", [False, True], ids=["before the decision", "after it"])
@pytest.mark.parametrize("in_block", [False, True], ids=["a call", "the end of a block"])
def test_an_interrupted_commit_leaves_an_outcome_that_can_be_asked_for_and_no_id_that_is_stuck(
    store: Store, monkeypatch: pytest.MonkeyPatch, decided: bool, in_block: bool
) -> None:
    transaction = store.transaction("billing")
    transaction.append("out", b"interrupted", partition=0)
    transaction.flush()
    decide = TransactionCoordinator.prepare_commit

    def interrupted(*given: Any) -> None:
        if decided:
            decide(*given)
        raise KeyboardInterrupt

    def block() -> None:
        with transaction:
            pass

    monkeypatch.setattr(TransactionCoordinator, "prepare_commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        block() if in_block else transaction.commit()
    monkeypatch.undo()
    assert transaction.outcome == ("committed" if decided else "aborted" if in_block else "open")
    if decided:
        with pytest.raises(pylog.InvalidTransactionStateError, match="its outcome is 'committed'"):
            transaction.abort()
    else:
        transaction.abort()
        assert transaction.outcome == "aborted"
    commit_of(store, "billing", b"next")
    assert committed(store, "out") == ([b"interrupted", b"next"] if decided else [b"next"])


@pytest.mark.parametrize("written", [False, True], ids=["before the write", "after it"])
def test_an_interrupted_transaction_that_is_one_append_stays_unknown_and_is_there_whole_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """It has no record of a decision that could be asked. A retry could write it twice, so it cannot be called aborted."""
    transaction = store.transaction()
    transaction.append_many("out", [b"first", b"second"], partition=0)
    append = Incarnation.append_alone

    def interrupted(*given: Any) -> None:
        if written:
            append(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(Incarnation, "append_alone", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    monkeypatch.undo()
    assert transaction.outcome == "unknown"
    for call in (transaction.commit, transaction.abort):
        with pytest.raises(pylog.InvalidTransactionStateError, match="its outcome is 'unknown'"):
            call()
    with store.transaction() as following:
        following.append("out", b"next", partition=0)
    assert committed(store, "out") == sorted([*([b"first", b"second"] if written else []), b"next"])


def test_an_abort_that_comes_too_late_does_not_call_a_committed_transaction_aborted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = store.transaction("billing")
    transaction.append("out", b"decided", partition=0)
    transaction.flush()
    decide = TransactionCoordinator.prepare_commit

    def answered_with_an_error(*given: Any) -> None:
        decide(*given)
        raise pylog.StoreLockedError("after the record was written")

    monkeypatch.setattr(TransactionCoordinator, "prepare_commit", answered_with_an_error)
    with pytest.raises(pylog.StoreLockedError):
        transaction.commit()
    monkeypatch.undo()
    with pytest.raises(pylog.InvalidTransactionStateError):
        transaction.abort()
    assert transaction.outcome == "committed"
    store.tick()
    assert committed(store, "out") == [b"decided"]


def test_threads_that_hand_an_id_over_at_the_decision_never_begin_with_numbers_that_are_used_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second thread begins and commits while the first one is about to return from its commit."""
    write = TransactionCoordinator.write_markers

    def overtaken(*given: Any) -> Any:
        state = write(*given)
        monkeypatch.setattr(TransactionCoordinator, "write_markers", write)
        commit_of(store, "billing", b"second")
        return state

    monkeypatch.setattr(TransactionCoordinator, "write_markers", overtaken)
    for value in (b"first", b"third"):
        commit_of(store, "billing", value)
    assert committed(store, "out") == [b"first", b"second", b"third"]


def test_a_record_that_another_thread_adds_during_a_flush_is_not_dropped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = store.transaction("billing")
    transaction.append("out", b"first", partition=0)
    adding = threading.Thread(target=transaction.append, args=("out", b"second"), kwargs={"partition": 0})
    write = Incarnation.at_once

    def beside(self: Incarnation, *arguments: Any) -> None:
        write(self, *arguments)
        if adding.ident is None:
            adding.start()
            adding.join(0.2)  # it would have added its record by now

    monkeypatch.setattr(Incarnation, "at_once", beside)
    transaction.flush()
    adding.join()
    transaction.commit()
    assert committed(store, "out") == [b"first", b"second"]


def test_of_a_commit_and_an_abort_at_the_same_time_the_first_one_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    transaction = store.transaction("billing")
    transaction.append("out", b"kept", partition=0)
    transaction.append("out", b"kept, too", partition=1)
    errors = list[pylog.PylogError]()

    def abort() -> None:
        try:
            transaction.abort()
        except pylog.PylogError as error:
            errors.append(error)

    aborting, write = threading.Thread(target=abort), Incarnation.at_once

    def beside(self: Incarnation, *arguments: Any) -> None:
        aborting.start()
        aborting.join(0.2)
        write(self, *arguments)

    monkeypatch.setattr(Incarnation, "at_once", beside)
    transaction.commit()
    aborting.join()
    assert transaction.outcome == "committed"
    assert [type(error) for error in errors] == [pylog.InvalidTransactionStateError]
    assert committed(store, "out") == [b"kept", b"kept, too"]
