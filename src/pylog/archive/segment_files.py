"""The files of an archived segment, as the engine asks for them: its log by ranges, its small files from one checked object."""

from __future__ import annotations

from functools import partial
from typing import Final

from pylog import limits, trace
from pylog.errors import CorruptionError, ObjectStoreError, ObjectStoreUnavailableError
from pylog.fs import Vouched
from pylog.objects import manifest as documents
from pylog.objects.cache import SMALL_OBJECTS
from pylog.objects.layout import INDEXES, ArchivedPartition, segment_key
from pylog.objects.manifest import RemoteSegment
from pylog.objects.objects import ObjectStore
from pylog.objects.remote_files import Folder, RemoteEntry
from pylog.record.checksum import crc32c
from pylog.segment.names import INDEX, LOG, SEAL, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, file_name

_PIECES: Final = {
    INDEX: documents.OFFSET,
    TIME_INDEX: documents.TIMESTAMP,
    TRANSACTION_INDEX: documents.TRANSACTION,
    SEAL: documents.SEAL,
}


class ArchivedLog:
    """The log of a segment, byte for byte as it was.

    Args:
        objects: the archive.
        key: of the object.
    """

    grain: int = 1

    def __init__(self, objects: ObjectStore, key: str) -> None:
        self._objects = objects
        self._key = key
        self.url = f"{objects.url}/{key}"

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns a range. Cost: one request."""
        return self._objects.get_range(self._key, position, end)


class ArchivedBundle:
    """The small files of a segment, which are read together and checked.

    Args:
        objects: the archive.
        key: of the object.
        segment: in the manifest.
    """

    def __init__(self, objects: ObjectStore, key: str, segment: RemoteSegment) -> None:
        self._objects = objects
        self._key = key
        self._segment = segment
        self.url = f"{objects.url}/{key}"

    def piece(self, name: str) -> bytes | None:
        """Returns one small file; None if the object is missing or damaged: the file is then made again from the log."""
        try:
            data = SMALL_OBJECTS.get(self.url, self._fetch)
        except ObjectStoreUnavailableError:
            raise
        except (CorruptionError, ObjectStoreError) as error:
            trace.line(trace.IGNORED, path=self.url, reason=str(error))
            return None
        return None if data is None else self._segment.piece(name, data)

    def prefetch(self) -> None:
        """Reads the object, if it is not kept in memory."""
        self.piece(documents.OFFSET)

    def _fetch(self) -> bytes:
        size = self._segment.indexes_size
        if size > limits.MAX_BUNDLE_BYTES:
            message = f"{self.url} has {size} bytes by the manifest, more than {limits.MAX_BUNDLE_BYTES}"
            raise CorruptionError(message, path=self.url, position=0)
        data = bytes(self._objects.get_range(self._key, 0, size))
        if crc32c(data) != self._segment.indexes_crc32c:
            message = f"{self.url} does not have the checksum that its manifest has; its small files are made again from the log"
            raise CorruptionError(message, path=self.url, position=0)
        return data


def segment_files(objects: ObjectStore, key: ArchivedPartition, segment: RemoteSegment, next_base: int | None) -> Folder:
    """Returns the files of one archived segment, by name. Sends no request."""
    log = ArchivedLog(objects, segment_key(key, segment.base_offset, segment.segment_id, LOG))
    bundle = ArchivedBundle(objects, segment_key(key, segment.base_offset, segment.segment_id, INDEXES), segment)
    vouched = Vouched(segment.end_offset, segment.max_timestamp)
    files = {file_name(segment.base_offset, LOG): RemoteEntry(segment.size, log=log, vouched=vouched, next_base=next_base)}
    for suffix, piece in _PIECES.items():
        if piece in segment.indexes:
            size = segment.indexes[piece].size
            files[file_name(segment.base_offset, suffix)] = RemoteEntry(size, small=partial(bundle.piece, piece))
    if documents.PRODUCER_SNAPSHOT in segment.indexes:
        snapshot = partial(bundle.piece, documents.PRODUCER_SNAPSHOT)
        files[file_name(segment.end_offset, SNAPSHOT)] = RemoteEntry(0, small=snapshot)
    return files
