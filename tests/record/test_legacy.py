"""Formats 0 and 1 are read as Kafka's LegacyRecord and DeepRecordsIterator read them (storage-format 2)."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import CorruptionError, DecompressionLimitError, PylogError, UnsupportedFormatError
from pylog.record.compression import Scratch
from pylog.record.legacy import LegacyRecord, decode_legacy, iterate_legacy, legacy_crc_ok, legacy_header
from support.reference.legacy import GZIP, LOG_APPEND_TIME, LZ4, SNAPPY, Message, entry, message_set, packed, wrapper, zstd_stored

ONE = Message(0, 283843, b"key1", b"value1")
TWO = Message(1, 1234, b"key2", b"value2")
CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4], ids=["gzip", "snappy", "lz4"])
FORMATS = pytest.mark.parametrize("magic", [0, 1])

# Appendix A.1 and A.3: what Kafka's own encoder wrote for ONE and TWO.
PLAIN = {
    0: "00000000000000000000001875f0f41d0000000000046b6579310000000676616c756531",
    1: "0000000000000000000000200685b364010000000000000454c3000000046b6579310000000676616c756531",
}
LZ4_CRCS = {0: 66944826, 1: 1407303399}
LZ4_FRAMES = {
    0: "04224d1860401a3900000016000100511875f0f41d0f00e0046b6579310000000676616c75650a0000020011012400301bc3a60d00012400"
    "b0320000000676616c75653200000000",
    1: "04224d18604082470000001600010062200685b364011000f0050454c3000000046b6579310000000676616c75650a000002000023005020"
    "0509300509000002002304d22c00b0320000000676616c75653200000000",
}


def with_byte(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes((byte,)) + data[at + 1 :]


def nested(codec: int = GZIP) -> bytes:
    """A wrapper in a wrapper."""
    return wrapper(1, 1, 1234, GZIP, wrapper(1, 1, 1234, codec, message_set(1, [ONE, TWO])))


# ---- plain messages ----------------------------------------------------------------------------------------------------------


@FORMATS
def test_the_golden_message_is_read(magic: int) -> None:
    data = bytes.fromhex(PLAIN[magic])
    assert data == entry(magic, ONE)
    assert legacy_crc_ok(data)
    expected = LegacyRecord(0, -1, -1, b"key1", b"value1") if magic == 0 else LegacyRecord(0, 283843, 0, b"key1", b"value1")
    assert decode_legacy(data) == [expected]


@FORMATS
def test_the_golden_checksums_of_kafkas_own_test_are_met(magic: int) -> None:
    stored = struct.unpack_from(">I", bytes.fromhex(PLAIN[magic]), 12)[0]
    assert stored == {0: 1978725405, 1: 109425508}[magic]


@FORMATS
def test_the_golden_lz4_wrapper_is_read_with_the_wrong_header_checksum_of_format_0(magic: int) -> None:
    frame = bytes.fromhex(LZ4_FRAMES[magic])
    assert frame[6] == {0: 0x1A, 1: 0x82}[magic]
    data = entry(magic, Message(1, 283843, None, frame), LZ4)
    assert struct.unpack_from(">I", data, 12)[0] == LZ4_CRCS[magic]
    assert [(r.offset, r.key, r.value) for r in decode_legacy(data)] == [(0, b"key1", b"value1"), (1, b"key2", b"value2")]


@FORMATS
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_kind_of_bytes_is_read(magic: int, view: type) -> None:
    data = entry(magic, ONE)
    assert decode_legacy(view(data))[0].value == b"value1"
    assert legacy_crc_ok(view(data))


def test_format_1_says_which_kind_of_time_it_has_and_format_0_has_none() -> None:
    assert [record.timestamp_type for record in decode_legacy(entry(1, ONE, LOG_APPEND_TIME))] == [1]
    assert [record.timestamp_type for record in decode_legacy(entry(1, ONE))] == [0]
    assert [record[1:3] for record in decode_legacy(entry(0, ONE, LOG_APPEND_TIME))] == [(-1, -1)]


@FORMATS
@pytest.mark.parametrize(("key", "value"), [(None, None), (b"", b""), (None, b"x"), (b"x", None)])
def test_null_and_empty_keys_and_values_are_distinguished(magic: int, key: bytes | None, value: bytes | None) -> None:
    assert decode_legacy(entry(magic, Message(5, 7, key, value)))[0][3:] == (key, value)


@FORMATS
@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_any_negative_length_means_null(magic: int, length: int) -> None:
    data = bytearray(entry(magic, Message(5, 7, None, b"v")))
    struct.pack_into(">i", data, 18 + 8 * magic, length)
    assert decode_legacy(data)[0][3:] == (None, b"v")


@FORMATS
def test_the_header_is_read_without_the_rest(magic: int) -> None:
    header = legacy_header(wrapper(magic, 9, 1234, GZIP, b"not gzip's business"))
    assert header[:2] == (9, 12 + struct.unpack_from(">i", wrapper(magic, 9, 1234, GZIP, b"not gzip's business"), 8)[0])
    assert header[2:] == (magic, GZIP, 1234 if magic else -1)
    assert (header.codec, header.timestamp_type) == (GZIP, 0 if magic else -1)


# ---- wrappers ----------------------------------------------------------------------------------------------------------------


@CODECS
def test_inner_offsets_of_format_0_are_absolute(codec: int) -> None:
    inner = message_set(0, [ONE._replace(offset=40), TWO._replace(offset=43)])
    assert [record.offset for record in decode_legacy(wrapper(0, 43, -1, codec, inner))] == [40, 43]


@CODECS
def test_inner_offsets_of_format_1_are_relative_to_the_wrappers_which_is_the_last_ones(codec: int) -> None:
    inner = message_set(1, [ONE, TWO._replace(offset=3)])
    assert [record.offset for record in decode_legacy(wrapper(1, 43, 283843, codec, inner))] == [40, 43]


def test_a_wrapper_with_offset_0_leaves_relative_offsets_as_they_are() -> None:
    assert [record.offset for record in decode_legacy(wrapper(1, 0, 283843, GZIP, message_set(1, [ONE, TWO])))] == [0, 1]


def test_a_wrapper_with_log_append_time_overrides_the_times_in_it() -> None:
    inner = entry(1, ONE) + entry(1, TWO, LOG_APPEND_TIME)
    records = decode_legacy(wrapper(1, 1, 777, GZIP, inner, LOG_APPEND_TIME))
    assert [record[1:3] for record in records] == [(777, 1), (777, 1)]


def test_in_a_wrapper_with_create_time_each_message_keeps_its_time_whatever_kind_it_says() -> None:
    inner = entry(1, ONE, LOG_APPEND_TIME) + entry(1, TWO)
    assert [record[1:3] for record in decode_legacy(wrapper(1, 1, 777, GZIP, inner))] == [(283843, 0), (1234, 0)]


def test_a_message_of_format_0_in_a_wrapper_of_format_1_has_a_relative_offset_and_no_time() -> None:
    inner = entry(0, ONE) + entry(1, TWO)
    records = decode_legacy(wrapper(1, 11, 777, GZIP, inner, LOG_APPEND_TIME))
    assert [record[:3] for record in records] == [(10, -1, -1), (11, 777, 1)]


def test_a_message_of_format_1_in_a_wrapper_of_format_0_has_an_absolute_offset_and_its_time_without_a_kind() -> None:
    inner = entry(1, ONE._replace(offset=10)) + entry(0, TWO._replace(offset=11))
    assert [record[:3] for record in decode_legacy(wrapper(0, 11, -1, GZIP, inner))] == [(10, 283843, -1), (11, -1, -1)]


@FORMATS
def test_a_series_that_ends_inside_a_message_ends_before_it(magic: int) -> None:
    first, second = entry(magic, ONE), entry(magic, TWO)
    for cut in range(1, len(second)):
        records = decode_legacy(wrapper(magic, 0, 0, GZIP, first + second[:cut]))
        assert [record.key for record in records] == [b"key1"]


def test_checksums_in_a_wrapper_are_ignored() -> None:
    inner = bytearray(message_set(1, [ONE, TWO]))
    inner[12] ^= 1
    assert len(decode_legacy(wrapper(1, 1, 0, GZIP, bytes(inner)))) == 2


def test_a_buffer_is_used_for_one_wrapper_after_the_other() -> None:
    scratch = Scratch()
    for _ in range(2):
        assert len(decode_legacy(wrapper(1, 1, 0, GZIP, message_set(1, [ONE, TWO])), scratch=scratch)) == 2


# ---- damage ------------------------------------------------------------------------------------------------------------------

BAD_WRAPPERS = {
    "no value": entry(1, Message(1, 0, None, None), GZIP),
    "no message": wrapper(1, 1, 0, GZIP, b""),
    "only an incomplete message": wrapper(1, 1, 0, GZIP, entry(1, ONE)[:-1]),
    "a compressed message": nested(),
    "a message compressed with a codec that is not known": wrapper(1, 1, 0, GZIP, entry(1, ONE, 7)),
    "zstd": entry(1, Message(1, 0, None, zstd_stored(message_set(1, [ONE, TWO]))), 4),
    "zstd in format 0": entry(0, Message(1, 0, None, zstd_stored(message_set(0, [ONE, TWO]))), 4),
    "an inner length of 13 that is cut short": wrapper(1, 1, 0, GZIP, entry(1, ONE) + struct.pack(">qi", 0, 13)),
    "an inner length of 13": wrapper(1, 1, 0, GZIP, struct.pack(">qi", 0, 13) + bytes(13)),
    "a negative inner length": wrapper(1, 1, 0, GZIP, struct.pack(">qi", 0, -1) + bytes(40)),
    "an inner message too short for format 1": wrapper(1, 1, 0, GZIP, struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8)),
    "inner magic 2": wrapper(1, 1, 0, GZIP, entry(2, ONE)),
    "a negative inner offset": wrapper(1, 1, 0, GZIP, entry(1, ONE._replace(offset=-1))),
    "an offset below the last inner one": wrapper(1, 1, 0, GZIP, entry(1, ONE._replace(offset=2))),
    "an offset beyond 63 bits": wrapper(1, 2**63 - 1, 0, GZIP, message_set(1, [TWO, ONE])),
    "a value that is not gzip": entry(1, Message(1, 0, None, b"gzip?"), GZIP),
    "a wrong lz4 header checksum in format 1": entry(1, Message(0, 0, None, packed(0, LZ4, entry(1, ONE))), LZ4),
    "an inner value beyond its end": wrapper(1, 1, 0, GZIP, with_byte(entry(1, ONE), 37, 0x7F)),
    "an inner key beyond its end": wrapper(1, 1, 0, GZIP, with_byte(entry(1, ONE), 28, 0x7F)),
}


@pytest.mark.parametrize("damaged", BAD_WRAPPERS.values(), ids=BAD_WRAPPERS.keys())
def test_a_wrapper_that_kafka_refuses_is_damage(damaged: bytes) -> None:
    assert legacy_crc_ok(damaged)
    with pytest.raises(CorruptionError):
        iterate_legacy(damaged)  # before any record is handed out


def test_an_unknown_codec_or_magic_is_not_supported_rather_than_damaged() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(UnsupportedFormatError):
            decode_legacy(entry(1, ONE, codec))
    for magic in (2, 3, 127, -1):
        with pytest.raises(UnsupportedFormatError):
            decode_legacy(entry(magic, ONE))


@FORMATS
def test_a_header_too_short_for_its_format_is_damage(magic: int) -> None:
    for length in range(6, 14 + 8 * magic):
        with pytest.raises(CorruptionError, match="too short"):
            legacy_header(struct.pack(">qiIbb", 0, length, 0, magic, 0) + bytes(length - 6))


@FORMATS
def test_a_negative_offset_is_damage(magic: int) -> None:
    with pytest.raises(CorruptionError, match="negative offset"):
        decode_legacy(entry(magic, ONE._replace(offset=-1)))


@FORMATS
def test_an_entry_whose_length_is_not_that_of_its_bytes_is_damage(magic: int) -> None:
    data = entry(magic, ONE)
    for cut in range(len(data)):
        assert not legacy_crc_ok(data[:cut])
        with pytest.raises(CorruptionError):
            decode_legacy(data[:cut])
    with pytest.raises(CorruptionError):
        decode_legacy(data + b"\0")


@FORMATS
@pytest.mark.parametrize("field", ["key", "value"])
def test_a_length_beyond_the_end_is_damage(magic: int, field: str) -> None:
    at = 18 + 8 * magic + (8 if field == "value" else 0)
    for length in (700, 1000, 2**31 - 1):
        data = bytearray(entry(magic, ONE))
        struct.pack_into(">i", data, at, length)
        with pytest.raises(CorruptionError):
            decode_legacy(data)


@FORMATS
def test_the_checksum_finds_every_flipped_bit_after_it(magic: int) -> None:
    data = entry(magic, ONE)
    for bit in range(8 * 12, 8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not legacy_crc_ok(flipped)


@FORMATS
@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4], ids=["plain", "gzip", "snappy", "lz4"])
def test_any_flipped_bit_and_any_cut_is_read_or_refused(magic: int, codec: int) -> None:
    inner = message_set(magic, [ONE, TWO])
    data = wrapper(magic, 1, 283843, codec, inner) if codec else entry(magic, ONE)
    damaged = [with_byte(data, bit // 8, data[bit // 8] ^ 1 << bit % 8) for bit in range(8 * len(data))]
    for attempt in damaged + [data[:cut] for cut in range(len(data))]:
        try:
            records = decode_legacy(attempt, scratch=Scratch(limit=1 << 16))
        except PylogError:
            continue
        assert all(0 <= record.offset < 2**63 for record in records)


def test_a_wrapper_that_decompresses_beyond_the_limit_is_refused() -> None:
    data = wrapper(1, 1, 0, GZIP, message_set(1, [ONE, TWO._replace(value=bytes(1 << 20))]))
    with pytest.raises(DecompressionLimitError):
        decode_legacy(data, scratch=Scratch(limit=1 << 20))
    assert len(decode_legacy(data, scratch=Scratch(limit=(1 << 20) + 200))) == 2


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(PylogError):
        decode_legacy(data, scratch=Scratch(limit=1 << 16))


messages = st.builds(
    Message,
    offset=st.integers(0, 2**40),
    timestamp=st.integers(-1, 2**63 - 1),
    key=st.none() | st.binary(max_size=40),
    value=st.none() | st.binary(max_size=200),
)


@pytest.mark.slow
@given(
    st.sampled_from([0, 1]),
    st.sampled_from([0, GZIP, SNAPPY, LZ4]),
    st.lists(messages, min_size=1, max_size=8),
    st.integers(1, 2**61),
)
def test_records_are_read_as_the_reference_wrote_them(magic: int, codec: int, written: list[Message], base: int) -> None:
    written = sorted(written, key=lambda message: message.offset)
    offset = written[-1].offset + (base if magic else 0)
    if codec:
        data = wrapper(magic, offset, max(message.timestamp for message in written), codec, message_set(magic, written))
    else:
        written, base = written[:1], 0
        data = entry(magic, written[0])
    assert legacy_crc_ok(data)
    if magic == 0:
        expected = [LegacyRecord(m.offset, -1, -1, m.key, m.value) for m in written]
    else:
        expected = [LegacyRecord(m.offset + base, m.timestamp, 0, m.key, m.value) for m in written]
    assert decode_legacy(data) == expected
