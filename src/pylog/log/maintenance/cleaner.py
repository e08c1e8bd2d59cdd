"""Compacts a log: only the last record of each key stays (storage-format 7). See `compaction_policy` and `segment_swap`.

Appends and reads continue: it holds the partition's cleaning lock throughout, and the partition's own lock only for an initial
check and for each swap. `cleaning_round` does the work.
"""

from __future__ import annotations

from collections.abc import Iterable

from pylog import trace
from pylog.errors import (
    ClosedError,
    CorruptionError,
    DirectoryReplacedError,
    IllegalStateError,
    PylogError,
    StorageFailedError,
    StoreLockedError,
    UnknownTopicOrPartitionError,
)
from pylog.log.maintenance.cleaning_round import (
    CleaningRound,
    CleaningView,
    Compaction,
    LogChangedError,
    Task,
    is_shorter,
    log_to_clean_of,
    view_of,
)
from pylog.record.types import TopicPartition
from pylog.segment.segment import vanished


def clean(task: Task) -> Compaction:
    """Compacts a log as far as possible, in one or more rounds.

    Raises:
        StoreLockedError: another process or thread is compacting it, for longer than the store waits.
        CorruptionError: a segment is damaged; it and the segments after it are unchanged.
        StorageFailedError: there is no room for the copy (then nothing has changed), or the swap failed.
        UnknownTopicOrPartitionError: the partition was deleted during the compaction.
        IllegalStateError: the first records of the log are in a broker's remote storage.
        ClosedError: the store is being closed.

    Ends early if records are truncated or deleted in between. Cost: two passes over the dirty section and one over the others.
    """
    assert task.source.cleaning_lock is not None
    with trace.TELLING, trace.holding(), task.source.cleaning_lock.entered():
        return _clean(task)


def clean_due(tasks: Iterable[Task], uncleanable: set[TopicPartition]) -> list[Compaction]:
    """Compacts the logs that are dirty enough, or dirty for too long, the dirtiest first (storage-format 7.3).

    Args:
        tasks: the logs.
        uncleanable: logs that are damaged or accept no more writes. They are skipped, and new ones added.

    Raises:
        The first error, after all other logs were compacted.

    A log that another process or thread is compacting is skipped.
    """
    errors: list[PylogError] = []
    found = []
    for task in _due([task for task in tasks if task.source.partition not in uncleanable]):
        assert task.source.cleaning_lock is not None
        with trace.TELLING, trace.holding(), task.source.cleaning_lock.if_free() as free:
            try:
                found += [_clean(task)] if free else []
            except UnknownTopicOrPartitionError:
                continue  # deleted meanwhile
            except IllegalStateError as error:  # the log itself is sound
                _leave(task, uncleanable, error)
            except PylogError as error:
                errors.append(error)
                if not isinstance(error, StorageFailedError | StoreLockedError):  # those may be temporary
                    _leave(task, uncleanable, error)
    if errors:
        raise errors[0]
    return found


def _leave(task: Task, uncleanable: set[TopicPartition], error: PylogError) -> None:
    uncleanable.add(task.source.partition)
    trace.later(trace.UNCLEANABLE, task.source.partition, error=str(error))


def _due(tasks: list[Task]) -> list[Task]:
    """Returns the due logs, the dirtiest first. Skips logs that are deleted during the check."""
    due = []
    for task in tasks:
        try:
            with task.explaining():
                task.partition_writer.agree()
                found = log_to_clean_of(task.refresh(), task.source, task.now_ms)
        except UnknownTopicOrPartitionError:
            continue
        except StorageFailedError as error:
            if vanished(error):
                continue
            raise
        if found.is_due(task.source.config):
            due.append((found.ratio, task))
    return [task for _, task in sorted(due, key=lambda pair: -pair[0])]


def _clean(task: Task) -> Compaction:
    with task.explaining():
        return _clean_or_trace(task)


def _clean_or_trace(task: Task) -> Compaction:
    try:
        return _clean_in_rounds(task)
    except PylogError as error:
        trace.later(trace.CLEANING_ENDED, task.source.partition, reason=str(error))
        if isinstance(error, StorageFailedError) and vanished(error):
            _check_there(task)
        raise


def _check_there(task: Task) -> None:
    """Raises an error if the partition was deleted or its directory replaced."""
    try:
        view_of(task)
    except DirectoryReplacedError:
        raise
    except (ClosedError, CorruptionError, StorageFailedError, LogChangedError):
        return


def _clean_in_rounds(task: Task) -> Compaction:
    try:
        view = view_of(task)
    except LogChangedError:
        start = task.refresh().start_offset
        return Compaction(task.source.partition, start, start)
    done = Compaction(task.source.partition, view.to_clean.first_dirty, view.to_clean.first_dirty)
    try:
        done = _round(task, view, done)
        while done.end < view.to_clean.first_uncleanable:
            view = view_of(task)
            done = _round(task, view, done)
    except LogChangedError:
        why = "records were truncated or deleted while it was running"
        trace.later(trace.CLEANING_ENDED, task.source.partition, first=done.first_dirty, end=done.end, reason=why)
    if done.rounds:
        task.partition_writer.counters.compacted(done.records - done.kept)
        _trace(done)
    return done


def _round(task: Task, view: CleaningView, done: Compaction) -> Compaction:
    """Runs a round. Raises LogChangedError also if a file is missing or too short because records were truncated or deleted."""
    try:
        return CleaningRound(task, view).run(done)
    except (CorruptionError, StorageFailedError) as error:
        if (isinstance(error, CorruptionError) or vanished(error)) and is_shorter(task, view):
            raise LogChangedError from error
        raise


def _trace(done: Compaction) -> None:
    trace.later(
        trace.CLEANED,
        done.partition,
        first=done.first_dirty,
        end=done.end,
        records=done.records,
        removed=done.records - done.kept,
        bytes_read=done.read,
        bytes_written=done.written,
        rounds=done.rounds,
        reason="only the last record of each key stays",
    )
