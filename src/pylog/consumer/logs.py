"""The logs that a consumer reads. A partition that was deleted and created again has a new log, with other records at the same
offsets, so positions in the old one do not apply to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from pylog.errors import ClosedError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.record.types import TopicPartition
from pylog.topics.kept import IsGone


class Logs:
    """The logs of one consumer. Each is opened when it is first used.

    Args:
        manager: opens them.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._known: dict[TopicPartition, PartitionLog] = {}

    def of(self, partition: TopicPartition) -> PartitionLog:
        """Returns the log of a partition. May be called from any thread.

        Raises:
            UnknownTopicOrPartitionError: the log was deleted.
        """
        known = self._known.get(partition)
        if known is None:
            known = self._known[partition] = self._current(partition)
        elif known.is_deleted or (self._manager.mode == "rw" and self._manager.log(*partition) is not known):
            raise UnknownTopicOrPartitionError(f"{name(partition)} was deleted and created again; its old positions do not apply")
        return known

    def _current(self, partition: TopicPartition) -> PartitionLog:
        """Returns the log that a partition has now. The store may still have the log of a topic that another process deleted."""
        log = self._manager.log(*partition)
        with suppress(UnknownTopicOrPartitionError):
            log.snapshot()
            return log
        return self._manager.log(*partition)

    def known(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLog]:
        """Returns the logs of partitions that were used, as they were opened."""
        return {partition: self._known[partition] for partition in partitions if partition in self._known}

    def forget_gone(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forgets deleted logs and returns their partitions. Cost: one refresh of each log."""
        gone = [
            partition
            for partition in partitions
            if (known := self._known.get(partition)) is not None and not self._exists(partition, known)
        ]
        for partition in gone:
            self._known.pop(partition, None)  # another thread may have forgotten its topic
        return gone

    def forget_topics(self, is_gone: IsGone, is_assigned: Callable[[TopicPartition], bool]) -> None:
        """Forgets the logs of deleted topics, except those of assigned partitions: `forget_gone` must still report these."""
        for partition in list(self._known):
            if is_gone(partition.topic) and not is_assigned(partition):
                known = self._known.pop(partition, None)
                if known is not None and self._manager.mode == "r":  # no other part has this object
                    known.close(deleted=True)

    def _exists(self, partition: TopicPartition, known: PartitionLog) -> bool:
        with suppress(UnknownTopicOrPartitionError, ClosedError):  # ClosedError: this process deleted the topic
            known.snapshot()
        if self._manager.mode == "r":
            return not known.is_deleted
        try:
            return self._manager.log(*partition) is known
        except UnknownTopicOrPartitionError:
            return False
