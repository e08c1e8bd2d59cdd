"""Manifests: the truth of what an archive has of a partition, and of the store. Pure: bytes to values and back.

A manifest is immutable and numbered, and the newest one counts. It names segments whose objects were complete and checked before
it was written, so that a reader never sees a part of a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

import cramjam
import msgspec

from pylog import limits
from pylog.directory.documents import Count, Offset, decoded
from pylog.directory.topic_names import is_topic_name
from pylog.errors import CorruptionError, PylogError, UnsupportedFormatError
from pylog.objects.layout import is_id
from pylog.record.checksum import crc32c

FORMAT: Final = 1
# The names of a segment's small files in its `.indexes` object, in this order: Aiven's, then pylog's own.
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
PRODUCER_SNAPSHOT: Final = "producerSnapshot"
LEADER_EPOCH: Final = "leaderEpoch"
TRANSACTION: Final = "transaction"
SEAL: Final = "seal"
BUNDLED: Final = (OFFSET, TIMESTAMP, PRODUCER_SNAPSHOT, LEADER_EPOCH, TRANSACTION, SEAL)


class BundlePiece(msgspec.Struct, frozen=True, array_like=True):
    """A small file in a segment's `.indexes` object: its position and its size, in bytes."""

    position: Offset
    size: Offset


class RemoteSegment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A segment in an archive.

    Attributes:
        base_offset: the segment's; its first record may have a later offset.
        end_offset: the offset after its last record; the next segment begins there, or later.
        segment_id: the segment id of its objects' keys; never used again.
        size: bytes of its `.log`.
        max_timestamp: the largest timestamp of its records, in milliseconds; -1 if none has one.
        epochs: leader epochs of its records and the offsets at which they begin, both rising.
        log_crc32c: CRC-32C of the whole `.log`.
        indexes_crc32c: CRC-32C of the whole `.indexes` object.
        indexes_size: bytes of that object.
        indexes: its small files by the names of `BUNDLED`; a file that the segment does not have is missing.
        modified_ms: modification time of its `.log`, in milliseconds: the age of records without timestamps; -1 if unknown.
        has_aborted: whether a transaction was aborted in it.
        digest: the seal's digest of all batch headers and their checksums; None if the segment has no seal.
    """

    base_offset: Offset
    end_offset: Offset
    segment_id: str
    size: Offset
    max_timestamp: int = -1
    modified_ms: int = -1
    epochs: tuple[tuple[int, Offset], ...] = ()
    log_crc32c: int
    indexes_crc32c: int
    indexes_size: Offset
    indexes: dict[str, BundlePiece] = {}
    has_aborted: bool = False
    digest: int | None = None

    def piece(self, name: str, bundle: bytes | memoryview) -> bytes | None:
        """Returns one small file from the bytes of the `.indexes` object; None if the segment has none of that name."""
        found = self.indexes.get(name)
        return None if found is None else bytes(bundle[found.position : found.position + found.size])


class Retired(msgspec.Struct, frozen=True):
    """A segment that the manifest no longer names, and whose objects are deleted after a delay.

    Attributes:
        base_offset, segment_id: the base offset and segment id of its objects' keys.
        at_ms: time at which it ceased to be named, in milliseconds since 1970.
        size: bytes of its `.log`.
    """

    base_offset: Offset
    segment_id: str
    at_ms: int
    size: Offset


class PartName(msgspec.Struct, frozen=True, array_like=True):
    """Names some segments of a part: an immutable object with the oldest segments of a partition that has many.

    Attributes:
        part_id: the id of the part's key; never used again.
        crc32c: CRC-32C of the part.
        skipped: segments at the part's beginning that are no longer named.
        count: the count of the segments that are named.
        base_offset, end_offset: the base offset and end offset of the records in these.
    """

    part_id: str
    crc32c: int
    skipped: Count
    count: Count
    base_offset: Offset
    end_offset: Offset


class RetiredPart(msgspec.Struct, frozen=True):
    """A part that no version names since `at_ms`, in milliseconds since 1970. Earlier versions need it."""

    part_id: str
    at_ms: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive has of a partition, at one version.

    Attributes:
        format: this document's format; later ones are refused.
        store_id: the id of the store that was archived.
        writer: random; of the directory that wrote this version. A copy of the directory has another one.
        version: rises by 1; the newest version counts.
        written_ms: when it was written, by the writer's clock, in milliseconds since 1970.
        topic, topic_id, partition: the partition.
        log_end_offset: the log end when this was written; the records between `end_offset` and it were not archived.
        start_offset: the log start. Records before it are deleted, even if a segment has them.
        segments: in the order of their offsets; none overlap. Its object has only those after the parts'; see `whole`.
        parts: objects with the oldest segments, in the order of their offsets.
        retired_parts: parts that earlier versions name.
        retired: segments whose objects are still there, and are deleted after a delay.
        empty_to: offsets from the last segment to before this one have no record: a truncation left the log empty there.
        swept: the last version that a sweep wrote. Segments that were uploaded before it and are not named may be deleted.
        crc32c: the checksum of all that, eight hexadecimal digits.
    """

    format: int = FORMAT
    store_id: str
    writer: str
    version: int
    written_ms: int
    topic: str
    topic_id: str
    partition: Count
    log_end_offset: Offset = 0
    start_offset: Offset = 0
    segments: tuple[RemoteSegment, ...] = ()
    retired: tuple[Retired, ...] = ()
    empty_to: Offset = 0
    swept: Offset = 0
    parts: tuple[PartName, ...] = ()
    retired_parts: tuple[RetiredPart, ...] = ()
    crc32c: str = ""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets after a restore."""
        return max(self.start_offset, self.empty_to, *(each.end_offset for each in self.segments[-1:]))

    @property
    def size(self) -> int:
        """Bytes of all segments' `.log`s."""
        return sum(segment.size for segment in self.segments)


class ArchivedTopic(msgspec.Struct, frozen=True):
    """A topic of an archived store.

    Attributes:
        topic_id: the topic id of its objects' keys; the zero id if the topic has none.
        partitions: the numbers of those that were archived.
        config: what was set, by name.
        kept: the store has deleted the topic, or is about to, and the archive keeps it.
    """

    topic_id: str
    partitions: tuple[Count, ...]
    config: dict[str, Any] = {}
    kept: bool = False


class StoreManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The archived store, at one version.

    Attributes:
        format, store_id, writer, version, written_ms, crc32c: as of `Manifest`.
        topics: by name: the topics that the archive has, also internal ones.
    """

    format: int = FORMAT
    store_id: str
    writer: str
    version: int
    written_ms: int
    topics: dict[str, ArchivedTopic] = {}
    crc32c: str = ""


Document = TypeVar("Document", Manifest, StoreManifest)
_MANIFESTS: Final = msgspec.json.Decoder(Manifest)
_STORES: Final = msgspec.json.Decoder(StoreManifest)


class _Formatted(msgspec.Struct, frozen=True):
    format: int


class _Signed(msgspec.Struct, frozen=True):
    crc32c: str


_FORMATTED: Final = msgspec.json.Decoder(_Formatted)


class PartDocument(msgspec.Struct, frozen=True):
    """The content of a part. Its checksum is in the manifests that name it."""

    segments: tuple[RemoteSegment, ...]


_PARTS: Final = msgspec.json.Decoder(PartDocument)
_UNSIGNED: Final = b'"crc32c":""}'  # the end of a document without its checksum


def encode(document: Manifest | StoreManifest) -> bytes:
    """Returns the bytes of a document: JSON that ends with its checksum, compressed with zstd."""
    text = msgspec.json.encode(msgspec.structs.replace(document, crc32c=""))
    return bytes(cramjam.zstd.compress(text.removesuffix(_UNSIGNED) + _signature(f"{crc32c(text):08x}")))


def _signature(checksum: str) -> bytes:
    return msgspec.json.encode(_Signed(checksum))[1:]


def encode_part(segments: tuple[RemoteSegment, ...]) -> bytes:
    """Returns the bytes of a part."""
    return bytes(cramjam.zstd.compress(msgspec.json.encode(PartDocument(segments))))


def decode_part(data: bytes | memoryview, where: str) -> tuple[RemoteSegment, ...]:
    """Returns the segments of a part whose checksum is right.

    Args:
        data: the bytes of the object.
        where: its URL, for messages.

    Raises:
        CorruptionError: the bytes are no part.
    """
    damaged = partial(_damaged, where)
    return decoded(_PARTS, _plain(data, damaged), damaged).segments


def decode_manifest(data: bytes | memoryview, where: str) -> Manifest:
    """Returns a partition's manifest.

    Args:
        data: the bytes of the object.
        where: its URL, for messages.

    Raises:
        CorruptionError: the bytes are damaged, or contradict themselves. UnsupportedFormatError: a later pylog wrote them.
    """
    return _decoded(data, where, _MANIFESTS, contradictions)


def decode_store(data: bytes | memoryview, where: str) -> StoreManifest:
    """Returns the manifest of the store. Raises as `decode_manifest`."""
    return _decoded(data, where, _STORES, _impossible_topics)


def _decoded(
    data: bytes | memoryview,
    where: str,
    decoder: msgspec.json.Decoder[Document],
    wrong_of: Callable[[Document], Iterator[str]],
) -> Document:
    damaged = partial(_damaged, where)
    text = _plain(data, damaged)
    found = decoded(_FORMATTED, text, damaged).format
    if found != FORMAT:
        raise UnsupportedFormatError(f"{where} has format {found}; this pylog reads format {FORMAT}; upgrade pylog", path=where)
    document = decoded(decoder, text, damaged)
    signature = _signature(document.crc32c)
    if not text.endswith(signature) or document.crc32c != f"{crc32c(text.removesuffix(signature) + _UNSIGNED):08x}":
        raise damaged("its checksum is of another content")
    wrong = next(wrong_of(document), None)
    if wrong is not None:
        raise damaged(wrong)
    return document


def _plain(data: bytes | memoryview, damaged: Callable[[str], PylogError]) -> bytes:
    """Decompresses a document, within bounds: its size comes from an archive that anybody may have written."""
    out = bytearray(min(limits.MAX_MANIFEST_BYTES, limits.MANIFEST_EXPANSION * len(data) + 4096))
    try:
        count = cramjam.zstd.decompress_into(bytes(data), out)
    except Exception as error:  # noqa: BLE001 - cramjam raises classes of its own for each kind of damage
        raise damaged(f"it cannot be decompressed to at most {len(out)} bytes: {error}") from None
    return bytes(out[:count])


def _damaged(where: str, why: str) -> CorruptionError:
    return CorruptionError(f"{where} is damaged ({why}); the version before it counts", path=where)


def contradictions(manifest: Manifest) -> Iterator[str]:
    """Yields what no pylog wrote. Names become keys and paths, and sizes become memory."""
    if not is_topic_name(manifest.topic) or not is_id(manifest.topic_id):
        yield f"topic {manifest.topic!r} has an impossible name or id"
    if not all(is_id(each.segment_id) for each in manifest.retired):
        yield "the id of a retired segment is impossible"
    parts = [each.part_id for each in manifest.parts] + [each.part_id for each in manifest.retired_parts]
    if not all(map(is_id, parts)):
        yield "the id of a part is impossible"
    end = 0
    for part in manifest.parts:
        if not part.count or not end <= part.base_offset <= part.end_offset:
            yield f"the part at offset {part.base_offset} overlaps the one before it, or is empty"
        end = part.end_offset
    end = 0
    for segment in manifest.segments:
        if not is_id(segment.segment_id):
            yield f"the id of the segment at offset {segment.base_offset} is impossible"
        if not end <= segment.base_offset <= segment.end_offset:
            yield f"the segment at offset {segment.base_offset} overlaps the one before it"
        if segment.size > limits.MAX_SEGMENT_BYTES or not _fits(segment):
            yield f"the segment at offset {segment.base_offset} has an impossible size"
        end = segment.end_offset


def _fits(segment: RemoteSegment) -> bool:
    return all(piece.position + piece.size <= segment.indexes_size for piece in segment.indexes.values())


def _impossible_topics(store: StoreManifest) -> Iterator[str]:
    for name, topic in store.topics.items():
        if not is_topic_name(name) or not is_id(topic.topic_id):
            yield f"topic {name!r} has an impossible name or id"


__all__ = [
    "BUNDLED",
    "LEADER_EPOCH",
    "OFFSET",
    "PRODUCER_SNAPSHOT",
    "SEAL",
    "TIMESTAMP",
    "TRANSACTION",
    "ArchivedTopic",
    "BundlePiece",
    "Manifest",
    "PartDocument",
    "PartName",
    "RemoteSegment",
    "Retired",
    "RetiredPart",
    "StoreManifest",
    "contradictions",
    "decode_manifest",
    "decode_part",
    "decode_store",
    "encode",
    "encode_part",
]
