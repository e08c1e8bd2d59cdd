"""What a consumer tells of its partitions."""

from __future__ import annotations

from collections.abc import Awaitable

from pylog.record.types import TopicPartition


class ConsumerRebalanceListener:
    """Is told which partitions a consumer has got and which it gives up; made for `Consumer.subscribe`.

    Every method runs inside a call of the consumer, in its thread, and may use the consumer: `seek` to an offset that was stored
    elsewhere, say, `commit`, or unsubscribe and close it. Nothing is told twice for that: a partition that is being revoked
    is not revoked again, and a `poll` from inside finds no rebalance. What a listener raises comes out of the call; the
    rebalance goes on all the same.

    With `pylog.aio.AsyncConsumer` the methods may be coroutine functions: the call of the consumer awaits them in the event loop.
    Other consumers refuse those.

    >>> class Prints(ConsumerRebalanceListener):
    ...     def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
    ...         print(sorted(assigned))
    >>> Prints().on_partitions_assigned({TopicPartition("orders", 0)})
    [TopicPartition(topic='orders', partition=0)]
    """

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Partitions go to another consumer: what was read of them can still be committed here."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """A rebalance is done. `assigned` are the partitions that are new, which may be none."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Partitions may be another consumer's already, and cannot be committed: by default as revoked ones."""
        return self.on_partitions_revoked(lost)
