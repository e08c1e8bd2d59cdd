"""Small logs that one store writes and another one reads, and the batches of brokers in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pylog
from pylog.clock import ManualClock
from pylog.store import Store
from support.faults.neighbours import last_segment
from support.reference.records import Batch, Record

SMALL: dict[str, Any] = {"segment_bytes": 600, "index_interval_bytes": 100, "retention_ms": -1}


def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


def store(path: Path) -> Iterator[Store]:
    """A store that writes: one topic, of small segments."""
    with pylog.open(path) as opened:
        opened.create_topic("t", **SMALL)
        yield opened


def log(store: Store) -> pylog.Log:
    made = store.log("t")
    made.append(b"0")
    return made


def clock() -> ManualClock:
    """The reader's: waiting costs no time."""
    return ManualClock()


def reader(path: Path, log: pylog.Log, clock: ManualClock) -> Iterator[pylog.Log]:
    """The same partition in a store that only reads."""
    with pylog.open(path, mode="r", clock=clock) as reading:
        yield reading.log("t")


def append(log: pylog.Log, numbers: Iterable[int]) -> None:
    for number in numbers:
        assert log.append(b"%d" % number) == number


def texts(numbers: Iterable[int]) -> list[bytes | None]:
    return [b"%d" % number for number in numbers]


def add(directory: Path, data: bytes) -> None:
    with last_segment(directory).open("ab") as file:
        file.write(data)


def broker_batch(offset: int, *sent: bytes, epoch: int = 0, **fields: Any) -> bytes:
    """What a broker appends."""
    records = [Record(delta, 0, None, value) for delta, value in enumerate(sent)]
    return Batch(records, base_offset=offset, leader_epoch=epoch, base_timestamp=1_700_000_000_000, **fields).encoded()
