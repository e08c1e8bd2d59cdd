"""Groups of consumers in real processes, that join and leave, are killed and stopped while others write: nothing is missed."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import ConsumerRebalanceListener, Durability, OffsetsConfig, TopicPartition
from pylog.clock import SystemClock
from pylog.offsets.schema import OFFSETS_TOPIC, format_partition_key, offset_key, parse_offset

PARTITIONS = 12
PLACES = [TopicPartition("t", number) for number in range(PARTITIONS)]
SESSION_MS = 2_000  # a loaded machine keeps a living process from running for a second
PATIENCE = 60.0  # seconds, for what takes a few
CLOCK = SystemClock()


class Journal(ConsumerRebalanceListener):
    """What a worker has done, in a file that outlives it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.write("lost", len(lost))


class Crew:
    """Processes around one store. Each is a child of this one, which has loaded what they need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.living: dict[int, str] = {}  # process id → name

    def start(self, work: Callable[[Path, Path], None], name: str) -> int:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(self.path, self.path.parent / name)
                status = 0
            except BaseException:  # noqa: BLE001 - the child ends with it, and must not end as its parent
                traceback.print_exc()  # what pytest shows of a test that fails
            finally:
                os._exit(status)
        self.living[child] = name
        return child

    def end(self, child: int, number: int) -> int:
        os.kill(child, number)
        return self.wait(child)

    def wait(self, child: int) -> int:
        del self.living[child]
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def journal(self) -> Iterator[list[str]]:
        for file in self.path.parent.glob("worker-*"):
            yield from (line.split() for line in file.read_text().splitlines())


def consume(path: Path, journal: Path) -> None:
    """Notes what it gets, then commits it; until it is told to leave. Told to stop it does between two calls: inside of one it
    might hold the lock of the group's offsets, and who holds a lock is waited for."""
    leaving: list[int] = []
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    signal.signal(signal.SIGUSR1, lambda number, _: stopping.append(number))
    with pylog.open(path, durability=Durability.OS) as store:
        told = Journal(journal)
        options = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 100, "enable_auto_commit": False}
        with store.consumer(group_id="g", auto_offset_reset="earliest", **options) as consumer:
            consumer.subscribe(["t"], listener=told)
            while not leaving:
                for place, records in consumer.poll(timeout_ms=50).items():
                    told.write("got", place.partition, records[0].offset, records[-1].offset + 1)
                try:
                    consumer.commit()
                except pylog.FencedMemberError:
                    told.write("fenced")
                if stopping:
                    stopping.clear()
                    os.kill(os.getpid(), signal.SIGSTOP)


def produce(path: Path, _: Path) -> None:
    """Writes to all partitions until it is told to end."""
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    with pylog.open(path, durability=Durability.OS) as store:
        while not leaving:
            for place in PLACES:
                store.log(*place).append_many([b"x"] * 5)
            CLOCK.sleep(0.01)


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    path = tmp_path / "s"
    with pylog.open(path, offsets=OffsetsConfig(topic_num_partitions=1), durability=Durability.OS) as store:
        store.create_topic("t", partition_count=PARTITIONS)
        for place in PLACES:
            store.log(*place).append_many([b"x"] * 20)
        with store.consumer("t", group_id="warm", auto_offset_reset="earliest") as consumer:
            consumer.poll(max_records=PARTITIONS * 20)  # kernels are loaded before the children are made
    made = Crew(path)
    yield made
    for child in list(made.living):
        with contextlib.suppress(ProcessLookupError):
            made.end(child, signal.SIGKILL)


def until(condition: Callable[[], bool]) -> float:
    """Waits for something; how long that took, in seconds."""
    began = CLOCK.monotonic()
    while not condition():
        assert CLOCK.monotonic() - began < PATIENCE
        CLOCK.sleep(0.005)
    return CLOCK.monotonic() - began


def committed(store: pylog.Store) -> dict[TopicPartition, int]:
    return {place: found.offset for place, found in store.offsets.fetch("g").items()}


def all_move(store: pylog.Store) -> Callable[[], bool]:
    """Whether every partition has been committed further since now: somebody reads it."""
    before = {place: store.log(*place).end_offset for place in PLACES}
    return lambda: len(now := committed(store)) == PARTITIONS and all(now[place] > before[place] for place in PLACES)


@pytest.mark.slow
def test_eight_members_that_come_go_die_and_stand_still_miss_nothing(crew: Crew) -> None:
    workers = [crew.start(consume, f"worker-{number}") for number in range(8)]
    writer = crew.start(produce, "writer")
    with pylog.open(crew.path, mode="r") as store:
        until(all_move(store))

        crew.end(workers.pop(), signal.SIGKILL)
        assert until(all_move(store)) < 2.0

        stopped = workers.pop()
        os.kill(stopped, signal.SIGUSR1)
        assert os.WIFSTOPPED(os.waitpid(stopped, os.WUNTRACED)[1])
        until(all_move(store))  # behind its back, when its session is over
        os.kill(stopped, signal.SIGCONT)

        assert crew.end(workers.pop(), signal.SIGTERM) == 0
        workers += [crew.start(consume, f"worker-{number}") for number in (8, 9)]
        until(all_move(store))
        crew.end(workers.pop(0), signal.SIGKILL)
        until(all_move(store))

        assert crew.end(writer, signal.SIGTERM) == 0
        ends = {place: store.log(*place).end_offset for place in PLACES}
        until(lambda: committed(store) == ends)
        assert [crew.end(worker, signal.SIGTERM) for worker in [*workers, stopped]] == [0] * len([*workers, stopped])
        assert_nothing_was_missed(crew, ends)
        assert_commits_never_went_back(store)


def assert_nothing_was_missed(crew: Crew, ends: dict[TopicPartition, int]) -> None:
    got: defaultdict[int, set[int]] = defaultdict(set)
    others: defaultdict[str, int] = defaultdict(int)
    for what, *numbers in crew.journal():
        if what == "got":
            partition, first, end = map(int, numbers)
            got[partition].update(range(first, end))
        else:
            others[what] += 1
    assert got == {place.partition: set(range(end)) for place, end in ends.items()}
    assert others["lost"] == 1  # the one that was stopped, and nobody else


def assert_commits_never_went_back(store: pylog.Store) -> None:
    """One reader at a time, each of which goes on where the group is: what a fenced one had committed would be less."""
    keys = {offset_key(b"g", format_partition_key(place)): place for place in PLACES}
    last = dict.fromkeys(PLACES, 0)
    for record in store.log(OFFSETS_TOPIC).records():
        place = keys.get(record.key or b"")
        if place is not None and record.value is not None:
            offset = parse_offset(record.value).committed.offset
            assert offset >= last[place]
            last[place] = offset


@pytest.mark.slow
def test_a_consumer_killed_at_any_time_resumes_and_misses_nothing(crew: Crew) -> None:
    writer = crew.start(produce, "writer")
    with pylog.open(crew.path, mode="r") as store:
        for number in range(4):
            worker = crew.start(consume, f"worker-{number}")
            until(all_move(store))
            crew.end(worker, signal.SIGKILL)
        crew.end(writer, signal.SIGTERM)
        ends = {place: store.log(*place).end_offset for place in PLACES}
        worker = crew.start(consume, "worker-4")
        until(lambda: committed(store) == ends)
        assert crew.end(worker, signal.SIGTERM) == 0
        got: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for what, *numbers in crew.journal():
            assert what == "got"
            partition, first, end = map(int, numbers)
            got[partition].append((first, end))
        for place, end in ends.items():
            covered = {offset for first, last in got[place.partition] for offset in range(first, last)}
            assert covered == set(range(end))
