"""A staging file: batches of many partitions in order of arrival, followed by an index of each partition's batches.

One process fills it from front to back. A file is complete once it has its index; an incomplete one cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.directory.documents import Count, Offset, decoded
from pylog.directory.topic_names import is_topic_name
from pylog.errors import CorruptionError, StorageFailedError
from pylog.fs import FileKind, FileSystem, at_most, inside, join
from pylog.record.builder import Encoded
from pylog.record.checksum import crc32c
from pylog.record.few import EncodedBatch
from pylog.record.format import COUNT
from pylog.record.types import TopicPartition
from pylog.staging.intents import StagedFile


class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A partition in the index: chunks are position, size and records of each, one after the other."""

    topic: str
    partition: Count
    chunks: list[Offset]


class _Index(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The index: the partitions, the expected partition counts of the topics, and the topics with a record that has no key."""

    counts: dict[str, Count]
    entries: list[_Entry]
    keyless: list[str] = []


_DECODER: Final = msgspec.json.Decoder(_Index)  # created at import: see `pylog.topics.catalog`


class Chunks(NamedTuple):
    """A partition's batches in a staging file.

    Attributes:
        positions, sizes: in bytes, of runs of whole batches.
        counts: records in each.
    """

    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]


class StagedIndex(NamedTuple):
    """The content of a staging file.

    Attributes:
        counts: each topic's number of partitions when rows were assigned to them.
        chunks: by partition.
        keyless: the topics with a record that has no key.
    """

    counts: dict[str, int]
    chunks: dict[TopicPartition, Chunks]
    keyless: frozenset[str] = frozenset()


class StagingFile:
    """A staging file that is being filled.

    Args:
        fs, root: the store's.
        name: the name of the new file.

    Attributes:
        keyless: the topics with a record that has no key: a compacted one takes no such record. For the caller to fill.

    Raises:
        StorageFailedError: it cannot be made, or (from every method) written.
    """

    def __init__(self, fs: FileSystem, root: str, name: str) -> None:
        self._fs = fs
        self._path = join(root, name)
        self._name = name
        self._file = fs.create(self._path)
        self._position = 0
        self._chunks: dict[TopicPartition, list[int]] = {}
        self.keyless: set[str] = set()

    def add(self, partition: TopicPartition, encoded: Encoded | EncodedBatch) -> None:
        """Takes batches of a partition. Adjacent batches are merged into one chunk, up to a size."""
        size, count = len(encoded.data), int(encoded.table[COUNT].sum())
        self._file.write(encoded.data, self._position)
        chunks = self._chunks.setdefault(partition, [])
        if chunks and chunks[-3] + chunks[-2] == self._position and chunks[-2] < limits.SPLICE_BYTES:
            chunks[-2] += size
            chunks[-1] += count
        else:
            chunks += (self._position, size, count)
        self._position += size

    def finish(self, counts: dict[str, int], *, durable: bool) -> StagedFile:
        """Writes the index and closes the file.

        Args:
            counts: each topic's number of partitions.
            durable: whether the file must survive a power loss, once its directory is synced.
        """
        entries = [_Entry(*partition, chunks) for partition, chunks in self._chunks.items()]
        index = INDEXES.checked(msgspec.json.encode(_Index(counts, entries, sorted(self.keyless))), self._path)
        self._file.write(memoryview(index), self._position)
        if durable:
            self._file.sync()
        self._file.close()
        return StagedFile(self._name, self._position, len(index), crc32c(index))

    def discard(self) -> None:
        """Closes and removes the file."""
        self._file.close()
        self._fs.remove(self._path)


def read_index(fs: FileSystem, root: str, staged: StagedFile) -> StagedIndex:
    """Reads the index of a finished staging file.

    Raises:
        StorageFailedError: the file is missing. CorruptionError: it has changed since it was completed, it never was a staging
            file, or it has the name of a file outside of the store.
    """
    path = staged_path(root, staged)
    if not fs.exists(path):
        message = (
            "the driver needs the store under the same path as the executors; or the file was removed while its job was running"
        )
        raise StorageFailedError(f"{path}, which a task has written, does not exist: {message}", path=path)
    file = fs.open(path)
    try:
        data = file.read(min(staged.index_size, INDEXES.bound(0)), staged.index_position)
    finally:
        file.close()
    if len(data) != staged.index_size or crc32c(data) != staged.index_crc:
        raise CorruptionError(f"{path} changed after its task; run the job again", path=path, position=staged.index_position)
    return INDEXES.parsed(data, path, staged)


def staged_path(root: str, staged: StagedFile) -> str:
    """Returns the path of a staging file. Raises CorruptionError if its name is no file of the store."""
    return inside(root, staged.name, f"the list of staging files of {root}")


def _parsed(data: bytes, path: str, staged: StagedFile) -> StagedIndex:
    def damaged(why: str) -> CorruptionError:
        message = f"the index of {path} is damaged ({why}): none of its batches is appended; run the job again"
        return CorruptionError(message, path=path, position=staged.index_position)

    index = decoded(_DECODER, data, damaged)
    if not all(map(is_topic_name, (*index.counts, *(entry.topic for entry in index.entries)))):
        raise damaged("it names a topic that cannot exist")
    if not all(_fits(entry.chunks, staged.index_position) for entry in index.entries):
        raise damaged("it names batches that are not in the file")
    chunks = {TopicPartition(entry.topic, entry.partition): _chunks(entry.chunks) for entry in index.entries}
    return StagedIndex(index.counts, chunks, frozenset(index.keyless))


INDEXES: Final = FileKind("a staging file", _parsed, at_most(limits.MAX_CHECKPOINT_BYTES), "run the job again")


def _fits(numbers: Sequence[int], end: int) -> bool:
    """Returns whether positions, sizes and counts can be those of batches in the first `end` bytes of a file."""
    if len(numbers) % 3:
        return False
    counted = all(1 <= count <= limits.INT32_MAX for count in numbers[2::3])
    return counted and all(size and position + size <= end for position, size in zip(numbers[::3], numbers[1::3], strict=True))


def _chunks(numbers: Sequence[int]) -> Chunks:
    table = np.array(numbers, np.int64).reshape(-1, 3).T
    return Chunks(*np.ascontiguousarray(table))
