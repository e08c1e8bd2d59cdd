"""Finds where a consumer begins: at its group's committed offset, else by `auto_offset_reset` (groups-and-transactions 2.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pylog import trace
from pylog.clock import Clock
from pylog.consumer.options import ConsumerOptions, ResetPolicy
from pylog.consumer.partition import AssignedPartition
from pylog.errors import (
    CorruptionError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    PylogError,
    UnknownTopicOrPartitionError,
)
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.lookup import name, out_of_range
from pylog.offsets.offset_manager import OffsetManager
from pylog.record.types import TopicPartition

EARLIEST, LATEST = ResetPolicy("earliest"), ResetPolicy("latest")


class PositionFinder:
    """Finds positions for one consumer.

    Args:
        options: the consumer's.
        offsets: the store's.
        log_of: opens the log of a partition.
        clock: the time for `by_duration`.
    """

    def __init__(
        self, options: ConsumerOptions, offsets: OffsetManager, log_of: Callable[[TopicPartition], PartitionLog], clock: Clock
    ) -> None:
        self._group = options.group_id
        self._isolation = options.isolation_level
        self._committed_only = options.committed_only
        self._policy = ResetPolicy.of(options.auto_offset_reset)
        self._offsets = offsets
        self._log_of = log_of
        self._clock = clock

    def find(self, assigned_partitions: Sequence[AssignedPartition]) -> None:
        """Finds the positions of partitions without one.

        A partition waits while an open transaction has offsets for it (groups-and-transactions 1.12). If no position can be
        found, the partition's `failure` has the error, and other partitions can still be read. That happens if nothing is
        committed and the policy is "none", or if the log is damaged or deleted.

        Raises:
            CorruptionError: damage hides the committed offsets.
        """
        if self._group is None:
            committed, pending = {}, set[TopicPartition]()
        else:
            pending = self._offsets.pending(self._group)  # read first, so that offsets committed in between are fetched
            committed = self._offsets.fetch(self._group, [assigned.partition for assigned in assigned_partitions])
        for assigned in assigned_partitions:
            assigned.failure = None  # from the last attempt
            if assigned.partition in pending:
                continue
            found = committed.get(assigned.partition)
            if found is not None:
                assigned.seek(found.offset, found.leader_epoch)
            else:
                self._reset(assigned)

    def _reset(self, assigned: AssignedPartition) -> None:
        if self._policy.kind != "none":
            try:
                self._seek(assigned, "none", "the group has no committed offset")
            except (CorruptionError, OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
                self._failed(assigned, error)
            return
        none = NoOffsetForPartitionError(
            f"group {self._group!r} has no committed offset for {name(assigned.partition)}, and auto_offset_reset is 'none'; "
            "seek to the offset where reading should begin"
        )
        self._failed(assigned, none)

    def _failed(self, assigned: AssignedPartition, error: PylogError) -> None:
        error.partition = assigned.partition
        assigned.failure = error

    def out_of_range(self, assigned: AssignedPartition, error: OffsetOutOfRangeError) -> None:
        """Resets a position that is not in the log, by the policy.

        Raises:
            OffsetOutOfRangeError: the policy is "none", or the records are not lost but in remote storage.
        """
        state = self._log_of(assigned.partition).snapshot()
        if assigned.position is not None and assigned.position in state.remote_offsets:
            raise out_of_range(state, assigned.partition, assigned.position)
        if self._policy.kind == "none":
            raise error
        self._seek(assigned, assigned.position, "the position is not in the log")

    def _seek(self, assigned: AssignedPartition, old: object, reason: str) -> None:
        offset = self.offset_at(assigned.partition, self._policy)
        assigned.seek(offset)
        facts = {"group": self._group, "old": old, "new": offset, "policy": self._policy.kind}
        trace.line(trace.POSITION_RESET, assigned.partition, **facts, reason=reason)

    def offset_at(self, partition: TopicPartition, policy: ResetPolicy) -> int:
        """Returns the offset that a policy currently gives for a partition."""
        log = self._log_of(partition)
        if policy.kind == "earliest":
            return log.snapshot().earliest(partition)
        if policy.kind == "by_duration":
            since = max(0, self._clock.now_ms() - policy.duration_ms)
            found = log.offset_for_timestamp(since, isolation_level=self._isolation)
            if found is not None:
                return found.offset
        return log.snapshot(committed=True).stable_offset if self._committed_only else log.end_offset
