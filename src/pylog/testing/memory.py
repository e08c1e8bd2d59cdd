"""A file system in memory, as strict as the worst disk: what was not synced is lost by `crash`.

It is a `pylog.fs.FileSystem` like the system's own: the same calls, the same errors. Beyond that it has processes, which
share its files and conflict in their locks, a power switch, and eyes: cutting a file that is mapped is an error here, where
the real world would end the process.
"""

from __future__ import annotations

import copy
import errno
import threading
import weakref
from typing import Final, NamedTuple, Self

import numpy as np

from pylog.clock import Clock, ManualClock
from pylog.errors import NotALogDirectoryError, StorageFailedError
from pylog.fs import Bytes, DirectoryEntry, LockFile
from pylog.testing.disk import DirectoryNode, Disk, FileNode, HeldLock, Image, LinkNode, Node, Process, refused, span_of

CREATE: Final = "create"
MAKE_DIRECTORY: Final = "make_directory"
RENAME: Final = "rename"
REMOVE: Final = "remove"
WRITE: Final = "write"
TRUNCATE: Final = "truncate"
SYNC: Final = "sync"
SYNC_DIRECTORY: Final = "sync_directory"

_DEVICE = 1


class NameChange(NamedTuple):
    """What a name in a directory stands for from now on: the file of that number, or nothing (None)."""

    directory: int
    name: str
    number: int | None


class Operation(NamedTuple):
    """One change, or one sync, that a process asks of the disk.

    Attributes:
        kind: one of the names above.
        number: of the file or directory concerned.
        path: by which it was known when it was opened.
        names: the changes of names, which happen all or not at all.
        position: where a write begins, or the size a truncation cuts to.
        data: what is written.
    """

    kind: str
    number: int
    path: str
    names: tuple[NameChange, ...] = ()
    position: int = 0
    data: bytes = b""


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(self, fs: MemoryFileSystem, node: FileNode, path: str, *, write: bool) -> None:
        self._fs = fs
        self._node: FileNode | None = node
        self._path = path
        self._write = write

    @property
    def path(self) -> str:
        return self._path

    def _opened(self, *, write: bool = False) -> FileNode:
        if self._node is None or not self._fs.alive or (write and not self._write):
            raise refused(errno.EBADF, self._path)
        return self._node

    def read_into(self, view: memoryview, position: int) -> int:
        """Fills `view` from `position` on and returns how many bytes there were."""
        data = self.read(len(view), position)
        view[: len(data)] = data
        return len(data)

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position` on."""
        with self._fs.disk.guard:
            return bytes(self._opened().data[position : position + size])

    def write(self, data: memoryview, position: int) -> None:
        """Writes into the cache."""
        with self._fs.disk.guard:
            node, copied = self._opened(write=True), bytes(data)
            if self._fs.admit(Operation(WRITE, node.number, self._path, position=position, data=copied)):
                node.write(copied, position)
                node.mtime_ms = self._fs.clock.now_ms()

    def size(self) -> int:
        return len(self._opened().data)

    def identity(self) -> tuple[int, int]:
        return _DEVICE, self._opened().number

    def set_mtime(self, mtime_ms: int) -> None:
        self._opened(write=True).mtime_ms = mtime_ms

    def truncate(self, size: int) -> None:
        """Cuts in the cache.

        Raises:
            MappedFileError: a view of what is cut off lives.
        """
        with self._fs.disk.guard:
            node = self._opened(write=True)
            if self._fs.admit(Operation(TRUNCATE, node.number, self._path, position=size)):
                node.truncate(size)
                node.mtime_ms = self._fs.clock.now_ms()

    def write_back(self, position: int, size: int) -> None:
        """Nothing: what is not synced may be on the disk at any time."""

    def sync(self) -> None:
        """Makes the file's bytes durable."""
        with self._fs.disk.guard:
            node = self._opened()
            if self._fs.admit(Operation(SYNC, node.number, self._path)):
                node.sync()

    def forget_writes(self) -> None:
        """What a failed sync does: unsynced bytes stay readable, and no later sync writes them (fsyncgate)."""
        with self._fs.disk.guard:
            self._opened().forget_writes()

    def close(self) -> None:
        self._node = None


class MemoryLockFile:
    """A lock file of a `MemoryFileSystem`; its locks end with it, or with its process."""

    def __init__(self, fs: MemoryFileSystem, node: FileNode, path: str) -> None:
        self._fs = fs
        self._node: FileNode | None = node
        self._path = path

    def _opened(self) -> FileNode:
        if self._node is None or not self._fs.alive:
            raise refused(errno.EBADF, self._path)
        return self._node

    def byte(self, at: int) -> MemoryLockByte:
        """One of its bytes, for who takes it alone, again and again."""
        return MemoryLockByte(self, at)

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        """Takes a range (a size of 0: to the end of everything) or changes how it is held; False when another's is in the way."""
        with self._fs.disk.guard:
            return self._opened().try_lock(HeldLock(self, *span_of(start, size), exclusive))

    def unlock(self, start: int, size: int) -> None:
        """Lets go of a range."""
        with self._fs.disk.guard:
            self._opened().unlock(self, *span_of(start, size))

    def is_locked(self, start: int, size: int) -> bool:
        """Whether anybody else has a lock, of any kind, on a part of a range."""
        with self._fs.disk.guard:
            return self._opened().is_locked(HeldLock(self, *span_of(start, size), exclusive=True))

    def is_current(self) -> bool:
        """Whether the name still leads to this file."""
        return self._fs.disk.find(self._path) is self._opened()

    def close(self) -> None:
        """Closes the file, which ends its locks."""
        with self._fs.disk.guard:
            node, self._node = self._node, None
            if node is not None:
                node.unlock(self, *span_of(0, 0))


class MemoryLockByte:
    """A byte of a `MemoryLockFile`."""

    def __init__(self, file: LockFile, at: int) -> None:
        self._file = file
        self._at = at

    def try_take(self) -> bool:
        """Takes it, unless somebody else has it."""
        return self._file.try_lock(self._at, 1, exclusive=True)

    def let_go(self) -> None:
        """Gives it back."""
        self._file.unlock(self._at, 1)


class MemoryFileSystem:
    """One process's view of a disk in memory. Paths begin with `/`.

    Args:
        clock: gives files their modification times; by default one that stands still.
        image: what the disk holds at first, all of it durable; by default nothing.
        boots: how often the machine was started, which makes its boot id.

    >>> import pylog
    >>> fs = MemoryFileSystem()
    >>> with pylog.open("/shop", fs=fs) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append(b"paid")
    >>> with pylog.open("/shop", fs=fs.crash()) as store:
    ...     store.log("orders").read(0).value
    b'paid'
    """

    def __init__(self, *, clock: Clock | None = None, image: Image | None = None, boots: int = 1) -> None:
        self.clock = ManualClock() if clock is None else clock
        self.disk = Disk(boots) if image is None else Disk.of(image, self.clock.now_ms(), boots)
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = Process()
        self._lock_files: weakref.WeakSet[MemoryLockFile] = weakref.WeakSet()

    def admit(self, operation: Operation) -> bool:  # noqa: ARG002 - what a file system that records or refuses looks at
        """Told of each change and sync before it happens; False leaves it out."""
        return True

    # ---- processes and power -------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether this process runs. The calls of one that does not fail with EBADF."""
        return self._process.alive and self.disk.powered

    def process(self) -> Self:
        """Another process's view of the same files; its locks and this one's conflict."""
        other = copy.copy(self)
        other._begin_process()
        return other

    def kill(self) -> None:
        """Ends the process: its open files, mappings and locks are gone, what it wrote stays."""
        with self.disk.guard:
            for file in list(self._lock_files):
                file.close()
            self._process.alive = False

    def crash(self) -> Self:
        """Loses the power, which ends all processes. Returns the view of one after the restart: what was durable."""
        with self.disk.guard:
            self.disk.powered = False
            other = self.process()
            other.disk = Disk.of(self.image(durable=True), self.clock.now_ms(), self.disk.boots + 1)
            return other

    def image(self, *, durable: bool = False) -> Image:
        """What the disk holds, as processes see it or as a power loss leaves it. Cost: a copy."""
        with self.disk.guard:
            return self.disk.image(durable=durable)

    def _running(self) -> threading.RLock:
        """The disk's guard, for a process that runs."""
        if not self.alive:
            raise refused(errno.EBADF, "a process that has ended")
        return self.disk.guard

    # ---- files ---------------------------------------------------------------------------------------------------------------

    def _file_node(self, path: str) -> FileNode:
        node = self.disk.node(path)
        if not isinstance(node, FileNode):
            raise refused(errno.ELOOP if isinstance(node, LinkNode) else errno.EINVAL, path)
        return node

    def open(self, path: str, *, write: bool = False) -> MemoryFile:
        """Opens an existing file."""
        with self._running():
            return MemoryFile(self, self._file_node(path), path, write=write)

    def create(self, path: str) -> MemoryFile:
        """Makes a new file, which must not exist. Its name is durable only after `sync_directory`."""
        with self._running():
            return MemoryFile(self, self._create(path), path, write=True)

    def _create(self, path: str) -> FileNode:
        directory, name = self._free_place(path)
        node = FileNode(self.disk.next_number(), b"", self.clock.now_ms())
        if self.admit(Operation(CREATE, node.number, path, (NameChange(directory.number, name, node.number),))):
            directory.names[name] = node
        return node

    def _free_place(self, path: str) -> tuple[DirectoryNode, str]:
        directory, name = self.disk.place(path)
        if name in directory.names:
            raise refused(errno.EEXIST, path)
        return directory, name

    def map(self, path: str) -> Bytes:
        """A read-only view of a whole file. Cutting the file while a view lives, or changing what it shows, is an error."""
        with self._running():
            node = self._file_node(path)
            return node.map(self._process) if node.data else np.empty(0, np.uint8)

    def read(self, path: str, limit: int) -> bytes | None:
        """A whole small file, or None when there is none."""
        with self._running():
            if self.disk.find(path) is None:
                return None
            data = self._file_node(path).data
            if len(data) > limit:
                told = f"{path} has {len(data)} bytes, more than the {limit} that such a file may have"
                raise StorageFailedError(told, path=path)
            return bytes(data)

    # ---- names ---------------------------------------------------------------------------------------------------------------

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:  # noqa: ARG002 - all of them cost nothing here
        """The entries of a directory in the order of their names."""
        with self._running():
            names = self.disk.directory(path).names
            return [self._entry(name, names[name]) for name in sorted(names)]

    def _entry(self, name: str, node: Node) -> DirectoryEntry:
        is_file, is_link = isinstance(node, FileNode), isinstance(node, LinkNode)
        leads_to = self.disk.find(node.target, follow=True) if isinstance(node, LinkNode) else node
        size = len(node.data) if isinstance(node, FileNode) else 0
        return DirectoryEntry(name, isinstance(leads_to, DirectoryNode), is_file, size, node.mtime_ms, is_link)

    def symlink(self, target: str, path: str) -> None:
        """Creates a symbolic link to an absolute path, durably."""
        with self._running():
            directory, name = self._free_place(path)
            directory.names[name] = directory.durable[name] = LinkNode(self.disk.next_number(), target)

    def link_target(self, path: str) -> str | None:
        """Where a symbolic link leads; None of a path that is no link."""
        node = self.disk.find(path)
        seen = 0
        target = None
        while isinstance(node, LinkNode) and seen < 40:
            target, seen = node.target, seen + 1
            node = self.disk.find(target)
        return target

    def exists(self, path: str) -> bool:
        """Whether a name is there."""
        return self.disk.find(path) is not None

    def make_directory(self, path: str) -> None:
        """Makes an empty directory. Its name is durable only after its parent is synced."""
        with self._running():
            directory, name = self._free_place(path)
            node = DirectoryNode(self.disk.next_number(), self.clock.now_ms())
            if self.admit(Operation(MAKE_DIRECTORY, node.number, path, (NameChange(directory.number, name, node.number),))):
                directory.names[name] = node

    def rename(self, source: str, target: str) -> None:
        """Moves a name, over another one if need be: at once, but durable only after the directory is synced."""
        with self._running():
            (old_place, old_name), (new_place, new_name) = self.disk.place(source), self.disk.place(target)
            node = self.disk.node(source)
            if node is new_place.names.get(new_name):
                return
            if isinstance(node, DirectoryNode) and f"{target}/".startswith(f"{source}/"):
                raise refused(errno.EINVAL, source)
            self._check_replaceable(node, new_place.names.get(new_name), source)
            changes = NameChange(old_place.number, old_name, None), NameChange(new_place.number, new_name, node.number)
            if self.admit(Operation(RENAME, node.number, target, changes)):
                del old_place.names[old_name]
                new_place.names[new_name] = node

    @staticmethod
    def _check_replaceable(node: Node, old: Node | None, path: str) -> None:
        if isinstance(old, DirectoryNode) and isinstance(node, FileNode):
            raise refused(errno.EISDIR, path)
        if isinstance(old, DirectoryNode) and old.names:
            raise refused(errno.ENOTEMPTY, path)
        if isinstance(old, FileNode) and isinstance(node, DirectoryNode):
            raise refused(errno.ENOTDIR, path)

    def remove(self, path: str) -> None:
        """Removes a file's name; open files and mappings stay good."""
        with self._running():
            if isinstance(self.disk.node(path), DirectoryNode):
                raise refused(errno.EISDIR, path)
            self._remove(path)

    def _remove(self, path: str) -> None:
        directory, name = self.disk.place(path)
        number = directory.names[name].number
        if self.admit(Operation(REMOVE, number, path, (NameChange(directory.number, name, None),))):
            del directory.names[name]

    def remove_tree(self, path: str) -> None:
        """Removes a directory and what is in it, name by name."""
        with self._running():
            if isinstance(self.disk.node(path), LinkNode):
                self._remove(path)
                return
            for name, node in list(self.disk.directory(path).names.items()):
                inside = f"{path}/{name}"
                if isinstance(node, DirectoryNode):
                    self.remove_tree(inside)
                else:
                    self._remove(inside)
            self._remove(path)

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""
        with self._running():
            directory = self.disk.directory(path)
            if self.admit(Operation(SYNC_DIRECTORY, directory.number, path)):
                directory.sync()

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:  # noqa: ARG002 - all may be written
        """Raises NotALogDirectoryError unless `path` is a directory, or a link to one."""
        node = self.disk.find(path, follow=follow)
        if not isinstance(node, DirectoryNode):
            told = f"there is no directory {path}" if node is None else f"{path} is not a directory"
            if node is None and self.disk.find(path) is not None:
                told = f"{path} is a symbolic link that leads to no directory"
            raise NotALogDirectoryError(told, path=path)

    # ---- the machine ---------------------------------------------------------------------------------------------------------

    def open_locks(self, path: str) -> MemoryLockFile:
        """A file for locks on its bytes, made if missing."""
        with self._running():
            node = self.disk.find(path)
            file = MemoryLockFile(self, self._create(path) if node is None else self._file_node(path), path)
            self._lock_files.add(file)
            return file

    def lock_owner(self, path: str) -> int | None:
        """0 when somebody has `path` locked (these locks have no process's number), None if nobody has."""
        node = self.disk.find(path)
        return 0 if isinstance(node, FileNode) and node.locks else None

    def boot_id(self) -> bytes:
        """What changes when the machine restarts."""
        return b"boot %d" % self.disk.boots
