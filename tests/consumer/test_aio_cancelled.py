"""Calls of the asynchronous clients that are cancelled at each of their steps: no record is lost, and none is returned twice."""

from __future__ import annotations

import asyncio
import itertools
import types
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import pytest

import pylog
from pylog import Consumer, Durability, OffsetsConfig, TopicPartition
from pylog.aio import AsyncConsumer, AsyncProducer
from pylog.testing import MemoryFileSystem

T0 = TopicPartition("t", 0)
RECORDS = 6
HOWS = ("before the step", "while it waits", "with its result")


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    few = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS, offsets=few) as opened:
        yield opened


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll has several steps."""
    monkeypatch.setattr(pylog.aio.consumer, "_SLICE_MS", 2)


class Cancelling:
    """Cancels the task that awaits a coroutine at one of the coroutine's steps.

    Args:
        step: the number of the step.
        how: before it begins to wait, while it waits, or when the result of the wait is there and not yet delivered.

    Attributes:
        has_come: true if the coroutine has reached the step.
    """

    def __init__(self, step: int, how: str) -> None:
        self.step, self.how, self.has_come = step, how, False

    @types.coroutine
    def _driven(self, made: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        value, raised = None, None
        for number in itertools.count():
            try:
                waits_for = made.send(value) if raised is None else made.throw(raised)
            except StopIteration as end:
                return end.value
            if number == self.step:
                self._arm(waits_for)
            value = raised = None
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - passed on
                raised = error
        raise AssertionError

    def _arm(self, waits_for: Any) -> None:
        self.has_come = True
        task = asyncio.current_task()
        assert task is not None
        if self.how == HOWS[0]:
            task.cancel()
        elif self.how == HOWS[1] or waits_for is None:
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            waits_for.add_done_callback(lambda _: task.cancel())

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Makes a call, cancelled at the step. Returns None if it was cancelled."""

        async def made() -> Any:
            return await call()

        async def task() -> Any:
            return await self._driven(made().__await__())  # type: ignore[misc]

        with suppress(asyncio.CancelledError):
            return await asyncio.create_task(task())
        return None


class Listener(pylog.ConsumerRebalanceListener):
    """Coroutines of several steps."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        await self.consumer.run(Consumer.assignment)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        await self.consumer.commit()


async def _poll(consumer: AsyncConsumer) -> list[int]:
    found = await consumer.poll(10, 2)
    return [record.offset for record in found.get(T0, [])]


async def _poll_by_run(consumer: AsyncConsumer) -> list[int]:
    found = await consumer.run(Consumer.poll, 10, max_records=2)
    return [record.offset for record in found.get(T0, [])]


async def _poll_arrow(consumer: AsyncConsumer) -> list[int]:
    found = await consumer.poll_arrow(10, 2)
    return found[T0].column("offset").to_pylist() if T0 in found else []


async def _next(consumer: AsyncConsumer) -> list[int]:
    return [(await anext(consumer)).offset]


async def _commit_and_next(consumer: AsyncConsumer) -> list[int]:
    await consumer.commit()
    return [(await anext(consumer)).offset]


READS = (_poll, _poll_by_run, _poll_arrow, _next, _commit_and_next)


async def _append_slowly(store: pylog.Store, count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0.005)
        await asyncio.to_thread(store.log("t").append, b"later")


async def _swept(
    store: pylog.Store, group: str, read: Callable[[AsyncConsumer], Awaitable[list[int]]], how: str, step: int
) -> bool:
    """Reads all with calls that are each cancelled at one step, and calls that are not. Returns whether the step was reached."""
    if "t" in store.topics():
        store.delete_topic("t")
    store.create_topic("t")
    store.log("t").append_many([b"at once"] * (RECORDS - 2))
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 10, "max_poll_records": 3}
    consumer, seen, has_come = AsyncConsumer(store.consumer(group_id=group, **options)), [], False
    subscribing = Cancelling(step, how)
    await subscribing.run(lambda: consumer.run(Consumer.subscribe, ["t"], listener=Listener(consumer)))
    await consumer.run(Consumer.subscribe, ["t"], listener=Listener(consumer))
    later = asyncio.create_task(_append_slowly(store, 2))
    for number in range(3 * RECORDS):
        if number % 2:
            with suppress(StopAsyncIteration):
                seen += await read(consumer)
        else:
            cancelling = Cancelling(step, how)
            with suppress(StopAsyncIteration):
                seen += await cancelling.run(lambda: read(consumer)) or []
            has_come = has_come or cancelling.has_come
    await later
    for _ in range(2 * RECORDS):
        if len(seen) < RECORDS:
            seen += await read(consumer)
    await Cancelling(step, how).run(consumer.close)
    await consumer.close()
    assert seen == list(range(RECORDS)), (how, step)
    assert store.offsets.position(group, T0) == RECORDS
    assert store.group(group).describe().members == ()
    return has_come


@pytest.mark.sampled(20)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("read", READS)
def test_a_consumer_that_is_cancelled_at_any_step_returns_each_record_once(store: pylog.Store, read: Any, how: str) -> None:
    for step in range(100):
        if not asyncio.run(asyncio.wait_for(_swept(store, f"g-{step}", read, how, step), 60)):
            assert step > 0
            return
    raise AssertionError("the call has more than 100 steps")


# ---- the producer ------------------------------------------------------------------------------------------------------------


async def _sent(store: pylog.Store, how: str, step: int, **options: Any) -> bool:
    """Sends records with calls that are cancelled at one step, and calls that are not. Returns whether the step was reached."""
    async with AsyncProducer(store.producer(**options)) as producer:
        has_come, sent = False, []
        for number in range(12):
            value = b"%d" % number
            sent.append(value)
            cancelling = Cancelling(step, how)

            async def told(*_: object) -> None:
                await asyncio.sleep(0)

            done = await cancelling.run(
                lambda value=value, told=told: producer.send_and_wait("t", value, key=b"k", on_delivery=told)
            )
            has_come = has_come or cancelling.has_come
            if number % 3 == 2:
                await Cancelling(step, how).run(producer.flush)
                done = await producer.send_and_wait("t", b"whole")
                sent.append(b"whole")
                assert done.offset == len(sent) - 1
        await Cancelling(step, how).run(producer.close)
    assert [record.value for record in store.log("t").records()] == sent, (how, step)
    return has_come


@pytest.mark.parametrize(
    "options", [{}, {"value_serializer": lambda value: value, "key_serializer": lambda key: key}], ids=["plain", "serializers"]
)
@pytest.mark.parametrize("how", HOWS)
def test_a_send_that_is_cancelled_at_any_step_appends_its_record_once(store: pylog.Store, how: str, options: Any) -> None:
    for step in range(20):
        if "t" in store.topics():
            store.delete_topic("t")
        store.create_topic("t")
        if not asyncio.run(asyncio.wait_for(_sent(store, how, step, **options), 60)):
            assert step > 0
            return
    raise AssertionError("the call has more than 20 steps")
