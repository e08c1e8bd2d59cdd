"""What a store offers to those who read and write through it: clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from pylog.clock import Clock
from pylog.log.log import Log
from pylog.offsets.store import OffsetStore
from pylog.topics import Topic

if TYPE_CHECKING:
    from pylog.consumer.consumer import Consumer


class Clients(ABC):
    """The half of a `Store` that makes clients; what clients know of a store."""

    path: str
    mode: str
    _clock: Clock

    @property
    @abstractmethod
    def offsets(self) -> OffsetStore: ...

    @abstractmethod
    def topics(self) -> dict[str, Topic]: ...

    @abstractmethod
    def topic(self, name: str) -> Topic: ...

    @abstractmethod
    def log(self, topic: str, partition: int = 0) -> Log: ...

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
        from pylog.consumer.consumer import Consumer  # which knows a store as `Clients`
        from pylog.consumer.options import ConsumerOptions

        return Consumer(self, topics, ConsumerOptions.of(options), self._clock)
