"""Looking, deciding and appending while nobody else changes the log; appends that are one batch."""

from __future__ import annotations

import threading
import tracemalloc

import pyarrow as pa
import pytest

import pylog
from pylog import Durability
from pylog.testing import MemoryFileSystem
from support.engines import writer_of


def test_records_appended_inside_come_before_those_of_waiting_threads() -> None:
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t")
        log = store.log("t")
        waiting = [threading.Thread(target=log.append, args=[b"waited"]) for _ in range(3)]
        with log.exclusively():
            for thread in waiting:
                thread.start()
            while not writer_of(log).commits.requests._waiting:  # one of them is on its way, and leads
                pass
            with log.exclusively():
                assert log.append(b"inside") == 0
            assert log.append_many([b"inside"] * 2) == range(1, 3)
            assert log.end_offset == 3
        for thread in waiting:
            thread.join()
        assert [record.value for record in log.records()] == [b"inside"] * 3 + [b"waited"] * 3


def test_another_process_waits_and_is_refused_when_it_takes_too_long() -> None:
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs) as store, pylog.open("/s", fs=fs.process(), lock_timeout_ms=5) as other:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"before")
        with log.exclusively(), pytest.raises(pylog.StoreLockedError):
            other.log("t").append(b"too early")
        assert other.log("t").append(b"after") == 1


def test_an_error_inside_lets_the_others_in() -> None:
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t", max_message_bytes=200)
        log = store.log("t")
        with pytest.raises(pylog.RecordTooLargeError), log.exclusively():
            log.append(bytes(1000))
        thread = threading.Thread(target=log.append, args=[b"x"])
        thread.start()
        thread.join()
        assert log.end_offset == 1


@pytest.mark.parametrize("count", [1, 16, 17, 4000])
def test_an_atomic_append_is_one_batch_however_many_records_it_has(count: int) -> None:
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, durability=Durability.OS) as store:
        store.create_topic("t")
        log = store.log("t")
        done = log.append_batch([bytes(100)] * count, atomic=True)
        assert done.offsets == range(count)
        file = fs.open(log.segments[0].path, write=True)
        file.write(memoryview(b"\x01"), file.size() - 20)
        file.close()
        with pytest.raises(pylog.CorruptionError) as caught:  # a flipped bit anywhere takes all of them
            list(log.records())
        assert (caught.value.offset, caught.value.next_offset) == (0, None)


@pytest.mark.parametrize("producer", [None, pylog.ProducerBatch(1, 0, 0)])
def test_a_table_too_large_for_one_batch_is_refused_before_its_rows_become_objects(producer: pylog.ProducerBatch | None) -> None:
    part = pa.record_batch({"value": pa.array([bytes(20)] * 50_000)})
    table = pa.Table.from_batches([part] * 4)
    with pylog.open("/data", fs=MemoryFileSystem()) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append_batch(table.slice(0, 10))
        tracemalloc.start()
        try:
            with pytest.raises(pylog.RecordTooLargeError, match="batch of up to"):
                log.append_batch(table, **({"atomic": True} if producer is None else {"producer": producer}))
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert taken < 20 * table.num_rows  # as objects they take some hundred bytes each
        assert log.end_offset == 10


def test_an_atomic_append_of_a_table_in_parts_is_taken_up_to_the_same_size_as_in_one_part() -> None:
    whole = pa.record_batch({"value": pa.array([bytes(100)] * 200)})
    parts = pa.Table.from_batches([whole.slice(at, 10) for at in range(0, 200, 10)])

    def fits(table: pa.Table | pa.RecordBatch, size: int) -> bool:
        with pylog.open("/data", fs=MemoryFileSystem()) as store:
            store.create_topic("t", max_message_bytes=size)
            try:
                store.log("t").append_batch(table, atomic=True)
            except pylog.RecordTooLargeError:
                return False
            return True

    least = next(size for size in range(20_000, 40_000, 50) if fits(whole, size))
    assert fits(parts, least)
    assert not fits(parts, least - 50)


def test_an_atomic_append_that_does_not_fit_is_refused() -> None:
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t", max_message_bytes=1000)
        with pytest.raises(pylog.RecordTooLargeError, match="an atomic batch"):
            store.log("t").append_batch([bytes(100)] * 20, atomic=True)
        assert store.log("t").append_many([bytes(100)] * 20) == range(20)
