"""The archive of an open store, and of each of its partitions, as the logs use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from pylog import limits, trace
from pylog.archive.archived_segments import segments_of, standing_segment, unreadable
from pylog.archive.copied_manifest import CopiedManifest, with_copy
from pylog.archive.counted_objects import CountedObjects
from pylog.archive.leaving import LEAVING, add_leaving, delete_leaving, forget_kept, keep_topic, noted, unkeep_topic
from pylog.archive.opened import keep_url, kept_url, opened_archive
from pylog.archive.owner import check_owner
from pylog.archive.settings import ArchiveSettings, read_settings
from pylog.config import TopicConfig
from pylog.directory.byte_lock import ByteLock
from pylog.directory.partition_metadata import read_topic_id
from pylog.errors import ArchiveFencedError, CorruptionError, IllegalStateError, ObjectStoreError, PylogError
from pylog.fs import FileSystem, join
from pylog.log.recovery.archive_tier import ArchiveNotes, TierFacts
from pylog.log_manager import LogManager
from pylog.objects.layout import NO_TOPIC_ID, ArchivedPartition
from pylog.objects.manifest import Manifest, RemoteSegment, Retired
from pylog.objects.objects import ObjectStore
from pylog.objects.partition_manifests import PartitionManifests, manifests_of
from pylog.objects.segment_catalogue import catalogues_of
from pylog.record.types import TopicPartition
from pylog.segment.segment import LogSegment
from pylog.topics.kept import IsDeleted
from pylog.topics.partitions import directory_name

ManifestChange = Callable[[Manifest], Manifest]


class Tiers:
    """The archive of a store, opened when it is used first. Every method may be called from any thread.

    Args:
        manager: the store.
        given: the archive that the store was opened with, a URL or an object store; None for the one in its settings.

    Raises:
        InvalidArgumentError, IllegalStateError: the archive is not valid, or the store has another one.
    """

    def __init__(self, manager: LogManager, given: object | None) -> None:
        self._manager = manager
        self._guard = threading.Lock()
        self._partitions: dict[TopicPartition, PartitionTier] = {}
        self._objects: CountedObjects | None = None
        self.url: str | None = None
        self.changed: set[str] = set()  # topics whose catalogue is older than their manifests.
        self.catalogued: dict[str, float] = {}  # when a topic's was written, in seconds of the clock.
        self.checked: set[str] = set()  # topics whose catalogue was compared with what a dead process may have left.
        self.named: set[TopicPartition] = set()  # that the manifest of the store has
        self._keeping: set[str] = set()  # topics that are being deleted, and whose archives are kept
        self._left_failure: str | None = None  # why the archives of deleted topics could not be deleted
        self._left_failures = 0
        if given is not None:
            self._objects = CountedObjects(opened_archive(given))
            self.url = self._objects.url
            if manager.writable:
                keep_url(manager, self.url)

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Forgets partitions. See `Keeper`."""
        with self._guard:
            for key in [key for key in self._partitions if is_deleted(key.topic)]:
                self._partitions.pop(key)
        for topic in [topic for topic in {*self.changed, *self.catalogued, *self.checked} if is_deleted(topic)]:
            self.changed.discard(topic)
            self.catalogued.pop(topic, None)
            self.checked.discard(topic)
        self.named = {key for key in self.named if not is_deleted(key.topic)}

    def objects(self) -> CountedObjects:
        """Returns the object store of the archive. Sends no request.

        Raises:
            IllegalStateError: the store has no archive.
        """
        with self._guard:
            if self._objects is None:
                url = kept_url(self._manager)
                if url is None:
                    message = f"{self._manager.path} has no archive; open the store with archive='s3://bucket/prefix'"
                    raise IllegalStateError(message, path=self._manager.path)
                self._objects = CountedObjects(opened_archive(url))
                self.url = url
            return self._objects

    def requests(self) -> dict[str, int]:
        """Returns how many requests were sent, by kind, and the bytes."""
        found = self._objects
        return {} if found is None else {**found.requests, "sent": found.sent, "received": found.received}

    def deleting(self, topic: str, topic_id: str | None, partitions: Sequence[int], config: TopicConfig) -> None:
        """Notes that the archive of a topic must be deleted, unless it is kept. See `StoreTiers`."""
        if topic in self._keeping:
            return
        archived = [ArchivedPartition(topic, topic_id or NO_TOPIC_ID, number) for number in partitions]
        archived = [each for each in archived if CopiedManifest(self._manager.fs, self.directory(each)).read() is not None]
        add_leaving(self._manager, archived, config.remote_delete_delay_ms)

    @contextmanager
    def keeping(self, topic: str) -> Iterator[None]:
        """Has the archive keep what it has of a topic, which is deleted before the context ends. See `StoreTiers`."""
        self._manager.root.changes.check_deletable(self._manager.topic(topic))
        notes = keep_topic(self._manager, self.objects(), topic)
        self._keeping.add(topic)
        try:
            yield
        finally:
            self._keeping.discard(topic)
        forget_kept(self._manager, notes)

    def not_keeping(self, topic: str) -> None:
        """Has the archive not keep a topic, if a deletion that keeps it has failed. See `StoreTiers`."""
        if self._manager.fs.exists(join(self._manager.path, LEAVING)):
            unkeep_topic(self._manager, self.objects(), topic)

    def leave(self, now_ms: int) -> None:
        """Deletes the archives of deleted topics, as far as that is due. A failure is logged once, and tried again."""
        if not self._manager.fs.exists(join(self._manager.path, LEAVING)):
            return
        try:
            delete_leaving(self._manager, self.objects(), self.identity().writer, now_ms)
        except ObjectStoreError as error:
            if str(error) != self._left_failure:
                trace.line(trace.ARCHIVE_FAILED, reason=str(error), then="the next tick tries again")
            self._left_failure = str(error)
            self._left_failures += 1
        else:
            self._left_failure = None

    def notes(self) -> ArchiveNotes | None:
        """Returns what is noted of deletions. See `StoreTiers`."""
        found = noted(self._manager)
        return found._replace(failures=self._left_failures, failure=self._left_failure)

    def directory(self, partition: ArchivedPartition) -> str:
        """Returns the directory of a partition."""
        return join(self._manager.path, directory_name(TopicPartition(partition.topic, partition.partition)))

    def identity(self) -> ArchiveSettings:
        """Returns the ids that manifests get. Cost: one small read."""
        return keep_url(self._manager, self.objects().url)

    def has_archive(self) -> bool:
        """Returns whether the store has an archive. Cost: one small read, until it has one."""
        return self._objects is not None or kept_url(self._manager) is not None

    def tier(self, key: TopicPartition) -> PartitionTier | None:
        """Returns the archive of a partition; None in a store without one. Cost: as `has_archive`."""
        if not self.has_archive():
            return None
        with self._guard:
            found = self._partitions.get(key)
            if found is None:
                found = self._partitions[key] = PartitionTier(self, self._manager, key)
            return found

    def of_topic(self, topic: str) -> list[PartitionTier]:
        """Returns the archives of a topic's partitions."""
        found = (self.tier(TopicPartition(topic, number)) for number in self._manager.topic(topic).partition_ids)
        return [tier for tier in found if tier is not None]


class PartitionTier:
    """The archive of one partition. See `pylog.log.recovery.archive_tier.Tier` for the methods that its log uses.

    Args:
        tiers: the archive of the store.
        manager: the store.
        key: the partition.

    Attributes:
        key, directory: the partition.
        failure: why the last upload failed; None if it succeeded.
        failures, uploaded_segments, uploaded_bytes, retired_segments: since the store was opened.
    """

    def __init__(self, tiers: Tiers, manager: LogManager, key: TopicPartition) -> None:
        self.key = key
        self.directory = join(manager.path, directory_name(key))
        self.failure: str | None = None
        self._failure: str | None = None  # the same without the key of an object
        self.failures = self.uploaded_segments = self.uploaded_bytes = self.retired_segments = 0
        self._tiers = tiers
        self._manager = manager
        self._fs: FileSystem = manager.fs
        self._copy = CopiedManifest(manager.fs, self.directory)
        self._segments: tuple[Manifest, dict[str, LogSegment]] | None = None

    # ---- the manifest --------------------------------------------------------------------------------------------------------

    @property
    def objects(self) -> ObjectStore:
        """The object store. Raises IllegalStateError."""
        return self._tiers.objects()

    def partition(self) -> ArchivedPartition:
        """Returns the partition's name in the archive. Cost: one small read."""
        topic_id = None
        with suppress(CorruptionError):
            topic_id = read_topic_id(self._fs, self.directory)
        return ArchivedPartition(self.key.topic, topic_id or NO_TOPIC_ID, self.key.partition)

    def versions(self) -> PartitionManifests:
        """Returns the manifests in the archive."""
        return manifests_of(self.objects, self.partition())

    def copy(self) -> Manifest | None:
        """Returns the newest manifest that this directory knows; None if nothing was archived. Cost: one small read."""
        found = self._copy.read()
        if found is not None and found.topic_id != self.partition().topic_id:
            return None  # of a topic of the same name that was deleted
        return found

    def newest(self) -> tuple[Manifest | None, int]:
        """Returns the newest manifest, read now, and the last number that a version has. Three requests. See `with_copy`.

        Raises:
            IllegalStateError: it belongs to another store.
        """
        found = with_copy(self.versions().newest(), self.copy(), f"{self.objects.url}/{self.partition().manifests}")
        settings = read_settings(self._manager.fs, self._manager.path)
        if found.document is not None and settings is not None and found.document.store_id != settings.store_id:
            url = f"{self.objects.url}/{self.partition().manifests}"
            raise IllegalStateError(f"{url} is the archive of another store; use another URL for this one", path=url)
        return found.document, found.taken

    def owned(self) -> tuple[Manifest | None, int]:
        """Returns the newest manifest, to change what it names. As `newest`.

        Raises:
            ArchiveFencedError: it belongs to another directory of this store. IllegalStateError: it belongs to another store.
        """
        document, taken = self.newest()
        check_owner(document, self._tiers.identity().writer, self.objects.url, self._manager.path)
        return document, taken

    def commit(self, change: ManifestChange) -> Manifest:
        """Writes the next manifest, and copies it. Starts again if another writer was faster. With the archive's lock.

        Args:
            change: makes it from the newest one, whose version and writer are set already. Returns the same to change nothing.

        Raises:
            ArchiveFencedError: the archive belongs to another directory of this store.
        """
        versions = self.versions()
        while True:
            document, taken = self.owned()
            before = self._following(document, taken)
            after = change(before)
            if after is before and document is not None:
                self.note(document)
                return document
            if versions.create(after, document):
                self.note(after)
                return after

    def _following(self, document: Manifest | None, taken: int) -> Manifest:
        identity, now_ms = self._tiers.identity(), self._manager.clock.now_ms()
        if document is not None:
            written = {"version": taken + 1, "writer": identity.writer, "written_ms": now_ms}
            return msgspec.structs.replace(document, **written, empty_to=0)  # only `store.archive` looks for that
        topic, topic_id, partition = self.partition()
        return Manifest(
            store_id=identity.store_id,
            writer=identity.writer,
            version=taken + 1,
            written_ms=now_ms,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
        )

    def note(self, manifest: Manifest) -> None:
        """Copies a manifest to the partition's directory. With the archive's lock."""
        self._copy.write(manifest)

    def locked(self) -> ByteLock:
        """Returns the lock of changes of the partition's archive, which is held for a few requests."""
        assert self._manager.locks is not None  # in a store that is open for writing
        return self._manager.locks.archiver(directory_name(self.key))

    def uploading(self) -> ByteLock:
        """Returns the lock of uploads, which is held as long as one segment takes."""
        assert self._manager.locks is not None
        return self._manager.locks.uploader(directory_name(self.key))

    # ---- the topic's catalogue ---------------------------------------------------------------------------------------------

    def note_changed(self) -> None:
        """Notes that the catalogue of the topic is older than a manifest."""
        self._tiers.changed.add(self.key.topic)

    def takes_catalogue(self) -> bool:
        """Returns whether the catalogue of the topic must be written now: it is older, and was not written in the last minute.

        Cost: three requests at the first call for a topic: an earlier process may have died before it wrote the catalogue.
        """
        topic = self.key.topic
        if topic not in self._tiers.checked and topic not in self._tiers.changed and self.copy() is not None:
            if self._is_catalogue_older():
                self._tiers.changed.add(topic)
            self._tiers.checked.add(topic)
        last = self._tiers.catalogued.get(topic)
        is_due = last is None or self._manager.clock.monotonic() - last >= limits.CATALOGUE_INTERVAL_S
        return is_due and topic in self._tiers.changed

    def _is_catalogue_older(self) -> bool:
        """Returns whether a manifest that this directory knows is newer than the topic's catalogue."""
        found = catalogues_of(self.objects, self.key.topic, self.partition().topic_id).newest().document
        known = {} if found is None else {each.partition: each.version for each in found.partitions}
        copies = [tier.copy() for tier in self._tiers.of_topic(self.key.topic)]
        return any(known.get(each.partition, 0) < each.version for each in copies if each is not None)

    def takes_name(self) -> bool:
        """Returns whether the partition must be named in the manifest of the store before its first upload."""
        return self.key not in self._tiers.named and self.copy() is None

    def note_named(self) -> None:
        """Notes that the manifest of the store has all partitions of the topic."""
        self._tiers.named |= {tier.key for tier in self._tiers.of_topic(self.key.topic)}

    def note_catalogue(self) -> None:
        """Notes that the catalogue of the topic was written."""
        self._tiers.changed.discard(self.key.topic)
        self._tiers.checked.add(self.key.topic)
        self._tiers.catalogued[self.key.topic] = self._manager.clock.monotonic()

    # ---- for the log ---------------------------------------------------------------------------------------------------------

    def log_start(self, local: int, first_base: int) -> int | None:
        """See `Tier`."""
        found = self.copy()
        if found is None:
            if local >= first_base or not self.is_enabled():
                return None
            with suppress(PylogError):  # reads raise it
                found = self._fetched()
            if found is None:
                return local
        start = max(local, found.start_offset)
        named = found.segments and found.segments[0].base_offset < first_base
        return start if named and start < first_base else None

    def _fetched(self) -> Manifest | None:
        document, _ = self.newest()
        if document is not None and self._manager.writable:
            self._copy.write(document)
        return document

    def is_enabled(self) -> bool:
        """Returns whether the topic is tiered. Cost: a listing and small reads."""
        with suppress(PylogError):
            return self._manager.topic(self.key.topic).config.remote_storage_enable
        return False

    def segments(self, start: int, end: int) -> Sequence[LogSegment]:
        """See `Tier`."""
        try:
            manifest = self.copy() or self._fetched()
            if manifest is None:
                raise CorruptionError(f"{self.objects.url} has no manifest of {self.directory}", path=self.directory)
            made = self._made(manifest)
        except PylogError as error:
            return [_unreadable_segment(error, self.key, self.directory, start, end)]
        wanted = [each for each in manifest.segments if each.end_offset > start and each.base_offset < end]
        return [made[each.segment_id] for each in wanted]

    def _made(self, manifest: Manifest) -> dict[str, LogSegment]:
        known = self._segments
        if known is None or known[0] is not manifest:
            made = segments_of(self.objects, self.partition(), manifest, self.directory)
            if known is not None:
                made |= {name: known[1][name] for name in made if name in known[1]}  # these have their indexes
            known = self._segments = manifest, made
        return known[1]

    def facts(self) -> TierFacts | None:
        """See `Tier`."""
        found = self.copy()
        if found is None:
            return None
        counted = self.uploaded_segments, self.uploaded_bytes, self.retired_segments, self.failures
        return TierFacts(found.end_offset, found.size, *counted, self.failure)

    def archived_end(self) -> int | None:
        """See `Tier`."""
        found = self.copy()
        return None if found is None else found.end_offset

    @contextmanager
    def raising_start(self, before: int) -> Iterator[None]:
        """See `Tier`."""
        found = self.copy()
        if found is None or found.start_offset >= before:
            yield
            return
        with self.locked().entered():
            found = self.copy()
            if found is not None and found.start_offset < before:
                self._follow(lambda manifest: with_start(manifest, before, self._manager.clock.now_ms()))
            yield

    @contextmanager
    def truncating(self, end: int) -> Iterator[None]:
        """See `Tier`."""
        with self.locked().entered():  # even if nothing is archived: an upload may be on its way
            found = self.copy()
            if found is not None and found.end_offset > end:
                self._follow(lambda manifest: without_from(manifest, end, self._manager.clock.now_ms()))
            yield

    def _follow(self, change: ManifestChange) -> None:
        """Commits what is about to be deleted locally. A copy whose records are all on its disk leaves the archive as it is."""
        try:
            self.commit(change)
        except ArchiveFencedError as error:
            if self.is_enabled():
                raise
            trace.line(trace.ARCHIVE_FAILED, self.key, reason=str(error), then="only records on this disk are deleted")

    # ---- uploads -------------------------------------------------------------------------------------------------------------

    def note_failure(self, error: PylogError) -> None:
        """Counts a failed upload, and logs it once for each reason."""
        self.failures += 1
        key = getattr(error, "key", "")
        known = str(error).replace(key, "") if key else str(error)  # each attempt has another key
        if known != self._failure:
            trace.line(trace.ARCHIVE_FAILED, self.key, reason=str(error), then="the next tick tries again")
        self._failure, self.failure = known, str(error)

    def note_success(self) -> None:
        """Notes that a tick has done all that was due."""
        self._failure = self.failure = None


def with_start(manifest: Manifest, start: int, now_ms: int) -> Manifest:
    """Returns a manifest whose log starts later: segments before the start are retired."""
    if manifest.start_offset >= start:
        return manifest
    deleted = [segment for segment in manifest.segments if segment.end_offset <= start]
    return _without(msgspec.structs.replace(manifest, start_offset=start), deleted, now_ms)


def without_from(manifest: Manifest, end: int, now_ms: int) -> Manifest:
    """Returns a manifest without the segments that have records from an offset on."""
    deleted = [segment for segment in manifest.segments if segment.end_offset > end]
    return _without(manifest, deleted, now_ms) if deleted else manifest


def _without(manifest: Manifest, deleted: Sequence[RemoteSegment], now_ms: int) -> Manifest:
    ids = {segment.segment_id for segment in deleted}
    kept = tuple(segment for segment in manifest.segments if segment.segment_id not in ids)
    retired = tuple(Retired(each.base_offset, each.segment_id, now_ms, each.size) for each in deleted)
    return msgspec.structs.replace(manifest, segments=kept, retired=manifest.retired + retired)


class _Unreadable:
    """A log that cannot be found, because its manifest cannot be read."""

    grain = 1

    def __init__(self, error: ObjectStoreError) -> None:
        self._error = error
        self.url = error.url

    def read(self, position: int, end: int) -> bytes:  # noqa: ARG002
        raise self._error


def _unreadable_segment(error: PylogError, key: TopicPartition, directory: str, start: int, end: int) -> LogSegment:
    """Returns a segment that stands for records of which only the archive knows where they are, and that cannot be asked."""
    name = f"{key.topic}-{key.partition}"
    return standing_segment(_Unreadable(unreadable(error, name, start, end)), directory, start, end)
