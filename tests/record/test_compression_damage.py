"""Compressed payloads that are cut, flipped, followed by junk or far too large: read within the limit, or refused."""

from __future__ import annotations

import contextlib
import gzip
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, PylogError
from pylog.record.compression import (
    Scratch,
    codec_name,
    decompress_into,
)
from pylog.record.format import CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD
from support.record.payloads import ALL, REAL, TEXT, XERIAL, decompress, each_codec, noise, packed, text, unpacked, zstd_frame
from support.reference.legacy import Message, entry

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python deprecates
    warnings.simplefilter("ignore", DeprecationWarning)


def with_flipped(data: bytes, bit: int) -> bytes:
    flipped = bytearray(data)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


# ---- bounds ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
def test_an_output_that_is_too_small_is_distinguished_from_damage_at_every_size(codec: int) -> None:
    source = packed(codec, TEXT)
    guarded = np.full(len(TEXT) + 64, 0xEE, np.uint8)
    for size in range(len(TEXT)):
        assert decompress_into(codec, source, guarded[:size]) is None
    assert decompress_into(codec, source, guarded[: len(TEXT)]) == len(TEXT)
    assert decompress_into(codec, source, guarded[: len(TEXT) + 1]) == len(TEXT)
    assert (guarded[len(TEXT) + 1 :] == 0xEE).all()


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
@pytest.mark.parametrize("size", [0, 1, 1000, (256 << 10) + 1, 1 << 20])
def test_the_limit_itself_is_allowed_and_one_byte_more_is_not(codec: int, size: int) -> None:
    data = text(size)
    assert unpacked(codec, packed(codec, data), limit=size) == data
    with pytest.raises(DecompressionLimitError, match=str(size)):
        decompress(codec, packed(codec, data + b"!"), limit=size)


def test_the_limit_is_64_mib_unless_given() -> None:
    assert limits.MAX_BATCH_DECOMPRESSED_BYTES == 64 << 20
    with pytest.raises(DecompressionLimitError, match=str(64 << 20)):
        decompress(CODEC_ZSTD, zstd_frame(513))
    assert decompress(CODEC_ZSTD, zstd_frame(512)).size == 64 << 20


def test_a_scratch_grows_fourfold_and_is_then_used_again() -> None:
    scratch = Scratch(reserve=61)
    first = scratch.decompress(CODEC_ZSTD, packed(CODEC_ZSTD, b"a" * 100_000))
    assert scratch.size == 61 + (256 << 10)
    again = scratch.decompress(CODEC_ZSTD, packed(CODEC_ZSTD, b"b" * 100_000))
    assert np.shares_memory(first, again)
    scratch.decompress(CODEC_ZSTD, packed(CODEC_ZSTD, bytes(300_000)))
    assert scratch.size == 61 + (1 << 20)
    assert scratch.decompress(CODEC_ZSTD, packed(CODEC_ZSTD, TEXT)).tobytes()[61:] == TEXT
    assert scratch.size == 61 + (1 << 20)


def test_a_scratch_serves_on_after_damage_and_after_the_limit() -> None:
    scratch = Scratch(limit=1000)
    for damaged in (b"?", packed(CODEC_ZSTD, bytes(1001))):
        with pytest.raises((CorruptionError, DecompressionLimitError)):
            scratch.decompress(CODEC_ZSTD, damaged)
        assert scratch.decompress(CODEC_ZSTD, packed(CODEC_ZSTD, TEXT)).tobytes() == TEXT


# ---- damage ------------------------------------------------------------------------------------------------------------------


@each_codec
def test_a_payload_that_is_cut_short_is_damage_or_a_part_of_it(codec: int) -> None:
    data = text(300) + noise(50)
    source = packed(codec, data)
    for cut in range(len(source)):
        try:
            assert data.startswith(unpacked(codec, source[:cut]))
        except CorruptionError:
            continue
        assert codec == CODEC_SNAPPY, "only snappy streams have no end that can be missed"


@each_codec
@pytest.mark.parametrize("content", [noise, text])
def test_any_flipped_bit_is_read_within_the_limit_or_refused(codec: int, content: Callable[[int], bytes]) -> None:
    source, scratch = packed(codec, content(300)), Scratch(limit=1 << 16)
    for bit in range(8 * len(source)):
        with contextlib.suppress(PylogError):
            assert scratch.decompress(codec, with_flipped(source, bit)).size <= 1 << 16


@each_codec
@pytest.mark.parametrize("junk", [b"j", b"junk", b"junk" * 100])
def test_junk_after_a_payload_is_damage(codec: int, junk: bytes) -> None:
    with pytest.raises(CorruptionError):
        decompress(codec, packed(codec, TEXT) + (b"junk" + junk if codec == CODEC_SNAPPY else junk))


@given(st.sampled_from(REAL), st.binary(max_size=300), st.booleans(), st.sampled_from([0, 1, 2]))
def test_any_bytes_are_read_or_refused(codec: int, data: bytes, begun: bool, magic: int) -> None:
    start = {CODEC_GZIP: 10, CODEC_SNAPPY: 16, CODEC_LZ4: 7, CODEC_ZSTD: 5}[codec]
    source = packed(codec, b"")[:start] + data if begun else data
    with contextlib.suppress(PylogError):
        decompress(codec, source, limit=1 << 16, magic=magic)


@each_codec
def test_messages_say_which_codec_and_never_show_contents(codec: int) -> None:
    source, errors = packed(codec, text(300)), []
    for bit in range(8 * len(source)):
        try:
            decompress(codec, with_flipped(source, bit))
        except CorruptionError as error:
            errors.append(error)
        except DecompressionLimitError:
            continue
    messages = {str(error) for error in errors}
    assert 0 < len(messages) < 30, "the messages depend on where the damage is, so they quote it"
    assert all(codec_name(codec) in message for message in messages)
    # Nor does what Python prints with them: cramjam's own errors quote values.
    assert all(error.__cause__ is None and (error.__suppress_context__ or error.__context__ is None) for error in errors)


# ---- bombs -------------------------------------------------------------------------------------------------------------------

BOMB_BYTES = 256 << 20

BOMB_LIMIT = 8 << 20

# Memory is measured in a process of its own: the parent's peak would hide the child's.
MEASURE = """
import sys
from pathlib import Path
from pylog.errors import PylogError
from pylog.record.compression import Scratch
from pylog.record.legacy import iterate_legacy

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

kind, limit, source = sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.read()
scratch, before = Scratch(limit=limit), peak()
try:
    iterate_legacy(source, scratch=scratch) if kind == "legacy" else scratch.decompress(int(kind), source)
except PylogError as error:
    print(type(error).__name__, peak() - before)
"""


def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(9, wbits=31)
    return b"".join(deflate.compress(bytes(1 << 20)) for _ in range(BOMB_BYTES >> 20)) + deflate.flush()


def zstd_bomb() -> bytes:
    return zstd_frame(BOMB_BYTES >> 17, window=27)


def lz4_bomb() -> bytes:
    return packed(CODEC_LZ4, bytes(65536))[:-4] + packed(CODEC_LZ4, bytes(65536))[7:-4] * (BOMB_BYTES // 65536 - 1) + bytes(4)


def snappy_bomb() -> bytes:
    return XERIAL + packed(CODEC_SNAPPY, bytes(32768))[16:] * (BOMB_BYTES // 32768)


def legacy_bomb() -> bytes:
    return entry(1, Message(0, 0, None, gzip_bomb()), CODEC_GZIP)


def nested_legacy_bomb() -> bytes:
    return entry(1, Message(0, 0, None, gzip.compress(legacy_bomb())), CODEC_GZIP)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("kind", "bomb", "refusal"),
    [
        ("1", gzip_bomb, "DecompressionLimitError"),
        ("2", snappy_bomb, "DecompressionLimitError"),
        ("3", lz4_bomb, "DecompressionLimitError"),
        ("4", zstd_bomb, "DecompressionLimitError"),
        ("legacy", legacy_bomb, "DecompressionLimitError"),
        ("legacy", nested_legacy_bomb, "CorruptionError"),
    ],
    ids=["gzip", "snappy", "lz4", "zstd", "legacy", "nested"],
)
def test_a_bomb_of_256_mib_costs_no_more_memory_than_the_limit(kind: str, bomb: Callable[[], bytes], refusal: str) -> None:
    command = [sys.executable, "-c", MEASURE, kind, str(BOMB_LIMIT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, input=bomb(), capture_output=True, env=environment, check=True)
    raised, cost = done.stdout.decode().split()
    assert raised == refusal
    # zstd keeps a window of what it wrote beside the output, so it may take the limit twice.
    assert int(cost) <= BOMB_LIMIT * (2 if kind == "4" else 1) + (4 << 20)
