"""aiokafka's names on `AsyncConsumer` and `AsyncProducer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import patch

import pytest

import pylog
from pylog import ConsumerRebalanceListener, Durability, OffsetsConfig, TopicPartition
from pylog.aio import AsyncConsumer, AsyncProducer
from pylog.consumer.consumer import polling_of
from pylog.consumer.polling import core_of
from pylog.testing import MemoryFileSystem

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    """A topic of two partitions with ten records in each."""
    few = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS, offsets=few) as opened:
        opened.create_topic("t", partition_count=2)
        for number in range(2):
            opened.log("t", number).append_many([b"%d" % each for each in range(10)])
        yield opened


def asynchronous(store: pylog.Store, **options: object) -> AsyncConsumer:
    return AsyncConsumer(
        store.consumer(**{"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False} | options)
    )


def test_a_program_in_aiokafkas_style_starts_reads_commits_and_stops(store: pylog.Store) -> None:
    async def program() -> None:
        producer = AsyncProducer(store.producer())
        await producer.start()
        assert await producer.partitions_for("t") == {0, 1}
        assert (await producer.send_and_wait("t", b"10", partition=0)).offset == 10
        await producer.stop()
        consumer = asynchronous(store)
        consumer.subscribe(["t"])
        await consumer.start()
        await consumer.start()
        first = await consumer.getone()
        assert consumer.assignment() == {T0, T1}
        assert consumer.subscription() == {"t"}
        assert await consumer.position(TopicPartition(first.topic, first.partition)) == 1
        rest = await consumer.getmany(timeout_ms=1000)
        while sum(map(len, rest.values())) < 20:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                rest.setdefault(partition, []).extend(records)
        await consumer.commit()
        assert [await consumer.committed(each) for each in (T0, T1)] == [11, 10]
        await consumer.stop()
        await consumer.stop()
        with pytest.raises(pylog.ClosedError):
            await consumer.getone()
        with pytest.raises(pylog.ClosedError):
            consumer.subscribe(["t"])

    asyncio.run(program())


def test_only_the_named_partitions_are_read_and_the_others_are_not_paused(store: pylog.Store) -> None:
    async def program() -> None:
        async with asynchronous(store, max_poll_records=4) as consumer:
            consumer.assign([T0, T1])
            for offset in range(3):
                record = await consumer.getone(T1)
                assert (record.partition, record.offset) == (1, offset)
                assert consumer.paused() == set()
            found = await consumer.getmany(T0, timeout_ms=1000, max_records=2)
            assert [(each, len(records)) for each, records in found.items()] == [(T0, 2)]
            assert [await consumer.position(each) for each in (T0, T1)] == [2, 3]
            await consumer.seek_to_end(T1)
            with pytest.raises(TimeoutError):  # there is nothing more, and nothing is lost
                await asyncio.wait_for(consumer.getone(T1), 0.05)
            assert (await consumer.getone()).partition == 0

    asyncio.run(program())


def test_plain_changes_are_in_force_before_the_next_record(store: pylog.Store) -> None:
    async def program() -> None:
        async with asynchronous(store, consumer_timeout_ms=0) as consumer:
            consumer.assign([T0, T1])
            consumer.seek(T0, 7)
            consumer.pause(T1)
            async for record in consumer:
                assert (record.partition, record.offset) == (0, 7)
                break
            assert consumer.paused() == {T1}
            consumer.seek(T0, 9)  # records after offset 7 are in hand
            consumer.resume(T1)
            async for record in consumer:
                assert (record.partition, record.offset) in [(0, 9), (1, 0)]
                break
            consumer.assign([T1])
            assert {each async for each in _partitions(consumer)} == {1}
            consumer.unsubscribe()
            consumer.subscribe(pattern="t")
            await consumer.getmany(timeout_ms=1000)
            assert consumer.assignment() == {T0, T1}

    asyncio.run(program())


async def _partitions(consumer: AsyncConsumer) -> AsyncIterator[int]:
    async for record in consumer:
        yield record.partition


def test_a_change_that_cannot_be_made_is_an_error_at_once_or_of_the_next_call(store: pylog.Store) -> None:
    async def program() -> None:
        async with asynchronous(store) as consumer:
            with pytest.raises(pylog.IllegalStateError):
                consumer.seek(T0, 1)
            consumer.assign([T0])
            await consumer.start()
            with pytest.raises(pylog.IllegalStateError):
                consumer.pause(T1)
            with pytest.raises(pylog.OffsetOutOfRangeError):
                consumer.seek(T0, -1)
            consumer.subscribe(["t"])
            with pytest.raises(pylog.IllegalStateError):
                await consumer.getmany()
            assert (await consumer.getone()).partition == 0  # the refused change has no effect

    asyncio.run(program())


def test_seeks_that_wait_are_done_when_they_return(store: pylog.Store) -> None:
    async def program() -> None:
        async with asynchronous(store) as consumer:
            consumer.assign([T0, T1])
            await consumer.commit({T0: 4})
            assert await consumer.seek_to_end() is True
            assert [await consumer.position(each) for each in (T0, T1)] == [10, 10]
            assert await consumer.seek_to_committed() == {T0: 4, T1: None}
            assert [await consumer.position(each) for each in (T0, T1)] == [4, 10]
            assert await consumer.seek_to_beginning(T1) is True
            assert await consumer.position(T1) == 0
            assert await consumer.beginning_offsets([T0]) == {T0: 0}
            assert await consumer.end_offsets([T0, T1]) == {T0: 10, T1: 10}
            found = await consumer.offsets_for_times({T0: 0})
            assert found[T0] is not None
            assert await consumer.topics() == {"t"}

    asyncio.run(program())


def test_a_listeners_coroutine_may_await_these_calls(store: pylog.Store) -> None:
    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:  # type: ignore[override]
            assert await consumer.seek_to_end(T0)
            consumer.seek(T1, 8)

    async def program() -> None:
        consumer.subscribe(["t"], listener=Listener())
        records = [await consumer.getone(), await consumer.getone()]
        assert [(record.partition, record.offset) for record in records] == [(1, 8), (1, 9)]
        await consumer.stop()

    consumer = asynchronous(store)
    asyncio.run(program())


def test_the_highwater_is_the_log_end_of_the_last_read_and_none_before(store: pylog.Store) -> None:
    async def program() -> None:
        async with asynchronous(store) as consumer:
            consumer.assign([T0])
            assert consumer.highwater(T0) is None
            await consumer.getone()
            assert consumer.highwater(T0) == 10
            with pytest.raises(pylog.IllegalStateError):
                consumer.highwater(T1)

    asyncio.run(program())


CALLS_WITHOUT_WAITING: dict[str, Callable[[AsyncConsumer], object]] = {
    "seek": lambda consumer: consumer.seek(T0, 1),
    "pause": lambda consumer: consumer.pause(T0),
    "resume": lambda consumer: consumer.resume(T0),
    "highwater": lambda consumer: consumer.highwater(T0),
    "last_stable_offset": lambda consumer: consumer.last_stable_offset(T0),
    "last_poll_timestamp": lambda consumer: consumer.last_poll_timestamp(T0),
    "subscribe": lambda consumer: consumer.subscribe(["t"]),
    "assign": lambda consumer: consumer.assign([T0]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.parametrize("ended", ["stop", "the store, by another thread", "the store, by the loop's thread"])
@pytest.mark.pair("close", "groups")
def test_a_call_that_waits_for_nothing_says_that_its_consumer_is_closed_and_not_that_a_partition_is_missing(
    store: pylog.Store, ended: str
) -> None:
    async def program() -> dict[str, str]:
        consumer = asynchronous(store)
        consumer.subscribe(["t"])
        await consumer.getone()
        if ended == "stop":
            await consumer.stop()
        elif ended == "the store, by another thread":
            await asyncio.to_thread(store.close)
        else:
            store.close()
        return {name: raised_by(partial(call, consumer)) for name, call in CALLS_WITHOUT_WAITING.items()}

    assert asyncio.run(program()) == dict.fromkeys(CALLS_WITHOUT_WAITING, "ClosedError")


@pytest.mark.pair("close", "groups")
def test_a_call_in_the_middle_of_a_close_says_that_its_consumer_is_closed(store: pylog.Store) -> None:
    found: dict[str, str] = {}

    async def program() -> None:
        below = store.consumer("t", group_id="g", auto_offset_reset="earliest")
        consumer = AsyncConsumer(below)
        await consumer.getone()
        fetcher = core_of(polling_of(below)).fetcher
        close = fetcher.close

        def close_late() -> None:  # the consumer has left its group, and has no partitions
            with ThreadPoolExecutor(1) as other:
                for name, call in CALLS_WITHOUT_WAITING.items():
                    found[name] = other.submit(raised_by, partial(call, consumer)).result()
            close()

        with patch.object(fetcher, "close", close_late):
            await asyncio.to_thread(below.close)

    asyncio.run(program())
    assert found == dict.fromkeys(CALLS_WITHOUT_WAITING, "ClosedError")


def raised_by(call: Callable[[], object]) -> str:
    """The name of the error that a call raises."""
    try:
        return f"returned {call()!r}"
    except pylog.PylogError as error:
        return type(error).__name__
