"""What is written and read: rows of a given shape, and logs filled with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import pylog

FIRST_TIMESTAMP = 1_700_000_000_000
PIECE = 1_000_000  # rows of one append
RECORD_BYTES = 118.4  # of a key of 8 bytes and a value of 100 in a batch
BATCH_OVERHEAD = 100  # what `max_message_bytes` must have above the batch size wanted

Rows = Callable[[int, int], pa.RecordBatch]  # first offset and count to rows

_WORDS = ("orders", "customer", "created", "shipped", "pending", "amount", "currency", "EUR", "USD", "total", "item", "address")


def fixed(count: int, size: int) -> pa.Array:
    """Letters, `size` bytes each."""
    ends = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(_letters()[: count * size])])


@cache
def _letters() -> np.ndarray:
    """Made by the first call: 100 MB take half a second, and not every program that imports this writes rows."""
    return np.random.default_rng(0).integers(65, 91, PIECE * 100, dtype=np.uint8)


def plain_rows(first: int, count: int) -> pa.RecordBatch:
    """Keys of 8 bytes, values of 100, a millisecond apart."""
    return _rows(first, fixed(count, 8), fixed(count, 100))


def small_rows(first: int, count: int) -> pa.RecordBatch:
    """Values of 4 bytes and nothing else, a millisecond apart."""
    return _rows(first, None, fixed(count, 4))


def text_rows(first: int, count: int) -> pa.RecordBatch:
    """Keys of 8 digits, values of about 100 bytes that look like JSON; zstd makes them four times smaller."""
    random = np.random.default_rng(first)
    keys = [b"%08d" % key for key in random.integers(0, 10**6, count).tolist()]
    numbers = random.integers(0, 10**9, count).tolist()
    words = [[_WORDS[index] for index in random.integers(0, len(_WORDS), count).tolist()] for _ in range(8)]
    texts = ['{"id":' + str(number) + ',"' + '":"'.join(some) + '"}' for number, *some in zip(numbers, *words, strict=True)]
    return _rows(first, pa.array(keys, pa.binary()), pa.array(texts).cast(pa.binary()))


def _rows(first: int, keys: pa.Array | None, values: pa.Array) -> pa.RecordBatch:
    columns = {"value": values, "timestamp": pa.array(np.arange(first, first + len(values)) + FIRST_TIMESTAMP)}
    return pa.record_batch({"key": keys, **columns} if keys is not None else columns)


def pairs_of(rows: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    """Keys and values as Python objects."""
    return list(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))


def timestamp_of(offset: int) -> int:
    """The timestamp of a record made here."""
    return FIRST_TIMESTAMP + offset


@contextmanager
def new_log(directory: Path, **config: Any) -> Iterator[pylog.Log]:
    """A log in a new store, at `Durability.OS`; the files stay."""
    with pylog.open(directory, durability=pylog.Durability.OS) as store:
        store.create_topic("events", **config)
        yield store.log("events")


@contextmanager
def reopened(directory: Path, mode: str) -> Iterator[pylog.Log]:
    """The same log, opened anew: what is sealed is mapped by a store that may write, and read with pread by one that may not."""
    with pylog.open(directory, mode=mode) as store:
        yield store.log("events")


def fill(log: pylog.Log, count: int, rows: Rows = plain_rows) -> int:
    """Appends so many rows, and returns the log's end."""
    while log.end_offset < count:
        log.append_arrow(rows(log.end_offset, min(PIECE, count - log.end_offset)))
    return log.end_offset


def fill_segments(log: pylog.Log, segments: int, rows: Rows = plain_rows, piece: int = PIECE) -> int:
    """Appends until so many segments are sealed, and returns the offset behind them."""
    while len(log.segments) <= segments:
        log.append_arrow(rows(log.end_offset, piece))
    return log.segments[segments].base_offset


def log_bytes(directory: Path) -> bytes:
    """The log's first file: batches, one after the other."""
    return min((directory / "events-0").glob("*.log")).read_bytes()


def batches_of(data: bytes) -> list[bytes]:
    """The whole batches in a file's bytes."""
    found, position = [], 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        found.append(data[position:end])
        position = end
    return found


def touch(directory: Path) -> None:
    """Reads every file once, so that all of them are in the page cache."""
    buffer = bytearray(1 << 20)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def disk_bytes(directory: Path) -> int:
    """The size of the log's data files."""
    return sum(os.path.getsize(path) for path in (directory / "events-0").glob("*.log"))
