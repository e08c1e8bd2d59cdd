"""A log directory for planning: names, topics and outlines of partitions, without loading the engine if all is in order.

Spark starts a process for each streaming query and each half of a large plan, and the engine is most of its import time. So the
store is opened only for questions that file names and batch headers cannot answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pylog
from pylog.log.reading.outline import PartitionExtent
from pylog.record.types import TopicPartition
from pylog.snapshot import Snapshot
from pylog.unopened import UnopenedDirectory

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.store import Store


class Root(UnopenedDirectory):
    """A log directory for planning. Not thread-safe.

    Args:
        path: the directory.

    Raises:
        NotALogDirectoryError: it is missing or no directory.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._store: Store | None = None

    def outline(self, partition: TopicPartition) -> PartitionExtent:
        """Returns a partition's outline; raises as `Store.log`."""
        seen = self.fast_outline(partition)
        if seen is not None:
            return seen.outline
        from pylog.store import manager_of  # with the engine, which most plans do without

        return manager_of(self._opened()).outline(*partition)

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Returns an open partition, for the caller to close; raises as `Store.log`."""
        from pylog.store import manager_of

        return manager_of(self._opened()).log(*partition)

    def snapshot(self, topics: Collection[str]) -> Snapshot:
        """Takes a snapshot of topics; raises as `Store.snapshot`."""
        return self._opened().snapshot(topics, groups=())

    def close(self) -> None:
        """Closes the store, if anything has needed it."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> Store:
        if self._store is None:
            self._store = pylog.open(self.path, mode="r")
        return self._store
