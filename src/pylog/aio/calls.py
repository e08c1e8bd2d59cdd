"""The names of aiokafka's producer and consumer for `AsyncProducer` and `AsyncConsumer`.

Calls that read or wait are coroutines. Plain calls that change the consumer are made by the next call in the consumer's thread,
which makes only the last change of each partition. Plain calls that ask return the last known state at once.
"""

from __future__ import annotations

import asyncio
import math
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from datetime import datetime
from functools import partial
from typing import Any, Generic, Self, TypeVar

from pylog.aio.batch import AsyncBatchCalls
from pylog.aio.changes import PendingChanges
from pylog.client_thread import ClientThread
from pylog.consumer.arguments import checked_partitions
from pylog.consumer.assignment import ConsumerAssignment
from pylog.consumer.consumer import Consumer
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.consumer.polling import Polling, core_of
from pylog.errors import IllegalStateError, InvalidTypeError, PylogError
from pylog.log.arguments import offset_given
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.producer.future import RecordMetadata
from pylog.producer.producer import Producer
from pylog.record.types import K, OffsetAndTimestamp, Record, TopicPartition, V
from pylog.transactions.group_consumer import Offsets

T = TypeVar("T")


class TransactionFuture(asyncio.Future[RecordMetadata]):
    """The future of a record in a transaction. Waiting for it writes the record before the commit.

    Attributes:
        write: writes the record; None until the program has the future.
    """

    write: Callable[[], None] | None = None

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        if self.write is not None and not self.done():
            self.write()
        super().add_done_callback(fn, context=context)


class AsyncProducerCalls(AsyncBatchCalls, Generic[K, V]):
    """The calls of `AsyncProducer` under aiokafka's names."""

    _producer: Producer[K, V]
    _thread: ClientThread

    @abstractmethod
    async def close(self) -> None:
        """Closes the producer."""

    async def start(self) -> None:
        """Checks that the producer is open. The call may be left out or repeated.

        A producer with a `transactional_id` also calls `init_transactions`, as aiokafka's does.

        Raises:
            ClosedError: the producer is closed. PylogError: as `init_transactions`.
        """
        self._thread.check_open()
        if self._producer.config.transactional_id is not None:
            await self.init_transactions()

    async def stop(self) -> None:
        """Closes the producer. The same as `close`."""
        await self.close()

    def _abandon(self) -> None:
        """Closes the producer after all sent records, and waits for them. Not a coroutine: for the time after the event loop."""
        self._thread.abandon()
        self._producer.close()

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the partition numbers of a topic. Runs in another thread; raises as `Producer.partitions_for_topic`."""
        return await asyncio.to_thread(self._producer.partitions_for_topic, topic)

    # ---- transactions --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begins a transaction, commits it at the end of the block, and aborts it after an exception.

        Raises:
            PylogError: as `Producer.begin_transaction` and `Producer.commit_transaction`. A failed commit is aborted.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException:
            with suppress(PylogError):  # the exception of the block, or of the commit, is the one to raise
                await self.abort_transaction()
            raise

    async def init_transactions(self) -> None:
        """Fences older producers with the same transactional id. Raises as `Producer.init_transactions`."""
        await self._thread.call(self._producer.init_transactions)

    async def begin_transaction(self) -> None:
        """Begins a transaction. Raises as `Producer.begin_transaction`."""
        await self._thread.call(self._producer.begin_transaction)

    async def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: str | ConsumerGroupMetadata) -> None:
        """Adds offsets of a consumer group to the transaction.

        Args:
            offsets: by partition, the offset of the next record that the group will read.
            group_metadata: `await consumer.group_metadata()`, or the name of a group without active members.

        Raises:
            PylogError: as `Producer.send_offsets_to_transaction`.
        """
        await self._thread.call(partial(self._producer.send_offsets_to_transaction, offsets, group_metadata))

    async def commit_transaction(self) -> None:
        """Commits, after all sent records. Continues if it is cancelled. Raises as `Producer.commit_transaction`."""
        await self._thread.call(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Continues if it is cancelled. Raises as `Producer.abort_transaction`."""
        await self._thread.call(self._producer.abort_transaction)


class AsyncConsumerCalls(ABC, Generic[K, V]):
    """The calls of `AsyncConsumer` under aiokafka's names."""

    _consumer: Consumer[K, V]
    _thread: ClientThread
    _polling: Polling
    _changes: PendingChanges
    _partitions_of: dict[str, tuple[int, ...]]  # by topic, as last read
    _polled_ms: int | None  # time of the last read

    @abstractmethod
    async def run(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Calls a method of the consumer in its thread."""

    @abstractmethod
    async def close(self, *, autocommit: bool = True) -> None:
        """Closes the consumer."""

    @abstractmethod
    async def _poll_some(
        self, timeout_ms: float, max_records: int | None, only: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[Record[K, V]]]:
        """Polls some partitions; all of them if `only` is empty."""

    @property
    def _assignment(self) -> ConsumerAssignment:
        return core_of(self._polling).assignment

    def _after_changes(self, call: Callable[[], T]) -> T:
        """Makes the pending changes, then a call. Runs in the consumer's thread."""
        before = self._consumer.subscription(), self._consumer.assignment()
        self._changes.make(self._consumer)
        if before != (self._consumer.subscription(), self._consumer.assignment()):
            self._refresh_topics()
        return call()

    def _refresh_topics(self) -> set[str]:
        """Reads which topics there are, and returns their names. Runs in the consumer's thread."""
        names = self._consumer.topics()
        found = core_of(self._polling).manager.topics()
        self._partitions_of = {name: topic.partition_ids for name, topic in found.items()}
        return names

    # ---- reading -------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Checks that the consumer is open, and reads which topics exist. The call may be left out or repeated.

        Raises:
            ClosedError: the consumer or its store is closed.
        """
        await self.run(lambda _: self._refresh_topics())

    async def stop(self) -> None:
        """Closes the consumer. The same as `close`."""
        await self.close()

    def _abandon(self) -> None:
        """Closes the consumer without a commit. Not a coroutine: for the time after the event loop."""
        self._thread.abandon()
        self._consumer.close(autocommit=False)

    async def getone(self, *partitions: TopicPartition) -> Record[K, V]:
        """Returns the next record. Waits until there is one.

        Args:
            partitions: read only these; by default all that are assigned. The others are not paused.

        Raises:
            IllegalStateError: a listener has ended the subscription. As `poll`.
        """
        found = await self._poll_some(math.inf, 1, checked_partitions(partitions))
        for records in found.values():
            return records[0]
        raise IllegalStateError("the consumer has no topics and no partitions any more, so no record can arrive")

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[K, V]]]:
        """Returns records by partition.

        Args:
            partitions: read only these; by default all that are assigned. The others are not paused.
            timeout_ms: milliseconds to wait if there are no records.
            max_records: the largest number of records; `max_poll_records` by default.

        Raises:
            PylogError: as `poll`.
        """
        return await self._poll_some(timeout_ms, max_records, checked_partitions(partitions))

    # ---- changes before the next read ----------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics or a pattern before the next call that reads. The arguments are those of `Consumer.subscribe`.

        Raises:
            InvalidTypeError: `topics` is not iterable. ClosedError: the consumer is closed.
            IllegalStateError: an assignment is pending. The next call that reads raises the errors of `Consumer.subscribe`.
        """
        if not isinstance(topics, Iterable):
            raise InvalidTypeError(f"topics={topics!r} is not a list of topic names")
        names = topics if isinstance(topics, str) else tuple(topics)
        self._open_changes().subscribe(names, pattern, listener)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assigns partitions before the next call that reads, which raises the errors of `Consumer.assign`.

        Args:
            partitions: the partitions to read.

        Raises:
            InvalidArgumentError: a partition has another form. ClosedError: the consumer is closed.
            IllegalStateError: a subscription is pending.
        """
        self._open_changes().assign(checked_partitions(partitions), self._assignment.partitions.keys())

    def unsubscribe(self) -> None:
        """Ends the subscription or assignment before the next call that reads. Raises ClosedError if the consumer is closed."""
        self._open_changes().unsubscribe()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position of a partition before the next record is returned.

        Args:
            partition: an assigned partition.
            offset: the offset of the next record to read, as for `Consumer.seek`.

        Raises:
            IllegalStateError: the partition is not assigned. OffsetOutOfRangeError: the offset is negative.
        """
        (wanted,) = self._assigned([partition])
        self._open_changes().seek(wanted, offset_given("offset", offset))

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops reading assigned partitions before the next record is returned. Raises as `seek`. See `Consumer.pause`."""
        wanted = self._assigned(partitions)
        self._open_changes().pause(wanted, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continues reading paused partitions. Raises as `seek`. See `Consumer.resume`."""
        wanted = self._assigned(partitions)
        self._open_changes().pause(wanted, paused=False)

    def _open_changes(self) -> PendingChanges:
        self._check_open()
        return self._changes

    @abstractmethod
    def _check_open(self) -> None:
        """Raises ClosedError if the consumer is closed."""

    def _assigned(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Returns the partitions. Raises IllegalStateError if one is not assigned, and no pending change will assign it.

        A consumer that is closed has no partitions, so ClosedError comes first.
        """
        wanted = checked_partitions(partitions)
        present = self._changes.assigned(self._assignment.partitions.keys())
        for partition in wanted:
            if partition not in present:
                self._check_open()
                raise self._assignment.not_assigned(partition, present)
        return wanted

    # ---- questions without waiting -------------------------------------------------------------------------------------------

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that were assigned at the last call that read."""
        return set(self._assignment.partitions)

    def subscription(self) -> set[str]:
        """Returns the topics subscribed to, as known at the last call that read."""
        return self._assignment.topics

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions, as known at the last call that read."""
        return {state.partition for state in list(self._assignment.partitions.values()) if state.paused}

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the end of a partition's log, as known at the last read; None before the first one.

        Args:
            partition: an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        (wanted,) = self._assigned([partition])
        return core_of(self._polling).known_end(wanted)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Returns where `read_committed` reading ends, as known at the last read; None before the first one.

        Args:
            partition: an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        (wanted,) = self._assigned([partition])
        return core_of(self._polling).known_end(wanted, committed=True)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Returns the time of the last read in milliseconds since 1970, even if it found no record; None before the first one.

        Args:
            partition: an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return None if self.highwater(partition) is None else self._polled_ms

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns the partition numbers of a topic, as known since the last `start`, `topics` or change of the subscription.

        Args:
            topic: the topic's name.

        Returns:
            The numbers; None if no such topic is known.

        Raises:
            InvalidTypeError: `topic` is not a string.
        """
        if not isinstance(topic, str):
            raise InvalidTypeError(f"topic={topic!r} is not a topic name")
        found = self._partitions_of.get(topic)
        return None if found is None else set(found)

    # ---- positions and offsets -----------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int | None:
        """Returns the offset of the next record, with the argument and the errors of `Consumer.position`."""
        return await self.run(Consumer.position, partition)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Returns the offset that the group has committed, or None. Argument and errors are those of `Consumer.committed`."""
        found = await self.run(Consumer.committed, partition)
        assert found is None or isinstance(found, int)
        return found

    async def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's membership of its group, for a transaction. Raises as `Consumer.group_metadata`."""
        return await self.run(Consumer.group_metadata)

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. Raises as `Consumer.beginning_offsets`."""
        return await self.run(Consumer.beginning_offsets, partitions)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the end offset of each partition. Raises as `Consumer.end_offsets`."""
        return await self.run(Consumer.end_offsets, partitions)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns each partition's first record at or after a timestamp. Raises as `Consumer.offsets_for_times`."""
        return await self.run(Consumer.offsets_for_times, timestamps)

    async def topics(self) -> set[str]:
        """Returns the names of all topics. Raises as `Consumer.topics`."""
        return await self.run(lambda _: self._refresh_topics())

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Moves to the start of partitions, by default of all assigned ones. Returns True. Raises as `Consumer.seek`."""
        await self.run(Consumer.seek_to_beginning, *partitions)
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Moves to the end of partitions, by default of all assigned ones. Returns True. Raises as `Consumer.seek`."""
        await self.run(Consumer.seek_to_end, *partitions)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Moves to the committed offsets of partitions.

        Args:
            partitions: assigned partitions; by default all of them.

        Returns:
            The committed offset of each partition; None without a commit: its position stays.

        Raises:
            IllegalStateError: a partition is not assigned, or the consumer has no group.
        """
        return await self.run(_seek_to_committed, checked_partitions(partitions))


def _seek_to_committed(consumer: Consumer[Any, Any], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | None]:
    found: dict[TopicPartition, int | None] = {}
    for partition in partitions or sorted(consumer.assignment()):
        offset = consumer.committed(partition)
        assert offset is None or isinstance(offset, int)
        found[partition] = offset
        if offset is not None:
            consumer.seek(partition, offset)
    return found
