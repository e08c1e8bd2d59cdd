"""Commits on the driver: appends the staged rows of all tasks to the logs, for a streaming query exactly once.

A streaming query's micro-batch is first recorded in a durable intent (`pylog.staging.intents`). Its content is then fixed,
and each retry continues where the last one ended: the logs show how much of it they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pylog import limits, trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from pylog.fs import File, FileSystem
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.append_batches import BatchRange
from pylog.record.types import ProducerBatch, TopicPartition
from pylog.staging.file import StagedIndex, read_index, staged_path
from pylog.staging.intents import Intent, PartitionIntent, StagedFile, intent_name, producer_of, read_intent, write_intent
from pylog.staging.names import remove_staged
from pylog.store import Store, manager_of
from pylog.topics.topic import check_partition


@dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """Options for appending staged batches.

    Attributes:
        create_topics, partitions: whether missing topics are created, and with how many partitions.
        durability: of the append; the topic's or the store's by default.
        timestamp_type: `CreateTime` or `LogAppendTime`; the topic's by default.
    """

    create_topics: bool = False
    partitions: int = 1
    durability: Durability | None = None
    timestamp_type: str | None = None


class StoreAccess(NamedTuple):
    """An open store, with its file system and clock."""

    store: Store
    fs: FileSystem
    clock: Clock

    @property
    def root(self) -> str:
        return self.store.path


class _Staged(NamedTuple):
    """Staging files with their indexes, in the order in which their rows are appended."""

    files: Sequence[StagedFile]
    indexes: Sequence[StagedIndex]

    def partitions(self) -> list[TopicPartition]:
        return sorted({partition for index in self.indexes for partition in index.chunks})

    def count(self, partition: TopicPartition) -> int:
        """Returns the number of records of a partition."""
        return sum(int(index.chunks[partition].counts.sum()) for index in self.indexes if partition in index.chunks)

    def total(self) -> int:
        """Returns the number of records of all partitions."""
        return sum(int(chunks.counts.sum()) for index in self.indexes for chunks in index.chunks.values())


def commit_job(access: StoreAccess, job: str, files: Sequence[StagedFile], how: CommitOptions) -> None:
    """Appends the staged batches of a batch job, and removes its files.

    Args:
        access: the store and its options.
        job: the job's id.
        files: what its tasks have finished, in their order.
        how: the job's options.

    Raises:
        UnknownTopicOrPartitionError: a topic was deleted, or its partitions changed since the tasks began; nothing was appended.
        CorruptionError, StorageFailedError: a staging file is not what it was, or a log takes no more; partitions that were done
            before stay appended.
    """
    staged = _read(access, files)
    _make_ready(access.store, staged, how)
    for partition in staged.partitions():
        _append(access, partition, staged, how)
    trace.line(trace.SPARK_COMMITTED, job=job, records=staged.total(), partitions=trace.names_of(staged.partitions()))
    remove_staged(access.fs, access.root, job)


def commit_batch(access: StoreAccess, query: str, batch: int, files: Sequence[StagedFile], how: CommitOptions) -> None:
    """Appends a micro-batch of a streaming query, exactly once however often this is called, whatever it died of before.

    Args:
        access: the store and its options.
        query: the query's id, that of its checkpoint.
        batch: the number of the micro-batch.
        files: what its tasks have finished this time, in their order.
        how: the query's options.

    Raises:
        InvalidArgumentError: the query has gone beyond this micro-batch, or has appended it with another number of rows.
        OffsetOutOfRangeError: retention has deleted the records that show how much of an interrupted micro-batch was appended.
        As `commit_job`; calling it again goes on.
    """
    with manager_of(access.store).query_lock(intent_name(query)):
        intent = read_intent(access.fs, access.root, query)
        if intent is not None:
            _check_turn(intent, batch)
        if intent is not None and not intent.done:
            intent = _complete(access, intent, how, repeated=True)
        if intent is None or intent.batch < batch:
            _begin(access, query, batch, files, how)
            remove_staged(access.fs, access.root, query, batch)
        else:
            count = _read(access, files).total()
            remove_staged(access.fs, access.root, query, batch)
            _check_rows(intent, count)


def _check_turn(intent: Intent, batch: int) -> None:
    if intent.batch > batch:
        raise InvalidArgumentError(
            f"query {intent.query} is about to write micro-batch {batch}, and has written {intent.batch} already: another driver "
            "has gone on with it, or its checkpoint is an old copy; start it with a new checkpoint"
        )


def _check_rows(intent: Intent, count: int) -> None:
    """Checks that a repeated micro-batch, which is in the logs already, can have the same rows.

    Only the number of rows can show that: keys, values and partitions of the same rows may differ each time. With another number,
    Spark has planned the micro-batch again, and its new rows would never be appended. A repeat without rows loses nothing.
    """
    known = intent.records()
    if known is None or count in {0, known}:
        return
    raise InvalidArgumentError(
        f"micro-batch {intent.batch} of query {intent.query} comes with {count} rows, and was appended already with {known}: "
        f"{_where(intent)}. Nothing was appended now. Either the query's checkpoint has lost what the micro-batch was (its file "
        f"offsets/{intent.batch}): put it back, or start the query with a new checkpoint, where offsets/{intent.batch - 1} of "
        "the old one ends, or after the rows that are there. Or its rows are not the same each time: start it with a new "
        f"checkpoint, where offsets/{intent.batch} ends"
    )


def _where(intent: Intent) -> str:
    """Returns the offsets of a completed micro-batch. Records of other writers may be in between."""
    shown = [f"{each.records} in {each.topic}-{each.partition} from offset {each.end_offset} on" for each in intent.targets[:10]]
    return ", ".join(shown) + (f" and in {len(intent.targets) - 10} partitions more" if len(intent.targets) > 10 else "")


def _begin(access: StoreAccess, query: str, batch: int, files: Sequence[StagedFile], how: CommitOptions) -> None:
    staged = _read(access, files)
    if not staged.partitions():
        return
    _make_ready(access.store, staged, how)
    targets = []
    for partition in staged.partitions():
        _check_count(partition, staged.count(partition))
        targets.append(PartitionIntent(*partition, manager_of(access.store).log(*partition).end_offset))
    intent = Intent(query, batch, tuple(files), tuple(targets))
    access.fs.sync_directory(access.root)  # the tasks have synced their files, not their names
    write_intent(access.fs, access.root, intent)
    _complete(access, intent, how, repeated=False)


def _check_count(partition: TopicPartition, count: int) -> None:
    if count > limits.INT32_MAX:
        raise InvalidArgumentError(
            f"{count} rows of one micro-batch go to {partition.topic}-{partition.partition}; {limits.INT32_MAX} can: limit the "
            "micro-batches of the query's source, or give the topic more partitions"
        )


def _complete(access: StoreAccess, intent: Intent, how: CommitOptions, *, repeated: bool) -> Intent:
    """Appends the missing records of a planned micro-batch, marks it as complete, and returns its offsets."""
    staged, targets = _read(access, intent.files), []
    producer = producer_of(intent.query, intent.batch)
    for target in intent.targets:
        partition = TopicPartition(target.topic, target.partition)
        done = _appended(access.store, partition, target, producer, intent) if repeated else 0
        _append(access, partition, staged, how, producer, done)
        targets.append(PartitionIntent(*partition, target.end_offset, staged.count(partition)))
    finished = Intent(intent.query, intent.batch, targets=tuple(targets), done=True)
    write_intent(access.fs, access.root, finished)
    event = trace.SPARK_RESUMED if repeated else trace.SPARK_COMMITTED
    facts = {"query": intent.query, "batch": intent.batch, "records": staged.total()}
    trace.line(event, **facts, partitions=trace.names_of(staged.partitions()))
    return finished


def _appended(store: Store, partition: TopicPartition, target: PartitionIntent, producer: ProducerBatch, intent: Intent) -> int:
    """Returns how many records of a micro-batch a log has, by its producer state, else by its batches.

    Raises:
        OffsetOutOfRangeError: records that may belong to it were deleted.
    """
    log = manager_of(store).log(*partition)
    known = log.next_sequence(producer.producer_id, producer.epoch)
    if known is not None:
        return known
    start, end = log.start_offset, log.end_offset
    first, rows = min(max(target.end_offset, start), end), 0
    for batch in log.scan(first, end, columns=("producer_id", "producer_epoch", "sequence")):
        ids, epochs, sequences = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        ours = np.flatnonzero((ids == producer.producer_id) & (epochs == producer.epoch))
        if ours.size:
            known = int(sequences[ours[-1]]) + 1
        rows += batch.num_rows
    trimmed = known is None and start > target.end_offset
    if trimmed or (rows < end - first and store.topic(target.topic).config.is_compacted):
        how = f"begins at offset {start} now" if trimmed else f"has been compacted after offset {first}"
        raise OffsetOutOfRangeError(
            f"{target.topic}-{target.partition} {how}: whether micro-batch {intent.batch} of query "
            f"{intent.query}, which broke off when the log ended at {target.end_offset}, was among the deleted "
            "records is unknown; start the query with a new checkpoint",
            offset=target.end_offset,
        )
    return known or 0


# ---- appending -----------------------------------------------------------------------------------------------------------


def _read(access: StoreAccess, files: Sequence[StagedFile]) -> _Staged:
    return _Staged(files, [read_index(access.fs, access.root, file) for file in files])


def _make_ready(store: Store, staged: _Staged, how: CommitOptions) -> None:
    """Makes the topics that are missing, and checks that the others are as the tasks found them."""
    counts = {topic: count for index in staged.indexes for topic, count in index.counts.items()}
    present = store.topics()
    for topic, count in sorted(counts.items()):
        if topic not in present and how.create_topics:
            store.create_topic(topic, partition_count=how.partitions)
        elif topic not in present or present[topic].partition_count < count:
            message = "is gone" if topic not in present else f"has {present[topic].partition_count} partitions"
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} {message}, and had {count} partitions when rows were sent to them; run the job again",
                path=store.path,
            )
    for partition in staged.partitions():  # their number may be the same, and they others
        if partition.topic in present:
            check_partition(store.path, present[partition.topic], partition.partition)


def _append(
    access: StoreAccess,
    partition: TopicPartition,
    staged: _Staged,
    how: CommitOptions,
    producer: ProducerBatch | None = None,
    done: int = 0,
) -> None:
    """Appends a partition's batches, some megabytes at a time, starting after the first `done` records."""
    log = manager_of(access.store).log(*partition)
    parts: list[BatchRange] = []
    try:
        for part in _parts(access, partition, staged, how, done):
            full = bool(parts) and sum(each.size for each in parts) + part.size > limits.SPLICE_BYTES
            if full or len(parts) >= limits.SPLICE_FILES:
                _append_batches(log, parts, producer, how)
                parts = []
            parts.append(part)
        _append_batches(log, parts, producer, how)
    finally:
        _close(parts)


def _append_batches(log: PartitionLog, parts: list[BatchRange], producer: ProducerBatch | None, how: CommitOptions) -> None:
    if parts:
        numbers = None if producer is None else producer._replace(sequence=parts[0].sequence)
        log.append_batches(parts, numbers, how.durability)
        _close(parts)


def _close(parts: list[BatchRange]) -> None:
    for part in parts:
        part.file.close()


def _parts(
    access: StoreAccess, partition: TopicPartition, staged: _Staged, how: CommitOptions, done: int
) -> Iterator[BatchRange]:
    stamp = access.clock.now_ms() if how.timestamp_type == "LogAppendTime" else None
    before = 0
    for file, index in zip(staged.files, staged.indexes, strict=True):
        if partition not in index.chunks:
            continue
        for position, size, count in zip(*index.chunks[partition], strict=True):
            skip = min(max(done - before, 0), int(count))
            if skip < count:
                opened = _open(access, file)
                sequence = before + skip
                keeps = how.timestamp_type is not None
                keyed = partition.topic not in index.keyless
                yield BatchRange(opened, int(position), int(size), int(count) - skip, skip, sequence, stamp, keeps, keyed)
            before += int(count)


def _open(access: StoreAccess, file: StagedFile) -> File:
    return access.fs.open(staged_path(access.root, file))
