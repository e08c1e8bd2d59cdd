"""Decides what an archive gets of a partition, and what it no longer names. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylog.objects.manifest import Manifest, RemoteSegment


class LocalSegment(NamedTuple):
    """A sealed segment of the log.

    Attributes:
        base_offset, end_offset: its offsets; the next segment begins at `end_offset`.
        size: bytes of its `.log`.
        digest: the digest of all its batch headers and their checksums; None if damage hides it.
    """

    base_offset: int
    end_offset: int
    size: int
    digest: int | None


class Plan(NamedTuple):
    """What to do for one partition.

    Attributes:
        kept: segments of the archive that the next manifest names, too.
        missing: local segments to upload.
        expired: segments of the archive before the log start.
        replaced: segments of the archive that the log has with other bytes, or not at all: a compaction or a truncation of this
            directory, or the archive belongs to a copy of it.
    """

    kept: tuple[RemoteSegment, ...]
    missing: tuple[LocalSegment, ...]
    expired: tuple[RemoteSegment, ...]
    replaced: tuple[RemoteSegment, ...]

    @property
    def retired(self) -> tuple[RemoteSegment, ...]:
        """The segments that the next manifest does not name."""
        return (*self.expired, *self.replaced)


def plan_of(manifest: Manifest | None, local: Sequence[LocalSegment], start_offset: int, archivable_end: int) -> Plan:
    """Returns what the archive of a partition lacks.

    Args:
        manifest: the newest; None if there is none.
        local: the sealed segments of the log.
        start_offset: the log start.
        archivable_end: records before it are durable, and no transaction is open there.

    >>> plan_of(None, [LocalSegment(0, 10, 100, 1), LocalSegment(10, 20, 100, 2)], 0, 15).missing
    (LocalSegment(base_offset=0, end_offset=10, size=100, digest=1),)
    """
    archived = () if manifest is None else manifest.segments
    mine = {each.base_offset: each for each in local}
    kept, expired, replaced = [], [], []
    for segment in archived:
        if segment.end_offset <= start_offset:
            expired.append(segment)
        elif is_same(segment, mine.get(segment.base_offset)):
            kept.append(segment)
        else:
            replaced.append(segment)
    known = {segment.base_offset for segment in kept}
    missing = [each for each in local if each.base_offset not in known and start_offset < each.end_offset <= archivable_end]
    return Plan(tuple(kept), tuple(missing), tuple(expired), tuple(replaced))


def is_same(archived: RemoteSegment, local: LocalSegment | None) -> bool:
    """Returns whether an archived segment has the bytes of a local one, by its batch headers and their checksums."""
    return local is not None and (archived.end_offset, archived.size, archived.digest) == (
        local.end_offset,
        local.size,
        local.digest,
    )


def whole_until(manifest: Manifest) -> int:
    """Returns the end of the segments that follow one another from the log start: a damaged one ends them."""
    end = manifest.start_offset
    for segment in manifest.segments:
        if segment.base_offset > end:
            break
        end = max(end, segment.end_offset)
    return manifest.end_offset if not manifest.segments or end == manifest.segments[-1].end_offset else end
