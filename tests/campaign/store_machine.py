"""A store, its topics and two processes that use it in turn, against a model (reliability 8.1: stateful models)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import pylog
from campaign.crashing import LEVELS, ROOT, Crashing, as_stored, bury, found_in, kinds, levels, parts, seeds, wrong_in
from pylog.testing import Found, LogModel, Promise, strategies

NAMES = ["first", "second", "third"]

configs = st.fixed_dictionaries(
    {"segment_bytes": st.sampled_from([200, 1000])},
    optional={
        "retention_ms": st.sampled_from([-1, 0, 1000]),
        "retention_bytes": st.sampled_from([0, 300, 1000]),
        "durability": st.sampled_from(["os", "sync"]),
    },
)
names = st.sampled_from(NAMES)
processes = st.sampled_from([0, 1])
numbers = st.integers(0, len(NAMES) - 1)  # of a topic that there is
batches = st.lists(strategies.byte_strings(60), min_size=1, max_size=4)


@dataclass(frozen=True)
class TopicModel:
    """What a topic holds: how it was made, and the promise of each partition."""

    config: dict[str, Any]
    promises: tuple[Promise, ...]

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
            store = self.stores[who] = pylog.open(ROOT, fs=fs, clock=self.clock)
            self.file_systems = {**getattr(self, "file_systems", {}), who: fs}
        return store

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
            self.asking({**self.world, name: TopicModel(config, (Promise(),) * partitions)}, call)

    @rule(who=processes, name=names)
    def delete(self, who: int, name: str) -> None:
        """Gone for good, also for the other process, and for whoever has its files open."""
        if name in self.world:
            held = [log_of(store, name, 0) for store in self.stores if store is not None]
            changed = {other: topic for other, topic in self.world.items() if other != name}
            self.asking(changed, lambda: self.process(who).delete_topic(name))
            for log in held:
                with pytest.raises((pylog.UnknownTopicOrPartitionError, pylog.ClosedError)):
                    log.append(b"to nowhere")
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

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, part=parts, values=batches, level=levels)
    def append(self, who: int, number: int, part: float, values: list[bytes | None], level: str) -> None:
        name = self.existing(number)
        self.append_to(who, name, self.somewhere(name, part), values, level)

    def append_to(self, who: int, name: str, partition: int, values: list[bytes | None], level: str) -> None:
        log, model = log_of(self.process(who), name, partition), self.model(name, partition)
        first = model.end
        model.append([as_stored((None, value, (), 0), self.clock.now_ms()) for value in values])
        offsets = self.change(name, partition, model, lambda: log.append_many(values, durability=LEVELS[level]))
        model.acknowledge(durable=level == "sync")
        assert offsets == range(first, model.end)
        assert level != "sync" or log.durable_offset == model.end
        self.acknowledged(name, partition, model)

    @precondition(lambda self: self.world)
    @rule(who=processes, number=numbers, part=parts, reach=parts)
    def delete_records(self, who: int, number: int, part: float, reach: float) -> None:
        name = self.existing(number)
        partition = self.somewhere(name, part)
        log, model = log_of(self.process(who), name, partition), self.model(name, partition)
        before = model.promise.first_start + int(reach * (model.end - model.promise.first_start))
        model.delete(before)
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
            self.change(name, partition, model, lambda: log.truncate(end))
            model.truncated(end)
            self.acknowledged(name, partition, model)

    @rule(who=processes)
    def flush(self, who: int) -> None:
        """Of the logs that this process has open, what others appended too."""
        with self.doing([self.world]):
            self.process(who).flush()

    @rule(ms=st.sampled_from([1, 999, 1000, 5000]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(who=processes)
    def tick(self, who: int) -> None:
        """Retention takes the oldest segments that the configuration does not keep, and no others."""
        store, asked, done = self.process(who), dict(self.world), dict(self.world)
        for name, topic in self.world.items():
            for partition, promise in enumerate(topic.promises):
                start = self.kept(log_of(store, name, partition), promise, topic.config)
                asked[name] = asked[name].with_promise(partition, replace(promise, last_start=start))
                done[name] = done[name].with_promise(partition, replace(promise, first_start=start, last_start=start))
        with self.doing([asked]):
            store.tick()
        self.world = done

    def kept(self, log: pylog.Log, promise: Promise, config: dict[str, Any]) -> int:
        """Where the log begins after retention: what is below its start goes, then what is too much, then what is too old."""
        bases = [segment.base_offset for segment in log.segments]
        sizes = [segment.size for segment in log.segments[:-1]] + [log.look().active_size]  # of the last one, without a torn tail
        left = list(zip(bases, [*bases[1:], log.end_offset], sizes, strict=False))
        start = promise.first_start
        while len(left) > 1 and left[0][1] <= start:
            left.pop(0)
        total, keep_ms = sum(size for _, _, size in left), config.get("retention_ms", -1)
        too_much = total - config.get("retention_bytes", total)
        while left and 0 < left[0][2] <= too_much:
            start = max(start, left[0][1])
            too_much -= left.pop(0)[2]
        while left and left[0][2] and 0 <= keep_ms < self.age(promise.records[left[0][0] : left[0][1]]):
            start = max(start, left.pop(0)[1])
        return start

    def age(self, records: tuple[Any, ...]) -> int:
        """How old the youngest of some records is."""
        return self.clock.now_ms() - max(record[3] for record in records)

    # ---- processes -----------------------------------------------------------------------------------------------------------

    @rule(who=processes)
    def close(self, who: int) -> None:
        store, self.stores[who] = self.stores[who], None
        if store is not None:
            with self.doing([self.world]):
                store.close()

    @rule(who=processes)
    def kill(self, who: int) -> None:
        """One process dies between two calls, and the other one goes on."""
        store, self.stores[who] = self.stores[who], None
        if store is not None:
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
        self.stores, self.has_crashed = [None, None], True
        store = self.process(0)
        found = self.found(store)
        problems = [problems_of(world, found, kind) for world in worlds]
        assert [] in problems, problems
        kept = worlds[problems.index([])]
        self.world = {name: kept[name].adopted(found[name], kind) for name in kept}
        assert {finding.kind for finding in store.recovery_report} <= {"torn", "rebuilt"}

    # ---- what is there -------------------------------------------------------------------------------------------------------

    def found(self, store: pylog.Store) -> dict[str, list[Found]]:
        return {
            name: [found_in(log_of(store, name, number)) for number in topic.partition_ids]
            for name, topic in store.topics().items()
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
            assert store.topic(name).config.changed() == pylog.TopicConfig(**topic.config).changed()

    @rule(who=processes)
    def check(self, who: int) -> None:
        """Whatever happened, once each log has been written to again."""
        for name, topic in list(self.world.items()):
            for partition in range(len(topic.promises)):
                self.append_to(who, name, partition, [b"ready"], "sync")
        assert wrong_in(self.process(who), crashed=self.has_crashed) == []


def log_of(store: pylog.Store, name: str, partition: int) -> pylog.Log:
    """A log; got again, as its error says, if it finds out that another process has deleted it and made it anew."""
    log = store.log(name, partition)
    try:
        log.look()
    except pylog.UnknownTopicOrPartitionError:
        log = store.log(name, partition)
    return log


def problems_of(world: World, found: dict[str, list[Found]], kind: str) -> list[str]:
    """Why a store is not what a world promises."""
    if set(world) != set(found):
        return [f"there are the topics {sorted(found)}, and {sorted(world)} were made"]
    return [f"{name}: {told}" for name, topic in world.items() for told in topic.problems(found[name], kind)]
