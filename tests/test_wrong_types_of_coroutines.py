"""No call of the classes of `pylog.aio` with a wrong type raises anything but a PylogError: a sweep over all arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

import pylog
from pylog import TopicPartition
from pylog.aio import AsyncConsumer, AsyncIteration, AsyncLog, AsyncProducer, AsyncStore
from pylog.testing import MemoryFileSystem

T0: Final = TopicPartition("t", 0)
WRONG: Final[tuple[Any, ...]] = (object(), 5, 1.5, "x", b"x", [], {}, None)
RIGHT: Final = {"topic": "t", "partition": T0, "partitions": [T0], "timestamps": {T0: 0}, "offset": 0, "name": "n", "end": 0}
GIVEN: Final = RIGHT | {"partition_count": 3, "items": [b"x"], "before": 0, "timestamp": 0, "table": None, "data": None}
OTHERS: Final = ("close", "stop", "run", "aclose", "wakeup")  # they end the object, or call a function of the program's


def cases(kind: type) -> Iterator[tuple[str, Callable[[Any], object]]]:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in OTHERS:
            parameters = list(inspect.signature(method).parameters.values())[1:]
            for one in (each for each in parameters if each.name != "more"):  # named arguments of a plain method
                for wrong in WRONG:
                    yield f"{name}({one.name}={wrong!r})", call_of(name, parameters, one, wrong)


def call_of(name: str, parameters: list[inspect.Parameter], one: inspect.Parameter, wrong: Any) -> Callable[[Any], object]:
    if one.kind is one.VAR_POSITIONAL:
        return lambda made: getattr(made, name)(wrong)
    plain = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    options = {each.name: GIVEN.get(each.name, b"v") for each in plain if each.default is each.empty}
    options |= {"no_such_option" if one.kind is one.VAR_KEYWORD else one.name: wrong}
    return lambda made: getattr(made, name)(**options)


async def outcome(call: Callable[[], object]) -> BaseException | None:
    """Returns an error that is not pylog's."""
    try:
        made = call()
        if isinstance(made, AsyncIteration):
            async with made:
                with suppress(StopAsyncIteration, TimeoutError):
                    await asyncio.wait_for(anext(made), 0.01)
        elif inspect.isawaitable(made):
            made = await asyncio.wait_for(made, 0.5)
            if isinstance(made, asyncio.Future):
                await made
            if isinstance(made, AsyncProducer | AsyncConsumer):
                await made.close()
    except (pylog.PylogError, TimeoutError):
        return None
    except BaseException as error:  # noqa: BLE001 - the finding
        return error
    return None


async def of(kind: type, store: AsyncStore) -> Any:
    if kind is AsyncConsumer:
        consumer = await store.consumer(auto_offset_reset="earliest", consumer_timeout_ms=1, group_id="g")
        consumer.assign([T0])
        return consumer
    return {AsyncProducer: store.producer, AsyncLog: lambda: store.log("t"), AsyncStore: lambda: _self(store)}[kind]()


async def _self(store: AsyncStore) -> AsyncStore:
    return store


async def sweep(kind: type) -> dict[str, BaseException]:
    found = {}
    plain = pylog.open("/s", fs=MemoryFileSystem(), durability="os", offsets=pylog.OffsetsConfig(topic_num_partitions=1))
    async with AsyncStore(plain) as store:
        await store.create_topic("t", 2)
        await (await store.log("t")).append_many([b"x"] * 5)
        for name, call in cases(kind):
            made = await of(kind, store)
            made = await made if inspect.isawaitable(made) else made
            error = await outcome(lambda call=call, made=made: call(made))
            if isinstance(made, AsyncConsumer):  # the next call makes the pending changes, and raises their errors
                error = error or await outcome(lambda made=made: made.getmany())
            if isinstance(made, AsyncProducer | AsyncConsumer):
                await made.close()
            if error is not None:
                found[name] = error
    return found


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncLog, AsyncStore, pytest.param(AsyncConsumer, marks=pytest.mark.slow)])
def test_no_call_with_a_wrong_type_raises_anything_but_an_error_of_pylog(kind: type) -> None:
    assert asyncio.run(sweep(kind)) == {}


@pytest.mark.parametrize("topics", [object(), 5, 1.5, None])
def test_a_subscription_to_no_list_of_topics_is_refused(topics: Any) -> None:
    async def work() -> None:
        with pylog.open("/s", fs=MemoryFileSystem(), durability="os") as store:
            async with AsyncConsumer(store.consumer()) as consumer:
                with pytest.raises(pylog.InvalidTypeError, match="is not a list of topic names"):
                    consumer.subscribe(topics)

    asyncio.run(work())
