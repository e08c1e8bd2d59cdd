"""The four codecs of Kafka's batches, all through cramjam: reading is bounded, and Kafka can read the output.

Decompression writes into a buffer of known size and never beyond it. So data from a file costs at most
`limits.MAX_BATCH_DECOMPRESSED_BYTES` of memory, whatever its headers claim; zstd may use as much again for its window while it
runs. (cramjam's `decompress(output_len=…)` is only a hint.) The errors of this module carry no position; the caller adds it.

cramjam releases the GIL during each call. Where cramjam accepts more than Kafka (linked lz4 blocks, dictionaries), and where the
format is Kafka's own (snappy), this module decides what Kafka accepts. cramjam is stricter than Kafka in three cases, which no
known writer produces: bytes after a frame that are not a frame, lz4 content sizes, and lz4 content checksums.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

import cramjam
import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, InvalidArgumentError, UnsupportedFormatError
from pylog.record.format import CODEC_GZIP, CODEC_LZ4, CODEC_NAMES, CODEC_SNAPPY, CODEC_ZSTD

__all__ = [
    "Scratch",
    "check_level",
    "codec_id",
    "codec_name",
    "compress",
    "compress_bound",
    "compress_into",
    "decompress_into",
]

Bytes = NDArray[np.uint8]
BytesLike = bytes | bytearray | memoryview | Bytes

LEVELS: Final = {CODEC_GZIP: (1, 9), CODEC_LZ4: (1, 17), CODEC_ZSTD: (-131072, 22)}  # Kafka's `compression.<name>.level`
DEFAULT_LEVELS: Final = {CODEC_GZIP: 6, CODEC_LZ4: 9, CODEC_ZSTD: 3}

_FIRST_CAPACITY: Final = 256 << 10  # twice a batch as pylog writes it: for ordinary logs a scratch never grows


# ---- names -------------------------------------------------------------------------------------------------------------------


def codec_id(name: str) -> int:
    """Returns the number of a codec in a batch's attributes (storage-format 1.2).

    Args:
        name: one of `none`, `gzip`, `snappy`, `lz4`, `zstd`.

    Returns:
        0 to 4.

    Raises:
        InvalidArgumentError: no codec has that name.

    >>> codec_id("zstd")
    4
    """
    if name not in CODEC_NAMES:
        raise InvalidArgumentError(f"there is no codec {name!r}: use one of {', '.join(CODEC_NAMES)}")
    return CODEC_NAMES.index(name)


def codec_name(codec: int) -> str:
    """Returns the name for a codec's number (storage-format 1.2).

    Args:
        codec: bits 0 to 2 of a batch's attributes.

    Returns:
        One of `none`, `gzip`, `snappy`, `lz4`, `zstd`.

    Raises:
        UnsupportedFormatError: the number is 5 to 7, which Kafka does not use, or out of range.

    >>> codec_name(3)
    'lz4'
    """
    if not 0 <= codec < len(CODEC_NAMES):
        raise UnsupportedFormatError(f"the batch is compressed with codec {codec}, which this version of pylog does not support")
    return CODEC_NAMES[codec]


# ---- reading -----------------------------------------------------------------------------------------------------------------


class Scratch:
    """A decompression buffer that is reused for every batch, so that a scan allocates nothing after its first batches.

    It grows fourfold up to the limit and never shrinks. Only one thread at a time may use it.

    Args:
        reserve: bytes left free before each payload, for a header that the caller writes.
        limit: the most bytes that one payload may decompress to.

    >>> scratch = Scratch(reserve=61)
    >>> scratch.decompress(CODEC_ZSTD, compress(CODEC_ZSTD, b"paid"))[61:].tobytes()
    b'paid'
    """

    def __init__(self, *, reserve: int = 0, limit: int = limits.MAX_BATCH_DECOMPRESSED_BYTES) -> None:
        self._reserve = reserve
        self._limit = limit
        self._buffer: Bytes = np.empty(reserve, np.uint8)

    @property
    def size(self) -> int:
        """The current size of the buffer in bytes."""
        return self._buffer.size

    def decompress(self, codec: int, source: BytesLike, *, magic: int = 2) -> Bytes:
        """Decompresses one payload (storage-format 1.10); O(its decompressed size).

        Args:
            codec: bits 0 to 2 of the batch's attributes.
            source: the compressed bytes.
            magic: the format of the enclosing message: in format 0, lz4 has a wrong header checksum (2.7).

        Returns:
            A view of the buffer, valid until the next call: first the free bytes, then the payload.

        Raises:
            CorruptionError: the bytes are not valid for that codec.
            DecompressionLimitError: they decompress to more than the limit.
            UnsupportedFormatError: the codec is unknown.
        """
        if self._buffer.size == self._reserve:
            self._allocate(max(4 * len(source), _FIRST_CAPACITY))
        while (size := decompress_into(codec, source, self._buffer[self._reserve :], magic=magic)) is None:
            self._grow()
        return self._buffer[: self._reserve + size]

    def _grow(self) -> None:
        capacity = self._buffer.size - self._reserve
        if capacity >= self._limit:
            raise DecompressionLimitError(f"the batch decompresses to more than {self._limit} bytes")
        self._allocate(4 * capacity)

    def _allocate(self, capacity: int) -> None:
        self._buffer = np.empty(0, np.uint8)  # frees the old buffer before allocating the new one
        self._buffer = np.empty(self._reserve + min(capacity, self._limit), np.uint8)


def decompress_into(codec: int, source: BytesLike, out: Bytes, *, magic: int = 2) -> int | None:
    """Decompresses one payload into a buffer and never writes beyond its end (storage-format 1.10).

    Args:
        codec: bits 0 to 2 of the batch's attributes.
        source: the compressed bytes.
        out: the buffer for the payload.
        magic: the format of the enclosing message.

    Returns:
        The payload's size in bytes, or None if it does not fit; the buffer's content is then undefined.

    Raises:
        CorruptionError: the bytes are not valid for that codec.
        UnsupportedFormatError: the codec is unknown.

    >>> out = np.empty(4, np.uint8)
    >>> decompress_into(CODEC_LZ4, compress(CODEC_LZ4, b"paid"), out), out.tobytes()
    (4, b'paid')
    >>> decompress_into(CODEC_LZ4, compress(CODEC_LZ4, b"refunded"), out) is None
    True
    """
    name = codec_name(codec)
    try:
        return _decompress_into(codec, _view(source), _view(out), magic)
    except cramjam.DecompressionError as error:
        if str(error) == _words_for_a_full_output():
            return None
        # cramjam's own message is left out, because it may quote values from the payload.
        raise CorruptionError(f"the batch's payload is not valid {name}") from None


def _decompress_into(codec: int, source: memoryview, out: memoryview, magic: int) -> int | None:
    if codec == CODEC_GZIP:
        return cramjam.gzip.decompress_into(source, out)
    if codec == CODEC_SNAPPY:
        return _snappy_decompress_into(source, out)
    if codec == CODEC_LZ4:
        return cramjam.lz4.decompress_into(_checked_lz4_frame(source, magic), out)
    if codec == CODEC_ZSTD:
        return cramjam.zstd.decompress_into(source, out)
    return _copy_into(source, out)


@cache
def _words_for_a_full_output() -> str:
    """Returns cramjam's message for an output that is too small: its errors have no codes, so the message is determined once."""
    try:
        cramjam.zstd.decompress_into(cramjam.zstd.compress(b"?"), bytearray())
    except cramjam.DecompressionError as error:
        return str(error)
    raise AssertionError("cramjam wrote a byte into an empty buffer")


def _copy_into(source: memoryview, out: memoryview) -> int | None:
    if len(source) > len(out):
        return None
    out[: len(source)] = source
    return len(source)


def _view(data: BytesLike) -> memoryview:
    return memoryview(data)  # type: ignore[arg-type]  # numpy's arrays are declared to be buffers from Python 3.12 on


# ---- writing -----------------------------------------------------------------------------------------------------------------


def compress_bound(size: int) -> int:
    """Returns the most bytes that a compressed payload takes, with any codec at any level.

    Args:
        size: bytes of the payload.

    Returns:
        Bytes: a fifth more than the payload (snappy's bound is a sixth), plus room for headers.

    >>> compress_bound(1000)
    1328
    """
    return size + size // 5 + 128


def compress(codec: int, payload: BytesLike, *, level: int | None = None, reserve: int = 0) -> Bytes:
    """Compresses one payload in the form that Kafka's readers expect (storage-format 1.10).

    Args:
        codec: 0 to 4.
        payload: the bytes.
        level: as in Kafka's `compression.<name>.level`; None is the codec's default.
        reserve: bytes left free before the result.

    Returns:
        The free bytes followed by the compressed bytes.

    Raises:
        InvalidArgumentError: the codec has no such level.
        UnsupportedFormatError: the codec is unknown.

    >>> compress(CODEC_LZ4, b"paid")[:7].tobytes().hex()
    '04224d18604082'
    """
    out = np.empty(reserve + compress_bound(len(payload)), np.uint8)
    size = compress_into(codec, payload, out[reserve:], level=level)
    return out[: reserve + size]


def compress_into(codec: int, payload: BytesLike, out: Bytes, *, level: int | None = None) -> int:
    r"""Compresses one payload into a buffer (storage-format 1.10).

    lz4's level 9, its default, is the fast compressor, as in Kafka. The other levels are those of lz4's slow compressor: level 1
    means 2, and every level above 12 means 12.

    Args:
        codec: 0 to 4.
        payload: the bytes.
        out: the buffer for the compressed bytes: at least `compress_bound(len(payload))`.
        level: as in Kafka's `compression.<name>.level`; None is the codec's default.

    Returns:
        The number of bytes written.

    Raises:
        InvalidArgumentError: the codec has no such level, or the buffer is too small.
        UnsupportedFormatError: the codec is unknown.

    >>> out = np.empty(compress_bound(0), np.uint8)
    >>> compress_into(CODEC_SNAPPY, b"", out), out[:8].tobytes()
    (16, b'\x82SNAPPY\x00')
    """
    level = check_level(codec, level)
    if out.size < (bound := compress_bound(len(payload))):
        raise InvalidArgumentError(f"the output has {out.size} bytes; to compress {len(payload)} bytes, give it {bound}")
    return _compress_into(codec, _view(payload), _view(out), level)


def _compress_into(codec: int, payload: memoryview, out: memoryview, level: int) -> int:
    if codec == CODEC_GZIP:
        return cramjam.gzip.compress_into(payload, out, level=level)
    if codec == CODEC_SNAPPY:
        return _snappy_compress_into(payload, out)
    if codec == CODEC_LZ4:
        return _lz4_compress_into(payload, out, level)
    if codec == CODEC_ZSTD:
        return cramjam.zstd.compress_into(payload, out, level=level)
    return _copy_into(payload, out) or 0


def check_level(codec: int, level: int | None) -> int:
    """Returns the level to compress with: the given level if Kafka allows it for the codec, the codec's default for None.

    Args:
        codec: 0 to 4.
        level: as in Kafka's `compression.<name>.level`; gzip's -1 is its default.

    Returns:
        The level; 0 for codecs without levels.

    Raises:
        InvalidArgumentError: the codec has no such level.
        UnsupportedFormatError: the codec is unknown.

    >>> check_level(CODEC_ZSTD, None), check_level(CODEC_GZIP, 9)
    (3, 9)
    """
    name = codec_name(codec)
    default = DEFAULT_LEVELS.get(codec, 0)
    if level is None or (codec == CODEC_GZIP and level == -1):
        return default
    if codec not in LEVELS:
        raise InvalidArgumentError(f"{name} has no compression levels: leave the level out")
    lowest, highest = LEVELS[codec]
    if not lowest <= level <= highest:
        raise InvalidArgumentError(f"{name} has compression levels {lowest} to {highest}, not {level}")
    return level


# ---- snappy, in snappy-java's framing: storage-format 1.10.3 -----------------------------------------------------------------

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_NEXT_HEADER: Final = int.from_bytes(_SNAPPY_MAGIC[:4], "big", signed=True)  # where a chunk's size is expected
_SNAPPY_CHUNK_BYTES: Final = 32 << 10
_CHUNK_SIZE: Final = struct.Struct(">i")


def _snappy_decompress_into(stream: memoryview, out: memoryview) -> int | None:
    filled = 0
    for block in _snappy_blocks(stream):
        size = cramjam.snappy.decompress_raw_len(block)  # as the block declares it; the decoder enforces it
        if size > len(out) - filled:
            return None
        filled += cramjam.snappy.decompress_raw_into(block, out[filled : filled + size])
    return filled


def _snappy_blocks(stream: memoryview) -> Iterator[memoryview]:
    """Yields the raw snappy blocks of a stream: one per chunk, or the whole stream if it has no header (librdkafka)."""
    if len(stream) < len(_SNAPPY_HEADER) or bytes(stream[: len(_SNAPPY_MAGIC)]) != _SNAPPY_MAGIC:
        yield _snappy_block(stream, 0, len(stream))
        return
    at = len(_SNAPPY_HEADER)  # its versions are ignored, as in Java
    while len(stream) - at >= _CHUNK_SIZE.size:
        (size,) = _CHUNK_SIZE.unpack_from(stream, at)
        at += _CHUNK_SIZE.size
        if size == _SNAPPY_NEXT_HEADER:  # streams may be concatenated
            size = len(_SNAPPY_HEADER) - _CHUNK_SIZE.size
            _snappy_block(stream, at, size)
        else:
            yield _snappy_block(stream, at, size)
        at += size


def _snappy_block(stream: memoryview, at: int, size: int) -> memoryview:
    if not 0 < size <= min(len(stream) - at, limits.MAX_COMPRESSED_BATCH_BYTES):
        raise CorruptionError("the batch's payload is not valid snappy: a chunk's size is not possible")
    return stream[at : at + size]


def _snappy_compress_into(payload: memoryview, out: memoryview) -> int:
    out[: len(_SNAPPY_HEADER)] = _SNAPPY_HEADER
    at = len(_SNAPPY_HEADER)
    for start in range(0, len(payload), _SNAPPY_CHUNK_BYTES):
        body = at + _CHUNK_SIZE.size
        size = cramjam.snappy.compress_raw_into(payload[start : start + _SNAPPY_CHUNK_BYTES], out[body:])
        _CHUNK_SIZE.pack_into(out, at, size)
        at = body + size
    return at


# ---- lz4 frames: storage-format 1.10.4 ---------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"  # version 1, independent blocks of 64 KiB, no options, header checksum
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_INDEPENDENT_BIT: Final = 0x20
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_DICTIONARY_BIT: Final = 0x01
_LZ4_STORED_BIT: Final = 1 << 31
_BLOCK_SIZE: Final = struct.Struct("<I")


def _checked_lz4_frame(frame: memoryview, magic: int) -> memoryview | bytes:
    """Returns the frame if Kafka's reader accepts its header; for format 0 the header's checksum is corrected."""
    if len(frame) < len(_LZ4_HEADER) or bytes(frame[:4]) != _LZ4_MAGIC:
        raise CorruptionError("the batch's payload is not an lz4 frame")
    # cramjam checks the version, the reserved bits and the block size.
    if frame[4] & (_LZ4_INDEPENDENT_BIT | _LZ4_DICTIONARY_BIT) != _LZ4_INDEPENDENT_BIT:
        raise CorruptionError("the batch's lz4 frame has linked blocks or a dictionary, which Kafka refuses")
    return frame if magic > 0 else _with_header_checksum(frame)


def _with_header_checksum(frame: memoryview) -> bytes:
    """Corrects the header's checksum: format 0 included the magic number in it (storage-format 2.7). Kafka ignores it."""
    at = 14 if frame[4] & _LZ4_CONTENT_SIZE_BIT else 6
    if len(frame) <= at:
        raise CorruptionError("the batch's lz4 frame ends inside its header")
    checksum = _xxh32(bytes(frame[4:at])) >> 8 & 0xFF
    return b"".join((frame[:at], bytes((checksum,)), frame[at + 1 :]))


def _xxh32(data: bytes) -> int:
    """Returns xxHash with 32 bits and seed 0 of fewer than 16 bytes."""
    value = 374761393 + len(data)
    words = len(data) // 4
    for word in struct.unpack_from(f"<{words}I", data):
        value = _rotated(value + word * 3266489917, 17) * 668265263
    for byte in data[4 * words :]:
        value = _rotated(value + byte * 374761393, 11) * 2654435761
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> 32 - bits


def _lz4_compress_into(payload: memoryview, out: memoryview, level: int) -> int:
    out[: len(_LZ4_HEADER)] = _LZ4_HEADER
    at = len(_LZ4_HEADER)
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        chunk = payload[start : start + _LZ4_BLOCK_BYTES]
        if level == DEFAULT_LEVELS[CODEC_LZ4]:
            at += _lz4_fast_block_into(chunk, out[at:])
        else:
            at += _lz4_slow_block_into(chunk, out[at:], min(max(level, 2), 12))
    _BLOCK_SIZE.pack_into(out, at, 0)  # the end mark
    return at + _BLOCK_SIZE.size


def _lz4_fast_block_into(chunk: memoryview, out: memoryview) -> int:
    """Writes one block after its size, stored uncompressed if compression saves nothing: byte for byte as Kafka does."""
    body = _BLOCK_SIZE.size
    size = cramjam.lz4.compress_block_into(chunk, out[body:], store_size=False)
    if size < len(chunk):
        _BLOCK_SIZE.pack_into(out, 0, size)
        return body + size
    _BLOCK_SIZE.pack_into(out, 0, len(chunk) | _LZ4_STORED_BIT)
    out[body : body + len(chunk)] = chunk
    return body + len(chunk)


def _lz4_slow_block_into(chunk: memoryview, out: memoryview, level: int) -> int:
    """Does the same with the slow compressor, which cramjam provides for whole frames only.

    Its frames have linked blocks, which Kafka refuses, but a frame's first block depends on no other. So each chunk becomes a
    frame, and its block is extracted. (`cramjam.lz4.Compressor` makes independent blocks, but holds the GIL.)
    """
    cramjam.lz4.compress_into(chunk, out, level=level)
    start = 15 if out[4] & _LZ4_CONTENT_SIZE_BIT else 7
    (size,) = _BLOCK_SIZE.unpack_from(out, start)
    end = start + _BLOCK_SIZE.size + (size & ~_LZ4_STORED_BIT)
    out[: end - start] = out[start:end]
    return end - start
