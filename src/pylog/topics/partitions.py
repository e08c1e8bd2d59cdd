"""A topic's partition directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pylog.arguments import items_of
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import InvalidArgumentError, NotALogDirectoryError, PylogError, UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, FileSystem
from pylog.record.types import TopicPartition
from pylog.topics.links import check_link

CLUSTER_METADATA: Final = "__cluster_metadata"  # a KRaft controller's log: no lock covers it, so it is never written


def directory_name(partition: TopicPartition) -> str:
    """Returns the name of a partition's directory: `<topic>-<partition>`.

    >>> directory_name(TopicPartition("orders", 3))
    'orders-3'
    """
    return f"{partition.topic}-{partition.partition}"


def partition_of(entry: DirectoryEntry) -> TopicPartition | None:
    """Returns the partition that a directory entry is; None for a controller's metadata log (storage-format 3.1).

    A symbolic link is one wherever it leads: if that is no directory, opening the partition says so.
    """
    partition = parse_partition_directory(entry.name) if entry.is_directory or entry.is_link else None
    return None if partition is None or partition.topic == CLUSTER_METADATA else partition


def check_partition_directory(fs: FileSystem, directory: str, *, write: bool) -> None:
    """Checks as `FileSystem.check_directory`. If the directory is missing now, another process has deleted the topic."""
    check_link(fs, directory)
    try:
        fs.check_directory(directory, write=write)
    except NotALogDirectoryError as error:
        if fs.exists(directory):  # created again, unless it is something else that has its name
            fs.check_directory(directory, write=write)
            return
        message = f"{directory} no longer exists: its topic was deleted meanwhile"
        raise UnknownTopicOrPartitionError(message, path=directory) from error


def for_each_partition(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Makes each partition's call, then raises the first error. Partitions that another process deleted are skipped."""
    results, errors = [], []
    for call in calls:
        try:
            results.append(call())
        except UnknownTopicOrPartitionError:
            continue
        except PylogError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return results


def partitions_given(given: object) -> tuple[TopicPartition, ...]:
    """Returns a caller's partitions. Their topics and numbers are not checked.

    Raises:
        InvalidArgumentError: it is no list of pairs.
    """
    found = items_of("partitions", given, "partitions")
    for each in found:
        if not isinstance(each, tuple) or len(each) != 2:
            raise InvalidArgumentError(f"{each!r} is not a partition: a pair of its topic and its number")
    return found
