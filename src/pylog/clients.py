"""What a store offers to those who read and write through it: its clients, some of which end with it.

Clients know a store as `Clients`; `Store` is above them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pylog.clock import Clock
from pylog.log.log import Log
from pylog.offsets.store import OffsetStore
from pylog.topics import Topic

if TYPE_CHECKING:
    from pylog.consumer.consumer import Consumer
    from pylog.groups.admin import Group
    from pylog.producer.producer import Producer


class Clients(ABC):
    """The half of a `Store` that makes clients, and closes the producers when it closes: what was sent is to be appended."""

    path: str
    mode: str
    _clock: Clock

    def __init__(self) -> None:
        self._producers: list[Producer] = []
        self._producers_guard = threading.Lock()

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
        from pylog.producer.producer import Producer

        self._check_writable()
        producer = Producer(self, self._clock, ProducerConfig.of(config), self._forget)
        with self._producers_guard:
            self._producers.append(producer)
        return producer

    def _forget(self, producer: Producer) -> None:
        with self._producers_guard:
            if producer in self._producers:
                self._producers.remove(producer)

    def _close_producers(self) -> None:
        """Closes them all: what was sent is appended, before the logs are closed."""
        for producer in list(self._producers):
            producer.close()

    # ---- consumers -----------------------------------------------------------------------------------------------------------

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of topics.

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

        return Consumer(self, topics, ConsumerOptions.of(options), self._clock)

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
