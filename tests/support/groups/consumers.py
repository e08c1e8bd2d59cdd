"""Consumers that share a group on one store and one clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pylog
from pylog import Consumer, ConsumerRebalanceListener, Durability, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem

PLACES = [TopicPartition("t", number) for number in range(4)]


class Told(ConsumerRebalanceListener):
    """What a consumer was told, and what was committed then."""

    def __init__(self, store: pylog.Store) -> None:
        self.told: list[tuple[str, set[int], dict[int, int]]] = []
        self._store = store

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        self.told.append((what, {place.partition for place in partitions}, committed(self._store)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._note("lost", lost)


def committed(store: pylog.Store) -> dict[int, int]:
    return {place.partition: found.offset for place, found in store.offsets.fetch("g").items()}


def taken(*consumers: Consumer) -> list[tuple[int, int]]:
    """What all of them hand out, until there is nothing more and nothing moves."""
    seen: list[tuple[int, int]] = []
    quiet = 0
    while quiet < 3:
        found = [consumer.poll() for consumer in consumers]
        seen += [(record.partition, record.offset) for each in found for part in each.values() for record in part]
        quiet = 0 if any(found) else quiet + 1
    return seen


@contextmanager
def store_in_memory(clock: ManualClock, partitions: int, records: int) -> Iterator[pylog.Store]:
    """A store whose topic `t` has some partitions with some numbered records in each."""
    few = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock, durability=Durability.OS, offsets=few) as opened:
        opened.create_topic("t", partition_count=partitions)
        for number in range(partitions):
            opened.log("t", number).append_many([b"%d" % each for each in range(records)])
        yield opened


def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


def store(clock: ManualClock) -> Iterator[pylog.Store]:
    """A topic of four partitions with ten records in each."""
    few = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock, durability=Durability.OS, offsets=few) as opened:
        opened.create_topic("t", partition_count=4)
        for place in PLACES:
            opened.log(*place).append_many([b"x"] * 10)
        yield opened


def member(store: pylog.Store, listener: ConsumerRebalanceListener | None = None, **options: Any) -> Consumer:
    consumer = store.consumer(**{"group_id": "g", "auto_offset_reset": "earliest", "max_poll_records": 5, **options})
    consumer.subscribe(["t"], listener=listener)
    return consumer


def owned(consumer: Consumer) -> set[int]:
    return {place.partition for place in consumer.assignment()}
