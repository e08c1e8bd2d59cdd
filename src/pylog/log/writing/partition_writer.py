"""`PartitionWriter`: serialises the changes of a partition. Locks the log first (threads), then the partition (processes).

Each change first checks whether the log is as this process left it. If so, the writer continues. It adds batches appended by
other processes. After any other change it loads the log again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from pylog import trace
from pylog.clock import Clock
from pylog.directory.byte_lock import ByteLock
from pylog.directory.locks import held_by_me, run_locked
from pylog.errors import (
    ClosedError,
    DirectoryReplacedError,
    IllegalStateError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import OpenFiles
from pylog.log.durable_point import mark_failed
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.found_segments import FoundSegments
from pylog.log.recovery.loaded import Loaded, Source, unchanged_since_load
from pylog.log.recovery.loader import deleted, load
from pylog.log.recovery.loading_lines import trace_loading
from pylog.log.state import LogState, first_state
from pylog.log.writing.group_commit import GroupCommit
from pylog.log.writing.pending_deletions import PendingDeletions
from pylog.log.writing.requests import Request, append_in_turn
from pylog.log.writing.writer import LogWriter
from pylog.metrics import Counters
from pylog.record.types import Acknowledgement
from pylog.segment.segment import vanished


class _Exclusive(threading.local):
    """Held by this thread inside `exclusively` of any log. No other thread sees it, so it never blocks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


_EXCLUSIVE: Final = _Exclusive()


def is_exclusive() -> bool:
    """Returns whether this thread has locked a log: it must not wait for a thread that may append to that."""
    return held_by_me(_EXCLUSIVE.lock)


def _at_once(action: Callable[[], Any], first: Callable[[], object] | None = None) -> Any:  # noqa: ARG001
    return action()


def _lacks_transactions(writer: LogWriter, before: int) -> bool:
    """Returns whether a deletion may have taken all records of an open transaction, which is then open no more.

    The other processes load the log again after a deletion, and know nothing of such a transaction. So no marker may ever end it,
    and in this process alone it would hold back the committed readers.

    Args:
        writer: the writer, after the deletion.
        before: the offset at which the records began.
    """
    first, opened = _first_known(writer.state), writer.producers.first_unstable_offset
    return before < first and opened is not None and opened < first


def _first_known(state: LogState) -> int:
    """Returns the offset at which a log's records begin, with those in remote storage and those below the log start."""
    first = state.segments.first
    local = state.end_offset if first is None else first[0]
    return local if state.remote_start is None else min(local, state.remote_start)


def _nothing_more(error: Exception) -> None:
    """Adds nothing."""


def _interrupting(directory: str) -> IllegalStateError:
    message = f"this thread is appending to {directory}; a signal handler or logging handler that interrupts"
    return IllegalStateError(f"{message} it cannot append to the same log: append after that call", path=directory)


class LogContext(NamedTuple):
    """The callbacks from a log to its owner.

    Attributes:
        exclusive: true if no other process can write, which saves the checks.
        before_first_write: called before anything is written.
        found: receives the findings of loading.
        flush_every: (milliseconds, task): runs a flush at that interval.
        writers: counts the logs that are ready for writing, and limits them.
        freeing: (action, first): runs an action that frees room on the disk, again with a reserve if there is none.
        explain: adds to the error of a full disk what fills it.
    """

    exclusive: bool
    before_first_write: Callable[[], None]
    found: Callable[[list[Finding]], None]
    flush_every: Callable[[int, Callable[[], None]], None]
    writers: OpenFiles
    freeing: Callable[..., Any] = _at_once
    explain: Callable[[Exception], None] = _nothing_more


class PartitionWriter:
    """The writing side of one log.

    Args:
        source: the partition, with its locks.
        clock: for timestamps, and the age of segments without them.
        publish: receives each new state.
        context: the callbacks to its owner.
        counters: the log's counters.
        check_open: raises the error that calls get after the log was closed.

    Attributes:
        source, clock, counters: as given.
        pending_deletions: files of deleted segments that readers still use.
        awaited_group: the group for which retention keeps segments, as the last log line has it.
        lock: the log's, taken before the partition's.
        state: the log as this process knows it.
        loaded: the result of the last load.
        commits: the appends that wait, and their commits.
        writer: created at the first write, None before.
        is_deleted: true if another process has deleted the partition.
        close_count: the number of times the writer was closed; `loaded` is then older than the log.
        on_ready: called when a writer was created, under the lock.
        appending: true while the thread that holds the lock commits requests. If the same thread appends again, it does so in a
            signal handler or a logging handler.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        publish: Callable[[LogState], None],
        context: LogContext,
        counters: Counters,
        check_open: Callable[[], None],
    ) -> None:
        self.source = source
        self.clock = clock
        self._publish = publish
        self._context, self._check_open = context, check_open
        self.counters = counters
        self.pending_deletions = PendingDeletions(source.fs)
        self.awaited_group: str | None = None
        assert source.lock is not None
        self._partition_lock: ByteLock = source.lock
        self._held = source.held
        self.lock = threading.RLock()
        self._held.is_owner = partial(held_by_me, self.lock)
        self.commits = GroupCommit(source, clock, counters, self.ready_writer, self._give_up)
        self.writer: LogWriter | None = None
        self.is_deleted = self._is_closed = self._unclean = False  # unclean: a writer was closed without all its derived files
        self._failure: str | None = None  # why no writer can be created
        self._inside: int | None = None  # the thread in `exclusively`
        self.on_ready: Callable[[], None] = lambda: None
        self.close_count = self._session = 0  # the session of the partition's lock in which others' changes were taken
        self.loaded = Loaded(FoundSegments.known([]))
        self.state: LogState
        with self.locked():
            self._load()
            under_way = self.loaded.slot is not None and self.loaded.slot.epoch % 2 == 1
            if (under_way or self._hides_records()) and self.loaded.corrupt is None:
                with contextlib.suppress(StorageFailedError):  # a full disk must not prevent reads
                    self.ready_writer()  # records left by a dead process are shown once they are durable

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the log's lock, then the partition's. Restores both at the end, even after an interrupt."""
        began = self.clock.monotonic()
        with trace.TELLING, trace.holding(), self.lock, self._partition_lock.entered(began):
            if self._is_closed:  # a caller that has this object is not always inside the log's gate
                self._check_open()
            yield

    # ---- is the log unchanged? -----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        if self.writer is not None:
            self.check_names()
            self.writer.abandon()
            self.writer = None
        self.source.options.refresh()
        try:
            with self._held.loading():
                loaded = load(self.source)
            if not loaded.follows(self.loaded):
                raise deleted(self.source)
        except UnknownTopicOrPartitionError:
            self.is_deleted = True
            raise
        state = first_state(loaded)
        trace_loading(self.source, loaded, self.loaded.findings, self.counters)
        self._context.found(loaded.findings)
        self._set_state(state)
        self.loaded = loaded  # last: after an interrupt before this the log is loaded again

    def check_names(self) -> None:
        """Raises DirectoryReplacedError if the log's names lead to other files than its writer's. Under both locks."""
        with self.noticing():
            try:
                self._held.check()
            except StorageFailedError as error:
                if isinstance(error, DirectoryReplacedError) or not vanished(error):
                    raise  # otherwise it or its segments were deleted, which loading detects

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Closes the writer if the log's directory was replaced: reads then use the new directory."""
        try:
            yield
        finally:
            if self._held.failure is not None and self.writer is not None:
                self._give_up(self.writer)

    def _give_up(self, writer: LogWriter) -> None:
        checked, end = writer.checked_offset, writer.state.end_offset
        facts = {"path": self.source.directory, "checked_end": checked, "acknowledged_end": end, "reason": self._held.failure}
        trace.later(trace.DIRECTORY_REPLACED, self.source.partition, **facts)
        writer.abandon()
        self.writer, self._unclean = None, True
        self.close_count += 1

    @property
    def has_unsynced_records(self) -> bool:
        """Whether records, published or not, may be lost if the machine fails."""
        return self._hides_records() or self.state.durable_offset < self.state.end_offset

    def _hides_records(self) -> bool:
        """Returns whether the loaded log has records that readers may not see yet, as after a crash or a failed sync."""
        return self.writer is None and self.state.end_offset < self.loaded.next_offset

    def _set_state(self, state: LogState) -> None:
        self.state = state
        self._publish(state)

    def ready_writer(self) -> LogWriter:
        """Returns a current writer. Under both locks."""
        if self._is_closed:
            self._check_open()
        if self._held.failure is not None:
            self._held.check_alive()  # raises
        self.take_changes()
        if self.writer is None:
            self._agree()  # only writers read the options' mark in the header
        if self.writer is None:  # it is made from a sound log only
            self.loaded.check_sound()
            self._context.before_first_write()
            self.writer = self._new_writer()
            self._context.writers.opened(self)
            self.on_ready()
        return self.writer

    def _agree(self) -> bool:
        """Applies the current options of the topic. Returns whether they have changed. Under both locks.

        A change closes the writer: the next one marks the header, so that no other process continues with older options.

        Cost: one small read.
        """
        self.check_names()
        if self.writer is not None:
            self.writer.stop.check()
        if not self.source.options.refresh():
            return False
        self._load()
        return True

    def agree(self) -> bool:
        """Applies the current options, for a caller without the locks. Does nothing during an append."""
        if self.appending and held_by_me(self.lock):
            return False
        with self.locked():
            return self._agree()

    def _new_writer(self) -> LogWriter:
        """Creates a writer. A failed sync is never retried; lack of space or descriptors is."""
        if self._failure is not None:
            raise ClosedError(self._failure, path=self.source.directory)
        try:
            return LogWriter(self.source, self.loaded, self.state, self._set_state, self.clock, self.counters)
        except StorageFailedError as error:
            if not error.passes:
                self._failure = f"{error}; close the store and open it again, which checks the end of the log"
                with contextlib.suppress(StorageFailedError):  # the first failure is reported
                    mark_failed(self.source.fs, self.source.directory)
            raise

    def take_changes(self) -> None:
        """Applies the changes of other processes. Under both locks; writes nothing."""
        writer = self.writer
        if writer is None:
            if not unchanged_since_load(self.source, self.loaded):
                self._load()
        elif not writer.is_current():
            writer.stop.check()
            if not writer.catch_up():
                self._load()
        self._session = self._partition_lock.session

    def take_changes_of_others(self) -> bool:
        """Applies the changes of other processes for a reader, without waiting. Under the log's lock.

        Returns:
            False if another process holds the partition's lock, and has done more than append.
        """
        with self._partition_lock.entered_if_free() as free:
            if free:
                self.take_changes()
                return True
            return self.writer is not None and self.writer.catch_up(published=True)

    def is_ahead(self) -> bool:
        """Returns whether a thread of this process writes: it has the partition's lock, and has taken the changes of all others.

        Then the published state is current. Any thread may ask, without a lock.
        """
        session = self._partition_lock.session
        return session > 0 and self._session == session and self.writer is not None

    def release(self) -> bool:
        """Closes the writer of an idle log, because other logs need its descriptors. The next write creates another one.

        Returns:
            Whether the writer is closed, or there is none.
        """
        if not held_by_me(self.lock):
            run_locked(self.lock, self._close_idle_writer_if_free, wait=False)
        return self.writer is None

    def _close_idle_writer_if_free(self) -> None:
        if self._is_closed or self.writer is None or self.writer.failure is not None:
            return
        with self._partition_lock.entered_if_free() as free:
            if free:
                self._close_idle_writer(self.writer)

    def _close_idle_writer(self, writer: LogWriter) -> None:
        try:
            with self.noticing():
                self._close_writer(writer)
        except StorageFailedError:
            if writer.failure is not None:
                return  # the next caller gets the error
            self._unclean = True  # no space for its derived files, which will be rebuilt
        finally:  # even after an interrupt: close the files
            if writer.failure is None:
                writer.abandon()
                self.writer = None
                self.close_count += 1

    # ---- append --------------------------------------------------------------------------------------------------------------

    @property
    def appending(self) -> bool:
        """Whether requests are being committed, by the thread that has the lock. If it asks again, a handler interrupted it."""
        return self.commits.appending

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Holds both locks, for a thread that reads, decides and appends."""
        with self.locked(), _EXCLUSIVE.lock:
            outer, self._inside = self._inside, threading.get_ident()
            try:
                yield
            finally:
                self._inside = outer

    def append(self, request: Request) -> Acknowledgement:
        """Appends by group commit. Inside `exclusively`, commits at once, because all other threads wait."""
        commits, me = self.commits, threading.get_ident()
        is_inside = me in commits.requests.inside and commits.requests.has_called()
        if is_inside or (commits.appending and held_by_me(self.lock)):
            raise _interrupting(self.source.directory)
        if self._inside != me:
            return append_in_turn(commits.requests, request, self.lock, commits.commit)
        commits.commit([request])
        return request.result()

    # ---- changes of segments ---------------------------------------------------------------------------------------------------

    @contextmanager
    def current(self) -> Iterator[LogWriter]:
        """Yields a current writer with the current options. Holds both locks."""
        with self.locked():
            self._agree()
            yield self.ready_writer()

    @contextmanager
    def changing(self) -> Iterator[LogWriter]:
        """Yields a writer for a change of segments. A failure during the change ends all writing, as a failed sync does."""
        with self.current() as writer:
            before = _first_known(self.state)
            try:
                with self.noticing():
                    yield writer
            except StorageFailedError as error:
                writer.break_off(error, "a change of its segments failed")
                raise
            self.loaded.segments = FoundSegments.known(self.state.segments.values())  # removed segments can be closed
            if self.writer is writer and _lacks_transactions(writer, before):
                self._load()

    @contextmanager
    def inspecting(self) -> Iterator[LogState]:
        """Yields the current log with the current options. Holds both locks; creates no writer."""
        with self.locked():
            self._agree()
            self.take_changes()
            yield self.state

    def sweep(self) -> None:
        """Removes the files of deleted segments that no reader uses any more: the call that deleted them was one until now."""
        with self.lock:
            self.pending_deletions.sweep()
        if self.writer is not None and self.writer.epochs.is_left_out:
            with self.current() as writer:
                writer.epochs.complete()  # now there is room

    def reload(self) -> None:
        """Loads the log again after a truncation, and prepares it for the next write. Under both locks."""
        self._load()
        self.ready_writer()

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flushes and closes. Returns whether this process leaves the partition as after a clean shutdown."""
        with self.lock:
            try:
                if self.writer is None:
                    return not self._unclean and (self.close_count > 0 or self.loaded.sound)
                with self._partition_lock.entered(), self.noticing():
                    return self._close_writer(self.writer)
            except StorageFailedError as error:
                if not error.passes or self.state.durable_offset < self.state.end_offset:
                    raise
                return False  # only derived files found no room: the next opening builds them again
            finally:
                self._is_closed = True
                self._context.writers.closed(self)
                self.pending_deletions.sweep(all_of_them=True)
                if self.writer is not None:
                    self.writer.abandon()

    def _close_writer(self, writer: LogWriter) -> bool:
        if writer.failure is not None:
            return False
        if writer.is_current() or writer.catch_up():
            return writer.close()
        return True  # another process continues: the header has the state
