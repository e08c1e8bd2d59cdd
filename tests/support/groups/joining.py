"""Members of a group on one store and one clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.groups.member import GroupMember, PartitionsRevoked, RebalanceEvent
from pylog.groups.member_options import MemberOptions
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.groups.members import heartbeat_of, member_of

PROBE_MS, HEARTBEAT_MS = 250, 3_000
T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
Joining = Callable[..., GroupMember]


def settled(*members: GroupMember) -> list[RebalanceEvent]:
    """Polls all until nothing is left to do, giving up what is to be given up. What was told, in order."""
    told: list[RebalanceEvent] = []
    quiet = 0
    while quiet < len(members):
        quiet = 0
        for member in members:
            event = member.poll()
            if isinstance(event, PartitionsRevoked):
                member.acknowledge_revocation(event.partitions)
            if event is None:
                quiet += 1
            else:
                told.append(event)
        assert len(told) < 100
    return told


def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def store(fs: MemoryFileSystem, clock: ManualClock) -> Iterator[Store]:
    """With a topic of four partitions, ten records in each."""
    with pylog.open("/s", fs=fs, clock=clock, offsets=OffsetsConfig(topic_num_partitions=2)) as made:
        made.create_topic("t", partition_count=4)
        for number in range(4):
            made.log("t", number).append_many([b"x"] * 10)
        yield made


def joining(store: Store) -> Iterator[Joining]:
    """Makes members of a group, that subscribe to a topic: `joining("t", group_instance_id="i")`."""
    made: list[GroupMember] = []

    def join(*topics: str, group: str = "g", **options: Any) -> GroupMember:
        member = member_of(store, group, MemberOptions(**{"assignors": ("sticky",), **options}))
        member.subscribe(topics or ["t"])
        made.append(member)
        return member

    yield join
    for member in made:
        member.leave()


def dies(member: GroupMember) -> None:
    """The sign by which others recognise an ended process: its lock."""
    heartbeat = heartbeat_of(member)
    assert heartbeat is not None
    heartbeat.end()


def fenced(clock: ManualClock, observer: GroupMember, *, ms: int) -> None:
    """Lets time go by for an observer that polls all the while."""
    for _ in range(ms // HEARTBEAT_MS + 2):
        clock.advance(HEARTBEAT_MS)
        settled(observer)
