"""`AIOKafkaProducer`: aiokafka's producer on a pylog store."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Self

from pylog.aio import AsyncProducer
from pylog.clock import SystemClock
from pylog.compat.aiokafka import errors
from pylog.compat.aiokafka.batch import BatchBuilder, check_numbers, native_of, pairs_of
from pylog.compat.aiokafka.client import AIOKafkaClient, report_unclosed
from pylog.compat.aiokafka.commits import commit_structure_validate
from pylog.compat.aiokafka.errors import IllegalOperation, ProducerClosed, Raising, of_aiokafka
from pylog.compat.aiokafka.options import config_of, producer_options, warn_of_ignored
from pylog.compat.aiokafka.partitioner import DefaultPartitioner
from pylog.compat.aiokafka.structs import RecordMetadata
from pylog.compat.aiokafka.util import get_running_loop
from pylog.compat.clusters import Cluster
from pylog.errors import PylogError
from pylog.limits import INT32_MAX
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.producer.config import producer_config
from pylog.producer.future import RecordMetadata as NativeMetadata
from pylog.producer.producer import checked_record
from pylog.record.types import TopicPartition

__all__ = ["AIOKafkaProducer"]

CLIENT: Final = "AIOKafkaProducer"
_OVERHEAD: Final = 82  # the most that a batch's header and a record's lengths take
_TRUSTED_S: Final = 1.0  # afterwards another process may have added partitions
_CLOCK: Final = SystemClock()
_NUMBERS: Final = itertools.count(1)


class AIOKafkaProducer:
    """Appends records to topics, as aiokafka's producer does.

    Args:
        configs: aiokafka's options. Those that only mean something on a network are ignored, with one line in the log.

    Raises:
        TypeError: an option does not exist. ValueError: options contradict each other. RuntimeError: no event loop is running.

    >>> import asyncio, pylog.compat.aiokafka as aiokafka
    >>> async def produce():
    ...     async with aiokafka.AIOKafkaProducer(bootstrap_servers="pylog+memory://aio-producer") as producer:
    ...         return await producer.send_and_wait("orders", b"paid", key=b"42")
    >>> asyncio.run(produce())[:4]
    ('orders', 0, TopicPartition(topic='orders', partition=0), 0)
    """

    _closed = True  # until it is complete

    def __init__(self, **configs: Any) -> None:
        self.config = config_of(CLIENT, configs)
        self._options = producer_options(self.config, configs)
        with Raising(ProducerClosed):
            producer_config(self._options)  # `start` creates the store, so what is wrong must be refused before
        self._given = configs
        if self.config["client_id"] is None:
            self.config["client_id"] = f"aiokafka-producer-{next(_NUMBERS)}"
        self._key, self._value = self.config["key_serializer"], self.config["value_serializer"]
        partitioner = self.config["partitioner"]
        self._choose = None if isinstance(partitioner, DefaultPartitioner) else partitioner
        self.client = AIOKafkaClient.of(self.config)
        self._loop = self.config["loop"] or get_running_loop()
        self._aio: AsyncProducer[bytes, bytes] | None = None
        self._cluster: Cluster | None = None
        self._known: dict[str, tuple[float, frozenset[int], bool]] = {}  # by topic: until, its partitions, LogAppendTime
        self._in_transaction = False  # records can be sent
        self._is_open = False  # a transaction, also while it ends
        self._closed = False

    def __del__(self) -> None:
        if not self._closed:
            report_unclosed(self, "producer", self._loop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Opens the store. With a `transactional_id`, also fences older producers with the same one."""
        get_running_loop()
        if self._aio is not None or self._closed:
            return
        with Raising(ProducerClosed):
            self._cluster = cluster = await self.client.bootstrap()
            self._aio = AsyncProducer(await asyncio.to_thread(partial(cluster.store.producer, **self._options)))
            cluster.clients.add(self)
            warn_of_ignored(CLIENT, self._given, cluster.name)
            await self._aio.start()

    async def stop(self) -> None:
        """Appends the sent records and closes the producer. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._aio is not None:
            with Raising(ProducerClosed):
                await self._aio.close()

    def _abandon(self) -> None:
        """Closes the producer, for a test that did not stop it and whose event loop may be closed."""
        self._closed = True
        if self._aio is not None:
            self._aio._abandon()

    def _started(self) -> AsyncProducer[bytes, bytes]:
        if self._closed:
            raise ProducerClosed
        if self._aio is None:
            raise errors.IllegalStateError("the producer is not started; await start() first")
        return self._aio

    async def flush(self) -> None:
        """Waits until all records sent so far are appended, or have failed."""
        with Raising(ProducerClosed):
            await self._started().flush()

    # ---- topics --------------------------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """Returns the numbers of a topic's partitions. The topic is created if it is missing and that is allowed.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist, and nothing creates it.
        """
        self._started()
        return set(await self._partitions(topic))

    async def _partitions(self, topic: str) -> frozenset[int]:
        if not isinstance(topic, str):
            raise TypeError(f"a topic's name is text, not {type(topic).__name__}")
        known = self._known.get(topic)
        if known is None or _CLOCK.monotonic() >= known[0]:
            with Raising(ProducerClosed):
                known = await asyncio.to_thread(self._read_topic, topic)
        return known[1]

    def _read_topic(self, topic: str) -> tuple[float, frozenset[int], bool]:
        cluster = self._cluster
        assert cluster is not None
        if not cluster.create_on_demand(topic, allowed=True):
            message = f"topic {topic!r} does not exist in {cluster.name}, and nothing creates it"
            raise errors.UnknownTopicOrPartitionError(message)
        found = cluster.topics()[topic]
        stamped = found.config.message_timestamp_type == "LogAppendTime"
        known = self._known[topic] = _CLOCK.monotonic() + _TRUSTED_S, frozenset(found.partition_ids), stamped
        return known

    async def _partition(self, topic: str, partition: int | None, key: bytes | None) -> int | None:
        """Returns the partition that was given, or the choice of the program's partitioner; None for pylog's choice."""
        is_possible = partition is None or 0 <= partition <= INT32_MAX
        assert is_possible, f"Unrecognized partition: no topic has a partition {partition}"  # before the topic is created to look
        known = await self._partitions(topic)
        if partition is None and self._choose is not None:
            partition = self._choose(key, sorted(known), sorted(known))
        if partition is not None and partition not in known:
            self._known.pop(topic)  # perhaps it was added a moment ago
            known = await self._partitions(topic)
            assert partition in known, f"Unrecognized partition: topic {topic!r} has no partition {partition}"
        return partition

    # ---- sending -------------------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> asyncio.Future[RecordMetadata | None]:
        """Sends one record. Await it for a place in the buffer, and the future that it returns for the record's metadata.

        Args:
            topic: the topic, which is created if it is missing and that is allowed.
            value: bytes or None, or the argument of the value's serializer.
            key: the same for the key.
            partition: the partition's number; None lets the partitioner choose.
            timestamp_ms: milliseconds since 1970; None is the time when the record is appended.
            headers: pairs of a name and bytes.

        Returns:
            A future of `RecordMetadata`; of None with `acks=0`.

        Raises:
            AssertionError: key and value are None, or the topic has no such partition. TypeError: a wrong type.
            ProducerClosed: the producer is stopped. MessageSizeTooLargeError: the record exceeds `max_request_size`.
            IllegalOperation: the producer is transactional, and no transaction is open.
        """
        assert value is not None or key is not None, "a record needs a key or a value"
        self._started()
        self._check_transaction()
        check_numbers(partition=partition, timestamp_ms=timestamp_ms)
        pairs = pairs_of(headers)
        key_bytes = key if self._key is None else self._key(key)
        value_bytes = value if self._value is None else self._value(value)
        self._check_size(key_bytes, value_bytes, pairs)
        with Raising(ProducerClosed):
            checked_record(None, None, pairs, timestamp_ms)  # before the topic is created to look
        chosen = await self._partition(topic, partition, key_bytes)
        options = {"key": key_bytes, "headers": pairs or None, "partition": chosen, "timestamp": timestamp_ms}
        with Raising(ProducerClosed):
            sent = await self._started().send(topic, value_bytes, **options)
        return self._answer(sent)

    def _answer(self, sent: asyncio.Future[NativeMetadata]) -> asyncio.Future[RecordMetadata | None]:
        answer: asyncio.Future[RecordMetadata | None] = asyncio.get_running_loop().create_future()
        sent.add_done_callback(partial(self._settle, answer))
        return answer

    def _settle(self, answer: asyncio.Future[RecordMetadata | None], sent: asyncio.Future[NativeMetadata]) -> None:
        if answer.done():
            return
        error = sent.exception()
        if error is not None:
            answer.set_exception(of_aiokafka(error))
            if self.config["transactional_id"] is not None:
                answer.exception()  # the program has aborted: asyncio must not log that nobody asked
        else:
            answer.set_result(None if self.config["acks"] == 0 else self._metadata(sent.result()))

    def _metadata(self, found: NativeMetadata) -> RecordMetadata:
        known = self._known.get(found.topic)
        stamped = known is not None and known[2]
        partition = TopicPartition(found.topic, found.partition)
        return RecordMetadata(*partition, partition, found.offset, found.timestamp, int(stamped), self._log_start(partition))

    def _log_start(self, partition: TopicPartition) -> int | None:
        assert self._cluster is not None
        try:
            return self._cluster.manager.log(*partition).known.start_offset
        except PylogError:  # the topic was deleted, or the store is closed
            return None

    def _check_size(self, key: Any, value: Any, headers: list[tuple[str, bytes | None]]) -> None:
        for given in (key, value):
            if not isinstance(given, bytes | bytearray | memoryview | None):
                raise TypeError(f"a record has bytes, not {type(given).__name__}; set a serializer")
        size = _OVERHEAD + len(key or b"") + len(value or b"") + sum(len(name) + len(held or b"") for name, held in headers)
        if size > self.config["max_request_size"]:
            message = f"a record of up to {size} bytes exceeds max_request_size={self.config['max_request_size']}"
            raise errors.MessageSizeTooLargeError(f"{message}; raise that option, or send smaller records")

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> RecordMetadata | None:
        """Sends one record and waits until it is in the log. Arguments and errors as for `send`."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    def create_batch(self) -> BatchBuilder:
        """Returns an empty batch of at most `max_batch_size` bytes. `send_batch` appends it."""
        return BatchBuilder(self.config["max_batch_size"], _CLOCK.now_ms, self._key, self._value)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata | None]:
        """Appends a batch as one batch of the log. Returns a future of the metadata of its first record.

        Args:
            batch: created by `create_batch`. It is closed.
            topic: the topic.
            partition: the number of its partition.

        Raises:
            PylogError: as `send`.
        """
        self._started()
        self._check_transaction()
        assert partition is not None, "a batch goes to one partition; give its number"
        check_numbers(partition=partition)
        native = native_of(batch)
        await self._partition(topic, partition, None)
        with Raising(ProducerClosed):
            return self._answer(await self._started().send_batch(native, topic, partition=partition))

    # ---- transactions --------------------------------------------------------------------------------------------------------

    def _check_transaction(self) -> None:
        if self.config["transactional_id"] is not None and not self._in_transaction:
            raise IllegalOperation("no transaction is open; await begin_transaction() before send()")

    def _transactional(self) -> AsyncProducer[bytes, bytes]:
        if self.config["transactional_id"] is None:
            raise IllegalOperation("the producer has no transactions; create it with a transactional_id")
        return self._started()

    async def begin_transaction(self) -> None:
        """Begins a transaction.

        Raises:
            IllegalOperation: the producer has no `transactional_id`. AssertionError: a transaction is open.
        """
        native = self._transactional()
        assert not self._is_open, "a transaction is open already"
        with Raising(ProducerClosed):
            await native.begin_transaction()
        self._in_transaction = self._is_open = True

    async def commit_transaction(self) -> None:
        """Commits the transaction: its records and offsets become visible together.

        Raises:
            ProducerFenced: a newer producer has the `transactional_id`. AssertionError: no transaction is open.
        """
        native = self._transactional()
        assert self._in_transaction, "no transaction is open"
        self._in_transaction = False
        with Raising(ProducerClosed):
            await native.commit_transaction()
        self._is_open = False

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Raises as `commit_transaction`."""
        native = self._transactional()
        assert self._is_open, "no transaction is open"
        self._in_transaction = self._is_open = False
        with Raising(ProducerClosed):
            await native.abort_transaction()

    def transaction(self) -> TransactionContext:
        """Begins a transaction in `async with`, commits it at the end of the block, and aborts it after an exception."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, Any], group_id: str) -> None:
        """Adds offsets of a consumer group, which are committed with the transaction.

        Args:
            offsets: by partition, an offset, or an offset and a text.
            group_id: the group's name.

        Raises:
            IllegalOperation: no transaction is open. ValueError: an argument is wrong.
        """
        native = self._transactional()
        if not self._in_transaction:
            raise IllegalOperation("no transaction is open")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(f"group_id={group_id!r} is not the name of a group")
        wanted = commit_structure_validate(offsets)
        with Raising(ProducerClosed):
            await native.send_offsets_to_transaction(wanted, ConsumerGroupMetadata(group_id))


class TransactionContext:
    """What `AIOKafkaProducer.transaction` returns.

    Args:
        producer: the producer.
    """

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None:
            await self._producer.commit_transaction()
        elif not isinstance(error, errors.ProducerFenced):  # which cannot be aborted
            await self._producer.abort_transaction()
