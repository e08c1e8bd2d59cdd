"""A log directory for planning: names, topics and outlines of partitions, without loading the engine if all is in order.

Spark starts a process for each streaming query and each half of a large plan, and the engine is most of its import time. So the
store is opened only for questions that file names and batch headers cannot answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING

import pylog
from pylog.clock import SystemClock
from pylog.directory.partition_metadata import read_topic_id
from pylog.errors import CorruptionError
from pylog.fs import OsFileSystem
from pylog.log.reading.outline import PartitionExtent
from pylog.objects.layout import NO_TOPIC_ID
from pylog.objects.opening import open_objects
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.snapshot import Snapshot
from pylog.spark.access import NO_ACCESS, Access
from pylog.topics.partitions import directory_name
from pylog.unopened import UnopenedDirectory
from pylog.urls import is_url

if TYPE_CHECKING:
    from pylog.archived_outlines import ArchivedOutlines
    from pylog.log.partition_log import PartitionLog
    from pylog.log.reading.fast_outline import FastOutline
    from pylog.objects.kafka_tier import TieredDirectory
    from pylog.objects.tier_files import TierView
    from pylog.store import Store


def tiered_directory(path: str, access: Access) -> TieredDirectory | None:
    """Returns where the logs of a broker's remote tier are read; None if the read has no tier.

    Args:
        path: the broker's log directory, or the URL of the tier to read the tier alone.
        access: the read's access.
    """
    tier = access.opened_tier()
    if tier is None:
        return None
    from pylog.objects.kafka_tier import TieredDirectory  # few reads have a tier

    return TieredDirectory(tier, path, None if path == tier.url else OsFileSystem())


class Root(UnopenedDirectory):
    """A log directory for planning. Not thread-safe.

    Args:
        path: the directory, or the URL of an archive.
        access: how to reach the bucket of a URL, and a broker's remote tier.

    Raises:
        NotALogDirectoryError: it is missing or no directory, or there is no archive.
    """

    def __init__(self, path: str, access: Access = NO_ACCESS) -> None:
        self._tier = tiered_directory(path, access)
        self._folders = None if self._tier is None else self._tier.folders()
        self._access = dict(access.bucket)
        self._archive: ArchivedOutlines | None = None
        self._store: Store | None = None
        self._pinned: list[Store] = []  # of one archived partition each
        if self._tier is not None:
            super().__init__(path, self._tier.files(self._folders))
        elif is_url(path):
            from pylog.archived_files import archived_files, archived_store
            from pylog.archived_outlines import ArchivedOutlines

            self._objects = objects = open_objects(path, **self._access)
            found = archived_store(objects)
            self._archive = ArchivedOutlines(objects, found)
            super().__init__(path, archived_files(objects, found))
        else:
            super().__init__(path)

    def fast_outline(self, partition: TopicPartition) -> FastOutline | None:
        """Returns a partition's outline if names and headers suffice. They do not in an archive or with a remote tier."""
        return None if self.has_objects else super().fast_outline(partition)

    @property
    def has_objects(self) -> bool:
        """Whether records are read from objects: those of an archive, or of a broker's remote tier."""
        return self._archive is not None or self._tier is not None

    @property
    def is_fixed(self) -> bool:
        """Whether it has the objects as they were when it was made. Else it follows a directory's changes."""
        return is_url(self.path)

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Returns the id of a partition's topic; None if nothing has it."""
        if self._archive is not None:
            return self._archive.topic_id(partition.topic)
        with contextlib.suppress(CorruptionError):  # an id is not needed to read
            return read_topic_id(self.fs, self.directory(partition))
        return None

    def version(self, partition: TopicPartition) -> int | None:
        """Returns the version of the manifest that an archived partition is planned with; None in a directory."""
        return None if self._archive is None else self._archive.extent(partition).version

    def tier_view(self, partition: TopicPartition) -> TierView | None:
        """Returns what the plan found of a partition in a broker's remote tier; None if it found nothing there."""
        return None if self._folders is None else self._folders.views.get(directory_name(partition))

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
        """Returns an open partition, for the caller to close; raises as `Store.log`. An archived one is that of the outline."""
        from pylog.store import manager_of

        version = self.version(partition)
        return manager_of(self._opened() if not version else self._opened_at(version, partition)).log(*partition)

    def snapshot(self, topics: Collection[str]) -> Snapshot:
        """Takes a snapshot of topics; raises as `Store.snapshot`."""
        taken = self._opened().snapshot(topics, groups=())
        if self._archive is not None:
            self._archive.forget_catalogues()  # the slices must reach as far as the snapshot, which has read the manifests
        return taken

    def close(self) -> None:
        """Closes the stores, if anything has needed them."""
        for store in [*self._pinned, *filter(None, [self._store])]:
            store.close()
        self._pinned.clear()
        self._store = None

    def _opened_at(self, version: int, partition: TopicPartition) -> Store:
        from pylog.archived_outlines import partition_files
        from pylog.store import open_directory

        files = partition_files(self._objects, partition, self.topic_id(partition) or NO_TOPIC_ID, version)
        self._pinned.append(open_directory(self._objects.url, StoreOptions(mode="r"), files, SystemClock()))
        return self._pinned[-1]

    def _opened(self) -> Store:
        if self._store is None:
            from pylog.store import open_directory

            if self._tier is None:
                self._store = pylog.open(self.path, mode="r", access=self._access if is_url(self.path) else None)
            else:
                self._store = open_directory(self.path, StoreOptions(mode="r"), self.fs, SystemClock())
        return self._store
