"""The protocols of a file system that the engine uses, and its directory entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bytes: TypeAlias = "NDArray[np.uint8]"  # a text: most commands map no file, and need no numpy


NAMES_ONLY: Final = "/"  # no name has it


class Vouched(NamedTuple):
    """The facts of a sealed segment in a manifest that has checksums of its files. They need no comparison with the log.

    Attributes:
        end_offset: the offset after its last record.
        max_timestamp: its largest timestamp in milliseconds, -1 if it has none.
    """

    end_offset: int
    max_timestamp: int


class DirectoryEntry(NamedTuple):
    """One entry of a directory.

    name: the name without the directory.
        name: without the directory.
        is_directory: true for a directory, or a symbolic link to one.
        is_file: true for a regular file, false for a link to one.
        size: in bytes; 0 for a link.
        mtime_ms: modification time, in milliseconds.
        is_link: true for a symbolic link. A dangling link is neither a file nor a directory.
        inode: the inode of an entry that has a size; else 0.
        vouched: the facts that an archive's manifest has of a segment; None on a disk.
    """

    name: str
    is_directory: bool
    is_file: bool
    size: int
    mtime_ms: int
    is_link: bool = False
    inode: int = 0
    vouched: Vouched | None = None


class File(Protocol):
    """An open file. Positions and sizes are in bytes."""

    @property
    def path(self) -> str: ...

    def read_into(self, view: memoryview, position: int) -> int:
        """Fills `view` from `position` on and returns the number of bytes read: fewer than asked only at the end of the file."""
        ...

    def read(self, size: int, position: int) -> bytes:
        """Returns the same bytes as a new object: faster for small reads."""
        ...

    def expect(self, position: int, end: int) -> File:
        """Returns a file for reading a range of this one in order, from `position` to before `end`. It is not closed.

        A file of an object store reads ahead in it, and keeps what it has read. Other files return themselves.
        """
        ...

    def write(self, data: memoryview, position: int) -> None:
        """Writes all of `data`, or raises; bytes written before a failure stay."""
        ...

    def write_back(self, position: int, size: int) -> None:
        """Starts writing some written bytes to the disk, without waiting for it. Only `sync` makes them durable."""
        ...

    def size(self) -> int: ...

    def next_data(self, position: int) -> int:
        """Returns the first position from `position` on outside of the holes of a sparse file; at least the size if none is."""
        ...

    def identity(self) -> tuple[int, int]:
        """Returns device and inode, which differ for another file that later has the same name."""
        ...

    def set_mtime(self, mtime_ms: int) -> None:
        """Sets the file's modification time, in milliseconds, until it is written again."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Operations on names. Every failure is a `StorageFailedError` or `NotALogDirectoryError`."""

    def open(self, path: str, *, write: bool = False) -> File: ...

    def create(self, path: str) -> File: ...

    def map(self, path: str) -> Bytes: ...

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        """Lists a directory in the order of names.

        Args:
            path: the directory.
            sizes: entries whose name does not contain this text have size and time 0; `NAMES_ONLY` for all of them. Cost: a
                system call for each of the others.
        """
        ...

    def exists(self, path: str) -> bool: ...

    def identity(self, path: str) -> tuple[int, int] | None:
        """Returns device and inode of what a path leads to, links followed; None if there is nothing. Cost: one `stat`."""
        ...

    def read(self, path: str, limit: int) -> bytes | None: ...

    def link_target(self, path: str) -> str | None:
        """Returns the target of a symbolic link, with all links resolved; None if the path is not a link.

        Raises:
            NotALogDirectoryError: the link's owner is neither root, this process's user, nor the directory's owner.
        """
        ...

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None: ...

    def open_locks(self, path: str) -> LockFile: ...

    def lock_directory(self, path: str) -> DirectoryLock | None:
        """Returns the lock of a directory itself, not taken yet; None if the file system has no such locks."""
        ...

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None: ...

    def boot_id(self) -> bytes:
        """Returns an id that changes when the operating system restarts; empty if the system has none."""
        ...


class LockFile(Protocol):
    """A file whose bytes are locks between processes. Locks end with `close` or with the process, and never expire."""

    def byte(self, at: int) -> LockByte:
        """Returns one byte of the file, for repeated exclusive locking."""
        ...

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        """Locks a range, or changes the mode of its lock; size 0 means to the end. Returns False if another lock conflicts."""
        ...

    def unlock(self, start: int, size: int) -> None: ...

    def is_locked(self, start: int, size: int) -> bool:
        """Returns whether another process or description has any lock on a part of a range."""
        ...

    def keep_room(self, size: int) -> bool:
        """Fills the file with zeros up to a size, as far as the disk has room. Returns whether it has that size now."""
        ...

    def give_room(self, size: int) -> None:
        """Cuts the file to a size, which gives its other blocks to whatever is written next."""
        ...

    def is_current(self) -> bool:
        """Returns whether the name still leads to this file."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    """A lock on a directory itself, which cannot be removed while it is held. It ends with `close` or with the process."""

    def try_lock(self, *, exclusive: bool) -> bool:
        """Locks the directory, or changes the mode of its lock. Returns False if another lock conflicts; none is held then."""
        ...

    def close(self) -> None: ...


class LockByte(Protocol):
    """A byte of a lock file."""

    def try_take(self) -> bool:
        """Locks the byte, unless it is locked already. Returns whether it did."""
        ...

    def release(self) -> None: ...

    def is_held(self) -> bool:
        """Returns whether another process or description has the byte locked."""
        ...
