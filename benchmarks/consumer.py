"""End to end: a writer in this process, a member of a group in another one, or a table of SQLite between the two; and a consumer
that reads what is there already.

End to end both work at the same time, and every record counts: from the first append on until the consumer has the last record.
Before that the consumer has joined its group, and read one append: neither joining nor loading kernels is measured. At
Durability.OS a segment is synced when it is full, which happens some twelve times while 30 M records come.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import pylog
from benchmarks import databases
from benchmarks.data import RECORD_BYTES, fixed, new_log
from benchmarks.measure import Sample, Settings, Target, at_least, race
from benchmarks.processes import NAP, Process
from pylog import Consumer, Durability

PIECE = 100_000  # rows of one append
OPTIONS = {"auto_offset_reset": "earliest", "max_poll_records": 5_000}


def run(settings: Settings) -> None:
    """Reports the rows."""
    directory = Path(settings.directory)
    for how, count, target in (
        ("poll", settings.scaled(3_000_000, 600_000), at_least(1)),
        ("poll_arrow", settings.scaled(30_000_000, 3_000_000), at_least(10)),
    ):
        contestants = {
            "pylog": lambda how=how, count=count: _end_to_end(directory / "log", how, count),
            "sqlite": lambda: _through_a_table(directory / "table", settings.scaled(300_000, 60_000)),
        }
        work = f"append_arrow of {PIECE:,} rows of 100 bytes at a time → group consumer in another process, {how}"
        _report(settings, work, race(contestants, settings.repeated(3, 1), written=int(count * RECORD_BYTES)), target)
    _backlog(settings, directory / "backlog")


def _end_to_end(directory: Path, how: str, count: int) -> float:
    """Millions of records a second, from the first append to the consumer's last record."""
    values = _piece()
    with new_log(directory, durability="os", segment_bytes=256 << 20) as log:
        log.append_arrow(values)  # what the consumer warms up with
        with Process(_consume, directory, how, count) as consumer:
            started = time.monotonic_ns()
            for _ in range(0, count, PIECE):
                log.append_arrow(values)
            ended: int = consumer.pipe.recv()
        assert log.end_offset == PIECE + count
    shutil.rmtree(directory)
    return count / (ended - started) * 1e3


def _piece() -> pa.Table:
    return pa.table({"value": fixed(PIECE, 100)})


def _consume(directory: Path, how: str, count: int, connection: Connection) -> None:
    """The other process: it has joined the group and read what is there before it says that it is ready; it tells when it had
    the last record.
    """
    with pylog.open(directory, durability=Durability.OS) as store, store.consumer("events", group_id="g", **OPTIONS) as consumer:
        READ[how](consumer, PIECE)
        connection.send("ready")
        READ[how](consumer, count)
        connection.send(time.monotonic_ns())


def _through_a_table(path: Path, count: int) -> float:
    """The same with SQLite: rows of 100 bytes go in a thousand a transaction; the other process asks for those that are new."""
    pairs = [(b"", value) for value in fixed(count, 100).to_pylist()]
    with closing(databases.Sqlite(path)) as table, Process(_read_table, path, count) as reader:
        started = time.monotonic_ns()
        table.write(pairs)
        ended: int = reader.pipe.recv()
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    return count / (ended - started) * 1e3


def _read_table(path: Path, count: int, connection: Connection) -> None:
    """The other process: as `_consume`, with as many rows at a time as a `poll` has, and naps like those of `follow`."""
    table = sqlite3.connect(path, isolation_level=None)
    query = "SELECT offset, timestamp, key, value FROM events WHERE offset > ? ORDER BY offset LIMIT ?"
    connection.send("ready")
    seen = 0
    while seen < count:
        rows = table.execute(query, (seen, OPTIONS["max_poll_records"])).fetchall()
        seen += len(rows)
        if not rows:
            time.sleep(NAP)
    connection.send(time.monotonic_ns())


def _poll(consumer: Consumer, count: int) -> None:
    while count > 0:
        count -= sum(map(len, consumer.poll(timeout_ms=1_000).values()))
    assert count == 0


def _poll_arrow(consumer: Consumer, count: int) -> None:
    while count > 0:
        count -= sum(frame.num_rows for frame in consumer.poll_arrow(timeout_ms=1_000).values())
    assert count == 0


def _iterate(consumer: Consumer, count: int) -> None:
    for number, _ in enumerate(consumer, 1):
        if number == count:
            return


READ: dict[str, Callable[[Consumer, int], None]] = {"poll": _poll, "poll_arrow": _poll_arrow, "for record in consumer": _iterate}


def _backlog(settings: Settings, directory: Path) -> None:
    """What is there already; beside it the log itself, without positions, commits and turns."""
    count = settings.scaled(2_000_000, 500_000)
    with new_log(directory, durability="os") as log:
        for _ in range(0, count, PIECE):
            log.append_arrow(_piece())

    def rate(work: Callable[[pylog.Store], object]) -> float:
        with pylog.open(directory, mode="r") as store:
            started = time.perf_counter()
            work(store)
            return count / (time.perf_counter() - started) / 1e6

    def consumed(how: str) -> Callable[[pylog.Store], None]:
        def work(store: pylog.Store) -> None:
            with store.consumer("events", **OPTIONS) as consumer:
                READ[how](consumer, count)

        return work

    def records(store: pylog.Store) -> None:
        for _ in store.log("events").records():
            pass

    def scan(store: pylog.Store) -> None:
        for _ in store.log("events").scan():
            pass

    contestants = {how: lambda how=how: rate(consumed(how)) for how in READ}
    rivals = {"log.records()": lambda: rate(records), "log.scan()": lambda: rate(scan)}
    found = race({**contestants, **rivals}, settings.repeated(3, 1))
    for how in READ:
        rival = "log.scan()" if how == "poll_arrow" else "log.records()"
        work = f"{how}, {count // 1000:,} k records that are there already"
        settings.report_ratio("P4", work, "M records/s", found[how], f"{rival} (pylog itself)", found[rival])


def _report(settings: Settings, work: str, found: dict[str, Sample], target: Target) -> None:
    settings.report_ratio(
        "E2E",
        work,
        "M records/s",
        found["pylog"],
        "a table in SQLite, WAL, 1,000 a transaction",
        found["sqlite"],
        durability="Durability.OS",
        note="segments of 256 MiB, each synced when it is full",
        target=target,
    )
