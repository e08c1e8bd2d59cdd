"""Kernels that search: for a good batch after damage, and for a record by offset and timestamp.

The rules of `record.kernels` apply here too.
"""

from __future__ import annotations

from typing import Any, Final

from pylog.record.format import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME_BIT
from pylog.record.kernel import inlined, kernel, shared
from pylog.record.kernels import (
    BAD_CRC,
    BAD_HEADER,
    BAD_RECORD,
    NOT_FOUND,
    NOT_PLAIN,
    OK,
    frame,
    good_crc,
    header_status,
    headers_end,
)
from pylog.record.memory import address, be16, be32, be64, floor64, i64, load8, u64, varint
from pylog.record.signatures import BOOLEAN, BYTES, INT64, OUT_LONGS


@kernel(INT64(BYTES, INT64, INT64, INT64, INT64, OUT_LONGS))
def find_batch(buffer: Any, position: int, end: int, first_offset: int, budget: int, result: Any) -> int:
    """Searches byte by byte for a whole batch with an offset of at least `first_offset`: reading continues there after damage.

    Returns OK for a batch of magic 2 whose CRC is good, NOT_PLAIN for a possible batch of magic 0 or 1, whose CRC the caller must
    check. At most `budget` bytes are hashed, because crafted bytes can look like headers everywhere.
    result = [position, what is left of the budget]; less than 0 if it ended the search.
    """
    start = address(buffer)
    stop = start + min(end, buffer.size)
    at = start + position
    while stop - at >= 26:
        magic = i64(load8(at + 16))
        if magic <= 2:
            status, size = frame(at, stop)
            offset = be64(at)
            if status == OK and first_offset <= offset < first_offset + (1 << 31):
                if magic == 2:
                    if header_status(at) == OK and (be16(at + 21) & 7) <= 4:
                        budget -= size
                        if budget < 0:
                            break
                        if good_crc(at, at + size):
                            result[0] = at - start
                            result[1] = budget
                            return OK
                elif (load8(at + 17) & u64(0xF0)) == u64(0):
                    result[0] = at - start
                    result[1] = budget
                    return NOT_PLAIN
        at += 1
    result[1] = budget
    return NOT_FOUND


# The result of find_record and find_by_time.
F_OFFSET: Final = 0
F_TIMESTAMP: Final = 1
F_KEY_AT: Final = 2
F_KEY_SIZE: Final = 3
F_VALUE_AT: Final = 4
F_VALUE_SIZE: Final = 5
F_HEADERS_AT: Final = 6
F_BATCH_AT: Final = 7
F_LEADER_EPOCH: Final = 8
F_LAST_OFFSET: Final = 9  # last offset of the record's batch
F_NEXT_AT: Final = 10  # position after that batch
F_SIZE: Final = 11

ANY_TIMESTAMP: Final = -(1 << 63)
_TIME_ENTRY_SIZE: Final = 12  # a timestamp, and an offset relative to the segment's


@kernel(
    INT64(BYTES, BYTES, INT64, INT64, INT64, INT64, INT64, INT64, BOOLEAN, OUT_LONGS),
    nogil=False,
    pure="pylog.record.pure_finding:find_record",
)
def find_record(
    buffer: Any,
    index: Any,
    count: int,
    base_offset: int,
    from_offset: int,
    end: int,
    offset: int,
    timestamp: int,
    controls: bool,
    result: Any,
) -> int:
    """Finds the first record at or above an offset and a timestamp: index search, batch, CRC and record in one call.

    `index` holds `count` entries of an offset index, whose positions are hints; the walk begins at the entry for `from_offset`.
    The batch there must have a matching offset. Its CRC must be good unless the next batch continues from it. Records of control
    batches count only with `controls`. For every status, result[F_BATCH_AT] is the position of the last batch visited. NOT_PLAIN
    means that this kernel cannot open that batch.
    """
    start = address(buffer)
    stop = start + min(end, buffer.size)
    at = start + _indexed_position(address(index), min(count, index.size >> 3), from_offset - base_offset, stop - start)
    return _first_record(start, at, stop, count > 0, base_offset - 1, from_offset, offset, timestamp, controls, result)


@kernel(
    INT64(BYTES, BYTES, INT64, BYTES, INT64, INT64, INT64, INT64, INT64, OUT_LONGS),
    nogil=False,
    pure="pylog.record.pure_finding:find_by_time",
)
def find_by_time(
    buffer: Any,
    index: Any,
    count: int,
    times: Any,
    time_count: int,
    base_offset: int,
    end: int,
    offset: int,
    timestamp: int,
    result: Any,
) -> int:
    """Finds the first record at or above an offset and a timestamp, through a time index. Like `find_record`, with controls.

    `times` holds `time_count` entries. The last entry at or below `timestamp` must name an existing batch with the entry's
    timestamp. If it does not, the status is BAD_HEADER, because a wrong entry would hide records.
    """
    start = address(buffer)
    stop = start + min(end, buffer.size)
    entry = floor64(address(times), _TIME_ENTRY_SIZE, min(time_count, times.size // _TIME_ENTRY_SIZE), timestamp)
    entry_at = address(times) + entry * _TIME_ENTRY_SIZE
    named = base_offset + be32(entry_at + 8) if entry >= 0 else i64(-1)
    from_offset = max(base_offset, offset, named)
    at = start + _indexed_position(address(index), min(count, index.size >> 3), from_offset - base_offset, stop - start)
    if entry >= 0 and named >= offset and not _has_batch(at, stop, named, be64(entry_at)):
        result[F_BATCH_AT] = at - start
        return BAD_HEADER
    return _first_record(start, at, stop, count > 0, base_offset - 1, from_offset, offset, timestamp, True, result)


@inlined
def _has_batch(at, stop, offset, timestamp):  # type: ignore[no-untyped-def]
    """Returns whether the batch that contains an offset, this one or a later one, has that largest timestamp."""
    while at < stop:
        status, size = frame(at, stop)
        if status != OK or load8(at + 16) != u64(2) or header_status(at) != OK:
            return False
        if be64(at) + be32(at + 23) >= offset:
            return be64(at) <= offset and be64(at + 35) == timestamp
        at += size
    return False


@shared
def _first_record(start, at, stop, hinted, previous, from_offset, offset, timestamp, controls, result):  # type: ignore[no-untyped-def]
    """Walks from a batch to the record; `hinted` if an index led to the batch, `previous` is the offset before it."""
    unproven = i64(0)  # the batch that the index led to, while nothing but its header has been checked
    result[F_BATCH_AT] = at - start
    while at < stop:
        status, size = frame(at, stop)
        result[F_BATCH_AT] = at - start
        if status != OK:
            return status
        if load8(at + 16) != u64(2):
            return NOT_PLAIN
        if header_status(at) != OK or be64(at) <= previous:
            return BAD_HEADER
        if hinted and at > start and be64(at) > from_offset:
            return BAD_HEADER  # the index led past the record
        if unproven != 0 and be64(at) != previous + 1 and not good_crc(unproven, at):
            return BAD_CRC
        batch_end = at + size
        previous = be64(at) + be32(at + 23)
        attributes = be16(at + 21)
        wanted = be64(at) + be32(at + 23) >= offset and be64(at + 35) >= timestamp
        if (attributes & 32) != 0 and not controls:
            wanted = False
        if wanted and not good_crc(at, batch_end):
            return BAD_CRC
        unproven = at if hinted and not wanted else i64(0)
        hinted = False
        if wanted:
            if attributes & CODEC_MASK:
                return NOT_PLAIN
            status = _record_in(start, at, batch_end, offset, timestamp, result)
            if status == OK:
                result[F_LAST_OFFSET] = previous
                result[F_NEXT_AT] = batch_end - start
                if stop - batch_end >= 17 and load8(batch_end + 16) == u64(2) and be64(batch_end) <= previous:
                    return BAD_HEADER
            if status != NOT_FOUND:
                return status
        at = batch_end
    result[F_BATCH_AT] = at - start
    return NOT_FOUND


@inlined
def _indexed_position(index, count, relative, size):  # type: ignore[no-untyped-def]
    """Returns the position of the last entry at or below a relative offset, 0 if there is none or it is outside the file."""
    low = i64(0)
    high = i64(count)
    while low < high:
        middle = (low + high) >> 1
        if (be32(index + middle * 8) & 0xFFFFFFFF) <= relative:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return i64(0)
    position = be32(index + low * 8 - 4) & 0xFFFFFFFF
    return position if position < size else i64(0)


@inlined
def _record_in(start, at, end, offset, timestamp, result):  # type: ignore[no-untyped-def]
    """Finds the first record of an uncompressed batch at or above an offset and a timestamp."""
    base = be64(at)
    appended = (be16(at + 21) & LOG_APPEND_TIME_BIT) != 0
    base_timestamp = be64(at + 35) if appended else be64(at + 27)
    q = at + HEADER_SIZE
    for _ in range(be32(at + 57)):
        size, q = varint(q, end)
        if q > end or size < 1 or size > end - q:
            return BAD_RECORD
        record_end = q + size
        timestamp_delta, q = varint(q + 1, record_end)
        offset_delta, q = varint(q, record_end)
        if q > record_end:
            return BAD_RECORD
        stamp = base_timestamp if appended else base_timestamp + timestamp_delta
        if base + offset_delta >= offset and stamp >= timestamp:
            size, q = varint(q, record_end)
            if q > record_end or size > record_end - q:
                return BAD_RECORD
            result[F_KEY_AT] = q - start
            result[F_KEY_SIZE] = size
            size, q = varint(q + max(size, 0), record_end)
            if q > record_end or size > record_end - q:
                return BAD_RECORD
            result[F_VALUE_AT] = q - start
            result[F_VALUE_SIZE] = size
            q += max(size, 0)
            result[F_HEADERS_AT] = q - start
            if headers_end(q, record_end) != record_end:
                return BAD_RECORD
            result[F_OFFSET] = base + offset_delta
            result[F_TIMESTAMP] = stamp
            result[F_LEADER_EPOCH] = be32(at + 12)
            return OK
        q = record_end
    return NOT_FOUND
