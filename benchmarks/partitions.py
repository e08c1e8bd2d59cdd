"""P14: memory of a process that has ten thousand partitions open, each with one small segment; or as many tables of SQLite."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.files import prepared_store
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_least, at_most
from pylog.segment.names import DURABLE_POINT, PARTITION_METADATA

PARTITIONS = 10_000
LIMIT_MIB = 1024
VALUE = b"0123456789" * 10
TABLES = "SQLite, a database each, no WAL, no syncs"
# The start is a process that has opened one and used it. It ends without closing them.
COMMON = """
import errno, json, os, resource, sys, time

directory, count = sys.argv[1], int(sys.argv[2])
allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
status = open("/proc/self/status")  # kept open: there may be no descriptor left when it is read
opened = []

def mib(name):
    status.seek(0)
    for line in status:
        if line.startswith(name):
            return int(line.split()[1]) / 1024

def files():
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return allowed

def for_each(items, work):  # as far as descriptors go
    started, done = time.perf_counter(), 0
    try:
        for item in items:
            work(item)
            done += 1
    except Exception as error:
        if not ran_out(error):
            raise
    taken = time.perf_counter() - started
    print(json.dumps({"MiB": mib("VmHWM") - start, "seconds": taken, "partitions": done, "files": files(), "allowed": allowed}))

def measure(open_one, append_one):
    global start
    start = mib("VmRSS")
    for_each(range(count), open_one)
    for_each(opened if append_one else (), append_one)
    sys.stdout.flush()
    os._exit(0)
"""
PYLOG = """
import pylog
from benchmarks.files import CountedFileSystem

mode = sys.argv[3]

def ran_out(error):
    return isinstance(error, pylog.StorageFailedError) and error.errno == errno.EMFILE

def append_one(log):
    log.append(b"one more")

def open_one(number):
    opened.append(store.log("events", number))
    assert opened[-1].end_offset > 0

store = pylog.open(directory, mode=mode, durability=pylog.Durability.OS, fs=CountedFileSystem(sync=False))
first = store.log("events", 0)
assert first.read(0).value
if mode == "rw":
    append_one(first)
measure(open_one, append_one if mode == "rw" else None)
"""
SQLITE = """
import sqlite3

def ran_out(error):
    return isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error)

def connected(number):
    connection = sqlite3.connect(f"{directory}/{number}", isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    assert connection.execute("SELECT value FROM events WHERE offset = 1").fetchone()
    return connection

def append_one(connection):
    connection.execute("INSERT INTO events (timestamp, value) VALUES (0, 'one more')")

append_one(connected(0))
measure(lambda number: opened.append(connected(number)), append_one)
"""


def run(settings: Settings) -> None:
    """Reports opening partitions as a broker left them, an append to each, and opening them for reading meanwhile."""
    count = settings.scaled(PARTITIONS, PARTITIONS // 10)
    directory, tables = Path(settings.directory) / "store", Path(settings.directory) / "tables"
    _fill(directory, count)
    _fill_tables(tables, count)
    rivals = _open_all(SQLITE, tables, count)
    opened, written = _open_all(PYLOG, directory, count, "rw")
    _report(settings, f"{count:,} partitions opened, mode='rw'", opened, rivals[0], count, NO_WRITES)
    _report(settings, f"{count:,} partitions opened and one record appended to each", written, rivals[1], count, "Durability.OS")
    opened, _ = _open_all(PYLOG, directory, count, "r")
    _report(settings, f"{count:,} partitions opened, mode='r'", opened, rivals[0], count, NO_WRITES)


def _fill(directory: Path, count: int) -> None:
    """Partitions of one record, without our own header: copies of the first, which no header would fit."""
    with prepared_store(directory) as store:
        store.create_topic("events", partition_count=count)
        store.log("events").append(VALUE)
    model = [path for path in (directory / "events-0").iterdir() if path.name not in (DURABLE_POINT, PARTITION_METADATA)]
    for number in range(1, count):
        for path in model:
            shutil.copyfile(path, directory / f"events-{number}" / path.name)


def _fill_tables(directory: Path, count: int) -> None:
    """As many databases, each of a table with one record."""
    directory.mkdir()
    with closing(sqlite3.connect(directory / "0", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE events (offset INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, value BLOB)")
        connection.execute("INSERT INTO events (timestamp, value) VALUES (0, ?)", (VALUE,))
    for number in range(1, count):
        shutil.copyfile(directory / "0", directory / str(number))


def _open_all(program: str, directory: Path, count: int, *arguments: str) -> list[dict[str, Any]]:
    """What a new process says after opening all of them, and after appending to each."""
    child = [sys.executable, "-c", COMMON + program, str(directory), str(count), *arguments]
    done = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _report(settings: Settings, work: str, found: dict[str, Any], tables: dict[str, Any], count: int, durability: str) -> None:
    full = count == PARTITIONS

    def row(what: str, unit: str, value: float, target: Target | None = None, note: str = "", rival: float | None = None) -> None:
        measured, theirs = Sample((value,)), None if rival is None else Sample((rival,))
        settings.report(
            Row(
                part="P14",
                work=what,
                unit=unit,
                measured=measured,
                durability=durability,
                rival="" if theirs is None else TABLES,
                rival_measured=theirs,
                ratio=None if theirs is None else theirs.over(measured),
                target=target,
                note=note,
            )
        )

    if found["partitions"] < count:
        allowed = f"the process ran out of its {found['allowed']:,} descriptors"
        row(f"{work}: how many", "partitions", found["partitions"], at_least(count), allowed)
    theirs = tables if tables["partitions"] == count else {}  # what fewer of them take is no comparison
    target = at_most(LIMIT_MIB) if full else None
    row(f"{work}: peak resident memory above the start", "MiB", found["MiB"], target, "VmHWM in a new process", theirs.get("MiB"))
    row(f"{work}: descriptors", "", found["files"], rival=theirs.get("files"))
    each = 1e6 * found["seconds"] / max(1, found["partitions"])
    their_each = 1e6 * theirs["seconds"] / count if theirs else None
    row(f"{work}: time for one", "µs", each, note="syncs left out", rival=their_each)
