"""Records of one topic as columns, built from the records of `send` or from a table, and split into batches by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylog.errors import InvalidRecordError, UnknownTopicOrPartitionError
from pylog.producer.future import FutureRecordMetadata, details_of, key_of, value_of
from pylog.producer.route import Route, too_large
from pylog.record import layouts
from pylog.record.arrays import binary_array, number_array
from pylog.record.builder import keyless
from pylog.record.format import HEADER_SIZE
from pylog.record.from_arrow import plain_batch, rows_from_arrow
from pylog.record.layouts import HEADERS_TYPE
from pylog.record.rows import MAX_RECORD_OVERHEAD, Longs, Rows

Futures = Sequence[FutureRecordMetadata]
_ONE_HEADER = 10  # the most bytes of a header's sizes, and of the number of headers


class Columns(NamedTuple):
    """Some records of a topic.

    Attributes:
        batch: the records.
        sizes: the largest size of each record in a batch, in bytes.
        futures: the futures of the records; empty if they came as a table.
    """

    batch: pa.RecordBatch
    sizes: Longs
    futures: Futures

    def take(self, order: Longs) -> Columns:
        """Returns the records in another order."""
        rows = pa.array(order)
        chosen = [column.take(rows) for column in self.batch.columns]  # a third faster than the batch's own method
        futures = np.fromiter(self.futures, object, len(order))[order].tolist() if self.futures else ()
        return Columns(pa.RecordBatch.from_arrays(chosen, schema=self.batch.schema), self.sizes[order], futures)


class PartitionRows(NamedTuple):
    """Records of one partition, ready to be appended.

    Attributes:
        rows: the records.
        sizes, futures: as in `Columns`.
    """

    rows: Rows
    sizes: Longs
    futures: Futures

    def slice(self, first: int, end: int) -> PartitionRows:
        """Returns the records from `first` up to, but not including, `end`."""
        return PartitionRows(self.rows.slice(first, end), self.sizes[first:end], self.futures[first:end])


def columns_of(futures: Futures, route: Route, now_ms: int) -> Columns:
    """Returns the records of futures; those without a timestamp get `now_ms`."""
    columns = {
        "value": binary_array(list(map(value_of, futures))),
        "timestamp": number_array(_timestamps(futures, route, now_ms), pa.int64()),
    }
    if route.keyed:
        columns["key"] = binary_array(list(map(key_of, futures)))
    if route.headed:
        given = [details_of(future).headers or () for future in futures]
        lists = [[{"key": name, "value": held} for name, held in headers] for headers in given]
        columns["headers"] = pa.array(lists, HEADERS_TYPE)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return Columns(batch, _sizes(next(rows_from_arrow(batch, now_ms))), futures)


def _timestamps(futures: Futures, route: Route, now_ms: int) -> Longs:
    if not route.timed:
        return np.full(len(futures), now_ms, np.int64)
    given = [details_of(future).timestamp for future in futures]
    return np.array([now_ms if stamp is None else stamp for stamp in given], np.int64)


def _sizes(rows: Rows) -> Longs:
    sizes = np.full(len(rows), MAX_RECORD_OVERHEAD - HEADER_SIZE, np.int64)
    for column in (rows.keys, rows.values):
        if column.ends.size:
            sizes += np.diff(column.ends)
    headers = rows.header_sizes()
    return sizes if headers is None else sizes + headers


def partitions_named(futures: Futures, route: Route) -> Longs | None:
    """Returns the partitions that records name, -1 for none; None if no record of the topic has named one yet."""
    if not route.named:
        return None
    given = [details_of(future).partition for future in futures]
    return np.array([-1 if partition is None else partition for partition in given], np.int64)


def chosen_partitions(route: Route, columns: Columns, named: Longs | None) -> Longs:
    """Returns the partition of each record: its explicit one (not -1), else the partitioner's choice."""
    known = np.array(route.partitions, np.int64)
    if named is None and len(known) == 1:
        return known.repeat(len(columns.sizes))
    if named is None:
        return known[route.partitioner.choose(_keys(columns.batch), columns.sizes, len(known))]
    free = np.flatnonzero(named < 0)
    if len(free):
        keys = _keys(columns.batch).take(pa.array(free))
        named[free] = known[route.partitioner.choose(keys, columns.sizes[free], len(known))]
    return named


def _keys(batch: pa.RecordBatch) -> pa.BinaryArray:
    if "key" not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.binary())
    keys = batch.column("key")
    return keys if keys.type == pa.binary() else keys.cast(pa.binary())


def columns_of_table(table: Any, route: Route, now_ms: int) -> list[tuple[Columns, Longs | None]]:
    """Returns the rows of a table in chunks, each with the partitions that its rows name (-1 for none).

    Raises:
        InvalidRecordError, InvalidTimestampError, RecordTooLargeError, UnknownTopicOrPartitionError: some row cannot be appended.
    """
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidRecordError(f"send_arrow takes a pyarrow.Table or RecordBatch, not {type(table).__name__}")
    names = [name for name in table.schema.names if name != "partition"]
    if len(names) < len(table.schema.names) - 1:
        raise InvalidRecordError(f"the columns are {table.schema.names}; 'partition' may occur only once")
    if len(set(names)) < len(names):
        raise InvalidRecordError(f"the columns are {table.schema.names}; each name may occur only once")
    pieces = []
    for batch in [table] if isinstance(table, pa.RecordBatch) else table.to_batches():
        named = _named(batch.column("partition"), route) if "partition" in table.schema.names else None
        rest = plain_batch(batch.select(names)) if names else pa.record_batch({"value": pa.nulls(len(batch), pa.binary())})
        for rows in rows_from_arrow(rest, now_ms):
            if route.compacted and rows.lacks_a_key():
                raise keyless("a row of the table")
            if route.timestamps is not None:
                route.timestamps.check(rows, now_ms)
            sizes = _sizes(rows)
            _check_sizes(sizes, route)
            pieces.append((Columns(rest, sizes, ()), named))
    return pieces


def _named(given: pa.Array, route: Route) -> Longs | None:
    """Returns a column of partitions; None if it names no partition."""
    given = layouts.decoded(given)
    if given.null_count == len(given):
        return None
    if not pa.types.is_integer(given.type):
        raise InvalidRecordError(f"column partition is {given.type}; it must be an integer")
    wide = given if given.type == pa.uint64() else given.cast(pa.int64())  # wide enough for every partition's number
    unknown = pc.filter(wide, pc.invert(pc.is_in(wide, pa.array(route.partitions, wide.type), skip_nulls=True))).drop_null()
    if len(unknown):
        message = f"column partition has {unknown[0]}; topic {route.topic!r} has the partitions {list(route.partitions)[:20]}"
        raise UnknownTopicOrPartitionError(message)
    return np.array(pc.fill_null(wide.cast(pa.int64()), -1).to_numpy(zero_copy_only=False))


def batch_size_of(size: int) -> int:
    """Returns the largest size of a batch with one record of a size, in bytes."""
    return size + HEADER_SIZE + _ONE_HEADER


def _check_sizes(sizes: Longs, route: Route) -> None:
    largest = batch_size_of(int(sizes.max(initial=0)))
    if largest > route.limit:
        raise too_large(largest, route)


def parts(columns: Columns, partitions: Longs, now_ms: int) -> Iterator[tuple[int, PartitionRows]]:
    """Yields the records of each partition, in the order in which they were sent.

    Args:
        columns: the records.
        partitions: the partition of each record.
        now_ms: the timestamp of records without one.
    """
    starts = _starts(partitions)
    if not _are_distinct(partitions[starts]):
        order = np.argsort(partitions.astype(np.min_scalar_type(int(partitions.max()))), kind="stable")  # few bits sort fastest
        columns, partitions = columns.take(order), partitions[order]
        starts = _starts(partitions)
    whole = PartitionRows(next(rows_from_arrow(columns.batch, now_ms)), columns.sizes, columns.futures)
    for start, end in pairwise([*starts.tolist(), len(partitions)]):
        yield int(partitions[start]), whole.slice(start, end)


def _starts(partitions: Longs) -> Longs:
    """Returns the indexes at which the partition changes."""
    return np.concatenate(([0], np.flatnonzero(np.diff(partitions)) + 1))


def _are_distinct(partitions: Longs) -> bool:
    """Returns whether no number occurs twice."""
    return len(partitions) <= int(partitions.max()) + 1 and len(np.unique(partitions)) == len(partitions)


def batches(part: PartitionRows, batch_size: int, limit: int) -> Iterator[PartitionRows]:
    """Splits the records of a partition into batches.

    Args:
        part: the records.
        batch_size: the record bytes of one batch; a larger record gets its own batch.
        limit: the largest size of a batch, in bytes.
    """
    most = min(batch_size, limit - HEADER_SIZE - _ONE_HEADER)
    ends = np.cumsum(part.sizes)
    first, done = 0, 0
    while first < len(ends):
        end = max(first + 1, int(np.searchsorted(ends, done + most, side="right")))
        yield part.slice(first, end)
        first, done = end, int(ends[end - 1])
