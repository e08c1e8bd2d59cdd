"""Uploads one sealed segment: reads and checks it, creates its three objects, and checks that they are there."""

from __future__ import annotations

import contextlib
from typing import Any, Final, NamedTuple

import numpy as np
from google_crc32c import extend

from pylog.clock import SystemClock
from pylog.directory.leader_epoch_cache import encode_epochs, read_epochs, truncate_epochs_end
from pylog.errors import CorruptionError, ObjectStoreError
from pylog.fs import FileKind, FileSystem, join
from pylog.index.kinds import OFFSETS, TIMES, TRANSACTIONS
from pylog.log.checking.verification import private_copy
from pylog.log.recovery.producer_snapshots import SNAPSHOTS
from pylog.objects import layout
from pylog.objects.layout import ArchivedPartition, new_segment_id, segment_key
from pylog.objects.manifest import (
    LEADER_EPOCH,
    OFFSET,
    PRODUCER_SNAPSHOT,
    SEAL,
    TIMESTAMP,
    TRANSACTION,
    BundlePiece,
    RemoteSegment,
)
from pylog.objects.objects import Data, ObjectStore, create_own, failed
from pylog.objects.rsm_manifest import encode_rsm_manifest
from pylog.record.checksum import crc32c
from pylog.record.format import BASE_OFFSET, MAX_TIMESTAMP
from pylog.record.format import LEADER_EPOCH as EPOCH
from pylog.segment import names
from pylog.segment.batch_walk import Damage, WalkedRange, walk
from pylog.segment.header_digest import HeaderDigest
from pylog.segment.seal import SEALS
from pylog.segment.segment import LogSegment
from pylog.text import counted

_CHUNK: Final = 256 << 10  # bytes that are copied and checked while other threads wait


class Candidate(NamedTuple):
    """A sealed segment to upload: the segment, and the offset at which the next one begins."""

    segment: LogSegment
    end_offset: int


class Content(NamedTuple):
    """All that is uploaded of a segment: its bytes, its small files one after the other, and its description."""

    log: memoryview
    bundle: bytes
    segment: RemoteSegment


class _BatchFacts:
    """Facts about a segment, from its batches."""

    def __init__(self) -> None:
        self.max_timestamp = -1
        self.epochs: list[tuple[int, int]] = []
        self.digest = HeaderDigest()

    def take(self, walked: WalkedRange) -> None:
        """Adds some batches."""
        table = walked.table
        if not table.shape[1]:
            return
        self.digest.add(walked.buffer, table, 0, table.shape[1], walked.shift)
        self.max_timestamp = max(self.max_timestamp, int(table[MAX_TIMESTAMP].max()))
        epochs = table[EPOCH]
        for at in (0, *(np.flatnonzero(np.diff(epochs)) + 1).tolist()):
            epoch = int(epochs[at])
            if epoch >= 0 and (not self.epochs or self.epochs[-1][0] < epoch):
                self.epochs.append((epoch, int(table[BASE_OFFSET, at])))


def content_of(fs: FileSystem, candidate: Candidate) -> Content | Damage:
    """Reads a segment, and verifies each batch. Returns the damage if there is any: then nothing is uploaded.

    Other threads run between its pieces: an append waits for Python's lock no longer than for one of them.

    Cost: two passes over the segment, which is mapped.
    """
    segment, end = candidate
    facts, copy = _BatchFacts(), private_copy(segment, segment.size, sealed=True, mapped=segment.vouched is None)
    for walked in walk(copy, 0, segment.size, end, verify=True):
        facts.take(walked)
        if walked.damage is not None:
            return walked.damage
        _give_way()
    log = copy.file().read(0, segment.size).data  # the bytes that were verified, whatever their name leads to now
    bundle, pieces = _bundle(fs, copy, end)
    described = RemoteSegment(
        base_offset=segment.base_offset,
        end_offset=end,
        segment_id=new_segment_id(),
        size=segment.size,
        max_timestamp=facts.max_timestamp,
        modified_ms=segment.appends.file_ms,
        epochs=tuple(facts.epochs),
        log_crc32c=checksum_of(log),
        indexes_crc32c=crc32c(bundle),
        indexes_size=len(bundle),
        indexes=pieces,
        has_aborted=TRANSACTION in pieces and pieces[TRANSACTION].size > 0,
        digest=facts.digest.value,
    )
    return Content(log, bundle, described)


def checksum_of(data: memoryview) -> int:
    """Returns the CRC-32C of many bytes, without a copy of all of them."""
    value = 0
    for at in range(0, len(data), _CHUNK):
        value = extend(value, bytes(data[at : at + _CHUNK]))
        _give_way()
    return value


def _give_way() -> None:
    """Lets a thread that waits for Python's lock have it first. Else it waits 5 ms each time, and an append takes it often."""
    SystemClock().sleep(0)


def _bundle(fs: FileSystem, segment: LogSegment, end: int) -> tuple[bytes, dict[str, BundlePiece]]:
    """Returns a segment's small files, one after the other, and their places. One that cannot be used is left out."""
    segment.offset_index()
    rebuilt = segment.rebuild_indexes() if segment.index_is_of_headers else None  # the files are missing, or damaged
    files = {
        OFFSET: _derived(OFFSETS, fs, segment.path_of(names.INDEX), segment.size) if rebuilt is None else rebuilt.offset_bytes(),
        TIMESTAMP: _derived(TIMES, fs, segment.path_of(names.TIME_INDEX), segment.size)
        if rebuilt is None
        else rebuilt.time_bytes(),
        PRODUCER_SNAPSHOT: _derived(SNAPSHOTS, fs, join(segment.directory, names.file_name(end, names.SNAPSHOT)), end),
        LEADER_EPOCH: _epochs(fs, segment.directory, end),
        TRANSACTION: _derived(TRANSACTIONS, fs, segment.path_of(names.TRANSACTION_INDEX), segment.size),
        SEAL: _derived(SEALS, fs, segment.path_of(names.SEAL), segment.size),
    }
    bundle, pieces = bytearray(), {}
    for name, data in files.items():
        if data is not None:
            pieces[name] = BundlePiece(len(bundle), len(data))
            bundle += data
    return bytes(bundle), pieces


def _derived(kind: FileKind[Any, Any], fs: FileSystem, path: str, size: int) -> bytes | None:
    data = kind.fetch_derived(fs, path, size).data
    return None if data is None else bytes(data)


def _epochs(fs: FileSystem, directory: str, end: int) -> bytes | None:
    """Returns the leader epochs up to a segment's end, as a checkpoint file."""
    with contextlib.suppress(CorruptionError):
        epochs = read_epochs(fs, directory)
        return None if epochs is None else encode_epochs(truncate_epochs_end(epochs, end))
    return None


# ---- the requests ------------------------------------------------------------------------------------------------------------


def upload(
    objects: ObjectStore, partition: ArchivedPartition, content: Content, now_ms: int, *, reads_back: bool = False
) -> None:
    """Creates a segment's objects, the `.log` first, and checks that they are complete.

    Args:
        objects: the archive.
        partition: the segment's.
        content: the segment.
        now_ms: the wall clock, in milliseconds.
        reads_back: true to read the objects again and compare their checksums.

    Raises:
        ObjectStoreError: a request failed, or an object is not complete. The objects that exist are orphans: no manifest names
            them, and the next attempt has another id.
    """
    segment = content.segment
    bodies: dict[str, Data] = {
        layout.LOG: content.log,
        layout.INDEXES: content.bundle,
        layout.RSM_MANIFEST: encode_rsm_manifest(partition, segment, now_ms),
    }
    for suffix, body in bodies.items():
        create_own(objects, segment_key(partition, segment.base_offset, segment.segment_id, suffix), body)
    for suffix, body in bodies.items():
        _check(objects, segment_key(partition, segment.base_offset, segment.segment_id, suffix), body, reads_back=reads_back)


def _check(objects: ObjectStore, key: str, body: Data, *, reads_back: bool) -> None:
    found = objects.head(key)
    if found is None or found.size != len(body):
        size = "nothing" if found is None else counted(found.size, "byte")
        raise failed(ObjectStoreError, objects.url, key, "check", f"sent {counted(len(body), 'byte')}, and the store has {size}")
    if reads_back and checksum_of(memoryview(objects.get(key)[0])) != checksum_of(memoryview(body)):
        raise failed(ObjectStoreError, objects.url, key, "check", "the store returned other bytes than were sent")


def delete_objects(objects: ObjectStore, partition: ArchivedPartition, segment: RemoteSegment) -> None:
    """Deletes the objects of a segment that no manifest names. A failure leaves orphans, and nothing else."""
    with contextlib.suppress(ObjectStoreError):
        objects.delete(
            [segment_key(partition, segment.base_offset, segment.segment_id, suffix) for suffix in layout.SEGMENT_OBJECTS]
        )
