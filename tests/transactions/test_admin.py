"""`store.transactions`: what an administrator sees of transactions, and how he ends them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import pylog
from pylog import TopicPartition
from pylog.config import Durability
from pylog.errors import InvalidTransactionStateError, ProducerFencedError, TransactionAbortedError, TransactionalIdNotFoundError
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionState
from pylog.transactions.records import format_key
from support import warm
from support.left_open import BROKERS_PRODUCER, leave_a_brokers, leave_decided, leave_hanging, leave_open
from support.transactional import committed, coordinator_of, count_open, new_store, opened

OUT = TopicPartition("out", 0)


def store_with_each_state(fs: MemoryFileSystem) -> tuple[Store, pylog.Transaction]:
    store = new_store(fs)
    with store.transaction("committed") as transaction:
        transaction.append("out", b"kept", partition=1)
    aborted = leave_open(store, "aborted", partition=1)
    aborted.abort()
    leave_decided(store, "decided", partition=2)
    return store, leave_open(store, "open")


def test_the_list_has_each_id_with_kafkas_name_of_its_state_and_whether_its_owner_lives() -> None:
    fs = MemoryFileSystem()
    store, _ = store_with_each_state(fs)
    found = [(each.transactional_id, each.state, each.owner, each.partitions) for each in store.transactions.list()]
    assert found == [
        ("aborted", "CompleteAbort", None, ()),
        ("committed", "CompleteCommit", None, ()),
        ("decided", "PrepareCommit", "alive", (TopicPartition("out", 2),)),
        ("open", "Ongoing", "alive", (OUT,)),
    ]
    assert [each.transactional_id for each in store.transactions.list(states=["Ongoing", "PrepareCommit"])] == ["decided", "open"]
    with pytest.raises(pylog.InvalidArgumentError, match="'Open' is not a state; the states are Empty, Ongoing"):
        store.transactions.list(states=["Open"])
    store.close()


def test_a_description_has_the_times_of_the_transaction() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    began = fs.clock.now_ms()
    transaction = leave_open(store, "open")
    fs.clock.advance(2_500)
    found = store.transactions.describe("open")
    assert (found.start_timestamp_ms, found.duration_ms, found.timeout_ms) == (began, 2_500, 60_000)
    transaction.commit()
    after = store.transactions.describe("open")
    assert (after.state, after.start_timestamp_ms, after.duration_ms) == ("CompleteCommit", began, None)
    assert (after.producer_id, after.producer_epoch) == (found.producer_id, found.producer_epoch + 1)
    fs.clock.advance(-60)  # a wall clock that was put back
    assert leave_open(store, "open") is not None
    fs.clock.advance(-60)
    assert store.transactions.describe("open").duration_ms == 0
    store.close()


def test_an_unknown_id_is_refused_with_the_ids_that_are_similar() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    with pytest.raises(TransactionalIdNotFoundError, match=r"Store\.transactions\.list lists the ids"):
        store.transactions.describe("billing")
    leave_open(store, "billing").commit()
    with pytest.raises(TransactionalIdNotFoundError, match="'biling' in /data; did you mean billing\\?"):
        store.transactions.abort("biling")
    store.close()


@pytest.mark.pair("aborted transactions", "second process")
def test_a_store_that_is_open_for_reading_sees_the_owners_of_others_and_takes_no_lock() -> None:
    fs = MemoryFileSystem()
    held = store_with_each_state(fs)
    with pylog.open("/data", "r", fs=fs.process(), clock=fs.clock) as reader:
        assert {each.transactional_id: each.owner for each in reader.transactions.list()}["open"] == "alive"
        assert [each.transactional_id for each in reader.transactions.find_open("out")] == ["open", "decided"]
        with pytest.raises(pylog.ReadOnlyError):
            reader.transactions.abort("open")
        with pytest.raises(pylog.ReadOnlyError):
            reader.transactions.end_hanging()
        with pytest.raises(pylog.ReadOnlyError):
            reader.transactions.settle()
        fs.kill()
        del held
        assert {each.transactional_id: each.owner for each in reader.transactions.list()}["open"] == "dead"
        assert reader.transactions.describe("open").state == "Ongoing"
    with pytest.raises(pylog.ClosedError):
        reader.transactions.list()


def test_the_owners_of_an_exclusive_store_are_unknown_to_a_reader() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs, exclusive=True)
    transaction = leave_open(store, "open")
    assert store.transactions.describe("open").owner == "alive"
    with pylog.open("/data", "r", fs=fs.process()) as reader:
        assert reader.transactions.describe("open").owner == "unknown"
    transaction.abort()
    store.close()


# ---- abort -------------------------------------------------------------------------------------------------------------------


def test_an_administrator_aborts_the_transaction_of_a_living_program_which_can_begin_another_one() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    transaction = leave_open(store, "billing")
    with opened(fs.process()) as other:
        before = other.transactions.describe("billing")
        after = other.transactions.abort("billing")
        assert (before.owner, after.state) == ("alive", "CompleteAbort")
        assert after.producer_epoch == before.producer_epoch + 1
        assert not count_open(other, "out")
    with pytest.raises(TransactionAbortedError):
        transaction.commit()
    transaction.abort()
    with store.transaction("billing") as again:
        again.append("out", b"kept")
    assert committed(store, "out") == [b"kept"]
    store.close()


def test_a_fenced_program_cannot_go_on_with_its_id() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    transaction = leave_open(store, "billing")
    with opened(fs.process()) as other:
        assert other.transactions.abort("billing", fence=True).state == "Empty"
    for call in (transaction.commit, transaction.abort):
        with pytest.raises(ProducerFencedError):
            call()
    with pytest.raises(ProducerFencedError), store.transaction("billing") as again:
        again.append("out", b"never seen")
    assert committed(store, "out") == []
    store.close()


def test_an_abort_completes_a_decided_transaction_and_changes_nothing_where_none_is_open() -> None:
    fs = MemoryFileSystem()
    store, transaction = store_with_each_state(fs)
    assert store.transactions.abort("decided").state == "CompleteCommit"
    assert committed(store, "out") == [b"decided", b"kept"]
    before = store.transactions.describe("committed")
    assert store.transactions.abort("committed") == before
    transaction.abort()
    store.close()


def test_an_administrator_aborts_the_transaction_of_a_brokers_client() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    offset = leave_hanging(store)
    leave_a_brokers(store, "jvm", ProducerIdAndEpoch(BROKERS_PRODUCER, 3), TransactionState.ONGOING, OUT)
    (found,) = store.transactions.find_open("out", 0)
    assert (found.start_offset, found.transactional_id, found.owner, found.is_hanging) == (offset, "jvm", "broker", False)
    assert store.transactions.abort("jvm").state == "CompleteAbort"
    assert not store.transactions.find_open()
    store.close()


# ---- hanging transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.pair("aborted transactions", "broker's directory")
def test_a_brokers_hanging_transaction_is_found_and_ended_with_the_epoch_after_its_own() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    offset = leave_hanging(store, epoch=3)
    fs.clock.advance(60_000)
    (found,) = store.transactions.find_hanging()
    assert (found.topic_partition, found.producer_id, found.producer_epoch) == (OUT, BROKERS_PRODUCER, 3)
    assert (found.start_offset, found.transactional_id, found.state, found.owner) == (offset, None, None, None)
    assert found.duration_ms == 60_000
    assert store.transactions.find_hanging(idle_ms=60_000) == [found]
    assert store.transactions.find_hanging(idle_ms=60_001) == []
    assert store.transactions.find_hanging("in") == []
    assert store.transactions.end_hanging() == [found]
    assert store.transactions.find_open() == []
    (producer,) = manager_of(store).log("out").writer().writer.producers.producers  # type: ignore[union-attr]
    assert (producer.producer_id, producer.epoch) == (BROKERS_PRODUCER, 4)
    assert store.transactions.end_hanging([found]) == []
    assert store.log("out").append(b"after") == offset + 2
    assert committed(store, "out") == [b"after"]
    store.close()


@pytest.mark.parametrize("known", [ProducerIdAndEpoch(BROKERS_PRODUCER, 9), ProducerIdAndEpoch(BROKERS_PRODUCER, 3)])
def test_a_transaction_hangs_if_its_id_is_in_another_one_or_does_not_name_the_partition(known: ProducerIdAndEpoch) -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    leave_hanging(store, epoch=3)
    named = OUT if known.producer_epoch == 9 else TopicPartition("out", 1)
    leave_a_brokers(store, "jvm", known, TransactionState.ONGOING, named)
    (found,) = store.transactions.find_hanging()
    assert (found.transactional_id, found.state) == ("jvm", "Ongoing")
    store.transactions.end_hanging([found])
    assert store.transactions.describe("jvm").state == "Ongoing"  # its own transaction is untouched
    store.close()


def test_a_transaction_that_an_id_has_open_is_never_ended_as_a_hanging_one() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    transaction = leave_open(store, "billing")
    (found,) = store.transactions.find_open()
    assert not store.transactions.find_hanging()
    with pytest.raises(InvalidTransactionStateError, match="offset 0 of out-0 does not hang: the transactional id 'billing'"):
        store.transactions.end_hanging([found])
    with pytest.raises(pylog.InvalidArgumentError, match="is not a hanging transaction"):
        store.transactions.end_hanging(["billing"])  # type: ignore[list-item]
    transaction.commit()
    assert committed(store, "out") == [b"open"]
    store.close()


def test_a_topic_without_such_a_partition_and_a_partition_without_a_topic_are_refused() -> None:
    store = new_store(MemoryFileSystem())
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.transactions.find_open("outt")
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="partition 7"):
        store.transactions.find_hanging("out", 7)
    with pytest.raises(pylog.InvalidArgumentError, match="requires a topic; give both"):
        store.transactions.find_open(partition=1)
    store.close()


def test_ids_are_listed_although_the_state_of_another_one_cannot_be_read() -> None:
    fs = MemoryFileSystem()
    store = new_store(fs)
    leave_open(store, "billing").commit()
    topic = coordinator_of(store).topic
    topic.on_partition("billing", lambda part: part.append([(format_key("new"), b"\0\x63")], None, Durability.OS))
    found, faults = store.transactions.known()
    assert ([each.transactional_id for each in found], list(faults)) == (["billing"], ["new"])
    with pytest.raises(pylog.CorruptionError, match="'new' no state that can be read"):
        store.transactions.list()
    store.close()


BILLING = """
import sys, pylog
store = pylog.open(sys.argv[1])
txn = store.transaction("billing")
txn.append("out", b"open")
txn.flush()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.pair("crash", "aborted transactions")
def test_settle_aborts_the_transaction_of_a_process_that_was_killed(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("out")
        with warm.Started(["-c", BILLING, tmp_path]) as process:
            assert process.stdout.readline() == b"open\n"
            os.kill(process.pid, signal.SIGSTOP)  # a stopped process lives
            with pylog.open(tmp_path, "r") as reader:
                assert reader.transactions.describe("billing").owner == "alive"
                process.kill()
                assert reader.transactions.describe("billing").owner == "dead"
        assert store.transactions.settle() == 1
        assert store.transactions.describe("billing").state == "CompleteAbort"
        assert store.transactions.find_open() == []
