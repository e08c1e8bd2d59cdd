"""`pylog.restore`: a directory from an archive.

The files of a partition are written segment by segment, the `.log` last, each under its final name only when it is complete and
its checksum is right. A marker file in the directory shows an unfinished restore: the next call continues it, and until then
`pylog.open` refuses the directory.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from google_crc32c import extend

from pylog import limits, trace
from pylog.archive.hollow import TIERED, can_be_tiered, is_catalogued, is_in_one_piece, tiered, write_hollow
from pylog.archive.restore_report import LoweredOffset, RestoredPartition, RestoreReport
from pylog.archive.restored_files import remove_other_files, remove_other_partitions
from pylog.archive.settings import PLANS, RESTORING, ArchiveSettings, write_settings
from pylog.arguments import check_callable, checked_int, items_of
from pylog.clock import Clock, SystemClock
from pylog.directory.checkpoints import LOG_START
from pylog.directory.leader_epoch_cache import EpochEntry, encode_epochs
from pylog.directory.partition_metadata import format_partition_metadata
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import File, FileSystem, OsFileSystem, inside, join, parent_of, path_of, rooted, write_and_close, write_atomically
from pylog.log.checking.verification import Progress
from pylog.objects.layout import INDEXES, LOG, NO_TOPIC_ID, ArchivedPartition, segment_key
from pylog.objects.manifest import (
    LEADER_EPOCH,
    OFFSET,
    PRODUCER_SNAPSHOT,
    SEAL,
    TIMESTAMP,
    TRANSACTION,
    ArchivedTopic,
    Document,
    Manifest,
    RemoteSegment,
    StoreManifest,
)
from pylog.objects.objects import ObjectStore
from pylog.objects.opening import open_objects
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.versions import Versions, store_manifests
from pylog.opening import open_store
from pylog.options import StoreOptions
from pylog.record.checksum import crc32c
from pylog.record.types import TopicPartition
from pylog.segment import names
from pylog.segment.seal import SEALS, encode_seal
from pylog.store import Store, open_directory
from pylog.topics.catalog import CatalogTopic, read_catalog, write_catalog

_CHUNK: Final = 8 << 20  # bytes of one request


class _RestorePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the marker: what is restored. Another call with other arguments does not continue it."""

    url: str
    topics: tuple[str, ...] | None = None
    as_of: int | None = None
    hollow: bool = False


def restore(
    url: str,
    directory: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    as_of: int | datetime | None = None,
    hollow: bool = False,
    old: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    **access: Any,
) -> RestoreReport:
    """Creates a directory from an archive: records, offsets and configurations as they were archived.

    Each byte is checked on the way. If the call fails or its process dies, the same call continues. Afterwards the directory
    can go on with the archive, unless the original directory does.

    Args:
        url: the archive's URL, as for `Store.archive`.
        directory: the new directory: one that does not exist, is empty, or has an unfinished restore of the same archive.
        topics: names of the topics to restore; by default all.
        as_of: restore the archive as it was at this time, in milliseconds since 1970 or as a datetime; by default as it is now.
        hollow: true to leave the segments in the archive, which takes seconds for any size. Its topics are tiered ones then:
            `remote_storage_enable` is set. Internal topics, topics whose options exclude that, such as compacted ones, and
            partitions with a gap are restored whole. Not with `topics` or `as_of`: the directory goes on with the archive.
        old: the directory that was archived, if it still exists: the report then says how many of its records are missing.
        progress: called from time to time with (bytes done, bytes in total, key). No lock is held.
        fs: the file system, for tests.
        clock: the current time, for tests.
        access: how to reach a bucket, as for `Store.archive`.

    Returns:
        A `RestoreReport`: what was restored, and exactly which offsets were not archived.

    Raises:
        InvalidArgumentError: the directory has other files, or the archive has nothing from that time.
        UnknownTopicOrPartitionError: the archive does not have a topic.
        CorruptionError: an object is damaged; the message names it. ObjectStoreError: a request failed.
        StorageFailedError: the directory cannot be written.

    Cost: one request for each 8 MiB, two more for each segment; hollow, four for each partition.

    >>> import pylog, tempfile
    >>> archive, copy = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append(b"paid")
    ...     _ = store.archive(archive, include_active=True)
    >>> pylog.restore(archive, copy).lost
    0
    >>> with pylog.open(copy, "r") as store:
    ...     store.log("orders").read(0).value
    b'paid'
    """
    check_callable("progress", progress)
    given = path_of("directory", directory)
    system, path = fs or OsFileSystem(), rooted(given) if fs is None else given
    objects = open_objects(url, **access)
    wanted = None if topics is None else tuple(items_of("topics", topics, "names"))
    if hollow and (wanted is not None or as_of is not None):
        message = "hollow=True restores the whole archive as it is now; leave out topics and as_of"
        raise InvalidArgumentError(message, path=path)
    plan = _RestorePlan(objects.url, wanted, _milliseconds(as_of), bool(hollow))
    return _Restore(objects, plan, system, path, clock or SystemClock(), progress).run(old)


def _milliseconds(moment: int | datetime | None) -> int | None:
    if isinstance(moment, datetime):
        return int(moment.timestamp() * 1000)
    return None if moment is None else checked_int("as_of", moment, 0, limits.INT64_MAX)


class _PartitionToRestore(NamedTuple):
    """A partition to restore."""

    archived: ArchivedPartition
    manifest: Manifest | None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.archived.topic, self.archived.partition)

    @property
    def directory_name(self) -> str:
        return f"{self.archived.topic}-{self.archived.partition}"


class _Restore:
    """One call of `restore`."""

    def __init__(
        self, objects: ObjectStore, plan: _RestorePlan, fs: FileSystem, path: str, clock: Clock, progress: Progress | None
    ) -> None:
        self._objects = objects
        self._plan = plan
        self._fs = fs
        self._path = path
        self._clock = clock
        self._progress = progress
        self._done = self._total = 0
        self._hollow: set[TopicPartition] = set()  # partitions whose segments stay in the archive

    def run(self, old: str | os.PathLike[str] | None) -> RestoreReport:
        """Restores, and removes the marker at the end."""
        store = self._store_manifest()
        works = list(self._works(store))
        self._begin(works)
        self._total = sum(work.manifest.size for work in works if work.manifest is not None and not self._may_stay(store, work))
        for work in works:
            self._restore(work, may_stay=self._may_stay(store, work))
        self._write_root(store, works)
        lowered = self._lower_offsets() if any(work.key.topic == "__consumer_offsets" for work in works) else ()
        self._fs.remove(join(self._path, RESTORING))
        self._fs.sync_directory(self._path)
        ends = _ends_of(old, works)
        reports = tuple(_report(work, ends.get(work.key), is_hollow=work.key in self._hollow) for work in works)
        return RestoreReport(self._objects.url, self._path, store.written_ms, reports, lowered)

    # ---- what there is -------------------------------------------------------------------------------------------------------

    def _store_manifest(self) -> StoreManifest:
        versions = store_manifests(self._objects)
        found = self._chosen(versions)
        if found is None:
            when = "" if self._plan.as_of is None else " that was written by that time"
            raise InvalidArgumentError(f"{self._objects.url} has no archive{when}; check the URL", path=self._path)
        return found

    def _works(self, store: StoreManifest) -> Iterator[_PartitionToRestore]:
        chosen = list(store.topics) if self._plan.topics is None else self._plan.topics
        for name in chosen:
            topic = store.topics.get(name)
            if topic is None:
                known = ", ".join(sorted(store.topics)[:10]) or "none"
                raise UnknownTopicOrPartitionError(f"{self._objects.url} has no topic {name!r}; it has: {known}", path=self._path)
            for number in topic.partitions:
                archived = ArchivedPartition(name, topic.topic_id, number)
                yield _PartitionToRestore(archived, self._manifest(archived))

    def _manifest(self, archived: ArchivedPartition) -> Manifest | None:
        return self._chosen(manifests_of(self._objects, archived))

    def _chosen(self, versions: Versions[Document]) -> Document | None:
        """Returns the newest version, or the one that was it at the time of `as_of`; None if there was none yet.

        Raises:
            InvalidArgumentError: a sweep has deleted the versions of that time.
        """
        if self._plan.as_of is None:
            return versions.newest().document
        first: Document | None = None
        for each in versions.every():
            if each.written_ms <= self._plan.as_of:
                return versions.whole(each)
            first = each
        if first is not None and first.version > 1:
            message = (
                f"{versions.url(first.version - 1)} was swept: the archive can be restored as of {first.written_ms} or later"
            )
            raise InvalidArgumentError(f"{message}, in milliseconds since 1970", path=self._path)
        return None

    # ---- the directory -------------------------------------------------------------------------------------------------------

    def _begin(self, works: list[_PartitionToRestore]) -> None:
        """Writes the marker, unless it is there: then what is not restored any more goes.

        Raises:
            InvalidArgumentError: the directory has other files, or the restore of something else.
        """
        if not self._fs.exists(self._path):
            self._fs.make_directory(self._path)
            self._fs.sync_directory(parent_of(self._path))
        marker = join(self._path, RESTORING)
        data = msgspec.json.encode(self._plan)
        known = PLANS.fetch(self._fs, marker)
        if known is not None and known != data:
            message = f"{self._path} has an unfinished restore with other arguments; repeat these, or remove the directory"
            raise InvalidArgumentError(f"{message}: {known[:300].decode(errors='replace')}", path=self._path)
        if known is None:
            if any(not entry.name.startswith(RESTORING) for entry in self._fs.list(self._path)):
                message = f"{self._path} is not empty; give a directory that does not exist, or is empty"
                raise InvalidArgumentError(message, path=self._path)
            write_atomically(self._fs, self._path, RESTORING, data)
        else:
            remove_other_partitions(self._fs, self._path, [work.directory_name for work in works])

    def _may_stay(self, store: StoreManifest, work: _PartitionToRestore) -> bool:
        """Returns whether the segments of a partition may stay in the archive."""
        topic, manifest = store.topics[work.key.topic], work.manifest
        is_whole = manifest is not None and is_in_one_piece(manifest)
        return self._plan.hollow and is_whole and can_be_tiered(work.key.topic, topic)

    def _restore(self, work: _PartitionToRestore, *, may_stay: bool) -> None:
        """Writes the files of one partition. Those that are there from an earlier call are compared with the archive."""
        directory = inside(self._path, work.directory_name, self._objects.url)
        if not self._fs.exists(directory):
            self._fs.make_directory(directory)
        if work.archived.topic_id != NO_TOPIC_ID:
            metadata = format_partition_metadata(work.archived.topic_id)
            write_atomically(self._fs, directory, names.PARTITION_METADATA, metadata)
        manifest = work.manifest
        found = () if manifest is None or may_stay else manifest.segments
        existing = remove_other_files(self._fs, directory, work.key, found)
        if manifest is None:
            return
        last = self._bundle(work.archived, manifest.segments[-1]) if manifest.segments else None
        is_hollow = may_stay and write_hollow(self._fs, directory, manifest, last)
        if is_hollow:
            self._hollow.add(work.key)
        else:
            self._restore_segments(work.archived, directory, manifest, existing)
        write_atomically(self._fs, directory, names.LEADER_EPOCH_CHECKPOINT, _epochs(manifest, last))
        active = names.file_name(manifest.end_offset, names.LOG)  # so that the archived segments stay sealed, as they were
        if not self._fs.exists(join(directory, active)):
            write_and_close(self._fs.create(join(directory, active)), b"")
        self._fs.sync_directory(directory)
        self._fs.sync_directory(self._path)
        facts = {"url": self._objects.url, "start": manifest.start_offset, "end": manifest.end_offset, "bytes": manifest.size}
        trace.line(trace.RESTORED, work.key, **facts, hollow=is_hollow)

    def _restore_segments(
        self, archived: ArchivedPartition, directory: str, manifest: Manifest, existing: Collection[int]
    ) -> None:
        """Writes the segments of a manifest that are not in the directory yet; `existing` has the base offsets of the others."""
        for segment in manifest.segments:
            if segment.base_offset in existing:
                self._passed(segment.size, join(directory, names.file_name(segment.base_offset, names.LOG)))
            else:
                is_last = segment is manifest.segments[-1]
                next_base = manifest.end_offset if is_last else segment.end_offset
                self._restore_segment(archived, directory, segment, next_base)

    def _restore_segment(self, archived: ArchivedPartition, directory: str, segment: RemoteSegment, next_base: int) -> None:
        """Writes a segment's files, the `.log` last. The next segment begins at `next_base`, maybe after a gap."""
        name = names.file_name(segment.base_offset, names.LOG)
        temporary = join(directory, name + names.TEMPORARY)
        file = self._fs.create(temporary)
        try:
            self._fetch(segment_key(archived, segment.base_offset, segment.segment_id, LOG), file, segment)
            file.sync()
            if segment.modified_ms >= 0:
                file.set_mtime(segment.modified_ms)
            inode = file.identity()[1]
        finally:
            file.close()
        self._restore_bundle(archived, directory, segment, inode, next_base)
        self._fs.rename(temporary, join(directory, name))
        self._fs.sync_directory(directory)

    def _fetch(self, key: str, file: File, segment: RemoteSegment) -> None:
        """Copies a `.log`, and compares its checksum with the manifest's."""
        checksum = 0
        for start in range(0, segment.size, _CHUNK):
            end = min(start + _CHUNK, segment.size)
            data = self._objects.get_range(key, start, end)
            checksum = extend(checksum, bytes(data))
            file.write(memoryview(data), start)
            self._passed(end - start, key)
        if checksum != segment.log_crc32c:
            raise self._damaged(key, segment)

    def _damaged(self, key: str, segment: RemoteSegment) -> CorruptionError:
        path = f"{self._objects.url}/{key}"
        offsets = f"offsets {segment.base_offset} to {segment.end_offset - 1}"
        message = f"{path} is damaged: its checksum is not that of its manifest; {offsets} cannot be restored from it"
        return CorruptionError(
            f"{message}; restore with an earlier as_of, or other topics", path=path, offset=segment.base_offset
        )

    def _bundle(self, archived: ArchivedPartition, segment: RemoteSegment) -> bytes | None:
        """Returns the small files of a segment; None if the object is damaged or missing."""
        key = segment_key(archived, segment.base_offset, segment.segment_id, INDEXES)
        try:
            bundle = bytes(self._objects.get_range(key, 0, segment.indexes_size)) if segment.indexes_size else b""
            why = "" if crc32c(bundle) == segment.indexes_crc32c else "its checksum is not that of its manifest"
        except ObjectStoreUnavailableError:
            raise
        except ObjectStoreError as error:  # missing, or too short
            bundle, why = b"", str(error)
        if not why:
            return bundle
        then = "the files of this segment that are derived from it are created again when the log is opened"
        trace.line(trace.MANIFEST_DAMAGED, path=f"{self._objects.url}/{key}", why=why, then=then)
        return None

    def _restore_bundle(
        self, archived: ArchivedPartition, directory: str, segment: RemoteSegment, inode: int, next_base: int
    ) -> None:
        """Writes the small files of a segment. They are derived: if the object is damaged, opening creates them again."""
        bundle = self._bundle(archived, segment)
        if bundle is None:
            return
        suffixes = {OFFSET: names.INDEX, TIMESTAMP: names.TIME_INDEX, TRANSACTION: names.TRANSACTION_INDEX}
        for piece, suffix in suffixes.items():
            self._write_piece(directory, names.file_name(segment.base_offset, suffix), segment.piece(piece, bundle))
        snapshot = names.file_name(segment.end_offset, names.SNAPSHOT)
        self._write_piece(directory, snapshot, segment.piece(PRODUCER_SNAPSHOT, bundle))
        seal = segment.piece(SEAL, bundle)
        if seal is not None:
            parsed = SEALS.parsed(seal, self._objects.url)
            own = parsed._replace(inode=inode, end_offset=max(parsed.end_offset, next_base))  # it names the inode of its file
            self._write_piece(directory, names.file_name(segment.base_offset, names.SEAL), encode_seal(own))

    def _write_piece(self, directory: str, name: str, data: bytes | None) -> None:
        if data is not None:
            write_atomically(self._fs, directory, name, data)

    def _passed(self, size: int, what: str) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, max(self._done, self._total), what)

    def _write_root(self, store: StoreManifest, works: list[_PartitionToRestore]) -> None:
        """Writes the files of the directory itself: topics, log starts, where the archive is."""
        chosen = {work.archived.topic for work in works}
        counts = {name: max(store.topics[name].partitions) + 1 for name in chosen if store.topics[name].partitions}
        known = {
            name: CatalogTopic(store.topics[name].topic_id, count, self._config(name, store.topics[name]))
            for name, count in counts.items()
            if is_catalogued(store.topics[name])
        }
        if known:
            write_catalog(self._fs, self._path, msgspec.structs.replace(read_catalog(self._fs, self._path), topics=known))
        starts = [
            f"{work.archived.topic} {work.archived.partition} {work.manifest.start_offset}"
            for work in works
            if work.manifest is not None and work.manifest.start_offset > 0
        ]
        if starts:
            lines = "\n".join(["0", str(len(starts)), *starts, ""])
            write_atomically(self._fs, self._path, LOG_START, lines.encode())
        if self._plan.topics is None and self._plan.as_of is None:
            write_settings(self._fs, self._path, ArchiveSettings(store.store_id, self._objects.url))

    def _config(self, name: str, topic: ArchivedTopic) -> dict[str, Any]:
        """Returns the options of a restored topic. One whose records stayed in the archive is tiered."""
        enabled = topic.config.get(TIERED, False)
        if enabled or all(key.topic != name for key in self._hollow):
            return topic.config
        trace.line(trace.TOPIC_ALTERED, topic=name, option=TIERED, old=enabled, new=True)
        return tiered(topic.config)

    def _lower_offsets(self) -> tuple[LoweredOffset, ...]:
        """Sets committed offsets that are ahead of the restored logs to their ends."""
        lowered = []
        with open_directory(self._path, StoreOptions(), self._fs, self._clock) as store:
            for found in _ahead(store):
                store.offsets.commit(found.group, {found.partition: found.end_offset})
                lowered.append(found)
        return tuple(lowered)


def _ahead(store: Store) -> Iterator[LoweredOffset]:
    """Yields the committed offsets that are ahead of their logs."""
    for group in store.offsets.groups():
        for partition, committed in store.offsets.fetch(group).items():
            try:
                end = store.log(*partition).end_offset
            except UnknownTopicOrPartitionError:  # of a topic that was not restored
                continue
            if committed.offset > end:
                yield LoweredOffset(group, partition, committed.offset, end)


def _ends_of(old: str | os.PathLike[str] | None, works: list[_PartitionToRestore]) -> dict[TopicPartition, int]:
    """Returns the log ends of the directory that was archived, as far as it can still be read."""
    if old is None:
        return {}
    with open_store(old, "r") as store:
        found = store.start_and_end_offsets([work.key for work in works])
    return {partition: ends[1] for partition, ends in found.items() if ends is not None}


def _epochs(manifest: Manifest, bundle: bytes | None) -> bytes:
    """Returns the leader epochs at the end of the archived records; `bundle` has the small files of the last segment."""
    found = None if bundle is None else manifest.segments[-1].piece(LEADER_EPOCH, bundle)
    if found is not None:
        return found
    epochs: list[EpochEntry] = []
    for entry in (EpochEntry(*pair) for segment in manifest.segments for pair in segment.epochs):
        if not epochs or entry.epoch > epochs[-1].epoch:
            epochs.append(entry)
    return encode_epochs(epochs)


def _report(work: _PartitionToRestore, old_end: int | None, *, is_hollow: bool) -> RestoredPartition:
    manifest = work.manifest
    if manifest is None:
        return RestoredPartition(work.key, 0, 0, 0, 0, old_end or 0)
    known = max(manifest.log_end_offset, old_end or 0)
    ends = manifest.start_offset, manifest.end_offset, known
    here, remote = (0, manifest.size) if is_hollow else (manifest.size, 0)
    return RestoredPartition(work.key, *ends, here, max(0, known - manifest.end_offset), remote)
