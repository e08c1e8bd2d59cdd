"""Shortens a partition under its locks: `delete_records`, retention, truncation.

This module checks and reports. `trimming` has the steps, and `retention_policy` the decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from pylog import trace
from pylog.errors import IllegalStateError, InvalidArgumentError, OffsetOutOfRangeError, StorageFailedError
from pylog.log.maintenance import trimming
from pylog.log.maintenance.retention_policy import Decision
from pylog.log.maintenance.transaction_spans import check_whole
from pylog.log.reading.lookup import name, out_of_range
from pylog.log.state import LogState
from pylog.log.writing.partition_writer import PartitionWriter
from pylog.log.writing.undecided import open_from, open_producers
from pylog.log.writing.writer import LogWriter


def delete_records(partition_writer: PartitionWriter, before: int, reason: str = "delete_records was called") -> int:
    """Raises the log start, deletes the segments below it, and returns it. As `Log.delete_records`."""
    source = partition_writer.source
    with partition_writer.changing() as writer:
        policy = source.config.cleanup_policy
        if "delete" not in policy:
            raise InvalidArgumentError(f"{source.directory}: cleanup_policy is {policy}; only topics with 'delete' lose records")
        if before > writer.state.end_offset:
            raise _beyond(partition_writer, writer, before)
        if source.tier() is None and before in writer.state.remote_offsets[1:]:
            raise out_of_range(writer.state, source.partition, before)
        if before > writer.state.whole_start:
            trimming.raise_start(writer, source, before, reason)
        now_ms = partition_writer.clock.now_ms()
        done = trimming.apply_retention(writer, source, partition_writer.pending_deletions, now_ms, None, only_start=True)
        partition_writer.counters.deleted(done.segments, done.bytes)
        return writer.state.whole_start


def expire(partition_writer: PartitionWriter, now_ms: int) -> None:
    """Expires idle producers, and removes the files of deleted segments that no reader uses any more."""
    with partition_writer.inspecting():
        partition_writer.pending_deletions.sweep()
        _expire_producers(partition_writer, now_ms)


def delete_segments(partition_writer: PartitionWriter, before: int) -> None:
    """Deletes the segments that end at or before an offset, which needs no room on the disk. Ignores an invalid offset."""
    with partition_writer.inspecting() as state:
        found = state.segments.floor(before)
    if found is not None and before <= state.end_offset:
        delete_records(partition_writer, max(found[0], state.start_offset))


def roll(partition_writer: PartitionWriter) -> None:
    """Seals the active segment, unless it is empty, and starts the next one."""
    with partition_writer.changing() as writer:
        if writer.active.size:
            writer.roll()


def retain(partition_writer: PartitionWriter, now_ms: int, group: str | None, committed: int | None) -> trimming.Retained | None:
    """Deletes the segments that the topic's retention does not keep, and expires idle producers.

    Args:
        partition_writer: the partition's writer.
        now_ms: the wall clock, in milliseconds.
        group, committed: the retention group and its committed offset, or None.

    Returns:
        The deleted segments. None, without a deletion, if the topic's retention now waits for another group.
    """
    source = partition_writer.source
    with suppress(StorageFailedError):  # another process may delete these segments now; under the locks it is known
        trimming.examine(partition_writer.state, source.config, now_ms)
    with partition_writer.inspecting() as state:
        if source.config.retention_group != group:
            return None
        partition_writer.pending_deletions.sweep()
        _expire_producers(partition_writer, now_ms)
        decision = trimming.decide(state, source.config, now_ms, committed, open_from(open_producers(partition_writer), now_ms))
        _trace_waiting(partition_writer, state, decision, committed)
        plan = trimming.plan_of(source, state, decision)
        if partition_writer.loaded.corrupt is not None or not plan.segments:
            return plan.of_nothing()
        with partition_writer.changing() as writer:
            if source.config.retention_group != group:
                return None
            done = trimming.apply_retention(writer, source, partition_writer.pending_deletions, now_ms, committed)
            partition_writer.counters.deleted(done.segments, done.bytes)
            return done


def _trace_waiting(partition_writer: PartitionWriter, state: LogState, decision: Decision, committed: int | None) -> None:
    """Logs when retention begins or ends to keep segments for a group, and not on each call."""
    group = partition_writer.source.config.retention_group if decision.waiting else None
    if group == partition_writer.awaited_group:
        return
    before, partition_writer.awaited_group = partition_writer.awaited_group, group
    if group is None:
        trace.later(trace.GROUP_AWAITED_NO_MORE, partition_writer.source.partition, group=before, committed=committed)
        return
    kept = [segment for _, segment in islice(state.segments, decision.count, decision.count + decision.waiting)]
    trace.later(
        trace.GROUP_AWAITED,
        partition_writer.source.partition,
        group=group,
        committed="none" if committed is None else committed,
        first=kept[0].base_offset,
        segments=len(kept),
        bytes=sum(map(state.size_of, kept)),
        reason="the group has not read them",
    )


def _expire_producers(partition_writer: PartitionWriter, now_ms: int) -> None:
    if partition_writer.writer is None:
        return
    expired = partition_writer.writer.producers.expire(now_ms, partition_writer.source.config.producer_id_expiration_ms)
    if expired:
        trace.later(trace.PRODUCERS_EXPIRED, partition_writer.source.partition, count=len(expired), producers=expired)


def check_truncation(partition_writer: PartitionWriter, end: int) -> None:
    """Raises what `truncate` would raise now, for a caller that changes the archive first."""
    with partition_writer.current() as writer:
        _check_truncation(partition_writer, writer, end)


def _check_truncation(partition_writer: PartitionWriter, writer: LogWriter, end: int) -> None:
    source, state = partition_writer.source, writer.state
    if not state.start_offset <= end <= state.end_offset:
        raise _beyond(partition_writer, writer, end)
    if end == state.end_offset:
        return
    if state.remote_offsets and source.tier() is None:
        path = source.directory
        message = f"{path} cannot be truncated: its broker may have copied these records to its remote tier"
        raise IllegalStateError(f"{message}, and would serve them again; have the broker delete them", path=path)
    check_whole(writer, source, end, partition_writer.clock.now_ms())


def truncate(partition_writer: PartitionWriter, end: int, first_end: int | None = None) -> None:
    """Truncates the log at an offset. As `Log.truncate`.

    Args:
        partition_writer: the partition's writer.
        end: the offset.
        first_end: a higher offset, for the first of two steps; the checks are those of `end`.
    """
    with partition_writer.changing() as writer:
        _check_truncation(partition_writer, writer, end)
        if end == writer.state.end_offset:
            return
        trimming.truncate(writer, partition_writer.source, partition_writer.pending_deletions, first_end or end)
        partition_writer.reload()


def retire(partition_writer: PartitionWriter, plan_of: Callable[[LogState], Sequence[trimming.Retirement]]) -> int:
    """Deletes local segments that are in the archive. Returns how many.

    Args:
        partition_writer: the partition's writer.
        plan_of: decides, under the partition's lock.
    """
    with partition_writer.inspecting() as state:
        if partition_writer.loaded.corrupt is not None or not plan_of(state):
            return 0
        with partition_writer.changing() as writer:
            plan = plan_of(writer.state)
            if not plan:
                return 0
            trimming.retire(writer, partition_writer.source, partition_writer.pending_deletions, plan)
            return sum(each.segments for each in plan)


def truncate_segments(partition_writer: PartitionWriter, end: int) -> None:
    """Deletes the segments that begin at or after an offset, except an empty one, which needs almost no room on the disk.

    A truncation within a sealed segment copies what it keeps; on a full disk this makes the room for it.
    """
    with partition_writer.inspecting() as state:
        bases = [base for base, _ in state.segments if base > end]
    if bases and bases[0] < state.end_offset:
        truncate(partition_writer, end, bases[0])


def _beyond(partition_writer: PartitionWriter, writer: LogWriter, offset: int) -> OffsetOutOfRangeError:
    start, end, directory = writer.state.start_offset, writer.state.end_offset, partition_writer.source.directory
    log = name(partition_writer.source.partition)
    why = f"beyond the end of {log}, which is {end}" if offset > end else f"before the start of {log}, which is {start}"
    message = f"offset {offset} is {why}; for {directory}, give an offset from {start} to {end}"
    return OffsetOutOfRangeError(message, path=directory, offset=offset)
