"""`Observation`: a store at one moment, as all pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from pylog.config import TopicConfig
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.groups.description import MemberDescription
from pylog.groups.health import Health, Verdict
from pylog.log.reading.counting import HeaderTally
from pylog.record.types import TopicPartition

FRESH_S: Final = 2.0
THIS_PROCESS: Final = "this process"  # has the directory open for writing
ERRORS: Final = frozenset({Verdict.REWIND, Verdict.STALL, Verdict.STOP, Verdict.DAMAGED, Verdict.LOST})


@dataclass(frozen=True, slots=True)
class SegmentSeen:
    """A segment: its offsets from `base_offset` to `end_offset - 1`, and the bytes of its `.log` file.

    `tally` and `has_seal` are None if its headers were not read: it is not counted yet, too large, or damaged.
    """

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int
    is_active: bool
    tally: HeaderTally | None = None
    has_seal: bool | None = None


@dataclass(frozen=True, slots=True)
class TierSeen:
    """The archive of a partition, and the part of it that is on the disk.

    Attributes:
        local_start: the smallest offset on the disk.
        local_bytes: bytes of the records on the disk.
        archived_end: the offset after the last archived record.
        archived_bytes: bytes of the records in the archive.
        waiting_bytes: bytes of sealed segments that are not archived yet.
        waiting_since_ms: the last append to the first of these; -1 without any.
        failure: the reason why this process could not archive; None if there is none.
    """

    local_start: int
    local_bytes: int
    archived_end: int
    archived_bytes: int
    waiting_bytes: int
    waiting_since_ms: int
    failure: str | None


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A partition. Without offsets if it cannot be read; `damage` then says why. `loss` says which of its records cannot be read.

    `undurable_ms` is the timestamp of the first record that is not durable; -1 if all are, or if it is not known.
    """

    partition: TopicPartition
    start_offset: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    stable_offset: int = 0
    segments: tuple[SegmentSeen, ...] = ()
    damage: str | None = None
    undurable_ms: int = -1
    tier: TierSeen | None = None
    loss: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why the partition, or a part of it, cannot be read; None if nothing is known to be wrong."""
        return self.damage or self.loss

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(each.size for each in self.segments)

    @property
    def records(self) -> int | None:
        """The number of records, without markers and gaps; None if they were not counted."""
        counted = [each.tally for each in self.segments]
        return None if self.damage is not None or None in counted else sum(each.records for each in counted if each is not None)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp of the last segments, or -1."""
        return max((each.newest_ms for each in self.segments[-2:]), default=-1)


@dataclass(frozen=True)
class TopicSeen:
    """A topic and its partitions.

    Attributes:
        rate: offsets that were appended a second; None at the first observation.
        rates: the rates of the last observations, oldest first.
        id: the topic's id; None if it has none. A topic of the same name that was created again has another one.
    """

    name: str
    partitions: tuple[PartitionSeen, ...]
    config: TopicConfig
    rate: float | None
    rates: tuple[float, ...] = ()
    id: str | None = None

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's own topics."""
        return self.name in INTERNAL_TOPICS

    @cached_property
    def offsets(self) -> int:
        """Offsets from the starts to the ends of its logs."""
        return sum(each.end_offset - each.start_offset for each in self.partitions)

    @cached_property
    def records(self) -> int | None:
        """The number of records, without markers and gaps; None if they were not counted."""
        counted = [each.records for each in self.partitions]
        return None if None in counted else sum(each for each in counted if each is not None)

    @cached_property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(each.size for each in self.partitions)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp, or -1."""
        return max((each.newest_ms for each in self.partitions), default=-1)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group: its health, its state, its members, and the time of its last commit, or -1."""

    name: str
    health: Health
    state: str
    members: tuple[MemberDescription, ...]
    committed_ms: int = -1

    @property
    def lag(self) -> int:
        """Offsets that it has not read. A partition with a committed offset past the log's end makes the others' no smaller."""
        return sum(max(0, each.lag or 0) for each in self.health.partitions)

    @property
    def rate(self) -> float:
        """Offsets that it reads a second."""
        return sum(each.rate or 0.0 for each in self.health.partitions)

    @property
    def trend(self) -> str:
        """The trend of its lag in time: that of the partition with the largest lag."""
        worst = max(self.health.partitions, key=lambda each: each.lag_seconds or 0.0, default=None)
        return "steady" if worst is None else worst.trend

    def reader_of(self, partition: TopicPartition) -> MemberDescription | None:
        """Returns the member that reads a partition."""
        return next((each for each in self.members if partition in each.assignment), None)


class Reading(NamedTuple):
    """How far the first observation of a large store is: groups that were read, all groups, and topics that are not shown."""

    done: int
    total: int
    topics_left: int


class LagSeen(NamedTuple):
    """The lag of a group in an observation: the largest in time, and the offsets of all partitions."""

    timestamp: int
    seconds: float | None
    offsets: int


@dataclass(frozen=True)
class Observation:
    """A store at one moment.

    Attributes:
        path: the store's path.
        at_ms: when it was observed, in milliseconds since 1970.
        topics, groups: by name.
        unreadable_groups: names of groups whose records cannot be read.
        free: bytes that are free on the disk; None if that is not known.
        lags: each group's lag in each observation since the window was opened.
        holder: what has the directory open for writing: "a broker", "a writer" or `THIS_PROCESS`; empty if nothing has.
        growth: bytes that the store has grown a second since the window was opened; None at the first observation.
        fresh_s: how long pages show this observation, in seconds.
        reading: how far the first observation is; None if it is complete.
    """

    path: str
    at_ms: int
    topics: Mapping[str, TopicSeen]
    groups: Mapping[str, GroupSeen]
    unreadable_groups: tuple[str, ...]
    free: int | None
    lags: Mapping[str, tuple[LagSeen, ...]]
    holder: str = ""
    growth: float | None = None
    fresh_s: float = FRESH_S
    reading: Reading | None = None

    @cached_property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(each.size for each in self.topics.values())

    @cached_property
    def damaged(self) -> list[PartitionSeen]:
        """The partitions that cannot be read, in whole or in part."""
        return [each for topic in self.topics.values() for each in topic.partitions if each.trouble is not None]

    @cached_property
    def attention(self) -> list[GroupSeen]:
        """The groups that are not well, the worst first."""
        found = [each for each in self.groups.values() if each.health.verdict is not Verdict.OK]
        return sorted(found, key=lambda each: (each.health.verdict not in ERRORS, -(each.health.lag_seconds or 0.0)))

    @property
    def seconds_to_full(self) -> float | None:
        """How long the free room lasts if the store goes on growing as it does; None if it does not grow."""
        return self.free / self.growth if self.free is not None and self.growth is not None and self.growth > 0 else None

    def groups_of(self, topic: str) -> list[GroupSeen]:
        """Returns the groups that have committed offsets for a topic."""
        return [each for each in self.groups.values() if any(row.partition.topic == topic for row in each.health.partitions)]
