"""`pylog.sweep`: deletes the objects of an archive that no manifest needs.

The steps, and what a crash after each of them leaves:

1. all objects are listed; those that are old enough and that no newest manifest names are candidates: nothing
2. of each partition with candidates, the next version is created. It says that a sweep was here, so a process that uploaded
   objects before, and has not named them yet, uploads them again under other ids. No objects that were listed can be named now
3. the candidates that this version does not name are deleted: the rest are orphans for the next sweep
4. old versions of documents are deleted, oldest first; those of the store's manifest last, because they say which topics were
   deleted

Each step can be done twice, so two sweeps do not disturb each other.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from pylog import limits, trace
from pylog.archive.sweep_plan import (
    MARKER,
    ORPHAN,
    RETIRED,
    TOPIC,
    VERSION,
    SweepReport,
    SweepTimes,
    SweptObject,
    deleted_topics,
    ids_of,
    kept_retired,
    replaced_versions,
)
from pylog.arguments import checked_int
from pylog.clock import Clock, SystemClock
from pylog.errors import CorruptionError, IllegalStateError, NotALogDirectoryError, ObjectNotFoundError, ObjectStoreError
from pylog.objects.layout import (
    DOCUMENT,
    DOCUMENTS,
    STORE,
    SWEEPS,
    TABLE,
    ArchivedPartition,
    parse_id,
    parse_topic_prefix,
    parse_version,
)
from pylog.objects.manifest import Manifest, StoreManifest
from pylog.objects.objects import ObjectInfo, ObjectStore, failed
from pylog.objects.opening import open_objects
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.versions import Newest, store_manifests

_BATCH: Final = 300  # objects of one request
_ATTEMPTS: Final = 20  # to create the next version, against processes that archive


def sweep(
    url: str,
    *,
    dry_run: bool = False,
    grace_ms: int = limits.DEFAULT_SWEEP_GRACE_MS,
    history_ms: int = limits.DEFAULT_SWEEP_HISTORY_MS,
    clock: Clock | None = None,
    **access: Any,
) -> SweepReport:
    """Deletes the objects of an archive that no manifest needs, and logs each.

    These are objects of uploads that a crash cut off, segments whose records were deleted, old versions of manifests, and all
    that belongs to deleted topics. Objects that pylog did not name stay. Other processes may archive, tier, read and restore
    meanwhile, and other sweeps may run. A crash leaves objects for the next sweep, and nothing else.

    Args:
        url: the archive's URL, as for `Store.archive`.
        dry_run: true to change nothing, and return what would be deleted.
        grace_ms: objects that no manifest names stay for so long, in milliseconds; at least one hour.
        history_ms: `pylog.restore` can restore the archive as it was so long ago, in milliseconds. The objects that it needs stay
            for `grace_ms` more, so that a restore that has begun can finish.
        clock: the current time, for tests. If the clock of the object store is behind it, that one counts.
        access: how to reach a bucket, as for `Store.archive`.

    Returns:
        A `SweepReport`: each object with the reason, and what was left alone.

    Raises:
        NotALogDirectoryError: the URL has no archive; nothing was deleted. ObjectStoreError: a request failed.
        IllegalStateError: other processes commit to the archive all the time.
        UnsupportedFormatError: a later pylog has written to the archive.

    Cost: lists all objects, a request for each 1000; three requests for each partition, and a few where something is deleted.

    >>> import pylog, tempfile
    >>> archive = tempfile.mkdtemp()
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.archive(archive)
    >>> pylog.sweep(archive, dry_run=True).objects
    ()
    """
    grace = checked_int("grace_ms", grace_ms, limits.MIN_SWEEP_GRACE_MS, limits.INT64_MAX)
    history = checked_int("history_ms", history_ms, 0, limits.INT64_MAX)
    objects = open_objects(url, **access)
    newest = store_manifests(objects).newest()
    if newest.document is None:
        raise NotALogDirectoryError(f"{objects.url} has no archive of a store; check the URL", path=objects.url)
    now_ms = _now_ms(objects, clock or SystemClock(), dry_run=dry_run)
    times = SweepTimes(now_ms, now_ms - grace, now_ms - grace - history)
    documents = _Documents(objects.list(DOCUMENTS))
    run = _Sweep(objects, times, newest.document, dry_run=dry_run)
    if _is_whole(newest):
        return run.done(documents, documents.replaced(STORE, DOCUMENT, times.history_ms))
    run.leave(f"{store_manifests(objects).url(newest.taken)} cannot be read; deleted topics were left alone")
    return run.done(documents, [])


def _now_ms(objects: ObjectStore, clock: Clock, *, dry_run: bool) -> int:
    """Returns the time by the clock of the store, if this machine's is ahead: ages are measured by the times of objects."""
    if dry_run:
        return clock.now_ms()
    key = f"{SWEEPS}{secrets.token_hex(8)}"
    objects.put_new(key, b"")
    found = objects.head(key)
    objects.delete([key])
    if found is None:
        raise failed(ObjectStoreError, objects.url, key, "inspect", "it was created, and is not there")
    return min(clock.now_ms(), found.modified_ms)


class _Documents:
    """The documents of an archive, by their prefixes.

    Args:
        found: the objects under `pylog/`.
    """

    def __init__(self, found: Iterable[ObjectInfo]) -> None:
        self._found: dict[str, list[ObjectInfo]] = defaultdict(list)
        for each in found:
            self._found[each.key.rpartition("/")[0] + "/"].append(each)

    def prefixes(self) -> list[tuple[str, ArchivedPartition]]:
        """Returns the prefixes of partitions and of catalogues, which have the partition -1."""
        named = ((prefix, parse_topic_prefix(prefix)) for prefix in self._found)
        return [(prefix, archived) for prefix, archived in named if archived is not None]

    def parts(self) -> Iterator[ObjectInfo]:
        """Yields the parts of manifests."""
        return (each for found in self._found.values() for each in found if parse_id(each.key) is not None)

    def under(self, prefix: str) -> list[ObjectInfo]:
        """Returns all objects of a prefix."""
        return self._found.get(prefix, [])

    def replaced(self, prefix: str, suffix: str, before_ms: int) -> list[ObjectInfo]:
        """Returns the versions that later ones replaced before a time, oldest first."""
        numbered = ((parse_version(prefix, each.key, suffix), each) for each in self.under(prefix))
        versions = {number: each for number, each in numbered if number is not None}
        return [
            versions[number] for number in replaced_versions({at: each.modified_ms for at, each in versions.items()}, before_ms)
        ]


class _Named(NamedTuple):
    """The ids of segments and parts in the newest manifest of a partition: those that are needed, and those retired long ago.

    `ids` is None if the newest manifest cannot be read: then nothing is known, and all objects may be needed.
    """

    ids: frozenset[str] | None
    retired: frozenset[str] = frozenset()


class _Sweep:
    """One run of `sweep`."""

    def __init__(self, objects: ObjectStore, times: SweepTimes, store: StoreManifest, *, dry_run: bool) -> None:
        self._objects = objects
        self._times = times
        self._store = store
        self._dry_run = dry_run
        self._swept: list[SweptObject] = []
        self._left: list[str] = []
        self._named: dict[ArchivedPartition, _Named] = {}

    def leave(self, why: str) -> None:
        """Notes what is left alone."""
        self._left.append(why)

    def done(self, documents: _Documents, replaced: Sequence[ObjectInfo]) -> SweepReport:
        """Sweeps the partitions, then their documents, then those of the store.

        Args:
            documents: the archive's documents.
            replaced: versions of the store's manifest that are not needed, oldest first.
        """
        deleted = self._deleted_topics(documents, replaced)
        unneeded, ended = self._listed(documents, deleted)
        for archived, found in unneeded.items():
            self._sweep_partition(archived, found)
        waits = [topic for topic in deleted if not self._sweep_topic(topic, ended.get(topic, []), documents)]
        self._sweep_versions(documents, deleted)
        if not waits:
            self._delete_in_order(replaced)
        self._delete([each for each in documents.under(SWEEPS) if each.modified_ms <= self._times.orphans_ms], MARKER)
        return SweepReport(self._objects.url, not self._dry_run, tuple(self._swept), tuple(self._left))

    # ---- segments ------------------------------------------------------------------------------------------------------------

    def _listed(
        self, documents: _Documents, deleted: AbstractSet[tuple[str, str]]
    ) -> tuple[dict[ArchivedPartition, list[ObjectInfo]], dict[tuple[str, str], list[ObjectInfo]]]:
        """Lists the objects of segments. Returns those, and parts, that no manifest needs, and all segments of deleted topics."""
        unneeded: dict[ArchivedPartition, list[ObjectInfo]] = defaultdict(list)
        ended: dict[tuple[str, str], list[ObjectInfo]] = defaultdict(list)
        for each in (*documents.parts(), *self._objects.list("")):
            found = parse_id(each.key)
            if found is None:
                continue
            archived, name = found
            if _topic_of(archived) in deleted:
                if not each.key.startswith(DOCUMENTS):
                    ended[_topic_of(archived)].append(each)
            elif each.modified_ms <= self._times.orphans_ms:
                ids = self._named_of(archived).ids
                if ids is not None and name not in ids:
                    unneeded[archived].append(each)
        return unneeded, ended

    def _named_of(self, archived: ArchivedPartition) -> _Named:
        """Returns what a partition's newest manifest names. Cost: the requests for it, once."""
        if archived not in self._named:
            self._named[archived] = self._read(archived)
        return self._named[archived]

    def _read(self, archived: ArchivedPartition) -> _Named:
        versions = manifests_of(self._objects, archived)
        try:
            newest = versions.newest()
        except CorruptionError as error:
            self.leave(f"{error}; the objects of {archived.topic}-{archived.partition} were left alone")
            return _Named(None)
        if not _is_whole(newest):
            where = versions.url(newest.taken)
            self.leave(f"{where} cannot be read; the objects of {archived.topic}-{archived.partition} were left alone")
            return _Named(None)
        if newest.document is None:
            return _Named(frozenset())
        kept = self._kept(newest.document)
        return _Named(ids_of(kept), ids_of(newest.document) - ids_of(kept))

    def _kept(self, manifest: Manifest) -> Manifest:
        topic = self._store.topics.get(manifest.topic)
        delay = 0 if topic is None else topic.config.get("remote_delete_delay_ms", 0)
        return kept_retired(manifest, self._times, delay if isinstance(delay, int) else 0)

    def _sweep_partition(self, archived: ArchivedPartition, found: Sequence[ObjectInfo]) -> None:
        """Deletes objects of a partition, but not those that were named since."""
        named = frozenset() if self._dry_run else self._mark(archived)
        retired = self._named_of(archived).retired
        by_reason: dict[str, list[ObjectInfo]] = {ORPHAN: [], RETIRED: []}
        for each in found:
            _, name = parse_id(each.key) or (archived, "")
            if name not in named:
                by_reason[RETIRED if name in retired else ORPHAN].append(each)
        for reason, unneeded in by_reason.items():
            self._delete(unneeded, reason)

    def _mark(self, archived: ArchivedPartition) -> frozenset[str]:
        """Creates the next version, which says that a sweep was here, and returns the ids that it names.

        Raises:
            IllegalStateError: other processes create versions all the time, or the newest one is damaged since.
        """
        versions = manifests_of(self._objects, archived)
        for _ in range(_ATTEMPTS):
            newest = versions.newest()
            version = newest.taken + 1
            written = {"version": version, "written_ms": self._times.now_ms, "swept": version}
            manifest = msgspec.structs.replace(self._kept(newest.document or self._empty(archived)), **written)
            if _is_whole(newest) and versions.create(manifest, newest.document):
                return ids_of(manifest)
        where = f"{self._objects.url}/{archived.manifests}"
        raise IllegalStateError(
            f"{where}: the newest version is damaged, or other processes keep replacing it; sweep again", path=where
        )

    def _empty(self, archived: ArchivedPartition) -> Manifest:
        store = self._store
        return Manifest(
            store_id=store.store_id,
            writer=store.writer,
            version=0,
            written_ms=0,
            topic=archived.topic,
            topic_id=archived.topic_id,
            partition=archived.partition,
        )

    # ---- topics and documents ------------------------------------------------------------------------------------------------

    def _deleted_topics(self, documents: _Documents, replaced: Sequence[ObjectInfo]) -> AbstractSet[tuple[str, str]]:
        """Returns the names and ids of topics that only old versions of the store's manifest have."""
        if not replaced:
            return frozenset()
        old = {each.key for each in replaced}
        every = {each.key: parse_version(STORE, each.key, DOCUMENT) for each in documents.under(STORE)}
        read = {key: self._store_version(version) for key, version in every.items() if version is not None}
        kept = [store for key, store in read.items() if key not in old and store is not None]
        return deleted_topics([store for key, store in read.items() if key in old and store is not None], [*kept, self._store])

    def _store_version(self, version: int) -> StoreManifest | None:
        with contextlib.suppress(CorruptionError, ObjectNotFoundError):  # the latter: another sweep deletes it
            return store_manifests(self._objects).at(version)
        return None

    def _sweep_topic(self, topic: tuple[str, str], segments: Sequence[ObjectInfo], documents: _Documents) -> bool:
        """Deletes all that a deleted topic has, the documents last. Returns False, and deletes nothing, if some of it is new."""
        prefixes = [prefix for prefix, archived in documents.prefixes() if _topic_of(archived) == topic]
        found = [*segments, *(each for prefix in prefixes for each in documents.under(prefix))]
        if any(each.modified_ms > self._times.orphans_ms for each in found):
            return False
        self._delete(found, TOPIC)
        return True

    def _sweep_versions(self, documents: _Documents, deleted: AbstractSet[tuple[str, str]]) -> None:
        """Deletes old versions of manifests, and of catalogues, which are derived from them."""
        for prefix, archived in documents.prefixes():
            if _topic_of(archived) in deleted:
                continue
            if archived.partition < 0:
                self._delete_in_order(documents.replaced(prefix, TABLE, self._times.orphans_ms))
            else:
                found = documents.replaced(prefix, DOCUMENT, self._times.history_ms)
                if found and self._named_of(archived).ids is not None:
                    self._delete_in_order(found)

    # ---- deleting ------------------------------------------------------------------------------------------------------------

    def _delete_in_order(self, found: Sequence[ObjectInfo]) -> None:
        """Deletes versions one by one, so that a crash leaves no gap: readers and writers rely on that."""
        for each in found:
            self._delete([each], VERSION)

    def _delete(self, found: Sequence[ObjectInfo], reason: str) -> None:
        """Deletes objects, and logs each of them."""
        for at in range(0, len(found), _BATCH):
            batch = found[at : at + _BATCH]
            if not self._dry_run:
                self._objects.delete([each.key for each in batch])
            for each in batch:
                self._swept.append(SweptObject(each.key, each.size, reason))
                if not self._dry_run:
                    trace.line(trace.SWEPT, path=f"{self._objects.url}/{each.key}", bytes=each.size, reason=reason)


def _topic_of(archived: ArchivedPartition) -> tuple[str, str]:
    return archived.topic, archived.topic_id


def _is_whole(newest: Newest[Any]) -> bool:
    """Returns whether no damaged version is later than the newest sound one."""
    return (0 if newest.document is None else newest.document.version) == newest.taken
