"""`Store`: one Kafka log directory, opened for reading, or for writing under locks that keep a broker out."""

from __future__ import annotations

import os
import threading
from typing import Any, Final, Self

from pylog import fs as files
from pylog import topics as catalogs
from pylog.clock import Clock, SystemClock
from pylog.config import Durability, TopicConfig
from pylog.errors import (
    ClosedError,
    InvalidArgumentError,
    NotALogDirectoryError,
    PylogError,
    ReadOnlyError,
    StoreLockedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import FileSystem, Lock, OsFileSystem, join
from pylog.log import checkpoints
from pylog.log.checkpoints import CLEAN_SHUTDOWN, LOG_START, NEW_MARKER, RECOVERY_POINT, check_topic_name
from pylog.log.durable_point import read_slot
from pylog.log.loader import Source
from pylog.log.log import Log
from pylog.log.recovery import Finding
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, file_name
from pylog.segment.segment import OpenFiles
from pylog.topics import CLUSTER_METADATA, Catalog, CatalogTopic, Topic, directory_name

KAFKA_LOCK: Final = ".lock"
PYLOG_LOCK: Final = "pylog.lock"
MODES: Final = ("rw", "r")


class Store:
    """One data directory: Kafka's log directory, with its topics. Made by `pylog.open`; a context manager.

    A store opened with mode "rw" keeps Kafka brokers and other pylog writers out until it is closed. One opened with mode "r"
    takes no lock and writes nothing; it sees each partition as it was when `log` was called.
    """

    def __init__(self, path: str, mode: str, durability: Durability, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self.mode = mode
        self.durability = durability
        self._fs = fs
        self._clock = clock
        self._guard = threading.RLock()
        self._open_files = OpenFiles()
        self._logs: dict[TopicPartition, Log] = {}
        self._findings: list[Finding] = []
        self._closed = False
        self._pid = files.process_id()
        self._locks: list[Lock] = []
        self._left_clean_state = False
        self._marker: bytes | None = None  # what the clean-shutdown marker held, if it was there
        if self._writable:
            self._open_for_writing()
        else:
            fs.check_directory(path, write=False)
            self._marker = self._read_marker()
            self._recovery_points, self._log_starts = self._read_checkpoints()

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
        new = not self._fs.exists(self.path)
        if new:
            self._make_root()
        self._fs.check_directory(self.path, write=True)
        self._take_locks()
        try:
            self._marker = self._read_marker()
            self._recovery_points, self._log_starts = self._read_checkpoints()
            self._finish_topic_changes()
            if self._marker is None and not self._topic_directories():
                self._marker = NEW_MARKER  # nothing can have been left under way in an empty directory
        except PylogError:
            self._release_locks()
            raise

    def _make_root(self) -> None:
        parent = files.parent_of(self.path)
        if not self._fs.exists(parent):
            raise NotALogDirectoryError(f"there is no directory {parent} to make {self.path} in; make it first", path=self.path)
        self._fs.check_directory(parent, write=True)
        self._fs.make_directory(self.path)
        self._fs.sync_directory(parent)

    def _take_locks(self) -> None:
        """Kafka's lock, shared: a broker cannot start; and pylog's own, exclusively (reliability 10)."""
        for name, exclusive, who in ((KAFKA_LOCK, False, "a Kafka broker"), (PYLOG_LOCK, True, "another pylog process or store")):
            path = join(self.path, name)
            lock = self._fs.lock(path, exclusive=exclusive)
            if lock is None:
                owner = self._fs.lock_owner(path)
                self._release_locks()
                told = f"{who} (process {owner})" if owner else who
                raise StoreLockedError(
                    f"{told} has {self.path} open for writing; stop it, or open the store with mode='r'",
                    path=self.path,
                    pid=owner or None,
                )
            self._locks.append(lock)

    def _release_locks(self) -> None:
        while self._locks:
            self._locks.pop().release()

    def _read_marker(self) -> bytes | None:
        return self._fs.read(join(self.path, CLEAN_SHUTDOWN), 4096)

    def _read_checkpoints(self) -> tuple[checkpoints.Offsets, checkpoints.Offsets]:
        """Kafka's recovery points and log starts. An unreadable file counts as empty, and is reported."""
        found = []
        for name in (RECOVERY_POINT, LOG_START):
            offsets, complaint = checkpoints.read_offsets(self._fs, self.path, name)
            found.append(offsets)
            if complaint is not None:
                self._findings.append(Finding("rebuilt", join(self.path, name), 0, 0, 0, None, complaint))
        return found[0], found[1]

    def _topic_directories(self) -> list[str]:
        return [entry.name for entry in self._fs.list(self.path) if catalogs.partition_of(entry) is not None]

    def _finish_topic_changes(self) -> None:
        """Completes what an earlier process decided and did not get to do: creations and deletions of topics."""
        catalog = self._catalog()
        if catalog.deleting:
            catalogs.delete_directories(self._fs, self.path, catalog.deleting)
            catalogs.write_catalog(self._fs, self.path, Catalog(topics=catalog.topics))
        present = set(self._topic_directories())
        for name, topic in catalog.topics.items():
            missing = [n for n in range(topic.partitions) if directory_name(TopicPartition(name, n)) not in present]
            if missing:
                catalogs.make_partitions(self._fs, self.path, name, topic.id, missing)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the store {self.path} is closed; open it again", path=self.path)
        if files.process_id() != self._pid:
            raise ClosedError("a store does not live on in a forked process; open it there again", path=self.path)

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise ReadOnlyError(f"{self.path} is open for reading; open it with mode='rw'", path=self.path)

    # ---- topics --------------------------------------------------------------------------------------------------------------

    def _catalog(self) -> Catalog:
        return catalogs.read_catalog(self._fs, self.path)

    def topics(self) -> dict[str, Topic]:
        """The store's topics, by name. Cost: one listing of the directory.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders", partitions=2, retention_ms=-1)
        ...     store.topics()["orders"].partitions
        2
        """
        self._check_open()
        return catalogs.find_topics(self._fs, self.path, self._catalog())

    def topic(self, name: str) -> Topic:
        """One topic.

        Raises:
            UnknownTopicOrPartitionError: there is none of that name; the error names some that there are.
        """
        check_topic_name(name)
        found = self.topics()
        if name not in found:
            some = ", ".join(list(found)[:10]) or "none"
            raise UnknownTopicOrPartitionError(f"{self.path} has no topic {name!r}; it has {some}", path=self.path)
        return found[name]

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> Topic:
        """Makes a topic. It is durable when this returns.

        Args:
            name: 1 to 249 of the characters a-z A-Z 0-9 . _ -
            partitions: how many.
            config: options of `TopicConfig` by name, such as `retention_ms`.

        Raises:
            InvalidTopicError, InvalidArgumentError, TopicAlreadyExistsError, ReadOnlyError: nothing was written.
            StorageFailedError: it may exist or not.
        """
        self._check_writable()
        checked = TopicConfig.of(config)
        count = catalogs.check_partition_count(partitions)
        check_topic_name(name)
        with self._guard:
            self._check_new(name)
            self._check_free(name, range(count))
            self._leave_clean_state()
            catalog = self._catalog()
            added = CatalogTopic(checkpoints.new_topic_id(), count, checked.changed())
            catalogs.write_catalog(self._fs, self.path, Catalog(topics=catalog.topics | {name: added}))
            catalogs.make_partitions(self._fs, self.path, name, added.id, range(count))
            return self.topic(name)

    def _check_new(self, name: str) -> None:
        """Kafka refuses names that differ only in '.' and '_'; names that differ only in case collide on some file systems."""
        for other in self.topics():
            if other == name:
                raise TopicAlreadyExistsError(f"topic {name!r} exists already", path=self.path)
            if other.replace(".", "_").lower() == name.replace(".", "_").lower():
                raise TopicAlreadyExistsError(
                    f"topic {name!r} is too like {other!r}: '.' and '_', or the case, are all that differs", path=self.path
                )

    def _check_free(self, name: str, numbers: range) -> None:
        """A file or link that has a new partition's name must be noticed before the catalog says that the partition is there."""
        taken = {entry.name for entry in self._fs.list(self.path) if not entry.is_directory}
        for found in sorted(taken & {directory_name(TopicPartition(name, number)) for number in numbers}):
            path = join(self.path, found)
            raise NotALogDirectoryError(
                f"{path} is not a directory, so partition {found} cannot be made; move it away", path=path
            )

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Raises a topic's number of partitions.

        Args:
            name: the topic.
            partitions: the new number, larger than the old one.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written.
        """
        self._check_writable()
        count = catalogs.check_partition_count(partitions)
        with self._guard:
            topic = self.topic(name)
            present = topic.partition_ids[-1] + 1
            if count <= present:
                raise InvalidArgumentError(f"topic {name!r} has {present} partitions; {count} is not more")
            self._check_free(name, range(present, count))
            self._leave_clean_state()
            catalog = self._catalog()
            changed = CatalogTopic(topic.id or checkpoints.new_topic_id(), count, topic.config.changed())
            catalogs.write_catalog(self._fs, self.path, Catalog(topics=catalog.topics | {name: changed}))
            catalogs.make_partitions(self._fs, self.path, name, changed.id, range(present, count))
            return self.topic(name)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records. It is gone for good when this returns.

        Raises:
            UnknownTopicOrPartitionError, ReadOnlyError: nothing was done.
        """
        self._check_writable()
        with self._guard:
            topic = self.topic(name)
            partitions = [TopicPartition(name, number) for number in topic.partition_ids]
            self._leave_clean_state()
            for partition in partitions:
                log = self._logs.pop(partition, None)
                if log is not None:
                    log.close()
            catalog = self._catalog()
            kept = {other: entry for other, entry in catalog.topics.items() if other != name}
            directories = {name: catalogs.deletion_name(name) for name in map(directory_name, partitions)}
            catalogs.write_catalog(self._fs, self.path, Catalog(topics=kept, deleting=catalog.deleting | directories))
            catalogs.delete_directories(self._fs, self.path, directories)
            catalogs.write_catalog(self._fs, self.path, Catalog(topics=kept))
            for checkpoint, offsets in ((RECOVERY_POINT, self._recovery_points), (LOG_START, self._log_starts)):
                if any(partition in offsets for partition in partitions):
                    checkpoints.update_offsets(self._fs, self.path, checkpoint, {}, partitions)
                    for partition in partitions:
                        offsets.pop(partition, None)

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """One partition, opened on its first use.

        Args:
            topic, partition: which.

        Returns:
            The `Log`. A store opened for writing returns the same one each time; one opened for reading looks at the directory
            anew, so that what others appended meanwhile is there.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            StorageFailedError: its files cannot be read.

        Cost: a listing of its directory; after an unclean stop, a scan from the durable point on.
        """
        self._check_open()
        key = self._partition(topic, partition)
        if not self._writable:
            return self._open_log(key)
        with self._guard:
            if key not in self._logs:
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
        if key not in self._logs and not self._fs.exists(join(self.path, directory_name(key))):
            known = self.topic(topic).partition_ids
            told = f"from {known[0]} to {known[-1]}" if len(known) > 1 else f"{known[0]} only"
            raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partition {partition}; it has {told}", path=self.path)
        return key

    def _open_log(self, key: TopicPartition) -> Log:
        directory = join(self.path, directory_name(key))
        self._fs.check_directory(directory, write=self._writable)
        known = self._catalog().topics.get(key.topic)
        foreign = not self._writable and self._fs.lock_owner(join(self.path, KAFKA_LOCK)) is not None
        source = Source(
            fs=self._fs,
            directory=directory,
            partition=key,
            config=TopicConfig() if known is None else TopicConfig.of(known.config),
            open_files=self._open_files,
            writable=self._writable,
            clean=self._marker is not None,
            foreign=foreign,
            recovery_point=self._recovery_points.get(key, 0),
            log_start=self._log_starts.get(key, 0),
        )
        log = Log(source, self._clock, self.durability, self._leave_clean_state)
        self._findings += log.recovery_report
        return log

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """What was found in the partitions opened so far: torn tails, damage, derived files that had to be made again."""
        return tuple(self._findings)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def _leave_clean_state(self) -> None:
        """Removes the clean-shutdown marker, durably, before the first write: a stale one would hide a crash."""
        if self._left_clean_state:
            return
        with self._guard:
            path = join(self.path, CLEAN_SHUTDOWN)
            if self._fs.exists(path):
                self._fs.remove(path)
                self._fs.sync_directory(self.path)
            self._left_clean_state = True

    def flush(self) -> None:
        """Makes every record appended so far durable.

        Raises:
            StorageFailedError: a sync failed.
        """
        self._check_open()
        for log in list(self._logs.values()):
            log.flush()

    def close(self) -> None:
        """Flushes and closes the logs, writes the checkpoints and the clean-shutdown marker, lets go of the locks.

        Raises:
            StorageFailedError: a sync failed; everything is closed all the same.
        """
        with self._guard:
            if self._closed:
                return
            self._closed = True
            try:
                if files.process_id() == self._pid and self._writable:
                    self._close_logs()
            finally:
                self._release_locks()

    def _close_logs(self) -> None:
        failures: list[PylogError] = []
        clean = True
        for log in self._logs.values():
            try:
                clean &= log.close()
            except PylogError as error:
                failures.append(error)
        if not failures:
            self._write_checkpoints()
            if clean and self._others_are_clean() and not self._fs.exists(join(self.path, CLEAN_SHUTDOWN)):
                files.write_atomically(self._fs, self.path, CLEAN_SHUTDOWN, NEW_MARKER if self._marker is None else self._marker)
        if failures:
            raise failures[0]

    def _write_checkpoints(self) -> None:
        """Recovery points and log starts of the partitions that were opened; the lines of the others are kept."""
        ends = {
            key: log.durable_offset for key, log in self._logs.items() if self._recovery_points.get(key) != log.durable_offset
        }
        starts = {
            key: log.start_offset
            for key, log in self._logs.items()
            if log.segments and log.start_offset > log.segments[0].base_offset
        }
        if ends:
            checkpoints.update_offsets(self._fs, self.path, RECOVERY_POINT, ends)
        if any(self._log_starts.get(key) != offset for key, offset in starts.items()):
            checkpoints.update_offsets(self._fs, self.path, LOG_START, starts)

    def _others_are_clean(self) -> bool:
        """Whether the partitions that were not opened need no recovery either (reliability 4, clean shutdown)."""
        if self._marker is not None:
            return True
        opened = {directory_name(key) for key in self._logs}
        return all(self._is_settled(join(self.path, name)) for name in self._topic_directories() if name not in opened)

    def _is_settled(self, directory: str) -> bool:
        """Whether a partition's durable point says that nothing was under way and its last file has that size."""
        slot, _ = read_slot(self._fs, directory)
        if slot is None:
            return not any(entry.name.endswith(LOG) and entry.size for entry in self._fs.list(directory))
        name = file_name(slot.active_base, LOG)
        sizes = [entry.size for entry in self._fs.list(directory) if entry.name == name]
        return slot.idle and sizes == [slot.published_position]


def open_store(
    path: str | os.PathLike[str],
    mode: str = "rw",
    *,
    durability: Durability = Durability.SYNC,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Store:
    """Opens a directory of topics: one of pylog's, or a Kafka broker's log directory.

    Args:
        path: the directory. With mode "rw" it is made when it does not exist.
        mode: "rw", or "r": take no lock and write nothing, also beside a running broker or on read-only media.
        durability: what an acknowledgement promises where a call does not say.
        fs, clock: another file system or clock, for tests.

    Returns:
        A `Store`, to be closed; it is a context manager.

    Raises:
        NotALogDirectoryError: missing, not a directory, or no permission.
        StoreLockedError: a Kafka broker or another pylog has it open for writing.
        InvalidArgumentError: an argument is not one of those named above.

    >>> import tempfile
    >>> with open_store(tempfile.mkdtemp()) as store:
    ...     store.topics()
    {}
    """
    if mode not in MODES:
        raise InvalidArgumentError(f"mode={mode!r} is not one of {', '.join(MODES)}")
    if not isinstance(durability, Durability):
        raise InvalidArgumentError(f"durability={durability!r} is not a pylog.Durability")
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or "\0" in os.fspath(path):
        raise InvalidArgumentError(f"path={path!r} is not a path")
    return Store(os.fspath(path), mode, durability, fs or OsFileSystem(), clock or SystemClock())
