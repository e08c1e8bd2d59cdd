"""Checks the partition directories against the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pylog.directory.checkpoints import CLEAN_SHUTDOWN, is_in_checkpoints
from pylog.directory.partition_metadata import METADATA, read_topic_id
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import PylogError, StorageFailedError
from pylog.fs import NAMES_ONLY, FileSystem, join
from pylog.log.checking.check import TEMPORARY, UNFINISHED
from pylog.log.checking.report import about, of_error
from pylog.log.recovery.findings import Finding
from pylog.record.types import TopicPartition
from pylog.segment.names import PARTITION_METADATA
from pylog.topics.catalog import Catalog, read_catalog, without
from pylog.topics.listing import made_again
from pylog.topics.partitions import directory_name


def check_catalog(fs: FileSystem, root: str, catalog: Catalog, *, quiet: bool) -> Iterator[Finding]:
    """Checks that each partition in the catalog has a directory with its topic's id (storage-format 3.4.2).

    Args:
        fs, root: the log directory.
        catalog: its content during the check.
        quiet: true if no process or thread writes there, so that incomplete topics are leftovers.
    """

    try:
        entries = fs.list(root, sizes=NAMES_ONLY)
        topics = without(catalog, made_again(fs, root, catalog, entries)).topics
        ids = {TopicPartition(name, at): topic.id for name, topic in topics.items() for at in range(topic.partitions)}
        listed = {entry.name: parse_partition_directory(entry.name) for entry in entries}
        for name, partition in listed.items():
            if name.endswith(TEMPORARY) and quiet:
                yield about("leftover", join(root, name), UNFINISHED)
            elif partition is not None and partition in ids:
                yield from _check_id(fs, root, partition, ids[partition], quiet=quiet)
        yield from _check_made(fs, root, ids, set(ids) - set(listed.values()))
    except StorageFailedError as error:
        yield of_error(error, root)


def was_made(fs: FileSystem, root: str, partition: TopicPartition) -> bool:
    """Returns whether a partition without a directory had one, as far as the other files show.

    The creator of a partition removes its checkpoint lines and the clean-shutdown marker before the catalog names it. A
    checkpoint gets a line when the partition has been written to, and the marker returns when all partitions are created.
    """
    return is_in_checkpoints(fs, root, partition) or fs.exists(join(root, CLEAN_SHUTDOWN))


def _check_made(fs: FileSystem, root: str, ids: Mapping[TopicPartition, str], lacking: set[TopicPartition]) -> Iterator[Finding]:
    """Yields partitions without a directory, as lost or not yet created. Skips those that changed during the check."""
    made = {partition for partition in lacking if was_made(fs, root, partition)}  # before the listing, which can only clear it
    catalog = read_catalog(fs, root) if lacking else Catalog()
    for partition in sorted(lacking):
        if not _has(catalog, partition, ids[partition]) or fs.exists(join(root, directory_name(partition))):
            continue
        message = f"has no directory for partition {partition.partition} of topic {partition.topic}, which its catalog names"
        if partition in made:
            yield about("missing", root, message)
        else:
            yield about("unmade", root, f"{message}: the topic's creator has not created it yet, or was killed before")


def _has(catalog: Catalog, partition: TopicPartition, topic_id: str) -> bool:
    """Returns whether a topic is still the same in a catalog that was read later, and not created again meanwhile."""
    topic = catalog.topics.get(partition.topic)
    return topic is not None and topic.id == topic_id


def _check_id(fs: FileSystem, root: str, partition: TopicPartition, expected: str, *, quiet: bool) -> Iterator[Finding]:
    """Yields a finding if a directory is of another topic than the catalog has. Skips a topic that changed during the check."""
    directory = join(root, directory_name(partition))
    path = join(directory, PARTITION_METADATA)
    metadata = METADATA.fetch_derived(fs, path)
    if metadata.withheld:  # its contents are unknown: replacing the file would lose them
        yield about("unreadable", path, f"cannot be read: {metadata.fault}")
        return
    try:
        found = read_topic_id(fs, directory)
        if found not in (None, expected) and (quiet or _has(read_catalog(fs, root), partition, expected)):
            yield about("derived", directory, f"has the topic id {found}, and the catalog says {expected}")
    except PylogError as error:
        yield of_error(error, directory, "derived")
