"""A consumer for coroutines: the same records, without keeping the event loop waiting, and none lost by who cancels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import pylog
from pylog import Consumer, Durability, OffsetsConfig, TopicPartition
from pylog.aio import AsyncConsumer
from pylog.testing import MemoryFileSystem

T0 = TopicPartition("t", 0)


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    few = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS, offsets=few) as opened:
        opened.create_topic("t")
        opened.log("t").append_many([b"%d" % number for number in range(10)])
        yield opened


@asynccontextmanager
async def opened(store: pylog.Store, **options: Any) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(store.consumer("t", group="g", auto_offset_reset="earliest", **options)) as consumer:
        yield consumer


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(main())


def test_iteration_hands_out_each_record_and_commits_up_to_the_one_in_hand(store: pylog.Store) -> None:
    async def work() -> list[Any]:
        async with opened(store, enable_auto_commit=False, consumer_timeout_ms=10) as consumer:
            seen = []
            async for record in consumer:
                await consumer.commit()
                seen.append((record.offset, store.offsets.position("g", T0)))
            return seen

    assert run(work) == [(offset, offset + 1) for offset in range(10)]


def test_polls_wait_and_the_event_loop_goes_on(store: pylog.Store) -> None:
    async def work() -> tuple[Any, ...]:
        async with opened(store) as consumer:
            first = await consumer.poll(max_records=4)
            frames = await consumer.poll_arrow()
            assert await consumer.poll() == {}
            waiting = asyncio.create_task(consumer.poll(timeout_ms=60_000))
            while not waiting.done():
                await asyncio.sleep(0)
                if store.log("t").end_offset == 10:
                    store.log("t").append(b"10")
            return first, frames, await waiting

    first, frames, last = run(work)
    assert [record.offset for record in first[T0]] == [0, 1, 2, 3]
    assert frames[T0].column("offset").to_pylist() == [4, 5, 6, 7, 8, 9]
    assert [record.value for record in last[T0]] == [b"10"]


def test_what_a_cancelled_poll_had_found_comes_again(store: pylog.Store) -> None:
    async def work() -> list[int]:
        async with opened(store) as consumer:
            for _ in range(5):
                waiting = asyncio.create_task(consumer.poll(max_records=1))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            return [record.offset for record in (await consumer.poll())[T0]]

    assert run(work) == list(range(10))


def test_what_a_cancelled_iteration_had_found_comes_again(store: pylog.Store) -> None:
    async def work() -> list[int]:
        async with opened(store, consumer_timeout_ms=50) as consumer:
            for _ in range(5):
                waiting = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            return [record.offset async for record in consumer]

    assert run(work) == list(range(10))


def test_several_coroutines_may_share_a_consumer(store: pylog.Store) -> None:
    async def work() -> list[int]:
        async with opened(store) as consumer:

            async def some() -> list[int]:
                found = await consumer.poll(max_records=2)
                await consumer.commit()
                return [record.offset for record in found[T0]]

            return sorted(offset for part in await asyncio.gather(*(some() for _ in range(5))) for offset in part)

    assert run(work) == list(range(10))
    assert store.offsets.position("g", T0) == 10


def test_leaving_by_an_exception_commits_nothing_and_other_methods_run_in_the_consumers_thread(store: pylog.Store) -> None:
    async def work() -> None:
        async with opened(store) as consumer:
            await consumer.poll()
            await consumer.run(Consumer.seek, T0, 3)
            assert await consumer.run(Consumer.position, T0) == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(work)
    assert store.offsets.position("g", T0) is None


def test_closing_ends_the_consumer(store: pylog.Store) -> None:
    async def work() -> AsyncConsumer:
        async with opened(store) as consumer:
            await consumer.poll()
        return consumer

    with pytest.raises(pylog.ClosedError):
        run(work)._consumer.poll()
    assert store.offsets.position("g", T0) == 10
