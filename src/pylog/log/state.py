"""`LogState`: an immutable snapshot of a log for readers. A writer publishes a new one by assigning a reference; no locks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pylog.log.durable_point import FAILED
from pylog.log.recovery.loaded import Loaded
from pylog.log.recovery.tier import in_tier
from pylog.log.segment_view import SegmentInfo, SegmentView
from pylog.record.types import TopicPartition
from pylog.segment.segment import LogSegment


class LogState(msgspec.Struct, frozen=True):
    """A log's ends and segments.

    Attributes:
        segments: the segments of this state, oldest first. They never grow or shrink.
        active: the active segment (in a log opened for reading, the last one); None if there are no segments.
        active_size: published bytes of the active segment.
        start_offset: the log start offset: the smallest offset that may be read.
        end_offset: the offset after the last published record: log end offset and high watermark.
        durable_offset: records below it are synced.
        first_unstable_offset: first offset of the earliest open transaction, or None.
        epoch: the header's epoch at that time. It changes when segments are added, deleted or replaced.
        truncation_count: the number of truncations so far.
        replacements: how often this process has noticed that a program without a header has replaced or deleted files.
        remote_start: the log start offset in a broker's remote storage; None if the log is complete here.
    """

    segments: SegmentView
    active: LogSegment | None
    active_size: int
    start_offset: int
    end_offset: int
    durable_offset: int
    first_unstable_offset: int | None = None
    epoch: int = 0
    truncation_count: int = 0
    remote_start: int | None = None
    replacements: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes whenever segments are added, deleted or replaced."""
        return self.epoch, self.replacements

    @property
    def remote_offsets(self) -> range:
        """The offsets that are only in a broker's remote storage."""
        return range(0) if self.remote_start is None else range(self.remote_start, self.start_offset)

    def earliest(self, partition: TopicPartition) -> int:
        """Returns the offset where reading from the beginning starts.

        Raises:
            OffsetOutOfRangeError: it is in remote storage.
        """
        remote = self.remote_offsets
        if remote:
            raise in_tier(f"{partition.topic}-{partition.partition}", remote, remote.start)
        return self.start_offset

    @property
    def stable_offset(self) -> int:
        """The last stable offset, where `read_committed` reading ends (storage-format 6.7.2)."""
        return self.end_offset if self.first_unstable_offset is None else max(self.start_offset, self.first_unstable_offset)

    def size_of(self, segment: LogSegment) -> int:
        """Returns the number of bytes of a segment that this state may read."""
        return self.active_size if segment is self.active else segment.size

    def from_offset(self, offset: int) -> Iterator[tuple[LogSegment, int]]:
        """Yields the segment that may have `offset`, and later ones, each with the offset after its records. O(log n)."""
        found = self.segments.floor(offset) or self.segments.first
        while found is not None and found[0] < max(self.end_offset, 1):
            following = self.segments.higher(found[0])
            yield found[1], self.end_offset if following is None else following[0]
            found = following

    def end_of(self, segment: LogSegment) -> int:
        """Returns the offset after a segment's records: the next segment's base offset, or the log end."""
        following = self.segments.higher(segment.base_offset)
        return self.end_offset if following is None else following[0]

    def described(self) -> tuple[SegmentInfo, ...]:
        """Returns offsets and sizes of the segments, oldest first. Cost: O(n)."""
        found = self.segments.values()
        ends = [*(segment.base_offset for segment in found[1:]), self.end_offset]
        return tuple(
            SegmentInfo(each.base_offset, end, self.size_of(each), each.path) for each, end in zip(found, ends, strict=False)
        )


def first_state(loaded: Loaded) -> LogState:
    """Returns the state of a log that was just loaded."""
    active = loaded.segments[-1] if loaded.segments else None
    if active is not None:
        active.builder = loaded.builder
    slot = loaded.slot
    end, next_offset = published_ends(loaded)
    return LogState(
        SegmentView(zip(loaded.segments.bases, loaded.segments, strict=True)),
        active,
        end,
        min(loaded.start_offset, next_offset),
        next_offset,
        min(loaded.durable_offset, next_offset),
        None if loaded.producers is None else loaded.producers.first_unstable_offset,
        0 if slot is None else slot.epoch,
        0 if slot is None else slot.truncation_count,
        loaded.remote_start,
    )


def published_ends(loaded: Loaded) -> tuple[int, int]:
    """Returns the end that readers may see: unpublished bytes of this boot may be in memory only."""
    slot = loaded.slot
    if slot is None or not loaded.same_boot or slot.active_base != loaded.segments[-1].base_offset:
        return loaded.end, loaded.next_offset
    failed = slot.flags & FAILED
    position, offset = (
        (slot.durable_position, slot.durable_offset) if failed else (slot.published_position, slot.published_offset)
    )
    return (position, offset) if position < loaded.end else (loaded.end, loaded.next_offset)
