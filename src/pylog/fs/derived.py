"""The one way to read derived files: indexes, seals, snapshots, checkpoints, markers. One that cannot be used is as if missing.

A derived file can be made again from the records, so it must never keep a partition from opening. It may be too large, a
directory, a link, a pipe, or not readable: the caller gets a fault in words and goes on without the file.
tests/log/test_derived_files.py checks that no other module reads such files.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple

from pylog.errors import StorageFailedError
from pylog.fs.protocols import Bytes, FileSystem

# The process has no room for an open file or for memory: that says nothing about the file, and everything else would fail too.
_OF_THE_PROCESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class DerivedFile(NamedTuple):
    """The bytes of a derived file; None where it is missing or cannot be used, and then `fault` says why it cannot."""

    data: bytes | None
    fault: str | None = None
    too_large: bool = False


class MappedFile(NamedTuple):
    """As `DerivedFile`, mapped."""

    data: Bytes | None
    fault: str | None = None


def read_derived(fs: FileSystem, path: str, limit: int) -> DerivedFile:
    """Reads a derived file as a whole.

    Args:
        fs, path: the file.
        limit: the most bytes that a useful file of its kind can have. A larger one is not read.

    Raises:
        StorageFailedError: the process has too many open files, or no memory.
    """
    try:
        return DerivedFile(fs.read(path, limit))
    except StorageFailedError as error:
        return DerivedFile(None, _fault(error), too_large=error.errno is None)


def map_derived(fs: FileSystem, path: str, limit: int) -> MappedFile:
    """Maps a derived file that never changes again. As `read_derived`."""
    if not fs.exists(path):
        return MappedFile(None)
    try:
        file = fs.open(path)
        try:
            size = file.size()
        finally:
            file.close()
        if size > limit:
            return MappedFile(None, f"{path} has {size} bytes, more than the {limit} that such a file may have")
        return MappedFile(fs.map(path))
    except StorageFailedError as error:
        return MappedFile(None) if error.errno == errno.ENOENT else MappedFile(None, _fault(error))


def read_start(fs: FileSystem, path: str, size: int) -> DerivedFile:
    """Reads the first bytes of a derived file, of whatever size it is. As `read_derived`."""
    try:
        file = fs.open(path)
        try:
            return DerivedFile(file.read(size, 0))
        finally:
            file.close()
    except StorageFailedError as error:
        return DerivedFile(None) if error.errno == errno.ENOENT else DerivedFile(None, _fault(error))


def set_aside(fs: FileSystem, path: str) -> str:
    """Renames what has the name of a derived file and cannot be replaced, such as a directory. Returns the new path."""
    number = 1
    while fs.exists(f"{path}.unusable-{number}"):
        number += 1
    fs.rename(path, target := f"{path}.unusable-{number}")
    return target


def remove_derived(fs: FileSystem, path: str) -> None:
    """Removes a derived file. A directory that has its name is set aside: nobody knows what is in it."""
    try:
        fs.remove(path)
    except StorageFailedError as error:
        if not is_no_file(error):
            raise
        set_aside(fs, path)


def is_no_file(error: StorageFailedError) -> bool:
    """Whether a call failed because a directory, link or pipe has the file's name."""
    return error.errno in (
        errno.EISDIR,
        errno.EPERM,
        errno.EINVAL,
        errno.ELOOP,
        errno.ENXIO,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EEXIST,
    )


def _fault(error: StorageFailedError) -> str:
    if error.errno in _OF_THE_PROCESS:
        raise error
    return str(error)
