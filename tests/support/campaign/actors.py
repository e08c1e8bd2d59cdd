"""What the processes of a campaign do: they write, read, and look afterwards.

Every record tells what it must be: its value begins with a number that is used once (the writer's number, and a serial number in
its lower 40 bits), and everything else of it follows from that number. So a reader knows an altered record when it sees one.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

import pyarrow as pa

import pylog
from pylog.log.checking.report import HARMLESS
from support.campaign.history import Append, Operation, Outcome, Read
from support.campaign.processes import CampaignError, Journal, no_descriptor_left

TOPIC: Final = "t"
COLUMNS: Final = ("offset", "key", "value")
ALTERED: Final = -1  # the value of a record that is not what anybody wrote
SERIAL_BITS: Final = 40
_NOISE: Final = random.Random(0).randbytes(1 << 14)
_MAX_FILL: Final = 1_000
_ROOM_TO_READ: Final = 1 << 18  # words of a journal: more than one call reads


# ---- records -----------------------------------------------------------------------------------------------------------------


def first_value(writer: int) -> int:
    """The number in a writer's first record."""
    return writer << SERIAL_BITS


def record_of(number: int) -> tuple[bytes | None, bytes]:
    """The key and value of a record; one in sixteen is large."""
    mixed = number * 0x9E3779B97F4A7C15 >> 8 & 0xFFFFFFFFFFFF
    fill = mixed % (_MAX_FILL if mixed & 0xF000 == 0 else 100)
    start = mixed >> 16 & 0x1FFF
    return (None if mixed & 0x10000 else _NOISE[start : start + fill % 7]), number.to_bytes(8, "little") + _NOISE[
        start : start + fill
    ]


def number_of(key: bytes | None, value: bytes) -> int:
    """The number in a record, ALTERED if the record is not what that number says."""
    number = int.from_bytes(value[:8], "little")
    return number if record_of(number) == (key, value) else ALTERED


def numbers_in(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """(offset, number) of the records of an Arrow batch with `COLUMNS`."""
    offsets, keys, values = (column.to_pylist() for column in batch.columns)
    return list(zip(offsets, map(number_of, keys, values), strict=True))


def numbers_of(log: pylog.Log, start: int, end: int | None = None) -> list[tuple[int, int]]:
    """(offset, number) of a log's records."""
    return list(chain.from_iterable(map(numbers_in, log.scan(start, end, columns=COLUMNS))))


# ---- writers -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """Where processes meet.

    Attributes:
        directory: of the store.
        partitions: of its one topic.
        config: of that topic.
    """

    directory: str
    partitions: int
    config: dict[str, Any]

    @classmethod
    def drawn(cls, directory: str, rng: random.Random) -> Scene:
        """A scene with small segments, so that edges are met often."""
        config = {
            "segment_bytes": rng.choice((1_500, 4_000, 20_000)),
            "index_interval_bytes": rng.choice((0, 300, 4_096)),
            "compression_type": rng.choice(("producer", "producer", "lz4")),
            "retention_ms": -1,
        }
        return cls(directory, rng.choice((1, 1, 2, 3)), config)

    def logs(self, store: pylog.Store) -> list[pylog.Log]:
        """The topic's partitions; it is made if it is not there."""
        if TOPIC not in store.topics():
            store.create_topic(TOPIC, partition_count=self.partitions, **self.config)
        return [store.log(TOPIC, number) for number in range(self.partitions)]


def a_level(rng: random.Random) -> pylog.Durability:
    """Any of the levels of durability."""
    return rng.choice((pylog.Durability.SYNC, pylog.Durability.OS, pylog.Durability.INTERVAL(rng.choice((1, 20)))))


class Writer:
    """Appends by all of pylog's ways, and writes down what it is told.

    Args:
        journal: where.
        first: the number of its first record.
        rng: decides what it does.
    """

    def __init__(self, journal: Journal, first: int, rng: random.Random) -> None:
        self._journal = journal
        self._next = first
        self._rng = rng

    def work(self, scene: Scene, ready: Callable[[], None]) -> None:
        """Opens the store, appends, closes it and so on, until the journal is full; ready after the first few appends."""
        ready_after = self._rng.choice((0, 1, 2, 8))
        while self._journal.room > 100:
            with pylog.open(scene.directory, durability=a_level(self._rng)) as store:
                logs = scene.logs(store)
                for _ in range(self._rng.choice((3, 30, 1_000))):
                    if ready_after == 0:
                        ready()
                    ready_after -= 1
                    self.step(logs)

    def step(self, logs: list[pylog.Log]) -> None:
        """One append somewhere, sometimes a flush."""
        log = self._rng.choice(logs)
        if self._rng.random() < 0.05:
            log.flush()
        numbers = self.numbers(self._rng.choice((1, 1, 2, 10, 40)))
        self._journal.appending(log.partition.partition, numbers)
        self._journal.appended(append(log, numbers, self._rng))

    def numbers(self, count: int) -> range:
        """The numbers of its next records."""
        self._next += count
        return range(self._next - count, self._next)


def append(log: pylog.Log, numbers: range, rng: random.Random, *, any_level: bool = True) -> int:
    """Appends records in one call, by one of the ways that there are, at any level or the store's; returns the first offset."""
    durability = a_level(rng) if any_level and rng.random() < 0.5 else None
    records = [record_of(number) for number in numbers]
    if len(records) == 1:
        key, value = records[0]
        return log.append(value, key, durability=durability)
    if rng.random() < 0.5:
        return log.append_many(records, durability=durability).start
    keys, values = zip(*records, strict=True)
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    return log.append_arrow(table, durability=durability).start


# ---- readers -----------------------------------------------------------------------------------------------------------------


class Reader:
    """Reads a partition of a store that others write, and writes down what it sees.

    Args:
        journal: where.
        rng: decides what it does.
    """

    def __init__(self, journal: Journal, rng: random.Random) -> None:
        self._journal = journal
        self._rng = rng

    def work(self, scene: Scene, ready: Callable[[], None]) -> None:
        """Looks at one partition again and again, or follows it; now and then it reads an earlier stretch once more."""
        with pylog.open(scene.directory, mode="r") as store:
            log = store.log(TOPIC, self._rng.randrange(scene.partitions))
            position = self._rng.choice((0, log.end_offset))
            ready()
            while self._journal.room > _ROOM_TO_READ:
                step = self._rng.choice((self._look, self._follow))
                position = step(log, position)
                if position and self._rng.random() < 0.1:
                    self._look(log, self._rng.randrange(position))

    def _look(self, log: pylog.Log, start: int) -> int:
        """Reads what is there from an offset on, all of it or a few records; returns the offset behind."""
        limit = self._rng.choice((None, 1, 7))
        self._journal.reading(log.partition.partition, start, to_end=limit is None)
        end = log.end_offset
        records = numbers_of(log, start, end if limit is None else min(start + limit, end))
        self._journal.found(records)
        return start + len(records)

    def _follow(self, log: pylog.Log, start: int) -> int:
        """Takes what comes from an offset on, until nothing comes for some milliseconds; returns the offset behind."""
        partition = log.partition.partition
        batches = log.follow(start, columns=COLUMNS, timeout_ms=self._rng.choice((1, 10)))
        self._journal.reading(partition, start, to_end=False)
        for batch in batches:
            records = numbers_in(batch)
            self._journal.found(records)
            start += len(records)
            if self._journal.room < _ROOM_TO_READ:
                break
            self._journal.reading(partition, start, to_end=False)
        return start


# ---- who looks afterwards ----------------------------------------------------------------------------------------------------


@dataclass
class Inspection:
    """What a process found that opened the store when all others were dead.

    Attributes:
        operations: its reads of everything, and the appends after them.
        contents: the numbers in each partition then.
        findings: how often each kind of finding was reported.
        appended: whether it was open for writing.
    """

    operations: list[Operation] = field(default_factory=list)
    contents: list[list[int]] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)
    appended: bool = False


def inspect(scene: Scene, mode: str, numbers: Iterator[int]) -> Inspection:
    """Opens a store that nobody has open, reads all of it, and appends to it if it may.

    Args:
        scene: where.
        mode: "r" or "rw".
        numbers: of the records to append.

    Raises:
        CampaignError: it calls a crash a loss, is not whole after its recovery, leaves files open, or its ends are not those of
            what it holds.
    """
    found = Inspection(appended=mode == "rw")
    with no_descriptor_left():
        _inspect_store(scene, found, numbers)
    return found


def _inspect_store(scene: Scene, found: Inspection, numbers: Iterator[int]) -> None:
    with pylog.open(scene.directory, mode="rw" if found.appended else "r") as store:
        if TOPIC in store.topics() or found.appended:
            for log in _logs(scene, store, found):
                _inspect_log(log, found, next(numbers) if found.appended else None)
        found.findings.update(finding.kind for finding in store.recovery_report)
        if found.findings["corrupt"] or found.findings["missing"]:
            raise CampaignError(f"{store} calls a crash a loss: {store.recovery_report}")
        if found.appended:
            _check_whole(store)


def _check_whole(store: pylog.Store) -> None:
    """After recovery for writing everything fits together; half-made files that nobody will read cost only room."""
    report = store.check()
    if not {finding.kind for finding in report.findings} <= HARMLESS | {"leftover"}:
        raise CampaignError(f"after recovery {report}")


def _logs(scene: Scene, store: pylog.Store, found: Inspection) -> list[pylog.Log]:
    """The partitions; none for a reader of a topic whose maker died at it: a writer completes what nobody was told of."""
    try:
        return scene.logs(store)
    except pylog.UnknownTopicOrPartitionError:
        if found.appended:
            raise
        return []


def _inspect_log(log: pylog.Log, found: Inspection, number: int | None) -> None:
    partition, now = log.partition.partition, time.monotonic_ns()
    records = numbers_of(log, 0)
    found.operations.append(Read("afterwards", partition, records, now, time.monotonic_ns(), 0, to_end=True))
    if (log.start_offset, log.end_offset) != (0, len(records)):
        raise CampaignError(f"{log} has {len(records)} records")
    contents = [value for _, value in records]
    if number is not None:
        now = time.monotonic_ns()
        key, value = record_of(number)
        offset = log.append(value, key)
        found.operations.append(Append("afterwards", partition, [number], now, time.monotonic_ns(), Outcome.OK, offset))
        contents.append(number)
    found.contents.append(contents)


def warm_up(*codecs: str) -> None:
    """Compiles and loads everything that the others use, and tells the garbage collector to leave it alone in all children."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as directory:
        for number, codec in enumerate(codecs):
            scene = Scene(os.path.join(directory, codec), 1, {"segment_bytes": 1_500, "compression_type": codec})
            with pylog.open(scene.directory) as store:
                for size in (1, 2, 60) * 4:
                    append(scene.logs(store)[0], range(number, number + size), rng)
            inspect(scene, "r", count())
            inspect(scene, "rw", count(first_value(0)))
    gc.collect()
    gc.freeze()
