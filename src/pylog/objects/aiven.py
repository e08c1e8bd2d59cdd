"""Reads segments that Aiven's tiered-storage plugin has put into an object store: plain, zstd, encrypted, or both.

Objects of a segment: `<prefix><topic>-<topic id>/<partition>/<base>-<segment id>` with `.log`, `.indexes` and `.rsm-manifest`.
The prefix is pasted before the topic. The first two have no checksum: an encrypted chunk is authenticated, and all other bytes
are checked as those of a local segment, by the checksums of their batches.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pylog import limits
from pylog.directory.leader_epoch_cache import EpochEntry
from pylog.errors import CorruptionError, InvalidArgumentError
from pylog.objects.aiven_keys import MISSING, KeyRing
from pylog.objects.aiven_manifest import IV_BYTES, TAG_BYTES, AivenManifest, BundledFile, SegmentFacts, parse_manifest
from pylog.objects.cache import SMALL_OBJECTS
from pylog.objects.layout import INDEXES, RSM_MANIFEST
from pylog.objects.objects import ObjectStore
from pylog.objects.tier_batches import epochs_within
from pylog.objects.tier_segments import TierSegment, impossible
from pylog.objects.tier_source import TierPartition, small_object
from pylog.record.compression import decompress_into
from pylog.record.format import CODEC_ZSTD
from pylog.record.primitives import Reader, parsing
from pylog.segment.names import INDEX, LEADER_EPOCH_CHECKPOINT, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from pylog.threads import submitted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PREFIX_TAG: Final = 1  # of the custom metadata in the broker's record
_PATH_TAG: Final = 2
_KEY: Final = re.compile(r"(.+)-([A-Za-z0-9_-]{22})/(\d{1,10})/(\d{20}-[A-Za-z0-9_-]{22})(\.[a-z-]+)")
_THREADS: Final = 16  # that read manifests, which takes a round trip each


class AivenTier:
    """The segments that Aiven's plugin wrote. See `TierLayout` for the methods.

    Args:
        objects: the object store.
        key_prefix: the plugin's `key.prefix`.
        keys: opens encrypted segments.
    """

    def __init__(self, objects: ObjectStore, key_prefix: str, keys: KeyRing) -> None:
        self._objects = objects
        self._prefix = key_prefix
        self._keys = keys

    def partitions(self) -> set[TierPartition]:
        """Returns the partitions that have a manifest."""
        folder = self._prefix[: self._prefix.rfind("/") + 1]
        found = set()
        for entry in self._objects.list(folder):
            match = _KEY.fullmatch(entry.key.removeprefix(self._prefix)) if entry.key.startswith(self._prefix) else None
            if match is not None and match[5] == RSM_MANIFEST:
                found.add(TierPartition(match[1], int(match[3]), match[2]))
        return found

    def segments(self, partition: TierPartition) -> list[TierSegment]:
        """Returns the segments that have a manifest and a log. A log without a manifest belongs to an unfinished copy."""
        keys = {entry.key for entry in self._objects.list(self._folder(partition))}
        stems = [key.removesuffix(RSM_MANIFEST) for key in keys if key.endswith(RSM_MANIFEST)]
        stems = sorted(stem for stem in stems if stem + LOG in keys)
        with ThreadPoolExecutor(_THREADS, "pylog-manifests") as pool:
            listed = [submitted(pool, partial(self._listed, stem)) for stem in stems]
            found = [each.result() for each in listed]
        return [segment for segment in found if segment is not None]

    def _listed(self, stem: str) -> TierSegment | None:
        manifest = AivenSegment(self._objects, stem, self._keys).manifest
        if manifest.facts is None:
            return None  # of a version of the plugin that did not write them
        found = _segment(manifest.facts, manifest.chunks.size, stem, f"{self._objects.url}/{stem}{RSM_MANIFEST}")
        if found.epochs:
            return found
        return found._replace(epochs=epochs_within(self.opened(found), found.base_offset, found.end_offset, found.size))

    def _folder(self, partition: TierPartition) -> str:
        return f"{self._prefix}{partition.topic}-{partition.topic_id}/{partition.partition}/"

    def stem(self, partition: TierPartition, base_offset: int, segment_id: str, custom: bytes | None) -> str:
        """Returns the key of a segment's objects. The plugin's own metadata in the record may replace its prefix and its path."""
        folder, name = self._folder(partition), f"{base_offset:020d}-{segment_id}"
        tags = _custom_tags(custom)
        if _PATH_TAG in tags:
            prefix = tags.get(_PREFIX_TAG, self._prefix)
            return f"{prefix}{tags[_PATH_TAG]}"
        return f"{folder}{name}"

    def opened(self, segment: TierSegment) -> AivenSegment:
        """Returns the objects of a segment."""
        return AivenSegment(self._objects, segment.stem, self._keys)


def _custom_tags(custom: bytes | None) -> dict[int, str]:
    """Returns the texts in the plugin's metadata, by tag; none if it cannot be read."""
    with suppress(CorruptionError), parsing("the metadata of a segment", "__remote_log_metadata"):
        read = Reader(custom or b"")
        read.flexible = True
        return {
            number: inner.decode()
            for number, value in (read.tags() if custom else ())
            if number in (_PREFIX_TAG, _PATH_TAG) and (inner := _compact_text(value)) is not None
        }
    return {}


def _compact_text(value: bytes) -> bytes | None:
    read = Reader(value)
    read.flexible = True
    return read.optional_sized()


def _segment(facts: SegmentFacts, size: int, stem: str, url: str) -> TierSegment:
    def damaged(reason: str) -> CorruptionError:
        return CorruptionError(f"{url} {reason}; restore the object", path=url, position=0)

    name = stem.rpartition("/")[2]
    try:
        pairs = sorted((int(epoch), start) for epoch, start in facts.segment_leader_epochs.items())
    except ValueError as error:
        raise damaged("has a leader epoch that is not a number") from error
    epochs = tuple(EpochEntry(epoch, start) for epoch, start in pairs)
    if f"{facts.start_offset:020d}-{facts.remote_log_segment_id.id}" != name:
        raise damaged(f"describes a segment that begins at offset {facts.start_offset}, and its name another one")
    wrong = impossible(facts.start_offset, facts.end_offset + 1, epochs)
    if wrong is not None:
        raise damaged(wrong)
    return TierSegment(facts.remote_log_segment_id.id, facts.start_offset, facts.end_offset + 1, size, epochs, stem)


class AivenSegment:
    """The objects of one segment. See `SegmentObjects`.

    Args:
        objects: the object store.
        stem: the key without a suffix.
        keys: opens encrypted segments.
    """

    def __init__(self, objects: ObjectStore, stem: str, keys: KeyRing) -> None:
        self._objects = objects
        self._stem = stem
        self._keys = keys
        self.url = f"{objects.url}/{stem}{LOG}"

    @cached_property
    def manifest(self) -> AivenManifest:
        """The segment's manifest. Cost: two requests at the first use in this process."""
        url = f"{self._objects.url}/{self._stem}{RSM_MANIFEST}"
        data = SMALL_OBJECTS.get(url, partial(self._fetch_manifest, url))
        assert data is not None
        return parse_manifest(data, url)

    def _fetch_manifest(self, url: str) -> bytes:
        """Raises if there is none, so that memory has no missing manifest: the user may restore it."""
        data = small_object(self._objects, self._stem + RSM_MANIFEST, limits.MAX_TIER_MANIFEST_BYTES)
        if data is None:
            message = f"{url} does not exist, so the segment cannot be read; restore the object"
            raise CorruptionError(message, path=url, position=0)
        return data

    @cached_property
    def grain(self) -> int:
        """Reads that begin at multiples of it waste nothing."""
        return self.manifest.chunks.chunk_size if self._is_transformed else 1

    @property
    def _is_transformed(self) -> bool:
        return self.manifest.is_compressed or self.manifest.data_key is not None

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns a range of the segment's log. Cost: one request, for all chunks that have a part of it."""
        if not self._is_transformed:
            return self._objects.get_range(self._stem + LOG, position, end)
        chunks = self.manifest.chunks
        numbers = chunks.within(position, end)
        first = chunks.begin(numbers.start)
        stored = memoryview(self._objects.get_range(self._stem + LOG, first, chunks.begin(numbers.stop)))
        base = numbers.start * chunks.chunk_size
        plain = np.empty(min(chunks.size, numbers.stop * chunks.chunk_size) - base, np.uint8)
        for number in numbers:
            at = number * chunks.chunk_size - base
            part = stored[chunks.begin(number) - first : chunks.begin(number + 1) - first]
            self._restore(number, part, plain[at : at + chunks.plain_size(number)])
        plain.flags.writeable = False
        return plain[position - base : end - base].data

    def _restore(self, number: int, stored: memoryview, plain: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        """Decrypts and decompresses a chunk into its place."""
        position = number * self.manifest.chunks.chunk_size
        data = self._decrypted(stored, self.url, position)
        if self.manifest.is_compressed:
            size = self._decompressed(data, plain, position)
        else:
            size = len(data)
            plain[:size] = np.frombuffer(data, np.uint8)
        if size != plain.size:
            raise self._damaged(self.url, position, f"its chunk {number} has {size} bytes in place of {plain.size}")

    def _decompressed(self, data: memoryview | bytes, plain: np.ndarray[tuple[int], np.dtype[np.uint8]], position: int) -> int:
        try:
            size = decompress_into(CODEC_ZSTD, data, plain)
        except CorruptionError as error:
            raise self._damaged(self.url, position, "a chunk is not valid zstd") from error
        if size is None:
            raise self._damaged(self.url, position, f"a chunk has more than its {plain.size} bytes")
        return size

    def _decrypted(self, stored: memoryview, url: str, position: int) -> memoryview | bytes:
        if self.manifest.data_key is None:
            return stored
        if len(stored) < IV_BYTES + TAG_BYTES:
            raise self._damaged(url, position, "an encrypted part is too short")
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(bytes(stored[:IV_BYTES]), stored[IV_BYTES:], self.manifest.aad)
        except InvalidTag:
            raise self._damaged(url, position, "an encrypted part was altered") from None

    @cached_property
    def _cipher(self) -> AESGCM:
        assert self.manifest.data_key is not None
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise InvalidArgumentError(MISSING) from error
        try:
            return AESGCM(self._keys.unwrapped(self.manifest.data_key))
        except InvalidArgumentError as error:
            url = f"{self._objects.url}/{self._stem}"
            raise InvalidArgumentError(
                f"cannot read the segment {url}: {error}; give it in `keys` of KafkaTier", path=url
            ) from error

    def small_file(self, suffix: str) -> bytes | None:
        """Returns one of the segment's small files. Cost: one request."""
        piece = self._piece(suffix)
        if piece is None:
            return None
        if piece.size == 0:
            return b""
        key, end = self._stem + INDEXES, piece.position + piece.size
        stored = memoryview(self._objects.get_range(key, piece.position, end))
        return bytes(self._decrypted(stored, f"{self._objects.url}/{key}", piece.position))

    def _piece(self, suffix: str) -> BundledFile | None:
        pieces = self.manifest.pieces
        by_suffix = {
            INDEX: pieces.offset,
            TIME_INDEX: pieces.timestamp,
            SNAPSHOT: pieces.producer_snapshot,
            LEADER_EPOCH_CHECKPOINT: pieces.leader_epoch,
            TRANSACTION_INDEX: pieces.transaction,
        }
        found = by_suffix.get(suffix)
        if found is not None and found.size > limits.MAX_SNAPSHOT_BYTES:
            raise self._damaged(f"{self._objects.url}/{self._stem}{RSM_MANIFEST}", 0, f"a small file has {found.size} bytes")
        return found

    def _damaged(self, url: str, position: int, reason: str) -> CorruptionError:
        return CorruptionError(
            f"{url} is damaged at position {position}: {reason}; restore the object", path=url, position=position
        )
