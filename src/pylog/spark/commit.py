"""Commits on the driver: appends the staged rows of all tasks to the logs, for a streaming query exactly once.

A streaming query's micro-batch is first recorded in a durable intent (`pylog.staging.intents`). Its content is then fixed,
and each retry continues where the last one ended: the logs show how much of it they have. It is one transaction, unless an option
or a broker's directory prevents that (`pylog.transactions.staged`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from pylog import limits, trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import InvalidArgumentError, TransactionAbortedError, UnknownTopicOrPartitionError
from pylog.fs import FileSystem, join
from pylog.record.types import TopicPartition
from pylog.splicing import Splicer, StagedRows
from pylog.staging.intents import (
    IntendedTransaction,
    Intent,
    PartitionIntent,
    StagedFile,
    intent_name,
    intent_of,
    producer_of,
    read_intent,
    write_intent,
)
from pylog.staging.names import remove_staged
from pylog.store import Store, clients_of, manager_of
from pylog.text import counted
from pylog.topics.signs import META_PROPERTIES
from pylog.topics.topic import check_partition
from pylog.transactions.staged import trace_micro_batch

_ATTEMPTS: Final = 3  # to write a micro-batch whose transaction other programs abort


@dataclass(frozen=True, kw_only=True)
class CommitOptions:
    """Options for appending staged batches.

    Attributes:
        create_topics, partitions: whether missing topics are created, and with how many partitions.
        durability: the append's durability; the topic's or the store's by default.
        timestamp_type: `CreateTime` or `LogAppendTime`; the topic's by default.
        transactional: whether all rows are in one transaction; None for a micro-batch if the directory can have transactions.
    """

    create_topics: bool = False
    partitions: int = 1
    durability: Durability | None = None
    timestamp_type: Literal["CreateTime", "LogAppendTime"] | None = None
    transactional: bool | None = False


class StoreAccess(NamedTuple):
    """An open store, with its file system and clock."""

    store: Store
    fs: FileSystem
    clock: Clock

    @property
    def root(self) -> str:
        return self.store.path


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
    splicer = _splicer(access, how)
    staged = splicer.read(files)
    _make_ready(access.store, staged, how)
    if how.transactional and staged.partitions():
        clients_of(access.store).transactions.staged.write(staged, splicer, how.durability)
    else:
        for partition in staged.partitions():
            splicer.append(partition, staged)
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
        InvalidArgumentError: the query has committed a later micro-batch, or has appended it with another number of rows.
        OffsetOutOfRangeError: retention has deleted the records that show how much of an interrupted micro-batch was appended.
        As `commit_job`; calling it again goes on.
    """
    with manager_of(access.store).query_lock(intent_name(query)):
        intent = read_intent(access.fs, access.root, query)
        if intent is not None:
            _check_turn(intent, batch)
        if intent is not None and not intent.done:
            intent = _complete(access, intent, how, repeated=True) or _again(access, intent, batch, files, how)
        if intent is None or intent.batch < batch:
            _write(access, query, batch, files, how)
            remove_staged(access.fs, access.root, query, batch)
        else:
            count = _splicer(access, how).read(files).total()
            remove_staged(access.fs, access.root, query, batch)
            _check_rows(intent, count)


def _again(access: StoreAccess, intent: Intent, batch: int, files: Sequence[StagedFile], how: CommitOptions) -> Intent | None:
    """Writes a micro-batch again whose transaction was aborted. The rows of this attempt replace those of the first one."""
    return _write(access, intent.query, intent.batch, files if files and intent.batch == batch else intent.files, how)


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
        f"micro-batch {intent.batch} of query {intent.query} comes with {counted(count, 'row')}, and was appended already "
        f"with {known}: {_where(intent)}. Nothing was appended now. Either the query's checkpoint has lost what the micro-batch "
        f"was (its file offsets/{intent.batch}): put it back, or start the query with a new checkpoint, where "
        f"offsets/{intent.batch - 1} of the old one ends, or after the rows that are there. Or its rows are not the same each "
        f"time: start it with a new checkpoint, where offsets/{intent.batch} ends"
    )


def _where(intent: Intent) -> str:
    """Returns the offsets of a completed micro-batch. Records of other writers may be in between."""
    shown = [f"{each.records} in {each.topic}-{each.partition} from offset {each.end_offset} on" for each in intent.targets[:10]]
    more = len(intent.targets) - len(shown)
    return ", ".join(shown) + (f" and in {counted(more, 'more partition')}" if more else "")


def _write(access: StoreAccess, query: str, batch: int, files: Sequence[StagedFile], how: CommitOptions) -> Intent | None:
    """Decides on a micro-batch, and appends it. Returns its completed intent; None if it has no rows."""
    staged = _splicer(access, how).read(files)
    partitions = staged.partitions()
    if not partitions:
        return None
    _make_ready(access.store, staged, how)
    for partition in partitions:
        _check_count(partition, staged.count(partition))
    access.fs.sync_directory(access.root)  # the tasks have synced their files, not their names
    is_transactional = _has_transactions(access) if how.transactional is None else how.transactional
    for _ in range(_ATTEMPTS if is_transactional else 1):
        with _begun(access, query, partitions, how) if is_transactional else nullcontext() as transaction:
            intent = intent_of(query, batch, files, _targets(access, partitions), transaction)
            write_intent(access.fs, access.root, intent)
            done = _complete(access, intent, how, repeated=False)
        if done is not None:
            return done
    message = f"the transaction of micro-batch {batch} of query {query} was aborted {_ATTEMPTS} times by other programs"
    raise TransactionAbortedError(f"{message}; start the query again")


def _targets(access: StoreAccess, partitions: Sequence[TopicPartition]) -> list[PartitionIntent]:
    return [PartitionIntent(*partition, manager_of(access.store).log(*partition).end_offset) for partition in partitions]


@contextmanager
def _begun(
    access: StoreAccess, query: str, partitions: Sequence[TopicPartition], how: CommitOptions
) -> Iterator[IntendedTransaction]:
    """Begins the transaction of a micro-batch."""
    with clients_of(access.store).transactions.staged.begun(query, partitions, how.durability) as mine:
        yield IntendedTransaction(*mine, how.timestamp_type)


def _check_count(partition: TopicPartition, count: int) -> None:
    if count > limits.INT32_MAX:
        raise InvalidArgumentError(
            f"{count} rows of one micro-batch go to {partition.topic}-{partition.partition}; at most {limits.INT32_MAX} can: "
            "limit the micro-batches of the query's source, or give the topic more partitions"
        )


def _complete(access: StoreAccess, intent: Intent, how: CommitOptions, *, repeated: bool) -> Intent | None:
    """Appends the missing records of a planned micro-batch, and marks it as complete.

    Returns:
        The completed intent, with the offsets; None if its transaction was aborted, so that all of it must be begun again.
    """
    finished = _completed(access, intent, how, repeated=repeated)
    if finished is not None:
        trace_micro_batch(trace.SPARK_RESUMED if repeated else trace.SPARK_COMMITTED, finished)
    return finished


def _completed(access: StoreAccess, intent: Intent, how: CommitOptions, *, repeated: bool) -> Intent | None:
    if isinstance(intent.transaction, IntendedTransaction):
        return clients_of(access.store).transactions.staged.complete(intent)
    splicer = _splicer(access, how)
    staged, targets = splicer.read(intent.files), []
    producer = producer_of(intent.query, intent.batch)
    for target in intent.targets:
        partition = TopicPartition(target.topic, target.partition)
        done = splicer.appended(target, producer, intent) if repeated else 0
        splicer.append(partition, staged, producer, done)
        targets.append(PartitionIntent(*partition, target.end_offset, staged.count(partition)))
    finished = Intent(intent.query, intent.batch, targets=tuple(targets), done=True)
    write_intent(access.fs, access.root, finished)
    return finished


def _splicer(access: StoreAccess, how: CommitOptions) -> Splicer:
    return Splicer(manager_of(access.store), how.timestamp_type, how.durability)


def _has_transactions(access: StoreAccess) -> bool:
    """Returns whether the directory can have transactions: a broker's directory only if the broker has created their topic."""
    return clients_of(access.store).has_transactions() or not access.fs.exists(join(access.root, META_PROPERTIES))


# ---- appending -----------------------------------------------------------------------------------------------------------


def _make_ready(store: Store, staged: StagedRows, how: CommitOptions) -> None:
    """Creates the topics that are missing, and checks that the others are as the tasks found them."""
    counts = {topic: count for index in staged.indexes for topic, count in index.counts.items()}
    present = store.topics()
    for topic, count in sorted(counts.items()):
        if topic not in present and how.create_topics:
            store.create_topic(topic, partition_count=how.partitions)
        elif topic not in present or present[topic].partition_count < count:
            known = present.get(topic)
            message = "no longer exists" if known is None else f"has {counted(known.partition_count, 'partition')}"
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} {message}, and had {count} when rows were sent to them; run the job again",
                path=store.path,
            )
    for partition in staged.partitions():  # other partitions may have the same number in all
        if partition.topic in present:
            check_partition(store.path, present[partition.topic], partition.partition)
