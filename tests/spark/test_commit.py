"""Splicing without Spark: what a micro-batch is, wherever the driver dies, and whatever other programs append."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog.clock import ManualClock
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PylogError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import ProcessName, join, parent_process, write_atomically
from pylog.log.writing.append_batches import BatchRange
from pylog.spark.commit import CommitOptions, StoreAccess, commit_job
from pylog.splicing import Splicer
from pylog.staging.file import read_index
from pylog.staging.intents import Intent, PartitionIntent, producer_of, read_intent, write_intent
from pylog.staging.names import StagingName, sweep
from pylog.testing import FaultyFileSystem, MemoryFileSystem, Moment, RecordingFileSystem
from support.engines import engine_of
from support.spark.staged import QUERY, ROOT, TIME, Rows, commit, leftovers, stage, values


def clock() -> ManualClock:
    return ManualClock(now_ms=TIME)


def new_store(fs: Any, **config: Any) -> None:
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        store.create_topic("copy", partition_count=2, **config)


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem(clock=clock())
    new_store(made)
    return made


def some(name: str, count: int) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


TASKS: Sequence[Rows] = ({0: some("a", 9), 1: some("b", 3)}, {1: some("c", 5)}, {0: some("d", 1)})
SPLICED = {0: some("a", 9) + some("d", 1), 1: some("b", 3) + some("c", 5)}
OTHERWISE: Sequence[Rows] = ({1: [*some("d", 1), *some("a", 9)]}, {0: [*some("c", 5), *some("b", 3)]})  # the same rows again


# ---- one after the other -------------------------------------------------------------------------------------------------


def test_tasks_rows_are_appended_in_the_order_of_the_tasks_and_their_files_go(fs: MemoryFileSystem):
    commit(fs, clock(), stage(fs, TASKS))
    assert values(fs, clock()) == SPLICED
    assert leftovers(fs) == []
    targets = (PartitionIntent("copy", 0, 0, 10), PartitionIntent("copy", 1, 0, 8))
    assert read_intent(fs, ROOT, QUERY) == Intent(QUERY, 0, targets=targets, done=True).sealed()


def test_a_micro_batch_that_comes_again_is_not_appended_again(fs: MemoryFileSystem):
    commit(fs, clock(), stage(fs, TASKS))
    commit(fs, clock(), stage(fs, OTHERWISE))
    assert values(fs, clock()) == SPLICED
    assert leftovers(fs) == []


def test_a_micro_batch_that_comes_again_with_another_number_of_rows_is_refused(fs: MemoryFileSystem):
    """The checkpoint has lost the micro-batch's plan, new records came, and Spark has planned it again."""
    commit(fs, clock(), stage(fs, TASKS, 1), 1)
    for count, tasks in ((21, [*TASKS, {1: some("new", 3)}]), (17, TASKS[:2])):
        told = rf"micro-batch 1 .* comes with {count} rows, and was appended already with 18"
        with pytest.raises(InvalidArgumentError, match=told) as caught:
            commit(fs, clock(), stage(fs, tasks, 1), 1)
        assert "10 in copy-0 from offset 0 on, 8 in copy-1 from offset 0 on" in str(caught.value)
        assert values(fs, clock()) == SPLICED
        assert leftovers(fs) == []
    commit(fs, clock(), stage(fs, OTHERWISE, 1), 1)
    assert values(fs, clock()) == SPLICED


def test_where_a_refused_micro_batch_lies_is_reported_as_far_as_a_person_reads(fs: MemoryFileSystem):
    targets = tuple(PartitionIntent("copy", number, 7 * number, 2) for number in range(13))
    write_intent(fs, ROOT, Intent(QUERY, 1, targets=targets, done=True))
    with pytest.raises(InvalidArgumentError, match="2 in copy-9 from offset 63 on and in 3 more partitions"):
        commit(fs, clock(), stage(fs, TASKS, 1), 1)


def test_a_micro_batch_that_an_older_pylog_appended_is_taken_for_the_same(fs: MemoryFileSystem):
    old = b'{"query":"%s","batch":4,"files":[],"targets":[],"done":true,"version":1,"crc32c":"da4194b2"}' % QUERY.encode()
    write_atomically(fs, ROOT, f"pylog-query.{QUERY}.json", old)
    commit(fs, clock(), stage(fs, TASKS, 4), 4)
    assert values(fs, clock()) == {0: [], 1: []}
    commit(fs, clock(), stage(fs, TASKS, 5), 5)
    assert values(fs, clock()) == SPLICED


def test_micro_batches_with_the_same_rows_are_all_appended(fs: MemoryFileSystem):
    for batch in (0, 1, 32_767, 32_768):
        commit(fs, clock(), stage(fs, TASKS, batch), batch)
    assert values(fs, clock()) == {number: rows * 4 for number, rows in SPLICED.items()}


def test_a_query_that_goes_back_is_refused(fs: MemoryFileSystem):
    commit(fs, clock(), stage(fs, TASKS, 3), 3)
    with pytest.raises(InvalidArgumentError, match="micro-batch 2, and has written 3"):
        commit(fs, clock(), stage(fs, TASKS, 2), 2)


def test_a_micro_batch_without_rows_leaves_nothing(fs: MemoryFileSystem):
    commit(fs, clock(), [])
    assert read_intent(fs, ROOT, QUERY) is None


def test_batches_have_the_logs_offsets_and_epoch_and_the_querys_numbers(fs: MemoryFileSystem):
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        store.log("copy", 0).append_many([b"other"] * 7)
    commit(fs, clock(), stage(fs, TASKS, 5, codec="gzip"), 5)
    with pylog.open(ROOT, mode="r", fs=fs, clock=clock()) as store:
        columns = ("offset", "leader_epoch", "producer_id", "producer_epoch", "sequence", "timestamp_type", "timestamp")
        rows = [row for batch in store.log("copy", 0).scan(7, columns=columns) for row in batch.to_pylist()]
        assert store.verify(records=True).ok
    producer = producer_of(QUERY, 5)
    assert [row["offset"] for row in rows] == list(range(7, 17))
    assert [row["sequence"] for row in rows] == list(range(10))
    assert {(row["leader_epoch"], row["producer_id"], row["producer_epoch"]) for row in rows} == {(0, producer.producer_id, 5)}
    assert {(row["timestamp_type"], row["timestamp"].timestamp() * 1000) for row in rows} == {(0, TIME)}


@pytest.mark.parametrize(
    ("topic", "option", "kind"),
    [("CreateTime", None, 0), ("LogAppendTime", None, 1), ("LogAppendTime", "CreateTime", 0), ("CreateTime", "LogAppendTime", 1)],
)
def test_the_time_of_the_append_is_put_in_where_the_topic_or_the_option_says_so(topic: str, option: str | None, kind: int):
    fs = MemoryFileSystem(clock=clock())
    new_store(fs, message_timestamp_type=topic)
    later = ManualClock(now_ms=TIME + 5000)
    commit(fs, later, stage(fs, TASKS, codec="zstd"), how=CommitOptions(timestamp_type=option))
    with pylog.open(ROOT, mode="r", fs=fs, clock=later) as store:
        rows = [row for batch in store.log("copy", 1).scan(columns=("timestamp_type", "timestamp")) for row in batch.to_pylist()]
        assert store.verify(records=True).ok
    assert {(row["timestamp_type"], row["timestamp"].timestamp() * 1000) for row in rows} == {(kind, TIME + 5000 * kind)}


def test_a_batch_larger_than_a_chunk_is_spliced_whole(fs: MemoryFileSystem):
    large = [b"x" * (5 << 20), b"y" * (5 << 20)]
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        files = stage(fs, [{0: [b"small", *large]}], job="77", batch_bytes=1 << 24)
        store.alter_topic("copy", max_message_bytes=1 << 24)
        commit_job(StoreAccess(store, fs, clock()), "77", files, CommitOptions())
    assert values(fs, clock())[0] == [b"small", *large]


@pytest.mark.pair("option change", "Spark")
@pytest.mark.parametrize("keyed", [True, False])
def test_rows_that_were_encoded_before_their_topic_was_compacted_are_appended_only_if_all_have_keys(
    fs: MemoryFileSystem, keyed: bool
):
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        files = stage(fs, TASKS, job="77", key=b"k" if keyed else None)
        store.alter_topic("copy", cleanup_policy="compact")
        if keyed:
            commit_job(StoreAccess(store, fs, clock()), "77", files, CommitOptions())
            return
        with pytest.raises(pylog.InvalidRecordError, match="the topic is now compacted"):
            commit_job(StoreAccess(store, fs, clock()), "77", files, CommitOptions())
    assert values(fs, clock())[0] == []


@pytest.mark.pair("option change", "Spark")
def test_a_staged_batch_that_its_topic_takes_no_more_is_refused(fs: MemoryFileSystem):
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        files = stage(fs, [{0: [bytes(2000)]}], job="77")
        store.alter_topic("copy", max_message_bytes=1000)
        with pytest.raises(pylog.RecordTooLargeError, match="max_message_bytes=1000"):
            commit_job(StoreAccess(store, fs, clock()), "77", files, CommitOptions())


@pytest.mark.pair("Spark", "option change", "timestamps")
@pytest.mark.parametrize(
    ("option", "most", "stamped"),
    [
        ("message_timestamp_before_max_ms", 1000, False),
        ("message_timestamp_after_max_ms", 1000, False),
        ("message_timestamp_before_max_ms", 1000, True),
    ],
)
def test_staged_rows_are_checked_by_the_timestamp_bounds_that_count_at_their_commit(
    fs: MemoryFileSystem, option: str, most: int, stamped: bool
):
    later = ManualClock(TIME + (most + 1) * (1 if option == "message_timestamp_before_max_ms" else -1))
    options = CommitOptions(timestamp_type="LogAppendTime" if stamped else None)
    with pylog.open(ROOT, fs=fs, clock=later) as store:
        files = stage(fs, [{0: [b"one", b"two"]}], job="77")
        commit_job(StoreAccess(store, fs, later), "77", files, options)
        files = stage(fs, [{0: [b"three"]}], job="78")
        store.alter_topic("copy", **{option: most})
        if stamped:  # the time of the commit replaces theirs
            commit_job(StoreAccess(store, fs, later), "78", files, options)
            return
        with pytest.raises(pylog.InvalidTimestampError, match=f"{option}={most}"):
            commit_job(StoreAccess(store, fs, later), "78", files, options)
    assert values(fs, later)[0] == [b"one", b"two"]


def test_a_batch_jobs_rows_have_no_producer_and_its_files_go(fs: MemoryFileSystem):
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        commit_job(StoreAccess(store, fs, clock()), "77", stage(fs, TASKS, job="77"), CommitOptions())
        assert store.log("copy", 0).read(0).value == b"a0"
    assert values(fs, clock()) == SPLICED
    assert leftovers(fs) == []


# ---- what must be as it was ----------------------------------------------------------------------------------------------


def test_a_missing_topic_is_made_only_if_that_is_asked_for():
    fs = MemoryFileSystem(clock=clock())
    with pylog.open(ROOT, fs=fs, clock=clock()):
        pass
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'copy' no longer exists"):
        commit(fs, clock(), stage(fs, TASKS))
    commit(fs, clock(), stage(fs, TASKS), how=CommitOptions(create_topics=True, partitions=2))
    assert values(fs, clock()) == SPLICED


def test_a_topic_that_was_made_again_with_fewer_partitions_is_refused_before_anything_is_appended(fs: MemoryFileSystem):
    with pytest.raises(UnknownTopicOrPartitionError, match="has 2 partitions, and had 3"):
        commit(fs, clock(), stage(fs, TASKS, partitions=3))
    assert values(fs, clock()) == {0: [], 1: []}


@pytest.mark.parametrize("where", ["batch", "index"])
def test_a_damaged_staging_file_is_refused_before_anything_of_it_is_appended(fs: MemoryFileSystem, where: str):
    files = stage(fs, TASKS[:1])
    path = join(ROOT, files[0].name)
    file = fs.open(path, write=True)
    file.write(memoryview(b"\xff"), files[0].index_position + 3 if where == "index" else 70)
    file.close()
    with pytest.raises(CorruptionError, match="run the job again") as caught:
        commit(fs, clock(), files)
    assert caught.value.path == path
    assert values(fs, clock()) == {0: [], 1: []}


def test_a_file_that_ends_too_early_or_holds_less_than_promised_is_refused(fs: MemoryFileSystem):
    (staged,) = stage(fs, TASKS[:1])
    chunks = read_index(fs, ROOT, staged).chunks[pylog.TopicPartition("copy", 0)]
    file = fs.open(join(ROOT, staged.name))
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        log = store.log("copy", 0)
        for size, count in ((int(chunks.sizes[0]) - 1, 9), (int(chunks.sizes[0]), 10)):
            with pytest.raises(CorruptionError):
                engine_of(log).append_batches([BatchRange(file, 0, size, count)])
        with pytest.raises(CorruptionError, match="no batch that begins where"):
            engine_of(log).append_batches([BatchRange(file, 0, int(chunks.sizes[0]), 8, skip=1)])
        assert log.end_offset == 0
    file.close()


def test_a_staging_file_that_is_not_there_is_an_error_that_says_what_it_takes(fs: MemoryFileSystem):
    files = stage(fs, TASKS)
    fs.remove(join(ROOT, files[1].name))
    with pytest.raises(StorageFailedError, match="the store under the same path as the executors"):
        commit(fs, clock(), files)
    assert values(fs, clock()) == {0: [], 1: []}


def test_a_damaged_intent_stops_the_query_and_keeps_its_files(fs: MemoryFileSystem):
    write_intent(fs, ROOT, Intent(QUERY, 4))
    path = join(ROOT, f"pylog-query.{QUERY}.json")
    file = fs.open(path, write=True)
    file.write(memoryview(b"9"), file.size() - 5)
    file.close()
    files = stage(fs, TASKS, 5)
    with pytest.raises(CorruptionError, match="checksum"):
        commit(fs, clock(), files, 5)
    fs = MemoryFileSystem(clock=clock(), image=fs.image(), boots=7)  # another boot: their owner is dead
    with pylog.open(ROOT, fs=fs, clock=clock()):
        assert len(leftovers(fs)) == 3


def test_two_drivers_of_one_query_cannot_both_append_a_micro_batch(fs: MemoryFileSystem):
    files = stage(fs, TASKS)
    commit(fs, clock(), files)
    (again,) = stage(fs, TASKS[:1])
    file = fs.open(join(ROOT, again.name))
    with pylog.open(ROOT, fs=fs, clock=clock()) as store, pytest.raises(OutOfOrderSequenceError):
        engine_of(store.log("copy", 0)).append_batches(
            [BatchRange(file, 0, int(read_index(fs, ROOT, again).chunks["copy", 0].sizes[0]), 9)], producer_of(QUERY, 0)
        )
    file.close()


# ---- crashes -------------------------------------------------------------------------------------------------------------


def broken_off(fs: MemoryFileSystem, failing: Callable[[str, str], bool], batch: int = 0) -> MemoryFileSystem:
    """The disk after a driver that died in the middle of a micro-batch."""
    recording = RecordingFileSystem(clock=clock(), image=fs.image())
    commit(recording, clock(), stage(recording, TASKS, batch), batch)
    operations = recording.recording.operations
    after = next(number for number, operation in enumerate(operations) if failing(operation.kind, operation.path))
    moment = Moment.of(recording.recording, after)
    death = next(iter(moment.deaths(random.Random(0), 0)))
    _, image = moment.state(death)
    return MemoryFileSystem(clock=clock(), image=image)


def half_way(kind: str, path: str) -> bool:
    """The first partition is done, the second one not begun."""
    return kind != "" and path.startswith(f"{ROOT}/copy-1/")


def counted(found: dict[int, list[bytes]]) -> Counter[bytes]:
    return Counter(value for rows in found.values() for value in rows)


ALL = counted(SPLICED)
SHAPES: Sequence[Sequence[Rows]] = (TASKS, OTHERWISE)


def crashed(seed: int, without: str | None = None) -> Iterator[MemoryFileSystem]:
    """The disk after each of some ways in which a driver can die, or the power fail, from staging on.

    With a call left out: only after what decides a micro-batch was asked for, but then in many ways.
    """
    base = MemoryFileSystem(clock=clock())
    new_store(base, segment_bytes=300)
    left_out = (lambda call: str(call).startswith(without)) if without is not None else None
    recording = RecordingFileSystem(clock=clock(), image=base.image(), without=left_out)
    commit(recording, clock(), stage(recording, TASKS))
    rng, seen = random.Random(seed), set()
    decided = next(at for at, one in enumerate(recording.recording.operations) if one.kind == "rename") + 1
    moment = Moment.of(recording.recording, 0 if without is None else decided)
    while True:
        for crash in (*moment.deaths(rng, 1), *moment.crashes(rng, 2 if without is None else 60, 1)):
            digest, image = moment.state(crash)
            if digest not in seen:
                seen.add(digest)
                yield MemoryFileSystem(clock=clock(), image=image, boots=recording.recording.boots + crash.power)
        if moment.after in (len(recording.recording), decided + 1 if without is not None else -1):
            return
        moment.advance()


def test_wherever_the_driver_dies_the_repeated_micro_batch_is_there_exactly_once():
    shapes = random.Random(1)
    states = 0
    for fs in crashed(seed=1):
        with pylog.open(ROOT, fs=fs, clock=clock()) as store:
            for number in (0, 1) if states % 2 else ():
                store.log("copy", number).append(b"other")
        for _ in range(2):
            commit(fs, clock(), stage(fs, shapes.choice(SHAPES)))
            assert counted(values(fs, clock())) - Counter({b"other": 2}) == ALL
            assert leftovers(fs) == []
        states += 1
    assert states > 200


@pytest.mark.parametrize("call", ["sync in pylog.staging.file.", "sync_directory in pylog.spark.commit."])
def test_without_one_of_its_syncs_a_crash_would_cost_rows(call: str):
    with pytest.raises((AssertionError, PylogError)):
        repeat_after_each_crash(call)


def test_with_all_of_its_syncs_it_does_not():
    repeat_after_each_crash("none of them")


def repeat_after_each_crash(without: str) -> None:
    for fs in crashed(seed=2, without=without):
        commit(fs, clock(), stage(fs, OTHERWISE))
        assert counted(values(fs, clock())) == ALL


def test_a_decided_batch_is_completed_though_the_rows_come_otherwise_the_second_time(fs: MemoryFileSystem):
    fs = broken_off(fs, half_way)
    assert values(fs, clock())[1] == []
    commit(fs, clock(), stage(fs, OTHERWISE))
    assert values(fs, clock()) == SPLICED


def test_a_decided_batch_is_completed_even_if_no_rows_come_the_second_time(fs: MemoryFileSystem):
    fs = broken_off(fs, half_way)
    commit(fs, clock(), [])
    assert values(fs, clock()) == SPLICED


def test_a_decided_batch_is_completed_and_refused_if_other_rows_come_the_second_time(fs: MemoryFileSystem):
    fs = broken_off(fs, half_way)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="comes with 19 rows, and was appended already with 18"):
            commit(fs, clock(), stage(fs, [*TASKS, {1: [b"new"]}]))
        assert values(fs, clock()) == SPLICED
        assert leftovers(fs) == []


def test_a_later_micro_batch_first_completes_an_earlier_one(fs: MemoryFileSystem):
    fs = broken_off(fs, half_way, batch=6)
    commit(fs, clock(), stage(fs, [{0: [b"next"]}], 7), 7)
    assert values(fs, clock()) == {0: [*SPLICED[0], b"next"], 1: SPLICED[1]}


def test_opening_the_store_keeps_what_a_broken_off_micro_batch_needs(fs: MemoryFileSystem):
    fs = broken_off(fs, half_way)
    fs = MemoryFileSystem(clock=clock(), image=fs.image(), boots=7)  # another boot: the owner is dead
    stage(MemoryFileSystem(clock=clock(), image=fs.image()), [])
    with pylog.open(ROOT, fs=fs, clock=clock()):
        assert len(leftovers(fs)) == 3
    commit(fs, clock(), [])
    assert leftovers(fs) == []


def forget_producers(fs: MemoryFileSystem) -> None:
    """The logs forget idle producers after a day; then only the batches tell."""
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        for number in (0, 1):
            store.log("copy", number).append(b"other")
        store.tick(TIME + 86_400_001)


def test_a_log_that_has_forgotten_the_query_is_asked_for_its_batches(fs: MemoryFileSystem):
    fs = broken_off(fs, half_way)
    forget_producers(fs)
    commit(fs, clock(), stage(fs, OTHERWISE))
    found = values(fs, clock())
    assert (found[0], found[1]) == ([*SPLICED[0], b"other"], [b"other", *SPLICED[1]])


def test_where_retention_took_the_answer_away_the_query_stops_and_says_so():
    fs = MemoryFileSystem(clock=clock())
    new_store(fs, segment_bytes=300)
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        store.log("copy", 1).append_many([b"before"] * 5)
    fs = broken_off(fs, half_way)
    forget_producers(fs)
    with pylog.open(ROOT, fs=fs, clock=clock()) as store:
        store.log("copy", 1).append_many([b"after"] * 50)
        store.log("copy", 1).delete_records(40)
    with pytest.raises(OffsetOutOfRangeError, match=r"micro-batch 0 .* when the log ended at 5"):
        commit(fs, clock(), stage(fs, OTHERWISE))


def test_a_log_that_fails_in_the_middle_leaves_what_the_next_try_completes(fs: MemoryFileSystem):
    refused = FaultyFileSystem(fs)
    files = stage(refused, TASKS)
    refused.fail("write ENOSPC", 3, forever=True, of=".log")
    with pytest.raises(StorageFailedError):
        commit(refused, clock(), files)
    assert len(leftovers(fs)) == 3
    commit(fs, clock(), stage(fs, OTHERWISE))
    assert values(fs, clock()) == SPLICED


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_course_of_deaths_appends_and_repeats_has_each_row_once(data: st.DataObject):
    fs = MemoryFileSystem(clock=clock())
    new_store(fs, segment_bytes=data.draw(st.sampled_from([200, 1 << 20])))
    expected: Counter[bytes] = Counter()
    for batch in range(data.draw(st.integers(1, 3))):
        rows = some(f"{batch}.", data.draw(st.integers(1, 12)))
        expected.update(rows)
        for _ in range(data.draw(st.integers(0, 2))):
            fs = died(fs, spread(rows, data), batch, data)
            if data.draw(st.booleans()):
                with pylog.open(ROOT, fs=fs, clock=clock()) as store:
                    store.log("copy", data.draw(st.integers(0, 1))).append(b"other")
                    expected[b"other"] += 1
        commit(fs, clock(), stage(fs, spread(rows, data), batch), batch)
        assert counted(values(fs, clock())) == expected
    assert leftovers(fs) == []


def spread(rows: Sequence[bytes], data: st.DataObject) -> Sequence[Rows]:
    """The rows in some order, over some tasks and partitions."""
    order = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(order)))
    return [{number: part[number::2] for number in (0, 1)} for part in (order[:cut], order[cut:])]


def died(fs: MemoryFileSystem, tasks: Sequence[Rows], batch: int, data: st.DataObject) -> MemoryFileSystem:
    recording = RecordingFileSystem(clock=clock(), image=fs.image())
    commit(recording, clock(), stage(recording, tasks, batch), batch)
    moment = Moment.of(recording.recording, data.draw(st.integers(0, len(recording.recording))))
    death = next(iter(moment.deaths(random.Random(0), 0)))
    return MemoryFileSystem(clock=clock(), image=moment.state(death)[1])


# ---- leftovers -----------------------------------------------------------------------------------------------------------


def named(fs: Any, owner: ProcessName) -> str:
    name = StagingName("77", 0, owner).new()
    fs.create(join(ROOT, name)).close()
    return name


def test_files_of_dead_jobs_are_deleted_and_files_of_living_ones_stay(fs: MemoryFileSystem):
    here = parent_process(fs.boot_id())
    living = named(fs, here)
    dead = [named(fs, here._replace(boot="00")), named(fs, here._replace(started=here.started + 1))]
    elsewhere = [named(fs, here._replace(host="00")), named(fs, here._replace(namespace=1))]
    assert sorted(sweep(fs, ROOT, TIME)) == sorted(dead)
    assert sorted(leftovers(fs)) == sorted([living, *elsewhere])
    assert sorted(sweep(fs, ROOT, TIME + 8 * 86_400_000)) == sorted(elsewhere)


def test_the_store_sweeps_its_own_leftovers_only_when_it_is_opened_for_writing(fs: MemoryFileSystem):
    named(fs, parent_process(fs.boot_id())._replace(boot="00"))
    others = ("pylog-staging.notes", "x.batches", "pylog-staging.77.0.a-b.1f.batches")
    for name in others:
        fs.create(join(ROOT, name)).close()
    with pylog.open(ROOT, mode="r", fs=fs, clock=clock()):
        assert len(leftovers(fs)) == 3
    with pylog.open(ROOT, fs=fs, clock=clock()):
        assert sorted(leftovers(fs)) == ["pylog-staging.77.0.a-b.1f.batches", "pylog-staging.notes"]
    with pytest.raises(StorageFailedError):
        fs.create(join(ROOT, "x.batches"))


def test_a_micro_batch_that_may_have_been_compacted_away_is_not_appended_again(monkeypatch: pytest.MonkeyPatch):
    """The driver died between two partitions, the query's producer was forgotten, and other records took the place of its own."""
    time = clock()
    fs = MemoryFileSystem(clock=time)
    with pylog.open(ROOT, fs=fs, clock=time) as store:
        store.create_topic("copy", partition_count=2, cleanup_policy="compact", segment_bytes=400, producer_id_expiration_ms=1)
    append, calls = Splicer.append, []

    def dying(*given: Any) -> int:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return append(*given)

    monkeypatch.setattr(Splicer, "append", dying)
    with pytest.raises(KeyboardInterrupt):
        commit(fs, time, stage(fs, [{0: [b"old"], 1: [b"other"]}], key=b"k"))
    monkeypatch.undo()
    time.advance(86_400_000)
    with pylog.open(ROOT, fs=fs, clock=time) as store:
        for number in range(12):
            store.log("copy", 0).append(b"new %d" % number, key=b"k")
        store.tick()
        store.compact("copy", 0)
        before = [record.value for record in store.log("copy", 0).records()]
    assert b"old" not in before
    with pytest.raises(OffsetOutOfRangeError, match="has been compacted"):
        commit(fs, time, stage(fs, [{0: [b"old"], 1: [b"other"]}], key=b"k"))
    assert values(fs, time)[0] == before
