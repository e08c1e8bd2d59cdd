"""P9: compaction of a log that never was compacted, against reading all of it and writing what stays."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

import pylog
from benchmarks.data import PIECE, RECORD_BYTES, fixed
from benchmarks.measure import Sample, Settings, at_least, fetch_memory, race, seconds

CHUNK = 4 << 20
SEGMENT_BYTES = 256 << 20


def run(settings: Settings) -> None:
    """Reports the rows of P9."""
    pieces = settings.scaled(8, 2)
    for title, distinct, target in (("half of it superseded", 0.5, 600), ("nothing superseded", 1.0, None)):
        contest = _Contest(Path(settings.directory), pieces, distinct)
        taken = race({"pylog": contest.compact, "copy": contest.copy}, settings.repeated(3, 1), written=contest.size)
        speed = {name: Sample(tuple(contest.size / 1e6 / each for each in sample.rounds)) for name, sample in taken.items()}
        settings.report_ratio(
            "P9",
            f"compact {pieces} M records of 8 + 100 bytes, random keys, {title}",
            "MB/s of input",
            speed["pylog"],
            "read all, write what stays, sync",
            speed["copy"],
            durability="each new segment synced",
            target=at_least(target) if target else None,
        )


class _Contest:
    """The same log, made and compacted again and again."""

    def __init__(self, directory: Path, pieces: int, distinct: float) -> None:
        self._directory = directory / "log"
        self._distinct = distinct
        count = pieces * PIECE
        self._keys = np.random.default_rng(1).permutation(np.arange(count) % int(count * distinct)).astype(">i8")
        self.size = int(count * RECORD_BYTES)
        self._data = np.random.default_rng(2).integers(0, 256, self.size, dtype=np.uint8)

    def compact(self) -> float:
        """Seconds for a compaction; the making of the log does not count."""
        with pylog.open(self._directory, durability=pylog.Durability.OS) as store:
            store.create_topic("events", cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
            log = store.log("events")
            for first in range(0, len(self._keys), PIECE):
                log.append_arrow(pa.record_batch({"key": self._column(first), "value": fixed(PIECE, 100)}))
            log.append_arrow(pa.record_batch({"key": fixed(PIECE, 8), "value": fixed(PIECE, 100)}))  # most of it is not compacted
            fetch_memory(self.size)  # what was free is full of the log now
            taken = seconds(lambda: self._checked(store))
        shutil.rmtree(self._directory)
        return taken

    def _column(self, first: int) -> pa.Array:
        ends = pa.py_buffer(np.arange(PIECE + 1, dtype=np.int32) * 8)
        return pa.Array.from_buffers(pa.binary(), PIECE, [None, ends, pa.py_buffer(self._keys[first : first + PIECE])])

    def _checked(self, store: pylog.Store) -> None:
        (done,) = store.compact("events")
        self.size = done.read

    def copy(self) -> float:
        """Seconds to read as many bytes, and to write and sync the share that stays."""
        path = self._directory.with_name("bare")

        def work() -> None:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            kept = int(self.size * self._distinct)
            for position in range(0, self.size, CHUNK):
                self._data[position : position + CHUNK].sum(dtype=np.uint8)
                if position < kept:
                    os.write(file, self._data[position : min(position + CHUNK, kept)])
            os.fdatasync(file)
            os.close(file)

        taken = seconds(work)
        path.unlink()
        return taken
