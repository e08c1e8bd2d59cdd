"""How one record is found by its offset and by its time, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylog.record.kernels import (
    BAD_CRC,
    BAD_HEADER,
    BAD_RECORD,
    NOT_FOUND,
    NOT_PLAIN,
    OK,
)
from support.reference.records import (
    HEADER_SIZE,
    Column,
    Record,
    column,
    frame,
    parse_record,
    record_at,
    timestamp_of,
    wrapped,
)


class Found(NamedTuple):
    """A record that was looked for, and its batch; positions in the data, sizes -1 for null."""

    offset: int
    timestamp: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    headers_at: int
    batch_at: int
    leader_epoch: int
    last_offset: int
    next_at: int


class Question(NamedTuple):
    """What record is looked for: the first at or above an offset and a timestamp; the index is asked for `from_offset`."""

    base_offset: int
    from_offset: int
    offset: int
    timestamp: int = -(2**63)
    controls: bool = False


def find_record(data: bytes, index: Sequence[tuple[int, int]], question: Question, end: int) -> tuple[int, Found | int]:
    """(status, record) of the first record that answers; with another status than OK, where the search ended.

    The index, (relative offset, position) in order, says where to begin. Offsets must rise from batch to batch. What a batch
    holds before that record must parse; what lies behind it is not looked at, but for the offset of the next batch.
    """
    end = min(end, len(data))
    hints = [position for relative, position in index if relative <= question.from_offset - question.base_offset]
    at = hints[-1] if hints and hints[-1] < end else 0
    hinted = bool(index)
    unproven: Column | None = None  # where the index led, while only its header speaks for it
    previous = question.base_offset - 1
    while at < end:
        status, size = frame(data, at, end)
        if status == OK and data[at + 16] != 2:
            status = NOT_PLAIN
        if status != OK:
            return status, at
        batch = column(data, at, size, verify=True)
        led_behind = hinted and at > 0 and batch is not None and batch.base_offset > question.from_offset
        if batch is None or batch.base_offset <= previous or led_behind:
            return BAD_HEADER, at
        if unproven is not None and batch.base_offset != previous + 1 and not unproven.crc_state:
            return BAD_CRC, at
        wanted = batch.last_offset >= question.offset and batch.max_timestamp >= question.timestamp
        wanted = wanted and (question.controls or not batch.attributes & 32)
        if wanted and not batch.crc_state:
            return BAD_CRC, at
        if wanted and batch.attributes & 7:
            return NOT_PLAIN, at
        status, found = _record_in(data, batch, question) if wanted else (NOT_FOUND, None)
        if status == OK and _overlapped(data, batch, end):
            return BAD_HEADER, at
        if status != NOT_FOUND:
            return status, at if found is None else found
        unproven = batch if hinted and not wanted else None
        hinted, previous, at = False, batch.last_offset, at + size
    return NOT_FOUND, at


def find_by_time(
    data: bytes, index: Sequence[tuple[int, int]], times: Sequence[tuple[int, int]], question: Question, end: int
) -> tuple[int, Found | int]:
    """The same where a time index leads: (timestamp, relative offset) in order. What its entry says must be true."""
    entries = [entry for entry in times if entry[0] <= question.timestamp]
    if not entries:
        return find_record(data, index, question, end)
    stamp, relative = entries[-1]
    named = question.base_offset + relative
    asked = question._replace(from_offset=max(named, question.offset))
    if named < question.offset:
        return find_record(data, index, asked, end)
    end = min(end, len(data))
    hints = [position for offset, position in index if offset <= relative]
    at = start = hints[-1] if hints and hints[-1] < end else 0
    while at < end:
        status, size = frame(data, at, end)
        batch = column(data, at, size, verify=False) if status == OK and data[at + 16] == 2 else None
        if batch is None:
            break
        if batch.last_offset >= named:
            if batch.base_offset > named or batch.max_timestamp != stamp:
                break
            return find_record(data, index, asked, end)
        at += size
    return BAD_HEADER, start


def _overlapped(data: bytes, batch: Column, end: int) -> bool:
    """Whether what follows is a batch whose offsets do not: one of the two is not what was written."""
    following = batch.position + batch.size
    if end - following < 17 or data[following + 16] != 2:
        return False
    return int.from_bytes(data[following : following + 8], "big", signed=True) <= batch.last_offset


def _record_in(data: bytes, batch: Column, question: Question) -> tuple[int, Found | None]:
    at, end = batch.position + HEADER_SIZE, batch.position + batch.size
    for _ in range(batch.count):
        try:
            deltas, next_at = parse_deltas(data, at, end)
            stamp = timestamp_of(batch, Record(deltas[1], deltas[0], None, None))
            if wrapped(batch.base_offset + deltas[1]) >= question.offset and stamp >= question.timestamp:
                parsed = parse_record(data, at, end)
                key, value = parsed.record.key, parsed.record.value
                sizes = [-1 if field is None else len(field) for field in (key, value)]
                places = parsed.key_at, sizes[0], parsed.value_at, sizes[1], parsed.headers_at, batch.position
                return OK, Found(batch.base_offset + deltas[1], stamp, *places, batch.leader_epoch, batch.last_offset, end)
        except ValueError:
            return BAD_RECORD, None
        at = next_at
    return NOT_FOUND, None


def parse_deltas(data: bytes, at: int, end: int) -> tuple[tuple[int, int], int]:
    """((timestamp delta, offset delta), next record) of a record of which nothing else is asked."""
    cursor = record_at(data, at, end)
    return (cursor.varint(), cursor.varint()), cursor.end
