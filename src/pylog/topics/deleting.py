"""Deletes topics. One line in the catalog is the decision; the next process can repeat the remaining steps."""

from __future__ import annotations

import contextlib
import errno
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

import msgspec

from pylog import trace
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import PylogError, StorageFailedError
from pylog.fs import DirectoryEntry, FileSystem, inside, join
from pylog.log.durable_point import DELETED, mark_deleted, open_header
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, PARTITION_METADATA
from pylog.topics.catalog import CATALOG, DELETED_NAME, Catalog, read_catalog, without, write_catalog
from pylog.topics.partitions import directory_name
from pylog.topics.topic import Topic

_DIRECTORY_NAME_CHARACTERS: Final = 255


class BegunDeletion(NamedTuple):
    """The deletion of a topic, as far as a call has begun it.

    Attributes:
        topic: the topic.
        directories: its partition directories, with the names that they get for it.
    """

    topic: Topic
    directories: dict[str, str]


def deletion_of(fs: FileSystem, root: str, topic: Topic) -> BegunDeletion:
    """Chooses the names that a topic's directories get for its deletion. Under the root's lock, as `topic` was read."""
    deleting = read_catalog(fs, root).deleting
    names = [directory_name(TopicPartition(topic.name, number)) for number in topic.partition_ids]
    return BegunDeletion(topic, {name: deleting.get(name) or deletion_name(name) for name in names})


def decide_deletion(fs: FileSystem, root: str, begun: BegunDeletion) -> None:
    """Writes down that a topic is deleted, which decides it. Under the root's lock."""
    topic, directories = begun
    catalog = read_catalog(fs, root)
    write_catalog(fs, root, msgspec.structs.replace(without(catalog, [topic.name]), deleting=catalog.deleting | directories))


def deletion_name(name: str) -> str:
    """Returns a new name for a partition directory before its removal (storage-format 3.2.3)."""
    suffix = f".{secrets.token_hex(16)}-delete"
    return name[: _DIRECTORY_NAME_CHARACTERS - len(suffix)] + suffix


def pending_names(catalog: Catalog, topic: str) -> dict[str, str]:
    """Returns a topic's partition directories whose deletion was decided, and which may still have their names."""
    parsed = {old: parse_partition_directory(old) for old in catalog.deleting}
    return {old: catalog.deleting[old] for old, found in parsed.items() if found is not None and found.topic == topic}


def free_names(
    fs: FileSystem,
    root: str,
    topic: str,
    rename: Callable[[str, str], object],
    root_lock: Callable[[], AbstractContextManager[object]],
    forget: Callable[[str], object],
) -> None:
    """Renames a topic's directories that are being deleted: `rename` does it to one, under its locks. Then `forget` deletes the
    data that depends on the topic.
    """
    pending = pending_names(read_catalog(fs, root), topic)
    for name, target in pending.items():
        rename(name, target)
    if not pending:
        return
    fs.sync_directory(root)
    forget(topic)
    with root_lock():  # they are still to be removed, under the names that they have now
        catalog = read_catalog(fs, root)
        moved = {new if pending.get(old) == new else old: new for old, new in catalog.deleting.items()}
        write_catalog(fs, root, msgspec.structs.replace(catalog, deleting=moved))


def rename_deleted(fs: FileSystem, root: str, catalog: Catalog, directory: str, target: str) -> bool:
    """Renames a partition whose deletion was decided; every process that has it open sees the flag before it writes again.

    Under the partition's lock and the root's, `catalog` too. Returns False if another process that needed the name has done it:
    the directory of that name is another one.
    """
    path = _in(root, directory)
    if catalog.deleting.get(directory) != target or not fs.exists(path):
        return False
    mark_deleted(fs, path)
    fs.rename(path, _in(root, target))
    return True


def _in(root: str, name: str) -> str:
    """Returns the path of a directory that the catalog names."""
    return inside(root, name, join(root, CATALOG))


def note_removed(fs: FileSystem, root: str, removed: Iterable[str]) -> None:
    """Notes that directories were deleted, by their last names. Under the root's lock."""
    catalog, deleted = read_catalog(fs, root), set(removed)
    left = {old: new for old, new in catalog.deleting.items() if new not in deleted}
    write_catalog(fs, root, msgspec.structs.replace(catalog, deleting=left))


def delete_directories(fs: FileSystem, root: str, names: Mapping[str, str], reason: str) -> dict[str, str]:
    """Deletes partition directories. One that cannot be deleted (permissions, for example) does not stop the others."""
    left = {}
    for name, target in names.items():
        try:
            _rename_and_remove(fs, root, {name: target}, reason)
        except StorageFailedError as error:
            again = "the next opening of the store tries again"
            trace.later(trace.DELETION_DELAYED, path=root, directory=name, error=str(error), then=again)
            left[name] = target
    return left


def _rename_and_remove(fs: FileSystem, root: str, names: Mapping[str, str], reason: str) -> None:
    """Renames partition directories as Kafka does before it deletes them, then removes them. May be repeated after a crash."""
    for name, target in names.items():
        path = _in(root, name)
        if name != target and fs.exists(path):
            fs.rename(path, _in(root, target))
    remove_directories(fs, root, names.values(), reason)


def remove_directories(fs: FileSystem, root: str, names: Iterable[str], reason: str) -> None:
    """Removes directories that were renamed for it; no crash brings them back under their old names."""
    fs.sync_directory(root)
    for name in names:
        path = _in(root, name)
        facts = _facts_of(fs, path)
        if facts is not None:
            _remove(fs, path)
            trace.later(trace.PARTITION_DELETED, partition_of_deleted(name), directory=name, **facts, reason=reason)
    fs.sync_directory(root)


def partition_of_deleted(name: str) -> TopicPartition | None:
    """Returns the partition that a deleted directory was; None if its name was too long to be kept whole.

    >>> partition_of_deleted("orders-1." + "0" * 32 + "-delete")
    TopicPartition(topic='orders', partition=1)
    """
    return parse_partition_directory(name.rpartition(".")[0] if name.endswith("-delete") else name)


def _facts_of(fs: FileSystem, directory: str) -> dict[str, int] | None:
    """Returns the bytes in a partition's segments, and the offsets in its header; None if there is no such directory."""
    if not fs.exists(directory):
        return None
    with contextlib.suppress(PylogError):  # another process may be faster, and damage keeps no partition from being deleted
        facts = {"bytes": sum(entry.size for entry in fs.list(directory, sizes=LOG) if entry.name.endswith(LOG))}
        header = open_header(fs, directory)
        if header is not None:
            with contextlib.closing(header):
                slot = header.refresh()
            if slot is not None:
                facts |= {"start": slot.log_start_offset, "end": slot.published_offset}
        return facts
    return {}


def _remove(fs: FileSystem, path: str) -> None:
    """Removes a directory, even if a process that has just opened the store finishes the same deletion."""
    while fs.exists(path):
        try:
            fs.remove_tree(path)
        except StorageFailedError as error:
            if error.errno != errno.ENOENT:
                raise


def remove_strays(fs: FileSystem, root: str, entries: Collection[DirectoryEntry]) -> bool:
    """Removes directories that earlier versions renamed for deletion and left behind. Under the root's lock.

    Args:
        fs, root: the log directory.
        entries: what it has.

    Returns:
        Whether there were any.
    """
    names = [entry.name for entry in entries if entry.is_directory and not entry.is_link and DELETED_NAME.fullmatch(entry.name)]
    strays = [name for name in names if _is_stray(fs, join(root, name))]
    if strays:
        delete_directories(fs, root, {name: name for name in strays}, "left over from a deleted topic")
    return bool(strays)


def _is_stray(fs: FileSystem, directory: str) -> bool:
    """Returns whether pylog has deleted it: its header is marked, or it is empty. A broker's deletions are left to the broker."""
    with contextlib.suppress(PylogError):
        if {entry.name for entry in fs.list(directory)} <= {PARTITION_METADATA}:
            return True
        header = open_header(fs, directory)
        if header is not None:
            with contextlib.closing(header):
                slot = header.refresh()
            return slot is not None and bool(slot.flags & DELETED)
    return False
