"""P1: columnar append. `append_arrow` to a new log, against bare `write()` of the same bytes and against others' writers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import pylog
from benchmarks import columns, databases, rivals
from benchmarks.data import PIECE, RECORD_BYTES, log_bytes, new_log, pairs_of, plain_rows
from benchmarks.measure import Row, Sample, Settings, at_least, millions, race, seconds, times

CHUNK = 4 << 20  # what pylog gives to one write()
OS_LEVEL = "Durability.OS"
PROCESS = "process"


def run(settings: Settings) -> None:
    """Reports the rows of P1."""
    pieces = settings.scaled(7, 1)
    contest = _Contest(Path(settings.directory), pieces)
    _at_os_level(settings, contest)
    _at_sync_level(settings, contest)
    _against_files(settings, contest)
    _against_others(settings, contest)


class _Contest:
    """The same rows, appended again and again to new files."""

    def __init__(self, directory: Path, pieces: int) -> None:
        self.directory = directory
        self.rows = [plain_rows(piece * PIECE, PIECE) for piece in range(pieces)]
        self.count = pieces * PIECE
        self.append(pylog.Durability.OS, keep=True)
        self.data = memoryview(log_bytes(directory / "log"))
        self.target = np.empty(len(self.data), np.uint8)
        shutil.rmtree(directory / "log")

    def append(self, durability: pylog.Durability, *, keep: bool = False) -> float:
        """Seconds for all rows, with the making of the file."""
        with new_log(self.directory / "log") as log:
            taken = seconds(lambda: [log.append_arrow(rows, durability=durability) for rows in self.rows])
        if not keep:
            shutil.rmtree(self.directory / "log")
        return taken

    def write(self, *, sync: bool) -> float:
        """Seconds for the same bytes, to a new file."""
        path = self.directory / "bare"

        def work() -> None:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            for position in range(0, len(self.data), CHUNK):
                os.write(file, self.data[position : position + CHUNK])
            if sync:
                os.fdatasync(file)
            os.close(file)

        taken = seconds(work)
        path.unlink()
        return taken

    def copy(self) -> float:
        """Seconds for the same bytes, from memory to memory."""
        source = np.frombuffer(self.data, np.uint8)
        return seconds(lambda: np.copyto(self.target, source))


def _at_os_level(settings: Settings, contest: _Contest) -> None:
    taken = race(
        {
            "pylog": lambda: contest.append(pylog.Durability.OS),
            "write": lambda: contest.write(sync=False),
            "memcpy": contest.copy,
        },
        settings.rounds,
        written=len(contest.data),
    )
    speed = {name: _gigabytes(contest, sample) for name, sample in taken.items()}
    work = f"append_arrow, {contest.count // PIECE} M rows of 8 + 100 bytes to a new log"
    rate = Sample(tuple(contest.count / each / 1e6 for each in taken["pylog"].rounds))
    settings.report(Row(part="P1", work=work, unit="M records/s", measured=rate, durability=OS_LEVEL, target=at_least(10)))
    for rival, words, target in (
        ("write", "bare write() to a new file (page cache)", times(0.7)),
        ("memcpy", "memcpy (memory)", None),
    ):
        settings.report_ratio(
            "P1", f"{work}, bytes", "GB/s", speed["pylog"], words, speed[rival], durability=OS_LEVEL, target=target
        )


def _at_sync_level(settings: Settings, contest: _Contest) -> None:
    taken = race(
        {"pylog": lambda: contest.append(pylog.Durability.SYNC), "write": lambda: contest.write(sync=True)},
        settings.repeated(3, 1),
        written=len(contest.data),
    )
    speed = {name: _gigabytes(contest, sample) for name, sample in taken.items()}
    settings.report_ratio(
        "P1",
        "append_arrow, the same, a sync every 1 M rows",
        "GB/s",
        speed["pylog"],
        "bare write() and one fdatasync (power loss)",
        speed["write"],
        durability="Durability.SYNC",
    )


def _gigabytes(contest: _Contest, taken: Sample) -> Sample:
    return Sample(tuple(len(contest.data) / each / 1e9 for each in taken.rounds))


def _against_files(settings: Settings, contest: _Contest) -> None:
    """Files of columns take what `append_arrow` takes."""
    files = {kind.name: kind(contest.directory / kind.__name__) for kind in columns.ALL}

    def writing(file: columns.Parquet | columns.ArrowFile) -> Callable[[], float]:
        return lambda: seconds(lambda: file.write(contest.rows))

    taken = race(
        {"pylog": lambda: contest.append(pylog.Durability.OS), **{name: writing(file) for name, file in files.items()}},
        settings.repeated(3, 1),
        written=len(contest.data),
    )
    speed = {name: Sample(tuple(contest.count / each / 1e6 for each in sample.rounds)) for name, sample in taken.items()}
    for name in files:
        settings.report_ratio(
            "P1",
            f"append_arrow, {contest.count // PIECE} M rows of 8 + 100 bytes to a new log, beside files of columns",
            "M records/s",
            speed["pylog"],
            f"{name} ({PROCESS})",
            speed[name],
            durability=OS_LEVEL,
        )


def _against_others(settings: Settings, contest: _Contest) -> None:
    """Others take Python objects; so does `append_many`, which is beside `append_arrow` here."""
    count = settings.scaled(200_000, 50_000)
    rows = contest.rows[0].slice(0, count)
    pairs = pairs_of(rows)
    directory = contest.directory
    speed = race(
        {
            "append_arrow": lambda: _append(directory, count, lambda log: log.append_arrow(rows)),
            "append_many": lambda: _append(directory, count, lambda log: log.append_many(pairs)),
            "aiokafka's encoder, batches in memory (none)": lambda: millions(count, lambda: rivals.encode_with_aiokafka(pairs)),
            "kafka-python's encoder, batches in memory (none)": lambda: millions(
                count // 5, lambda: rivals.encode_with_kafka_python(pairs[: count // 5])
            ),
            **{
                f"{kind.name} ({kind.outlives})": lambda kind=kind: _write(
                    directory / "database", kind, pairs[: count // kind.part]
                )  # type: ignore[misc]
                for kind in databases.ALL
            },
        },
        settings.repeated(3, 1),
        written=int(count * RECORD_BYTES),
    )
    for rival in list(speed)[2:]:
        for ours in ("append_arrow", "append_many"):
            settings.report_ratio(
                "P1",
                f"{ours}, {count // 1000:,} k records in one call, file and index included",
                "M records/s",
                speed[ours],
                rival,
                speed[rival],
                durability=OS_LEVEL,
            )


def _append(directory: Path, count: int, work: object) -> float:
    assert callable(work)
    with new_log(directory / "log") as log:
        speed = millions(count, lambda: work(log))
    shutil.rmtree(directory / "log")
    return speed


def _write(path: Path, kind: type[databases.Database], pairs: Sequence[rivals.Pair]) -> float:
    path.mkdir()
    database = kind(path / "data")
    speed = millions(len(pairs), lambda: database.write(pairs))
    database.close()
    shutil.rmtree(path)
    return speed
