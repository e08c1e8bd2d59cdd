"""`Source` and `Loaded`: the input and the result of loading a partition."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from pylog import limits
from pylog.clock import Clock, SystemClock
from pylog.config import TopicConfig
from pylog.directory.byte_lock import ByteLock
from pylog.directory.checkpoints import Checkpoint
from pylog.directory.leader_epoch_cache import EpochEntry
from pylog.directory.partition_metadata import read_topic_id
from pylog.errors import CorruptionError
from pylog.fs import FileSystem, HeldDirectory, OpenFiles, parent_of
from pylog.index.builder import SegmentIndexBuilder
from pylog.log.durable_point import DELETED, DurablePoint, Truncations, open_header
from pylog.log.options import LiveOptions
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.archive_tier import Tier, no_tier
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.found_segments import FoundSegments
from pylog.log.recovery.tier import is_brokers
from pylog.record.types import TopicPartition
from pylog.segment.batch_walk import Damage
from pylog.segment.header_digest import HeaderDigest
from pylog.segment.names import LOG
from pylog.segment.segment import LogSegment


@dataclass(frozen=True)
class Source:
    """A partition to load, with the facts from its log directory.

    Attributes:
        fs, directory, partition: the partition.
        options: its topic's options that its log applies.
        open_files: limits the files that this process keeps open for reading.
        writable: true if open for writing.
        clean: true if the log directory had a clean-shutdown marker; a partition's header takes precedence.
        ours: true if pylog wrote the marker and no broker has run since, so that headers take precedence over checkpoints.
        foreign: true if another program has the directory open now; it is then not checked.
        recovery_points, log_starts, cleaned: Kafka's checkpoints; the last one has the ends of the clean sections.
        lock: the partition's; None for a reader.
        root_lock: protects the checkpoint files; None for a reader.
        cleaning_lock: held during compaction of the partition; None for a reader.
        clock: decides which producers have expired.
        tier: returns the partition's archive; None in a store without one.
    """

    fs: FileSystem
    directory: str
    partition: TopicPartition
    options: LiveOptions
    open_files: OpenFiles
    writable: bool
    clean: bool
    ours: bool
    foreign: bool
    recovery_points: Checkpoint
    log_starts: Checkpoint
    cleaned: Checkpoint
    lock: ByteLock | None = None
    root_lock: ByteLock | None = None
    cleaning_lock: ByteLock | None = None
    clock: Clock = field(default_factory=SystemClock)
    tier: Callable[[], Tier | None] = no_tier

    @property
    def held(self) -> HeldDirectory:
        """The file system of a partition open for writing, which refuses changes once the directory was replaced."""
        assert isinstance(self.fs, HeldDirectory)
        return self.fs

    @property
    def if_free(self) -> Callable[[], AbstractContextManager[bool]] | None:
        """Enters the partition's lock if it is free; None for a reader. For files that a reading thread writes."""
        return self.lock.entered_if_free if self.writable and self.lock is not None else None

    @property
    def config(self) -> TopicConfig:
        """The topic's current options, which stay the same during one change of the log."""
        return self.options.now.config

    @property
    def recovery_point(self) -> int:
        """Kafka's recovery point: offsets below it are synced."""
        return self.recovery_points.offsets().get(self.partition, 0)

    @property
    def log_start_line(self) -> int | None:
        """Kafka's checkpointed log start; None if there is none."""
        return self.log_starts.offsets().get(self.partition)

    def is_own(self) -> bool:
        """Returns whether the log directory is not a broker's. Cost: a listing."""
        return not is_brokers(self.fs, parent_of(self.directory))

    @property
    def compacted_to(self) -> int:
        """The possible end of the clean section: anywhere in a compacted topic, as a killed compaction writes no checkpoint."""
        return limits.INT64_MAX if self.options.read().is_compacted else self.cleaned.offsets().get(self.partition, 0)


@dataclass
class Loaded:
    """A loaded partition.

    Attributes:
        segments: in order; the last one is the active one.
        end: the size of the whole batches in the active segment, in bytes.
        next_offset: the log end offset.
        start_offset: the log start offset.
        recorded_start: the log start offset in Kafka's checkpoint; None if it has none.
        remote_start: the log start offset in remote storage; None if the log is complete here.
        leader_epoch: the leader epoch of the last batch; -1 if unknown.
        epochs: the leader epoch checkpoint; None if it is missing or damaged.
        builder: the active segment's indexes.
        producers: the producer state at the end; None in a read-only log, which computes it on first use.
        snapshots: offsets of the producer snapshots.
        unindexed: bases of sealed segments that have no `.index` file.
        digest: the digest of all batch headers in the active segment; None if not all were read.
        plain: true if all batches of the active segment were read, and none has a producer.
        file_size: the size of the last file, in bytes.
        found: the header's newest slot, even if stale; None if there is none.
        slot: the same; None if it is stale because another program has written since.
        truncations: the last ones that the header has.
        same_boot: true if the slot was written under this boot of the operating system, so that all published bytes exist.
        known_position: the position below which the active segment is trusted: published under this boot, or synced.
        torn: the torn tail to cut off, or None.
        preallocated: zeros after the end, in bytes.
        corrupt: why the partition must not be written, or None.
        findings: for the owner of the partition.
        durable_offset: records below it are known to be synced.
        clean: true if no segment had to be scanned.
        topic_id: the id of the directory's topic; None if unknown.
        reached: the end that a log without segments once had: new records begin there. 0 for other logs.
    """

    segments: FoundSegments
    end: int = 0
    next_offset: int = 0
    start_offset: int = 0
    recorded_start: int | None = None
    remote_start: int | None = None
    leader_epoch: int = -1
    epochs: list[EpochEntry] | None = None
    builder: SegmentIndexBuilder | None = None
    producers: ProducerStateManager | None = None
    snapshots: list[int] = field(default_factory=list)
    unindexed: list[int] = field(default_factory=list)
    digest: HeaderDigest | None = None
    plain: bool = False
    file_size: int = 0
    found: DurablePoint | None = None
    slot: DurablePoint | None = None
    truncations: Truncations = field(default_factory=Truncations)
    same_boot: bool = False
    known_position: int = 0
    torn: Damage | None = None
    preallocated: int = 0
    corrupt: Finding | None = None
    findings: list[Finding] = field(default_factory=list)
    durable_offset: int = 0
    clean: bool = True
    topic_id: str | None = None
    reached: int = 0

    @property
    def sound(self) -> bool:
        """Whether a clean-shutdown marker may be written for the partition as it is.

        A broker that trusts the marker fails on zeros after the end (interop 6). Under this boot a running process may own them.
        """
        return self.clean and self.torn is None and self.corrupt is None and (self.same_boot or not self.preallocated)

    def check_sound(self) -> None:
        """Raises CorruptionError if a finding prevents writing."""
        found = self.corrupt
        if found is not None:
            raise CorruptionError(
                f"{found.message}; the partition is open only for reading until it is repaired",
                path=found.path,
                position=found.position,
                offset=found.offset,
                next_offset=found.next_offset,
            )

    def grow(self, end: int, next_offset: int) -> None:
        """Notes batches that another process has added to the active segment. They may be of producers.

        Args:
            end: the new end of the whole batches there, in bytes.
            next_offset: the new log end offset.
        """
        self.end, self.next_offset, self.plain = end, next_offset, False

    def segments_from(self, offset: int) -> list[tuple[LogSegment, int]]:
        """Returns the segments with records at or above an offset, with the valid bytes of each."""
        if offset >= self.next_offset or not self.segments:
            return []
        ends = [*self.segments.bases[1:], self.next_offset]
        sizes = [segment.size for segment in self.segments[:-1]] + [self.end]
        return [(segment, size) for segment, end, size in zip(self.segments, ends, sizes, strict=True) if end > offset]

    def follows(self, before: Loaded) -> bool:
        """Returns whether this is still the same partition: not created again, and not about to be deleted."""
        flags = 0 if self.slot is None else self.slot.flags
        return not flags & DELETED and (None in (self.topic_id, before.topic_id) or self.topic_id == before.topic_id)


def is_of_another_topic(source: Source, loaded: Loaded) -> bool:
    """Returns whether the directory belongs to another topic of the same name, created after the partition was loaded.

    For a partition without an open header: one that is open tells of the deletion itself. Names and sizes of files do not show
    it, and neither does a header that is opened now: the new topic can have as many bytes, and its files the inodes of the old
    ones. Cost: one small read.
    """
    found = None
    with suppress(CorruptionError):  # an unreadable id decides nothing
        found = read_topic_id(source.fs, source.directory)
    return None not in (found, loaded.topic_id) and found != loaded.topic_id


def unchanged_since_load(source: Source, loaded: Loaded) -> bool:
    """Returns whether no process has written since the log was loaded: header, length and zeros of its end are unchanged."""
    header = open_header(source.fs, source.directory)
    if header is not None:
        slot, same_boot = header.refresh(), header.same_boot
        header.close()
        if slot != loaded.found or same_boot != loaded.same_boot:
            return False  # it was written, or replaced by a copy
    elif loaded.found is not None:
        return False
    if is_of_another_topic(source, loaded):
        return False
    if not loaded.segments:
        fs, directory = source.fs, source.directory
        return fs.exists(directory) and not any(entry.name.endswith(LOG) for entry in fs.list(directory))
    last, end, size = loaded.segments[-1], loaded.end, loaded.file_size
    same = source.fs.exists(last.path) and last.file().size() == size
    return same and (not loaded.preallocated or last.file().is_blank(end, size))
