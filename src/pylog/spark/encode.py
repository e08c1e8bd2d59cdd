"""A write task's work: rows to finished batches, by partition, in a staging file. Nothing of the store is changed here.

Rows are collected up to a size, sent to their partitions together, encoded, compressed and checksummed; so memory does not
depend on how many rows a task has, and batches are large however small the pieces are in which Spark hands rows over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import pylog
from pylog import limits
from pylog.clock import Clock
from pylog.config import TopicConfig
from pylog.directory.topic_names import check_topic_name
from pylog.errors import InvalidArgumentError, InvalidRecordError, UnknownTopicOrPartitionError
from pylog.log.options import Encoders
from pylog.partitioner import DefaultPartitioner
from pylog.record.from_arrow import plain_batch, rows_from_arrow
from pylog.record.types import TopicPartition
from pylog.spark.write_options import WriteOptions
from pylog.staging.file import StagingFile
from pylog.topics.topic import Topic

_RECORD = ("key", "value", "timestamp", "headers")
_WHICH_TABLE = (
    "which table they are for; insert just the columns that a record is made of, as in INSERT INTO archive (key, value) SELECT "
    "key, value FROM orders, or name the place: INSERT INTO archive WITH ('path' = '…', 'topic' = '…')"
)
_OF_A_LOG = ("offset", "timestampType")  # columns that only rows have which were read


class RowRoute(NamedTuple):
    """A topic as a task writes to it.

    Attributes:
        numbers: the numbers of its partitions.
        encoders: encoders for its configuration.
        partitioner: for rows without a partition.
    """

    numbers: NDArray[np.int64]
    encoders: Encoders
    partitioner: DefaultPartitioner


class TaskRows:
    """The rows of one task.

    Args:
        options: the job's options.
        staging: the task's file.
        clock: for rows without a timestamp.
    """

    def __init__(self, options: WriteOptions, staging: StagingFile, clock: Clock) -> None:
        self._options = options
        self._staging = staging
        self._clock = clock
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._known: dict[str, Topic] = {}
        self._routes: dict[str, RowRoute] = {}
        self._warned: set[str] = set()
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes some rows.

        Raises:
            InvalidRecordError, RecordTooLargeError: a row cannot be a record of its topic.
            UnknownTopicOrPartitionError: there is no such topic, or no such partition.
            InvalidArgumentError: it is not known which table the rows are inserted into.
            StorageFailedError: the staging file cannot be written.
        """
        if self._options.of_table:
            _check_inserted(batch)
        self._waiting.append(batch)
        self._size += batch.nbytes
        self.count += batch.num_rows
        if self._size >= limits.STAGING_BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Encodes the rows that wait."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for batch in pa.Table.from_batches(waiting).combine_chunks().to_batches() if waiting else ():
            for topic, rows in self._by_topic(batch):
                self._encode(topic, self._route(topic), rows)

    def counts(self) -> dict[str, int]:
        """Returns how many partitions each topic has that rows are for."""
        return {topic: len(route.numbers) for topic, route in self._routes.items()}

    # ---- topics and partitions -----------------------------------------------------------------------------------------------

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        names = batch.column("topic")
        if names.null_count:
            raise InvalidRecordError("a row's topic is null; give the option 'topic', which then counts for all rows")
        topics = pc.unique(names).to_pylist()
        for topic in topics:
            yield topic, batch if len(topics) == 1 else batch.filter(pc.equal(names, topic))

    def _route(self, name: str) -> RowRoute:
        if name not in self._routes:
            topic = self._topic(check_topic_name(name))
            config = topic.config if topic is not None else TopicConfig()
            stamped = config.log_append_time or self._options.timestamp_type == "LogAppendTime"
            config = replace(config, message_timestamp_type="CreateTime")  # the time of the append is not known here
            if stamped:  # it replaces the timestamps, which are not checked then
                config = replace(
                    config, message_timestamp_after_max_ms=limits.INT64_MAX, message_timestamp_before_max_ms=limits.INT64_MAX
                )
            numbers = range(self._options.partitions) if topic is None else topic.partition_ids
            partitioner = DefaultPartitioner(limits.APPEND_BATCH_BYTES)
            self._routes[name] = RowRoute(np.array(numbers, np.int64), Encoders(config, name, self._warned), partitioner)
        return self._routes[name]

    def _topic(self, name: str) -> Topic | None:
        if name not in self._known:
            with pylog.open(self._options.root, mode="r") as store:
                self._known = store.topics()
        if name not in self._known and not self._options.create_topics:
            message = f"there is no topic {name!r} in {self._options.root}; create it, or give the option createTopics=true"
            raise UnknownTopicOrPartitionError(message, path=self._options.root)
        return self._known.get(name)

    # ---- encoding ------------------------------------------------------------------------------------------------------------

    def _encode(self, topic: str, route: RowRoute, batch: pa.RecordBatch) -> None:
        encoder = route.encoders.of(self._options.compression)
        batch = plain_batch(batch)
        for number, partition in _parted(batch, _partitions(batch, route, topic)):
            record = partition.select([name for name in _RECORD if name in partition.schema.names])
            now_ms = self._clock.now_ms()
            for rows in rows_from_arrow(record, now_ms):
                encoder.check(rows, now_ms)
                if rows.lacks_a_key():
                    self._staging.keyless.add(topic)
                for encoded in encoder.encode(rows, 0, 0):
                    self._staging.add(TopicPartition(topic, number), encoded)


def _check_inserted(batch: pa.RecordBatch) -> None:
    """Refuses rows that were read from a log: their columns name the partition they came from, not a destination."""
    for name in _OF_A_LOG:
        if name in batch.schema.names and batch.column(name).null_count < batch.num_rows:
            message = (
                f"rows that are inserted into a table have a column {name}, so they were read from a log, and Spark does not say"
            )
            raise InvalidArgumentError(f"{message} {_WHICH_TABLE}")


def _partitions(batch: pa.RecordBatch, route: RowRoute, topic: str) -> NDArray[np.int64]:
    """Returns the partition of each row: the one that it names, else the partitioner's choice (groups-and-transactions 4.1)."""
    named = batch.column("partition") if "partition" in batch.schema.names else None
    if named is None or named.null_count == len(named):
        return _chosen(batch, route)
    given = named.drop_null().to_numpy()
    if not np.isin(given, route.numbers).all():
        wrong, numbers = given[~np.isin(given, route.numbers)][0], route.numbers[:20].tolist()
        raise UnknownTopicOrPartitionError(f"a row names partition {wrong}; topic {topic!r} has the partitions {numbers}")
    if named.null_count == 0:
        return np.asarray(given, np.int64)
    partitions = _chosen(batch, route)
    partitions[named.is_valid().to_numpy(zero_copy_only=False)] = given
    return partitions


def _chosen(batch: pa.RecordBatch, route: RowRoute) -> NDArray[np.int64]:
    if len(route.numbers) == 1:
        return np.full(batch.num_rows, route.numbers[0], np.int64)
    keys = batch.column("key") if "key" in batch.schema.names else pa.nulls(batch.num_rows)
    sizes = pc.binary_length(batch.column("value")).fill_null(0).to_numpy(zero_copy_only=False)
    indexes = route.partitioner.choose(keys.cast(pa.binary()), sizes.astype(np.int64), len(route.numbers))
    return np.asarray(route.numbers[indexes], np.int64)


def _parted(batch: pa.RecordBatch, partitions: NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields each partition's rows, in their order."""
    if (partitions == partitions[0]).all():
        yield int(partitions[0]), batch
        return
    order = np.argsort(partitions, kind="stable")
    ordered = batch.take(pa.array(order))
    numbers, starts = np.unique(partitions[order], return_index=True)
    for number, start, end in zip(numbers.tolist(), starts.tolist(), [*starts.tolist()[1:], len(order)], strict=True):
        yield number, ordered.slice(start, end - start)
