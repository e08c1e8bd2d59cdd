"""The records of a commit of offsets, and what is checked under the lock of their partition before they are written."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pylog import limits
from pylog.clock import Clock
from pylog.errors import ClosedError, PylogError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group, checked_partition
from pylog.offsets.schema import format_partition_key, format_plain_offset, offset_key
from pylog.record.types import TopicPartition
from pylog.replayed_partition import KeyValue
from pylog.topics.kept import IsDeleted
from pylog.topics.partitions import directory_name

name_of = functools.lru_cache(256)(checked_group)  # most stores have few groups


@functools.lru_cache(4096, typed=True)
def key_of(group: bytes, topic: str, partition: int) -> bytes:
    """Returns the key of an offset's record. Most groups commit the same partitions again and again."""
    return offset_key(group, format_partition_key(TopicPartition(topic, partition)))


class CommitRecords(NamedTuple):
    """The records of a commit.

    Attributes:
        records: the keys and values.
        logs: those that the offsets are for.
    """

    records: list[KeyValue]
    logs: list[PartitionLog]

    def check(self) -> None:
        """Raises UnknownTopicOrPartitionError if a topic was deleted since the commit was called. Cost: one pread a partition."""
        for log in self.logs:
            try:
                log.end_offset  # noqa: B018 - it raises
            except ClosedError as error:
                raise _deleted_meanwhile(log) from error


class UncheckedRecords(msgspec.Struct, frozen=True):
    """The records of a commit whose offsets are compared with the ends of their logs only under the partition's lock.

    If a topic was deleted since the commit was called, the commit is refused: it must not count for a new topic of that name.

    Attributes:
        records: the keys and values.
        positions: for each the log that it is for, and the offset.
    """

    records: list[KeyValue]
    positions: list[tuple[PartitionLog, int]]

    def check(self) -> None:
        """Checks each offset. Cost: one pread a partition.

        Raises:
            UnknownTopicOrPartitionError: a topic was deleted.
            UncheckedError: an offset is past the known end.
        """
        for log, offset in self.positions:
            try:
                is_inside = offset <= log.end_offset
            except ClosedError as error:
                raise _deleted_meanwhile(log) from error
            if not is_inside:
                raise UncheckedError(f"offset {offset} is past the known end of {log.directory}")


def _deleted_meanwhile(log: PartitionLog) -> UnknownTopicOrPartitionError:
    message = f"{directory_name(log.partition)} was deleted while its offset was committed; nothing was committed"
    return UnknownTopicOrPartitionError(message, path=log.directory)


def _is_deleted(log: PartitionLog) -> bool:
    """Returns whether a log's topic is deleted, by any process. Cost: one pread."""
    try:
        log.end_offset  # noqa: B018 - it raises
    except (ClosedError, UnknownTopicOrPartitionError):
        return True
    return False


AnyRecords = CommitRecords | UncheckedRecords


class UncheckedCommits:
    """Makes the records of plain commits at little cost: what depends on a partition alone is looked up. A `Keeper`.

    Args:
        manager: the store's.
        clock: for the time of the commits.
    """

    def __init__(self, manager: LogManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        manager.kept.add(self)
        self._logs: dict[TopicPartition, PartitionLog] = {}  # some may be deleted: the check under the lock notices it

    def records(self, group_id: str, offsets: Mapping[Any, Any]) -> UncheckedRecords | None:
        """Returns the records of a commit of offsets alone, as most are. They are compared with the ends only under the lock.

        The commit is for the logs that exist now. It is refused for a topic that is deleted and created again before the lock is
        taken.

        Args:
            group_id, offsets: as for `OffsetStore.commit`.

        Returns:
            None if `OffsetManager.items` must check them: there are none, some have metadata, or some are not plainly valid.
        """
        if not offsets or not group_id or type(group_id) is not str:
            return None
        name, now_ms, logs = name_of(group_id), self._clock.now_ms(), self._logs
        records: list[KeyValue] = []
        positions: list[tuple[PartitionLog, int]] = []
        for partition, offset in offsets.items():
            if type(offset) is not int or not 0 <= offset <= limits.INT64_MAX:
                return None
            key = partition if type(partition) is TopicPartition and type(partition[1]) is int else checked_partition(partition)
            log = logs.get(key)
            positions.append((self._log_of(key) if log is None or _is_deleted(log) else log, offset))
            records.append((key_of(name, *key), format_plain_offset(offset, now_ms)))
        return UncheckedRecords(records, positions)

    def _log_of(self, partition: TopicPartition) -> PartitionLog:
        if len(self._logs) >= limits.GROUP_NUMBERS:
            self._logs.clear()  # many of them may be deleted
        log = self._logs[partition] = self._manager.known_log(partition)
        return log

    def forget(self) -> None:
        """Forgets the logs: one of them was deleted."""
        self._logs.clear()

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Forgets the logs of deleted topics. See `Keeper`."""
        for partition in [each for each in self._logs.copy() if is_deleted(each.topic)]:
            self._logs.pop(partition, None)


class UncheckedError(PylogError):
    """The commit must be checked by `OffsetManager.items`, which waits for other processes. Callers never see it."""
