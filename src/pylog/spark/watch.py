"""The partitions that a streaming query reads, kept open between its micro-batches: a look costs little when little is new.

Other processes append, delete and compact meanwhile. What a look finds is plain data, and decisions are made on that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pylog
from pylog.errors import UnknownTopicOrPartitionError
from pylog.log import planning
from pylog.log.outline import outline_of
from pylog.record.types import TopicPartition
from pylog.spark.options import SourceOptions
from pylog.spark.planner import chosen, directories, matching, only_homes, topic_ids

if TYPE_CHECKING:
    from pylog.log.log import Log
    from pylog.log.state import LogState
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
        self._committed = options.scan.isolation == "read_committed"
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
            if sight.ids == topic_ids(sight.homes):
                break
            sight = self._look(self._homes(strict=strict))
        return sight

    def log(self, partition: TopicPartition) -> Log:
        """A log that the last look found; it stays open."""
        return self._logs[partition].log

    def size(self, partition: TopicPartition, start: int, end: int) -> int:
        """About how many bytes of the files a range takes; 0 of what is gone."""
        state = self._state(partition)
        return 0 if state is None else planning.size_between(outline_of(state), start, end)

    def first_cut(self, partition: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        """How far about `max_bytes` of the files reach from `start` on: to a batch boundary, at most to `end`."""
        state = self._state(partition)
        return end if state is None else planning.first_cut(outline_of(state), start, end, max_bytes)

    def _state(self, partition: TopicPartition) -> LogState | None:
        """None when it was deleted since the last look; the next one tells."""
        kept = self._logs.get(partition)
        with contextlib.suppress(UnknownTopicOrPartitionError):
            return None if kept is None else kept.log.look()
        return None

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

    # ---- from where to where -------------------------------------------------------------------------------------------------

    def _look(self, homes: Mapping[TopicPartition, str]) -> Sight:
        ids = topic_ids(homes)
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
            state = kept.log.look(committed=self._committed)
        except UnknownTopicOrPartitionError:
            self._drop([partition])
            raise
        return state.start_offset, state.stable_offset if self._committed else state.end_offset

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            kept = self._logs.pop(partition, None)
            if kept is not None:
                kept.log.close()
