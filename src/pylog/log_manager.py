"""`LogManager`: the topics and logs of one data directory, below the clients that read and write through it.

Like Kafka's class of this name, it opens logs, creates and deletes topics, flushes in the background, and closes all logs with
shutdown checkpoints. It does not use the clients. `pylog.store.Store` documents the methods for users.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pylog import trace
from pylog.arguments import is_int
from pylog.background import Background, Failures
from pylog.background_errors import remove_background_errors, write_background_errors
from pylog.clock import Clock
from pylog.config import TopicConfig, topic_config
from pylog.directory.checkpoints import NEW_MARKER
from pylog.directory.topic_names import check_topic_name
from pylog.errors import (
    InvalidArgumentError,
    PylogError,
    ReadOnlyError,
    StorageFailedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import Door, FileSystem, Gate, HeldDirectory, LiveSet, join, process_id
from pylog.log.checking.check import check_store
from pylog.log.checking.report import Partition, Report
from pylog.log.checking.verification import Progress, verify_store
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.outline import PartitionExtent, outline_at
from pylog.log.recovery.archive_tier import NoTiers, StoreTiers
from pylog.log.recovery.findings import Finding
from pylog.log_opener import LogOpener
from pylog.open_logs import OpenLogs
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.root_directory import RootDirectory
from pylog.topics.catalog import INTERNAL_OPTIONS
from pylog.topics.checking import check_catalog
from pylog.topics.kept import KeptByTopic
from pylog.topics.listing import find_topic, find_topics
from pylog.topics.making import check_completable, check_more, check_partition_count, check_same, check_settable
from pylog.topics.partitions import CLUSTER_METADATA, directory_name, for_each_partition, partitions_given
from pylog.topics.topic import Topic, check_partition
from pylog.unopened import usual_outline
from pylog.urls import how_to_write

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


def _inside_the_gate(
    call: Callable[Concatenate[LogManager, Arguments], Answer],
) -> Callable[Concatenate[LogManager, Arguments], Answer]:
    """Makes `close` wait for a method that takes locks in several steps."""

    @wraps(call)
    def inside(manager: LogManager, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Answer:
        with manager.gate:
            return call(manager, *args, **kwargs)

    return inside


class LogManager:
    """The topics and open logs of a data directory.

    Args:
        path: the directory.
        options: those of `pylog.open`.
        fs, clock: the file system and the clock.

    Attributes:
        path, mode, clock: as given.
        fs: the file system, which refuses every call once the manager is closed.
        gate: the calls that `close` waits for.
        root: the files of the directory itself, and changes of topics.
        locks: the locks of this process in the directory; None for a manager that only reads.
        background: the thread for delayed flushes.
        full_disk: frees room when there is none.
        failures: errors of background work.
        topic_changes: the number of times this manager has created, altered or deleted a topic or added partitions.
        kept, tiers: the parts of the store that keep something by a topic's name; its archive.
        found_unstable: called with a log that was opened for writing and has open transactions.
        finish_transactions: finishes those of dead processes, for a reader that waits for them.
        uncleanable: partitions whose compaction failed; it is not retried until the store is opened again.
        is_closed: true once `close` was called.
        process: the id of the process that opened the directory.
    """

    def __init__(self, path: str, options: StoreOptions, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self.mode = options.mode
        self.clock = clock
        self._door = Door(fs, path)
        self.fs = fs = HeldDirectory(self._door, path)
        self.gate = Gate(f"the store {path}", path)
        self.failures = Failures(self._keep_failure if self.writable else None)
        self.topic_changes = 0
        self.found_unstable: Callable[[PartitionLog], object] = _leave_alone
        self.finish_transactions: Callable[[], object] = _nothing
        self.is_closed = False
        self.process = process_id()
        self._options = options
        self._guard = threading.RLock()
        self.kept = KeptByTopic()
        self.tiers: StoreTiers = NoTiers()
        self._readers: LiveSet[PartitionLog] = LiveSet()  # in a store that is open for reading
        self.background = Background(self.failures)
        self._logs = OpenLogs(self.background.drop)
        self.uncleanable = self._logs.uncleanable
        with trace.TELLING, trace.holding():
            self.root = RootDirectory(fs, path, options, clock)
        self.locks = self.root.locks
        self.kept.add(self.root)
        self.full_disk = self.root.full_disk
        self._opener = LogOpener(path, options, fs, clock, self.root, self.background, lambda key: self.tiers.tier(key))  # noqa: PLW0108
        self.kept.add(self._opener.warned)

    @property
    def writable(self) -> bool:
        """True if the directory is open for writing."""
        return self.mode == "rw"

    def check_writable(self) -> None:
        """Raises ClosedError, ReadOnlyError or DirectoryReplacedError unless the directory is open for writing."""
        self.gate.check()
        if not self.writable:
            raise ReadOnlyError(f"{self.path} is open for reading; {how_to_write(self.path)}", path=self.path)
        self.fs.check()

    def _keep_failure(self, count: int, error: BaseException) -> None:
        write_background_errors(self.fs, self.path, self.clock, count, error)

    # ---- topics --------------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, Topic]:
        """Returns the topics by name. Cost: one directory listing."""
        self.gate.check()
        return find_topics(self.fs, self.path)

    def current_topics(self, *, checks_all: bool = False) -> dict[str, Topic]:
        """Returns the topics by name, and releases all that is kept for topics that another process has deleted.

        Args:
            checks_all: true to also close the logs of topics that were deleted and created again.

        Cost: one directory listing, and one small read for each log that is open; without `checks_all`, only of those whose
        topic is missing.
        """
        existing = self.topics()
        with trace.TELLING, trace.holding():
            if self._logs and self._guard.acquire(blocking=checks_all):  # otherwise a change runs, and the next call does this
                try:
                    self.gate.check()
                    self._logs.close_all_deleted(lambda key: checks_all or key.topic not in existing)
                finally:
                    self._guard.release()
        self.kept.forget(lambda topic: topic not in existing)
        return existing

    def topic(self, name: str) -> Topic:
        """Returns one topic."""
        self.gate.check()
        return find_topic(self.fs, self.path, name)

    @_inside_the_gate
    def create_topic(self, /, name: str, partition_count: int = 1, **config: Any) -> Topic:
        """Creates a topic, durably. An internal one gets Kafka's options, or committed offsets would be deleted by their age."""
        self.check_writable()
        check_topic_name(name)
        checked = topic_config(INTERNAL_OPTIONS.get(name, {}) | config)
        check_settable(config)
        count = check_partition_count(partition_count)
        return self._with_free_names(name, lambda: self._create(name, count, checked))

    def _create(self, name: str, count: int, config: TopicConfig) -> Topic | None:
        topic = self.root.changes.create(name, count, config)
        for key in () if topic is None else self._logs.of_topic(name):  # of a topic that another store deleted
            self._logs.close_deleted(key)
        return topic

    def _with_free_names(self, topic: str, change: Callable[[], Topic | None]) -> Topic:
        """Makes a change that needs the names of a topic's directories. It returns None while a deleted topic has them.

        The names are freed without the guard: commits take their locks and the guard in the other order.
        """
        done = None
        while done is None:
            with self._guard:
                self.gate.check()  # again: another thread may have closed the store, and another process opened it
                self.root.leave_clean_state()
            self.root.changes.free_names(topic)
            with trace.TELLING, trace.holding(), self._guard:
                self.gate.check()
                done = change()
                self.topic_changes += done is not None
        return done

    @_inside_the_gate
    def add_partitions(self, /, name: str, partition_count: int) -> Topic:
        """Adds partitions to a topic."""
        self.check_writable()
        count = check_partition_count(partition_count)
        check_more(self.fs, self.path, self.topic(name), count)
        return self._with_free_names(name, lambda: self.root.changes.add_partitions(name, count))

    @_inside_the_gate
    def alter_topic(self, /, name: str, **config: Any) -> Topic:
        """Changes a topic's configuration, durably, and in every open log."""
        self.check_writable()
        check_settable(config)
        with trace.TELLING, trace.holding(), self._guard:
            self.gate.check()
            self._logs.check_names(name)
            before, topic = self.full_disk.freeing(partial(self.root.changes.alter, name, config))  # for a lower retention
            self.topic_changes += 1
        self.root.changes.announce(topic)
        _warn_of_compaction(self, before, topic)
        return topic

    @_inside_the_gate
    def delete_topic(self, /, name: str, forgetting: Callable[[], Callable[[], object]] = lambda: lambda: None) -> None:
        """Deletes a topic and its records.

        Args:
            name: the topic.
            forgetting: called when the deletion begins. Returns a call that deletes data which depends on the topic. It is made
                once nothing more can be appended to the topic.
        """
        self.check_writable()
        self._logs.check_names(name)
        forget = forgetting()
        with trace.TELLING, trace.holding(), self._guard:
            self._logs.check_names(name)
            self.root.changes.check_deletable(self.topic(name))
            self.root.leave_clean_state()
            self._logs.close_topic(name)
            done = self.full_disk.freeing(self.root.changes.deletion(name), syncs_again=True)
            self.topic_changes += 1
        with trace.TELLING, trace.holding():
            forget()  # without the guard: commits take their locks in the other order
            self.full_disk.freeing(partial(self.root.changes.note_deleted, done), syncs_again=True)
        self.kept.forget(lambda topic: topic == name)

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """Returns a partition's log as it is now, opened on its first use. Cost of later calls: one small read.

        The read is for topics that another process creates again. `known_log` is without it.
        """
        self.gate.check()
        known = self._logs.get(TopicPartition(topic, partition)) if type(topic) is str and type(partition) is int else None
        if known is not None and not known.was_deleted():  # the frequent case: no further check
            return known
        key = self._partition(topic, partition)
        if not self.writable:
            reader = self._opener.open(key)
            self._readers.add(reader)
            return reader
        with trace.TELLING, trace.holding(), self._guard:
            self.gate.check()  # again: another thread may have closed the store
            known = self._logs.get(key)
            if known is not None and not known.must_reopen:
                return known
            if known is not None:
                self._logs.close_deleted(key)
            _complete(self.root, key)
            known = self._logs[key] = self._opener.open(key)
        self.full_disk.complete_reserve()  # loading removes what a dead process left
        if known.known.first_unstable_offset is not None:
            self.found_unstable(known)  # without the guard: other logs are opened for it
        return known

    def known_log(self, partition: TopicPartition) -> PartitionLog:
        """Returns the log of a partition whose name and number were checked. Cost: one look-up, if the log is open already.

        Another process may have deleted the topic since: the log's own calls then raise UnknownTopicOrPartitionError.
        """
        known = self._logs.get(partition)
        if known is None or known.is_deleted or self.gate.is_shut:
            return self.log(*partition)
        return known

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        if not is_int(partition):
            raise InvalidArgumentError(f"partition={partition!r} is not an int")
        key = TopicPartition(check_topic_name(topic), int(partition))
        if self.writable and topic == CLUSTER_METADATA:
            raise ReadOnlyError(
                f"{topic} is the metadata log of a Kafka controller; open the store with mode='r' to read it", path=self.path
            )
        known = self._logs.get(key)
        if (known is None or known.is_deleted) and not self._opener.has_directory(key):
            self._check_partition(key)
        return key

    def _check_partition(self, key: TopicPartition) -> None:
        """Raises if the topic does not have the partition. A writer completes a directory whose creator died."""
        if not self._opener.names(key):
            check_partition(self.path, self.topic(key.topic), key.partition)
        check_completable(self.fs, self.path, key, write=self.writable)
        self.root.leave_clean_state()
        with trace.TELLING, trace.holding(), self._guard:
            self.gate.check()
            self.root.changes.complete(key)

    def outline(self, topic: str, partition: int = 0) -> PartitionExtent:
        """Returns the ends and segments of a partition, for planning reads of many partitions. Opens nothing."""
        self.gate.check()
        return outline_at(self._opener.source(self._partition(topic, partition)), self.clock)

    def start_and_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int] | None]:
        """Returns the start and end offsets of several partitions; None for a partition that does not exist."""
        self.gate.check()
        starts, recovered = self.root.log_starts.offsets(), self.root.recovery_points.offsets()
        wanted = partitions_given(partitions)
        return {each: _ends(self, each, starts.get(each), recovered.get(each, 0)) for each in wanted}

    def query_lock(self, query: str) -> AbstractContextManager[object]:
        """Prevents other threads and processes from appending for the same streaming query."""
        self.check_writable()
        assert self.locks is not None
        return self.locks.query(query)

    def query_lock_if_free(self, query: str) -> AbstractContextManager[bool]:
        """Takes a query's lock without waiting. Yields whether it was free; false if this thread holds it already."""
        self.check_writable()
        assert self.locks is not None
        return self.locks.query(query).if_free()

    def flush(self) -> None:
        """Makes every record appended so far durable."""
        self.gate.check()
        for_each_partition(log.flush for log in list(self._logs.values()))

    # ---- integrity -----------------------------------------------------------------------------------------------------------

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """The findings from opening the directory and its logs so far."""
        return tuple(self.root.findings)

    def check(self) -> Report:
        """Checks all structural invariants."""
        alone = nullcontext(False) if self.locks is None else self.locks.alone_meanwhile()
        with self.gate.throughout(), alone as quiet:
            report = check_store(self.fs, self.path, self._views(quiet=quiet))
            with self.root.lock() if quiet else nullcontext():
                return report.with_findings(check_catalog(self.fs, self.path, self._opener.catalog.read(), quiet=quiet))

    def verify(self, rate_limit: float | None = None, progress: Progress | None = None, *, records: bool = False) -> Report:
        """Reads all files and verifies each checksum and digest."""
        with self.gate.throughout():
            views = self._views(quiet=False)
            return verify_store(self.fs, self.path, views, self.clock, rate_limit=rate_limit, progress=progress, records=records)

    def _views(self, *, quiet: bool) -> list[Callable[[], Partition]]:
        """Returns functions that open the partitions, one at a time."""

        def opened_view(key: TopicPartition) -> Partition:
            log = self.log(*key)
            partition = log.for_checks(quiet=quiet)
            return partition._replace(still=log.at_rest) if quiet else partition

        return [partial(opened_view, key) for key in self.root.partitions()]

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the logs, writes the shutdown checkpoints and the clean-shutdown marker, and releases the locks.

        Does nothing in a forked child, where a thread of the parent may hold any of the locks.
        """
        if process_id() != self.process:
            return
        try:
            self.background.end()  # before the guard is taken, which a background task may be waiting for
        finally:
            self._close()

    def _close(self) -> None:
        self.gate.shut()  # before the guard is taken, which calls of other threads would take again and again
        with trace.TELLING, trace.holding(), self._guard:
            if self.is_closed:
                return
            self.is_closed = True
            try:
                trace.later(trace.STORE_CLOSED, path=self.path, mode=self.mode)
                self._close_logs()
            finally:
                self._door.shut()  # before the locks are released, so that no file is read that others may change
                self.release()

    def _close_logs(self) -> None:
        if self.writable:
            clean = all(for_each_partition(log.close for log in self._logs.values()))
            try:
                self.root.note_shutdown(self._logs, clean=clean)
            except StorageFailedError as error:
                if not error.passes:
                    raise  # else there is no room for the marker, and the next opening checks the ends of the logs
            if self._options.tick_interval_ms is not None and self.failures.count == 0:
                with suppress(PylogError):  # only a hint becomes stale
                    remove_background_errors(self.fs, self.path)
        for reader in self._readers.members():
            reader.close()

    def release(self) -> None:
        """Releases only the locks, after a failed open."""
        if self.locks is not None:
            self.locks.close()


def _ends(manager: LogManager, partition: TopicPartition, log_start: int | None, recovered: int) -> tuple[int, int] | None:
    try:
        key = manager._partition(*partition)
        seen, ours = None, manager.root.marker == NEW_MARKER
        if key not in manager._logs:
            seen = usual_outline(manager.fs, join(manager.path, directory_name(key)), log_start, recovered, ours=ours)
        if seen is None:
            state = manager.log(*key).snapshot()
            return state.start_offset, state.end_offset
    except UnknownTopicOrPartitionError:
        return None
    return seen.outline.start_offset, seen.outline.end_offset


def _complete(root: RootDirectory, key: TopicPartition) -> None:
    """Writes a missing `partition.metadata`, if the directory's creator was not a broker and died before it wrote it."""
    if root.changes.is_half_made(key):
        with suppress(PylogError):  # optional: the next attempt may succeed
            root.leave_clean_state()
            root.changes.complete(key)


def _nothing() -> None:
    """Finishes no transactions: a store that only reads."""


def _leave_alone(log: PartitionLog) -> None:
    """Does nothing about open transactions."""


def created_topic(
    manager: LogManager, name: str, partition_count: int | None, options: Mapping[str, Any], *, exist_ok: bool
) -> Topic:
    """Returns a topic that was created, or with `exist_ok` one that existed. Raises as `Store.create_topic`."""
    try:
        return manager.create_topic(name, 1 if partition_count is None else partition_count, **options)
    except TopicAlreadyExistsError:
        if not exist_ok:
            raise
        topic = manager.topic(name)
        check_same(topic, partition_count, options)
        return topic


def _warn_of_compaction(manager: LogManager, before: Topic, after: Topic) -> None:
    """Logs a warning if a topic that becomes compacted may have records without a key, which compaction deletes."""
    if after.config.is_compacted and not before.config.is_compacted and _has_records(manager, after):
        then = "the next compaction deletes records without a key; set cleanup_policy back before that to keep them"
        trace.line(trace.TOPIC_COMPACTED, topic=after.name, then=then)


def _has_records(manager: LogManager, topic: Topic) -> bool:
    """Returns whether a topic may have records. Cost: as `log` for each partition."""
    for number in topic.partition_ids:
        try:
            log = manager.log(topic.name, number)
            if log.start_offset < log.end_offset:
                return True
        except PylogError:  # it may
            return True
    return False
