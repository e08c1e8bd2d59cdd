"""The newest known manifest of a partition, in the partition's directory: readers know what is archived without a request.

It is derived: the manifests in the archive count. It may be older than the newest one, and then names fewer segments. No segment
is deleted locally before it is named here. So if the newest manifest of the archive is damaged, and the one before it is older
than the copy, the copy counts: the one before may not name segments that are no longer on the disk.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pylog import limits, trace
from pylog.errors import CorruptionError, StorageFailedError, UnsupportedFormatError
from pylog.fs import FileKind, FileSystem, at_most, join, write_atomically
from pylog.objects.manifest import Manifest, RetiredPart, decode_manifest, encode
from pylog.objects.versions import Newest
from pylog.segment.names import ARCHIVED


def _parse(data: bytes, path: str) -> Manifest:
    return decode_manifest(data, path)


COPIES: Final = FileKind("a copy of a manifest", _parse, at_most(limits.MAX_CHECKPOINT_BYTES), "remove it: it is fetched again")


class CopiedManifest:
    """The copy of one partition's manifest, parsed once for each content of its file. From any thread.

    Args:
        fs, directory: the partition.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._path = join(directory, ARCHIVED)
        self._known: tuple[bytes | None, Manifest | None] = None, None

    def read(self) -> Manifest | None:
        """Returns the copy; None if there is none, or it is damaged. Cost: one small read."""
        data = None
        try:
            data = COPIES.fetch(self._fs, self._path)
            known = self._known
            if data == known[0]:
                return known[1]
            found = None if data is None else COPIES.parsed(data, self._path)
        except (CorruptionError, UnsupportedFormatError, StorageFailedError) as error:
            trace.line(trace.IGNORED, path=self._path, reason=str(error))
            found = None
        self._known = data, found
        return found

    def write(self, manifest: Manifest) -> None:
        """Replaces the copy, durably, unless it is the same."""
        known = self.read()
        if known is None or _content(known) != _content(manifest):
            write_atomically(self._fs, self._directory, ARCHIVED, encode(_content(manifest)))


def with_copy(found: Newest[Manifest], copy: Manifest | None, url: str) -> Newest[Manifest]:
    """Returns the newest manifest, or the copy of a later one that is damaged in the archive.

    Args:
        found: what the archive has.
        copy: the copy in the partition's directory; None if there is none.
        url: the URL of the manifests, for the log line.
    """
    sound = found.document
    known = 0 if sound is None else sound.version
    if copy is None or not known < copy.version <= found.taken or (sound is not None and sound.store_id != copy.store_id):
        return found
    trace.line(trace.MANIFEST_DAMAGED, path=url, why=f"version {copy.version} cannot be read", then="its copy on the disk counts")
    parts = (
        () if sound is None else sound.retired_parts + tuple(RetiredPart(each.part_id, copy.written_ms) for each in sound.parts)
    )
    return found._replace(document=msgspec.structs.replace(copy, retired_parts=parts))


def _content(manifest: Manifest) -> Manifest:
    """Returns a manifest as it is copied: with all segments, so without parts."""
    return msgspec.structs.replace(manifest, parts=(), retired_parts=(), crc32c="")
