"""`KafkaConsumer`: kafka-python's consumer on a pylog store."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from pylog.clock import SystemClock
from pylog.compat.kafka import errors
from pylog.compat.kafka.answers import checked_times, existing, found_at, native_offsets, offsets_of, settle
from pylog.compat.kafka.arguments import checking
from pylog.compat.kafka.choice import check_partitions
from pylog.compat.kafka.consumer_base import ConsumerBase
from pylog.compat.kafka.future import Future
from pylog.compat.kafka.listener import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
from pylog.compat.kafka.records import ConsumerRecord, RecordTooLargeError
from pylog.compat.kafka.serializer import close_all
from pylog.compat.kafka.structs import (
    ConsumerGroupMetadata,
    MemberState,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)
from pylog.compat.kafka.translation import Translating
from pylog.errors import WakeupError
from pylog.record.types import OffsetAndMetadata as NativeOffset

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KafkaConsumer",
    "RecordTooLargeError",
]

_CLOCK: Final = SystemClock()
_PART_MS: Final = 200  # of a poll, after which other threads are let in
_IDLE_S: Final = 0.05  # between two checks of a consumer that has nothing to read


class KafkaConsumer(ConsumerBase):
    """Reads records of topics, alone or in a group, as kafka-python's consumer does.

    Args:
        topics: names to subscribe to.
        configs: kafka-python's options. Those that only mean something on a network are ignored, with one line in the log.

    Raises:
        KafkaConfigurationError: an option does not exist, or options contradict each other.

    >>> import pylog.compat.kafka as kafka
    >>> memory = {"bootstrap_servers": "pylog+memory://consumer"}
    >>> with kafka.KafkaProducer(**memory) as producer:
    ...     _ = producer.send("orders", b"paid")
    >>> consumer = kafka.KafkaConsumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=0, **memory)
    >>> [record.value for record in consumer]
    [b'paid']
    >>> consumer.close()
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc_val: object, exc_tb: object) -> None:
        self.close(autocommit=exc_type is None)

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Returns the next records by partition; none if `timeout_ms` is over.

        Args:
            timeout_ms: milliseconds to wait.
            max_records: the largest number of records; by default `max_poll_records`.
            update_offsets: false to leave the positions, so that the same records come again.

        Raises:
            ValueError, TypeError: an argument is wrong. IllegalStateError: the consumer is closed. Errors of deserializers.
        """
        if not isinstance(timeout_ms, int | float):
            raise TypeError(f"timeout_ms={timeout_ms!r} is not a number of milliseconds")
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms={timeout_ms!r} is negative")
        if max_records is not None and not isinstance(max_records, int):
            raise TypeError(f"max_records={max_records!r} is not an int")
        if max_records is not None and max_records <= 0:
            raise ValueError(f"max_records={max_records!r} is not positive")
        if self._closed:
            raise errors.IllegalStateError("the consumer is closed")
        end = _CLOCK.monotonic() + timeout_ms / 1000
        while True:
            left_ms = max(0.0, (end - _CLOCK.monotonic()) * 1000)
            found = self._poll_part(min(left_ms, _PART_MS), max_records, update_offsets=update_offsets)
            if found or self._closed or _CLOCK.monotonic() >= end:
                return found
            self._calls.give_others_a_turn()

    def _poll_part(
        self, timeout_ms: float, max_records: int | None, *, update_offsets: bool
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        with self._calls:
            if self._closed:
                return {}
            if self._choice.settle():
                try:
                    return self._read(timeout_ms, max_records, update_offsets=update_offsets)
                except WakeupError:  # `close` of another thread
                    return {}
        _CLOCK.sleep(min(timeout_ms / 1000, _IDLE_S))
        return {}

    def _read(
        self, timeout_ms: float, max_records: int | None, *, update_offsets: bool
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        begun = _CLOCK.monotonic()
        if update_offsets:
            found: dict[TopicPartition, Any] = self._polling.poll(timeout_ms, max_records, arrow=False)
        else:
            collected = self._polling.collect(timeout_ms, max_records)
            found = {partition.partition: records.records for partition, records in collected if len(records.records)}
        self._polled = set(self._core.assignment.partitions)
        if self._metrics is not None:
            self._metrics.polled(_CLOCK.monotonic() - begun)
            if found:
                self._metrics.fetched(found, _CLOCK.monotonic() - begun)
        return found

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """Returns the next record, whose position moves with it; ends after `consumer_timeout_ms`, or when closed."""
        if not self._polling.is_check_due or self._is_checked():
            for record in self._polling.fetched:
                return record  # type: ignore[return-value]  # `taking` makes them
        return self._awaited()

    next_v1 = next_v2 = __next__

    def _is_checked(self) -> bool:
        """Looks after the group and automatic commits between two records. Returns False if the consumer is closed."""
        with self._calls:
            if self._closed:
                return False
            try:
                self._polling.check()
            except WakeupError:
                return False
            return True

    def _awaited(self) -> ConsumerRecord:
        timeout_ms = self.config["consumer_timeout_ms"]
        end = _CLOCK.monotonic() + (timeout_ms / 1000 if timeout_ms >= 0 else math.inf)
        while not self._closed:
            left_ms = max(0.0, (end - _CLOCK.monotonic()) * 1000)
            if self._fetch_for_iteration(min(left_ms, _PART_MS)):
                for record in self._polling.fetched:
                    return record  # type: ignore[return-value]  # as above
            if _CLOCK.monotonic() >= end:
                break
            self._calls.give_others_a_turn()
        raise StopIteration

    def _fetch_for_iteration(self, timeout_ms: float) -> bool:
        with self._calls:
            if self._closed:
                return False
            if self._choice.settle():
                try:
                    found = self._polling.fetch_for_iteration(timeout_ms)
                except WakeupError:
                    return False
                self._polled = set(self._core.assignment.partitions)
                return found
        _CLOCK.sleep(min(timeout_ms / 1000, _IDLE_S))
        return False

    # ---- committing ----------------------------------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits offsets for the group, by default the positions. An offset past the partition's end is accepted.

        Raises:
            IllegalStateError: the consumer has no group. TypeError: offsets are not OffsetAndMetadata by TopicPartition.
            CommitFailedError: the consumer is not a member of its group, or does not own one of the partitions.
        """
        self._check_group()
        begun = _CLOCK.monotonic()
        with self._calls:
            self._native.commit(self._to_commit(offsets))
        if self._metrics is not None:
            self._metrics.commits.add(_CLOCK.monotonic() - begun)

    @checking
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[..., object] | None = None,
    ) -> Future:
        """Commits in the background. `callback(offsets, response)` gets an exception as response, or an object that is none.

        Without a callback, the option `default_offset_commit_callback` is called.
        """
        self._check_group()
        done = Future()
        with self._calls:
            chosen = self._to_commit(offsets)
            answer = self._native.commit_async(chosen, self._commit_callback(callback))
        answer.add_done_callback(lambda found: settle(done, found.exception()))
        return done

    def _check_group(self) -> None:
        if self.config["group_id"] is None:
            raise errors.IllegalStateError("the consumer has no group to commit for; create it with group_id=")

    def _to_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> Any:
        if offsets is None:
            return None
        wanted = native_offsets(offsets)
        if self._choice.awaits_group:
            raise errors.CommitFailedError
        return wanted

    def committed(
        self,
        partition: TopicPartition,
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """Returns the group's committed offset, with `metadata` as an OffsetAndMetadata; None without a commit.

        Raises:
            IllegalStateError: the consumer has no group. TypeError: it is no TopicPartition.
        """
        self._check_group()
        check_partitions([partition])
        with self._calls:
            found = self._native.committed(partition, metadata=True)
        if not isinstance(found, NativeOffset):
            return None
        return offsets_of({partition: found})[partition] if metadata else found.offset

    # ---- offsets -------------------------------------------------------------------------------------------------------------

    @checking
    def beginning_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[Any, int]:
        """Returns the first offset of each partition. Raises KafkaTimeoutError if one does not exist."""
        with self._calls:
            return existing(self._native.beginning_offsets, list(partitions))

    @checking
    def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None) -> dict[Any, int]:
        """Returns the offset after the last record of each partition. Raises KafkaTimeoutError if one does not exist."""
        with self._calls:
            return existing(self._native.end_offsets, list(partitions))

    @checking
    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, float],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns for each partition its first record at or after a time in milliseconds; None if there is none.

        Raises:
            ValueError: a time is negative. KafkaTimeoutError: a partition does not exist.
        """
        with self._calls:
            found = existing(self._native.offsets_for_times, checked_times(timestamps))
        return {partition: found_at(each) for partition, each in found.items()}

    # ---- the rest ------------------------------------------------------------------------------------------------------------

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's membership of its group."""
        group, instance = self.config["group_id"], self.config["group_instance_id"]
        if group is None:
            return ConsumerGroupMetadata()
        member = self._core.assignment.identity.member
        if member is None or not member.member_id:
            return ConsumerGroupMetadata(group, group_instance_id=instance)
        return ConsumerGroupMetadata(group, member.epoch, member.member_id, instance, MemberState.STABLE)

    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:
        """Returns the metrics by group and name; None if `metrics_enabled` is false."""
        return None if self._metrics is None else self._metrics.answer(raw=raw)

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Does nothing: the store is open."""

    def bootstrap_connected(self) -> bool:
        """Returns True until the consumer is closed."""
        return not self._closed

    @checking
    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commits if automatic commits are on, and leaves the group. A `poll` of another thread ends at once.

        Args:
            autocommit: false to skip the commit.
            timeout_ms: milliseconds to wait for a call of another thread; by default `request_timeout_ms`.
        """
        if self._closed:
            return
        self._closed = True
        wait_ms = self.config["request_timeout_ms"] if timeout_ms is None else timeout_ms
        if self._calls.is_elsewhere:
            self._native.wakeup()
        if not self._calls.take(max(0.0, min(wait_ms / 1000, 1e6))):  # in this order, NaN is 0
            raise errors.KafkaTimeoutError(
                f"another thread has been in a call of the consumer for {wait_ms} ms; it is not closed"
            )
        try:
            with Translating():
                self._native.close(autocommit)
        finally:
            self._calls.give_back()
            close_all(self.config["key_deserializer"], self.config["value_deserializer"])
            if self._metrics is not None:
                self._metrics.close()

    def _abandon(self) -> None:
        """Closes the consumer without a commit, for a test that did not close it."""
        self.close(autocommit=False)
