"""Finds one record, by offset or by time (storage-format 5.8, 6.4)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from pylog import limits
from pylog.errors import CorruptionError, OffsetOutOfRangeError, StorageFailedError
from pylog.fs import base_name
from pylog.log.arguments import offset_given
from pylog.log.reading import good_batches, reader
from pylog.log.reading.good_batches import OffsetRange
from pylog.log.recovery.tier import in_tier
from pylog.log.state import LogState
from pylog.record import finding, kernels
from pylog.record.arrays import numbers_of
from pylog.record.batch import Bytes
from pylog.record.decoder import RecordDecoder
from pylog.record.format import FRAME_SIZE, LEADER_EPOCH, LOG_OVERHEAD, MAX_TIMESTAMP, OFFSETS_AND_LENGTH
from pylog.record.records import RECORD_COLUMNS, records_of
from pylog.record.rows import NO_BYTES
from pylog.record.types import OffsetAndTimestamp, Record, TopicPartition
from pylog.segment.segment import LogSegment

Answer = TypeVar("Answer")
MAY_PASS: Final = (CorruptionError, OffsetOutOfRangeError, StorageFailedError)  # if the log was changed during the read


def read_one(state: LogState, partition: TopicPartition, offset: int) -> Record:
    """Returns the record at an offset, or in a gap the next one.

    Raises:
        OffsetOutOfRangeError: the offset is before the log start or past the last record, or only control records follow.
        CorruptionError: the record's batch is damaged.

    Cost: O(log n) and one batch; about 6 µs from a mapped segment.
    """
    if not state.start_offset <= offset < state.end_offset:
        raise out_of_range(state, partition, offset)
    pair = state.segments.floor(offset)
    hit = None if pair is None else _find(state, pair[1], _Question(offset, offset))
    record = None if hit is None or hit.fields[finding.F_OFFSET] >= state.end_offset else _record_of(hit, partition)
    if record is not None:
        return record
    for frame in reader.scan(
        state, OffsetRange(offset, state.end_offset), RECORD_COLUMNS, committed=False, max_rows=1, verify=True
    ):
        return records_of(frame, *partition)[0]
    raise OffsetOutOfRangeError(
        f"{name(partition)} has no record at or after offset {offset}, only control records", offset=offset
    )


def of_live(refresh: Callable[..., LogState], state: LogState, question: Callable[[LogState], Answer]) -> Answer:
    """Returns the result of a search. A search that fails is repeated while other processes change the log (reliability 11e)."""
    while True:
        try:
            return question(state)
        except MAY_PASS:
            now = refresh(wait=True)
            if now.version == state.version:
                raise
            state = now


class _Question(msgspec.Struct, frozen=True, gc=False):
    """The search condition: the offset for the index, and the least offset and timestamp of the record."""

    from_offset: int
    offset: int
    timestamp: int = finding.ANY_TIMESTAMP
    controls: bool = False


class _Hit(msgspec.Struct, frozen=True, gc=False):
    """A record found by the kernel, with its bytes."""

    buffer: Bytes
    fields: list[int]


def _find(state: LogState, segment: LogSegment, question: _Question) -> _Hit | None:
    """Returns the record if it is in a sound, uncompressed batch; else None, and the general search decides."""
    index = segment.offset_index()
    end = state.size_of(segment)
    buffer = segment.file().mapping
    if buffer is None:
        hit = _find_reading(segment, index.lookup(question.from_offset).position, end, question)
        return None if hit is None else _fitting(hit, state, segment, end)
    result = np.empty(finding.F_SIZE, np.int64)
    status = finding.find_record(
        buffer,
        index.table,
        index.count,
        segment.base_offset,
        question.from_offset,
        end,
        question.offset,
        question.timestamp,
        question.controls,
        result,
    )
    return _fitting(_Hit(buffer, result.tolist()), state, segment, end) if status == kernels.OK else None


def _fitting(hit: _Hit, state: LogState, segment: LogSegment, end: int) -> _Hit | None:
    """Returns the hit, unless its batch is a segment's last one and reaches into the next segment: its offset may be wrong."""
    if hit.fields[finding.F_NEXT_AT] < end:
        return hit
    return hit if hit.fields[finding.F_LAST_OFFSET] < state.end_of(segment) else None


def _find_reading(segment: LogSegment, position: int, end: int, question: _Question) -> _Hit | None:
    """Searches a segment that is not mapped: reads from the index's position until it has the record."""
    file = segment.file()
    size = limits.LOOKUP_CHUNK_BYTES
    result = np.empty(finding.F_SIZE, np.int64)
    hinted = position > 0
    while position < end:
        chunk = file.read(position, min(size, end - position))
        if hinted and int.from_bytes(chunk.data[:8], "big", signed=True) > question.from_offset:
            return None  # the index entry is after the record
        hinted = False
        status = finding.find_record(
            chunk, NO_BYTES, 0, segment.base_offset, 0, len(chunk), question.offset, question.timestamp, question.controls, result
        )
        more = len(chunk) == size and position + len(chunk) < end  # a file truncated by another process ends earlier
        if status == kernels.OK and len(chunk) - int(result[finding.F_NEXT_AT]) < FRAME_SIZE and more:
            position, size = position + int(result[finding.F_BATCH_AT]), size + limits.LOOKUP_CHUNK_BYTES
            continue  # read the next batch too, which confirms the offsets
        if status == kernels.OK:
            if segment.published is not None and not _is_gapless(segment, chunk, position, int(result[finding.F_BATCH_AT])):
                return None  # the walk compares the headers with the digest of the log
            result[finding.F_NEXT_AT] += position
            return _Hit(chunk, result.tolist())
        done = int(result[finding.F_BATCH_AT])
        if status not in (kernels.TORN, kernels.NOT_FOUND) or (done == 0 and len(chunk) < size):
            return None
        position += done
        size = limits.LOOKUP_CHUNK_BYTES if done else 4 * size
    return None


def _is_gapless(segment: LogSegment, chunk: Bytes, position: int, end: int) -> bool:
    """Returns whether batches follow each other from a position in an active segment to the one at `end` in a chunk."""
    headers = chunk.data
    base, length, delta = OFFSETS_AND_LENGTH.unpack_from(headers)
    if position and segment.offset_index().lookup(base + delta) != (base + delta, position):
        return False
    if not position and base != segment.base_offset:
        return False
    at = 0
    while at < end:
        at, expected = at + LOG_OVERHEAD + length, base + delta + 1
        base, length, delta = OFFSETS_AND_LENGTH.unpack_from(headers, at)
        if base != expected:
            return False
    return True


def _record_of(hit: _Hit, partition: TopicPartition) -> Record | None:
    """Returns the record as an object; None if it has headers, which the general search reads."""
    offset, timestamp, key_at, key_size, value_at, value_size, headers_at, *_ = hit.fields
    data = hit.buffer.data
    if data[headers_at]:
        return None
    key = None if key_size < 0 else bytes(data[key_at : key_at + key_size])
    value = None if value_size < 0 else bytes(data[value_at : value_at + value_size])
    return Record(partition.topic, partition.partition, offset, timestamp, key, value)


def name(partition: TopicPartition) -> str:
    """Returns the name of a partition for messages."""
    return f"{partition.topic}-{partition.partition}"


def out_of_range(state: LogState, partition: TopicPartition, offset: int) -> OffsetOutOfRangeError:
    """Returns the error for an offset that is not in the log."""
    if offset in state.remote_offsets:
        return in_tier(name(partition), state.remote_offsets, offset)
    return OffsetOutOfRangeError(f"offset {offset} is out of range for {name(partition)}, {held_by(state)}", offset=offset)


def held_by(state: LogState) -> str:
    """Returns which offsets a log has, for messages."""
    start, end = state.start_offset, state.end_offset
    return f"which holds offsets {start} to {end - 1}" if end > start else f"which is empty; its next offset is {end}"


def wanted(state: LogState, partition: TopicPartition, start: int | None, end: int | None, last: int) -> OffsetRange:
    """Returns a checked range of offsets; the defaults are the log start and `last`."""
    first = state.earliest(partition) if start is None else offset_given("start", start)
    stop = last if end is None else offset_given("end", end)
    if not state.start_offset <= first <= state.end_offset:
        raise out_of_range(state, partition, first)
    if stop > state.end_offset:
        raise out_of_range(state, partition, stop)
    return OffsetRange(first, min(stop, last))


# ---- by time -----------------------------------------------------------------------------------------------------------------


class _Sealed(NamedTuple):
    """The sealed segments of a log, their largest timestamps, and the running maximum."""

    of: object
    active: LogSegment | None
    segments: list[LogSegment]
    largest: list[int]
    maxima: list[int]


def _has_earlier(state: LogState, found: OffsetAndTimestamp | None) -> bool:
    """Returns whether a local record is before the result; then the remote records, which are older, are before it too."""
    end = state.end_offset if found is None else found.offset
    wanted = OffsetRange(state.start_offset, end)
    return any(True for _ in reader.scan(state, wanted, ("offset",), committed=False, max_rows=1, verify=False))


class TimeSearch:
    """Searches a log by time. Keeps the sealed segments' largest timestamps, so that a search costs O(log n), not O(n)."""

    def __init__(self) -> None:
        self._known = _Sealed(None, None, [], [], [])

    def find(self, state: LogState, timestamp: int, *, committed: bool) -> OffsetAndTimestamp | None:
        """Returns the first record at or after a timestamp, if it is below the log end (`committed`: the last stable offset).

        Args:
            state: the log.
            timestamp: milliseconds since 1970. A record without a timestamp is never returned.
            committed: true to return only records below the last stable offset.

        Raises:
            OffsetOutOfRangeError: all local records are at or after the timestamp, and earlier ones are in remote storage.

        Kafka searches only the first segment whose largest timestamp is late enough (storage-format 5.8.2). Its record may have
        been deleted or compacted, or be below the log start. So this search continues with each later segment.
        """
        found = self._find(state, timestamp, committed=committed)
        if state.remote_start is not None and state.remote_offsets and not _has_earlier(state, found):
            assert state.active is not None
            raise in_tier(base_name(state.active.directory), state.remote_offsets, state.remote_offsets.start)
        return found

    def _find(self, state: LogState, timestamp: int, *, committed: bool) -> OffsetAndTimestamp | None:
        """Returns the first local record at or after a timestamp."""
        last = state.stable_offset if committed else state.end_offset
        found, sealed, active = None, self._sealed(state), state.active
        for at in range(bisect_left(sealed.maxima, timestamp), len(sealed.segments)):
            if sealed.largest[at] >= timestamp:
                found = _in_segment(state, sealed.segments[at], timestamp)
            if found is not None:
                break
        if found is None and active is not None and _largest(active) >= timestamp:
            found = _in_segment(state, active, timestamp)
        return found if found is not None and found.offset < last else None

    def _sealed(self, state: LogState) -> _Sealed:
        known = self._known
        if known.active is not state.active or known.of is not state.segments:
            segments = [segment for _, segment in state.segments if segment is not state.active]
            largest = [_largest(segment) for segment in segments]
            known = self._known = _Sealed(state.segments, state.active, segments, largest, list(accumulate(largest, max)))
        return known


def _largest(segment: LogSegment) -> int:
    """Returns an upper bound of the timestamps in a segment."""
    largest = segment.largest_timestamp()
    return limits.INT64_MAX if segment.index_ends_early else largest


def _in_segment(state: LogState, segment: LogSegment, timestamp: int) -> OffsetAndTimestamp | None:
    """Returns the first record of a segment at or after the timestamp (5.8.1)."""
    status, hit = _find_by_time(state, segment, timestamp)
    if hit is not None or status == kernels.NOT_FOUND:
        return None if hit is None else _answer(hit)
    entry = segment.time_entry(timestamp)
    question = _Question(max(entry.offset, state.start_offset), state.start_offset, timestamp, controls=True)
    hit = _find(state, segment, question)
    if hit is not None:
        return _answer(hit)
    following = state.segments.higher(segment.base_offset) if segment is not state.active else None
    end = state.end_offset if following is None else following[0]
    start = max(question.from_offset, segment.base_offset)
    return _first_at_or_after(state, OffsetRange(start, end), timestamp) if start < end else None


def _find_by_time(state: LogState, segment: LogSegment, timestamp: int) -> tuple[int, _Hit | None]:
    """Searches a mapped segment with a sound time index. Returns the hit and the kernel's status.

    NOT_FOUND means that the segment has no such record; any other status without a hit is inconclusive.
    """
    buffer = segment.file().mapping
    if buffer is None:
        return kernels.NOT_PLAIN, None
    index, times, end = segment.offset_index(), segment.time_index(), state.size_of(segment)
    result = np.empty(finding.F_SIZE, np.int64)
    status = finding.find_by_time(
        buffer,
        index.table,
        index.count,
        times.table,
        times.count,
        segment.base_offset,
        end,
        state.start_offset,
        timestamp,
        result,
    )
    if status == kernels.NOT_FOUND and (segment.index_ends_early or buffer.size < end):
        return kernels.TORN, None
    return status, _fitting(_Hit(buffer, result.tolist()), state, segment, end) if status == kernels.OK else None


def _answer(hit: _Hit) -> OffsetAndTimestamp:
    epoch = hit.fields[finding.F_LEADER_EPOCH]
    return OffsetAndTimestamp(hit.fields[finding.F_OFFSET], hit.fields[finding.F_TIMESTAMP], None if epoch < 0 else epoch)


def _first_at_or_after(state: LogState, wanted: OffsetRange, timestamp: int) -> OffsetAndTimestamp | None:
    """Returns the first record at or after a timestamp, control records included. Opens only batches that may have one."""
    for _, buffer, table, _ in good_batches.good_batches(state, wanted):
        for batch in np.flatnonzero(table[MAX_TIMESTAMP] >= timestamp).tolist():
            single = np.ascontiguousarray(table[:, batch : batch + 1])
            decoder = RecordDecoder(("offset", "timestamp"), start=state.start_offset, max_rows=limits.INT32_MAX)
            for frame in (*decoder.feed(buffer, single), *decoder.finish()):
                stamps = numbers_of(frame.column(1), np.int64)
                later = np.flatnonzero(stamps >= timestamp)
                if later.size:
                    epoch = int(single[LEADER_EPOCH, 0])
                    offset = int(frame.column(0)[int(later[0])].as_py())
                    return OffsetAndTimestamp(offset, int(stamps[later[0]]), None if epoch < 0 else epoch)
    return None
