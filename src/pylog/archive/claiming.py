"""The claim that a directory makes to an archive before it changes it, and how it takes over the archive of another directory.

The manifest of the store and those of the partitions name the directory that wrote them. A directory that takes an archive over
writes the next version of each partition's manifest, and that of the store last. From then on each change by the other directory
fails, also one that has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, NamedTuple

import msgspec

from pylog import trace
from pylog.archive.copied_manifest import with_copy
from pylog.archive.hollow import TIERED
from pylog.archive.local_segments import local_segments
from pylog.archive.owner import check_owner
from pylog.archive.plan import plan_of
from pylog.archive.settings import ArchiveSettings
from pylog.errors import IllegalStateError
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.objects.layout import NO_TOPIC_ID, ArchivedPartition
from pylog.objects.manifest import ArchivedTopic, Manifest, StoreManifest, encode
from pylog.objects.objects import ObjectStore, check_creates_once
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.versions import Newest, store_manifests
from pylog.record.types import TopicPartition
from pylog.topics.partitions import directory_name
from pylog.topics.topic import Topic

ATTEMPTS: Final = 20  # to commit the next version, against other processes of the same store


class PartitionToArchive(NamedTuple):
    """A partition, as it is archived."""

    topic: Topic
    key: TopicPartition
    archived: ArchivedPartition
    log: PartitionLog


def partitions_of(manager: LogManager, topic: Topic) -> list[PartitionToArchive]:
    """Returns the partitions of a topic. Opens their logs."""
    keys = [TopicPartition(topic.name, number) for number in topic.partition_ids]
    return [
        PartitionToArchive(topic, key, ArchivedPartition(topic.name, topic_id_of(topic), key.partition), manager.log(*key))
        for key in keys
    ]


def topic_id_of(topic: Topic) -> str:
    """Returns the topic id of a topic's objects."""
    return topic.id or NO_TOPIC_ID


def newest_manifest(
    manager: LogManager, objects: ObjectStore, settings: ArchiveSettings, work: PartitionToArchive
) -> Newest[Manifest]:
    """Returns the newest manifest of a partition, read now. See `with_copy`."""
    found = manifests_of(objects, work.archived).newest()
    tier = manager.tiers.tier(work.key) if objects.url == settings.url else None
    return found if tier is None else with_copy(found, tier.copy(), f"{objects.url}/{work.archived.manifests}")


@contextmanager
def locked(manager: LogManager, work: PartitionToArchive) -> Iterator[None]:
    """Keeps truncations out, and other commits of this directory."""
    with nullcontext() if manager.locks is None else manager.locks.archiver(directory_name(work.key)).entered():
        yield


def contended(manager: LogManager, objects: ObjectStore) -> IllegalStateError:
    """Returns the error for a version that other processes create all the time."""
    message = f"other processes keep committing to {objects.url}; archive from one process, or try again"
    return IllegalStateError(message, path=manager.path)


class Claim:
    """The claim of a directory to an archive.

    Args:
        manager, objects: the store and the archive.
        settings: what identifies the directory.
        take_over: true to take over the archive of another directory, which may have records there only.
    """

    def __init__(self, manager: LogManager, objects: ObjectStore, settings: ArchiveSettings, *, take_over: bool) -> None:
        self._manager = manager
        self._objects = objects
        self._settings = settings
        self._takes_over = take_over

    def make(self) -> None:
        """Makes sure that the archive is this directory's.

        Raises:
            ArchiveFencedError: it belongs to another directory of this store.
            IllegalStateError: it is the archive of another store, or a copy of this store has continued it.
            ObjectStoreError: a request failed, or the store of a new archive replaces objects that exist.
        """
        stores, mine = store_manifests(self._objects), self._settings.writer
        newest = stores.newest()
        known = newest.document
        if known is not None and known.store_id != self._settings.store_id:
            message = f"{self._objects.url} has the archive of another store; use another prefix, one for each store"
            raise IllegalStateError(message, path=self._manager.path)
        if known is not None and (known.writer != mine or self._takes_over):
            self._take_partitions(known)
        if known is not None and known.writer == mine:
            return
        if not newest.taken:
            check_creates_once(self._objects)
        topics = {} if known is None else known.topics
        if not stores.commit(newest.taken + 1, encode(self.document(newest.taken + 1, topics))):
            self.make()
            return
        stores.hint(newest.taken + 1)
        if known is not None:
            trace.line(trace.ARCHIVE_TAKEN_OVER, path=self._manager.path, url=self._objects.url, writer=mine)

    def check(self, known: Manifest | StoreManifest | None) -> None:
        """Refuses to change a manifest that another directory has written last. Raises ArchiveFencedError."""
        check_owner(known, self._settings.writer, self._objects.url, self._manager.path)

    def document(self, version: int, topics: dict[str, ArchivedTopic]) -> StoreManifest:
        """Returns a manifest of the store."""
        return StoreManifest(
            store_id=self._settings.store_id,
            writer=self._settings.writer,
            version=version,
            written_ms=self._manager.clock.now_ms(),
            topics=topics,
        )

    def _take_partitions(self, known: StoreManifest) -> None:
        """Has the manifests name this directory as their writer: the other one cannot change the archive any more.

        Nothing is taken unless this directory has all that the archive has: it was moved or restored, and no other one went on.
        """
        works = [work for topic in self._manager.current_topics().values() for work in partitions_of(self._manager, topic)]
        if not self._takes_over and (_is_tiered(known) or any(work.log.config.remote_storage_enable for work in works)):
            self.check(known)
        for work in works:
            self._check_continues(work, newest_manifest(self._manager, self._objects, self._settings, work).document)
        for work in works:
            self._take(work)

    def _take(self, work: PartitionToArchive) -> None:
        versions = manifests_of(self._objects, work.archived)
        for _ in range(ATTEMPTS):
            newest = newest_manifest(self._manager, self._objects, self._settings, work)
            known = newest.document
            if known is None or known.writer == self._settings.writer:
                return
            self._check_continues(work, known)
            written = {"version": newest.taken + 1, "written_ms": self._manager.clock.now_ms()}
            with locked(self._manager, work):
                if versions.create(msgspec.structs.replace(known, writer=self._settings.writer, **written), known):
                    return
        raise contended(self._manager, self._objects)

    def _check_continues(self, work: PartitionToArchive, manifest: Manifest | None) -> None:
        """Checks that this directory has all that the archive has of a partition. A compaction leaves only the ends to compare.

        Records that were deleted here since are given up with the other directory, which needs a word of the user.
        """
        if manifest is None or manifest.writer == self._settings.writer:
            return
        state = work.log.snapshot(committed=True, wait=True)
        plan = plan_of(manifest, local_segments(state, manifest), state.start_offset, state.stable_offset)
        if work.log.config.is_compacted:
            other = state.end_offset if manifest.end_offset > state.end_offset else None
        else:
            other = plan.replaced[0].base_offset if plan.replaced else None
        if other is not None:
            message = (
                f"{self._objects.url} was archived by another copy of this store: from offset {other} on, "
                f"{work.key.topic}-{work.key.partition} has other records there; archive this copy to another URL"
            )
            raise IllegalStateError(message, path=self._manager.path)
        if plan.expired and not self._takes_over:
            self.check(manifest)


def _is_tiered(known: StoreManifest) -> bool:
    """Returns whether the directory that wrote a manifest may have records in the archive only."""
    return any(entry.config.get(TIERED) for entry in known.topics.values())
