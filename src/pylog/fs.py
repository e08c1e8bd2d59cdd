"""The only module that touches the operating system's files: everything pylog reads, writes, syncs, names and locks.

`FileSystem` and `File` are protocols; `OsFileSystem` is the real one. Crash, fault and power-loss tests put another one
behind the same engine, so nothing above this module may know which it has.

Rules kept here: no write is short (the loop ends or raises); files are made with `O_EXCL`, opened without following
links, closed on exec; a sync that failed is never tried again; only files that never change again are mapped.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import NotALogDirectoryError, StorageFailedError

Bytes = NDArray[np.uint8]

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_NO_LINKS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: opening a planted FIFO must not wait


class DirectoryEntry(NamedTuple):
    """One name of a directory. Size in bytes, modification time in milliseconds."""

    name: str
    is_directory: bool
    is_file: bool
    size: int
    mtime_ms: int


class File(Protocol):
    """An open file. Positions and sizes in bytes."""

    @property
    def path(self) -> str: ...

    def read_into(self, view: memoryview, position: int) -> int:
        """Fills `view` from `position` on and returns how many bytes there were: fewer only at the end of the file."""
        ...

    def write(self, data: memoryview, position: int) -> None:
        """Writes all of `data`, or raises; what was written before the failure is left in place."""
        ...

    def size(self) -> int: ...

    def identity(self) -> tuple[int, int]:
        """Device and inode: what tells this file from another one that later has its name."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Names and what they stand for. Every failure is a `StorageFailedError` or `NotALogDirectoryError`."""

    def open(self, path: str, *, write: bool = False) -> File: ...

    def create(self, path: str) -> File: ...

    def map(self, path: str) -> Bytes: ...

    def list(self, path: str) -> list[DirectoryEntry]: ...

    def exists(self, path: str) -> bool: ...

    def read(self, path: str, limit: int) -> bytes | None: ...

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def check_directory(self, path: str, *, write: bool) -> None: ...

    def lock(self, path: str, *, exclusive: bool) -> Lock | None: ...

    def lock_owner(self, path: str) -> int | None: ...


class Lock(Protocol):
    """A lock that ends with `release`, or with its process."""

    def release(self) -> None: ...


@contextlib.contextmanager
def _reported(doing: str, path: str, position: int | None = None) -> Iterator[None]:
    """Turns an OSError into a StorageFailedError that says what was being done to which file."""
    try:
        yield
    except OSError as error:
        where = path if position is None else f"{path} at position {position}"
        raise StorageFailedError(
            f"cannot {doing} {where}: {os.strerror(error.errno or 0)}", path=path, position=position, errno=error.errno
        ) from error


class OsFile:
    """A regular file of the operating system."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def read_into(self, view: memoryview, position: int) -> int:
        done = 0
        with _reported("read", self._path, position):
            while done < len(view):
                count = os.preadv(self._descriptor, [view[done:]], position + done)
                if count == 0:
                    break
                done += count
        return done

    def write(self, data: memoryview, position: int) -> None:
        done = 0
        with _reported("write", self._path, position):
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], position + done)

    def size(self) -> int:
        with _reported("look at", self._path):
            return os.fstat(self._descriptor).st_size

    def identity(self) -> tuple[int, int]:
        with _reported("look at", self._path):
            status = os.fstat(self._descriptor)
            return status.st_dev, status.st_ino

    def truncate(self, size: int) -> None:
        with _reported("cut", self._path, size):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        with _reported("sync", self._path):
            if sys.platform == "darwin":
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)  # fsync leaves the data in the drive's cache there
            else:
                os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _reported("close", self._path):
                os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class OsFileSystem:
    """The operating system's files."""

    def open(self, path: str, *, write: bool = False) -> OsFile:
        """Opens an existing regular file; links, pipes and devices are refused."""
        with _reported("open", path):
            descriptor = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | _NO_LINKS)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "not a regular file")
        return OsFile(descriptor, path)

    def create(self, path: str) -> OsFile:
        """Makes a new file, which must not exist. Its name is durable only after `sync_directory`."""
        with _reported("create", path):
            return OsFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, FILE_MODE), path)

    def map(self, path: str) -> Bytes:
        """A read-only view of a whole file that never changes again. It lives as long as any view of it."""
        file = self.open(path)
        try:
            size = file.size()
            if size == 0:
                return np.empty(0, np.uint8)
            with _reported("map", path):
                mapping = mmap.mmap(file._descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        finally:
            file.close()
        return np.frombuffer(mapping, np.uint8)

    def list(self, path: str) -> list[DirectoryEntry]:
        """The entries of a directory in the order of their names; those that vanish meanwhile are left out."""
        found = []
        with _reported("list", path), os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    kind = stat.S_IFMT(status.st_mode)
                    found.append(
                        DirectoryEntry(
                            entry.name,
                            kind == stat.S_IFDIR,
                            kind == stat.S_IFREG,
                            status.st_size,
                            status.st_mtime_ns // 1_000_000,
                        )
                    )
        return sorted(found)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def read(self, path: str, limit: int) -> bytes | None:
        """A whole small file, or None when there is none.

        Raises:
            StorageFailedError: it cannot be read, or is larger than `limit` bytes.
        """
        if not os.path.lexists(path):
            return None
        file = self.open(path)
        try:
            size = file.size()
            if size > limit:
                raise StorageFailedError(f"{path} has {size} bytes, more than the {limit} that such a file may have", path=path)
            buffer = bytearray(size)
            return bytes(buffer[: file.read_into(memoryview(buffer), 0)])
        finally:
            file.close()

    def make_directory(self, path: str) -> None:
        with _reported("make directory", path):
            os.mkdir(path, DIRECTORY_MODE)

    def rename(self, source: str, target: str) -> None:
        with _reported("rename", source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with _reported("remove", path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Removes a directory and what is in it; links are removed, not followed."""
        with _reported("remove", path):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        with _reported("sync directory", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def check_directory(self, path: str, *, write: bool) -> None:
        """Raises NotALogDirectoryError, with what to do, unless `path` is a directory that may be used as asked."""
        if not os.path.exists(path):
            raise NotALogDirectoryError(f"there is no directory {path}; give the path of an existing one", path=path)
        if not os.path.isdir(path):
            raise NotALogDirectoryError(f"{path} is not a directory; give the directory that holds the topics", path=path)
        wanted = os.R_OK | os.X_OK | (os.W_OK if write else 0)
        if not os.access(path, wanted):
            verb = "read and write" if write else "read"
            hint = 'open it with mode="r", or ' if write and os.access(path, os.R_OK | os.X_OK) else ""
            raise NotALogDirectoryError(f"no permission to {verb} {path}; {hint}ask its owner for access", path=path)

    def lock(self, path: str, *, exclusive: bool) -> Lock | None:
        """Takes a lock on a whole file, made if missing, that also excludes a Kafka broker; None when another has it.

        A broker unlinks its lock file when it stops, so a lock is good only while the name still leads to the file.
        """
        while True:
            with _reported("open", path):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
            if not _try_lock(descriptor, path, exclusive):
                os.close(descriptor)
                return None
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    return _FileLock(descriptor, path)
            _unlock(descriptor, path)

    def lock_owner(self, path: str) -> int | None:
        """The process that has `path` locked against writers: its number, 0 when the system does not tell, None if none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None  # no lock file, or none that this user may look at: nothing is known to hold it
        try:
            return _owner(descriptor)
        finally:
            if _OFD:
                os.close(descriptor)  # with POSIX locks closing would drop this process's own


# ---- locks ---------------------------------------------------------------------------------------------------------------
#
# Open-file-description locks conflict with the POSIX record locks that Java takes, and do not vanish when another
# descriptor of the same file is closed (interop 2). Where a platform has none, POSIX locks and a registry of the paths
# that this process holds stand in for them, and descriptors stay open for good.

_OFD = hasattr(fcntl, "F_OFD_SETLK")
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid; Linux on 64 bits
_held: set[str] = set()
_held_guard = threading.Lock()


def _try_lock(descriptor: int, path: str, exclusive: bool) -> bool:
    try:
        if _OFD:
            kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))
            return True
        with _held_guard:
            real = os.path.realpath(path)
            if exclusive and real in _held:
                return False
            fcntl.lockf(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            _held.add(real)
            return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise StorageFailedError(f"cannot lock {path}: {error.strerror}", path=path, errno=error.errno) from error


def _unlock(descriptor: int, path: str) -> None:
    if _OFD:
        os.close(descriptor)
        return
    with _held_guard:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)
        _held.discard(os.path.realpath(path))


def _owner(descriptor: int) -> int | None:
    question = fcntl.F_OFD_GETLK if _OFD else fcntl.F_GETLK
    answer = fcntl.fcntl(descriptor, question, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)


class _FileLock:
    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._pid = os.getpid()

    def release(self) -> None:
        """Lets go. In a forked child it only closes: unlocking there would open the parent's lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if os.getpid() == self._pid:
            _unlock(descriptor, self._path)
        else:
            os.close(descriptor)


# ---- memory of mapped files ----------------------------------------------------------------------------------------------


class ResidentPages:
    """Holds the pages of mapped files that scans have touched to a budget, over the whole process.

    A mapped page counts as this process's memory until it is unmapped, although it is the page cache's. Scans report each
    region they are done with; beyond the budget the oldest regions are handed back. Touching them again costs a page
    fault (0.055 s a GiB), never a wrong byte.
    """

    def __init__(self, budget: int = limits.MAPPED_RESIDENT_BYTES) -> None:
        self._budget = budget
        self._resident = 0
        self._regions: OrderedDict[tuple[int, int], tuple[mmap.mmap, int]] = OrderedDict()
        self._guard = threading.Lock()

    def passed(self, view: Bytes, start: int, end: int) -> None:
        """Says that a scan is done with `view[start:end]`, a part of what `FileSystem.map` returned."""
        mapping = _mapping_of(view)
        if mapping is None:
            return
        page = mmap.PAGESIZE
        start, end = start // page * page, -(-end // page) * page
        with self._guard:
            key = (id(mapping), start)
            old = self._regions.pop(key, None)
            self._resident += end - start - (old[1] if old else 0)
            self._regions[key] = (mapping, end - start)
            while self._resident > self._budget and len(self._regions) > 1:
                (_, first), (oldest, size) = self._regions.popitem(last=False)
                self._resident -= size
                _hand_back(oldest, first, size)


def _mapping_of(view: Bytes) -> mmap.mmap | None:
    base = view.base
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _hand_back(mapping: mmap.mmap, start: int, size: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed meanwhile, or an advice this system does not take: no loss
        mapping.madvise(mmap.MADV_DONTNEED, start, min(size, len(mapping) - start))


def boot_id() -> bytes:
    """What changes when the operating system restarts; empty where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()
    except OSError:
        return b""


def process_id() -> int:
    """This process's number: it changes in a forked child."""
    return os.getpid()


def join(*parts: str) -> str:
    """A path from its parts."""
    return os.path.join(*parts)


def parent_of(path: str) -> str:
    """The directory that a path lies in."""
    return os.path.dirname(os.path.abspath(path))


def write_atomically(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Replaces a small file so that a crash leaves the old one or the new one, never half (reliability 4, checkpoints).

    Temporary file, sync, rename, directory sync. Left-over temporary files of an earlier crash are replaced.
    """
    target = os.path.join(directory, name)
    temporary = target + ".tmp"
    if fs.exists(temporary):
        fs.remove(temporary)
    file = fs.create(temporary)
    try:
        file.write(memoryview(data), 0)
        file.sync()
    finally:
        file.close()
    fs.rename(temporary, target)
    fs.sync_directory(directory)
