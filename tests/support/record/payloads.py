"""Payloads of the four codecs, made in the plainest way."""

from __future__ import annotations

import random
import struct

import pytest

from pylog.record.compression import (
    codec_name,
    compress,
    decompress,
)
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


def unpacked(codec: int, data: bytes, *, limit: int = 4 << 20, magic: int = 2) -> bytes:
    return decompress(codec, data, limit=limit, magic=magic).tobytes()


def zstd_frame(blocks: int, block_bytes: int = 128 << 10, window: int = 17) -> bytes:
    """A frame without a content size, of blocks that repeat one byte, four bytes each; windows of 1 << window bytes."""
    body = b"".join(struct.pack("<I", (i == blocks - 1) | 1 << 1 | block_bytes << 3)[:3] + b"A" for i in range(blocks))
    return bytes.fromhex("28b52ffd00") + bytes(((window - 10) << 3,)) + body
