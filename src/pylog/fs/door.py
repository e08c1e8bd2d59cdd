"""Gives a store its file system. After it is shut, no file can be opened, mapped, listed or read through it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Final, NoReturn, Protocol, TypeVar
from weakref import ref

from pylog.errors import StorageFailedError
from pylog.fs.gate import Gate
from pylog.fs.living import LiveSet
from pylog.fs.protocols import Bytes, DirectoryEntry, DirectoryLock, File, FileSystem, LockFile

T = TypeVar("T")
_LONGEST_WAIT_S: Final = 0.1  # for reads under way: the gates of the logs have waited for theirs before, and longer
_NAP_S: Final = 0.001


class Door:
    """A file system that can be shut. Logs, iterators and threads of a store reach files only through it.

    Shutting it waits for reads in progress, closes the files that are open for reading, and makes every other call raise
    ClosedError. Arrays of mapped files stay valid while anything refers to them.

    Args:
        base: the file system.
        root: the store's directory.
    """

    def __init__(self, base: FileSystem, root: str) -> None:
        self.base = base
        self._gate = Gate(f"the store {root}", root)
        self._files: LiveSet[_ReadFile] = LiveSet()

    def shut(self) -> None:
        """Refuses all later calls, and closes the files that are open for reading."""
        self._gate.shut()
        below = [file.refuse(self._gate.error) for file in self._files.members()]
        if below:
            _wait_for_reads(below)
        for kept in below:
            file_below = kept()  # a kept error has it in its traceback
            if file_below is not None:
                file_below.close()

    def _call(self, call: Callable[..., T], *given: object, **named: object) -> T:
        inside, me = self._gate.inside, get_ident()
        inside.append(me)  # what `with self._gate` does, in half the time
        try:
            if self._gate.is_shut:
                raise self._gate.error()  # noqa: TRY301 - a commit takes microseconds, and `check` is one more call
            return call(*given, **named)
        except Exception as error:
            self._gate.explain(error)
            raise
        finally:
            inside.remove(me)

    def open(self, path: str, *, write: bool = False) -> File:
        file = self._call(self.base.open, path, write=write)
        if write:
            return file  # a file open for writing: its log closes it
        guarded = _ReadFile(file)
        self._files.add(guarded)
        return guarded

    def create(self, path: str) -> File:
        return self._call(self.base.create, path)

    def map(self, path: str) -> Bytes:
        return self._call(self.base.map, path)

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        return self._call(self.base.list, path, sizes=sizes)

    def exists(self, path: str) -> bool:
        return self._call(self.base.exists, path)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Needs no gate: nothing is opened."""
        return self.base.identity(path)

    def link_target(self, path: str) -> str | None:
        return self._call(self.base.link_target, path)

    def read(self, path: str, limit: int) -> bytes | None:
        return self._call(self.base.read, path, limit)

    def make_directory(self, path: str) -> None:
        self._call(self.base.make_directory, path)

    def rename(self, source: str, target: str) -> None:
        self._call(self.base.rename, source, target)

    def remove(self, path: str) -> None:
        self._call(self.base.remove, path)

    def remove_tree(self, path: str) -> None:
        self._call(self.base.remove_tree, path)

    def sync_directory(self, path: str) -> None:
        self._call(self.base.sync_directory, path)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        self._call(self.base.check_directory, path, write=write, follow=follow)

    def open_locks(self, path: str) -> LockFile:
        return self._call(self.base.open_locks, path)

    def lock_directory(self, path: str) -> DirectoryLock | None:
        return self._call(self.base.lock_directory, path)

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        return self._call(self.base.lock_owner, path, start, size)

    def boot_id(self) -> bytes:
        return self.base.boot_id()


def _wait_for_reads(files: list[ref[File]]) -> None:
    pause, waited = threading.Event(), 0.0
    while waited < _LONGEST_WAIT_S and any(file() is not None for file in files):
        pause.wait(_NAP_S)
        waited += _NAP_S


class _ReadInto(Protocol):
    def __call__(self, view: memoryview, position: int) -> int: ...


class _Read(Protocol):
    def __call__(self, size: int, position: int) -> bytes: ...


class _Refusing:
    """Stands for a file that is closed: every use of it raises an error."""

    def __init__(self, path: str, error: Callable[[], Exception]) -> None:
        self.path = path
        self._error = error

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise self._error()

    read_into = read = write = write_back = size = next_data = identity = set_mtime = truncate = sync = expect = _refuse

    def close(self) -> None:
        """Does nothing."""


def _closed(path: str) -> StorageFailedError:
    return StorageFailedError(f"cannot read {path}: it is closed", path=path, errno=errno.EBADF)


class ForwardingFile:
    """Calls the methods of the file below. A subclass adds `read`, `read_into` and `close`, and the methods that differ."""

    __slots__ = ("_file",)

    _file: File

    def size(self) -> int:
        return self._file.size()

    def next_data(self, position: int) -> int:
        return self._file.next_data(position)

    def identity(self) -> tuple[int, int]:
        return self._file.identity()

    def write(self, data: memoryview, position: int) -> None:
        self._file.write(data, position)

    def write_back(self, position: int, size: int) -> None:
        self._file.write_back(position, size)

    def set_mtime(self, mtime_ms: int) -> None:
        self._file.set_mtime(mtime_ms)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def sync(self) -> None:
        self._file.sync()


class _ReadFile(ForwardingFile):
    """A file open for reading. Its reading methods are those of the file below, so the door adds no time to a read.

    A read holds the file below while it runs. So the descriptor is closed when the last read has ended, never during a read.
    """

    __slots__ = ("__weakref__", "_expected", "path", "read", "read_into")

    read_into: _ReadInto
    read: _Read

    def __init__(self, file: File) -> None:
        self.path = file.path
        self._expected: LiveSet[_ReadFile] | None = None  # files that read ranges of this one in order
        self._use(file)

    def expect(self, position: int, end: int) -> File:
        """Returns a file for a range, which is refused together with this one. A file of the system is its own."""
        found = self._file.expect(position, end)
        if found is self._file:
            return self
        guarded = _ReadFile(found)
        self._expected = self._expected or LiveSet()
        self._expected.add(guarded)
        return guarded

    def _use(self, file: File) -> None:
        self._file = file
        self.read_into = file.read_into
        self.read = file.read

    def refuse(self, error: Callable[[], Exception]) -> ref[File]:
        """Has every later use raise an error. Returns a reference to the file below, which lives until no read uses it."""
        below = ref(self._file)
        for expected in self._expected.members() if self._expected is not None else ():
            expected.refuse(error)
        self._use(_Refusing(self.path, error))
        return below

    def close(self) -> None:
        """Closes the file. A read that runs keeps the file below, and its descriptor, until it has ended."""
        file = self._file
        self._use(_Refusing(self.path, partial(_closed, self.path)))
        file.close()
