"""Whether the directories are those that the catalog names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pylog.errors import PylogError, StorageFailedError
from pylog.fs import FileSystem, join
from pylog.log.checkpoints import parse_partition_directory, read_topic_id
from pylog.record.types import TopicPartition
from pylog.topics.catalog import Catalog, without
from pylog.topics.listing import made_again

if TYPE_CHECKING:
    from pylog.log.recovery import Finding


def check_catalog(fs: FileSystem, root: str, catalog: Catalog, *, quiet: bool) -> Iterator[Finding]:
    """Each partition that the catalog names has a directory with its topic's id (storage-format 3.4.2).

    Args:
        fs, root: the log directory.
        catalog: as it is meanwhile.
        quiet: nobody writes files there, no thread of this process either: what looks unfinished is left over.
    """
    from pylog.log.check import TEMPORARY, UNFINISHED  # with the engine, which who only asks for names does not need
    from pylog.log.report import about, of_error

    try:
        entries = fs.list(root)
        topics = without(catalog, made_again(fs, root, catalog, entries)).topics
        ids = {TopicPartition(name, at): topic.id for name, topic in topics.items() for at in range(topic.partitions)}
        listed = {entry.name: parse_partition_directory(entry.name) for entry in entries}
        for name, partition in listed.items():
            if name.endswith(TEMPORARY) and quiet:
                yield about("leftover", join(root, name), UNFINISHED)
            elif partition is not None and partition in ids:
                yield from _check_id(fs, join(root, name), ids[partition])
        for topic, number in sorted(set(ids) - set(listed.values())):
            yield about("missing", root, f"has no directory for partition {number} of topic {topic}, which its catalog names")
    except StorageFailedError as error:
        yield of_error(error, root)


def _check_id(fs: FileSystem, directory: str, expected: str) -> Iterator[Finding]:
    from pylog.log.report import about, of_error

    try:
        found = read_topic_id(fs, directory)
        if found not in (None, expected):
            yield about("derived", directory, f"has the topic id {found}, and the catalog says {expected}")
    except StorageFailedError as error:  # nobody knows what it holds: made again, it would be lost
        yield of_error(error, directory)
    except PylogError as error:
        yield of_error(error, directory, "derived")
