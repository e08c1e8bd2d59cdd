"""Reads derived files: indexes, seals, snapshots, checkpoints, markers. An unusable derived file counts as missing.

A derived file can be rebuilt from the records, so it must never keep a partition from opening. The file may be too large, a
directory, a link, a pipe, or unreadable: the caller gets a description of the fault and continues without the file.
tests/log/test_derived_files.py checks that no other module reads such files.
"""

from __future__ import annotations

import errno
from typing import Final, NamedTuple

from pylog.errors import StorageFailedError
from pylog.fs.protocols import Bytes, FileSystem

# The process is out of descriptors or memory. This says nothing about the file, and every other call would fail too.
_OF_THE_PROCESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class DerivedFile(NamedTuple):
    """The bytes of a derived file.

    Attributes:
        data: the bytes; None if the file is missing or unusable.
        fault: why it is unusable.
        too_large: it has more bytes than a file of its kind can have.
        withheld: the system does not give its bytes to this user, or the disk does not: what it holds is not known.
    """

    data: bytes | None
    fault: str | None = None
    too_large: bool = False
    withheld: bool = False


class MappedFile(NamedTuple):
    """Like `DerivedFile`, but mapped."""

    data: Bytes | None
    fault: str | None = None


def read_derived(fs: FileSystem, path: str, limit: int) -> DerivedFile:
    """Reads a whole derived file.

    Args:
        fs, path: the file.
        limit: the most bytes that a valid file of this kind can have. A larger file is not read.

    Raises:
        StorageFailedError: the process has too many open files, or no memory left.
    """
    try:
        return DerivedFile(fs.read(path, limit))
    except StorageFailedError as error:
        withheld = error.errno in (errno.EACCES, errno.EPERM, errno.EIO)
        return DerivedFile(None, _fault(error), error.errno is None, withheld)


def map_derived(fs: FileSystem, path: str, limit: int) -> MappedFile:
    """Maps a derived file that never changes again. Otherwise like `read_derived`."""
    if not fs.exists(path):
        return MappedFile(None)
    try:
        file = fs.open(path)
        try:
            size = file.size()
        finally:
            file.close()
        if size > limit:
            return MappedFile(None, f"{path} has {size} bytes; the limit for a file of this kind is {limit}")
        return MappedFile(fs.map(path))
    except StorageFailedError as error:
        return MappedFile(None) if error.errno == errno.ENOENT else MappedFile(None, _fault(error))


def read_start(fs: FileSystem, path: str, size: int) -> DerivedFile:
    """Reads the first bytes of a derived file of any size. Otherwise like `read_derived`."""
    try:
        file = fs.open(path)
        try:
            return DerivedFile(file.read(size, 0))
        finally:
            file.close()
    except StorageFailedError as error:
        return DerivedFile(None) if error.errno == errno.ENOENT else DerivedFile(None, _fault(error))


def set_aside(fs: FileSystem, path: str) -> str:
    """Renames anything irreplaceable that has a derived file's name, such as a directory. Returns the new path."""
    number = 1
    while fs.exists(f"{path}.unusable-{number}"):
        number += 1
    fs.rename(path, target := f"{path}.unusable-{number}")
    return target


def remove_derived(fs: FileSystem, path: str) -> None:
    """Removes a derived file, if it is there. A directory with that name is renamed instead, because its contents are unknown."""
    try:
        fs.remove(path)
    except StorageFailedError as error:
        if error.errno == errno.ENOENT:  # an earlier call removed it, and failed after that
            return
        if not is_no_file(error):
            raise
        set_aside(fs, path)


def is_no_file(error: StorageFailedError) -> bool:
    """Returns whether a call failed because a directory, link or pipe has the file's name."""
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
