"""Coroutines as listeners and callbacks: awaited by the classes of `pylog.aio`, refused by the others, and never ignored."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Consumer, TopicPartition
from pylog.aio import AsyncConsumer, AsyncProducer

T0 = TopicPartition("t", 0)
WAIT = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    with pylog.open(tmp_path / "d", durability=pylog.Durability.OS) as made:
        made.create_topic("t")
        made.log("t").append_many([b"x"] * 10)
        yield made


async def told(*_: object) -> bytes:
    return b""


class Teller:
    async def __call__(self, *_: object) -> None: ...


COROUTINE_FUNCTIONS = [told, partial(told), partial(partial(told), 1), Teller(), Teller().__call__]


class Listener(pylog.ConsumerRebalanceListener):
    """Its methods are coroutine functions, and note in which thread they run."""

    def __init__(self, act: Callable[[], Any] | None = None) -> None:
        self.told: list[tuple[str, int, int]] = []
        self.act = act

    async def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        if self.act is not None:
            await self.act()
        self.told.append((what, len(partitions), threading.get_ident()))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._note("assigned", assigned)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._note("revoked", revoked)


# ---- refused -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", COROUTINE_FUNCTIONS)
def test_a_producer_refuses_coroutine_functions_when_they_are_given(store: pylog.Store, call: Any) -> None:
    for name in ("key_serializer", "value_serializer", "partitioner"):
        with pytest.raises(pylog.InvalidArgumentError, match=f"{name}=.*coroutine function"):
            store.producer(**{name: call})
    with store.producer() as producer:
        with pytest.raises(pylog.InvalidArgumentError, match=r"on_delivery=.*AsyncProducer"):
            producer.send("t", b"x", on_delivery=call)
        future = producer.send("t", b"x")
        for add in (future.add_callback, future.add_errback, future.when_done):
            with pytest.raises(pylog.InvalidArgumentError, match="coroutine function"):
                add(call)
    assert store.log("t").end_offset == 11  # the refused one was not sent


@pytest.mark.parametrize("call", COROUTINE_FUNCTIONS)
def test_a_consumer_refuses_coroutine_functions_when_they_are_given(store: pylog.Store, call: Any) -> None:
    for name in ("key_deserializer", "value_deserializer"):
        with pytest.raises(pylog.InvalidArgumentError, match=f"{name}=.*coroutine function"):
            store.consumer("t", **{name: call})
    with store.consumer("t", group_id="g") as consumer:
        with pytest.raises(pylog.InvalidArgumentError, match=r"callback=.*AsyncConsumer"):
            consumer.commit_async({T0: 1}, call)
        with pytest.raises(pylog.InvalidArgumentError, match=r"listener=.*AsyncConsumer"):
            consumer.subscribe(["t"], listener=Listener())


@pytest.mark.slow
def test_a_coroutine_that_a_plain_function_returns_is_closed_and_an_error(
    store: pylog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    hidden: Any = lambda *_: told()  # noqa: E731 - nobody can tell from it what it returns
    for name in ("key_serializer", "value_serializer", "partitioner"):
        with store.producer(**{name: hidden}) as producer, pytest.raises(pylog.InvalidArgumentError, match="not awaited"):
            producer.send("t", b"x", b"key")
    with store.producer() as producer:
        producer.send("t", b"x", on_delivery=hidden).add_callback(hidden)
        producer.send("t", b"x").when_done(hidden)
        producer.flush()
    failed = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert len(failed) == 3
    assert all("not awaited" in str(each.exc_info) for each in failed)

    class Hidden(pylog.ConsumerRebalanceListener):
        on_partitions_assigned = on_partitions_revoked = hidden

    with store.consumer(group_id="g", value_deserializer=hidden, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"], listener=Hidden())
        with pytest.raises(pylog.InvalidArgumentError, match="not awaited"):
            consumer.poll()
        with pytest.raises(pylog.RecordDeserializationError) as raised:
            consumer.poll()
        assert isinstance(raised.value.__cause__, pylog.InvalidArgumentError)
        consumer.commit_async({T0: 1}, hidden).result(WAIT)
        with pytest.raises(pylog.InvalidArgumentError, match="not awaited"):
            consumer.commit({T0: 2})
        with pytest.raises(pylog.InvalidArgumentError, match="not awaited"):
            consumer.unsubscribe()
    gc.collect()  # a coroutine that was never awaited would warn


# ---- awaited -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("how", [told, lambda *_: told(), partial(told), Teller(), print])
def test_an_asynchronous_producer_takes_any_of_them(store: pylog.Store, how: Any) -> None:
    async def produce() -> int:
        async with AsyncProducer(store.producer()) as producer:
            return (await producer.send_and_wait("t", b"x", on_delivery=how)).offset

    assert asyncio.run(produce()) == 10
    gc.collect()


def test_an_asynchronous_producer_awaits_its_callbacks_in_the_event_loop(store: pylog.Store) -> None:
    called: list[tuple[int, int]] = []

    async def deliver(number: int, error: Exception | None, metadata: pylog.RecordMetadata | None) -> None:
        await asyncio.sleep(0.01)
        assert error is None
        assert metadata is not None
        called.append((number, threading.get_ident()))

    async def produce() -> None:
        async with AsyncProducer(store.producer()) as producer:
            await producer.send_and_wait("t", b"x", on_delivery=partial(deliver, 0))
            assert len(called) == 1  # the send waits for it
            sends = [
                asyncio.ensure_future(producer.send_and_wait("t", b"x", on_delivery=partial(deliver, n))) for n in range(1, 5)
            ]
            await asyncio.sleep(0)
            sends[0].cancel()
            await producer.flush()
            assert len(called) == 5  # that of the cancelled one too
            sends.append(asyncio.ensure_future(producer.send_and_wait("t", b"x", on_delivery=partial(deliver, 5))))
            await asyncio.sleep(0)
        assert len(called) == 6
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*sends)

    asyncio.run(produce())
    assert {thread for _, thread in called} == {threading.get_ident()}


def test_an_error_of_an_awaited_callback_is_logged_and_the_send_continues(
    store: pylog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def deliver(*_: object) -> None:
        raise ValueError("of the callback")

    async def produce() -> int:
        async with AsyncProducer(store.producer()) as producer:
            return (await producer.send_and_wait("t", b"x", on_delivery=deliver)).offset

    assert asyncio.run(produce()) == 10
    assert "of the callback" in caplog.text


def test_an_asynchronous_consumer_awaits_its_listener_in_the_event_loop_and_its_poll_waits(store: pylog.Store) -> None:
    listener = Listener()

    async def consume() -> int:
        async with AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest")) as consumer:
            await consumer.run(Consumer.subscribe, ["t"], listener=listener)
            found = await consumer.poll(1_000)
            assert [what for what, *_ in listener.told] == ["assigned"]
            return sum(map(len, found.values()))

    assert asyncio.run(consume()) == 10
    assert [(what, count) for what, count, _ in listener.told] == [("assigned", 1), ("revoked", 1)]
    assert {thread for *_, thread in listener.told} == {threading.get_ident()}


def test_a_listeners_coroutine_may_await_calls_of_the_consumer(store: pylog.Store) -> None:
    async def consume() -> None:
        async with AsyncConsumer(
            store.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
        ) as consumer:
            listener = Listener(consumer.commit)
            await consumer.run(Consumer.subscribe, ["t"], listener=listener)
            await consumer.poll(1_000, max_records=4)
            await consumer.run(Consumer.unsubscribe)
            assert [what for what, *_ in listener.told] == ["assigned", "revoked"]

    asyncio.run(asyncio.wait_for(consume(), WAIT))
    assert store.offsets.position("g", T0) == 4


def test_a_listeners_coroutine_may_close_the_consumer(store: pylog.Store) -> None:
    async def consume() -> None:
        consumer = AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest"))
        listener = Listener()
        await consumer.run(Consumer.subscribe, ["t"], listener=listener)
        listener.act = consumer.close
        with suppress(pylog.ClosedError):
            assert await consumer.poll(1_000) == {}
        await consumer.close()

    asyncio.run(asyncio.wait_for(consume(), WAIT))
    assert store.group("g").describe().state == "Empty"


def test_an_error_of_a_listeners_coroutine_comes_out_of_the_poll(store: pylog.Store) -> None:
    async def fail() -> None:
        raise ValueError("of the listener")

    async def consume() -> None:
        async with AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest")) as consumer:
            listener = Listener(fail)
            await consumer.run(Consumer.subscribe, ["t"], listener=listener)
            with pytest.raises(ValueError, match="of the listener"):
                await consumer.poll(1_000)
            listener.act = None
            assert await consumer.poll(1_000)

    asyncio.run(asyncio.wait_for(consume(), WAIT))


def test_a_poll_that_is_cancelled_while_its_listener_runs_loses_nothing(store: pylog.Store) -> None:
    listener = Listener(partial(asyncio.sleep, 0.3))

    async def consume() -> int:
        async with AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest")) as consumer:
            await consumer.run(Consumer.subscribe, ["t"], listener=listener)
            with suppress(TimeoutError):
                await asyncio.wait_for(consumer.poll(1_000), 0.1)
            found = await consumer.poll(1_000)
            return sum(map(len, found.values()))

    assert asyncio.run(asyncio.wait_for(consume(), WAIT)) == 10
    assert [what for what, *_ in listener.told] == ["assigned", "revoked"]


def test_an_event_loop_that_ends_while_a_listener_runs_keeps_no_thread_waiting(store: pylog.Store) -> None:
    listener = Listener(partial(asyncio.sleep, 3_600))
    consumer: list[AsyncConsumer] = []

    async def consume() -> None:
        consumer.append(AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest")))
        await consumer[0].run(Consumer.subscribe, ["t"], listener=listener)
        await asyncio.wait_for(consumer[0].poll(1_000), 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(consume())
    listener.act = None
    asyncio.run(asyncio.wait_for(consumer[0].close(), WAIT))


@pytest.mark.slow
def test_closing_the_store_in_the_event_loop_does_not_wait_for_the_loop(store: pylog.Store) -> None:
    async def consume() -> None:
        consumer = AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest"))
        await consumer.run(Consumer.subscribe, ["t"], listener=Listener())
        await consumer.poll(1_000)
        with pytest.raises(pylog.InvalidArgumentError, match="not awaited"):
            store.close()

    asyncio.run(asyncio.wait_for(consume(), WAIT))
    gc.collect()


def test_the_callback_of_a_commit_is_awaited_too(store: pylog.Store) -> None:
    called: list[object] = []

    async def committed(*given: object) -> None:
        await asyncio.sleep(0)
        called.append(given)

    async def consume() -> None:
        async with AsyncConsumer(store.consumer("t", group_id="g", auto_offset_reset="earliest")) as consumer:
            await consumer.poll(1_000)
            await consumer.run(Consumer.commit_async, {T0: 3}, committed)
            await consumer.commit()

    asyncio.run(asyncio.wait_for(consume(), WAIT))
    assert len(called) == 1


def test_run_refuses_methods_that_are_to_be_awaited(store: pylog.Store) -> None:
    async def consume() -> None:
        async with AsyncConsumer(store.consumer("t")) as consumer:
            with pytest.raises(pylog.InvalidArgumentError, match="coroutine function"):
                await consumer.run(AsyncConsumer.poll)

    asyncio.run(consume())


@pytest.mark.slow
def test_stop_iteration_of_a_listener_ends_the_call(store: pylog.Store) -> None:
    class Empty(pylog.ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            next(iter(()))

    async def consume() -> None:
        async with AsyncConsumer(store.consumer(group_id="g", consumer_timeout_ms=0)) as consumer:
            await consumer.run(Consumer.subscribe, ["t"], listener=Empty())
            with pytest.raises(RuntimeError, match="StopIteration"):
                await consumer.poll(1_000)
            with pytest.raises(RuntimeError, match="StopIteration"):
                await consumer.run(Consumer.__next__)

    asyncio.run(asyncio.wait_for(consume(), WAIT))


@pytest.mark.slow
def test_clients_keep_no_event_loop_that_was_closed(store: pylog.Store) -> None:
    import weakref

    loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
    producer = AsyncProducer(store.producer(linger_ms=5))
    consumer = AsyncConsumer(store.consumer("t", group_id="g"))

    async def use() -> None:
        loops.add(asyncio.get_running_loop())
        sends = producer.send("t", b"x"), producer.send("t", b"x", on_delivery=print), producer.send_and_wait("t", b"x")
        tasks = [asyncio.ensure_future(each) for each in (*sends, consumer.poll(50), consumer.poll(50))]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()

    for _ in range(10):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use())
        loop.close()
    del loop
    asyncio.run(producer.flush())
    asyncio.run(consumer.commit())
    gc.collect()
    assert not [loop for loop in loops if loop.is_closed()]
    asyncio.run(producer.close())
    asyncio.run(consumer.close())
