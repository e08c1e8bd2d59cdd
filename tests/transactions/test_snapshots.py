"""Snapshots: a cut over partitions that has whole transactions only, whatever happens while it is taken and afterwards."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import pylog
from pylog import log_opener
from pylog.directory.partition_metadata import read_topic_id
from pylog.log.maintenance.cleaning_round import CleaningRound
from pylog.log.partition_log import PartitionLog
from pylog.log.reading import queries
from pylog.log.state import LogState
from pylog.record.few import few_rows
from pylog.record.types import TopicPartition
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions import snapshots
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.records import format_key, partition_for
from pylog.transactions.transaction import Transaction
from support.transactional import FEW, coordinator_of, new_store, opened

OUT = tuple(TopicPartition("out", number) for number in range(3))


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs, durability="os") as made:
        yield made


def values(store: Store, snapshot: pylog.Snapshot, topic: str = "out") -> list[bytes]:
    """Returns what a reader at a snapshot sees, sorted."""
    return sorted(store.read_table(topic, columns=["value"], snapshot=snapshot)["value"].to_pylist())


def write(transaction: Transaction, value: bytes) -> None:
    """Writes a record to each partition of `out`."""
    for key in OUT:
        transaction.append("out", value, partition=key.partition)
    transaction.flush()


def commit(store: Store, transactional_id: str, value: bytes) -> None:
    with store.transaction(transactional_id) as transaction:
        write(transaction, value)
        transaction.send_offsets("group", {("in", 0): int(value)})


def stop_after_markers(count: int) -> Any:
    """Stops commits after some markers, as if their threads stood still: a transaction is decided, and visible in part."""
    left, write_marker = [None] * count, TransactionCoordinator._write_marker

    def stopped(coordinator: TransactionCoordinator, *given: Any) -> None:
        if not left:
            raise pylog.StorageFailedError("stopped here", errno=5)
        left.pop()
        write_marker(coordinator, *given)

    return patch.object(TransactionCoordinator, "_write_marker", stopped)


# ---- whole transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("markers", range(5))
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_transaction_that_is_decided_is_whole_in_a_snapshot_whichever_markers_are_missing(
    fs: MemoryFileSystem, store: Store, markers: int, mode: str
) -> None:
    commit(store, "billing", b"1")
    with stop_after_markers(markers):
        commit(store, "billing", b"2")
    reader = store if mode == "rw" else opened(fs, mode="r")
    snapshot = reader.snapshot()
    assert values(reader, snapshot) == [b"1", b"1", b"1", b"2", b"2", b"2"]
    assert snapshot.offsets("group") == snapshot.offsets("group")
    assert snapshot.offsets("group")[TopicPartition("in", 0)].offset == 2


def test_stable_offsets_tear_a_transaction_that_a_snapshot_has_whole(store: Store) -> None:
    """What the model showed: another transaction is open before it in one partition only, and hides its half there."""
    other = store.transaction("other")
    other.append("out", b"open", partition=0)
    other.flush()
    commit(store, "billing", b"1")
    snapshot = store.snapshot()
    assert values(store, snapshot) == [b"1", b"1", b"1"]
    torn = [list(store.log("out", key.partition).records(end=end)) for key, end in snapshot.stable.items() if key in OUT]
    assert [len(records) for records in torn] == [0, 1, 1]
    other.commit()
    assert values(store, snapshot) == [b"1", b"1", b"1"]
    assert values(store, store.snapshot()) == [b"1", b"1", b"1", b"open"]


def test_open_and_aborted_transactions_stay_out_of_a_snapshot_whatever_becomes_of_them(store: Store) -> None:
    commit(store, "billing", b"1")
    undecided = store.transaction("undecided"), store.transaction("dropped")
    for transaction in undecided:
        write(transaction, b"7")
    store.log("out", 1).append(b"plain")
    snapshot = store.snapshot()
    undecided[0].commit()
    undecided[1].abort()
    commit(store, "undecided", b"3")
    assert values(store, snapshot) == [b"1", b"1", b"1", b"plain"]
    assert [record.value for record in store.log("out", 1).records(2, snapshot=snapshot)] == [b"plain"]
    assert list(store.log("out", 1).records(snapshot.end_offsets[OUT[1]], snapshot=snapshot)) == []
    assert [record.value for record in store.log("out", 1).records(0, 1, snapshot=snapshot)] == [b"1"]


def test_a_commit_between_the_partitions_repeats_the_attempt(store: Store) -> None:
    """Each of the first three attempts meets a transaction that becomes visible after one partition was read."""
    commit(store, "billing", b"0")
    meetings = iter(range(1, 4))
    state_of = snapshots.SnapshotTaker._state_of

    def interrupted(taker: snapshots.SnapshotTaker, key: TopicPartition) -> Any:
        state = state_of(taker, key)
        if key == OUT[0] and (number := next(meetings, None)) is not None:
            commit(store, "billing", b"%d" % number)
        return state

    with patch.object(snapshots.SnapshotTaker, "_state_of", interrupted):
        found = store.snapshot()
    assert values(store, found) == sorted(b"%d" % number for number in range(4) for _ in OUT)
    assert found.offsets("group")[TopicPartition("in", 0)].offset == 3


def test_an_offset_of_the_next_transaction_of_an_id_is_not_taken_for_one_of_the_decided_transaction(store: Store) -> None:
    """Both have the same producer id. The decided one is finished, and the next one begins, before the groups are read."""
    commit(store, "billing", b"1")
    with stop_after_markers(0):
        commit(store, "billing", b"2")
    read_groups = snapshots.SnapshotTaker._groups
    undecided: list[Transaction] = []

    def begin_the_next(taker: snapshots.SnapshotTaker, *given: Any) -> Any:
        if not undecided:
            undecided.append(store.transaction("billing"))
            write(undecided[0], b"3")
            undecided[0].send_offsets("group", {("in", 0): 3})
            with (
                patch.object(TransactionCoordinator, "prepare_commit", side_effect=pylog.ClosedError("before the decision")),
                pytest.raises(pylog.ClosedError),
            ):
                undecided[0].commit()
        return read_groups(taker, *given)

    with patch.object(snapshots.SnapshotTaker, "_groups", begin_the_next):
        found = store.snapshot()
    assert values(store, found) == [b"1", b"1", b"1", b"2", b"2", b"2"]
    assert found.offsets("group")[TopicPartition("in", 0)].offset == 2
    undecided[0].abort()


def test_a_store_that_is_open_for_reading_gives_up_after_a_tenth_of_a_second_of_commits(
    fs: MemoryFileSystem, store: Store
) -> None:
    state_of = snapshots.SnapshotTaker._state_of

    def interrupted(taker: snapshots.SnapshotTaker, key: TopicPartition) -> Any:
        fs.clock.sleep(0.04)
        commit(store, "billing", b"1")
        return state_of(taker, key)

    commit(store, "billing", b"1")
    patched = patch.object(snapshots.SnapshotTaker, "_state_of", interrupted)
    with opened(fs, mode="r") as other, patched, pytest.raises(pylog.PylogTimeoutError, match="100 ms"):
        other.snapshot(["in"])


def test_decisions_wait_for_a_snapshot_that_commits_have_delayed_for_a_tenth_of_a_second(tmp_path: Path) -> None:
    state_of = snapshots.SnapshotTaker._state_of
    threads, waiting = list[threading.Thread](), list[bool]()

    def interrupted(taker: snapshots.SnapshotTaker, key: TopicPartition) -> Any:
        threads.append(threading.Thread(target=commit, args=(store, f"id-{len(threads)}", b"0")))
        threads[-1].start()
        threads[-1].join(0.2)
        waiting.append(threads[-1].is_alive())
        return state_of(taker, key)

    with pylog.open(tmp_path, **FEW, durability="os") as store:
        store.create_topic("in")
        store.create_topic("out", partition_count=3)
        with patch.object(snapshots.SnapshotTaker, "_state_of", interrupted):
            store.snapshot(["out"], groups=[])
        for thread in threads:
            thread.join()
        assert waiting[-1]
        assert len(values(store, store.snapshot())) == 3 * len(threads)


def test_the_first_transaction_of_a_directory_and_a_new_partition_are_noticed_while_a_snapshot_is_taken(store: Store) -> None:
    state_of = snapshots.SnapshotTaker._state_of
    changes = iter((lambda: commit(store, "billing", b"1"), lambda: store.add_partitions("out", 4) and None))

    def interrupted(taker: snapshots.SnapshotTaker, key: TopicPartition) -> Any:
        state = state_of(taker, key)
        if key == OUT[0]:
            next(changes, lambda: None)()
        return state

    with patch.object(snapshots.SnapshotTaker, "_state_of", interrupted):
        found = store.snapshot()
    assert values(store, found) == [b"1", b"1", b"1"]
    assert TopicPartition("out", 3) in found.cuts


def test_a_decision_that_a_power_loss_may_take_back_is_not_in_a_snapshot(fs: MemoryFileSystem) -> None:
    """The process died between the write and the sync of its decision: nobody has seen it."""
    with new_store(fs) as store:
        commit(store, "billing", b"1")
        transaction = store.transaction("billing", durability="sync")
        write(transaction, b"2")
        coordinator, mine = coordinator_of(store), transaction._mine
        assert mine is not None
        ends = {key: store.log("out", key.partition).end_offset for key in OUT}
        coordinator.prepare_commit("billing", mine, ends, pylog.Durability.OS)
        assert values(store, store.snapshot()) == [b"1", b"1", b"1"]
        coordinator.topic.make_durable("billing")
        assert values(store, store.snapshot()) == [b"1", b"1", b"1", b"2", b"2", b"2"]


def test_an_id_whose_state_cannot_be_read_refuses_a_snapshot(store: Store) -> None:
    commit(store, "billing", b"1")
    log = manager_of(store).log("__transaction_state", partition_for("billing", 2))
    log.append(0, [few_rows([(0, format_key("billing"), b"\x00\x01nothing", ())])], by_owner=True)
    with pytest.raises(pylog.CorruptionError, match="billing"):
        store.snapshot()


# ---- a value -----------------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_pickled_and_read_by_another_store_and_after_a_restart(fs: MemoryFileSystem, store: Store) -> None:
    commit(store, "billing", b"1")
    kept = pickle.dumps(store.snapshot(["out"]))
    commit(store, "billing", b"2")
    with opened(fs, mode="r") as reader:
        assert values(reader, pickle.loads(kept)) == [b"1", b"1", b"1"]
    store.close()
    with opened(fs) as again:
        commit(again, "billing", b"3")
        assert values(again, pickle.loads(kept)) == [b"1", b"1", b"1"]
        assert pickle.loads(kept) == pickle.loads(kept)


def test_a_snapshot_has_the_topics_and_groups_that_were_asked_for(store: Store) -> None:
    commit(store, "billing", b"1")
    found = store.snapshot(["in"], groups=["group", "unknown"])
    assert found.partitions == (TopicPartition("in", 0),)
    assert found.offsets("unknown") == {}
    assert found.offsets("group")[TopicPartition("in", 0)].offset == 1
    assert store.snapshot().offsets("unknown") == {}
    with pytest.raises(pylog.InvalidArgumentError, match="group"):
        store.snapshot(groups=()).offsets("group")
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="out-0"):
        store.log("out").scan(snapshot=found)
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="orders"):
        store.snapshot(["orders"])
    with pytest.raises(pylog.InvalidArgumentError, match="Snapshot"):
        store.log("in").scan(snapshot="latest")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError):
        store.snapshot("in")


def test_a_closed_store_takes_no_snapshot(store: Store) -> None:
    store.close()
    with pytest.raises(pylog.ClosedError):
        store.snapshot()


# ---- what has become of the log since ----------------------------------------------------------------------------------------


def test_records_of_a_snapshot_that_were_deleted_are_an_error_never_a_shorter_answer(store: Store) -> None:
    log = store.log("in")
    snapshot = store.snapshot()
    log.append(b"after")
    log.truncate(10)
    assert len(list(log.records(snapshot=snapshot))) == 10
    log.truncate(5)
    log.append_many([b"other"] * 20)
    with pytest.raises(pylog.OffsetOutOfRangeError, match="truncated to offset 5"):
        log.records(snapshot=snapshot)
    snapshot = store.snapshot()
    log.delete_records(3)
    with pytest.raises(pylog.OffsetOutOfRangeError, match="below offset 3 were deleted"):
        store.read_table("in", snapshot=snapshot)
    store.delete_topic("in")
    store.create_topic("in")
    store.log("in").append_many([b"another topic"] * 30)
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="deleted after the snapshot"):
        store.read_table("in", snapshot=snapshot)


def test_a_truncation_by_another_process_in_mid_scan_is_an_error(fs: MemoryFileSystem, store: Store) -> None:
    for _ in range(3):
        store.log("in").append(b"x" * 400_000)
    snapshot = store.snapshot(["in"])
    with opened(fs, mode="r") as reader:
        found = reader.log("in").scan(snapshot=snapshot, max_rows=1)
        next(found)
        store.log("in").truncate(5)
        store.log("in").append_many([b"y"] * 20)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(found)


def test_records_that_compaction_superseded_after_a_snapshot_are_an_error(store: Store) -> None:
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
    prices = store.log("prices")
    for price in (b"1", b"2"):
        prices.append(price, key=b"tea")
    store.compact("prices")
    snapshot = store.snapshot(["prices"])
    before = values(store, snapshot, "prices")
    prices.append(b"3", key=b"coffee")
    assert values(store, snapshot, "prices") == before
    for price in (b"3", b"4"):
        prices.append(price, key=b"tea")
    store.compact("prices")
    with pytest.raises(pylog.OffsetOutOfRangeError, match="compacted up to"):
        values(store, snapshot, "prices")


@pytest.mark.pair("compaction", "crash")
def test_a_compaction_that_has_not_noted_its_end_yet_is_noticed(store: Store) -> None:
    """Its process may be between the replacement of a segment and the checkpoint, or may have died there."""
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
    prices = store.log("prices")
    for price, key in ((b"1", b"tea"), (b"2", b"tea"), (b"3", b"coffee")):
        prices.append(price, key=key)
    snapshot = store.snapshot(["prices"])
    before = values(store, snapshot, "prices")
    for price, key in ((b"3", b"tea"), (b"4", b"tea"), (b"5", b"milk")):
        prices.append(price, key=key)
    assert values(store, snapshot, "prices") == before
    stopped = patch.object(CleaningRound, "_note", side_effect=pylog.StorageFailedError("stopped here", errno=5))
    with stopped, pytest.raises(pylog.StorageFailedError):
        store.compact("prices")
    with pytest.raises(pylog.OffsetOutOfRangeError, match="were compacted"):
        values(store, pickle.loads(pickle.dumps(snapshot)), "prices")
    again = store.snapshot(["prices"])
    assert values(store, again, "prices") == values(store, again, "prices")


@pytest.mark.pair("compaction", "crash")
def test_a_compaction_is_noticed_though_the_new_file_has_the_inode_of_an_old_one(store: Store) -> None:
    """A file system gives the inode of a deleted file to another one, so a second compaction may bring the first inode back."""
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
    prices = store.log("prices")
    for price, key in ((b"1", b"tea"), (b"2", b"coffee"), (b"3", b"milk")):
        prices.append(price, key=key)
    snapshot = store.snapshot(["prices"])
    for price, key in ((b"4", b"tea"), (b"5", b"coffee"), (b"6", b"tea")):
        prices.append(price, key=key)
    stopped = patch.object(CleaningRound, "_note", side_effect=pylog.StorageFailedError("stopped here", errno=5))
    with stopped, pytest.raises(pylog.StorageFailedError):
        store.compact("prices")
    (partition, cut), *_ = snapshot.cuts.items()
    reused = store.snapshot(["prices"]).cuts[partition].files
    files = {base: file._replace(inode=reused[base].inode if base in reused else file.inode) for base, file in cut.files.items()}
    same = replace(snapshot, cuts={partition: replace(cut, files=files)})
    with pytest.raises(pylog.OffsetOutOfRangeError, match="were compacted"):
        values(store, same, "prices")


@pytest.mark.pair("option change", "compaction")
def test_a_snapshot_of_a_topic_that_was_altered_to_be_compacted_is_an_error(store: Store) -> None:
    store.create_topic("prices", segment_bytes=100)
    prices = store.log("prices")
    for price in (b"1", b"2", b"3"):
        prices.append(price, key=b"tea")
    snapshot = store.snapshot(["prices"])
    store.alter_topic("prices", cleanup_policy="compact")
    stopped = patch.object(CleaningRound, "_note", side_effect=pylog.StorageFailedError("stopped here", errno=5))
    with stopped, pytest.raises(pylog.StorageFailedError):
        store.compact("prices")
    with pytest.raises(pylog.OffsetOutOfRangeError, match="changed to compact"):
        values(store, snapshot, "prices")
    again = store.snapshot(["prices"])
    assert [record.value for record in prices.records(snapshot=again)][-1] == b"3"


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_topic_that_is_deleted_while_a_snapshot_is_taken_is_not_in_it(fs: MemoryFileSystem, store: Store, mode: str) -> None:
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
    store.log("prices").append(b"1", key=b"k")

    class ThenDeleted(PartitionLog):
        def snapshot(self, **options: Any) -> LogState:
            found = super().snapshot(**options)
            if self.partition.topic == "prices" and "prices" in store.topics():
                store.delete_topic("prices")
            return found

    with opened(fs.process(), mode=mode) as other, patch.object(log_opener, "PartitionLog", ThenDeleted):
        assert "prices" not in {partition.topic for partition in other.snapshot().partitions}


def test_a_topic_that_is_deleted_while_its_snapshot_is_checked_is_named(fs: MemoryFileSystem, store: Store) -> None:
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
    for number in range(4):
        store.log("prices").append(b"%d" % number, key=b"k")
    taken = store.snapshot(["prices"])

    def then_deleted(*given: Any) -> str | None:
        found = read_topic_id(*given)
        with opened(fs.process()) as other:
            other.delete_topic("prices")
        return found

    with opened(fs.process(), mode="r") as reader, patch.object(queries, "read_topic_id", then_deleted):
        log = reader.log("prices")
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="prices-0"):
            log.scan(snapshot=taken)


def test_read_table_takes_a_snapshot_by_itself(tmp_path: Path) -> None:
    with pylog.open(tmp_path, **FEW) as store:
        store.create_topic("out", partition_count=3)
        commit_to = store.transaction("billing")
        write(commit_to, b"1")
        commit_to.commit()
        write(store.transaction("open"), b"2")
        assert pylog.read_table(tmp_path, "out", snapshot=True)["value"].to_pylist() == [b"1"] * 3
        taken = store.snapshot(["out"])
    assert pylog.read_table(tmp_path, "out", columns=["value"], snapshot=taken).num_rows == 3
    assert sum(batch.num_rows for batch in pylog.read_batches(tmp_path, "out", 1, snapshot=taken)) == 1


def test_a_reader_after_a_power_loss_takes_a_marker_as_proof_of_the_decision(fs: MemoryFileSystem, store: Store) -> None:
    """The power loss kept the decision, but neither the note that it is durable nor the other markers."""
    transaction = store.transaction("billing", durability="sync")
    write(transaction, b"1")
    note = f"/data/__transaction_state-{partition_for('billing', 2)}/durable-point"
    before = fs.open(note).read(fs.open(note).size(), 0)
    write_marker = TransactionCoordinator._write_marker

    def failing(self: TransactionCoordinator, partition: TopicPartition, *given: Any) -> None:
        if partition != OUT[0]:
            raise pylog.StorageFailedError("no power")
        write_marker(self, partition, *given)

    with patch.object(TransactionCoordinator, "_write_marker", failing):
        transaction.commit()
    after = MemoryFileSystem(image=fs.image(), boots=7)
    file = after.open(note, write=True)
    file.write(memoryview(before), 0)
    file.close()
    with opened(after, mode="r") as reader:
        assert values(reader, reader.snapshot()) == [b"1"] * 3
