"""Reads segments that Kafka's own `LocalTieredStorage` has written: one object for each file of a segment.

Objects: `<topic>-<partition>-<topic id>/<base>-<segment id>` with `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot` and
`.leader_epoch_checkpoint`. There is no manifest, so a segment's end is known only from the broker's records, or from its batches.
"""

from __future__ import annotations

import re
from typing import Final

from pylog import limits
from pylog.objects.objects import ObjectStore
from pylog.objects.tier_batches import end_offset, epochs_within
from pylog.objects.tier_segments import TierSegment
from pylog.objects.tier_source import TierPartition, small_object
from pylog.segment.names import INDEX, LEADER_EPOCH_CHECKPOINT, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX

_EPOCHS: Final = ".leader_epoch_checkpoint"
_SUFFIXES: Final = {
    **{suffix: suffix for suffix in (INDEX, TIME_INDEX, SNAPSHOT, TRANSACTION_INDEX)},
    LEADER_EPOCH_CHECKPOINT: _EPOCHS,
}
_FOLDER: Final = re.compile(r"(.+)-(\d{1,10})-([A-Za-z0-9_-]{22})")
_NAME: Final = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})\.log")


class LocalTier:
    """The segments that `LocalTieredStorage` wrote. See `TierLayout` for the methods.

    Args:
        objects: the object store, with the directories of the partitions.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def partitions(self) -> set[TierPartition]:
        """Returns the partitions that have a log."""
        folders = {entry.key.rpartition("/")[0] for entry in self._objects.list("") if entry.key.endswith(LOG)}
        matches = (_FOLDER.fullmatch(folder) for folder in folders)
        return {TierPartition(match[1], int(match[2]), match[3]) for match in matches if match is not None}

    def segments(self, partition: TierPartition) -> list[TierSegment]:
        """Returns the segments of a partition. The names have no end, so the last batch of each log is looked up."""
        folder, found = self._folder(partition), []
        for entry in self._objects.list(folder):
            match = _NAME.fullmatch(entry.key.removeprefix(folder))
            if match is not None and entry.size <= limits.MAX_SEGMENT_BYTES:
                found.append(self._listed(entry.key.removesuffix(LOG), int(match[1]), match[2], entry.size))
        return found

    def _listed(self, stem: str, base: int, segment_id: str, size: int) -> TierSegment:
        segment = TierSegment(segment_id, base, base, size, (), stem)
        objects = self.opened(segment)
        end = end_offset(objects, base, size)
        return segment._replace(end_offset=end, epochs=epochs_within(objects, base, end, size))

    def _folder(self, partition: TierPartition) -> str:
        return f"{partition.topic}-{partition.partition}-{partition.topic_id}/"

    def stem(self, partition: TierPartition, base_offset: int, segment_id: str, custom: bytes | None) -> str:  # noqa: ARG002
        """Returns the key of a segment's objects without their suffixes."""
        return f"{self._folder(partition)}{base_offset:020d}-{segment_id}"

    def opened(self, segment: TierSegment) -> LocalTierSegment:
        """Returns the objects of a segment."""
        return LocalTierSegment(self._objects, segment.stem)


class LocalTierSegment:
    """The objects of one segment. See `SegmentObjects`.

    Args:
        objects: the object store.
        stem: the key without a suffix.
    """

    grain: int = 1

    def __init__(self, objects: ObjectStore, stem: str) -> None:
        self._objects = objects
        self._stem = stem
        self.url = f"{objects.url}/{stem}{LOG}"

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns a range of the segment's log."""
        return self._objects.get_range(self._stem + LOG, position, end)

    def small_file(self, suffix: str) -> bytes | None:
        """Returns one of the segment's small files. Cost: two requests."""
        if suffix not in _SUFFIXES:
            return None
        return small_object(self._objects, self._stem + _SUFFIXES[suffix], limits.MAX_SNAPSHOT_BYTES)
