"""A log directory for planning: names, topics and outlines of partitions, without loading the engine if all is in order.

Spark starts a process for each streaming query and each half of a large plan, and the engine is most of its import time. So the
store is opened only for questions that file names and batch headers cannot answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pylog
from pylog.log.reading.outline import PartitionExtent
from pylog.objects.opening import open_objects
from pylog.record.types import TopicPartition
from pylog.snapshot import Snapshot
from pylog.unopened import UnopenedDirectory
from pylog.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pylog.archived_outlines import ArchivedOutlines
    from pylog.log.partition_log import PartitionLog
    from pylog.log.reading.fast_outline import FastOutline
    from pylog.store import Store


class Root(UnopenedDirectory):
    """A log directory for planning. Not thread-safe.

    Args:
        path: the directory, or the URL of an archive.
        access: how to reach the bucket of a URL.

    Raises:
        NotALogDirectoryError: it is missing or no directory, or there is no archive.
    """

    def __init__(self, path: str, access: Iterable[tuple[str, str | bool]] = ()) -> None:
        self._access = dict(access)
        self._archive: ArchivedOutlines | None = None
        self._store: Store | None = None
        if is_url(path):
            from pylog.archived_files import archived_files, archived_store
            from pylog.archived_outlines import ArchivedOutlines

            objects = open_objects(path, **self._access)
            found = archived_store(objects)
            self._archive = ArchivedOutlines(objects, found)
            super().__init__(path, archived_files(objects, found))
        else:
            super().__init__(path)

    def fast_outline(self, partition: TopicPartition) -> FastOutline | None:
        """Returns a partition's outline if names and headers suffice. An archive has none of them."""
        return None if self._archive is not None else super().fast_outline(partition)

    @property
    def is_archive(self) -> bool:
        """Whether the path is the URL of an archive."""
        return self._archive is not None

    def archived_topic_id(self, partition: TopicPartition) -> str | None:
        """Returns the id of an archived topic; None if the archive does not have the topic."""
        return None if self._archive is None else self._archive.topic_id(partition.topic)

    def version(self, partition: TopicPartition) -> int | None:
        """Returns the version of the manifest that an archived partition is planned with; None in a directory."""
        return None if self._archive is None else self._archive.extent(partition).version

    def outline(self, partition: TopicPartition) -> PartitionExtent:
        """Returns a partition's outline; raises as `Store.log`."""
        if self._archive is not None:
            return self._archive.extent(partition).extent
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
            self._store = pylog.open(self.path, mode="r", access=self._access if is_url(self.path) else None)
        return self._store
