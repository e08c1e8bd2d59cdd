"""Looking, deciding and appending while nobody else changes the log; appends that are one batch."""

from __future__ import annotations

import threading
import tracemalloc
from unittest.mock import patch

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


@pytest.mark.parametrize("wait", ["result", "flush", "close", "close the store", "room"])
def test_a_producer_is_not_waited_for_inside(wait: str) -> None:
    """Its thread would wait for the log, and this thread for that one, without end."""
    store = pylog.open("/s", fs=MemoryFileSystem())
    store.create_topic("t")
    log, idle = store.log("t"), store.producer()
    producer = store.producer(linger_ms=0, buffer_memory=20_000, max_block_ms=60_000)
    with log.exclusively():
        idle.flush()
        idle.close()
        sent = producer.send("t", b"sent")
        calls = {"result": sent.result, "flush": producer.flush, "close": producer.close, "close the store": store.close}
        with pytest.raises(pylog.IllegalStateError, match=r"inside Log\.exclusively .* append with the Log, or call"):
            calls.get(wait, lambda: [producer.send("t", b"x" * 2000) for _ in range(20)])()
    if wait != "close the store":
        assert sent.result().offset == 0
    producer.close()
    store.close()


def test_a_transaction_commits_inside_however_slow_the_disk_is() -> None:
    """The partitions' syncs are begun together, in threads, if one takes long. They would wait for this one."""
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t", 2)
        done = []

        def commit() -> None:
            with store.log("t", 1).exclusively(), store.transaction("id") as transaction:
                for partition in (0, 1):
                    transaction.append("t", b"v", partition=partition)
            done.append(True)

        with patch("pylog.transactions.crew._SLOW_S", -1.0):
            thread = threading.Thread(target=commit, daemon=True)
            thread.start()
            thread.join(60)
        assert done
        assert [store.log("t", each).read(0).value for each in (0, 1)] == [b"v", b"v"]


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
