"""Members of a group that are hurried: random courses of consumers whose topic is deleted, created again, trimmed and reset.

The members live in several stores of one process and in processes of their own, which are killed. They are slow, stand still,
restart with another assignor, poll and iterate, and commit in each way. The course checks each step against a model.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import pylog
from pylog import Consumer, ConsumerRebalanceListener, Durability, OffsetsConfig, Record, TopicPartition
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem

NOW, HOUR = 1_700_000_000_000, 3_600_000
TOPICS = {"t": 3, "u": 2}  # "t" is deleted and created again, "u" stays
GROUP = "g"
STAGES = [  # of rolling restarts from one assignor to the next
    ["range"],
    ["cooperative-sticky", "range"],
    ["cooperative-sticky"],
    ["sticky", "cooperative-sticky"],
    ["sticky"],
    ["roundrobin", "sticky"],
    ["roundrobin"],
]
FEW = OffsetsConfig(topic_num_partitions=1)


class Spot(NamedTuple):
    """A partition of one of the topics that had a name, one after the other."""

    birth: int
    partition: TopicPartition


class Sent:
    """The model of one partition of one topic.

    Attributes:
        values: the acknowledged records, by offset.
        handed: the offsets that some member was given.
        excused: the offsets that nobody has to be given: they were deleted before, or a reset passed over them.
        floor: the committed offset never goes below it.
        furthest: the offset after the last record that was handed out or reset to.
    """

    def __init__(self) -> None:
        self.values: dict[int, bytes] = {}
        self.handed: set[int] = set()
        self.excused: set[int] = set()
        self.floor: int | None = None
        self.furthest = 0


class Hurried(ConsumerRebalanceListener):
    """One member, and what it was told and given."""

    def __init__(self, course: Course, store: pylog.Store, name: str, options: dict[str, Any]) -> None:
        self.course, self.store, self.name, self.options = course, store, name, options
        self.process: MemoryFileSystem | None = None  # of its own
        self.held: dict[TopicPartition, Spot | None] = {}  # None: nothing was handed out since it was assigned
        self.next: dict[TopicPartition, int] = {}  # the offset after the last record of what is held
        self.late: list[tuple[Spot, int]] = []  # offsets of partitions that were lost
        self.answers: list[Future[None]] = []
        self.consumer: Consumer = store.consumer(client_id=name, group_id=GROUP, auto_offset_reset="earliest", **options)
        if course.exists["t"] and course.rng.random() < 0.7:
            self.consumer.subscribe(["t", "u"], listener=self)
        else:
            self.consumer.subscribe(pattern="[tu]$", listener=self)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        assert not assigned & self.held.keys(), "what is assigned was held already"
        self.held.update(dict.fromkeys(assigned))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        assert revoked <= self.held.keys(), "what is revoked was not held"
        if self.course.rng.random() < 0.5:
            self.course.try_commit(self, {place: self.next[place] for place in revoked if place in self.next})
        self._let_go(revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        assert lost <= self.held.keys(), "what is lost was not held"
        self._let_go(lost)

    def _let_go(self, gone: set[TopicPartition]) -> None:
        for place in gone:
            spot, offset = self.held.pop(place), self.next.pop(place, None)
            if spot is not None and offset is not None:
                self.late.append((spot, offset))

    def given(self, records: Iterable[Record], *, strictly: bool) -> None:
        for record in records:
            self.course.check_given(self, record, strictly=strictly)


class Course:
    """The stores, the members of the group, and what must be true of them."""

    def __init__(self, seed: int) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock(NOW)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.other = self.fs.process()  # has no members: it deletes, creates and resets
        self.stores = [self.opened(self.fs), self.opened(self.fs), self.opened(self.other)]
        self.members: list[Hurried] = []
        self.names = itertools.count()
        self.stage = 0
        self.static_was_left = False
        self.births = {"t": 0, "u": 0}
        self.exists = {"t": True, "u": True}
        self.sent: dict[Spot, Sent] = {}
        for topic in TOPICS:
            self.create(self.stores[0], topic)

    def opened(self, fs: MemoryFileSystem) -> pylog.Store:
        return pylog.open("/s", fs=fs, clock=self.clock, offsets=FEW, durability=Durability.OS)

    def create(self, store: pylog.Store, topic: str) -> None:
        self.births[topic] += 1
        self.exists[topic] = True
        store.create_topic(topic, partition_count=TOPICS[topic], segment_bytes=300)
        for place in self.places(topic):
            self.sent[self.spot(place)] = Sent()
            assert store.offsets.position(GROUP, place) is None, "a commit of an old topic counts for the new one"

    def places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(TOPICS[topic])]

    def present(self) -> list[TopicPartition]:
        return [place for topic in TOPICS if self.exists[topic] for place in self.places(topic)]

    def spot(self, place: TopicPartition) -> Spot:
        return Spot(self.births[place.topic], place)

    def of(self, place: TopicPartition) -> Sent:
        return self.sent[self.spot(place)]

    def some_store(self) -> pylog.Store:
        return self.rng.choice(self.stores)

    def some_member(self) -> Hurried | None:
        return self.rng.choice(self.members) if self.members else None

    # ---- the topic -------------------------------------------------------------------------------------------------------

    def append(self) -> None:
        place = self.rng.choice(self.present())
        for _ in range(self.rng.randint(1, 4)):
            value = b"%d %s %d" % (self.births[place.topic], place.topic.encode(), self.rng.randrange(10**9))
            try:
                offset = self.some_store().log(*place).append(value)
            except pylog.UnknownTopicOrPartitionError:  # the store had the log of a deleted topic, and says so once
                continue
            assert offset == len(self.of(place).values)
            self.of(place).values[offset] = value

    def delete(self) -> None:
        if self.exists["t"]:
            self.some_store().delete_topic("t")
            self.exists["t"] = False
            if self.rng.random() < 0.6:  # at once, before any member has seen it
                self.create_again()

    def create_again(self) -> None:
        if not self.exists["t"]:
            self.create(self.some_store(), "t")
            for _ in range(self.rng.randrange(3)):
                self.append()

    def trim(self) -> None:
        place, store = self.rng.choice(self.present()), self.some_store()
        with contextlib.suppress(pylog.UnknownTopicOrPartitionError):
            log = store.log(*place)
            log.delete_records(self.rng.randint(log.start_offset, log.end_offset))

    def retain(self) -> None:
        store, topic = self.some_store(), self.rng.choice([topic for topic in TOPICS if self.exists[topic]])
        store.alter_topic(topic, retention_bytes=self.rng.choice([-1, 300, 900]))
        store.tick()

    def excuse(self) -> None:
        """Nobody has to be given what was deleted."""
        for place in self.present():
            for _ in range(2):  # the store may have the log of a deleted topic, and says so once
                with contextlib.suppress(pylog.UnknownTopicOrPartitionError):
                    self.of(place).excused.update(range(self.stores[2].log(*place).start_offset))
                    break

    def pass_time(self) -> None:
        self.clock.advance(self.rng.choice([1, 300, 700, 3_000, 6_000]))

    def tick(self) -> None:
        self.some_store().tick()

    # ---- the members -----------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Any]:
        return {
            "max_poll_records": self.rng.choice([1, 3, 500]),
            "max_poll_interval_ms": self.rng.choice([5_000, 60_000]),
            "session_timeout_ms": self.rng.choice([10_000, 45_000]),
            "enable_auto_commit": self.rng.random() < 0.4,
            "auto_commit_interval_ms": 1_000,
            "consumer_timeout_ms": 0,
            "partition_assignment_strategy": STAGES[self.stage],
            "group_instance_id": self.rng.choice(["i", "j"]) if self.rng.random() < 0.25 else None,
        }

    def join(self) -> None:
        if len(self.members) < 4:
            self.joined(self.options())

    def joined(self, options: dict[str, Any]) -> Hurried:
        name, own = f"m{next(self.names)}", self.rng.random() < 0.4
        process = self.fs.process() if own else None
        store = self.opened(process) if process is not None else self.rng.choice(self.stores[:2])
        member = Hurried(self, store, name, options)
        member.process = process
        self.members.append(member)
        return member

    def parted(self, member: Hurried) -> None:
        self.members.remove(member)
        self.static_was_left |= member.options["group_instance_id"] is not None

    def leave(self) -> None:
        if member := self.some_member():
            self.left(member)

    def left(self, member: Hurried) -> None:
        self.parted(member)
        member.consumer.close(autocommit=self.rng.random() < 0.7)
        assert not member.held, "a member that has left was not told that its partitions are revoked"
        self.settled(member)
        if member.process is not None:
            member.store.close()

    def kill(self) -> None:
        """Its process has ended without leaving the group."""
        own = [member for member in self.members if member.process is not None]
        if own:
            member = self.rng.choice(own)
            self.parted(member)
            assert member.process is not None
            member.process.kill()
            self.dead(member)

    @staticmethod
    def dead(member: Hurried) -> None:
        """Lets go of the objects of a killed process, none of whose calls can reach the disk."""
        with contextlib.suppress(Exception):
            member.consumer.close(autocommit=False)
        with contextlib.suppress(Exception):
            member.store.close()

    def drop(self) -> None:
        """The program forgets a consumer without closing it."""
        plain = [member for member in self.members if member.options["group_instance_id"] is None]
        if plain:
            member = self.rng.choice(plain)
            self.members.remove(member)
            self.settled(member)
            store, process, name = member.store, member.process, member.name
            member.consumer = None  # type: ignore[assignment]
            del member, plain
            gc.collect()
            deadline = time.monotonic() + 5
            while any(each.client_id == name for each in self.described()):
                time.sleep(0.001)  # its thread leaves the group
                assert time.monotonic() < deadline, "a dropped consumer does not leave its group"
            if process is not None:
                store.close()

    def reopen(self) -> None:
        at = self.rng.randrange(2)
        gone = [member for member in self.members if member.store is self.stores[at]]
        self.stores[at].close()
        for member in gone:
            self.parted(member)
        self.stores[at] = self.opened(self.fs)

    def roll(self) -> None:
        """Rolling restarts with the next assignor: one member after the other, with work in between."""
        if self.stage < len(STAGES) - 1:
            self.stage += 1
            for member in list(self.members):
                options = member.options | {"partition_assignment_strategy": STAGES[self.stage]}
                self.left(member)
                self.joined(options)
                self.poll()
                self.append()

    # ---- reading ---------------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        if member := self.some_member():
            self.polled(member)

    def polled(self, member: Hurried) -> bool:
        with self.joining(member):
            found = member.consumer.poll()
            for records in found.values():
                member.given(records, strictly=True)
            return bool(found)
        return False

    @contextlib.contextmanager
    def joining(self, member: Hurried) -> Iterator[None]:
        """A static member may not join twice; one that was left stays for its session timeout, with its old assignors."""
        try:
            yield
        except pylog.UnreleasedInstanceIdError:
            assert sum(each.options["group_instance_id"] == member.options["group_instance_id"] for each in self.members) > 1
        except pylog.InconsistentGroupProtocolError:
            assert self.static_was_left

    def poll_arrow(self) -> None:
        if member := self.some_member():
            with self.joining(member):
                for place, frame in member.consumer.poll_arrow(max_records=self.rng.choice([1, 5, None])).items():
                    rows = zip(frame.column("offset").to_pylist(), frame.column("value").to_pylist(), strict=True)
                    member.given([Record(*place, offset, 0, None, value, ()) for offset, value in rows], strictly=True)

    def iterate(self) -> None:
        if member := self.some_member():
            slow = self.rng.choice([0, 0, 50, 700, 2_000])
            with self.joining(member):
                for record in itertools.islice(member.consumer, self.rng.randint(1, 6)):
                    member.given([record], strictly=bool(slow))
                    self.clock.advance(slow)
                    if slow and self.rng.random() < 0.3:  # the world goes on in the loop
                        self.rng.choice([self.append, self.poll, self.delete, self.trim])()
                        if member not in self.members:
                            return

    def stand_still(self) -> None:
        """In a loop, for longer than some members may; the others go on, and perhaps take its partitions over."""
        if member := self.some_member():
            with self.joining(member):
                records = iter(member.consumer)
                member.given(itertools.islice(records, self.rng.randint(1, 2)), strictly=False)
                for _ in range(9):
                    self.clock.advance(self.rng.choice([700, 1_300]))
                    for other in self.members:
                        if other is not member and other.store is not member.store:
                            self.polled(other)
                if self.rng.random() < 0.7:
                    action = self.rng.choice([self.try_commit_offsets, self.late_commit, self.background_commit])
                    action(member)
                member.given(itertools.islice(records, 2), strictly=True)

    # ---- committing ------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        if member := self.some_member():
            self.try_commit(member, None)

    def commit_offsets(self) -> None:
        if member := self.some_member():
            self.try_commit_offsets(member)

    def try_commit_offsets(self, member: Hurried) -> None:
        self.try_commit(member, {place: member.next[place] for place in member.held if place in member.next})

    def commit_async(self) -> None:
        if member := self.some_member():
            self.background_commit(member)

    def background_commit(self, member: Hurried) -> None:
        some = {place: member.next[place] for place in member.held if place in member.next}
        member.answers.append(member.consumer.commit_async(some))
        if self.rng.random() < 0.5:
            member.answers.append(member.consumer.commit_async())
        if self.rng.random() < 0.5:
            self.settled(member)

    def try_commit(self, member: Hurried, some: dict[TopicPartition, int] | None) -> None:
        old = {place for place in some or () if member.held[place] not in (None, self.now(place))}
        try:
            member.consumer.commit(some)
        except pylog.FencedMemberError:
            assert not self.owns(member, set(member.held)) or old or not member.held
        except pylog.UnknownTopicOrPartitionError:
            assert old, (some, member.held, self.births, self.exists)
        else:
            assert not old, "a commit for the records of a deleted topic was accepted"
            for place, offset in (some or {}).items():
                assert (self.stores[2].offsets.position(GROUP, place) or 0) >= offset

    def now(self, place: TopicPartition) -> Spot | None:
        return self.spot(place) if self.exists[place.topic] else None

    def commit_late(self) -> None:
        if member := self.some_member():
            self.late_commit(member)

    def late_commit(self, member: Hurried) -> None:
        """Commits what was lost."""
        if member.late:
            spot, offset = member.late.pop()
            place = spot.partition
            if place not in member.held:
                try:
                    member.consumer.commit({place: offset})
                except (pylog.FencedMemberError, pylog.UnknownTopicOrPartitionError, pylog.OffsetOutOfRangeError):
                    return
                raise AssertionError(f"a commit for {place}, which was lost, was accepted")

    @staticmethod
    def settled(member: Hurried) -> None:
        """The answers of the commits in the background are there."""
        refusals = pylog.FencedMemberError, pylog.UnknownTopicOrPartitionError, pylog.ClosedError
        for answer in member.answers:
            error = answer.exception(60)
            assert error is None or isinstance(error, refusals), error
        member.answers.clear()

    def reset(self) -> None:
        """By the group's own method or by a commit of no member: refused while a member is alive."""
        store, place = self.some_store(), self.rng.choice(self.present())
        end = len(self.of(place).values)
        offset = self.rng.randint(0, end)
        try:
            if self.rng.random() < 0.5:
                store.offsets.commit(GROUP, {place: offset})
            else:
                offset = store.group(GROUP).reset(offset, scope=[place]).offsets[place]
        except pylog.NonEmptyGroupError:
            assert self.members, "a reset was refused, and nobody is there"
            return
        except pylog.UnknownTopicOrPartitionError:
            return
        model = self.of(place)
        model.excused.update(range(offset))
        model.floor, model.furthest = offset, max(offset, model.furthest)

    # ---- what must be true -----------------------------------------------------------------------------------------------

    def described(self) -> tuple[pylog.MemberDescription, ...]:
        try:
            return self.stores[2].group(GROUP).describe().members
        except pylog.GroupIdNotFoundError:
            return ()

    def owners(self) -> dict[TopicPartition, list[str]]:
        found: dict[TopicPartition, list[str]] = {}
        for member in self.described():
            for place in member.assignment:
                found.setdefault(place, []).append(member.client_id)
        return found

    def owns(self, member: Hurried, places: set[TopicPartition]) -> bool:
        owners = self.owners()
        return all(owners.get(place) == [member.name] for place in places)

    def check_given(self, member: Hurried, record: Record, *, strictly: bool) -> None:
        place = TopicPartition(record.topic, record.partition)
        assert place in member.held, f"{place} {record.offset} was handed out to {member.name}, which does not hold it"
        spot = Spot(int((record.value or b"").split()[0]), place)
        assert member.held[place] in (None, spot), "records of two topics were handed out without a word in between"
        model = self.sent[spot]
        assert model.values[record.offset] == record.value
        if place in member.next:
            if record.offset > member.next[place]:
                self.excuse()  # records may have been deleted in this step
            missing = set(range(member.next[place], record.offset)) - model.excused
            assert not missing, f"{place} skips {sorted(missing)}"
            assert record.offset >= member.next[place], f"{place} goes back to {record.offset}"
        if strictly and spot == self.now(place):
            assert self.owns(member, {place}), (
                f"{place} is handed out to {member.name}, and its owner is {self.owners().get(place)}"
            )
        member.held[place], member.next[place] = spot, record.offset + 1
        model.handed.add(record.offset)
        model.furthest = max(model.furthest, record.offset + 1)

    def check(self) -> None:
        self.excuse()
        now = {place: found.offset for place, found in self.stores[2].offsets.fetch(GROUP).items()}
        for place, offset in now.items():
            assert self.exists[place.topic], f"{place} has a commit and does not exist"
            model = self.of(place)
            assert model.floor is None or offset >= model.floor, f"{place} goes back from {model.floor} to {offset}"
            assert offset <= max(model.furthest, max(model.excused, default=-1) + 1), (
                f"{place}: nobody was given what {offset} says"
            )
            model.floor = offset
            missed = set(range(offset)) - model.handed - model.excused
            assert not missed, f"{place}: {sorted(missed)} are committed and were handed to nobody"
        for place in self.present():
            assert self.of(place).floor is None or place in now, f"{place} has lost its commit"
        twice = {place: names for place, names in self.owners().items() if len(names) > 1}
        assert not twice, f"two owners: {twice}"

    def step(self) -> str:
        action = self.rng.choice(STEPS)
        action(self)
        self.check()
        return action.__name__

    def settle(self) -> None:
        """When nothing happens any more, those who live hand out all that is there."""
        if not self.exists["t"]:
            self.create_again()
        for member in [each for each in self.members if each.options["group_instance_id"] is not None]:
            self.left(member)
        if not self.members:
            self.joined(self.options() | {"group_instance_id": None})
        quiet = 0
        for _ in range(400):  # static members stay for their session timeout, slow ones for their poll interval
            self.clock.advance(700)
            more = [self.polled(member) for member in self.members]
            self.check()
            quiet = 0 if any(more) else quiet + 1
            if quiet > 100:
                break
        for place in self.present():
            model = self.of(place)
            missed = model.values.keys() - model.handed - model.excused
            assert not missed, f"{place}: {sorted(missed)} were handed to nobody"
        held = [place for member in self.members for place in member.held]
        assert sorted(held) == sorted(self.present())

    def end(self) -> None:
        for member in list(self.members):
            self.left(member)
        for store in self.stores:
            store.close()


STEPS: list[Callable[[Course], None]] = [
    *[Course.append, Course.poll] * 6,
    *[Course.iterate, Course.pass_time] * 4,
    *[Course.commit, Course.commit_offsets, Course.commit_async, Course.join, Course.stand_still] * 2,
    *[Course.poll_arrow, Course.tick, Course.delete, Course.create_again, Course.trim, Course.retain],
    *[Course.commit_late, Course.reset, Course.leave, Course.kill, Course.drop, Course.reopen, Course.roll],
]
