"""A transaction whose records are one batch of one partition: the batch decides it, whichever process comes, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import pylog
from pylog.clock import ManualClock
from pylog.config import Durability
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.testing.memory import MemoryFile
from pylog.transactions import states
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.metadata import TransactionMetadata, TransactionOwner, TransactionState
from pylog.transactions.records import format_value, parse_value
from pylog.transactions.single_batch import SingleBatchTransactions
from pylog.transactions.snapshots import SnapshotTaker
from support.transactional import committed, coordinator_of, count_open, new_store, opened

OUT = pylog.TopicPartition("out", 0)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with new_store(fs) as made:
        yield made


def transaction_of(store: Store, value: bytes, transactional_id: str = "billing") -> pylog.Transaction:
    """A transaction that is not committed yet. Nothing of it is written."""
    transaction = store.transaction(transactional_id)
    transaction.append("out", value, partition=0)
    return transaction


def commit_of(store: Store, value: bytes, transactional_id: str = "billing") -> pylog.Transaction:
    with transaction_of(store, value, transactional_id) as transaction:
        pass
    return transaction


def state_of(store: Store, transactional_id: str = "billing") -> str:
    return store.transactions.describe(transactional_id).state


class _Killed(BaseException):
    """Ends a call where its process is killed."""


def killed_at(step: str, *, after: bool) -> Any:
    """The process is killed before or after a step of a commit: the append of the batch, or the record that it is complete."""
    where, name = {"append": (Incarnation, "append"), "complete": (SingleBatchTransactions, "complete")}[step]
    real = getattr(where, name)

    def killed(*given: Any, **named: Any) -> None:
        if after:
            real(*given, **named)
        raise _Killed

    return patch.object(where, name, killed)


def test_it_is_one_append_without_a_marker_and_its_id_is_known(store: Store) -> None:
    transaction = store.transaction("billing")
    transaction.append_many("out", [b"a", b"b"], partition=1)
    transaction.append("out", b"c", partition=1)
    transaction.commit()
    assert transaction.outcome == "committed"
    assert transaction.offsets == {pylog.TopicPartition("out", 1): [range(3)]}
    assert store.log("out", 1).end_offset == 3, "there is no marker"
    assert state_of(store) == "CompleteCommit"
    epoch = store.transactions.describe("billing").producer_epoch
    commit_of(store, b"next")
    assert store.transactions.describe("billing").producer_epoch == epoch + 1
    assert committed(store, "out") == [b"a", b"b", b"c", b"next"]


def test_transactions_of_one_batch_and_of_several_follow_each_other_in_one_partition(store: Store) -> None:
    for number in range(3):
        commit_of(store, b"single %d" % number)
        with transaction_of(store, b"both %d" % number) as transaction:
            transaction.append("out", b"too %d" % number, partition=1)
        given_up = transaction_of(store, b"never seen")
        given_up.flush()
        given_up.abort()
    assert committed(store, "out") == sorted(
        b"%s %d" % (kind, number) for kind in (b"single", b"both", b"too") for number in range(3)
    )
    assert store.verify().ok


@pytest.mark.parametrize(
    ("meanwhile", "syncs"),
    [
        ("nothing", ["__transaction_state", "out"]),
        ("a pause", ["__transaction_state", "out"]),
        ("a sync of the states", ["out"]),
    ],
)
def test_its_commit_waits_for_two_syncs_and_for_one_if_the_states_were_synced_meanwhile(meanwhile: str, syncs: list[str]) -> None:
    clock = ManualClock(10**12)
    fs = MemoryFileSystem(clock=clock)
    with new_store(fs, durability=Durability.SYNC) as store:
        for number in range(3):
            commit_of(store, b"%d" % number)
        if meanwhile == "a pause":
            clock.advance(10_000)
        if meanwhile == "a sync of the states":
            coordinator_of(store).topic.make_durable("billing")
        synced: list[str] = []
        sync = MemoryFile.sync

        def noted(file: MemoryFile) -> None:
            synced.append(file.path.split("/")[2].rsplit("-", 1)[0])
            sync(file)

        with patch.object(MemoryFile, "sync", noted):
            commit_of(store, b"last")
        assert synced == syncs


# ---- a process that dies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "after", "is_there"),
    [("append", False, False), ("append", True, True), ("complete", False, True), ("complete", True, True)],
)
@pytest.mark.parametrize("how", ["the next opening", "a reader", "the next instance", "an administrator"])
@pytest.mark.pair("aborted transactions", "second process")
def test_a_dead_ones_batch_commits(fs: MemoryFileSystem, step: str, after: bool, is_there: bool, how: str) -> None:
    commit_of(new_store(fs), b"before")
    fs.kill()
    fs = fs.process()
    dead = opened(fs)
    transaction = transaction_of(dead, b"single")
    with killed_at(step, after=after), pytest.raises(_Killed):
        transaction.commit()
    fs.kill()
    fs = fs.process()
    expected = [b"before", b"single"] if is_there else [b"before"]
    with opened(fs, **({"mode": "r"} if how == "a reader" else {})) as store:
        if how == "the next instance":
            commit_of(store, b"x")
            expected = sorted([*expected, b"x"])
        if how == "an administrator" and state_of(store) == "Ongoing":
            store.transactions.abort("billing")
        assert committed(store, "out") == expected
        assert count_open(store, "out") == 0 if how != "a reader" else True
        if how in ("the next opening", "an administrator"):
            assert state_of(store) == ("CompleteCommit" if is_there else "CompleteAbort")
            commit_of(store, b"later")
            assert committed(store, "out") == sorted([*expected, b"later"])
        if how != "a reader":
            assert store.verify().ok
            assert store.check().ok


def test_a_transaction_whose_topic_is_gone_ends_and_its_id_goes_on(store: Store) -> None:
    """A broker deletes topics whatever transactions need them."""
    commit_of(store, b"first")
    gone = pylog.TopicPartition("gone", 0)
    coordinator = coordinator_of(store)
    state = coordinator.topic.state_of("billing")
    assert state is not None
    coordinator.begin("billing", state.identity, [gone], TransactionOwner.of(1 << 42, Durability.OS, is_single=True))
    with pytest.raises(pylog.InvalidTransactionStateError):  # this instance has not begun it
        commit_of(store, b"refused")
    coordinator.finish("billing", abort=True)
    assert state_of(store) == "CompleteAbort"
    commit_of(store, b"next")
    assert committed(store, "out") == [b"first", b"next"]


def test_a_topic_is_not_deleted_while_a_batch_is_on_its_way(store: Store) -> None:
    append = Incarnation.append

    def late(*given: Any) -> range:
        with pytest.raises(pylog.InvalidTransactionStateError, match="'billing' needs it"):
            store.delete_topic("out")
        return append(*given)

    with patch.object(Incarnation, "append", late):
        commit_of(store, b"single")
    assert committed(store, "out") == [b"single"]


def fs_of_another(fs: MemoryFileSystem) -> Store:
    """The store of another process that runs at the same time."""
    return opened(fs.process())


# ---- two instances -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["a newer instance", "an administrator"])
def test_an_instance_that_stood_still_is_refused(store: Store, fs: MemoryFileSystem, by: str) -> None:
    append = Incarnation.append
    other = fs_of_another(fs)

    def overtaken(*given: Any) -> range:
        with patch.object(Incarnation, "append", append):
            if by == "a newer instance":
                commit_of(other, b"newer")
            else:
                other.transactions.abort("billing")
        return append(*given)

    transaction = transaction_of(store, b"older")
    refused = pylog.ProducerFencedError if by == "a newer instance" else pylog.TransactionAbortedError
    with patch.object(Incarnation, "append", overtaken), pytest.raises(refused):
        transaction.commit()
    assert transaction.outcome != "committed"
    assert committed(store, "out") == ([b"newer"] if by == "a newer instance" else [])
    other.close()
    if by == "an administrator":
        transaction.abort()
        commit_of(store, b"again")
        assert committed(store, "out") == [b"again"]


def test_a_batch_is_kept_out_from_the_moment_that_another_process_has_not_found_it(store: Store, fs: MemoryFileSystem) -> None:
    """The older instance appends after the other process has looked, and before that has noted the end."""
    append, complete = Incarnation.append, SingleBatchTransactions.complete
    other = fs_of_another(fs)
    refused: list[pylog.TransactionAbortedError] = []

    def overtaken(*given: Any) -> range:
        def noted(*of_other: Any, **named: Any) -> TransactionMetadata | None:
            with patch.object(SingleBatchTransactions, "complete", complete):
                with pytest.raises(pylog.TransactionAbortedError) as caught:
                    append(*given)
                refused.append(caught.value)
            return complete(*of_other, **named)

        with patch.object(SingleBatchTransactions, "complete", noted):
            other.transactions.abort("billing")
        raise refused[0]

    transaction = transaction_of(store, b"older")
    with patch.object(Incarnation, "append", overtaken), pytest.raises(pylog.TransactionAbortedError):
        transaction.commit()
    assert committed(store, "out") == []
    transaction.abort()
    commit_of(store, b"again")
    assert committed(other, "out") == [b"again"]
    other.close()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["the same process", "another process"])
def test_an_instance_that_stands_still_after_its_append_is_committed_for_itself_and_for_a_newer_one(
    store: Store, fs: MemoryFileSystem, elsewhere: bool
) -> None:
    complete = SingleBatchTransactions.complete
    newer = fs_of_another(fs) if elsewhere else store

    def overtaken(*given: Any, **named: Any) -> TransactionMetadata | None:
        with patch.object(SingleBatchTransactions, "complete", complete):
            if elsewhere:
                commit_of(newer, b"newer")
            else:
                coordinator_of(store).finish("billing", abort=True)
        return complete(*given, **named)

    transaction = transaction_of(store, b"older")
    with patch.object(SingleBatchTransactions, "complete", overtaken):
        transaction.commit()
    assert transaction.outcome == "committed"
    assert committed(store, "out") == ([b"newer", b"older"] if elsewhere else [b"older"])
    assert state_of(newer) == "CompleteCommit"
    if elsewhere:
        newer.close()
    else:
        commit_of(store, b"next")
        assert committed(store, "out") == [b"next", b"older"]


# ---- calls that are interrupted, or fail -------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before the append", "after it"])
@pytest.mark.parametrize("in_block", [False, True], ids=["a call", "the end of a block"])
def test_after_an_interrupt_the_outcome_is_what_the_log_has(store: Store, after: bool, in_block: bool) -> None:
    transaction = transaction_of(store, b"interrupted")

    def block() -> None:
        with transaction:
            pass

    with killed_at("append", after=after), pytest.raises(_Killed):
        block() if in_block else transaction.commit()
    assert transaction.outcome == ("committed" if after else "aborted" if in_block else "open")
    if after:
        with pytest.raises(pylog.InvalidTransactionStateError, match="its outcome is 'committed'"):
            transaction.abort()
    else:
        transaction.abort()
        assert transaction.outcome == "aborted"
    commit_of(store, b"next")
    assert committed(store, "out") == ([b"interrupted", b"next"] if after else [b"next"])


def test_a_record_of_its_end_that_cannot_be_written_is_written_by_the_next_transaction(store: Store) -> None:
    full = patch.object(SingleBatchTransactions, "complete", side_effect=pylog.StorageFailedError("no room", errno=28))
    with full:
        transaction = commit_of(store, b"first")
    assert transaction.outcome == "committed"
    assert state_of(store) == "Ongoing"
    commit_of(store, b"second")
    assert committed(store, "out") == [b"first", b"second"]
    assert state_of(store) == "CompleteCommit"


def test_a_full_disk_refuses_the_commit_and_the_transaction_can_be_aborted_and_repeated(fs: MemoryFileSystem) -> None:
    with new_store(fs) as store:
        commit_of(store, b"first")
        transaction = transaction_of(store, b"second")
        log = manager_of(store).log("out", 0)
        full = pylog.StorageFailedError("no room", errno=28)
        with patch.object(log, "append", side_effect=full), pytest.raises(pylog.StorageFailedError):
            transaction.commit()
        assert transaction.outcome == "open"
        transaction.abort()
        commit_of(store, b"second")
        assert committed(store, "out") == [b"first", b"second"]


def test_after_a_failed_sync_the_outcome_is_unknown_until_the_store_is_opened_again(fs: MemoryFileSystem) -> None:
    store = new_store(fs)
    transaction = transaction_of(store, b"single")
    log = manager_of(store).log("out", 0)
    failed = pylog.StorageFailedError("the sync failed", errno=5)
    with patch.object(log, "append", side_effect=failed), pytest.raises(pylog.StorageFailedError):
        transaction.commit()
    assert transaction.outcome == "unknown"
    with pytest.raises(pylog.InvalidTransactionStateError, match="its outcome is 'unknown'"):
        transaction.abort()
    fs.kill()
    with opened(fs.process()) as store:
        assert committed(store, "out") == []
        assert state_of(store) == "CompleteAbort"


# ---- the record, and others that read it -------------------------------------------------------------------------------------


def begun(*, is_single: bool = True) -> TransactionMetadata:
    empty = TransactionMetadata("billing", 1 << 50, 4, 60_000, TransactionState.EMPTY, (), 0)
    owner = TransactionOwner.of(1 << 42, Durability.OS, is_single=is_single)
    return states.begin(empty, empty.identity, [OUT], owner, 9)


def test_the_record_says_that_the_transaction_is_one_batch_and_others_are_as_before() -> None:
    for state in (begun(), begun(is_single=False)):
        assert parse_value("billing", format_value(state)) == state
    longer, shorter = len(format_value(begun())), len(format_value(begun(is_single=False)))
    assert longer == shorter + 1


def test_a_coordinator_that_does_not_know_it_calls_it_aborted_and_its_record_stays(store: Store, fs: MemoryFileSystem) -> None:
    """As a broker does, or an older pylog: it prepares an abort, and writes an abort marker to a log with nothing open."""
    transaction = transaction_of(store, b"single")
    with killed_at("complete", after=False), pytest.raises(_Killed):
        transaction.commit()
    coordinator = coordinator_of(store)
    state = coordinator.topic.state_of("billing")
    assert state is not None
    assert state.is_single
    prepared = coordinator.prepare_abort("billing", state.identity)
    coordinator.write_markers(replace(prepared, owner=None) if prepared.owner is None else prepared)
    assert state_of(store) == "CompleteAbort"
    with fs_of_another(fs) as other:
        commit_of(other, b"next")
        assert committed(other, "out") == [b"next", b"single"]


@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.parametrize("transactional_id", ["depends", None])
@pytest.mark.parametrize("moment", ["before its partition is looked at", "after it"])
@pytest.mark.pair("aborted transactions", "second process")
def test_a_snapshot_has_each_batch_that_others_depend_on(
    store: Store, fs: MemoryFileSystem, mode: Any, transactional_id: str | None, moment: str
) -> None:
    """The batch is written during the snapshot, and read by another program, which commits what depends on it at once."""
    append, state_of = Incarnation.append, SnapshotTaker._state_of
    waits = ["before its partition is looked at", "after it"].index(moment)
    found: list[bytes] = []

    def around(*given: Any) -> range:
        """The append of the batch, in the middle of a snapshot."""
        written: list[range] = []

        def looked(taker: SnapshotTaker, key: pylog.TopicPartition) -> Any:
            if key == pylog.TopicPartition("out", waits) and not written:
                with patch.object(Incarnation, "append", append):
                    written.append(append(*given))
                    with store.transaction(transactional_id) as second:
                        second.append("out", b"depends on it", partition=1)
            return state_of(taker, key)

        with (
            patch.object(SnapshotTaker, "_state_of", looked),
            pylog.open("/data", mode, fs=fs.process(), clock=fs.clock) as other,
        ):
            table = other.read_table("out", columns=["value"], snapshot=other.snapshot(topics=["out"]))
            found.extend(table["value"].to_pylist())
        return written[0]

    with patch.object(Incarnation, "append", around):
        commit_of(store, b"first")
    assert sorted(found) == [b"depends on it", b"first"]
