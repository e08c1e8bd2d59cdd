"""The logs that a consumer's positions are of. What has the name of one that was deleted is another log: its records are others,
at the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from pylog.errors import ClosedError, UnknownTopicOrPartitionError
from pylog.log.log import Log
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.record.types import TopicPartition


class Logs:
    """The logs of one consumer, each as it was when it was first asked for.

    Args:
        manager: opens them.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._known: dict[TopicPartition, Log] = {}

    def of(self, partition: TopicPartition) -> Log:
        """The log of a partition, as long as it is the same. From any thread.

        Raises:
            UnknownTopicOrPartitionError: it is gone.
        """
        known = self._known.get(partition)
        if known is None:
            known = self._known[partition] = self._manager.log(*partition)
        elif known.is_gone or (self._manager.mode == "rw" and self._manager.log(*partition) is not known):
            raise UnknownTopicOrPartitionError(f"{name(partition)} was deleted; what is there now is another log")
        return known

    def forget_gone(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forgets the logs that are gone; returns whose. Cost: a look at each."""
        gone = [
            partition
            for partition in partitions
            if (known := self._known.get(partition)) is not None and not self._is_there(partition, known)
        ]
        for partition in gone:
            del self._known[partition]
        return gone

    def _is_there(self, partition: TopicPartition, known: Log) -> bool:
        with suppress(UnknownTopicOrPartitionError, ClosedError):  # closed: by this process, which deleted the topic
            known.look()
        if self._manager.mode == "r":
            return not known.is_gone
        try:
            return self._manager.log(*partition) is known
        except UnknownTopicOrPartitionError:
            return False
