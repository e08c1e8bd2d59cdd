"""P7: appends that outlive a power loss, against bare `pwrite` and `fdatasync` of as many bytes to a file in the same directory.

`Durability.SYNC` promises what a broker with `flush.messages=1` does: the disk has a record before its append returns. A disk's
syncs are uneven, so the contestants take turns often and for a few calls at a time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pylog
from benchmarks import databases
from benchmarks.data import FIRST_TIMESTAMP, disk_bytes
from benchmarks.files import CountedFileSystem
from benchmarks.measure import Row, Sample, Settings, at_least, race, seconds, times
from benchmarks.processors import on_one_processor

SYNC_LEVEL = "Durability.SYNC"
BROKER = "as a broker with flush.messages=1"
VALUE = b"0123456789" * 10
MANY = [VALUE] * 1_000
THREADS = 32
SLOT = bytes(128)


def run(settings: Settings) -> None:
    """Reports the rows of P7."""
    directory = Path(settings.directory)
    _one_a_call(settings, directory)
    _many_a_call(settings, directory)
    _many_threads(settings, directory)


@contextmanager
def _synced_log(directory: Path, **options: Any) -> Iterator[pylog.Log]:
    """A log in a new store at the default level, with its first append done."""
    with pylog.open(directory, **options) as store:
        store.create_topic("events")
        store.log("events").append(VALUE, timestamp=FIRST_TIMESTAMP)
        yield store.log("events")


class _Bare:
    """A file that grows by a write and a sync at a time.

    Args:
        path: the file, made anew.
        size: bytes of one write.
        slot: whether a small write to a second file follows, not synced: the least that a durable point costs.
    """

    def __init__(self, path: Path, size: int, *, slot: bool = False) -> None:
        self._data = os.urandom(size)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        self._file = os.open(path, flags, 0o600)
        self._slots = os.open(f"{path}.slot", flags, 0o600) if slot else None
        self._position = 0

    def append(self) -> None:
        os.pwrite(self._file, self._data, self._position)
        os.fdatasync(self._file)
        if self._slots is not None:
            os.pwrite(self._slots, SLOT, len(SLOT) * (self._position // len(self._data) % 2))
        self._position += len(self._data)

    def close(self) -> None:
        for file in (self._file, self._slots):
            if file is not None:
                os.close(file)


class _Sqlite(databases.Sqlite):
    """The same as elsewhere, but a commit outlives a power loss."""

    name = "SQLite, WAL, a transaction a call"
    durability = "power loss (WAL, synchronous=FULL)"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.connection.execute("PRAGMA synchronous=FULL")


@contextmanager
def _rivals(directory: Path, size: int) -> Iterator[tuple[_Bare, _Bare, _Sqlite]]:
    """A bare file beside the log's, one with a slot, a database."""
    bare, slotted = _Bare(directory / "bare", size), _Bare(directory / "slotted", size, slot=True)
    database = _Sqlite(directory / "sqlite")
    try:
        yield bare, slotted, database
    finally:
        bare.close()
        slotted.close()
        database.close()


def _a_second(count: int, call: Callable[[], object]) -> float:
    """How many calls a second."""
    return count / seconds(lambda: [call() for _ in range(count)])


# ---- one thread --------------------------------------------------------------------------------------------------------------


def _one_a_call(settings: Settings, directory: Path) -> None:
    """One record of 100 bytes a call; as many bytes bare as its batch has."""
    calls = settings.scaled(50, 20)
    with ExitStack() as opened:
        log = opened.enter_context(_synced_log(directory / "log"))
        exclusive = opened.enter_context(_synced_log(directory / "exclusive", exclusive=True))
        bare, slotted, database = opened.enter_context(_rivals(directory, disk_bytes(directory / "log")))
        works: dict[str, Callable[[], object]] = {
            "pylog": lambda: log.append(VALUE, timestamp=FIRST_TIMESTAMP),
            "exclusive": lambda: exclusive.append(VALUE, timestamp=FIRST_TIMESTAMP),
            "bare": bare.append,
            "slotted": slotted.append,
            "sqlite": lambda: database.write([(b"", VALUE)]),
        }
        contestants = {name: lambda work=work: _a_second(calls, work) for name, work in works.items()}
        found = race(contestants, settings.repeated(40, 10))
    work = "append of 100 bytes, one thread, a sync a call"
    _against_bare(settings, work, "calls/s", found)
    for name, rival in (
        ("slotted", "bare pwrite and fdatasync, then 128 bytes to a second file (power loss)"),
        ("sqlite", f"{_Sqlite.name} ({_Sqlite.durability})"),
    ):
        _report(settings, work, "calls/s", found["pylog"], rival, found[name])


def _against_bare(settings: Settings, work: str, unit: str, found: dict[str, Sample]) -> None:
    rival = "bare pwrite and fdatasync (power loss)"
    _report(settings, work, unit, found["pylog"], rival, found["bare"], limit=0.9, note=BROKER)
    _report(settings, f"{work}, exclusive=True", unit, found["exclusive"], rival, found["bare"])
    pairs = zip(found["pylog"].rounds, found["bare"].rounds, strict=True)
    own = Sample(tuple(1e6 / ours - 1e6 / bare for ours, bare in pairs))
    settings.report(
        Row(
            part="P7",
            work=f"{work}: what pylog adds to the bare write and sync",
            unit="µs",
            measured=own,
            durability=SYNC_LEVEL,
            note=f"0.9 of the bare speed on a disk that takes {9 * own.median / 1000:.2f} ms for them",
        )
    )


def _report(
    settings: Settings,
    work: str,
    unit: str,
    ours: Sample,
    rival: str,
    theirs: Sample,
    *,
    limit: float | None = None,
    note: str = "",
) -> None:
    settings.report_ratio(
        "P7", work, unit, ours, rival, theirs, durability=SYNC_LEVEL, target=None if limit is None else times(limit), note=note
    )


def _many_a_call(settings: Settings, directory: Path) -> None:
    """A thousand records a call."""
    calls = settings.scaled(20, 10)
    directory = directory / "many"
    directory.mkdir()
    with ExitStack() as opened:
        log = opened.enter_context(_synced_log(directory / "log"))
        exclusive = opened.enter_context(_synced_log(directory / "exclusive", exclusive=True))
        before = disk_bytes(directory / "log")
        log.append_many(MANY)
        bare, _, database = opened.enter_context(_rivals(directory, disk_bytes(directory / "log") - before))
        pairs = [(b"", VALUE)] * len(MANY)
        works: dict[str, Callable[[], object]] = {
            "pylog": lambda: log.append_many(MANY),
            "exclusive": lambda: exclusive.append_many(MANY),
            "bare": bare.append,
            "sqlite": lambda: database.write(pairs),
        }
        contestants = {name: lambda work=work: _a_second(calls, work) for name, work in works.items()}
        found = race(contestants, settings.repeated(20, 5))
    work = f"append_many of {len(MANY):,} values of 100 bytes, a sync a call"
    _against_bare(settings, work, "calls/s", found)
    _report(settings, work, "calls/s", found["pylog"], f"{_Sqlite.name} ({_Sqlite.durability})", found["sqlite"])


# ---- threads -----------------------------------------------------------------------------------------------------------------


def _many_threads(settings: Settings, directory: Path) -> None:
    """Group commit: threads that wait for the same sync."""
    calls = settings.scaled(50, 20)
    files = CountedFileSystem()
    grouped: list[float] = []
    with _synced_log(directory / "threads", fs=files) as log:

        def many() -> float:
            syncs, end = files.syncs, log.end_offset
            speed = _by_threads(log, calls)
            assert log.end_offset - end == THREADS * calls
            grouped.append(THREADS * calls / (files.syncs - syncs))
            return speed

        def held() -> float:
            with on_one_processor():
                return _by_threads(log, calls)

        one = lambda: _a_second(calls, lambda: log.append(VALUE, timestamp=FIRST_TIMESTAMP))  # noqa: E731 - a contestant
        found = race({"many": many, "held": held, "one": one}, settings.repeated(15, 5))
        assert log.durable_offset == log.end_offset
    work = f"append of 100 bytes by {THREADS} threads, group commit"
    _report(settings, work, "calls/s", found["many"], "pylog, one thread", found["one"], limit=5)
    _report(settings, f"{work}, the process held to one processor", "calls/s", found["held"], "pylog, one thread", found["one"])
    per_sync = Sample(tuple(grouped[1:]))  # the first round warms up
    settings.report(
        Row(part="P7", work=f"{work}: appends a sync", unit="", measured=per_sync, durability=SYNC_LEVEL, target=at_least(8))
    )


def _by_threads(log: pylog.Log, calls: int) -> float:
    """Calls a second of all threads together."""
    ready = threading.Barrier(THREADS + 1)

    def work() -> None:
        ready.wait()
        for _ in range(calls):
            log.append(VALUE, timestamp=FIRST_TIMESTAMP)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return THREADS * calls / (time.perf_counter() - started)
