"""`PartitionExtent`: the start, end and segments of a partition, for planning reads.

An open log has these numbers. Otherwise they cost a directory listing and a search for the end of the last segment, as on
opening. A segment's index is read only if a range is split inside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pylog.clock import Clock

if TYPE_CHECKING:
    from pylog.index.offset_index import OffsetIndex
    from pylog.log.recovery.loaded import Source
    from pylog.log.state import LogState


class Indexed(Protocol):
    """The part of a segment that range planning needs."""

    def offset_index(self) -> OffsetIndex: ...


class PartitionExtent(NamedTuple):
    """The extent of a partition at one moment.

    Attributes:
        start_offset: the log start offset.
        end_offset: the offset after the last published record.
        bases: base offsets of its segments, ascending.
        sizes: the readable bytes of each.
        segment: opens the segment with an index.
        remote_offsets: offsets before the start that are only in a broker's remote storage.
    """

    start_offset: int
    end_offset: int
    bases: Sequence[int]
    sizes: Sequence[int]
    segment: Callable[[int], Indexed]
    remote_offsets: range = range(0)


def outline_of(state: LogState) -> PartitionExtent:
    """Returns the extent of an open log. Cost: O(number of segments)."""
    segments = [segment for segment in state.segments.values() if segment.base_offset < max(state.end_offset, 1)]
    bases = [segment.base_offset for segment in segments]
    sizes = [state.size_of(segment) for segment in segments]
    return PartitionExtent(state.start_offset, state.end_offset, bases, sizes, segments.__getitem__, state.remote_offsets)


def outline_at(source: Source, clock: Clock) -> PartitionExtent:
    """Returns the extent of a partition that is not open, as opening would find it now.

    Args:
        source: the partition.
        clock: for waiting while segments change.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
        StorageFailedError: its files cannot be read.
    """
    from pylog.log.reading.follower import load_live  # the engine with its kernels: `fast_outline` does without them where it can
    from pylog.log.state import published_ends

    loaded = load_live(dataclasses.replace(source, writable=False), clock)
    position, end_offset = published_ends(loaded)
    found = loaded.segments
    sizes = [*found.sizes[:-1], position] if found else []
    start = min(loaded.start_offset, end_offset)
    remote = range(0) if loaded.remote_start is None else range(loaded.remote_start, start)
    return PartitionExtent(start, end_offset, found.bases, sizes, found.__getitem__, remote)
