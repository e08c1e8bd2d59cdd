"""P14: memory of a process that has ten thousand partitions open, each with one small segment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.files import prepared_store
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_least, at_most
from pylog.segment.names import DURABLE_POINT, PARTITION_METADATA

PARTITIONS = 10_000
LIMIT_MIB = 1024
VALUE = b"0123456789" * 10
# The start is a process that has opened one partition and used it. It ends without closing them.
CHILD = """
import errno, json, os, resource, sys, time
import pylog
from benchmarks.files import CountedFileSystem

directory, mode, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
status = open("/proc/self/status")  # kept open: there may be no descriptor left when it is read

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
    except pylog.StorageFailedError as error:
        if error.errno != errno.EMFILE:
            raise
    taken = time.perf_counter() - started
    print(json.dumps({"MiB": mib("VmHWM") - start, "seconds": taken, "partitions": done, "files": files(), "allowed": allowed}))

def open_one(number):
    logs.append(store.log("events", number))
    assert logs[-1].end_offset > 0

store = pylog.open(directory, mode=mode, durability=pylog.Durability.OS, fs=CountedFileSystem(sync=False))
first = store.log("events", 0)
assert first.read(0).value
if mode == "rw":
    first.append(b"one more")
start, logs = mib("VmRSS"), []
for_each(range(count), open_one)
for_each(logs if mode == "rw" else (), lambda log: log.append(b"one more"))
sys.stdout.flush()
os._exit(0)
"""


def run(settings: Settings) -> None:
    """Reports opening partitions as a broker left them, an append to each, and opening them for reading meanwhile."""
    count = settings.scaled(PARTITIONS, PARTITIONS // 10)
    directory = Path(settings.directory) / "store"
    _fill(directory, count)
    opened, written = _open_all(directory, "rw", count)
    _report(settings, f"{count:,} partitions opened, mode='rw'", opened, count, NO_WRITES)
    _report(settings, f"{count:,} partitions opened and one record appended to each", written, count, "Durability.OS")
    opened, _ = _open_all(directory, "r", count)
    _report(settings, f"{count:,} partitions opened, mode='r'", opened, count, NO_WRITES)


def _fill(directory: Path, count: int) -> None:
    """Partitions of one record, without our own header: copies of the first, which no header would fit."""
    with prepared_store(directory) as store:
        store.create_topic("events", partitions=count)
        store.log("events").append(VALUE)
    model = [path for path in (directory / "events-0").iterdir() if path.name not in (DURABLE_POINT, PARTITION_METADATA)]
    for number in range(1, count):
        for path in model:
            shutil.copyfile(path, directory / f"events-{number}" / path.name)


def _open_all(directory: Path, mode: str, count: int) -> list[dict[str, Any]]:
    """What a new process says after opening all partitions, and after appending to each."""
    child = [sys.executable, "-c", CHILD, str(directory), mode, str(count)]
    done = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _report(settings: Settings, work: str, found: dict[str, Any], count: int, durability: str) -> None:
    full = count == PARTITIONS

    def row(what: str, unit: str, value: float, target: Target | None, note: str = "") -> None:
        measured = Sample((value,))
        settings.report(Row(part="P14", work=what, unit=unit, measured=measured, durability=durability, target=target, note=note))

    if found["partitions"] < count:
        allowed = f"the process ran out of its {found['allowed']:,} descriptors"
        row(f"{work}: how many", "partitions", found["partitions"], at_least(count), allowed)
    note = "VmHWM in a new process"
    row(f"{work}: peak resident memory above the start", "MiB", found["MiB"], at_most(LIMIT_MIB) if full else None, note)
    row(f"{work}: descriptors", "", found["files"], None)
    row(f"{work}: time for one", "µs", 1e6 * found["seconds"] / max(1, found["partitions"]), None, "syncs left out")
