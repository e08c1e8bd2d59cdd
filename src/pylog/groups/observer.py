"""`GroupObserver`: reads what groups have committed and what their logs have, for lag, health and metrics.

Commands, metrics and `Group.health` take their numbers from here. An observer refreshes each partition once for all groups, and
keeps open logs and the times of commits, so that another observation reads only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import (
    ClosedError,
    CorruptionError,
    InvalidArgumentError,
    NotALogDirectoryError,
    PylogError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from pylog.fs import base_name, join
from pylog.groups.burrow import ENDS_KEPT, REFRESH_MS, StoredCommit, burrow_group_verdict, burrow_verdict
from pylog.groups.commit_history import CommitHistory, commit_key
from pylog.groups.description import GroupDescription, known
from pylog.groups.dismissal import member_ids
from pylog.groups.health import (
    DEFAULT_WINDOW_MS,
    RECENT_COMMITS,
    Course,
    Health,
    PartitionFacts,
    PartitionHealth,
    PastCommit,
    course_of,
    judged,
    outside_of_log,
    result,
    worst,
)
from pylog.groups.lag_history import COMMITS_KEPT, LagPoint, lag_history, most_behind
from pylog.groups.liveness import living_members
from pylog.groups.members_file import MEMBERS_FILE, slots_of
from pylog.groups.state import topic_info
from pylog.groups.unread import Budget, First, UnreadRecords, unread_segment
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import GroupView, OffsetManager
from pylog.offsets.schema import OFFSETS_TOPIC, format_partition_key
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.times import milliseconds_of
from pylog.topics.topic import Topic

RULES: Final = ("pylog", "burrow")
DEFAULT_WINDOW: Final = timedelta(milliseconds=DEFAULT_WINDOW_MS)


class ObservedGroup(NamedTuple):
    """A group as its records are.

    Attributes:
        group: its state and members, without partitions.
        offsets: the committed offsets.
        living: the members that may be running.
        directory: the directory of the partition with its records.
    """

    group: GroupDescription
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    living: frozenset[str]
    directory: str

    def readers(self) -> set[TopicPartition]:
        """Returns the partitions that a living member reads."""
        return {each for member in self.group.members if member.member_id in self.living for each in member.assignment}


class GroupObserver:
    """Observes groups. `observe` begins an observation; the other methods answer within it. Not for several threads at once.

    Args:
        manager, offsets: the store's manager and offsets.
        window_ms: how far back commits are read, in milliseconds.
    """

    def __init__(self, manager: LogManager, offsets: OffsetManager, window_ms: int = DEFAULT_WINDOW_MS) -> None:
        self._manager = manager
        self._offsets = offsets
        self._window_ms = window_ms
        self._unread: dict[TopicPartition, UnreadRecords] = {}
        self._histories: dict[str, CommitHistory] = {}
        self.observe()

    def observe(self) -> None:
        """Begins an observation: what is asked from now on is read again. Cost: one directory listing."""
        self.now_ms = self._manager.clock.now_ms()
        self.topics: Mapping[str, Topic] = self._manager.topics()
        self._topic_names = {topic_info(topic).topic_id: name for name, topic in self.topics.items()}
        self._seen: dict[TopicPartition, UnreadRecords | PylogError | None] = {}
        self._refreshed: set[str] = set()
        self._budget = Budget()
        for partition in [each for each in self._unread if not self._exists(each)]:
            del self._unread[partition]

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.partition_ids

    # ---- partitions ----------------------------------------------------------------------------------------------------------

    def unread(self, partition: TopicPartition) -> UnreadRecords | None:
        """Returns a partition, refreshed once in an observation; None if it does not exist.

        Raises:
            PylogError: it cannot be opened or read.
        """
        if partition not in self._seen:
            self._seen[partition] = self._refresh(partition)
        found = self._seen[partition]
        if isinstance(found, PylogError):
            raise found
        return found

    def _refresh(self, partition: TopicPartition) -> UnreadRecords | PylogError | None:
        try:
            return self._refreshed_or_opened(partition)
        except ClosedError:
            raise
        except (UnknownTopicOrPartitionError, NotALogDirectoryError):
            return None
        except PylogError as error:
            topic = self._manager.topics().get(partition.topic)
            return None if topic is None or partition.partition not in topic.partition_ids else error  # deleted meanwhile

    def _refreshed_or_opened(self, partition: TopicPartition) -> UnreadRecords:
        found = self._unread.get(partition)
        if found is not None and not found.log.must_reopen:
            try:
                found.refresh()
            except UnknownTopicOrPartitionError:
                pass  # deleted, and perhaps created again
            else:
                return found
        self._unread.pop(partition, None)
        found = self._unread[partition] = UnreadRecords(self._manager.log(*partition))
        return found

    # ---- groups --------------------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ObservedGroup | None:
        """Returns a group as its records are now; None if there is no such group.

        Raises:
            PylogError: its records are damaged.
        """
        return self._offsets.read_group(group_id, partial(self._state_of, group_id))

    def _state_of(self, group_id: str, view: GroupView) -> ObservedGroup:
        found = known(group_id, view.image, self._topic_names)
        return ObservedGroup(found.group, found.offsets, frozenset(self._living(view)), view.directory)

    def _living(self, view: GroupView) -> set[str]:
        """Returns the members that may be running. Members of pylog have locks; a broker's members count as running."""
        members = member_ids(view.image)
        if not members:
            return members
        try:
            slots = slots_of(self._manager.fs, join(view.directory, MEMBERS_FILE))
        except StorageFailedError:  # a read-only file system
            return members
        return living_members(members, slots) if slots or self._manager.writable else members

    def facts(self, group_id: str, state: ObservedGroup) -> Iterator[PartitionFacts]:
        """Yields the facts about a group in each partition that exists and has a committed offset.

        One that is deleted meanwhile is left out.
        """
        readers = state.readers()
        try:
            history = self._history(state.directory)
        except UnknownTopicOrPartitionError:  # deleted since the group's records were read
            return
        for partition, committed in sorted(state.offsets.items()):
            if self._exists(partition):
                past = history.commits(commit_key(group_id.encode(), format_partition_key(partition)))
                has_member = partition in readers or (bool(state.living) and not _has_assignments(state.group))
                found = self._facts_or_damage(group_id, partition, committed, past, has_member=has_member)
                if found is not None:
                    yield found

    def _facts_or_damage(
        self,
        group_id: str,
        partition: TopicPartition,
        committed: OffsetAndMetadata,
        past: Sequence[PastCommit],
        *,
        has_member: bool,
    ) -> PartitionFacts | None:
        """Returns the facts about a group in a partition; None if it was deleted meanwhile."""
        try:
            unread = self.unread(partition)
            if unread is None:
                return None
            if committed.offset > unread.state.end_offset:  # committed after the log was refreshed
                unread.refresh()
            commits = with_current(past, committed, self.now_ms)
            return self._facts(group_id, partition, unread, committed.offset, commits, has_member=has_member)
        except ClosedError:
            raise
        except UnknownTopicOrPartitionError:
            return None
        except PylogError as error:
            return _unreadable(partition, committed, self.now_ms, str(error))

    def _history(self, directory: str) -> CommitHistory:
        """Returns the commits in a partition of `__consumer_offsets`, read once in an observation.

        Raises:
            UnknownTopicOrPartitionError: the partition was deleted.
        """
        found = self._histories.get(directory)
        if found is None or directory not in self._refreshed:
            since_ms = self.now_ms - self._window_ms
            try:
                found = found or self._opened_history(directory)
                found.refresh(since_ms)
            except UnknownTopicOrPartitionError:  # deleted, and created again
                found = self._opened_history(directory)
                found.refresh(since_ms)
            self._histories[directory] = found
            self._refreshed.add(directory)
        return found

    def lag_history(self, group_id: str, state: ObservedGroup, window_ms: int) -> list[LagPoint]:
        """Returns how the lag of a group has moved, from its commits (`lag_history`).

        Args:
            group_id, state: the group.
            window_ms: how far back, in milliseconds.

        Raises:
            PylogError: the commits or a partition cannot be read.

        Cost: one read of the window's commits in one partition of `__consumer_offsets`, and a search for each point.
        """
        partition = parse_partition_directory(base_name(state.directory))
        assert partition is not None
        since_ms = self.now_ms - window_ms
        history = CommitHistory(self._manager.log(OFFSETS_TOPIC, partition.partition), group_id.encode(), COMMITS_KEPT)
        history.refresh(since_ms)
        lags = [(each, self._end_of(each) - committed.offset) for each, committed in state.offsets.items() if self._exists(each)]
        past = {}
        for each in most_behind(lags):
            commits = history.commits(commit_key(group_id.encode(), format_partition_key(each)))
            past[each] = with_current(commits, state.offsets[each], self.now_ms)
        return lag_history(past, self.unread, since_ms, self.now_ms)

    def _end_of(self, partition: TopicPartition) -> int:
        found = self.unread(partition)
        return 0 if found is None else found.state.end_offset

    def _opened_history(self, directory: str) -> CommitHistory:
        partition = parse_partition_directory(base_name(directory))
        assert partition is not None
        return CommitHistory(self._manager.log(OFFSETS_TOPIC, partition.partition))

    def _facts(
        self,
        group_id: str,
        partition: TopicPartition,
        unread: UnreadRecords,
        offset: int,
        commits: Sequence[PastCommit],
        *,
        has_member: bool,
    ) -> PartitionFacts:
        state = unread.state
        start = state.start_offset if state.remote_start is None else state.remote_start
        if not state.start_offset <= offset < state.end_offset:
            damage = _damaged_end(unread, offset)
            lag_ms = None if offset < state.start_offset or damage is not None else 0
            facts = PartitionFacts(partition, offset, start, state.end_offset, None, lag_ms, commits, has_member=has_member)
            return replace(facts, damage=damage, loss=_loss(unread, offset))
        first = unread.first(offset)
        count = (unread.count(offset, self._budget) if first.damage is None else None) if first.exists else 0
        segment = unread_segment(state, offset, self.topics[partition.topic], group_id)
        return PartitionFacts(
            partition,
            offset,
            start,
            state.end_offset,
            count,
            _age(first, self.now_ms),
            commits,
            partial(self._lag_at, unread),
            unread.end_at,
            has_member,
            first.damage,
            segment,
            _loss(unread, offset),
        )

    def _lag_at(self, unread: UnreadRecords, commit: PastCommit) -> int | None:
        """Returns the lag at the time of a commit: 0 if its first unread record is newer than the commit."""
        state = unread.state
        if commit.offset >= state.end_offset:
            return 0
        if commit.offset < state.start_offset:
            return None
        stamp = unread.first(commit.offset).timestamp
        return None if stamp is None else 0 if stamp > commit.timestamp else max(1, commit.timestamp - stamp)

    # ---- health --------------------------------------------------------------------------------------------------------------

    def health(self, group_id: str, state: ObservedGroup, rules: str = "pylog") -> Health:
        """Judges a group.

        Args:
            group_id, state: the group.
            rules: "pylog" or "burrow".

        Raises:
            InvalidArgumentError: there are no such rules.
        """
        if rules not in RULES:
            raise InvalidArgumentError(f"rules={rules!r} is not one of {', '.join(map(repr, RULES))}")
        by_burrow = rules == "burrow"
        rows = []
        for facts in self.facts(group_id, state):
            with suppress(UnknownTopicOrPartitionError):  # deleted meanwhile
                rows.append(self._by_burrow(facts) if by_burrow else self._judged(facts))
        verdicts = (each.verdict for each in rows)
        return Health(group_id, burrow_group_verdict(verdicts) if by_burrow else worst(verdicts), tuple(rows))

    def _judged(self, facts: PartitionFacts) -> PartitionHealth:
        return judged(facts, now_ms=self.now_ms, window_ms=self._window_ms)

    def _by_burrow(self, facts: PartitionFacts) -> PartitionHealth:
        if facts.damage is not None or outside_of_log(facts) is not None:  # Burrow reads no log, and has no state for them
            return judged(facts, now_ms=self.now_ms)
        unread = self.unread(facts.partition)
        assert unread is not None
        commits = facts.commits[-RECENT_COMMITS:]
        stored = [StoredCommit(each.timestamp, each.offset, _lag_then(unread, each)) for each in commits]
        refreshes = [self.now_ms - number * REFRESH_MS for number in range(ENDS_KEPT)] if facts.lag > 0 else []
        ends = [end for end in map(unread.end_at, refreshes) if end is not None]
        verdict, why = burrow_verdict(stored, ends, facts.lag, self.now_ms)
        course: Course = course_of(facts, self.now_ms)
        return result(facts, verdict, why, course)


def _unreadable(partition: TopicPartition, committed: OffsetAndMetadata, now_ms: int, damage: str) -> PartitionFacts:
    """Returns the facts about a partition whose log cannot be opened: its ends are not known."""
    offset, commits = committed.offset, with_current((), committed, now_ms)
    return PartitionFacts(partition, offset, offset, offset, None, None, commits, damage=damage, opens=False)


def _loss(unread: UnreadRecords, offset: int) -> str | None:
    """Returns why records from an offset on are missing from a log; None if none are known to be."""
    missing = (each for each in unread.losses if each.kind == "missing")
    return next((each.message for each in missing if each.next_offset is None or each.next_offset > offset), None)


def _damaged_end(unread: UnreadRecords, offset: int) -> str | None:
    """Returns why the log ends before records that it had, at or before an offset; None if its end is not damaged."""
    damaged = (each for each in unread.losses if each.kind == "corrupt" and each.next_offset is None)
    end = unread.state.end_offset
    return next((each.message for each in damaged if end <= each.offset <= offset), None)


def _age(first: First, at_ms: int) -> int | None:
    """Returns the age of a record; 0 if there is none, or if its timestamp is in the future."""
    if not first.exists:
        return 0
    return None if first.timestamp is None else max(0, at_ms - first.timestamp)


def _lag_then(unread: UnreadRecords, commit: PastCommit) -> int | None:
    end = unread.end_at(commit.timestamp)
    return None if end is None else max(0, end - commit.offset)


def _has_assignments(group: GroupDescription) -> bool:
    return any(member.assignment for member in group.members)


def with_current(past: Sequence[PastCommit], current: OffsetAndMetadata, now_ms: int) -> Sequence[PastCommit]:
    """Returns the commits with the current one last. Later ones, or ones of a clock that was ahead, are left out."""
    last = PastCommit(min(current.commit_timestamp or 0, now_ms), current.offset)
    if past and past[-1] == last:
        return past
    return [*(each for each in past if each.timestamp <= last.timestamp and each != last), last]


def checked_window(window: timedelta | str) -> int:
    """Returns a window in milliseconds.

    Raises:
        InvalidArgumentError: it is not a positive duration.
    """
    found = milliseconds_of(window)
    if found <= 0:
        raise InvalidArgumentError(f"window={window!r} is not a positive duration; give one such as timedelta(minutes=10)")
    return found


def healths(
    observer: GroupObserver, names: Iterable[str], rules: str = "pylog"
) -> Iterator[tuple[str, Health | PylogError | None]]:
    """Judges groups, each as `Group.health` does, with one refresh of each partition for all of them.

    Yields:
        Each name with the group's health, with the error of a group whose records are damaged, or None if there is no such group.
    """
    states: dict[str, ObservedGroup | PylogError | None] = {}
    for name in names:
        try:
            states[name] = observer.group(name)
        except (CorruptionError, UnsupportedFormatError) as error:
            states[name] = error
    for name, state in states.items():
        yield name, observer.health(name, state, rules) if isinstance(state, ObservedGroup) else state
