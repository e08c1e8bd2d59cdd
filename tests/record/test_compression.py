"""The four codecs: mutually readable with Kafka's other clients, bounded whatever the bytes are (storage-format 1.10)."""

from __future__ import annotations

import gzip
import struct
import warnings
from collections.abc import Callable, Iterator

import aiokafka.codec
import cramjam
import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import CorruptionError, DecompressionLimitError, InvalidArgumentError, UnsupportedFormatError
from pylog.record.compression import (
    LEVELS,
    Scratch,
    check_level,
    codec_id,
    codec_name,
    compress,
    compress_bound,
    compress_into,
)
from pylog.record.format import CODEC_GZIP, CODEC_LZ4, CODEC_NAMES, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD
from support.record.payloads import ALL, TEXT, XERIAL, decompress, each_codec, noise, packed, text, unpacked, zstd_frame
from support.reference.legacy import lz4_stored, snappy_block, snappy_stored

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec


SIZES = (0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 1 << 20)


# The payload of appendix A.2, two records, and of A.7, the lz4 frame around it.
TWO_RECORDS = bytes.fromhex("20000000086b6579310c76616c756531002400e1bf2202086b6579320c76616c75653200")

TWO_RECORDS_LZ4 = bytes.fromhex("04224d1860408224000080") + TWO_RECORDS + bytes(4)


# ---- names and levels --------------------------------------------------------------------------------------------------------


def test_names_and_numbers_are_kafkas() -> None:
    assert [codec_id(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    assert [codec_name(codec_id(name)) for name in CODEC_NAMES] == list(CODEC_NAMES)


@pytest.mark.parametrize("name", ["", "ZSTD", "lzma", "uncompressed"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="none, gzip, snappy, lz4, zstd"):
        codec_id(name)


@pytest.mark.parametrize("codec", [5, 6, 7, -1, 8])
def test_an_unknown_number_is_not_supported_rather_than_damaged(codec: int) -> None:
    for attempt in (lambda: decompress(codec, b"x"), lambda: compress(codec, b"x"), lambda: codec_name(codec)):
        with pytest.raises(UnsupportedFormatError, match=str(codec)):
            attempt()


@pytest.mark.parametrize(("codec", "refused"), [(1, 0), (1, 10), (1, -2), (3, 0), (3, 18), (4, -131073), (4, 23), (2, 1), (0, 1)])
def test_levels_that_kafka_does_not_have_are_refused(codec: int, refused: int) -> None:
    with pytest.raises(InvalidArgumentError, match="level"):
        compress(codec, b"x", level=refused)


def test_gzips_minus_one_is_its_default() -> None:
    assert check_level(CODEC_GZIP, -1) == check_level(CODEC_GZIP, None) == 6


@pytest.mark.parametrize("codec", LEVELS, ids=codec_name)
def test_every_level_is_readable_and_the_highest_compresses_better_than_the_lowest(codec: int) -> None:
    lowest, highest = LEVELS[codec]
    data = b"".join(b'{"id":%d,"n":%d}' % (i, i * i % 977) for i in range(5000))
    sizes = {}
    for level in (lowest, 1, 2, (lowest + highest) // 2, 9, highest):
        result = packed(codec, data, level)
        assert unpacked(codec, result) == data
        sizes[level] = len(result)
    assert sizes[highest] < sizes[lowest]


def test_lz4s_level_9_is_the_fast_compressor_as_in_kafka() -> None:
    data = b"".join(b'{"id":%d,"n":%d}' % (i, i * i % 977) for i in range(5000))
    assert packed(CODEC_LZ4, data, 9) == packed(CODEC_LZ4, data)
    assert len(packed(CODEC_LZ4, data, 8)) < len(packed(CODEC_LZ4, data, 9))


# ---- round trips -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("content", [noise, text, bytes])
def test_compressed_data_is_returned_as_it_was_and_fits_the_bound(codec: int, size: int, content: Callable[[int], bytes]) -> None:
    data = content(size)
    result = compress(codec, data)
    assert len(result) <= compress_bound(size)
    assert unpacked(codec, result.tobytes()) == data


@given(st.sampled_from(ALL), st.binary(max_size=5000), st.integers(1, 200), st.integers(0, 70))
def test_any_bytes_are_decompressed_after_the_reserved_ones(codec: int, data: bytes, times: int, reserve: int) -> None:
    data *= times
    result = compress(codec, data, reserve=reserve)
    back = decompress(codec, result[reserve:], reserve=reserve)
    assert back.size == reserve + len(data)
    assert back[reserve:].tobytes() == data


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_kind_of_bytes_is_taken(codec: int, view: type) -> None:
    assert decompress(codec, view(compress(codec, view(TEXT)).tobytes())).tobytes() == TEXT


@pytest.mark.parametrize("codec", ALL, ids=codec_name)
def test_a_buffer_below_the_bound_is_refused_before_anything_is_written(codec: int) -> None:
    out = np.zeros(compress_bound(len(TEXT)) - 1, np.uint8)
    with pytest.raises(InvalidArgumentError, match=str(compress_bound(len(TEXT)))):
        compress_into(codec, TEXT, out)
    assert not out.any()


@pytest.mark.parametrize("codec", LEVELS, ids=codec_name)
def test_the_bound_holds_for_noise_at_every_kind_of_level(codec: int) -> None:
    for size in (1, 100, 65537, 200_000):
        for level in (LEVELS[codec][0], 1, LEVELS[codec][1]):
            assert unpacked(codec, packed(codec, noise(size), level)) == noise(size)


# ---- other implementations ---------------------------------------------------------------------------------------------------

AIOKAFKA = {
    CODEC_GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    CODEC_SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    CODEC_LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    CODEC_ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}


@each_codec
@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("content", [noise, text])
def test_aiokafka_and_pylog_read_each_other(codec: int, size: int, content: Callable[[int], bytes]) -> None:
    encode, decode = AIOKAFKA[codec]
    data = content(size)
    assert bytes(decode(packed(codec, data))) == data
    assert unpacked(codec, bytes(encode(data))) == data


@pytest.mark.parametrize("size", SIZES)
def test_kafka_python_and_pylog_read_each_others_gzip(size: int) -> None:
    data = text(size)
    assert kafka.codec.gzip_decode(packed(CODEC_GZIP, data)) == data
    assert unpacked(CODEC_GZIP, kafka.codec.gzip_encode(data)) == data


def test_a_bare_snappy_block_as_librdkafka_writes_it_is_read() -> None:
    assert unpacked(CODEC_SNAPPY, aiokafka.codec.snappy_encode(text(5000), xerial_compatible=False)) == text(5000)


# ---- golden bytes ------------------------------------------------------------------------------------------------------------


def test_the_golden_lz4_frame_is_written_and_read_byte_for_byte() -> None:
    assert packed(CODEC_LZ4, TWO_RECORDS) == TWO_RECORDS_LZ4
    assert unpacked(CODEC_LZ4, TWO_RECORDS_LZ4) == TWO_RECORDS


@pytest.mark.parametrize(("codec", "crc"), [(CODEC_NONE, 3851219455), (CODEC_LZ4, 2745969314)], ids=["none", "lz4"])
def test_the_golden_checksums_of_kafkas_own_test_are_met(codec: int, crc: int) -> None:
    fields = struct.pack(">hiqqqhii", codec, 1, 283843, 283843, -1, -1, -1, 2)
    assert google_crc32c.value(fields + packed(codec, TWO_RECORDS)) == crc


def test_gzip_headers_have_no_time_and_no_name() -> None:
    header = packed(CODEC_GZIP, TEXT)[:9]
    assert header[:4] == b"\x1f\x8b\x08\x00"
    assert header[4:8] == bytes(4)


# ---- snappy: storage-format 1.10.3 -------------------------------------------------------------------------------------------


def snappy_chunks(stream: bytes) -> Iterator[bytes]:
    at = 16
    while at < len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        assert 0 < size <= len(stream) - at - 4
        yield stream[at + 4 : at + 4 + size]
        at += 4 + size


@pytest.mark.parametrize("size", SIZES)
def test_snappy_is_always_written_in_frames_of_32_kib(size: int) -> None:
    stream = packed(CODEC_SNAPPY, noise(size))
    assert stream[:16] == XERIAL
    lengths = [len(cramjam.snappy.decompress_raw(chunk)) for chunk in snappy_chunks(stream)]
    assert sum(lengths) == size
    assert all(length == 32768 for length in lengths[:-1])
    assert len(lengths) == -(-size // 32768)


def test_snappy_headers_in_the_middle_of_a_stream_are_skipped() -> None:
    chunk = struct.pack(">i", len(snappy_block(TEXT))) + snappy_block(TEXT)
    assert unpacked(CODEC_SNAPPY, XERIAL + chunk + XERIAL + chunk + XERIAL + XERIAL) == TEXT * 2


def test_the_versions_in_a_snappy_header_are_ignored() -> None:
    assert unpacked(CODEC_SNAPPY, snappy_stored(TEXT).replace(XERIAL, XERIAL[:8] + b"\1\0\0\0\1\0\0\0")) == TEXT


@pytest.mark.parametrize("rest", [b"", b"\0", b"\0\0\0"])
def test_fewer_bytes_than_a_length_after_the_last_snappy_chunk_are_its_end(rest: bytes) -> None:
    assert unpacked(CODEC_SNAPPY, snappy_stored(TEXT) + rest) == TEXT
    assert unpacked(CODEC_SNAPPY, XERIAL + rest) == b""


def test_fewer_than_16_bytes_are_a_bare_snappy_block_whatever_they_begin_with() -> None:
    assert unpacked(CODEC_SNAPPY, b"\x03\x08abc") == b"abc"
    with pytest.raises(CorruptionError):
        decompress(CODEC_SNAPPY, XERIAL[:15])


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        XERIAL + struct.pack(">i", 0),
        XERIAL + struct.pack(">i", -1) + snappy_block(TEXT),
        XERIAL + struct.pack(">i", -(2**31)) + snappy_block(TEXT),
        XERIAL + struct.pack(">i", 2**31 - 1) + snappy_block(TEXT),
        XERIAL + struct.pack(">i", len(snappy_block(TEXT)) + 1) + snappy_block(TEXT),
        XERIAL + struct.pack(">i", 1),
        XERIAL + XERIAL[:15],
        XERIAL + struct.pack(">i", 3) + b"\xff\xff\xff",
        XERIAL + struct.pack(">i", 5) + b"\xff\xff\xff\xff\xff",
        XERIAL + struct.pack(">i", 4) + b"\x04\x08ab",
        b"\x04\x08ab",
    ],
    ids=[
        "nothing",
        "an empty chunk",
        "a negative size",
        "the most negative size",
        "a huge size",
        "a size one beyond the end",
        "a size and nothing else",
        "a second header cut short",
        "a declared length cut short",
        "a declared length of too many bits",
        "a chunk that declares more than it has",
        "a bare block that declares more than it has",
    ],
)
def test_snappy_streams_that_cannot_be_are_damage(stream: bytes) -> None:
    with pytest.raises(CorruptionError):
        decompress(CODEC_SNAPPY, stream)


def test_a_snappy_block_that_claims_more_than_the_limit_is_refused_before_memory_is_taken_for_it() -> None:
    scratch = Scratch(limit=1 << 20)
    with pytest.raises(DecompressionLimitError):
        scratch.decompress(CODEC_SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20))
    assert scratch.size <= 1 << 20


# ---- lz4: storage-format 1.10.4 ----------------------------------------------------------------------------------------------


def lz4_block(body: bytes) -> bytes:
    out = bytearray(65536)
    return bytes(out[: cramjam.lz4.decompress_block_into(body, out, output_len=65536)])


def kafka_lz4(frame: bytes) -> bytes:
    """Reads a frame as Kafka's Java reader does, with all that it insists on."""
    assert frame[:7] == bytes.fromhex("04224d18604082")
    at, blocks = 7, []
    while size := int.from_bytes(frame[at : at + 4], "little"):
        body = frame[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        assert len(body) == size & 0x7FFFFFFF <= 65536
        blocks.append(body if size >> 31 else lz4_block(body))
        at += 4 + len(body)
    assert len(frame) == at + 4
    assert all(len(block) == 65536 for block in blocks[:-1])
    return b"".join(blocks)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("content", [noise, text])
@pytest.mark.parametrize("level", [None, 1, 3, 17])
def test_lz4_frames_have_independent_blocks_of_64_kib_and_nothing_optional(
    size: int, content: Callable[[int], bytes], level: int | None
) -> None:
    assert kafka_lz4(packed(CODEC_LZ4, content(size), level)) == content(size)


def lz4_frame(flags: int, descriptor: int, checksum: int, rest: bytes) -> bytes:
    return b"\x04\x22\x4d\x18" + bytes((flags, descriptor, checksum)) + rest


def stored(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


def test_checksums_in_lz4_frames_are_read_and_linked_blocks_are_refused() -> None:
    for linked in (False, True):
        compressor = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=linked)
        compressor.compress(TEXT)
        frame = bytes(compressor.finish())
        assert frame[4] & 0x14 == 0x14  # block checksums and a content checksum
        if linked:
            with pytest.raises(CorruptionError, match="Kafka refuses"):
                decompress(CODEC_LZ4, frame)
        else:
            assert unpacked(CODEC_LZ4, frame) == TEXT


@pytest.mark.parametrize("descriptor", [0x40, 0x50, 0x60, 0x70])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_all_block_sizes_of_lz4_are_read(descriptor: int, magic: int) -> None:
    right = {0x40: 0x82, 0x50: 0xFB, 0x60: 0x51, 0x70: 0x73}[descriptor]
    data = noise(65536 if descriptor == 0x40 else 65537)
    checksum = 0x00 if magic == 0 else right
    assert unpacked(CODEC_LZ4, lz4_frame(0x60, descriptor, checksum, stored(data) + bytes(4)), magic=magic) == data


def test_an_lz4_content_size_is_read_past() -> None:
    body = struct.pack("<Q", len(TEXT)) + bytes((0,)) + stored(TEXT) + bytes(4)
    assert unpacked(CODEC_LZ4, b"\x04\x22\x4d\x18\x68\x40" + body, magic=0) == TEXT  # whose checksum is not looked at


REFUSED_LZ4_HEADERS = {
    "linked blocks": (0x40, 0x40),
    "version 0": (0x20, 0x40),
    "version 2": (0xA0, 0x40),
    "version 3": (0xE0, 0x40),
    "a dictionary": (0x61, 0x40),
    "a reserved flag": (0x62, 0x40),
    "blocks of no size": (0x60, 0x00),
    "blocks of a size that lz4 lacks": (0x60, 0x30),
    "the descriptor's highest bit": (0x60, 0xC0),
    "the descriptor's lowest bit": (0x60, 0x41),
}


@pytest.mark.parametrize(("flags", "descriptor"), REFUSED_LZ4_HEADERS.values(), ids=REFUSED_LZ4_HEADERS.keys())
@pytest.mark.parametrize("magic", [0, 2])
def test_lz4_headers_that_kafka_refuses_are_refused_whatever_their_checksum(flags: int, descriptor: int, magic: int) -> None:
    for checksum in range(256):
        with pytest.raises(CorruptionError):
            decompress(CODEC_LZ4, lz4_frame(flags, descriptor, checksum, stored(b"abc") + bytes(4)), magic=magic)


def test_an_lz4_frame_that_names_a_dictionary_is_refused_as_kafka_does() -> None:
    for checksum in range(256):  # one of them is right
        with pytest.raises(CorruptionError):
            decompress(CODEC_LZ4, b"\x04\x22\x4d\x18\x61\x40" + b"dict" + bytes((checksum,)) + stored(b"abc") + bytes(4))


def test_a_wrong_lz4_header_checksum_is_damage_except_in_format_0() -> None:
    frame = lz4_stored(TEXT, magic=0)
    assert frame != lz4_stored(TEXT)
    assert unpacked(CODEC_LZ4, frame, magic=0) == TEXT
    for magic in (1, 2):
        with pytest.raises(CorruptionError):
            decompress(CODEC_LZ4, frame, magic=magic)


def test_an_lz4_block_beyond_the_declared_size_is_damage() -> None:
    with pytest.raises(CorruptionError):
        decompress(CODEC_LZ4, lz4_frame(0x60, 0x40, 0x82, stored(bytes(65537)) + bytes(4)))


# ---- zstd and gzip -----------------------------------------------------------------------------------------------------------


def test_zstd_frames_without_a_content_size_are_read() -> None:
    assert unpacked(CODEC_ZSTD, zstd_frame(3)) == b"A" * (3 << 17)


def test_zstd_frames_and_gzip_members_may_follow_each_other() -> None:
    assert unpacked(CODEC_ZSTD, packed(CODEC_ZSTD, TEXT) + zstd_frame(1, 10) + packed(CODEC_ZSTD, b"")) == TEXT + b"A" * 10
    assert unpacked(CODEC_GZIP, gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(b"end")) == TEXT + b"end"


@pytest.mark.parametrize("window", [28, 31])
def test_a_zstd_window_beyond_128_mib_is_refused(window: int) -> None:
    assert unpacked(CODEC_ZSTD, zstd_frame(1, 10, window=27)) == b"A" * 10
    with pytest.raises(CorruptionError):
        decompress(CODEC_ZSTD, zstd_frame(1, 10, window=window))


@pytest.mark.parametrize("claimed", [0, 9, 11, 60 << 20, 2**63, 2**64 - 1])
def test_a_zstd_content_size_that_lies_is_damage(claimed: int) -> None:
    frame = bytes.fromhex("28b52ffde0") + struct.pack("<Q", claimed) + struct.pack("<I", 1 | 1 << 1 | 10 << 3)[:3] + b"A"
    with pytest.raises(CorruptionError):
        decompress(CODEC_ZSTD, frame)


def test_a_gzip_checksum_or_size_that_is_wrong_is_damage() -> None:
    for at in range(-8, 0):
        data = bytearray(gzip.compress(TEXT))
        data[at] ^= 1
        with pytest.raises(CorruptionError):
            decompress(CODEC_GZIP, bytes(data))
