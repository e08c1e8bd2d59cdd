"""A log directory for planning: names, topics and outlines of partitions, without loading the engine if all is in order.

The engine is most of the import time of a Python process, and Spark starts one for each streaming query and each half of a large
plan. So the store is opened only for questions that file names and batch headers cannot answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pylog
from pylog.directory.checkpoints import LOG_START, NEW_MARKER, Checkpoint, read_marker
from pylog.fs import OsFileSystem, join
from pylog.log.reading.fast_outline import FastOutline, fast_outline, is_still_so
from pylog.log.reading.outline import PartitionExtent
from pylog.record.types import TopicPartition
from pylog.topics.listing import find_topics
from pylog.topics.partitions import directory_name
from pylog.topics.topic import Topic

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.store import Store


class Root:
    """A log directory for planning. Not thread-safe.

    Args:
        path: the directory.

    Raises:
        NotALogDirectoryError: it is missing or no directory.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fs = OsFileSystem()
        self._fs.check_directory(path, write=False)
        self._ours = read_marker(self._fs, path) == NEW_MARKER
        self._checkpoint = Checkpoint(self._fs, path, LOG_START)
        self._log_starts = self._checkpoint.offsets()
        self._store: Store | None = None

    def topics(self) -> dict[str, Topic]:
        """Returns the topics by name, as `Store.topics`, and refreshes the log starts."""
        self._log_starts = self._checkpoint.offsets()
        return find_topics(self._fs, self.path)

    def fast_outline(self, partition: TopicPartition) -> FastOutline | None:
        """Returns a partition's outline if names and headers suffice; see `pylog.log.reading.fast_outline`."""
        start = self._log_starts.get(partition)
        seen = fast_outline(self._fs, self._directory(partition), start or 0, ours=self._ours)
        if start is not None and seen is not None and start < seen.outline.bases[0]:
            return None  # its first part may be in a remote tier
        return seen

    def is_still_so(self, partition: TopicPartition, seen: FastOutline) -> bool:
        """Returns whether a partition is unchanged since an earlier outline."""
        return is_still_so(self._fs, self._directory(partition), seen)

    def outline(self, partition: TopicPartition) -> PartitionExtent:
        """A partition's outline; raises what `Store.log` does."""
        seen = self.fast_outline(partition)
        if seen is not None:
            return seen.outline
        from pylog.store import manager_of  # with the engine, which most plans do without

        return manager_of(self._opened()).outline(*partition)

    def log(self, partition: TopicPartition) -> PartitionLog:
        """An open partition, for the caller to close; raises what `Store.log` does."""
        from pylog.store import manager_of

        return manager_of(self._opened()).log(*partition)

    def close(self) -> None:
        """Closes the store, if anything has needed it."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _directory(self, partition: TopicPartition) -> str:
        return join(self.path, directory_name(partition))

    def _opened(self) -> Store:
        if self._store is None:
            self._store = pylog.open(self.path, mode="r")
        return self._store
