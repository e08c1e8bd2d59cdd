"""The operating system's files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final, NoReturn, Protocol
from weakref import WeakSet

import numpy as np

from pylog.errors import NotALogDirectoryError, StorageFailedError, SyncFailedError
from pylog.fs import locks, ownership
from pylog.fs.derived import is_no_file, set_aside
from pylog.fs.locks import OsLockFile, above_standard
from pylog.fs.protocols import Bytes, DirectoryEntry, FileSystem

_entry: Callable[[tuple[str, bool, bool, int, int, bool]], DirectoryEntry] = functools.partial(
    tuple.__new__, DirectoryEntry
)  # at half the cost
_SYNC_FILE_RANGE_WRITE: Final = 2  # only begin: waiting would take the error that the sync is to report
_NO_LINKS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # O_NONBLOCK: opening a planted FIFO must not wait


@contextlib.contextmanager
def reported(
    doing: str, path: str, position: int | None = None, kind: type[StorageFailedError] = StorageFailedError
) -> Iterator[None]:
    """Turns an OSError into an error of ours that says what was being done to which file."""
    try:
        yield
    except OSError as error:
        raise _failed(doing, error, path, position, kind) from error


def _failed(
    doing: str, error: OSError, path: str, position: int | None = None, kind: type[StorageFailedError] = StorageFailedError
) -> StorageFailedError:
    where = path if position is None else f"{path} at position {position}"
    told = f"cannot {doing} {where}: {os.strerror(error.errno or 0)}"
    if error.errno == errno.ELOOP and os.path.islink(path):
        told = f"cannot {doing} {where}: it is a symbolic link, which is not followed here; put the file itself there"
    return kind(told, path=path, position=position, errno=error.errno)


@functools.cache
def _boot_id() -> bytes:
    """Read once: it cannot change under a process."""
    if sys.platform == "darwin":
        done = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=False)
        return done.stdout.strip()
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().strip()
    except OSError:
        return b""


@functools.cache
def _begin_of_writing_back() -> Callable[[int, int, int, int], int] | None:
    """The system's `sync_file_range`; None where there is none. What fails there the sync fails at, and reports."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def _nothing_written() -> NoReturn:
    """A write that takes nothing and says nothing: trying for ever would be worse than failing."""
    raise OSError(errno.EIO, "nothing was written")


class OsFile:
    """A regular file of the operating system."""

    _descriptor = -1  # of one whose making was interrupted

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    def read_into(self, view: memoryview, position: int) -> int:
        try:
            done = count = os.preadv(self._descriptor, [view], position)
            while count and done < len(view):
                count = os.preadv(self._descriptor, [view[done:]], position + done)
                done += count
        except OSError as error:
            raise _failed("read", error, self._path, position) from error
        return done

    def read(self, size: int, position: int) -> bytes:
        try:
            data = more = os.pread(self._descriptor, size, position)
            while more and len(data) < size:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
                data += more
        except OSError as error:
            raise _failed("read", error, self._path, position) from error
        return data

    def write(self, data: memoryview, position: int) -> None:
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:] if done else data, position + done) or _nothing_written()
        except OSError as error:
            raise _failed("write", error, self._path, position) from error

    def write_back(self, position: int, size: int) -> None:
        begin = _begin_of_writing_back()
        if begin is not None:
            begin(self._descriptor, position, size, _SYNC_FILE_RANGE_WRITE)

    def size(self) -> int:
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_END)  # a quarter of what fstat costs
        except OSError as error:
            raise _failed("look at", error, self._path) from error

    def identity(self) -> tuple[int, int]:
        with reported("look at", self._path):
            status = os.fstat(self._descriptor)
            return status.st_dev, status.st_ino

    def set_mtime(self, mtime_ms: int) -> None:
        with reported("date", self._path):
            os.utime(self._descriptor, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def truncate(self, size: int) -> None:
        with reported("cut", self._path, size):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        if self._descriptor < 0:  # closed by another thread; the functions below would raise a ValueError
            raise SyncFailedError(f"cannot sync {self._path}: it is closed", path=self._path, errno=errno.EBADF)
        try:
            if sys.platform == "darwin":
                fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)  # fsync leaves the data in the drive's cache there
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise _failed("sync", error, self._path, kind=SyncFailedError) from error

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with reported("close", self._path):
                os.close(descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _opened(path: str, flags: int) -> int:
    descriptor = above_standard(os.open(path, flags | _NO_LINKS))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


@contextlib.contextmanager
def _directory(path: str) -> Iterator[int]:
    """A descriptor of a directory: what is looked at below it is found without going down its path again."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _linked(entry: os.DirEntry[str]) -> DirectoryEntry:
    """The entry of a symbolic link."""
    try:
        directory = entry.is_dir()
    except OSError:  # it leads to itself, or through what may not be entered
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
        """A read-only view of a whole file that never changes again. It lives as long as any view of it."""
        file = self.open(path)
        try:
            size = file.size()
            if size == 0:
                return np.empty(0, np.uint8)
            with reported("map", path):
                mapping = mmap.mmap(file._descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        finally:
            file.close()
        return np.frombuffer(mapping, np.uint8)

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        """The entries of a directory in the order of their names; those that vanish meanwhile are left out.

        Args:
            path: the directory.
            sizes: sizes and times are 0 of entries without this in their names. Cost: a system call for each with it.
        """
        found = []
        with reported("list", path), _directory(path) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                if sizes not in name:
                    regular = entry.is_file(follow_symlinks=False)
                    directory = not regular and entry.is_dir(follow_symlinks=False)
                    plain = regular or directory or not entry.is_symlink()
                    found.append(_entry((name, directory, regular, 0, 0, False)) if plain else _linked(entry))
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                kind = stat.S_IFMT(status.st_mode)
                if kind == stat.S_IFLNK:
                    found.append(_linked(entry))
                    continue
                directory, regular, mtime_ms = kind == stat.S_IFDIR, kind == stat.S_IFREG, status.st_mtime_ns // 1_000_000
                found.append(_entry((name, directory, regular, status.st_size, mtime_ms, False)))
        found.sort(key=itemgetter(0))
        return found

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def link_target(self, path: str) -> str | None:
        """Where a symbolic link leads, links on the way resolved; None of a path that is no link, or not there. Cost: 1 µs.

        Raises:
            NotALogDirectoryError: a user made the link whom neither this process nor the directory belongs to.
        """
        try:
            found = os.lstat(path)
        except OSError:
            return None
        if not stat.S_ISLNK(found.st_mode):
            return None
        if found.st_uid not in (0, os.geteuid(), os.stat(os.path.dirname(path) or os.curdir).st_uid):
            told = f"{path} is a symbolic link of user {found.st_uid}, whom the directory does not belong to; it is not followed"
            raise NotALogDirectoryError(told, path=path)
        return os.path.realpath(path)

    def read(self, path: str, limit: int) -> bytes | None:
        """A whole small file, or None when there is none.

        Raises:
            StorageFailedError: it cannot be read, or is larger than `limit` bytes.
        """
        try:
            file = OsFile(_opened(path, os.O_RDONLY), path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("open", error, path) from error
        try:
            size = file.size()
            if size > limit:
                raise StorageFailedError(f"{path} has {size} bytes, more than the {limit} that such a file may have", path=path)
            return file.read(size, 0)
        finally:
            file.close()

    def make_directory(self, path: str) -> None:
        with reported("make directory", path):
            ownership.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Renames a file or directory, over another one if need be, whose mode and owner it keeps."""
        with reported("rename", source):
            ownership.replace(source, target)

    def remove(self, path: str) -> None:
        with reported("remove", path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Removes a directory and what is in it; links are removed, not followed."""
        with reported("remove", path):
            if os.path.islink(path):
                os.unlink(path)
            else:
                shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        with reported("open", path), _directory(path) as descriptor, reported("sync directory", path, kind=SyncFailedError):
            os.fsync(descriptor)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        """Raises NotALogDirectoryError, with what to do, unless `path` is a directory, or a link to one, that may be used so.

        Args:
            path: the directory.
            write: whether it will be written.
            follow: whether a symbolic link to one will do.
        """
        if not follow and os.path.islink(path):
            raise NotALogDirectoryError(f"{path} is a symbolic link, which is not followed; put the directory there", path=path)
        if not os.path.exists(path):
            if os.path.islink(path):
                told = f"{path} is a symbolic link that leads to no directory; mount or restore that, or remove the link"
                raise NotALogDirectoryError(told, path=path)
            raise NotALogDirectoryError(f"there is no directory {path}; give the path of an existing one", path=path)
        if not os.path.isdir(path):
            raise NotALogDirectoryError(f"{path} is not a directory; give the directory that holds the topics", path=path)
        wanted = os.R_OK | os.X_OK | (os.W_OK if write else 0)
        if not os.access(path, wanted):
            verb = "read and write" if write else "read"
            hint = 'open it with mode="r", or ' if write and os.access(path, os.R_OK | os.X_OK) else ""
            raise NotALogDirectoryError(f"no permission to {verb} {path}; {hint}ask its owner for access", path=path)

    def open_locks(self, path: str) -> OsLockFile:
        """A file for locks on its bytes, made if missing."""
        return OsLockFile(path)

    def lock_owner(self, path: str) -> int | None:
        """The process that has `path` locked against writers: its number, 0 when the system does not tell, None if none."""
        return locks.owner(path)

    def boot_id(self) -> bytes:
        """What changes when the operating system restarts; empty where the system does not tell."""
        return _boot_id()


@functools.cache
def process_id() -> int:
    """This process's number: it changes in a forked child. Costs no system call."""
    return os.getpid()


class Forkable(Protocol):
    """What has to know when it finds itself in a forked child."""

    def forked(self) -> None: ...


_forkables: WeakSet[Forkable] = WeakSet()


def on_fork(one: Forkable) -> None:
    """Has its `forked` called in every child that this process forks, before anything else runs there. Keeps no reference."""
    _forkables.add(one)


def _tell_in_child() -> None:
    process_id.cache_clear()
    for one in list(_forkables):
        one.forked()


os.register_at_fork(after_in_child=_tell_in_child)


def hold_over_forks(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Has a lock held while this process forks: a child would wait for ever for one that another thread had."""
    os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)


def join(*parts: str) -> str:
    """A path from its parts."""
    return os.path.join(*parts)


def base_name(path: str) -> str:
    """The last part of a path."""
    return os.path.basename(path)


def absolute(path: str) -> str:
    """A path from the root on."""
    return os.path.abspath(path)


def resolved(path: str) -> str:
    """The same with all symbolic links followed: where a lock must be that others ask for."""
    return os.path.realpath(path)


def is_path(text: str) -> bool:
    """Whether a text can be the path of a file.

    >>> is_path("shop"), is_path(""), is_path("a\\0b"), is_path("\\ud800")
    (True, False, False, False)
    """
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def rooted(path: str) -> str:
    """A path that leads to the same place wherever the process goes later on. Nothing of it is resolved: `link/..` stays."""
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except OSError:  # this process's directory is gone, and so is what lies in it: whoever opens it says so
        return path


def parent_of(path: str) -> str:
    """The directory that a path lies in."""
    return os.path.dirname(os.path.abspath(path))


def _make_way(fs: FileSystem, path: str, change: Callable[[], None], *, again: bool) -> None:
    """Changes a name. A directory that has it is set aside first, and then the change is tried again if that is needed."""
    try:
        change()
    except StorageFailedError as error:
        if not is_no_file(error):
            raise
        set_aside(fs, path)
        if again:
            change()


def write_atomically(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Replaces a small file so that a crash leaves the old one or the new one, never half (reliability 4, checkpoints).

    Temporary file, sync, rename, directory sync. Left-over temporary files of an earlier crash are replaced. A directory that has
    the file's name is set aside.
    """
    target = os.path.join(directory, name)
    temporary = target + ".tmp"
    if fs.exists(temporary):
        _make_way(fs, temporary, lambda: fs.remove(temporary), again=False)
    try:
        file = fs.create(temporary)
        try:
            file.write(memoryview(data), 0)
            file.sync()
        finally:
            file.close()
        _make_way(fs, target, lambda: fs.rename(temporary, target), again=True)
    except StorageFailedError:
        with contextlib.suppress(StorageFailedError):  # on a full disk it would take room for nothing
            fs.remove(temporary)
        raise
    fs.sync_directory(directory)
