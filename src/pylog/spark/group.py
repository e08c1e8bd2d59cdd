"""The option `groupId`: after each micro-batch its end is committed for a consumer group, so that tools for lag see the query.

A query continues from Spark's checkpoint, not from the group. The store is open for writing while the query runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pylog
from pylog.config import Durability
from pylog.errors import PylogError
from pylog.fs import OsFileSystem
from pylog.offsets.store import offset_manager_of
from pylog.record.types import TopicPartition
from pylog.spark.partitions import topic_ids
from pylog.store import Store

COMMIT_PARTITIONS = 5000  # fit into one batch with Kafka's default `max_message_bytes`


class GroupCommits:
    """Commits offsets for one group.

    Args:
        path: the store.
        group: its name.
    """

    def __init__(self, path: str, group: str) -> None:
        self._path = path
        self._group = group
        self._store: Store | None = None

    def open(self) -> Store:
        """Returns the store, opened for writing if it is not yet.

        Raises:
            NotALogDirectoryError, StoreLockedError: it may not be written, or a Kafka broker has it open.
        """
        if self._store is None:
            with self._explained():
                OsFileSystem().check_directory(self._path, write=True)  # `pylog.open` would advise an argument of its own
                self._store = pylog.open(self._path, durability=Durability.OS)
        return self._store

    def commit(self, positions: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None) -> None:
        """Commits offsets, some thousand partitions at a time.

        Args:
            positions: the offset of the next record, by partition.
            ids: the ids of the topics that the offsets are for, as far as known. A topic that was deleted, and perhaps created
                again, is left out.

        Raises:
            PylogError: as `OffsetStore.commit`.
        """
        offsets = offset_manager_of(self.open().offsets)
        partitions = sorted(positions)
        with self._explained():
            for first in range(0, len(partitions), COMMIT_PARTITIONS):
                some = [TopicPartition(*partition) for partition in partitions[first : first + COMMIT_PARTITIONS]]
                logs = offsets.logs_of(some)
                current = topic_ids(dict.fromkeys(some, self._path))  # read after the logs: an id that is right was theirs
                deleted = {topic for topic, each in (ids or {}).items() if current.get(topic) != each}
                offsets.commit(self._group, {each: positions[each] for each in some if each.topic not in deleted}, logs=logs)

    def close(self) -> None:
        """Closes the store."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Adds the option `groupId` to the errors of the block."""
        try:
            yield
        except PylogError as error:
            wanted = f"the option groupId has the query commit its offsets for the group {self._group!r} in {self._path}"
            error.args = (f"{wanted}, and that cannot be done: {error}; to read without committing, leave out groupId",)
            raise
