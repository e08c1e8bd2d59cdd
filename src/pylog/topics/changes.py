"""`TopicChanges`: creates, alters and deletes topics while other processes may do the same, under the locks that each needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pylog import trace
from pylog.config import TopicConfig, topic_config
from pylog.directory.checkpoints import LOG_START, Checkpoint
from pylog.directory.locks import StoreLocks
from pylog.directory.partition_metadata import new_topic_id
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import IllegalStateError
from pylog.fs import FileSystem, join
from pylog.log.durable_point import mark_of, mark_options
from pylog.log.recovery.archive_tier import NoTiers, StoreTiers
from pylog.log.recovery.tier import begins_in_tier
from pylog.record.types import TopicPartition
from pylog.segment.names import PARTITION_METADATA
from pylog.topics.catalog import CatalogTopic, KnownCatalog, read_catalog, write_topic
from pylog.topics.deleting import (
    BegunDeletion,
    decide_deletion,
    deletion_of,
    free_names,
    note_removed,
    pending_names,
    remove_directories,
    rename_deleted,
)
from pylog.topics.links import check_deletable
from pylog.topics.listing import find_topic, find_topics
from pylog.topics.making import altered, check_may_be_made, check_more, check_new, complete_partitions, make_partitions
from pylog.topics.partitions import directory_name, for_each_partition
from pylog.topics.retention_text import retention_text
from pylog.topics.signs import META_PROPERTIES
from pylog.topics.topic import Topic, changes_between, check_partition


class TopicChanges:
    """Changes the topics of a directory that is open for writing. A refused change leaves everything as it was.

    Args:
        fs, root: the log directory.
        locks: the process's locks there.
        checkpoints: the checkpoints that a deleted partition is removed from.

    Attributes:
        tiers: the archive of the store.
        forget: deletes the data that depends on a deleted topic, by its name: committed offsets. It is called when the topic's
            directories have other names, before the catalog's list of deletions lacks them. So no crash leaves such data.
    """

    def __init__(self, fs: FileSystem, root: str, locks: StoreLocks, checkpoints: Sequence[Checkpoint]) -> None:
        self._fs = fs
        self._root = root
        self._locks = locks
        self._checkpoints = checkpoints
        self._catalog = KnownCatalog(fs, root)  # a deletion asks for it once for each partition
        self.forget: Callable[[str], object] = lambda topic: None  # noqa: ARG005 - until the store sets it
        self.tiers: StoreTiers = NoTiers()

    def create(self, name: str, count: int, config: TopicConfig) -> Topic | None:
        """Makes a topic. Returns None if `free_names` must be called first."""
        with self._locks.root.entered():
            if self._is_name_pending(name):
                return None
            check_new(self._root, name, find_topics(self._fs, self._root))
            check_may_be_made(self._fs, self._root, name, range(count))
            self.tiers.check(config)
            topic = self._make(name, CatalogTopic(new_topic_id(), count, config.changed()), range(count))
        options = [f"{option}={value}" for option, value in config.changed().items()]
        facts = {"partitions": count, "id": topic.id, "options": options, "retention": retention_text(config)}
        trace.line(trace.TOPIC_CREATED, topic=name, **facts)
        return topic

    def add_partitions(self, name: str, count: int) -> Topic | None:
        """Raises a topic's number of partitions. Returns None if `free_names` must be called first."""
        with self._locks.root.entered():
            if self._is_name_pending(name):
                return None
            topic = find_topic(self._fs, self._root, name)
            present = check_more(self._fs, self._root, topic, count)
            changed = CatalogTopic(topic.id or new_topic_id(), count, topic.config.changed())
            made = self._make(name, changed, range(present, count))
        trace.line(trace.PARTITIONS_ADDED, topic=name, old=present, new=count)
        return made

    def _make(self, name: str, topic: CatalogTopic, numbers: Iterable[int]) -> Topic:
        """Creates partitions of a topic before the catalog names it. Ignores leftovers of a deleted topic of the same name."""
        self._forget_ends(name, numbers)
        write_topic(self._fs, self._root, name, topic)
        make_partitions(self._fs, self._root, name, topic.id, numbers)
        self._locks.keep_room()
        return find_topic(self._fs, self._root, name)

    def is_half_made(self, key: TopicPartition) -> bool:
        """Returns whether a partition of pylog's topic lacks its `partition.metadata`. A broker writes that of its own topics."""
        if self._fs.exists(join(self._root, directory_name(key), PARTITION_METADATA)):
            return False
        return key.topic in read_catalog(self._fs, self._root).topics and not self._fs.exists(join(self._root, META_PROPERTIES))

    def complete(self, key: TopicPartition) -> None:
        """Makes the directory of a partition, or its `partition.metadata`, that its topic's maker did not get to."""
        with self._locks.root.entered():
            known = find_topic(self._fs, self._root, key.topic)  # read again, so that a topic deleted in between is not restored
            check_partition(self._root, known, key.partition)
            complete_partitions(self._fs, self._root, key.topic, known.id or new_topic_id(), [key.partition])

    def alter(self, name: str, options: Mapping[str, Any]) -> tuple[Topic, Topic]:
        """Changes a topic's configuration: options by name, None for the default. Returns the topic before and after."""
        with self._locks.root.entered():
            before = find_topic(self._fs, self._root, name)
            entry = altered(before, options)
            self.tiers.check(topic_config(entry.config))
            write_topic(self._fs, self._root, name, entry)
            after = find_topic(self._fs, self._root, name)
        for option, old, new in changes_between(before.config, after.config):
            trace.line(trace.TOPIC_ALTERED, topic=name, option=option, old=old, new=new)
        return before, after

    def announce(self, topic: Topic) -> None:
        """Has the logs of a topic take its options as they stand, in every process: none is in the middle of an append by older
        ones when this returns.

        Raises:
            StoreLockedError, StorageFailedError: raised for one partition, when all others are done.
        """
        for_each_partition(partial(self._announce, TopicPartition(topic.name, number)) for number in topic.partition_ids)

    def _announce(self, partition: TopicPartition) -> None:
        name = directory_name(partition)
        directory = join(self._root, name)
        with self._locks.partition(name).entered():
            if self._fs.exists(directory):
                config = read_catalog(self._fs, self._root).config_of(partition.topic)
                mark_options(self._fs, directory, mark_of(config))

    def deletion(self, name: str) -> Callable[[], BegunDeletion]:
        """Returns the deletion of a topic, which no crash undoes once it has returned. If it fails, it can be called again: it
        then goes on with the same topic, even if another process has made a topic of that name since.

        `note_deleted` ends it.
        """
        return partial(self._delete, name, [])

    def _delete(self, name: str, begun: list[BegunDeletion]) -> BegunDeletion:
        with self._locks.root.entered():
            if not begun:
                found = find_topic(self._fs, self._root, name)  # another store may have deleted and created it in between
                self.check_deletable(found)
                self.tiers.deleting(name, found.id, found.partition_ids, found.config)
                begun.append(deletion_of(self._fs, self._root, found))
            self._decide(*begun)
        for directory, target in begun[0].directories.items():
            self._rename(directory, target)
        remove_directories(self._fs, self._root, begun[0].directories.values(), "its topic was deleted")
        return begun[0]

    def note_deleted(self, done: BegunDeletion) -> None:
        """Ends a deletion, when the data that depends on the topic is deleted, too."""
        self.note_finished(done.directories)
        topic = done.topic
        trace.line(trace.TOPIC_DELETED, topic=topic.name, partitions=topic.partition_ids, id=topic.id)

    def _decide(self, begun: BegunDeletion) -> None:
        """Decides a deletion, unless an earlier attempt did. Under the root's lock."""
        name, numbers = begun.topic.name, begun.topic.partition_ids
        existing = find_topics(self._fs, self._root).get(name)
        if existing is None:
            self._fs.sync_directory(self._root)  # the attempt that decided it may have failed before this
        elif existing.id != begun.topic.id:
            return  # the directories of the deleted one had other names before this one was made
        else:
            decide_deletion(self._fs, self._root, begun)
        self._forget_ends(name, numbers)

    def check_deletable(self, topic: Topic) -> None:
        """Refuses to delete a topic that has a partition behind a symbolic link, or records in a broker's remote tier."""
        starts = Checkpoint(self._fs, self._root, LOG_START).offsets()
        for number in topic.partition_ids:
            partition = TopicPartition(topic.name, number)
            directory = join(self._root, directory_name(partition))
            check_deletable(self._fs, directory)
            if begins_in_tier(self._fs, directory, starts.get(partition)):
                message = f"{directory} begins in a broker's remote tier, which only the broker can delete"
                raise IllegalStateError(f"{message}; delete the topic {topic.name!r} with the broker", path=directory)

    def _forget_ends(self, topic: str, numbers: Iterable[int]) -> None:
        """Removes partitions from the checkpoints. Under the root's lock."""
        for checkpoint in self._checkpoints:
            checkpoint.update({}, [TopicPartition(topic, number) for number in numbers])

    def _rename(self, directory: str, target: str) -> None:
        """Frees the name of a partition that is deleted, unless another process has already done so."""
        with self._locks.partition(directory).entered(), self._locks.root.entered():
            deleted = parse_partition_directory(directory)
            catalog = self._catalog.read()
            if rename_deleted(self._fs, self._root, catalog, directory, target) and deleted is not None:
                self._forget_ends(deleted.topic, [deleted.partition])  # a process that has it open may have written new lines

    def note_finished(self, names: Mapping[str, str]) -> None:
        """Removes finished deletions from the catalog, by the old and new names of their directories: nothing is left of them."""
        with self._locks.root.entered():
            note_removed(self._fs, self._root, names.values())

    def _is_name_pending(self, topic: str) -> bool:
        """Returns whether a directory of the topic waits for a deletion that another store has decided. Under the root's lock."""
        return bool(pending_names(read_catalog(self._fs, self._root), topic))

    def free_names(self, topic: str) -> None:
        """Renames a topic's directories that are being deleted, and has the data deleted that depends on the deleted topic.

        It takes the locks of partitions, also of `__consumer_offsets`, so the caller holds no lock.
        """
        free_names(self._fs, self._root, topic, self._rename, self._locks.root.entered, self.forget)
