"""Reading, seeking, pausing, appending, trimming and cutting in any order, against a reference of some lines."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import Durability, TopicPartition
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem

PLACES = [TopicPartition("t", number) for number in range(3)]


class Model:
    """What is in each partition, and where the consumer is in it. A poll chooses what it hands out, but hands none out twice.

    What was fetched before a trim may come afterwards, as from Kafka's consumer; whether it was fetched the model does not know.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.starts = dict.fromkeys(PLACES, 0)
        self.values: dict[TopicPartition, list[int]] = {place: [] for place in PLACES}  # from offset 0 on
        self.positions: dict[TopicPartition, int | None] = dict.fromkeys(PLACES)
        self.paused: set[TopicPartition] = set()
        self.overtaken: set[TopicPartition] = set()  # the log's start has passed the position, and records may have been fetched

    def end(self, place: TopicPartition) -> int:
        return len(self.values[place])

    def settled(self, place: TopicPartition) -> int:
        """The position from which the partition is read when its turn comes."""
        position = self.positions[place]
        if position is None or not self.starts[place] <= position <= self.end(place):
            return self.starts[place] if self.policy == "earliest" else self.end(place)
        return position

    def left(self, place: TopicPartition) -> int:
        return 0 if place in self.paused else self.end(place) - self.settled(place)

    def may_come(self) -> bool:
        """Whether records may come even if none are left."""
        return not self.overtaken <= self.paused

    def trim(self, place: TopicPartition, start: int) -> None:
        position = self.positions[place]
        if position is not None and self.starts[place] <= position < start:
            self.overtaken.add(place)
        self.starts[place] = start

    def move(self, place: TopicPartition, position: int) -> None:
        self.overtaken.discard(place)
        self.positions[place] = position

    def take(self, place: TopicPartition, offsets: list[int], values: list[int]) -> None:
        assert place not in self.paused
        known, first = self.positions[place], self.settled(place)
        if place in self.overtaken and offsets[0] == known:
            first = known
        assert offsets == list(range(first, first + len(offsets)))
        assert values == self.values[place][first : first + len(offsets)]
        self.positions[place] = first + len(offsets)
        if first + len(offsets) >= self.starts[place]:
            self.overtaken.discard(place)


class Machine:
    """A consumer beside the model. Segments hold a few records; a frame of Arrow is a few segments."""

    def __init__(self, policy: str) -> None:
        self.model = Model(policy)
        self.store = pylog.open("/s", fs=MemoryFileSystem(), clock=ManualClock(10**12), durability=Durability.OS)
        self.store.create_topic("t", partition_count=3, segment_bytes=300, index_interval_bytes=0)
        self.consumer = self.store.consumer(auto_offset_reset=policy, consumer_timeout_ms=0, fetch_max_bytes=400)
        self.consumer.assign(PLACES)

    def append(self, place: TopicPartition, count: int) -> None:
        end = self.model.end(place)
        for number in range(end, end + count):
            self.store.log(*place).append(b"%d" % (1_000 * place.partition + number))
            self.model.values[place].append(1_000 * place.partition + number)

    def trim(self, place: TopicPartition, count: int) -> None:
        before = min(self.model.starts[place] + count, self.model.end(place))
        self.store.log(*place).delete_records(before)
        self.model.trim(place, before)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.consumer.seek(place, offset)
        self.model.move(place, offset)

    def seek_to_end(self, place: TopicPartition, _: int) -> None:
        self.consumer.seek_to_end(place)
        self.model.move(place, self.model.end(place))

    def pause(self, place: TopicPartition, _: int) -> None:
        self.consumer.pause(place)
        self.model.paused.add(place)

    def resume(self, place: TopicPartition, _: int) -> None:
        self.consumer.resume(place)
        self.model.paused.discard(place)

    def poll(self, _: TopicPartition, count: int) -> None:
        wanted = count or 500
        left, more = sum(map(self.model.left, PLACES)), self.model.may_come()
        found = self.consumer.poll(max_records=wanted)
        assert sum(map(len, found.values())) <= wanted
        assert found if left else (more or not found)
        for place, records in found.items():
            self.model.take(place, [record.offset for record in records], [int(record.value or b"") for record in records])

    def poll_arrow(self, _: TopicPartition, count: int) -> None:
        left, more = sum(map(self.model.left, PLACES)), self.model.may_come()
        found = self.consumer.poll_arrow(max_records=count or None)
        assert found if left else (more or not found)
        for place, frame in found.items():
            self.model.take(place, frame.column("offset").to_pylist(), list(map(int, frame.column("value").to_pylist())))

    def iterate(self, _: TopicPartition, count: int) -> None:
        """Leaves the loop half way."""
        left, more = sum(map(self.model.left, PLACES)), self.model.may_come()
        seen = 0
        with contextlib.suppress(StopIteration):
            for _ in range(count):
                record = next(self.consumer)
                self.model.take(TopicPartition(record.topic, record.partition), [record.offset], [int(record.value or b"")])
                seen += 1
        assert seen >= min(count, left) if more else seen == min(count, left)

    def check(self, *, polled: bool) -> None:
        """The position is where it was left or, once its turn has come, where the policy says."""
        for place in PLACES:
            known = self.model.positions[place]
            if known is not None or polled:
                position = self.consumer.position(place)
                assert position in ([known, self.model.settled(place)] if polled else [known])
                self.model.positions[place] = position
        assert self.consumer.paused() == self.model.paused


STEPS = st.tuples(
    st.sampled_from(
        ["append", "append", "append", "trim", "seek", "seek_to_end", "pause", "resume", "poll", "poll", "poll_arrow", "iterate"]
    ),
    st.sampled_from(PLACES),
    st.integers(0, 25),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.sampled_from(["earliest", "latest"]), st.lists(STEPS, max_size=40))
def test_in_any_order_each_record_comes_once_from_where_the_position_is(policy: str, steps: list[Any]) -> None:
    machine = Machine(policy)
    for what, place, number in steps:
        getattr(machine, what)(place, number)
        machine.check(polled=what in ("poll", "poll_arrow", "iterate"))
    machine.consumer.close()
    machine.store.close()
