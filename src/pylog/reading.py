"""`pylog.read_table` and `pylog.read_batches`: read a topic as Arrow in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from pylog.arguments import items_of
from pylog.errors import InvalidArgumentError
from pylog.opening import open_store
from pylog.record.decoder import DEFAULT_COLUMNS, schema_of
from pylog.store import Store

PARTITION = "partition"  # a column of topics that logs do not have


def read_table(
    path: str | os.PathLike[str],
    topic: str,
    partition: int | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    columns: Sequence[str] = (PARTITION, *DEFAULT_COLUMNS),
    isolation_level: str = "read_uncommitted",
) -> pa.Table:
    """Reads a topic, or one partition of it, into an Arrow table in memory.

    Args:
        path: a store, or any Kafka log directory; it is opened for reading.
        topic: the name of a topic.
        partition: the number of a partition; without it all of them, one after the other.
        start: the first offset in that partition. Default: the log's start.
        end: the offset after the last one. Default: all records that existed at the time of the call.
        columns: `partition` (int32) and the columns of `Log.scan`, in the order you want. Other columns are not decoded.
            With `columns=[]` the table has no columns, and `num_rows` is the number of records.
        isolation_level: `read_committed` hides aborted and open transactions.

    Returns:
        A table; `to_pandas()` and `polars.from_arrow` convert it.

    Raises:
        NotALogDirectoryError, UnknownTopicOrPartitionError: the directory or partition does not exist.
        InvalidArgumentError: `start` or `end` without a partition, or an unknown column.
        OffsetOutOfRangeError: `start` or `end` is not in the partition.
        CorruptionError: the log is damaged; `read_batches` returns the records before the damage.

    Cost: memory for all of the records; tens of millions of records a second.

    >>> import pylog, tempfile
    >>> with pylog.open(path := tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append_many([b"paid", b"sent"])
    >>> pylog.read_table(path, "orders", columns=["offset", "value"]).to_pylist()
    [{'offset': 0, 'value': b'paid'}, {'offset': 1, 'value': b'sent'}]
    """
    return read_batches(path, topic, partition, start=start, end=end, columns=columns, isolation_level=isolation_level).read_all()


def read_batches(
    path: str | os.PathLike[str],
    topic: str,
    partition: int | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    columns: Sequence[str] = (PARTITION, *DEFAULT_COLUMNS),
    isolation_level: str = "read_uncommitted",
) -> pa.RecordBatchReader:
    """Reads a topic as a stream of Arrow batches, for data larger than memory: DuckDB and others read from it directly.

    Args:
        path: as for `read_table`.
        topic: as for `read_table`.
        partition: as for `read_table`.
        start: as for `read_table`.
        end: as for `read_table`.
        columns: as for `read_table`.
        isolation_level: as for `read_table`.

    Returns:
        A reader. The store is closed when the reader has been read to its end, or is garbage-collected.

    Raises:
        PylogError: as `read_table`, at once. The reader raises CorruptionError after the records before the damage.

    Cost: memory for one Arrow batch.

    >>> import pylog, tempfile
    >>> with pylog.open(path := tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders", partition_count=2)
    ...     _ = store.log("orders", 1).append(b"paid")
    >>> [batch.num_rows for batch in pylog.read_batches(path, "orders")]
    [1]
    """
    if partition is None and not (start is None and end is None):
        raise InvalidArgumentError("start and end are offsets in one partition; give the partition too")
    asked = items_of("columns", columns, "names")
    of_log = tuple(name for name in asked if name != PARTITION) or ("offset",)
    if asked.count(PARTITION) > 1:
        raise InvalidArgumentError(f"columns {asked!r}: choose each at most once")
    with ExitStack() as opened:
        store = opened.enter_context(open_store(path, "r"))
        numbers = store.topic(topic).partition_ids if partition is None else (partition,)
        logs = [(number, store.log(topic, number)) for number in numbers]
        scans = [(number, log.scan(start, end, columns=of_log, isolation_level=isolation_level)) for number, log in logs]
        schema = _schema(asked, of_log)
        opened.pop_all()
    return pa.RecordBatchReader.from_batches(schema, _batches(store, scans, schema))


def _schema(asked: Sequence[str], of_log: Sequence[str]) -> pa.Schema:
    found = schema_of(of_log)
    return pa.schema([pa.field(PARTITION, pa.int32(), False) if name == PARTITION else found.field(name) for name in asked])


def _batches(store: Store, scans: Sequence[tuple[int, Iterator[pa.RecordBatch]]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with store:
        for number, scan in scans:
            for batch in scan:
                here = {PARTITION: pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)} if PARTITION in schema.names else {}
                arrays = [here[name] if name in here else batch.column(name) for name in schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch.select([])  # which has its rows
