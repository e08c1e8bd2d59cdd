"""What changes a log, and in which order its locks are taken: the log's own first (threads), then the partition's (processes).

Every change begins with the same question: is the log as this process left it? Then the writer goes on; what others appended it
takes over; after anything else the log is loaded again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pylog import limits, trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.directory.locks import ByteLock, is_owned, under
from pylog.errors import (
    ClosedError,
    CorruptionError,
    DirectoryReplacedError,
    IllegalStateError,
    InvalidTransactionStateError,
    ProducerError,
    PylogError,
    RecordTooLargeError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import OpenFiles
from pylog.log.durable_point import mark_failed, open_header
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.found_segments import FoundSegments
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.loader import deleted, load
from pylog.log.recovery.loading_lines import tell_of_loading
from pylog.log.state import LogState, first_state
from pylog.log.writing.group_commit import Group, Request, Requests, append_in_turn, encoded_group, grouped
from pylog.log.writing.pending_deletions import PendingDeletions
from pylog.log.writing.refitting import refit
from pylog.log.writing.writer import LogWriter
from pylog.metrics import Counters
from pylog.record.ahead import one_ahead
from pylog.record.types import Acknowledgement
from pylog.segment.names import LOG
from pylog.segment.segment import vanished


class LogContext(NamedTuple):
    """What a log asks of its store.

    Attributes:
        exclusive: nobody else writes, so nobody needs to be looked after.
        before_first_write: called before anything is written.
        found: takes what loading finds.
        flush_every: (milliseconds, task): runs a flush that often.
        writers: counts the logs that are ready for writing, and limits them.
    """

    exclusive: bool
    before_first_write: Callable[[], None]
    found: Callable[[list[Finding]], None]
    flush_every: Callable[[int, Callable[[], None]], None]
    writers: OpenFiles


class PartitionWriter:
    """The changing side of one log.

    Args:
        source: the partition, with its locks.
        clock: for time stamps, and for segments without any.
        publish: takes each new state.
        context: what it needs of its owner.
        counters: of the log.

    Attributes:
        source, clock: as given.
        pending_deletions: files of deleted segments that readers still use.
        awaited_group: the group for which retention keeps segments, as the last log line has it.
        lock: the log's, taken before the partition's.
        loaded: the partition as it was loaded last.
        requests: appends that wait.
        writer: made for the first write, None before.
        gone: another process has deleted the partition.
        close_count: how often the writer was closed: then what was loaded is older than the log.
        appending: requests are being settled, by the thread that has the lock. If that asks again, it is a signal's handler or a
            handler of log messages, amid the work.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        publish: Callable[[LogState], None],
        context: LogContext,
        counters: Counters,
    ) -> None:
        self.source = source
        self.clock = clock
        self._publish = publish
        self._context = context
        self._counters = counters
        self.pending_deletions = PendingDeletions(source.fs)
        self.awaited_group: str | None = None
        assert source.lock is not None
        self._partition_lock: ByteLock = source.lock
        self._held = source.held
        self.lock = threading.RLock()
        self.requests = Requests(clock)
        self.writer: LogWriter | None = None
        self.gone = False
        self._failure: str | None = None  # why no writer can be made
        self._inside: int | None = None  # the thread that keeps all others out
        self._unclean = False  # a writer was closed that could not write all it should
        self.appending = False
        self.close_count = 0
        self.loaded = Loaded(FoundSegments.known([]))
        self._state: LogState
        with self._both_locks():
            self._load()
            under_way = self.loaded.slot is not None and self.loaded.slot.epoch % 2 == 1
            if (under_way or self._hides_records()) and self.loaded.corrupt is None:
                with contextlib.suppress(StorageFailedError):  # a full disk must not keep anybody from reading
                    self._current()  # what a dead process left is shown when it is durable

    @contextmanager
    def _both_locks(self) -> Iterator[None]:
        """The log's lock, then the partition's; when it ends both are as before, even if an interrupt comes as it ends."""
        with trace.TELLING, trace.holding(), self.lock, self._partition_lock.entered():
            yield

    # ---- is it still what it was? --------------------------------------------------------------------------------------------

    def _load(self) -> None:
        if self.writer is not None:
            self._check_names()
            self.writer.abandon()
            self.writer = None
        self.source.options.refresh()
        try:
            with self._held.loading():
                loaded = load(self.source)
            if not loaded.follows(self.loaded):
                raise deleted(self.source)
        except UnknownTopicOrPartitionError:
            self.gone = True
            raise
        state = first_state(loaded)
        tell_of_loading(self.source, loaded, self.loaded.findings)
        self._context.found(loaded.findings)
        self._set_state(state)
        self.loaded = loaded  # last: after an interrupt before this the log is loaded again

    def _check_names(self) -> None:
        """Raises DirectoryReplacedError if the log's names lead to other files than its writer's. Under both locks."""
        with self.noticing():
            try:
                self._held.check()
            except StorageFailedError as error:
                if isinstance(error, DirectoryReplacedError) or not vanished(error):
                    raise  # else another process has deleted it, or its segments: loading finds that out

    def check_names(self) -> None:
        """The same for a caller without the locks."""
        with self._both_locks():
            self._check_names()

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Gives the writer up if it turns out that the log's directory was replaced: reading goes on with what is there now."""
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

    def _hides_records(self) -> bool:
        """Whether loading has found more than may be shown: what a dead process wrote last, or all since a sync failed."""
        return self.writer is None and self._state.end_offset < self.loaded.next_offset

    def _set_state(self, state: LogState) -> None:
        self._state = state
        self._publish(state)

    def _current(self) -> LogWriter:
        """The writer of the log as it is now. Under both locks."""
        self._held.check_alive()
        self.take_changes()
        if self.writer is None:
            self._agree()  # the header speaks to writers only
        self.check_sound()
        if self.writer is None:
            self._context.before_first_write()
            self.writer = self._new_writer()
            self._context.writers.opened(self)
        return self.writer

    def _agree(self) -> bool:
        """Takes the topic's options as they stand, for what acts by them next; returns whether they are others. Under both locks.

        The writer goes: the next one marks the header, so that no other process goes on by older options. Cost: one small read.
        """
        self._check_names()
        if self.writer is not None:
            self.writer.check_alive()
        if not self.source.options.refresh():
            return False
        self._load()
        return True

    def agree(self) -> bool:
        """The same for a caller without the locks. In the middle of an append nothing changes."""
        if self.appending and is_owned(self.lock):
            return False
        with self._both_locks():
            return self._agree()

    def _new_writer(self) -> LogWriter:
        """A writer; a sync that fails while it makes the log ready is never tried again. Want of room or of descriptors is."""
        if self._failure is not None:
            raise ClosedError(self._failure, path=self.source.directory)
        try:
            return LogWriter(self.source, self.loaded, self._state, self._set_state, self.clock, self._counters)
        except StorageFailedError as error:
            if not error.passes:
                self._failure = f"{error}; close the store and open it again, which checks the end of the log"
                with contextlib.suppress(StorageFailedError):  # the first failure is the one that is reported
                    mark_failed(self.source.fs, self.source.directory)
            raise

    def take_changes(self) -> None:
        """Takes what other processes did. Under both locks; writes nothing."""
        if self.writer is not None:
            self.writer.check_alive()
            if not self.writer.is_current() and not self.writer.catch_up():
                self._load()
        elif not self._is_as_loaded():
            self._load()

    def take_changes_of_others(self, *, wait: bool) -> None:
        """The same for a reader of this process. Under the log's lock.

        Who does not wait takes what others append while they keep the partition's lock all the same, and what they do to segments
        when they are done. Who met files that are gone waits, or would take that for damage.
        """
        if wait:
            with self._both_locks():
                self.take_changes()
            return
        with self._partition_lock.entered_if_free() as free:
            if free:
                self.take_changes()
            elif self.writer is not None:
                self.writer.catch_up(published=True)

    def _is_as_loaded(self) -> bool:
        """Whether nobody has written since the log was loaded: header, length and zeros of the last file are what they were."""
        header = open_header(self.source.fs, self.source.directory)
        if header is not None:
            slot, same_boot = header.refresh(), header.same_boot
            header.close()
            if slot != self.loaded.found or same_boot != self.loaded.same_boot:
                return False  # written, or another file with the same content
        elif self.loaded.found is not None:
            return False
        if not self.loaded.segments:
            fs, directory = self.source.fs, self.source.directory
            return fs.exists(directory) and not any(entry.name.endswith(LOG) for entry in fs.list(directory))
        last, end, size = self.loaded.segments[-1], self.loaded.end, self.loaded.file_size
        same = self.source.fs.exists(last.path) and last.file().size() == size
        return same and (not self.loaded.preallocated or last.file().is_blank(end, size))

    def check_sound(self) -> None:
        """Raises CorruptionError when what was found forbids writing."""
        found = self.loaded.corrupt
        if found is not None:
            raise CorruptionError(
                f"{found.message}; the partition is open for reading only until that is repaired",
                path=found.path,
                position=found.position,
                offset=found.offset,
                next_offset=found.next_offset,
            )

    def release(self) -> bool:
        """Closes the writer, if the log is at rest: other logs need its descriptors. The next write makes another one.

        Returns:
            Whether the writer is closed, or there is none.
        """
        if not is_owned(self.lock):
            under(self.lock, self._close_idle_writer_if_free, wait=False)
        return self.writer is None

    def _close_idle_writer_if_free(self) -> None:
        if self.writer is None or self.writer.failure is not None:
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
                return  # it says so to the next caller
            self._unclean = True  # no room for its derived files: they are made again
        finally:  # also when it was interrupted: its files are closed
            if writer.failure is None:
                writer.abandon()
                self.writer = None
                self.close_count += 1

    # ---- append --------------------------------------------------------------------------------------------------------------

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Both locks, for a thread that looks, decides and appends."""
        with self._both_locks():
            outer, self._inside = self._inside, threading.get_ident()
            try:
                yield
            finally:
                self._inside = outer

    def append(self, request: Request) -> Acknowledgement:
        """Appends in turn with other threads; at once for the one that keeps them out, because they wait for it."""
        if (self.appending and is_owned(self.lock)) or self.requests.has_called():
            told = f"this thread is appending to {self.source.directory}: what interrupts it, as a handler of signals or of log "
            raise IllegalStateError(told + "messages does, cannot append to the same log", path=self.source.directory)
        if self._inside != threading.get_ident():
            return append_in_turn(self.requests, request, self.lock, self.commit)
        self.commit([request])
        return request.result()

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """The sequence that follows a producer's last batch of an epoch; None when the log remembers none."""
        with self.current() as writer:
            return writer.producers.next_sequence(producer_id, epoch)

    def commit(self, requests: list[Request]) -> None:
        """Settles some requests: one lock, one look, one write, one sync. Under the log's lock."""
        lock = self._partition_lock
        before = lock.depth
        try:
            self.appending = True
            with lock:
                writer = self._current()
                if len(requests) == 1 and requests[0].producer is None and requests[0].options is self.source.options.now:
                    self._commit_group(grouped(requests, writer.state.end_offset), writer)  # as most are
                else:
                    for group in self._groups(self._fitting(requests), writer):
                        self._commit_group(group, writer)
                if self._held.failure is not None:
                    self._give_up(writer)
        except BaseException as error:
            lock.restore(before)
            for request in requests:
                if not request.done:
                    request.refuse(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self.appending = False

    def _fitting(self, requests: list[Request]) -> Iterator[Request]:
        """The requests, by the options that count now: one that was made under others is checked again, and may be refused."""
        options = self.source.options.now
        for request in requests:
            if request.options is not options:
                try:
                    refit(request, options)
                except PylogError as error:  # raised by the thread that asked
                    request.refuse(error)
                    continue
            yield request

    def _groups(self, requests: Iterable[Request], writer: LogWriter) -> Iterator[Group]:
        """Plain requests together; one of a producer alone, because its number is checked against what is in the log by then."""
        plain: list[Request] = []
        for request in requests:
            if request.producer is None:
                plain.append(request)
                continue
            if plain:
                yield grouped(plain, writer.state.end_offset)
                plain = []
            if not self._is_settled(request, writer):
                yield grouped([request], writer.state.end_offset)
        if plain:
            yield grouped(plain, writer.state.end_offset)

    @staticmethod
    def _is_settled(request: Request, writer: LogWriter) -> bool:
        """Whether a producer's batch needs no write: it is there already, or may not follow what is."""
        assert request.producer is not None
        writer.check_alive()  # else what the group before failed to write would pass for written
        try:
            known = writer.producers.check(request.producer, request.count)
        except (ProducerError, InvalidTransactionStateError) as error:  # raised by the thread that asked
            request.refuse(error)
            return True
        if known is not None:
            if request.level == Durability.SYNC:
                writer.flush()  # it may have been acknowledged at a lower level, or not at all
            request.acknowledge(range(known.first_offset, known.last_offset + 1), request.level, duplicate=True)
        return known is not None

    def _commit_group(self, group: Group, writer: LogWriter) -> None:
        error = self._append(group, writer)
        if isinstance(error, RecordTooLargeError) and len(group.requests) > 1:  # one of them is: the others need not suffer
            for request, _ in group.requests:
                self._commit_group(grouped([request], writer.state.end_offset), writer)
            return
        group.settle(writer.state.end_offset, error)
        if error is not None and not isinstance(error, Exception):
            raise error

    def _append(self, group: Group, writer: LogWriter) -> BaseException | None:
        first = writer.state.end_offset
        try:
            stamp = self.clock.now_ms() if self.source.options.now.config.log_append_time else None
            encoded = encoded_group(group, writer.leader_epoch, stamp)
            if group.size <= limits.APPEND_CHUNK_BYTES:
                writer.append(encoded, group.level, group.size)
            else:
                with one_ahead(iter(encoded)) as ahead:
                    writer.append(ahead, group.level, group.size)
            self._counters.wrote(writer.state.end_offset - first)
        except BaseException as error:  # noqa: BLE001 - settled with the requests, and raised by the threads that asked
            return error
        return None

    # ---- flush ---------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything published durable, whoever wrote it; what is hidden since a sync failed is written again for that."""
        with self._both_locks():
            self._check_names()
            self.take_changes()
            if self.loaded.corrupt is None and (self._hides_records() or self._state.durable_offset < self._state.end_offset):
                self._current().flush()

    def flush_in_background(self) -> None:
        """The same for a background thread: appends go on while the disk works.

        Raises:
            StorageFailedError: the sync failed; the log takes no more writes.
        """
        with self.lock:
            if self.gone or (self.writer is not None and self.writer.failure is not None):
                return
            self._check_names()
            self.take_changes_of_others(wait=False)  # what a process that died since has left is this one's to flush
            writer = self.writer
            if writer is None:
                self.flush()
                return
            if self._state.durable_offset >= self._state.end_offset:
                return
            point = writer.sync_point()
        try:
            point.file.sync()
        except StorageFailedError as error:
            with self._both_locks():
                if self.writer is not writer:
                    return  # it was given up meanwhile and its file closed: the log was loaded again
                writer.fail(f"a sync failed ({error}), so what is on the disk is not known")
                writer.unreported = error
            raise
        with self._both_locks():
            if self.writer is writer and writer.failure is None and (writer.is_current() or writer.catch_up()):
                writer.note_durable(point)  # else what was synced is another's to say

    # ---- changes of segments ---------------------------------------------------------------------------------------------------

    @contextmanager
    def current(self) -> Iterator[LogWriter]:
        """The writer of the log as it is now, by the options as they stand, under both locks."""
        with self._both_locks():
            self._agree()
            yield self._current()

    @contextmanager
    def changing(self) -> Iterator[LogWriter]:
        """The same for a change of segments: one that fails in the middle ends writing, as a failed sync does."""
        with self.current() as writer:
            try:
                with self.noticing():
                    yield writer
            except StorageFailedError as error:
                writer.break_off(error, "a change of its segments failed")
                raise
            self.loaded.segments = FoundSegments.known(self._state.segments.values())  # what is gone can be closed

    @contextmanager
    def inspecting(self) -> Iterator[LogState]:
        """The log as it is now, by the options as they stand, under both locks. Makes no writer."""
        with self._both_locks():
            self._agree()
            self.take_changes()
            yield self._state

    def reload(self) -> None:
        """Loads the log again after its end was cut, and makes it ready for the next write. Under both locks."""
        self._load()
        self._current()

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> bool:
        """Flushes and closes. Returns whether the partition is left as after a clean shutdown, as far as this process knows."""
        with self.lock:
            try:
                if self.writer is None:
                    return not self._unclean and (self.close_count > 0 or self.loaded.sound)
                with self._partition_lock.entered(), self.noticing():
                    return self._close_writer(self.writer)
            finally:
                self._context.writers.closed(self)
                self.pending_deletions.sweep(all_of_them=True)
                if self.writer is not None:
                    self.writer.abandon()

    def _close_writer(self, writer: LogWriter) -> bool:
        if writer.failure is not None:
            return False
        if writer.is_current() or writer.catch_up():
            return writer.close()
        return True  # another process goes on with it: its header says how it stands
