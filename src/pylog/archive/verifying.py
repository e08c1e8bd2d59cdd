"""Checks an archive: its documents, whether all objects are there, and on request every byte. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from google_crc32c import extend

from pylog.archive.sweep_plan import ids_of
from pylog.errors import CorruptionError, ObjectStoreError, ObjectStoreUnavailableError
from pylog.log.checking.verification import Progress
from pylog.log.recovery.findings import Finding
from pylog.objects.layout import INDEXES, LOG, RSM_MANIFEST, SEGMENT_OBJECTS, ArchivedPartition, parse_id, segment_key
from pylog.objects.manifest import Manifest, RemoteSegment
from pylog.objects.objects import ObjectInfo, ObjectStore
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.versions import store_manifests
from pylog.text import counted

_CHUNK: Final = 8 << 20


class ArchiveVerification(NamedTuple):
    """The result of a check.

    Attributes:
        url: the archive's URL.
        partitions, segments, bytes: what was checked.
        findings: what is wrong; empty for a sound archive.
        orphans: objects of segments, and parts of manifests, that no manifest names, if they were looked for: left by a
            crash, and harmless.
    """

    url: str
    partitions: int
    segments: int
    bytes: int
    findings: tuple[Finding, ...]
    orphans: tuple[ObjectInfo, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Orphans are not."""
        return not self.findings


def verify_archive(
    objects: ObjectStore, *, deep: bool = False, orphans: bool = False, progress: Progress | None = None
) -> ArchiveVerification:
    """Checks an archive.

    Args:
        objects: the archive.
        deep: true to read all objects and compare their checksums; otherwise only their sizes are compared.
        orphans: true to list the archive for objects that no manifest names.
        progress: called after each segment with (bytes done, bytes in total, key).

    Raises:
        CorruptionError: the archive has no sound manifest of a store. ObjectStoreError: a request failed.

    Cost: three requests for each segment; with `deep`, one more for each 8 MiB.
    """
    store = store_manifests(objects).newest().document
    if store is None:
        raise CorruptionError(f"{objects.url} has no archive, or none whose manifest can be read", path=objects.url)
    partitions = [
        ArchivedPartition(name, topic.topic_id, number) for name, topic in store.topics.items() for number in topic.partitions
    ]
    found, unread, findings = _manifests(objects, partitions)
    total, done = sum(manifest.size for manifest in found.values()), 0
    for archived, manifest in found.items():
        findings += _gaps(objects, archived, manifest)
        for segment in manifest.segments:
            findings += _of_segment(objects, archived, segment, deep=deep)
            done += segment.size
            if progress is not None:
                progress(done, total, segment_key(archived, segment.base_offset, segment.segment_id, LOG))
    segments = sum(len(manifest.segments) for manifest in found.values())
    unnamed = tuple(_orphans(objects, found, unread)) if orphans else ()
    return ArchiveVerification(objects.url, len(partitions), segments, total, tuple(findings), unnamed)


def _manifests(
    objects: ObjectStore, partitions: Iterable[ArchivedPartition]
) -> tuple[dict[ArchivedPartition, Manifest], set[ArchivedPartition], list[Finding]]:
    """Returns the newest manifests, the partitions of which none can be read, and what is wrong with manifests."""
    findings: list[Finding] = []
    found, unread = dict[ArchivedPartition, Manifest](), set[ArchivedPartition]()
    for archived in partitions:
        try:
            newest = manifests_of(objects, archived).newest()
        except CorruptionError as error:  # of a part
            unread.add(archived)
            findings.append(_finding("corrupt", error.path or "", 0, error.offset or 0, str(error), error.next_offset))
            continue
        if newest.document is not None:
            found[archived] = newest.document
        elif newest.taken:
            unread.add(archived)
        if newest.taken and (newest.document is None or newest.document.version != newest.taken):
            url = manifests_of(objects, archived).url(newest.taken)
            findings.append(_finding("corrupt", url, 0, 0, f"{url} cannot be read; the version before it counts"))
    return found, unread, findings


def _finding(kind: str, path: str, size: int, offset: int, message: str, next_offset: int | None = None) -> Finding:
    return Finding(kind, path, 0, size, offset, next_offset, message)


def _gaps(objects: ObjectStore, archived: ArchivedPartition, manifest: Manifest) -> Iterator[Finding]:
    """Yields the offsets between two segments that the archive does not have."""
    end = manifest.start_offset
    for segment in manifest.segments:
        if segment.base_offset > end:
            where = f"{objects.url}/{archived.segments}"
            message = f"{where}: offsets {end} to {segment.base_offset - 1} are not archived, as after damage in the directory"
            yield _finding("missing", where, 0, end, message, segment.base_offset)
        end = max(end, segment.end_offset)


def _of_segment(objects: ObjectStore, archived: ArchivedPartition, segment: RemoteSegment, *, deep: bool) -> Iterator[Finding]:
    expected = {LOG: (segment.size, segment.log_crc32c), INDEXES: (segment.indexes_size, segment.indexes_crc32c)}
    for suffix in SEGMENT_OBJECTS:
        key = segment_key(archived, segment.base_offset, segment.segment_id, suffix)
        size, checksum = expected.get(suffix, (None, None))
        why = _wrong(objects, key, size, checksum if deep else None)
        if why is not None:
            kind = "corrupt" if suffix == LOG else "rebuilt"
            needed = {LOG: "", INDEXES: "; a restore creates these files again", RSM_MANIFEST: "; only other programs need it"}
            path = f"{objects.url}/{key}"
            yield _finding(kind, path, segment.size, segment.base_offset, f"{path} {why}{needed[suffix]}", segment.end_offset)


def _wrong(objects: ObjectStore, key: str, size: int | None, checksum: int | None) -> str | None:
    """Returns what is wrong with an object, in words that follow its name; None if nothing is."""
    found = objects.head(key)
    if found is None:
        return "is missing"
    if size is not None and found.size != size:
        return f"has {counted(found.size, 'byte')}; its manifest has {size}"
    if size is None or checksum is None:
        return None
    value = 0
    try:
        for start in range(0, size, _CHUNK):
            value = extend(value, bytes(objects.get_range(key, start, min(start + _CHUNK, size))))
    except ObjectStoreUnavailableError:
        raise
    except ObjectStoreError as error:
        return f"cannot be read: {error}"
    return None if value == checksum else "has another checksum than its manifest"


def _orphans(
    objects: ObjectStore, found: dict[ArchivedPartition, Manifest], unread: set[ArchivedPartition]
) -> Iterator[ObjectInfo]:
    named = {archived: ids_of(manifest) for archived, manifest in found.items()}
    for each in objects.list(""):
        archived, name = parse_id(each.key) or (None, "")
        if archived is not None and archived not in unread and name not in named.get(archived, ()):
            yield each
