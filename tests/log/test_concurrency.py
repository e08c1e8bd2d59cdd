"""Readers need no lock: they see a prefix of the log at any moment, while it grows and rolls."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pylog

RECORDS = 3_000


@pytest.mark.slow
def test_readers_in_other_threads_see_a_prefix_while_the_log_grows(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=5_000, index_interval_bytes=200)
        log = store.log("t")
        done = threading.Event()

        def write() -> None:
            for number in range(0, RECORDS, 3):
                log.append_many([(b"%d" % (number + i), b"value %d" % (number + i)) for i in range(3)])
            done.set()

        def read() -> int:
            rounds = 0
            while not done.is_set() or rounds == 0:
                end = log.end_offset
                values = [record.value for record in log.records(max(0, end - 200), end)]
                assert values == [b"value %d" % number for number in range(max(0, end - 200), end)]
                if end:
                    assert log.read(end - 1).value == b"value %d" % (end - 1)
                    assert log.read(end // 2).offset == end // 2
                rounds += 1
            return rounds

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            pool.submit(write).result()
            assert all(reader.result() > 0 for reader in readers)
        assert [record.value for record in log.records()] == [b"value %d" % number for number in range(RECORDS)]
        assert len(log.segments) > 10


def test_a_scan_that_began_before_a_roll_ends_where_it_should(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=2_000)
        log = store.log("t")
        log.append_many([b"%d" % number for number in range(50)])
        records = log.records()
        first = next(records)
        for number in range(50, 400):
            log.append(b"%d" % number)
        assert [first.value, *(record.value for record in records)] == [b"%d" % number for number in range(50)]


def test_appends_from_many_threads_get_offsets_of_their_own(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=3_000)
        log = store.log("t")

        def append(writer: int) -> list[tuple[int, bytes]]:
            return [(log.append(value), value) for value in (b"%d-%d" % (writer, number) for number in range(100))]

        with ThreadPoolExecutor(4) as pool:
            told = dict(pair for pairs in pool.map(append, range(4)) for pair in pairs)
        assert told == {record.offset: record.value for record in log.records()}
        assert sorted(told) == list(range(400))


@pytest.mark.slow
@pytest.mark.parametrize("exclusive", [False, True])
def test_readers_beside_truncations_are_told_so_and_never_of_damage(tmp_path: Path, exclusive: bool) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS, exclusive=exclusive) as store:
        store.create_topic("t", segment_bytes=2_000, index_interval_bytes=100)
        log = store.log("t")
        log.append_many([b"%d" % number * 20 for number in range(50)])
        done = threading.Event()

        def write() -> None:
            for number in range(150):
                log.truncate(20 + number % 25)
                log.append_many([b"%d" % number * (1 + number % 30)] * (10 + number % 40))
            done.set()

        def read() -> int:
            told = 0
            while not done.is_set():
                try:
                    list(log.records(15))
                    log.read(log.end_offset - 1)
                except pylog.OffsetOutOfRangeError:
                    told += 1
            return told

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            pool.submit(write).result()
            assert all(reader.result() >= 0 for reader in readers)
        assert store.check().ok
