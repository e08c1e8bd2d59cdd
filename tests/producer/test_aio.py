"""Coroutines produce through the same producer, and never keep their event loop waiting."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

import pylog
from neighbours import HookedFileSystem
from pylog.aio import AsyncProducer
from pylog.errors import ClosedError, InvalidRecordError, StorageFailedError
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem


def test_a_record_that_was_awaited_is_in_the_log(store: Store) -> None:
    async def produce() -> list[int]:
        async with AsyncProducer(store.producer()) as producer:
            first = await producer.send("t", b"1", key=b"k")
            rest = await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(2, 500)))
            (table,) = await producer.send_arrow("t", pa.table({"value": [b"500"]}))
            await producer.flush()
            return [first.offset, *(each.offset for each in rest), table.offsets.start]

    assert asyncio.run(produce()) == list(range(1, 501))
    assert [record.value for record in store.log("t").records(start=1)] == [b"%d" % number for number in range(1, 501)]


def test_errors_come_out_of_await(store: Store) -> None:
    fs = FaultyFileSystem(MemoryFileSystem())

    async def produce(faulty: Store) -> None:
        async with AsyncProducer(faulty.producer()) as producer:
            with pytest.raises(InvalidRecordError):
                await producer.send("t", "text")
            fs.fail("write ENOSPC", forever=True)
            for failed in await asyncio.gather(*(producer.send("t", b"v") for _ in range(3)), return_exceptions=True):
                assert isinstance(failed, StorageFailedError)
            fs.heal()
            assert (await producer.send("t", b"v")).offset == 0
        with pytest.raises(ClosedError):
            await producer.send("t", b"v")

    with pylog.open("/s", fs=fs) as faulty:
        faulty.create_topic("t")
        asyncio.run(produce(faulty))


def test_the_loop_goes_on_while_the_buffer_is_full_and_who_is_cancelled_does_not_stop_the_record(
    store: Store, fs: HookedFileSystem
) -> None:
    reached, opened = threading.Event(), threading.Event()
    fs.before("write", ".log", lambda: (reached.set(), opened.wait(60)))

    async def produce() -> None:
        async with AsyncProducer(store.producer(buffer_memory=4096, max_request_size=1000)) as producer:
            tasks = [asyncio.create_task(producer.send("t", b"%d" % number)) for number in range(20)]
            await asyncio.to_thread(reached.wait, 60)
            for _ in range(100):
                await asyncio.sleep(0)  # others run
            tasks[0].cancel()
            opened.set()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[0], asyncio.CancelledError)
        assert not any(isinstance(each, BaseException) for each in done[1:])

    asyncio.run(produce())
    assert {record.value for record in store.log("t").records(start=1)} == {b"%d" % number for number in range(20)}
