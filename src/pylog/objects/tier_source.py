"""The protocols of a layout of a broker's remote tier: its segments, and the bytes of each."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pylog.errors import CorruptionError
from pylog.objects.objects import ObjectStore
from pylog.objects.ranges import RangeSource
from pylog.objects.tier_segments import TierSegment


class TierPartition(NamedTuple):
    """A partition in a tier. A topic that was deleted and created again has another id."""

    topic: str
    partition: int
    topic_id: str


class SegmentObjects(RangeSource, Protocol):
    """The objects of one segment: its log, and its small files."""

    def small_file(self, suffix: str) -> bytes | None:
        """Returns one of the segment's small files, by its suffix in a local directory; None if the segment has none."""
        ...


class TierLayout(Protocol):
    """Where a plugin of a broker keeps its segments."""

    def partitions(self) -> set[TierPartition]:
        """Returns the partitions that have objects. Cost: one listing of the whole tier."""
        ...

    def segments(self, partition: TierPartition) -> list[TierSegment]:
        """Returns the complete segments of a partition. Cost: one listing, and a small read for each segment."""
        ...

    def stem(self, partition: TierPartition, base_offset: int, segment_id: str, custom: bytes | None) -> str:
        """Returns the key of a segment's objects without their suffixes, from the broker's record of it."""
        ...

    def opened(self, segment: TierSegment) -> SegmentObjects:
        """Returns the objects of a segment. Reads nothing."""
        ...


def small_object(objects: ObjectStore, key: str, limit: int) -> bytes | None:
    """Returns a small object; None if there is none. Its size is compared with a limit first.

    Raises:
        CorruptionError: it has more bytes than its kind can have.
    """
    found = objects.head(key)
    if found is None:
        return None
    if found.size > limit:
        url = f"{objects.url}/{key}"
        message = f"{url} has {found.size} bytes, more than the {limit} that it can have; restore the object"
        raise CorruptionError(message, path=url, position=limit)
    return bytes(objects.get(key)[0])
