"""Each way to read takes care of the group by time: heartbeats, automatic commits, new topics, and losses before any record.

The ways: polls and iteration of `Consumer`, of `AsyncConsumer`, and of kafka-python's consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any, NamedTuple

import pytest

import pylog
import pylog.compat.kafka as kafka
from pylog import Consumer, ConsumerRebalanceListener, TopicPartition
from pylog.aio import AsyncConsumer
from pylog.clock import ManualClock
from pylog.compat.clusters import CLUSTERS, MEMORY, ClusterSettings

OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "max_poll_interval_ms": 5_000,
    "auto_commit_interval_ms": 1_000,
    "max_poll_records": 100,
    "consumer_timeout_ms": 0,
}
RECORDS = 30
Spot = tuple[str, int, int]


class Told(ConsumerRebalanceListener, kafka.ConsumerRebalanceListener):
    """What a consumer was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.told.append(("assigned", set(assigned)))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.told.append(("revoked", set(revoked)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.told.append(("lost", set(lost)))

    @property
    def words(self) -> list[str]:
        return [word for word, partitions in self.told if partitions]


class World(NamedTuple):
    """A store in memory whose clock stands, which the layer of kafka-python reads too."""

    store: pylog.Store
    clock: ManualClock
    servers: dict[str, Any]
    last: ExitStack

    def append(self, topic: str) -> None:
        for number in self.store.topic(topic).partition_ids:
            self.store.log(topic, number).append_many([b"x"] * RECORDS)

    def plain(self, told: Told) -> Consumer:
        consumer = self.store.consumer(**OPTIONS)
        consumer.subscribe(pattern="t", listener=told)
        self.last.callback(consumer.close, autocommit=False)
        return consumer

    def layered(self, told: Told) -> kafka.KafkaConsumer:
        consumer = kafka.KafkaConsumer(**OPTIONS, **self.servers)
        consumer.subscribe(pattern="t", listener=told)
        self.last.callback(consumer.close, autocommit=False)
        return consumer

    def asynchronous(self, told: Told) -> tuple[AsyncConsumer, asyncio.Runner]:
        runner = self.last.enter_context(asyncio.Runner())
        consumer = AsyncConsumer(self.store.consumer(**OPTIONS))
        runner.run(consumer.run(Consumer.subscribe, (), "t", told))
        self.last.callback(lambda: runner.run(consumer.close(autocommit=False)))
        return consumer, runner


@pytest.fixture
def world() -> Iterator[World]:
    clock, before, name = ManualClock(1_700_000_000_000), CLUSTERS.settings, "upkeep"
    CLUSTERS.settings = ClusterSettings(clock=clock)
    with ExitStack() as last:
        last.callback(setattr, CLUSTERS, "settings", before)
        last.callback(CLUSTERS.forget, MEMORY + name)
        servers = {"bootstrap_servers": f"pylog+memory://{name}"}
        made = World(CLUSTERS.of(servers["bootstrap_servers"]).store, clock, servers, last.enter_context(ExitStack()))
        made.store.create_topic("t", partition_count=2)
        made.append("t")
        yield made


def spots(found: dict[TopicPartition, Any]) -> list[Spot]:
    """The spots of a poll's records: a list of each partition, or an Arrow batch."""
    return [
        (partition.topic, partition.partition, offset)
        for partition, part in found.items()
        for offset in (part.column("offset").to_pylist() if hasattr(part, "column") else [record.offset for record in part])
    ]


def spot(record: Any) -> Spot:
    return record.topic, record.partition, record.offset


Read = Callable[[], list[Spot]]  # the next record, if there is one


def polling(world: World, told: Told) -> Read:
    consumer = world.plain(told)
    return lambda: spots(consumer.poll(max_records=1))


def polling_arrow(world: World, told: Told) -> Read:
    consumer = world.plain(told)
    return lambda: spots(consumer.poll_arrow(max_records=1))


def iterating(world: World, told: Told) -> Read:
    consumer = world.plain(told)
    loops = [iter(consumer)]

    def read() -> list[Spot]:
        found = [spot(record) for record in islice(loops[-1], 1)]
        if not found:  # the loop has ended, and the program begins another one
            loops.append(iter(consumer))
        return found

    return read


def beginning_loops(world: World, told: Told) -> Read:
    consumer = world.plain(told)
    return lambda: [spot(record) for record in islice(consumer, 1)]


def calling_next(world: World, told: Told) -> Read:
    consumer = world.plain(told)

    def read() -> list[Spot]:
        try:
            return [spot(next(consumer))]
        except StopIteration:
            return []

    return read


def polling_in_a_loop(world: World, told: Told) -> Read:
    consumer, runner = world.asynchronous(told)
    return lambda: spots(runner.run(consumer.poll(max_records=1)))


def polling_arrow_in_a_loop(world: World, told: Told) -> Read:
    consumer, runner = world.asynchronous(told)
    return lambda: spots(runner.run(consumer.poll_arrow(max_records=1)))


def iterating_in_a_loop(world: World, told: Told) -> Read:
    consumer, runner = world.asynchronous(told)

    async def read() -> list[Spot]:
        async for record in consumer:
            return [spot(record)]
        return []

    return lambda: runner.run(read())


def polling_as_kafka_python(world: World, told: Told) -> Read:
    consumer = world.layered(told)
    return lambda: spots(consumer.poll(max_records=1))


def iterating_as_kafka_python(world: World, told: Told) -> Read:
    consumer = world.layered(told)
    return lambda: [spot(record) for record in islice(consumer, 1)]


ROUTES = [
    polling,
    polling_arrow,
    iterating,
    beginning_loops,
    calling_next,
    polling_in_a_loop,
    polling_arrow_in_a_loop,
    iterating_in_a_loop,
    polling_as_kafka_python,
    iterating_as_kafka_python,
]
each_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.__name__.replace("_", " "))


@each_route
def test_a_slow_reader_stays_in_its_group_commits_by_itself_and_finds_new_topics(
    world: World, route: Callable[[World, Told], Read]
) -> None:
    told, read = Told(), list[Spot]()
    take = route(world, told)
    with world.store.consumer("t", **OPTIONS | {"enable_auto_commit": False}) as other:
        for number in range(20):
            read += take()
            world.clock.advance(1_000)
            other.poll(max_records=1)
            if number == 5:
                world.store.create_topic("t2")
                world.append("t2")
        assert "lost" not in told.words
        assert told.words.count("revoked") == 1  # when the other one joined
        assert len(set(read)) == len(read) >= 17
        assert "t2" in {each.topic for word, some in told.told if word == "assigned" for each in some}
        assert sum(each.offset for each in world.store.offsets.fetch("g").values()) >= len(read) - 3


@each_route
def test_a_reader_that_was_too_slow_is_told_so_before_it_is_given_a_record(
    world: World, route: Callable[[World, Told], Read]
) -> None:
    told = Told()
    take = route(world, told)
    first = [spot for _ in range(4) for spot in take()]
    assert len(first) >= 3
    with world.store.consumer("t", **OPTIONS) as other:
        while len(other.assignment()) < 2:
            world.clock.advance(500)
            other.poll(max_records=1)
        assert told.words == ["assigned"]
        more = [take() for _ in range(4)]
        assert told.words[:2] == ["assigned", "lost"]
        held = {partition for word, some in told.told[2:] if word == "assigned" for partition in some}
        assert {TopicPartition(*each[:2]) for some in more for each in some} <= held


@each_route
def test_a_reader_whose_topic_is_deleted_is_told_so_before_it_is_given_a_record_of_the_next_one(
    world: World, route: Callable[[World, Told], Read]
) -> None:
    told = Told()
    take = route(world, told)
    assert [spot for _ in range(3) for spot in take()]
    world.store.delete_topic("t")
    world.store.create_topic("t", partition_count=2)
    world.append("t")
    read: list[Spot] = []
    for _ in range(12):
        world.clock.advance(600)
        words = told.words
        found = take()
        assert "lost" in told.words or not found, words
        read += found
    assert told.words[-2:] == ["lost", "assigned"]
    assert {partition for _, partition, offset in read if offset == 0} == {partition for _, partition, _ in read}
    for number in range(2):
        offset = world.store.offsets.position("g", ("t", number))
        assert offset is None or offset <= sum(each[1] == number for each in read)


class Iterating(Told):
    """A listener that reads on by itself."""

    consumer: Consumer
    read: list[Spot]

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        super().on_partitions_assigned(assigned)
        if len(self.told) > 1:
            self.read += [spot(next(self.consumer)), spot(next(iter(self.consumer)))]


def test_a_listener_that_iterates_between_two_records_of_an_iteration_gets_the_next_ones(world: World) -> None:
    listener = Iterating()
    listener.read = []
    listener.consumer = consumer = world.plain(listener)
    for number, record in enumerate(consumer):
        listener.read.append(spot(record))
        world.clock.advance(1_000)
        if number == 3:
            world.store.create_topic("t2")
            world.append("t2")
    assert listener.words.count("assigned") >= 2
    assert sorted(listener.read) == [(*each, offset) for each in (("t", 0), ("t", 1), ("t2", 0)) for offset in range(RECORDS)]
