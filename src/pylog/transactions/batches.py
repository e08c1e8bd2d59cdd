"""The records that a transaction has buffered, by partition, and the batches that they become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pylog.errors import UnknownTopicOrPartitionError
from pylog.log.arguments import rows_of
from pylog.partitioner import DefaultPartitioner, Indexes
from pylog.record.few import Piece, joined_rows
from pylog.record.format import HEADER_SIZE
from pylog.record.from_arrow import plain_batch, rows_from_arrow
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic


class Buffer:
    """Records of one topic, in the order in which they were given.

    Args:
        topic: the topic.
        batch_size: bytes of records without keys that go to one partition before another is chosen.
    """

    def __init__(self, topic: Topic, batch_size: int) -> None:
        self._topic = topic.name
        self._ids = topic.partition_ids
        self._batch_size = batch_size
        self._partitioner: DefaultPartitioner | None = None  # made when a key, or chance, has to decide

    def split(self, items: Sequence[Any], partition: int | None, now_ms: int) -> Iterator[tuple[TopicPartition, Piece]]:
        """Returns the rows of a list of records, by partition. Records are as for `Log.append_many`."""
        if not items:
            return
        rows = rows_of(items, now_ms)
        if partition is not None:
            yield self._named(partition), rows
        elif len(self._ids) == 1:
            yield self._named(self._ids[0]), rows
        else:
            keys = pa.array([item[0] if isinstance(item, tuple) else None for item in items], pa.binary())
            for chosen, chosen_rows in self._by_partition(self._choose(keys, rows)):
                yield chosen, rows_of([items[row] for row in chosen_rows.tolist()], now_ms)

    def split_table(self, table: Any, partition: int | None, now_ms: int) -> Iterator[tuple[TopicPartition, Piece]]:
        """Returns the rows of an Arrow table, by partition. Columns are as for `Log.append_arrow`."""
        for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
            for rows in rows_from_arrow(batch, now_ms):
                if partition is not None or len(self._ids) == 1:
                    yield self._named(self._ids[0] if partition is None else partition), rows
                    continue
                plain = plain_batch(batch)
                keys = plain.column("key") if "key" in plain.schema.names else pa.nulls(len(rows), pa.binary())
                for chosen, chosen_rows in self._by_partition(self._choose(keys, rows)):
                    for part in rows_from_arrow(plain.take(pa.array(chosen_rows)), now_ms):
                        yield chosen, part

    def has(self, partition: int) -> bool:
        """Returns whether the topic had a partition when it was read."""
        return partition in self._ids

    def _named(self, partition: int) -> TopicPartition:
        if not self.has(partition):
            names = f"its partitions are {list(self._ids[:20])}"
            raise UnknownTopicOrPartitionError(f"topic {self._topic!r} has no partition {partition!r}; {names}")
        return TopicPartition(self._topic, partition)

    def _choose(self, keys: pa.BinaryArray, rows: Piece) -> Indexes:
        if self._partitioner is None:
            self._partitioner = DefaultPartitioner(self._batch_size)
        sizes = np.full(len(keys), max(1, rows.size_bound // max(1, len(keys))), np.int64)
        return np.array(self._ids, np.int64)[self._partitioner.choose(keys, sizes, len(self._ids))]

    def _by_partition(self, chosen: Indexes) -> Iterator[tuple[TopicPartition, Indexes]]:
        for partition in np.unique(chosen).tolist():
            yield TopicPartition(self._topic, partition), np.flatnonzero(chosen == partition)


def batches_of(pieces: Sequence[Piece], limit: int) -> Iterator[Piece]:
    """Joins rows of one partition, and splits them, into as few batches as a limit in bytes allows."""
    together: list[Piece] = []
    size = 0
    for rows in (part for piece in pieces for part in _split(piece, limit)):
        if together and size + _size(rows) > limit:
            yield joined_rows(together)
            together, size = [], 0
        together.append(rows)
        size += _size(rows)
    if together:
        yield joined_rows(together)


def _size(rows: Piece) -> int:
    """Returns an upper bound of the bytes of the rows in a batch."""
    return rows.size_bound - len(rows) * HEADER_SIZE  # the bound counts a header for each record


def _split(rows: Piece, limit: int) -> Iterator[Piece]:
    """Halves rows until they fit. A single record that is too large is refused when it is appended."""
    if len(rows) == 1 or _size(rows) <= limit:
        yield rows
        return
    columns, half = rows.columns(), len(rows) // 2
    yield from _split(columns.slice(0, half), limit)
    yield from _split(columns.slice(half, len(rows)), limit)
