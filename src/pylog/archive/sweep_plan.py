"""Decides what a sweep deletes of an archive. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from pylog.objects.manifest import Manifest, StoreManifest

ORPHAN: Final = "no manifest names it"
RETIRED: Final = "its segment left the archive"
TOPIC: Final = "its topic was deleted"
VERSION: Final = "a later version replaced it"
MARKER: Final = "an earlier sweep died"


class SweptObject(NamedTuple):
    """An object that no manifest needs.

    Attributes:
        key: relative to the URL of the archive.
        size: in bytes.
        reason: why it is not needed.
    """

    key: str
    size: int
    reason: str


class SweepReport(NamedTuple):
    """A run of `pylog.sweep`.

    Attributes:
        url: the archive's URL.
        executed: whether the objects were deleted; false for a dry run.
        objects: those that no manifest needs.
        left: what was left alone because a document of the archive cannot be read, as sentences.

    >>> SweepReport("s3://logs/shop", False, (SweptObject("a", 5, ORPHAN), SweptObject("b", 7, TOPIC)), ()).bytes
    12
    """

    url: str
    executed: bool
    objects: tuple[SweptObject, ...]
    left: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of all objects."""
        return sum(each.size for each in self.objects)


class SweepTimes(NamedTuple):
    """Times in milliseconds since 1970, by the clock of the object store.

    Attributes:
        now_ms: the sweep's time.
        orphans_ms: objects that no manifest names are deleted if they are older.
        history_ms: versions that were replaced before it are deleted, and segments that left the archive before it.
    """

    now_ms: int
    orphans_ms: int
    history_ms: int


def kept_retired(manifest: Manifest, times: SweepTimes, delete_delay_ms: int) -> Manifest:
    """Returns a manifest without the retired segments and parts whose objects are not needed.

    Args:
        manifest: the newest of a partition.
        times: the sweep's times.
        delete_delay_ms: how long the topic keeps the objects of retired segments at least.
    """
    before = min(times.history_ms, times.now_ms - delete_delay_ms)
    segments = tuple(each for each in manifest.retired if each.at_ms > before)
    parts = tuple(each for each in manifest.retired_parts if each.at_ms > before)
    return msgspec.structs.replace(manifest, retired=segments, retired_parts=parts)


def ids_of(manifest: Manifest) -> frozenset[str]:
    """Returns the ids of all segments and parts that a manifest names.

    What an earlier version of the last weeks names is named by the newest one too: it was retired since.
    """
    segments = {each.segment_id for each in manifest.segments} | {each.segment_id for each in manifest.retired}
    parts = {each.part_id for each in manifest.parts} | {each.part_id for each in manifest.retired_parts}
    return frozenset(segments | parts)


def replaced_versions(modified: Mapping[int, int], before_ms: int) -> list[int]:
    """Returns the versions to delete, oldest first: a later one replaced them before a time, and those before them too.

    Args:
        modified: when each version was created, in milliseconds, by number.
        before_ms: the time.

    >>> replaced_versions({1: 100, 2: 200, 3: 300, 4: 400}, 300)
    [1, 2]
    """
    versions = sorted(modified)
    found = []
    for version, following in pairwise(versions):
        if modified[following] > before_ms:
            break
        found.append(version)
    return found


def deleted_topics(replaced: Iterable[StoreManifest], kept: Iterable[StoreManifest]) -> frozenset[tuple[str, str]]:
    """Returns the names and ids of topics that only replaced versions of the store's manifest have.

    Without such a version nothing says that a topic was deleted: a tiered topic may be too new for the store's manifest.
    """

    def named(stores: Iterable[StoreManifest]) -> set[tuple[str, str]]:
        return {(name, topic.topic_id) for store in stores for name, topic in store.topics.items()}

    return frozenset(named(replaced) - named(kept))
