"""Planning a Spark read of 100 TB: 10,000 partitions of a hundred segments of 100 MB each.

The files are real names in real directories, with real batch headers and indexes, but the records are holes, and the partitions
are hard links to one another (see tests/support/faults/sparse_log.py). What planning asks for is there, and the page cache has
it. It takes minutes to make them all: only a full run does.

Then the same of an archive, which is a catalogue only: a plan reads nothing else. It is made in seconds, so that every run but a
quick one has all of it: a million segments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Row, Sample, Settings, Size, Target, at_most, seconds

PROJECT = Path(__file__).resolve().parent.parent
PARTITIONS = 10_000
SEGMENTS = 100
LIMIT_SECONDS = 10  # for all partitions
ARCHIVE_MIB = 512
CHILD = """
import json, pickle, resource, sys, time
from pylog.spark.options import read_options
from pylog.spark.planner import plan

def used():
    own, helpers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in (own, helpers)), max(own_peak(own), helpers.ru_maxrss)

def own_peak(own):  # on Linux ru_maxrss would be at least what the process that started this one had in memory
    if sys.platform == "darwin":
        return own.ru_maxrss
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

options = read_options({"path": sys.argv[1], "subscribe": "events", "maxBytesPerPartition": sys.argv[2]})
if __name__ == "__main__":
    started = time.perf_counter()
    parts = plan(options)
    seconds = time.perf_counter() - started
    size = sum(4 + len(pickle.dumps(part, protocol=5)) for part in parts)  # as Spark takes them
    cpu, peak = used()
    peak /= 2**20 if sys.platform == "darwin" else 2**10
    print(json.dumps({"seconds": seconds, "cpu": cpu, "tasks": len(parts), "MB": size / 1e6, "MiB": peak}))
"""


def run(settings: Settings) -> None:
    """Reports planning in a new process, with tasks of 1 GiB and of the default size."""
    sys.path.append(str(PROJECT / "tests"))  # the logs without records
    from support.faults.sparse_log import make_store

    partitions = PARTITIONS if settings.size is Size.FULL else settings.scaled(PARTITIONS // 5, PARTITIONS // 20)
    directory = Path(settings.directory) / "store"
    make_store(directory, partitions=partitions, segments=SEGMENTS)
    _list(directory)  # so that all names are in memory for the bare listing, as they are for the plan
    bare = seconds(lambda: _list(directory))
    for name, size in (("1 GiB", 1 << 30), ("128 MiB, the default", 128 << 20)):
        _report(settings, name, _planned(str(directory), size), partitions, bare)
    _report_archive(settings)


def _report_archive(settings: Settings) -> None:
    from support.bench.made_catalogue import make_catalogue

    partitions = PARTITIONS if settings.size is not Size.QUICK else PARTITIONS // 20
    directory = Path(settings.directory) / "archive"
    make_catalogue(directory, partitions=partitions, segments=SEGMENTS)
    found = _planned(f"file://{directory}", 1 << 30)
    work = f"plan of an archive's {partitions:,} partitions, {partitions * SEGMENTS:,} segments, tasks of 1 GiB"
    rows = (("processor time", "s", "cpu", LIMIT_SECONDS), ("peak resident memory", "MiB", "MiB", ARCHIVE_MIB))
    for what, unit, name, limit in rows:
        settings.report(
            Row(part="plan", work=f"{work}: {what}", unit=unit, measured=Sample((found[name],)), target=at_most(limit))
        )


def _list(directory: Path) -> int:
    """The bytes of all `.log` files: the least that a plan must know."""
    total = 0
    for partition in os.scandir(directory):
        if partition.is_dir():
            total += sum(entry.stat().st_size for entry in os.scandir(partition) if entry.name.endswith(".log"))
    return total


def _planned(path: str, size: int) -> dict[str, float]:
    child = [sys.executable, "-c", CHILD, path, str(size)]
    done = subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _report(settings: Settings, name: str, found: dict[str, float], partitions: int, bare: float) -> None:
    full = partitions == PARTITIONS and name == "1 GiB"
    work = f"plan of {partitions:,} partitions, {partitions * SEGMENTS:,} segments, tasks of {name}"

    def row(what: str, unit: str, value: float, target: Target | None = None, note: str = "", least: float | None = None) -> None:
        measured, bare = Sample((value,)), None if least is None else Sample((least,))
        settings.report(
            Row(
                part="plan",
                work=f"{work}: {what}",
                unit=unit,
                measured=measured,
                rival="" if bare is None else "names and sizes of its files alone, by one process",
                rival_measured=bare,
                ratio=None if bare is None else bare.over(measured),
                target=target,
                note=note,
            )
        )

    row("time", "s", found["seconds"], at_most(LIMIT_SECONDS) if full else None, f"{found['cpu']:.1f} s of the processors")
    limit = at_most(1e6 * LIMIT_SECONDS / PARTITIONS) if name == "1 GiB" else None
    row("time for a partition", "µs", 1e6 * found["seconds"] / partitions, limit, least=1e6 * bare / partitions)
    row("tasks", "", found["tasks"])
    row("size, pickled", "MB", found["MB"], at_most(50) if full else None)
    row("peak resident memory of the largest process of it", "MiB", found["MiB"], at_most(1024) if full else None)
