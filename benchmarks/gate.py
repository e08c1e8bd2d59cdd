"""Ten ratios for `.ci/run`, in processor time, which other processes of the machine change little. Controls measure how much.

A contest is one call of pylog against one call of a rival that does as much. A control is a contest of a rival against itself:
only the machine's noise moves its ratio from round to round, and `compare` takes its tolerance from that.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

import pylog
from benchmarks import databases, rivals
from benchmarks.compare import CONTROL
from benchmarks.data import batches_of, fill, fill_segments, log_bytes, new_log, pairs_of, plain_rows, timestamp_of
from benchmarks.measure import NO_WRITES, Sample, Settings, race
from pylog import OffsetsConfig, TopicPartition

SEGMENT_BYTES = 8 << 20
HASHED = 128 << 10  # bytes of one checksum, like a batch
ROWS = 50_000  # of an append of columns
LISTED = 10_000  # records of an append of objects
SINGLE = 200  # calls that take or return one record or one offset
OPENINGS = 10
OS_LEVEL = "Durability.OS"
Call = Callable[[], object]


class Contest(NamedTuple):
    """One ratio: the processor time of `theirs` through that of `ours`."""

    work: str
    rival: str
    ours: Call
    theirs: Call
    durability: str = NO_WRITES
    part: str = "gate"


def run(settings: Settings) -> None:
    """Reports ten ratios and two controls."""
    with ExitStack() as held:
        run_contests(settings, [*_contests(Path(settings.directory), held)])


def run_contests(settings: Settings, contests: Sequence[Contest]) -> None:
    """Races all contests in turns, and reports the ratio of each."""
    sides = {(contest.work, side): getattr(contest, side) for contest in contests for side in ("ours", "theirs")}
    contestants = {f"{side} {work}": lambda call=call: _processor_ms(call) for (work, side), call in sides.items()}
    found = race(contestants, settings.repeated(15, 7))
    for contest in contests:
        _report(settings, contest, found[f"ours {contest.work}"], found[f"theirs {contest.work}"])


def _report(settings: Settings, contest: Contest, ours: Sample, theirs: Sample) -> None:
    settings.report_ratio(
        contest.part,
        contest.work,
        "calls a ms of processor time",
        _inverse(ours),
        contest.rival,
        _inverse(theirs),
        durability=contest.durability,
    )


def _inverse(taken: Sample) -> Sample:
    return Sample(tuple(1 / each for each in taken.rounds))


def _processor_ms(call: Call) -> float:
    """Milliseconds that all threads of this process have run."""
    started = time.process_time_ns()
    call()
    return (time.process_time_ns() - started) / 1e6


def _contests(directory: Path, held: ExitStack) -> Iterator[Contest]:
    log = held.enter_context(new_log(directory / "log", segment_bytes=SEGMENT_BYTES))
    end = fill_segments(log, 1, piece=ROWS)
    data = log_bytes(directory / "log")
    yield from _reads(log, end, data)
    yield from _lookups(log, end, held.enter_context(closing(_filled(directory / "table"))))
    yield from _appends(directory / "appended", held)
    yield from _small_calls(directory, held)
    hash_all = lambda: _hash(data)  # noqa: E731 - both sides of a control are the same call
    yield Contest("checksums of bytes in memory", "itself", hash_all, hash_all, part=CONTROL)
    decode = lambda: rivals.decode_with_aiokafka(batches_of(data))  # noqa: E731
    yield Contest("decoding records in memory", "itself", decode, decode, part=CONTROL)


def _reads(log: pylog.Log, end: int, data: bytes) -> Iterator[Contest]:
    batches = batches_of(data)
    decode = lambda: rivals.decode_with_aiokafka(batches)  # noqa: E731
    yield Contest("scan", "google_crc32c of the bytes", lambda: [*log.scan(0, end)], lambda: _hash(data))
    yield Contest("for record in records()", "aiokafka's decoder", lambda: _read_all(log, end), decode)


def _read_all(log: pylog.Log, end: int) -> None:
    for record in log.records(0, end):
        record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018


def _hash(data: bytes) -> None:
    for position in range(0, len(data), HASHED):
        google_crc32c.value(data[position : position + HASHED])


def _filled(path: Path) -> databases.Sqlite:
    """A table of 50,000 records with an index of their timestamps."""
    table = databases.Sqlite(path)
    table.write(pairs_of(plain_rows(0, ROWS)))
    table.connection.execute("CREATE INDEX times ON events (timestamp)")
    return table


def _lookups(log: pylog.Log, end: int, table: databases.Sqlite) -> Iterator[Contest]:
    offsets = np.random.default_rng(1).integers(0, min(end, ROWS), SINGLE).tolist()
    moments = [timestamp_of(offset) for offset in offsets]
    query = "SELECT offset, timestamp FROM events WHERE timestamp >= ? ORDER BY timestamp LIMIT 1"
    yield Contest("read(offset)", "SQLite, by number", lambda: [*map(log.read, offsets)], lambda: [*map(table.get, offsets)])
    yield Contest(
        "offset_for_timestamp",
        "SQLite, by an index",
        lambda: [*map(log.offset_for_timestamp, moments)],
        lambda: [table.connection.execute(query, (moment,)).fetchone() for moment in moments],
    )


def _appends(directory: Path, held: ExitStack) -> Iterator[Contest]:
    log = held.enter_context(new_log(directory, segment_bytes=1 << 30))
    rows, pairs = plain_rows(0, ROWS), pairs_of(plain_rows(0, LISTED))
    values = [value for _, value in pairs]
    written = b"x" * int(ROWS * 118.4)
    yield Contest(
        "append_arrow",
        "write() to a new file",
        lambda: log.append_arrow(rows),
        lambda: _write(directory / "bare", written),
        OS_LEVEL,
    )
    yield Contest(
        "append_many",
        "aiokafka's encoder",
        lambda: log.append_many(values),
        lambda: rivals.encode_with_aiokafka(pairs),
        OS_LEVEL,
    )
    table = held.enter_context(closing(_offsets_table(directory / "rows")))
    yield Contest(
        "append",
        "SQLite, a transaction each",
        lambda: [log.append(value) for value in values[:SINGLE]],
        lambda: [table.execute("REPLACE INTO rows VALUES (1, ?)", (value,)) for value in values[:SINGLE]],
        OS_LEVEL,
    )


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(file, data)
    os.close(file)


def _offsets_table(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=NORMAL",
        "CREATE TABLE rows (id INTEGER PRIMARY KEY, value)",
    ):
        connection.execute(statement)
    return connection


def _small_calls(directory: Path, held: ExitStack) -> Iterator[Contest]:
    with new_log(directory / "small") as log:
        fill(log, 1_000)
    table = held.enter_context(closing(_offsets_table(directory / "small.table")))
    table.execute("INSERT INTO rows VALUES (1, 0)")
    yield Contest(
        "opening and closing a store and a partition",
        "SQLite, a database",
        lambda: [_open_log(directory / "small") for _ in range(OPENINGS)],
        lambda: [_open_table(directory / "small.table") for _ in range(OPENINGS)],
    )
    offsets = OffsetsConfig(topic_num_partitions=1)
    store = held.enter_context(pylog.open(directory / "groups", durability=pylog.Durability.OS, offsets=offsets))
    store.create_topic("events")
    store.log("events").append_arrow(pa.table({"value": [b"x"] * ROWS}))
    place, numbers = TopicPartition("events", 0), count()
    yield Contest(
        "commit of one offset",
        "SQLite, a transaction each",
        lambda: [store.offsets.commit("group", {place: next(numbers) % ROWS}) for _ in range(SINGLE)],
        lambda: [table.execute("REPLACE INTO rows VALUES (2, ?)", (number,)) for number in range(SINGLE)],
        OS_LEVEL,
    )
    yield Contest("poll", "log.records()", lambda: _poll(store), lambda: [*store.log("events").records()])


def _open_log(directory: Path) -> None:
    with pylog.open(directory) as store:
        assert store.log("events").end_offset == 1_000


def _open_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as table:
        assert table.execute("SELECT value FROM rows WHERE id = 1").fetchone() == (0,)


def _poll(store: pylog.Store) -> None:
    with store.consumer("events", auto_offset_reset="earliest", max_poll_records=5_000) as consumer:
        left = ROWS
        while left:
            left -= sum(map(len, consumer.poll(timeout_ms=1_000).values()))
