"""`Changer`: makes one kind of change again and again, and counts in all processes what takes acknowledged records away."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pylog
from pylog import Durability
from support.campaign.beside import KEPT, OPTIONS

SIZE: Final = 48  # of the file of `Eras`
FREE: Final[dict[str, Any]] = {**OPTIONS, "retention_bytes": 40_000}  # so that a tick deletes segments


class Eras:
    """Counts the changes that take acknowledged records away, begun and ended, in two processes: each writes its own half."""

    def __init__(self, path: Path, half: int) -> None:
        self._file = path.open("r+b")
        self._memory = mmap.mmap(self._file.fileno(), SIZE)
        self._half = half
        self._guard = threading.Lock()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Around each such change."""
        self._count(0)
        try:
            yield
        finally:
            self._count(1)

    def _count(self, which: int) -> None:
        with self._guard:
            place = 16 * self._half + 8 * which
            (found,) = struct.unpack("q", self._memory[place : place + 8])
            self._memory[place : place + 8] = struct.pack("q", found + 1)

    def now(self) -> tuple[int, ...]:
        return struct.unpack("4q", self._memory[:32])

    @property
    def is_over(self) -> bool:
        """Whether the other process is to end."""
        return self._memory[32] != 0

    def end(self) -> None:
        self._memory[32] = 1

    @property
    def changes(self) -> int:
        """How many changes of the kind that a test is about were made."""
        found: int = struct.unpack("q", self._memory[40:])[0]
        return found

    def note_change(self) -> None:
        self._memory[40:] = struct.pack("q", self.changes + 1)

    def lasts(self, since: tuple[int, ...]) -> bool:
        """Whether no such change was under way then, and none has begun since."""
        return since[0] == since[1] and since[2] == since[3] and self.now() == since

    def close(self) -> None:
        self._memory.close()
        self._file.close()


_NUMBERS: Final = itertools.count()


def new_value() -> bytes:
    """A value that no other record has, with its own CRC."""
    text = b"%d.%d" % (os.getpid(), next(_NUMBERS))
    return b"%s/%d" % (text, zlib.crc32(text))


def check_value(value: bytes | None) -> None:
    assert value is not None
    text, _, crc = value.partition(b"/")
    assert int(crc) == zlib.crc32(text), f"{value!r} is not what was written"


# ---- the changes ---------------------------------------------------------------------------------------------------------------


class Changer:
    """Makes one kind of change again and again, with appends in between."""

    def __init__(self, store: pylog.Store, eras: Eras, only: str, seed: int) -> None:
        self.store = store
        self.steps = 0
        self._eras = eras
        self._only = only
        self._rng = random.Random(seed)
        self.slowest = 0.0

    def step(self) -> None:
        """A change. What another thread does at the same moment may be in its way, and says so by an error of that kind."""
        self.steps += 1
        began = time.monotonic()
        passing = (pylog.UnknownTopicOrPartitionError, pylog.TopicAlreadyExistsError, pylog.OffsetOutOfRangeError)
        with suppress(*passing, pylog.InvalidTransactionStateError):  # the last one: it would part a transaction of another call
            self.store.log("t").append_many([(b"k", new_value())] * 3, durability=Durability.OS)
            if self._only != "roll":  # which appends make
                getattr(self, self._only)()
            self._eras.note_change()
        self.slowest = max(self.slowest, time.monotonic() - began)

    def truncate(self) -> None:
        log = self.store.log("t")
        with self._eras.change():
            log.truncate(max(log.start_offset, log.end_offset - self._rng.randint(0, 30)))

    def delete_records(self) -> None:
        log = self.store.log("t")
        log.delete_records(max(log.start_offset, log.end_offset - KEPT))

    def compaction(self) -> None:
        self.store.compact("t")

    def tick(self) -> None:
        self.store.tick()

    def alter_topic(self) -> None:
        self.store.alter_topic("t", segment_bytes=self._rng.choice([1500, 2500]))

    def close(self) -> None:
        self.store.close()
        self.store = pylog.open(self.store.path, durability=Durability.OS)

    def delete_topic(self) -> None:
        with self._eras.change():
            self.store.delete_topic("t")
            self.store.create_topic("t", **FREE)


def change(path: str, eras: str, seed: int, only: str) -> tuple[int, float]:
    """Makes changes until it is told to end, in the process that this is called in.

    Returns:
        How many, and the longest in seconds.
    """
    there = Eras(Path(eras), 1)
    changer = Changer(pylog.open(path, durability=Durability.OS), there, only, seed)
    while not there.is_over:
        changer.step()
        time.sleep(0.001)
    changer.store.close()
    there.close()
    return changer.steps, changer.slowest
