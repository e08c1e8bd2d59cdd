"""A topic that is deleted, and created again, while transactions need it: the rest of them is finished (transactions 13.3)."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

import pylog
from pylog.cli.exits import FAILED
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from support.cli import call
from support.transactional import committed, coordinator_of, count_open, left_open, new_store, opened


def prepare(fs: MemoryFileSystem) -> MemoryFileSystem:
    """Decides a transaction over two topics, writes no marker, and lets the process die."""
    with opened(fs) as store:
        store.create_topic("gone")
    process = fs.process()
    store = opened(process)
    dies = patch.object(TransactionCoordinator, "write_markers", side_effect=pylog.PylogError("the process dies here"))
    with dies, store.transaction("billing") as transaction:
        transaction.append("gone", b"x")
        transaction.append("out", b"kept", partition=0)
    process.kill()
    return fs.process()


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    new_store(made).close()
    return made


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_is_deleted_by_another_process_before_a_decided_transaction_is_finished(
    fs: MemoryFileSystem, is_made_again: bool
) -> None:
    """The finisher is between reading the decision and writing the markers when the topic goes."""
    after = prepare(fs)
    write = TransactionCoordinator.write_markers
    seen: list[int] = []

    def deleting(self: TransactionCoordinator, prepared: object) -> object:
        if not seen:
            seen.append(1)
            with patch.object(TransactionCoordinator, "settle", return_value=0):
                other = opened(after.process())
                other._clients._manager.delete_topic("gone")
                if is_made_again:
                    other.create_topic("gone")
                    other.log("gone").append(b"new")
                other.close()
        return write(self, prepared)  # type: ignore[arg-type]

    with patch.object(TransactionCoordinator, "write_markers", deleting), opened(after) as store:
        assert seen
        assert committed(store, "out") == [b"kept"]
        assert count_open(store, "out") == 0
        assert coordinator_of(store).undecided() == []
        if is_made_again:
            assert [record.value for record in store.log("gone").records()] == [b"new"]
        with store.transaction("billing") as transaction:
            transaction.append("out", b"next", partition=0)
        assert committed(store, "out") == [b"kept", b"next"]
        assert store.check().ok


def test_a_decided_transaction_of_a_dead_process_is_finished_before_its_topic_is_deleted(fs: MemoryFileSystem) -> None:
    with opened(prepare(fs)) as store:
        store.delete_topic("gone")
        assert committed(store, "out") == [b"kept"]
        assert coordinator_of(store).undecided() == []


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_an_internal_topic_is_deleted_once_every_id_is_at_rest(fs: MemoryFileSystem, topic: str) -> None:
    with opened(prepare(fs)) as store:
        store.offsets.commit("group", {("in", 0): 1})
        store.delete_topic(topic)
        with store.transaction("billing") as transaction:
            transaction.append("out", b"next", partition=0)
        assert committed(store, "out") == [b"kept", b"next"]


def test_the_command_refuses_a_topic_of_a_living_transaction_names_its_id_and_deletes_the_others(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with pylog.open(root) as store:
        store.create_topic("orders")
        store.create_topic("other")
        with store.transaction("billing") as transaction:
            transaction.append("orders", b"kept")
            transaction.flush()
            done = call("delete", root, "orders", "other", "--yes")
            assert done.code == FAILED
            assert "the transaction of 'billing' needs it" in done.complaints
            assert "other" not in store.topics()
        assert committed(store, "orders") == [b"kept"]
    assert call("delete", root, "orders", "--yes").code == 0


def test_the_command_deletes_it_with_force(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with pylog.open(root) as store:
        store.create_topic("orders")
        transaction = store.transaction("billing")
        transaction.append("orders", b"gone")
        transaction.flush()
        assert call("delete", root, "orders", "--force", "--yes").code == 0
        assert "orders" not in store.topics()
        with pytest.raises(pylog.TransactionAbortedError):
            transaction.commit()


def test_the_command_deletes_a_topic_of_a_dead_process_s_transaction(tmp_path: Path) -> None:
    root = tmp_path / "data"
    left_open(root)
    assert call("delete", root, "orders", "--yes").code == 0
    with pylog.open(root) as store:
        assert "orders" not in store.topics()
        assert coordinator_of(store).undecided() == []
