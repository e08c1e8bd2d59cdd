"""Rows of Arrow batches as `Record` objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.record.arrays import numbers_of
from pylog.record.types import Record

RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


class RecordColumns(NamedTuple):
    """The `RECORD_COLUMNS` of a batch, ready for `records_in`. `headers` is None if no record has any."""

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None


def columns_of(frame: pa.RecordBatch) -> RecordColumns:
    """Returns the columns of a batch, once for all of its chunks. Copies nothing."""
    offset, timestamp, key, value, headers = frame.columns[: len(RECORD_COLUMNS)]
    ends = numbers_of(headers.offsets, np.int32)
    return RecordColumns(
        numbers_of(offset, np.int64), numbers_of(timestamp, np.int64), key, value, None if ends[0] == ends[-1] else headers
    )


def records_in(columns: RecordColumns, first: int, count: int, topic: str, partition: int) -> list[Record]:
    """Returns at most `count` rows from row `first` on as `Record` objects, about 0.2 µs each."""
    rows, headers = slice(first, first + count), columns.headers
    return list(
        map(
            Record,
            repeat(topic),
            repeat(partition),
            columns.offsets[rows].tolist(),
            columns.timestamps[rows].tolist(),
            columns.keys.slice(first, count).to_pylist(),
            columns.values.slice(first, count).to_pylist(),
            repeat(()) if headers is None else header_tuples(headers.slice(first, count)),
        )
    )


def records_of(frame: pa.RecordBatch, topic: str, partition: int) -> list[Record]:
    """Returns the rows of a batch of `RECORD_COLUMNS` as `Record` objects."""
    return records_in(columns_of(frame), 0, frame.num_rows, topic, partition)


def record_chunks(frames: Iterable[pa.RecordBatch], topic: str, partition: int) -> Iterator[list[Record]]:
    """Yields lists of `Record` objects, each small enough to stay in the processor's cache."""
    for frame in frames:
        columns = columns_of(frame)
        for first in range(0, frame.num_rows, limits.RECORD_CHUNK_ROWS):
            yield records_in(columns, first, limits.RECORD_CHUNK_ROWS, topic, partition)


def header_tuples(column: pa.ListArray) -> Iterable[tuple[Any, ...]]:
    """Returns each record's headers as a tuple of pairs."""
    ends = numbers_of(column.offsets, np.int32)
    if ends[0] == ends[-1]:
        return repeat(())
    pairs = column.values.slice(ends[0], ends[-1] - ends[0])  # of a slice: its own headers, not those of all records
    names, values = pairs.field("key").to_pylist(), pairs.field("value").to_pylist()
    return [tuple(zip(names[first:last], values[first:last], strict=True)) for first, last in pairwise((ends - ends[0]).tolist())]
