"""`pylog.read_table` and `pylog.read_batches`: read a topic as Arrow in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
    access: Mapping[str, Any] | None = None,
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
        snapshot: of `Store.snapshot`: only the records in it; true to take one. `isolation_level` then has no effect.
        access: how to reach the bucket of a URL; see `pylog.open`.

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
    )
    return found.read_all()


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
        store = opened.enter_context(open_store(path, "r", access=access))
        taken = store.snapshot([topic], groups=()) if snapshot is True else snapshot or None
        scan = TopicScan(manager_of(store), topic, partition, start, end, columns, isolation_level, taken)
        opened.pop_all()
    return pa.RecordBatchReader.from_batches(scan.schema, _batches(store, scan))


def _batches(store: Store, scan: TopicScan) -> Iterator[pa.RecordBatch]:
    with store:
        yield from scan.batches()
