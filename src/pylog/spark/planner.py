"""Plans a read on the driver: the partitions, their ranges of offsets, and the tasks.

Planning reads only metadata: directories, index files and batch headers. Every slice has a fixed end, so that records appended
later are not in the result. Slices follow bytes, because after compaction or transactions
offsets say nothing about size, and they meet at batch boundaries.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pylog.directory.checkpoints import INTERNAL_TOPICS, read_topic_id
from pylog.errors import CorruptionError, InvalidArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from pylog.fs import OsFileSystem, join
from pylog.log.reading.outline import PartitionExtent, outline_of
from pylog.log.reading.planning import cut, ranges_since
from pylog.record.types import TopicPartition
from pylog.spark.options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Limit,
    ListedPartitions,
    ListedTopics,
    ReadOptions,
    SourceOptions,
    TopicPattern,
    TopicSelection,
)
from pylog.spark.parallel import in_processes
from pylog.spark.pushdown import NO_PRUNING, NumberRange, Pruning, Ranges, united
from pylog.spark.roots import Root
from pylog.spark.steady import steadily
from pylog.spark.values import named
from pylog.topics.partitions import directory_name

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog

MAX_SLICES = 1_000_000  # Spark's driver holds every task of a stage in memory

_logger = logging.getLogger("pylog.spark")


class LogSlice(InputPartition):
    """One task's share: the records of one partition from `start` to `end` (exclusive).

    It travels to an executor, so it holds nothing but strings and integers, and pickles without their names.

    Args:
        directory: the log directory that has the partition.
        topic, partition: which partition.
        start, end: offsets.
        topic_id: of the planned topic, to recognise another one of the same name; None if it has none.

    >>> LogSlice("/data/shop", "orders", 0, 10, 20)
    LogSlice('/data/shop', 'orders', 0, 10, 20, None)
    """

    def __init__(self, directory: str, topic: str, partition: int, start: int, end: int, topic_id: str | None = None) -> None:
        super().__init__(None)
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.topic_id = topic_id

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def _fields(self) -> tuple[str, str, int, int, int, str | None]:
        return self.directory, self.topic, self.partition, self.start, self.end, self.topic_id

    def __reduce__(self) -> tuple[type[LogSlice], tuple[str, str, int, int, int, str | None]]:
        return LogSlice, self._fields()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogSlice) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

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

    Costs a listing of each partition (two where `minPartitions` has it cut finer) and the end of its last segment, index files
    where one is cut, and an opening where transactions or times are asked for. Never reads records, but for a start or an end
    by time.

    Args:
        options: of the read.
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
    with opened(options.paths) as roots:
        there = directories(roots, options.paths)
        homes = only_homes(there, chosen(there, options.subscription, options.paths))
        check_all_named(options.start, homes, "startingOffsets")
        check_all_named(options.end, homes, "endingOffsets")
        ids = topic_ids(homes)  # read before the logs are opened, to detect topics that are created again in between
        extents = in_processes(partial(_extents_of, options, pruning), sorted(homes.items()))
        return slices(lambda home, partition: roots[home].outline(partition), extents, options, ids)


@contextlib.contextmanager
def opened(paths: Iterable[str]) -> Iterator[dict[str, Root]]:
    """Log directories by path.

    Args:
        paths: log directories.
    """
    with contextlib.ExitStack() as stack:
        yield {path: stack.enter_context(contextlib.closing(Root(path))) for path in paths}


def check_paths(paths: Iterable[str]) -> None:
    """Looks whether each directory is there and may be read, so that a wrong path is reported when a query is analysed.

    Args:
        paths: log directories.

    Raises:
        NotALogDirectoryError: one is missing or no directory.
    """
    for path in paths:
        OsFileSystem().check_directory(path, write=False)


# ---- which partitions ----------------------------------------------------------------------------------------------------


def directories(roots: Mapping[str, Root], paths: Sequence[str]) -> dict[TopicPartition, list[str]]:
    """Returns all partitions, each with the log directories that have it.

    Args:
        roots: by path.
        paths: as the user gave them.

    Raises:
        InvalidArgumentError: one is named twice.
    """
    if len(roots) < len(paths):
        raise InvalidArgumentError(f"path names a directory twice: {', '.join(paths)}")
    found: dict[TopicPartition, list[str]] = {}
    for path, root in roots.items():
        for topic in root.topics().values():
            for number in topic.partition_ids:
                found.setdefault(TopicPartition(topic.name, number), []).append(path)
    return found


def only_homes(there: Mapping[TopicPartition, Sequence[str]], partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Partitions, each with the one directory that has it.

    Args:
        there: what `directories` found.
        partitions: some of them.

    Raises:
        InvalidArgumentError: a partition is in two directories.
    """
    homes = {}
    for partition in sorted(partitions):
        home, *others = there[partition]
        if others:
            raise InvalidArgumentError(
                f"partition {named(partition)} is in {' and in '.join(there[partition])}; "
                "several directories in `path` are those of one broker, which keeps a partition in one of them",
                path=others[0],
            )
        homes[partition] = home
    return homes


def topic_ids(homes: Mapping[TopicPartition, str]) -> dict[str, str]:
    """The topics' ids, as the first partition of each has it; topics of brokers before 2.8 have none.

    Args:
        homes: partitions, each with its log directory.

    Cost: a small file of each topic.
    """
    firsts = {partition.topic: partition for partition in sorted(homes, reverse=True)}
    found = {topic: topic_id(homes[first], first) for topic, first in firsts.items()}
    return {topic: an_id for topic, an_id in found.items() if an_id is not None}


def topic_id(home: str, partition: TopicPartition) -> str | None:
    """The id of the topic that a partition is of, None when nothing says it.

    Args:
        home: the log directory that has the partition.
        partition: which.
    """
    with contextlib.suppress(CorruptionError):  # an id is not needed to read
        return read_topic_id(OsFileSystem(), join(home, directory_name(partition)))
    return None


def chosen(there: Iterable[TopicPartition], subscription: TopicSelection, paths: Sequence[str]) -> set[TopicPartition]:
    """The partitions of these that a subscription asks for.

    Args:
        there: all partitions.
        subscription: what the options say.
        paths: where they are, for the error.

    Raises:
        UnknownTopicOrPartitionError: it asks for a topic or a partition that is not there.

    >>> chosen([TopicPartition("a", 0), TopicPartition("b", 0)], TopicPattern("a|c"), [])
    {TopicPartition(topic='a', partition=0)}
    """
    found = matching(there, subscription)
    match subscription:
        case ListedTopics(names):
            missing = sorted(set(names) - {partition.topic for partition in found})
            _refuse_unknown("topic", ", ".join(missing), paths)
        case ListedPartitions(partitions):
            _refuse_unknown("partition", named(*(partitions - found)), paths)
    return found


def matching(there: Iterable[TopicPartition], subscription: TopicSelection) -> set[TopicPartition]:
    """Returns the existing partitions that match, and ignores missing ones.

    Args:
        there: all partitions.
        subscription: what the options say.

    >>> matching([TopicPartition("a", 0)], ListedTopics(("a", "b")))
    {TopicPartition(topic='a', partition=0)}
    """
    match subscription:
        case ListedTopics(names):
            return {partition for partition in there if partition.topic in names}
        case TopicPattern(pattern):
            matches = re.compile(pattern).search
            there = set(there)
            topics = {topic for topic, _ in there if topic not in INTERNAL_TOPICS and matches(topic)}
            return {partition for partition in there if partition.topic in topics}
        case ListedPartitions(partitions):
            return set(there) & partitions


def _refuse_unknown(what: str, names: str, paths: Sequence[str]) -> None:
    if names:
        raise UnknownTopicOrPartitionError(f"no {what} {names} in {', '.join(paths)}", path=paths[0] if paths else None)


def check_all_named(limit: Limit, partitions: Iterable[TopicPartition], name: str) -> None:
    """Offsets by partition must name every partition that is read and no other, as the connector demands.

    Args:
        limit: a start or an end.
        partitions: that are read.
        name: of the option.

    Raises:
        InvalidArgumentError: it names others, or not all.
    """
    if isinstance(limit, AtTimestamps):
        given, name, hint = limit.timestamps.keys(), f"{name}ByTimestamp", ""
    elif isinstance(limit, AtOffsets):
        given, hint = limit.offsets.keys(), " (-2 is the earliest offset, -1 the latest)"
    else:
        return
    missing, needless = set(partitions) - given, given - set(partitions)
    if missing or needless:
        parts = [f"missing: {named(*missing)}"] if missing else []
        parts += [f"not read: {named(*needless)}"] if needless else []
        raise InvalidArgumentError(f"{name} must name every partition that is read, and no other{hint}; {'; '.join(parts)}")


# ---- starts and ends -----------------------------------------------------------------------------------------------------


PartitionHome = tuple[TopicPartition, str]  # a partition, and the log directory that has it


def _extents_of(options: ReadOptions, pruning: Pruning, homes: Sequence[PartitionHome]) -> list[Extent]:
    """Returns the extents of each partition, in order. Runs in any process, because it opens the directories itself."""
    with opened({home for _, home in homes}) as roots:
        looks = [partial(_extents, roots[home], home, partition, options, pruning) for partition, home in homes]
        return [extent for look in looks for extent in steadily(look)]


def _extents(root: Root, home: str, partition: TopicPartition, options: ReadOptions, pruning: Pruning) -> list[Extent]:
    """Returns the extents of one partition. If predicates exclude it, it is read only to check options that name it.

    It is opened only if its outline is not enough, for transactions or times.
    """
    if not pruning.keeps(partition) and isinstance(options.start, Everywhere) and isinstance(options.end, Everywhere):
        return []
    committed = options.scan.isolation_level == "read_committed"
    by_time = is_by_time(options.start) or is_by_time(options.end)
    if not committed and not by_time and pruning.timestamp is None:
        outline = root.outline(partition)
        bounds = PartitionBounds(home, partition, outline.start_offset, outline.end_offset, options, outline.remote_offsets)
        return _extents_within(outline, bounds, options, pruning, None)
    with contextlib.closing(root.log(partition)) as log:
        state = log.snapshot(committed=committed, at_least=0)  # as it was opened: asking again costs a listing
        latest = state.stable_offset if committed else state.end_offset
        bounds = PartitionBounds(home, partition, state.start_offset, latest, options, state.remote_offsets)
        return _extents_within(outline_of(state), bounds, options, pruning, log)


def is_by_time(limit: Limit) -> bool:
    """Returns whether finding an offset for this requires an open log.

    Args:
        limit: a start or an end.
    """
    return isinstance(limit, AtTimestamp | AtTimestamps)


def _extents_within(
    outline: PartitionExtent, bounds: PartitionBounds, options: ReadOptions, pruning: Pruning, log: PartitionLog | None
) -> list[Extent]:
    start, end = bounds.span(options.start, options.end, log)
    wanted = _wanted(log, start, end, pruning) if pruning.keeps(bounds.partition) else ()
    return [extent_between(outline, bounds.home, bounds.partition, first, last, options) for first, last in wanted]


def _wanted(log: PartitionLog | None, start: int, end: int, pruning: Pruning) -> Ranges:
    """Returns the parts of a range that predicates keep. The time indexes of a damaged log may be incomplete and are not used."""
    ranges = pruning.within(start, end)
    if pruning.timestamp is None or log is None or log.recovery_report:
        return ranges
    since = partial(ranges_since, log.snapshot(at_least=0), timestamp=pruning.timestamp)
    return united(NumberRange(first, last) for partition in ranges for first, last in since(*partition))


def extent_between(
    outline: PartitionExtent, home: str, partition: TopicPartition, start: int, end: int, options: SourceOptions
) -> Extent:
    """A range of a partition, cut where it has more bytes than a task gets.

    Args:
        outline: of the partition.
        home: its log directory.
        partition: which.
        start, end: offsets within the log; nothing is read where the end is not above the start.
        options: of the read.
    """
    if start >= end:
        return Extent(home, partition, 0, ())
    size, interior = cut(outline, start, end, options.max_bytes_per_partition)
    return Extent(home, partition, size, (start, *interior, end))


def end_of(log: PartitionLog, isolation: str) -> int:
    """Where reading with this isolation ends: the connector's latest offset.

    Args:
        log: a partition.
        isolation: `read_uncommitted` or `read_committed`.
    """
    return log.snapshot(committed=True).stable_offset if isolation == "read_committed" else log.end_offset


@dataclass(frozen=True)
class PartitionBounds:
    """A partition's bounds, what starts and ends mean there, and what to do about offsets beyond them."""

    home: str
    partition: TopicPartition
    earliest: int
    latest: int
    options: SourceOptions
    remote: range = range(0)  # what only a broker's remote tier has

    def within(self, offset: int, which: str) -> int:
        """The offset itself if the log has it, else an error, or with `failOnDataLoss=false` a warning and the nearest it has.

        An end before the log's start is kept: nothing is read, and the start shows whether records were lost.
        """
        if self.earliest <= offset <= self.latest or (which == "ending" and offset < self.earliest):
            return offset
        fate = "is gone" if offset < self.earliest else "is not there yet"
        if offset in self.remote:
            fate = "is in a broker's remote tier, which pylog does not read"
        report_data_loss(
            f"{which} offset {offset} of {named(self.partition)} {fate}: "
            f"the log has offsets {self.earliest} to {self.latest} (exclusive)",
            path=self.home,
            offset=offset,
            fail=self.options.scan.fail_on_data_loss,
        )
        return min(max(offset, self.earliest), self.latest)

    def span(self, start: Limit, end: Limit, log: PartitionLog | None) -> tuple[int, int]:
        """Returns the range to read. Refuses an end before the start, which must be a mistake."""
        first, last = self.resolve(start, log, "starting"), self.resolve(end, log, "ending")
        if last < first:
            raise InvalidArgumentError(
                f"the read of {named(self.partition)} would begin at offset {first} and end before that, at {last}: "
                f"the log in {self.home} has offsets {self.earliest} to {self.latest} (exclusive)",
                path=self.home,
                offset=first,
            )
        return self.within(first, "starting"), self.within(last, "ending")

    def resolve(self, limit: Limit, log: PartitionLog | None, which: str) -> int:
        """The offset that a start or an end means; `which` is "starting" or "ending", and a time needs the log open."""
        match limit:
            case Everywhere(offset):
                return self._absolute(offset)
            case AtOffsets(offsets):
                return self._absolute(offsets[self.partition])
            case AtTimestamp(timestamp):
                return self._at_time(timestamp, log, which)
            case AtTimestamps(timestamps):
                return self._at_time(timestamps[self.partition], log, which)

    def _absolute(self, offset: int) -> int:
        earliest = self.remote.start if self.remote else self.earliest
        return {EARLIEST: earliest, LATEST: self.latest}.get(offset, offset)

    def _at_time(self, timestamp: int, log: PartitionLog | None, which: str) -> int:
        assert log is not None
        found = log.offset_for_timestamp(timestamp, isolation_level=self.options.scan.isolation_level)
        if found is not None and found.offset < self.latest:
            return found.offset
        if which == "starting" and not self.options.latest_if_none_younger:
            raise OffsetOutOfRangeError(
                f"{named(self.partition)} in {self.home} has no record at or after the starting timestamp {timestamp}; "
                "to begin at its end, set startingOffsetsByTimestampStrategy to latest",
                path=self.home,
            )
        return self.latest


def report_data_loss(message: str, *, path: str, offset: int, fail: bool) -> None:
    """Fails, or warns, because records that were asked for are not there.

    Args:
        message: describes the loss.
        path: in which log directory.
        offset: the first offset concerned.
        fail: the option `failOnDataLoss`.

    Raises:
        OffsetOutOfRangeError: if `failOnDataLoss` is true.
    """
    if fail:
        raise OffsetOutOfRangeError(
            f"{message}, in {path}; to read what there is, set failOnDataLoss to false", path=path, offset=offset
        )
    _logger.warning("%s, in %s; reading what there is, as failOnDataLoss is false", message, path)


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
    """Adds bounds between those furthest apart, until there are `count` ranges, or one for each offset.

    An index has an entry every 4 KiB at most, so cuts at its entries make few pieces of small records. These are at offsets,
    whatever is there: of a batch that one of them cuts both tasks read the whole, and each gives its own records.

    Args:
        bounds: rising offsets, the first and the last of the range among them.
        pieces: wanted, about.

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


def slices(outlined: Outlined, extents: Iterable[Extent], options: SourceOptions, ids: Mapping[str, str]) -> list[LogSlice]:
    """The tasks that read extents.

    Args:
        outlined: refreshes a partition that `minPartitions` splits further.
        extents: the ranges to read; empty ones need no task.
        options: of the read.
        ids: of the topics, as far as they have any.

    Raises:
        InvalidArgumentError: they would be too many.
    """
    found: list[LogSlice] = []
    for extent in _cut_finer(outlined, [extent for extent in extents if extent.bounds], options):
        for start, end in _at_most(extent.bounds, options.max_records_per_partition):
            if len(found) == MAX_SLICES:
                wanted = "give a greater maxBytesPerPartition or maxRecordsPerPartition"
                raise InvalidArgumentError(f"the read falls into more than {MAX_SLICES} tasks: {wanted}")
            partition = extent.topic_partition
            found.append(LogSlice(extent.directory, *partition, start, end, ids.get(partition.topic)))
    return found


def _at_most(bounds: Sequence[int], max_records: int | None) -> Iterator[tuple[int, int]]:
    """The pieces between bounds, cut again where one spans more offsets than `max_records`, into even parts."""
    for start, end in itertools.pairwise(bounds):
        parts = 1 if max_records is None else -(-(end - start) // max_records)
        yield from itertools.pairwise(start + (end - start) * partition // parts for partition in range(parts + 1))
