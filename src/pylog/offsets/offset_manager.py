"""`OffsetManager`: reads and changes the records of consumer groups in Kafka's own topic `__consumer_offsets`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar, cast

from pylog import limits, trace
from pylog.arguments import checked_int
from pylog.clock import Clock, RareCheck
from pylog.config import Durability, OffsetsConfig
from pylog.errors import (
    InvalidArgumentError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    PylogError,
    UnknownTopicOrPartitionError,
    without_frames,
)
from pylog.fs import FileSystem, join
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group, checked_metadata, checked_partition, checked_partitions
from pylog.offsets.commit_records import AnyRecords, CommitRecords, UncheckedCommits, UncheckedError, key_of, name_of
from pylog.offsets.deleting import Lines, deletion_lines, tombstones, trace_deletions
from pylog.offsets.expiry import Expiry, expired
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.image import GroupImage, Image
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import (
    OFFSETS_TOPIC,
    format_offset,
    format_partition_key,
    format_plain_offset,
    group_name,
    offset_key,
    parse_partition_key,
)
from pylog.offsets.topic import OffsetsTopic
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.replayed_partition import KeyValue
from pylog.skipped import Skipped
from pylog.topics.partitions import directory_name
from pylog.topics.topic import Topic

Result = TypeVar("Result")
Given = int | OffsetAndMetadata
PartitionLike = TopicPartition | tuple[str, int]
CommitLogs = Mapping[TopicPartition, PartitionLog | UnknownTopicOrPartitionError]  # the error of a partition that does not exist


class GroupView(NamedTuple):
    """A group as its records are at a moment.

    Attributes:
        image: the state from its records; empty if there are none.
        pending: its partitions with offsets in an open transaction.
        directory: the directory of the partition that has the records.
    """

    image: GroupImage
    pending: set[bytes]
    directory: str


def view_of(partition: OffsetsPartition, image: Image, name: bytes) -> GroupView:
    """Returns a group as an image of its partition has it."""
    return GroupView(image.groups.get(name) or GroupImage(), image.pending_of(name), partition.directory)


class _MembersPossibleError(NonEmptyGroupError):
    """The records of a group must be read before it is known whether it has active members. Callers never see it."""


class Members(Protocol):
    """Reports which members of groups run: `pylog.groups.living_members`, which is above."""

    def is_possible(self, directory: str) -> bool:
        """Returns whether a group with records in this partition can have running members."""
        ...

    def living(self, view: GroupView) -> set[str]:
        """Returns the active members of a group."""
        ...

    def check_commit(self, view: GroupView, member: ConsumerGroupMetadata, partitions: Collection[TopicPartition]) -> None:
        """Raises FencedMemberError unless a member owns the partitions."""
        ...


class OffsetManager:
    """The committed offsets and the groups in `__consumer_offsets`. `OffsetStore` is its public face.

    Attributes:
        fs, clock: the store's.
        members: reports the active members.
        accepts_any_offset: true to accept offsets past a partition's end, as a broker does. `pylog.compat` sets it.
        accepts_without_member: true to accept a transaction's offsets without a member of a group that has active members, as a
            broker does. `pylog.compat` sets it.
    """

    def __init__(self, manager: LogManager, config: OffsetsConfig, fs: FileSystem, clock: Clock, members: Members) -> None:
        self._manager = manager
        self._config = config
        self.fs = fs
        self.clock = clock
        self.members = members
        self.accepts_any_offset = False
        self.accepts_without_member = False
        self._topic = OffsetsTopic(manager, config, fs)
        self._unchecked = UncheckedCommits(manager, clock)
        self._expiry = RareCheck(config.retention_check_interval_ms)

    @property
    def retention_minutes(self) -> int:
        """How long unused offsets are kept, in minutes: see `OffsetsConfig`."""
        return self._config.retention_minutes

    # ---- commit --------------------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        offsets: Mapping[PartitionLike, int | OffsetAndMetadata],
        *,
        durability: Durability | str | None = None,
        logs: CommitLogs | None = None,
    ) -> None:
        """See `OffsetStore.commit`. `logs` is as for `items`."""
        unchecked = None if logs is not None or self.accepts_any_offset else self._unchecked.records(group_id, offsets)
        try:
            items = unchecked or self.items(group_id, offsets, logs)
            if items.records:
                self._topic.on_partition(group_id, self._commit, group_id, items, durability, make=True)
        except UncheckedError:
            self._unchecked.forget()
            items = self.items(group_id, offsets, logs)
            self._topic.on_partition(group_id, self._commit, group_id, items, durability, make=True)

    def _commit(self, partition: OffsetsPartition, group_id: str, items: AnyRecords, level: Durability | str | None) -> None:
        """Appends. The check for members runs under the partition's lock, but records are read before: threads share a sync."""
        name = name_of(group_id)

        def check() -> None:
            if not partition.has_no_members(name):
                if self.members.is_possible(partition.directory):
                    raise _MembersPossibleError(f"the group {group_id!r} may have active members")
                partition.note_no_members()
            items.check()

        try:
            if partition.may_have_members:
                self._refuse_members_of(partition, group_id, name)
            offsets = partition.append(items.records, None, level, check=check)
        except _MembersPossibleError:
            partition.may_have_members = True
            self._refuse_members_of(partition, group_id, name)
            partition.append(items.records, None, level, check=items.check)
        else:
            partition.note_commit(offsets)

    def _refuse_members_of(self, partition: OffsetsPartition, group_id: str, name: bytes) -> None:
        with partition.image() as image:
            self.refuse_members(group_id, view_of(partition, image, name))

    def refuse_members(self, group_id: str, view: GroupView) -> None:
        """Raises NonEmptyGroupError if the group has active members."""
        if living := self.members.living(view):
            what = f"the group {group_id!r} has active members ({len(living)}, such as {min(living)})"
            raise NonEmptyGroupError(f"{what}; close their consumers first")

    def items(
        self, group_id: str, offsets: Mapping[PartitionLike, int | OffsetAndMetadata], logs: CommitLogs | None = None
    ) -> CommitRecords:
        """Returns the records of a commit after checking it, for `commit` and for members. As `commit`, but writes nothing.

        `logs` are the logs that the offsets are for, as `logs_of` returned them when the commit was requested. By default, it is
        requested now.
        """
        name = checked_group(group_id)
        if not name:
            raise InvalidArgumentError("the group's name is empty; offsets are committed for a group")
        now_ms = self.clock.now_ms()
        used: list[PartitionLog] = []
        records = [self._item(name, partition, given, now_ms, logs, used) for partition, given in offsets.items()]
        return CommitRecords(records, used)

    def logs_of(self, partitions: Iterable[PartitionLike]) -> dict[TopicPartition, PartitionLog | UnknownTopicOrPartitionError]:
        """Returns the logs of partitions as they are now. Cost: one pread each.

        A commit that is written later is only for these logs: a topic that is created under the same name meanwhile is another.
        """
        found: dict[TopicPartition, PartitionLog | UnknownTopicOrPartitionError] = {}
        for partition in map(checked_partition, partitions):
            try:
                found[partition], _ = self._log_and_end(partition)
            except UnknownTopicOrPartitionError as error:
                without_frames(error)
                found[partition] = error
        return found

    def _item(
        self, name: bytes, partition: PartitionLike, given: Given, now_ms: int, logs: CommitLogs | None, used: list[PartitionLog]
    ) -> KeyValue:
        """Returns the record of one offset after checking it. Adds its log to `used`."""
        key = checked_partition(partition)
        if type(given) is int and 0 <= given <= limits.INT64_MAX:  # an offset alone, as most are
            used.append(self._check_in_log(key, given, logs))
            return key_of(name, *key), format_plain_offset(given, now_ms)
        committed = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        offset = checked_int("offset", committed.offset, 0, limits.INT64_MAX)
        epoch = None if committed.leader_epoch == -1 else committed.leader_epoch  # both are Kafka's word for none
        epoch = None if epoch is None else checked_int("leader_epoch", epoch, 0, limits.INT32_MAX)
        metadata = checked_metadata(committed.metadata, self._config.metadata_max_bytes)
        used.append(self._check_in_log(key, offset, logs))
        return offset_key(name, format_partition_key(key)), format_offset(offset, metadata, epoch, now_ms)

    def _check_in_log(self, partition: TopicPartition, offset: int, logs: CommitLogs | None) -> PartitionLog:
        """Returns the log that an offset is for. Checks it now: another process may have deleted it, made it again, or cut it."""
        if logs is None:
            log, end = self._log_and_end(partition)
        else:
            found = logs[partition]
            if isinstance(found, UnknownTopicOrPartitionError):
                raise found
            log, end = found, found.end_offset
        if offset > end and not self.accepts_any_offset and offset > (end := log.snapshot(wait=True).end_offset):
            message = f"offset {offset} is past the end of {partition.topic}-{partition.partition}, which is {end}"
            raise OffsetOutOfRangeError(message, offset=offset)
        return log

    def _log_and_end(self, partition: TopicPartition) -> tuple[PartitionLog, int]:
        log = self._manager.known_log(partition)
        try:
            return log, log.end_offset
        except UnknownTopicOrPartitionError:
            log = self._manager.log(*partition)  # created again, or deleted
            return log, log.end_offset

    # ---- fetch ---------------------------------------------------------------------------------------------------------------

    def fetch(self, group_id: str, partitions: Iterable[PartitionLike] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """See `OffsetStore.fetch`."""
        name = checked_group(group_id)
        offsets = self._topic.on_partition(group_id, OffsetsPartition.offsets_of, name) or {}
        if partitions is None:
            return dict(offsets)
        return {partition: offsets[partition] for partition in checked_partitions(partitions) if partition in offsets}

    def position(self, group_id: str, partition: PartitionLike) -> int | None:
        """See `OffsetStore.position`."""
        found = next(iter(self.fetch(group_id, [partition]).values()), None)
        return None if found is None else found.offset

    def pending(self, group_id: str) -> set[TopicPartition]:
        """See `OffsetStore.pending`."""
        name = checked_group(group_id)

        def partitions(offsets_partition: OffsetsPartition) -> set[TopicPartition]:
            with offsets_partition.image() as image:
                return {parse_partition_key(partition) for partition in image.pending_of(name)}

        return self._topic.on_partition(group_id, partitions) or set()

    def groups(self) -> list[str]:
        """See `OffsetStore.groups`."""
        names, damaged = self.known_groups()
        if damaged:
            raise next(iter(damaged.values()))
        return names

    def known_groups(self) -> tuple[list[str], dict[int, PylogError]]:
        """See `OffsetStore.known_groups`."""
        found, damaged = self._topic.each_partition(_groups_in)
        return sorted(group_name(name) for names in found.values() for name in names), damaged

    def skipped_records(self) -> dict[int, tuple[int, list[Skipped]]]:
        """See `OffsetStore.skipped_records`."""
        found, _ = self._topic.each_partition(OffsetsPartition.skipped)
        return {number: skipped for number, skipped in found.items() if skipped[0]}

    # ---- delete --------------------------------------------------------------------------------------------------------------

    def delete(
        self, group_id: str, partitions: Iterable[PartitionLike] | None = None, *, durability: Durability | str | None = None
    ) -> set[TopicPartition]:
        """See `OffsetStore.delete`."""
        name = checked_group(group_id)
        wanted = None if partitions is None else {format_partition_key(each) for each in checked_partitions(partitions)}
        partition_keys: list[bytes] = []
        lines: Lines = []

        def forget(view: GroupView) -> Iterable[KeyValue]:
            found = view.image
            present = set(found.entries) | view.pending
            partition_keys[:] = sorted(present if wanted is None else present & wanted)
            expiry = Expiry(partition_keys, wanted is None and found.exists and not found.has_members)
            lines[:] = deletion_lines(name, found, expiry, "delete was called")
            return tombstones(name, found, expiry)

        self.change(group_id, forget, durability=durability)
        trace_deletions(lines)
        return set(map(parse_partition_key, partition_keys))

    def forgetting(self, topic: str) -> Callable[[], None]:
        """Returns `forget_topic` for a topic whose deletion begins now."""
        before = {each.number: each.end_offset for each in self._topic.all_partitions()}
        return functools.partial(self.forget_topic, topic, before)

    def forget_topic(self, topic: str, before: Mapping[int, int] | None = None) -> None:
        """Deletes the offsets that groups have committed for a topic that was deleted.

        It is called when no commit for the deleted topic passes its check any more, and before its name leaves the catalog's list
        of deletions. The process that deletes the topic calls it. If that process dies, the next process calls it that opens the
        store or creates a topic of the same name. A failure is logged, because the topic is
        deleted anyway.

        Args:
            topic: its name.
            before: if a topic of this name exists again, only what was committed below these ends is deleted; nothing if None.
        """
        if topic == OFFSETS_TOPIC:
            return
        ends = before or {}
        _, failed = self._topic.each_partition(lambda each: self._forget_topic(each, topic, ends.get(each.number, 0)))
        for number, error in failed.items():
            path = join(self._manager.path, directory_name(TopicPartition(OFFSETS_TOPIC, number)))
            trace.line(trace.OFFSETS_LEFT, topic=topic, path=path, error=str(error))

    def _forget_topic(self, partition: OffsetsPartition, topic: str, before: int) -> None:
        def found(image: Image) -> dict[bytes, Expiry]:
            end = before if topic in self._manager.topics() else limits.INT64_MAX
            committed = image.committed_for(topic.encode(), end)
            return {name: Expiry(partition_keys, group=False) for name, partition_keys in committed.items()}

        with partition.exclusively():  # a commit that has passed its check is in the log then
            self._delete(partition, found, f"topic {topic} was deleted")

    def read_group(self, group_id: str, action: Callable[[GroupView], Result]) -> Result | None:
        """Returns the result of `action` on a group as its records are now; None if there is no such group. As `fetch`."""
        name = checked_group(group_id)

        def on_image(partition: OffsetsPartition) -> Result | None:
            with partition.image() as image:
                found = image.groups.get(name)
                return None if found is None or not found.exists else action(view_of(partition, image, name))

        return self._topic.on_partition(group_id, on_image)

    def change(
        self,
        group_id: str,
        decide: Callable[[GroupView], Iterable[KeyValue]],
        *,
        make: bool = False,
        durability: Durability | str | None = None,
        check: Callable[[], object] | None = None,
    ) -> None:
        """Reads a group, decides and appends, while no other thread or process changes the group.

        Args:
            group_id: its name.
            decide: returns the records to append, all of them or none. It is called again if the topic was deleted at the same
                time.
            make: true to create a missing topic; otherwise `decide` is not called without one.
            durability: as for `commit`.
            check: called under the lock before the write; if it raises, nothing is written.

        Raises:
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`. What `decide` raises; nothing was written.
        """
        name = checked_group(group_id)

        def act(partition: OffsetsPartition) -> None:
            with partition.exclusively() as image:
                items = list(decide(view_of(partition, image, name)))
                if items:
                    partition.append(items, self.clock.now_ms(), durability, check=check)

        self._topic.on_partition(group_id, act, make=make)

    def expire(self, now_ms: int | None = None) -> int:
        """See `OffsetStore.expire`."""
        now = self.clock.now_ms() if now_ms is None else checked_int("now_ms", now_ms, 0, limits.INT64_MAX)
        waiting = _topics_that_wait(self._manager.topics().values())
        done, failed = self._topic.each_partition(lambda partition: self._expire(partition, now, waiting))
        if failed:
            raise next(iter(failed.values()))
        return sum(done.values())

    def expire_if_due(self, now_ms: int) -> int:
        """Deletes expired offsets if a check is due; never at the first call, as in Kafka."""
        return self.expire(now_ms) if self._expiry.is_due(now_ms) else 0

    def _expire(self, partition: OffsetsPartition, now_ms: int, waiting: Mapping[bytes, set[str]]) -> int:
        why = f"not committed again for retention_minutes={self.retention_minutes}"
        return self._delete(partition, lambda image: self._expired(partition, image, now_ms, waiting), why)

    def _delete(self, partition: OffsetsPartition, find: Callable[[Image], dict[bytes, Expiry]], reason: str) -> int:
        """Deletes the offsets that `find` returns by group in a partition. Returns their number."""
        with partition.image() as image:  # most often nothing has expired, and no lock is needed
            if not find(image):
                return 0
        with partition.exclusively() as image:
            found = find(image)
            items = [item for name, expiry in found.items() for item in tombstones(name, image.groups[name], expiry)]
            if items:
                lines = [
                    each for name, expiry in found.items() for each in deletion_lines(name, image.groups[name], expiry, reason)
                ]
                partition.append(items, self.clock.now_ms(), None, atomic=False)  # expiry may be asked for a time in the future
                trace_deletions(lines)
            return sum(len(expiry.partition_keys) for expiry in found.values())

    def _expired(
        self, partition: OffsetsPartition, image: Image, now_ms: int, waiting: Mapping[bytes, set[str]]
    ) -> dict[bytes, Expiry]:
        """Returns the expired offsets by group, except those that retention waits for: their group would skip records."""
        retention_ms = self._config.retention_minutes * 60_000
        found = {
            name: expired(
                group,
                {*image.pending_of(name), *_partition_keys_in(group, waiting.get(name, ()))},
                now_ms,
                retention_ms,
                has_living_members=lambda name=name: bool(self.members.living(view_of(partition, image, name))),  # type: ignore[misc]
            )
            for name, group in image.groups.items()
            if group.exists
        }
        return {name: expiry for name, expiry in found.items() if expiry.partition_keys or expiry.group}

    # ---- partitions ----------------------------------------------------------------------------------------------------------

    def with_partition(self, group_id: str, action: Callable[[OffsetsPartition], Result]) -> Result:
        """Returns the result of `action` on the partition of a group's records, which is created if it is missing.

        It is called again if the topic was deleted at the same time.
        """
        return cast("Result", self._topic.on_partition(group_id, action, make=True))


def _groups_in(partition: OffsetsPartition) -> list[bytes]:
    """Returns the groups that exist in a partition."""
    with partition.image() as image:
        return [name for name, group in image.groups.items() if group.exists]


def _partition_keys_in(group: GroupImage, topics: Collection[str]) -> list[bytes]:
    """Returns the partitions of a group's offsets that are in some topics."""
    return (
        [partition_key for partition_key in group.entries if parse_partition_key(partition_key).topic in topics] if topics else []
    )


def _topics_that_wait(topics: Iterable[Topic]) -> dict[bytes, set[str]]:
    """Returns the topics whose retention waits for a group, by group."""
    found: dict[bytes, set[str]] = {}
    for topic in topics:
        if topic.config.retention_group is not None:
            found.setdefault(checked_group(topic.config.retention_group), set()).add(topic.name)
    return found
