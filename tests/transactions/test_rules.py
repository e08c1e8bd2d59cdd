"""The engine follows each rule of the protocol (transactions 4), also where it matters only in a race or after a power loss.

`support.campaign.transaction_rules.MUTANTS` has a mutant of pylog for each rule of the model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import pylog
from pylog.config import Durability
from pylog.log.arguments import rows_of
from pylog.log.partition_log import PartitionLog
from pylog.record.types import TransactionalBatch
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.records import partition_for
from support.campaign.transaction_rules import MUTANTS, RULES
from support.transactional import FEW, committed, coordinator_of, count_open, new_store, opened
from support.trust.mutants_transaction_rules import TRANSACTION_RULES
from support.trust.mutants_transactions import TRANSACTIONS

ID = "billing"
STATES = partition_for(ID, 2)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs, durability="sync") as made:
        yield made


def test_each_rule_of_the_model_has_a_mutant_of_the_engine() -> None:
    assert MUTANTS.keys() == RULES.keys()
    assert set(MUTANTS.values()) <= {mutant.name for mutant in (*TRANSACTIONS, *TRANSACTION_RULES)}


# ---- what is durable before what (rules 2, 5, 7, 11) -------------------------------------------------------------------------


def lag(store: Store, topic: str, partition: int) -> int:
    """Returns how many records of a partition a power loss could take."""
    state = manager_of(store).log(topic, partition).snapshot()
    return state.end_offset - state.durable_offset


def write(store: Store, value: bytes) -> None:
    with store.transaction(ID) as transaction:
        for partition in range(2):
            transaction.append("out", value, partition=partition)
        transaction.send_offsets("group", {("in", 0): 1})


def watched(store: Store, method: str, *, after: bool = False, of: Callable[[], int]) -> tuple[Any, list[int]]:
    """Returns a patch that notes a number before or after each call of a step of the protocol, and the numbers."""
    original, seen = getattr(TransactionCoordinator, method), list[int]()

    def step(self: TransactionCoordinator, *given: Any) -> Any:
        if not after:
            seen.append(of())
        result = original(self, *given)
        if after:
            seen.append(of())
        return result

    return patch.object(TransactionCoordinator, method, step), seen


def test_data_is_durable_before_the_decision(store: Store) -> None:
    write(store, b"first")
    watch, seen = watched(store, "prepare_commit", of=lambda: lag(store, "out", 0) + lag(store, "out", 1))
    with watch:
        write(store, b"second")
    assert seen == [0]


def test_the_decision_is_durable_when_it_is_made(store: Store) -> None:
    watch, seen = watched(store, "prepare_commit", after=True, of=lambda: lag(store, "__transaction_state", STATES))
    with watch:
        write(store, b"first")
    assert seen == [0]


def test_a_finisher_makes_the_decision_durable_before_it_writes_a_marker(fs: MemoryFileSystem, store: Store) -> None:
    decide = TransactionCoordinator.prepare_commit

    def undurable(self: TransactionCoordinator, *given: Any) -> Any:
        return decide(self, *given[:-1], Durability.OS)

    with (
        patch.object(TransactionCoordinator, "prepare_commit", undurable),
        patch.object(TransactionCoordinator, "write_markers", side_effect=pylog.StorageFailedError("stopped here", errno=5)),
    ):
        write(store, b"first")
    assert lag(store, "__transaction_state", STATES) == 1
    watch, seen = watched(store, "_write_marker", of=lambda: lag(store, "__transaction_state", STATES))
    with watch:
        assert coordinator_of(store).settle() == 1
    assert seen == [0] * 3
    assert committed(store, "out") == [b"first", b"first"]


def test_markers_are_durable_before_the_transaction_is_noted_as_complete(store: Store) -> None:
    made = coordinator_of(store).crew.results
    seen: list[int] = []

    def results(calls: Any, *, syncs: bool) -> Any:
        found = made(calls, syncs=syncs)
        seen.append(lag(store, "out", 0) + lag(store, "out", 1))
        return found

    write(store, b"first")
    with patch.object(coordinator_of(store).crew, "results", results):
        write(store, b"second")
    assert seen == [0, 0]  # after the data, and after the markers


def test_the_record_before_a_transaction_is_durable_before_its_first_batch(store: Store) -> None:
    write(store, b"first")
    assert lag(store, "__transaction_state", STATES) == 1, "the note that it is complete"
    watch, seen = watched(store, "append", of=lambda: lag(store, "__transaction_state", STATES))
    with watch:
        write(store, b"second")
    assert max(seen) <= 1, "the record that begins the transaction, at most"


def test_a_commit_returns_when_its_records_can_be_read(store: Store) -> None:
    write(store, b"first")
    assert committed(store, "out") == [b"first", b"first"]


# ---- an append looks at the state under its partition's lock (rules 1, 3, 9) ---------------------------------------------------


def test_a_partition_that_comes_later_is_registered_before_its_first_batch(store: Store) -> None:
    named: list[bool] = []
    append = TransactionCoordinator.append

    def looks(self: TransactionCoordinator, transactional_id: str, partition: pylog.TopicPartition, *given: Any) -> range:
        state = self.topic.state_of(transactional_id)
        named.append(state is not None and partition in state.partitions)
        return append(self, transactional_id, partition, *given)

    with patch.object(TransactionCoordinator, "append", looks), store.transaction(ID) as transaction:
        for partition in range(3):
            transaction.append("out", b"x", partition=partition)
            transaction.flush()
    assert named == [True] * 3


def test_an_append_that_a_newer_instance_overtakes_before_it_has_the_lock_is_refused(fs: MemoryFileSystem, store: Store) -> None:
    """The newer one has passed the partition by: nothing was open there."""
    newer = opened(fs)
    append, overtaken = PartitionLog.append, list[bool]()

    def overtake(self: PartitionLog, *given: Any, **options: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            coordinator_of(newer).init(ID, 1000)
        return append(self, *given, **options)

    older = store.transaction(ID)
    older.append("out", b"never seen", partition=0)
    with patch.object(PartitionLog, "append", overtake), pytest.raises(pylog.ProducerFencedError):
        older.flush()
    assert (store.log("out", 0).end_offset, count_open(store, "out")) == (0, 0)
    newer.close()


def test_a_newer_instance_waits_for_an_append_that_has_the_lock(tmp_path: Path) -> None:
    """Nothing is open in the partition yet, and the append has passed its check."""
    with pylog.open(tmp_path, durability="os", **FEW) as store, pylog.open(tmp_path, durability="os", **FEW) as newer:
        store.create_topic("out")
        with newer.transaction("warm") as warm:
            warm.append("out", b"warm")
        check_append = TransactionCoordinator.check_append
        threads: list[threading.Thread] = []

        def check(self: TransactionCoordinator, *given: Any) -> None:
            check_append(self, *given)
            threads.append(threading.Thread(target=coordinator_of(newer).init, args=(ID, 1000)))
            threads[-1].start()
            threads[-1].join(0.3)

        older = store.transaction(ID)
        older.append("out", b"aborted")
        with patch.object(TransactionCoordinator, "check_append", check):
            older.flush()
        threads[0].join(30)
        assert (count_open(store, "out"), committed(store, "out")) == (0, [b"warm"])
        with pytest.raises(pylog.PylogError):
            older.commit()


# ---- orphans (rules 4, 14) -----------------------------------------------------------------------------------------------------


def orphan_of(store: Store, value: bytes) -> None:
    """Appends a batch of an id's producer without its state, as a power loss may leave one."""
    mine = coordinator_of(store).init(ID, 1000)
    manager_of(store).log("out", 0).append(0, [rows_of([value], 0)], producer=TransactionalBatch(*mine, 0))


def test_an_append_aborts_an_orphan_of_its_own_producer_first(store: Store) -> None:
    orphan_of(store, b"orphan")
    with store.transaction(ID) as transaction:
        transaction.append("out", b"committed", partition=0)
    assert committed(store, "out") == [b"committed"]


def test_the_next_opening_aborts_an_orphan(fs: MemoryFileSystem, store: Store) -> None:
    orphan_of(store, b"orphan")
    store.log("out", 0).append(b"plain")
    store.close()
    with opened(fs) as other:
        assert (committed(other, "out"), count_open(other, "out")) == ([b"plain"], 0)


# ---- groups (rule 16) ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_member", [True, False])
def test_a_group_does_not_read_a_partition_while_an_offset_of_it_is_pending(store: Store, is_member: bool) -> None:
    transaction = store.transaction(ID)
    transaction.send_offsets("group", {("in", 0): 5})
    undecided = patch.object(TransactionCoordinator, "prepare_commit", side_effect=pylog.ClosedError("before the decision"))
    with undecided, pytest.raises(pylog.ClosedError):
        transaction.commit()
    assert store.offsets.pending("group") == {("in", 0)}
    topics = ["in"] if is_member else []
    with store.consumer(*topics, group_id="group", auto_offset_reset="earliest") as consumer:
        if not is_member:
            consumer.assign([pylog.TopicPartition("in", 0)])
        assert not any(consumer.poll(100) for _ in range(5))
        transaction.abort()
        found = [record.offset for _ in range(5) for records in consumer.poll(100).values() for record in records]
        assert found == list(range(10))
