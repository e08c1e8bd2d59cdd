"""Retention, truncation and the deletion of topics leave a transaction whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import pylog
from pylog.config import Durability
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.arguments import rows_of
from pylog.record.types import TransactionalBatch
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.records import format_key
from support.objects import MemoryObjects
from support.transactional import committed, coordinator_of, count_open, new_store, opened

A_BROKERS = 17
OURS = 1 << 50


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs) as made:
        yield made


def test_retention_keeps_the_records_from_the_first_open_transaction_on(store: Store) -> None:
    store.create_topic("short", segment_bytes=300, retention_bytes=0)
    log = store.log("short")
    log.append(b"x" * 150)
    with store.transaction("billing") as transaction:
        transaction.append("short", b"y" * 150)
        transaction.flush()
        for _ in range(3):
            log.append(b"z" * 150)
        store.retain("short")
        assert log.start_offset == 1
        log.delete_records(1)
    assert committed(store, "short") == [b"y" * 150] + [b"z" * 150] * 3
    store.retain("short")
    assert committed(store, "short") == []


def test_delete_records_goes_through_an_open_transaction(store: Store) -> None:
    with store.transaction("billing") as transaction:
        transaction.append("in", b"deleted")
        transaction.flush()
        store.log("in").append(b"kept")
        assert store.log("in").delete_records(11) == 11
    assert committed(store, "in") == [b"kept"]


@pytest.mark.pair("delete_records", "second process")
@pytest.mark.parametrize("ends_in_the_deleting_process", [False, True])
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_an_open_transaction_whose_records_are_all_deleted_holds_no_reader_back_in_any_process(
    fs: MemoryFileSystem,
    store: Store,
    ends_in_the_deleting_process: bool,
    commit: bool,
    before: int,
) -> None:
    store.create_topic("short", segment_bytes=300, cleanup_policy="delete")
    other = opened(fs.process())
    transaction = (store if ends_in_the_deleting_process else other).transaction("billing")
    transaction.append("short", b"deleted")
    transaction.flush()
    for _ in range(4):
        store.log("short").append(b"z" * 150)
    assert other.log("short").stable_offset == 0
    store.log("short").delete_records(before)
    if commit:
        transaction.commit()
    else:
        transaction.abort()
    for each in (store, other):
        log = each.log("short")
        assert log.stable_offset == log.end_offset
        log.append(b"later")
    for each in (store, other, opened(fs.process(), mode="r")):
        assert committed(each, "short").count(b"later") == 2
        each.close()


def test_a_truncation_that_would_delete_records_of_an_open_transaction_is_refused(store: Store) -> None:
    log = store.log("out", 0)
    with store.transaction("billing") as transaction:
        transaction.append_many("out", [b"a", b"b"], partition=0)
        transaction.flush()
        log.append(b"plain")
        for end in (0, 1):
            with pytest.raises(pylog.InvalidTransactionStateError, match="truncate to 2 or more"):
                log.truncate(end)
        log.truncate(2)
    assert committed(store, "out") == [b"a", b"b"]


def test_a_truncation_that_would_part_records_from_their_marker_is_refused_and_the_next_ends_are_named(store: Store) -> None:
    """Offsets: 0 plain, 1 and 3 data of two transactions, 2 plain, 4 and 5 their markers, 6 plain."""
    log = store.log("out", 0)
    log.append(b"0")
    first, second = store.transaction("first"), store.transaction("second")
    for transaction, value in ((first, b"1"), (second, b"3")):
        transaction.append("out", value, partition=0)
        transaction.flush()
        if transaction is first:
            log.append(b"2")
    first.commit()
    second.abort()
    log.append(b"6")
    for end in (2, 3, 4, 5):
        with pytest.raises(pylog.InvalidTransactionStateError, match="truncate to 1 or 6"):
            log.truncate(end)
    log.truncate(6)
    assert committed(store, "out") == [b"0", b"1", b"2"]
    log.truncate(1)
    assert (committed(store, "out"), count_open(store, "out")) == ([b"0"], 0)


@pytest.mark.pair("truncation", "aborted transactions")
@pytest.mark.parametrize("snapshot", ["there", "lost"])
def test_a_truncation_that_would_part_archived_records_from_their_marker_is_refused_and_changes_nothing(
    fs: MemoryFileSystem,
    snapshot: str,
) -> None:
    """Offsets: 0 data of a transaction, 1 to 4 plain, 5 its marker, 6 plain. The first segment is only in the archive."""
    with opened(fs, archive=MemoryObjects()) as store:
        store.create_topic("far", segment_bytes=300, remote_storage_enable=True, local_retention_bytes=400)
        log = store.log("far")
        transaction = store.transaction("billing")
        transaction.append("far", b"0" * 150)
        transaction.flush()
        for _ in range(4):
            log.append(b"z" * 150)
        transaction.abort()
        log.append(b"z" * 150)
        store.tick()
        start, archived = log.local_start_offset, log.archived_end_offset
        assert 0 < start < 5
        if snapshot == "lost":
            fs.remove(f"/data/far-0/{start:020}.snapshot")
        for end in range(start, 6):
            with pytest.raises(pylog.InvalidTransactionStateError, match=r"begins at offset 0, .* truncate to 6$"):
                log.truncate(end)
        assert log.archived_end_offset == archived
        assert committed(store, "far") == [b"z" * 150] * 5
        log.truncate(6)
        assert committed(store, "far") == [b"z" * 150] * 4


@pytest.mark.parametrize("topic", ["out", "__transaction_state", "__consumer_offsets"])
def test_a_topic_that_a_living_transaction_needs_is_not_deleted(fs: MemoryFileSystem, store: Store, topic: str) -> None:
    store.offsets.commit("group", {("in", 0): 1})
    with opened(fs) as other:
        with store.transaction("billing") as transaction:
            transaction.append("out", b"kept")
            transaction.flush()
            for each in (store, other):
                with pytest.raises(pylog.InvalidTransactionStateError, match="transaction of 'billing' needs it"):
                    each.delete_topic(topic)
            other.delete_topic("in")
        assert committed(other, "out") == [b"kept"]
        other.delete_topic(topic)
        assert topic not in store.topics()


def test_a_topic_that_only_a_dead_transaction_needs_is_deleted(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        store.create_topic("out")
    dead = opened(fs)
    transaction = dead.transaction("billing")
    transaction.append("out", b"never seen")
    transaction.flush()
    dead.close()
    with opened(fs) as store:
        store.delete_topic("out")
        assert "out" not in store.topics()


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_an_internal_topic_is_not_deleted_while_the_state_of_an_id_cannot_be_read(store: Store, topic: str) -> None:
    store.offsets.commit("group", {("in", 0): 1})
    with store.transaction("billing") as transaction:
        transaction.append("out", b"kept")
    states = coordinator_of(store).topic.partition(0)
    states.append([(format_key("billing"), b"\x00\x63of a later version")], None, Durability.SYNC)
    with pytest.raises(pylog.PylogError, match="'billing' cannot be read"):
        store.delete_topic(topic)
    store.delete_topic("out")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_topic_is_deleted_with_force_and_the_transaction_that_needs_it_is_aborted(
    fs: MemoryFileSystem, store: Store, elsewhere: bool
) -> None:
    with opened(fs) as other:
        transaction = store.transaction("billing")
        transaction.append("out", b"gone")
        transaction.append("in", b"aborted")
        transaction.flush()
        (other if elsewhere else store).delete_topic("out", force=True)
        assert coordinator_of(other).undecided() == []
        assert count_open(other, "in") == 0
        with pytest.raises(pylog.TransactionAbortedError, match="a topic that it writes to was deleted") as aborted:
            transaction.commit()
        assert "another process" not in str(aborted.value)
        transaction.abort()
    assert "out" not in store.topics()
    with store.transaction("billing") as following:
        following.append("in", b"next")
    assert committed(store, "in")[10:] == [b"next"]
    assert store.check().ok


def test_a_transaction_of_other_topics_is_not_aborted_with_a_topic(store: Store) -> None:
    store.create_topic("other")
    with store.transaction("billing") as transaction:
        transaction.append("in", b"kept")
        transaction.flush()
        store.delete_topic("other", force=True)
    assert committed(store, "in")[10:] == [b"kept"]


def test_a_decided_transaction_stays_committed_when_its_topic_is_deleted_with_force(store: Store) -> None:
    dies = patch.object(TransactionCoordinator, "write_markers", side_effect=pylog.PylogError("it stops here"))
    with dies, store.transaction("billing") as transaction:
        transaction.append("out", b"gone")
        transaction.append("in", b"kept")
    store.delete_topic("out", force=True)
    assert committed(store, "in")[10:] == [b"kept"]


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_force_deletes_no_internal_topic_under_a_transaction(store: Store, topic: str) -> None:
    store.offsets.commit("group", {("in", 0): 1})
    with store.transaction("billing") as transaction:
        transaction.append("out", b"kept")
        transaction.flush()
        with pytest.raises(pylog.InvalidTransactionStateError, match="transaction of 'billing' needs it"):
            store.delete_topic(topic, force=True)
    assert committed(store, "out") == [b"kept"]


def test_no_transaction_is_aborted_for_a_topic_that_cannot_be_deleted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with pylog.open(root) as store:
        store.create_topic("in")
    (root / "in-0").rename(tmp_path / "in-0")
    (root / "in-0").symlink_to(tmp_path / "in-0")
    with pylog.open(root) as store:
        with store.transaction("billing") as transaction:
            transaction.append("in", b"kept")
            transaction.flush()
            with pytest.raises(pylog.IllegalStateError, match="link"):
                store.delete_topic("in", force=True)
        assert committed(store, "in") == [b"kept"]


# ---- transactions that nobody ends -------------------------------------------------------------------------------------------


def append_open(store: Store, topic: str, producer_id: int) -> None:
    """Appends a batch of an open transaction that no id has, as a broker may leave it."""
    log = manager_of(store).log(topic, 0)
    batch = TransactionalBatch(producer_id, 0, 0)
    log.append(log.clock.now_ms(), [rows_of([b"o" * 150], log.clock.now_ms())], None, None, batch, True)


@pytest.mark.parametrize(("minutes", "start"), [(19, 1), (21, 2)])
def test_a_hanging_transaction_of_a_broker_does_not_stop_retention(
    fs: MemoryFileSystem, store: Store, minutes: int, start: int
) -> None:
    store.create_topic("short", segment_bytes=300, retention_bytes=400)
    store.log("short").append(b"x" * 150)
    append_open(store, "short", A_BROKERS)
    store.log("short").append_many([b"z" * 150, b"z" * 150])
    fs.clock.advance(minutes * 60_000)
    for options in ({"mode": "r"}, {}):
        with opened(fs, **options) as other:
            assert [each.new_start_offset for each in other.retain("short", dry_run=True)] == [start]
    store.retain("short")
    assert store.log("short").start_offset == start


def test_a_transaction_of_pylog_holds_retention_however_old_it_is(fs: MemoryFileSystem, store: Store) -> None:
    """The states cannot be read, so that nothing ends it."""
    store.create_topic("short", segment_bytes=300, retention_bytes=0)
    append_open(store, "short", OURS)
    fs.clock.advance(30 * 24 * 3_600_000)
    store.log("short").append(b"z" * 150)
    store.retain("short")
    assert store.log("short").start_offset == 0


def test_a_hanging_transaction_of_a_broker_does_not_stop_truncation(fs: MemoryFileSystem, store: Store) -> None:
    log = store.log("out", 0)
    append_open(store, "out", A_BROKERS)
    with pytest.raises(pylog.InvalidTransactionStateError, match="truncate to 1 or more"):
        log.truncate(0)
    fs.clock.advance(21 * 60_000)
    log.truncate(0)
    assert count_open(store, "out") == 0


# ---- markers of aborts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", [Durability.OS, Durability.SYNC], ids=["OS", "SYNC"])
def test_the_marker_of_an_abort_is_as_durable_as_its_transaction(store: Store, durability: Durability) -> None:
    """Else a power loss could take the marker alone: a broker would leave the records open, and give the offset again."""
    transaction = store.transaction("billing", durability=durability)
    transaction.append("out", b"never seen", partition=0)
    transaction.flush()
    transaction.abort()
    state = manager_of(store).log("out", 0).snapshot()
    assert (state.durable_offset == state.end_offset) == (durability is Durability.SYNC)


def test_the_marker_of_an_orphan_is_durable(fs: MemoryFileSystem, store: Store) -> None:
    append_open(store, "out", OURS)
    store.tick()
    store.close()
    with opened(fs) as other:
        state = manager_of(other).log("out", 0).snapshot()
        assert (count_open(other, "out"), state.durable_offset) == (0, state.end_offset)


# ---- ids do not wait for each other --------------------------------------------------------------------------------------------


def init_in_which(store: Store, slow: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a function run inside the `init` of the id `slow`."""
    init = TransactionCoordinator.init

    def waits(self: TransactionCoordinator, transactional_id: str, timeout_ms: int) -> object:
        if transactional_id == "slow":
            slow()
        return init(self, transactional_id, timeout_ms)

    monkeypatch.setattr(TransactionCoordinator, "init", waits)


def in_thread(call: Callable[[], object]) -> bool:
    """Returns whether a call in another thread ends while this thread waits for it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


def quick_uses(store: Store) -> dict[str, Callable[[], object]]:
    def use(transactional_id: str | None) -> None:
        with store.transaction(transactional_id) as transaction:
            transaction.append("out", b"quick", partition=0)

    def use_a_producer() -> None:
        with store.producer(transactional_id="quick") as producer:
            producer.init_transactions()

    return {
        "another id": lambda: use("quick"),
        "no id": lambda: use(None),
        "a producer": use_a_producer,
        "a tick": store.tick,
        "the list": store.transactions.list,
    }


@pytest.mark.parametrize("use", ["another id", "no id", "a producer", "a tick", "the list"])
@pytest.mark.parametrize("first", ["transaction", "producer"])
def test_an_id_that_waits_in_its_init_holds_up_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch, first: str, use: str
) -> None:
    ended: list[bool] = []
    init_in_which(store, lambda: ended.append(in_thread(quick_uses(store)[use])), monkeypatch)
    if first == "transaction":
        store.transaction("slow").abort()
    else:
        with store.producer(transactional_id="slow") as producer:
            producer.init_transactions()
    assert ended == [True]


def test_a_second_use_of_an_id_waits_for_its_init_and_is_then_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threading.Event()

    def second() -> None:
        with pytest.raises(pylog.InvalidTransactionStateError, match="open transaction in this store"):
            store.transaction("slow")
        refused.set()

    def slow() -> None:
        threading.Thread(target=second, daemon=True).start()
        assert not refused.wait(0.05)

    init_in_which(store, slow, monkeypatch)
    transaction = store.transaction("slow")
    assert refused.wait(5)
    transaction.append("out", b"first", partition=0)
    transaction.commit()
    assert committed(store, "out") == [b"first"]


def test_an_id_whose_init_has_failed_can_be_used_again_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [pylog.StoreLockedError("busy"), pylog.StoreLockedError("busy again")]

    def fails() -> None:
        if failures:
            raise failures.pop()

    init_in_which(store, fails, monkeypatch)
    with pytest.raises(pylog.StoreLockedError) as caught:
        store.transaction("slow")
    with pytest.raises(pylog.StoreLockedError):  # while the first error, and so its frames, are alive
        store.transaction("slow")
    assert str(caught.value) == "busy again"
    with store.transaction("slow") as transaction:
        transaction.append("out", b"x", partition=0)
    assert committed(store, "out") == [b"x"]


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_an_instance_that_stands_still_in_its_commit_does_not_take_the_numbers_of_a_newer_one(
    fs: MemoryFileSystem, store: Store, ends: str
) -> None:
    write_marker = TransactionCoordinator._write_marker
    newer = opened(fs)
    values = [b"newest", b"newer"]

    def stands_still(self: TransactionCoordinator, *given: Any) -> None:
        while values and self is coordinator_of(store):
            value = values.pop()
            with newer.transaction("billing") as transaction:  # the first one finishes the older transaction
                transaction.append("out", value, partition=0)
        write_marker(self, *given)

    older = store.transaction("billing")
    older.append("out", b"older", partition=0)
    older.flush()
    with patch.object(TransactionCoordinator, "_write_marker", stands_still):
        getattr(older, ends)()
    assert older.outcome == f"{ends}ed".replace("commited", "committed")
    fenced = store.transaction("billing")
    fenced.append("out", b"fenced", partition=0)
    with pytest.raises(pylog.ProducerFencedError):
        fenced.commit()
    with newer.transaction("billing") as transaction:
        transaction.append("out", b"last", partition=0)
    found = committed(store, "out")
    assert found == sorted([b"newer", b"newest", b"last", *([b"older"] if ends == "commit" else [])])
    newer.close()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ends_by", ["commit", "abort"])
@pytest.mark.pair("delete_records", "aborted transactions", "roll")
def test_a_log_that_begins_inside_an_ended_transaction_verifies_clean(tmp_path: Path, ends_by: str) -> None:
    with pylog.open(tmp_path, durability="os") as store:
        store.create_topic("t", segment_bytes=200, retention_ms=-1)
        store.create_topic("other", retention_ms=-1)
        log = store.log("t")
        transaction = store.transaction("id")
        transaction.append("other", b"x")  # so that it has markers
        for _ in range(6):
            transaction.append_many("t", [b"x" * 60, b"x" * 60])
            transaction.flush()
        getattr(transaction, ends_by)()
        bases = [segment.base_offset for segment in log.segments]
        assert len(bases) > 2
        log.append(b"after")
        log.delete_records(bases[2])
        report = store.verify()
        assert report.ok, report.findings
    with pylog.open(tmp_path) as store:
        assert store.verify().ok
        assert store.check().ok
        kept = [record.offset for record in store.log("t").records(isolation_level="read_committed")]
        assert len(kept) == (13 - bases[2] if ends_by == "commit" else 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kept", ["its last batch, after others", "its marker"])
@pytest.mark.pair("delete_records", "aborted transactions", "roll")
def test_a_log_that_begins_inside_an_aborted_transaction_verifies_clean_whatever_is_left_of_it(tmp_path: Path, kept: str) -> None:
    with pylog.open(tmp_path, durability="os") as store:
        store.create_topic("t", segment_bytes=200, retention_ms=-1)
        store.create_topic("other", retention_ms=-1)
        log = store.log("t")
        transaction = store.transaction("id")
        transaction.append("other", b"x")  # so that it has markers
        transaction.append_many("t", [b"x" * 60, b"x" * 60])
        transaction.flush()
        for _ in range(4):
            log.append_many([b"between" * 10] * 2)
        if kept != "its marker":
            transaction.append("t", b"last")
            transaction.flush()
        transaction.abort()
        bases = [segment.base_offset for segment in log.segments]
        log.append(b"after")
        log.delete_records(bases[2])
        for _ in range(3):  # a snapshot and a transaction index of their own
            log.append_many([b"after" * 15] * 2)
        report = store.verify()
        assert report.ok, report.findings
    with pylog.open(tmp_path) as store:
        assert store.verify().ok
        assert store.check().ok


@pytest.mark.pair("delete_records", "aborted transactions")
def test_an_index_entry_of_a_transaction_that_no_marker_ends_is_told(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability="os") as store:
        store.create_topic("t", segment_bytes=200, retention_ms=-1)
        log = store.log("t")
        for _ in range(6):
            log.append_many([b"x" * 60] * 2)
        bases = [segment.base_offset for segment in log.segments]
        log.delete_records(bases[2])
    lie = AbortedTransaction(77, 1, bases[2] + 1, bases[2] + 2).encoded()
    (tmp_path / "t-0" / f"{bases[2]:020}.txnindex").write_bytes(lie)
    with pylog.open(tmp_path, mode="r") as store:
        assert [finding for finding in store.verify().findings if "was not aborted" in finding.message]
