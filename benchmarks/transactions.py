"""Transactions: commits against bare writes and syncs, against SQLite, and against appends of as many records."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

import pylog
from benchmarks.durable import _Bare
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_most, millions, race, seconds, times
from pylog import Durability, Store, TransactionsConfig

PART = "T"
VALUE = b"0123456789" * 10
PARTITIONS = 8
THREADS = 32
SQLITE_THREADS = 8
MANY_PARTITIONS = 100  # of a snapshot
IDS = 10_000
THINKS_S = 0.005  # between two commits of a program that does something else
SYNC_LEVEL, OS_LEVEL = "Durability.SYNC", "Durability.OS"
FEW = TransactionsConfig(topic_num_partitions=5)


def run(settings: Settings) -> None:
    """Reports the rows of transactions."""
    directory = Path(settings.directory)
    with pylog.open(directory / "store", durability=Durability.SYNC, transactions=FEW) as store:
        store.create_topic("out", partition_count=PARTITIONS)
        store.create_topic("in", partition_count=1)
        store.log("in").append_many([VALUE] * 1_000)
        bare = _Bare(directory / "bare", len(VALUE))
        table = _Tables(directory / "sqlite")
        _latency(settings, store, bare, table)
        _rate(settings, store, bare, table)
        _threads(settings, store)
        _threads_against_tables(settings, store, directory / "threads")
        _records_against_tables(settings, store, table)
        _in_memory(settings, store)
        _many_records(settings, store)
        _many_rows(settings, store)
        bare.close()
        table.close()
    _readers(settings, directory / "readers")
    _snapshot(settings, directory / "snapshot")
    _opening(settings, directory / "ids")


TABLES = "SQLite, WAL, synchronous=FULL"


class _Tables:
    """Two tables in SQLite, changed in one transaction, as durable as `Durability.SYNC`. One thread at a time may use it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=60, check_same_thread=False)
        tables = (f"CREATE TABLE IF NOT EXISTS {name} (v)" for name in "ab")
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", *tables):
            self._connection.execute(statement)

    def commit(self, count: int = 1) -> None:
        """Adds so many rows to each table."""
        self._connection.execute("BEGIN IMMEDIATE")
        for name in "ab":
            self._connection.executemany(f"INSERT INTO {name} VALUES (?)", [(VALUE,)] * count)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def _commit(store: Store, name: str | None, partitions: int, level: str = "sync") -> Callable[[], None]:
    def commit() -> None:
        with store.transaction(name, durability=level) as transaction:
            for partition in range(partitions):
                transaction.append("out", VALUE, partition=partition)

    return commit


def _typical(call: Callable[[], object], count: int, pause: float = 0.0) -> float:
    """Returns the median time of a call, in milliseconds."""
    taken = []
    for _ in range(count):
        if pause:
            time.sleep(pause)
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return sorted(taken)[count // 2] * 1e3


def _latency(settings: Settings, store: Store, bare: _Bare, table: _Tables) -> None:
    """Commits 5 ms apart."""
    count = settings.scaled(20, 8)
    calls = {f"{number}": _commit(store, f"latency {number}", number) for number in (1, 2, PARTITIONS)}
    sides = {**calls, "bare": bare.append, "sqlite": table.commit}
    found = race({name: lambda call=call: _typical(call, count, THINKS_S) for name, call in sides.items()}, settings.rounds)
    for name, target in (("1", None), ("2", times(1 / 3)), (f"{PARTITIONS}", times(1 / 8))):
        work = f"commit of 1 record in each of {name} partitions, 5 ms apart"
        _report(settings, work, "ms", found[name], "bare", found["bare"], target)
    work = "commit of 1 record in each of 2 partitions, 5 ms apart, against two tables"
    _report(settings, work, "ms", found["2"], TABLES, found["sqlite"], times(1 / 2))


def _rate(settings: Settings, store: Store, bare: _Bare, table: _Tables) -> None:
    """Commits in a tight loop of one thread."""
    count = settings.scaled(40, 10)
    calls = {
        "2 partitions": _commit(store, "tight 2", 2),
        "1 partition": _commit(store, "tight 1", 1),
        "1 partition, no id": _commit(store, None, 1),
    }
    sides = {**calls, "bare": bare.append, "sqlite": table.commit}
    found = race({name: lambda call=call: _a_second(call, count) for name, call in sides.items()}, settings.rounds)
    for name, target in (("2 partitions", 0.17), ("1 partition", 0.4), ("1 partition, no id", 0.85)):
        _report(settings, f"commits in a loop, {name}", "/s", found[name], "bare", found["bare"], times(target))
    work = "commits in a loop, 2 partitions, against two tables"
    _report(settings, work, "/s", found["2 partitions"], TABLES, found["sqlite"], times(0.25))


def _threads(settings: Settings, store: Store) -> None:
    """Commits of many threads, an id each, in the same two partitions: their syncs are shared."""
    count = settings.scaled(10, 4)
    sides = {
        "many": lambda: _rate_of_threads(_commits_of(store, THREADS), count),
        "one": lambda: _rate_of_threads(_commits_of(store, 1), count),
    }
    found = race(sides, settings.rounds)
    _report(settings, f"commits of {THREADS} threads, 2 partitions", "/s", found["many"], "one thread", found["one"], times(6))


def _threads_against_tables(settings: Settings, store: Store, path: Path) -> None:
    """The same, of fewer threads, against threads that each have a connection to SQLite."""
    count = settings.scaled(20, 5)
    tables = [_Tables(path) for _ in range(SQLITE_THREADS)]
    sides = {
        "ours": lambda: _rate_of_threads(_commits_of(store, SQLITE_THREADS), count),
        "sqlite": lambda: _rate_of_threads([table.commit for table in tables], count),
    }
    found = race(sides, settings.rounds)
    for table in tables:
        table.close()
    work = f"commits of {SQLITE_THREADS} threads, 2 partitions, against two tables"
    _report(settings, work, "/s", found["ours"], TABLES, found["sqlite"], times(1))


def _commits_of(store: Store, threads: int) -> list[Callable[[], None]]:
    """Returns a commit for each thread, with an id of its own."""
    return [_commit(store, f"thread {number}", 2) for number in range(threads)]


def _rate_of_threads(commits: Sequence[Callable[[], None]], count: int) -> float:
    """Returns commits a second of all threads together, each of which commits `count` times."""

    def commit_all(commit: Callable[[], None]) -> None:
        for _ in range(count):
            commit()

    working = [threading.Thread(target=commit_all, args=(commit,)) for commit in commits]
    began = time.perf_counter()
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    return len(commits) * count / (time.perf_counter() - began)


def _records_against_tables(settings: Settings, store: Store, table: _Tables) -> None:
    """1,000 records in each of two partitions, against as many rows in each of two tables."""
    count = settings.scaled(10, 3)
    values = [VALUE] * 1_000

    def ours() -> None:
        with store.transaction("records") as transaction:
            for partition in range(2):
                transaction.append_many("out", values, partition=partition)

    sides = {"ours": ours, "sqlite": lambda: table.commit(len(values))}
    found = race({name: lambda call=call: _a_second(call, count) for name, call in sides.items()}, settings.rounds)
    work = "commits of 1,000 records in each of 2 partitions, against two tables"
    _report(settings, work, "/s", found["ours"], TABLES, found["sqlite"], times(4))


def _in_memory(settings: Settings, store: Store) -> None:
    """Commits at `OS`, which sync nothing, against one append."""
    count = settings.scaled(400, 100)
    log = store.log("in")
    sides = {
        "2": _commit(store, "os 2", 2, "os"),
        "append": lambda: log.append(VALUE, durability="os"),
    }
    found = race({name: lambda call=call: _typical(call, count) for name, call in sides.items()}, settings.rounds)
    work = "commit of 1 record in each of 2 partitions, without syncs"
    _report(settings, work, "ms", found["2"], "one append", found["append"], times(1 / 8), OS_LEVEL)


def _many_records(settings: Settings, store: Store) -> None:
    """1,000 records and the offsets that they were made from, against the same records appended, and three syncs more."""
    count = settings.scaled(10, 3)
    values = [VALUE] * 1_000

    def process() -> None:
        with store.transaction("process") as transaction:
            transaction.append_many("out", values, partition=0)
            transaction.send_offsets("group", {("in", 0): 1_000})

    log = store.log("out", 1)
    sides = {"process": process, "append": lambda: log.append_many(values)}
    found = race({name: lambda call=call: _a_second(call, count) for name, call in sides.items()}, settings.rounds)
    work = "1,000 records and offsets a transaction"
    _report(settings, work, "/s", found["process"], "append_many of as many", found["append"], None)


def _many_rows(settings: Settings, store: Store) -> None:
    """An Arrow table in each of four partitions, against the same tables appended without a transaction."""
    rows, partitions = settings.scaled(1_000_000, 100_000), range(4)
    table = pa.table({"value": pa.array([VALUE] * (rows // len(partitions)), pa.binary())})

    def together() -> None:
        with store.transaction("rows", buffer_bytes=1 << 30) as transaction:
            for partition in partitions:
                transaction.append_arrow("out", table, partition=partition)

    def each() -> None:
        for partition in partitions:
            store.log("out", partition).append_arrow(table)

    sides = {"together": lambda: millions(rows, together), "each": lambda: millions(rows, each)}
    found = race(sides, settings.repeated(3, 2))
    work = f"{rows:,} rows a transaction, append_arrow, 4 partitions"
    _report(settings, work, "M/s", found["together"], "append_arrow without one", found["each"], times(0.9))


def _readers(settings: Settings, directory: Path) -> None:
    """A scan that leaves out the records of aborted transactions, a tenth of all, against one that does not."""
    count = settings.scaled(200, 50)
    with pylog.open(directory, durability=Durability.OS, transactions=FEW) as store:
        store.create_topic("out")
        for number in range(count):
            transaction = store.transaction("id")
            transaction.append_many("out", [VALUE] * 1_000)
            transaction.flush()
            transaction.commit() if number % 10 else transaction.abort()
        log = store.log("out")

        def scan(level: str) -> float:
            began = time.perf_counter()
            rows = sum(batch.num_rows for batch in log.scan(isolation_level=level))
            return rows / (time.perf_counter() - began) / 1e6

        levels = ("read_committed", "read_uncommitted")
        found = race({level: lambda level=level: scan(level) for level in levels}, settings.rounds)
    work = "scan of committed records, 10 % aborted"
    rival = "a scan of all"
    _report(settings, work, "M/s", found["read_committed"], rival, found["read_uncommitted"], times(0.9), NO_WRITES)


def _snapshot(settings: Settings, directory: Path) -> None:
    """A snapshot of many partitions at rest."""
    with pylog.open(directory, durability=Durability.OS, transactions=FEW) as store:
        store.create_topic("out", partition_count=MANY_PARTITIONS)
        for partition in range(MANY_PARTITIONS):
            _commit_in(store, "id", partition)
        found = race({"snapshot": lambda: _typical(store.snapshot, 50)}, settings.rounds)
    _report_time(settings, f"snapshot() of {MANY_PARTITIONS} partitions at rest", found["snapshot"], at_most(1))


def _opening(settings: Settings, directory: Path) -> None:
    """From `pylog.open` to the first transaction of one more id, in a directory with many transactional ids."""
    ids = settings.scaled(IDS, IDS // 10)
    with pylog.open(directory, durability=Durability.OS) as store:
        store.create_topic("out")
        for number in range(ids):
            _commit_in(store, f"id {number}", 0)
    found = race({"open": lambda: _opening_ms(directory)}, settings.rounds)
    _report_time(settings, f"open a store with {ids:,} transactional ids, and begin a transaction", found["open"], at_most(100))


def _opening_ms(directory: Path) -> float:
    opened = list[Store]()

    def open_and_begin() -> None:
        opened.append(pylog.open(directory, durability=Durability.OS))
        opened[0].transaction("one more").abort()

    taken = 1e3 * seconds(open_and_begin)
    opened[0].close()
    return taken


def _commit_in(store: Store, name: str, partition: int) -> None:
    with store.transaction(name) as transaction:
        transaction.append("out", VALUE, partition=partition)


def _report_time(settings: Settings, work: str, measured: Sample, target: Target) -> None:
    settings.report(Row(part=PART, work=work, unit="ms", measured=measured, target=target))


def _a_second(call: Callable[[], None], count: int) -> float:
    """Returns calls a second."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return count / (time.perf_counter() - began)


def _report(
    settings: Settings,
    work: str,
    unit: str,
    ours: Sample,
    rival: str,
    theirs: Sample,
    target: Target | None,
    durability: str = SYNC_LEVEL,
) -> None:
    """Reports a row with the ratio of rates, or that of times the other way round."""
    settings.report(
        Row(
            part=PART,
            work=work,
            unit=unit,
            measured=ours,
            durability=durability,
            rival="a write and its sync" if rival == "bare" else rival,
            rival_measured=theirs,
            ratio=theirs.over(ours) if unit == "ms" else ours.over(theirs),
            target=target,
        )
    )
