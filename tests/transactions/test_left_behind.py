"""Transactions of a dead process that cannot be finished at once: nothing is guessed, and all other work goes on."""

from __future__ import annotations

import pytest

import pylog
from pylog.config import Durability
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.records import format_key
from support.transactional import committed, coordinator_of, count_open, new_store, opened

ONE = {"transactions": pylog.TransactionsConfig(topic_num_partitions=1)}
STATES = "/data/__transaction_state-0/00000000000000000000.log"


def flip(fs: MemoryFileSystem, path: str, position: int) -> None:
    file = fs.open(path, write=True)
    file.write(memoryview(bytes([file.read(1, position)[0] ^ 255])), position)
    file.close()


def after_a_kill(fs: MemoryFileSystem) -> MemoryFileSystem:
    """Kills the process, and returns the files as the next one sees them."""
    fs.kill()
    return fs.process()


def left_open(store: Store) -> None:
    """Leaves an open transaction in one partition."""
    transaction = store.transaction("billing")
    transaction.append("out", b"never seen", partition=0)
    transaction.flush()


def test_a_log_can_be_opened_while_the_states_of_transactions_are_damaged() -> None:
    fs = MemoryFileSystem()
    left_open(new_store(fs, **ONE))
    fs = after_a_kill(fs)
    flip(fs, STATES, 100)
    with opened(fs, **ONE) as store:
        assert store.log("out").append(b"plain") == 1
        store.tick()
        assert count_open(store, "out") == 1
    flip(fs, STATES, 100)
    with opened(fs, **ONE) as store:
        assert count_open(store, "out") == 0
        assert committed(store, "out") == [b"plain"]


def test_what_could_not_be_finished_when_a_log_was_opened_is_finished_by_the_next_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan: its id has no record any more."""

    def full(*given: object) -> None:
        raise pylog.StorageFailedError("no room", errno=28)

    fs = MemoryFileSystem()
    store = new_store(fs, **ONE)
    left_open(store)
    coordinator_of(store).topic.partition(0).append([(format_key("billing"), None)], None, Durability.SYNC)
    fs = after_a_kill(fs)
    with opened(fs, **ONE) as store:
        monkeypatch.setattr(TransactionCoordinator, "_append_marker", full)
        assert count_open(store, "out") == 1
        monkeypatch.undo()
        store.tick()
        assert count_open(store, "out") == 0


def test_an_open_transaction_is_never_aborted_while_the_state_of_an_id_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id's last record is a later version's. It may say that the transaction was committed, as it does here."""

    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    fs = MemoryFileSystem()
    store = new_store(fs, **ONE)
    transaction = store.transaction("billing")
    transaction.append("out", b"decided", partition=0)
    transaction.flush()
    monkeypatch.setattr(TransactionCoordinator, "write_markers", stopped)
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    monkeypatch.undo()
    states = coordinator_of(store).topic.partition(0)
    decision = store.log("__transaction_state").read(states.end_offset - 1).value
    states.append([(format_key("billing"), b"\x00\x63of a later version")], None, Durability.SYNC)
    fs = after_a_kill(fs)
    with opened(fs, **ONE) as store:
        assert count_open(store, "out") == 1
        states = coordinator_of(store).topic.partition(0)
        states.append([(format_key("billing"), decision)], None, Durability.SYNC)
        store.tick()
        assert committed(store, "out") == [b"decided"]
