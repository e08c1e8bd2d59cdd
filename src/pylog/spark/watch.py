"""The partitions that a streaming query reads, kept open between its micro-batches: a look costs little when little is new.

Other processes append, delete and compact meanwhile. What a look finds is plain data, and decisions are made on that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pylog
from pylog.errors import CorruptionError, UnknownTopicOrPartitionError
from pylog.fs import OsFileSystem, join
from pylog.log import planning
from pylog.log.checkpoints import read_topic_id
from pylog.record.types import TopicPartition
from pylog.spark.options import SourceOptions
from pylog.spark.planner import chosen, directories, end_of, matching, only_homes
from pylog.topics import directory_name

if TYPE_CHECKING:
    from pylog.log.log import Log
    from pylog.store import Store

LOOKS = 3  # at topics that are deleted and made again meanwhile; the next micro-batch looks again anyway


@dataclass(frozen=True)
class Sight:
    """What there was at one moment.

    Attributes:
        homes: each partition's log directory.
        starts, ends: from where to where it could be read.
        ids: of the topics, as far as they have any.
    """

    homes: Mapping[TopicPartition, str]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    ids: Mapping[str, str]


class _Kept(NamedTuple):
    """A log that is open, and of what it was opened."""

    home: str
    topic_id: str | None
    log: Log


class Watch:
    """Looks at the partitions that a query reads. Not thread-safe.

    Args:
        options: of the query.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._fs = OsFileSystem()
        self._stores: dict[str, Store] = {}
        self._logs: dict[TopicPartition, _Kept] = {}

    def look(self, *, strict: bool = False) -> Sight:
        """What there is now.

        Args:
            strict: what the options name must be there; else what is not there is left out.

        Raises:
            NotALogDirectoryError: a path is missing or no directory.
            UnknownTopicOrPartitionError: `strict`, and a topic or partition is not there.
            InvalidArgumentError: a partition is in two directories.

        Cost: a listing of each directory, a small file of each topic, and a pread of each partition in which nothing is new.
        """
        sight = self._look(self._homes(strict=strict))
        for _ in range(LOOKS - 1):
            if sight.ids == self._ids(sight.homes):
                break
            sight = self._look(self._homes(strict=strict))
        return sight

    def open_log(self, home: str, partition: TopicPartition) -> AbstractContextManager[Log]:
        """A log that the last look found; it stays open."""
        kept = self._logs[partition]
        assert kept.home == home
        return nullcontext(kept.log)

    def size(self, partition: TopicPartition, start: int, end: int) -> int:
        """About how many bytes of the files a range takes that the last look found."""
        return self._logs[partition].log.size_between(start, end)

    def first_cut(self, partition: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        """How far about `max_bytes` of the files reach from `start` on: to a batch boundary, at most to `end`."""
        with contextlib.suppress(UnknownTopicOrPartitionError):  # deleted since: the next look tells
            return planning.first_cut(self._logs[partition].log.look(), start, end, max_bytes)
        return end

    def close(self) -> None:
        """Closes everything; the next look opens it again."""
        self._logs.clear()
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    # ---- which partitions ----------------------------------------------------------------------------------------------------

    def _homes(self, *, strict: bool) -> dict[TopicPartition, str]:
        subscription, paths = self._options.subscription, self._options.paths
        for path in paths:
            if path not in self._stores:
                self._stores[path] = pylog.open(path, mode="r")
        there = directories(self._stores, paths)
        return only_homes(there, chosen(there, subscription, paths) if strict else matching(there, subscription))

    def _ids(self, partitions: Mapping[TopicPartition, str]) -> dict[str, str]:
        """The topics' ids, as their first partitions have them."""
        firsts = {partition.topic: partition for partition in sorted(partitions, reverse=True)}
        found = {topic: self._id(partitions[first], first) for topic, first in firsts.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}

    def _id(self, home: str, partition: TopicPartition) -> str | None:
        with contextlib.suppress(CorruptionError):  # an id is not needed to read
            return read_topic_id(self._fs, join(home, directory_name(partition)))
        return None

    # ---- from where to where -------------------------------------------------------------------------------------------------

    def _look(self, homes: Mapping[TopicPartition, str]) -> Sight:
        ids = self._ids(homes)
        self._drop(partition for partition in list(self._logs) if partition not in homes)
        spans = {}
        for partition, home in homes.items():
            with contextlib.suppress(UnknownTopicOrPartitionError):  # not made yet, or deleted since the directory was listed
                spans[partition] = self._span(partition, home, ids.get(partition.topic))
        found = {partition: homes[partition] for partition in spans}
        starts, ends = ({partition: span[side] for partition, span in spans.items()} for side in (0, 1))
        return Sight(found, starts, ends, ids)

    def _span(self, partition: TopicPartition, home: str, topic_id: str | None) -> tuple[int, int]:
        kept = self._logs.get(partition)
        if kept is None or (kept.home, kept.topic_id) != (home, topic_id):
            self._drop([partition])
            kept = self._logs[partition] = _Kept(home, topic_id, self._stores[home].log(*partition))
        try:
            return kept.log.start_offset, end_of(kept.log, self._options.scan.isolation)
        except UnknownTopicOrPartitionError:
            self._drop([partition])
            raise

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            kept = self._logs.pop(partition, None)
            if kept is not None:
                kept.log.close()
