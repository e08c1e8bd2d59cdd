"""Compaction beside others: readers and writers of this process and of others, at every moment, and what a failure leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability
from pylog.errors import StorageFailedError
from pylog.log.partition_log import PartitionLog
from pylog.segment.header_digest import HeaderDigest
from pylog.segment.names import CLEANED, LOG, SEAL, SWAP, file_name, plan_load
from pylog.segment.seal import encode_seal, make_seal, replaced_by
from pylog.store import Store
from support.engines import segments_of
from support.faults.neighbours import HookedFileSystem, Neighbour, NeighbourError

COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 600,
    "index_interval_bytes": 100,
    "min_cleanable_dirty_ratio": 1.0,
}
KEYS = 7
PATIENCE = 20.0
COUNT = 60

# The moments of a compaction: before the first byte is synced, before the swap is decided, in the midst of it, and behind it.
MOMENTS = [("sync", LOG + CLEANED), ("rename", LOG + CLEANED), ("rename", LOG + SWAP), ("rename", SEAL + SWAP)]


@pytest.fixture
def store(path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(path, fs=fs, durability=Durability.OS) as opened:
        opened.create_topic("t", **COMPACTED)
        put(opened.log("t"), range(COUNT))
        yield opened


@pytest.fixture
def other(path: Path, store: Store, process: Neighbour) -> Iterator[Neighbour]:
    """Another process that has the log open, for reading and for writing."""
    process.run("store = pylog.open(path, lock_timeout_ms=200); log = store.log('t')", path=str(path))
    process.run("reading = pylog.open(path, mode='r'); reader = reading.log('t')")
    yield process
    process.run("store.close(); reading.close()")


def put(log: pylog.Log, numbers: range) -> None:
    for number in numbers:
        log.append(b"%d" % number + b"." * 60, key=b"%d" % (number % KEYS))


def offsets(log: pylog.Log) -> list[int]:
    return [record.offset for record in log.records()]


def left(end: int, count: int = COUNT) -> list[int]:
    """The offsets that are left when everything below `end` is compacted."""
    last = {number % KEYS: number for number in range(end)}
    return [number for number in range(count) if number >= end or last[number % KEYS] == number]


# ---- readers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_reader_of_this_process_reads_on_in_what_it_began_with(
    store: Store, log: pylog.Log, fs: HookedFileSystem, moment: tuple[str, str]
) -> None:
    frames = log.scan(columns=["offset"], max_rows=1)
    seen = [next(frames)["offset"][0].as_py() for _ in range(3)]
    fs.before(*moment, lambda: seen.extend(next(frames)["offset"][0].as_py() for _ in range(20)))
    store.compact("t")
    seen += [frame["offset"][0].as_py() for frame in frames]
    assert seen == list(range(COUNT))
    assert offsets(log) == left(log.segments[-1].base_offset)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["log", "reader"])
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_reader_of_another_process_reads_on_and_misses_nothing_that_stays(
    store: Store, log: pylog.Log, fs: HookedFileSystem, other: Neighbour, moment: tuple[str, str], mode: str
) -> None:
    other.run(
        f"frames = {mode}.scan(columns=['offset'], max_rows=1); seen = [next(frames)['offset'][0].as_py() for _ in range(3)]"
    )
    fs.before(*moment, lambda: other.run("seen += [next(frames)['offset'][0].as_py() for _ in range(2)]"))
    store.compact("t")
    seen = other.run("seen += [frame['offset'][0].as_py() for frame in frames]; seen")
    assert seen == sorted(set(seen))
    assert set(left(log.segments[-1].base_offset)) - set(range(seen[4])) <= set(seen)
    assert other.run(f"[record.offset for record in {mode}.records()]") == left(log.segments[-1].base_offset)
    assert other.run(f"{mode}.read(0).offset") == left(log.segments[-1].base_offset)[0]


@pytest.mark.slow
def test_readers_of_another_process_go_on_while_a_log_is_compacted_again_and_again(
    store: Store, log: pylog.Log, other: Neighbour
) -> None:
    other.begin(
        """
seen = []
while not seen or seen[-1] < 399:
    seen = []
    while (after := seen[-1] + 1 if seen else 0) < reader.end_offset:
        # what is left of the records up to the end that it had at first: none, when all of their keys came again meanwhile
        seen += [record.offset for record in reader.records(after)]
    assert seen == sorted(set(seen)), seen
    assert len({offset % 7 for offset in seen}) == 7, seen
True
"""
    )
    for first in range(COUNT, 420, 20):
        put(log, range(first, first + 20))
        store.compact("t")
    assert other.answer() is True


def test_a_consumer_that_follows_from_the_start_sees_the_rest(store: Store, log: pylog.Log, other: Neighbour) -> None:
    other.run("frames = reader.follow(0, columns=['offset'], max_rows=1, timeout_ms=1); first = next(frames)")
    store.compact("t")
    seen = other.run("[frame['offset'][0].as_py() for frame in frames]")
    assert set(left(log.segments[-1].base_offset)) - {0} <= set(seen)
    assert seen == sorted(set(seen))


# ---- writers -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", MOMENTS[:1], ids=str)
def test_another_process_appends_while_the_copy_is_made(
    store: Store, log: pylog.Log, fs: HookedFileSystem, other: Neighbour, moment: tuple[str, str]
) -> None:
    """Also when it opens the log only then: it leaves alone what is under way."""
    end = log.segments[-1].base_offset
    fs.before(*moment, lambda: other.run("[log.append(b'x' * 100, key=b'new') for _ in range(20)]"))
    fs.before(*moment, lambda: other.run("late = pylog.open(path); late.log('t').append(b'late', key=b'late'); late.close()"))
    (done,) = store.compact("t")
    assert done.end == end
    assert offsets(log) == left(end, COUNT + 21)
    assert other.run("[record.offset for record in log.records()]") == offsets(log)


def test_a_writer_that_finds_files_deleted_waits_for_the_process_that_replaced_them_and_reports_no_damage(
    path: Path, store: Store, log: pylog.Log
) -> None:
    inside, go_on, found = threading.Event(), threading.Event(), []
    with pylog.open(path) as other, store.consumer("t", auto_offset_reset="earliest") as consumer:
        assert sum(map(len, consumer.poll(max_records=COUNT).values())) == COUNT
        consumer.seek_to_beginning()
        for segment in segments_of(log):
            segment.release()  # as the bound on open files does

        def compact() -> None:
            with other.log("t").exclusively():
                other.compact("t")
                inside.set()
                go_on.wait(PATIENCE)

        threads = [
            threading.Thread(target=compact),
            threading.Thread(target=lambda: found.extend(record.key for part in consumer.poll().values() for record in part)),
        ]
        threads[0].start()
        assert inside.wait(PATIENCE)
        threads[1].start()
        threads[1].join(0.3)  # time to believe what it sees
        go_on.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(set(found)) == KEYS
        assert log.append(b"x", key=b"k") == COUNT


def test_two_processes_do_not_compact_the_same_log_at_a_time(store: Store, fs: HookedFileSystem, other: Neighbour) -> None:
    def compact_there() -> None:
        with pytest.raises(NeighbourError, match="StoreLockedError"):
            other.run("store.compact('t')")

    fs.before("sync", LOG + CLEANED, compact_there)
    store.compact("t")
    assert other.run("store.compact('t')[0].first_dirty") == store.compact("t")[0].end


CUTS: list[Callable[[pylog.Log], None]] = [lambda log: log.truncate(30), lambda log: log.truncate(3)]


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS, ids=["behind", "before"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_truncation_in_the_middle_ends_the_compaction_and_no_key_is_lost(
    store: Store, log: pylog.Log, fs: HookedFileSystem, other: Neighbour, cut: Callable[[pylog.Log], None], elsewhere: bool
) -> None:
    """The records that superseded those about to be removed are deleted themselves."""
    end = 30 if cut is CUTS[0] else 3
    fs.before("sync", LOG + CLEANED, (lambda: other.run(f"log.truncate({end})")) if elsewhere else lambda: cut(log))
    (done,) = store.compact("t")
    assert done.end == done.first_dirty == 0
    assert offsets(log) == list(range(end))
    put(log, range(end, COUNT))
    (done,) = store.compact("t")
    assert offsets(log) == left(done.end)


def test_records_that_are_deleted_in_the_middle_stay_deleted(path: Path, fs: HookedFileSystem) -> None:
    with pylog.open(path, fs=fs, durability=Durability.OS) as store:
        store.create_topic("t", **{**COMPACTED, "cleanup_policy": "compact,delete"})
        log = store.log("t")
        put(log, range(COUNT))
        fs.before("sync", LOG + CLEANED, lambda: log.delete_records(20))
        (done,) = store.compact("t")
        assert done.end == 0
        assert offsets(log) == list(range(20, COUNT))
        (done,) = store.compact("t")
        assert offsets(log) == [offset for offset in left(done.end) if offset >= 20]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deleted", "made again"])
@pytest.mark.parametrize("moment", [("create", LOG), ("sync", LOG), ("create", ".index"), ("sync", SEAL)], ids=str)
def test_compaction_stops_without_an_error_when_another_process_deletes_the_topic(
    path: Path, store: Store, fs: HookedFileSystem, other: Neighbour, moment: tuple[str, str], how: str
) -> None:
    store.create_topic("u", **COMPACTED)
    put(store.log("u"), range(COUNT))
    again = "; _ = store.create_topic('t', cleanup_policy='compact')" if how == "made again" else ""
    fs.before(moment[0], "0" + moment[1] + CLEANED, lambda: other.run("store.delete_topic('t')" + again))
    assert store.compact("t") == []
    assert store.tick() == 0
    (done,) = store.compact("u")
    assert offsets(store.log("u")) == left(done.end)
    assert not [file for file in path.glob("t-0/*") if file.name.endswith((CLEANED, SWAP))]


def test_a_log_that_is_deleted_while_the_dirtiest_is_determined_holds_up_no_other(
    store: Store, other: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("u", **{**COMPACTED, "min_cleanable_dirty_ratio": 0.1})
    put(store.log("u"), range(COUNT))
    snapshot = PartitionLog.snapshot

    def deleting(log: PartitionLog, **how: Any) -> Any:
        if how.get("wait") and log.partition == ("t", 0) and "t" in store.topics():
            other.run("store.delete_topic('t')")
        return snapshot(log, **how)

    monkeypatch.setattr(PartitionLog, "snapshot", deleting)
    store.tick()
    assert "t" not in store.topics()
    assert offsets(store.log("u")) == left(store.log("u").segments[-1].base_offset)


# ---- failures ----------------------------------------------------------------------------------------------------------------


def fail() -> None:
    raise StorageFailedError("cannot write: no room, for a test", errno=28)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["create", "write", "sync"])
@pytest.mark.parametrize("suffix", [LOG, ".index", SEAL])
def test_want_of_room_for_the_copy_changes_nothing(
    path: Path, store: Store, log: pylog.Log, fs: HookedFileSystem, call: str, suffix: str
) -> None:
    fs.before(call, suffix + CLEANED, fail)
    with pytest.raises(StorageFailedError):
        store.compact("t")
    kept = left(log.segments[-1].base_offset)
    assert set(kept) <= set(offsets(log))
    assert (offsets(log) == list(range(COUNT))) == (
        call != "write" or suffix != LOG
    )  # the first bytes are those of a later segment
    assert not [file for file in (path / "t-0").iterdir() if file.name.endswith((CLEANED, SWAP))]
    put(log, range(COUNT, COUNT + 1))
    (done,) = store.compact("t")
    assert offsets(log) == left(done.end, COUNT + 1)


STEPS = [
    *(("rename", ending, number) for ending in (CLEANED, SWAP) for number in (1, 2, 3, 4)),
    *(("remove", LOG, number) for number in (1, 2)),
    *(("sync_directory", "t-0", number) for number in (2, 3)),
]


def fail_at(fs: HookedFileSystem, call: str, name: str, number: int, error: StorageFailedError) -> None:
    """Lets the n-th such call from now on fail."""

    def count() -> None:
        if number > 1:
            fail_at(fs, call, name, number - 1, error)
        else:
            raise error

    fs.before(call, name, count)


def merging(store: Store, log: pylog.Log) -> tuple[list[int], int]:
    """Makes the next compaction merge what one has left; the offsets before it, and where it ends."""
    store.compact("t")
    put(log, range(COUNT, COUNT + 20))
    return offsets(log), log.segments[-1].base_offset


def failed_merge(store: Store, fs: HookedFileSystem, call: str, name: str, number: int, errno: int) -> tuple[list[int], int]:
    """As `merging`, with a compaction that fails at a call."""
    before, end = merging(store, store.log("t"))
    fail_at(fs, call, name, number, StorageFailedError(f"cannot {call}, for a test", errno=errno))
    with pytest.raises(StorageFailedError):
        store.compact("t")
    return before, end


@pytest.mark.slow
@pytest.mark.damaged("its writer has failed")
@pytest.mark.parametrize(("call", "name", "number"), STEPS)
def test_a_swap_that_fails_ends_writing_and_is_finished_or_undone_by_the_next_opening(
    path: Path, store: Store, log: pylog.Log, fs: HookedFileSystem, call: str, name: str, number: int
) -> None:
    before, end = failed_merge(store, fs, call, name, number, errno=5)
    with pytest.raises(pylog.ClosedError):
        log.append(b"x", key=b"k")
    fs.forget()
    store.close()
    with pylog.open(path) as again:
        found = offsets(again.log("t"))
        assert set(left(end, COUNT + 20)) <= set(found) <= set(before)
        assert [finding.message for finding in again.log("t").recovery_report if finding.kind == "corrupt"] == []
        assert not [file for file in (path / "t-0").iterdir() if file.name.endswith((CLEANED, SWAP))]
        again.compact("t")
        assert offsets(again.log("t")) == left(end, COUNT + 20)
        assert again.check().ok


@pytest.mark.slow
@pytest.mark.parametrize(("call", "name", "number"), [step for step in STEPS if step[0] != "sync_directory"])
def test_a_swap_that_there_is_no_room_for_is_finished_or_undone_by_the_next_write(
    path: Path, store: Store, log: pylog.Log, fs: HookedFileSystem, call: str, name: str, number: int
) -> None:
    before, end = failed_merge(store, fs, call, name, number, errno=28)
    put(log, range(COUNT + 20, COUNT + 21))
    found = offsets(log)
    assert set(left(end, COUNT + 20)) <= set(found) <= {*before, COUNT + 20}
    assert found[-1] == COUNT + 20
    assert not [file for file in (path / "t-0").iterdir() if file.name.endswith((CLEANED, SWAP))]
    (done,) = store.compact("t")
    assert offsets(log) == left(done.end, COUNT + 21)


# ---- what loading makes of it ------------------------------------------------------------------------------------------------


def plan(*names: str, replaced: tuple[int, ...] = ()) -> Any:
    return plan_load(names, lambda name: 10, lambda name: replaced)


@pytest.mark.slow
def test_source_segments_left_by_a_swap_are_recognised_by_the_seal() -> None:
    """The new `.log` has its name already: nothing else tells that it holds the records of the other one too."""
    names = [file_name(base, suffix) for base in (0, 5, 20) for suffix in (LOG, ".index", SEAL)]
    found = plan(*names, file_name(0, SEAL) + SWAP, replaced=(0, 5))
    assert sorted(found.removals) == sorted(file_name(5, suffix) for suffix in (LOG, ".index", SEAL))
    assert list(found.segments) == [0, 20]
    assert found.renames == [(file_name(0, SEAL) + SWAP, file_name(0, SEAL))]


@pytest.mark.slow
def test_a_swap_that_was_not_decided_is_undone() -> None:
    found = plan(file_name(0, LOG), file_name(5, LOG), file_name(0, LOG) + SWAP, file_name(0, SEAL) + CLEANED, replaced=(0, 5))
    assert found.removals == [file_name(0, LOG) + SWAP]
    assert (list(found.segments), found.cleaned) == ([0, 5], [file_name(0, SEAL) + CLEANED])
    assert found.renames == []


@pytest.mark.slow
def test_a_seal_says_what_it_replaces_and_nothing_when_it_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / (file_name(0, SEAL) + SWAP)
    path.write_bytes(encode_seal(make_seal(0, 9, HeaderDigest(), (0, 5))))
    assert replaced_by(HookedFileSystem(), str(path), 1 << 20) == (0, 5)
    path.write_bytes(path.read_bytes()[:-1])
    assert replaced_by(HookedFileSystem(), str(path), 1 << 20) == ()
