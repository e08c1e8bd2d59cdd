"""A store, its topics and two processes that use it in turn, against a model (reliability 8.1: stateful models).

The model knows times and options. Records have timestamps of the past, of the future and none. The clock moves, stands and goes
back. Options change while logs are open. Readers are kept open over everything that is done to a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.testing.models import PROCESS_DEATH, Found, LogModel, Promise
from pylog.testing.strategies import NewRecord
from support.campaign.crashing import GAP, LEVELS, ROOT, Crashing, Stored, bury, found_in, kinds, levels, parts, seeds, wrong_in
from support.campaign.readers import READERS, Kept, Place
from support.campaign.retention_model import Times, starts_allowed
from support.engines import engine_of
from support.trust.features import covers

NAMES = ["first", "second", "third"]
GROUP_OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
LARGE = 400  # bytes that only some topics take as one record

options: dict[str, st.SearchStrategy[Any]] = {
    "segment_bytes": st.sampled_from([200, 1000]),
    "retention_ms": st.sampled_from([-1, 0, 1000, 5000]),
    "retention_bytes": st.sampled_from([-1, 0, 300, 1000]),
    "max_message_bytes": st.sampled_from([LARGE, 1 << 20]),
    "cleanup_policy": st.sampled_from(["delete", "compact", "compact,delete"]),
    "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
}
others = {name: drawn for name, drawn in options.items() if name != "segment_bytes"}
always = {"segment_bytes": options["segment_bytes"], "min_cleanable_dirty_ratio": st.just(1.0)}  # a tick compacts nothing
configs = st.fixed_dictionaries(always, optional={**others, "durability": st.sampled_from(["os", "sync"])})
names = st.sampled_from(NAMES)
processes = st.sampled_from([0, 1])
numbers = st.integers(0, len(NAMES) - 1)  # of a topic that there is
shapes = st.tuples(  # of a record: which key, how many bytes more than its number (None: no value), and when
    st.integers(0, 2), st.sampled_from([None, 0, 10, 50]), st.sampled_from([None, None, -3000, 2000, 30 * 60_000, "none"])
)
batches = st.lists(shapes, min_size=1, max_size=4)
Shape = tuple[int, int | None, int | str | None]


@dataclass(frozen=True)
class TopicModel:
    """What a topic holds: its options as they stand, which topic of that name it is, and the promise of each partition."""

    config: dict[str, Any]
    promises: tuple[Promise, ...]
    number: int = 0

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.policy

    @property
    def policy(self) -> str:
        return str(self.config.get("cleanup_policy", "delete"))

    def with_promise(self, partition: int, promise: Promise) -> TopicModel:
        changed = list(self.promises)
        changed[partition] = promise
        return replace(self, promises=tuple(changed))

    def problems(self, found: list[Found], kind: str) -> list[str]:
        if len(found) != len(self.promises):
            return [f"there are {len(found)} partitions, and {len(self.promises)} were made"]
        pairs = zip(self.promises, found, strict=True)
        return [
            f"partition {number}: {told}" for number, (promise, one) in enumerate(pairs) for told in promise.problems(one, kind)
        ]

    def adopted(self, found: list[Found], kind: str) -> TopicModel:
        pairs = zip(self.promises, found, strict=True)
        return replace(self, promises=tuple(promise.adopted(one, kind) for promise, one in pairs))


World = dict[str, TopicModel]


class StoreMachine(Crashing[list[World]]):
    """What is asked for is a list of worlds: any of them may be the one that a crash in the middle leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World = {}
        self.made = 0  # topics so far, and records
        self.sent = 0
        self.times: dict[Place, Times] = {}
        self.history: dict[Place, dict[int, set[Stored]]] = {}
        self.kept: list[Kept] = []
        self.uncertain: tuple[Place, set[int]] | None = None  # committed in the last step
        self.committed: dict[Place, set[int]] = {}  # more than one offset while a crash may have taken the last one
        self.has_crashed = False
        self.stores: list[pylog.Store | None] = [None, None]
        self.process(0)

    def teardown(self) -> None:
        for store in self.stores:
            if store is not None:
                bury(store)

    def process(self, who: int) -> pylog.Store:
        """A process's store, opened on its first use."""
        store = self.stores[who]
        if store is None:
            fs = self.fs.process()
            store = self.stores[who] = pylog.open(ROOT, fs=fs, clock=self.clock, offsets=OffsetsConfig(topic_num_partitions=1))
            self.file_systems = {**getattr(self, "file_systems", {}), who: fs}
        return store

    @contextmanager
    def doing(self, asked: list[World]) -> Iterator[None]:
        self.uncertain = None
        with super().doing(asked):
            yield

    def asking(self, changed: World, call: Callable[[], Any]) -> Any:
        """A call that changes the world at once: a crash in the middle leaves it as it was, or changed."""
        with self.doing([self.world, changed]):
            result = call()
        self.world = changed
        return result

    def change(self, name: str, partition: int, asked: LogModel, call: Callable[[], Any]) -> Any:
        """A call that changes one log, whose model has been told what is asked."""
        with self.doing([self.with_promise(name, partition, asked.promise)]):
            return call()

    def with_promise(self, name: str, partition: int, promise: Promise) -> World:
        return {**self.world, name: self.world[name].with_promise(partition, promise)}

    def acknowledged(self, name: str, partition: int, model: LogModel) -> None:
        self.world = self.with_promise(name, partition, model.promise)

    def model(self, name: str, partition: int) -> LogModel:
        return LogModel(self.world[name].promises[partition])

    def existing(self, number: int) -> str:
        """The name of a topic that there is."""
        return sorted(self.world)[number % len(self.world)]

    def somewhere(self, name: str, part: float) -> int:
        """A partition of a topic."""
        return int(part * (len(self.world[name].promises) - 1))

    # ---- topics --------------------------------------------------------------------------------------------------------------

    @rule(who=processes, name=names, partitions=st.integers(1, 3), config=configs)
    def create(self, who: int, name: str, partitions: int, config: dict[str, Any]) -> None:
        def call() -> pylog.Topic:
            return self.process(who).create_topic(name, partitions, **config)

        if name in self.world:
            with pytest.raises(pylog.TopicAlreadyExistsError):
                call()
        else:
            self.made += 1
            self.asking({**self.world, name: TopicModel(config, (Promise(),) * partitions, self.made)}, call)

    @rule(who=processes, name=names)
    @covers(("scan and follow", "second process"))
    def delete(self, who: int, name: str) -> None:
        """Gone for good, also for the other process, and for whoever has its files open."""
        if name in self.world:
            held = [log_of(store, name, 0) for store in self.stores if store is not None]
            changed = {other: topic for other, topic in self.world.items() if other != name}
            for partition in range(len(self.world[name].promises)):
                self.disturb(name, partition)
            self.asking(changed, lambda: self.process(who).delete_topic(name))
            for log in held:
                with pytest.raises((pylog.UnknownTopicOrPartitionError, pylog.ClosedError)):
                    log.append(b"to nowhere", b"a key")
        else:
            with pytest.raises(pylog.UnknownTopicOrPartitionError):
                self.process(who).delete_topic(name)

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, more=st.integers(1, 2))
    def add_partitions(self, who: int, number: int, more: int) -> None:
        name = self.existing(number)
        topic = self.world[name]
        changed = replace(topic, promises=topic.promises + (Promise(),) * more)
        self.asking({**self.world, name: changed}, lambda: self.process(who).add_partitions(name, len(changed.promises)))

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, changed=st.fixed_dictionaries({}, optional=options).filter(bool))
    @covers(
        *(("option change", name) for name in ("retention by time", "retention by size", "compaction", "roll", "crash", "close")),
        *(("option change", name) for name in ("timestamps", "second process", "LogAppendTime", "scan and follow", "groups")),
    )
    def alter(self, who: int, number: int, changed: dict[str, Any]) -> None:
        """Counts from this moment on, in both processes: what comes next is judged by the options as they stand."""
        name = self.existing(number)
        topic = replace(self.world[name], config={**self.world[name].config, **changed})
        self.asking({**self.world, name: topic}, lambda: self.process(who).alter_topic(name, **changed))

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def place(self, name: str, partition: int) -> Place:
        return self.world[name].number, partition

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, part=parts, given=batches, keyed=st.sampled_from([True, True, False]), level=levels)
    @covers(("timestamps", "crash"), ("timestamps", "roll"), ("timestamps", "second process"), ("LogAppendTime", "crash"))
    def append(self, who: int, number: int, part: float, given: list[Shape], keyed: bool, level: str) -> None:
        name = self.existing(number)
        self.append_to(who, name, self.somewhere(name, part), given, level, keyed=keyed or level == "sync")

    def append_to(self, who: int, name: str, partition: int, given: list[Shape], level: str, *, keyed: bool = True) -> None:
        log, model = log_of(self.process(who), name, partition), self.model(name, partition)
        batch = [self.record(*shape, keyed=keyed) for shape in given]
        if self.world[name].is_compacted and not keyed:
            with pytest.raises(pylog.InvalidRecordError):
                log.append_many(batch, durability=LEVELS[level])
            return
        first = model.end
        stored = self.note(name, partition, first, batch)
        model.append(stored)
        offsets = self.change(name, partition, model, lambda: log.append_many(batch, durability=LEVELS[level]))
        model.acknowledge(durable=level == "sync")
        assert offsets == range(first, model.end)
        assert level != "sync" or log.durable_offset == model.end
        self.acknowledged(name, partition, model)

    def record(self, key: int, size: int | None, shift: int | str | None, *, keyed: bool) -> NewRecord:
        """One that there is only once."""
        self.sent += 1
        now = self.clock.now_ms()
        timestamp = -1 if isinstance(shift, str) else now if shift is None else now + shift
        value = None if size is None else b"%d" % self.sent + b"x" * size
        return b"k%d" % key if keyed else None, value, (), timestamp

    def note(self, name: str, partition: int, first: int, batch: list[NewRecord]) -> list[Stored]:
        """What an append will have stored, and when."""
        now, place = self.clock.now_ms(), self.place(name, partition)
        stamped = self.world[name].config.get("message_timestamp_type") == "LogAppendTime"
        stored: list[Stored] = [(key, value, (), now if stamped else timestamp) for key, value, _, timestamp in batch]
        times = self.times.setdefault(place, [])
        times[first:] = [now] * len(batch)
        for offset, record in enumerate(stored, first):
            self.history.setdefault(place, {}).setdefault(offset, set()).add(record)
        return stored

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers)
    @covers(("option change", "second process"))
    def append_large(self, who: int, number: int) -> None:
        """A record that some options allow and others do not, whichever process has set them."""
        name = self.existing(number)
        config = self.world[name].config
        if min(config.get("max_message_bytes", 1 << 20), config.get("segment_bytes", 1 << 20)) > 2 * LARGE:
            self.append_to(who, name, 0, [(0, LARGE, None)], "os")
        else:
            with pytest.raises(pylog.RecordTooLargeError):
                log_of(self.process(who), name, 0).append(b"x" * LARGE, b"k0")

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, part=parts, reach=parts)
    def delete_records(self, who: int, number: int, part: float, reach: float) -> None:
        name = self.existing(number)
        partition = self.somewhere(name, part)
        log, model = log_of(self.process(who), name, partition), self.model(name, partition)
        before = model.promise.first_start + int(reach * (model.end - model.promise.first_start))
        if "delete" not in self.world[name].policy:
            with pytest.raises(pylog.InvalidArgumentError):
                log.delete_records(before)
            return
        model.delete(before)
        self.disturb(name, partition)
        assert self.change(name, partition, model, lambda: log.delete_records(before)) == before
        model.deleted(before)
        self.acknowledged(name, partition, model)

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, part=parts, reach=parts)
    def truncate(self, who: int, number: int, part: float, reach: float) -> None:
        """At a boundary between two appends, where no batch is cut in two."""
        name = self.existing(number)
        partition = self.somewhere(name, part)
        log, model = log_of(self.process(who), name, partition), self.model(name, partition)
        ends = [model.promise.first_start, *log.split_offsets(model.promise.first_start, model.end, 1), model.end]
        end = ends[int(reach * (len(ends) - 1))]
        if end < model.end:
            model.truncate(end)
            self.disturb(name, partition)
            self.change(name, partition, model, lambda: log.truncate(end))
            model.truncated(end)
            self.acknowledged(name, partition, model)

    @rule(who=processes)
    def flush(self, who: int) -> None:
        """Of the logs that this process has open, what others appended too."""
        with self.doing([self.world]):
            self.process(who).flush()

    @rule(ms=st.sampled_from([1, 999, 1000, 5000, -1, -4000]))
    @covers(("timestamps", "retention by time"))
    def wait(self, ms: int) -> None:
        """The wall clock may go back, as when it is set; the one that waiting goes by does not. No record gets younger by it."""
        if ms > 0:
            self.clock.advance(ms)
        else:
            self.clock.set_back(-ms)
            self.times = {place: [appended + ms for appended in times] for place, times in self.times.items()}

    @rule(who=processes)
    @covers(
        *(("retention by time", name) for name in ("second process", "crash", "roll", "truncation", "delete_records")),
        *(("retention by size", name) for name in ("second process", "crash", "roll", "truncation", "delete_records")),
        ("retention by time", "retention by size"),
        ("timestamps", "retention by time"),
    )
    def tick(self, who: int) -> None:
        """Retention takes the oldest segments that the options do not keep, and no others."""
        store, asked, allowed = self.process(who), dict(self.world), {}
        for name, topic in self.world.items():
            for partition, promise in enumerate(topic.promises):
                times = self.times.get(self.place(name, partition), [])
                starts = starts_allowed(log_of(store, name, partition), promise, topic.config, times, self.clock.now_ms())
                allowed[name, partition] = starts
                asked[name] = asked[name].with_promise(partition, replace(promise, last_start=max(starts)))
                if max(starts) > promise.first_start:
                    self.disturb(name, partition)
        with self.doing([asked]):
            store.tick()
        self.adopt_starts(store, allowed)

    def adopt_starts(self, store: pylog.Store, allowed: dict[tuple[str, int], set[int]]) -> None:
        """After retention: each log starts where the model allows it."""
        for (name, partition), starts in allowed.items():
            start = log_of(store, name, partition).start_offset
            assert start in starts, f"{name}-{partition} starts at {start}, and by the model at one of {sorted(starts)}"
            promise = replace(self.world[name].promises[partition], first_start=start, last_start=start)
            self.world = self.with_promise(name, partition, promise)

    @precondition(lambda self: any(topic.is_compacted for topic in self.world.values()))
    @rule(who=processes, number=numbers)
    @covers(*(("compaction", name) for name in ("timestamps", "truncation", "crash", "second process", "scan and follow")))
    def clean(self, who: int, number: int) -> None:
        """Compaction drops records that a later one with their key supersedes, those without key or value, and no others."""
        compacted = sorted(name for name, topic in self.world.items() if topic.is_compacted)
        name = compacted[number % len(compacted)]
        store, asked = self.process(who), dict(self.world)
        for partition in range(len(self.world[name].promises)):
            log, model = log_of(store, name, partition), self.model(name, partition)
            active = log.segments[-1].base_offset if log.segments else 0
            model.compact(superseded(model.promise, active))
            asked = {**asked, name: asked[name].with_promise(partition, model.promise)}
            self.disturb(name, partition)
        with self.doing([asked]):
            store.compact(name)
        self.world = asked
        for partition in range(len(self.world[name].promises)):
            self.adopt_what_compaction_left(name, partition, found_in(log_of(store, name, partition)))

    def adopt_what_compaction_left(self, name: str, partition: int, found: Found) -> None:
        promise = self.world[name].promises[partition]
        assert promise.problems(found, PROCESS_DEATH) == []
        records = (*promise.records[: found.start], *found.records)
        self.world = self.with_promise(name, partition, replace(promise, records=records))

    # ---- readers that are kept open ------------------------------------------------------------------------------------------

    def disturb(self, name: str, partition: int) -> None:
        """Something is done to a log that may take records from readers."""
        for kept in self.kept:
            if kept.place == self.place(name, partition):
                kept.is_whole = False

    @precondition(lambda self: self.world and len(self.kept) < 4)
    @rule(who=processes, number=numbers, part=parts, how=st.sampled_from(sorted(READERS)))
    def open_reader(self, who: int, number: int, part: float, how: str) -> None:
        name = self.existing(number)
        partition = self.somewhere(name, part)
        log, place = log_of(self.process(who), name, partition), self.place(name, partition)
        promise = self.world[name].promises[partition]
        there = {offset: record for offset, record in enumerate(promise.records) if offset >= promise.first_start}
        there = {offset: record for offset, record in there.items() if record is not GAP}
        history = self.history.setdefault(place, {})
        kept = Kept(how, who, place, log, there, history)
        if kept.read(1):
            self.kept.append(kept)

    @precondition(lambda self: self.kept)
    @rule(number=st.integers(0, 3), frames=st.integers(1, 3))
    @covers(
        *(("scan and follow", name) for name in ("roll", "truncation", "delete_records", "compaction", "second process")),
        *(("scan and follow", name) for name in ("retention by time", "retention by size", "timestamps", "option change")),
    )
    def read_on(self, number: int, frames: int) -> None:
        """A reader gives what the log held, in order, or ends in words; one that nothing was taken from gives all of it."""
        kept = self.kept[number % len(self.kept)]
        if not kept.read(frames):
            self.kept.remove(kept)

    def end_readers(self, who: int) -> None:
        """Those of a store that was closed refuse."""
        mine = [kept for kept in self.kept if kept.who == who]
        self.kept = [kept for kept in self.kept if kept.who != who]
        there = {topic.number for topic in self.world.values()}
        for kept in mine:
            kept.refuses(is_deleted=kept.place[0] not in there)

    def forget_readers(self, who: int) -> None:
        """Their process is dead."""
        self.kept = [kept for kept in self.kept if kept.who != who]

    # ---- groups --------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, part=parts, limit=st.sampled_from([1, 3, 100]))
    @covers(
        *(("groups", name) for name in ("roll", "truncation", "delete_records", "compaction", "retention by time", "crash")),
        *(("groups", name) for name in ("retention by size", "timestamps", "second process", "option change", "LogAppendTime")),
    )
    def read_as_group(self, who: int, number: int, part: float, limit: int) -> None:
        """A group goes on from what it committed, or from the start where that is gone, whichever process reads for it."""
        name = self.existing(number)
        partition = self.somewhere(name, part)
        place, promise = self.place(name, partition), self.world[name].promises[partition]
        (before,) = self.committed.get(place, {-1})
        begin = before if promise.first_start <= before <= len(promise.records) else promise.first_start
        wanted = [offset for offset, record in enumerate(promise.records) if record is not GAP and offset >= begin][:limit]
        at = TopicPartition(name, partition)
        store = self.process(who)
        with self.doing([self.world]), store.consumer(group_id=f"g{place[0]}", **GROUP_OPTIONS) as consumer:
            consumer.assign([at])
            polled = [record.offset for record in consumer.poll(max_records=limit).get(at, [])]
            position = consumer.position(at)
            assert position is not None
            consumer.commit()
        assert polled == wanted
        self.uncertain, self.committed[place] = (place, {before, position}), {position}

    def adopt_committed(self, store: pylog.Store) -> None:
        """After a crash: what a group committed before the last step is there, and what it committed in it may be."""
        place, offsets = self.uncertain or ((0, 0), set())
        for name, topic in self.world.items():
            for partition in range(len(topic.promises)):
                here = (topic.number, partition)
                if here in self.committed:
                    found = store.offsets.position(f"g{topic.number}", TopicPartition(name, partition))
                    allowed = self.committed[here] | (offsets if here == place else set())
                    assert (-1 if found is None else found) in allowed, f"{found} is committed, and not one of {allowed}"
                    self.committed[here] = {-1 if found is None else found}

    # ---- processes -----------------------------------------------------------------------------------------------------------

    @rule(who=processes)
    def close(self, who: int) -> None:
        store, self.stores[who] = self.stores[who], None
        if store is not None:
            with self.doing([self.world]):
                store.close()
            self.end_readers(who)

    @rule(who=processes)
    def kill(self, who: int) -> None:
        """One process dies between two calls, and the other one goes on."""
        store, self.stores[who] = self.stores[who], None
        if store is not None:
            self.forget_readers(who)
            self.file_systems[who].kill()
            bury(store)

    @rule(kind=kinds, part=parts, seed=seeds)
    def crash(self, kind: str, part: float, seed: int) -> None:
        """Both at once, at some moment of the last step; then what is left is judged."""
        dead = [store for store in self.stores if store is not None]
        for fs in self.file_systems.values():
            fs.kill()
        worlds = self.crashed(kind, part, seed) or [self.world]
        for store in dead:
            bury(store)
        self.kept.clear()
        self.stores, self.has_crashed = [None, None], True
        store = self.process(0)
        found = self.found(store)
        told = {name: store.topic(name).config.changed() for name in found}
        problems = [problems_of(world, found, told, kind) for world in worlds]
        assert [] in problems, problems
        kept = worlds[problems.index([])]
        self.world = {name: kept[name].adopted(found[name], kind) for name in kept}
        for name in kept:
            for partition, left in enumerate(found[name]):  # a compaction that the crash hit may have dropped records
                self.adopt_what_compaction_left(name, partition, left)
        self.adopt_committed(store)
        assert {finding.kind for finding in store.recovery_report} <= {"torn", "rebuilt"}

    # ---- what is there -------------------------------------------------------------------------------------------------------

    def found(self, store: pylog.Store) -> dict[str, list[Found]]:
        return {
            name: [found_in(log_of(store, name, number)) for number in topic.partition_ids]
            for name, topic in store.topics().items()
            if name in NAMES
        }

    @invariant()
    def every_process_sees_what_is_there(self) -> None:
        wanted = {
            name: [Found(promise.first_start, promise.records[promise.first_start :]) for promise in topic.promises]
            for name, topic in self.world.items()
        }
        for store in self.stores:
            if store is not None:
                assert self.found(store) == wanted

    @rule(who=processes)
    def look(self, who: int) -> None:
        store = self.process(who)
        for name, topic in self.world.items():
            assert store.topic(name).config.changed() == options_of(topic)

    @rule(who=processes)
    def check(self, who: int) -> None:
        """Whatever happened, once each log has been written to again."""
        for name, topic in list(self.world.items()):
            for partition in range(len(topic.promises)):
                self.append_to(who, name, partition, [(0, 5, None)], "sync")
        assert wrong_in(self.process(who), crashed=self.has_crashed) == []


def log_of(store: pylog.Store, name: str, partition: int) -> pylog.Log:
    """A log; got again, as its error says, if it finds out that another process has deleted it and made it anew."""
    log = store.log(name, partition)
    try:
        engine_of(log).snapshot()
    except pylog.UnknownTopicOrPartitionError:
        log = store.log(name, partition)
    return log


def options_of(topic: TopicModel) -> dict[str, Any]:
    return pylog.TopicConfig(**topic.config).changed()


def problems_of(world: World, found: dict[str, list[Found]], told: dict[str, Any], kind: str) -> list[str]:
    """Why a store is not what a world promises."""
    if set(world) != set(found):
        return [f"there are the topics {sorted(found)}, and {sorted(world)} were made"]
    wrong = [f"{name} has the options {told[name]}" for name, topic in world.items() if told[name] != options_of(topic)]
    return wrong + [f"{name}: {each}" for name, topic in world.items() for each in topic.problems(found[name], kind)]


def superseded(promise: Promise, active: int) -> set[int]:
    """The offsets of records that compaction may drop."""
    records: dict[int, Any] = {offset: record for offset, record in enumerate(promise.records[:active]) if record is not GAP}
    last = {record[0]: offset for offset, record in records.items() if record[0] is not None and offset >= promise.first_start}
    return {offset for offset, record in records.items() if record[1] is None or last.get(record[0]) != offset}
