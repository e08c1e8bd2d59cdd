"""Ids whose records in `__transaction_state` are older than the logs, or are missing: a restored backup, a repair, an expiry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pylog
from pylog.config import Durability
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from pylog.transactions.records import format_key
from support.transactional import committed, coordinator_of, count_open, new_store, opened

ONE = {"transactions": pylog.TransactionsConfig(topic_num_partitions=1)}


def write(store: Store, value: bytes) -> None:
    with store.transaction("billing") as transaction:
        transaction.append("out", value, partition=0)


def last_state(store: Store) -> bytes | None:
    states = coordinator_of(store).topic.partition(0)
    return store.log("__transaction_state").read(states.end_offset - 1).value


def put_back(store: Store, value: bytes | None) -> None:
    """Makes a former record of the id the last one, as a restored backup does."""
    coordinator_of(store).topic.partition(0).append([(format_key("billing"), value)], None, Durability.SYNC)


def reopened(fs: MemoryFileSystem, store: Store) -> Store:
    store.close()
    return opened(fs, **ONE)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_an_id_whose_states_were_restored_from_a_backup_goes_on_after_one_refused_transaction(count: int) -> None:
    fs = MemoryFileSystem()
    store = new_store(fs, **ONE)
    write(store, b"before")
    backup = last_state(store)
    for number in range(count):
        write(store, b"%d" % number)
    put_back(store, backup)
    store = reopened(fs, store)
    refused = 0
    for _ in range(2):
        try:
            write(store, b"after")
        except pylog.TransactionAbortedError:
            refused += 1
    assert refused == int(count > 1)
    assert committed(store, "out") == sorted(
        [b"before", *(b"%d" % number for number in range(count)), *[b"after"] * (2 - refused)]
    )
    store = reopened(fs, store)
    write(store, b"last")
    assert count_open(store, "out") == 0
    assert not store.check().findings
    store.close()


def test_offsets_of_a_group_are_committed_after_states_were_restored() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs, **ONE)
    write(store, b"before")
    backup = last_state(store)

    def commit(offset: int) -> None:
        with store.transaction("billing") as transaction:
            transaction.send_offsets("group", {("in", 0): offset})

    for offset in range(4):
        commit(offset)
    put_back(store, backup)
    store = reopened(fs, store)
    with pytest.raises(pylog.TransactionAbortedError):
        commit(5)
    assert store.offsets.position("group", ("in", 0)) == 3
    commit(6)
    assert store.offsets.position("group", ("in", 0)) == 6
    store.close()


def test_a_batch_of_a_lost_transaction_is_never_taken_for_one_of_the_next() -> None:
    """The backup is from before the transaction that is open, so the next one gets the same numbers."""
    fs = MemoryFileSystem()
    store = new_store(fs, **ONE)
    write(store, b"before")
    backup = last_state(store)
    store = reopened(fs, store)  # the next transaction has another epoch
    transaction = store.transaction("billing")
    transaction.append("out", b"lost", partition=0)
    transaction.flush()
    put_back(store, backup)
    fs.kill()
    store = opened(fs.process(), **ONE)
    for value in (b"one", b"two"):
        try:
            write(store, value)
        except pylog.TransactionAbortedError:
            write(store, value)
    assert committed(store, "out") == [b"before", b"one", b"two"]


def test_a_real_newer_instance_still_fences() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs, **ONE)
    write(store, b"before")
    with opened(fs, **ONE) as other:
        write(other, b"newer")
        with pytest.raises(pylog.ProducerFencedError):
            write(store, b"never")
        write(other, b"newer still")
    assert committed(store, "out") == [b"before", b"newer", b"newer still"]
    store.close()


def expire(store: Store) -> None:
    put_back(store, None)


def delete_topic(store: Store) -> None:
    store.delete_topic("__transaction_state")


@pytest.mark.parametrize("gone", [expire, delete_topic])
def test_an_id_that_has_no_record_any_more_goes_on_in_an_open_store(gone: Callable[[Store], None]) -> None:
    store = new_store(MemoryFileSystem(), **ONE)
    write(store, b"one")
    gone(store)
    write(store, b"two")
    assert committed(store, "out") == [b"one", b"two"]
    store.close()


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_the_records_of_internal_topics_are_not_given_to_retention(topic: str, policy: str) -> None:
    store = new_store(MemoryFileSystem(), **ONE)
    store.offsets.commit("group", {("in", 0): 1})
    write(store, b"one")
    with pytest.raises(pylog.InvalidArgumentError, match="it stays 'compact'"):
        store.alter_topic(topic, cleanup_policy=policy)
    with pytest.raises(pylog.InvalidArgumentError, match="it stays 'compact'"):
        store.alter_topic(topic, cleanup_policy=None)
    store.alter_topic(topic, segment_bytes=1 << 20, cleanup_policy="compact")
    store.close()
