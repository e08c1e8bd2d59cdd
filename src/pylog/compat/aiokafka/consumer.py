"""`AIOKafkaConsumer`: aiokafka's consumer on a pylog store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self
from weakref import ref

from pylog.aio import AsyncConsumer
from pylog.clock import SystemClock
from pylog.compat.aiokafka import errors
from pylog.compat.aiokafka.abc import ConsumerRebalanceListener
from pylog.compat.aiokafka.commits import commit_structure_validate
from pylog.compat.aiokafka.consumer_base import CLIENT, ConsumerBase, check_partitions
from pylog.compat.aiokafka.errors import ConsumerStoppedError, IllegalOperation, Raising, RecordTooLargeError
from pylog.compat.aiokafka.options import warn_of_ignored
from pylog.compat.aiokafka.structs import ConsumerRecord, OffsetAndTimestamp
from pylog.compat.aiokafka.util import get_running_loop
from pylog.compat.kafka.answers import checked_times
from pylog.compat.kafka.arguments import checking
from pylog.consumer.consumer import Consumer, polling_of
from pylog.errors import NoOffsetForPartitionError, OffsetOutOfRangeError, PylogError, UnknownTopicOrPartitionError
from pylog.record.types import TopicPartition

__all__ = ["AIOKafkaConsumer", "ConsumerRebalanceListener", "RecordTooLargeError"]

LOGGER = logging.getLogger("pylog.compat")
_CLOCK: Final = SystemClock()
_TURN_MS: Final = 50
_IDLE_S: Final = 0.05  # between two checks of a consumer that has nothing to read
_UPKEEP_S: Final = 0.2  # between two checks of the group while the program does something else
_JOIN_S: Final = 0.02
_SHORTEST_MS: Final = 6000  # group.min.session.timeout.ms of a broker
_LONGEST_MS: Final = 1_800_000


class AIOKafkaConsumer(ConsumerBase):
    """Reads records of topics, alone or in a group, as aiokafka's consumer does.

    Args:
        topics: names to subscribe to.
        configs: aiokafka's options. Those that only mean something on a network are ignored, with one line in the log.

    Raises:
        TypeError: an option does not exist. ValueError: an option is wrong. RuntimeError: no event loop is running.

    >>> import asyncio, pylog.compat.aiokafka as aiokafka
    >>> async def main():
    ...     server = {"bootstrap_servers": "pylog+memory://aio-consumer"}
    ...     async with aiokafka.AIOKafkaProducer(**server) as producer:
    ...         await producer.send_and_wait("orders", b"paid")
    ...     async with aiokafka.AIOKafkaConsumer("orders", auto_offset_reset="earliest", **server) as consumer:
    ...         return (await consumer.getone()).value
    >>> asyncio.run(main())
    b'paid'
    """

    _upkeep: asyncio.Task[None] | None = None
    _read_at = 0.0  # seconds of the monotonic clock

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Opens the store, creates the topics subscribed to if they are missing, and joins the group.

        Raises:
            AssertionError: it was called before. UnknownTopicOrPartitionError: a topic does not exist, and nothing creates it.
        """
        get_running_loop()
        assert self._aio is None, "Did you call `start` twice?"
        with Raising(ConsumerStoppedError):
            self._cluster = cluster = await self._client.bootstrap()
            self._aio = AsyncConsumer(await asyncio.to_thread(self._native, cluster))
            cluster.clients.add(self)
            warn_of_ignored(CLIENT, self._given, cluster.name)
            await self._aio.start()
            self._check_session()
            for topic in sorted(self._topics):
                if not await asyncio.to_thread(cluster.create_on_demand, topic, allowed=True):
                    raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist, and nothing creates it")
            await self._join()
        self._read_at = _CLOCK.monotonic()
        if self.config["group_id"] is not None:
            self._upkeep = asyncio.get_running_loop().create_task(_keep_up(ref(self)))

    def _check_session(self) -> None:
        """Raises what a broker answers to a member with a session that is too short or too long."""
        session = self.config["session_timeout_ms"]
        if self.config["group_id"] is not None and (self._topics or self._pattern) and not _SHORTEST_MS <= session <= _LONGEST_MS:
            message = f"session_timeout_ms={session} is not {_SHORTEST_MS} to {_LONGEST_MS}, which a broker allows by default"
            raise errors.InvalidSessionTimeoutError(message)

    async def _follow_group(self, native: AsyncConsumer[Any, Any]) -> None:
        """Follows a rebalance, and commits in time. A consumer that has not read for too long leaves until it reads again."""
        if _CLOCK.monotonic() < self._read_at + self.config["max_poll_interval_ms"] / 1000:
            if self._has_choice:
                await self._settle()
        elif self._partitions is None and self._has_choice and not self._is_new:
            LOGGER.warning("the group %s: no read for max_poll_interval_ms; this member leaves", self.config["group_id"])
            native.unsubscribe()
            self._is_new = True  # the next read joins again
        await native.run(_check)

    async def _join(self) -> None:
        """Waits until the partitions of the subscription are assigned, and fixes their positions."""
        while not self._closed and await self._settle():
            native = self._started()
            with suppress(NoOffsetForPartitionError, OffsetOutOfRangeError):  # a call that reads raises it
                await native.run(lambda consumer: polling_of(consumer).collect(0, 1))
            if not native.subscription() or await native.run(lambda _: self._is_settled()):
                return  # a pattern may match nothing yet
            await asyncio.sleep(_JOIN_S)

    async def stop(self) -> None:
        """Commits if automatic commits are on, and leaves the group. Waiting calls raise ConsumerStoppedError."""
        if self._closed:
            return
        self._closed = True
        self._listener.end()
        if self._upkeep is not None and self._upkeep is not asyncio.current_task():
            self._upkeep.cancel()
        if self._aio is not None:
            with Raising(ConsumerStoppedError):
                await self._aio.close()

    # ---- reading -------------------------------------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[Any, Any]:
        """Returns the next record. Waits until there is one.

        Args:
            partitions: read only these; by default all that are assigned.

        Raises:
            ConsumerStoppedError: the consumer is stopped. AssertionError: something is no TopicPartition.
        """
        assert all(isinstance(each, TopicPartition) for each in partitions), "partitions must be TopicPartition"
        while True:
            found = await self._turn(self._next, partitions)
            if found is not None:
                return found

    async def _next(self, native: AsyncConsumer[Any, Any], partitions: Collection[TopicPartition]) -> Any:
        if partitions:
            some = await native.getmany(*partitions, timeout_ms=_TURN_MS, max_records=1)
            return next((records[0] for records in some.values()), None)
        try:
            return await native.__anext__()
        except StopAsyncIteration:  # the turn is over
            return None

    async def _turn(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Reads for a moment. Returns a result that is not true if there was no record."""
        if self._closed:
            raise ConsumerStoppedError
        self._read_at = _CLOCK.monotonic()
        with Raising(ConsumerStoppedError):
            if await self._settle():
                found = await read(self._started(), *arguments)
                self._polled = True
                return found
        await asyncio.sleep(_IDLE_S)
        return None

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Returns the next records by partition; none if `timeout_ms` is over.

        Args:
            partitions: read only these; by default all that are assigned.
            timeout_ms: milliseconds to wait.
            max_records: the largest number of records; by default `max_poll_records`.

        Raises:
            ConsumerStoppedError: the consumer is stopped. AssertionError: something is no TopicPartition.
            ValueError: `max_records` is not a positive int. TypeError: `timeout_ms` is no number.
        """
        assert all(isinstance(each, TopicPartition) for each in partitions), "partitions must be TopicPartition"
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError(f"max_records={max_records!r} is not a positive int")
        if not isinstance(timeout_ms, int | float):
            raise TypeError(f"timeout_ms={timeout_ms!r} is not a number of milliseconds")
        end = _CLOCK.monotonic() + timeout_ms / 1000
        was_open = not self._closed
        while True:
            left_ms = max(0.0, (end - _CLOCK.monotonic()) * 1000)
            try:
                found = await self._turn(self._some, partitions, min(left_ms, _TURN_MS), max_records)
            except ConsumerStoppedError:
                if was_open:
                    return {}  # stopped while this call waited
                raise
            if found or _CLOCK.monotonic() >= end:
                return found or {}

    async def _some(
        self, native: AsyncConsumer[Any, Any], partitions: Collection[TopicPartition], wait_ms: float, max_records: int | None
    ) -> Any:
        return await native.getmany(*partitions, timeout_ms=wait_ms, max_records=max_records)

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerStoppedError
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        """Returns the next record; ends when another task stops the consumer."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    # ---- committing ----------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commits offsets for the group, by default the positions.

        Args:
            offsets: by partition, an offset, or an offset and a text.

        Raises:
            IllegalOperation: the consumer has no group. IllegalStateError: a partition is not assigned, or none is yet.
            ValueError, TypeError: offsets have another form. CommitFailedError: another member has the partitions.
        """
        self._check_group()
        if not self._has_choice:
            raise errors.IllegalStateError("Not subscribed to any topics")
        if self._is_new and self._partitions is None:
            raise errors.IllegalStateError("No partitions assigned yet; read first, with getone or getmany")
        wanted = None if offsets is None else commit_structure_validate(offsets)
        if wanted is not None:
            self._check_assigned(wanted)
        async with self._asking() as native:
            await native.commit(wanted)

    def _check_group(self) -> None:
        if self.config["group_id"] is None:
            raise IllegalOperation("the consumer has no group; create it with group_id=")

    async def committed(self, partition: TopicPartition) -> int | None:
        """Returns the offset that the group has committed, or None. Raises IllegalOperation without a group."""
        self._check_group()
        async with self._asking() as native:
            return await native.committed(partition)

    # ---- positions and offsets -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[AsyncConsumer[Any, Any]]:
        """Carries the choice over, and raises aiokafka's errors in the block."""
        with Raising(ConsumerStoppedError):
            await self._settle()
            yield self._started()

    async def position(self, partition: TopicPartition) -> int:
        """Returns the offset of the next record. Waits for a partition that does not exist yet.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        while True:
            self._check_assigned([partition])
            async with self._asking() as native:
                found = None if self._is_pending(partition) else await native.position(partition)
            if found is not None:
                return found
            await asyncio.sleep(_IDLE_S)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Moves to the start of partitions, by default of all assigned ones. Returns True.

        Raises:
            TypeError: something is no TopicPartition. IllegalStateError: a partition is not assigned.
            AssertionError: none is assigned.
        """
        return await self._seek_to(AsyncConsumer.seek_to_beginning, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Moves to the end of partitions, by default of all assigned ones. Returns True. Raises as `seek_to_beginning`."""
        return await self._seek_to(AsyncConsumer.seek_to_end, partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Moves to the committed offsets of partitions, by default of all assigned ones. Returns them.

        Raises:
            IllegalOperation: the consumer has no group. As `seek_to_beginning`.
        """
        self._wanted(partitions)
        self._check_group()
        found: dict[TopicPartition, int | None] = await self._seek_to(AsyncConsumer.seek_to_committed, partitions)
        return found

    async def _seek_to(self, move: Callable[..., Any], partitions: Collection[TopicPartition]) -> Any:
        wanted = self._wanted(partitions)
        async with self._asking() as native:
            return await move(native, *(each for each in wanted if not self._is_pending(each)))

    def _wanted(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Returns assigned partitions, by default all of them. Raises as `seek_to_beginning`."""
        check_partitions(partitions)
        wanted = sorted(set(partitions) or self.assignment())
        assert wanted, "No partitions are currently assigned"
        self._check_assigned(wanted)
        return wanted

    @checking
    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition. Raises KafkaTimeoutError if one does not exist."""
        return await self._existing(Consumer.beginning_offsets, list(partitions))

    @checking
    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset after the last record of each partition. Raises KafkaTimeoutError if one does not exist."""
        return await self._existing(Consumer.end_offsets, list(partitions))

    @checking
    async def offsets_for_times(self, timestamps: Mapping[TopicPartition, float]) -> dict[TopicPartition, Any]:
        """Returns for each partition its first record at or after a time in milliseconds; None if there is none.

        Raises:
            ValueError: a time is negative. KafkaTimeoutError: a partition does not exist.
        """
        found = await self._existing(Consumer.offsets_for_times, checked_times(timestamps))
        return {
            partition: None if each is None else OffsetAndTimestamp(each.offset, each.timestamp)
            for partition, each in found.items()
        }

    async def _existing(self, ask: Callable[..., Any], partitions: Any) -> Any:
        """Returns what a call answers. Raises KafkaTimeoutError at once where aiokafka waits for a partition."""
        async with self._asking() as native:
            try:
                return await native.run(ask, partitions)
            except UnknownTopicOrPartitionError as error:
                raise errors.KafkaTimeoutError(f"{error}; nothing creates it") from error

    async def topics(self) -> set[str]:
        """Returns the names of all topics."""
        async with self._asking() as native:
            return await native.topics()


async def _keep_up(consumer: Callable[[], AIOKafkaConsumer | None]) -> None:
    """Follows the group while the program does something else, as aiokafka does in the background, and commits in time."""
    while True:
        await asyncio.sleep(_UPKEEP_S)
        found = consumer()
        if found is None or found._closed or found._aio is None:
            return
        try:
            await found._follow_group(found._aio)
        except (ConsumerStoppedError, PylogError) as error:
            if not found._closed:
                LOGGER.warning("the group %s: %s", found.config["group_id"], error)
        del found


def _check(consumer: Consumer[Any, Any]) -> None:
    polling_of(consumer).check()
