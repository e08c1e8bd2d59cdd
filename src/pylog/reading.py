"""`pylog.read_table` and `pylog.read_batches`: read a topic as Arrow in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pylog.arguments import check_callable
from pylog.errors import InvalidArgumentError
from pylog.fs import FileSystem
from pylog.opening import open_store
from pylog.record.decoder import DEFAULT_COLUMNS
from pylog.snapshot import Snapshot
from pylog.store import Store, manager_of
from pylog.table_reading import PARTITION, TopicScan, asked_columns

if TYPE_CHECKING:
    from pylog.objects.kafka_tier import KafkaTier


def read_table(
    path: str | os.PathLike[str] | KafkaTier,
    topic: str,
    partition: int | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    columns: Sequence[str] = (PARTITION, *DEFAULT_COLUMNS),
    isolation_level: str = "read_uncommitted",
    snapshot: Snapshot | bool = False,
    deserialize: Callable[[bytes], Any] | None = None,
    access: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
) -> pa.Table:
    """Reads a topic, or one partition of it, into an Arrow table in memory.

    Args:
        path: a store, any Kafka log directory, the URL of an archive, or a `KafkaTier`; it is opened for reading.
        topic: the name of a topic.
        partition: the number of a partition; without it all of them, one after the other.
        start: the first offset in that partition. Default: the log's start.
        end: the offset after the last one. Default: all records that existed at the time of the call.
        columns: `partition` (int32) and the columns of `Log.scan`, in the order you want. Other columns are not decoded.
            With `columns=[]` the table has no columns, and `num_rows` is the number of records.
        isolation_level: `read_committed` hides aborted and open transactions.
        snapshot: a result of `Store.snapshot`: only the records in it; true to take one. Then `isolation_level` has no effect.
        deserialize: a function of a value's bytes, such as `json.loads`; the column `value` then has what it returns. It is not
            called for null. Its own errors reach the caller.
        access: how to reach the bucket of a URL; see `pylog.open`.
        fs: the file system that has the path; see `pylog.open`.

    Returns:
        A table; `to_pandas()` and `polars.from_arrow` convert it.

    Raises:
        NotALogDirectoryError, UnknownTopicOrPartitionError: the directory or partition does not exist.
        InvalidArgumentError: `start` or `end` without a partition, an unknown column, `deserialize` without the column `value`,
            or what it returns has no common Arrow type.
        OffsetOutOfRangeError: `start` or `end` is not in the partition.
        CorruptionError: the log is damaged; `read_batches` returns the records before the damage.
        ObjectStoreError: with a URL, a `KafkaTier` or a tiered topic: a request failed.

    Cost: memory for all of the records; tens of millions of records a second. `deserialize` is called for each record.

    >>> import pylog, tempfile
    >>> with pylog.open(path := tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append_many([b"paid", b"sent"])
    >>> pylog.read_table(path, "orders", columns=["offset", "value"]).to_pylist()
    [{'offset': 0, 'value': b'paid'}, {'offset': 1, 'value': b'sent'}]
    >>> pylog.read_table(path, "orders", columns=["value"], deserialize=bytes.decode)["value"].to_pylist()
    ['paid', 'sent']
    """
    check_callable("deserialize", deserialize, "; give a function that takes bytes, such as json.loads")
    if deserialize is not None and "value" not in asked_columns(columns):
        raise InvalidArgumentError(
            f"deserialize applies to the column 'value', which is not in columns={list(columns)!r}; add it"
        )
    found = read_batches(
        path,
        topic,
        partition,
        start=start,
        end=end,
        columns=columns,
        isolation_level=isolation_level,
        snapshot=snapshot,
        access=access,
        fs=fs,
    )
    table = found.read_all()
    return table if deserialize is None else _deserialized(table, deserialize)


def _deserialized(table: pa.Table, deserialize: Callable[[bytes], Any]) -> pa.Table:
    values = [None if value is None else deserialize(value) for value in table["value"].to_pylist()]
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        message = f"the values that deserialize returns have no common Arrow type: {error}"
        raise InvalidArgumentError(f"{message}; return values of one type, or read without deserialize") from error
    return table.set_column(table.column_names.index("value"), "value", column)


def read_batches(
    path: str | os.PathLike[str] | KafkaTier,
    topic: str,
    partition: int | None = None,
    *,
    start: int | None = None,
    end: int | None = None,
    columns: Sequence[str] = (PARTITION, *DEFAULT_COLUMNS),
    isolation_level: str = "read_uncommitted",
    snapshot: Snapshot | bool = False,
    access: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
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
        snapshot: as for `read_table`.
        access: as for `read_table`.
        fs: as for `read_table`.

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
    asked_columns(columns)
    with ExitStack() as opened:
        store = opened.enter_context(open_store(path, "r", access=access, fs=fs))
        taken = store.snapshot([topic], groups=()) if snapshot is True else snapshot or None
        scan = TopicScan(manager_of(store), topic, partition, start, end, columns, isolation_level, taken)
        opened.pop_all()
    return pa.RecordBatchReader.from_batches(scan.schema, _batches(store, scan))


def _batches(store: Store, scan: TopicScan) -> Iterator[pa.RecordBatch]:
    with store:
        yield from scan.batches()
