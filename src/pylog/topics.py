"""Topics of a store: what the directory's names say, and what `pylog.json` adds (configurations and ids).

`pylog.json` is pylog's own and optional: a directory that a broker wrote has none. Every topic there has Kafka's defaults, but is
kept for ever: what a broker was told to keep is not known here. An entry whose id is not that of the directories is of a topic
that a broker has deleted, and counts no more.
A topic exists when it is named there or has a partition directory, so creation and deletion are each committed by one
atomic replacement of that file, and completed at the next opening if the process dies on the way.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pylog import limits
from pylog.config import TopicConfig
from pylog.errors import (
    CorruptionError,
    IllegalStateError,
    InvalidArgumentError,
    NotALogDirectoryError,
    PylogError,
    StorageFailedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)
from pylog.fs import DirectoryEntry, FileSystem, join, parent_of, write_atomically
from pylog.log.checkpoints import (
    format_partition_metadata,
    is_topic_name,
    new_topic_id,
    parse_partition_directory,
    read_topic_id,
)
from pylog.log.durable_point import DELETED, mark_deleted, open_header
from pylog.record.checksum import crc32c
from pylog.record.types import TopicPartition
from pylog.segment.names import PARTITION_METADATA

if TYPE_CHECKING:
    from pylog.log.recovery import Finding

LOGGER = logging.getLogger("pylog")
CATALOG: Final = "pylog.json"
META_PROPERTIES: Final = "meta.properties"  # who a broker is; in its directories only
CLUSTER_METADATA: Final = "__cluster_metadata"  # a KRaft controller's log: no lock covers it, so it is never written
_COMPACTED: Final = TopicConfig(cleanup_policy="compact", segment_bytes=limits.DEFAULT_OFFSETS_SEGMENT_BYTES)
_INTERNAL: Final = {"__consumer_offsets": _COMPACTED, "__transaction_state": _COMPACTED}  # what Kafka sets for its own topics
_VERSION: Final = 1
_DIRECTORY_NAME_CHARACTERS: Final = 255
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_DELETED = re.compile(r"[a-zA-Z0-9._-]+\.[0-9a-f]{32}-delete")

# Of a topic that `pylog.json` does not name: a broker made it, and only that knows how long it keeps it. So nothing of it goes.
UNKNOWN_CONFIG: Final = TopicConfig(retention_ms=-1)


@dataclass(frozen=True)
class Topic:
    """A topic.

    Attributes:
        name: its name.
        id: 22 characters, or None when no partition has one (directories of brokers before 2.8).
        partitions: how many partitions this store has of it.
        config: its configuration; where nothing is known of it Kafka's defaults, but retention keeps everything.
        partition_ids: their numbers, ascending; a broker of a cluster may have any of them.
    """

    name: str
    id: str | None
    partitions: int
    config: TopicConfig
    partition_ids: tuple[int, ...]


class CatalogTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic in `pylog.json`."""

    id: str
    partitions: int
    config: dict[str, Any] = {}


class _Versioned(msgspec.Struct, frozen=True):
    """What every version of `pylog.json` has."""

    version: int


class Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `pylog.json`.

    Attributes:
        version: of the file's format.
        topics: by name.
        deleting: partition directories whose deletion was decided and may not be done, with the names that they get for it.
        crc32c: of all that, so that no flipped bit of a retention time deletes anything; eight hexadecimal digits.
    """

    version: int = _VERSION
    topics: dict[str, CatalogTopic] = {}
    deleting: dict[str, str] = {}
    crc32c: str = ""

    def config_of(self, topic: str) -> TopicConfig:
        """A topic's configuration, as far as it is known."""
        known = self.topics.get(topic)
        return _INTERNAL.get(topic, UNKNOWN_CONFIG) if known is None else TopicConfig.of(known.config)

    def sealed(self) -> Catalog:
        """The same with the checksum that belongs to it."""
        bare = msgspec.structs.replace(self, crc32c="")
        return msgspec.structs.replace(bare, crc32c=f"{crc32c(msgspec.json.encode(bare)):08x}")


def read_catalog(fs: FileSystem, root: str) -> Catalog:
    """The catalog of a directory; an empty one where there is none.

    Raises:
        CorruptionError: the file is not as it was written.
        UnsupportedFormatError: it is of a later version.
    """
    path = join(root, CATALOG)
    return _parsed(path, fs.read(path, limits.MAX_CHECKPOINT_BYTES))


def _parsed(path: str, data: bytes | None) -> Catalog:
    if data is None:
        return Catalog()
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != _VERSION:
            raise UnsupportedFormatError(f"{path} has version {version}; this pylog knows version {_VERSION}", path=path)
        catalog = msgspec.json.decode(data, type=Catalog)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # ValueError: bytes that are no UTF-8
        raise _damaged(path, str(error)) from error
    wrong = next(_impossible(catalog), None)
    if wrong is not None:
        raise _damaged(path, wrong)
    return catalog


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged ({why}); restore it: without it every topic has default settings", path=path)


def _impossible(catalog: Catalog) -> Iterator[str]:
    """What no pylog wrote. Names become paths, and those to be deleted are removed: nothing may lead out of the directory."""
    if catalog != catalog.sealed():
        yield "its checksum is of another content"
    for name, topic in catalog.topics.items():
        if not is_topic_name(name):
            yield f"{name!r} is not a topic name"
        if not 1 <= topic.partitions <= limits.MAX_PARTITIONS or not _TOPIC_ID.fullmatch(topic.id):
            yield f"topic {name!r} has an impossible number of partitions, or id"
    for old, new in catalog.deleting.items():
        if (parse_partition_directory(old) is None and not _DELETED.fullmatch(old)) or not _DELETED.fullmatch(new):
            yield f"{old!r} and {new!r} are not names of a partition that is deleted"


def write_catalog(fs: FileSystem, root: str, catalog: Catalog) -> None:
    """Replaces `pylog.json` atomically."""
    write_atomically(fs, root, CATALOG, msgspec.json.format(msgspec.json.encode(catalog.sealed()), indent=1) + b"\n")


def write_topic(fs: FileSystem, root: str, name: str, topic: CatalogTopic) -> None:
    """Adds a topic to `pylog.json`, or replaces its entry. Under the root's lock."""
    catalog = read_catalog(fs, root)
    write_catalog(fs, root, msgspec.structs.replace(catalog, topics=catalog.topics | {name: topic}))


def find_topics(fs: FileSystem, root: str) -> dict[str, Topic]:
    """The topics of a log directory, by name. Directories that are not partitions are not pylog's business.

    Raises:
        CorruptionError, UnsupportedFormatError: as `read_catalog`.
    """
    catalog, entries = _listed(fs, root)
    found = _present(entry for entry in entries if entry.name not in catalog.deleting)
    catalog = _without(catalog, _made_again(fs, root, catalog, entries))
    # in a KRaft broker's directory what is there is all: nobody here makes the rest
    whole = not (_is_brokers(entries) and is_kraft_brokers(fs, root))
    names = sorted(catalog.topics.keys() | found.keys() if whole else found)
    return {name: _topic(fs, root, catalog, name, found.get(name, []), whole=whole) for name in names}


def _present(entries: Iterable[DirectoryEntry]) -> dict[str, list[int]]:
    """The numbers of the partitions that have a directory, by topic."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        if (partition := partition_of(entry)) is not None:
            found.setdefault(partition.topic, []).append(partition.partition)
    return found


def _made_again(fs: FileSystem, root: str, catalog: Catalog, entries: Collection[DirectoryEntry]) -> list[str]:
    """The topics of the catalog that a broker has deleted, and another of each one's name made since: they have other ids."""
    if not _is_brokers(entries):
        return []
    present = _present(entries)
    return [
        name
        for name, entry in catalog.topics.items()
        if present.get(name) and _id_of(fs, root, TopicPartition(name, min(present[name]))) not in (None, entry.id)
    ]


def _id_of(fs: FileSystem, root: str, partition: TopicPartition) -> str | None:
    with contextlib.suppress(CorruptionError):  # reported when the partition is opened; an id is not needed to read
        return read_topic_id(fs, join(root, directory_name(partition)))
    return None


def _without(catalog: Catalog, names: Collection[str]) -> Catalog:
    """A catalog without the entries of some topics."""
    kept = {name: entry for name, entry in catalog.topics.items() if name not in names}
    return msgspec.structs.replace(catalog, topics=kept)


def _is_brokers(entries: Collection[DirectoryEntry]) -> bool:
    """Whether a directory is a broker's, as its names tell: no file is read to find out that it is not."""
    return any(entry.name == META_PROPERTIES for entry in entries)


def is_kraft_brokers(fs: FileSystem, root: str) -> bool:
    """Whether a directory is that of a broker whose own metadata alone says which topics there are (interop 3.9)."""
    data = fs.read(join(root, META_PROPERTIES), limits.MAX_CHECKPOINT_BYTES)
    return data is not None and b"version=1" in data.split()


def _listed(fs: FileSystem, root: str) -> tuple[Catalog, list[DirectoryEntry]]:
    """The catalog and what is listed while it is true.

    Who makes a topic writes the catalog first, and who deletes one does so first and last: some of its directories without what
    the catalog says of them would pass for a broker's topic of as many partitions.
    """
    path = join(root, CATALOG)
    while True:
        data = fs.read(path, limits.MAX_CHECKPOINT_BYTES)
        entries = fs.list(root)
        if fs.read(path, limits.MAX_CHECKPOINT_BYTES) == data:
            return _parsed(path, data), entries


def partition_of(entry: DirectoryEntry) -> TopicPartition | None:
    """The partition that a directory entry is; a controller's metadata log is none (storage-format 3.1)."""
    partition = parse_partition_directory(entry.name) if entry.is_directory else None
    return None if partition is None or partition.topic == CLUSTER_METADATA else partition


def _topic(fs: FileSystem, root: str, catalog: Catalog, name: str, numbers: list[int], *, whole: bool) -> Topic:
    known = catalog.topics.get(name)
    ids = tuple(sorted({*numbers, *(range(known.partitions) if known is not None and whole else ())}))
    if known is not None:
        return Topic(name, known.id, len(ids), catalog.config_of(name), ids)
    return Topic(name, _id_of(fs, root, TopicPartition(name, ids[0])), len(ids), catalog.config_of(name), ids)


def altered(topic: Topic, options: Mapping[str, Any]) -> CatalogTopic:
    """The entry of a topic whose configuration changes.

    Args:
        topic: as it is.
        options: of `TopicConfig` by name; None is the option's default.

    Raises:
        InvalidArgumentError: no such option or value; or the store has only some of the topic's partitions: an entry would have
            the others made, empty.
    """
    if topic.partition_ids != tuple(range(topic.partitions)):
        some = ", ".join(map(str, topic.partition_ids[:10]))
        raise InvalidArgumentError(f"of topic {topic.name!r} only the partitions {some} are here; alter it where all of them are")
    defaults = TopicConfig()
    given = {name: getattr(defaults, name, None) if value is None else value for name, value in options.items()}
    config = TopicConfig.of(topic.config.changed() | given)
    return CatalogTopic(topic.id or new_topic_id(), topic.partitions, config.changed())


def make_root(fs: FileSystem, root: str) -> None:
    """Makes a log directory, durably.

    Raises:
        NotALogDirectoryError: there is no directory to make it in, or it may not be written.
    """
    parent = parent_of(root)
    if not fs.exists(parent):
        raise NotALogDirectoryError(f"there is no directory {parent} to make {root} in; make it first", path=root)
    fs.check_directory(parent, write=True)
    fs.make_directory(root)
    fs.sync_directory(parent)


def directory_name(partition: TopicPartition) -> str:
    """A partition's directory: `<topic>-<partition>`.

    >>> directory_name(TopicPartition("orders", 3))
    'orders-3'
    """
    return f"{partition.topic}-{partition.partition}"


def make_partitions(fs: FileSystem, root: str, topic: str, topic_id: str, numbers: Iterable[int]) -> None:
    """Makes the partition directories that are missing, each with its `partition.metadata`, durably."""
    for number in numbers:
        directory = join(root, directory_name(TopicPartition(topic, number)))
        if fs.exists(directory):
            fs.check_directory(directory, write=True, follow=False)
        else:
            fs.make_directory(directory)
        if not fs.exists(join(directory, PARTITION_METADATA)):
            write_atomically(fs, directory, PARTITION_METADATA, format_partition_metadata(topic_id))
    fs.sync_directory(root)


def deletion_name(name: str) -> str:
    """What a partition directory is renamed to before it is removed (storage-format 3.2.3)."""
    suffix = f".{secrets.token_hex(16)}-delete"
    return name[: _DIRECTORY_NAME_CHARACTERS - len(suffix)] + suffix


def pending_names(catalog: Catalog, topic: str) -> dict[str, str]:
    """A topic's partition directories whose deletion was decided, and which may have their names still."""
    parsed = {old: parse_partition_directory(old) for old in catalog.deleting}
    return {old: catalog.deleting[old] for old, found in parsed.items() if found is not None and found.topic == topic}


def decide_deletion(fs: FileSystem, root: str, topic: Topic) -> dict[str, str]:
    """Writes down that a topic goes, which decides it. Under the root's lock, as `topic` was read.

    Returns:
        Its partition directories, with the names that they get for it.
    """
    catalog = read_catalog(fs, root)
    names = [directory_name(TopicPartition(topic.name, number)) for number in topic.partition_ids]
    directories = {name: catalog.deleting.get(name) or deletion_name(name) for name in names}
    write_catalog(fs, root, msgspec.structs.replace(_without(catalog, [topic.name]), deleting=catalog.deleting | directories))
    return directories


def rename_deleted(fs: FileSystem, root: str, directory: str, target: str) -> bool:
    """Renames a partition whose deletion was decided; every process that has it open sees the flag before it writes again.

    Under the partition's lock and the root's. Returns False when somebody who needed the name has done it: what has the name now
    is another one.
    """
    path = join(root, directory)
    if read_catalog(fs, root).deleting.get(directory) != target or not fs.exists(path):
        return False
    mark_deleted(fs, path)
    fs.rename(path, join(root, target))
    return True


def free_names(
    fs: FileSystem,
    root: str,
    topic: str,
    rename: Callable[[str, str], object],
    root_lock: Callable[[], AbstractContextManager[object]],
) -> None:
    """Renames a topic's directories that are being deleted: `rename` does it to one, under its locks."""
    pending = pending_names(read_catalog(fs, root), topic)
    for name, target in pending.items():
        rename(name, target)
    if not pending:
        return
    fs.sync_directory(root)
    with root_lock():  # they are still to be removed, under the names that they have now
        catalog = read_catalog(fs, root)
        moved = {new if pending.get(old) == new else old: new for old, new in catalog.deleting.items()}
        write_catalog(fs, root, msgspec.structs.replace(catalog, deleting=moved))


def note_removed(fs: FileSystem, root: str, removed: Iterable[str]) -> None:
    """Writes down that directories are gone, given by the names that they had last. Under the root's lock."""
    catalog, gone = read_catalog(fs, root), set(removed)
    left = {old: new for old, new in catalog.deleting.items() if new not in gone}
    write_catalog(fs, root, msgspec.structs.replace(catalog, deleting=left))


def delete_directories(fs: FileSystem, root: str, names: Mapping[str, str]) -> None:
    """Renames partition directories as Kafka does before it deletes them, then removes them. May be repeated after a crash."""
    for name, target in names.items():
        if name != target and fs.exists(join(root, name)):
            fs.rename(join(root, name), join(root, target))
    remove_directories(fs, root, names.values())


def remove_directories(fs: FileSystem, root: str, names: Iterable[str]) -> None:
    """Removes directories that were renamed for it; no crash brings them back under their old names."""
    fs.sync_directory(root)
    for name in names:
        _remove(fs, join(root, name))
    fs.sync_directory(root)


def _remove(fs: FileSystem, path: str) -> None:
    """Removes a directory, perhaps beside a process that has just opened the store and finishes the same deletion."""
    while fs.exists(path):
        try:
            fs.remove_tree(path)
        except StorageFailedError as error:
            if error.errno != errno.ENOENT:
                raise


def _remove_strays(fs: FileSystem, root: str) -> None:
    """Removes what was renamed for its deletion and then forgotten, as earlier versions did. Under the root's lock."""
    names = [entry.name for entry in fs.list(root) if entry.is_directory and _DELETED.fullmatch(entry.name)]
    strays = [name for name in names if _is_stray(fs, join(root, name))]
    if strays:
        LOGGER.warning("%s: removing what is left of deleted topics: %s", root, ", ".join(strays))
        _not_deleted(fs, root, {name: name for name in strays})


def _is_stray(fs: FileSystem, directory: str) -> bool:
    """Whether pylog has deleted it: its header says so, or nobody has written into it. What a broker deletes is left to that."""
    with contextlib.suppress(PylogError):
        if {entry.name for entry in fs.list(directory)} <= {PARTITION_METADATA}:
            return True
        header = open_header(fs, directory)
        if header is not None:
            with contextlib.closing(header):
                slot = header.look()
            return slot is not None and bool(slot.flags & DELETED)
    return False


def _not_deleted(fs: FileSystem, root: str, names: Mapping[str, str]) -> dict[str, str]:
    """Deletes partition directories; those that cannot be, because they belong to somebody else, keep nobody from the others."""
    left = {}
    for name, target in names.items():
        try:
            delete_directories(fs, root, {name: target})
        except StorageFailedError as error:
            LOGGER.warning("%s: %s; what is left of a deleted topic is tried again when the store is opened next", root, error)
            left[name] = target
    return left


def finish_changes(fs: FileSystem, root: str, *, broker_was_last: bool) -> None:
    """Completes what an earlier process decided and did not get to do: topics made and deleted. Under the root's lock.

    Args:
        fs, root: the log directory.
        broker_was_last: a broker has closed it cleanly, and no process of pylog died after that while it made a topic: one
            without any directory is one that the broker deleted.
    """
    catalog = read_catalog(fs, root)
    if catalog.deleting:
        catalog = msgspec.structs.replace(catalog, deleting=_not_deleted(fs, root, catalog.deleting))
        write_catalog(fs, root, catalog)
    _remove_strays(fs, root)
    entries = fs.list(root)
    present, gone, is_brokers = _present(entries), _made_again(fs, root, catalog, entries), is_kraft_brokers(fs, root)
    gone += [name for name in catalog.topics if (broker_was_last or is_brokers) and name not in present]
    if gone:
        LOGGER.warning("%s: topics that the broker deleted: %s", root, ", ".join(gone))
        catalog = _without(catalog, gone)
        write_catalog(fs, root, catalog)
    if is_brokers:
        return  # it would set aside what is made here
    for name, topic in catalog.topics.items():
        if missing := sorted(set(range(topic.partitions)) - set(present.get(name, ()))):
            make_partitions(fs, root, name, topic.id, missing)


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
        topics = _without(catalog, _made_again(fs, root, catalog, entries)).topics
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


def check_new(root: str, name: str, present: Iterable[str]) -> None:
    """Kafka refuses names that differ only in '.' and '_'; names that differ only in case collide on some file systems."""
    for other in present:
        if other == name:
            raise TopicAlreadyExistsError(f"topic {name!r} exists already", path=root)
        if other.replace(".", "_").lower() == name.replace(".", "_").lower():
            raise TopicAlreadyExistsError(
                f"topic {name!r} is too like {other!r}: '.' and '_', or the case, are all that differs", path=root
            )


def check_may_be_made(fs: FileSystem, root: str, topic: str, numbers: Iterable[int]) -> None:
    """What stands in the way of new partitions must be noticed before the catalog says that they are there: a broker that would
    set them aside when it starts, with all that was acknowledged in them, and files or links that have their names.
    """
    if is_kraft_brokers(fs, root):
        told = f"{root} belongs to a Kafka broker, which alone makes partitions: have it make those of {topic!r}; if it is never "
        raise IllegalStateError(f"{told}to start on this directory again, remove {META_PROPERTIES} there", path=root)
    taken = {entry.name for entry in fs.list(root) if not entry.is_directory}
    for found in sorted(taken & {directory_name(TopicPartition(topic, number)) for number in numbers}):
        path = join(root, found)
        raise NotALogDirectoryError(f"{path} is not a directory, so partition {found} cannot be made; move it away", path=path)


def check_partition(root: str, topic: Topic, number: int) -> None:
    """Refuses a partition that a topic does not have."""
    ids = topic.partition_ids
    if number not in ids:
        told = f"from {ids[0]} to {ids[-1]}" if len(ids) > 1 else f"{ids[0]} only"
        raise UnknownTopicOrPartitionError(f"topic {topic.name!r} has no partition {number}; it has {told}", path=root)


def check_partition_directory(fs: FileSystem, directory: str, *, write: bool) -> None:
    """As `FileSystem.check_directory`; of one that was there a moment ago: another process has deleted the topic since."""
    try:
        fs.check_directory(directory, write=write, follow=False)
    except NotALogDirectoryError as error:
        if fs.exists(directory):  # made again, unless it is something else that has its name
            fs.check_directory(directory, write=write, follow=False)
            return
        told = f"{directory} is not there any more: its topic was deleted meanwhile"
        raise UnknownTopicOrPartitionError(told, path=directory) from error


def check_more(fs: FileSystem, root: str, topic: Topic, count: int) -> int:
    """Refuses a number of partitions that is not larger than the one there is, which is returned."""
    present = topic.partition_ids[-1] + 1
    if count <= present:
        raise InvalidArgumentError(f"topic {topic.name!r} has {present} partitions; {count} is not more")
    check_may_be_made(fs, root, topic.name, range(present, count))
    return present


def check_partition_count(count: object) -> int:
    """A number of partitions, checked."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= limits.MAX_PARTITIONS:
        raise InvalidArgumentError(f"partitions={count!r} is not an int from 1 to {limits.MAX_PARTITIONS}")
    return count


def for_each_partition(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """Makes every call, one for each partition, and then raises the first error. What another process deleted needs nothing."""
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
