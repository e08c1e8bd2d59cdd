"""`LogOpener`: opens one partition of a data directory, with its options, checkpoints and locks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pylog.background import Background
from pylog.clock import Clock
from pylog.directory.checkpoints import NEW_MARKER
from pylog.fs import FILES, WRITERS, FileSystem, HeldDirectory, join
from pylog.log.options import LiveOptions
from pylog.log.partition_log import PartitionLog
from pylog.log.recovery.archive_tier import Tier
from pylog.log.recovery.loaded import Source
from pylog.log.writing.partition_writer import LogContext
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.root_directory import RootDirectory
from pylog.topics.catalog import KnownCatalog
from pylog.topics.kept import WarnedTopics
from pylog.topics.listing import id_in_brokers_directory
from pylog.topics.partitions import check_partition_directory, directory_name
from pylog.topics.signs import META_PROPERTIES


class LogOpener:
    """Opens the logs of a data directory, for its `LogManager`.

    Args:
        path, options, fs, clock: the manager's.
        root: the files of the directory itself.
        background: runs the delayed flushes of the logs.
        tier: returns the archive of a partition; None in a store without one.

    Attributes:
        catalog: the options of the topics as pylog stores them.
        warned: the topics for which a warning about an option was logged.
    """

    def __init__(
        self,
        path: str,
        options: StoreOptions,
        fs: FileSystem,
        clock: Clock,
        root: RootDirectory,
        background: Background,
        tier: Callable[[TopicPartition], Tier | None],
    ) -> None:
        self.catalog = KnownCatalog(fs, path)
        self._path, self._options, self._fs, self._clock = path, options, fs, clock
        self._root = root
        self.warned = WarnedTopics()
        self._tier = tier
        self._background = background

    def names(self, key: TopicPartition) -> bool:
        """Returns whether the catalog alone decides that a partition exists, as in every directory that is not a broker's.

        Cost: one small read. A listing would take as long as the catalog has partitions, which may all be missing.
        """
        topic = self.catalog.read().topics.get(key.topic)
        known = topic is not None and 0 <= key.partition < topic.partitions
        return known and not self._fs.exists(join(self._path, META_PROPERTIES))

    def has_directory(self, key: TopicPartition) -> bool:
        """Returns whether a partition has a directory that is spelled as its name.

        A file system that ignores case finds the directory of `Orders` for `orders`, too. A second log of the same files would
        write beside the first one: their locks differ.

        Cost: two look-ups; where the file system ignores case, also a small read, or in a broker's directory a listing.
        """
        name = directory_name(key)
        other = name.swapcase()
        if not self._fs.exists(join(self._path, name)):
            return False
        if other == name or not self._fs.exists(join(self._path, other)):
            return True
        return self.names(key) or any(entry.name == name for entry in self._fs.list(self._path))

    def source(self, key: TopicPartition) -> Source:
        """Returns the files, options and locks of a partition, which loading it requires.

        Raises:
            UnknownTopicOrPartitionError, CorruptionError, ReadOnlyError: its directory cannot be used.
        """
        root, locks, writable = self._root, self._root.locks, self._options.mode == "rw"
        directory, name = join(self._path, directory_name(key)), directory_name(key)
        fs = HeldDirectory(self._fs, directory) if writable else self._fs
        check_partition_directory(self._fs, directory, write=writable)
        config = partial(self.catalog.config_of, key.topic, id_in_brokers_directory(self._fs, self._path, key))
        return Source(
            fs=fs,
            clock=self._clock,
            directory=directory,
            partition=key,
            options=LiveOptions(config, self._options.durability, key.topic, self.warned),
            open_files=FILES,
            writable=writable,
            clean=root.marker is not None,
            ours=root.marker == NEW_MARKER,
            foreign=not writable and root.has_broker(),
            recovery_points=root.recovery_points,
            log_starts=root.log_starts,
            lock=None if locks is None else locks.partition(name),
            root_lock=None if locks is None else locks.root,
            cleaned=root.cleaned,
            cleaning_lock=None if locks is None else locks.cleaner(name),
            tier=partial(self._tier, key),
        )

    def open(self, key: TopicPartition) -> PartitionLog:
        """Opens a log. Cost: as for recovery after an unclean shutdown, else a few small files."""
        root, disk, exclusive = self._root, self._root.full_disk, self._options.exclusive
        context = exclusive, root.leave_clean_state, root.report, self._flush_every, WRITERS, disk.freeing, disk.explain
        return PartitionLog(self.source(key), self._clock, LogContext(*context))

    def _flush_every(self, interval_ms: int, flush: Callable[[], None]) -> None:
        self._background.every(flush, interval_ms, flush)
