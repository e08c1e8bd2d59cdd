"""The manifest of a segment that Aiven's plugin has put into an object store, and the index of its chunks.

The object `.log` has the segment in chunks. Each was compressed and encrypted by itself, so its size in the object differs from
its size in the segment. Every number of a manifest is checked here before anything of that size is read or allocated.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.directory.documents import Count, Offset, decoded
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.record.compression import decompress_into
from pylog.record.format import CODEC_ZSTD

IV_BYTES: Final = 12  # before each encrypted chunk
TAG_BYTES: Final = 16  # after it
_VERSION: Final = "1"
_Size = Annotated[int, msgspec.Meta(ge=0, le=limits.MAX_SEGMENT_BYTES)]
_ChunkSize = Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_SEGMENT_BYTES)]
_Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=limits.INT64_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=1024)]


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the JSON document."""


class _Fixed(_Document, frozen=True, tag="fixed"):
    original_chunk_size: _ChunkSize
    original_file_size: _Size
    transformed_chunk_size: _Size
    final_transformed_chunk_size: _Size


class _Variable(_Document, frozen=True, tag="variable"):
    original_chunk_size: _ChunkSize
    original_file_size: _Size
    transformed_chunks: str


class BundledFile(_Document, frozen=True):
    """The place of one small file in the object `.indexes`. Position and size in bytes; nothing is stored for size 0."""

    position: _Size
    size: _Size


class Pieces(_Document, frozen=True):
    """The places of a segment's small files in the object `.indexes`."""

    offset: BundledFile
    timestamp: BundledFile
    producer_snapshot: BundledFile
    leader_epoch: BundledFile
    transaction: BundledFile | None = None


class _Encryption(_Document, frozen=True):
    data_key: str
    aad: str


class _TopicPartition(_Document, frozen=True):
    topic: _Text
    partition: Count


class _TopicIdPartition(_Document, frozen=True):
    topic_id: _Text
    topic_partition: _TopicPartition


class _SegmentId(_Document, frozen=True):
    topic_id_partition: _TopicIdPartition
    id: _Text


class SegmentFacts(_Document, frozen=True):
    """The facts of the broker's record of a segment. `end_offset` is inclusive, as in Kafka."""

    remote_log_segment_id: _SegmentId
    start_offset: Offset
    end_offset: Offset
    max_timestamp_ms: _Number
    segment_leader_epochs: dict[str, Offset]


class _Manifest(_Document, frozen=True):
    version: str
    chunk_index: _Fixed | _Variable
    segment_indexes: Pieces
    compression: bool
    encryption: _Encryption | None = None
    remote_log_segment_metadata: SegmentFacts | None = None


class _Versioned(_Document, frozen=True):
    version: str


_MANIFESTS: Final = msgspec.json.Decoder(_Manifest)
_VERSIONS: Final = msgspec.json.Decoder(_Versioned)


class StoredChunks(NamedTuple):
    """The chunks of a `.log` object.

    Attributes:
        size: bytes of the segment.
        chunk_size: bytes of the segment in each chunk; the last one may have fewer.
        ends: int64, the byte of the object after each chunk, ascending.
    """

    size: int
    chunk_size: int
    ends: NDArray[np.int64]

    def within(self, position: int, end: int) -> range:
        """Returns the numbers of the chunks that have a range of the segment's bytes."""
        return range(position // self.chunk_size, -(-min(end, self.size) // self.chunk_size))

    def begin(self, number: int) -> int:
        """Returns the first byte of a chunk in the object."""
        return int(self.ends[number - 1]) if number else 0

    def plain_size(self, number: int) -> int:
        """Returns the bytes of the segment in a chunk."""
        return min(self.chunk_size, self.size - number * self.chunk_size)


class AivenManifest(NamedTuple):
    """A segment's manifest, checked.

    Attributes:
        chunks: the chunks of the object `.log`.
        pieces: the pieces of the object `.indexes`.
        is_compressed: whether each chunk is a zstd frame.
        data_key: the wrapped data key, as `<key id>:<base64>`; None if nothing is encrypted.
        aad: the additional data of the encryption.
        facts: those of the broker's record, if the manifest has them.
    """

    chunks: StoredChunks
    pieces: Pieces
    is_compressed: bool
    data_key: str | None
    aad: bytes
    facts: SegmentFacts | None


def parse_manifest(data: bytes, url: str) -> AivenManifest:
    """Parses a `.rsm-manifest`.

    Args:
        data: its bytes.
        url: where it was read, for errors.

    Raises:
        UnsupportedFormatError: its version is another one.
        CorruptionError: it is damaged, or its numbers contradict each other.
    """

    def damaged(reason: str) -> CorruptionError:
        return CorruptionError(f"{url} is not a segment's manifest: {reason}; restore the object", path=url, position=0)

    version = decoded(_VERSIONS, data, damaged).version
    if version != _VERSION:
        raise UnsupportedFormatError(f"{url} has version {version[:20]!r}; this pylog supports version {_VERSION!r}", path=url)
    found = decoded(_MANIFESTS, data, damaged)
    encrypted, index = found.encryption is not None, found.chunk_index
    try:
        aad = base64.b64decode(found.encryption.aad, validate=True) if found.encryption is not None else b""
        sizes = _sizes(index, is_compressed=found.compression, is_encrypted=encrypted)
    except (ValueError, binascii.Error, CorruptionError) as error:
        raise damaged(str(error)) from error
    chunks = StoredChunks(index.original_file_size, index.original_chunk_size, np.cumsum(sizes))
    key = None if found.encryption is None else found.encryption.data_key
    return AivenManifest(chunks, found.segment_indexes, found.compression, key, aad, found.remote_log_segment_metadata)


def _sizes(index: _Fixed | _Variable, *, is_compressed: bool, is_encrypted: bool) -> NDArray[np.int64]:
    """Returns the size of each chunk in the object. Raises ValueError if a size cannot be that of its chunk."""
    count = -(-index.original_file_size // index.original_chunk_size)
    if count > limits.MAX_TIER_CHUNKS:
        raise ValueError(f"the segment has {count} chunks, more than {limits.MAX_TIER_CHUNKS}")
    if (is_compressed or is_encrypted) and min(index.original_chunk_size, index.original_file_size) > limits.MAX_TIER_CHUNK_BYTES:
        raise ValueError(f"a chunk has {index.original_chunk_size} bytes, more than {limits.MAX_TIER_CHUNK_BYTES}")
    sizes = _fixed_sizes(index, count) if isinstance(index, _Fixed) else _decoded_sizes(index.transformed_chunks, count)
    plain = np.full(count, index.original_chunk_size, np.int64)
    if count:
        plain[-1] = index.original_file_size - (count - 1) * index.original_chunk_size
    extra = IV_BYTES + TAG_BYTES if is_encrypted else 0
    most = plain + extra + (plain // 128 + 1024 if is_compressed else 0)  # zstd adds less to what it cannot compress
    least = np.ones(count, np.int64) + extra if is_compressed else most
    wrong = np.flatnonzero((sizes < least) | (sizes > most))
    if wrong.size:
        raise ValueError(f"chunk {wrong[0]} has {sizes[wrong[0]]} bytes, which its {plain[wrong[0]]} bytes cannot become")
    return sizes


def _fixed_sizes(index: _Fixed, count: int) -> NDArray[np.int64]:
    sizes = np.full(count, index.transformed_chunk_size, np.int64)
    sizes[-1:] = index.final_transformed_chunk_size
    return sizes


def _decoded_sizes(text: str, count: int) -> NDArray[np.int64]:
    """Decodes the sizes of a variable index: count, base and width, the sizes above the base, and the last size."""
    packed = base64.b64decode(text, validate=True)
    buffer = np.empty(13 + 4 * count, np.uint8)  # no valid list is longer
    size = decompress_into(CODEC_ZSTD, packed, buffer)
    if size is None:
        raise ValueError(f"its list of chunks has more than {count} sizes")
    data = buffer[:size].tobytes()
    if size < 4 or int.from_bytes(data[:4], "big", signed=True) != count:
        raise ValueError(f"its list of chunks has another number of sizes than {count}")
    if not count:
        return np.empty(0, np.int64)
    last = int.from_bytes(data[-4:], "big", signed=True)
    if count == 1:
        return np.array([last], np.int64) if size == 8 else _refuse_length()
    width = data[8] if size > 8 else 0
    if width > 4 or size != 13 + width * (count - 1):
        return _refuse_length()
    digits = buffer[9 : size - 4].reshape(count - 1, width).astype(np.int64)
    above = np.zeros(count - 1, np.int64)
    for column in range(width):
        above = above << 8 | digits[:, column]
    return np.append(above + int.from_bytes(data[4:8], "big", signed=True), last)


def _refuse_length() -> NDArray[np.int64]:
    raise ValueError("its list of chunks has another length than its numbers need")
