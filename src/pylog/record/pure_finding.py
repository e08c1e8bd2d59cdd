"""The plain forms of the kernels that find one record, and that decode headers (`record.finding`, `record.record_headers`)."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import numpy as np

from pylog.record.finding import (
    F_BATCH_AT,
    F_HEADERS_AT,
    F_KEY_AT,
    F_KEY_SIZE,
    F_LAST_OFFSET,
    F_LEADER_EPOCH,
    F_NEXT_AT,
    F_OFFSET,
    F_TIMESTAMP,
    F_VALUE_AT,
    F_VALUE_SIZE,
)
from pylog.record.format import CODEC_MASK, CONTROL_BIT, HEADER_SIZE, LOG_APPEND_TIME_BIT
from pylog.record.kernel import WORK, work_of
from pylog.record.kernels import BAD_CRC, BAD_HEADER, BAD_RECORD, FULL, NOT_FOUND, NOT_PLAIN, OK
from pylog.record.pure import floor, frame, header
from pylog.record.pure_rows import FEW_HEADERS, good_crc, parse_headers, record_head, varint, wrapped

_OFFSET_ENTRY: Final = Struct(">II")  # relative offset, position
_TIME_ENTRY: Final = Struct(">qi")  # timestamp, relative offset
_CALL: Final = 50  # records: a search reads half a batch on average


def _search_work(*_: Any) -> int:
    return _CALL


@work_of(_search_work)
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
    """See `finding.find_record`. Cost: about 20 µs, and 1 µs for each earlier record of the batch."""
    data = memoryview(buffer)
    stop = min(end, buffer.size)
    at = _indexed_position(index, count, from_offset - base_offset, stop)
    return _first_record(data, at, stop, count > 0, base_offset - 1, from_offset, offset, timestamp, controls, result)


@work_of(_search_work)
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
    """See `finding.find_by_time`. Cost: as `find_record`."""
    data = memoryview(buffer)
    stop = min(end, buffer.size)
    entry = floor(times, _TIME_ENTRY, time_count, timestamp)
    stamp, relative = _TIME_ENTRY.unpack_from(times, entry * _TIME_ENTRY.size) if entry >= 0 else (0, 0)
    named = base_offset + relative if entry >= 0 else -1
    from_offset = max(base_offset, offset, named)
    at = _indexed_position(index, count, from_offset - base_offset, stop)
    if entry >= 0 and named >= offset and not _has_batch(data, at, stop, named, stamp):
        result[F_BATCH_AT] = at
        return BAD_HEADER
    return _first_record(data, at, stop, count > 0, base_offset - 1, from_offset, offset, timestamp, True, result)


def _indexed_position(index: Any, count: int, relative: int, size: int) -> int:
    """Returns the position of the last entry at or below a relative offset, 0 if there is none or it is outside the file."""
    entry = floor(index, _OFFSET_ENTRY, count, relative)
    position: int = _OFFSET_ENTRY.unpack_from(index, entry * _OFFSET_ENTRY.size)[1] if entry >= 0 else 0
    return position if position < size else 0


def _has_batch(data: Any, at: int, stop: int, offset: int, timestamp: int) -> bool:
    """Returns whether the batch that contains an offset, this one or a later one, has that largest timestamp."""
    while at < stop:
        status, size, magic = frame(data, at, stop)
        fields = header(data, at) if status == OK and magic == 2 else None
        if fields is None:
            return False
        if fields[0] + fields[6] >= offset:
            return fields[0] <= offset and fields[8] == timestamp
        at += size
    return False


def _first_record(
    data: Any,
    at: int,
    stop: int,
    hinted: bool,
    previous: int,
    from_offset: int,
    offset: int,
    timestamp: int,
    controls: bool,
    result: Any,
) -> int:
    """Finds the record, batch by batch from a position on."""
    unproven = -1  # the batch that the index led to, while nothing but its header has been checked
    while at < stop:
        status, size, magic = frame(data, at, stop)
        result[F_BATCH_AT] = at
        if status != OK:
            return status
        if magic != 2:
            return NOT_PLAIN
        fields = header(data, at)
        if fields is None or fields[0] <= previous or (hinted and at > 0 and fields[0] > from_offset):
            return BAD_HEADER  # in the last case the index led past the record
        base, attributes = fields[0], fields[5]
        if unproven >= 0 and base != previous + 1 and not good_crc(data, unproven, at):
            return BAD_CRC
        previous = base + fields[6]
        wanted = previous >= offset and fields[8] >= timestamp and (controls or not attributes & CONTROL_BIT)
        if wanted:
            status = _wanted_batch(data, at, at + size, fields, offset, timestamp, result)
            if status == OK and _overlaps(data, at + size, stop, previous):
                return BAD_HEADER
            if status != NOT_FOUND:
                return status
        unproven = at if hinted and not wanted else -1
        hinted = False
        at += size
    result[F_BATCH_AT] = at
    return NOT_FOUND


def _wanted_batch(data: Any, at: int, end: int, fields: tuple[int, ...], offset: int, timestamp: int, result: Any) -> int:
    """Finds the record in a batch that may contain it."""
    if not good_crc(data, at, end):
        return BAD_CRC
    if fields[5] & CODEC_MASK:
        return NOT_PLAIN
    try:
        return _record_in(data[at:end].tobytes(), at, fields, offset, timestamp, result)
    except (ValueError, IndexError):
        return BAD_RECORD


def _overlaps(data: Any, at: int, stop: int, last: int) -> bool:
    """Returns whether a batch at `at` has offsets that the batch before it has too."""
    return bool(stop - at >= 17 and data[at + 16] == 2 and int.from_bytes(data[at : at + 8], "big", signed=True) <= last)


def _record_in(batch: bytes, start: int, fields: tuple[int, ...], offset: int, timestamp: int, result: Any) -> int:
    """Finds the first record of an uncompressed batch at or above an offset and a timestamp.

    Raises:
        ValueError, IndexError: the records before it, or its own bytes, do not parse.
    """
    base, appended = fields[0], fields[5] & LOG_APPEND_TIME_BIT
    base_timestamp = fields[8] if appended else fields[7]
    end, at = len(batch), HEADER_SIZE
    for _ in range(fields[12]):
        timestamp_delta, offset_delta, at, record_end = record_head(batch, at)
        stamp = base_timestamp if appended else wrapped(base_timestamp + timestamp_delta)
        found = wrapped(base + offset_delta)
        if found >= offset and stamp >= timestamp:
            key_at, key_size = _extent(batch, at, record_end)
            value_at, value_size = _extent(batch, key_at + max(key_size, 0), record_end)
            headers_at = value_at + max(value_size, 0)
            if parse_headers(batch, headers_at, record_end) != record_end:
                raise ValueError("the headers of a record do not fill it")
            result[F_KEY_AT], result[F_KEY_SIZE] = start + key_at, key_size
            result[F_VALUE_AT], result[F_VALUE_SIZE] = start + value_at, value_size
            result[F_HEADERS_AT], result[F_OFFSET], result[F_TIMESTAMP] = start + headers_at, found, stamp
            result[F_LEADER_EPOCH] = fields[2]
            result[F_LAST_OFFSET], result[F_NEXT_AT] = base + fields[6], start + end
            return OK
        at = record_end
    return NOT_FOUND


def _extent(batch: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns (position, size) of a key or value, which must end at `end` or before."""
    size, at = varint(batch, at)
    if at > end or size > end - at:
        raise ValueError("a key or a value exceeds its record")
    return at, size


# ---- headers -------------------------------------------------------------------------------------------------------------------


class _FullError(Exception):
    """An output has no room."""


def _headers_work(buffer: Any, headers_at: Any, state: Any, *_: Any) -> int:  # noqa: ARG001 - as the kernel
    return 1 + int(state[1] - state[0])


@work_of(_headers_work)
def decode_headers(
    buffer: Any,
    headers_at: Any,
    state: Any,
    list_ends: Any,
    name_ends: Any,
    name_bytes: Any,
    value_ends: Any,
    value_bytes: Any,
    value_valid: Any,
) -> int:
    """See `record_headers.decode_headers`. Cost: about 2 µs a header."""
    data = memoryview(buffer)
    new = state.tolist()
    rooms = min(name_ends.size, value_ends.size, value_valid.size * 8 + 1), name_bytes.size, value_bytes.size
    status = OK
    for row in range(new[0], new[1]):
        try:
            pairs = _pairs(data, int(headers_at[row]), buffer.size, (rooms[0] - new[2], rooms[1] - new[3], rooms[2] - new[4]))
        except _FullError:
            status = FULL
            break
        except (ValueError, IndexError):
            status = BAD_RECORD
            break
        list_ends[row] = new[2]
        for name, payload in pairs:
            name_ends[new[2]], value_ends[new[2]] = new[3], new[4]
            _put(name_bytes, new[3], name)
            new[3] += len(name)
            if payload is None:
                value_valid[new[2] >> 3] &= ~(1 << (new[2] & 7)) & 255
                new[5] += 1
            else:
                _put(value_bytes, new[4], payload)
                new[4] += len(payload)
            new[2] += 1
        list_ends[row + 1] = new[2]
        name_ends[new[2]], value_ends[new[2]] = new[3], new[4]
        new[0] = row + 1
    state[: len(new)] = new
    return status


def _put(out: Any, at: int, data: Any) -> None:
    if len(data):
        out[at : at + len(data)] = np.frombuffer(data, np.uint8)


def _pairs(data: Any, at: int, end: int, rooms: tuple[int, int, int]) -> list[tuple[Any, Any]]:
    """Returns a record's headers as (name, value). `rooms`: free places for headers, name bytes and value bytes.

    Raises:
        ValueError, IndexError: they do not parse.
        _FullError: they exceed the room that is left.
    """
    count, at = varint(data, at)
    if not 0 <= count <= end - at:
        raise ValueError("a record has an impossible number of headers")
    if count >= rooms[0]:
        raise _FullError
    if count > FEW_HEADERS:
        WORK.add_headers(count)
    pairs, names, values = [], 0, 0
    for _ in range(count):
        size, at = varint(data, at)
        if not 0 <= size <= end - at:
            raise ValueError("the name of a header exceeds the batch")
        names += size
        if names > rooms[1]:
            raise _FullError
        name = data[at : at + size]
        size, at = varint(data, at + size)
        if size > end - at:
            raise ValueError("the value of a header exceeds the batch")
        values += max(size, 0)
        if values > rooms[2]:
            raise _FullError
        pairs.append((name, None if size < 0 else data[at : at + size]))
        at += max(size, 0)
    return pairs
