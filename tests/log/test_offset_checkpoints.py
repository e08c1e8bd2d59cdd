"""Offset checkpoints: no line of another thread, process or program is lost, whatever the file looks like."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog.directory.checkpoints import CLEANER, LOG_START, RECOVERY_POINT, Checkpoint, parse_offsets
from pylog.fs import OsFileSystem
from pylog.record.types import TopicPartition

ROUNDS = 60


@pytest.fixture
def hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()[2:]


def make(root: Path, partitions: int = 4) -> None:
    with pylog.open(root) as store:
        store.create_topic("t", partition_count=partitions)
        for number in range(partitions):
            store.log("t", number).append_many([b"x"] * (ROUNDS + 1))


def raise_starts(root: Path, partition: int, exclusive: bool = False) -> None:
    with pylog.open(root, exclusive=exclusive) as store:
        for before in range(1, ROUNDS):
            store.log("t", partition).delete_records(before)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_a_checkpoint_that_is_read_without_a_lock_loses_no_line_of_another_thread(tmp_path: Path) -> None:
    root, ended, lost = threading.Lock(), threading.Event(), []
    checkpoint = Checkpoint(OsFileSystem(), str(tmp_path), LOG_START)
    checkpoint.update({TopicPartition("t", number): 0 for number in range(300)})

    def read() -> None:
        while not ended.is_set():
            checkpoint.offsets().get(TopicPartition("t", 1), 0)

    def write(partition: int) -> None:
        for number in range(1, 100):
            with root:
                checkpoint.update({TopicPartition("t", partition): number})
            there = parse_offsets((tmp_path / LOG_START).read_bytes(), "")[TopicPartition("t", partition)]
            if there != number:
                lost.append((partition, number, there))

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(partition,)) for partition in (0, 1)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    for thread in readers:
        thread.join()
    assert not lost


def test_an_update_starts_from_the_lines_that_are_there_now(tmp_path: Path) -> None:
    one, two = (Checkpoint(OsFileSystem(), str(tmp_path), LOG_START) for _ in range(2))
    for number in range(3):
        one.update({TopicPartition("t", 1): number})
        two.update({TopicPartition("t", 2): number})
        (tmp_path / LOG_START).write_text(f"0\n3\nother 0 {number}\nt 1 {number}\nt 2 {number}\n")
    one.update({TopicPartition("t", 1): 7})
    assert lines(tmp_path / LOG_START) == ["other 0 2", "t 1 7", "t 2 2"]


@pytest.mark.slow
@pytest.mark.pair("delete_records", "second process")
def test_processes_that_raise_starts_at_once_lose_no_line_of_each_other(tmp_path: Path) -> None:
    make(tmp_path)
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=raise_starts, args=(tmp_path, number)) for number in range(3)]
    for process in running:
        process.start()
    raise_starts(tmp_path, 3)
    for process in running:
        process.join()
        assert process.exitcode == 0
    assert parse_offsets((tmp_path / LOG_START).read_bytes(), "") == {TopicPartition("t", n): ROUNDS - 1 for n in range(4)}


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
@pytest.mark.pair("delete_records", "scan and follow")
@pytest.mark.parametrize("exclusive", [False, True])
def test_threads_that_raise_starts_beside_readers_lose_no_line_of_each_other(tmp_path: Path, exclusive: bool) -> None:
    make(tmp_path)
    ended = threading.Event()

    def read(store: pylog.Store) -> None:
        while not ended.is_set():
            store.check()

    with pylog.open(tmp_path, exclusive=exclusive) as store:

        def cut(number: int) -> None:
            for before in range(1, ROUNDS):
                store.log("t", number).delete_records(before)

        reader = threading.Thread(target=read, args=(store,))
        writers = [threading.Thread(target=cut, args=(number,)) for number in range(4)]
        for thread in (reader, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        ended.set()
        reader.join()
        assert parse_offsets((tmp_path / LOG_START).read_bytes(), "") == {TopicPartition("t", n): ROUNDS - 1 for n in range(4)}


@pytest.mark.pair("broker's directory", "close", "delete_records")
def test_lines_of_others_and_starts_below_the_first_segment_stay(tmp_path: Path) -> None:
    make(tmp_path, 3)
    for name in (LOG_START, RECOVERY_POINT, CLEANER):
        (tmp_path / name).write_text("0\n4\nother 3   17\nt 1 0\ngone\t0 5\nt 2 0\n")
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')
    with pylog.open(tmp_path) as store:
        store.log("t", 0).append(b"y")
        store.log("t", 1).delete_records(9)
    assert lines(tmp_path / LOG_START) == ["other 3   17", "t 1 9", "gone\t0 5", "t 2 0"]
    assert lines(tmp_path / RECOVERY_POINT) == ["other 3   17", "t 1 61", "gone\t0 5", "t 2 61", "t 0 62"]
    assert lines(tmp_path / CLEANER) == ["other 3   17", "t 1 0", "gone\t0 5", "t 2 0"]


LATER = b"1\n2\nt 0 3 extra\nother 3 17 more\n"


@pytest.mark.damaged("it is of a later version")
@pytest.mark.pair("broker's directory", "truncation")
def test_a_checkpoint_of_a_later_version_is_never_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path, 1)
    for name in (LOG_START, RECOVERY_POINT, CLEANER):
        (tmp_path / name).write_bytes(LATER)
    with caplog.at_level(logging.WARNING, "pylog"), pylog.open(tmp_path) as store:
        log = store.log("t")
        log.append(b"y")
        with pytest.raises(pylog.UnsupportedFormatError, match="version 1"):
            log.delete_records(9)
        assert log.start_offset == 0
        log.append(b"z")
        log.truncate(ROUNDS)
    for name in (LOG_START, RECOVERY_POINT, CLEANER):
        assert (tmp_path / name).read_bytes() == LATER
    assert "Left a checkpoint as it is" in caplog.text
    assert not (tmp_path / ".kafka_cleanshutdown").exists()  # what it would vouch for could not be written
    with pylog.open(tmp_path) as store:
        assert (store.log("t").end_offset, store.log("t").append(b"again")) == (ROUNDS, ROUNDS)


@pytest.mark.damaged("it was damaged on purpose")
@pytest.mark.parametrize("damaged", [b"0\n9\nother 3 17\nt 1 two\n", b"garbage\n\xff\nother 3 17\n", b"0\n1\nother 3 17\nt 1\n"])
def test_a_damaged_checkpoint_keeps_its_good_lines_and_is_kept_aside(tmp_path: Path, damaged: bytes) -> None:
    make(tmp_path, 2)
    (tmp_path / LOG_START).write_bytes(damaged)
    with pylog.open(tmp_path) as store:
        assert [finding.kind for finding in store.recovery_report] == ["rebuilt"]
        store.log("t").delete_records(9)
    assert lines(tmp_path / LOG_START) == ["other 3 17", "t 0 9"]
    assert (tmp_path / f"{LOG_START}.damaged.0").read_bytes() == damaged
    with pylog.open(tmp_path) as store:
        assert store.log("t").start_offset == 9
        assert store.check().ok


@pytest.mark.damaged("it is too large on purpose")
def test_a_checkpoint_of_any_size_keeps_no_store_from_opening(tmp_path: Path) -> None:
    make(tmp_path, 1)
    for name in (LOG_START, RECOVERY_POINT, CLEANER):
        with (tmp_path / name).open("wb") as file:
            file.truncate((1 << 26) + 1)
    with pylog.open(tmp_path) as store:
        assert store.log("t").append(b"y") == ROUNDS + 1
        with pytest.raises(pylog.UnsupportedFormatError):
            store.log("t").delete_records(3)
    assert (tmp_path / LOG_START).stat().st_size == (1 << 26) + 1


@pytest.mark.damaged("it was damaged on purpose")
def test_damaged_leader_epochs_are_kept_aside(tmp_path: Path) -> None:
    make(tmp_path, 1)
    file = tmp_path / "t-0" / "leader-epoch-checkpoint"
    file.write_bytes(b"0\n2\n0 0\n5 1x\n")
    with pylog.open(tmp_path) as store:
        store.log("t").append(b"y")
        store.log("t").delete_records(4)
    assert file.with_name(file.name + ".damaged.0").read_bytes() == b"0\n2\n0 0\n5 1x\n"


def test_an_open_log_follows_a_start_that_a_broker_has_raised_within_a_segment(tmp_path: Path) -> None:
    make(tmp_path, partitions=1)
    (tmp_path / "t-0" / "durable-point").unlink()  # brokers have none
    (tmp_path / LOG_START).write_text("0\n1\nt 0 0\n")
    with pylog.open(tmp_path, mode="r") as store:
        log = store.log("t")
        assert (log.start_offset, log.read(5).offset, len(list(log.records()))) == (0, 5, ROUNDS + 1)
        going_on = log.follow(3, timeout_ms=0)
        (tmp_path / LOG_START).write_text("0\n1\nt 0 7\n")
        assert (log.start_offset, log.end_offset, next(iter(log.records())).offset) == (7, ROUNDS + 1, 7)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            log.read(6)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(going_on)
        with store.consumer("t", auto_offset_reset="earliest") as consumer:
            assert [record.offset for records in consumer.poll(max_records=1).values() for record in records] == [7]
