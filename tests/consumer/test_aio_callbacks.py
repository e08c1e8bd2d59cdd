"""Exceptions of listeners, callbacks, serializers and partitioners end the call that they belong to, whatever they are."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import pylog
from pylog import Consumer, Durability, OffsetsConfig, TopicPartition
from pylog.aio import AsyncConsumer, AsyncProducer
from pylog.testing import MemoryFileSystem

T0 = TopicPartition("t", 0)
WAIT = 20


class OwnError(BaseException):
    """Not an Exception."""


ERRORS = (
    ValueError,
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    OwnError,
    MemoryError,
    RecursionError,
    asyncio.CancelledError,
    asyncio.InvalidStateError,
    concurrent.futures.CancelledError,
    concurrent.futures.InvalidStateError,
    TimeoutError,
    pylog.WakeupError,
    pylog.ClosedError,
)


@contextmanager
def opened() -> Iterator[pylog.Store]:
    few = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS, offsets=few) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 4)
        yield store


class Once:
    """Raises at its first call, and returns its first argument later."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error: type[BaseException] | None = error

    def __call__(self, *given: Any) -> Any:
        error, self.error = self.error, None
        if error is not None:
            raise error("of the program")
        return given[0] if given else None

    async def later(self, *given: Any) -> Any:
        await asyncio.sleep(0)
        return self(*given)


def listener_of(call: Callable[..., Any]) -> pylog.ConsumerRebalanceListener:
    class Listener(pylog.ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
            return call(assigned)

    return Listener()


async def ended(made: Any) -> BaseException | None:
    """Awaits a call, which must end soon, and returns its error."""
    (error,) = await asyncio.wait_for(asyncio.gather(_error_of(made)), WAIT)
    return error


async def _error_of(made: Any) -> BaseException | None:
    try:
        await made
    except BaseException as error:  # noqa: BLE001 - the subject
        return error
    return None


async def _all_read(consumer: AsyncConsumer, how: str) -> None:
    """Reads on: all four records are still there."""
    seen: list[int] = []
    for _ in range(10):
        if how == "iteration":
            with suppress(StopAsyncIteration):
                seen.append((await asyncio.wait_for(anext(consumer), WAIT)).offset)
        else:
            found = await asyncio.wait_for(consumer.poll(5), WAIT)
            seen += [record.offset for record in found.get(T0, [])]
    assert seen == [0, 1, 2, 3]


async def _consumed(store: pylog.Store, once: Once, role: str, how: str) -> None:
    options: dict[str, Any] = {"value_deserializer": once} if role == "deserializer" else {}
    with_group = store.consumer(group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=5, **options)
    async with AsyncConsumer(with_group) as consumer:
        listener = listener_of(once.later if "coroutine" in role else once) if "listener" in role else None
        await consumer.run(Consumer.subscribe, ["t"], listener=listener)
        assert await ended(consumer.poll(5) if how == "poll" else anext(consumer)) is not None
        assert once.error is None
        await _all_read(consumer, how)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", ["poll", "iteration"])
@pytest.mark.parametrize("role", ["listener", "listener's coroutine", "deserializer"])
def test_an_error_of_a_consumers_callback_ends_the_poll_and_loses_nothing(role: str, how: str) -> None:
    for error in ERRORS:
        with opened() as store:
            asyncio.run(_consumed(store, Once(error), role, how))
            assert store.offsets.position("g", T0) == 4


async def _committed(store: pylog.Store, once: Once, callback: Callable[..., Any]) -> None:
    async with AsyncConsumer(store.consumer("t", group_id="g", auto_offset_reset="earliest")) as consumer:
        await consumer.poll(5)
        await consumer.run(Consumer.commit_async, {T0: 3}, callback)
        found = None
        for _ in range(100):
            found = found or await ended(consumer.poll(5))
            if once.error is None and found is not None:
                break
        assert once.error is None
        assert found is not None
        assert await ended(consumer.commit()) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_of_a_commits_callback_ends_a_call_of_the_consumer(asynchronous: bool) -> None:
    for error in ERRORS:
        with opened() as store:
            once = Once(error)
            asyncio.run(_committed(store, once, once.later if asynchronous else once))
            assert store.offsets.position("g", T0) == 4


class Headers:
    """One header, whose value a callback returns."""

    def __init__(self, once: Once) -> None:
        self.once = once

    def __iter__(self) -> Iterator[Any]:
        yield "h", self.once(b"1")


async def _produced(store: pylog.Store, once: Once, role: str) -> None:
    given = {"value_serializer": once, "key_serializer": once, "partitioner": lambda *_: once(0)}
    options: dict[str, Any] = {role: given[role]} if role in given else {}
    headers: Any = Headers(once) if role == "headers" else None
    async with AsyncProducer(store.producer(**options)) as producer:
        assert await ended(producer.send_and_wait("t", b"v", key=b"k", headers=headers)) is not None
        assert once.error is None
        assert (await producer.send_and_wait("t", b"v", key=b"k")).offset == 4


@pytest.mark.parametrize("role", ["value_serializer", "key_serializer", "partitioner", "headers"])
def test_an_error_of_a_producers_callback_ends_the_send_and_sends_nothing(role: str) -> None:
    for error in ERRORS:
        with opened() as store:
            asyncio.run(_produced(store, Once(error), role))


async def _delivered(store: pylog.Store, error: type[BaseException], asynchronous: bool) -> None:
    once = Once(error)
    async with AsyncProducer(store.producer()) as producer:
        found = await ended(producer.send_and_wait("t", b"v", on_delivery=once.later if asynchronous else once))
        is_logged = issubclass(error, Exception | asyncio.CancelledError)
        assert found is None if is_logged else isinstance(found, error)
        assert (await producer.send_and_wait("t", b"v")).offset == 5
        await asyncio.wait_for(producer.flush(), WAIT)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_of_on_delivery_is_logged_and_the_send_returns(caplog: pytest.LogCaptureFixture, asynchronous: bool) -> None:
    for error in ERRORS:
        with opened() as store:
            asyncio.run(_delivered(store, error, asynchronous))
    assert caplog.text.count("of the program") >= len(ERRORS) - 2
