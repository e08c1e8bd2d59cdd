"""Appends staged batches to their logs, and finds how many of them a log has after a crash.

The batches come from the tasks of a Spark job (`pylog.staging`). A streaming query's micro-batch is numbered as a producer's, so
that each log shows how much of it was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.config import Durability
from pylog.errors import OffsetOutOfRangeError
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.append_batches import BatchRange
from pylog.log_manager import LogManager
from pylog.record.types import ProducerBatch, TopicPartition
from pylog.staging.file import StagedIndex, read_index, staged_path
from pylog.staging.intents import Intent, PartitionIntent, StagedFile

Put = Callable[[PartitionLog, list[BatchRange], ProducerBatch | None], int]  # appends batches, and returns the offset after them


class StagedRows(NamedTuple):
    """Staging files with their indexes, in the order in which their rows are appended."""

    files: Sequence[StagedFile]
    indexes: Sequence[StagedIndex]

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that have rows, sorted."""
        return sorted({partition for index in self.indexes for partition in index.chunks})

    def count(self, partition: TopicPartition) -> int:
        """Returns the number of records of a partition."""
        return sum(int(index.chunks[partition].counts.sum()) for index in self.indexes if partition in index.chunks)

    def total(self) -> int:
        """Returns the number of records of all partitions."""
        return sum(int(chunks.counts.sum()) for index in self.indexes for chunks in index.chunks.values())


class Splicer:
    """Appends staged batches to the logs of a store.

    Args:
        manager: the store's manager.
        timestamp_type: `CreateTime` or `LogAppendTime`; None is the topic's.
        durability: the durability of the appends; None is the topic's.
    """

    def __init__(self, manager: LogManager, timestamp_type: str | None = None, durability: Durability | None = None) -> None:
        self._manager = manager
        self._timestamp_type = timestamp_type
        self._durability = durability

    def read(self, files: Sequence[StagedFile]) -> StagedRows:
        """Reads the indexes of staging files.

        Raises:
            StorageFailedError: a file is missing. CorruptionError: it has changed since its task completed it.
        """
        fs, root = self._manager.fs, self._manager.path
        return StagedRows(files, [read_index(fs, root, file) for file in files])

    def append(
        self,
        partition: TopicPartition,
        staged: StagedRows,
        producer: ProducerBatch | None = None,
        done: int = 0,
        put: Put | None = None,
    ) -> int:
        """Appends a partition's batches, some megabytes at a time.

        Args:
            partition: the partition.
            staged: the rows of all partitions.
            producer: numbers the records from 0 on; None without numbers.
            done: the number of records at the beginning that the log has already.
            put: appends some of the batches; by default an ordinary append.

        Returns:
            The offset after the last record; the log end if there was nothing to append.
        """
        log = self._manager.log(*partition)
        put = put or self._put
        end, parts = log.end_offset, list[BatchRange]()
        try:
            for part in self._parts(partition, staged, done):
                full = bool(parts) and sum(each.size for each in parts) + part.size > limits.SPLICE_BYTES
                if full or len(parts) >= limits.SPLICE_FILES:
                    end = _put_numbered(put, log, parts, producer)
                    parts = []
                parts.append(part)
            return _put_numbered(put, log, parts, producer) if parts else end
        finally:
            _close(parts)

    def _put(self, log: PartitionLog, parts: list[BatchRange], producer: ProducerBatch | None) -> int:
        return log.append_batches(parts, producer, self._durability).offsets.stop

    def _parts(self, partition: TopicPartition, staged: StagedRows, done: int) -> Iterator[BatchRange]:
        kind = self._timestamp_type
        stamp = self._manager.clock.now_ms() if kind == "LogAppendTime" else None
        before = 0
        for file, index in zip(staged.files, staged.indexes, strict=True):
            if partition not in index.chunks:
                continue
            for position, size, count in zip(*index.chunks[partition], strict=True):
                skip = min(max(done - before, 0), int(count))
                if skip < count:
                    opened = self._manager.fs.open(staged_path(self._manager.path, file))
                    keyed = partition.topic not in index.keyless
                    numbers = int(position), int(size), int(count) - skip, skip, before + skip
                    yield BatchRange(opened, *numbers, stamp, kind is not None, keyed)
                before += int(count)

    # ---- after a crash -------------------------------------------------------------------------------------------------------

    def appended(self, target: PartitionIntent, producer: ProducerBatch, intent: Intent) -> int:
        """Returns how many records of a micro-batch a log has, by its producer state, else by its batches.

        Args:
            target: the partition, with the log end when the micro-batch was decided.
            producer: numbers the records of the micro-batch.
            intent: the micro-batch.

        Raises:
            OffsetOutOfRangeError: records that may belong to it were deleted.
        """
        log = self._manager.log(target.topic, target.partition)
        known = log.next_sequence(producer.producer_id, producer.epoch)
        return self.found(target, producer, intent) if known is None else known

    def found(
        self, target: PartitionIntent, producer: ProducerBatch, intent: Intent, isolation_level: str = "read_uncommitted"
    ) -> int:
        """Returns how many records of a micro-batch the batches of a log have. Args, Raises: as `appended`."""
        log = self._manager.log(target.topic, target.partition)
        start, end = log.start_offset, log.end_offset
        first, rows, known = min(max(target.end_offset, start), end), 0, 0
        columns = ("producer_id", "producer_epoch", "sequence")
        for batch in log.scan(first, end, columns=columns, isolation_level=isolation_level):
            ids, epochs, sequences = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
            ours = np.flatnonzero((ids == producer.producer_id) & (epochs == producer.epoch))
            if ours.size:
                known = int(sequences[ours[-1]]) + 1
            rows += batch.num_rows
        trimmed = not known and start > target.end_offset
        if trimmed or (rows < end - first and self._manager.topic(target.topic).config.is_compacted):
            how = f"begins at offset {start} now" if trimmed else f"has been compacted after offset {first}"
            raise OffsetOutOfRangeError(
                f"{target.topic}-{target.partition} {how}: whether micro-batch {intent.batch} of query "
                f"{intent.query}, which broke off when the log ended at {target.end_offset}, was among the deleted "
                "records is unknown; start the query with a new checkpoint",
                offset=target.end_offset,
            )
        return known


def _put_numbered(put: Put, log: PartitionLog, parts: list[BatchRange], producer: ProducerBatch | None) -> int:
    numbers = None if producer is None else producer._replace(sequence=parts[0].sequence)
    end = put(log, parts, numbers)
    _close(parts)
    return end


def _close(parts: list[BatchRange]) -> None:
    for part in parts:
        part.file.close()
