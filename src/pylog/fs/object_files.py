"""Files of a directory that stands for an object store: each is written whole, and gets its name when it is complete.

A file is synced before it gets its name, and its directory afterwards. A temporary file of a process that died has a name that
ends in `.tmp`; it is no object.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pylog.fs import ownership
from pylog.fs.open_files import opening
from pylog.fs.system import reported

TEMPORARY = ".tmp"
_LOCK = ".lock"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})  # of file systems without hard links
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class FileFacts(NamedTuple):
    """A file: its size in bytes, a text that changes with its content, and its time in milliseconds."""

    size: int
    tag: str
    modified_ms: int


def read_range(path: str, start: int, end: int) -> bytes | None:
    """Returns bytes of a file, fewer at its end; None if there is no file."""
    with reported("read", path, start):
        try:
            with io.BufferedReader(opening(io.FileIO, path)) as file:
                # A range from a damaged document takes no memory for bytes that are not there.
                size = os.fstat(file.fileno()).st_size
                file.seek(start)
                return file.read(max(0, min(end, size) - start))
        except _NO_FILE:
            return None


def read_whole(path: str) -> tuple[bytes, FileFacts] | None:
    """Returns a file's content, and its facts; None if there is no file."""
    with reported("read", path):
        try:
            with io.BufferedReader(opening(io.FileIO, path)) as file:
                return file.read(), _facts(os.fstat(file.fileno()))
        except _NO_FILE:
            return None


def facts(path: str) -> FileFacts | None:
    """Returns a file's facts; None if there is no file."""
    with reported("inspect", path):
        try:
            found = os.stat(path)
        except _NO_FILE:
            return None
    return _facts(found) if stat.S_ISREG(found.st_mode) else None


def _facts(found: os.stat_result) -> FileFacts:
    tag = f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"
    return FileFacts(found.st_size, tag, found.st_mtime_ns // 1_000_000)


def create_whole(root: str, path: str, data: bytes | bytearray | memoryview) -> bool:
    """Creates a file with its content, durably. Returns False, and changes nothing, if a file has that name.

    Args:
        root: the store's directory, which is created like the directories between it and the file.
        path: the file.
        data: the content.
    """
    return _named(root, path, data, lambda temporary: _linked(root, temporary, path))


def replace_whole(root: str, path: str, data: bytes | bytearray | memoryview, tag: str | None) -> bool:
    """Replaces a file, or creates it, durably. Returns False, and changes nothing, if its tag differs from a given one."""

    def replaced(temporary: str) -> bool:
        with _turn(root):
            found = facts(path)
            if tag is not None and (found is None or found.tag != tag):
                return False
            os.replace(temporary, path)
            return True

    return _named(root, path, data, replaced)


def _named(root: str, path: str, data: bytes | bytearray | memoryview, name: Callable[[str], bool]) -> bool:
    directory = os.path.dirname(path)
    temporary = f"{path}.{os.urandom(8).hex()}{TEMPORARY}"
    with reported("write", path):
        _make_directories(root, directory)
        try:
            with open(ownership.create_file(temporary, os.O_WRONLY), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            done = name(temporary)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        if done:
            _sync(directory)
        return done


def _linked(root: str, temporary: str, path: str) -> bool:
    """Gives a file a name that no file has. The system's call does both, or none, whatever other processes do."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with _turn(root):
            if os.path.lexists(path):
                return False
            os.rename(temporary, path)
    return True


def _make_directories(root: str, directory: str) -> None:
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    if parent != directory:
        _make_directories(root, parent)
    with contextlib.suppress(FileExistsError):  # another writer was faster
        ownership.make_directory(directory)
    _sync(parent)


def _sync(directory: str) -> None:
    descriptor = opening(os.open, directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _turn(root: str) -> Iterator[None]:
    """Lets one process at a time compare a file and replace it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = opening(os.open, os.path.join(root, _LOCK), flags, ownership.FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_file(path: str) -> None:
    """Removes a file, if there is one, durably."""
    with reported("remove", path), contextlib.suppress(*_NO_FILE):
        os.unlink(path)
        _sync(os.path.dirname(path))


def walk(directory: str) -> Iterator[tuple[str, FileFacts]]:
    """Yields the files under a directory with their facts: paths relative to it, unfinished files left out."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for entry in _entries(os.path.join(directory, inside)):
            path = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
            elif not path.endswith(TEMPORARY) and path != _LOCK:
                found = facts(os.path.join(directory, path))
                if found is not None:
                    yield path, found


def _entries(directory: str) -> list[os.DirEntry[str]]:
    with reported("list", directory):
        try:
            with opening(os.scandir, directory) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except _NO_FILE:
            return []
