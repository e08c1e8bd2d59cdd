"""Plans reads of an archived topic from its catalogue: the segments of all partitions, in one object. Lists nothing."""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, NamedTuple

import pyarrow.compute as pc

from pylog.archived_files import archived_files
from pylog.errors import UnknownTopicOrPartitionError
from pylog.fs import FileSystem
from pylog.index import kinds
from pylog.index.offset_index import OffsetIndex
from pylog.log.reading.outline import PartitionExtent
from pylog.objects.layout import ArchivedPartition
from pylog.objects.manifest import ArchivedTopic, Manifest, StoreManifest
from pylog.objects.objects import ObjectStore
from pylog.objects.segment_catalogue import Catalogue, catalogue_of, catalogues_of
from pylog.objects.versions import manifests_of
from pylog.record.types import TopicPartition

_ENTRIES: Final = 1000  # of a guessed index
_ENTRY: Final = struct.Struct(">ii")


class ArchivedExtent(NamedTuple):
    """The extent of an archived partition, and the version of its manifest."""

    extent: PartitionExtent
    version: int


class ArchivedOutlines:
    """The extents of an archive's partitions. Not thread-safe.

    Args:
        objects: the archive.
        store: what it has.
    """

    def __init__(self, objects: ObjectStore, store: StoreManifest) -> None:
        self._objects = objects
        self._store = store
        self._catalogues: dict[str, Catalogue] = {}

    def topic_id(self, name: str) -> str | None:
        """Returns the id of a topic; None if the archive does not have the topic."""
        topic = self._store.topics.get(name)
        return None if topic is None else topic.topic_id

    def extent(self, partition: TopicPartition) -> ArchivedExtent:
        """Returns the extent of a partition.

        Raises:
            UnknownTopicOrPartitionError: the archive does not have it.

        Cost: three requests for the first partition of a topic. One more for each partition that is newer than the catalogue.
        """
        topic = self._store.topics.get(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            message = f"{self._objects.url} has no partition {partition.topic}-{partition.partition}"
            raise UnknownTopicOrPartitionError(message, path=self._objects.url)
        found = _of_catalogue(self._catalogue(partition.topic, topic), partition.partition)
        if found is not None:
            return found
        newest = manifests_of(self._objects, ArchivedPartition(partition.topic, topic.topic_id, partition.partition)).newest()
        made = None if newest.document is None else _of_manifest(newest.document)
        return made or ArchivedExtent(PartitionExtent(0, 0, [], [], lambda _: _guessed(0, 0, 0)), 0)

    def _catalogue(self, name: str, topic: ArchivedTopic) -> Catalogue:
        found = self._catalogues.get(name)
        if found is None:
            newest = catalogues_of(self._objects, name, topic.topic_id).newest().document
            found = self._catalogues[name] = newest or catalogue_of([])
        return found


def _of_manifest(manifest: Manifest) -> ArchivedExtent | None:
    return _of_catalogue(catalogue_of([manifest]), manifest.partition)


def _of_catalogue(catalogue: Catalogue, partition: int) -> ArchivedExtent | None:
    known = next((each for each in catalogue.partitions if each.partition == partition), None)
    if known is None:
        return None
    rows = catalogue.table.filter(pc.equal(catalogue.table.column("partition"), partition))
    bases, ends, sizes = (rows.column(name).to_pylist() for name in ("base_offset", "end_offset", "size"))
    end = max([known.start_offset, *ends[-1:]])
    start = min(max([known.start_offset, *bases[:1]]), end)
    segment = cache(lambda index: _guessed(bases[index], ends[index], sizes[index]))
    return ArchivedExtent(PartitionExtent(start, end, bases, sizes, segment), known.version)


class _Guessed:
    """Stands for a segment in a plan that reads no index: its offsets are spread evenly over its bytes.

    A task that begins in the middle of a batch reads the whole batch and returns only its own records.
    """

    def __init__(self, index: OffsetIndex) -> None:
        self._index = index

    def offset_index(self) -> OffsetIndex:
        return self._index


def _guessed(base: int, end: int, size: int) -> _Guessed:
    count = max(0, min(_ENTRIES, end - base - 1, size - 1))
    entries = (((end - base) * number // (count + 1), size * number // (count + 1)) for number in range(1, count + 1))
    data = b"".join(_ENTRY.pack(*entry) for entry in entries)
    return _Guessed(kinds.OFFSETS.parsed(data, "a guessed index", base, size)[0])


def partition_files(objects: ObjectStore, partition: TopicPartition, topic_id: str, version: int) -> FileSystem:
    """Returns a file system with one archived partition, as one version of its manifest has it. Sends no request.

    Args:
        objects: the archive.
        partition: which.
        topic_id: of its topic.
        version: of its manifest. The first use of the partition reads it, in one request.
    """
    topics = {partition.topic: ArchivedTopic(topic_id, (partition.partition,))}
    store = StoreManifest(store_id="", writer="", version=0, written_ms=0, topics=topics)
    key = ArchivedPartition(partition.topic, topic_id, partition.partition)
    return archived_files(objects, store, {key: version})
