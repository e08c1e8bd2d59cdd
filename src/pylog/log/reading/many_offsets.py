"""Reads the records at many offsets into one table: each batch that has one of them is decoded once.

Offsets that are near each other are one scan, which walks over the headers between them. A gap in which the walk would cost more
than another search of the index ends the scan. Few offsets that are far from others are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.log.arguments import offset_given
from pylog.log.reading import reader
from pylog.log.reading.good_batches import OffsetRange
from pylog.log.reading.lookup import out_of_range, read_one
from pylog.log.state import LogState
from pylog.record.batch import Table
from pylog.record.decoder import DEFAULT_COLUMNS, schema_of
from pylog.record.format import LAST_OFFSET
from pylog.record.types import Record, TopicPartition

Offsets = NDArray[np.int64]
_GAP_BYTES: Final = 2 << 20  # the headers of so many bytes are walked over faster than a scan begins
_FEW: Final = 4  # near offsets that are read one by one faster than a scan begins; each may decompress its batch again


def offsets_of(given: Any) -> Offsets:
    """Returns the offsets that a caller has given, as an array.

    Raises:
        InvalidArgumentError: they are not a sequence or an array of integers, or have a null.
        OffsetOutOfRangeError: one is negative.
    """
    if isinstance(given, pa.Array | pa.ChunkedArray):
        if not pa.types.is_integer(given.type) or given.null_count:
            raise InvalidArgumentError(f"offsets of the type {given.type} with {given.null_count} nulls: expected integers")
        given = given.to_numpy(zero_copy_only=False) if isinstance(given, pa.Array) else given.to_numpy()
    if isinstance(given, np.ndarray):
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"offsets of the type {given.dtype} with {given.ndim} dimensions: expected integers in one"
            )
        for extreme in (given.min(), given.max()) if given.size else ():
            offset_given("an offset", int(extreme))
        return given.astype(np.int64)
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidArgumentError(f"offsets: expected a list or an array of integers, not {type(given).__name__}")
    return np.array([offset_given("an offset", each) for each in given], np.int64)


def read_many(
    state: LogState, partition: TopicPartition, offsets: Offsets, columns: Sequence[str], *, committed: bool
) -> pa.Table:
    """Returns the records at some offsets, in their order. See `Log.read_many`."""
    wanted = np.unique(offsets)
    if wanted.size and not state.start_offset <= int(wanted[0]) <= int(wanted[-1]) < state.end_offset:
        below = int(wanted[0]) < state.start_offset
        raise out_of_range(state, partition, int(wanted[0] if below else wanted[-1]))
    if committed:
        wanted = wanted[wanted < state.stable_offset]
    with_offsets = tuple(columns) if "offset" in columns else (*columns, "offset")
    schema, singly = schema_of(with_offsets), not committed and set(with_offsets) <= set(DEFAULT_COLUMNS)
    frames, alone = list[pa.RecordBatch](), list[Record]()
    for near in _runs(state, wanted):
        if singly and near.size <= _FEW:
            alone += _records(state, partition, near)
        else:
            frames += [_only(frame, near) for frame in _frames(state, near, with_offsets, committed=committed)]
    if alone:
        frames.append(_frame_of(alone, schema))
    return _in_order(pa.Table.from_batches(frames, schema), offsets).select(list(columns))


def _records(state: LogState, partition: TopicPartition, few: Offsets) -> Iterator[Record]:
    """Yields the records that exist at some offsets."""
    for offset in few.tolist():
        with suppress(OffsetOutOfRangeError):  # only markers follow
            record = read_one(state, partition, offset)
            if record.offset == offset:
                yield record


def _frame_of(records: list[Record], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([getattr(each, name) for each in records]).cast(schema.field(name).type) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _runs(state: LogState, wanted: Offsets) -> Iterator[Offsets]:
    """Yields the offsets of each segment, cut where a gap is large."""
    left = wanted
    for segment, end in state.from_offset(int(wanted[0]) if wanted.size else state.end_offset):
        here, left = np.split(left, [np.searchsorted(left, end)])
        if here.size:
            bytes_each = max(1.0, state.size_of(segment) / max(1, end - segment.base_offset))
            yield from np.split(here, np.flatnonzero(np.diff(here) > max(1.0, _GAP_BYTES / bytes_each)) + 1)
        if not left.size:
            return


def _frames(state: LogState, near: Offsets, columns: Sequence[str], *, committed: bool) -> Iterator[pa.RecordBatch]:
    def picked(table: Table) -> Table:
        """Selects the batches that may have one of the offsets: after the batch before, and not after their own last one."""
        ends = np.searchsorted(near, table[LAST_OFFSET], side="right")
        has_some = np.diff(ends, prepend=0) > 0
        return table if has_some.all() else np.ascontiguousarray(table[:, has_some])

    wanted = OffsetRange(int(near[0]), int(near[-1]) + 1)
    return reader.scan(state, wanted, columns, committed=committed, max_rows=limits.SCAN_ROWS, verify=True, pick=picked)


def _only(frame: pa.RecordBatch, near: Offsets) -> pa.RecordBatch:
    """Returns the rows of a frame that have one of the offsets."""
    offsets = frame.column("offset").to_numpy()
    rows = np.minimum(np.searchsorted(near, offsets), near.size - 1)
    is_wanted = near[rows] == offsets
    return frame if is_wanted.all() else frame.take(pa.array(np.flatnonzero(is_wanted)))


def _in_order(table: pa.Table, offsets: Offsets) -> pa.Table:
    """Returns the rows in the order of the offsets, each as often as it was requested."""
    found = table.column("offset").to_numpy()
    if np.array_equal(found, offsets):
        return table
    order = np.argsort(found, kind="stable")
    rows = np.searchsorted(found, offsets, sorter=order)
    exists = rows < found.size
    exists[exists] = found[order[rows[exists]]] == offsets[exists]
    return table.take(pa.array(order[rows[exists]]))
