"""Plans a read on the driver: the extents of its partitions (`partitions`, `bounds`), cut into tasks.

Planning reads only metadata: directories, index files and batch headers. Every slice has a fixed end, so that records appended
later are not in the result. Slices follow bytes, because after compaction or transactions
offsets say nothing about size, and they meet at batch boundaries.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from pylog.errors import InvalidArgumentError
from pylog.log.reading.outline import PartitionExtent, outline_of
from pylog.log.reading.planning import cut, ranges_since
from pylog.record.types import TopicPartition
from pylog.snapshot import PartitionCut
from pylog.spark.bounds import PartitionBounds, is_by_time
from pylog.spark.options import (
    Everywhere,
    ReadOptions,
    SourceOptions,
)
from pylog.spark.parallel import in_processes
from pylog.spark.partitions import check_all_named, chosen, directories, opened, single_paths, topic_ids
from pylog.spark.pushdown import NO_PRUNING, NumberRange, Pruning, Ranges, united
from pylog.spark.roots import Root
from pylog.spark.steady import steadily

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.objects.tier_files import TierView

NO_CUTS: Final[Mapping[TopicPartition, PartitionCut]] = {}
MAX_SLICES = 1_000_000  # Spark's driver holds every task of a stage in memory


class LogSlice(InputPartition):
    """One task's share: the records of one partition from `start` to `end` (exclusive).

    It travels to an executor, so it holds nothing but strings and integers, and pickles without their names.

    Args:
        directory: the log directory that has the partition.
        topic, partition: which partition.
        start, end: offsets.
        topic_id: the id of the planned topic, to recognise another one of the same name; None if it has none.
        cut: the partition in a snapshot, whose records are read; None without a snapshot.
        version: the version of the manifest that the plan was made with, if the directory is the URL of an archive; else None.
        tier: what the plan found of it in a broker's remote tier; None if nothing is there.

    >>> LogSlice("/data/shop", "orders", 0, 10, 20)
    LogSlice('/data/shop', 'orders', 0, 10, 20, None)
    """

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        start: int,
        end: int,
        topic_id: str | None = None,
        cut: PartitionCut | None = None,
        version: int | None = None,
        tier: TierView | None = None,
    ) -> None:
        super().__init__(None)
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.topic_id = topic_id
        self.cut = cut
        self.version = version
        self.tier = tier

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def _fields(self) -> tuple[Any, ...]:
        fields = self.directory, self.topic, self.partition, self.start, self.end, self.topic_id
        others = self.cut, self.version, self.tier
        return fields if others == (None, None, None) else (*fields, *others)

    def __reduce__(self) -> tuple[type[LogSlice], tuple[Any, ...]]:
        return LogSlice, self._fields()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogSlice) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields()[:6])

    def __repr__(self) -> str:
        return f"LogSlice{self._fields()}"


Outlined = Callable[[str, TopicPartition], PartitionExtent]  # of a partition in a directory


@dataclass(frozen=True)
class Extent:
    """The part of a partition that is read: its bytes, and the offsets where slices begin and end."""

    directory: str
    topic_partition: TopicPartition
    size: int
    bounds: tuple[int, ...]


def plan(options: ReadOptions, pruning: Pruning = NO_PRUNING) -> list[LogSlice]:
    """Cuts a batch read into slices, in the order of topic, partition and offset.

    Lists each partition, or twice if `minPartitions` cuts it finer, and reads the end of its last segment. Reads index files if
    it cuts a partition. Opens a log only for transactions and times. Reads records only for a start or an end by time.

    Args:
        options: the read's options.
        pruning: the ranges that the query's predicates leave.

    Returns:
        The slices; every record to read is in exactly one of them.

    Raises:
        NotALogDirectoryError: a path is missing or no directory.
        UnknownTopicOrPartitionError: a topic or partition is not there.
        InvalidArgumentError: a partition is in two directories, offsets do not name exactly the partitions that are read,
            a partition would be read to an end before its start, or the read falls into too many slices.
        OffsetOutOfRangeError: offsets were deleted or do not exist yet, unless `failOnDataLoss` is false.

    >>> plan(read_options({"path": "shop", "subscribe": "orders"}))  # doctest: +SKIP
    [LogSlice('/data/shop', 'orders', 0, 0, 1000, 'Q3BOAAABTqe9kBAvQ3BOAA')]
    """
    with opened(options.paths, options.scan.access) as roots:
        existing = directories(roots, options.paths)
        log_dirs = single_paths(existing, chosen(existing, options.subscription, options.paths))
        check_all_named(options.start, log_dirs, "startingOffsets")
        check_all_named(options.end, log_dirs, "endingOffsets")
        ids = topic_ids(log_dirs, roots)  # read before the logs are opened, to detect topics that are created again in between
        cuts = _cuts(roots, log_dirs) if options.snapshot else {}
        wanted, has_objects = sorted(log_dirs.items()), any(root.has_objects for root in roots.values())
        in_here, apart = partial(_extents_in, roots, options, pruning, cuts), partial(_extents_of, options, pruning, cuts)
        extents = in_here(wanted) if has_objects else in_processes(apart, wanted)
        found = slices(lambda log_dir, partition: roots[log_dir].outline(partition), extents, options, ids, cuts)
        for part in found if has_objects else ():
            pin(part, roots[part.directory], options)
        return found


def pin(part: LogSlice, root: Root, options: SourceOptions) -> None:
    """Adds to a slice which objects the plan found, so that its task lists nothing and reads the same log.

    To tell which records are committed, a task reads beyond its slice; and so it does for a snapshot.

    Args:
        part: the slice.
        root: its log directory.
        options: the read's options.
    """
    part.version, view = root.version(part.topic_partition), root.tier_view(part.topic_partition)
    reads_on = options.scan.isolation_level == "read_committed" or part.cut is not None
    part.tier = None if view is None else view.within(part.start, None if reads_on else part.end)


def _cuts(roots: Mapping[str, Root], log_dirs: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, PartitionCut]:
    """Takes a snapshot of the only directory."""
    (root,) = roots.values()
    return root.snapshot({partition.topic for partition in log_dirs}).cuts


# ---- extents -------------------------------------------------------------------------------------------------------------


PartitionLogDir = tuple[TopicPartition, str]  # a partition, and the log directory that has it


def _extents_of(
    options: ReadOptions, pruning: Pruning, cuts: Mapping[TopicPartition, PartitionCut], log_dirs: Sequence[PartitionLogDir]
) -> list[Extent]:
    """Returns the extents of each partition, in order. Runs in any process, because it opens the directories itself."""
    with opened({log_dir for _, log_dir in log_dirs}) as roots:
        return _extents_in(roots, options, pruning, cuts, log_dirs)


def _extents_in(
    roots: Mapping[str, Root],
    options: ReadOptions,
    pruning: Pruning,
    cuts: Mapping[TopicPartition, PartitionCut],
    log_dirs: Sequence[PartitionLogDir],
) -> list[Extent]:
    reads = [
        partial(_extents, roots[log_dir], log_dir, partition, options, pruning, cuts.get(partition))
        for partition, log_dir in log_dirs
    ]
    return [extent for read in reads for extent in steadily(read)]


def _extents(
    root: Root,
    log_dir: str,
    partition: TopicPartition,
    options: ReadOptions,
    pruning: Pruning,
    cut_of: PartitionCut | None = None,
) -> list[Extent]:
    """Returns the extents of one partition. If predicates exclude it, it is read only to check options that name it.

    It is opened only if its outline is not enough, for transactions or times.
    """
    if not pruning.keeps(partition) and isinstance(options.start, Everywhere) and isinstance(options.end, Everywhere):
        return []
    if options.snapshot and cut_of is None:
        return []  # the partition was created after the snapshot
    committed = options.scan.isolation_level == "read_committed" and cut_of is None
    by_time = is_by_time(options.start) or is_by_time(options.end)
    if not committed and not by_time and pruning.timestamp is None and cut_of is None:
        outline = root.outline(partition)
        bounds = PartitionBounds(log_dir, partition, outline.start_offset, outline.end_offset, options, outline.remote_offsets)
        return _extents_within(outline, bounds, options, pruning, None)
    with contextlib.closing(root.log(partition)) as log:
        state = log.snapshot(committed=committed, at_least=0)  # as it was opened: asking again costs a listing
        latest = state.stable_offset if committed else state.end_offset if cut_of is None else cut_of.end_offset
        bounds = PartitionBounds(log_dir, partition, state.start_offset, latest, options, state.remote_offsets)
        return _extents_within(outline_of(state), bounds, options, pruning, log)


def _extents_within(
    outline: PartitionExtent, bounds: PartitionBounds, options: ReadOptions, pruning: Pruning, log: PartitionLog | None
) -> list[Extent]:
    start, end = bounds.span(options.start, options.end, log)
    wanted = _wanted(log, start, end, pruning) if pruning.keeps(bounds.partition) else ()
    return [extent_between(outline, bounds.log_dir, bounds.partition, first, last, options) for first, last in wanted]


def _wanted(log: PartitionLog | None, start: int, end: int, pruning: Pruning) -> Ranges:
    """Returns the parts of a range that predicates keep. The time indexes of a damaged log may be incomplete and are not used."""
    ranges = pruning.within(start, end)
    if pruning.timestamp is None or log is None or log.recovery_report:
        return ranges
    since = partial(ranges_since, log.snapshot(at_least=0), timestamp=pruning.timestamp)
    return united(NumberRange(first, last) for each in ranges for first, last in since(*each))


def extent_between(
    outline: PartitionExtent, log_dir: str, partition: TopicPartition, start: int, end: int, options: SourceOptions
) -> Extent:
    """Returns a range of a partition, split where it has more bytes than one task should read.

    Args:
        outline: the partition's outline.
        log_dir: its log directory.
        partition: which.
        start, end: offsets within the log; nothing is read where the end is not above the start.
        options: the read's options.
    """
    if start >= end:
        return Extent(log_dir, partition, 0, ())
    size, interior = cut(outline, start, end, options.max_bytes_per_partition)
    return Extent(log_dir, partition, size, (start, *interior, end))


# ---- cut into tasks ------------------------------------------------------------------------------------------------------


def _cut_finer(outlined: Outlined, extents: list[Extent], options: SourceOptions) -> list[Extent]:
    """Splits ranges until there are about `minPartitions`."""
    pieces = [len(extent.bounds) - 1 for extent in extents]
    if options.min_partitions is None or sum(pieces) >= options.min_partitions:
        return extents
    counts = shares([extent.size for extent in extents], options.min_partitions)
    return [
        steadily(partial(_recut, outlined, extent, count)) if count > piece else extent
        for extent, piece, count in zip(extents, pieces, counts, strict=True)
    ]


def _recut(outlined: Outlined, extent: Extent, count: int) -> Extent:
    outline, start, end = outlined(extent.directory, extent.topic_partition), extent.bounds[0], extent.bounds[-1]
    interior = cut(outline, start, end, max(1, -(-extent.size // count))).offsets
    return replace(extent, bounds=with_more((start, *interior, end), count))


def with_more(bounds: Sequence[int], pieces: int) -> tuple[int, ...]:
    """Adds bounds to the widest ranges, until there are `pieces` ranges, or one range for each offset.

    An index has at most one entry for each 4 KiB, so cuts at its entries give too few ranges of small records. The added bounds
    divide ranges of offsets evenly and may be inside a batch. Both tasks then read that batch, and each returns its own records.

    Args:
        bounds: ascending offsets, from the start of the whole range to its end.
        pieces: the number of ranges to reach; `bounds` are returned as they are if they have as many.

    Returns:
        Ascending offsets, those of `bounds` among them.

    >>> with_more((0, 10, 12), 4)
    (0, 3, 6, 10, 12)
    """
    spans = [end - start for start, end in itertools.pairwise(bounds)]
    parts = [1] * len(spans)
    widest: list[tuple[float, int]] = [(-span, at) for at, span in enumerate(spans)]
    heapq.heapify(widest)
    for _ in range(pieces - len(spans)):
        width, at = widest[0]
        if width >= -1:
            break
        parts[at] += 1
        heapq.heapreplace(widest, (-(spans[at] / parts[at]), at))
    cuts = (bounds[at] + spans[at] * part // parts[at] for at in range(len(spans)) for part in range(parts[at]))
    return (*cuts, bounds[-1])


def shares(sizes: Sequence[int], pieces: int) -> list[int]:
    """Shares out a number of pieces in proportion to sizes; each gets one at least.

    Args:
        sizes: bytes of each partition.
        pieces: wanted in all, about.

    >>> shares([100, 900, 1], 10)
    [1, 9, 1]
    """
    total = max(1, sum(sizes))
    return [max(1, round(size * pieces / total)) for size in sizes]


def slices(
    outlined: Outlined,
    extents: Iterable[Extent],
    options: SourceOptions,
    ids: Mapping[str, str],
    cuts: Mapping[TopicPartition, PartitionCut] = NO_CUTS,
) -> list[LogSlice]:
    """Returns the tasks that read extents.

    Args:
        outlined: returns the outline of a partition that `minPartitions` splits further.
        extents: the ranges to read; empty ones need no task.
        options: the read's options.
        ids: the topics' ids, as far as they have any.
        cuts: the partitions in a snapshot, if one is read.

    Raises:
        InvalidArgumentError: there would be more than `MAX_SLICES` tasks.
    """
    found: list[LogSlice] = []
    for extent in _cut_finer(outlined, [extent for extent in extents if extent.bounds], options):
        for start, end in _at_most(extent.bounds, options.max_records_per_partition):
            if len(found) == MAX_SLICES:
                wanted = "give a greater maxBytesPerPartition or maxRecordsPerPartition"
                raise InvalidArgumentError(f"the read falls into more than {MAX_SLICES} tasks: {wanted}")
            partition = extent.topic_partition
            found.append(LogSlice(extent.directory, *partition, start, end, ids.get(partition.topic), cuts.get(partition)))
    return found


def _at_most(bounds: Sequence[int], max_records: int | None) -> Iterator[tuple[int, int]]:
    """Yields the pieces between bounds, split evenly where one spans more offsets than `max_records`."""
    for start, end in itertools.pairwise(bounds):
        parts = 1 if max_records is None else -(-(end - start) // max_records)
        yield from itertools.pairwise(start + (end - start) * part // parts for part in range(parts + 1))
