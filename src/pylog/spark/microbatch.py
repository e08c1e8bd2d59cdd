"""One micro-batch of a stream: where it ends, and which offsets of each partition it reads. Decided on plain data.

The end is decided once and written into Spark's checkpoint. Planning follows, perhaps much later and in another process, when the
topics may have changed. Records deleted in between are a loss, and every loss is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from pylog.record.types import TopicPartition
from pylog.spark.stream_offset import StreamOffset
from pylog.spark.values import named
from pylog.spark.watch import PartitionsSeen


class MicroBatchRange(NamedTuple):
    """The offsets of a partition that a micro-batch reads; none if `end` is not above `start`."""

    start: int
    end: int


class Loss(NamedTuple):
    """A loss of records: a message, and the partition and offset where the loss begins."""

    message: str
    partition: TopicPartition
    offset: int


def begins(start: StreamOffset, seen: PartitionsSeen) -> dict[TopicPartition, int]:
    """Returns where the next micro-batch begins in each partition. New and newly created ones are read from their start.

    Args:
        start: the position of the stream.
        seen: the current partitions and their ends.
    """
    known = _known(start, seen.ids)
    return {partition: known.get(partition, first) for partition, first in seen.starts.items()}


def _known(start: StreamOffset, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """Returns the positions in topics that are still the same."""
    recreated = start.recreated(ids)
    return {partition: offset for partition, offset in start.positions.items() if partition.topic not in recreated}


def ranges(
    start: StreamOffset, end: StreamOffset, seen: PartitionsSeen, dropped: Collection[TopicPartition] = ()
) -> tuple[dict[TopicPartition, MicroBatchRange], list[Loss]]:
    """Returns the ranges that a micro-batch reads, and the losses.

    Args:
        start, end: the start and end of the micro-batch.
        seen: the partitions as they are now.
        dropped: the partitions of the checkpoint that the query's options no longer name. They may still exist.
    """
    deleted = sorted(start.positions.keys() - end.positions.keys())
    losses = [_left(partition, start.positions[partition], partition in dropped) for partition in deleted]
    known, replaced = _known(start, end.ids), end.recreated(seen.ids)
    found: dict[TopicPartition, MicroBatchRange] = {}
    for partition, until in sorted(end.positions.items()):
        if partition in dropped:
            losses.append(_left(partition, start.positions.get(partition, 0), True))
            continue
        if partition not in seen.ends or partition.topic in replaced:
            losses.append(Loss(f"{named(partition)} was deleted since its offsets up to {until} were planned", partition, until))
            continue
        available = MicroBatchRange(seen.starts[partition], seen.ends[partition])
        if partition not in known:
            losses += _late(partition, start.positions.get(partition), available)
        wanted = MicroBatchRange(known.get(partition, available.start), until)
        losses += _missing(partition, wanted, available)
        found[partition] = MicroBatchRange(max(wanted.start, available.start), min(wanted.end, available.end))
    return found, losses


def _left(partition: TopicPartition, offset: int, dropped: bool) -> Loss:
    """Returns the loss in a partition that the checkpoint names and that is not read from there on."""
    if not dropped:
        return Loss(f"{named(partition)} no longer exists", partition, offset)
    message = f"the checkpoint has {named(partition)} at offset {offset}, and the query's options no longer ask for it"
    return Loss(message, partition, offset)


def _late(partition: TopicPartition, was: int | None, available: MicroBatchRange) -> Iterator[Loss]:
    """Yields the loss in a partition that is new, or that was created again after it had been read up to `was`."""
    if was is not None:
        yield Loss(
            f"topic {partition.topic} was deleted and created again, with the records of {named(partition)} from offset {was} on",
            partition,
            was,
        )
    elif available.start > 0:
        yield Loss(f"{named(partition)} is new and begins at offset {available.start}, not at 0", partition, 0)


def _missing(partition: TopicPartition, wanted: MicroBatchRange, available: MicroBatchRange) -> Iterator[Loss]:
    """Yields the losses at both ends of the wanted range."""
    name = named(partition)
    if wanted.end < wanted.start:
        yield Loss(f"{name} ended at {wanted.end} when it had been read up to {wanted.start} already", partition, wanted.end)
        return
    first, last = min(available.start, wanted.end), max(available.end, wanted.start)
    if wanted.start < first:
        yield Loss(f"offsets {wanted.start} to {first} (exclusive) of {name} no longer exist", partition, wanted.start)
    if last < wanted.end:
        yield Loss(f"offsets {last} to {wanted.end} (exclusive) of {name} no longer exist", partition, last)


def summary(losses: Sequence[Loss]) -> str:
    """Returns a text about the first ten losses, and how many more there are.

    >>> summary([Loss("a-0 no longer exists", TopicPartition("a", 0), 7)])
    'a-0 no longer exists'
    """
    shown = [loss.message for loss in losses[:10]]
    return "; ".join(shown) if len(losses) <= 10 else f"{'; '.join(shown)}; and {len(losses) - 10} more"


def is_news(ends: Mapping[TopicPartition, int], start: StreamOffset, ids: Mapping[str, str]) -> bool:
    """Returns whether a micro-batch that ends there has anything to read or to report.

    Args:
        ends: the ends of the micro-batch.
        start: the start of the micro-batch.
        ids: the topics' current ids.

    >>> part = TopicPartition("a", 0)
    >>> is_news({part: 7}, StreamOffset({part: 7}), {})
    False
    """
    return dict(ends) != dict(start.positions) or bool(start.recreated(ids))
