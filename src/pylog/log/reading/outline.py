"""A partition in numbers: where it begins and ends, which segments it has and how large they are.

That is all that who plans a read asks of most partitions. A log that is open has it; without one it costs a directory listing
and the end of the last segment, found as opening finds it, and a segment is looked into only where a range is to be cut inside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pylog.clock import Clock
from pylog.index.offset_index import OffsetIndex

if TYPE_CHECKING:
    from pylog.log.recovery.loaded import Source
    from pylog.log.state import LogState


class Indexed(Protocol):
    """A segment, as far as who cuts a range asks it."""

    def offset_index(self) -> OffsetIndex: ...


class PartitionExtent(NamedTuple):
    """A partition at one moment.

    Attributes:
        start_offset: the smallest offset that may be read.
        end_offset: the offset behind the last published record.
        bases: base offsets of its segments, ascending.
        sizes: bytes of each that may be read.
        segment: makes the segment of an index.
        remote_offsets: those before the start that only a broker's remote tier has.
    """

    start_offset: int
    end_offset: int
    bases: Sequence[int]
    sizes: Sequence[int]
    segment: Callable[[int], Indexed]
    remote_offsets: range = range(0)


def outline_of(state: LogState) -> PartitionExtent:
    """The outline of a log that is open. Cost: O(n) in its segments."""
    segments = [segment for segment in state.segments.values() if segment.base_offset < max(state.end_offset, 1)]
    bases = [segment.base_offset for segment in segments]
    sizes = [state.size_of(segment) for segment in segments]
    return PartitionExtent(state.start_offset, state.end_offset, bases, sizes, segments.__getitem__, state.remote_offsets)


def outline_at(source: Source, clock: Clock) -> PartitionExtent:
    """The outline of a partition that nobody has open, as `Log` would find it now.

    Args:
        source: the partition.
        clock: for waiting while segments come and go.

    Raises:
        UnknownTopicOrPartitionError: it is not there.
        StorageFailedError: it cannot be read.
    """
    from pylog.log.reading.follower import load_live  # the engine with its kernels: `glance` does without them where it can
    from pylog.log.state import published_ends

    loaded = load_live(dataclasses.replace(source, writable=False), clock)
    position, end_offset = published_ends(loaded)
    found = loaded.segments
    sizes = [*found.sizes[:-1], position] if found else []
    start = min(loaded.start_offset, end_offset)
    remote = range(0) if loaded.remote_start is None else range(loaded.remote_start, start)
    return PartitionExtent(start, end_offset, found.bases, sizes, found.__getitem__, remote)
