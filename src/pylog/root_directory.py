"""`RootDirectory`: the files in an open data directory itself: locks, Kafka's checkpoints, the clean-shutdown marker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

from pylog import trace
from pylog.clock import Clock
from pylog.directory.archives import check_no_archive
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, CLEANER, LOG_START, NEW_MARKER, RECOVERY_POINT, Checkpoint, read_marker
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK, StoreLocks
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import NO_ROOM, DirectoryReplacedError, StorageFailedError
from pylog.fs import NAMES_ONLY, HeldDirectory, join, remove_derived, write_atomically
from pylog.full_disk import FullDisk
from pylog.log.partition_log import PartitionLog
from pylog.log.recovery import clean_shutdown
from pylog.log.recovery.findings import Finding
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.staging.names import sweep
from pylog.topics.changes import TopicChanges
from pylog.topics.finishing import finish_changes, is_finished
from pylog.topics.kept import IsDeleted
from pylog.topics.listing import check_usable, partitions_in
from pylog.topics.making import check_writable, make_root, sync_name
from pylog.topics.partitions import directory_name


class RootDirectory:
    """A data directory that one store has open. It is created if it is missing and the store is open for writing.

    Args:
        fs, path: the directory.
        options: how the store is opened.
        clock: for waiting.

    Attributes:
        full_disk: frees room when there is none.
        findings: what opening the directory and its logs has found.
        locks: the locks of a store that is open for writing.
        changes: changes topics, in a store that is open for writing.
        marker: the content of the clean-shutdown marker when the directory was opened; None without one.
        recovery_points, log_starts, cleaned: Kafka's checkpoints.

    Raises:
        NotALogDirectoryError, StoreLockedError: as `pylog.open`. No lock is held then.
    """

    changes: TopicChanges

    def __init__(self, fs: HeldDirectory, path: str, options: StoreOptions, clock: Clock) -> None:
        self._fs = fs
        self._path = path
        self.findings: dict[Finding, None] = {}  # in the order in which they were found, each once
        self.locks: StoreLocks | None = None
        self.marker: bytes | None = None
        self._left_clean_state = False
        self._finished: dict[str, str] = {}  # directories of deletions that were finished, with their old names
        self.recovery_points = Checkpoint(fs, path, RECOVERY_POINT)
        self.log_starts = Checkpoint(fs, path, LOG_START)
        self.cleaned = Checkpoint(fs, path, CLEANER)
        self._checkpoints = (self.recovery_points, self.log_starts, self.cleaned)
        if options.mode == "rw":
            self._open_for_writing(options, clock)
        else:
            self.full_disk = FullDisk(fs, path, clock, None)
            fs.check_directory(path, write=False)
            self.marker = self._read_marker()
            if self.marker is None:
                check_no_archive(fs, path)
            self._report_checkpoints()

    def _open_for_writing(self, options: StoreOptions, clock: Clock) -> None:
        is_new = not self._fs.exists(self._path)
        if is_new:
            make_root(self._fs, self._path)
        check_writable(self._fs, self._path, 'open it with mode="r"')
        if not is_new and not self._fs.exists(join(self._path, PYLOG_LOCK)):
            check_no_archive(self._fs, self._path)
            sync_name(self._fs, self._path)
        if not options.create:
            check_usable(self._fs, self._path)
        exclusive, timeout_ms = options.exclusive, options.lock_timeout_ms
        self.locks = StoreLocks(self._fs, self._path, clock, exclusive=exclusive, timeout_ms=timeout_ms)
        self.full_disk = FullDisk(self._fs, self._path, clock, self.locks)
        self._fs.hold(self.locks.keep_brokers_out)
        self.changes = TopicChanges(self._fs, self._path, self.locks, self._checkpoints)
        try:
            self._report_checkpoints()
            self.marker = self._read_marker()
            if self.locks.was_alone:
                self._finish_changes()
            if self.marker is None:
                self._recover()
            sweep(self._fs, self._path, clock.now_ms())
        except BaseException:
            self.locks.close()
            raise

    def _finish_changes(self) -> None:
        broker_was_last = self.marker not in (None, NEW_MARKER)
        with self._delaying_if_full(), self.lock():
            self._finished = finish_changes(self._fs, self._path, broker_was_last=broker_was_last)

    @contextlib.contextmanager
    def _delaying_if_full(self) -> Iterator[None]:
        """Leaves the rest of an earlier process's changes to the next opening if the disk is full, which frees it otherwise."""
        try:
            yield
        except StorageFailedError as error:
            if error.errno not in NO_ROOM or not error.passes:
                raise
            trace.later(trace.CHANGES_DELAYED, path=self._path, error=str(error), then="the next opening tries again")

    def forget_deleted(self, forget: Callable[[str], object]) -> None:
        """Has the data deleted that depends on topics whose deletion was finished when the directory was opened.

        Args:
            forget: does it for one topic; also used later, when a topic is created whose name a deleted one had.
        """
        if self.locks is None:
            return
        self.changes.forget = forget
        if self._finished:
            with trace.TELLING, trace.holding(), self._delaying_if_full():
                self.full_disk.freeing(partial(self._forget_finished, forget))

    def _forget_finished(self, forget: Callable[[str], object]) -> None:
        parsed = map(parse_partition_directory, self._finished)
        for topic in sorted({partition.topic for partition in parsed if partition is not None}):
            forget(topic)
        self.changes.note_finished(self._finished)

    def _recover(self) -> None:
        if not self.partitions():
            self.marker = NEW_MARKER  # an empty directory cannot have a change that was interrupted
            return
        trace.later(trace.STORE_UNCLEAN, path=self._path, then="each log checks its end when it is opened")
        self._fs.sync_directory(self._path)  # a dead process may have created a directory without syncing this one
        assert self.locks is not None
        self.locks.keep_room()  # its temporary files were removed, and may have had the reserve's blocks

    def _read_marker(self) -> bytes | None:
        return read_marker(self._fs, self._path)

    def _report_checkpoints(self) -> None:
        """Reports unreadable checkpoints, which count as empty."""
        for checkpoint in self._checkpoints:
            checkpoint.offsets()
            if checkpoint.complaint is not None:
                self.report([Finding("rebuilt", checkpoint.path, 0, 0, 0, None, checkpoint.complaint)])
                trace.later(trace.CHECKPOINT_UNREADABLE, path=checkpoint.path, error=checkpoint.complaint)

    # ---- while it is open ----------------------------------------------------------------------------------------------------

    def report(self, found: Iterable[Finding]) -> None:
        """Adds findings to those that are known. One that was found before is not added again."""
        self.findings.update(dict.fromkeys(found))

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Removes the findings in the partitions of topics for which `is_deleted` is true."""
        for finding in list(self.findings):
            partition = parse_partition_directory(finding.path.rpartition("/")[0].rpartition("/")[2])
            if partition is not None and is_deleted(partition.topic):
                self.findings.pop(finding, None)

    def lock(self) -> AbstractContextManager[None]:
        """Returns the lock of the files in the directory itself, for one small file at a time."""
        assert self.locks is not None
        return self.locks.root.entered()

    def has_broker(self) -> bool:
        """Returns whether a Kafka broker has the directory open now."""
        return bool(self._fs.lock_owner(join(self._path, KAFKA_LOCK)))

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that have a directory."""
        return list(partitions_in(self._fs, self._path, self._fs.list(self._path, sizes=NAMES_ONLY)).values())

    def leave_clean_state(self) -> None:
        """Removes the clean-shutdown marker, durably, before the first write: a stale one would hide a crash."""
        if self._left_clean_state:
            return
        with self.lock():  # not the manager's guard: an append calls this under its log's locks, which come after that guard
            path = join(self._path, CLEAN_SHUTDOWN)
            if self._fs.exists(path):
                remove_derived(self._fs, path)
                self._fs.sync_directory(self._path)
            self._left_clean_state = True

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def note_shutdown(self, opened: Mapping[TopicPartition, PartitionLog], *, clean: bool) -> None:
        """Writes the shutdown checkpoints, and the marker if all is as after a clean shutdown, unless other processes write here.

        Args:
            opened: the logs that were open; all are closed.
            clean: whether each closed without leaving anything to recover.
        """
        assert self.locks is not None
        try:
            self._fs.check()
        except DirectoryReplacedError as error:
            trace.later(trace.DIRECTORY_REPLACED, path=self._path, reason=str(error))
            return
        if self._fs.exists(join(self._path, CLEAN_SHUTDOWN)) or not self.locks.alone():
            return
        names = {partition: join(self._path, directory_name(partition)) for partition in self.partitions()}
        checkpoints = self.recovery_points, self.log_starts
        settled = clean_shutdown.write_shutdown_checkpoints(self._fs, names, opened, self.marker, *checkpoints)
        if settled and clean and is_finished(self._fs, self._path, names):
            write_atomically(self._fs, self._path, CLEAN_SHUTDOWN, NEW_MARKER if self.marker is None else self.marker)
