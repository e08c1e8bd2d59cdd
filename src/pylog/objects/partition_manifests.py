"""The manifests of a partition. Of more than some thousand segments the oldest stand in parts: objects that never change.

A commit then writes a bounded document, however many segments the partition has. Readers get all segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import msgspec

from pylog import limits
from pylog.errors import CorruptionError, ObjectNotFoundError, ObjectStoreError
from pylog.objects.cache import SMALL_OBJECTS
from pylog.objects.layout import DOCUMENT, ArchivedPartition, new_segment_id, part_key
from pylog.objects.manifest import (
    Manifest,
    PartName,
    RemoteSegment,
    RetiredPart,
    contradictions,
    decode_manifest,
    decode_part,
    encode,
    encode_part,
)
from pylog.objects.objects import ObjectStore, create_own, failed
from pylog.objects.versions import Versions
from pylog.record.checksum import crc32c

_ADVICE: Final = "restore the object, or restore the archive as of a time before it was created"


class PartitionManifests(Versions[Manifest]):
    """The manifests of a partition.

    Args:
        objects: the archive.
        partition: whose manifests they are.
    """

    def __init__(self, objects: ObjectStore, partition: ArchivedPartition) -> None:
        super().__init__(objects, partition.manifests, DOCUMENT, decode_manifest)
        self._partition = partition

    def create(self, manifest: Manifest, before: Manifest | None) -> bool:
        """Creates the next version, and the hint. Returns False if another writer was faster.

        Args:
            manifest: with all its segments.
            before: the version that it was made from, as it was read.

        Raises:
            ObjectStoreError: a request failed. No version names the parts that were created for this one.

        Cost: three requests, and two for each part that is new.
        """
        found = split(manifest, before)
        for part_id, data in found.created.items():
            self._create(part_id, data)
        if not self.commit(manifest.version, encode(found.document)):
            with contextlib.suppress(ObjectStoreError):
                self._objects.delete([part_key(self._partition, part_id) for part_id in found.created])
            return False
        self.hint(manifest.version)
        return True

    def _create(self, part_id: str, data: bytes) -> None:
        """Creates a part, and reads it back: thousands of segments cannot be found without it."""
        key = part_key(self._partition, part_id)
        create_own(self._objects, key, data)
        if bytes(self._objects.get(key)[0]) != data:
            raise failed(ObjectStoreError, self._objects.url, key, "check", "the store returned other bytes than were sent")

    def whole(self, document: Manifest) -> Manifest:
        """Returns a manifest with the segments of its parts. Cost: a request for each part that is not in memory.

        Raises:
            CorruptionError: a part is missing or damaged. No earlier version counts then: most have the same part.
        """
        if not document.parts:
            return document
        oldest = tuple(segment for name in document.parts for segment in self._segments(name))
        found = msgspec.structs.replace(document, segments=oldest + document.segments)
        wrong = next(contradictions(found), None)
        if wrong is not None:
            raise CorruptionError(
                f"{self.url(document.version)} contradicts its parts ({wrong}); {_ADVICE}", path=self._objects.url
            )
        return found

    def _segments(self, name: PartName) -> tuple[RemoteSegment, ...]:
        url = f"{self._objects.url}/{part_key(self._partition, name.part_id)}"
        data = SMALL_OBJECTS.get(url, partial(self._part, name, url))
        assert data is not None
        found = decode_part(data, url)[name.skipped : name.skipped + name.count]
        if len(found) < name.count or (found[0].base_offset, found[-1].end_offset) != (name.base_offset, name.end_offset):
            raise _unreadable(url, name, "has other segments than its manifest says")
        return found

    def _part(self, name: PartName, url: str) -> bytes:
        try:
            data = bytes(self._objects.get(part_key(self._partition, name.part_id))[0])
        except ObjectNotFoundError as error:
            raise _unreadable(url, name, "is missing") from error
        if crc32c(data) != name.crc32c:
            raise _unreadable(url, name, "does not have the checksum that its manifest has")
        return data


def _unreadable(url: str, name: PartName, why: str) -> CorruptionError:
    message = f"{url} {why}: it says where the offsets {name.base_offset} to {name.end_offset - 1} are; {_ADVICE}"
    return CorruptionError(message, path=url, position=0, offset=name.base_offset, next_offset=name.end_offset)


class SplitManifest(NamedTuple):
    """A manifest as its object has it, and the bytes of the parts that it needs and that do not exist yet, by their ids."""

    document: Manifest
    created: dict[str, bytes]


def split(manifest: Manifest, before: Manifest | None) -> SplitManifest:
    """Splits a manifest into its object and parts. Parts of the version before are named again as far as they fit.

    Args:
        manifest: with all its segments.
        before: the version that it was made from, with all its segments.
    """
    names = _kept(manifest, before)
    at, created = sum(name.count for name in names), dict[str, bytes]()
    while len(manifest.segments) - at > limits.MANIFEST_SEGMENTS:
        segments = manifest.segments[at : at + limits.MANIFEST_SEGMENTS]
        part_id, data = new_segment_id(), encode_part(segments)
        created[part_id] = data
        names.append(PartName(part_id, crc32c(data), 0, len(segments), segments[0].base_offset, segments[-1].end_offset))
        at += len(segments)
    kept = {name.part_id for name in names}
    known = () if before is None else before.parts
    left = tuple(RetiredPart(each.part_id, manifest.written_ms) for each in known if each.part_id not in kept)
    rest = {"segments": manifest.segments[at:], "parts": tuple(names), "retired_parts": manifest.retired_parts + left}
    return SplitManifest(msgspec.structs.replace(manifest, **rest), created)


def _kept(manifest: Manifest, before: Manifest | None) -> list[PartName]:
    """Returns the names of known parts that have the first segments of a manifest."""
    names, at = list[PartName](), 0
    for name, segments in () if before is None else _parts_of(before):
        ids = [segment.segment_id for segment in segments]
        wanted = [segment.segment_id for segment in manifest.segments[at : at + len(ids)]]
        if not wanted or wanted[0] not in ids:
            continue
        first = ids.index(wanted[0])
        count = next((i for i, (mine, its) in enumerate(zip(ids[first:], wanted, strict=False)) if mine != its), len(ids) - first)
        count = min(count, len(wanted))
        skipped, last = name.skipped + first, segments[first + count - 1]
        names.append(PartName(name.part_id, name.crc32c, skipped, count, segments[first].base_offset, last.end_offset))
        at += count
    return names


def _parts_of(manifest: Manifest) -> Iterator[tuple[PartName, tuple[RemoteSegment, ...]]]:
    """Yields the parts of a manifest that has all its segments, each with its own."""
    at = 0
    for name in manifest.parts:
        yield name, manifest.segments[at : at + name.count]
        at += name.count


def manifests_of(objects: ObjectStore, partition: ArchivedPartition) -> PartitionManifests:
    """Returns the manifests of a partition."""
    return PartitionManifests(objects, partition)
