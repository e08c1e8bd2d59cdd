"""Tracks the partitions that a streaming query reads. They stay open between micro-batches, so that a refresh without changes is
cheap.

Other processes append, delete and compact at the same time. A refresh returns plain data, and decisions are made on that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pylog.clock import Clock, SystemClock
from pylog.errors import StorageFailedError, UnknownTopicOrPartitionError
from pylog.log.reading import planning
from pylog.log.reading.fast_outline import FastOutline
from pylog.log.reading.outline import PartitionExtent, outline_of
from pylog.record.types import TopicPartition
from pylog.spark.options import SourceOptions
from pylog.spark.partitions import chosen, directories, matching, single_paths, topic_ids
from pylog.spark.planner import LogSlice, pin
from pylog.spark.roots import Root

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog

RENEWAL_SECONDS = 1.0  # Spark may ask a hundred times a second, and each request of a bucket has its price
ATTEMPTS = 3  # attempts if topics are deleted and created again in between; the next micro-batch refreshes anyway


@dataclass(frozen=True)
class PartitionsSeen:
    """The partitions at one moment.

    Attributes:
        log_dirs: each partition's log directory.
        starts, ends: the range of offsets that could be read.
        ids: the topics' ids, as far as they have any.
    """

    log_dirs: Mapping[TopicPartition, str]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    ids: Mapping[str, str]


@dataclass
class _Kept:
    """A partition with its source and state: an outline of its headers while that is current, then the open log.

    Of objects it has the extent, or for committed records the open log, until its root is opened again.
    """

    log_dir: str
    topic_id: str | None
    outline: FastOutline | None = None
    extent: PartitionExtent | None = None  # of objects, which do not change
    log: PartitionLog | None = None


class PartitionTracker:
    """Tracks the partitions that a query reads. Not thread-safe.

    Args:
        options: the query's options.
        clock: says when to read the objects of an archive or a tier again.
    """

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._renewed: dict[str, float] = {}  # when a root with objects was opened, in seconds of the clock
        self._committed = options.scan.isolation_level == "read_committed"
        self._roots: dict[str, Root] = {}
        self._kept: dict[TopicPartition, _Kept] = {}

    def refresh(self, *, strict: bool = False) -> PartitionsSeen:
        """Returns the current partitions and ends.

        Args:
            strict: true if all partitions that the options name must exist; false to skip missing ones.

        Raises:
            NotALogDirectoryError: a path is missing or no directory.
            UnknownTopicOrPartitionError: `strict`, and a topic or partition is not there.
            InvalidArgumentError: a partition is in two directories.

        Cost: a listing of each directory, a small file of each topic, and a pread of each partition in which nothing is new. At
        most once a second, an archive's three requests and three more for each topic, or the lists of a tier alone.
        """
        seen = self._read(self._log_dirs(strict=strict))
        for _ in range(ATTEMPTS - 1):
            if seen.ids == topic_ids(seen.log_dirs, self._roots):
                break
            seen = self._read(self._log_dirs(strict=strict))
        return seen

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Returns a log that the last refresh found. Opens it if necessary, and keeps it open."""
        kept = self._kept[partition]
        if kept.log is None:
            kept.outline, kept.log = None, self._roots[kept.log_dir].log(partition)
        return kept.log

    def outline(self, partition: TopicPartition) -> PartitionExtent:
        """Returns the outline of a partition that the last refresh found.

        Raises:
            UnknownTopicOrPartitionError: it was deleted since.
        """
        kept = self._kept[partition]
        if kept.extent is not None:
            return kept.extent
        return outline_of(self.log(partition).snapshot(at_least=0)) if kept.outline is None else kept.outline.outline

    def pin(self, part: LogSlice) -> None:
        """Adds to a slice which objects the last refresh found; see `pylog.spark.planner.pin`."""
        pin(part, self._roots[part.directory], self._options)

    def size(self, partition: TopicPartition, start: int, end: int) -> int:
        """Returns the approximate size of a range in the files, in bytes; 0 for deleted offsets."""
        return self._planned(partition, lambda outline: planning.size_between(outline, start, end), 0)

    def first_cut(self, partition: TopicPartition, start: int, end: int, max_bytes: int) -> int:
        """Returns how far about `max_bytes` of the files reach from `start` on: to a batch boundary, at most to `end`."""
        return self._planned(partition, lambda outline: planning.first_cut(outline, start, end, max_bytes), end)

    def _planned(self, partition: TopicPartition, plan: Callable[[PartitionExtent], int], otherwise: int) -> int:
        """Plans with a partition's outline; `otherwise` if it was deleted. After an error, a retry finds the new files."""
        outline = self._outline_if_there(partition)
        if outline is None:
            return otherwise
        try:
            return plan(outline)
        except StorageFailedError:
            kept = self._kept[partition]
            kept.outline = None
            if kept.log is not None:
                kept.log.snapshot(wait=True)
            raise

    def _outline_if_there(self, partition: TopicPartition) -> PartitionExtent | None:
        """Returns None if the partition was deleted since the last refresh; the next refresh reports it."""
        with contextlib.suppress(UnknownTopicOrPartitionError):
            return self.outline(partition) if partition in self._kept else None
        return None

    def close(self) -> None:
        """Closes everything; the next refresh opens it again."""
        self._kept.clear()
        for root in self._roots.values():
            root.close()
        self._roots.clear()

    # ---- which partitions ----------------------------------------------------------------------------------------------------

    def _log_dirs(self, *, strict: bool) -> dict[TopicPartition, str]:
        subscription, paths = self._options.subscription, self._options.paths
        for path in paths:
            self._renew(path)
        existing = directories(self._roots, paths)
        return single_paths(existing, chosen(existing, subscription, paths) if strict else matching(existing, subscription))

    def _renew(self, path: str) -> None:
        """Opens a root. One with objects is opened again after a second, to find new ones."""
        root, now = self._roots.get(path), self._clock.monotonic()
        if root is not None and (not root.is_fixed or now - self._renewed[path] < RENEWAL_SECONDS):
            return
        fresh = Root(path, self._options.scan.access)
        if root is not None:
            self._drop([partition for partition, kept in self._kept.items() if kept.log_dir == path])
            root.close()
        self._roots[path], self._renewed[path] = fresh, now

    # ---- starts and ends -----------------------------------------------------------------------------------------------------

    def _read(self, log_dirs: Mapping[TopicPartition, str]) -> PartitionsSeen:
        ids = topic_ids(log_dirs, self._roots)
        self._drop(partition for partition in list(self._kept) if partition not in log_dirs)
        spans = {}
        for partition, log_dir in log_dirs.items():
            with contextlib.suppress(UnknownTopicOrPartitionError):  # not created yet, or deleted since the directory was listed
                spans[partition] = self._span(partition, log_dir, ids.get(partition.topic))
        found = {partition: log_dirs[partition] for partition in spans}
        starts, ends = ({partition: span[side] for partition, span in spans.items()} for side in (0, 1))
        return PartitionsSeen(found, starts, ends, ids)

    def _span(self, partition: TopicPartition, log_dir: str, topic_id: str | None) -> tuple[int, int]:
        kept = self._kept.get(partition)
        if kept is None or (kept.log_dir, kept.topic_id) != (log_dir, topic_id):
            self._drop([partition])
            root = self._roots[log_dir]
            kept = self._kept[partition] = _Kept(log_dir, topic_id)
            if not self._committed:
                kept.outline = root.fast_outline(partition)
                kept.extent = root.outline(partition) if root.is_fixed else None
        elif kept.outline is not None and not self._is_still_so(partition, kept.outline):
            kept.outline = None  # it has new records: following the open log costs less than reading its metadata again
        try:
            return self._span_of(partition)
        except UnknownTopicOrPartitionError:
            self._drop([partition])
            raise

    def _span_of(self, partition: TopicPartition) -> tuple[int, int]:
        kept = self._kept[partition]
        seen = kept.extent if kept.outline is None else kept.outline.outline
        if seen is not None:
            return seen.start_offset, seen.end_offset
        state = self.log(partition).snapshot(committed=self._committed)
        return state.start_offset, state.stable_offset if self._committed else state.end_offset

    def _is_still_so(self, partition: TopicPartition, outline: FastOutline) -> bool:
        with contextlib.suppress(StorageFailedError):  # opening it reports the error
            return self._roots[self._kept[partition].log_dir].is_still_so(partition, outline)
        return False

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            kept = self._kept.pop(partition, None)
            if kept is not None and kept.log is not None:
                kept.log.close()
