"""How pylog's consumer calls aiokafka's rebalance listeners: in the event loop, and their errors are only logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any

from pylog.compat.aiokafka.abc import ConsumerRebalanceListener
from pylog.consumer.listener import ConsumerRebalanceListener as NativeListener
from pylog.record.types import TopicPartition

LOGGER = logging.getLogger("pylog.compat")
Partitions = set[TopicPartition]


class Listening(NativeListener):
    """pylog's listener, which calls one of aiokafka's.

    aiokafka's consumers give up all partitions in each rebalance, and are assigned all of theirs again. pylog's give up only
    those that they lose. So both calls of the program's listener name all partitions. `AsyncConsumer` awaits them.

    Args:
        listener: the program's; None calls nothing.
        released: called after partitions were released.
        is_settled: returns whether the rebalance has ended for this consumer. Called in the consumer's thread.
        loop: the consumer's, in which the program's listener runs.
        before: the listener in whose place this one is.
    """

    def __init__(
        self,
        listener: ConsumerRebalanceListener | None,
        released: Callable[[Partitions], object],
        is_settled: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
        before: Listening | None = None,
    ) -> None:
        self._listener = listener
        self._released = released
        self._is_settled = is_settled
        self._loop = loop
        self._owned: Partitions = set() if before is None else before._owned
        self._has_begun = False  # a rebalance, of which the program's listener has got the first call

    def end(self) -> None:
        """Calls the program's listener no more: `stop` is no rebalance."""
        self._listener = None

    def on_partitions_revoked(self, revoked: Partitions) -> Awaitable[None] | None:
        """Calls the program's listener, before the partitions are released."""
        return self._awaited(self._revoked(revoked))

    def on_partitions_assigned(self, assigned: Partitions) -> Awaitable[None] | None:
        """Calls the program's listener, once the consumer has all of its partitions."""
        return self._awaited(self._assigned(assigned, is_last=self._is_settled()))

    def on_partitions_lost(self, lost: Partitions) -> Awaitable[None] | None:
        """Calls the program's listener: aiokafka's has no call of its own for this."""
        return self.on_partitions_revoked(lost)

    def _awaited(self, made: Coroutine[Any, Any, None]) -> Awaitable[None] | None:
        """Returns a coroutine that can be awaited. Nothing awaits it while the store closes a consumer whose loop has ended."""
        if self._loop.is_running():
            return made
        made.close()
        return None

    async def _revoked(self, revoked: Partitions) -> None:
        await self._begin()
        self._owned -= revoked
        self._released(revoked)

    async def _assigned(self, assigned: Partitions, *, is_last: bool) -> None:
        await self._begin()
        self._owned |= assigned
        if is_last:
            self._has_begun = False
        if is_last and self._listener is not None:
            await _called(self._listener.on_partitions_assigned, set(self._owned))

    async def _begin(self) -> None:
        """Makes the first call of a rebalance."""
        if self._listener is not None and not self._has_begun:
            self._has_begun = True
            await _called(self._listener.on_partitions_revoked, set(self._owned))


async def _called(call: Callable[[Partitions], Any], partitions: Partitions) -> None:
    try:
        made = call(partitions)
        if isawaitable(made):
            await made
    except Exception:  # raised by user code: as with aiokafka, the rebalance continues
        LOGGER.exception("the rebalance listener %r failed", call)
