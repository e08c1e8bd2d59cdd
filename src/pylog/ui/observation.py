"""`Watch`: observes a store at most once in two seconds, and gives all pages the same immutable `Observation`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from pylog.config import TopicConfig
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import ClosedError, PylogError
from pylog.fs.system_info import room_at
from pylog.groups.description import MemberDescription
from pylog.groups.health import Health, Verdict
from pylog.groups.lag_history import LagPoint
from pylog.groups.observer import GroupObserver
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic
from pylog.ui.verifying import Verifying

if TYPE_CHECKING:
    from pylog.transactions.admin import TransactionAdmin

FRESH_S: Final = 2.0
_SHARE: Final = 10  # pages show an observation so many times as long as it took: a tenth of a core at most
_MOST_S: Final = 60.0  # that pages show one observation
_KEPT: Final = 720  # observations in the history
_WINDOW_MS: Final = 3_600_000  # of the course of a lag before the window was opened
_PAST_FRESH_S: Final = 30.0
_PASTS: Final = 32  # groups whose course is kept
ERRORS: Final = frozenset({Verdict.REWIND, Verdict.STALL, Verdict.STOP, Verdict.DAMAGED, Verdict.LOST})


@dataclass(frozen=True, slots=True)
class SegmentSeen:
    """A segment: offsets from `base_offset` to before `end_offset`, and the bytes of its `.log` file."""

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A partition. Without offsets if it cannot be read; `damage` then says why."""

    partition: TopicPartition
    start_offset: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    stable_offset: int = 0
    segments: tuple[SegmentSeen, ...] = ()
    damage: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(each.size for each in self.segments)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp of the last segments, or -1."""
        return max((each.newest_ms for each in self.segments[-2:]), default=-1)


@dataclass(frozen=True)
class TopicSeen:
    """A topic and its partitions."""

    name: str
    partitions: tuple[PartitionSeen, ...]
    config: TopicConfig
    rate: float | None  # offsets a second; None at the first observation

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Kafka's own topics."""
        return self.name in INTERNAL_TOPICS

    @cached_property
    def offsets(self) -> int:
        """Offsets from the starts to the ends of its logs."""
        return sum(each.end_offset - each.start_offset for each in self.partitions)

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
    """A group: its health, its state and its members."""

    name: str
    health: Health
    state: str
    members: tuple[MemberDescription, ...]

    @property
    def lag(self) -> int:
        """Offsets that it has not read."""
        return sum(each.lag for each in self.health.partitions)

    def reader_of(self, partition: TopicPartition) -> MemberDescription | None:
        """Returns the member that reads a partition."""
        return next((each for each in self.members if partition in each.assignment), None)


class LagSeen(NamedTuple):
    """The largest lag of a group in an observation."""

    timestamp: int
    seconds: float | None


@dataclass(frozen=True)
class Observation:
    """A store at one moment.

    Attributes:
        path: of the store.
        at_ms: when it was observed, in milliseconds since 1970.
        topics, groups: by name.
        unreadable_groups: names of groups whose records cannot be read.
        free: bytes that are free on the disk; None if that is not known.
        lags: of each group, its lag in each observation since the window was opened.
        fresh_s: how long pages show this observation, in seconds.
    """

    path: str
    at_ms: int
    topics: Mapping[str, TopicSeen]
    groups: Mapping[str, GroupSeen]
    unreadable_groups: tuple[str, ...]
    free: int | None
    lags: Mapping[str, tuple[LagSeen, ...]]
    fresh_s: float = FRESH_S

    @cached_property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(each.size for each in self.topics.values())

    @cached_property
    def damaged(self) -> list[PartitionSeen]:
        """The partitions that cannot be read."""
        return [each for topic in self.topics.values() for each in topic.partitions if each.damage is not None]

    def groups_of(self, topic: str) -> list[GroupSeen]:
        """Returns the groups that have committed offsets for a topic."""
        return [each for each in self.groups.values() if any(row.partition.topic == topic for row in each.health.partitions)]


class Watch:
    """Observes a store. Methods may be called from any thread.

    Args:
        manager, offsets: of the store.
        transactions: returns the administration of its transactions.

    Attributes:
        manager, offsets: as given.
        verifying: the verification of its directory.
    """

    def __init__(self, manager: LogManager, offsets: OffsetManager, transactions: Callable[[], TransactionAdmin]) -> None:
        self.manager = manager
        self.offsets = offsets
        self.verifying = Verifying(manager)
        self._transactions = transactions
        self._guard = threading.Lock()
        self._observer: GroupObserver | None = None
        self._last: Observation | None = None
        self._taken = 0.0
        self._lags: dict[str, deque[LagSeen]] = {}
        self._pasts: dict[str, tuple[float, list[LagPoint]]] = {}

    @property
    def transactions(self) -> TransactionAdmin:
        """The transactions of the store."""
        return self._transactions()

    def close(self) -> None:
        """Ends what runs in the background."""
        self.verifying.stop()

    def forget(self) -> None:
        """Lets the next observation be a new one: something was changed."""
        with self._guard:
            self._last = None

    def lag_past(self, group_id: str) -> list[LagPoint]:
        """Returns the course of a group's lag in the last hour, at most half a minute old. Empty if it cannot be read."""
        with self._guard, self.manager.gate.throughout():
            now = self.manager.clock.monotonic()
            known = self._pasts.get(group_id)
            if known is None or now - known[0] >= _PAST_FRESH_S:
                if len(self._pasts) >= _PASTS:
                    self._pasts.clear()
                known = self._pasts[group_id] = now, self._past_of(group_id)
            return known[1]

    def _past_of(self, group_id: str) -> list[LagPoint]:
        observer = self._observer
        try:
            state = None if observer is None else observer.group(group_id)
            return [] if observer is None or state is None else observer.lag_history(group_id, state, _WINDOW_MS)
        except ClosedError:
            raise
        except PylogError:
            return []

    def observation(self) -> Observation:
        """Returns the store as it was at most two seconds ago, or longer if an observation takes more than a tenth of that.

        Raises:
            ClosedError: the store is closed. PylogError: the directory cannot be listed.
        """
        with self._guard, self.manager.gate.throughout():
            now = self.manager.clock.monotonic()
            if self._last is None or now - self._taken >= self._last.fresh_s:
                is_first = self._observer is None  # which opens the partitions
                seen = self._observe(self._last)
                self._taken = self.manager.clock.monotonic()
                took = 0.0 if is_first else self._taken - now
                self._last = replace(seen, fresh_s=min(max(FRESH_S, _SHARE * took), _MOST_S))
            return self._last

    def _observe(self, before: Observation | None) -> Observation:
        if self._observer is None:
            self._observer = GroupObserver(self.manager, self.offsets)
        else:
            self._observer.observe()
        observer = self._observer
        groups = dict(self._groups(observer))  # before the logs: a commit is never past the end then
        topics = {name: self._topic(observer, topic, before) for name, topic in sorted(observer.topics.items())}
        free = room_at(self.manager.path)
        names = self.offsets.known_groups()[0]
        unreadable = tuple(name for name in names if name not in groups)
        lags = self._noted(groups, observer.now_ms)
        return Observation(self.manager.path, observer.now_ms, topics, groups, unreadable, free and free[0], lags)

    def _noted(self, groups: Mapping[str, GroupSeen], now_ms: int) -> dict[str, tuple[LagSeen, ...]]:
        for name in self._lags.keys() - groups.keys():
            del self._lags[name]
        for name, group in groups.items():
            self._lags.setdefault(name, deque(maxlen=_KEPT)).append(LagSeen(now_ms, group.health.lag_seconds))
        return {name: tuple(values) for name, values in self._lags.items()}

    def _groups(self, observer: GroupObserver) -> list[tuple[str, GroupSeen]]:
        found = []
        for name in self.offsets.known_groups()[0]:
            try:
                state = observer.group(name)
                if state is not None:
                    health = observer.health(name, state)
                    found.append((name, GroupSeen(name, health, state.group.state, state.group.members)))
            except ClosedError:
                raise
            except PylogError:
                continue
        return found

    def _topic(self, observer: GroupObserver, topic: Topic, before: Observation | None) -> TopicSeen:
        seen = tuple(_partition(observer, TopicPartition(topic.name, number)) for number in topic.partition_ids)
        return TopicSeen(topic.name, seen, topic.config, _rate(topic.name, seen, before, observer.now_ms))


def _partition(observer: GroupObserver, partition: TopicPartition) -> PartitionSeen:
    try:
        found = observer.unread(partition)
        if found is None:  # deleted meanwhile
            return PartitionSeen(partition, damage="it was deleted")
        state = found.state
        stable = found.log.snapshot(committed=True).stable_offset
        return PartitionSeen(
            partition, state.start_offset, state.end_offset, state.durable_offset, min(stable, state.end_offset), _segments(state)
        )
    except ClosedError:
        raise
    except PylogError as error:
        return PartitionSeen(partition, damage=str(error))


def _segments(state: LogState) -> tuple[SegmentSeen, ...]:
    return tuple(
        SegmentSeen(base, state.end_of(each), state.size_of(each), each.largest_timestamp(), each is state.active)
        for base, each in state.segments
    )


def _rate(name: str, seen: tuple[PartitionSeen, ...], before: Observation | None, now_ms: int) -> float | None:
    """Returns the offsets a second since the observation before."""
    known = None if before is None else before.topics.get(name)
    if before is None or known is None or now_ms <= before.at_ms:
        return None
    ends = {each.partition: each.end_offset for each in known.partitions}
    grown = sum(max(0, each.end_offset - ends.get(each.partition, each.end_offset)) for each in seen)
    return grown * 1000 / (now_ms - before.at_ms)
