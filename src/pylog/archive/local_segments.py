"""The sealed segments of a log, as an archive compares them with its own."""

from __future__ import annotations

from collections.abc import Sequence

from pylog.archive.plan import LocalSegment, is_same
from pylog.archive.uploader import Content
from pylog.errors import CorruptionError, StorageFailedError
from pylog.log.state import LogState
from pylog.objects.manifest import Manifest, RemoteSegment
from pylog.segment.header_digest import digest_of
from pylog.segment.seal import read_seal
from pylog.segment.segment import LogSegment, vanished


def still(state: LogState, before: LogState, contents: Sequence[Content]) -> bool:
    """Returns whether the log was not truncated or compacted meanwhile. Segments below its start now may be deleted."""
    if state.truncated_to(before.truncation_count) < max(each.segment.end_offset for each in contents):
        return False
    local = {each.base_offset: each for each in local_segments(state, None)}
    return all(
        each.segment.end_offset <= state.start_offset or _is_still(each.segment, local.get(each.segment.base_offset))
        for each in contents
    )


def _is_still(uploaded: RemoteSegment, local: LocalSegment | None) -> bool:
    """Returns whether the log has an uploaded segment; of one that is only in an archive, its digest is not known here."""
    return local is not None and is_same(uploaded, local if local.digest is not None else local._replace(digest=uploaded.digest))


def empty_to(state: LogState, archived: tuple[RemoteSegment, ...]) -> int:
    """Returns the log end if no record lies between the archived segments and it, as after a truncation; else 0."""
    active = state.active
    if active is None or state.active_size:
        return 0
    end = max([state.start_offset, *(each.end_offset for each in archived[-1:])])
    return state.end_offset if end >= active.base_offset else 0


def local_segments(state: LogState, manifest: Manifest | None) -> list[LocalSegment]:
    """Returns the sealed segments of a log. Those of a tiered log that are only in its archive are as their manifest has them."""
    named = {} if manifest is None else {segment.base_offset: segment.digest for segment in manifest.segments}
    return [
        LocalSegment(
            base, state.end_of(segment), segment.size, named.get(base) if segment.vouched is not None else known_digest(segment)
        )
        for base, segment in state.segments
        if segment is not state.active
    ]


def known_digest(segment: LogSegment) -> int | None:
    """Returns the digest of a sealed segment: from its seal, else from its batch headers.

    None if damage hides it, or if the segment was deleted meanwhile: an upload finds that out, and nothing else needs a digest.
    """
    try:
        seal = read_seal(segment.fs, segment)
        if seal is not None and seal.size == segment.size:
            return seal.digest
    except CorruptionError:
        pass
    try:
        return digest_of(segment, segment.size).value
    except CorruptionError:
        return None
    except StorageFailedError as error:
        if not vanished(error):
            raise
        return None
