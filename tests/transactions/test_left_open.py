"""Transactions that their own store leaves open: closed, dropped, timed out, or given up in an abort that fails."""

from __future__ import annotations

import gc
import logging

import pytest

import pylog
from pylog import errors
from pylog.testing import MemoryFileSystem
from support.transactional import committed, count_open, new_store, opened


@pytest.mark.pair("close", "aborted transactions")
@pytest.mark.parametrize("transactional_id", ["billing", None])
def test_closing_a_store_aborts_the_transactions_that_it_has_open(transactional_id: str | None) -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    other = opened(fs)
    transaction = store.transaction(transactional_id)
    transaction.append("out", b"never seen", partition=0)
    transaction.flush()
    store.close()
    assert other.log("out").stable_offset == other.log("out").end_offset == 2  # the record, and its marker
    assert committed(other, "out") == []
    with pytest.raises(errors.ClosedError):
        transaction.commit()
    other.close()


def test_a_tick_aborts_a_transaction_whose_object_was_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pylog.transactions")
    with new_store(MemoryFileSystem()) as store:
        transaction = store.transaction("billing")
        transaction.append("out", b"never seen", partition=0)
        transaction.flush()
        store.tick()
        assert count_open(store, "out") == 1
        del transaction
        gc.collect()
        store.tick()
        assert count_open(store, "out") == 0
        assert "its object was dropped" in caplog.text
        with store.transaction("billing") as following:
            following.append("out", b"seen", partition=0)
        assert committed(store, "out") == [b"seen"]


@pytest.mark.parametrize("call", ["append", "flush", "commit", "send_offsets"])
def test_the_owner_s_next_call_after_the_timeout_aborts(call: str) -> None:
    fs = MemoryFileSystem()
    with new_store(fs) as store:
        transaction = store.transaction("billing", timeout_ms=1000)
        fs.clock.advance(5000)  # nothing is written yet, so nothing is open
        transaction.append("out", b"never seen", partition=0)
        transaction.flush()
        fs.clock.advance(1001)
        arguments = {"append": ("out", b"x"), "send_offsets": ("g", {("out", 0): 0})}.get(call, ())
        with pytest.raises(errors.TransactionAbortedError, match="longer than its timeout"):
            getattr(transaction, call)(*arguments)
        assert transaction.outcome == "aborted"
        assert count_open(store, "out") == 0
        transaction.abort()
        with store.transaction("billing") as following:
            following.append("out", b"seen", partition=0)
        assert committed(store, "out") == [b"seen"]


def test_a_producer_s_commit_after_the_timeout_raises_and_the_next_transaction_is_committed() -> None:
    fs = MemoryFileSystem()
    with new_store(fs) as store, store.producer(transactional_id="billing", transaction_timeout_ms=1000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"never seen", partition=0)
        producer.flush()
        fs.clock.advance(1001)
        with pytest.raises(errors.TransactionAbortedError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("out", b"seen", partition=0)
        producer.commit_transaction()
        assert committed(store, "out") == [b"seen"]


def test_an_abort_that_fails_says_that_the_transaction_is_open_and_can_be_called_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with new_store(MemoryFileSystem()) as store:
        transaction = store.transaction("billing")
        transaction.append("out", b"never seen", partition=0)
        transaction.flush()
        for error in (errors.StorageFailedError("the disk is full"), KeyboardInterrupt()):
            with monkeypatch.context() as patch:
                patch.setattr("pylog.transactions.states.prepare_abort", _raising(error))
                with pytest.raises(type(error)):
                    transaction.abort()
            assert transaction.outcome == "open"
            with pytest.raises(errors.InvalidTransactionStateError, match="abort it again"):
                transaction.commit()
        transaction.abort()
        assert transaction.outcome == "aborted"
        assert count_open(store, "out") == 0


def test_after_an_abort_that_fails_the_next_transaction_of_the_id_aborts_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with new_store(MemoryFileSystem()) as store:
        transaction = store.transaction("billing")
        transaction.append("out", b"never seen", partition=0)
        transaction.flush()
        with monkeypatch.context() as patch:
            patch.setattr("pylog.transactions.states.prepare_abort", _raising(errors.StorageFailedError("the disk is full")))
            with pytest.raises(errors.StorageFailedError):
                transaction.abort()
        with store.transaction("billing") as following:
            following.append("out", b"seen", partition=0)
        assert committed(store, "out") == [b"seen"]
        assert transaction.outcome in ("aborted", "unknown")


def _raising(error: BaseException) -> object:
    def call(*_: object) -> None:
        raise error

    return call


@pytest.mark.parametrize("wrong", ["pylog-anonymous-0", "pylog-anonymous-17"])
def test_ids_that_pylog_gives_itself_are_refused(wrong: str) -> None:
    with new_store(MemoryFileSystem()) as store:
        with pytest.raises(errors.InvalidArgumentError, match="pylog gives itself"):
            store.transaction(wrong)
        with pytest.raises(errors.InvalidArgumentError, match="pylog gives itself"):
            store.producer(transactional_id=wrong)
        with store.transaction("pylog-anonymous-billing") as transaction:
            transaction.append("out", b"seen")
        assert isinstance(transaction, pylog.Transaction)
