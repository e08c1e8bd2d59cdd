"""One micro-batch of a stream: where it ends, and what of each partition it reads. Decided on plain data.

Where it ends is decided once, written into Spark's checkpoint, and planned after that: perhaps much later, by another
process, when the topics are no longer what they were. What has gone until then is a loss, and every loss is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pylog.record.types import TopicPartition
from pylog.spark.stream_offset import StreamOffset
from pylog.spark.values import named
from pylog.spark.watch import Sight


class Range(NamedTuple):
    """What of a partition a micro-batch reads; nothing if `end` is not above `start`."""

    start: int
    end: int


class Loss(NamedTuple):
    """What is not there any more: a sentence, and the partition and offset where it begins."""

    message: str
    partition: TopicPartition
    offset: int


def begins(start: StreamOffset, sight: Sight) -> dict[TopicPartition, int]:
    """Where the next micro-batch begins in each partition that is there: a new one, and one made again, is read from its start.

    Args:
        start: where the stream has got to.
        sight: what there is.
    """
    recreated = start.recreated(sight.ids)
    known = {part: offset for part, offset in start.positions.items() if part.topic not in recreated}
    return {part: known.get(part, first) for part, first in sight.starts.items()}


def ranges(start: StreamOffset, end: StreamOffset, sight: Sight) -> tuple[dict[TopicPartition, Range], list[Loss]]:
    """What a micro-batch reads, and what it should have read but cannot.

    Args:
        start, end: of the micro-batch.
        sight: what there is now.
    """
    losses = [Loss(f"{named(part)} is gone", part, start.positions[part]) for part in _gone(start, end)]
    replaced = end.recreated(sight.ids)
    found: dict[TopicPartition, Range] = {}
    for part, until in sorted(end.positions.items()):
        if part not in sight.ends or part.topic in replaced:
            losses.append(Loss(f"{named(part)} has gone since its offsets up to {until} were planned", part, until))
            continue
        wanted = Range(_begin(part, start, end, sight), until)
        losses += _losses(part, wanted, start, end, sight)
        found[part] = Range(max(wanted.start, sight.starts[part]), min(until, sight.ends[part]))
    return found, losses


def _gone(start: StreamOffset, end: StreamOffset) -> list[TopicPartition]:
    return sorted(start.positions.keys() - end.positions.keys())


def _begin(part: TopicPartition, start: StreamOffset, end: StreamOffset, sight: Sight) -> int:
    """As `begins`, of a micro-batch that was decided before."""
    known = part in start.positions and part.topic not in start.recreated(end.ids)
    return start.positions[part] if known else sight.starts[part]


def _losses(part: TopicPartition, wanted: Range, start: StreamOffset, end: StreamOffset, sight: Sight) -> Iterator[Loss]:
    name, first, last = named(part), sight.starts[part], sight.ends[part]
    if part in start.positions and part.topic in start.recreated(end.ids):
        was = start.positions[part]
        yield Loss(f"topic {part.topic} was deleted and made again: what {name} had from offset {was} on is gone", part, was)
    elif part not in start.positions and first > 0:
        yield Loss(f"{name} is new and begins at offset {first}, not at 0", part, 0)
    if wanted.end < wanted.start:
        yield Loss(f"{name} ended at {wanted.end} when it had been read up to {wanted.start} already", part, wanted.end)
        return
    if wanted.start < min(first, wanted.end):
        yield Loss(f"offsets {wanted.start} to {min(first, wanted.end)} (exclusive) of {name} are gone", part, wanted.start)
    if wanted.end > max(last, wanted.start):
        yield Loss(f"offsets {max(last, wanted.start)} to {wanted.end} (exclusive) of {name} are gone", part, last)


def summary(losses: Sequence[Loss]) -> str:
    """As many of them as a person reads, in one sentence.

    >>> summary([Loss("a-0 is gone", TopicPartition("a", 0), 7)])
    'a-0 is gone'
    """
    shown = [loss.message for loss in losses[:10]]
    return "; ".join(shown) if len(losses) <= 10 else f"{'; '.join(shown)}; and {len(losses) - 10} more"


def is_news(ends: Mapping[TopicPartition, int], start: StreamOffset, sight: Sight) -> bool:
    """Whether a micro-batch that ends there has anything to read, or to tell.

    >>> part = TopicPartition("a", 0)
    >>> is_news({part: 7}, StreamOffset({part: 7}), Sight({}, {}, {}, {}))
    False
    """
    return dict(ends) != dict(start.positions) or bool(start.recreated(sight.ids))
