"""`Tallies`: the records of segments, their codecs and tombstones, from batch headers. An observation reads a bounded part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pylog import limits
from pylog.errors import CorruptionError, OffsetOutOfRangeError
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.counting import HeaderTally, tally
from pylog.log.reading.good_batches import OffsetRange
from pylog.log.state import LogState
from pylog.record.types import TopicPartition
from pylog.segment.segment import LogSegment


class _Counted(NamedTuple):
    """A segment's tally, from `begin` up to `reached`, where damage may end it."""

    segment: LogSegment
    begin: int
    reached: int
    tally: HeaderTally
    is_damaged: bool = False


class _CountedLog(NamedTuple):
    """The segments of a partition that were counted, by base offset. A truncation takes them all back."""

    log: PartitionLog
    truncation_count: int
    segments: dict[int, _Counted]


class Tallies:
    """Keeps the tallies of a store's segments. A sealed segment is counted once, the active one as it grows. Not thread-safe."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _CountedLog] = {}
        self._left = 0  # bytes that this observation may still read

    def begin(self, topics: Iterable[str]) -> None:
        """Begins an observation of these topics."""
        names = frozenset(topics)
        self._partitions = {each: kept for each, kept in self._partitions.items() if each.topic in names}
        self._left = limits.TALLY_BYTES

    def of(self, log: PartitionLog, state: LogState) -> Mapping[int, HeaderTally]:
        """Returns the tallies of the segments that are counted to their end, by base offset.

        A large log is not counted, nor one that is partly in an archive, nor from a damaged batch on.

        Cost: the headers of batches that are new since the last observation, within the bound of all partitions together.
        """
        if state.local is not None or sum(map(state.size_of, state.segments.values())) > limits.LAG_COUNT_BYTES:
            self._partitions.pop(log.partition, None)
            return {}
        known = self._partitions.get(log.partition)
        if known is None or known.log is not log or known.truncation_count != state.truncation_count:
            known = _CountedLog(log, state.truncation_count, {})
        counted = {base: self._counted(log, state, segment, known.segments.get(base)) for base, segment in state.segments}
        self._partitions[log.partition] = known._replace(segments=counted)
        return {base: each.tally for base, each in counted.items() if each.reached == state.end_of(each.segment)}

    def _counted(self, log: PartitionLog, state: LogState, segment: LogSegment, known: _Counted | None) -> _Counted:
        begin = max(segment.base_offset, state.start_offset)
        if known is None or known.segment is not segment or known.begin != begin:
            known = _Counted(segment, begin, begin, HeaderTally())
        end = state.end_of(segment)
        if known.reached >= end or known.is_damaged or self._left <= 0:
            return known
        try:
            wanted = self._within_bound(log, OffsetRange(known.reached, end))
            more = log.answer(partial(tally, wanted=wanted))
        except CorruptionError:
            return known._replace(is_damaged=True)
        except OffsetOutOfRangeError:  # deleted meanwhile
            return known
        return known._replace(reached=wanted.end, tally=known.tally.plus(more))

    def _within_bound(self, log: PartitionLog, wanted: OffsetRange) -> OffsetRange:
        """Returns the beginning of a range that the bound allows to read, at least one offset; and takes it from the bound."""
        while (size := log.size_between(*wanted)) > self._left and wanted.end - wanted.start > 1:
            wanted = OffsetRange(wanted.start, (wanted.start + wanted.end) // 2)
        self._left -= size
        return wanted
