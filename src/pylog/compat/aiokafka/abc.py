"""aiokafka's base classes: rebalance listeners, and providers of tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pylog.record.types import TopicPartition

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class ConsumerRebalanceListener(ABC):
    """Called when partitions are assigned to a consumer or revoked from it. Its methods may be coroutine functions."""

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


class AbstractTokenProvider(ABC):
    """Provides tokens for OAuth. Nothing here asks for one, because there is no network."""

    @abstractmethod
    async def token(self) -> str:
        """Returns a token."""

    def extensions(self) -> dict[str, str]:
        """Returns extensions of the first request; none by default."""
        return {}
