"""`stats`: counts the records, bytes, batches, producers and keys of logs, and finds damage.

Most numbers come from batch headers, in one read and bounded memory. Two need decompression: compression ratios, which are
estimated from some batches of each region, and keys, which are counted on request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, Self

import numpy as np

from pylog.clock import Clock, SystemClock
from pylog.errors import PylogError
from pylog.fs import FileSystem, OsFileSystem, absolute, join
from pylog.groups.described import described_groups
from pylog.groups.description import GroupDescription
from pylog.log.checking.report import Partition
from pylog.log.recovery.findings import losses_in
from pylog.offsets.store import offset_manager_of
from pylog.opening import archived_root, open_store
from pylog.record.batch import Bytes, Table
from pylog.record.compression import Scratch
from pylog.record.decoder import RecordDecoder
from pylog.record.format import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CODEC_NAMES,
    CODEC_NONE,
    CONTROL_BIT,
    COUNT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_ID,
    SIZE,
)
from pylog.record.types import TopicPartition
from pylog.segment.batch_walk import WalkedRange
from pylog.segment.segment import LogSegment
from pylog.store import manager_of
from pylog.tools.headers import Segments, walked_ranges
from pylog.tools.partitions import PartitionDirectory, partition_reader, targets
from pylog.tools.sketches import Distinct, Powers, Timeline
from pylog.topics.checking import was_made
from pylog.topics.listing import find_topics
from pylog.topics.partitions import directory_name
from pylog.urls import is_url

_TRIED: Final = 4  # batches per codec and region that are decompressed
MOST_PRODUCERS: Final = 10_000
_MOST_DAMAGED: Final = 1000  # ranges kept per partition


@dataclass
class Codec:
    """The batches of one codec.

    Attributes:
        batches, records, bytes: totals.
        tried_bytes: compressed size of the records that were decompressed.
        plain_bytes: their size after decompression.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    tried_bytes: int = 0
    plain_bytes: int = 0

    @property
    def ratio(self) -> float | None:
        """The compression ratio; None if no batch was decompressed."""
        return self.plain_bytes / self.tried_bytes if self.tried_bytes else None

    def __iadd__(self, other: Codec) -> Self:
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes
        self.tried_bytes += other.tried_bytes
        self.plain_bytes += other.plain_bytes
        return self


class SegmentStats(NamedTuple):
    """The numbers of a segment: `end_offset` is exclusive, sizes are in bytes, times in milliseconds or None.

    `first_timestamp` is the earliest first timestamp of its batches, `last_timestamp` the latest timestamp. `last_append` is the
    time of its last append, if it is known; it stands for records without a timestamp.
    """

    base_offset: int
    end_offset: int
    batches: int
    records: int
    bytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    last_append: int | None


class DamagedRange(NamedTuple):
    """Bytes of a file that are not batches. They may have held the offsets from `offset` to `next_offset` (exclusive)."""

    path: str
    position: int
    size: int
    offset: int
    next_offset: int
    why: str


@dataclass
class Stats:
    """Totals that can be added.

    Attributes:
        records, bytes: totals of good batches.
        control_batches: number of batches with transaction markers; their records count too.
        batch_bytes, batch_records: histograms of batch sizes.
        codecs: totals by codec name.
        timeline: records and bytes over event time. All records of a batch count at its largest timestamp.
        producer_ids: ids of idempotent producers, at most 10,000.
        keys: distinct keys; None unless requested.
    """

    records: int = 0
    bytes: int = 0
    control_batches: int = 0
    batch_bytes: Powers = field(default_factory=Powers)
    batch_records: Powers = field(default_factory=Powers)
    codecs: dict[str, Codec] = field(default_factory=lambda: defaultdict(Codec))
    timeline: Timeline = field(default_factory=Timeline)
    producer_ids: set[int] = field(default_factory=set)
    keys: Distinct | None = None

    @property
    def batches(self) -> int:
        """The number of good batches."""
        return self.batch_bytes.count

    @property
    def records_per_second(self) -> float | None:
        """The rate over event time; None if all records have the same timestamp."""
        return self.records / self.timeline.seconds if self.timeline.seconds else None

    def __iadd__(self, other: Stats) -> Self:
        self.records += other.records
        self.bytes += other.bytes
        self.control_batches += other.control_batches
        self.batch_bytes += other.batch_bytes
        self.batch_records += other.batch_records
        for name, codec in other.codecs.items():
            self.codecs[name] += codec
        self.timeline += other.timeline
        self.note_producers(other.producer_ids)
        if other.keys is not None:
            self.keys = self.keys or Distinct()
            self.keys += other.keys
        return self

    def note_producers(self, found: Iterable[int]) -> None:
        """Adds producer ids, up to the maximum."""
        for producer_id in found:
            if len(self.producer_ids) >= MOST_PRODUCERS:
                return
            self.producer_ids.add(producer_id)


@dataclass
class PartitionStats:
    """The numbers of a partition.

    Attributes:
        key, directory: the partition.
        start_offset, end_offset: start and end of the log.
        uncounted: offsets that are only in the archive of a tiered topic, if a part of it cannot be read.
        stats: totals.
        segments: numbers of the segments, oldest first.
        damaged: damaged ranges, at most 1000.
        losses: why other records are missing or cannot be read, as far as opening the log has shown.
        error: error that stopped the reading, of the archive or of the disk; None without one.
    """

    key: TopicPartition
    directory: str
    start_offset: int = 0
    end_offset: int = 0
    uncounted: range = range(0)
    stats: Stats = field(default_factory=Stats)
    segments: list[SegmentStats] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass
class TopicStats:
    """The numbers of a topic: its partitions, and their sum."""

    name: str
    partitions: list[PartitionStats]
    stats: Stats


def collect(
    path: str,
    *,
    topics: Iterable[str] = (),
    keys: bool = False,
    progress: Callable[[int, int], None] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> list[TopicStats]:
    """Counts the content of a log directory, of one partition's directory, or of an archive. Damage raises no error.

    Args:
        path: the directory; other processes may write to it. Or the URL of an archive.
        topics: names of the topics to count; all by default.
        keys: count distinct keys too, which decompresses all batches.
        progress: called with (bytes done, total bytes).
        fs, clock: the file system and the clock; by default the system's.

    Returns:
        The topics, sorted by name.

    Raises:
        NotALogDirectoryError: the directory does not exist.

    Cost: one read of all logs, about 1 GB/s without `keys`; some kilobytes of memory per partition and segment. Of a tiered
        topic, what only the archive has is downloaded.

    >>> import pylog, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append_many([b"a", b"b"])
    >>> [(topic.name, topic.stats.records, topic.stats.batches) for topic in collect(root)]
    [('orders', 2, 1)]
    """
    (root, files), time = _located(path, fs), clock or SystemClock()
    wanted = set(topics)
    found = [target for target in targets(files, root) if not wanted or target.key.topic in wanted]
    opened = [_opened(files, target, time) for target in found]
    if not is_url(path):
        opened += [(stats, None) for stats in _removed(files, root, wanted, {target.key for target in found})]
    total = sum(_size(partition) for _, partition in opened if partition is not None)
    done = 0
    by_topic: dict[str, list[PartitionStats]] = defaultdict(list)
    for stats, partition in opened:
        for size in _count(stats, partition, keys=keys) if partition is not None else ():
            done += size
            if progress is not None:
                progress(done, total)
        by_topic[stats.key.topic].append(stats)
    return [_topic(name, sorted(partitions, key=lambda each: each.key)) for name, partitions in sorted(by_topic.items())]


def _located(path: str, fs: FileSystem | None) -> tuple[str, FileSystem]:
    """Returns the root of a log directory or an archive, and the file system that has it."""
    if fs is None and is_url(path):
        return archived_root(path)
    return absolute(path), fs or OsFileSystem()


def _opened(fs: FileSystem, target: PartitionDirectory, clock: Clock) -> tuple[PartitionStats, Partition | None]:
    stats = PartitionStats(target.key, target.directory)
    try:
        return stats, partition_reader(fs, target, clock)().whole()
    except PylogError as error:
        stats.error = str(error)
        return stats, None


def _removed(fs: FileSystem, root: str, wanted: Collection[str], seen: Collection[TopicPartition]) -> Iterator[PartitionStats]:
    """Yields the partitions of the topics whose directory was removed."""
    with suppress(PylogError):  # the catalog is damaged: `verify` reports it
        for topic in find_topics(fs, root).values():
            lacking = {TopicPartition(topic.name, number) for number in topic.partition_ids} - set(seen)
            for key in sorted(lacking) if not wanted or topic.name in wanted else ():
                if was_made(fs, root, key):
                    said = f"{directory_name(key)} is not counted: its directory is missing; run pylog verify"
                    yield PartitionStats(key, join(root, directory_name(key)), error=said)


def _size(partition: Partition) -> int:
    return sum(partition.state.size_of(segment) for segment, _ in partition.segments())


def _topic(name: str, partitions: list[PartitionStats]) -> TopicStats:
    total = Stats()
    for partition in partitions:
        total += partition.stats
    return TopicStats(name, partitions, total)


# ---- one partition -----------------------------------------------------------------------------------------------------------


def _count(found: PartitionStats, partition: Partition, *, keys: bool) -> Iterator[int]:
    """Counts a partition, with its archive. Yields the bytes of each range of batches."""
    state = partition.state
    found.start_offset, found.end_offset = state.start_offset, state.end_offset
    found.stats.keys = Distinct() if keys else None
    ends = {segment.base_offset: following for segment, following in partition.segments()}
    segments = {base: _SegmentCounts() for base in ends}
    samples = _Samples(keys=keys)
    for tier in _tiers(partition):
        try:
            for segment, walked in walked_ranges(partition, tier):
                _add(found.stats, walked.table)
                segments[segment.base_offset].add(walked.table)
                samples.take(found.stats, walked)
                _note_damage(found, segment, walked, ends[segment.base_offset])
                yield int(walked.table[SIZE].sum())
        except PylogError as error:
            found.error = str(error)
            if partition.both is not None and tier[0][0].vouched is not None:
                found.uncounted = range(state.start_offset, tier[-1][1] or state.end_offset)
    known = {(each.path, each.position) for each in found.damaged}
    found.losses = [each.message for each in losses_in(partition.found) if (each.path, each.position) not in known]
    for segment, following in partition.segments():
        base, end = segment.base_offset, state.end_offset if following is None else following
        found.segments.append(segments[base].stats(base, end, segment.appends.file_ms))


def _tiers(partition: Partition) -> list[Segments]:
    """Returns the segments that only the archive has, and the others. A failed request leaves the disk to be counted."""
    found = partition.segments()
    archived = 0 if partition.both is None else sum(segment.vouched is not None for segment, _ in found)
    return [part for part in (found[:archived], found[archived:]) if part]


def _records(table: Table) -> Table:
    """Returns the number of records of each batch. Entries of magic 0 and 1 have no count and count as one."""
    return np.where(table[MAGIC] < 2, 1, table[COUNT])


def _add(stats: Stats, table: Table) -> None:
    records = _records(table)
    stats.records += int(records.sum())
    stats.bytes += int(table[SIZE].sum())
    stats.control_batches += int(((table[ATTRIBUTES] & CONTROL_BIT) != 0).sum())
    stats.batch_bytes.add(table[SIZE])
    stats.batch_records.add(records)
    stats.timeline.add(table[MAX_TIMESTAMP], records, table[SIZE])
    stats.timeline.reach(_first_timestamps(table))
    stats.note_producers(np.unique(table[PRODUCER_ID][table[PRODUCER_ID] >= 0]).tolist())
    codecs = table[ATTRIBUTES] & CODEC_MASK
    for codec in np.unique(codecs).tolist():
        own = codecs == codec
        counted = Codec(int(own.sum()), int(records[own].sum()), int(table[SIZE][own].sum()))
        stats.codecs[_codec_name(codec)] += counted


def _first_timestamps(table: Table) -> Table:
    """Returns the timestamp of each batch's first record; its largest timestamp if the header has no first one.

    A delete horizon replaces the first timestamp, and a batch with LogAppendTime has only one timestamp (storage-format 1.6).
    """
    own = (table[MAGIC] == 2) & ((table[ATTRIBUTES] & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)) == 0) & (table[COUNT] > 0)
    return np.where(own & (table[BASE_TIMESTAMP] >= 0), table[BASE_TIMESTAMP], table[MAX_TIMESTAMP])


def _codec_name(codec: int) -> str:
    return CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"unknown ({codec})"


class _SegmentCounts:
    """Adds up the numbers of a segment."""

    def __init__(self) -> None:
        self._sums = np.zeros(3, np.int64)
        self._times = Timeline()

    def add(self, table: Table) -> None:
        self._sums += (table.shape[1], int(_records(table).sum()), int(table[SIZE].sum()))
        self._times.reach(_first_timestamps(table))
        self._times.reach(table[MAX_TIMESTAMP])

    def stats(self, base_offset: int, end_offset: int, last_append: int) -> SegmentStats:
        batches, records, size = self._sums.tolist()
        times = self._times.first, self._times.last
        return SegmentStats(base_offset, end_offset, batches, records, size, *times, last_append if last_append > 0 else None)


def _note_damage(found: PartitionStats, segment: LogSegment, walked: WalkedRange, following: int | None) -> None:
    damage = walked.damage
    if damage is None or len(found.damaged) >= _MOST_DAMAGED:
        return
    known = (each for each in (damage.next_offset, following) if each is not None)
    next_offset = next(known, max(found.end_offset, damage.offset + 1))
    size = damage.end - damage.position
    found.damaged.append(DamagedRange(segment.path, damage.position, size, damage.offset, next_offset, damage.why))


class _Samples:
    """Decompresses sample batches for the compression ratios, and decodes all keys on request."""

    def __init__(self, *, keys: bool) -> None:
        self._scratch = Scratch()
        self._decoder = RecordDecoder(("key",), verify=False) if keys else None

    def take(self, stats: Stats, walked: WalkedRange) -> None:
        table = walked.table
        codecs = np.where(table[MAGIC] == 2, table[ATTRIBUTES] & CODEC_MASK, CODEC_NONE)
        for codec in np.unique(codecs[codecs != CODEC_NONE]).tolist():
            own = np.flatnonzero(codecs == codec)
            for batch in own[:: max(1, -(-own.size // _TRIED))].tolist():
                self._try(stats.codecs[_codec_name(codec)], codec, walked.buffer, table[:, batch])
        if self._decoder is not None and stats.keys is not None:
            self._count_keys(self._decoder, stats.keys, walked)

    def _try(self, counted: Codec, codec: int, buffer: Bytes, column: Table) -> None:
        position, end = int(column[POSITION]) + HEADER_SIZE, int(column[POSITION] + column[SIZE])
        try:
            plain = self._scratch.decompress(codec, buffer[position:end]).size
        except PylogError:  # a newer codec, or a decompression bomb: `verify` reports it
            return
        counted.tried_bytes += end - position
        counted.plain_bytes += plain

    def _count_keys(self, decoder: RecordDecoder, keys: Distinct, walked: WalkedRange) -> None:
        data = np.ascontiguousarray(walked.table[:, (walked.table[ATTRIBUTES] & CONTROL_BIT) == 0])
        try:
            for frame in chain(decoder.feed(walked.buffer, data), decoder.finish()):
                keys.add(frame.column(0))
        except PylogError:  # records that do not parse: `verify` reports them
            return


# ---- groups ------------------------------------------------------------------------------------------------------------------


class Lag(NamedTuple):
    """The lag of a group in a partition, in offsets. `offset` is the committed offset."""

    group: str
    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int


def group_lags(path: str, *, fs: FileSystem | None = None, clock: Clock | None = None) -> list[Lag]:
    """Returns the lags of the groups of a log directory, the largest first.

    Args:
        path: the log directory, or the URL of an archive. For one partition's directory, the result is empty.
        fs, clock: the file system and the clock; by default the system's.

    Raises:
        CorruptionError: the committed offsets are damaged. A partition that cannot be read has no lag.

    Cost: a read of `__consumer_offsets`.
    """
    (root, files), time = _located(path, fs), clock or SystemClock()
    if any(target.directory == root for target in targets(files, root)):
        return []
    with open_store(root, "r", fs=files, clock=time) as store:
        described = described_groups(manager_of(store), offset_manager_of(store.offsets), store.groups())
    found = [lag for name, group in described.groups.items() for lag in _lags_of(name, group)]
    return sorted(found, key=lambda each: -each.lag)


def _lags_of(name: str, group: GroupDescription | PylogError) -> Iterator[Lag]:
    if isinstance(group, PylogError):
        raise group
    for each in group.partitions:
        if each.offset is not None and each.end_offset is not None:
            yield Lag(name, *each.partition, each.offset, each.end_offset, each.end_offset - each.offset)
