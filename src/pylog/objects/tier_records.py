"""Folds a broker's records of its remote segments, in the partitions of `__remote_log_metadata` (KIP-405).

A value is a byte 1, the number of a message and of its version, and the message in Kafka's flexible form. A segment exists once a
record has its state COPY_FINISHED, and no later one begins its deletion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pylog.directory.leader_epoch_cache import EpochEntry
from pylog.directory.partition_metadata import id_text
from pylog.errors import UnsupportedFormatError
from pylog.objects.tier_segments import impossible
from pylog.objects.tier_source import TierPartition
from pylog.record.primitives import Reader, parsing
from pylog.text import counted

TOPIC: Final = "__remote_log_metadata"
COPY_FINISHED: Final = 1
_SEGMENT: Final = 0  # numbers of messages
_UPDATE: Final = 1
_PARTITION_DELETED: Final = 2
_FORMAT: Final = 1


class RecordedSegment(NamedTuple):
    """A segment, as the broker's records have it.

    Attributes:
        partition: the log's partition.
        segment_id: random, 22 characters.
        base_offset, end_offset: the first offset, and the offset after the last one.
        size: bytes of its `.log`.
        epochs: its leader epochs, ascending.
        custom: what the plugin has added; None if nothing.
        state: the copy's state.
    """

    partition: TierPartition
    segment_id: str
    base_offset: int
    end_offset: int
    size: int
    epochs: tuple[EpochEntry, ...]
    custom: bytes | None
    state: int


def fold(values: Iterable[bytes]) -> dict[TierPartition, list[RecordedSegment]]:
    """Returns the segments that are completely copied, by partition.

    Args:
        values: the records' values, in order.

    Returns:
        Also partitions that have had segments and have none now, with an empty list.

    Raises:
        CorruptionError: a record does not parse.
        UnsupportedFormatError: a record is of a later version of Kafka.
    """
    found: dict[TierPartition, dict[str, RecordedSegment]] = {}
    for value in values:
        with parsing("a record", TOPIC):
            _take(found, Reader(value))
    return {
        partition: [segment for segment in segments.values() if segment.state == COPY_FINISHED]
        for partition, segments in found.items()
    }


def _take(found: dict[TierPartition, dict[str, RecordedSegment]], read: Reader) -> None:
    version = read.int8(), read.int8(), read.int8()
    read.flexible = True
    if version == (_FORMAT, _SEGMENT, 0):
        segment = _segment(read)
        found.setdefault(segment.partition, {})[segment.segment_id] = segment
    elif version == (_FORMAT, _UPDATE, 0):
        _update(found, read)
    elif version != (_FORMAT, _PARTITION_DELETED, 0):
        raise UnsupportedFormatError(f"a record of {TOPIC} has the format, message and version {version}, which this pylog lacks")
    elif (partition := _partition(read)) in found:
        found[partition].clear()


def _partition(read: Reader) -> TierPartition:
    topic, topic_id, number = read.text(), id_text(read.uuid()), read.int32()
    read.tags()
    return TierPartition(topic, number, topic_id)


def _segment_id(read: Reader) -> tuple[TierPartition, str]:
    partition, segment_id = _partition(read), id_text(read.uuid())
    read.tags()
    return partition, segment_id


def _segment(read: Reader) -> RecordedSegment:
    partition, segment_id = _segment_id(read)
    base, last = read.int64(), read.int64()
    read.int32()  # the broker's id
    read.int64()  # the largest timestamp, which the time index has too
    read.int64()  # the time of the event
    epochs = tuple(sorted(read.array(lambda: _epoch(read))))
    size, custom, state = read.int32(), read.optional_sized(), read.int8()
    wrong = impossible(base, last + 1, epochs)
    if wrong is not None or size < 0:
        raise IndexError(wrong or f"has a segment of {counted(size, 'byte')}")
    return RecordedSegment(partition, segment_id, base, last + 1, size, epochs, custom, state)


def _epoch(read: Reader) -> EpochEntry:
    entry = EpochEntry(read.int32(), read.int64())
    read.tags()
    return entry


def _update(found: dict[TierPartition, dict[str, RecordedSegment]], read: Reader) -> None:
    partition, segment_id = _segment_id(read)
    read.int32()  # the broker's id
    read.int64()  # the time of the event
    custom, state = read.optional_sized(), read.int8()
    known = found.get(partition, {}).get(segment_id)
    if known is not None:
        found[partition][segment_id] = known._replace(state=state, custom=known.custom if custom is None else custom)
