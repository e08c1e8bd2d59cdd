"""P12: what a new process pays before its first append and its first scan, with compiled kernels cached and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.data import new_log, plain_rows
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_most, race

TIMED = """
import sys, time
started = time.perf_counter()
{work}
print(time.perf_counter() - started)
"""
IMPORT = "import pylog"
PYARROW = "import pyarrow"
LIBRARIES = "import numba, numpy, pyarrow"  # what a first append and a first scan stand on
APPEND = """
import pylog
with pylog.open(sys.argv[1], durability=pylog.Durability.OS) as store:
    store.create_topic("events")
    store.log("events").append(b"value", key=b"key")
"""
SCAN = """
import pylog
with pylog.open(sys.argv[1], mode="r") as store:
    assert next(iter(store.log("events").scan())).num_rows
"""
RECORD = """
import pylog
with pylog.open(sys.argv[1], mode="r") as store:
    assert next(iter(store.log("events").records())).offset == 0
"""
FIRST_SECOND = """
import pylog
with pylog.open(sys.argv[1], durability=pylog.Durability.OS) as store:
    store.create_topic("events")
    log = store.log("events")
    log.append_many([b"value"] * 1000)
    assert sum(1 for _ in log.records()) == sum(batch.num_rows for batch in log.scan()) == 1000
"""
NAMES = """
from pylog.cli.run import run
assert run(["topics", sys.argv[1]]) == 0
"""
OS_LEVEL = "Durability.OS"
WARM = "new process, kernels cached"
COLD = "new process, NUMBA_CACHE_DIR empty"


def run(settings: Settings) -> None:
    """Reports the rows of P12. Times are from the first import to the result; the interpreter's own start is left out."""
    directory = Path(settings.directory)
    with new_log(directory / "full") as log:
        log.append_arrow(plain_rows(0, 100_000))
    _warm(settings, directory)
    _cold(settings, directory)


def _warm(settings: Settings, directory: Path) -> None:
    cache = directory / "warm-cache"
    cache.mkdir()
    works = (IMPORT, PYARROW, APPEND, SCAN, RECORD, LIBRARIES)
    contestants = {work: lambda work=work: _run(work, directory, cache) for work in works}  # type: ignore[misc]
    found = race(contestants, settings.rounds)
    for what, work, rival, level, target in (
        ("import pylog, modules in the page cache", IMPORT, PYARROW, NO_WRITES, at_most(0.1)),
        (f"first append and close, {WARM}", APPEND, LIBRARIES, OS_LEVEL, at_most(1)),
        (f"first Arrow batch of a scan, {WARM}", SCAN, LIBRARIES, NO_WRITES, at_most(1)),
        (f"first record of records(), {WARM}", RECORD, LIBRARIES, NO_WRITES, None),
    ):
        _report(settings, what, found[work], level, target, f"{rival}, and nothing else", found[rival])


def _cold(settings: Settings, directory: Path) -> None:
    for what, work, level, target in (
        (f"first append and close, {COLD}", APPEND, OS_LEVEL, at_most(1)),
        (f"first Arrow batch of a scan, {COLD}", SCAN, NO_WRITES, at_most(5)),
        (f"append_many, records() and scan() of 1,000 records, {COLD}", FIRST_SECOND, OS_LEVEL, at_most(1)),
        (f"pylog topics, {COLD}", NAMES, NO_WRITES, at_most(1)),
    ):
        taken = Sample(tuple(_run_cold(work, directory) for _ in range(settings.repeated(3, 1))))
        _report(settings, what, taken, level, target)
    both = Sample(tuple(_run_cold(APPEND + SCAN, directory) for _ in range(settings.repeated(3, 1))))
    _report(settings, f"first append, then first scan, {COLD}", both, OS_LEVEL, None)


def _report(
    settings: Settings,
    what: str,
    taken: Sample,
    durability: str,
    target: Target | None,
    rival: str = "",
    rivals: Sample | None = None,
) -> None:
    settings.report(
        Row(
            part="P12",
            work=what,
            unit="s",
            measured=taken,
            durability=durability,
            rival=rival,
            rival_measured=rivals,
            ratio=rivals.over(taken) if rivals else None,
            target=target,
        )
    )


def _run_cold(work: str, directory: Path) -> float:
    with tempfile.TemporaryDirectory(dir=directory) as cache:
        return _run(work, directory, Path(cache))


def _run(work: str, directory: Path, cache: Path) -> float:
    """Runs a program in a new process and returns the seconds that it counted."""
    new = directory / "new"
    target = new if work.startswith((APPEND, FIRST_SECOND)) else directory / "full"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYLOG_KERNELS": "auto"}
    command = [sys.executable, "-c", TIMED.format(work=work), str(target)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    shutil.rmtree(new, ignore_errors=True)
    return float(done.stdout.splitlines()[-1])  # a command prints before it
