"""Consumers of a group in random courses, beside everything else that happens to their topic, against a model in plain Python.

The steps: records without a timestamp, of the past and the future; a clock that stands, jumps and goes back; ticks; options that
another store alters; retention, deletion of records, compaction; the topic deleted and made again; stores that are closed and
opened again; polls and iteration.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import pylog
from pylog import Consumer, OffsetsConfig, TopicPartition
from pylog.testing import MemoryFileSystem
from support.campaign.crashing import WallClock

NOW, HOUR, STEPS, COURSES = 1_700_000_000_000, 3_600_000, 120, int(os.environ.get("PYLOG_TIMES", "1")) * 6
PLACES = [TopicPartition("t", number) for number in range(3)]
OPTIONS: dict[str, list[Any]] = {
    "retention_ms": [-1, HOUR, 50 * HOUR],
    "retention_bytes": [-1, 600, 5000],
    "segment_bytes": [200, 700],
    "cleanup_policy": ["delete", "compact", "compact,delete"],
    "message_timestamp_type": ["CreateTime", "LogAppendTime"],
    "retention_group": [None, "g"],
}


class Course:
    """Two stores of a directory, the consumers of the group "g", and what must be true of them.

    Attributes:
        sent: by partition, the records that were acknowledged, as keys and values by offset.
        committed: by partition, what the group has committed.
        positions: by consumer and partition, the offset after the last record that it was given.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.clock = rng, WallClock(NOW)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.stores = [self.opened(), self.opened()]
        self.consumers: list[tuple[int, Consumer]] = []
        self.positions: dict[int, dict[TopicPartition, int]] = {}
        self.made()

    def opened(self) -> pylog.Store:
        few = OffsetsConfig(topic_num_partitions=1)
        return pylog.open("/s", fs=self.fs, clock=self.clock, offsets=few, durability=pylog.Durability.OS)

    def made(self) -> None:
        self.any_store().create_topic("t", partition_count=len(PLACES), segment_bytes=200, min_cleanable_dirty_ratio=0.0)
        self.sent: dict[TopicPartition, dict[int, tuple[bytes, bytes]]] = {place: {} for place in PLACES}
        self.committed: dict[TopicPartition, int] = {}

    def any_store(self) -> pylog.Store:
        return self.rng.choice(self.stores)

    # ---- steps -----------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.rng.choice(STEPS_OF_A_COURSE)(self)
        now = {place: self.stores[0].offsets.position("g", place) for place in PLACES}
        for place, offset in self.committed.items():
            assert (now[place] or 0) >= offset, "what is committed never goes back"
        self.committed = {place: offset for place, offset in now.items() if offset is not None}

    def append(self) -> None:
        place = self.rng.choice(PLACES)
        key, value = b"k%d" % self.rng.randrange(4), b"%d" % self.rng.randrange(10**6)
        timestamp = self.rng.choice([-1, self.clock.now_ms(), self.clock.now_ms() - 60 * HOUR, self.clock.now_ms() + HOUR // 2])
        offset = self.any_store().log(*place).append(value, key=key, timestamp=timestamp)
        assert offset == max(self.sent[place], default=-1) + 1
        self.sent[place][offset] = key, value

    def move_clock(self) -> None:
        self.clock.advance(self.rng.choice([0, 1, 4_000, 40_000, HOUR]))

    def set_clock_back(self) -> None:
        self.clock.set_back(self.rng.choice([1, HOUR]))

    def tick(self) -> None:
        self.any_store().tick()

    def alter(self) -> None:
        name = self.rng.choice(sorted(OPTIONS))
        self.any_store().alter_topic("t", **{name: self.rng.choice(OPTIONS[name])})

    def delete_records(self) -> None:
        store, place = self.any_store(), self.rng.choice(PLACES)
        log = store.log(*place)
        if "delete" in store.topic("t").config.cleanup_policy:
            log.delete_records(self.rng.randint(log.start_offset, log.end_offset))

    def compact(self) -> None:
        store = self.any_store()
        if "compact" in store.topic("t").config.cleanup_policy:
            store.compact("t")

    def make_again(self) -> None:
        for _, consumer in self.consumers:
            consumer.close()
        self.consumers.clear()
        self.any_store().delete_topic("t")
        self.made()
        for store in self.stores:  # the one that did not delete it may have the old logs, and says so
            for place in PLACES:
                with contextlib.suppress(pylog.UnknownTopicOrPartitionError):
                    store.log(*place).flush()
                    store.log(*place).delete_records(0)
        assert all(store.offsets.position("g", place) is None for store in self.stores for place in PLACES)

    def reopen(self) -> None:
        at = self.rng.randrange(2)
        self.stores[at].close()
        self.consumers = [(store, each) for store, each in self.consumers if store != at]
        self.stores[at] = self.opened()

    def join(self) -> None:
        if len(self.consumers) < 4:
            at = self.rng.randrange(2)
            options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": 0}
            consumer = self.stores[at].consumer("t", max_poll_records=self.rng.choice([1, 3, 500]), **options)
            self.consumers.append((at, consumer))
            self.positions[id(consumer)] = {}

    def leave(self) -> None:
        if self.consumers:
            self.consumers.pop(self.rng.randrange(len(self.consumers)))[1].close()

    def poll(self) -> None:
        if self.consumers:
            consumer = self.rng.choice(self.consumers)[1]
            for place, records in consumer.poll().items():
                self.check(consumer, place, records)
            self.forget(consumer)

    def iterate(self) -> None:
        if self.consumers:
            consumer = self.rng.choice(self.consumers)[1]
            for record in itertools.islice(consumer, self.rng.randint(1, 5)):
                self.check(consumer, TopicPartition(record.topic, record.partition), [record])
            self.forget(consumer)

    def commit(self) -> None:
        if self.consumers:
            consumer = self.rng.choice(self.consumers)[1]
            try:
                consumer.commit()
            except pylog.FencedMemberError:
                return
            for place in consumer.assignment():
                at = self.positions[id(consumer)].get(place)
                assert at is None or (self.stores[0].offsets.position("g", place) or 0) >= at

    # ---- what must be true -----------------------------------------------------------------------------------------------

    def forget(self, consumer: Consumer) -> None:
        known = self.positions[id(consumer)]
        for place in known.keys() - consumer.assignment():
            del known[place]

    def check(self, consumer: Consumer, place: TopicPartition, records: list[Any]) -> None:
        """Records come in order, unaltered, from the position or from what is committed on; none that is there is left out."""
        known = self.positions[id(consumer)]
        starts = {known.get(place, 0), self.committed.get(place, 0)}
        told = place, starts, records[0], self.sent[place], self.stores[0].log(*place), self.stores[0].topic("t").config.changed()
        assert any(self.may_skip(place, start, records[0].offset) for start in starts), told
        at = records[0].offset
        for record in records:
            assert self.may_skip(place, at, record.offset), (place, at, record)
            assert self.sent[place][record.offset] == (record.key, record.value)
            at = record.offset + 1
        known[place] = at

    def may_skip(self, place: TopicPartition, start: int, end: int) -> bool:
        """Whether each record between is deleted, or may have been compacted away."""
        sent, first = self.sent[place], self.stores[0].log(*place).start_offset
        later = {key for offset, (key, _) in sent.items() if offset >= end}
        for offset in range(end - 1, start - 1, -1):
            if offset >= first and sent[offset][0] not in later:
                return False
            later.add(sent[offset][0])
        return start <= end

    def settle(self) -> None:
        """A last consumer alone gets everything that is there and not committed."""
        for _, consumer in self.consumers:
            consumer.close()
        last = self.stores[0].consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
        self.positions[id(last)] = {}
        got: dict[TopicPartition, list[int]] = {place: [] for place in PLACES}
        for _ in range(60):
            for place, records in last.poll().items():
                self.check(last, place, records)
                got[place] += [record.offset for record in records]
            self.clock.advance(3_000)
        for place in PLACES:
            log = self.stores[1].log(*place)
            start = max(log.start_offset, self.committed.get(place, 0))
            assert got[place] == [record.offset for record in log.records(start)]
        for store in self.stores:
            store.close()


STEPS_OF_A_COURSE: list[Callable[[Course], None]] = [
    *[Course.append, Course.poll] * 6,
    *[Course.iterate, Course.commit] * 3,
    *[Course.move_clock, Course.tick, Course.alter, Course.join] * 2,
    *[Course.set_clock_back, Course.delete_records, Course.compact, Course.leave, Course.reopen],
    Course.make_again,
]


@pytest.mark.sampled(6)
@pytest.mark.pair(
    "groups",
    "timestamps",
    "retention by time",
    "retention by size",
    "compaction",
    "delete_records",
    "option change",
    "LogAppendTime",
)
@pytest.mark.parametrize("seed", range(COURSES))
def test_a_group_reads_each_record_that_is_there_in_order_whatever_happens_to_its_topic(seed: int) -> None:
    course = Course(random.Random(seed))
    for _ in range(STEPS):
        course.step()
    course.settle()
