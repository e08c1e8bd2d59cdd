"""Readers of a log whose header does not count: copies, directories that a broker writes, headers that a death left torn."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, TopicPartition
from pylog.clock import ManualClock
from pylog.directory.locks import KAFKA_LOCK
from pylog.fs import OsFileSystem
from pylog.log.checking.report import Partition
from pylog.log.durable_point import SLOT_SIZE, DurablePointFile
from pylog.log.reading.good_batches import OffsetRange, crc_before, good_batches
from pylog.log.reading.lookup import TimeSearch
from pylog.record.format import CRC
from pylog.segment.names import DURABLE_POINT
from pylog.store import Store
from support.engines import engine_of, segments_of
from support.faults.neighbours import Neighbour, last_segment, values
from support.log import reading
from support.log.durable_points import slot_of
from support.log.reading import add, append, broker_batch, texts

path = pytest.fixture(reading.path)
store = pytest.fixture(reading.store)
log = pytest.fixture(reading.log)
clock = pytest.fixture(reading.clock)
reader = pytest.fixture(reading.reader)


# ---- headers that do not count -------------------------------------------------------------------------------------------------


def write_header(path: Path, **fields: Any) -> None:
    """Writes the header's next slot, as a process does that dies right after it."""
    header = DurablePointFile(OsFileSystem(), str(path / "t-0"), write=True)
    header.refresh()
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
    """No header of pylog's tells that files were replaced; a deleted file is not damage."""
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


def test_a_reader_of_a_log_that_pylog_wrote_goes_on_after_the_records_that_a_broker_removes(
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
        for segment in segments_of(late):
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


def test_damage_beside_a_broker_that_appends_is_reported(tmp_path: Path, clock: ManualClock) -> None:
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


@pytest.mark.slow
def test_a_reader_beside_a_broker_sees_what_it_appends(path: Path, store: Store, log: pylog.Log, clock: ManualClock) -> None:
    """A process that has the directory open writes there, so the reader waits for no note of it."""
    store.close()
    with Neighbour() as broker, pylog.open(path, mode="r", clock=clock) as early:
        assert values(early.log("t")) == texts(range(1))
        broker.run(HOLD_AS_A_BROKER, path=str(path / KAFKA_LOCK))
        add(path / "t-0", broker_batch(1, b"1"))
        with pylog.open(path, mode="r", clock=clock) as late:
            assert values(early.log("t")) == values(late.log("t")) == texts(range(2))


@pytest.mark.damaged("a writer died in it")
def test_records_that_a_dead_writer_did_not_publish_are_not_taken_for_a_brokers(
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


def test_records_that_a_running_writer_has_not_published_are_not_taken_for_a_brokers(
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


def test_only_a_call_that_needs_the_log_end_waits_for_a_change_of_segments(path: Path, log: pylog.Log, reader: pylog.Log) -> None:
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

    engine_of(reader)._refresher.follower._clock = Finishing()
    assert values(reader) == texts(range(4))
    assert not finished
    assert engine_of(reader).snapshot(wait=True).epoch == epoch + 2
    assert finished


def test_a_reader_takes_what_it_finds_when_a_process_died_in_a_change_of_segments(
    path: Path, log: pylog.Log, reader: pylog.Log, clock: ManualClock
) -> None:
    append(log, range(1, 4))
    write_header(path, epoch=slot_of(path).epoch + 1)
    waited = clock.monotonic()
    assert values(reader) == texts(range(4))
    assert clock.monotonic() == waited
    engine_of(reader).snapshot(wait=True)
    assert 0 < clock.monotonic() - waited < 5
    waited = clock.monotonic()
    engine_of(reader).snapshot(wait=True)
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
            active = engine_of(reader).snapshot().active
        assert active is not None
        assert active.base_offset > 0
        assert not active.index_is_of_headers
        assert active.locate(reader.end_offset - 1) > active.size // 2


@pytest.mark.parametrize("size", [10, 20_000, 200_000])
def test_the_batch_before_an_offset_is_reported_by_headers_as_by_a_walk(path: Path, store: Store, size: int) -> None:
    store.create_topic("u", segment_bytes=1 << 20)
    for count in (1, 40, 2, 1, 30):
        store.log("u").append_many([bytes(size)] * count)
    state = engine_of(store.log("u")).snapshot()
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_no_reader_dies_when_another_process_cuts_what_it_has_open(path: Path, log: pylog.Log, mode: str) -> None:
    """Sealed segments are mapped by stores that write; a process that touched a truncated page would die of SIGBUS."""
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
