"""Locks between processes, on byte ranges of files (reliability 10).

Open-file-description locks conflict with the POSIX record locks that Java takes, end with their process, and survive the
closing of another descriptor of the same file. Linux and macOS have them; Python lacks the constants for macOS.

A forked child shares its parent's file description: unlocking in the child would unlock for the parent, and a lock that the
child keeps open would survive the parent's death. So the child closes its copies at once and unlocks nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
from typing import Final

from pylog import limits
from pylog.errors import ClosedError, StorageFailedError
from pylog.fs.descriptors import Descriptor, above_standard
from pylog.fs.living import LiveSet
from pylog.fs.open_files import advice, opening
from pylog.fs.ownership import create_file

_ZEROS: Final = memoryview(bytes(limits.RESERVE_BYTES))
_NOT_TO_BE_OPENED: Final = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO)

if sys.platform == "darwin":
    _SET, _GET = 90, 92
    _FLOCK = struct.Struct("qqihh")  # start, length, pid, type, whence

    def _request(kind: int, start: int, size: int) -> bytes:
        return _FLOCK.pack(start, size, 0, kind, os.SEEK_SET)

    def _answer(data: bytes) -> tuple[int, int]:
        _, _, pid, kind, _ = _FLOCK.unpack(data)
        return kind, pid

else:
    _SET, _GET = fcntl.F_OFD_SETLK, fcntl.F_OFD_GETLK
    _FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid

    def _request(kind: int, start: int, size: int) -> bytes:
        return _FLOCK.pack(kind, os.SEEK_SET, start, size, 0)

    def _answer(data: bytes) -> tuple[int, int]:
        kind, _, _, _, pid = _FLOCK.unpack(data)
        return kind, pid


_open: LiveSet[OsLockFile | OsDirectoryLock] = LiveSet()


def _failed(doing: str, path: str, error: OSError) -> StorageFailedError:
    return StorageFailedError(f"cannot {doing} {path}: {advice(error) or error.strerror}", path=path, errno=error.errno)


def _opened_or_created(path: str) -> int:
    while True:  # another process may create it meanwhile, and a stopping broker removes its own
        with contextlib.suppress(FileNotFoundError):
            return opening(os.open, path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with contextlib.suppress(FileExistsError):
            return create_file(path, os.O_RDWR)


class OsLockFile(Descriptor):
    """A file whose bytes are locks. It is created if missing, and pylog never deletes it.

    Args:
        path: the file.

    Attributes:
        descriptor: the descriptor of the open file; -1 once it is closed.

    Raises:
        StorageFailedError: the file cannot be opened, or is not a regular file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self.descriptor = above_standard(_opened_or_created(path))
        except OSError as error:
            raise _failed("open", path, error) from error
        if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            self.close()
            raise StorageFailedError(f"{path} is not a regular file, so it cannot be used as a lock file; remove it", path=path)
        _open.add(self)

    def byte(self, at: int) -> OsLockByte:
        """Returns one byte of the file, for repeated exclusive locking."""
        return OsLockByte(self, at)

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        """Locks a range, or changes the mode of its lock. Returns False if another lock conflicts. Cost: 1 µs.

        Args:
            start, size: bytes; size 0 means everything from `start` on.
            exclusive: whether the lock excludes all other locks, or only exclusive ones.
        """
        return self.set(_request(fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK, start, size))

    def unlock(self, start: int, size: int) -> None:
        """Unlocks a range."""
        self.set(_request(fcntl.F_UNLCK, start, size))

    def set(self, request: bytes) -> bool:
        """Performs a lock request. Returns False if another lock conflicts.

        Raises:
            ClosedError: the file is closed. Its locks ended with that.
        """
        try:
            fcntl.fcntl(self.descriptor, _SET, request)
        except (OSError, ValueError) as error:
            self.refuse(error)
            return False
        return True

    def refuse(self, error: OSError | ValueError) -> None:
        """Raises for the error of a request, unless another lock conflicts. Python gives a ValueError for a closed file."""
        if isinstance(error, ValueError) or error.errno == errno.EBADF:
            raise ClosedError(f"{self._path} is closed, because its store is; open the store again", path=self._path) from error
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise _failed("lock", self._path, error) from error

    def is_locked(self, start: int, size: int) -> bool:
        """Returns whether another process or description has any lock on a part of a range. Cost: 1 µs."""
        return self.conflicts(_request(fcntl.F_WRLCK, start, size))

    def conflicts(self, request: bytes) -> bool:
        """Returns whether a lock request would conflict with the lock of another process or description. Raises as `set`."""
        try:
            return _answer(fcntl.fcntl(self.descriptor, _GET, request))[0] != fcntl.F_UNLCK
        except (OSError, ValueError) as error:
            self.refuse(error)
            return True

    def keep_room(self, size: int) -> bool:
        """Fills the file with zeros up to a size, as far as the disk has room. Returns whether it has that size now."""
        try:
            end = os.lseek(self.descriptor, 0, os.SEEK_END)
            while end < size:
                end += os.pwrite(self.descriptor, _ZEROS[: size - end], end)
        except OSError:
            return False
        return True

    def give_room(self, size: int) -> None:
        """Cuts the file to a size, which gives its other blocks to whatever is written next."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, size)

    def is_current(self) -> bool:
        """Returns whether the name still leads to this file: a broker unlinks its lock file when it stops."""
        try:
            is_same = os.stat(self._path).st_ino == os.fstat(self.descriptor).st_ino
        except FileNotFoundError:
            return False
        except OSError as error:
            self.refuse(error)
            return False
        if self.descriptor < 0:  # then the number led to another file
            self.refuse(OSError(errno.EBADF, "closed"))
        return is_same

    def close(self) -> None:
        """Closes the file, which releases its locks."""
        self._close()


class OsDirectoryLock(Descriptor):
    """A lock on a directory itself, which cannot be removed while the directory is in use.

    Args:
        descriptor: the open directory; closed with the lock.
        path: the directory, for messages.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self._path = path
        _open.add(self)

    def try_lock(self, *, exclusive: bool) -> bool:
        """Locks the directory, or changes the mode of its lock, which is not atomic. Returns False if another lock conflicts."""
        descriptor = self.descriptor
        self._check_open()
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as error:
            self._check_open()
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise _failed("lock", self._path, error) from error
        self._check_open()  # otherwise the number led nowhere
        return True

    def _check_open(self) -> None:
        if self.descriptor < 0:
            raise ClosedError(f"{self._path} is closed; open the store again", path=self._path)

    def close(self) -> None:
        """Closes the directory, which releases the lock."""
        self._close()


def directory_lock(path: str) -> OsDirectoryLock | None:
    """Returns the lock of a directory; None if its file system has no such locks, as some network file systems."""
    descriptor = above_standard(opening(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    lock = OsDirectoryLock(descriptor, path)
    for exclusive in (False, True):  # NFS has none for a file that is open for reading only
        try:
            lock.try_lock(exclusive=exclusive)
        except StorageFailedError:
            lock.close()
            return None
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return lock


class OsLockByte:
    """One byte of a lock file. Its two requests are prepared once, because every append makes both, without a further call.

    Args:
        file: the lock file.
        at: the byte's position.
    """

    def __init__(self, file: OsLockFile, at: int) -> None:
        self.at = at
        self._file = file
        self._taking = _request(fcntl.F_WRLCK, at, 1)
        self._leaving = _request(fcntl.F_UNLCK, at, 1)

    def try_take(self) -> bool:
        """Locks the byte, unless it is locked already. Returns whether it did."""
        file = self._file
        try:
            fcntl.fcntl(file.descriptor, _SET, self._taking)
        except (OSError, ValueError) as error:
            file.refuse(error)
            return False
        return True

    def release(self) -> None:
        """Unlocks the byte."""
        file = self._file
        try:
            fcntl.fcntl(file.descriptor, _SET, self._leaving)
        except (OSError, ValueError) as error:
            file.refuse(error)

    def is_held(self) -> bool:
        """Returns whether another process or description has the byte locked. Cost: 1 µs."""
        return self._file.conflicts(self._taking)


def owner(path: str, start: int, size: int) -> int | None:
    """Returns the process whose lock on a range of a file would stop a writer; 0 if it is not reported, None without a lock."""
    try:
        descriptor = opening(
            os.open, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        )  # O_NONBLOCK: a pipe must not block
    except OSError as error:
        if error.errno in _NOT_TO_BE_OPENED:
            return None  # no lock file, or one that this user may not open: no lock can be detected
        raise _failed("open", path, error) from error  # otherwise a running broker would not be noticed
    try:
        kind, pid = _answer(fcntl.fcntl(descriptor, _GET, _request(fcntl.F_WRLCK, start, size)))
        return None if kind == fcntl.F_UNLCK else max(pid, 0)
    except OSError as error:
        raise _failed("look for locks of", path, error) from error
    finally:
        os.close(descriptor)


def _close_in_child() -> None:
    for file in _open.members():
        file.close()


os.register_at_fork(after_in_child=_close_in_child)
