"""`Group`: describes, resets and deletes one consumer group, for an administrator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pylog import trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidArgumentError,
)
from pylog.factory_made import FactoryMade
from pylog.groups import plan_file
from pylog.groups.described import known_group, topic_names
from pylog.groups.description import GroupDescription, KnownGroup, with_ends
from pylog.groups.dismissal import dismissed, member_ids, topics_read
from pylog.groups.health import Health
from pylog.groups.observer import DEFAULT_WINDOW, GroupObserver, checked_window
from pylog.groups.plan_file import PathLike
from pylog.groups.reset import Bounds, PlannedOffset, ResetTarget, plan, target_of
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.notebook import ShownAsTable, ShownTable
from pylog.offsets.arguments import checked_group, checked_partition
from pylog.offsets.commit_records import CommitRecords
from pylog.offsets.deleting import Lines, deletion_lines, tombstones, trace_deletions
from pylog.offsets.expiry import Expiry
from pylog.offsets.offset_manager import GroupView, OffsetManager, PartitionLike
from pylog.offsets.schema import format_offset, format_partition_key, offset_key, parse_partition_key
from pylog.record.types import TopicPartition
from pylog.replayed_partition import KeyValue

Scope = str | Iterable[str | PartitionLike]


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """A reset plan of one group.

    Attributes:
        group_id: the group's name.
        partitions: the partitions that are reset, in order.
    """

    group_id: str
    partitions: tuple[PlannedOffset, ...]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The new offsets."""
        return {each.partition: each.offset for each in self.partitions}

    @property
    def adjusted(self) -> tuple[PlannedOffset, ...]:
        """The partitions whose planned offset is not the requested one."""
        return tuple(each for each in self.partitions if each.adjustment is not None)


class Group(FactoryMade, ShownAsTable, factory="Store.group"):
    """One consumer group, for an administrator. `Store.group` returns one for any name. Each call reads the records again.

    Once the store is closed, each call raises `ClosedError`. A call raises `StoreLockedError` if another process keeps a
    partition locked for longer than `lock_timeout_ms`; the first read of a partition takes its lock, too. In a store that is
    opened by the URL of an archive, reading raises `ObjectStoreError` if a request fails.

    Attributes:
        group_id: the group's name.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> _ = store.log("orders").append_many([b"a", b"b", b"c"])
    >>> store.offsets.commit("billing", {("orders", 0): 2})
    >>> billing = store.group("billing")
    >>> billing.describe().state, billing.lag()
    ('Empty', {TopicPartition(topic='orders', partition=0): 1})
    >>> billing.reset(shift_by=-5, dry_run=True).adjusted[0][1:]
    (0, 2, -3, 'before start')
    >>> billing.reset("earliest").offsets
    {TopicPartition(topic='orders', partition=0): 0}
    >>> store.close()
    """

    def _begin(self, group_id: str, manager: LogManager, offsets: OffsetManager, clock: Clock) -> None:
        self.group_id = group_id
        self._key = checked_group(group_id)
        self._manager = manager
        self._offsets = offsets
        self._clock = clock

    def __repr__(self) -> str:
        return f"Group({self.group_id!r})"

    def _table(self) -> ShownTable:
        rows = ((*each.partition, each.offset, each.end_offset, each.lag) for each in self.describe().partitions)
        return ShownTable(repr(self), ["topic", "partition", "committed", "log end", "lag"], rows)

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def describe(self) -> GroupDescription:
        """Returns the state, the members and, for each partition, the committed offset, its consumer and the lag.

        Returns:
            The group, as Kafka's admin client reports it. Members are those in the records, including members of a broker
            that is not running.

        Raises:
            GroupIdNotFoundError: there is no such group.
            CorruptionError: its offsets are damaged, or the log of one of its partitions is.
            StorageFailedError: a log cannot be read.

        Cost: as `OffsetStore.fetch`, and as `Store.start_and_end_offsets`.

        Spec: groups-and-transactions 2.7, 2.8.
        """
        found = self._known()
        return with_ends(found, self._manager.start_and_end_offsets(found.partitions()))

    def lag(self) -> dict[TopicPartition, int]:
        """Returns the group's lag in offsets, for each existing partition that it has committed.

        Raises:
            PylogError: as `describe`.
        """
        return {each.partition: each.lag for each in self.describe().partitions if each.lag is not None}

    def health(self, window: timedelta | str = DEFAULT_WINDOW, *, rules: str = "pylog") -> Health:
        """Judges how the group is doing, from its commits of the past and its logs. Needs no earlier observation.

        Args:
            window: how far back commits count; the last ten count in any case. A `timedelta`, or text such as `"PT10M"`.
            rules: `"pylog"`, or `"burrow"` for the rules of Burrow.

        Returns:
            The verdict, and for each partition with a committed offset the lag in offsets, records and seconds, the trend, the
            speed and the time to catch up. Works in a store that is open for reading, and on a copy of a directory. Commits that
            compaction has removed are not known; `commit_count` is the number of known ones.

        Raises:
            GroupIdNotFoundError: there is no such group.
            InvalidArgumentError: the window is not a positive duration, or there are no such rules.
            CorruptionError: its offsets are damaged. StorageFailedError: a log cannot be read.

        Cost: a refresh of each log; for a group that is behind, a few reads and the headers of unread batches; and the commits
        back to the start of the window.

        Spec: groups-and-transactions 1.4.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> _ = store.log("orders").append_many([b"a", b"b", b"c"])
        >>> store.offsets.commit("billing", {("orders", 0): 1})
        >>> found = store.group("billing").health()
        >>> found.verdict, found.partitions[0].lag, found.partitions[0].lag_records
        (<Verdict.OK: 'OK'>, 2, 2)
        >>> store.close()
        """
        observer = GroupObserver(self._manager, self._offsets, checked_window(window))
        found = observer.group(self.group_id)
        if found is None:
            raise self._unknown()
        return observer.health(self.group_id, found, rules)

    def _known(self) -> KnownGroup:
        found = known_group(self._offsets, self.group_id, topic_names(self._manager))
        if found is None:
            raise self._unknown()
        return found

    def _unknown(self) -> GroupIdNotFoundError:
        return GroupIdNotFoundError(
            f"there is no group {self.group_id!r}: it has no member and no committed offset; Store.groups lists the groups"
        )

    def export(self, path: PathLike) -> None:
        """Writes the group's committed offsets to a file: lines `topic,partition,offset`, as Kafka's tools read and write them.

        Args:
            path: the file, which is replaced as a whole; on the process's own file system, also for a store in memory.

        Raises:
            GroupIdNotFoundError: there is no such group.
            CorruptionError: its offsets are damaged. StorageFailedError: they cannot be read, or the file cannot be written.

        Cost: as `OffsetStore.fetch`; no log is read.
        """
        plan_file.write(path, plan_file.format_plan(committed_by(self)))

    # ---- resetting -----------------------------------------------------------------------------------------------------------

    def reset(
        self,
        to: str | int | datetime | None = None,
        *,
        shift_by: int | None = None,
        by_duration: timedelta | str | None = None,
        from_file: PathLike | None = None,
        scope: Scope | None = None,
        dry_run: bool = False,
        durability: Durability | str | None = None,
    ) -> ResetPlan:
        """Resets the offsets that the group reads next. Exactly one of the first four arguments gives the target.

        Args:
            to: `"earliest"` or `"latest"` record; an offset; a time (a `datetime` with a zone, or ISO 8601 text, UTC where it has
                no zone): the first record that is not older; `"current"`: what is committed, and the end where nothing is.
            shift_by: the number of offsets forward from the committed one; negative goes back.
            by_duration: the age of the time to reset to: a `timedelta`, or text such as `"P1DT12H"`.
            from_file: a file written by `export` or by Kafka's tools.
            scope: topics, or pairs of a topic and a partition; by default all partitions that the group has committed for and
                that there are. A file has its own.
            dry_run: only plan.
            durability: as for `OffsetStore.commit`.

        Returns:
            The plan, carried out unless `dry_run`: all or nothing. Offsets outside of a log are clamped to its ends, a time
            after the last record becomes the end, and an offset in a broker's remote tier becomes the local start; each
            `PlannedOffset` reports the adjustment.

        Raises:
            NonEmptyGroupError: the group has active members. For this and all errors below, nothing was written.
            GroupIdNotFoundError: no `scope` is given, and there is no such group.
            UnknownTopicOrPartitionError: a topic or partition of the scope or the file does not exist.
            InvalidArgumentError: the arguments do not name one target, a line of the file is wrong, or nothing is committed for a
                partition to be shifted.
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`.

        Cost: a refresh of each log, a search in it for a time, and one append.

        Spec: groups-and-transactions 2.9.
        """
        target = target_of(to, shift_by, by_duration, now_ms=self._clock.now_ms)
        if from_file is not None:
            if target is not None or scope is not None:
                raise InvalidArgumentError("from_file cannot be combined with another target or a scope; give from_file alone")
            return self._reset(_targets(plan_file.parse_plan(*plan_file.read(from_file), self.group_id)), dry_run, durability)
        if target is None:
            raise InvalidArgumentError("a reset needs a target; give one of to, shift_by, by_duration and from_file")
        return self._reset(dict.fromkeys(self._partitions(scope), target), dry_run, durability)

    def _reset(
        self,
        wanted: Mapping[TopicPartition, ResetTarget],
        dry_run: bool,
        durability: Durability | str | None,
        logs: Mapping[TopicPartition, PartitionLog] | None = None,
    ) -> ResetPlan:
        """Resets the group in these logs; by default, in those that the partitions have now."""
        if not self._key:
            raise InvalidArgumentError("the group's name is empty; offsets are committed for a group")
        logs = self._logs(wanted) if logs is None else logs
        self._offsets.read_group(self.group_id, self._refuse_members)
        committed = self._offsets.fetch(self.group_id)
        missing = [partition for partition, target in wanted.items() if target.kind == "shift" and partition not in committed]
        if missing:
            raise InvalidArgumentError(f"the group has committed nothing for {_names(missing)}; there is nothing to shift from")
        planned = ResetPlan(
            self.group_id,
            tuple(
                plan(target, partition, _bounds(logs[partition], committed[partition].offset if partition in committed else None))
                for partition, target in sorted(wanted.items())
            ),
        )
        if planned.partitions and not dry_run:
            deleted: list[str] = []
            check = CommitRecords([], list(logs.values())).check
            self._offsets.change(self.group_id, self._carry_out(planned, deleted), make=True, durability=durability, check=check)
            self._trace_reset(planned, wanted, deleted)
        return planned

    def _trace_reset(self, planned: ResetPlan, wanted: Mapping[TopicPartition, ResetTarget], deleted: list[str]) -> None:
        if deleted:
            trace.line(
                trace.MEMBERS_DISMISSED, group=self.group_id, members=deleted, reason="none of them runs, and the group is reset"
            )
        for each in planned.partitions:
            target = wanted[each.partition]
            asked = f"{target.kind} {target.value}" if target.kind in ("offset", "shift", "time") else target.kind
            facts = {"group": self.group_id, "old": "none" if each.committed is None else each.committed, "new": each.offset}
            trace.line(trace.OFFSETS_RESET, each.partition, **facts, reason=f"reset to {asked}", adjusted=each.adjustment)

    def _logs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLog]:
        """Returns the logs of partitions as they are now: a reset is never written for a topic that is created meanwhile."""
        found: dict[TopicPartition, PartitionLog] = {}
        for partition, log in self._offsets.logs_of(partitions).items():
            if not isinstance(log, PartitionLog):
                raise log
            found[partition] = log
        return found

    def _carry_out(self, planned: ResetPlan, deleted: list[str]) -> Callable[[GroupView], Iterable[KeyValue]]:
        now_ms = self._clock.now_ms()

        def records(view: GroupView) -> Iterable[KeyValue]:
            self._refuse_members(view)
            deleted[:] = sorted(member_ids(view.image))
            yield from dismissed(self._key, view.image, now_ms)
            for partition, offset in planned.offsets.items():
                yield offset_key(self._key, format_partition_key(partition)), format_offset(offset, b"", None, now_ms)

        return records

    def _partitions(self, scope: Scope | None) -> list[TopicPartition]:
        if scope is None:
            committed = self._manager.start_and_end_offsets(self._known().offsets)
            return sorted(partition for partition, ends in committed.items() if ends is not None)
        found: set[TopicPartition] = set()
        for given in _listed(scope):
            if isinstance(given, str):
                found |= {TopicPartition(given, number) for number in self._manager.topic(given).partition_ids}
            else:
                found.add(checked_partition(given))
        return sorted(found)

    # ---- members -------------------------------------------------------------------------------------------------------------

    def _refuse_members(self, view: GroupView) -> None:
        self._offsets.refuse_members(self.group_id, view)

    # ---- deleting ------------------------------------------------------------------------------------------------------------

    def delete(self, *, durability: Durability | str | None = None) -> None:
        """Deletes the group: its committed offsets and its members' records.

        Raises:
            NonEmptyGroupError: the group has active members. For this and all errors below, nothing was written.
            GroupIdNotFoundError: there is no such group.
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`.

        Cost: one append.

        Spec: groups-and-transactions 1.9, 2.8.
        """
        existed = False
        lines: Lines = []

        def records(view: GroupView) -> Iterable[KeyValue]:
            nonlocal existed
            existed = view.image.exists
            self._refuse_members(view)
            deleted = Expiry(sorted(set(view.image.entries) | view.pending), existed)
            lines[:] = deletion_lines(self._key, view.image, deleted, "Group.delete was called")
            return tombstones(self._key, view.image, deleted)

        self._offsets.change(self.group_id, records, durability=durability)
        if not existed:
            raise self._unknown()
        trace_deletions(lines)

    def delete_offsets(self, scope: Scope, *, durability: Durability | str | None = None) -> set[TopicPartition]:
        """Deletes the group's committed offsets for some partitions, including offsets pending in open transactions.

        Args:
            scope: topics, or pairs of a topic and a partition; they need not exist any more.
            durability: as for `OffsetStore.commit`.

        Returns:
            The partitions whose offsets were deleted.

        Raises:
            GroupSubscribedToTopicError: an active member reads one of the topics. Here as below, nothing was written.
            NonEmptyGroupError: the group has active members that are not consumers.
            GroupIdNotFoundError: there is no such group.
            InvalidArgumentError: the scope is no list of topics and partitions.
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`.

        Cost: one append.

        Spec: groups-and-transactions 2.8.
        """
        given = _listed(scope)
        topics = {each for each in given if isinstance(each, str)}
        partitions = {checked_partition(each) for each in given if not isinstance(each, str)}
        chosen: set[TopicPartition] | None = None
        lines: Lines = []

        def records(view: GroupView) -> Iterable[KeyValue]:
            nonlocal chosen
            if not view.image.exists:
                return ()
            self._refuse_readers(view, topics | {partition.topic for partition in partitions})
            present = set(map(parse_partition_key, set(view.image.entries) | view.pending))
            chosen = {partition for partition in present if partition in partitions or partition.topic in topics}
            deleted = Expiry(sorted(map(format_partition_key, chosen)), False)
            lines[:] = deletion_lines(self._key, view.image, deleted, "delete_offsets was called")
            return tombstones(self._key, view.image, deleted)

        self._offsets.change(self.group_id, records, durability=durability)
        if chosen is None:
            raise self._unknown()
        trace_deletions(lines)
        return chosen

    def _refuse_readers(self, view: GroupView, topics: set[str]) -> None:
        """Raises if an active member reads one of the topics, or if its topics are unknown."""
        living = self._offsets.members.living(view)
        read = [wanted for member_id, wanted in topics_read(view.image).items() if member_id in living]
        if None in read:
            self._refuse_members(view)
        subscribed = sorted(topics & frozenset().union(*(wanted for wanted in read if wanted is not None)))
        if subscribed:
            names = ", ".join(subscribed)
            raise GroupSubscribedToTopicError(f"members of the group {self.group_id!r} read {names}; close them first")


def new_group(group_id: str, manager: LogManager, offsets: OffsetManager, clock: Clock) -> Group:
    """Creates a `Group`, for `Store.group`."""
    made = Group.__new__(Group)
    made._begin(group_id, manager, offsets, clock)
    return made


# ---- several groups ----------------------------------------------------------------------------------------------------------


def committed_by(group: Group) -> dict[TopicPartition, int]:
    """Returns what a group has committed, in order; reads no log. Raises as `Group.export`."""
    return {partition: each.offset for partition, each in sorted(group._known().offsets.items())}


def export_groups(groups: Iterable[Group], path: PathLike) -> None:
    """Writes the committed offsets of several groups into one file. See `pylog.export_offsets`."""
    plan_file.write(path, plan_file.format_plans({group.group_id: committed_by(group) for group in groups}))


def import_groups(
    group_of: Callable[[str], Group], path: PathLike, *, dry_run: bool, durability: Durability | str | None
) -> list[ResetPlan]:
    """Resets groups to the offsets in a file of several groups. See `pylog.import_offsets`."""
    given = [(group_of(name), _targets(offsets)) for name, offsets in plan_file.parse_plans(*plan_file.read(path)).items()]
    wanted = [(group, targets, group._logs(targets)) for group, targets in given]
    plans = [group._reset(targets, True, durability, logs) for group, targets, logs in wanted]
    return plans if dry_run else [group._reset(targets, False, durability, logs) for group, targets, logs in wanted]


def _bounds(log: PartitionLog, committed: int | None) -> Bounds:
    state = log.snapshot()

    def offset_for_time(milliseconds: int) -> int | None:
        found = log.offset_for_timestamp(milliseconds)
        return None if found is None else found.offset

    return Bounds(state.start_offset, state.end_offset, committed, offset_for_time, state.remote_offsets)


def _listed(scope: Scope) -> list[str | PartitionLike]:
    if isinstance(scope, str):
        return [scope]
    if not isinstance(scope, Iterable):
        raise InvalidArgumentError(f"scope={scope!r} is not a topic, or a list of topics and of pairs of a topic and a partition")
    return list(scope)


def _targets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ResetTarget]:
    return {partition: ResetTarget("offset", offset) for partition, offset in offsets.items()}


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{partition.topic}-{partition.partition}" for partition in partitions)
