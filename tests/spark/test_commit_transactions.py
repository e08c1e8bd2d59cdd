"""A micro-batch is one transaction: whole for every reader, once, and completed by the process that finds it. Without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec import UNSET

import pylog
from pylog.clock import ManualClock
from pylog.config import TransactionsConfig
from pylog.directory.locks import StoreLocks
from pylog.errors import IllegalStateError, InvalidArgumentError, ProducerFencedError, StorageFailedError
from pylog.fs import join
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch, commit_job
from pylog.splicing import Splicer
from pylog.staging.file import staged_path
from pylog.staging.intents import IntendedTransaction, PartitionIntent, intent_of, read_intent, write_intent
from pylog.store import clients_of
from pylog.testing import FaultyFileSystem, MemoryFileSystem, Moment, RecordingFileSystem
from support.spark.staged import QUERY, ROOT, TIME, Rows, commit, leftovers, stage, values

ID = f"pylog-spark-{QUERY}"
WHOLE = CommitOptions(transactional=True)
AUTOMATIC = CommitOptions(transactional=None)
TASKS: Sequence[Rows] = ({0: [b"a", b"b", b"c"], 1: [b"d"]}, {1: [b"e", b"f"]}, {0: [b"g"]})
ALL = {0: [b"a", b"b", b"c", b"g"], 1: [b"d", b"e", b"f"]}
NOTHING: dict[int, list[bytes]] = {0: [], 1: []}


def clock() -> ManualClock:
    return ManualClock(now_ms=TIME)


def opened(fs: Any, **options: Any) -> pylog.Store:
    return pylog.open(ROOT, fs=fs, clock=clock(), transactions=TransactionsConfig(topic_num_partitions=1), **options)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return new_directory()


def new_directory(**config: Any) -> MemoryFileSystem:
    made = MemoryFileSystem(clock=clock())
    with opened(made) as store:
        store.create_topic("copy", partition_count=2, **config)
        with store.transaction("first"):  # creates `__transaction_state`
            pass
        clients_of(store).transactions.coordinator.init("first", 1000)
    return made


def committed(fs: Any, *, whole: bool = False) -> dict[int, list[bytes]]:
    """The rows that a `read_committed` reader sees, or a snapshot has, in a store that changes nothing."""
    with opened(fs, mode="r") as store:
        snapshot = store.snapshot() if whole else None
        how: dict[str, Any] = {"snapshot": snapshot} if whole else {"isolation_level": "read_committed"}
        return {number: [record.value or b"" for record in store.log("copy", number).records(**how)] for number in (0, 1)}


def copies(fs: Any, each: bytes = b"a") -> int:
    """How many copies of a row a `read_uncommitted` reader sees."""
    return sum(rows.count(each) for rows in values(fs, clock()).values())


def outcome(fs: Any) -> str:
    with opened(fs, mode="r") as store:
        return store.transactions.describe(ID).state


# ---- what a reader sees --------------------------------------------------------------------------------------------------


def test_a_micro_batch_is_one_committed_transaction_and_the_next_one_another(fs: MemoryFileSystem):
    commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    commit(fs, clock(), stage(fs, TASKS, 1), 1, AUTOMATIC)
    assert committed(fs) == committed(fs, whole=True) == {number: rows * 2 for number, rows in ALL.items()}
    assert outcome(fs) == "CompleteCommit"
    targets = (PartitionIntent("copy", 0, 5, 4), PartitionIntent("copy", 1, 4, 3))
    intent = read_intent(fs, ROOT, QUERY)
    assert intent is not None
    assert (intent.targets, intent.done, intent.transaction, leftovers(fs)) == (targets, True, UNSET, [])
    with opened(fs, mode="r") as store:
        assert store.verify(records=True).ok


def test_no_reader_sees_a_part_of_a_micro_batch_while_it_is_written(fs: MemoryFileSystem):
    seen = []
    recording = RecordingFileSystem(clock=clock(), image=fs.image())
    commit(recording, clock(), stage(recording, TASKS), 0, WHOLE)
    moment = Moment.of(recording.recording, 0)
    while True:
        death = next(iter(moment.deaths(random.Random(0), 0)))
        state = MemoryFileSystem(clock=clock(), image=moment.state(death)[1])
        seen.append(committed(state, whole=True))
        for number, rows in committed(state).items():
            assert rows in ([], ALL[number])
        if moment.after >= len(recording.recording) - 4:
            break
        for _ in range(4):
            moment.advance()
    assert {str(each) for each in seen} == {str(NOTHING), str(ALL)}


def test_a_batch_job_is_one_transaction_only_if_that_is_asked_for(fs: MemoryFileSystem):
    with opened(fs) as store:
        access = StoreAccess(store, fs, clock())
        commit_job(access, "77", stage(fs, TASKS, job="77"), CommitOptions())
        assert [each.transactional_id for each in store.transactions.list()] == ["first"]
        commit_job(access, "78", stage(fs, TASKS, job="78"), WHOLE)
        assert [each.state for each in store.transactions.list()][-1] == "CompleteCommit"
    assert committed(fs) == {number: rows * 2 for number, rows in ALL.items()}


def test_a_batch_job_that_fails_half_way_leaves_nothing_to_see_if_it_is_a_transaction(fs: MemoryFileSystem):
    for how, part in ((CommitOptions(), ALL[0]), (WHOLE, ALL[0])):
        broken = FaultyFileSystem(fs)
        files = stage(broken, TASKS, job="77")
        broken.fail("write ENOSPC", 1, forever=True, of="copy-1/00000000000000000000.log")
        with pytest.raises(StorageFailedError), opened(broken) as store:
            commit_job(StoreAccess(store, broken, clock()), "77", files, how)
        assert committed(fs) == {0: part, 1: []}
    with opened(fs) as store:
        assert {each.state for each in store.transactions.list()} == {"Empty", "CompleteAbort"}


# ---- deaths --------------------------------------------------------------------------------------------------------------


def crashed(step: int) -> Iterator[MemoryFileSystem]:
    """The disk after some ways in which a driver can die, or the power fail, from staging on: one of each `step` ways."""
    base = new_directory(segment_bytes=300)
    recording = RecordingFileSystem(clock=clock(), image=base.image())
    with opened(recording) as store:
        commit_batch(StoreAccess(store, recording, clock()), QUERY, 0, stage(recording, TASKS), WHOLE)
    rng, seen = random.Random(1), set[bytes | str]()
    moment = Moment.of(recording.recording, 0)
    while True:
        for crash in (*moment.deaths(rng, 1), *moment.crashes(rng, 2, 1)):
            digest, image = moment.state(crash)
            if digest not in seen:
                seen.add(digest)
                if len(seen) % step == 0:
                    yield MemoryFileSystem(clock=clock(), image=image, boots=recording.recording.boots + crash.power)
        if moment.after == len(recording.recording):
            return
        moment.advance()


@pytest.mark.pair("Spark", "crash", "aborted transactions")
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_wherever_the_driver_dies_every_reader_sees_the_whole_micro_batch_once(step: int):
    states = 0
    for fs in crashed(step):
        before = committed(fs, whole=True)
        assert before in (NOTHING, ALL)
        if states % 2:  # another program opens the directory first
            with opened(fs):
                pass
            assert committed(fs) in (NOTHING, ALL)
            assert before == NOTHING or committed(fs) == ALL
            with opened(fs, mode="r") as store:
                assert {each.state for each in store.transactions.list()} <= {"Empty", "CompleteCommit", "CompleteAbort"}
        for _ in range(2):
            commit(fs, clock(), stage(fs, TASKS), 0, WHOLE if states % 3 else AUTOMATIC)
            assert committed(fs) == committed(fs, whole=True) == values(fs, clock()) == ALL
            assert leftovers(fs) == []
        states += 1
    assert states > 300 // step


def broken_off(fs: MemoryFileSystem, at: str = f"{ROOT}/copy-1/", batch: int = 0, how: CommitOptions = WHOLE) -> MemoryFileSystem:
    """The disk after a driver that died as it touched a path: by default, the first partition is done and the second is not."""
    recording = RecordingFileSystem(clock=clock(), image=fs.image())
    files = stage(recording, TASKS, batch)
    begun = len(recording.recording)
    commit(recording, clock(), files, batch, how)
    operations = recording.recording.operations
    after = next(number for number, each in enumerate(operations) if number > begun and each.path.startswith(at))
    moment = Moment.of(recording.recording, after)
    image = moment.state(next(iter(moment.deaths(random.Random(0), 0))))[1]
    return MemoryFileSystem(clock=clock(), image=image, boots=7)  # another boot, so that the files' owner is dead


def test_the_next_program_that_opens_the_directory_completes_the_micro_batch_of_a_dead_driver(fs: MemoryFileSystem):
    fs = broken_off(fs)
    assert (outcome(fs), copies(fs), committed(fs)) == ("Ongoing", 1, NOTHING)
    with opened(fs) as store:
        store.log("copy", 1).append(b"other")
    assert committed(fs) == {0: ALL[0], 1: [*ALL[1], b"other"]}
    assert (outcome(fs), copies(fs), leftovers(fs)) == ("CompleteCommit", 1, [])
    commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    with pytest.raises(InvalidArgumentError, match="comes with 3 rows, and was appended already with 7"):
        commit(fs, clock(), stage(fs, [{0: [b"x", b"y", b"z"]}]), 0, WHOLE)
    assert copies(fs) == 1


def test_a_program_that_opens_the_directory_leaves_a_micro_batch_to_the_driver_that_has_begun_again(fs: MemoryFileSystem):
    fs = broken_off(fs)
    lock = StoreLocks(fs, ROOT, clock(), exclusive=False, timeout_ms=1000)
    with lock.query(f"pylog-query.{QUERY}.json"), opened(fs) as other:
        assert other.transactions.describe(ID).state == "Ongoing"
    lock.close()
    with opened(fs):
        assert committed(fs) == ALL


def test_a_micro_batch_whose_staging_files_are_lost_is_aborted_and_written_again_as_it_comes(fs: MemoryFileSystem):
    fs = broken_off(fs)
    fs.remove(join(ROOT, leftovers(fs)[0]))
    with opened(fs):
        pass
    assert (outcome(fs), committed(fs)) == ("CompleteAbort", NOTHING)
    commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    assert committed(fs) == ALL
    assert leftovers(fs) == []


@pytest.mark.parametrize("damaged", ["file", "intent"])
def test_a_damaged_micro_batch_does_not_hold_up_readers(fs: MemoryFileSystem, damaged: str):
    fs = broken_off(fs)
    intent = read_intent(fs, ROOT, QUERY)
    assert intent is not None
    path = staged_path(ROOT, intent.files[0]) if damaged == "file" else join(ROOT, f"pylog-query.{QUERY}.json")
    file = fs.open(path, write=True)
    file.write(memoryview(b"\xff"), file.size() - 3)
    file.close()
    with opened(fs) as store:
        store.log("copy", 0).append(b"other")
    assert committed(fs) == {0: [b"other"], 1: []}
    if damaged == "file":
        commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
        assert committed(fs) == {0: [b"other", *ALL[0]], 1: ALL[1]}


def test_a_later_micro_batch_first_completes_an_earlier_one(fs: MemoryFileSystem):
    fs = broken_off(fs, batch=6)
    assert outcome(fs) == "Ongoing"
    commit(fs, clock(), stage(fs, [{0: [b"next"]}], 7), 7, WHOLE)
    assert committed(fs) == values(fs, clock()) == {0: [*ALL[0], b"next"], 1: ALL[1]}


# ---- other programs ------------------------------------------------------------------------------------------------------


def test_an_older_driver_of_the_same_query_appends_nothing_any_more(fs: MemoryFileSystem):
    late = stage(fs, TASKS, 0)
    commit(fs, clock(), stage(fs, [{0: [b"new"]}], 1), 1, WHOLE)
    with pytest.raises(InvalidArgumentError, match="another driver has gone on with it"):
        commit(fs, clock(), late, 0, WHOLE)
    assert values(fs, clock()) == {0: [b"new"], 1: []}


def test_a_micro_batch_that_an_administrator_aborts_is_written_again(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    append, calls = Splicer.append, []

    def interfering(*given: Any) -> int:
        calls.append(given)
        if len(calls) == 2:
            with opened(fs) as other:
                other.transactions.abort(ID)
        return append(*given)

    monkeypatch.setattr(Splicer, "append", interfering)
    commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    assert len(calls) == 4
    assert committed(fs) == ALL
    assert copies(fs) == 2  # as with every transaction that was aborted


def test_a_driver_whose_id_another_program_has_taken_is_fenced_and_its_next_run_finds_what_became_of_it(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
):
    append, calls = Splicer.append, []

    def interfering(*given: Any) -> int:
        calls.append(given)
        if len(calls) == 2:
            with opened(fs) as other, other.transaction(ID) as taking:
                taking.append("copy", b"taken", partition=0)
        return append(*given)

    monkeypatch.setattr(Splicer, "append", interfering)
    with pytest.raises(ProducerFencedError):
        commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    monkeypatch.undo()
    assert committed(fs) == {0: [b"taken"], 1: []}
    assert values(fs, clock())[1] == []  # the second partition has nothing of the older driver
    commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    assert committed(fs) == {0: [b"taken", *ALL[0]], 1: ALL[1]}


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_micro_batch_whose_id_has_expired_is_judged_by_its_rows(fs: MemoryFileSystem, is_committed: bool):
    fs = broken_off(fs)
    intent = read_intent(fs, ROOT, QUERY)
    assert intent is not None
    commit(fs, clock(), [], 0, WHOLE)
    fresh = stage(fs, TASKS)
    transaction = intent.transaction if is_committed else IntendedTransaction(2**50, 3)
    assert isinstance(transaction, IntendedTransaction)
    write_intent(
        fs, ROOT, intent_of(QUERY, 0, fresh, intent.targets, transaction)
    )  # as if it had died before the intent was done
    with opened(fs) as store:
        clients_of(store).transactions.coordinator.topic.expire(TIME + 10**12, 1)
    commit(fs, clock(), stage(fs, TASKS), 0, WHOLE)
    assert committed(fs) == {number: rows * (1 if is_committed else 2) for number, rows in ALL.items()}


@pytest.mark.parametrize(("first", "then"), [(CommitOptions(), WHOLE), (WHOLE, CommitOptions())])
def test_a_micro_batch_is_completed_as_it_was_begun_though_the_option_has_changed(
    fs: MemoryFileSystem, first: CommitOptions, then: CommitOptions
):
    fs = broken_off(fs, how=first)
    commit(fs, clock(), stage(fs, TASKS), 0, then)
    commit(fs, clock(), stage(fs, TASKS, 1), 1, then)
    assert committed(fs) == values(fs, clock()) == {number: rows * 2 for number, rows in ALL.items()}


def test_in_a_brokers_directory_without_transactions_a_micro_batch_is_one_only_if_that_is_demanded():
    fs = MemoryFileSystem(clock=clock())
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        store.create_topic("copy", partition_count=2)
    file = fs.create(join(ROOT, "meta.properties"))
    file.write(memoryview(b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\n"), 0)
    file.close()
    commit(fs, clock(), stage(fs, TASKS), 0, AUTOMATIC)
    assert values(fs, clock()) == ALL
    with pytest.raises(IllegalStateError, match="__transaction_state"):
        commit(fs, clock(), stage(fs, TASKS, 1), 1, WHOLE)
    commit(fs, clock(), stage(fs, TASKS, 1), 1, AUTOMATIC)
    assert values(fs, clock()) == {number: rows * 2 for number, rows in ALL.items()}
