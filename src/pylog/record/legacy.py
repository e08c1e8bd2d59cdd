"""Message formats 0 and 1 (storage-format 2), which brokers wrote before Kafka 0.11. Read; written only in compaction.

An entry is a record, or a wrapper whose value is a compressed series of entries. An entry is checked completely before its
first record is returned, so a wrapper is read as a whole or not at all. As in Kafka, the checksums of inner entries are ignored,
because the wrapper's covers them, and a series that ends inside an entry ends before that entry.

The errors of this module carry no position; the caller adds it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.limits import INT64_MAX
from pylog.record.compression import Scratch, compress
from pylog.record.format import (
    CODEC_MASK,
    CODEC_NONE,
    CODEC_ZSTD,
    CREATE_TIME,
    FRAME_SIZE,
    LEGACY_CRC_AT,
    LEGACY_HEADER_SIZE,
    LEGACY_TIMESTAMP_AT,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_LENGTH,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
)
from pylog.text import counted

__all__ = [
    "LegacyHeader",
    "LegacyRecord",
    "check_between",
    "decode_legacy",
    "encode_legacy",
    "inner_checksums",
    "iterate_legacy",
    "legacy_crc_ok",
    "legacy_header",
]

BytesLike = bytes | bytearray | memoryview | NDArray[np.uint8]

_START: Final = struct.Struct(">qiIbb")  # offset, length, crc, magic, attributes
_FRAME: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")


class LegacyRecord(NamedTuple):
    """A record of format 0 or 1.

    `timestamp` is in milliseconds, -1 in format 0; `timestamp_type` is -1 (none), 0 (create time) or 1 (log append time).
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


class LegacyHeader(NamedTuple):
    """An entry's fixed fields; `size` is the size of the whole entry, `timestamp` is -1 in format 0.

    A wrapper has its last record's offset and its latest record's timestamp, unless its type is log append time.
    """

    offset: int
    size: int
    magic: int
    attributes: int
    timestamp: int

    @property
    def codec(self) -> int:
        """The codec of a wrapper, 0 for a plain record."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """-1 (none, in format 0), 0 (create time) or 1 (log append time)."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME


def legacy_header(entry: BytesLike) -> LegacyHeader:
    """Parses the fixed fields of one whole entry (storage-format 2.1); O(1).

    Args:
        entry: the entry from its offset to its last byte, and nothing else.

    Returns:
        The fields.

    Raises:
        CorruptionError: the entry's length is not that of its bytes, or too small for its format; or the offset is negative.
        UnsupportedFormatError: the magic is not 0 or 1.

    >>> entry = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")
    >>> legacy_header(entry)
    LegacyHeader(offset=0, size=44, magic=1, attributes=0, timestamp=283843)
    """
    view = _view(entry)
    if len(view) < FRAME_SIZE + 1:
        raise CorruptionError(f"a message of {counted(len(view), 'byte')} is shorter than any message can be")
    header = _header(view)
    if header.magic not in (0, 1):
        raise UnsupportedFormatError(f"magic {header.magic} is not 0 or 1, the magic of old message formats")
    _check_header(header, len(view))
    return header


def legacy_crc_ok(entry: BytesLike) -> bool:
    """Returns whether an entry's checksum, a CRC-32 as in zlib, matches its bytes (storage-format 2.2); O(size).

    Args:
        entry: the entry from its offset to its last byte, and nothing else.

    Returns:
        False also for an entry that is too short for a checksum.

    >>> entry = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")
    >>> legacy_crc_ok(entry), legacy_crc_ok(entry[:-1] + b"2")
    (True, False)
    """
    view = _view(entry)
    if len(view) < LOG_OVERHEAD + MIN_LENGTH:
        return False
    (stored,) = _CRC.unpack_from(view, LEGACY_CRC_AT)
    return bool(stored == zlib.crc32(view[MAGIC_AT:]))


def decode_legacy(entry: BytesLike, *, scratch: Scratch | None = None) -> list[LegacyRecord]:
    """Decodes the records of one whole entry, plain or wrapper (storage-format 2.5 to 2.9). Does not check its checksum.

    Args:
        entry: the entry from its offset to its last byte, and nothing else.
        scratch: a buffer to decompress into, free again afterwards; it limits the size of a decompressed wrapper.

    Returns:
        The records in stored order, at least one.

    Raises:
        CorruptionError: lengths, offsets or the compressed bytes are impossible, or the wrapper breaks one of Kafka's rules.
        DecompressionLimitError: the wrapper decompresses to more than the limit.
        UnsupportedFormatError: the magic or the codec is unknown.

    >>> entry = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")
    >>> decode_legacy(entry)
    [LegacyRecord(offset=0, timestamp=283843, timestamp_type=0, key=b'key1', value=b'value1')]
    """
    return list(iterate_legacy(entry, scratch=scratch))


def check_between(records: list[LegacyRecord], before: int, last: int) -> None:
    """Checks that the records of an entry are after the batch before, and not after the offset of the entry.

    Args:
        records: the entry's records.
        before: the last offset of the batch before; -1 for none.
        last: the offset of the entry.

    Raises:
        CorruptionError: they are records of another place.
    """
    highest = before
    for record in records:
        if not highest < record.offset <= last:
            message = f"it contains offset {record.offset}, where only offsets from {highest + 1} to {last} can follow"
            raise CorruptionError(message)
        highest = record.offset


def iterate_legacy(entry: BytesLike, *, scratch: Scratch | None = None) -> Iterator[LegacyRecord]:
    """Decodes the same records one by one: a wrapper of 64 MiB may have millions.

    Args:
        entry: the entry from its offset to its last byte, and nothing else; it must not change meanwhile.
        scratch: a buffer to decompress into, in use until the last record was read.

    Returns:
        An iterator, which is returned only after all checks.

    Raises:
        CorruptionError: lengths, offsets or the compressed bytes are impossible, or the wrapper breaks one of Kafka's rules.
        DecompressionLimitError: the wrapper decompresses to more than the limit.
        UnsupportedFormatError: the magic or the codec is unknown.

    >>> entry = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")
    >>> next(iterate_legacy(entry)).value
    b'value1'
    """
    header, view = legacy_header(entry), _view(entry)
    if header.codec == CODEC_NONE:
        return iter((_record(header, view),))
    entries = _decompressed(header, view, scratch or Scratch())
    base = _base_offset(header, _checked_offsets(entries))
    return (_inner_record(header, base, inner, body) for inner, body in _inner_entries(entries))


def inner_checksums(entry: BytesLike) -> Iterator[tuple[int, bool]]:
    """Returns the stored checksum of each of an entry's records, in stored order, and whether it is right.

    A wrapper's own checksum covers the inner entries, so nothing else checks theirs.

    Args:
        entry: the entry from its offset to its last byte, and nothing else.

    Raises:
        as `decode_legacy`.

    >>> entry = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")
    >>> [right for _, right in inner_checksums(entry)]
    [True]
    """
    header, view = legacy_header(entry), _view(entry)
    inner = [view] if header.codec == CODEC_NONE else (body for _, body in _inner_entries(_decompressed(header, view, Scratch())))
    return ((_CRC.unpack_from(body, LEGACY_CRC_AT)[0], legacy_crc_ok(body)) for body in inner)


# ---- one entry ---------------------------------------------------------------------------------------------------------------


def _view(entry: BytesLike) -> memoryview:
    return memoryview(entry)  # type: ignore[arg-type]  # numpy's arrays are declared to be buffers from Python 3.12 on


def _header(view: memoryview) -> LegacyHeader:
    """Parses the fields of the entry at the start of the bytes, which have at least the 18 bytes common to both formats."""
    offset, length, _, magic, attributes = _START.unpack_from(view)
    timestamp = NO_TIMESTAMP
    if magic == 1 and len(view) >= LEGACY_TIMESTAMP_AT + _TIMESTAMP.size:
        (timestamp,) = _TIMESTAMP.unpack_from(view, LEGACY_TIMESTAMP_AT)
    return LegacyHeader(offset, LOG_OVERHEAD + length, magic, attributes, timestamp)


def _check_header(header: LegacyHeader, size: int) -> None:
    if header.size != size:
        raise CorruptionError(f"a message has {counted(size, 'byte')}, but its length field has {header.size}")
    if size < LEGACY_HEADER_SIZE[header.magic]:
        raise CorruptionError(f"a message of {counted(size, 'byte')} is too short for its format, magic {header.magic}")
    if header.offset < 0:
        raise CorruptionError(f"a message has the negative offset {header.offset}")


def _key_and_value(header: LegacyHeader, view: memoryview) -> tuple[memoryview | None, memoryview | None]:
    key_at = LEGACY_HEADER_SIZE[header.magic] - 2 * _LENGTH.size
    key, value_at = _sized(view, key_at)
    value, _ = _sized(view, value_at)  # Kafka accepts bytes after the value, so they are no damage
    return key, value


def _sized(view: memoryview, at: int) -> tuple[memoryview | None, int]:
    """Returns the bytes after a length field, None for a negative length, and the position after them."""
    if len(view) - at < _LENGTH.size:
        raise CorruptionError("a message ends inside the length of its key or value")
    (length,) = _LENGTH.unpack_from(view, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if length > len(view) - at:
        raise CorruptionError(
            f"a message has a key or value of {counted(length, 'byte')}, but ends after {counted(len(view) - at, 'byte')}"
        )
    return view[at : at + length], at + length


def _record(header: LegacyHeader, view: memoryview) -> LegacyRecord:
    key, value = _key_and_value(header, view)
    return LegacyRecord(header.offset, header.timestamp, header.timestamp_type, _bytes(key), _bytes(value))


def _bytes(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


# ---- wrappers: storage-format 2.7 to 2.9 -------------------------------------------------------------------------------------


def _decompressed(header: LegacyHeader, view: memoryview, scratch: Scratch) -> memoryview:
    if header.codec == CODEC_ZSTD:
        raise CorruptionError(f"a message of format {header.magic} is compressed with zstd, which that format does not support")
    _, value = _key_and_value(header, view)
    if value is None:
        raise CorruptionError("a compressed message has no value")
    return _view(scratch.decompress(header.codec, value, magic=header.magic))


def _inner_entries(entries: memoryview) -> Iterator[tuple[LegacyHeader, memoryview]]:
    """Yields the entries in a wrapper. An incomplete last entry is ignored, as in Kafka."""
    at = 0
    while len(entries) - at >= LOG_OVERHEAD:
        _, length = _FRAME.unpack_from(entries, at)
        if length < MIN_LENGTH:
            raise CorruptionError(f"a compressed message contains a message of length {length}, less than {MIN_LENGTH}")
        if length > len(entries) - at - LOG_OVERHEAD:
            return
        inner = entries[at : at + LOG_OVERHEAD + length]
        yield _header(inner), inner
        at += len(inner)


def _checked_offsets(entries: memoryview) -> tuple[int, int]:
    """Checks all entries of a wrapper; returns the last one's offset and the highest offset."""
    last = highest = -1
    for inner, body in _inner_entries(entries):
        if inner.magic not in (0, 1):
            raise CorruptionError(f"a compressed message contains a message with magic {inner.magic}")
        _check_header(inner, len(body))
        if inner.codec != CODEC_NONE:
            raise CorruptionError("a compressed message contains another compressed message")
        _key_and_value(inner, body)
        last, highest = inner.offset, max(highest, inner.offset)
    if last < 0:
        raise CorruptionError("a compressed message contains no message")
    return last, highest


def _base_offset(wrapper: LegacyHeader, inner: tuple[int, int]) -> int:
    """Returns the number to add to inner offsets: they are absolute in format 0, and relative in format 1.

    A wrapper of format 1 with offset 0 comes from a producer that did not set the offset.
    """
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    last, highest = inner
    if wrapper.offset < last:
        raise CorruptionError(
            f"a compressed message has offset {wrapper.offset}, less than the offset {last} of its last message"
        )
    if wrapper.offset - last > INT64_MAX - highest:
        raise CorruptionError(
            f"a compressed message with offset {wrapper.offset} contains messages beyond the highest possible offset"
        )
    return wrapper.offset - last


def _inner_record(wrapper: LegacyHeader, base: int, inner: LegacyHeader, body: memoryview) -> LegacyRecord:
    """Returns an inner entry's record. The wrapper determines the timestamp type, and with append time also the timestamp.

    The two formats may differ because of an old bug in Kafka; format 0 then still has no timestamp.
    """
    record = _record(inner, body)._replace(offset=base + inner.offset)
    if inner.magic == 0:
        return record
    kind = wrapper.timestamp_type
    return record._replace(timestamp_type=kind, timestamp=wrapper.timestamp if kind == LOG_APPEND_TIME else inner.timestamp)


# ---- compaction --------------------------------------------------------------------------------------------------------------


def encode_legacy(entry: BytesLike, records: list[LegacyRecord]) -> NDArray[np.uint8]:
    """Encodes a wrapper with fewer records: the same format and codec, each record at its offset (storage-format 7.6.8).

    Args:
        entry: the original wrapper.
        records: the records to keep, at least one, in order.

    Returns:
        The new entry, with the offset of its last record and the timestamp of its latest record.

    >>> one = bytes.fromhex("0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531")
    >>> encode_legacy(one, decode_legacy(one)).tobytes() == one
    True
    """
    header = legacy_header(entry)
    if header.codec == CODEC_NONE:
        return np.frombuffer(entry, np.uint8)
    base = records[0].offset if header.magic else 0  # inner offsets are relative in format 1 (storage-format 2.8)
    inner = b"".join(_entry(header.magic, 0, offset - base, stamp, key, value) for offset, stamp, _, key, value in records)
    value = compress(header.codec, inner).tobytes()
    stamp = header.timestamp if header.timestamp_type == LOG_APPEND_TIME else max(record.timestamp for record in records)
    return np.frombuffer(_entry(header.magic, header.attributes, records[-1].offset, stamp, None, value), np.uint8)


def _entry(magic: int, attributes: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    body = bytes((magic, attributes)) + (_TIMESTAMP.pack(timestamp) if magic else b"")
    for data in (key, value):
        body += _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data
    return _FRAME.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body
