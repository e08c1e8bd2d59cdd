"""Completes the changes of topics that an earlier process decided and did not finish."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Container, Mapping
from typing import Final

from pylog import trace
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, CLEANER, LOG_START, RECOVERY_POINT
from pylog.errors import PylogError
from pylog.fs import NAMES_ONLY, DirectoryEntry, FileSystem, join
from pylog.record.types import TopicPartition
from pylog.segment.names import TEMPORARY
from pylog.topics.catalog import CATALOG, read_catalog, without, write_catalog
from pylog.topics.deleting import delete_directories, remove_strays
from pylog.topics.listing import is_kraft_brokers, made_again, present_numbers
from pylog.topics.making import complete_partitions

_WRITTEN_WHILE_ALONE_OR_UNDER_THE_LOCK: Final = (CATALOG, RECOVERY_POINT, LOG_START, CLEANER, CLEAN_SHUTDOWN)


def is_finished(fs: FileSystem, root: str, present: Container[TopicPartition]) -> bool:
    """Returns whether all partitions in the catalog exist: a creator that died may have left some out.

    Args:
        fs, root: the log directory.
        present: the partitions that have a directory.
    """
    try:
        topics = read_catalog(fs, root).topics
    except PylogError:
        return True  # its topics are unknown
    lacking = any(TopicPartition(name, at) not in present for name, topic in topics.items() for at in range(topic.partitions))
    return not lacking or is_kraft_brokers(fs, root)  # where only the broker makes them


def finish_changes(fs: FileSystem, root: str, *, broker_was_last: bool) -> dict[str, str]:
    """Completes what an earlier process decided and did not get to do: topics made and deleted. Under the root's lock, by a
    process that found no other process there.

    Args:
        fs, root: the log directory.
        broker_was_last: a broker has closed it cleanly, and no process of pylog died after that while it made a topic: one
            without any directory is one that the broker deleted.

    Returns:
        The directories that were deleted, with their names before. The catalog lists them until the caller has deleted the data
        that depends on their topics, too.
    """
    catalog = read_catalog(fs, root)
    finished = _finish_deletions(fs, root, catalog.deleting) if catalog.deleting else {}
    entries = fs.list(root, sizes=NAMES_ONLY)
    if remove_strays(fs, root, entries):
        entries = fs.list(root, sizes=NAMES_ONLY)
    _remove_unfinished(fs, root, entries)
    present, deleted, is_brokers = present_numbers(entries), made_again(fs, root, catalog, entries), is_kraft_brokers(fs, root)
    deleted += [name for name in catalog.topics if (broker_was_last or is_brokers) and name not in present]
    if deleted:
        trace.later(trace.TOPICS_DROPPED, path=root, topics=deleted)
        catalog = without(catalog, deleted)
        write_catalog(fs, root, catalog)
    if is_brokers:
        return finished  # it would set aside what is made here
    for name, topic in catalog.topics.items():
        if missing := sorted(set(range(topic.partitions)) - set(present.get(name, ()))):
            complete_partitions(fs, root, name, topic.id, missing)
    return finished


def _finish_deletions(fs: FileSystem, root: str, names: Mapping[str, str]) -> dict[str, str]:
    """Deletes the directories whose deletion a process decided and did not finish. Returns those that were deleted."""
    left = delete_directories(fs, root, names, "its topic was deleted by a process that did not finish")
    trace.later(trace.DELETION_FINISHED, path=root, directories=sorted(names.keys() - left.keys()))
    return {name: target for name, target in names.items() if name not in left}


def _remove_unfinished(fs: FileSystem, root: str, entries: Collection[DirectoryEntry]) -> None:
    """Removes the temporary files of a dead process, which no other process can be writing now."""
    unfinished = {name + TEMPORARY for name in _WRITTEN_WHILE_ALONE_OR_UNDER_THE_LOCK}
    for entry in entries:
        if entry.is_file and entry.name in unfinished:
            with contextlib.suppress(PylogError):  # a leftover does no harm
                fs.remove(join(root, entry.name))
                trace.later(
                    trace.LEFTOVERS_REMOVED, path=join(root, entry.name), reason="its process died before it was complete"
                )
