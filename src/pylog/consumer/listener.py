"""The base class of rebalance listeners, which a consumer calls when its assignment changes."""

from __future__ import annotations

from collections.abc import Awaitable

from pylog.record.types import TopicPartition


class ConsumerRebalanceListener:
    """Called when partitions are assigned to a consumer or revoked from it. Pass an instance to `Consumer.subscribe`.

    Every method runs inside a call of the consumer, in the same thread. It may use the consumer: `seek` to an offset stored
    elsewhere, `commit`, `unsubscribe` or `close`. No partition is reported twice: one that is being revoked is not revoked again,
    and a nested `poll` does not rebalance. The call of the consumer raises what a listener raises; the rebalance is completed
    first.

    With `pylog.aio.AsyncConsumer` the methods may be coroutine functions, which run in the event loop. Other consumers refuse
    coroutine functions.

    >>> class Prints(ConsumerRebalanceListener):
    ...     def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
    ...         print(sorted(assigned))
    >>> Prints().on_partitions_assigned({TopicPartition("orders", 0)})
    [TopicPartition(topic='orders', partition=0)]
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions are released. Their positions can still be committed here.

        Args:
            revoked: the partitions that are released.

        Returns:
            None, or an awaitable for `AsyncConsumer`.
        """

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """Called after a rebalance.

        Args:
            assigned: the added partitions; it may be empty.

        Returns:
            None, or an awaitable for `AsyncConsumer`.
        """

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions were lost. They may already be assigned to another consumer, so they cannot be committed.

        By default calls `on_partitions_revoked`.

        Args:
            lost: the partitions that were lost.

        Returns:
            None, or an awaitable for `AsyncConsumer`.
        """
        return self.on_partitions_revoked(lost)
