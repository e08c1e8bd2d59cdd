"""The partitions that a read asks for, and the log directories that have them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pylog.directory.partition_metadata import read_topic_id
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import CorruptionError, InvalidArgumentError, UnknownTopicOrPartitionError
from pylog.fs import OsFileSystem, join
from pylog.record.types import TopicPartition
from pylog.spark.access import NO_ACCESS, Access
from pylog.spark.options import (
    AtOffsets,
    AtTimestamps,
    Limit,
    ListedPartitions,
    ListedTopics,
    TopicPattern,
    TopicSelection,
)
from pylog.spark.roots import Root
from pylog.spark.values import named
from pylog.topics.partitions import directory_name
from pylog.urls import is_url


@contextlib.contextmanager
def opened(paths: Iterable[str], access: Access = NO_ACCESS) -> Iterator[dict[str, Root]]:
    """Opens log directories and archives, and returns them by path.

    Args:
        paths: log directories, and URLs of archives.
        access: how to reach the buckets of URLs, and a broker's remote tier.
    """
    with contextlib.ExitStack() as stack:
        yield {path: stack.enter_context(contextlib.closing(Root(path, access))) for path in paths}


def check_paths(paths: Iterable[str], access: Access = NO_ACCESS) -> None:
    """Checks that each directory exists and may be read, so that a wrong path is reported when a query is analysed.

    Args:
        paths: log directories, and URLs of archives.
        access: how to reach the buckets of URLs. A broker's remote tier is read when the query is planned.

    Raises:
        NotALogDirectoryError: one is missing or no directory, or there is no archive.
    """
    for path in paths:
        if is_url(path) and access.tier is None:
            Root(path, access).close()
        elif is_url(path):
            continue
        else:
            OsFileSystem().check_directory(path, write=False)


def directories(roots: Mapping[str, Root], paths: Sequence[str]) -> dict[TopicPartition, list[str]]:
    """Returns all partitions, each with the log directories that have it.

    Args:
        roots: by path.
        paths: as the user gave them.

    Raises:
        InvalidArgumentError: one is named twice.
    """
    if len(roots) < len(paths):
        raise InvalidArgumentError(f"path names a directory twice: {', '.join(paths)}")
    found: dict[TopicPartition, list[str]] = {}
    for path, root in roots.items():
        for topic in root.topics().values():
            for number in topic.partition_ids:
                found.setdefault(TopicPartition(topic.name, number), []).append(path)
    return found


def single_paths(
    existing: Mapping[TopicPartition, Sequence[str]], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """Returns partitions, each with the one directory that has it.

    Args:
        existing: what `directories` found.
        partitions: some of them.

    Raises:
        InvalidArgumentError: a partition is in two directories.
    """
    log_dirs = {}
    for partition in sorted(partitions):
        log_dir, *others = existing[partition]
        if others:
            raise InvalidArgumentError(
                f"partition {named(partition)} is in {' and in '.join(existing[partition])}; "
                "several directories in `path` are those of one broker, which keeps a partition in one of them",
                path=others[0],
            )
        log_dirs[partition] = log_dir
    return log_dirs


def topic_ids(log_dirs: Mapping[TopicPartition, str], roots: Mapping[str, Root] | None = None) -> dict[str, str]:
    """Returns the topics' ids from the first partition of each; topics of brokers before 2.8 have none.

    Args:
        log_dirs: partitions, each with its log directory.
        roots: the same, opened, by path; needed for archives and tiers.

    Cost: a small file of each topic.
    """
    firsts = {partition.topic: partition for partition in sorted(log_dirs, reverse=True)}
    found = {topic: _id_in(log_dirs[first], first, roots or {}) for topic, first in firsts.items()}
    return {topic: an_id for topic, an_id in found.items() if an_id is not None}


def _id_in(log_dir: str, partition: TopicPartition, roots: Mapping[str, Root]) -> str | None:
    root = roots.get(log_dir)
    return topic_id(log_dir, partition) if root is None else root.topic_id(partition)


def topic_id(log_dir: str, partition: TopicPartition) -> str | None:
    """Returns the id of a partition's topic; None if no file has it.

    Args:
        log_dir: the log directory that has the partition.
        partition: the partition.
    """
    with contextlib.suppress(CorruptionError):  # an id is not needed to read
        return read_topic_id(OsFileSystem(), join(log_dir, directory_name(partition)))
    return None


def chosen(existing: Iterable[TopicPartition], subscription: TopicSelection, paths: Sequence[str]) -> set[TopicPartition]:
    """Returns those of the partitions that a subscription selects.

    Args:
        existing: all partitions.
        subscription: what the options say.
        paths: where they are, for the error.

    Raises:
        UnknownTopicOrPartitionError: it asks for a topic or a partition that is not there.

    >>> chosen([TopicPartition("a", 0), TopicPartition("b", 0)], TopicPattern("a|c"), [])
    {TopicPartition(topic='a', partition=0)}
    """
    found = matching(existing, subscription)
    match subscription:
        case ListedTopics(names):
            missing = sorted(set(names) - {partition.topic for partition in found})
            _refuse_unknown("topic", ", ".join(missing), paths)
        case ListedPartitions(partitions):
            _refuse_unknown("partition", named(*(partitions - found)), paths)
    return found


def matching(existing: Iterable[TopicPartition], subscription: TopicSelection) -> set[TopicPartition]:
    """Returns the existing partitions that match, and ignores missing ones.

    Args:
        existing: all partitions.
        subscription: what the options say.

    >>> matching([TopicPartition("a", 0)], ListedTopics(("a", "b")))
    {TopicPartition(topic='a', partition=0)}
    """
    match subscription:
        case ListedTopics(names):
            return {partition for partition in existing if partition.topic in names}
        case TopicPattern(pattern):
            matches = re.compile(pattern).search
            existing = set(existing)
            topics = {topic for topic, _ in existing if topic not in INTERNAL_TOPICS and matches(topic)}
            return {partition for partition in existing if partition.topic in topics}
        case ListedPartitions(partitions):
            return set(existing) & partitions


def _refuse_unknown(what: str, names: str, paths: Sequence[str]) -> None:
    if names:
        raise UnknownTopicOrPartitionError(f"no {what} {names} in {', '.join(paths)}", path=paths[0] if paths else None)


def check_all_named(limit: Limit, partitions: Iterable[TopicPartition], name: str) -> None:
    """Checks that offsets by partition name every partition that is read and no other, as the connector demands.

    Args:
        limit: a start or an end.
        partitions: that are read.
        name: the option's name.

    Raises:
        InvalidArgumentError: it names others, or not all.
    """
    if isinstance(limit, AtTimestamps):
        given, name, hint = limit.timestamps.keys(), f"{name}ByTimestamp", ""
    elif isinstance(limit, AtOffsets):
        given, hint = limit.offsets.keys(), " (-2 is the earliest offset, -1 the latest)"
    else:
        return
    missing, needless = set(partitions) - given, given - set(partitions)
    if missing or needless:
        parts = [f"missing: {named(*missing)}"] if missing else []
        parts += [f"not read: {named(*needless)}"] if needless else []
        raise InvalidArgumentError(f"{name} must name every partition that is read, and no other{hint}; {'; '.join(parts)}")
