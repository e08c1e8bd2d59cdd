"""Writes messages of formats 0 and 1 in plain Python, from the specification alone (storage-format 2).

It shares nothing with pylog: gzip is the standard library's, and the others only store, which their formats allow.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import NamedTuple

GZIP, SNAPPY, LZ4 = 1, 2, 3
LOG_APPEND_TIME = 8  # the attribute's bit


class Message(NamedTuple):
    """A message as it is stored; in a wrapper of format 1 the offset is relative."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def entry(magic: int, message: Message, attributes: int = 0) -> bytes:
    """One entry of a message set."""
    body = struct.pack(">bb", magic, attributes)
    if magic > 0:
        body += struct.pack(">q", message.timestamp)
    body += sized(message.key) + sized(message.value)
    return struct.pack(">qiI", message.offset, len(body) + 4, zlib.crc32(body)) + body


def sized(data: bytes | None) -> bytes:
    """A key or value behind its length."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message_set(magic: int, messages: list[Message]) -> bytes:
    """Entries one after the other."""
    return b"".join(entry(magic, message) for message in messages)


def wrapper(magic: int, offset: int, timestamp: int, codec: int, inner: bytes, attributes: int = 0) -> bytes:
    """A compressed entry around a message set."""
    return entry(magic, Message(offset, timestamp, None, packed(magic, codec, inner)), codec | attributes)


def packed(magic: int, codec: int, data: bytes) -> bytes:
    """The value of a wrapper."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    return snappy_stored(data) if codec == SNAPPY else lz4_stored(data, magic)


def snappy_stored(data: bytes) -> bytes:
    """snappy-java's stream: literals only."""
    chunks = [data[start : start + 32768] for start in range(0, len(data), 32768)]
    blocks = [snappy_block(chunk) for chunk in chunks]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snappy_block(data: bytes) -> bytes:
    """A raw snappy block of 1 to 32,768 bytes: their number, and one literal with a two-byte length."""
    size = len(data)
    number = bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
    return number + bytes((61 << 2,)) + struct.pack("<H", size - 1) + data


def zstd_stored(data: bytes) -> bytes:
    """A zstd frame of one stored block of at most 128 KiB, without a content size."""
    return bytes.fromhex("28b52ffd0038") + struct.pack("<I", 1 | len(data) << 3)[:3] + data


def lz4_stored(data: bytes, magic: int = 2) -> bytes:
    """An lz4 frame of stored blocks; in format 0 the header's checksum is computed over four bytes too many."""
    header = b"\x04\x22\x4d\x18\x60\x40" + (b"\x1a" if magic == 0 else b"\x82")
    chunks = [data[start : start + 65536] for start in range(0, len(data), 65536)]
    return header + b"".join(struct.pack("<I", len(chunk) | 1 << 31) + chunk for chunk in chunks) + bytes(4)
