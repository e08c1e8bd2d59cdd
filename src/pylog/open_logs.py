"""The logs that a store has open for writing, by partition. All that is kept for a log is released here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pylog.errors import PylogError
from pylog.log.partition_log import PartitionLog
from pylog.record.types import TopicPartition


class OpenLogs(dict[TopicPartition, PartitionLog]):
    """Open logs by partition. Changed under the store's guard only.

    Args:
        drop: ends the background flush of a log, given the log's method for it.

    Attributes:
        uncleanable: partitions whose compaction failed; it is not retried until the log is opened again.
    """

    def __init__(self, drop: Callable[[object], None]) -> None:
        super().__init__()
        self.uncleanable: set[TopicPartition] = set()
        self._drop = drop

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """Returns the partitions of a topic whose logs are open."""
        return [key for key in self if key.topic == topic]

    def close_topic(self, topic: str) -> None:
        """Closes the logs of a topic that is being deleted."""
        for key in self.of_topic(topic):
            self._take_out(key).close(deleted=True)

    def close_deleted(self, key: TopicPartition) -> None:
        """Closes the log of a partition that another store has deleted."""
        with suppress(PylogError):  # its files are deleted: only their descriptors are left
            self._take_out(key).close(deleted=True)

    def close_all_deleted(self, is_meant: Callable[[TopicPartition], bool]) -> None:
        """Closes the logs that another store has deleted. Cost: one small read for each log for which `is_meant` is true."""
        for key, log in list(self.items()):
            if is_meant(key) and log.was_deleted():
                self.close_deleted(key)

    def _take_out(self, key: TopicPartition) -> PartitionLog:
        """Removes a log, and its background flush."""
        log = self.pop(key)
        self.uncleanable.discard(key)
        self._drop(log.flush_in_background)
        return log

    def check_names(self, topic: str) -> None:
        """Raises DirectoryReplacedError if a log of a topic was open while its directory was replaced."""
        for key, log in list(self.items()):
            if key.topic == topic and not log.is_deleted:
                log.check_names()
