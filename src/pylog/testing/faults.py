"""A file system that makes calls fail: the n-th call of a kind, once or from then on (reliability 8.1).

It wraps another file system. Failures have the side effects of a real disk: a short write leaves its first half. After a failed
sync, the bytes can be read, but no later sync writes them, if the wrapped file system supports that.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pylog.errors import InvalidArgumentError, StorageFailedError, SyncFailedError
from pylog.fs import Bytes, DirectoryEntry, DirectoryLock, File, FileSystem, LockByte, LockFile
from pylog.fs.door import ForwardingFile


class FaultKind(NamedTuple):
    """A kind of failure.

    Attributes:
        call: "read", "write", "truncate", "sync", "sync_directory", "create", "rename" or "remove"; "open" stands for every call
            that opens a descriptor, "stat" for every call that asks what a path leads to, and "lock" for every request to a lock
            file.
        errno: error number of the operating system.
        short: True if the first half of a write is written before it fails.
    """

    call: str
    errno: int
    short: bool = False


FAULTS: Final[Mapping[str, FaultKind]] = MappingProxyType(
    {
        "write ENOSPC": FaultKind("write", errno.ENOSPC),
        "write EDQUOT": FaultKind("write", errno.EDQUOT),
        "write EFBIG": FaultKind("write", errno.EFBIG),
        "write EIO": FaultKind("write", errno.EIO),
        "short write ENOSPC": FaultKind("write", errno.ENOSPC, short=True),
        "sync EIO": FaultKind("sync", errno.EIO),
        "sync ENOSPC": FaultKind("sync", errno.ENOSPC),
        "sync_directory EIO": FaultKind("sync_directory", errno.EIO),
        "create ENOSPC": FaultKind("create", errno.ENOSPC),
        "rename EIO": FaultKind("rename", errno.EIO),
        "rename ENOSPC": FaultKind("rename", errno.ENOSPC),
        "remove EIO": FaultKind("remove", errno.EIO),
        "truncate EIO": FaultKind("truncate", errno.EIO),
        "read EIO": FaultKind("read", errno.EIO),
        "open EMFILE": FaultKind("open", errno.EMFILE),
        "stat EIO": FaultKind("stat", errno.EIO),
        "lock ENOLCK": FaultKind("lock", errno.ENOLCK),
    }
)


class _Plan:
    """Counts calls and decides which one fails. All files of a file system share it, from any thread."""

    def __init__(self, kind: FaultKind | None = None, number: int = 0, *, forever: bool = False, of: str = "") -> None:
        self._kind = kind
        self._number = number
        self._forever = forever
        self._of = of
        self._calls = 0
        self._guard = threading.Lock()
        self.fired = 0

    def strikes(self, call: str, path: str) -> FaultKind | None:
        """Counts a call. Returns its failure, or None."""
        kind = self._kind
        if kind is None or kind.call != call or not path.endswith(self._of):
            return None
        with self._guard:
            self._calls += 1
            hit = self._calls >= self._number if self._forever else self._calls == self._number
            self.fired += hit
            return kind if hit else None


class FaultyFile(ForwardingFile):
    """A file of a `FaultyFileSystem`."""

    def __init__(self, fs: FaultyFileSystem, file: File) -> None:
        self._fs = fs
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads, or fails."""
        self._fs.meet("read", self.path)
        return self._file.read_into(view, position)

    def read(self, size: int, position: int) -> bytes:
        """Reads, or fails."""
        self._fs.meet("read", self.path)
        return self._file.read(size, position)

    def expect(self, position: int, end: int) -> FaultyFile:  # noqa: ARG002 - as `File` has it
        """Returns this file, whose reads may fail."""
        return self

    def write(self, data: memoryview, position: int) -> None:
        """Writes, or fails after writing nothing or the first half."""
        kind = self._fs.strikes("write", self.path)
        if kind is None:
            self._file.write(data, position)
            return
        if kind.short:
            self._file.write(data[: len(data) // 2], position)
        raise _failure(kind, self.path)

    def truncate(self, size: int) -> None:
        """Truncates, or fails."""
        self._fs.meet("truncate", self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        """Syncs, or fails. After a failure, the writes may never reach the disk, even if a later sync succeeds."""
        kind = self._fs.strikes("sync", self.path)
        if kind is None:
            self._file.sync()
            return
        forget: Any = getattr(self._file, "forget_writes", None)
        if forget is not None:
            forget()
        raise _failure(kind, self.path)

    def close(self) -> None:
        self._file.close()


class FaultyLockFile:
    """A lock file of a `FaultyFileSystem`. Its requests may fail; a lock that exists stays."""

    def __init__(self, fs: FaultyFileSystem, locks: LockFile, path: str) -> None:
        self._fs = fs
        self._locks = locks
        self._path = path

    def byte(self, at: int) -> FaultyLockByte:
        """Returns one byte of the file, whose requests may fail."""
        return FaultyLockByte(self._fs, self._locks.byte(at), self._path)

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        """Locks a range, or fails."""
        self._fs.meet("lock", self._path)
        return self._locks.try_lock(start, size, exclusive=exclusive)

    def unlock(self, start: int, size: int) -> None:
        """Unlocks a range. The system needs nothing for it, so it does not fail."""
        self._locks.unlock(start, size)

    def is_locked(self, start: int, size: int) -> bool:
        """Asks for the locks of others, or fails."""
        self._fs.meet("lock", self._path)
        return self._locks.is_locked(start, size)

    def keep_room(self, size: int) -> bool:
        return self._locks.keep_room(size)

    def give_room(self, size: int) -> None:
        self._locks.give_room(size)

    def is_current(self) -> bool:
        """Compares the name with the open file, or fails."""
        self._fs.meet("stat", self._path)
        return self._locks.is_current()

    def close(self) -> None:
        self._locks.close()


class FaultyLockByte:
    """A byte of a `FaultyLockFile`."""

    def __init__(self, fs: FaultyFileSystem, byte: LockByte, path: str) -> None:
        self._fs = fs
        self._byte = byte
        self._path = path

    def try_take(self) -> bool:
        """Locks the byte, or fails."""
        self._fs.meet("lock", self._path)
        return self._byte.try_take()

    def release(self) -> None:
        self._byte.release()

    def is_held(self) -> bool:
        """Asks for a lock of another, or fails."""
        self._fs.meet("lock", self._path)
        return self._byte.is_held()


class FaultyFileSystem:
    """A file system whose calls can fail.

    Args:
        fs: the wrapped file system.

    >>> import pylog
    >>> from pylog.testing import MemoryFileSystem
    >>> fs = FaultyFileSystem(MemoryFileSystem())
    >>> store = pylog.open("/shop", fs=fs)
    >>> log = store.create_topic("orders") and store.log("orders")
    >>> log.append(b"placed")
    0
    >>> fs.fail("write ENOSPC")
    >>> log.append(b"paid")
    Traceback (most recent call last):
    pylog.errors.StorageFailedError: cannot write ...
    >>> fs.heal()
    >>> log.append(b"paid")
    1
    >>> store.close()
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._plan = _Plan()

    def fail(self, kind: str, number: int = 1, *, forever: bool = False, of: str = "") -> None:
        """Makes a call fail.

        Args:
            kind: one of `FAULTS`.
            number: number of the call to fail, counted from 1 from now on.
            forever: make all later calls fail, too.
            of: count only calls for paths with this ending.

        Raises:
            InvalidArgumentError: `kind` is not one of `FAULTS`.
        """
        if kind not in FAULTS:
            raise InvalidArgumentError(f"{kind!r} is not one of {', '.join(FAULTS)}")
        self._plan = _Plan(FAULTS[kind], number, forever=forever, of=of)

    def heal(self) -> None:
        """Makes all calls succeed again."""
        self._plan = _Plan()

    @property
    def fired(self) -> int:
        """The number of failed calls since the last `fail`."""
        return self._plan.fired

    def strikes(self, call: str, path: str) -> FaultKind | None:
        """Counts a call. Returns its failure, or None."""
        return self._plan.strikes(call, path)

    def meet(self, call: str, path: str) -> None:
        """Counts a call, and raises its error if it must fail."""
        kind = self._plan.strikes(call, path)
        if kind is not None:
            raise _failure(kind, path)

    # ---- the calls -----------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False) -> File:
        """Opens a file, or fails. The calls of the file may fail, too."""
        self.meet("open", path)
        return FaultyFile(self, self._fs.open(path, write=write))

    def create(self, path: str) -> File:
        """Creates a file, or fails."""
        self.meet("open", path)
        self.meet("create", path)
        return FaultyFile(self, self._fs.create(path))

    def map(self, path: str) -> Bytes:
        """Maps a file, or fails. Later failures of a mapping are signals, which cannot be simulated here."""
        self.meet("open", path)
        self.meet("read", path)
        return self._fs.map(path)

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        """Lists a directory, or fails."""
        self.meet("open", path)
        return self._fs.list(path, sizes=sizes)

    def exists(self, path: str) -> bool:
        """Returns whether a path leads to anything, or fails."""
        self.meet("stat", path)
        return self._fs.exists(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Returns what a path leads to, or fails."""
        self.meet("stat", path)
        return self._fs.identity(path)

    def link_target(self, path: str) -> str | None:
        """Returns the target of a link, or fails."""
        self.meet("stat", path)
        return self._fs.link_target(path)

    def read(self, path: str, limit: int) -> bytes | None:
        """Reads a small file, or fails."""
        self.meet("open", path)
        self.meet("read", path)
        return self._fs.read(path, limit)

    def make_directory(self, path: str) -> None:
        """Creates a directory, or fails."""
        self.meet("create", path)
        self._fs.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Renames, or fails."""
        self.meet("rename", source)
        self._fs.rename(source, target)

    def remove(self, path: str) -> None:
        """Removes a file, or fails."""
        self.meet("remove", path)
        self._fs.remove(path)

    def remove_tree(self, path: str) -> None:
        """Removes a directory, or fails."""
        self.meet("remove", path)
        self._fs.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        """Syncs a directory, or fails."""
        self.meet("open", path)
        self.meet("sync_directory", path)
        self._fs.sync_directory(path)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        self._fs.check_directory(path, write=write, follow=follow)

    def open_locks(self, path: str) -> LockFile:
        """Opens a lock file, or fails."""
        self.meet("open", path)
        return FaultyLockFile(self, self._fs.open_locks(path), path)

    def lock_directory(self, path: str) -> DirectoryLock | None:
        """Opens a directory for its lock, or fails."""
        self.meet("open", path)
        return self._fs.lock_directory(path)

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        """Returns the process that holds a lock, or fails."""
        self.meet("lock", path)
        return self._fs.lock_owner(path, start, size)

    def boot_id(self) -> bytes:
        return self._fs.boot_id()


def _failure(kind: FaultKind, path: str) -> StorageFailedError:
    doing = kind.call.replace("_", " ")
    error = SyncFailedError if doing.startswith("sync") else StorageFailedError
    return error(f"cannot {doing} {path}: {errno.errorcode[kind.errno]}, for a test", path=path, errno=kind.errno)
