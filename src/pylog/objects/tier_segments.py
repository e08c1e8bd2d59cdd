"""Decides which segments of a broker's remote tier are a partition's log (KIP-405). Pure: reads nothing.

A leader that died during a copy leaves segments that overlap those of the next leader, and a leader that lost its last records
leaves segments that never became part of the log. As in Kafka's own search, a segment counts if each of its leader epochs has the
same offsets in the log's leader epochs. These begin at the log start, which may lie inside a segment: what the segment has before
it does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pylog import limits
from pylog.directory.leader_epoch_cache import EpochEntry


class TierSegment(NamedTuple):
    """A segment in a remote tier.

    Attributes:
        segment_id: random, 22 characters of base64url.
        base_offset: its first offset.
        end_offset: the offset after its last one.
        size: bytes of its `.log`.
        epochs: its leader epochs, ascending, each with its first offset in the segment.
        stem: the key of its objects without their suffixes.
    """

    segment_id: str
    base_offset: int
    end_offset: int
    size: int
    epochs: tuple[EpochEntry, ...]
    stem: str = ""


class Served(NamedTuple):
    """A part of the log: `segment` from its base offset up to `end_offset`. None if no segment of the tier has the offsets."""

    base_offset: int
    end_offset: int
    segment: TierSegment | None


def impossible(base_offset: int, end_offset: int, epochs: Sequence[EpochEntry]) -> str | None:
    """Returns why no segment can have such offsets and leader epochs, in words; None if one can.

    Args:
        base_offset, end_offset: its offsets.
        epochs: its leader epochs, sorted.

    >>> impossible(10, 20, [EpochEntry(0, 10), EpochEntry(1, 12)]), impossible(10, 20, [EpochEntry(0, 12), EpochEntry(1, 10)])
    (None, 'has the leader epochs 0 and 1, whose offsets 12 and 10 do not rise')
    """
    if not 0 <= base_offset < end_offset <= limits.INT64_MAX:
        return f"has a segment from offset {base_offset} to before offset {end_offset}"
    for epoch, start in epochs:
        if epoch < 0 or not base_offset <= start < end_offset:
            return f"has the leader epoch {epoch} from offset {start} on, in a segment from {base_offset} to before {end_offset}"
    for low, high in pairwise(epochs):
        if low.epoch == high.epoch or low.start_offset >= high.start_offset:
            offsets = f"whose offsets {low.start_offset} and {high.start_offset} do not rise"
            return f"has the leader epochs {low.epoch} and {high.epoch}, {offsets}"
    return None


def newest(segments: Sequence[TierSegment]) -> TierSegment | None:
    """Returns the segment of the latest leader that reaches furthest. A tier without a local log has its leader epochs."""
    return max(segments, key=lambda each: (each.epochs[-1].epoch if each.epochs else -1, each.end_offset), default=None)


def on_lineage(segment: TierSegment, epochs: Sequence[EpochEntry], log_end: int) -> bool:
    """Returns whether a segment is part of the log with these leader epochs.

    Args:
        segment: the tier's segment.
        epochs: the log's leader epochs, ascending.
        log_end: the log end offset.

    >>> of = lambda *epochs: TierSegment("x", 0, 10, 100, tuple(EpochEntry(*each) for each in epochs))
    >>> log = [EpochEntry(0, 0), EpochEntry(2, 6)]
    >>> on_lineage(of((0, 0), (2, 6)), log, 20), on_lineage(of((0, 0)), log, 20), on_lineage(of((1, 0)), log, 20)
    (True, False, False)
    >>> on_lineage(of((0, 0), (2, 6)), [EpochEntry(2, 8)], 20)  # the records before offset 8 were deleted
    True
    """
    spans = {epoch: (start, end) for epoch, start, end in _spans(epochs, log_end)}
    first = epochs[0].epoch if epochs else 0
    own = [span for span in _spans(segment.epochs, segment.end_offset) if span[0] >= first and span[1] < span[2]]
    if not own or segment.end_offset > log_end:
        return False
    if first in spans:
        spans[first] = 0, spans[first][1]  # its first records may have been deleted since, or before the segment was copied
    return all(epoch in spans and spans[epoch][0] <= start and end <= spans[epoch][1] for epoch, start, end in own)


def _spans(epochs: Iterable[EpochEntry], end: int) -> Iterator[tuple[int, int, int]]:
    for (epoch, start), (_, following) in pairwise((*epochs, EpochEntry(limits.INT32_MAX, end))):
        yield epoch, start, following


def cover(segments: Iterable[TierSegment], start: int, end: int | None) -> list[Served]:
    """Covers a range of offsets by as few segments as possible, each used from its base offset on.

    Args:
        segments: those on the lineage; they may overlap.
        start: the log start offset.
        end: where the local log begins; None for a tier without a local log, which ends with its segments.

    Returns:
        The parts in order, without a gap. The first one may begin before `start`.

    >>> a, b, c = (TierSegment(name, base, end, 1, ()) for name, base, end in [("a", 0, 10), ("b", 8, 20), ("c", 25, 30)])
    >>> [(part.base_offset, part.end_offset, part.segment and part.segment.segment_id) for part in cover([a, b, c], 0, 30)]
    [(0, 8, 'a'), (8, 20, 'b'), (20, 25, None), (25, 30, 'c')]
    """
    usable = sorted(each for each in segments if each.end_offset > max(start, each.base_offset))
    if end is None:
        end = max((each.end_offset for each in usable), default=start)
    usable = sorted((each for each in usable if each.base_offset < end), key=lambda each: (each.base_offset, -each.end_offset))
    if not usable:
        return [Served(start, end, None)] if start < end else []
    found: list[Served] = []
    at, position = start, 0
    while at < end:
        best: TierSegment | None = None
        while position < len(usable) and usable[position].base_offset <= at:
            if best is None or usable[position].end_offset > best.end_offset:
                best = usable[position]
            position += 1
        if best is None or best.end_offset <= at:
            following = usable[position].base_offset if position < len(usable) else end
            found.append(Served(at, following, None))
            at = following
            continue
        if found:  # the one before ends where this one begins
            found[-1] = found[-1]._replace(end_offset=best.base_offset)
        found.append(Served(best.base_offset, min(best.end_offset, end), best))
        at = best.end_offset
    return [part for part in found if part.base_offset < part.end_offset]
