"""Reading a log that others write: a reader takes no lock, writes nothing, sees everything published, and is told what went.

Then `follow` and `wait_for`: waiting for what comes without a lock and almost without a processor.
"""

from __future__ import annotations

import os
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import Durability, TopicPartition
from pylog.clock import ManualClock
from pylog.directory.locks import KAFKA_LOCK
from pylog.fs import OsFileSystem
from pylog.log.checking.report import Partition
from pylog.log.durable_point import DELETED, SLOT_SIZE, DurablePoint, DurablePointFile, mark_deleted
from pylog.log.reading.following import Naps
from pylog.log.reading.lookup import TimeSearch
from pylog.log.reading.reader import OffsetRange, crc_before, good_batches
from pylog.record.format import CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, CRC, TRANSACTIONAL_BIT
from pylog.segment.names import DURABLE_POINT
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem, Neighbour, last_segment, values
from support.reference.records import Batch, Record

SMALL: dict[str, Any] = {"segment_bytes": 600, "index_interval_bytes": 100, "retention_ms": -1}
PATIENCE = 20.0  # seconds, for what takes milliseconds
SOON = 20_000  # the same in milliseconds


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A store that writes: one topic, of small segments."""
    with pylog.open(path) as opened:
        opened.create_topic("t", **SMALL)
        yield opened


@pytest.fixture
def log(store: Store) -> pylog.Log:
    made = store.log("t")
    made.append(b"0")
    return made


@pytest.fixture
def clock() -> ManualClock:
    """The reader's: waiting costs no time."""
    return ManualClock()


@pytest.fixture
def reader(path: Path, log: pylog.Log, clock: ManualClock) -> Iterator[pylog.Log]:
    """The same partition in a store that only reads."""
    with pylog.open(path, mode="r", clock=clock) as reading:
        yield reading.log("t")


def append(log: pylog.Log, numbers: Iterable[int]) -> None:
    for number in numbers:
        assert log.append(b"%d" % number) == number


def texts(numbers: Iterable[int]) -> list[bytes | None]:
    return [b"%d" % number for number in numbers]


def add(directory: Path, data: bytes) -> None:
    with last_segment(directory).open("ab") as file:
        file.write(data)


def broker_batch(offset: int, *sent: bytes, epoch: int = 0, **fields: Any) -> bytes:
    """What a broker appends."""
    records = [Record(delta, 0, None, value) for delta, value in enumerate(sent)]
    return Batch(records, base_offset=offset, leader_epoch=epoch, base_timestamp=1_700_000_000_000, **fields).encoded()


def marker(offset: int, kind: int, producer: int) -> bytes:
    """What ends a transaction."""
    record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return Batch([record], base_offset=offset, leader_epoch=0, attributes=bits, producer_id=producer, producer_epoch=0).encoded()


def in_transaction(offset: int, *sent: bytes, producer: int = 7) -> bytes:
    numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": offset}
    return broker_batch(offset, *sent, attributes=TRANSACTIONAL_BIT, **numbers)


# ---- live --------------------------------------------------------------------------------------------------------------------


def test_a_reader_sees_each_append_at_once_across_rolls(log: pylog.Log, reader: pylog.Log) -> None:
    for number in range(1, 40):
        log.append(b"%d" % number, durability=Durability.OS if number % 2 else Durability.SYNC)
        assert reader.end_offset == number + 1
        assert reader.read(number).value == b"%d" % number
    assert values(reader) == texts(range(40))
    assert len(reader.segments) == len(log.segments) > 3
    assert reader.start_offset == 0


def test_a_reader_knows_what_is_durable(log: pylog.Log, reader: pylog.Log) -> None:
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


def test_a_reader_sees_no_more_than_what_is_published(path: Path, log: pylog.Log, reader: pylog.Log) -> None:
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
        locks = other._manager._locks
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


def test_a_roll_that_was_only_looked_at_is_not_forgotten_before_the_next_append(path: Path, log: pylog.Log) -> None:
    """The header was looked at without the lock: it is as it was then, and so is the old file, which is full."""
    with pylog.open(path) as other:
        append(log, [1])
        append(other.log("t"), [2])
        locks = other._manager._locks
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


def test_a_reader_goes_on_after_a_truncation_behind_what_it_read(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 30))
    records = reader.records(0, 5)
    assert next(records).value == b"0"
    log.truncate(20)
    assert [record.value for record in records] == texts(range(1, 5))
    assert reader.end_offset == 20
    append(log, range(20, 25))
    assert values(reader) == texts(range(25))


def test_what_was_truncated_is_out_of_range_for_a_reader(log: pylog.Log, reader: pylog.Log) -> None:
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


def test_what_retention_deletes_is_out_of_range_for_a_reader(path: Path, store: Store, clock: ManualClock) -> None:
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
def test_a_reader_of_a_deleted_topic_is_told_so(store: Store, reader: pylog.Log, again: bool) -> None:
    store.delete_topic("t")
    if again:
        store.create_topic("t")
        store.log("t").append_many([b"another"] * 3)
    for _ in range(2):
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            values(reader)


def test_a_reader_of_a_topic_that_nobody_wrote_is_told_of_its_deletion_too(path: Path, store: Store) -> None:
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
        (path / name).unlink()
        (path / name).symlink_to(path / "nowhere")
    assert read_everything(path) == [b"0"]


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


# ---- headers that do not count -------------------------------------------------------------------------------------------------


def slot_of(path: Path) -> DurablePoint:
    header = DurablePointFile(OsFileSystem(), str(path / "t-0"))
    slot = header.look()
    header.close()
    assert slot is not None
    return slot


def write_header(path: Path, **fields: Any) -> None:
    """Writes the header's next slot, as a process does that dies right after it."""
    header = DurablePointFile(OsFileSystem(), str(path / "t-0"), write=True)
    header.look()
    header.write(**fields)
    header.close()


def test_a_copied_directory_is_read_to_its_durable_end_and_on_over_whole_batches(path: Path, log: pylog.Log) -> None:
    """The copy's files have other inodes: its header is of another boot, and a torn tail alarms nobody."""
    append(log, range(1, 10))
    log.append(b"10", durability=Durability.OS)
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    whole = last_segment(copy / "t-0").read_bytes()
    for torn in (b"", b"torn", bytes(100), whole[: len(whole) // 2]):
        last_segment(copy / "t-0").write_bytes(whole + torn)
        with pylog.open(copy, mode="r") as reading:
            assert values(reading.log("t")) == texts(range(11))
            assert {finding.kind for finding in reading.recovery_report} <= {"torn"}


def test_a_copy_that_grows_is_followed_by_its_files(path: Path, log: pylog.Log, clock: ManualClock) -> None:
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    with pylog.open(copy, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        add(copy / "t-0", broker_batch(1, b"1"))
        assert values(reader) == texts(range(2))
        add(copy / "t-0", broker_batch(2, b"2"))
        assert values(reader) == texts(range(3))


def test_a_reader_without_a_header_sees_what_a_broker_appends_and_rolls(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(broker_batch(0, b"0"))
    with pylog.open(tmp_path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        add(directory, broker_batch(1, b"1"))
        assert values(reader) == texts(range(2))
        add(directory, broker_batch(2, b"2")[:40])  # it is at it
        assert reader.end_offset == 2
        add(directory, broker_batch(2, b"2")[40:])
        assert values(reader) == texts(range(3))
        (directory / f"{3:020d}.log").write_bytes(broker_batch(3, b"3", b"4"))
        assert values(reader) == texts(range(5))
        (directory / f"{0:020d}.log").rename(directory / f"{0:020d}.log.deleted")
        assert reader.start_offset == 3
        assert reading.recovery_report == ()


@pytest.fixture
def cleaned_meanwhile(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[Store, Callable[[], None]]]:
    """A reader of a broker's log of three segments, and what makes the broker's cleaner put one in the place of the first two."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    for base, offsets in ((0, range(5)), (5, range(5, 10)), (10, range(10, 11))):
        (directory / f"{base:020d}.log").write_bytes(b"".join(broker_batch(offset, b"%d" % offset) for offset in offsets))

    def clean() -> None:
        if (directory / f"{5:020d}.log").exists():
            (directory / f"{0:020d}.log.swap").write_bytes(broker_batch(0, b"0") + broker_batch(7, b"7"))
            for base in (0, 5):
                (directory / f"{base:020d}.log").rename(directory / f"{base:020d}.log.deleted")
            (directory / f"{0:020d}.log.swap").rename(directory / f"{0:020d}.log")

    with pylog.open(tmp_path, mode="r", clock=clock) as reading:
        yield reading, clean


def test_a_reader_beside_a_brokers_cleaner_reads_on_in_what_that_has_left(
    cleaned_meanwhile: tuple[Store, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No header of pylog's tells that files were replaced; what is gone is no damage."""
    store, clean = cleaned_meanwhile
    scanning, reading, searching = (store.log("t") for _ in range(3))
    frames = scanning.scan()
    find = TimeSearch._find

    def find_late(search: TimeSearch, *given: Any, **named: Any) -> Any:
        clean()
        return find(search, *given, **named)

    monkeypatch.setattr(TimeSearch, "_find", find_late)
    found = searching.offset_for_timestamp(1_700_000_000_000)
    assert found is not None
    assert found.offset == 0
    assert [offset for frame in frames for offset in frame.column("offset").to_pylist()] == [0, 7, 10]
    assert reading.read(6).offset == 7


def test_a_reader_of_a_log_that_pylog_wrote_goes_on_behind_what_a_broker_removes_from_it(
    path: Path, store: Store, clock: ManualClock
) -> None:
    """The broker appends nothing meanwhile, so the header is still right about the log's end."""
    store.create_topic("cut", segment_bytes=300)
    store.log("cut").append_many([b"%d" % number for number in range(2)])
    for number in range(2, 30):
        store.log("cut").append(b"%d" % number)
    second = store.log("cut").segments[1].base_offset
    store.close()
    with pylog.open(path, mode="r", clock=clock) as reading, reading.consumer(auto_offset_reset="earliest") as consumer:
        late = reading.log("cut")
        consumer.assign([TopicPartition("cut", 0)])
        assert late.start_offset == consumer.position(TopicPartition("cut", 0)) == 0
        for file in (path / "cut-0").glob(f"{0:020d}.*"):
            file.unlink()
        for segment in late.look().segments.values():
            segment.release()
        with pytest.raises(pylog.OffsetOutOfRangeError):
            late.read(0)
        assert (late.start_offset, late.read(second).offset) == (second, second)
        found = [record.offset for _ in range(3) for part in consumer.poll().values() for record in part]
        assert found == list(range(second, 30))


def test_verify_beside_a_brokers_cleaner_tells_of_nothing_that_is_gone(
    cleaned_meanwhile: tuple[Store, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clean = cleaned_meanwhile
    shape = Partition.shape

    def shape_of_late(partition: Partition) -> object:
        clean()
        return shape(partition)

    monkeypatch.setattr(Partition, "shape", shape_of_late)
    assert [finding for finding in store.verify().findings if finding.kind in ("missing", "corrupt")] == []


def test_damage_beside_a_broker_that_appends_is_told_of(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    damaged = bytearray(broker_batch(0, b"0") + broker_batch(1, b"1"))
    damaged[66] ^= 1
    (directory / f"{0:020d}.log").write_bytes(damaged)
    with pylog.open(tmp_path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        add(directory, broker_batch(2, b"2"))
        for _ in range(2):
            with pytest.raises(pylog.CorruptionError):
                reader.read(0)
            add(directory, broker_batch(reader.end_offset, b"more"))


def test_a_reader_sees_a_pylog_writer_begin_where_a_broker_left(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(broker_batch(0, b"0", b"1"))
    with pylog.open(tmp_path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        assert reader.end_offset == 2
        with pylog.open(tmp_path) as store:
            append(store.log("t"), [2])
            assert values(reader) == texts(range(3))
            add(directory, b"above the published end")
            assert values(reader) == texts(range(3))


def test_a_reader_of_a_directory_that_a_broker_has_written_since_goes_on_with_the_broker(
    path: Path, store: Store, log: pylog.Log, clock: ManualClock
) -> None:
    """The header is stale: a batch of another leader epoch stands behind what it publishes."""
    store.close()
    add(path / "t-0", broker_batch(1, b"1", epoch=1))
    with pylog.open(path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        assert values(reader) == texts(range(2))
        add(path / "t-0", broker_batch(2, b"2", epoch=1))
        assert values(reader) == texts(range(3))


def broker_notes(path: Path, seconds: int) -> None:
    """A broker's high watermarks, noted so many seconds after pylog wrote the partition's header."""
    noted = path / "replication-offset-checkpoint"
    noted.write_text("0\n1\nt 0 1\n")
    written = (path / "t-0" / DURABLE_POINT).stat().st_mtime
    os.utime(noted, (written + seconds, written + seconds))


@pytest.mark.parametrize("opened_before", [False, True])
def test_a_reader_sees_what_a_broker_appended_under_the_epoch_that_pylog_wrote_under(
    path: Path, store: Store, log: pylog.Log, clock: ManualClock, opened_before: bool
) -> None:
    """A broker with ZooKeeper goes on under the leader epoch that it had: its own files tell that it was here."""
    store.close()
    with pylog.open(path, mode="r", clock=clock) as early:
        assert values(early.log("t")) == texts(range(1))
        add(path / "t-0", broker_batch(1, b"1"))
        broker_notes(path, 3)
        with pylog.open(path, mode="r", clock=clock) as late:
            reader = (early if opened_before else late).log("t")
            assert values(reader) == texts(range(2))
            add(path / "t-0", broker_batch(2, b"2"))
            assert values(reader) == texts(range(3))


HOLD_AS_A_BROKER = """
import fcntl
file = open(path, "a+b")
fcntl.lockf(file, fcntl.LOCK_EX)
"""


def test_a_reader_beside_a_broker_sees_what_it_appends(path: Path, store: Store, log: pylog.Log, clock: ManualClock) -> None:
    """Whoever has the directory open writes there, so no note of it is waited for."""
    store.close()
    with Neighbour() as broker, pylog.open(path, mode="r", clock=clock) as early:
        assert values(early.log("t")) == texts(range(1))
        broker.run(HOLD_AS_A_BROKER, path=str(path / KAFKA_LOCK))
        add(path / "t-0", broker_batch(1, b"1"))
        with pylog.open(path, mode="r", clock=clock) as late:
            assert values(early.log("t")) == values(late.log("t")) == texts(range(2))


@pytest.mark.damaged("a writer died in it")
def test_what_a_dead_writer_did_not_publish_is_not_taken_for_a_brokers(
    path: Path, store: Store, log: pylog.Log, clock: ManualClock
) -> None:
    store.close()
    broker_notes(path, -3)
    with pylog.open(path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        add(path / "t-0", broker_batch(1, b"1"))
        assert values(reader) == texts(range(1))
    with pylog.open(path, mode="r", clock=clock) as reading:
        assert values(reading.log("t")) == texts(range(1))


def test_what_a_writer_at_work_has_not_published_is_not_taken_for_a_brokers(
    path: Path, log: pylog.Log, reader: pylog.Log
) -> None:
    """A broker was here after pylog wrote this partition, and pylog has the directory open now."""
    broker_notes(path, 3)
    add(path / "t-0", broker_batch(1, b"1"))
    assert values(reader) == texts(range(1))
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == texts(range(1))
    with last_segment(path / "t-0").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - len(broker_batch(1, b"1")))


@pytest.mark.damaged("it was damaged on purpose")
def test_a_slot_that_reads_torn_takes_nothing_back(path: Path, log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 4))
    assert reader.end_offset == 4
    header = path / "t-0" / DURABLE_POINT
    whole = header.read_bytes()
    newest = max((0, SLOT_SIZE), key=lambda start: int.from_bytes(whole[start + 8 : start + 16], "little"))
    for damaged in (whole[:newest] + bytes(64) + whole[newest + 64 :], bytes(len(whole))):
        header.write_bytes(damaged)
        assert values(reader) == texts(range(4))


def test_two_torn_slots_mean_for_a_new_reader_that_there_is_no_header(path: Path, store: Store, log: pylog.Log) -> None:
    append(log, range(1, 4))
    store.close()
    (path / "t-0" / DURABLE_POINT).write_bytes(bytes(2 * SLOT_SIZE))
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == texts(range(4))


def test_a_change_of_segments_is_not_waited_for_but_by_who_has_to_know_its_end(
    path: Path, log: pylog.Log, reader: pylog.Log
) -> None:
    """A reader is told of the log before the change or after it, never of the middle."""
    append(log, range(1, 4))
    epoch = slot_of(path).epoch
    write_header(path, epoch=epoch + 1)
    finished: list[bool] = []

    class Finishing(ManualClock):
        def sleep(self, seconds: float) -> None:
            if not finished:
                write_header(path, epoch=epoch + 2)
                finished.append(True)
            super().sleep(seconds)

    reader._follower._clock = Finishing()
    assert values(reader) == texts(range(4))
    assert not finished
    assert reader.look(settled=True).epoch == epoch + 2
    assert finished


def test_a_reader_takes_what_it_finds_when_a_process_died_in_a_change_of_segments(
    path: Path, log: pylog.Log, reader: pylog.Log, clock: ManualClock
) -> None:
    append(log, range(1, 4))
    write_header(path, epoch=slot_of(path).epoch + 1)
    waited = clock.monotonic()
    assert values(reader) == texts(range(4))
    assert clock.monotonic() == waited
    reader.look(settled=True)
    assert 0 < clock.monotonic() - waited < 5
    waited = clock.monotonic()
    reader.look(settled=True)
    assert values(reader) == texts(range(4))
    assert clock.monotonic() == waited  # it does not wait for the dead again
    append(log, [4])
    assert values(reader) == texts(range(5))


def test_a_reader_that_saw_a_roll_finds_its_place_by_the_index_of_the_new_segment(path: Path, store: Store) -> None:
    """It made that index from the walk that found the log's end; to go over all headers again would cost more each time."""
    store.create_topic("rolls", segment_bytes=1 << 20)
    with pylog.open(path, mode="r") as reading:
        reader = reading.log("rolls")
        for _ in range(3):
            store.log("rolls").append_many([bytes(9000)] * 60)
            active = reader.look().active
        assert active is not None
        assert active.base_offset > 0
        assert not active.index_is_of_headers
        assert active.locate(reader.end_offset - 1) > active.size // 2


@pytest.mark.parametrize("size", [10, 20_000, 200_000])
def test_what_lies_before_an_offset_is_told_by_headers_as_by_a_walk(path: Path, store: Store, size: int) -> None:
    store.create_topic("u", segment_bytes=1 << 20)
    for count in (1, 40, 2, 1, 30):
        store.log("u").append_many([bytes(size)] * count)
    state = store.log("u").look()
    for offset in range(state.end_offset + 1):
        walked = [int(batches.table[CRC, -1]) for batches in good_batches(state, OffsetRange(offset - 1, offset))]
        assert crc_before(state, offset) == (walked[-1] if offset else None)


READING_AGAIN_AND_AGAIN = """
log, rounds, errors = store.log('t'), 0, set()
while rounds < 300:
    rounds += 1
    try:
        for record in log.records():
            assert record.value in (b'long' * 50, b'short'), 'altered'
    except pylog.OffsetOutOfRangeError:
        pass
errors
"""


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_no_reader_dies_when_another_process_cuts_what_it_has_open(path: Path, log: pylog.Log, mode: str) -> None:
    """Sealed segments are mapped by stores that write; whoever touched a page that was cut off would die of SIGBUS."""
    for _ in range(20):
        log.append(b"long" * 50)
    log.delete_records(1)
    with Neighbour() as other:
        other.run("store = pylog.open(path, mode=mode)", path=str(path), mode=mode)
        other.begin(READING_AGAIN_AND_AGAIN)
        for number in range(40):
            log.truncate(3 + number % 7)
            for _ in range(4 + number % 9):
                log.append(b"long" * 50 if number % 2 else b"short", durability=Durability.OS)
        assert other.answer() == set()
        other.run("store.close()")


# ---- follow ------------------------------------------------------------------------------------------------------------------


class Following(threading.Thread):
    """Follows a log in a thread of its own; `wait_for` waits until so many records have come."""

    def __init__(self, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        super().__init__()
        self._batches = batches
        self._came = threading.Condition()
        self.values: list[bytes | None] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for batch in self._batches():
                with self._came:
                    self.values += batch.column("value").to_pylist()
                    self._came.notify_all()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def wait_for(self, count: int) -> list[bytes | None]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.values) >= count, PATIENCE), self.error
            return self.values


@pytest.fixture(params=["reader", "writer"])
def either(request: pytest.FixtureRequest, path: Path, log: pylog.Log) -> Iterator[pylog.Log]:
    """A log to follow: of a store that only reads, and of another one that may write."""
    with pylog.open(path, mode="r" if request.param == "reader" else "rw") as other:
        yield other.log("t")


def collected(batches: Iterable[pa.RecordBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_what_comes_is_handed_out_as_it_comes_across_rolls(log: pylog.Log, either: pylog.Log) -> None:
    following = Following(lambda: either.follow(0, timeout_ms=SOON))
    for number in range(1, 40):
        append(log, [number])
        assert following.wait_for(number + 1) == texts(range(number + 1))
    log.truncate(0)  # so that it ends
    following.join(PATIENCE)
    assert isinstance(following.error, pylog.OffsetOutOfRangeError)


def test_without_a_start_only_what_comes_after_the_call_is_handed_out(log: pylog.Log, reader: pylog.Log) -> None:
    batches = reader.follow(timeout_ms=1)
    append(log, range(1, 4))
    assert collected(batches) == texts(range(1, 4))


def test_from_an_offset_on_the_present_is_handed_out_before_what_comes(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 20))
    batches = reader.follow(7, timeout_ms=1, max_rows=5)
    assert [batch.num_rows for batch in batches] == [5, 5, 3]


def test_it_ends_when_nothing_new_has_come_for_so_long(log: pylog.Log, reader: pylog.Log, clock: ManualClock) -> None:
    batches = reader.follow(0, timeout_ms=1500)
    assert next(batches).num_rows == 1
    began = clock.monotonic()
    assert list(batches) == []
    assert 1.5 <= clock.monotonic() - began < 1.51


def test_the_time_begins_anew_with_each_record(log: pylog.Log, reader: pylog.Log, clock: ManualClock) -> None:
    batches = reader.follow(0, timeout_ms=1000)
    for number in range(1, 4):
        assert collected([next(batches)]) == [b"%d" % (number - 1)]
        clock.advance(900)
        append(log, [number])
    assert collected(batches) == [b"3"]


def test_a_follower_of_durable_records_waits_for_the_flush(log: pylog.Log, reader: pylog.Log) -> None:
    log.append(b"1", durability=Durability.OS)
    assert collected(reader.follow(0, timeout_ms=1, durable=True)) == [b"0"]
    batches = reader.follow(1, timeout_ms=1, durable=True)
    log.flush()
    assert collected(batches) == [b"1"]


def test_columns_and_isolation_are_checked_at_once(reader: pylog.Log) -> None:
    for wrong in ({"columns": ("price",)}, {"isolation_level": "serializable"}, {"max_rows": 0}, {"start": -1}):
        with pytest.raises(pylog.PylogError):
            reader.follow(**wrong)  # type: ignore[arg-type]


def test_a_committed_follower_stops_before_an_open_transaction_and_passes_aborted_ones(
    tmp_path: Path, clock: ManualClock
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(broker_batch(0, b"0") + in_transaction(1, b"1", b"2") + broker_batch(3, b"3"))
    with pylog.open(tmp_path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        batches = reader.follow(0, isolation_level="read_committed", timeout_ms=10)
        assert collected([next(batches)]) == [b"0"]
        assert reader.stable_offset == 1
        assert collected(reader.follow(1, isolation_level="read_committed", timeout_ms=1)) == []
        add(directory, marker(4, CONTROL_COMMIT, 7))
        assert collected([next(batches)]) == [b"1", b"2", b"3"]
        add(directory, in_transaction(5, b"5", producer=8) + broker_batch(6, b"6") + marker(7, CONTROL_ABORT, 8))
        assert collected(batches) == [b"6"]
        assert reader.stable_offset == 8


def test_a_committed_follower_of_a_pylog_writer_knows_of_transactions_that_came_before_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(in_transaction(0, b"0") + marker(1, CONTROL_COMMIT, 7) + in_transaction(2, b"2"))
    with pylog.open(tmp_path) as store, pylog.open(tmp_path, mode="r", clock=clock) as reading:
        append(store.log("t"), [3])
        reader = reading.log("t")
        batches = reader.follow(0, isolation_level="read_committed", timeout_ms=10)
        append(store.log("t"), range(4, 40))
        assert collected(batches) == [b"0"]
        assert reader.stable_offset == store.log("t").stable_offset == 2


def test_a_truncation_above_what_was_handed_out_changes_nothing(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 10))
    batches = reader.follow(0, timeout_ms=1)
    assert next(batches).num_rows == 10
    append(log, range(10, 30))
    log.truncate(10)
    append(log, [10])
    assert collected(batches) == [b"10"]


def test_a_truncation_below_what_was_handed_out_is_told_at_once(log: pylog.Log, reader: pylog.Log, clock: ManualClock) -> None:
    append(log, range(1, 10))
    batches = reader.follow(0)  # without an end in time
    assert next(batches).num_rows == 10
    log.truncate(5)
    with pytest.raises(pylog.OffsetOutOfRangeError, match="truncated while it was read"):
        next(batches)


@pytest.mark.parametrize("count", [5, 12])
def test_a_truncation_is_noticed_when_other_records_have_the_offsets_by_then(
    log: pylog.Log, reader: pylog.Log, count: int
) -> None:
    append(log, range(1, 10))
    batches = reader.follow(0, timeout_ms=1)
    assert next(batches).num_rows == 10
    log.truncate(5)
    for _ in range(count):
        log.append(b"x")  # as long as the others: their batches lie at the same places
    with pytest.raises(pylog.OffsetOutOfRangeError):
        list(batches)


def test_a_truncation_between_two_frames_of_one_scan_is_noticed_too(path: Path, store: Store, clock: ManualClock) -> None:
    store.create_topic("long")
    log = store.log("long")
    append(log, range(10))
    with pylog.open(path, mode="r", clock=clock) as reading:
        batches = reading.log("long").follow(0, max_rows=5, timeout_ms=1)
        assert collected([next(batches)]) == texts(range(5))
        log.truncate(5)
        for _ in range(5):
            log.append(b"x")  # their batches lie where the others lay
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(batches)


def test_a_follower_that_retention_overtakes_is_told_so(store: Store, path: Path, clock: ManualClock) -> None:
    store.create_topic("short", segment_bytes=300, retention_ms=1000)
    log = store.log("short")
    with pylog.open(path, mode="r", clock=clock) as reading:
        batches = reading.log("short").follow(0, timeout_ms=1)
        for number in range(20):
            log.append(b"%d" % number, timestamp=1000 * number)
        store.tick(now_ms=15_000)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(batches)


def test_a_follower_of_a_topic_that_is_deleted_ends_with_an_error(store: Store, reader: pylog.Log) -> None:
    batches = reader.follow(0)
    assert next(batches).num_rows == 1
    store.delete_topic("t")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        next(batches)


def test_a_follower_of_a_closed_store_ends_with_an_error(path: Path, log: pylog.Log) -> None:
    with pylog.open(path, mode="r") as reading:
        batches = reading.log("t").follow(0)
        assert next(batches).num_rows == 1
        reading.log("t").close()
    assert log.append(b"1") == 1


def test_a_process_follows_what_another_one_appends(path: Path, log: pylog.Log) -> None:
    with Neighbour() as other:
        other.run("reading = pylog.open(path, mode='r'); log = reading.log('t')", path=str(path))
        other.begin(
            "found = []\n"
            "for batch in log.follow(0, timeout_ms=20_000):\n"
            "    found += batch.column('value').to_pylist()\n"
            "    if len(found) == 200: break\n"
            "found"
        )
        append(log, range(1, 200))
        assert other.answer() == texts(range(200))


IDLE = """
import os
list(log.follow(timeout_ms=100))
before = os.times()
list(log.follow(timeout_ms=1000))
after = os.times()
[after.user + after.system - before.user - before.system, after.elapsed - before.elapsed]
"""


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_an_idle_follower_takes_almost_no_time_of_the_processor(path: Path, log: pylog.Log, mode: str) -> None:
    with Neighbour() as other:
        other.run("store = pylog.open(path, mode=mode); log = store.log('t')", path=str(path), mode=mode)
        used, elapsed = other.run(IDLE)
        assert elapsed >= 1.0
        assert used < 0.1 * elapsed
        other.run("store.close()")


def test_who_waits_looks_more_seldom_the_longer_nothing_has_come_and_never_later_than_its_time() -> None:
    clock = ManualClock()
    naps = Naps(clock)
    taken: list[float] = []

    def sleeping(seconds: float) -> None:
        taken.append(seconds)
        sleep(seconds)

    sleep, clock.sleep = clock.sleep, sleeping  # type: ignore[method-assign]
    began = clock.monotonic()
    while naps.take(began + 300):
        pass
    assert clock.monotonic() == pytest.approx(began + 300)
    assert taken[0] == 0.0001
    silence = 0.0
    for nap in taken[:-1]:  # the last one ends with the time
        assert nap <= max(0.001, silence / 10_000)
        silence += nap
    assert max(taken) == taken[-2] == 0.01
    assert len(taken) < 60_000  # 300,000 looks are made if it is one each millisecond
    naps.end()
    assert naps.take(clock.monotonic() + 1)
    assert taken[-1] == 0.0001


# ---- wait_for ----------------------------------------------------------------------------------------------------------------


def test_waiting_for_a_record_that_is_there_takes_no_time(reader: pylog.Log, clock: ManualClock) -> None:
    began = clock.monotonic()
    assert reader.wait_for(0) == 1
    assert clock.monotonic() == began


def test_waiting_ends_with_the_time(reader: pylog.Log, clock: ManualClock) -> None:
    began = clock.monotonic()
    assert reader.wait_for(1, timeout_ms=250) == 1
    assert 0.25 <= clock.monotonic() - began < 0.26


def test_waiting_ends_with_the_record(log: pylog.Log, either: pylog.Log) -> None:
    ends: list[int] = []
    thread = threading.Thread(target=lambda: ends.append(either.wait_for(3, timeout_ms=SOON)))
    thread.start()
    append(log, range(1, 4))
    thread.join(PATIENCE)
    assert ends == [4]


def test_waiting_for_a_durable_record_ends_with_the_flush(log: pylog.Log, reader: pylog.Log) -> None:
    log.append(b"1", durability=Durability.OS)
    assert reader.wait_for(1, timeout_ms=1, durable=True) == 1
    assert reader.wait_for(1, timeout_ms=1) == 2
    log.flush()
    assert reader.wait_for(1, timeout_ms=1, durable=True) == 2


def test_no_time_at_all_is_one_look(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, [1])
    assert reader.wait_for(5, timeout_ms=0) == 2
    assert reader.wait_for(1, timeout_ms=0) == 2


def test_the_environment_of_these_tests_is_one_of_a_local_file_system(path: Path, log: pylog.Log) -> None:
    """Inodes tell files apart, which is what a header's word stands on."""
    assert slot_of(path).active_inode == os.stat(last_segment(path / "t-0")).st_ino


@pytest.mark.pair("scan and follow", "truncation")
def test_a_truncation_while_a_follower_begins_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end that one look gives may be out of range at the next one."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append_many([b"a", b"b"])
        monkeypatch.setattr(pylog.Log, "end_offset", property(lambda _: 3))  # as before the truncation
        assert [frame.num_rows for frame in log.follow(0, timeout_ms=0)] == [2]


@pytest.mark.pair("scan and follow", "delete_records")
@pytest.mark.pair("scan and follow", "truncation")
def test_following_from_outside_of_the_log_is_an_error_at_once_as_for_scan(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        for _ in range(10):
            log.append(b"x", durability=Durability.OS)
        log.delete_records(3)
        log.truncate(8)
        with pylog.open(tmp_path, "r") as reading:
            for each in (log, reading.log("t")):
                for offset in (2, 9, 100):
                    with pytest.raises(pylog.OffsetOutOfRangeError):
                        each.scan(offset)
                    with pytest.raises(pylog.OffsetOutOfRangeError):
                        each.follow(offset, timeout_ms=1)
                assert sum(batch.num_rows for batch in each.follow(3, timeout_ms=1)) == 5
                assert list(each.follow(8, timeout_ms=1)) == []
