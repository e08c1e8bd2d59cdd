"""Finds the partitions of a directory and opens them read-only, damaged or not, whatever the directory's name is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from pylog.clock import Clock
from pylog.config import TopicConfig
from pylog.directory.archives import check_no_archive
from pylog.directory.checkpoints import CLEANER, LOG_START, NEW_MARKER, RECOVERY_POINT, Checkpoint, read_marker
from pylog.directory.locks import KAFKA_LOCK
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import NotALogDirectoryError, PylogError
from pylog.fs import FILES, WRITERS, FileSystem, absolute, base_name, join, parent_of, resolved
from pylog.log.checking.report import Partition, ReadPartition
from pylog.log.options import LiveOptions
from pylog.log.partition_log import PartitionLog
from pylog.log.recovery.archive_tier import Tier
from pylog.log.recovery.loaded import Source
from pylog.log.writing.partition_writer import LogContext
from pylog.record.types import TopicPartition
from pylog.segment.names import ARCHIVED, LOG, parse
from pylog.topics.catalog import Catalog, read_catalog
from pylog.topics.listing import find_topic, partitions_in
from pylog.topics.partitions import check_partition_directory
from pylog.topics.signs import is_log_directory
from pylog.topics.topic import Topic
from pylog.urls import is_url

if TYPE_CHECKING:
    from pylog.log_manager import LogManager


class PartitionDirectory(NamedTuple):
    """A partition's directory.

    Attributes:
        root: the log directory, with checkpoints and locks.
        directory: the partition's directory.
        key: topic and number; a directory with another name counts as partition 0 of a topic with that name.
        config: the topic's configuration; defaults if pylog does not know the topic.
    """

    root: str
    directory: str
    key: TopicPartition
    config: TopicConfig


def targets(fs: FileSystem, path: str) -> list[PartitionDirectory]:
    """Returns the partitions of a log directory, or the partition of a partition directory.

    Args:
        fs, path: the directory.

    Raises:
        NotALogDirectoryError: the directory does not exist, is not readable, or is an archive.
        InvalidArgumentError: the path is not valid.

    >>> import pylog, tempfile
    >>> from pylog.fs import OsFileSystem
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders", partition_count=2)
    >>> [target.key.partition for target in targets(OsFileSystem(), root)]
    [0, 1]
    """
    root = path if is_url(path) else absolute(path)
    fs.check_directory(path, write=False)
    entries = fs.list(root)
    if any(entry.is_file and _is_log(entry.name) for entry in entries):
        if not is_log_directory(fs.list(parent_of(root))):
            root = resolved(path)  # the parent of a link may not be the log directory
        name = base_name(root)
        only = parse_partition_directory(name) or TopicPartition(name, 0)
        return [PartitionDirectory(parent_of(root), root, only, _config_of(_catalog(fs, parent_of(root)), only.topic))]
    catalog = _catalog(fs, root)  # read once: the catalog of many topics is long
    found = partitions_in(fs, root, entries)
    if not found:
        check_no_archive(fs, root)
    return [PartitionDirectory(root, join(root, name), key, _config_of(catalog, key.topic)) for name, key in found.items()]


def _catalog(fs: FileSystem, root: str) -> Catalog | None:
    """Returns pylog's catalog of topics; None if it cannot be read."""
    try:
        return read_catalog(fs, root)
    except PylogError:
        return None


def _config_of(catalog: Catalog | None, topic: str) -> TopicConfig:
    """Returns a topic's configuration; defaults if pylog does not know the topic."""
    try:
        return TopicConfig() if catalog is None else catalog.config_of(topic)
    except PylogError:
        return TopicConfig()


def _is_log(name: str) -> bool:
    found = parse(name)
    return found is not None and found.suffix == LOG


def partition_reader(fs: FileSystem, target: PartitionDirectory, clock: Clock) -> ReadPartition:
    """Returns a function that opens the partition later. It takes no lock and writes nothing."""
    return partial(_opened, fs, target, clock)


def _opened(fs: FileSystem, target: PartitionDirectory, clock: Clock) -> Partition:
    check_partition_directory(fs, target.directory, write=False)
    log = PartitionLog(_source(fs, target, clock), clock, _ALONE)
    return log.for_checks(quiet=False)


def _source(fs: FileSystem, target: PartitionDirectory, clock: Clock) -> Source:
    root = target.root
    marker = read_marker(fs, root)
    return Source(
        fs=fs,
        directory=target.directory,
        partition=target.key,
        options=LiveOptions(lambda: target.config),
        open_files=FILES,
        writable=False,
        clean=marker is not None,
        ours=marker == NEW_MARKER,
        foreign=is_in_use(fs, root),
        recovery_points=Checkpoint(fs, root, RECOVERY_POINT),
        log_starts=Checkpoint(fs, root, LOG_START),
        cleaned=Checkpoint(fs, root, CLEANER),
        tier=partial(_tier, fs, target, clock),
    )


class _ReadStore(NamedTuple):
    """A log directory, as the archive of a partition in it needs it."""

    fs: FileSystem
    path: str
    clock: Clock
    writable: bool = False
    locks: None = None

    def topic(self, name: str) -> Topic:
        """Returns one topic."""
        return find_topic(self.fs, self.path, name)


def _tier(fs: FileSystem, target: PartitionDirectory, clock: Clock) -> Tier | None:
    """Returns the archive of a tiered partition."""
    if not fs.exists(join(target.directory, ARCHIVED)):
        return None
    from pylog.archive.tiers import PartitionTier, Tiers  # few directories have an archive

    store = cast("LogManager", _ReadStore(fs, target.root, clock))
    return PartitionTier(Tiers(store, None), store, target.key)


def is_in_use(fs: FileSystem, root: str) -> bool:
    """Returns True if a broker has the log directory open. The end of a log may be in the middle of a write then."""
    return bool(fs.lock_owner(join(root, KAFKA_LOCK)))


def _nothing(*_: object) -> None:
    """Does nothing: a log that is only read does not call its store."""


_ALONE: Final = LogContext(False, _nothing, _nothing, _nothing, WRITERS)


def sizes_of(fs: FileSystem, target: PartitionDirectory) -> dict[str, int]:
    """Returns the sizes of a partition's files in bytes, by name.

    Raises:
        NotALogDirectoryError: the directory was deleted.
        StorageFailedError: the directory cannot be read.
    """
    if not fs.exists(target.directory):
        raise NotALogDirectoryError(f"{target.directory} was deleted; list the log directory again", path=target.directory)
    return {entry.name: entry.size for entry in fs.list(target.directory) if entry.is_file}
