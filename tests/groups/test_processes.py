"""Groups of real processes: they join, leave, are killed and stopped, and what a member was told of its partitions holds."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.clock import SystemClock
from pylog.groups.member import GroupMember, PartitionsRevoked
from pylog.groups.member_options import MemberOptions
from pylog.store import Store
from support.faults.neighbours import Neighbour
from support.groups.members import member_of

PARTITIONS = 6
ALL = {TopicPartition("t", number) for number in range(PARTITIONS)}
CLOCK = SystemClock()
RECORDS = 5000
SETUP = """
import pylog
from support.groups.members import member_of
from pylog.groups.member import MemberOptions, PartitionsRevoked, PartitionsAssigned, PartitionsLost
store = pylog.open(path, durability=pylog.Durability.OS)
member, lost, committed, refused, position = None, [], 0, 0, {}

def step():
    '''One turn of a consumer: what it is told, then one more record of each partition, though never its last 1,000, committed.'''
    global committed, refused
    event = member.poll()
    if isinstance(event, PartitionsRevoked):
        commit(event.partitions)
        member.acknowledge_revocation(event.partitions)
    elif isinstance(event, PartitionsAssigned):
        position.update({place: each.offset if each else 0 for place, each in event.partitions.items()})
    elif isinstance(event, PartitionsLost):
        lost.extend(event.partitions)
    for place in member.assignment:
        position[place] = min(position[place] + 1, records - 1000)
    commit(member.assignment)
    return event is not None

def commit(places):
    global committed, refused
    try:
        member.commit({place: position[place] for place in places})
        committed += 1
    except pylog.FencedMemberError:
        refused += 1
"""
JOIN = """
member = member_of(store, "g", MemberOptions(session_timeout_ms=session_ms, heartbeat_interval_ms=heartbeat_ms))
member.subscribe(["t"])
step()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=1), durability=pylog.Durability.OS) as store:
        store.create_topic("t", partition_count=PARTITIONS)
        for number in range(PARTITIONS):
            store.log("t", number).append_many([b"x"] * RECORDS)
    return tmp_path / "s"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with pylog.open(path, durability=pylog.Durability.OS) as opened:
        yield opened


@pytest.fixture(scope="module")
def interpreters() -> Iterator[list[Neighbour]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Neighbour()) for _ in range(3)]


@pytest.fixture
def others(interpreters: list[Neighbour], path: Path) -> Iterator[list[Neighbour]]:
    """Three other processes, ready to join. One that a test kills it takes out of the list."""
    for each in interpreters:
        each.begin(SETUP, path=str(path), records=RECORDS)
    for each in interpreters:
        each.answer()
    yield interpreters
    for each in interpreters:
        each.run("member.leave() if member else None; store.close()")


def join(other: Neighbour, session_ms: int = 45_000, heartbeat_ms: int = 3_000) -> None:
    other.run(JOIN, session_ms=session_ms, heartbeat_ms=heartbeat_ms)


def assignment(other: Neighbour) -> set[TopicPartition]:
    return {TopicPartition(*place) for place in other.run("sorted(tuple(place) for place in member.assignment)")}


def settled(*others: Neighbour) -> None:
    """Steps until nothing happens any more for long enough to notice the dead."""
    quiet_since = CLOCK.monotonic()
    while CLOCK.monotonic() - quiet_since < 0.6:
        if sum(each.run("step()") for each in others):
            quiet_since = CLOCK.monotonic()


@pytest.mark.slow
def test_members_join_and_leave_and_every_partition_has_one_reader(others: list[Neighbour]) -> None:
    one, two, three = others
    for each in others:
        join(each)
    settled(*others)
    assert [len(assignment(each)) for each in others] == [2, 2, 2]
    two.run("member.leave()")
    settled(one, three)
    assert [len(assignment(each)) for each in (one, three)] == [3, 3]
    join(two)
    settled(*others)
    assert set().union(*map(assignment, others)) == ALL
    assert [len(assignment(each)) for each in others] == [2, 2, 2]
    assert one.run("refused, lost") == (0, [])


@pytest.mark.slow
def test_a_process_stopped_for_longer_than_its_session_timeout_commits_nothing_more(
    store: Store, others: list[Neighbour]
) -> None:
    stopped, goes_on, _ = others
    join(stopped, session_ms=500, heartbeat_ms=50)
    join(goes_on, session_ms=500, heartbeat_ms=50)
    settled(stopped, goes_on)
    had = assignment(stopped)
    assert len(had) == PARTITIONS // 2
    os.kill(stopped.pid, signal.SIGSTOP)
    while len(assignment(goes_on)) < PARTITIONS:
        goes_on.run("step()")
    before = {place: each.offset for place, each in store.offsets.fetch("g").items()}
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.run("for place in position: position[place] += 1000")
    stopped.run("commit(member.assignment)")
    assert stopped.run("refused") == 1
    assert {place: each.offset for place, each in store.offsets.fetch("g").items()} == before
    stopped.run("step()")
    assert {TopicPartition(*place) for place in stopped.run("sorted(tuple(place) for place in lost)")} == had
    settled(stopped, goes_on)
    assert [len(assignment(each)) for each in (stopped, goes_on)] == [3, 3]


@pytest.mark.slow
def test_committed_offsets_never_go_back_whatever_happens_to_members_and_a_killed_ones_partitions_move_within_two_seconds(
    store: Store, others: list[Neighbour]
) -> None:
    """Each member reads on from where the group is and commits: with one reader at a time committed offsets only grow."""
    rng = random.Random(3)
    watcher = member_of(store, "g", MemberOptions())
    watcher.subscribe(["t"])
    position: dict[TopicPartition, int] = {}
    last: dict[TopicPartition, int] = {}
    for each in others:
        join(each)
    for turn in range(120):
        if turn == 30:
            killed(others, position, watcher)
        elif turn == 60:
            others[0].run("member.leave()")
            join(others[0])
        elif turn == 90:
            others[1].run("member = None")  # it is forgotten without a word
            join(others[1])
        for each in rng.sample(others, 2):
            each.run("step()")
        step(watcher, position)
        now = {place: each.offset for place, each in store.offsets.fetch("g").items()}
        assert all(now[place] >= offset for place, offset in last.items())
        last = now
    assert len(last) == PARTITIONS
    assert [each.run("refused") for each in others] == [0, 0]
    watcher.leave()


def killed(others: list[Neighbour], position: dict[TopicPartition, int], watcher: GroupMember) -> None:
    """One of them dies, and the rest have its partitions within two seconds."""
    settled(*others)
    others.pop().kill()
    began = CLOCK.monotonic()
    while set(watcher.assignment).union(*map(assignment, others)) != ALL:
        step(watcher, position)
        for each in others:
            each.run("step()")
    assert CLOCK.monotonic() - began < 2


def step(member: GroupMember, position: dict[TopicPartition, int]) -> None:
    event: Any = member.poll()
    if isinstance(event, PartitionsRevoked):
        member.commit({place: position[place] for place in event.partitions})
        member.acknowledge_revocation(event.partitions)
    elif event is not None:
        position.update({place: each.offset if each else 0 for place, each in event.partitions.items()})
    for place in member.assignment:
        position[place] = min(position[place] + 1, RECORDS - 1000)
    member.commit({place: position[place] for place in member.assignment})
