"""Lists the topics of a directory, from its entries and its catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import Final

from pylog import limits
from pylog.arguments import did_you_mean
from pylog.directory.partition_metadata import read_topic_id
from pylog.directory.topic_names import INTERNAL_TOPICS, check_topic_name
from pylog.errors import CorruptionError, NotALogDirectoryError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.fs import NAMES_ONLY, DirectoryEntry, FileKind, FileSystem, at_most, join
from pylog.record.types import TopicPartition
from pylog.topics.catalog import CATALOG, CATALOGS, Catalog, parsed_catalog, without
from pylog.topics.links import is_partition
from pylog.topics.partitions import directory_name, partition_of
from pylog.topics.signs import META_PROPERTIES, is_log_directory, is_unused
from pylog.topics.topic import Topic


def find_topics(fs: FileSystem, root: str) -> dict[str, Topic]:
    """Returns the topics of a log directory by name. Ignores directories that are not partitions.

    Raises:
        CorruptionError, UnsupportedFormatError: as `read_catalog`.
    """
    catalog, entries = _listed(fs, root)
    found = present_numbers(entry for entry in entries if entry.name not in catalog.deleting)
    catalog = without(catalog, made_again(fs, root, catalog, entries))
    # in a KRaft broker's directory the listing is complete: pylog creates nothing there
    whole = not (_is_brokers(entries) and is_kraft_brokers(fs, root))
    names = sorted(catalog.topics.keys() | found.keys() if whole else found)
    return {name: _topic(fs, root, catalog, name, found.get(name, []), whole=whole) for name in names}


def find_topic(fs: FileSystem, root: str, name: str) -> Topic:
    """Returns one topic of a log directory.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist; the message names some that do.
    """
    check_topic_name(name)
    found = find_topics(fs, root)
    if name not in found:
        public = [each for each in found if each not in INTERNAL_TOPICS]
        hint = did_you_mean(name, public) or f"; it has {', '.join(public[:10]) or 'none'}"
        raise UnknownTopicOrPartitionError(f"{root} has no topic {name!r}{hint}", path=root)
    return found[name]


def check_usable(fs: FileSystem, root: str) -> None:
    """Refuses a directory that is neither empty nor a log directory, so that a wrong path gets no lock files and no topics.

    Raises:
        NotALogDirectoryError: it has files or directories, and nothing of a broker or of pylog.
    """
    if fs.exists(join(root, CATALOG)):
        return  # the usual case: a large directory is not listed
    entries = fs.list(root, sizes=NAMES_ONLY)
    if is_unused(entries) or is_log_directory(entries) or partitions_in(fs, root, entries):
        return
    message = f"{root} is neither empty nor a log directory: it has {min(entry.name for entry in entries)!r}"
    raise NotALogDirectoryError(f"{message}; name a new directory, or pass create=True to use this one", path=root)


def partitions_in(fs: FileSystem, root: str, entries: Collection[DirectoryEntry]) -> dict[str, TopicPartition]:
    """Returns the partitions in a directory, by the names of their directories.

    Args:
        fs, root: the log directory.
        entries: the names in the directory.
    """
    ours = _without_strangers(fs, root, entries)
    return {entry.name: found for entry in ours if (found := partition_of(entry)) is not None}


def _without_strangers(fs: FileSystem, root: str, entries: Collection[DirectoryEntry]) -> list[DirectoryEntry]:
    """Returns the entries, without those that only have a partition's name if the directory may be no log directory.

    A home directory may have a directory `photos-2024`. Cost: nothing in a log directory, else a listing of each such directory.
    """
    if is_log_directory(entries):
        return list(entries)
    return [entry for entry in entries if partition_of(entry) is None or is_partition(fs, join(root, entry.name))]


def present_numbers(entries: Iterable[DirectoryEntry]) -> dict[str, list[int]]:
    """Returns the numbers of the partitions that have a directory, by topic."""
    found: dict[str, list[int]] = {}
    for entry in entries:
        if (partition := partition_of(entry)) is not None:
            found.setdefault(partition.topic, []).append(partition.partition)
    return found


def made_again(fs: FileSystem, root: str, catalog: Catalog, entries: Collection[DirectoryEntry]) -> list[str]:
    """Returns the topics of the catalog that a broker has deleted and created again: they have other ids."""
    if not _is_brokers(entries):
        return []
    present = present_numbers(entries)
    return [
        name
        for name, entry in catalog.topics.items()
        if present.get(name) and _id_of(fs, root, TopicPartition(name, min(present[name]))) not in (None, entry.id)
    ]


def _id_of(fs: FileSystem, root: str, partition: TopicPartition) -> str | None:
    with contextlib.suppress(CorruptionError, StorageFailedError):  # reported when it is opened; an id is not needed to read
        return read_topic_id(fs, join(root, directory_name(partition)))
    return None


def id_in_brokers_directory(fs: FileSystem, root: str, partition: TopicPartition) -> str | None:
    """Returns the id of a partition's topic in a broker's directory, which may have created the topic again meanwhile.

    Returns:
        The id; None in a directory of pylog's own, where the catalog names every topic's id.
    """
    return _id_of(fs, root, partition) if fs.exists(join(root, META_PROPERTIES)) else None


def _is_brokers(entries: Collection[DirectoryEntry]) -> bool:
    """Returns whether a directory is a broker's. Checks file names first, so other directories cost no read."""
    return any(entry.name == META_PROPERTIES for entry in entries)


def _version(data: bytes, _path: str) -> bytes | None:
    return next((line.removeprefix(b"version=") for line in data.split() if line.startswith(b"version=")), None)


META: Final = FileKind("a broker's meta.properties", _version, at_most(limits.META_PROPERTIES_BYTES), "restore it")


def is_kraft_brokers(fs: FileSystem, root: str) -> bool:
    """Returns whether a directory belongs to a broker whose own metadata decides which topics exist (interop 3.9)."""
    return META.read(fs, join(root, META_PROPERTIES)) == b"1"


def _listed(fs: FileSystem, root: str) -> tuple[Catalog, list[DirectoryEntry]]:
    """Returns the catalog, and a listing taken while the catalog did not change.

    Creating a topic writes the catalog first; deleting one writes it first and last. Without the catalog's entry, some of the
    directories would look like a broker's topic with fewer partitions.
    """
    path = join(root, CATALOG)
    while True:
        data = CATALOGS.fetch(fs, path)
        entries = fs.list(root, sizes=NAMES_ONLY)
        if CATALOGS.fetch(fs, path) == data:
            return parsed_catalog(data, path), _without_strangers(fs, root, entries)


def _topic(fs: FileSystem, root: str, catalog: Catalog, name: str, numbers: list[int], *, whole: bool) -> Topic:
    known = catalog.topics.get(name)
    ids = tuple(sorted({*numbers, *(range(known.partitions) if known is not None and whole else ())}))
    if known is not None:
        return Topic(name, known.id, catalog.config_of(name), ids)
    return Topic(name, _id_of(fs, root, TopicPartition(name, ids[0])), catalog.config_of(name), ids)
