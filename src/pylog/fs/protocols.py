"""What the engine asks of a file system: protocols, and what a directory entry is."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class DirectoryEntry(NamedTuple):
    """One name of a directory.

    Attributes:
        name: without the directory.
        is_directory: a directory, or a symbolic link to one.
        is_file: a regular file; a link to one is none.
        size: in bytes, 0 of a link.
        mtime_ms: when it was modified, in milliseconds.
        is_link: a symbolic link. One that leads nowhere is neither a file nor a directory.
    """

    name: str
    is_directory: bool
    is_file: bool
    size: int
    mtime_ms: int
    is_link: bool = False


class File(Protocol):
    """An open file. Positions and sizes in bytes."""

    @property
    def path(self) -> str: ...

    def read_into(self, view: memoryview, position: int) -> int:
        """Fills `view` from `position` on and returns how many bytes there were: fewer only at the end of the file."""
        ...

    def read(self, size: int, position: int) -> bytes:
        """The same as bytes of their own: for a few of them it takes less time."""
        ...

    def write(self, data: memoryview, position: int) -> None:
        """Writes all of `data`, or raises; what was written before the failure is left in place."""
        ...

    def write_back(self, position: int, size: int) -> None:
        """Has the system begin to bring some written bytes to the disk, without waiting for it. Only `sync` promises anything."""
        ...

    def size(self) -> int: ...

    def identity(self) -> tuple[int, int]:
        """Device and inode: what tells this file from another one that later has its name."""
        ...

    def set_mtime(self, mtime_ms: int) -> None:
        """Gives the file another modification time, in milliseconds, until it is written again."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Names and what they stand for. Every failure is a `StorageFailedError` or `NotALogDirectoryError`."""

    def open(self, path: str, *, write: bool = False) -> File: ...

    def create(self, path: str) -> File: ...

    def map(self, path: str) -> Bytes: ...

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        """The entries of a directory in the order of their names; sizes and times are 0 of those without `sizes` in theirs."""
        ...

    def exists(self, path: str) -> bool: ...

    def read(self, path: str, limit: int) -> bytes | None: ...

    def link_target(self, path: str) -> str | None:
        """Where a symbolic link leads, links on the way resolved; None of a path that is no link.

        Raises:
            NotALogDirectoryError: a user made the link whom neither this process nor the directory belongs to.
        """
        ...

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None: ...

    def open_locks(self, path: str) -> LockFile: ...

    def lock_owner(self, path: str) -> int | None: ...

    def boot_id(self) -> bytes:
        """What changes when the operating system restarts; empty where the system does not tell."""
        ...


class LockFile(Protocol):
    """A file whose bytes are locks between processes. They end with `close` or with the process, never by time."""

    def byte(self, at: int) -> LockByte:
        """One of its bytes, for who takes it alone, again and again."""
        ...

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        """Takes a range (a size of 0: to the end of everything) or changes how it is held; False when another's is in the way."""
        ...

    def unlock(self, start: int, size: int) -> None: ...

    def is_locked(self, start: int, size: int) -> bool:
        """Whether anybody else has a lock, of any kind, on a part of a range."""
        ...

    def is_current(self) -> bool:
        """Whether the name still leads to this file."""
        ...

    def close(self) -> None: ...


class LockByte(Protocol):
    """A byte of a lock file."""

    def try_take(self) -> bool:
        """Takes it, unless somebody else has it."""
        ...

    def let_go(self) -> None: ...
