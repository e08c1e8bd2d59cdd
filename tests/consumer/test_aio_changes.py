"""Plain changes of an `AsyncConsumer` that wait for the next read: few, and as if each had been made at once."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import pylog
from pylog import ConsumerRebalanceListener, Durability, TopicPartition
from pylog.aio import AsyncConsumer
from pylog.testing import MemoryFileSystem
from support.engines import assignment_of

ALL = [TopicPartition("t", number) for number in range(4)]
T0, T1, T2, _ = ALL


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS) as opened:
        opened.create_topic("t", partition_count=4)
        opened.create_topic("u")
        for number in range(4):
            opened.log("t", number).append_many([b"x"] * 10)
        yield opened


def _position_and_pauses(consumer: AsyncConsumer) -> None:
    consumer.seek(T0, 5)
    consumer.pause(*ALL)
    consumer.resume(T1)


def _assignments(consumer: AsyncConsumer) -> None:
    consumer.assign(ALL)
    consumer.seek(T0, 5)
    consumer.assign([T0, T1])


def _subscriptions(consumer: AsyncConsumer) -> None:
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    consumer.subscribe(pattern="u")
    consumer.unsubscribe()
    consumer.assign(ALL)


@pytest.mark.parametrize("change", [_position_and_pauses, _assignments, _subscriptions])
def test_changes_that_are_made_again_and_again_without_a_read_do_not_grow(
    store: pylog.Store, change: Callable[[AsyncConsumer], None]
) -> None:
    async def program() -> None:
        async with AsyncConsumer(store.consumer(auto_offset_reset="earliest")) as consumer:
            consumer.assign(ALL)
            await consumer.start()
            for _ in range(10):
                change(consumer)
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(1000):
                    change(consumer)
                gc.collect()  # it empties the interpreter's free lists
                assert tracemalloc.get_traced_memory()[0] - before < 4000
            finally:
                tracemalloc.stop()
            await consumer.start()
            assert not consumer._changes

    asyncio.run(program())


CALLS: dict[str, Callable[[Any, random.Random], object]] = {
    "seek": lambda consumer, rng: consumer.seek(rng.choice(ALL), rng.randrange(10)),
    "pause": lambda consumer, rng: consumer.pause(*rng.sample(ALL, rng.randrange(3))),
    "resume": lambda consumer, rng: consumer.resume(*rng.sample(ALL, rng.randrange(3))),
    "assign": lambda consumer, rng: consumer.assign(rng.sample(ALL, rng.randrange(1, 5))),
    "unsubscribe": lambda consumer, rng: consumer.unsubscribe(),
}


def _state(consumer: Any) -> list[tuple[TopicPartition, int | None, bool]]:
    partitions = assignment_of(consumer).partitions
    return sorted((each, state.position, state.paused) for each, state in partitions.items())


def _make(consumer: Any, call: str, seed: str) -> bool:
    try:
        CALLS[call](consumer, random.Random(seed))
    except pylog.IllegalStateError:
        return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_changes_before_a_read_leave_what_the_same_calls_leave_one_by_one(store: pylog.Store, seed: int) -> None:
    async def program() -> None:
        rng = random.Random(seed)
        plain = store.consumer(auto_offset_reset="earliest")
        async with AsyncConsumer(store.consumer(auto_offset_reset="earliest")) as consumer:
            for step in range(60):
                call = rng.choice(list(CALLS))
                assert _make(consumer, call, f"{seed} {step}") == _make(plain, call, f"{seed} {step}")
                if rng.random() < 0.2:
                    await consumer.start()
                    assert _state(consumer) == _state(plain)
        plain.close()

    asyncio.run(program())


def test_a_position_is_set_before_its_partition_is_given_up_and_committed(store: pylog.Store) -> None:
    async def program() -> None:
        async with AsyncConsumer(store.consumer(auto_offset_reset="earliest", group_id="g")) as consumer:
            consumer.assign([T0, T1])
            await consumer.start()
            consumer.seek(T0, 5)
            consumer.seek(T1, 3)
            consumer.assign([T1])
            consumer.seek(T1, 4)
            consumer.unsubscribe()
            consumer.assign([T2])
            await consumer.start()
            assert [await consumer.committed(each) for each in ALL] == [5, 4, None, None]

    asyncio.run(program())


def test_a_change_of_a_listener_is_made_once_while_the_change_that_called_it_is_made(store: pylog.Store) -> None:
    told = []

    async def program() -> None:
        consumer = AsyncConsumer(store.consumer(group_id="g", auto_offset_reset="earliest"))

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
                consumer.seek(T0, 7)
                consumer.pause(T1)

            async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
                told.append(sorted(revoked))
                with suppress(pylog.IllegalStateError):
                    consumer.subscribe(["u"])

        async with consumer:
            consumer.subscribe(["t"], listener=Listener())
            assert (await consumer.getone(T0)).offset == 7
            assert consumer.paused() == {T1}
            consumer.unsubscribe()
            await consumer.start()
            assert not consumer._changes
        assert told == [ALL]

    asyncio.run(program())


def test_a_choice_that_contradicts_a_pending_one_is_refused_at_once(store: pylog.Store) -> None:
    async def program() -> None:
        async with AsyncConsumer(store.consumer(auto_offset_reset="earliest")) as consumer:
            consumer.assign([T0])
            with pytest.raises(pylog.IllegalStateError, match="unsubscribe"):
                consumer.subscribe(["t"])
            with pytest.raises(pylog.IllegalStateError, match=r"t-1 is not assigned.*t-0"):
                consumer.seek(T1, 0)
            consumer.assign([])
            consumer.subscribe(["t"])
            with pytest.raises(pylog.IllegalStateError, match="unsubscribe"):
                consumer.assign([T0])
            with pytest.raises(pylog.IllegalStateError, match="its partitions are none"):
                consumer.pause(T0)
            assert len(await consumer.getmany(timeout_ms=1000)) == 4

    asyncio.run(program())
