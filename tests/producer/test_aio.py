"""Coroutines produce through the same producer, and never keep their event loop waiting."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import pylog
from pylog.aio import AsyncProducer
from pylog.errors import ClosedError, InvalidRecordError, StorageFailedError
from pylog.producer.future import RecordMetadata
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem
from support.faults.neighbours import HookedFileSystem


def test_a_record_that_was_awaited_is_in_the_log(store: Store) -> None:
    async def produce() -> list[int]:
        async with AsyncProducer(store.producer()) as producer:
            first = await producer.send_and_wait("t", b"1", key=b"k")
            rest = await asyncio.gather(*(producer.send_and_wait("t", b"%d" % number) for number in range(2, 500)))
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
                await producer.send_and_wait("t", "text")
            fs.fail("write ENOSPC", forever=True)
            for failed in await asyncio.gather(*(producer.send_and_wait("t", b"v") for _ in range(3)), return_exceptions=True):
                assert isinstance(failed, StorageFailedError)
            fs.heal()
            assert (await producer.send_and_wait("t", b"v")).offset == 0
        with pytest.raises(ClosedError):
            await producer.send_and_wait("t", b"v")

    with pylog.open("/s", fs=fs) as faulty:
        faulty.create_topic("t")
        asyncio.run(produce(faulty))


def test_records_are_in_the_log_in_the_order_in_which_they_were_sent_also_when_the_buffer_fills(store: Store) -> None:
    async def produce() -> None:
        async with AsyncProducer(store.producer(buffer_memory=1 << 16)) as producer:
            await asyncio.gather(*(producer.send_and_wait("t", b"%d" % number) for number in range(2000)))

    asyncio.run(produce())
    assert [record.value for record in store.log("t").records(start=1)] == [b"%d" % number for number in range(2000)]


@pytest.fixture
def stopped(fs: HookedFileSystem) -> Iterator[threading.Event]:
    """The first append waits for this event."""
    go_on = threading.Event()
    fs.before("write", ".log", lambda: go_on.wait(60))
    yield go_on
    go_on.set()


async def sent_with_a_full_buffer(producer: AsyncProducer) -> list[asyncio.Task[RecordMetadata]]:
    tasks = [asyncio.create_task(producer.send_and_wait("t", b"%d" % number)) for number in range(40)]
    await asyncio.sleep(0)
    return tasks


def small(store: Store) -> AsyncProducer:
    return AsyncProducer(store.producer(buffer_memory=4096, max_request_size=1000))


def test_a_record_whose_send_was_cancelled_while_it_waited_for_room_is_sent_all_the_same(
    store: Store, stopped: threading.Event
) -> None:
    async def produce() -> None:
        async with small(store) as producer:
            tasks = await sent_with_a_full_buffer(producer)
            for task in tasks[20:]:
                task.cancel()
            stopped.set()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(each, asyncio.CancelledError) for each in done] == [number >= 20 for number in range(40)]

    asyncio.run(produce())
    assert [record.value for record in store.log("t").records(start=1)] == [b"%d" % number for number in range(40)]


@pytest.mark.parametrize("name", ["flush", "send_arrow", "close"])
def test_a_send_that_waits_for_buffer_space_comes_before_later_ones(store: Store, stopped: threading.Event, name: str) -> None:
    async def produce() -> None:
        async with small(store) as producer:
            tasks = await sent_with_a_full_buffer(producer)
            arguments = ("t", pa.table({"value": [b"40"]})) if name == "send_arrow" else ()
            after = asyncio.create_task(getattr(producer, name)(*arguments))
            await asyncio.sleep(0)
            stopped.set()
            await after
            assert store.log("t").end_offset == 1 + 40 + len(arguments) // 2
            await asyncio.gather(*tasks)

    asyncio.run(produce())
    assert [record.value for record in store.log("t").records(start=1, end=41)] == [b"%d" % number for number in range(40)]


def test_an_error_while_others_wait_for_room_is_raised_by_its_own_send(store: Store, stopped: threading.Event) -> None:
    async def produce() -> None:
        async with small(store) as producer:
            tasks = await sent_with_a_full_buffer(producer)
            wrong = asyncio.create_task(producer.send_and_wait("t", "text"))
            after = asyncio.create_task(producer.send_and_wait("t", b"40"))
            await asyncio.sleep(0)
            stopped.set()
            with pytest.raises(InvalidRecordError):
                await wrong
            assert [each.offset for each in await asyncio.gather(*tasks, after)] == list(range(1, 42))

    asyncio.run(produce())


def test_closing_that_is_cancelled_goes_on_and_what_comes_later_is_refused(store: Store, stopped: threading.Event) -> None:
    async def produce() -> None:
        producer = small(store)
        tasks = await sent_with_a_full_buffer(producer)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for call in (producer.send_and_wait("t", b"late"), producer.send_and_wait("t", b"later")):
            with pytest.raises(ClosedError):
                await call
        stopped.set()
        await producer.close()
        assert len(await asyncio.gather(*tasks)) == 40

    asyncio.run(produce())
    assert store.log("t").end_offset == 41


def test_a_second_event_loop_gets_its_answers_after_the_first_ended_with_a_send_open(
    store: Store, stopped: threading.Event
) -> None:
    producer = AsyncProducer(store.producer())

    left = []

    async def begin() -> None:
        left.append(asyncio.create_task(producer.send_and_wait("t", b"1")))
        await asyncio.sleep(0)

    asyncio.run(begin())
    assert left[0].cancelled()
    stopped.set()
    assert asyncio.run(asyncio.wait_for(producer.send_and_wait("t", b"2"), 60)).offset == 2
    asyncio.run(producer.close())


def test_a_forked_child_is_told_that_the_producer_is_not_for_it(store: Store) -> None:
    producer = small(store)

    async def produce() -> None:
        await asyncio.gather(*(producer.send_and_wait("t", b"v") for _ in range(40)))

    async def in_child() -> bool:
        try:
            await producer.send_and_wait("t", b"child")
        except ClosedError:
            await producer.close()
            return True
        return False

    asyncio.run(produce())
    child = os.fork()
    if child == 0:
        os._exit(7 if asyncio.run(in_child()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    asyncio.run(producer.close())
    assert store.log("t").end_offset == 41


def test_the_event_loop_goes_on_while_the_buffer_is_full_and_a_cancelled_task_does_not_stop_its_record(
    store: Store, fs: HookedFileSystem
) -> None:
    reached, opened = threading.Event(), threading.Event()
    fs.before("write", ".log", lambda: (reached.set(), opened.wait(60)))

    async def produce() -> None:
        async with AsyncProducer(store.producer(buffer_memory=4096, max_request_size=1000)) as producer:
            tasks = [asyncio.create_task(producer.send_and_wait("t", b"%d" % number)) for number in range(20)]
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


# ---- send gives a future -----------------------------------------------------------------------------------------------------


def test_send_gives_a_future_of_the_metadata_once_the_record_is_buffered(store: Store) -> None:
    async def produce() -> list[int]:
        async with AsyncProducer(store.producer(linger_ms=60_000)) as producer:
            sent = [await producer.send("t", b"%d" % number, key=b"k") for number in range(100)]
            assert not any(future.done() for future in sent)
            await producer.flush()
            assert all(future.done() for future in sent)
            return [(await future).offset for future in sent]

    assert asyncio.run(produce()) == list(range(1, 101))


def test_records_whose_futures_no_caller_awaits_are_in_the_log_after_stop(store: Store) -> None:
    async def produce() -> None:
        producer = AsyncProducer(store.producer(buffer_memory=1 << 16))
        await producer.start()
        for number in range(3000):
            await producer.send("t", b"%d" % number, key=b"k")
        await producer.stop()

    asyncio.run(produce())
    assert sum(store.log("t", number).end_offset for number in store.topic("t").partition_ids) == 3001


def test_a_future_of_send_that_is_cancelled_stops_no_record_and_one_that_fails_has_the_error(store: Store) -> None:
    store.create_topic("gone")

    async def produce() -> None:
        async with AsyncProducer(store.producer(linger_ms=60_000)) as producer:
            cancelled = await producer.send("t", b"kept", key=b"k")
            cancelled.cancel()
            with pytest.raises(pylog.PylogError):
                await producer.send("t", "text")  # type: ignore[arg-type]
            refused = await producer.send("gone", b"v")
            store.delete_topic("gone")
            await producer.flush()
            with pytest.raises(pylog.UnknownTopicOrPartitionError):
                await refused

    asyncio.run(produce())
    assert [record.value for number in store.topic("t").partition_ids for record in store.log("t", number).records()][1:] == [
        b"kept"
    ]


def test_a_callback_of_send_is_awaited_by_flush_and_its_future_has_the_metadata(store: Store) -> None:
    async def produce() -> None:
        told = []

        async def on_delivery(error: Exception | None, metadata: RecordMetadata | None) -> None:
            await asyncio.sleep(0)
            told.append(metadata)

        async with AsyncProducer(store.producer()) as producer:
            future = await producer.send("t", b"v", on_delivery=on_delivery)
            await producer.flush()
            assert told == [await future]

    asyncio.run(produce())
