"""A partition of transactional ids with an undecided transaction is never taken for one at rest, whatever its files hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import pylog
from pylog.config import Durability
from pylog.fs import OsFileSystem
from pylog.log_manager import LogManager
from pylog.store import Store, manager_of
from pylog.testing import FAULTS, FaultyFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.records import format_key
from pylog.transactions.resting import RestingPartitions
from support.transactional import FEW_TRANSACTIONS, committed, coordinator_of

STATES = "__transaction_state-0"


def opened(path: Path) -> Store:
    return pylog.open(path, transactions=FEW_TRANSACTIONS, durability=Durability.OS)


def used(path: Path, *names: str) -> None:
    """Makes a store in which each of some ids has committed a transaction."""
    with opened(path) as store:
        store.create_topic("out")
        for name in names:
            with store.transaction(name) as transaction:
                transaction.append("out", name.encode())


def rests(path: Path) -> bool:
    return RestingPartitions(OsFileSystem()).has(str(path / STATES))


# ---- what is at rest ---------------------------------------------------------------------------------------------------------


def test_a_store_whose_transactions_have_all_ended_is_opened_without_its_states(tmp_path: Path) -> None:
    used(tmp_path, "billing", "shipping")
    asked: list[str] = []
    log: Callable[..., Any] = LogManager.log

    def noted(self: LogManager, topic: str, partition: int = 0) -> Any:
        asked.append(topic)
        return log(self, topic, partition)

    with patch.object(LogManager, "log", noted), opened(tmp_path) as store:
        assert asked == []
        store._clients.settle()
        assert asked == []
        with store.transaction("billing") as transaction:
            transaction.append("out", b"again")
        assert "__transaction_state" in asked
        assert committed(store, "out") == [b"again", b"billing", b"shipping"]


def test_a_partition_without_a_record_is_at_rest(tmp_path: Path) -> None:
    with pylog.open(tmp_path, transactions=pylog.TransactionsConfig(topic_num_partitions=2)) as store:
        store.create_topic("out")
        with store.transaction("billing") as transaction:
            transaction.append("out", b"x")
        unwritten = [number for number in (0, 1) if not store.log("__transaction_state", number).end_offset]
    assert [RestingPartitions(OsFileSystem()).has(str(tmp_path / f"__transaction_state-{each}")) for each in unwritten] == [True]


def test_an_id_that_has_expired_is_at_rest(tmp_path: Path) -> None:
    used(tmp_path, "billing")
    with opened(tmp_path) as store:
        coordinator_of(store).topic.partition(0).append([(format_key("billing"), None)], None, Durability.OS)
    assert rests(tmp_path)


def test_aborted_transactions_are_at_rest(tmp_path: Path) -> None:
    used(tmp_path, "billing")
    with opened(tmp_path) as store:
        transaction = store.transaction("billing")
        transaction.append("out", b"x")
        transaction.flush()
        transaction.abort()
    assert rests(tmp_path)


# ---- what is not -------------------------------------------------------------------------------------------------------------


def leave_open(store: Store) -> None:
    transaction = store.transaction("shipping")
    transaction.append("out", b"x")
    transaction.flush()
    _alive.append(transaction)


def leave_prepared(store: Store) -> None:
    with patch.object(TransactionCoordinator, "write_markers", side_effect=pylog.PylogError("no marker")):
        transaction = store.transaction("shipping")
        transaction.append("out", b"x")
        transaction.flush()
        transaction.commit()


_alive: list[pylog.Transaction] = []


@pytest.mark.parametrize("leave", [leave_open, leave_prepared])
def test_a_partition_with_an_undecided_id_is_not_at_rest(tmp_path: Path, leave: Callable[[Store], None]) -> None:
    used(tmp_path, "billing", "shipping")
    seen = RestingPartitions(OsFileSystem())
    assert seen.has(str(tmp_path / STATES))
    with opened(tmp_path) as store:
        leave(store)
        assert not rests(tmp_path)
        assert not seen.has(str(tmp_path / STATES))
        assert len(coordinator_of(store).undecided()) == 1


def test_a_value_that_cannot_be_read_is_not_at_rest(tmp_path: Path) -> None:
    used(tmp_path, "billing")
    with opened(tmp_path) as store:
        coordinator_of(store).topic.partition(0).append([(format_key("later"), b"\0\x63?")], None, Durability.OS)
    assert not rests(tmp_path)


def test_a_batch_of_several_records_is_left_to_the_decoder(tmp_path: Path) -> None:
    used(tmp_path, "billing")
    with opened(tmp_path) as store:
        gone = [(format_key(name), None) for name in ("a", "b")]
        coordinator_of(store).topic.partition(0).append(gone, None, Durability.OS)
    assert not rests(tmp_path)


@pytest.fixture
def undecided(tmp_path: Path) -> Path:
    """A store whose last record of an id says that its transaction is open. Its process is dead."""
    used(tmp_path / "data", "billing")
    store = opened(tmp_path / "data")
    leave_open(store)
    states = manager_of(store).log("__transaction_state", 0)
    kept = {name: (Path(states.directory) / name).read_bytes() for name in (f"{0:020}.log", "durable-point")}
    store.close()
    directory = tmp_path / "data" / STATES
    for name, data in kept.items():
        with (directory / name).open("r+b") as file:  # the header names the file by its inode
            file.truncate()
            file.write(data)
    return tmp_path / "data"


@pytest.mark.slow
def test_no_changed_byte_and_no_cut_makes_an_open_transaction_seem_ended(undecided: Path) -> None:
    log = undecided / STATES / f"{0:020}.log"
    whole = log.read_bytes()
    assert not rests(undecided)
    for at, change in itertools.product(range(len(whole)), (1, 0x80)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
        assert not rests(undecided), f"with byte {at} changed"
    for size in range(len(whole)):
        log.write_bytes(whole[:size])
        assert not rests(undecided), f"cut to {size} bytes"


@pytest.mark.parametrize("fault", [name for name, kind in FAULTS.items() if kind.call in ("read", "open", "stat")])
def test_a_partition_that_cannot_be_read_is_not_at_rest(tmp_path: Path, fault: str) -> None:
    used(tmp_path, "billing")
    for number in itertools.count(1):
        fs = FaultyFileSystem(OsFileSystem())
        fs.fail(fault, number)
        found = RestingPartitions(fs).has(str(tmp_path / STATES))
        assert found == (not fs.fired)
        if not fs.fired:
            assert number > 1
            return
