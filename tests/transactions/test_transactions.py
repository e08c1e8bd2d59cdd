"""Transactions over several partitions and committed offsets, as a program uses them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import pylog
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from support import warm
from support.transactional import FEW, committed, coordinator_of, count_open, new_store, opened


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs) as made:
        made.create_topic("audit")
        yield made


# ---- all or none -------------------------------------------------------------------------------------------------------------


def test_records_of_several_partitions_and_offsets_are_seen_together_once_the_block_ends(store: Store) -> None:
    with store.transaction("billing") as transaction:
        for number in range(10):
            transaction.append("out", b"%d" % number, key=b"key %d" % number)
        transaction.append_many("audit", [b"plain", (b"key", b"keyed", [("name", b"header")], 123)])
        transaction.send_offsets("group", {("in", 0): 7})
        transaction.flush()
        assert (committed(store, "out"), committed(store, "audit")) == ([], [])
        assert store.offsets.position("group", ("in", 0)) is None
        assert transaction.outcome == "open"
    assert transaction.outcome == "committed"
    assert committed(store, "out") == [b"%d" % number for number in range(10)]
    assert committed(store, "audit") == [b"keyed", b"plain"]
    assert store.offsets.position("group", ("in", 0)) == 7
    keyed = store.log("audit").read(1)
    assert (keyed.key, keyed.headers, keyed.timestamp) == (b"key", (("name", b"header"),), 123)
    assert not store.verify(records=True).findings


def test_keys_go_to_the_partitions_that_a_producer_chooses(store: Store) -> None:
    keys = [b"key %d" % number for number in range(50)]
    with store.producer() as producer:
        futures = {key: producer.send("out", b"sent", key=key) for key in keys}
    with store.transaction() as transaction:
        transaction.append_many("out", [(key, b"in a transaction") for key in keys])
    for number in range(3):
        found = {record.key for record in store.log("out", number).records() if record.value == b"in a transaction"}
        assert found == {key for key, future in futures.items() if future.result(60).partition == number}


def test_an_exception_in_the_block_aborts_and_is_raised_on(store: Store) -> None:
    transaction = store.transaction("billing")

    def work() -> None:
        with transaction:
            transaction.append("out", b"never seen")
            transaction.send_offsets("group", {("in", 0): 3})
            transaction.flush()
            raise RuntimeError("of the program")

    with pytest.raises(RuntimeError, match="of the program"):
        work()
    assert transaction.outcome == "aborted"
    assert committed(store, "out") == []
    assert store.offsets.position("group", ("in", 0)) is None
    assert store.offsets.pending("group") == set()
    assert count_open(store, "out") == 0


def test_a_transaction_that_writes_nothing_leaves_nothing(store: Store) -> None:
    with store.transaction() as transaction:
        pass
    assert (transaction.outcome, transaction.offsets) == ("committed", {})
    assert [topic for topic in store.topics() if store.log(topic).end_offset] == ["in"]


def test_more_than_a_batch_or_the_buffer_holds_is_still_one_transaction(store: Store) -> None:
    rows = 20_000
    table = pa.table({"value": [b"x" * 200] * rows, "key": [b"%d" % number for number in range(rows)]})
    with store.transaction("big", buffer_bytes=1 << 20) as transaction:
        transaction.append_arrow("out", table)
        transaction.append_many("audit", [b"y" * 1000] * 3000)
        assert committed(store, "out") == []
    assert len(committed(store, "out")) == rows
    assert len(committed(store, "audit")) == 3000
    ranges = transaction.offsets[pylog.TopicPartition("audit", 0)]
    assert len(ranges) > 1
    assert [each.start for each in ranges[1:]] == [each.stop for each in ranges[:-1]]


@pytest.mark.parametrize("durability", ["os", "interval:1000", "sync"])
def test_every_durability_commits_and_the_next_process_sees_it(fs: MemoryFileSystem, store: Store, durability: str) -> None:
    for number in range(3):
        with store.transaction("billing", durability=durability) as transaction:
            transaction.append("out", b"%d" % number, partition=number)
            transaction.append("audit", b"%d" % number)
    store.close()
    with opened(fs, mode="r") as reader:
        assert committed(reader, "out") == committed(reader, "audit") == [b"0", b"1", b"2"]


# ---- one id, one writer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["append", "flush", "commit"])
def test_the_newest_instance_of_an_id_fences_the_older_one_and_aborts_what_it_has_open(
    fs: MemoryFileSystem, store: Store, call: str
) -> None:
    with opened(fs) as other:
        old = store.transaction("billing", buffer_bytes=1)
        old.append("out", b"old", partition=1)
        with other.transaction("billing") as new:
            new.append("out", b"new")
        with pytest.raises(pylog.ProducerFencedError, match="a newer instance has taken over"):
            old.commit() if call == "commit" else old.append("out", b"late", partition=1 if call == "flush" else 2)
        with pytest.raises(pylog.ProducerFencedError, match="a newer instance has taken over"):
            old.abort()
        stale = store.transaction("billing")
        stale.append("out", b"stale")
        with pytest.raises(pylog.ProducerFencedError, match="a newer instance has taken over"):
            stale.commit()
        assert committed(other, "out") == [b"new"]
        assert count_open(other, "out") == 0


def test_a_second_open_transaction_of_an_id_in_a_store_is_refused(store: Store) -> None:
    first = store.transaction("billing")
    with pytest.raises(pylog.InvalidTransactionStateError, match="has an open transaction in this store"):
        store.transaction("billing")
    first.abort()
    store.transaction("billing").abort()


def test_transactions_without_an_id_are_open_side_by_side(fs: MemoryFileSystem, store: Store) -> None:
    with opened(fs) as other:
        transactions = [each.transaction() for each in (store, store, other)]
        assert len({each.transactional_id for each in transactions}) == 3
        for number, transaction in enumerate(transactions):
            transaction.append("audit", b"%d" % number)
            transaction.flush()
        for transaction in reversed(transactions):
            transaction.commit()
        assert committed(store, "audit") == committed(other, "audit") == [b"0", b"1", b"2"]
        assert store.transaction().transactional_id == transactions[0].transactional_id, "the lowest one that is free"


def test_a_transaction_of_a_living_process_is_left_alone_and_that_of_a_dead_one_is_aborted(
    fs: MemoryFileSystem, store: Store
) -> None:
    left = store.transaction("left")
    left.append("out", b"left", partition=0)
    left.flush()
    with opened(fs) as other:
        assert count_open(other, "out") == 1
    left.append("out", b"more", partition=1)
    left.commit()
    assert committed(store, "out") == [b"left", b"more"]
    left = store.transaction("left")
    left.append("out", b"never", partition=0)
    left.flush()
    store.close()
    with opened(fs) as other:
        assert count_open(other, "out") == 0
        assert committed(other, "out") == [b"left", b"more"]
        assert not other.verify(records=True).findings


KILLED = """
import os, sys, pylog
store = pylog.open(sys.argv[1])
transaction = store.transaction("billing")
transaction.append("t", b"never seen")
transaction.flush()
print("open", flush=True)
sys.stdin.readline()
os._exit(9)
"""


def test_a_killed_process_holds_readers_up_only_until_the_directory_is_opened_again(tmp_path: Path) -> None:
    with pylog.open(tmp_path, **FEW) as store:
        store.create_topic("t")
    with warm.Started(["-c", KILLED, tmp_path]) as process:
        assert process.stdout.readline() == b"open\n"
        with pylog.open(tmp_path, **FEW) as store:
            store.log("t").append(b"waits")
            assert committed(store, "t") == []
            process.stdin.write(b"\n")
            assert process.wait(warm.PATIENCE) == 9
            assert committed(store, "t") == []
    with pylog.open(tmp_path, **FEW) as store:
        assert committed(store, "t") == [b"waits"]


def test_threads_commit_each_with_an_id_of_its_own(store: Store) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            with store.transaction(f"thread {number}") as transaction:
                for partition in range(3):
                    transaction.append("out", b"%d %d" % (number, turn), partition=partition)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(committed(store, "out")) == 4 * 5 * 3
    assert count_open(store, "out") == 0


@pytest.mark.damaged("a batch of one of its partitions")
def test_a_decided_transaction_waits_for_a_damaged_log_and_is_not_noted_as_complete(tmp_path: Path) -> None:
    killed = pylog.StorageFailedError("the process is killed here")
    with pylog.open(tmp_path, **FEW) as store:
        store.create_topic("out", partition_count=2)
        with (
            patch.object(TransactionCoordinator, "write_markers", side_effect=killed),
            store.transaction("billing") as transaction,
        ):
            transaction.append("out", b"whole", partition=0)
            transaction.append("out", b"whole", partition=1)
        assert transaction.outcome == "committed"
    file = tmp_path / "out-1" / f"{0:020}.log"
    sound = file.read_bytes()
    file.write_bytes(bytes([*sound[:30], sound[30] ^ 1, *sound[31:]]))
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with pylog.open(tmp_path, **FEW) as store:
        found = coordinator_of(store).topic.state_of("billing")
        assert found is not None
        assert found.state.kafka_name == "PrepareCommit"
    file.write_bytes(sound)
    (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with pylog.open(tmp_path, **FEW) as store:
        assert committed(store, "out") == [b"whole", b"whole"]


# ---- refusals ----------------------------------------------------------------------------------------------------------------


def test_a_call_that_cannot_be_right_is_refused_before_anything_is_added(store: Store) -> None:
    with store.transaction() as transaction:
        for call, error in [
            (lambda: transaction.append("missing", b"x"), pylog.UnknownTopicOrPartitionError),
            (lambda: transaction.append("__consumer_offsets", b"x"), pylog.InvalidTopicError),
            (lambda: transaction.append("out", b"x", partition=9), pylog.UnknownTopicOrPartitionError),
            (lambda: transaction.append("out", b"x", partition="0"), pylog.InvalidArgumentError),  # type: ignore[arg-type]
            (lambda: transaction.append("out", "text"), pylog.InvalidRecordError),  # type: ignore[arg-type]
            (lambda: transaction.append("out", b"x", timestamp="now"), pylog.InvalidRecordError),
            (lambda: transaction.append_many("out", b"x"), pylog.InvalidArgumentError),  # type: ignore[arg-type]
            (lambda: transaction.append_arrow("out", [b"x"]), pylog.InvalidRecordError),
            (lambda: transaction.send_offsets("group", {("in", 0): 99}), pylog.OffsetOutOfRangeError),
            (lambda: transaction.send_offsets("", {("in", 0): 1}), pylog.InvalidArgumentError),
            (lambda: transaction.send_offsets("group", 3), pylog.InvalidArgumentError),  # type: ignore[arg-type]
        ]:
            with pytest.raises(error):
                call()
        transaction.append("out", b"right", partition=0)
    assert committed(store, "out") == [b"right"]


def test_a_transaction_that_has_ended_refuses_every_call_but_abort(store: Store) -> None:
    transaction = store.transaction("billing")
    transaction.append("out", b"x")
    transaction.abort()
    transaction.abort()
    for call in (transaction.flush, transaction.commit, lambda: transaction.append("out", b"x")):
        with pytest.raises(pylog.InvalidTransactionStateError, match="has ended: its outcome is 'aborted'"):
            call()
    done = store.transaction("billing")
    done.commit()
    with pytest.raises(pylog.InvalidTransactionStateError, match="cannot be aborted: its outcome is 'committed'"):
        done.abort()


def test_a_failed_call_leaves_only_abort(store: Store) -> None:
    store.create_topic("compacted", cleanup_policy="compact")
    transaction = store.transaction("billing")
    transaction.append("audit", b"first")
    transaction.append("compacted", b"no key")
    with pytest.raises(pylog.InvalidRecordError, match="has no key"):
        transaction.commit()
    with pytest.raises(pylog.InvalidTransactionStateError, match="abort it"):
        transaction.commit()
    transaction.abort()
    assert committed(store, "audit") == []
    assert count_open(store, "audit") == 0


def test_a_store_that_is_open_for_reading_begins_no_transaction(fs: MemoryFileSystem, store: Store) -> None:
    with opened(fs, mode="r") as reader, pytest.raises(pylog.ReadOnlyError):
        reader.transaction()


@pytest.mark.parametrize("given", ["", "x" * 40_000, 3, b"id"])
def test_an_id_that_is_no_text_of_a_record_is_refused(store: Store, given: Any) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="is not a text of"):
        store.transaction(given)


def test_half_of_a_surrogate_pair_is_no_id(store: Store) -> None:
    for call in (store.transaction, store.transactions.describe, store.transactions.abort):
        with pytest.raises(pylog.InvalidArgumentError, match="surrogate"):
            call("\ud800")


def test_members_of_a_group_keep_offsets_of_strangers_out(store: Store) -> None:
    with store.consumer("in", group_id="group") as consumer:
        consumer.poll(timeout_ms=2000)
        transaction = store.transaction()
        transaction.send_offsets("group", {("in", 0): 3})
        with pytest.raises(pylog.NonEmptyGroupError):
            transaction.commit()
        transaction.abort()


def test_a_closed_store_refuses_the_calls_of_its_transactions(store: Store) -> None:
    transaction = store.transaction("billing")
    transaction.append("out", b"x")
    store.close()
    for call in (transaction.flush, store.transaction):
        with pytest.raises(pylog.ClosedError):
            call()


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_transaction_ends_also_where_the_options_accept_no_batch_any_more(store: Store, ends: str) -> None:
    transaction = store.transaction("billing")
    transaction.append("audit", b"x")
    transaction.flush()
    store.alter_topic("audit", max_message_bytes=50, cleanup_policy="compact", message_timestamp_before_max_ms=0)
    getattr(transaction, ends)()
    assert count_open(store, "audit") == 0
    assert committed(store, "audit") == ([b"x"] if ends == "commit" else [])
