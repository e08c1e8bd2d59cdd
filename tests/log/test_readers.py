"""Readers of a log that others write: they take no lock, write nothing, and see what there is and what goes."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability
from pylog.clock import ManualClock
from pylog.fs import OsFileSystem
from pylog.fs.protocols import DirectoryEntry
from pylog.log.durable_point import DELETED, mark_deleted
from pylog.segment.names import DURABLE_POINT
from pylog.store import Store, manager_of
from support.faults.neighbours import HookedFileSystem, last_segment, values
from support.log import reading
from support.log.durable_points import slot_of
from support.log.reading import add, append, texts

path = pytest.fixture(reading.path)
store = pytest.fixture(reading.store)
log = pytest.fixture(reading.log)
clock = pytest.fixture(reading.clock)
reader = pytest.fixture(reading.reader)


# ---- live --------------------------------------------------------------------------------------------------------------------


def test_a_reader_sees_each_append_at_once_across_rolls(log: pylog.Log, reader: pylog.Log) -> None:
    for number in range(1, 40):
        log.append(b"%d" % number, durability=Durability.OS if number % 2 else Durability.SYNC)
        assert reader.end_offset == number + 1
        assert reader.read(number).value == b"%d" % number
    assert values(reader) == texts(range(40))
    assert len(reader.segments) == len(log.segments) > 3
    assert reader.start_offset == 0


def test_a_reader_reports_the_durable_offset(log: pylog.Log, reader: pylog.Log) -> None:
    log.append(b"1", durability=Durability.OS)
    assert (reader.end_offset, reader.durable_offset) == (2, 1)
    log.flush()
    assert reader.durable_offset == 2


def test_a_reader_finds_by_time_what_was_appended_after_it_was_opened(log: pylog.Log, reader: pylog.Log) -> None:
    soon = time.time_ns() // 1_000_000 + 60_000  # after the first record, and not too far in the future to be taken
    for number in range(1, 40):
        log.append(b"%d" % number, timestamp=soon + number)
        found = reader.offset_for_timestamp(soon + number)
        assert found == (number, soon + number)


def test_a_reader_of_an_empty_partition_sees_its_first_record(path: Path, store: Store, clock: ManualClock) -> None:
    with pylog.open(path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        assert (reader.start_offset, reader.end_offset, values(reader)) == (0, 0, [])
        store.log("t").append(b"0")
        assert values(reader) == [b"0"]


def test_a_reader_sees_only_published_records(path: Path, log: pylog.Log, reader: pylog.Log) -> None:
    """What lies above the published end is being written, or its writer is dead: the next writer will see to it."""
    whole = last_segment(path / "t-0").read_bytes()
    add(path / "t-0", struct.pack(">q", 1) + whole[8:] + b"torn")
    assert values(reader) == [b"0"]
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == [b"0"]
        assert reading.recovery_report == ()


def test_readers_that_write_too_see_what_another_process_publishes_while_it_keeps_the_partition(
    path: Path, log: pylog.Log
) -> None:
    """Their own appends must wait for it, their reading need not."""
    with pylog.open(path) as other, pylog.open(path, lock_timeout_ms=0) as third:
        waiting = third.log("t")
        append(waiting, [1])
        append(other.log("t"), [2])
        locks = manager_of(other).locks
        assert locks is not None
        with locks.partition("t-0"):
            append(other.log("t"), [3])
            assert waiting.end_offset == 4
            assert values(waiting) == texts(range(4))
            with pytest.raises(pylog.StoreLockedError):
                waiting.append(b"never")
        append(other.log("t"), range(4, 40))
        append(waiting, [40])
        assert values(waiting) == values(log) == texts(range(41))


def test_a_roll_that_was_only_read_is_still_known_at_the_next_append(path: Path, log: pylog.Log) -> None:
    """The header was looked at without the lock: it is as it was then, and so is the old file, which is full."""
    with pylog.open(path) as other:
        append(log, [1])
        append(other.log("t"), [2])
        locks = manager_of(other).locks
        assert locks is not None
        with locks.partition("t-0"):
            for number in range(3, 40):
                append(other.log("t"), [number])
                assert log.end_offset <= number + 1
                if len(other.log("t").segments) > 1:
                    break
        assert log.append(b"next") == other.log("t").end_offset - 1
        assert values(log) == values(other.log("t"))


# ---- what goes ---------------------------------------------------------------------------------------------------------------


def test_a_reader_goes_on_after_a_truncation_beyond_the_records_it_read(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 30))
    records = reader.records(0, 5)
    assert next(records).value == b"0"
    log.truncate(20)
    assert [record.value for record in records] == texts(range(1, 5))
    assert reader.end_offset == 20
    append(log, range(20, 25))
    assert values(reader) == texts(range(25))


def test_truncated_records_are_out_of_range_for_a_reader(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 30))
    assert reader.read(25).value == b"25"
    log.truncate(10)
    for offset in (10, 25):
        with pytest.raises(pylog.OffsetOutOfRangeError):
            reader.read(offset)
        assert reader.end_offset == 10
    log.append_many([b"new"] * 20)
    assert reader.read(25).value == b"new"


def test_a_scan_that_meets_a_truncation_says_so_and_never_calls_it_damage(path: Path, store: Store) -> None:
    store.create_topic("long")
    log = store.log("long")
    for _ in range(60):
        log.append(bytes(100))
    with pylog.open(path, mode="r") as reading:
        frames = reading.log("long").scan(20)
        log.truncate(1)
        log.append(bytes(9000))  # its bytes stand where the index leads
        with pytest.raises(pylog.OffsetOutOfRangeError, match="was changed while it was read"):
            list(frames)
        assert values(reading.log("long")) == [bytes(100), bytes(9000)]


@pytest.mark.damaged("it was damaged on purpose")
def test_records_that_are_missing_below_the_published_end_are_damage(path: Path, log: pylog.Log, reader: pylog.Log) -> None:
    """Nobody has truncated the log: its file has lost whole batches, and two looks agree on it."""
    append(log, range(1, 4))
    assert reader.end_offset == 4
    file = last_segment(path / "t-0")
    os.truncate(file, file.stat().st_size // 2)
    for start in (0, 2, 3):
        with pytest.raises(pylog.CorruptionError, match="offset 2 is missing") as found:
            list(reader.scan(start))
        assert found.value.next_offset is None
    with pytest.raises(pylog.CorruptionError):
        reader.read(3)
    assert [record.value for record in reader.records(0, 2)] == texts(range(2))


def test_records_that_retention_deletes_are_out_of_range_for_a_reader(path: Path, store: Store, clock: ManualClock) -> None:
    store.create_topic("short", segment_bytes=300, retention_ms=1000)
    log = store.log("short")
    for number in range(20):
        log.append(b"%d" % number, timestamp=1000 * number)
    with pylog.open(path, mode="r", clock=clock) as reading:
        reader = reading.log("short")
        assert reader.start_offset == 0
        records = reader.records()
        assert store.tick(now_ms=15_000) > 0
        with pytest.raises(pylog.OffsetOutOfRangeError, match="removed while it was read"):
            list(records)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            reader.read(0)
        assert reader.start_offset == log.start_offset > 0
        assert values(reader) == texts(range(log.start_offset, 20))


def test_deleted_records_are_out_of_range_for_a_reader(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 30))
    log.delete_records(17)
    assert reader.start_offset == 17
    assert values(reader) == texts(range(17, 30))


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made-again"])
def test_a_reader_of_a_deleted_topic_gets_an_error(store: Store, reader: pylog.Log, again: bool) -> None:
    store.delete_topic("t")
    if again:
        store.create_topic("t")
        store.log("t").append_many([b"another"] * 3)
    for _ in range(2):
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            values(reader)


def test_a_reader_of_an_unwritten_topic_also_learns_of_its_deletion(path: Path, store: Store) -> None:
    store.create_topic("empty")
    with pylog.open(path, mode="r") as reading:
        reader = reading.log("empty")
        store.delete_topic("empty")
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            values(reader)


@pytest.mark.damaged("it was damaged on purpose")
def test_a_partition_that_is_marked_for_deletion_is_not_read_any_more(path: Path, reader: pylog.Log) -> None:
    mark_deleted(OsFileSystem(), str(path / "t-0"))
    assert slot_of(path).flags == DELETED
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        values(reader)


# ---- leaving no trace --------------------------------------------------------------------------------------------------------


def listing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of change of everything in a directory, and of itself."""
    stats = {str(each.relative_to(directory)): each.lstat() for each in (directory, *directory.rglob("*"))}
    return {name: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


def read_everything(path: Path, fs: OsFileSystem | None = None) -> list[bytes | None]:
    """Does all that a reader can do."""
    with pylog.open(path, mode="r", clock=ManualClock(), fs=fs) as reading:
        reading.topics()
        reader = reading.log("t")
        found = values(reader)
        reader.read(0)
        list(reader.scan(isolation_level="read_committed"))
        reader.offset_for_timestamp(0)
        reader.split_offsets(0, reader.end_offset, 100)
        list(reader.follow(0, timeout_ms=1))
        reader.flush()
        assert reader.recovery_report == reading.recovery_report == ()
        for refused in (lambda: reader.append(b"no"), lambda: reader.truncate(0), lambda: reader.delete_records(1)):
            with pytest.raises(pylog.ReadOnlyError):
                refused()
        for refused in (lambda: reading.create_topic("no"), lambda: reading.delete_topic("t"), reading.tick):
            with pytest.raises(pylog.ReadOnlyError):
                refused()
    return found


class Watched(HookedFileSystem):
    """Takes no lock."""

    def open_locks(self, path: str) -> Any:
        raise AssertionError(f"a reader locked {path}")


def test_a_reader_takes_no_lock_and_writes_nothing(path: Path, log: pylog.Log) -> None:
    append(log, range(1, 30))
    before = listing(path)
    fs = Watched()
    assert read_everything(path, fs) == texts(range(30))
    assert listing(path) == before
    assert {call for call, _ in fs.calls} == {"open"}


def test_a_reader_makes_missing_derived_files_in_memory_only(path: Path, store: Store, log: pylog.Log) -> None:
    append(log, range(1, 30))
    store.close()
    for pattern in ("*index", "*.snapshot", "*.seal", "leader-epoch-checkpoint", DURABLE_POINT):
        for each in (path / "t-0").glob(pattern):
            each.unlink()
    before = listing(path)
    assert read_everything(path, Watched()) == texts(range(30))
    assert listing(path) == before


def test_a_reader_needs_no_access_to_the_lock_files(path: Path, log: pylog.Log) -> None:
    """Links that lead nowhere are opened by nobody, not even by a superuser, whom permissions do not stop."""
    for name in (".lock", "pylog.lock"):
        (path / name).rename(path / f"{name}.aside")
        (path / name).symlink_to(path / "nowhere")
    assert read_everything(path) == [b"0"]
    for name in (".lock", "pylog.lock"):  # the writer looks for them when it closes
        (path / f"{name}.aside").rename(path / name)


def test_a_reader_needs_no_more_than_permission_to_read(path: Path, store: Store, log: pylog.Log) -> None:
    append(log, range(1, 30))
    store.close()
    files = [path, *path.rglob("*")]
    for each in files:
        each.chmod(0o500 if each.is_dir() else 0o400)
    try:
        before = listing(path)
        assert read_everything(path) == texts(range(30))
        assert listing(path) == before
    finally:
        for each in files:
            each.chmod(0o700)


# ---- what a crash left -------------------------------------------------------------------------------------------------------


class Listing(OsFileSystem):
    """Bears to be asked for directories a few times."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        self.times += 1
        assert self.times < 100
        return super().list(path, sizes=sizes)


@pytest.mark.pair("scan and follow", "crash")
def test_a_reader_beside_an_interrupted_swap_loads_the_log_once_and_not_again_and_again(path: Path, store: Store) -> None:
    append(store.log("t"), range(60))
    store.close()
    for suffix in (".log", ".index", ".timeindex"):
        (path / "t-0" / f"{0:020d}{suffix}").rename(path / "t-0" / f"{0:020d}{suffix}.swap")
    with pylog.open(path, mode="r", fs=Listing()) as reading:
        found = list(reading.log("t").records(isolation_level="read_committed"))
        assert [record.value for record in found] == texts(range(60))
