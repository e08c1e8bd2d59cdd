"""Rows of Arrow batches as `Record` objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from pylog import limits
from pylog.record.arrays import numbers_of
from pylog.record.types import Record

RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


def records_of(frame: pa.RecordBatch, topic: str, partition: int) -> list[Record]:
    """Returns the rows of a batch of `RECORD_COLUMNS` as `Record` objects, about 0.2 µs each."""
    offset, timestamp, key, value, headers = frame.columns
    return list(
        map(
            Record,
            repeat(topic),
            repeat(partition),
            numbers_of(offset, np.int64).tolist(),
            numbers_of(timestamp, np.int64).tolist(),
            key.to_pylist(),
            value.to_pylist(),
            header_tuples(headers),
        )
    )


def record_chunks(frames: Iterable[pa.RecordBatch], topic: str, partition: int) -> Iterator[list[Record]]:
    """Yields lists of `Record` objects, each small enough to stay in the processor's cache."""
    for frame in frames:
        for first in range(0, frame.num_rows, limits.RECORD_CHUNK_ROWS):
            yield records_of(frame.slice(first, limits.RECORD_CHUNK_ROWS), topic, partition)


def header_tuples(column: pa.ListArray) -> Iterable[tuple[Any, ...]]:
    """Returns each record's headers as a tuple of pairs."""
    ends = numbers_of(column.offsets, np.int32)
    if ends[0] == ends[-1]:
        return repeat(())
    pairs = column.values
    names, values = pairs.field("key").to_pylist(), pairs.field("value").to_pylist()
    return [tuple(zip(names[first:last], values[first:last], strict=True)) for first, last in pairwise(ends.tolist())]
