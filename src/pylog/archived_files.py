"""The directories of an archived store, from the manifests of its archive. Nothing is listed.

A partition is read at the version of its manifest that was the newest when the partition was first used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from typing import Final

import msgspec

from pylog import limits, trace
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, NEW_MARKER
from pylog.directory.partition_metadata import format_partition_metadata
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import CorruptionError, NotALogDirectoryError, ObjectStoreError, ObjectStoreUnavailableError
from pylog.fs import FileSystem, Vouched, join
from pylog.log.durable_point import DurablePoint
from pylog.objects import manifest as documents
from pylog.objects.block_cache import CachedLog, cache_of
from pylog.objects.cache import SMALL_OBJECTS
from pylog.objects.layout import INDEXES, NO_TOPIC_ID, ArchivedPartition, segment_key
from pylog.objects.manifest import Manifest, RemoteSegment, StoreManifest
from pylog.objects.objects import ObjectStore
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.ranges import MissingLog, RangeSource
from pylog.objects.remote_files import BOOT, BytesInMemory, Folder, RemoteEntry, RemoteFileSystem, identity_of
from pylog.objects.versions import store_manifests
from pylog.record.checksum import crc32c
from pylog.segment.names import (
    DURABLE_POINT,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SEAL,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from pylog.topics.catalog import CATALOG, Catalog, CatalogTopic

_PIECES: Final = {
    INDEX: documents.OFFSET,
    TIME_INDEX: documents.TIMESTAMP,
    TRANSACTION_INDEX: documents.TRANSACTION,
    SEAL: documents.SEAL,
}


class ArchivedFolders:
    """The partitions of an archive. See `Folders` for the methods.

    Args:
        objects: the archive.
        store: what it has.
        versions: the versions of the manifests to read, by partition; by default, the newest.
    """

    def __init__(self, objects: ObjectStore, store: StoreManifest, versions: Mapping[ArchivedPartition, int]) -> None:
        self._objects = objects
        self._store = store
        self._versions = versions

    def names(self) -> list[str]:
        """Returns the directories of all partitions. Cost: none."""
        return sorted(f"{name}-{number}" for name, topic in self._store.topics.items() for number in topic.partitions)

    def root_files(self) -> Mapping[str, bytes]:
        """Returns the catalog of the topics, and the marker of a clean shutdown."""
        topics = {
            name: CatalogTopic(topic.topic_id, max(topic.partitions, default=-1) + 1, topic.config)
            for name, topic in self._store.topics.items()
            if topic.topic_id != NO_TOPIC_ID
        }
        return {CATALOG: msgspec.json.encode(Catalog(topics=topics).sealed()), CLEAN_SHUTDOWN: NEW_MARKER}

    def log_start(self, name: str) -> int | None:  # noqa: ARG002 - there is no local directory
        return None

    def folder(self, name: str, local_start: int | None) -> Folder:  # noqa: ARG002 - there is no local part
        """Returns the files of a partition. Cost: the requests for its newest manifest, or one for a given version."""
        partition = parse_partition_directory(name)
        topic = None if partition is None else self._store.topics.get(partition.topic)
        if partition is None or topic is None or partition.partition not in topic.partitions:
            return {}
        key = ArchivedPartition(partition.topic, topic.topic_id, partition.partition)
        return self._files(name, key, self._manifest(key))

    def _manifest(self, key: ArchivedPartition) -> Manifest | None:
        versions = manifests_of(self._objects, key)
        wanted = self._versions.get(key)
        return versions.newest().document if wanted is None else versions.at(wanted)

    def _files(self, name: str, key: ArchivedPartition, manifest: Manifest | None) -> Folder:
        segments = () if manifest is None else manifest.segments
        start = 0 if manifest is None else manifest.start_offset
        end = start if manifest is None else manifest.end_offset
        files: dict[str, RemoteEntry] = {}
        reached = segments[0].base_offset if segments else 0
        for segment, following in zip_longest(segments, segments[1:]):
            if reached < segment.base_offset:
                files |= self._gap(name, reached, segment.base_offset)
            files |= segment_files(self._objects, key, segment, None if following is None else following.base_offset)
            reached = segment.end_offset
        epochs = sorted({epoch: start for each in reversed(segments) for epoch, start in each.epochs}.items())
        files |= self._end_of_log(name, start, end, epochs[-1][0] if epochs else 0)
        if key.topic_id != NO_TOPIC_ID:
            files[PARTITION_METADATA] = _known(format_partition_metadata(key.topic_id))
        if epochs:
            lines = ["0", str(len(epochs)), *(f"{epoch} {first}" for epoch, first in epochs)]
            files[LEADER_EPOCH_CHECKPOINT] = _known(("\n".join(lines) + "\n").encode())
        return files

    def _end_of_log(self, name: str, start: int, end: int, leader_epoch: int) -> Folder:
        """Returns an empty active segment at the log end, and the header that leads to it."""
        active = f"{self._objects.url}/{name}/{file_name(end, LOG)}"
        identity = 0, identity_of(join(self._objects.url, name, DURABLE_POINT))
        slot = DurablePoint(
            counter=1,
            boot_mark=hashlib.blake2b(BOOT + b"%d %d" % identity, digest_size=16).digest(),
            active_base=end,
            active_inode=identity_of(active),
            published_offset=end,
            durable_base=end,
            durable_offset=end,
            log_start_offset=start,
            leader_epoch=leader_epoch,
        )
        return {file_name(end, LOG): RemoteEntry(0, log=BytesInMemory(active)), DURABLE_POINT: _known(slot.encoded() * 2)}

    def _gap(self, name: str, first: int, end: int) -> Folder:
        """Returns files that stand for offsets which were damaged when the store was archived."""
        url = f"{self._objects.url}/{name}/{file_name(first, LOG)}"
        log = MissingLog(url, name, first, end, "were damaged when the store was archived, and are not in the archive")
        none = RemoteEntry(0, small=lambda: None)
        return {file_name(first, LOG): RemoteEntry(MissingLog.size, log=log, next_base=end), file_name(first, INDEX): none}


class ArchivedLog:
    """The log of a segment, byte for byte as it was.

    Args:
        objects: the archive.
        key: the object's key.
    """

    grain: int = 1

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key
        self.url = f"{objects.url}/{key}"

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns a range. Cost: one request."""
        return self._objects.get_range(self._key, position, end)


class ArchivedBundle:
    """The small files of a segment, which are read together and checked.

    Args:
        objects: the archive.
        key: the object's key.
        segment: in the manifest.
    """

    def __init__(self, objects: ObjectStore, key: str, segment: RemoteSegment) -> None:
        self._objects = objects
        self._key = key
        self._segment = segment
        self.url = f"{objects.url}/{key}"

    def piece(self, name: str) -> bytes | None:
        """Returns one small file; None if the object is missing or damaged: the file is then created again from the log."""
        try:
            data = SMALL_OBJECTS.get(self.url, self._kept)
        except ObjectStoreUnavailableError:
            raise
        except (CorruptionError, ObjectStoreError) as error:
            trace.line(trace.IGNORED, path=self.url, reason=str(error))
            return None
        return None if data is None else self._segment.piece(name, data)

    def _kept(self) -> bytes:
        cache, segment = cache_of(self._objects), self._segment
        return self._fetch() if cache is None else cache.small(segment.segment_id, segment.indexes_size, self._fetch)

    def _fetch(self) -> bytes:
        size = self._segment.indexes_size
        if size > limits.MAX_BUNDLE_BYTES:
            message = f"{self.url} has {size} bytes according to its manifest, more than {limits.MAX_BUNDLE_BYTES}"
            raise CorruptionError(message, path=self.url, position=0)
        data = bytes(self._objects.get_range(self._key, 0, size))
        if crc32c(data) != self._segment.indexes_crc32c:
            message = f"{self.url} does not match the checksum in its manifest; its small files are created again from the log"
            raise CorruptionError(message, path=self.url, position=0)
        return data


def segment_files(objects: ObjectStore, key: ArchivedPartition, segment: RemoteSegment, next_base: int | None) -> Folder:
    """Returns the files of one archived segment, by name. Sends no request."""
    log: RangeSource = ArchivedLog(objects, segment_key(key, segment.base_offset, segment.segment_id, LOG))
    cache = cache_of(objects)
    if cache is not None:
        log = CachedLog(log, cache, segment.segment_id, segment.size)
    bundle = ArchivedBundle(objects, segment_key(key, segment.base_offset, segment.segment_id, INDEXES), segment)
    vouched = Vouched(segment.end_offset, segment.max_timestamp)
    files = {file_name(segment.base_offset, LOG): RemoteEntry(segment.size, log=log, vouched=vouched, next_base=next_base)}
    for suffix, piece in _PIECES.items():
        if piece in segment.indexes:
            size = segment.indexes[piece].size
            files[file_name(segment.base_offset, suffix)] = RemoteEntry(size, small=partial(bundle.piece, piece))
    if documents.PRODUCER_SNAPSHOT in segment.indexes:
        snapshot = partial(bundle.piece, documents.PRODUCER_SNAPSHOT)
        files[file_name(segment.end_offset, SNAPSHOT)] = RemoteEntry(0, small=snapshot)
    return files


def _known(data: bytes) -> RemoteEntry:
    return RemoteEntry(len(data), small=lambda: data)


def archived_store(objects: ObjectStore) -> StoreManifest:
    """Returns what an archive has. Cost: three requests.

    Raises:
        NotALogDirectoryError: there is no archive at the URL.
    """
    found = store_manifests(objects).newest().document
    if found is None:
        message = f"{objects.url} has no archive of a store; check the URL, or create one with `Store.archive`"
        raise NotALogDirectoryError(message, path=objects.url)
    return found


def archived_files(
    objects: ObjectStore, store: StoreManifest | None = None, versions: Mapping[ArchivedPartition, int] | None = None
) -> FileSystem:
    """Returns a file system with an archived store. Its log directory is the archive's URL.

    Args:
        objects: the archive.
        store: what it has; by default the newest.
        versions: the versions of the manifests to read, by partition; by default, the newest.

    Raises:
        NotALogDirectoryError: as `archived_store`.
    """
    return RemoteFileSystem(objects.url, ArchivedFolders(objects, store or archived_store(objects), versions or {}))
