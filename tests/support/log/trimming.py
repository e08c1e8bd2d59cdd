"""Logs of a few known segments, to be made shorter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pylog
from pylog import TopicPartition
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem

T = TopicPartition("t", 0)


NOW = 1_700_000_000_000


def sized(store: Store, name: str = "t", per_segment: int = 5, **config: Any) -> pylog.Log:
    """A log whose segments hold so many records, each a batch of its own, of one digit."""
    batch = 61 + 8
    store.create_topic(name, segment_bytes=per_segment * batch, index_interval_bytes=0, **({"retention_ms": -1} | config))
    return store.log(name)


def digit(number: int) -> bytes:
    return b"%d" % (number % 10)


def aged(store: Store, **config: Any) -> pylog.Log:
    """Fifteen records, five a segment, a second apart."""
    log = sized(store, **config)
    for number in range(15):
        log.append(digit(number), timestamp=NOW + 1000 * number)
    return log


def fs() -> HookedFileSystem:
    return HookedFileSystem()


def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


def store(path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(path, fs=fs, clock=ManualClock(NOW)) as opened:
        yield opened


def log(store: Store) -> pylog.Log:
    """Fifteen records, five a segment: as Kafka's own tests have it."""
    made = sized(store)
    for number in range(15):
        made.append(digit(number))
    assert bases(made) == [0, 5, 10]
    return made


def digits(numbers: range) -> list[bytes | None]:
    return [digit(number) for number in numbers]


def bases(log: pylog.Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def ends(log: pylog.Log) -> tuple[int, int, int]:
    return log.start_offset, log.end_offset, log.durable_offset


def names(directory: Path, pattern: str = "*") -> set[str]:
    return {file.name for file in directory.glob(pattern)}


def fail() -> None:
    raise StorageFailedError("cannot do it: no room, for a test", errno=28)
