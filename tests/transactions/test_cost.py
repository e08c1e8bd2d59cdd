"""What a commit costs: partitions are written at once, states are decided in one append, and no topics are listed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import pylog
from pylog.clock import ManualClock, SystemClock
from pylog.config import Durability
from pylog.record.types import TopicPartition
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from pylog.testing.memory import MemoryFile
from pylog.transactions.crew import Crew
from pylog.transactions.metadata import TransactionMetadata
from pylog.transactions.records import parse_value
from support.transactional import committed, coordinator_of, new_store, opened

BRIEF_S = 0.0004  # longer than what the crew takes for a call that does not wait


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs) as made:
        yield made


# ---- several partitions at once ----------------------------------------------------------------------------------------------


def slow(number: int) -> int:
    time.sleep(BRIEF_S)
    return number


def warmed() -> Crew:
    """Returns a crew that has seen that syncs take long."""
    crew = Crew(SystemClock())
    crew.results([lambda: slow(0)], syncs=True)
    return crew


def test_calls_that_wait_for_the_disk_are_made_at_the_same_time() -> None:
    crew, meeting = warmed(), threading.Barrier(4)
    assert crew.results([lambda: slow(meeting.wait(60) * 0 + 7)] * 4, syncs=True) == [7] * 4
    crew.end()


def test_more_calls_than_threads_have_their_results_in_order() -> None:
    crew = warmed()
    assert crew.results([lambda number=number: slow(number) for number in range(19)], syncs=True) == list(range(19))
    crew.end()


def test_quick_calls_and_calls_that_sync_nothing_stay_in_the_callers_thread() -> None:
    for crew, syncs in ((Crew(ManualClock()), True), (warmed(), False)):
        assert set(crew.results([threading.get_ident] * 3, syncs=syncs)) == {threading.get_ident()}


def test_the_first_error_is_raised_once_all_calls_have_ended() -> None:
    crew, ended = warmed(), list[bool]()

    def failing() -> None:
        raise pylog.CorruptionError("damaged")

    def late() -> None:
        time.sleep(0.02)
        ended.append(True)

    with pytest.raises(pylog.CorruptionError, match="damaged"):
        crew.results([failing, late, failing], syncs=True)
    assert ended == [True]
    assert crew.results([lambda: slow(1), lambda: slow(2)], syncs=True) == [1, 2]  # its threads go on
    crew.end()


def test_a_transaction_of_threads_is_whole_and_one_that_fails_in_one_of_them_is_not_there() -> None:
    with new_store(MemoryFileSystem()) as store:
        with store.transaction("id", durability="sync") as transaction:
            transaction.append("out", b"first", partition=0)
        crew = coordinator_of(store).crew
        with patch.object(crew, "_clock", SystemClock()), patch("pylog.transactions.crew._SLOW_S", -1.0):
            with store.transaction("id", durability="sync") as transaction:
                for partition in range(3):
                    transaction.append("out", b"%d" % partition, partition=partition)
                transaction.send_offsets("g", {("in", 0): 3})
            assert committed(store, "out") == [b"0", b"1", b"2", b"first"]
            assert store.offsets.position("g", ("in", 0)) == 3
            log = coordinator_of(store)._manager.log("out", 1)
            transaction = store.transaction("id", durability="sync")
            for partition in range(3):
                transaction.append("out", b"bad", partition=partition)
            failing = patch.object(log, "append", side_effect=pylog.StorageFailedError("no room", errno=28))
            with failing, pytest.raises(pylog.StorageFailedError):
                transaction.commit()
            transaction.abort()
        crew.end()
        assert transaction.outcome == "aborted"
        assert committed(store, "out") == [b"0", b"1", b"2", b"first"]
        assert not store.verify(records=True).findings


# ---- one sync for several transactions ---------------------------------------------------------------------------------------


def test_transactions_of_threads_are_each_there_whole(store: Store) -> None:
    def work(name: str) -> None:
        for number in range(12):
            with store.transaction(name, durability="sync") as transaction:
                for partition in range(2):
                    transaction.append("out", f"{name} {number}".encode(), partition=partition)

    threads = [threading.Thread(target=work, args=(f"id {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = sorted(f"id {thread} {number}".encode() for thread in range(4) for number in range(12) for _ in range(2))
    assert committed(store, "out") == expected
    assert not store.verify(records=True).findings


def test_two_threads_that_change_the_state_of_one_id_do_it_one_after_the_other(store: Store) -> None:
    topic = coordinator_of(store).topic
    with store.transaction("id") as transaction:
        transaction.append("out", b"x", partition=0)

    def later(current: TransactionMetadata | None) -> TransactionMetadata:
        assert current is not None
        return replace(current, timeout_ms=current.timeout_ms + 1)

    def work() -> None:
        for _ in range(5):
            topic.change("id", later, Durability.SYNC)

    sync = MemoryFile.sync

    def slow_sync(file: MemoryFile) -> None:
        time.sleep(0.003)  # meanwhile the other threads wait, and share the next write
        sync(file)

    before = topic.state_of("id")
    threads = [threading.Thread(target=work) for _ in range(4)]
    with patch.object(MemoryFile, "sync", slow_sync):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    after = topic.state_of("id")
    assert before is not None
    assert after is not None
    assert after.timeout_ms == before.timeout_ms + 20


def test_the_states_of_an_id_are_those_of_its_records(store: Store, fs: MemoryFileSystem) -> None:
    """The states that this process decides are kept as they are; another one reads them from the records."""
    with store.transaction("id", durability="sync") as transaction:
        transaction.append("out", b"x", partition=2)
        transaction.append("in", b"x")
        transaction.flush()
        with opened(fs, mode="r") as reader:
            assert state_in_records(reader, "id") == coordinator_of(store).topic.state_of("id")


def state_in_records(reader: Store, name: str) -> TransactionMetadata:
    records = [
        record
        for number in range(2)
        for record in reader.log("__transaction_state", number).records()
        if record.key is not None and record.key[4:] == name.encode()
    ]
    assert records[-1].value is not None
    return parse_value(name, records[-1].value)


# ---- topics are remembered for a second --------------------------------------------------------------------------------------


def test_a_partition_that_another_store_has_added_is_written_to_at_once(store: Store, fs: MemoryFileSystem) -> None:
    with store.transaction("id") as transaction:
        transaction.append("out", b"first", partition=0)
    with opened(fs) as other:
        other.add_partitions("out", 4)
    with store.transaction("id") as transaction:
        transaction.append("out", b"second", partition=3)
    assert committed(store, "out") == [b"first", b"second"]


def test_a_topic_that_another_store_has_deleted_is_refused_at_once(store: Store, fs: MemoryFileSystem) -> None:
    with store.transaction("id") as transaction:
        transaction.append("out", b"first", partition=0)
    with opened(fs) as other:
        other.delete_topic("out")
    transaction = store.transaction("id")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        transaction.append("out", b"second", partition=0)
    transaction.abort()


def test_a_batch_is_split_again_if_another_store_has_lowered_the_limit(store: Store, fs: MemoryFileSystem) -> None:
    with store.transaction("id") as transaction:
        transaction.append("out", b"first", partition=0)
    with opened(fs) as other:
        other.alter_topic("out", max_message_bytes=1000)
    with store.transaction("id") as transaction:
        transaction.append_many("out", [b"x" * 300] * 10, partition=0)
    assert committed(store, "out") == [b"first", *[b"x" * 300] * 10]
    assert len(transaction.offsets[TopicPartition("out", 0)]) > 1


# ---- one batch without an id -------------------------------------------------------------------------------------------------


def test_one_batch_without_an_id_is_one_append_and_needs_no_states(store: Store) -> None:
    with store.transaction() as transaction:
        transaction.append_many("out", [b"a", b"b"], partition=1)
        transaction.append("out", b"c", partition=1)
    assert transaction.outcome == "committed"
    assert transaction.offsets == {TopicPartition("out", 1): [range(3)]}
    assert committed(store, "out") == [b"a", b"b", b"c"]
    assert store.log("out", 1).end_offset == 3, "there is no marker"
    assert "__transaction_state" not in store.topics()


@pytest.mark.parametrize("transactional_id", ["id", None])
@pytest.mark.parametrize("case", ["two partitions", "offsets", "flushed before", "several batches"])
def test_any_other_transaction_has_its_states_and_its_markers(store: Store, case: str, transactional_id: str | None) -> None:
    with store.transaction(transactional_id) as transaction:
        transaction.append("out", b"a", partition=1)
        if case == "two partitions":
            transaction.append("out", b"b", partition=2)
        if case == "offsets":
            transaction.send_offsets("g", {("in", 0): 1})
        if case == "flushed before":
            transaction.flush()
            transaction.append("out", b"b", partition=1)
        if case == "several batches":
            transaction.append_many("out", [b"x" * 700_000] * 2, partition=1)
    log = store.log("out", 1)
    assert "__transaction_state" in store.topics()
    assert log.end_offset == len(list(log.records())) + 1, "the last one is a marker"


def test_one_batch_that_cannot_be_written_is_not_there_and_the_transaction_can_be_aborted(store: Store) -> None:
    transaction = store.transaction()
    transaction.append("out", b"a", partition=1)
    log = coordinator_of(store)._manager.log("out", 1)
    failing = patch.object(log, "append", side_effect=pylog.ClosedError("closed"))
    with failing, pytest.raises(pylog.ClosedError):
        transaction.commit()
    assert transaction.outcome == "open"
    transaction.abort()
    assert (transaction.outcome, committed(store, "out")) == ("aborted", [])


def test_the_outcome_of_one_batch_whose_sync_failed_is_unknown(store: Store) -> None:
    transaction = store.transaction()
    transaction.append("out", b"a", partition=1)
    log = coordinator_of(store)._manager.log("out", 1)
    failing = patch.object(log, "append", side_effect=pylog.SyncFailedError("no sync", errno=5))
    with failing, pytest.raises(pylog.SyncFailedError):
        transaction.commit()
    assert transaction.outcome == "unknown"
    with pytest.raises(pylog.InvalidTransactionStateError):
        transaction.abort()


def test_one_batch_is_written_as_a_transaction_if_another_store_has_lowered_the_limit(store: Store, fs: MemoryFileSystem) -> None:
    store.log("out", 1).append(b"first")
    with opened(fs) as other:
        other.alter_topic("out", max_message_bytes=1000)
    with store.transaction() as transaction:
        transaction.append_many("out", [b"x" * 300] * 10, partition=1)
    assert committed(store, "out") == [b"first", *[b"x" * 300] * 10]
    assert len(transaction.offsets[TopicPartition("out", 1)]) > 1


# ---- reading -----------------------------------------------------------------------------------------------------------------


def test_a_scan_of_committed_records_reads_few_bytes_twice(store: Store) -> None:
    for _ in range(40):
        with store.transaction("id") as transaction:
            transaction.append_many("out", [bytes(1_000)] * 300, partition=0)
    log, read, read_into = store.log("out", 0), list[int](), MemoryFile.read_into

    def counted(self: MemoryFile, buffer: memoryview, position: int) -> int:
        read.append(read_into(self, buffer, position))
        return read[-1]

    taken = {}
    for level in ("read_uncommitted", "read_committed"):
        read.clear()
        with patch.object(MemoryFile, "read_into", counted):
            assert sum(batch.num_rows for batch in log.scan(isolation_level=level)) == 12_000
        taken[level] = sum(read)
    assert taken["read_uncommitted"] > 12_000_000
    assert taken["read_committed"] < 1.2 * taken["read_uncommitted"]


def test_a_read_at_a_snapshot_leaves_the_markers_to_the_kernel_as_other_committed_reads_do(store: Store) -> None:
    for number in range(20):
        with store.transaction("billing") as transaction:
            transaction.append("out", b"%d" % number, partition=0)
            transaction.append("in", b"x")
    left = store.transaction("left open")
    left.append("out", b"open", partition=0)
    left.flush()
    snapshot = store.snapshot()
    left.commit()
    with patch("pylog.log.reading.transaction_outcomes.control_record") as parsed:
        found = [record.value for record in store.log("out", 0).records(snapshot=snapshot)]
    assert found == [b"%d" % number for number in range(20)]
    assert not parsed.called
