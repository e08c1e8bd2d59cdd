"""`Store`: one Kafka log directory, opened for reading, or for writing under locks that keep a broker out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Self
from weakref import WeakSet

from pylog import limits, trace
from pylog.background import Background
from pylog.clock import Clock
from pylog.config import TopicConfig
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    PylogError,
    ReadOnlyError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import Door, FileSystem, Gate, join, process_id, read_derived, remove_derived, write_atomically
from pylog.groups.living_members import LivingMembers
from pylog.log import shutdown
from pylog.log.check import check_store
from pylog.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER,
    LOG_START,
    NEW_MARKER,
    RECOVERY_POINT,
    Checkpoint,
    check_topic_name,
    is_told_of,
)
from pylog.log.cleaner import Throttle
from pylog.log.glance import glance
from pylog.log.internal import opened
from pylog.log.loaded import Source
from pylog.log.log import Log
from pylog.log.mutator import Surroundings
from pylog.log.options import LiveOptions
from pylog.log.outline import Outline, outline_at
from pylog.log.recovery import Finding
from pylog.log.report import Partition, Report
from pylog.log.store_locks import KAFKA_LOCK, StoreLocks
from pylog.log.verification import Progress, verify_store
from pylog.offsets.store import OffsetStore
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.segment.segment import OpenFiles
from pylog.staging.names import sweep
from pylog.topics.catalog import KnownCatalog
from pylog.topics.changes import TopicChanges
from pylog.topics.checking import check_catalog
from pylog.topics.finishing import finish_changes, is_finished
from pylog.topics.listing import find_topic, find_topics, id_in_brokers_directory, is_kraft_brokers, partitions_in
from pylog.topics.making import check_more, check_partition_count, check_settable, make_root
from pylog.topics.partitions import CLUSTER_METADATA, check_partition_directory, directory_name, for_each_partition
from pylog.topics.topic import Topic, check_partition
from pylog.upkeep import Upkeep, warn_of_compaction


class Store(Upkeep):
    """One data directory: Kafka's log directory, with its topics. Made by `pylog.open`; a context manager.

    A store opened with mode "rw" keeps Kafka brokers out until it is closed; other pylog processes may open it too, and append
    in turn. One opened with mode "r" takes no lock and writes nothing; it sees what others write.
    """

    _changes: TopicChanges  # of a store that is open for writing

    def __init__(self, path: str, options: StoreOptions, fs: FileSystem, clock: Clock) -> None:
        super().__init__()
        self.path = path
        self.mode = options.mode
        self.durability = options.durability
        self._options = options
        self._fs = fs = Door(fs, path)
        self._gate = Gate(f"the store {path}", path)
        self._clock = clock
        self._guard = threading.RLock()
        self._open_files = OpenFiles()
        self._open_writers = OpenFiles(limits.OPEN_WRITERS)
        self._warned: set[str] = set()
        self._logs: dict[TopicPartition, Log] = {}
        self._readers: WeakSet[Log] = WeakSet()  # of a store that is open for reading
        self._findings: list[Finding] = []
        self._known_catalog = KnownCatalog(fs, path)
        self._closed = False
        self._pid = process_id()
        self._locks: StoreLocks | None = None
        self._background = Background(self.failures)
        self._offsets = OffsetStore(self, options.offsets, fs, clock, LivingMembers(fs, writable=options.mode == "rw"))
        self._ticking = Background(self.failures)  # compaction takes its time, and flushes may not wait for it
        self._closing = False
        self._throttle = Throttle(clock, options.cleaner_io_max_bytes_per_second, lambda: self._closing)  # one for all cleanings
        self._left_clean_state = False
        self._marker: bytes | None = None  # what the clean-shutdown marker held, if it was there
        self._recovery_points = Checkpoint(fs, path, RECOVERY_POINT)
        self._log_starts = Checkpoint(fs, path, LOG_START)
        self._cleaned = Checkpoint(fs, path, CLEANER)
        self._checkpoints = (self._recovery_points, self._log_starts, self._cleaned)
        self._spoiled: set[TopicPartition] = set()  # compaction failed: not tried again before the store is opened again
        if self._writable:
            with trace.HELD:
                self._open_for_writing()
        else:
            fs.check_directory(path, write=False)
            self._marker = self._read_marker()
            self._report_checkpoints()
        trace.line(trace.STORE_OPENED, path=path, mode=self.mode)

    def __repr__(self) -> str:
        return f"Store({self.path!r}, mode={self.mode!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _writable(self) -> bool:
        return self.mode == "rw"

    # ---- opening -------------------------------------------------------------------------------------------------------------

    def _open_for_writing(self) -> None:
        if not self._fs.exists(self.path):
            make_root(self._fs, self.path)
        self._fs.check_directory(self.path, write=True)
        how = self._options
        self._locks = StoreLocks(self._fs, self.path, self._clock, exclusive=how.exclusive, timeout_ms=how.lock_timeout_ms)
        self._changes = TopicChanges(self._fs, self.path, self._locks, self._checkpoints)
        try:
            self._report_checkpoints()
            self._marker = self._read_marker()
            if self._locks.was_alone:
                with self._root_lock():
                    foreign = self._marker not in (None, NEW_MARKER)
                    finish_changes(self._fs, self.path, broker_was_last=foreign)
            if self._marker is None and not self._partitions():
                self._marker = NEW_MARKER  # nothing can have been left under way in an empty directory
            elif self._marker is None:
                trace.later(trace.STORE_UNCLEAN, path=self.path, then="each log checks its end when it is opened")
                self._fs.sync_directory(self.path)  # whose directory a dead process may have made, and not synced
            sweep(self._fs, self.path, self._clock.now_ms())
            if how.tick_interval_ms is not None:
                self._ticking.every("tick", how.tick_interval_ms, self.tick)
        except BaseException:  # such as that there can be no more threads
            self._locks.close()
            raise

    def _read_marker(self) -> bytes | None:
        return read_derived(self._fs, join(self.path, CLEAN_SHUTDOWN), limits.MARKER_BYTES).data

    def _report_checkpoints(self) -> None:
        """An unreadable checkpoint counts as empty, and is reported."""
        for checkpoint in self._checkpoints:
            checkpoint.offsets()
            if checkpoint.complaint is not None:
                self._findings.append(Finding("rebuilt", checkpoint.path, 0, 0, 0, None, checkpoint.complaint))
                trace.later(trace.CHECKPOINT_UNREADABLE, path=checkpoint.path, error=checkpoint.complaint)

    def _check_open(self) -> None:
        self._gate.check()

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise ReadOnlyError(f"{self.path} is open for reading; open it with mode='rw'", path=self.path)

    def _root_lock(self) -> AbstractContextManager[None]:
        """The lock of the files in the directory itself: for one small file at a time."""
        assert self._locks is not None
        return self._locks.root.entered()

    # ---- topics --------------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, Topic]:
        """The store's topics, by name. Cost: one listing of the directory.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders", partitions=2, retention_ms=-1)
        ...     store.topics()["orders"].partitions
        2
        """
        self._check_open()
        return find_topics(self._fs, self.path)

    def topic(self, name: str) -> Topic:
        """One topic.

        Raises:
            UnknownTopicOrPartitionError: there is none of that name; the error names some that there are.
        """
        self._check_open()
        return find_topic(self._fs, self.path, name)

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> Topic:
        """Makes a topic. It is durable when this returns.

        Args:
            name: 1 to 249 of the characters a-z A-Z 0-9 . _ -
            partitions: how many.
            config: options of `TopicConfig` by name, such as `retention_ms`.

        Raises:
            InvalidTopicError, InvalidArgumentError, TopicAlreadyExistsError, ReadOnlyError: nothing was written.
            IllegalStateError: the same; the directory is a Kafka broker's, which sets aside what it did not make itself.
            StorageFailedError: it may exist or not.
        """
        self._check_writable()
        checked = TopicConfig.of(config)
        check_settable(config)
        count = check_partition_count(partitions)
        check_topic_name(name)
        with trace.HELD, self._guard:
            self._check_open()  # once more: it may have been closed meanwhile, and somebody else have the directory
            self._leave_clean_state()
            topic = self._changes.create(name, count, checked)
            self.topic_changes += 1
            for log in self._let_go(name):  # of one that another store deleted
                with suppress(PylogError):  # its files are gone: only their descriptors are left
                    log.close()
            return topic

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Raises a topic's number of partitions.

        Args:
            name: the topic.
            partitions: the new number, larger than the old one.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written. IllegalStateError: as above.
        """
        self._check_writable()
        count = check_partition_count(partitions)
        with trace.HELD, self._guard:
            check_more(self._fs, self.path, self.topic(name), count)
            self._leave_clean_state()
            topic = self._changes.add_partitions(name, count)
            self.topic_changes += 1
            return topic

    def alter_topic(self, name: str, **config: Any) -> Topic:
        """Changes a topic's configuration, durably, and returns the topic.

        The new options count for every append, retention, compaction and producer once this returns: in this store, and in other
        processes, whose logs take them at their next append or tick. No record without a key is acknowledged by a topic that
        has become compacted. Those that are there already stay until the next compaction, which deletes them, as Kafka does; a
        warning is logged then. A topic that is compacted no longer keeps what compaction has left.

        Args:
            name: the topic.
            config: options of `TopicConfig` by name; None is the option's default. The others stay.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written.
            StoreLockedError: the change is written, and another process kept a partition locked for longer than
                `lock_timeout_ms`: its appends take the new options later. Call again to be sure.

        Cost: one small file, replaced durably, and the lock of each partition for a moment.
        """
        self._check_writable()
        check_settable(config)
        with trace.HELD, self._guard:
            self._check_open()
            before, topic = self._changes.alter(name, config)
            self.topic_changes += 1
        self._changes.announce(topic)
        warn_of_compaction(self, before, topic)
        return topic

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records, for good when this returns, and then what groups have committed for it.

        Raises:
            UnknownTopicOrPartitionError, ReadOnlyError: nothing was done.
            IllegalStateError: the same; a partition is behind a symbolic link, or begins in a broker's remote tier.
        """
        self._check_writable()
        with trace.HELD, self._offsets.forgetting(name), self._guard:
            self._changes.check_deletable(self.topic(name))
            self._leave_clean_state()
            for log in self._let_go(name):
                log.close()
            self._changes.delete(name)
            self.topic_changes += 1

    def _let_go(self, topic: str) -> Iterator[Log]:
        """Forgets the logs of a topic, one by one; the background flushes them no more. One made again begins anew."""
        self._spoiled.difference_update([key for key in self._spoiled if key.topic == topic])
        for key in [key for key in self._logs if key.topic == topic]:
            log = self._logs.pop(key)
            self._background.drop(log.flush_behind)
            yield log

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """One partition, opened on its first use.

        Args:
            topic, partition: which.

        Returns:
            The `Log`. A store opened for writing returns the same one each time; one opened for reading looks at the directory
            anew, so that what others appended meanwhile is there.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition, or a store opened for reading finds that it is not made yet.
            CorruptionError: its directory is gone, and a checkpoint names it.
            StorageFailedError: its files cannot be read.

        Cost: a listing of its directory; after an unclean stop, a scan from the durable point on.
        """
        self._check_open()
        known = self._logs.get(TopicPartition(topic, partition)) if type(topic) is str and type(partition) is int else None
        if known is not None and not known.is_gone:  # most often: what was checked once is not checked again
            return known
        key = self._partition(topic, partition)
        if not self._writable:
            reader = self._open_log(key)
            self._readers.add(reader)
            return reader
        with trace.HELD, self._guard:
            self._check_open()  # once more: it may have been closed meanwhile
            known = self._logs.get(key)
            if known is None or known.is_gone:
                if known is not None:
                    self._background.drop(known.flush_behind)
                    self._spoiled.discard(key)
                    with suppress(PylogError):
                        known.close()
                self._complete(key)
                self._logs[key] = self._open_log(key)
            return self._logs[key]

    def _partition(self, topic: str, partition: int) -> TopicPartition:
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise InvalidArgumentError(f"partition={partition!r} is not an int")
        key = TopicPartition(check_topic_name(topic), partition)
        if self._writable and topic == CLUSTER_METADATA:
            raise ReadOnlyError(
                f"{topic} is a Kafka controller's own log; open the store with mode='r' to look at it", path=self.path
            )
        known = self._logs.get(key)
        if (known is None or known.is_gone) and not self._fs.exists(join(self.path, directory_name(key))):
            self._check_partition(key)
        return key

    def _check_partition(self, key: TopicPartition) -> None:
        """Whether the topic has the partition; then its directory is made, which its maker did not get to, by who may write."""
        check_partition(self.path, self.topic(key.topic), key.partition)
        if not self._writable and is_told_of(self._fs, self.path, key):
            path = join(self.path, directory_name(key))
            raise CorruptionError(f"{path} is gone, and a checkpoint says that it was there; restore it from a copy", path=path)
        if not self._writable or is_kraft_brokers(self._fs, self.path):
            told = f"{directory_name(key)} is not made yet: who makes the topic is at it, or died; a writer completes it"
            raise UnknownTopicOrPartitionError(told, path=self.path)
        self._leave_clean_state()
        with trace.HELD, self._guard:
            self._check_open()
            self._changes.complete(key)

    def _complete(self, key: TopicPartition) -> None:
        """Has the `partition.metadata` made that its directory's maker did not get to; a broker makes those of its own."""
        if self._changes.is_half_made(key):
            with suppress(PylogError):  # nothing here needs it: the next one may have more luck
                self._leave_clean_state()
                self._changes.complete(key)

    def outline(self, topic: str, partition: int = 0) -> Outline:
        """The ends and segments of a partition, for who plans reads of many; nothing stays open. Raises what `log` does.

        Cost: one listing, and the headers at the log's end: half of what `log` costs.
        """
        self._check_open()
        return outline_at(self._source(self._partition(topic, partition)), self._clock)

    def start_and_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int] | None]:
        """Where the logs of several partitions start and end now.

        Args:
            partitions: which.

        Returns:
            The offset of the first record and the one that the next record will get; None for a partition that there is not.

        Raises:
            As `log`, but for partitions that there are not.

        Cost: 40 µs a partition whose log is open, and otherwise 0.4 ms: a listing of its directory and the headers at its end. A
        log is opened only if these do not tell, as after a crash.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"paid", b"sent"])
        ...     store.start_and_end_offsets([pylog.TopicPartition("orders", 0)])
        {TopicPartition(topic='orders', partition=0): (0, 2)}
        """
        self._check_open()
        told = self._log_starts.offsets()
        return {partition: self._ends(partition, told.get(partition)) for partition in partitions}

    def _ends(self, partition: TopicPartition, told: int | None) -> tuple[int, int] | None:
        try:
            key = self._partition(*partition)
            seen = None
            if key not in self._logs:
                seen = glance(self._fs, join(self.path, directory_name(key)), told or 0, ours=self._marker == NEW_MARKER)
            if seen is None or (told is not None and told < seen.outline.bases[0]):  # its first part may be in a remote tier
                state = self.log(*key).look()
                return state.start_offset, state.end_offset
        except UnknownTopicOrPartitionError:
            return None
        return seen.outline.start_offset, seen.outline.end_offset

    def _source(self, key: TopicPartition) -> Source:
        directory = join(self.path, directory_name(key))
        check_partition_directory(self._fs, directory, write=self._writable)
        locks = self._locks
        topic_id = id_in_brokers_directory(self._fs, self.path, key)
        return Source(
            fs=self._fs,
            clock=self._clock,
            directory=directory,
            partition=key,
            options=LiveOptions(
                partial(self._known_catalog.config_of, key.topic, topic_id), self.durability, key.topic, self._warned
            ),
            open_files=self._open_files,
            writable=self._writable,
            clean=self._marker is not None,
            ours=self._marker == NEW_MARKER,
            foreign=not self._writable and bool(self._fs.lock_owner(join(self.path, KAFKA_LOCK))),
            recovery_points=self._recovery_points,
            log_starts=self._log_starts,
            lock=None if locks is None else locks.partition(directory_name(key)),
            root_lock=None if locks is None else locks.root,
            cleaned=self._cleaned,
            cleaning_lock=None if locks is None else locks.cleaner(directory_name(key)),
        )

    def _open_log(self, key: TopicPartition) -> Log:
        surroundings = Surroundings(
            self._options.exclusive, self._leave_clean_state, self._findings.extend, self._flush_every, self._open_writers
        )
        return opened(self._source(key), self._clock, surroundings)

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets of consumer groups. Cost: nothing before they are used."""
        return self._offsets

    def appending_for(self, query: str) -> AbstractContextManager[object]:
        """Keeps every other thread and process from appending for the same streaming query."""
        self._check_writable()
        assert self._locks is not None
        return self._locks.query(query)

    def _flush_every(self, interval_ms: int, flush: Callable[[], None]) -> None:
        self._background.every(flush, interval_ms, flush)

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """What was found in the partitions opened so far: torn tails, damage, derived files that had to be made again."""
        return tuple(self._findings)

    # ---- integrity -----------------------------------------------------------------------------------------------------------

    def check(self) -> Report:
        """Checks all structural invariants: names, ends, indexes, headers of batches, seals, checkpoints, leftovers.

        Returns:
            A `Report`; its `ok` is whether nothing was found. Nothing is changed, and no damage raises. Cost: one pass over the
            batch headers of all partitions, and over the files beside them.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     store.check().ok
        True
        """
        alone = nullcontext(False) if self._locks is None else self._locks.alone_meanwhile()
        with self._gate.throughout(), alone as quiet:
            report = check_store(self._fs, self.path, self._views(quiet=quiet))
            with self._root_lock() if quiet else nullcontext():
                return report.with_findings(check_catalog(self._fs, self.path, self._known_catalog.read(), quiet=quiet))

    def verify(self, rate_limit: float | None = None, progress: Progress | None = None, *, records: bool = False) -> Report:
        """Reads everything again: each batch's checksum, the digests of the seals, indexes, transactions, snapshots.

        Args:
            rate_limit: bytes a second at most, over the whole; None is as fast as it goes.
            progress: is called with (bytes done, bytes in all, path) now and then, under no lock.
            records: also parse each record; compressed batches are decompressed for it.

        Returns:
            A `Report` with a verdict for each `.log` file. It works beside writers, up to what is published.

        Raises: InvalidArgumentError when `rate_limit` is not positive. No damage raises.

        Cost: some 3 GB/s without `records`; memory for one batch.
        """
        with self._gate.throughout():
            views = self._views(quiet=False)
            return verify_store(
                self._fs, self.path, views, self._clock, rate_limit=rate_limit, progress=progress, records=records
            )

    def _views(self, *, quiet: bool) -> list[Callable[[], Partition]]:
        """Each partition, opened when its turn comes."""

        def look(key: TopicPartition) -> Partition:
            log = self.log(*key)
            partition = log.as_partition(quiet=quiet)
            return partition._replace(still=log.exclusively) if quiet else partition

        return [partial(look, key) for key in self._partitions()]

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def _leave_clean_state(self) -> None:
        """Removes the clean-shutdown marker, durably, before the first write: a stale one would hide a crash."""
        if self._left_clean_state:
            return
        with self._root_lock():  # not the guard: who appends asks for this under the log's locks, which lie inside of that
            path = join(self.path, CLEAN_SHUTDOWN)
            if self._fs.exists(path):
                remove_derived(self._fs, path)
                self._fs.sync_directory(self.path)
            self._left_clean_state = True

    def flush(self) -> None:
        """Makes every record appended so far durable.

        Raises:
            StorageFailedError: a sync failed.
        """
        self._check_open()
        for_each_partition(log.flush for log in list(self._logs.values()))

    def _close_logs(self) -> None:
        if process_id() != self._pid:
            return  # threads that this child does not have may hold any lock; those of the system it let go of at the fork
        self._closing = True
        try:
            for background in (self._ticking, self._background):
                background.end()  # before the guard is taken: a task may be waiting for it
        finally:
            self._close_all()

    def _close_all(self) -> None:
        with trace.HELD, self._guard:
            if self._closed:
                return
            self._closed = True
            self._gate.shut()
            try:
                trace.later(trace.STORE_CLOSED, path=self.path, mode=self.mode)
                if self._locks is not None:
                    self._shut_down(self._locks)
                for reader in list(self._readers):
                    reader.close()
            finally:
                self._fs.shut()  # before the locks: nothing reads a file that others may change
                if self._locks is not None:
                    self._locks.close()

    def _shut_down(self, locks: StoreLocks) -> None:
        clean = all(for_each_partition(log.close for log in self._logs.values()))
        if not self._fs.exists(join(self.path, CLEAN_SHUTDOWN)) and locks.alone():
            names = {partition: join(self.path, directory_name(partition)) for partition in self._partitions()}
            ends = self._recovery_points, self._log_starts
            settled = shutdown.note_ends(self._fs, names, self._logs, self._marker, *ends)
            if settled and clean and is_finished(self._fs, self.path, names):
                write_atomically(self._fs, self.path, CLEAN_SHUTDOWN, NEW_MARKER if self._marker is None else self._marker)

    def _partitions(self) -> list[TopicPartition]:
        return list(partitions_in(self._fs, self.path, self._fs.list(self.path)).values())
