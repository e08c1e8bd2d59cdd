"""`Consumer`: reads topics, alone or as a member of a consumer group, under kafka-python's names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import Any, Generic, Self

import pyarrow as pa

from pylog.clock import Clock
from pylog.consumer.arguments import Timestamps, checked_partition, checked_partitions, checked_times
from pylog.consumer.commits import CommitCallback, Offsets
from pylog.consumer.core import ConsumerCore
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.consumer.options import ConsumerOptions, ResetPolicy
from pylog.consumer.partition import AssignedPartition
from pylog.consumer.polling import Polling
from pylog.consumer.positions import EARLIEST, LATEST
from pylog.consumer.subscription import Subscription, visible_topics
from pylog.dropping import has_been_dropped
from pylog.errors import ClosedError, IllegalStateError, InvalidArgumentError
from pylog.factory_made import FactoryMade
from pylog.log.arguments import offset_given
from pylog.log_manager import LogManager
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.offset_manager import OffsetManager
from pylog.record.types import K, OffsetAndMetadata, OffsetAndTimestamp, Record, TopicPartition, V
from pylog.text import counted


class Consumer(FactoryMade, Generic[K, V], factory="Store.consumer"):
    """Reads records of topics in offset order. Created by `Store.consumer`; a context manager.

    With a `group_id`, the consumer shares the partitions of its topics with the other members of the group, which may run in
    other threads and processes. It continues at the group's committed offsets. Without a group it reads all partitions.

    Only one thread may use a consumer at a time. Group membership, automatic commits and the search for new topics run inside
    `poll` and iteration, so the program must call one of them at least every `max_poll_interval_ms`. If an exception leaves the
    `with` block, nothing is committed, and the last records are read again.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> _ = store.log("orders").append_many([b"paid", b"shipped"])
    >>> with store.consumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
    ...     [record.value for record in consumer]
    [b'paid', b'shipped']
    >>> store.close()
    """

    def _begin(
        self,
        manager: LogManager,
        offsets: OffsetManager,
        topics: Iterable[str],
        options: ConsumerOptions,
        clock: Clock,
        departing: list[ConsumerCore],
    ) -> None:
        self._manager = manager
        self._offsets = offsets
        self._options = options
        self._clock = clock
        # the core never refers to this object, so that it can be collected when it is dropped
        self._core = ConsumerCore(manager, offsets, options, clock, departing)
        self._guard = self._core.guard
        self._steps = self._core.steps
        self._positions = self._core.positions
        self._assignment = self._core.assignment
        self._commits = self._core.commits
        self._polling = Polling(self._core, clock)
        names = tuple(topics)
        if names:
            self.subscribe(names)
        self._core.begun = True

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # missing if an argument was refused
        if core is not None and core.is_open:
            core.departing.append(core)  # closing the store waits for it
            group = "" if core.options.group_id is None else f" in the group {core.options.group_id!r}"
            has_been_dropped(self, f"a consumer of the store {core.manager.path}{group}", core.abandon)

    def __repr__(self) -> str:
        count = len(self._assignment.partitions)
        return f"Consumer({self._manager.path!r}, group_id={self._options.group_id!r}, {counted(count, 'partition')})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(autocommit=kind is None)

    # ---- topics and partitions -----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, in place of the previous ones. With a group, the members share their partitions.

        Args:
            topics: topic names; or
            pattern: a regular expression that matches the beginning of a name. Topics created later are included.
            listener: called inside `poll` when partitions are assigned or revoked.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist. A topic that is deleted later is not an error.
            IllegalStateError: partitions were assigned. InvalidArgumentError: neither or both of topics and pattern were given.

        Cost: nothing is read; the next `poll` joins the group.
        """
        with self._guard, self._steps:
            if isinstance(listener, ConsumerRebalanceListener):
                callbacks = listener.on_partitions_assigned, listener.on_partitions_revoked, listener.on_partitions_lost
                self._core.refuse_coroutines("listener", *callbacks)
            exclude = self._options.exclude_internal_topics
            self._assignment.subscribe(Subscription(topics, pattern, listener, exclude_internal=exclude))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assigns exactly these partitions, without group management. Partitions that stay keep their positions.

        Args:
            partitions: the partitions, as `TopicPartition` or as pairs of a topic and a number.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist. IllegalStateError: the consumer is subscribed to topics.
        """
        with self._guard, self._steps:
            wanted = checked_partitions(partitions)
            for partition in wanted:
                self._core.log(partition)
            self._assignment.assign(wanted)

    def unsubscribe(self) -> None:
        """Ends the subscription or assignment: commits if automatic commits are on, calls the listener, and leaves the group."""
        with self._guard, self._steps:
            self._core.leave(autocommit=True)

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions currently assigned to this consumer."""
        with self._guard:
            return set(self._assignment.partitions)

    def subscription(self) -> set[str]:
        """Returns the topics subscribed to; with a pattern, the topics it matched last."""
        with self._guard:
            return self._assignment.topics

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record[K, V]]]:
        """Returns records, and moves the positions past them.

        Args:
            timeout_ms: milliseconds to wait if there are no records.
            max_records: the largest number of records; `max_poll_records` by default.

        Returns:
            Records by partition, in offset order; empty if the timeout has expired. Partitions take turns.

        Raises:
            OffsetOutOfRangeError, NoOffsetForPartitionError: with `auto_offset_reset="none"`, if a position is not in the log or
                unknown.
            CorruptionError: the next records of a partition are damaged. `seek(error.partition, error.next_offset)` continues
                after them.
            ObjectStoreError: archived records of a tiered topic cannot be fetched. A later poll tries again.
            RecordDeserializationError: a deserializer raised; the position stays at that record.
            IllegalStateError: no topics and no partitions were chosen, or another thread is in a call.
            ClosedError: the consumer or its store is closed. WakeupError: `wakeup` was called.
            Exception: that of a listener or a callback.

        The error of a partition is raised again until its position moves; other partitions take their turns in between.

        Cost: about 0.5 µs a record. While it waits, it checks each partition, first every millisecond, then less and less often.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> _ = store.log("orders").append_many([b"paid", b"shipped"])
        >>> consumer = store.consumer("orders", auto_offset_reset="earliest")
        >>> for partition, records in consumer.poll().items():
        ...     print(partition, [record.value for record in records])
        TopicPartition(topic='orders', partition=0) [b'paid', b'shipped']
        >>> consumer.close()
        >>> store.close()
        """
        return self._polling.poll(timeout_ms, max_records, arrow=False)

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, pa.RecordBatch]:
        """Returns records as Arrow batches with the columns `offset`, `timestamp`, `key`, `value` and `headers`.

        Deserializers are not used.

        Args:
            timeout_ms: as for `poll`.
            max_records: the largest number of records; by default whole batches as they were read, about 65,536 records together.

        Returns:
            One batch for each partition that has records.

        Raises:
            PylogError: as `poll`.

        Cost: millions of records a second on one core.
        """
        return self._polling.poll(timeout_ms, max_records, arrow=True)

    def __iter__(self) -> Iterator[Record[K, V]]:
        """Yields records one by one, without end; with `consumer_timeout_ms`, until no record has arrived for that time.

        The position moves with each record, so `commit` in the loop includes the current record. Ten times a second, between two
        records, iteration handles group membership and automatic commits, as `poll` does. Raises as `poll`.
        """
        return self._polling.records(self)

    def __next__(self) -> Record[K, V]:
        return self._polling.next_record()

    # ---- positions -----------------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Returns the offset of the next record; None while an open transaction has uncommitted offsets for the partition.

        Raises:
            IllegalStateError: the partition is not assigned. NoOffsetForPartitionError: as `poll`.
        """
        with self._guard:
            assigned = self._assignment.state_of(checked_partition(partition))
            if assigned.position is None:
                self._positions.find([assigned])
                if assigned.failure is not None:
                    raise assigned.failure
            return assigned.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position of a partition: `poll` continues there.

        Args:
            partition: an assigned partition.
            offset: the new position; if it is not in the log, `auto_offset_reset` decides where reading continues.

        Raises:
            IllegalStateError: the partition is not assigned. OffsetOutOfRangeError: the offset is negative.

        Cost: none, but records read ahead are read again.
        """
        with self._guard:
            self._assignment.state_of(checked_partition(partition)).seek(offset_given("offset", offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves to the current start of partitions; by default, of all assigned ones. Raises as `seek`."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves to the current end of partitions; by default, of all assigned ones. Raises as `seek`."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> None:
        with self._guard:
            for assigned in self._states_of(partitions or tuple(self._assignment.partitions)):
                assigned.seek(self._positions.offset_at(assigned.partition, policy))

    def _states_of(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        return [self._assignment.state_of(partition) for partition in checked_partitions(partitions)]

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops reading these partitions until `resume`. They stay assigned. Raises as `seek`."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continues reading paused partitions. Raises as `seek`."""
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        with self._guard:
            for assigned in self._states_of(partitions):
                assigned.paused = paused

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        with self._guard:
            return {assigned.partition for assigned in self._assignment.partitions.values() if assigned.paused}

    # ---- committing ----------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets for the group: all of them, or none.

        Args:
            offsets: the offset of the next record to read, by partition. Default: the positions of all assigned partitions. A
                position whose log was deleted, or truncated below it, is left out with a warning in the log.

        Raises:
            FencedMemberError: a partition is no longer assigned to this consumer; nothing was committed.
            OffsetOutOfRangeError: an offset is past the partition's end. UnknownTopicOrPartitionError: a partition does not
                exist. IllegalStateError: the consumer has no group. As `OffsetStore.commit`.

        Cost: one append at the store's level of durability.
        """
        with self._guard, self._steps:
            wanted, logs = self._core.to_commit(offsets)
            self._core.commit(wanted, chosen=offsets is not None, logs=logs)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> Future[None]:
        """Commits in the background. Waiting commits are merged into one append. Blocks if very many are waiting.

        Args:
            offsets: as for `commit`; the default is the positions at the time of this call.
            callback: called in a later `poll`, `commit` or `close`, with the committed offsets and None, or with the requested
                offsets and the error.

        Returns:
            A future that is done when the offsets are committed. Its `exception()` is the error that `commit` would raise.

        Raises:
            IllegalStateError: the consumer has no group.
        """
        with self._guard, self._steps:
            self._core.refuse_coroutines("callback", callback)
            call = None if callback is None else partial(self._steps.lend, callback)
            chosen, identity = offsets is not None, self._assignment.identity
            wanted, logs = self._core.to_commit(offsets)
            return self._commits.commit_async(wanted, call, chosen=chosen, logs=logs, identity=identity)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's membership of its group, to commit offsets in a transaction (KIP-447).

        Raises:
            IllegalStateError: the consumer has no group.

        Kafka source: KafkaConsumer.groupMetadata.
        """
        with self._guard:
            return self._core.group_metadata()

    def committed(self, partition: TopicPartition, *, metadata: bool = False) -> int | OffsetAndMetadata | None:
        """Returns the offset that the group has committed for a partition, or None.

        Args:
            partition: assigned or not.
            metadata: true to return an `OffsetAndMetadata`.

        Raises:
            IllegalStateError: the consumer has no group. CorruptionError: damage hides the committed offset.
        """
        with self._guard:
            checked = checked_partition(partition)
            found = self._offsets.fetch(self._core.group(), [checked]).get(checked)
            return found if metadata or found is None else found.offset

    # ---- offsets and topics --------------------------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition.

        Args:
            partitions: partitions, assigned or not.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        return self._offsets_at(partitions, EARLIEST)

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset after the last record of each partition; under `read_committed`, the last stable offset.

        Args:
            partitions: partitions, assigned or not.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        return self._offsets_at(partitions, LATEST)

    def _offsets_at(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> dict[TopicPartition, int]:
        with self._guard:
            return {partition: self._positions.offset_at(partition, policy) for partition in checked_partitions(partitions)}

    def offsets_for_times(self, timestamps: Timestamps) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns for each partition its first record at or after a timestamp; None if there is none.

        Args:
            timestamps: milliseconds since 1970, or datetimes with a time zone, by partition, assigned or not.

        Raises:
            InvalidArgumentError: a timestamp is negative. As `Log.offset_for_timestamp`.
        """
        with self._guard:
            level, logs = self._options.isolation_level, self._core.log
            times = checked_times(timestamps)
            return {each: logs(each).offset_for_timestamp(time, isolation_level=level) for each, time in times}

    def topics(self) -> set[str]:
        """Returns the names of all topics in the store; internal ones only if `exclude_internal_topics` is false."""
        with self._guard:
            return visible_topics(self._manager, exclude_internal=self._options.exclude_internal_topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns the partition numbers of a topic; None if the topic does not exist.

        Args:
            topic: the topic's name.
        """
        if not isinstance(topic, str):
            raise InvalidArgumentError(f"topic={topic!r} is not a topic name")
        with self._guard:
            found = self._manager.topics().get(topic)
            return None if found is None else set(found.partition_ids)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Makes the current `poll`, `poll_arrow` or iteration of another thread, or else the next one, raise `WakeupError`.

        Any thread and any signal handler may call it at any time: it does not wait and takes no lock. No record is lost: the next
        `poll` returns them. Several calls before the error is raised count as one. A commit is not interrupted. After `close` it
        does nothing.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> with store.consumer("orders") as consumer:
        ...     consumer.wakeup()
        ...     try:
        ...         _ = consumer.poll(60_000)
        ...     except pylog.WakeupError:
        ...         print("woken")
        woken
        >>> store.close()
        """
        self._core.wakeup()

    def close(self, autocommit: bool = True) -> None:
        """Commits if automatic commits are on, calls the listener, leaves the group, and ends the threads. May be called twice.

        A signal handler may call it too. During another call of the same thread, it takes effect when that call ends; a `poll`
        then returns at once, without records. A consumer that is dropped without `close` warns with a `ResourceWarning`, leaves
        its group and commits nothing. If its store is closed, or is being closed by another thread, nothing is committed either.

        Args:
            autocommit: false to skip the commit. May be a positional argument, as in kafka-python.

        Raises:
            Exception: that of a listener; the consumer is closed anyway.
        """
        if self._guard.closed or self._guard.forked:
            return
        if self._steps.are_under_way:
            self._steps.defer(partial(self.close, autocommit))
            return
        entered = False
        try:
            with self._guard, self._steps:
                entered = True
                self._polling.fetched = iter(())
                self._core.close(autocommit=autocommit)
        except ClosedError:
            if entered and not (self._manager.gate.is_shut or self._guard.is_ended_elsewhere):
                raise  # else the store is closed, or another thread has closed the consumer or is closing the store


def new_consumer(
    manager: LogManager,
    offsets: OffsetManager,
    topics: Iterable[str],
    options: ConsumerOptions,
    clock: Clock,
    departing: list[ConsumerCore],
) -> Consumer[Any, Any]:
    """Creates a consumer, for `Store.consumer`.

    Args:
        manager, offsets, clock: the store's manager, offsets and clock.
        topics: names to subscribe to; none to subscribe or assign later.
        options: the consumer's options.
        departing: has the core of a consumer that was dropped, while it leaves its group.
    """
    made: Consumer[Any, Any] = Consumer.__new__(Consumer)
    made._begin(manager, offsets, topics, options, clock, departing)
    return made


def close_with_store(consumer: Consumer[Any, Any]) -> None:
    """Closes a consumer for its store, unless another thread is in a call of it: that one gets ClosedError from its next call."""
    consumer._guard.ended_by = get_ident()
    with suppress(IllegalStateError):
        consumer.close(autocommit=False)


def polling_of(consumer: Consumer[Any, Any]) -> Polling:
    """Returns the reading side of a consumer, for `AsyncConsumer`."""
    return consumer._polling
