"""What loading a partition is given, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from pylog import limits
from pylog.clock import Clock, SystemClock
from pylog.config import TopicConfig
from pylog.directory.checkpoints import Checkpoint, EpochEntry
from pylog.directory.locks import ByteLock
from pylog.fs import FileSystem, HeldDirectory, OpenFiles
from pylog.index.builder import SegmentIndexBuilder
from pylog.log.durable_point import DELETED, DurablePoint
from pylog.log.options import LiveOptions
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.found_segments import FoundSegments
from pylog.record.types import TopicPartition
from pylog.segment.batch_walk import Damage
from pylog.segment.seal import HeaderDigest


@dataclass(frozen=True)
class Source:
    """Where a partition is and what its log directory says of it.

    Attributes:
        fs, directory, partition: the partition.
        options: its topic's options, as its log acts by them.
        open_files: limits the files that this process keeps open for reading.
        writable: open for writing.
        clean: the log directory was shut down cleanly (its marker was there); a partition with a header knows better.
        ours: the marker is pylog's own: no broker was here since, so a partition's header knows better than the checkpoints.
        foreign: another program has the directory open now; nothing of it is judged.
        recovery_points, log_starts, cleaned: Kafka's checkpoints; the last says how far partitions are compacted.
        lock: the partition's, None for a reader.
        root_lock: guards the checkpoint files, None for a reader.
        cleaning_lock: of whoever compacts the partition, None for a reader.
        clock: tells which producers have expired.
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

    @property
    def held(self) -> HeldDirectory:
        """The file system of a partition that is open for writing: it refuses changes once the directory was replaced."""
        assert isinstance(self.fs, HeldDirectory)
        return self.fs

    @property
    def config(self) -> TopicConfig:
        """The topic's options that count now: in one change of the log they are the same throughout."""
        return self.options.now.config

    @property
    def recovery_point(self) -> int:
        """Kafka's word: offsets below it are synced."""
        return self.recovery_points.offsets().get(self.partition, 0)

    @property
    def log_start(self) -> int:
        """Kafka's checkpointed log start, 0 when it has none."""
        return self.log_start_line or 0

    @property
    def log_start_line(self) -> int | None:
        """The same, None when it has none."""
        return self.log_starts.offsets().get(self.partition)

    @property
    def compacted_to(self) -> int:
        """How far a compaction may have got: anywhere in a topic that is compacted, as one that was killed has noted nothing."""
        return limits.INT64_MAX if self.options.read().is_compacted else self.cleaned.offsets().get(self.partition, 0)


@dataclass
class Loaded:
    """A partition as it was found.

    Attributes:
        segments: in order; the last one is the active one.
        end: bytes of whole batches in the active segment.
        next_offset: the log's end.
        start_offset: the log's start.
        remote_start: where the log starts in a broker's remote tier; None of a log that is all here.
        leader_epoch: of the last batch, -1 when nothing says.
        epochs: the leader epoch checkpoint; None when it is missing or damaged.
        builder: the active segment's indexes.
        producers: the producer state up to the end; None when the log is read-only (made when it is asked for).
        snapshots: offsets of the producer snapshots.
        unindexed: bases of sealed segments that have no `.index` file.
        digest: of the active segment's batch headers, all of them; None when they were not all looked at.
        plain: all of the active segment was looked at, and no batch of it has a producer.
        file_size: bytes of the last file, whatever they are.
        found: the header's newest slot, whatever it is worth; None when there is none.
        slot: the same, None when another program has written since: its word is stale then.
        same_boot: whether the slot is of this boot of the operating system: all that is published is there.
        known_position: bytes of the active segment that are not to be doubted: published under this boot, or synced.
        torn: the torn tail to be cut, if any.
        preallocated: zeros behind the end, in bytes.
        corrupt: why the partition may not be written, or None.
        findings: what its owner should know.
        durable_offset: everything below is known to be synced.
        clean: nothing had to be scanned.
        topic_id: of the topic that the directory belongs to, None when nothing says.
    """

    segments: FoundSegments
    end: int = 0
    next_offset: int = 0
    start_offset: int = 0
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
    same_boot: bool = False
    known_position: int = 0
    torn: Damage | None = None
    preallocated: int = 0
    corrupt: Finding | None = None
    findings: list[Finding] = field(default_factory=list)
    durable_offset: int = 0
    clean: bool = True
    topic_id: str | None = None

    @property
    def sound(self) -> bool:
        """Whether the partition may stand under a clean-shutdown marker as it is.

        Zeros behind the end are fatal there to a broker (interop 6). Under this boot they may be those of a process at work.
        """
        return self.clean and self.torn is None and self.corrupt is None and (self.same_boot or not self.preallocated)

    def follows(self, before: Loaded) -> bool:
        """Whether this is still the partition that was loaded before, not one that was made in its place, nor about to go."""
        flags = 0 if self.slot is None else self.slot.flags
        return not flags & DELETED and (None in (self.topic_id, before.topic_id) or self.topic_id == before.topic_id)
