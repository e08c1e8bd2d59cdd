"""A consumer for coroutines: the same records, without keeping the event loop waiting, and none lost by who cancels."""

from __future__ import annotations

import asyncio
import os
import threading
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
    async with AsyncConsumer(store.consumer("t", group_id="g", auto_offset_reset="earliest", **options)) as consumer:
        yield consumer


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(work(), 60)

    return asyncio.run(main())


def test_iteration_returns_each_record_and_commits_up_to_the_one_in_hand(store: pylog.Store) -> None:
    async def work() -> list[Any]:
        async with opened(store, enable_auto_commit=False, consumer_timeout_ms=10) as consumer:
            seen = []
            async for record in consumer:
                await consumer.commit()
                seen.append((record.offset, store.offsets.position("g", T0)))
            return seen

    assert run(work) == [(offset, offset + 1) for offset in range(10)]


@pytest.mark.parametrize("timeout", [float("nan"), -5, "1", None, True])
def test_a_timeout_that_is_no_number_is_refused_as_by_the_consumer_itself(store: pylog.Store, timeout: Any) -> None:
    async def work() -> None:
        async with opened(store) as consumer:
            for poll in (consumer.poll, consumer.poll_arrow):
                with pytest.raises(pylog.InvalidArgumentError, match="is not a number of milliseconds"):
                    await asyncio.wait_for(poll(timeout), 20)

    run(work)


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


def test_records_that_a_cancelled_poll_had_found_are_returned_again(store: pylog.Store) -> None:
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


class Gate:
    """A deserializer that says when it begins with the first record, and waits there until it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._may_go_on = threading.Semaphore(0)

    def __call__(self, value: bytes) -> int:
        if value == b"0":
            self._loop.call_soon_threadsafe(self.reached.set)
            assert self._may_go_on.acquire(timeout=60)
        return int(value)

    def go_on(self, times: int = 1) -> None:
        self.reached.clear()
        self._may_go_on.release(times)


async def cancelled(waiting: asyncio.Future[Any]) -> None:
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_records_that_a_cancelled_iteration_had_found_are_returned_again(store: pylog.Store) -> None:
    async def work() -> list[int]:
        gate = Gate()
        async with opened(store, consumer_timeout_ms=50, value_deserializer=gate) as consumer:
            first = asyncio.ensure_future(anext(consumer))
            await gate.reached.wait()
            await cancelled(first)
            for _ in range(5):
                waiting = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0)
                await cancelled(waiting)
            gate.go_on(times=9)
            return [record.value async for record in consumer]

    assert run(work) == list(range(10))


def test_no_record_comes_twice_when_an_iteration_is_cancelled_beside_what_another_one_had_left_under_way(
    store: pylog.Store,
) -> None:
    async def work() -> list[int]:
        gate = Gate()
        async with opened(store, max_poll_records=5, consumer_timeout_ms=50, value_deserializer=gate) as consumer:
            first = asyncio.ensure_future(anext(consumer))
            await gate.reached.wait()
            await cancelled(first)
            second = asyncio.ensure_future(anext(consumer))
            gate.go_on()
            again = asyncio.ensure_future(gate.reached.wait())  # it reads for itself, beside the first
            await asyncio.wait({second, again}, return_when=asyncio.FIRST_COMPLETED)
            seen = [] if second.cancel() else [second.result().value]
            seen.append((await anext(consumer)).value)
            gate.go_on(times=9)
            again.cancel()
            await consumer.run(Consumer.paused)  # behind all that is under way
            return seen + [record.value async for record in consumer]

    assert run(work) == list(range(10))


def test_many_cancelled_calls_leave_no_more_than_one_under_way(store: pylog.Store) -> None:
    begun = []

    async def work() -> None:
        async with opened(store) as consumer:
            may_go_on = threading.Event()

            def call(_: Consumer) -> None:
                begun.append(threading.current_thread())
                assert may_go_on.wait(60)

            for _ in range(5):
                waiting = asyncio.ensure_future(consumer.run(call))
                await asyncio.sleep(0)
                await cancelled(waiting)
            may_go_on.set()

    run(work)
    assert len(begun) == 1


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


def test_an_iteration_that_another_task_closes_gets_an_error_and_closing_does_not_wait_for_records(
    store: pylog.Store,
) -> None:
    async def work() -> None:
        consumer = AsyncConsumer(store.consumer("t", group_id="g", auto_offset_reset="earliest"))
        last = asyncio.Event()

        async def iterate() -> None:
            async for record in consumer:
                if record.offset == 9:
                    last.set()

        iterating = asyncio.create_task(iterate())
        await last.wait()
        polling = asyncio.create_task(consumer.poll(timeout_ms=10**9))
        await asyncio.sleep(0)
        await consumer.close()
        for task in (iterating, polling):
            with pytest.raises(pylog.ClosedError):
                await task

    run(work)
    assert store.offsets.position("g", T0) == 10


def test_closing_that_is_cancelled_goes_on_and_another_one_waits_for_its_end(store: pylog.Store) -> None:
    async def work() -> None:
        consumer = AsyncConsumer(store.consumer("t", group_id="g", auto_offset_reset="earliest"))
        assert len((await consumer.poll())[T0]) == 10
        begun, may_go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        under_way = asyncio.create_task(
            consumer.run(lambda _: (loop.call_soon_threadsafe(begun.set), may_go_on.wait(60))[1]),
        )
        await begun.wait()
        closing = asyncio.ensure_future(consumer.close())
        await asyncio.sleep(0)
        await cancelled(closing)
        may_go_on.set()
        await consumer.close()
        assert await under_way

    run(work)
    assert store.offsets.position("g", T0) == 10
    assert store.group("g").describe().members == ()


def test_a_closed_consumer_says_so_and_closing_it_again_does_nothing(store: pylog.Store) -> None:
    async def work() -> None:
        async with opened(store) as consumer:
            assert (await anext(consumer)).offset == 0
            await consumer.close()
            for call in (consumer.poll, consumer.poll_arrow, consumer.commit, lambda: anext(consumer)):
                with pytest.raises(pylog.ClosedError, match="closed"):
                    await call()
            with pytest.raises(pylog.ClosedError, match="closed"):
                await consumer.run(Consumer.assignment)
            await consumer.close()

    run(work)
    assert store.offsets.position("g", T0) == 1


def test_an_error_that_a_listener_raises_comes_out_of_the_first_close_alone(store: pylog.Store) -> None:
    class Listener(pylog.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: object) -> None:
            raise ZeroDivisionError

    async def work() -> None:
        consumer = AsyncConsumer(store.consumer(group_id="g"))
        await consumer.run(Consumer.subscribe, ["t"], listener=Listener())
        await consumer.poll()
        with pytest.raises(ZeroDivisionError):
            await consumer.close()
        await consumer.close()

    run(work)
    assert store.group("g").describe().members == ()


def test_a_forked_child_is_told_that_the_consumer_is_not_for_it(store: pylog.Store) -> None:
    consumer = AsyncConsumer(store.consumer("t", group_id="g", auto_offset_reset="earliest"))

    async def in_child() -> bool:
        try:
            await consumer.poll()
        except pylog.ClosedError:
            await consumer.close()
            return True
        return False

    run(consumer.poll)
    child = os.fork()
    if child == 0:
        os._exit(7 if asyncio.run(in_child()) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    run(consumer.close)
    assert store.offsets.position("g", T0) == 10
