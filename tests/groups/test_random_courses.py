"""Members in random courses, with appends that fail before and after they are written: what each is told agrees with the log."""

from __future__ import annotations

import random
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.groups.assignors import ASSIGNORS
from pylog.groups.member import PartitionsAssigned, PartitionsLost, PartitionsRevoked, RebalanceEvent
from pylog.groups.member_options import MemberOptions
from pylog.offsets.partition import OffsetsPartition
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.groups.members import group_state_of, heartbeat_of, member_of

PARTITIONS, STEPS, COURSES = 5, 150, 16
ALL = {TopicPartition("t", number) for number in range(PARTITIONS)}


class Consumer:
    """What a consumer does with a member: it reads one record of each partition at a time, and commits now and then."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        options = MemberOptions(
            assignors=tuple(rng.sample(sorted(ASSIGNORS), 4)),
            group_instance_id=f"i{rng.randint(0, 1)}" if rng.random() < 0.2 else None,
            session_timeout_ms=20_000,
        )
        self.is_static = options.group_instance_id is not None
        self.member = member_of(store, "g", options)
        self.member.subscribe(["t"])
        self.positions: dict[TopicPartition, int] = {}

    def poll(self) -> bool:
        """One poll, and what it asks for. Whether anything was told."""
        event = self.member.poll()
        try:
            self.follow(event)
        finally:
            for place in self.positions.keys() - self.member.assignment:
                del self.positions[place]
        assert self.positions.keys() == self.member.assignment
        return event is not None

    def follow(self, event: RebalanceEvent | None) -> None:
        if isinstance(event, PartitionsRevoked):
            try:
                self.commit(event.partitions)
            finally:
                self.member.acknowledge_revocation(event.partitions)
        elif isinstance(event, PartitionsAssigned):
            assert not event.partitions.keys() & self.positions.keys()
            self.positions |= {place: 0 if each is None else each.offset for place, each in event.partitions.items()}
        elif isinstance(event, PartitionsLost):
            assert event.partitions <= self.positions.keys()

    def commit(self, places: Any) -> None:
        self.member.commit({place: self.positions[place] for place in places})

    def work(self) -> None:
        for place in self.positions:
            self.positions[place] = min(1000, self.positions[place] + 1)
        self.commit(self.positions)

    def dies(self) -> None:
        heartbeat = heartbeat_of(self.member)
        if heartbeat is not None:
            heartbeat.end()


class Course:
    """A group, and what happens to it."""

    def __init__(self, store: Store, clock: ManualClock, rng: random.Random) -> None:
        self.store, self.clock, self.rng = store, clock, rng
        self.consumers: list[Consumer] = []
        self.committed: dict[TopicPartition, int] = {}

    def step(self) -> None:
        what = self.rng.random()
        if not self.consumers or what < 0.06:
            self.consumers.append(Consumer(self.store, self.rng))
        elif what < 0.1 and len(self.consumers) > 1:
            gone = self.consumers.pop(self.rng.randrange(len(self.consumers)))
            self.tried(gone.dies if self.rng.random() < 0.5 else gone.member.leave)
        elif what < 0.3:
            self.clock.advance(self.rng.choice([250, 3000, 9000]))
        else:
            consumer = self.rng.choice(self.consumers)
            self.tried(consumer.poll if self.rng.random() < 0.7 else consumer.work)
        self.check()

    @staticmethod
    def tried(action: Any) -> None:
        try:
            action()
        except (pylog.FencedMemberError, pylog.UnreleasedInstanceIdError, pylog.StorageFailedError):
            return  # the next poll says what has become of it

    def check(self) -> None:
        """No partition has two owners in the log, and what is committed never goes back."""
        now = {place: each.offset for place, each in self.store.offsets.fetch("g").items()}
        assert all(now[place] >= offset for place, offset in self.committed.items())
        self.committed = now
        for consumer in self.consumers:
            state = group_state_of(consumer.member)
            owned = [place for member in state.members.values() for place in member.owned]
            assert len(owned) == len(set(owned))

    def settle(self) -> None:
        """When nothing fails any more, those who live have everything between them."""
        for consumer in list(self.consumers):
            if consumer.is_static:
                self.consumers.remove(consumer)
                consumer.dies()
        self.consumers.append(Consumer(self.store, random.Random(1)))
        while self.consumers[-1].is_static:
            self.consumers[-1] = Consumer(self.store, self.rng)
        for _ in range(20):  # static members stay for their session timeout
            self.clock.advance(3000)
            while sum(consumer.poll() for consumer in self.consumers):
                self.check()
        readers = [place for consumer in self.consumers for place in consumer.member.assignment]
        assert sorted(readers) == sorted(ALL)
        for consumer in self.consumers:
            consumer.work()
            consumer.member.leave()


def unreliable(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    append = OffsetsPartition.append

    def sometimes(*given: Any, **how: Any) -> None:
        fate = rng.random()
        if fate < 0.03:
            raise pylog.StorageFailedError("nothing was written")
        append(*given, **how)
        if fate > 0.97:
            raise pylog.StorageFailedError("it was written, and nobody can tell")

    monkeypatch.setattr(OffsetsPartition, "append", sometimes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(COURSES))
def test_whatever_happens_partitions_have_one_owner_and_all_of_them_have_one_in_the_end(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, clock = random.Random(seed), ManualClock(1_700_000_000_000)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t", partition_count=PARTITIONS)
        for number in range(PARTITIONS):
            store.log("t", number).append_many([b"x"] * 1000)
        course = Course(store, clock, rng)
        with monkeypatch.context() as patch:
            if seed % 2:
                unreliable(rng, patch)
            for _ in range(STEPS):
                course.step()
        course.settle()
