"""What a store offers to those who read and write through it: its clients, some of which end with it.

Clients know a store as `Clients`; `Store` is above them.
"""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from pylog.background import Failures
from pylog.clock import Clock
from pylog.errors import IllegalStateError
from pylog.fs import Gate
from pylog.log.log import Log
from pylog.metrics import Sample
from pylog.monitoring import samples_of
from pylog.offsets.store import OffsetStore
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic

if TYPE_CHECKING:
    from pylog.consumer.consumer import Consumer
    from pylog.consumer.core import Core as ConsumerCore
    from pylog.groups.admin import Group
    from pylog.producer.core import Core
    from pylog.producer.producer import Producer


class Clients(ABC):
    """The half of a `Store` that makes clients, and closes them when it closes.

    What was sent to producers is to be appended, and groups need not wait until members that are gone are missed.

    Attributes:
        topic_changes: how often this store has created, altered or deleted a topic or added partitions.
        departing: of the consumers that were dropped without `close`, those that have not left their groups yet.
        failures: of work in the background.

    What was sent to producers is to be appended, and groups need not wait until members that are gone are missed.
    """

    path: str
    mode: str
    _clock: Clock
    _gate: Gate

    def __init__(self) -> None:
        self.topic_changes = 0  # made by this store: its clients see them at once
        self.departing: list[ConsumerCore] = []
        self.failures = Failures()
        self._producers: list[Core] = []
        self._producers_guard = threading.Lock()
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    @property
    @abstractmethod
    def offsets(self) -> OffsetStore: ...

    @abstractmethod
    def topics(self) -> dict[str, Topic]: ...

    @abstractmethod
    def topic(self, name: str) -> Topic: ...

    @abstractmethod
    def log(self, topic: str, partition: int = 0) -> Log: ...

    @abstractmethod
    def start_and_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int] | None]: ...

    @abstractmethod
    def _check_writable(self) -> None: ...

    # ---- producers -----------------------------------------------------------------------------------------------------------

    def producer(self, **config: Any) -> Producer:
        """A `Producer`, which sends records one at a time and appends them in batches. It is closed with the store.

        Args:
            config: options of `ProducerConfig` by name, such as `linger_ms`, `batch_size`, `compression`, `partitioner`,
                `value_serializer`: kafka-python's names.

        Raises:
            InvalidArgumentError: no such option, or no such value of it. ReadOnlyError, ClosedError: nothing can be written.

        Cost: a thread.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     with store.producer(value_serializer=str.encode, compression="zstd") as producer:
        ...         producer.send("orders", "paid").result().offset
        0
        """
        from pylog.producer.config import ProducerConfig
        from pylog.producer.core import Core
        from pylog.producer.producer import Producer

        self._check_writable()
        checked = ProducerConfig.of(config)
        core = Core(self, self._clock, checked, self._forget)
        producer = Producer(self, self._clock, checked, core)
        core.begin()  # now that an interrupt, which drops the producer, ends the thread
        with self._producers_guard:
            self._producers.append(core)
        return producer

    def _forget(self, core: Core) -> None:
        with self._producers_guard:
            if core in self._producers:
                self._producers.remove(core)

    # ---- consumers -----------------------------------------------------------------------------------------------------------

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of topics. It is closed with the store, and commits nothing then.

        Args:
            topics: names; none when `Consumer.subscribe` or `Consumer.assign` are called later.
            options: of `pylog.consumer.options.ConsumerOptions` by name, such as `group` and `auto_offset_reset`: kafka-python's
                names, defaults and meaning.

        Returns:
            A `Consumer`, to be closed; it is a context manager.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            InvalidArgumentError: an option that there is not, or a value out of its range.
            ReadOnlyError: with a group, the store is open for reading.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> with store.consumer("orders", auto_offset_reset="earliest") as consumer:
        ...     consumer.poll()
        {}
        >>> store.close()
        """
        from pylog.consumer.consumer import Consumer
        from pylog.consumer.options import ConsumerOptions

        self._gate.check()
        consumer = Consumer(self, topics, ConsumerOptions.of(options), self._clock)
        self._consumers.add(consumer)
        return consumer

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes producers and consumers, flushes and closes the logs, writes the checkpoints and the clean-shutdown marker, lets
        go of the locks. May be called twice.

        What was sent is appended. Consumers leave their groups and commit nothing: what they had in hand is handed out again. One
        that another thread is in a call of is that thread's to close: its next look at a log raises ClosedError.

        Raises:
            StorageFailedError: a sync failed. What a consumer's listener raises. Everything is closed all the same.
        """
        try:
            self._close_clients()
        finally:
            self._close_logs()

    def _close_clients(self) -> None:
        with ExitStack() as last:
            for consumer in list(self._consumers):
                last.callback(_close_unless_busy, consumer)
            for core in list(self.departing):
                last.callback(core.abandon)
            for producer in list(self._producers):  # first: who was told of a record by then finds it in the log
                last.callback(producer.close)

    @abstractmethod
    def _close_logs(self) -> None:
        """Closes all that is below the clients."""

    # ---- groups --------------------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """The names of the consumer groups, those of brokers too, sorted. As `OffsetStore.groups`."""
        return self.offsets.groups()

    def group(self, name: str) -> Group:
        """One consumer group, to be described, reset or deleted; of any name, also one that nobody has used.

        Raises:
            InvalidArgumentError: it is not a group's name.
        """
        from pylog.groups.admin import Group

        return Group(name, self, self._clock)

    # ---- metrics -------------------------------------------------------------------------------------------------------------

    def metrics(self) -> list[Sample]:
        """What is to be watched of the store: offsets, sizes, what this process wrote, and the lag of each group.

        Returns:
            A value of each metric in `pylog.metrics.METRICS` for each partition, and of the lag for each partition that a group
            has committed for. `pylog.metrics.exposition` makes the text of them that monitoring systems read.

        Raises:
            ClosedError: the store is closed.

        A partition that is damaged or cannot be read has 1 for `log_unreadable`, and hides nothing of the others.

        Cost: a look at each partition; the first call opens those that are not open, and reads the committed offsets.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"a", b"b"])
        ...     {sample.name: sample.value for sample in store.metrics()}["log_appended_records"]
        2
        """
        with self._gate.throughout():
            return list(samples_of(self))


def _close_unless_busy(consumer: Consumer) -> None:
    with suppress(IllegalStateError):
        consumer.close(autocommit=False)
