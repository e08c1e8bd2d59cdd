"""Payloads of the four codecs, made in the plainest way."""

from __future__ import annotations

import random
import struct

import pytest

from pylog import limits
from pylog.record.compression import Bytes, BytesLike, Scratch, codec_name, compress
from pylog.record.format import CODEC_GZIP, CODEC_LZ4, CODEC_NAMES, CODEC_SNAPPY, CODEC_ZSTD

ALL = range(len(CODEC_NAMES))
REAL = (CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD)
each_codec = pytest.mark.parametrize("codec", REAL, ids=codec_name)
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
TEXT = b"".join(b'{"order":%d,"state":"paid"}' % (number * 7919 % 1000) for number in range(12))


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def text(size: int) -> bytes:
    return (TEXT * (size // len(TEXT) + 1))[:size]


def packed(codec: int, data: bytes, level: int | None = None) -> bytes:
    return compress(codec, data, level=level).tobytes()


def decompress(
    codec: int, source: BytesLike, *, limit: int = limits.MAX_BATCH_DECOMPRESSED_BYTES, magic: int = 2, reserve: int = 0
) -> Bytes:
    """Decompresses one payload into a new buffer, after `reserve` free bytes."""
    return Scratch(reserve=reserve, limit=limit).decompress(codec, source, magic=magic)


def unpacked(codec: int, data: bytes, *, limit: int = 4 << 20, magic: int = 2) -> bytes:
    return decompress(codec, data, limit=limit, magic=magic).tobytes()


def zstd_frame(blocks: int, block_bytes: int = 128 << 10, window: int = 17) -> bytes:
    """A frame without a content size, of blocks that repeat one byte, four bytes each; windows of 1 << window bytes."""
    body = b"".join(struct.pack("<I", (i == blocks - 1) | 1 << 1 | block_bytes << 3)[:3] + b"A" for i in range(blocks))
    return bytes.fromhex("28b52ffd00") + bytes(((window - 10) << 3,)) + body
