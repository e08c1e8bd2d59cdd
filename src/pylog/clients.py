"""What a store hands out that stands on it: its clients.

Here alone imports run up, inside of methods, when a client is asked for: whoever uses none loads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog.clock import Clock

if TYPE_CHECKING:
    from pylog.consumer.consumer import Consumer


class Clients:
    """The part of a `Store` that makes clients."""

    _clock: Clock

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
        from pylog.store import Store

        assert isinstance(self, Store)
        return Consumer(self, topics, ConsumerOptions.of(options), self._clock)
