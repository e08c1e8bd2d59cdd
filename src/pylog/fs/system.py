"""The operating system's files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final, NoReturn, Protocol

from pylog.errors import NotALogDirectoryError, StorageFailedError, SyncFailedError
from pylog.fs import locks, ownership, system_info
from pylog.fs.descriptors import Descriptor, above_standard
from pylog.fs.living import LiveSet
from pylog.fs.locks import OsDirectoryLock, OsLockFile
from pylog.fs.mapping import Mapping, array_of
from pylog.fs.open_files import advice, opening
from pylog.fs.processes import boot_id
from pylog.fs.protocols import NAMES_ONLY, Bytes, DirectoryEntry, Vouched

_Fields = tuple[str, bool, bool, int, int, bool, int, Vouched | None]  # of a directory entry, in their order
_entry: Callable[[_Fields], DirectoryEntry] = functools.partial(tuple.__new__, DirectoryEntry)  # at half the cost
_SYNC_FILE_RANGE_WRITE: Final = 2  # starts only: waiting would consume the error that the sync must report
_NO_LINKS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: opening a planted FIFO must not wait
_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@contextlib.contextmanager
def reported(
    doing: str, path: str, position: int | None = None, kind: type[StorageFailedError] = StorageFailedError
) -> Iterator[None]:
    """Turns an OSError into a pylog error that names the operation and the file."""
    try:
        yield
    except OSError as error:
        raise _failed(doing, error, path, position, kind) from error


def _failed(
    doing: str, error: OSError, path: str, position: int | None = None, kind: type[StorageFailedError] = StorageFailedError
) -> StorageFailedError:
    where = path if position is None else f"{path} at position {position}"
    message = f"cannot {doing} {where}: {advice(error) or os.strerror(error.errno or 0)}"
    if error.errno in (errno.EBADF, errno.ESPIPE):  # see `descriptors.Nowhere`: no file of pylog is a pipe
        return kind(f"cannot {doing} {where}: it is closed", path=path, position=position, errno=errno.EBADF)
    if error.errno == errno.EROFS:
        message = f"cannot {doing} {where}: the file system is read-only; mount it for writing"
    if error.errno == errno.ELOOP and os.path.islink(path):
        message = f"cannot {doing} {where}: it is a symbolic link, which is not followed here; put the file itself there"
    return kind(message, path=path, position=position, errno=error.errno)


def _status(path: str, *, follow: bool) -> os.stat_result | None:
    """Returns what the system knows of a path, or of what it leads to; None if nothing is there."""
    try:
        return os.stat(path, follow_symlinks=follow)
    except ValueError:  # no path has a zero byte
        return None
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise _failed("inspect", error, path) from error


@functools.cache
def _begin_of_writing_back() -> Callable[[int, int, int, int], int] | None:
    """Returns the system's `sync_file_range`, or None if it has none. The later sync reports a failure."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def _nothing_written() -> NoReturn:
    """Fails for a write that wrote nothing and reported nothing: retrying could loop forever."""
    raise OSError(errno.EIO, "nothing was written")


class OsFile(Descriptor):
    """A regular file of the operating system."""

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def read_into(self, view: memoryview, position: int) -> int:
        try:
            done = count = os.preadv(self.descriptor, [view], position)
            while count and done < len(view):
                count = os.preadv(self.descriptor, [view[done:]], position + done)
                done += count
        except OSError as error:
            raise _failed("read", error, self._path, position) from error
        return done

    def read(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self.descriptor, size, position)
            if data and len(data) < size:  # seldom: here without a further call
                data += _read(self.descriptor, size - len(data), position + len(data))
        except OSError as error:
            raise _failed("read", error, self._path, position) from error
        return data

    def expect(self, position: int, end: int) -> OsFile:  # noqa: ARG002 - as `File` has it
        return self  # the system reads ahead by itself

    def write(self, data: memoryview, position: int) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self.descriptor, data[done:] if done else data, position + done) or _nothing_written()
        except OSError as error:
            raise _failed("write", error, self._path, position) from error

    def write_back(self, position: int, size: int) -> None:
        begin = _begin_of_writing_back()
        if begin is not None:
            begin(self.descriptor, position, size, _SYNC_FILE_RANGE_WRITE)

    def size(self) -> int:
        try:
            return os.lseek(self.descriptor, 0, os.SEEK_END)  # a quarter of what fstat costs
        except OSError as error:
            raise _failed("inspect", error, self._path) from error

    def next_data(self, position: int) -> int:
        """Returns the first position, from `position` on, outside of a hole. Cost: one system call, whatever the hole's size."""
        try:
            return os.lseek(self.descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return max(position, self.size()) if error.errno == errno.ENXIO else position  # a file system without holes

    def identity(self) -> tuple[int, int]:
        with reported("inspect", self._path):
            status = os.fstat(self.descriptor)
            if self.descriptor < 0:  # what the number leads to now is not this file
                raise OSError(errno.EBADF, "closed")
            return status.st_dev, status.st_ino

    def set_mtime(self, mtime_ms: int) -> None:
        with reported("date", self._path):
            os.utime(self.descriptor, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def truncate(self, size: int) -> None:
        with reported("cut", self._path, size):
            os.ftruncate(self.descriptor, size)

    def sync(self) -> None:
        descriptor = self.descriptor
        if descriptor < 0:  # closed by another thread; the functions below would raise a ValueError
            raise _failed("sync", OSError(errno.EBADF, "closed"), self._path, kind=SyncFailedError)
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync leaves the data in the drive's cache there
            else:
                os.fdatasync(descriptor)
        except OSError as error:
            raise _failed("sync", error, self._path, kind=SyncFailedError) from error

    def close(self) -> None:
        try:
            self._close()
        except OSError as error:
            raise _failed("close", error, self._path) from error


def _opened(path: str, flags: int) -> int:
    return _opened_with_size(path, flags)[0]


def _opened_with_size(path: str, flags: int) -> tuple[int, int]:
    descriptor = above_standard(opening(os.open, path, flags | _NO_LINKS))
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor, status.st_size


def _read(descriptor: int, size: int, position: int) -> bytes:
    data = more = os.pread(descriptor, size, position)
    while more and len(data) < size:
        more = os.pread(descriptor, size - len(data), position + len(data))
        data += more
    return data


def _no_directory(path: str) -> NotALogDirectoryError:
    if os.path.exists(path):
        return NotALogDirectoryError(f"{path} is not a directory; give the directory that holds the topics", path=path)
    if os.path.islink(path):
        message = f"{path} is a symbolic link that leads to no directory; mount or restore that, or remove it"
        return NotALogDirectoryError(message, path=path)
    if "://" in path:
        message = f"{path} is a URL, and this needs a directory; pylog restore makes one from an archive"
        return NotALogDirectoryError(message, path=path)
    return NotALogDirectoryError(f"there is no directory {path}; give the path of an existing one", path=path)


@contextlib.contextmanager
def _directory(path: str) -> Iterator[int]:
    """Opens a directory: names below its descriptor are resolved without walking its path again."""
    descriptor = opening(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _unsized(entry: os.DirEntry[str]) -> DirectoryEntry:
    """Returns the entry of anything but a regular file, without its size and time."""
    return _linked(entry) if entry.is_symlink() else DirectoryEntry(entry.name, entry.is_dir(follow_symlinks=False), False, 0, 0)


def _linked(entry: os.DirEntry[str]) -> DirectoryEntry:
    """Returns the entry of a symbolic link."""
    try:
        directory = entry.is_dir()
    except OSError:  # a link that leads to itself, or through a directory that may not be entered
        directory = False
    return DirectoryEntry(entry.name, directory, False, 0, 0, is_link=True)


class OsFileSystem:
    """The operating system's files."""

    def open(self, path: str, *, write: bool = False) -> OsFile:
        """Opens an existing regular file; links, pipes and devices are refused."""
        try:
            return OsFile(_opened(path, os.O_RDWR if write else os.O_RDONLY), path)
        except OSError as error:
            raise _failed("open", error, path) from error

    def create(self, path: str) -> OsFile:
        """Creates a new file, which must not exist. Its name is durable only after `sync_directory`.

        Its mode and owner are those that `pylog.fs.ownership` describes.
        """
        with reported("create", path):
            return OsFile(above_standard(ownership.create_file(path, os.O_RDWR)), path)

    def map(self, path: str) -> Bytes:
        """Returns a read-only view of a whole file that never changes again. The mapping lives as long as any view of it."""
        file = self.open(path)
        try:
            size = file.size()
            if size == 0:
                return array_of(b"")
            with reported("map", path):
                return opening(Mapping, file.descriptor, size, also=(errno.ENOMEM,)).array()
        finally:
            file.close()

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        """Lists a directory in the order of names. An entry that disappears meanwhile is left out.

        Args:
            path: the directory.
            sizes: entries without this text in their names have size and time 0. Cost: a system call for each of the others.
        """
        found: list[_Fields] = []
        add = found.append
        directory = contextlib.nullcontext(path) if sizes == NAMES_ONLY else _directory(path)
        with reported("list", path), directory as opened, opening(os.scandir, opened) as entries:
            for entry in entries:
                name = entry.name
                if sizes not in name:
                    add((name, False, True, 0, 0, False, 0, None) if entry.is_file(follow_symlinks=False) else _unsized(entry))
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                kind = stat.S_IFMT(status.st_mode)
                if kind == stat.S_IFREG:
                    add((name, False, True, status.st_size, status.st_mtime_ns // 1_000_000, False, status.st_ino, None))
                elif kind == stat.S_IFLNK:
                    add(_linked(entry))
                else:
                    add(
                        (
                            name,
                            kind == stat.S_IFDIR,
                            False,
                            status.st_size,
                            status.st_mtime_ns // 1_000_000,
                            False,
                            status.st_ino,
                            None,
                        )
                    )
        found.sort(key=itemgetter(0))
        return list(map(_entry, found))

    def exists(self, path: str) -> bool:
        """Returns whether a path leads to anything, which may be a link. Cost: one `lstat`, 1 µs.

        Raises:
            StorageFailedError: that cannot be found out. A partition whose directory cannot be asked for is not deleted.
        """
        return _status(path, follow=False) is not None

    def identity(self, path: str) -> tuple[int, int] | None:
        """Returns device and inode of what a path leads to; None if there is nothing. Cost: one `stat`, 1 µs."""
        found = _status(path, follow=True)
        return None if found is None else (found.st_dev, found.st_ino)

    def link_target(self, path: str) -> str | None:
        """Returns the target of a symbolic link, with all links resolved; None for any other path, or a missing one. Cost: 1 µs.

        Raises:
            NotALogDirectoryError: the link's owner is neither root, this process's user, nor the directory's owner.
        """
        found = _status(path, follow=False)
        if found is None or not stat.S_ISLNK(found.st_mode):
            return None
        if found.st_uid not in (0, os.geteuid(), os.stat(os.path.dirname(path) or os.curdir).st_uid):
            message = f"{path} is a symbolic link of user {found.st_uid}, who does not own the directory; it is not followed"
            raise NotALogDirectoryError(message, path=path)
        return os.path.realpath(path)

    def read(self, path: str, limit: int) -> bytes | None:
        """Returns the content of a small file, or None if it does not exist.

        Raises:
            StorageFailedError: the file cannot be read, or is larger than `limit` bytes.
        """
        try:
            descriptor, size = _opened_with_size(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("open", error, path) from error
        try:
            if size > limit:
                raise StorageFailedError(f"{path} has {size} bytes; the limit for a file of this kind is {limit}", path=path)
            return _read(descriptor, size, 0)
        except OSError as error:
            raise _failed("read", error, path) from error
        finally:
            os.close(descriptor)

    def make_directory(self, path: str) -> None:
        with reported("make directory", path):
            ownership.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Renames a file or directory. A replaced file's mode and owner are kept."""
        with reported("rename", source):
            ownership.replace(source, target)

    def remove(self, path: str) -> None:
        with reported("remove", path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Removes a directory and its contents; links are removed, not followed."""
        with reported("remove", path):
            if os.path.islink(path):
                os.unlink(path)
            else:
                opening(shutil.rmtree, path)

    def sync_directory(self, path: str) -> None:
        with reported("open", path), _directory(path) as descriptor, reported("sync directory", path, kind=SyncFailedError):
            os.fsync(descriptor)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        """Raises NotALogDirectoryError, with advice, unless `path` is a directory, or a link to one, that this process may use.

        Args:
            path: the directory.
            write: whether the process will write to it.
            follow: whether a symbolic link to a directory is accepted.
        """
        if not follow and os.path.islink(path):
            raise NotALogDirectoryError(f"{path} is a symbolic link, which is not followed; move the directory there", path=path)
        if not os.path.isdir(path):
            raise _no_directory(path)
        wanted = os.R_OK | os.X_OK | (os.W_OK if write else 0)
        if not os.access(path, wanted):
            if not os.path.isdir(path):  # another process has just removed it
                raise _no_directory(path)
            if write and system_info.is_read_only(path):
                problem = f"{path} is on a read-only file system; mount it for writing"
                raise NotALogDirectoryError(problem, path=path)
            verb = "read and write" if write else "read"
            problem = f"no permission to {verb} {path}{ownership.whose(path)}"
            raise NotALogDirectoryError(f"{problem}; ask its owner for access", path=path)

    def open_locks(self, path: str) -> OsLockFile:
        """Opens a file for locks on its bytes, and creates it if it is missing."""
        return OsLockFile(path)

    def lock_directory(self, path: str) -> OsDirectoryLock | None:
        """Returns the lock of a directory itself, not taken yet; None if the file system has no such locks."""
        with reported("open", path):
            return locks.directory_lock(path)

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        """Returns the process that holds a lock on a range of `path`; 0 if it is not reported, None if there is no lock.

        Args:
            path: the file, which is opened for reading.
            start, size: the range; size 0 means everything from `start` on.
        """
        return locks.owner(path, start, size)

    def boot_id(self) -> bytes:
        """Returns an id that changes when the operating system restarts; empty if the system has none."""
        return boot_id()


@functools.cache
def process_id() -> int:
    """Returns this process's number, which differs in a forked child. Cost: no system call."""
    return os.getpid()


class Forkable(Protocol):
    """An object that must be notified in a forked child."""

    def forked(self) -> None: ...


_forkables: LiveSet[Forkable] = LiveSet()


def on_fork(one: Forkable) -> None:
    """Registers an object whose `forked` runs first in every child that this process forks. Keeps no reference to it."""
    _forkables.add(one)


def _notify_in_child() -> None:
    process_id.cache_clear()
    for one in _forkables.members():
        one.forked()


os.register_at_fork(after_in_child=_notify_in_child)


def hold_over_forks(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Holds a lock while this process forks: otherwise a child could wait forever for a lock that another thread held."""
    os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)
