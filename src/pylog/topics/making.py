"""Creates topics and partitions: checks the arguments, and creates the directories."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pylog import limits, trace
from pylog.arguments import checked_int
from pylog.config import TopicConfig, topic_config
from pylog.directory.checkpoints import is_in_checkpoints
from pylog.directory.partition_metadata import format_partition_metadata, new_topic_id
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import (
    CorruptionError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidTopicError,
    NotALogDirectoryError,
    StorageFailedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import NAMES_ONLY, FileSystem, join, parent_of, write_atomically
from pylog.record.types import TopicPartition
from pylog.segment.names import PARTITION_METADATA
from pylog.text import counted
from pylog.topics.catalog import CatalogTopic, check_room
from pylog.topics.links import check_link
from pylog.topics.listing import is_kraft_brokers
from pylog.topics.partitions import directory_name
from pylog.topics.signs import META_PROPERTIES, is_directory
from pylog.topics.topic import Topic


def check_new(root: str, name: str, present: Iterable[str]) -> None:
    """Refuses a name that differs from another one only in '.' and '_', as Kafka does, or in case, as some file systems do."""
    for other in present:
        if other == name:
            raise TopicAlreadyExistsError(f"topic {name!r} exists already; pass exist_ok=True to use it as it is", path=root)
        if other.replace(".", "_").lower() == name.replace(".", "_").lower():
            raise TopicAlreadyExistsError(
                f"topic {name!r} is too similar to {other!r}: they differ only in '.' and '_' or in case", path=root
            )


def check_may_be_made(fs: FileSystem, root: str, topic: str, numbers: range) -> None:
    """Refuses new partitions before the catalog names them, in these cases:

    * The directory would have more partitions than pylog allows.
    * A broker would set them aside at its start, with all records that were acknowledged in them.
    * Files or links have their names.
    """
    check_room(fs, root, topic, numbers.stop)
    if is_kraft_brokers(fs, root):
        message = f"{root} belongs to a Kafka broker, and only the broker can create partitions of {topic!r}; if it is never "
        raise IllegalStateError(f"{message}to start on this directory again, remove {META_PROPERTIES} there", path=root)
    file_names = {entry.name for entry in fs.list(root, sizes=NAMES_ONLY) if not entry.is_directory}
    for found in sorted(file_names & {directory_name(TopicPartition(topic, number)) for number in numbers}):
        path = join(root, found)
        raise NotALogDirectoryError(f"{path} is not a directory, so partition {found} cannot be created; move it away", path=path)


def check_partition_count(count: object) -> int:
    """Returns a number of partitions after checking it."""
    return checked_int("partition_count", count, 1, limits.MAX_PARTITIONS)


def check_more(fs: FileSystem, root: str, topic: Topic, count: int) -> int:
    """Refuses a number of partitions that is not larger than the present one, which it returns.

    An internal topic's number is fixed: it decides which partition holds the records of each group or transaction.
    """
    present = topic.partition_ids[-1] + 1
    if topic.name in INTERNAL_TOPICS:
        raise InvalidTopicError(
            f"{topic.name} is one of Kafka's internal topics: its number of partitions, {present}, stays, or its records "
            "would no longer be found"
        )
    if count <= present:
        verb, wanted = "reduce" if count < present else "set", counted(count, "partition")
        message = f"cannot {verb} {topic.name!r} to {wanted}: it has {present}, and partitions can only be added"
        raise InvalidArgumentError(message)
    check_may_be_made(fs, root, topic.name, range(present, count))
    return present


def make_root(fs: FileSystem, root: str) -> None:
    """Creates a log directory, durably.

    Raises:
        NotALogDirectoryError: its parent directory is missing or cannot be written.
    """
    parent = parent_of(root)
    if not fs.exists(parent):
        raise NotALogDirectoryError(f"cannot create {root}: the directory {parent} does not exist; create it first", path=root)
    try:
        fs.check_directory(parent, write=True)
    except NotALogDirectoryError as error:
        raise NotALogDirectoryError(f"cannot create {root}: {error}, or choose another directory", path=root) from error
    fs.make_directory(root)
    fs.sync_directory(parent)


def check_writable(fs: FileSystem, root: str, instead: str) -> None:
    """Checks that a log directory can be written. If it can only be read, the error says what to do instead.

    Args:
        fs: the file system.
        root: the directory.
        instead: how to read it, as the end of the error's sentence.

    Raises:
        NotALogDirectoryError: it is no directory, or this process may not write there.
    """
    try:
        fs.check_directory(root, write=True)
    except NotALogDirectoryError as error:
        if not is_directory(fs, root):
            raise
        raise NotALogDirectoryError(f"{error}, or {instead}", path=root) from error


def sync_name(fs: FileSystem, root: str) -> None:
    """Makes the name of a log directory durable: the process that created it may have died before it could.

    A parent directory that this user cannot open is left alone: somebody else has created the log directory.
    """
    try:
        fs.sync_directory(parent_of(root))
    except StorageFailedError as error:
        if error.errno not in (errno.EACCES, errno.EPERM):
            raise


def make_partitions(fs: FileSystem, root: str, topic: str, topic_id: str, numbers: Iterable[int]) -> None:
    """Creates the missing partition directories, each with its `partition.metadata`, durably.

    A directory with that file has a durable name. Otherwise, after a failure between the two, a synced record could be appended
    to a directory that a power loss removes.
    """
    directories = [join(root, directory_name(TopicPartition(topic, number))) for number in numbers]
    for directory in directories:
        if fs.exists(directory):
            check_link(fs, directory)
            fs.check_directory(directory, write=True)
        else:
            fs.make_directory(directory)
    fs.sync_directory(root)
    for directory in directories:
        if not fs.exists(join(directory, PARTITION_METADATA)):
            write_atomically(fs, directory, PARTITION_METADATA, format_partition_metadata(topic_id))


def complete_partitions(fs: FileSystem, root: str, topic: str, topic_id: str, numbers: Collection[int]) -> None:
    """Creates the missing partition directories of a topic that exists, and logs a line for each.

    The topic's creator died before it had created them; or they were removed. A broker creates the latter again, too. The log
    then begins at the offset that it had reached, as far as the checkpoint of recovery points has it.
    """
    keys = [TopicPartition(topic, number) for number in numbers]
    removed = {key for key in keys if is_in_checkpoints(fs, root, key) and not fs.exists(join(root, directory_name(key)))}
    make_partitions(fs, root, topic, topic_id, numbers)
    for key in keys:
        if key in removed:
            facts = {"path": join(root, directory_name(key)), "reason": "its directory was removed; a checkpoint lists it"}
            trace.later(trace.PARTITION_CREATED_AGAIN, key, **facts, then="restore the directory before the next append")
        else:
            trace.later(trace.PARTITION_COMPLETED, key, reason="its creator did not get to it")


def check_same(topic: Topic, partition_count: int | None, options: Mapping[str, Any]) -> None:
    """Refuses a topic that exists already, and differs from the topic that a caller wants to create.

    Args:
        topic: the topic.
        partition_count: the wanted number of partitions; None accepts any.
        options: the wanted options; others may have any value.

    Raises:
        TopicAlreadyExistsError: a value differs; the message lists those that do.
    """
    wanted = topic_config(options)
    compared: dict[str, tuple[object, object]] = {name: (getattr(topic.config, name), getattr(wanted, name)) for name in options}
    if partition_count is not None:
        compared["partition_count"] = topic.partition_count, partition_count
    differences = ", ".join(f"{name} is {old!r}, not {new!r}" for name, (old, new) in compared.items() if old != new)
    if differences:
        raise TopicAlreadyExistsError(f"topic {topic.name!r} exists already, and differs: {differences}")


def check_settable(options: Mapping[str, Any]) -> None:
    """Refuses a value of an option that pylog would accept and not follow.

    Raises:
        InvalidArgumentError: `file_delete_delay_ms` is neither 0 nor Kafka's default.
    """
    given = options.get("file_delete_delay_ms")
    if type(given) is int and 0 < given != TopicConfig().file_delete_delay_ms:
        raise InvalidArgumentError(
            f"file_delete_delay_ms={given} has no effect here: pylog deletes the files of a deleted segment as soon as no reader "
            "of its process uses them, and a reader in another process keeps the files that it has open. Leave the option out, "
            "or use 0"
        )


def altered(topic: Topic, options: Mapping[str, Any]) -> CatalogTopic:
    """Returns the entry of a topic whose configuration changes.

    Args:
        topic: as it is.
        options: options of `TopicConfig` by name; None is the option's default.

    Raises:
        InvalidArgumentError: no such option or value; or the store has only some of the topic's partitions: an entry would have
            the others made, empty.
    """
    if topic.partition_ids != tuple(range(topic.partition_count)):
        some = ", ".join(map(str, topic.partition_ids[:10]))
        raise InvalidArgumentError(
            f"only partitions {some} of topic {topic.name!r} are in this store; alter the topic in a store that has all of them"
        )
    defaults = TopicConfig()
    given = {name: getattr(defaults, name, None) if value is None else value for name, value in options.items()}
    config = topic_config(topic.config.changed() | given)
    _check_turned_off(topic, config)
    if topic.name in INTERNAL_TOPICS and "cleanup_policy" in options and config.cleanup_policy != "compact":
        raise InvalidArgumentError(
            f"cleanup_policy={config.cleanup_policy!r} would delete records of {topic.name} that are still needed: committed "
            "offsets, or the states of transactions; it stays 'compact'"
        )
    return CatalogTopic(topic.id or new_topic_id(), topic.partition_count, config.changed())


def _check_turned_off(topic: Topic, config: TopicConfig) -> None:
    """Refuses to turn off tiering without a word about the records in the archive, as Kafka does."""
    if topic.config.remote_storage_enable and not (config.remote_storage_enable or config.remote_log_delete_on_disable):
        raise InvalidArgumentError(
            f"remote_storage_enable=False would leave records of topic {topic.name!r} that are only in the archive; with "
            "remote_log_delete_on_disable=True as well they are deleted; remote_log_copy_disable=True keeps them and uploads no "
            "more"
        )


def check_completable(fs: FileSystem, root: str, key: TopicPartition, *, write: bool) -> None:
    """Raises unless a missing directory of a topic's partition can be created: its topic's creator died before that.

    Args:
        fs, root: the log directory.
        key: the partition.
        write: whether the directory is open for writing.

    Raises:
        CorruptionError: it was there once. UnknownTopicOrPartitionError: only a writer of pylog's may create it.
    """
    path = join(root, directory_name(key))
    if not write and is_in_checkpoints(fs, root, key):
        message = f"{path} is missing, but a checkpoint lists the partition; restore the directory from a backup"
        raise CorruptionError(message, path=path)
    if not write or is_kraft_brokers(fs, root):
        message = f"{directory_name(key)} is incomplete: its creator is running or died; a writer completes it"
        raise UnknownTopicOrPartitionError(message, path=root)
