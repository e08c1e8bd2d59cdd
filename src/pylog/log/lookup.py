"""Finding one record: at an offset, or by time (storage-format 5.8, 6.4)."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import OffsetOutOfRangeError
from pylog.log import reader
from pylog.log.reader import Wanted
from pylog.log.state import LogState
from pylog.record import kernels
from pylog.record.decoder import RECORD_COLUMNS, RecordDecoder, records_of
from pylog.record.format import LEADER_EPOCH, MAX_TIMESTAMP
from pylog.record.types import OffsetAndTimestamp, Record, TopicPartition
from pylog.segment.segment import LogSegment


def read_one(state: LogState, partition: TopicPartition, offset: int) -> Record:
    """The record at an offset, or in a log with gaps the first one behind it.

    Raises:
        OffsetOutOfRangeError: before the log's start, at or beyond its end, or nothing but control records follows.
        CorruptionError: the record's batch is not what was written.

    Cost: O(log n) and one batch; about 6 µs from a mapped segment.
    """
    if not state.start_offset <= offset < state.end_offset:
        raise out_of_range(state, partition, offset)
    found = _find_plain(state, partition, offset)
    if found is not None:
        return found
    for frame in reader.scan(state, Wanted(offset, state.end_offset), RECORD_COLUMNS, committed=False, max_rows=1, verify=True):
        return records_of(frame, *partition)[0]
    raise OffsetOutOfRangeError(
        f"{name(partition)} has no record at or behind offset {offset}, only control records", offset=offset
    )


def _find_plain(state: LogState, partition: TopicPartition, offset: int) -> Record | None:
    """The same from one kernel call, where the segment is mapped and the record lies in an uncompressed batch."""
    pair = state.segments.floor(offset)
    if pair is None:
        return None
    segment = pair[1]
    buffer = segment.file().mapping
    if buffer is None:
        return None
    index = segment.offset_index()
    result = np.empty(kernels.F_SIZE, np.int64)
    size = state.size_of(segment)
    if kernels.find_record(buffer, index.table, index.count, segment.base_offset, size, offset, result) != kernels.OK:
        return None  # the slow way finds out what it is
    found, timestamp, key_at, key_size, value_at, value_size, headers_at, _ = result.tolist()
    if found >= state.end_offset or buffer[headers_at]:
        return None
    key = None if key_size < 0 else buffer[key_at : key_at + key_size].tobytes()
    value = None if value_size < 0 else buffer[value_at : value_at + value_size].tobytes()
    return Record(partition.topic, partition.partition, found, timestamp, key, value)


def name(partition: TopicPartition) -> str:
    """A partition as messages call it."""
    return f"{partition.topic}-{partition.partition}"


def out_of_range(state: LogState, partition: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    """The error for an offset that the log does not have."""
    return OffsetOutOfRangeError(
        f"offset {offset} is not in {name(partition)}, which has those from {state.start_offset} to before {state.end_offset}",
        offset=offset,
    )


# ---- by time -----------------------------------------------------------------------------------------------------------------


class _Largest(NamedTuple):
    """The running maximum of the sealed segments' largest timestamps; the segments it was made of."""

    segments: list[LogSegment]
    maxima: NDArray[np.int64]


class TimeSearch:
    """Searches a log by time. Keeps the sealed segments' largest timestamps, so that a search costs O(log n), not O(n)."""

    def __init__(self) -> None:
        self._largest = _Largest([], np.empty(0, np.int64))

    def find(self, state: LogState, timestamp: int) -> OffsetAndTimestamp | None:
        """Kafka's answer: the first record at or after `timestamp` in the first segment whose largest timestamp allows one.

        Where that is nothing only because a segment has no time index entry to go by, the answer is the first such record.

        Args:
            state: the log.
            timestamp: milliseconds, 0 or more.
        """
        sealed = self._sealed(state)
        at = int(np.searchsorted(sealed.maxima, timestamp))
        chosen = sealed.segments[at] if at < len(sealed.segments) else state.active
        if chosen is not None and (chosen is not state.active or chosen.largest_timestamp() >= timestamp):
            found = _in_segment(state, chosen, timestamp)
            if found is not None:
                return found
        looked_at = [
            *sealed.segments[: at + 1],
            *([state.active] if state.active is not None and at >= len(sealed.segments) else []),
        ]
        if any(not len(segment.time_index()) for segment in looked_at):
            return _first_at_or_after(state, Wanted(state.start_offset, state.end_offset), timestamp)
        return None

    def _sealed(self, state: LogState) -> _Largest:
        segments = [segment for _, segment in state.segments if segment is not state.active]
        if len(segments) != len(self._largest.segments) or segments[-1:] != self._largest.segments[-1:]:
            maxima = list(accumulate((segment.largest_timestamp() for segment in segments), max))
            self._largest = _Largest(segments, np.array(maxima, np.int64))
        return self._largest


def _in_segment(state: LogState, segment: LogSegment, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record of a segment with that timestamp or a later one (5.8.1)."""
    following = state.segments.higher(segment.base_offset) if segment is not state.active else None
    end = state.end_offset if following is None else following[0]
    entry = segment.time_index().lookup(timestamp)
    start = max(entry.offset, state.start_offset, segment.base_offset)
    return _first_at_or_after(state, Wanted(start, end), timestamp) if start < end else None


def _first_at_or_after(state: LogState, wanted: Wanted, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record wanted whose timestamp is not below, control records included; opens only batches that can have one."""
    for _, buffer, table, _ in reader.good_batches(state, wanted):
        for batch in np.flatnonzero(table[MAX_TIMESTAMP] >= timestamp).tolist():
            single = np.ascontiguousarray(table[:, batch : batch + 1])
            decoder = RecordDecoder(("offset", "timestamp"), start=state.start_offset, max_rows=limits.INT32_MAX)
            for frame in (*decoder.feed(buffer, single), *decoder.finish()):
                stamps = frame.column(1).view("int64").to_numpy()
                later = np.flatnonzero(stamps >= timestamp)
                if later.size:
                    epoch = int(single[LEADER_EPOCH, 0])
                    offset = int(frame.column(0)[int(later[0])].as_py())
                    return OffsetAndTimestamp(offset, int(stamps[later[0]]), None if epoch < 0 else epoch)
    return None
