"""Topics as Arrow tables, and snapshots: the methods of a store for them, and what `pylog.read_table` needs, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from pylog.arguments import items_of
from pylog.errors import InvalidArgumentError
from pylog.log_manager import LogManager
from pylog.open_clients import OpenClients
from pylog.record.decoder import DEFAULT_COLUMNS, schema_of
from pylog.snapshot import Snapshot

PARTITION: Final = "partition"  # a column of topics that logs do not have


def asked_columns(columns: Sequence[str]) -> list[str]:
    """Returns the names of columns after checking that they are names, and `partition` at most once.

    Raises:
        InvalidArgumentError: they are not.
    """
    asked = list(items_of("columns", columns, "names"))
    if asked.count(PARTITION) > 1:
        raise InvalidArgumentError(f"columns {asked!r}: choose each at most once")
    return asked


class TopicScan:
    """A scan of a topic, or of one partition of it. Everything is checked when it is made.

    Args:
        manager: the store's manager.
        topic, partition, start, end, columns, isolation_level, snapshot: as for `pylog.read_table`.

    Attributes:
        schema: the schema of the batches.

    Raises:
        PylogError: as `pylog.read_table`.
    """

    def __init__(
        self,
        manager: LogManager,
        topic: str,
        partition: int | None,
        start: int | None,
        end: int | None,
        columns: Sequence[str],
        isolation_level: str,
        snapshot: Snapshot | None,
    ) -> None:
        if partition is None and not (start is None and end is None):
            raise InvalidArgumentError("start and end are offsets in one partition; give the partition too")
        asked = asked_columns(columns)
        of_log = tuple(name for name in asked if name != PARTITION) or ("offset",)
        found = schema_of(of_log)
        self.schema = pa.schema(
            [pa.field(PARTITION, pa.int32(), False) if name == PARTITION else found.field(name) for name in asked]
        )
        known = manager.topic(topic)
        numbers = known.partition_ids if partition is None else (partition,)
        logs = [(number, manager.log(topic, number)) for number in numbers]
        self._scans = [
            (number, log.scan(start, end, columns=of_log, isolation_level=isolation_level, snapshot=snapshot))
            for number, log in logs
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches, one partition after the other."""
        schema = self.schema
        for number, scan in self._scans:
            for batch in scan:
                here = {PARTITION: pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)} if PARTITION in schema.names else {}
                arrays = [here[name] if name in here else batch.column(name) for name in schema.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch.select([])  # which has its rows


class TableReadingStore:
    """The methods of a store for snapshots and tables."""

    _manager: LogManager
    _clients: OpenClients

    def snapshot(self, topics: Iterable[str] | None = None, *, groups: Iterable[str] | None = None) -> Snapshot:
        """Takes a snapshot: a consistent cut over partitions, which has whole transactions only.

        Args:
            topics: names of topics; by default all, without Kafka's internal ones.
            groups: names of the groups whose committed offsets `Snapshot.offsets` returns; by default all groups.

        Returns:
            The `Snapshot`, for `Log.scan`, `Log.records` and `read_table`. It is a value: it can be pickled.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            CorruptionError: the states of the transactional ids, or a group's offsets, are damaged.
            PylogTimeoutError: transactions were committed so fast that no snapshot was complete within 100 ms, and the store is
                open for reading.

        Cost: some microseconds for each partition, those of `__transaction_state` included. Writers continue. Only if no snapshot
        is complete within 100 ms, a store that is open for writing makes commits wait for that time.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("accounts", partition_count=2)
        ...     with store.transaction() as txn:
        ...         txn.append("accounts", b"-5", key=b"alice", partition=0)
        ...         txn.append("accounts", b"5", key=b"bob", partition=1)
        ...     snapshot = store.snapshot()
        ...     sum(int(value.as_py()) for value in store.read_table("accounts", snapshot=snapshot)["value"])
        0
        """
        return self._clients.snapshots.take(topics, groups)

    def read_table(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] = (PARTITION, *DEFAULT_COLUMNS),
        isolation_level: str = "read_uncommitted",
        snapshot: Snapshot | None = None,
    ) -> pa.Table:
        """Reads a topic, or one partition of it, into an Arrow table in memory.

        Args:
            topic: the name of a topic.
            partition: the number of a partition; without it all of them, one after the other.
            start: the first offset in that partition. Default: the log's start.
            end: the offset after the last one. Default: all records that existed at the time of the call.
            columns: `partition` (int32) and the columns of `Log.scan`.
            isolation_level: `read_committed` hides aborted and open transactions.
            snapshot: a result of `snapshot`: only the records in it. `isolation_level` then has no effect.

        Returns:
            A table; `to_pandas()` and `polars.from_arrow` convert it.

        Raises:
            PylogError: as `pylog.read_table`.

        Cost: memory for all of the records; tens of millions of records a second.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"paid", b"sent"])
        ...     store.read_table("orders", columns=["offset", "value"]).to_pylist()
        [{'offset': 0, 'value': b'paid'}, {'offset': 1, 'value': b'sent'}]
        """
        scan = TopicScan(self._manager, topic, partition, start, end, columns, isolation_level, snapshot)
        return pa.Table.from_batches(scan.batches(), scan.schema)
