"""Partitions behind symbolic links: followed, as by a broker, unless the target is unsafe.

A link to a partition's directory is a common way to move one to another disk. It is followed for reading and writing. Links in
the place of segments and other files are never followed.
"""

from __future__ import annotations

import contextlib
from typing import Final

from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import IllegalStateError, NotALogDirectoryError, StorageFailedError
from pylog.fs import NAMES_ONLY, FileSystem, base_name, join, parent_of, resolved
from pylog.segment.names import DURABLE_POINT, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, parse
from pylog.topics.signs import is_log_directory

_OF_A_PARTITION: Final = frozenset({PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT, DURABLE_POINT})


def check_link(fs: FileSystem, directory: str) -> None:
    """Refuses a partition's directory that is a symbolic link which must not be followed. Cost: one system call if it is none.

    Raises:
        NotALogDirectoryError: the link belongs to a stranger, leads to a directory that is no partition, or to one that another
            name of the same log directory stands for, or another log directory: two locks would protect the same files.
    """
    target = fs.link_target(directory)
    if target is None:
        return
    root, name = parent_of(directory), base_name(directory)
    links = {entry.name: entry for entry in fs.list(root, sizes=NAMES_ONLY) if entry.is_link}
    if name not in links or not links[name].is_directory:
        return  # `check_directory` raises the better error
    real = resolved(root)
    if join(target, "").startswith(join(real, "")) or join(real, "").startswith(join(target, "")):
        message = f"{directory} is a symbolic link to {target}, in the same log directory; put the directory itself there"
        raise NotALogDirectoryError(message, path=directory)
    for other in (join(root, each) for each in links if each != name):
        if _target(fs, other) == target:
            message = f"{directory} and {other} are symbolic links to the same directory {target}; remove the wrong one"
            raise NotALogDirectoryError(message, path=directory)
    if is_log_directory(fs.list(parent_of(target), sizes=NAMES_ONLY)):
        message = f"{directory} is a symbolic link to {target}, in another log directory; open that one"
        raise NotALogDirectoryError(message, path=directory)
    if not is_partition(fs, target):
        message = f"{directory} is a symbolic link to {target}, which holds no partition; move one there, or remove the link"
        raise NotALogDirectoryError(message, path=directory)


def _target(fs: FileSystem, path: str) -> str | None:
    """Returns the target of a link that may belong to another user, which is not followed."""
    with contextlib.suppress(NotALogDirectoryError):
        return fs.link_target(path)
    return None


def is_partition(fs: FileSystem, directory: str) -> bool:
    """Returns whether a directory has a file of a partition. True also if it cannot be read: opening it reports the error."""
    try:
        return any(
            entry.name in _OF_A_PARTITION or parse(entry.name) is not None for entry in fs.list(directory, sizes=NAMES_ONLY)
        )
    except StorageFailedError:
        return True


def linked_partitions(fs: FileSystem, root: str) -> list[str]:
    """Returns the paths of a log directory's symbolic links to partitions."""
    links = [entry.name for entry in fs.list(root, sizes=NAMES_ONLY) if entry.is_link]
    return [join(root, name) for name in links if parse_partition_directory(name) is not None]


def check_deletable(fs: FileSystem, directory: str) -> None:
    """Refuses to delete a partition behind a symbolic link: files outside the log directory are never deleted.

    Raises:
        IllegalStateError: it is a link.
    """
    target = fs.link_target(directory)
    if target is not None:
        message = f"{directory} is a symbolic link to {target}, and nothing outside the log directory is deleted"
        advice = "move the directory back, or remove the link, and delete the topic then"
        raise IllegalStateError(f"{message}; {advice}", path=directory)
