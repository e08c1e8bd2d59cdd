"""kafka-python's rebalance listeners, and how pylog's consumer calls them."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from pylog.consumer.listener import ConsumerRebalanceListener as NativeListener
from pylog.record.types import TopicPartition
from pylog.threads import started


class ConsumerRebalanceListener(ABC):
    """Called inside `poll` when partitions are assigned to a consumer or revoked from it. Pass an object to `subscribe`."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Any:
        """Called before partitions are released; their positions can still be committed.

        Args:
            revoked: the partitions.
        """

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
        """Called after a rebalance.

        Args:
            assigned: the added partitions.
        """

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Any:
        """Called when partitions were lost to other members. By default as `on_partitions_revoked`.

        Args:
            lost: the partitions.
        """
        return self.on_partitions_revoked(lost)


class AsyncConsumerRebalanceListener(ABC):
    """The same with coroutine functions, which run to their end inside `poll`."""

    @abstractmethod
    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Any:
        """Called before partitions are released.

        Args:
            revoked: the partitions.
        """

    @abstractmethod
    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Any:
        """Called after a rebalance.

        Args:
            assigned: the added partitions.
        """

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> Any:
        """Called when partitions were lost. By default as `on_partitions_revoked`.

        Args:
            lost: the partitions.
        """
        return await self.on_partitions_revoked(lost)


class Listening(NativeListener):
    """pylog's listener, which calls one of kafka-python's.

    Args:
        listener: the program's.
    """

    def __init__(self, listener: ConsumerRebalanceListener | AsyncConsumerRebalanceListener) -> None:
        self._listener = listener

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Calls the program's listener."""
        _finished(self._listener.on_partitions_revoked(revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Calls the program's listener."""
        _finished(self._listener.on_partitions_assigned(assigned))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Calls the program's listener."""
        _finished(self._listener.on_partitions_lost(lost))


def _finished(made: Any) -> None:
    """Runs what a listener returned to its end, if it is a coroutine."""
    if not asyncio.iscoroutine(made):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(made)
    else:  # this thread's own loop waits for the poll
        _run_elsewhere(made)


def _run_elsewhere(made: Coroutine[Any, Any, Any]) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(made)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failed.append(error)

    thread = threading.Thread(target=run, name="pylog-listener")
    started(thread)
    thread.join()
    if failed:
        raise failed[0]
