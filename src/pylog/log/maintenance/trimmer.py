"""Shortens a partition under its locks: `delete_records`, retention, truncation.

This module checks and reports. `trimming` has the steps, and `retention_policy` the decisions.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from pylog import trace
from pylog.errors import IllegalStateError, InvalidArgumentError, OffsetOutOfRangeError, StorageFailedError
from pylog.log.maintenance import trimming
from pylog.log.maintenance.retention_policy import Decision
from pylog.log.reading.lookup import out_of_range
from pylog.log.state import LogState
from pylog.log.writing.partition_writer import PartitionWriter
from pylog.log.writing.writer import LogWriter


def delete_records(mutator: PartitionWriter, before: int) -> int:
    """Raises the log start, deletes the segments below it, and returns it. As `Log.delete_records`."""
    source = mutator.source
    with mutator.changing() as writer:
        policy = source.config.cleanup_policy
        if "delete" not in policy:
            raise InvalidArgumentError(f"{source.directory}: cleanup_policy is {policy}; only topics with 'delete' lose records")
        if before > writer.state.end_offset:
            raise _beyond(mutator, writer, "deleted before", before)
        if before in writer.state.remote_offsets[1:]:
            raise out_of_range(writer.state, source.partition, before)
        if before > writer.state.start_offset:
            trimming.raise_start(writer, source, before, "delete_records was called")
        trimming.apply_retention(writer, source, mutator.pending_deletions, mutator.clock.now_ms(), None, only_start=True)
        return writer.state.start_offset


def retain(mutator: PartitionWriter, now_ms: int, group: str | None, committed: int | None) -> trimming.Retained | None:
    """Deletes the segments that the topic's retention does not keep, and expires idle producers.

    Args:
        mutator: of the partition.
        now_ms: the wall clock, in milliseconds.
        group, committed: the retention group and its committed offset, or None.

    Returns:
        The deleted segments. None, without a deletion, if the topic's retention now waits for another group.
    """
    source = mutator.source
    with suppress(StorageFailedError):  # another process may delete these segments now; under the locks it is known
        trimming.examine(mutator.known_state(), source.config, now_ms)
    with mutator.inspecting() as state:
        if source.config.retention_group != group:
            return None
        mutator.pending_deletions.sweep()
        _expire_producers(mutator, now_ms)
        decision = trimming.decide(state, source.config, now_ms, committed)
        _tell_of_waiting(mutator, state, decision, committed)
        plan = trimming.plan_of(source, state, decision)
        if mutator.loaded.corrupt is not None or not plan.segments:
            return plan.of_nothing()
        with mutator.changing() as writer:
            waits = source.config.retention_group == group
            return trimming.apply_retention(writer, source, mutator.pending_deletions, now_ms, committed) if waits else None


def _tell_of_waiting(mutator: PartitionWriter, state: LogState, decision: Decision, committed: int | None) -> None:
    """Logs when retention begins or ends to keep segments for a group, and not on each call."""
    group = mutator.source.config.retention_group if decision.waiting else None
    if group == mutator.awaited_group:
        return
    before, mutator.awaited_group = mutator.awaited_group, group
    if group is None:
        trace.later(trace.GROUP_AWAITED_NO_MORE, mutator.source.partition, group=before, committed=committed)
        return
    kept = [segment for _, segment in islice(state.segments, decision.count, decision.count + decision.waiting)]
    trace.later(
        trace.GROUP_AWAITED,
        mutator.source.partition,
        group=group,
        committed="none" if committed is None else committed,
        first=kept[0].base_offset,
        segments=len(kept),
        bytes=sum(map(state.size_of, kept)),
        reason="the group has not read them",
    )


def _expire_producers(mutator: PartitionWriter, now_ms: int) -> None:
    if mutator.writer is None:
        return
    expired = mutator.writer.producers.expire(now_ms, mutator.source.config.producer_id_expiration_ms)
    if expired:
        trace.later(trace.PRODUCERS_EXPIRED, mutator.source.partition, count=len(expired), producers=expired)


def truncate(mutator: PartitionWriter, end: int) -> None:
    """Truncates the log at an offset. As `Log.truncate`."""
    with mutator.changing() as writer:
        if end < writer.state.start_offset:
            raise _beyond(mutator, writer, "truncated to", end)
        if end >= writer.state.end_offset:
            return
        if writer.state.remote_offsets:
            path = mutator.source.directory
            message = f"{path} cannot be truncated: its broker may have copied these records to its remote tier"
            raise IllegalStateError(f"{message}, and would serve them again; have the broker delete them", path=path)
        trimming.truncate(writer, mutator.source, mutator.pending_deletions, end)
        mutator.reload()


def truncate_segments(mutator: PartitionWriter, end: int) -> None:
    """Deletes the segments that begin at or after an offset, except an empty one, which needs almost no room on the disk.

    A truncation within a sealed segment copies what it keeps; on a full disk this makes the room for it.
    """
    with mutator.inspecting() as state:
        bases = [base for base, _ in state.segments if base > end]
    if bases and bases[0] < state.end_offset:
        truncate(mutator, bases[0])


def _beyond(mutator: PartitionWriter, writer: LogWriter, done: str, offset: int) -> OffsetOutOfRangeError:
    start, end, directory = writer.state.start_offset, writer.state.end_offset, mutator.source.directory
    return OffsetOutOfRangeError(
        f"{directory} has offsets from {start} to before {end}; it cannot be {done} {offset}", path=directory, offset=offset
    )
