"""P8: opening a partition of a thousand segments that was closed cleanly, and one whose writer was killed."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import google_crc32c
import numpy as np

import pylog
from benchmarks.data import RECORD_BYTES, disk_bytes, fill, fill_segments, log_bytes, new_log, touch
from benchmarks.files import prepared_store
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, at_least, at_most, race, seconds
from pylog import limits
from pylog.fs import OsFileSystem

SEGMENTS = 1_000
SEGMENT_BYTES = 64 << 10  # small: what counts is how many there are
RECORDS = 500  # of one append: a batch of almost a segment
HASHED = 128 << 10  # bytes of one checksum, like a batch
OS_LEVEL = "Durability.OS"


def run(settings: Settings) -> None:
    """Reports the rows of P8. Modules and kernels are warm: what they cost a new process is P12's."""
    directory = Path(settings.directory)
    _open_clean(settings, directory / "clean")
    _recover(settings, directory / "killed")


# ---- closed cleanly ----------------------------------------------------------------------------------------------------------


def _open_clean(settings: Settings, directory: Path) -> None:
    """From `pylog.open` to the end offset; closing is not measured."""
    segments = settings.scaled(SEGMENTS, SEGMENTS // 5)
    with prepared_store(directory) as store:
        store.create_topic("events", segment_bytes=SEGMENT_BYTES)
        fill_segments(store.log("events"), segments - 1, piece=RECORDS)
        end = store.log("events").end_offset
    touch(directory)
    found = race(
        {
            "rw": lambda: _opening_ms(directory, "rw", end),
            "r": lambda: _opening_ms(directory, "r", end),
            "listing": lambda: 1000 * seconds(lambda: _list(directory / "events-0")),
        },
        2 * settings.rounds,
    )
    files = len(os.listdir(directory / "events-0"))
    for mode, target in (("rw", at_most(50)), ("r", None)):
        settings.report(
            Row(
                part="P8",
                work=f"open a cleanly closed partition of {segments:,} segments, mode={mode!r}, to its end offset",
                unit="ms",
                measured=found[mode],
                rival=f"bare listing of its directory, {files:,} files with their sizes",
                rival_measured=found["listing"],
                ratio=found["listing"].over(found[mode]),
                target=target if segments == SEGMENTS else None,
            )
        )


def _opening_ms(directory: Path, mode: str, end: int) -> float:
    started = time.perf_counter()
    store = pylog.open(directory, mode=mode)
    found = store.log("events").end_offset
    taken = time.perf_counter() - started
    assert found == end
    assert store.recovery_report == ()
    store.close()
    return 1000 * taken


def _list(directory: Path) -> list[int]:
    with os.scandir(directory) as entries:
        return [entry.stat(follow_symlinks=False).st_size for entry in entries]


# ---- killed ------------------------------------------------------------------------------------------------------------------


class _NextBoot(OsFileSystem):
    """The same files after a restart of the system: nothing that was published proves anything any more."""

    def boot_id(self) -> bytes:
        return b"another boot of this machine"


def _recover(settings: Settings, directory: Path) -> None:
    """Loading the partition, which changes no file: so it can be measured again and again."""
    size = settings.scaled(1 << 30, 128 << 20)
    end = _leave_unclean(directory, int(size / RECORD_BYTES))
    data = log_bytes(directory)
    assert len(data) == disk_bytes(directory)  # all of it is in one segment, the active one
    target, buffer = np.empty(len(data), np.uint8), bytearray(limits.READ_CHUNK_BYTES)
    source = np.frombuffer(data, np.uint8)
    works: dict[str, Callable[[], float]] = {
        "killed": lambda: _loading(directory, OsFileSystem(), end),
        "restarted": lambda: _loading(directory, _NextBoot(), end),
        "memcpy": lambda: seconds(lambda: np.copyto(target, source)),
        "crc": lambda: seconds(lambda: _hash(source)),
        "pread": lambda: seconds(lambda: _read(directory / "events-0", buffer)),
    }
    contestants = {name: lambda work=work: len(data) / work() / 1e9 for name, work in works.items()}
    found = race(contestants, settings.rounds)
    work = f"recover an active segment of {len(data) >> 20:,} MiB"
    _report(settings, f"{work}, its writer killed", found["killed"], at_least(4))
    _report(settings, f"{work}, as after a power loss (another boot id)", found["restarted"], at_least(4))
    for name, rival in (
        ("memcpy", "memcpy of the same bytes (memory)"),
        ("crc", "google_crc32c of the same bytes, 128 KiB at a time"),
        ("pread", "pread of the file, 2 MiB at a time (page cache)"),
    ):
        _report(settings, f"{work}, as after a power loss", found["restarted"], None, rival, found[name])


def _report(
    settings: Settings, work: str, ours: Sample, target: Target | None, rival: str = "", theirs: Sample | None = None
) -> None:
    settings.report(
        Row(
            part="P8",
            work=work,
            unit="GB/s",
            measured=ours,
            durability=NO_WRITES if theirs is not None else f"written at {OS_LEVEL}",
            rival=rival,
            rival_measured=theirs,
            ratio=None if theirs is None else ours.over(theirs),
            target=target,
        )
    )


def _leave_unclean(directory: Path, count: int) -> int:
    """A log whose writer was killed, and its end; the bytes are on the disk, so that nothing writes them back meanwhile."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    writer = context.Process(target=_write, args=(directory, count, there))
    writer.start()
    there.close()  # so that the writer's death is noticed
    end: int = here.recv()
    writer.kill()
    writer.join()
    os.sync()
    touch(directory)
    return end


def _write(directory: Path, count: int, connection: Connection) -> None:
    """The process that will be killed."""
    with new_log(directory, segment_bytes=limits.MAX_SEGMENT_BYTES) as log:
        connection.send(fill(log, count))
        connection.recv()


def _loading(directory: Path, files: OsFileSystem, end: int) -> float:
    """Seconds for loading the partition."""
    with pylog.open(directory, fs=files) as store:
        taken = seconds(lambda: store.log("events"))
        assert store.log("events").end_offset == end
        assert [finding.kind for finding in store.recovery_report] == []
        return taken


def _hash(source: Sequence[int] | np.ndarray) -> int:
    checksum = 0
    for position in range(0, len(source), HASHED):
        checksum ^= google_crc32c.value(source[position : position + HASHED])
    return checksum


def _read(directory: Path, buffer: bytearray) -> None:
    file = os.open(next(directory.glob("*.log")), os.O_RDONLY)
    position = 0
    while count := os.preadv(file, [buffer], position):
        position += count
    os.close(file)
