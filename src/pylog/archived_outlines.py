"""Plans reads of an archived topic from its catalogue: the segments of all partitions, in one object. Lists nothing."""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from pylog.archived_files import archived_files
from pylog.errors import UnknownTopicOrPartitionError
from pylog.fs import FileSystem
from pylog.index import kinds
from pylog.index.offset_index import OffsetIndex
from pylog.log.reading.outline import PartitionExtent
from pylog.objects.layout import ArchivedPartition
from pylog.objects.manifest import ArchivedTopic, StoreManifest
from pylog.objects.objects import ObjectStore
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.segment_catalogue import Catalogue, catalogue_of, catalogues_of
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
        self._topics: dict[str, _TopicExtents] = {}
        self._newest: dict[TopicPartition, ArchivedExtent] = {}  # of partitions that the catalogue does not have
        self._has_catalogue = True

    def forget_catalogues(self) -> None:
        """Reads the newest manifest of each partition from now on: a catalogue may be older than a snapshot is."""
        self._has_catalogue = False

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
        found = self._extents(partition.topic, topic).extent(partition.partition) if self._has_catalogue else None
        if found is None:
            found = self._newest.get(partition)
        if found is None:
            found = self._newest[partition] = self._read(partition, topic)
        return found

    def _read(self, partition: TopicPartition, topic: ArchivedTopic) -> ArchivedExtent:
        """Returns the extent of a partition by its newest manifest."""
        newest = manifests_of(self._objects, ArchivedPartition(partition.topic, topic.topic_id, partition.partition)).newest()
        made = None if newest.document is None else _TopicExtents(catalogue_of([newest.document])).extent(partition.partition)
        return made or ArchivedExtent(PartitionExtent(0, 0, [], [], lambda _: _guessed(0, 0, 0)), 0)

    def _extents(self, name: str, topic: ArchivedTopic) -> _TopicExtents:
        found = self._topics.get(name)
        if found is None:
            newest = catalogues_of(self._objects, name, topic.topic_id).newest().document
            found = self._topics[name] = _TopicExtents(newest or catalogue_of([]))
        return found


class _TopicExtents:
    """The extents of a topic's partitions.

    Args:
        catalogue: the topic's catalogue.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        columns = (catalogue.table.column(name).to_numpy() for name in ("partition", "base_offset", "end_offset", "size"))
        partitions, self._bases, self._ends, self._sizes = columns
        numbers = [each.partition for each in catalogue.partitions]
        rows = (np.searchsorted(partitions, numbers, side).tolist() for side in ("left", "right"))
        self._known = {each.partition: (each, *rows) for each, *rows in zip(catalogue.partitions, *rows, strict=True)}

    def extent(self, partition: int) -> ArchivedExtent | None:
        """Returns the extent of a partition; None if the catalogue does not have it."""
        if partition not in self._known:
            return None
        known, first, after = self._known[partition]
        bases, ends, sizes = (column[first:after].tolist() for column in (self._bases, self._ends, self._sizes))
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
        topic_id: its topic's id.
        version: its manifest's version. The first use of the partition reads it, in one request.
    """
    topics = {partition.topic: ArchivedTopic(topic_id, (partition.partition,))}
    store = StoreManifest(store_id="", writer="", version=0, written_ms=0, topics=topics)
    key = ArchivedPartition(partition.topic, topic_id, partition.partition)
    return archived_files(objects, store, {key: version})
