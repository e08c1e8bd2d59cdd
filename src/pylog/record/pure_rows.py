"""Parses the records of one batch in plain Python. Needs no numpy, which takes as long to import as many thousand records."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from google_crc32c import value

from pylog.record.format import CRC_AT, HEADER_SIZE
from pylog.record.kernel import WORK

_U32: Final = Struct(">I")
FEW_HEADERS: Final = 16  # of a record, which take no longer than a few records
_WORD: Final = (1 << 64) - 1


def wrapped(number: int) -> int:
    """Returns a sum as an int64 has it: it wraps.

    >>> wrapped(1 << 63) == -(1 << 63)
    True
    """
    return (number + (1 << 63) & _WORD) - (1 << 63)


def varint(data: Any, at: int) -> tuple[int, int]:
    """Returns (value, next position) of a zig-zag varint (storage-format 1.4).

    Raises:
        IndexError: the data end inside it.
        ValueError: it has more than ten bytes.
    """
    byte = data[at]
    bits, shift = byte & 127, 0
    while byte >= 128:
        at += 1
        shift += 7
        if shift > 63:
            raise ValueError("a varint has more than ten bytes")
        byte = data[at]
        bits |= (byte & 127) << shift
    bits &= _WORD
    return (bits >> 1) ^ -(bits & 1), at + 1


def good_crc(data: Any, at: int, end: int) -> bool:
    """Returns whether a batch of magic 2 matches its checksum."""
    return bool(_U32.unpack_from(data, at + CRC_AT)[0] == value(bytes(data[at + CRC_AT + 4 : end])))


class PlainRows:
    """The records of one batch, as Python objects."""

    __slots__ = ("headers_at", "keys", "offset_deltas", "timestamp_deltas", "values", "with_headers")

    def __init__(self) -> None:
        self.offset_deltas: list[int] = []
        self.timestamp_deltas: list[int] = []
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers_at: list[int] = []
        self.with_headers = 0


def parse_headers(data: bytes, at: int, end: int) -> int:
    """Returns the position after a record's headers (storage-format 1.5.1).

    Raises:
        ValueError, IndexError: they are malformed.
    """
    count, at = varint(data, at)
    if not 0 <= count <= end - at:
        raise ValueError("a record has an impossible number of headers")
    if count > FEW_HEADERS:
        WORK.add_headers(count)
    for _ in range(count):
        size, at = varint(data, at)
        if not 0 <= size <= end - at:
            raise ValueError("the name of a header exceeds its record")
        size, at = varint(data, at + size)
        if at > end or size > end - at:
            raise ValueError("the value of a header exceeds its record")
        at += max(size, 0)
    return at


def record_head(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Returns (timestamp delta, offset delta, next position, end) of a record (storage-format 1.5.1).

    Raises:
        ValueError, IndexError: it does not parse, or exceeds the data.
    """
    size, at = varint(data, at)
    end = at + size
    if size < 1 or end > len(data):
        raise ValueError("a record exceeds its batch")
    timestamp_delta, at = varint(data, at + 1)
    offset_delta, at = varint(data, at)
    if at > end:
        raise ValueError("a record exceeds its size")
    return timestamp_delta, offset_delta, at, end


def _field(data: bytes, at: int, end: int, least_after: int) -> tuple[bytes | None, int]:
    """Returns (key or value, next position) of a record that ends at `end`."""
    bits = data[at]
    if bits < 128:
        size, at = (bits >> 1) ^ -(bits & 1), at + 1
    else:
        size, at = varint(data, at)
    if at > end - least_after or size > end - at:
        raise ValueError("a key or a value exceeds its record")
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def parse_rows(data: bytes, count: int, delta_end: int) -> PlainRows:
    """Parses the records of a whole batch.

    Raises:
        ValueError, IndexError: they do not parse.
    """
    rows = PlainRows()
    end, at, previous = len(data), HEADER_SIZE, -1
    for _ in range(count):
        timestamp_delta, offset_delta, at, record_end = record_head(data, at)
        key, at = _field(data, at, record_end, 0)
        if not previous < offset_delta <= delta_end:
            raise ValueError("the offsets of a batch do not rise")
        payload, at = _field(data, at, record_end, 1)
        rows.headers_at.append(at)
        if record_end - at != 1 or data[at] != 0:
            rows.with_headers += 1
            if parse_headers(data, at, record_end) != record_end:
                raise ValueError("the headers of a record do not fill it")
        previous, at = offset_delta, record_end
        rows.offset_deltas.append(offset_delta)
        rows.timestamp_deltas.append(timestamp_delta)
        rows.keys.append(key)
        rows.values.append(payload)
    if at != end and count > 0:
        raise ValueError("bytes follow the last record of a batch")
    return rows
