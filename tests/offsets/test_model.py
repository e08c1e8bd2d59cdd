"""The store against a model of ten lines: commits, deletions, expiry, other processes, restarts, crashes, transactions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import Durability, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.log.reading.transaction_outcomes import TransactionEnd
from pylog.offsets.replay import ReplayedImage
from pylog.offsets.schema import format_offset, format_partition_key, offset_key, parse_offset, parse_partition_key
from pylog.testing import MemoryFileSystem

PLACES = [TopicPartition("t", number) for number in range(3)]
GROUPS = ["a", "b"]
MINUTE = 60_000
CONFIG = OffsetsConfig(topic_num_partitions=2, topic_segment_bytes=400, retention_minutes=1)


class Model:
    """Group → partition → offset and time of its commit."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicPartition, tuple[int, int]]] = {}

    def commit(self, group: str, offsets: dict[TopicPartition, int], now: int) -> None:
        self.groups.setdefault(group, {}).update({place: (offset, now) for place, offset in offsets.items()})

    def delete(self, group: str, places: list[TopicPartition]) -> None:
        self.groups[group] = {place: each for place, each in self.groups.get(group, {}).items() if place not in places}

    def expire(self, now: int) -> None:
        for group, offsets in self.groups.items():
            self.delete(group, [place for place, (_, time) in offsets.items() if now - time >= MINUTE])

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        return {place: offset for place, (offset, _) in self.groups.get(group, {}).items()}


STEPS = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.dictionaries(st.sampled_from(PLACES), st.integers(0, 5))),
    st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.none() | st.lists(st.sampled_from(PLACES), max_size=2)),
    st.tuples(st.sampled_from(["wait", "expire", "reopen", "kill", "crash"]), st.none(), st.none()),
)


class Machine:
    """Two stores on one disk in memory, and the model."""

    def __init__(self) -> None:
        self.clock, self.model = ManualClock(10 * MINUTE), Model()
        fs = MemoryFileSystem(clock=self.clock)
        with pylog.open("/s", fs=fs, clock=self.clock) as store:
            store.create_topic("t", partition_count=3)
            for number in range(3):
                store.log("t", number).append_many([b"x"] * 5)
        self.views = [fs, fs.process()]
        self.stores = [self.opened(view) for view in self.views]

    def opened(self, view: MemoryFileSystem, mode: str = "rw") -> pylog.Store:
        return pylog.open("/s", mode, fs=view, clock=self.clock, offsets=CONFIG, durability=Durability.SYNC)

    def commit(self, who: int, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.stores[who].offsets.commit(group, offsets)
        self.model.commit(group, offsets, self.clock.now_ms())

    def delete(self, who: int, group: str, places: list[TopicPartition] | None) -> None:
        self.stores[who].offsets.delete(group, places)
        self.model.delete(group, PLACES if places is None else places)

    def wait(self, *_: object) -> None:
        self.clock.advance(25_000)

    def expire(self, who: int, *_: object) -> None:
        self.stores[who].offsets.expire()
        self.model.expire(self.clock.now_ms())

    def reopen(self, who: int, *_: object) -> None:
        self.stores[who].close()
        self.stores[who] = self.opened(self.views[who])

    def kill(self, who: int, *_: object) -> None:
        self.views[who].kill()
        self.views[who] = self.views[1 - who].process()
        self.stores[who] = self.opened(self.views[who])

    def crash(self, *_: object) -> None:
        after = self.views[0].crash()
        self.views = [after, after.process()]
        self.stores = [self.opened(view) for view in self.views]

    def check(self, store: pylog.Store) -> None:
        found = {name: {place: kept.offset for place, kept in store.offsets.fetch(name).items()} for name in GROUPS}
        assert found == {name: self.model.offsets(name) for name in GROUPS}


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), STEPS), max_size=25))
def test_two_processes_and_a_reader_agree_with_the_model(steps: list[tuple[int, tuple[str, Any, Any]]]) -> None:
    machine = Machine()
    for who, (what, *arguments) in steps:
        getattr(machine, what)(who, *arguments)
        for store in machine.stores:
            machine.check(store)
    with machine.opened(machine.views[0].process(), "r") as reading:
        machine.check(reading)
    for store in machine.stores:
        store.close()


# ---- transactions ------------------------------------------------------------------------------------------------------------

PRODUCERS = [-1, 1, 2]
KINDS = ["commit", "commit", "delete", "end"]
EVENTS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(PRODUCERS), st.sampled_from(PLACES), st.booleans()))


def replayed(events: list[tuple[str, int, TopicPartition, bool]]) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Kafka's rules, one event after the other: committed (the offset is the record's own) and pending."""
    committed: dict[TopicPartition, int] = {}
    pending: dict[int, dict[TopicPartition, int]] = {}
    for offset, (what, producer, place, commits) in enumerate(events):
        if what == "delete":
            committed.pop(place, None)
            for entries in pending.values():
                entries.pop(place, None)
        elif what == "end":
            for ended, record in pending.pop(producer, {}).items():
                if commits and committed.get(ended, -1) < record:
                    committed[ended] = record
        elif producer < 0:
            committed[place] = offset
        else:
            pending.setdefault(producer, {})[place] = offset
    return committed, {place for entries in pending.values() for place in entries}


@given(EVENTS, st.lists(st.integers(0, 60), max_size=4))
def test_transactions_are_replayed_as_kafka_does_in_whichever_portions_they_come(
    events: list[tuple[str, int, TopicPartition, bool]], cuts: list[int]
) -> None:
    image = ReplayedImage()
    bounds = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    for first, end in pairwise(bounds):
        part = [(number, *events[number]) for number in range(first, end)]
        rows = [(n, place, what, producer) for n, what, producer, place, _ in part if what != "end"]
        frame = pa.record_batch(
            {
                "offset": pa.array([n for n, *_ in rows], pa.int64()),
                "key": pa.array([offset_key(b"g", format_partition_key(place)) for _, place, _, _ in rows], pa.binary()),
                "value": pa.array(
                    [None if what == "delete" else format_offset(n, b"", None, 0) for n, _, what, _ in rows], pa.binary()
                ),
                "producer_id": pa.array([-1 if what == "delete" else producer for _, _, what, producer in rows], pa.int64()),
            }
        )
        image.replay([frame], [TransactionEnd(n, producer, commits) for n, what, producer, _, commits in part if what == "end"])
    group = image.groups.get(b"g")
    entries = {} if group is None else group.entries
    found = {parse_partition_key(place): parse_offset(entry.value).committed.offset for place, entry in entries.items()}
    assert (found, set(map(parse_partition_key, image.pending_of(b"g")))) == replayed(events)
