"""P10: committed offsets: a commit, a fetch from the cache, and loading a million of them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import pylog
from benchmarks.files import prepared_store
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_least, at_most, race, seconds
from pylog import Durability, OffsetsConfig, Store, TopicPartition
from pylog.fs.locks import OsLockFile
from pylog.offsets.schema import OFFSETS_TOPIC, format_offset, format_partition_key, offset_key
from pylog.record.from_arrow import rows_from_arrow

ONE = OffsetsConfig(topic_num_partitions=1)
PARTITIONS = 100
PLACE = TopicPartition("events", 0)


def run(settings: Settings) -> None:
    """Reports the rows of P10."""
    directory = Path(settings.directory)
    calls = settings.scaled(50_000, 5_000)
    with prepared_store(directory / "made") as store:
        store.create_topic("events")
        store.log("events").append_arrow(pa.table({"value": [b"x"] * calls}))
        store.create_topic("wide", partition_count=PARTITIONS)
        for number in range(PARTITIONS):
            store.log("wide", number).append(b"x")
    for exclusive in (False, True):
        with pylog.open(directory / "made", durability=Durability.OS, exclusive=exclusive, offsets=ONE) as store:
            _calls(settings, store, calls, ", exclusive=True" if exclusive else "")
    count = settings.scaled(1_000_000, 100_000)
    _load(settings, directory / "few", 1_000, 10, count, at_most(1))
    _load(settings, directory / "many", 10_000, 100, count, at_most(3))


def _calls(settings: Settings, store: Store, count: int, how: str) -> None:
    """A commit is an append of its own; the limit of a fetch leaves no time to ask what other processes have committed."""

    def commit(number: int) -> None:
        store.offsets.commit("group", {PLACE: number})

    def fetch(_: int) -> None:
        store.offsets.fetch("group")

    def commit_many(_: int) -> None:
        store.offsets.commit("group of many", dict.fromkeys(wide, 1))

    wide = [TopicPartition("wide", number) for number in range(PARTITIONS)]
    many = [PARTITIONS * each / 1e3 for each in _rate(commit_many, count // PARTITIONS, settings.rounds)]
    _report(settings, f"offsets committed, {PARTITIONS} a call{how}", "k/s", many, None, "Durability.OS")
    table = _OffsetsTable(Path(settings.directory) / f"sqlite{len(how)}")
    bare = SystemCalls(Path(settings.directory) / f"bare{len(how)}", alone=bool(how))
    sides = {"sqlite": table, "bare": bare}
    contestants = {name: lambda side=side: _a_second(side.commit, count) for name, side in sides.items()}
    found = race({"commit": lambda: _a_second(commit, count), **contestants}, settings.rounds)
    thousands = {name: Sample(tuple(each / 1e3 for each in sample.rounds)) for name, sample in found.items()}
    _compare(settings, f"commit of one offset{how}", "k/s", thousands["commit"], thousands, at_least(200))
    sides = {"sqlite": table} if how else sides  # who is alone asks nobody
    contestants = {name: lambda side=side: _a_second(side.fetch, count) for name, side in sides.items()}
    found = race({"fetch": lambda: _a_second(fetch, count), **contestants}, settings.rounds)
    each = {name: Sample(tuple(1e6 / rate for rate in sample.rounds)) for name, sample in found.items()}
    _compare(settings, f"fetch of a group{how}", "µs", each["fetch"], each, at_most(1))
    table.close()
    bare.close()


class _OffsetsTable:
    """A table of committed offsets in SQLite, a transaction a commit, as durable as `Durability.OS`."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE offsets (reader, topic, partition, offset, PRIMARY KEY (reader, topic, partition))",
        ):
            self._connection.execute(statement)

    def commit(self, number: int) -> None:
        self._connection.execute("REPLACE INTO offsets VALUES ('group', 'events', 0, ?)", (number,))

    def fetch(self, _: int) -> None:
        self._connection.execute("SELECT topic, partition, offset FROM offsets WHERE reader = 'group'").fetchall()

    def close(self) -> None:
        self._connection.close()


class SystemCalls:
    """The system calls of a commit, and of a fetch, and nothing else: nobody who keeps the same promises can be faster.

    Beside other processes: the partition's lock, a look at its header and at its size, two writes, the lock again; a fetch looks.
    Alone only the writes.
    """

    def __init__(self, path: Path, *, alone: bool) -> None:
        self._alone = alone
        self._files = [os.open(f"{path}.{name}", os.O_RDWR | os.O_CREAT, 0o600) for name in ("log", "header")]
        self._lock = OsLockFile(f"{path}.lock")
        self._size, self._batch, self._slot, self._seen = 0, bytes(113), bytes(128), bytearray(256)
        os.pwrite(self._files[1], self._seen, 0)

    def commit(self, number: int) -> None:
        log, header = self._files
        if not self._alone:
            self._lock.try_lock(0, 1, exclusive=True)
            self.fetch(0)
        os.pwrite(log, self._batch, self._size)
        os.pwrite(header, self._slot, number % 2 * 128)
        self._size += len(self._batch)
        if not self._alone:
            self._lock.unlock(0, 1)

    def fetch(self, _: int) -> None:
        os.preadv(self._files[1], [self._seen], 0)
        os.lseek(self._files[0], 0, os.SEEK_END)

    def close(self) -> None:
        self._lock.close()
        for file in self._files:
            os.close(file)


def _a_second(call: Callable[[int], None], count: int) -> float:
    """Calls a second."""

    def work() -> None:
        for number in range(count):
            call(number)

    return count / seconds(work)


def _rate(call: Callable[[int], None], count: int, rounds: int) -> list[float]:
    """Calls a second in each round; the first one warms up."""
    return [_a_second(call, count) for _ in range(rounds + 1)][1:]


def _compare(settings: Settings, work: str, unit: str, ours: Sample, found: dict[str, Sample], target: Target) -> None:
    """The target goes with the first rival."""
    for name, rival in (("sqlite", "a table in SQLite, WAL, a transaction a call"), ("bare", "its system calls alone")):
        theirs = found.get(name)
        if theirs is None:
            continue
        settings.report(
            Row(
                part="P10",
                work=work,
                unit=unit,
                measured=ours,
                durability="Durability.OS" if unit == "k/s" else NO_WRITES,
                rival=rival,
                rival_measured=theirs,
                ratio=ours.over(theirs) if target.at_least else theirs.over(ours),
                target=target if name == "sqlite" else None,
            )
        )


def _load(settings: Settings, directory: Path, groups: int, partitions: int, count: int, target: Target) -> None:
    """How long the first question takes after opening."""
    places = [format_partition_key(TopicPartition("events", number)) for number in range(partitions)]
    keys = [offset_key(b"group-%06d" % group, place) for group in range(groups) for place in places][:count]
    value = format_offset(12_345, b"", None, 1_700_000_000_000)
    table = pa.table({"key": pa.array((keys * -(-count // len(keys)))[:count], pa.binary()), "value": [value] * count})
    with prepared_store(directory) as store:
        store.create_topic(OFFSETS_TOPIC, cleanup_policy="compact")
        _append_as_a_broker(store.log(OFFSETS_TOPIC), table)
    taken = []
    for _ in range(settings.rounds + 1):
        with pylog.open(directory, mode="r") as store:
            started = time.perf_counter()
            store.offsets.groups()
            taken.append(time.perf_counter() - started)
    work = f"load of {count:,} commits, {len(keys):,} of them live"
    _report(settings, work, "s", taken[1:], None if settings.quick else target)


def _append_as_a_broker(log: pylog.Log, table: pa.Table) -> None:
    """Appends to an internal topic, which `Log` refuses: a million commits one by one would take a minute."""
    log._partition_log.append(0, list(rows_from_arrow(table, 0)), by_owner=True)


def _report(
    settings: Settings, work: str, unit: str, rounds: list[float], target: Target | None, durability: str = NO_WRITES
) -> None:
    settings.report(Row(part="P10", work=work, unit=unit, measured=Sample(tuple(rounds)), durability=durability, target=target))
