"""A file system in memory that behaves like the worst disk: `crash` loses everything that was not synced.

It implements `pylog.fs.FileSystem` with the calls and errors of the operating system. It also simulates processes, which share
files and whose locks conflict, and power losses. Cutting a mapped file raises an error here; on a real system it would kill the
process.
"""

from __future__ import annotations

import copy
import errno
import threading
import weakref
from typing import Final, NamedTuple, Self

import numpy as np

from pylog.clock import Clock, ManualClock
from pylog.errors import ClosedError, NotALogDirectoryError, StorageFailedError
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
    """A change of a name in a directory: its new file number, or None for a removal."""

    directory: int
    name: str
    number: int | None


class Operation(NamedTuple):
    """A change or a sync that a process requests from the disk.

    Attributes:
        kind: one of the names above.
        number: number of the file or directory.
        path: its path when it was opened.
        names: changes of names, which happen atomically.
        position: position of a write, or new size of a truncation.
        data: written bytes.
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
        """Reads into `view` from `position` on and returns the number of bytes."""
        data = self.read(len(view), position)
        view[: len(data)] = data
        return len(data)

    def read(self, size: int, position: int) -> bytes:
        """Reads up to `size` bytes from `position` on."""
        with self._fs.disk.guard:
            return bytes(self._opened().data[position : position + size])

    def expect(self, position: int, end: int) -> MemoryFile:  # noqa: ARG002 - as `File` has it
        """Returns this file."""
        return self

    def write(self, data: memoryview, position: int) -> None:
        """Writes into the cache."""
        with self._fs.disk.guard:
            node, copied = self._opened(write=True), bytes(data)
            if self._fs.admit(Operation(WRITE, node.number, self._path, position=position, data=copied)):
                node.write(copied, position)
                node.mtime_ms = self._fs.clock.now_ms()

    def size(self) -> int:
        return len(self._opened().data)

    def next_data(self, position: int) -> int:
        """Returns `position`: these files have no holes."""
        return position

    def identity(self) -> tuple[int, int]:
        return _DEVICE, self._opened().number

    def set_mtime(self, mtime_ms: int) -> None:
        self._opened(write=True).mtime_ms = mtime_ms

    def truncate(self, size: int) -> None:
        """Truncates the cached file.

        Raises:
            MappedFileError: a view of the removed bytes exists.
        """
        with self._fs.disk.guard:
            node = self._opened(write=True)
            if self._fs.admit(Operation(TRUNCATE, node.number, self._path, position=size)):
                node.truncate(size)
                node.mtime_ms = self._fs.clock.now_ms()

    def write_back(self, position: int, size: int) -> None:
        """Does nothing: unsynced bytes may reach the disk at any time anyway."""

    def sync(self) -> None:
        """Makes the file's bytes durable."""
        with self._fs.disk.guard:
            node = self._opened()
            if self._fs.admit(Operation(SYNC, node.number, self._path)):
                node.sync()

    def forget_writes(self) -> None:
        """Simulates a failed sync: unsynced bytes stay readable, and no later sync writes them (fsyncgate)."""
        with self._fs.disk.guard:
            self._opened().forget_writes()

    def close(self) -> None:
        self._node = None


class MemoryLockFile:
    """A lock file of a `MemoryFileSystem`. Its locks end when it is closed or its process ends."""

    def __init__(self, fs: MemoryFileSystem, node: FileNode, path: str) -> None:
        self._fs = fs
        self._node: FileNode | None = node
        self._path = path

    def _opened(self) -> FileNode:
        if not self._fs.alive:
            raise refused(errno.EBADF, self._path)
        if self._node is None:
            raise ClosedError(f"{self._path} is closed, because its store is; open the store again", path=self._path)
        return self._node

    def byte(self, at: int) -> MemoryLockByte:
        """Returns one byte of the file, for repeated exclusive locks."""
        return MemoryLockByte(self, at)

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        """Locks a range (unlimited with size 0), or changes its kind of lock. Returns False if another lock conflicts."""
        with self._fs.disk.guard:
            return self._opened().try_lock(HeldLock(self, *span_of(start, size), exclusive))

    def unlock(self, start: int, size: int) -> None:
        """Unlocks a range."""
        with self._fs.disk.guard:
            self._opened().unlock(self, *span_of(start, size))

    def is_locked(self, start: int, size: int) -> bool:
        """Returns True if another open file has a lock of any kind on a part of a range."""
        with self._fs.disk.guard:
            return self._opened().is_locked(HeldLock(self, *span_of(start, size), exclusive=True))

    def keep_room(self, size: int) -> bool:  # noqa: ARG002 - nothing to keep
        """Returns True: this disk is never full."""
        return True

    def give_room(self, size: int) -> None:
        """Does nothing: this disk is never full."""

    def is_current(self) -> bool:
        """Returns True if the path still leads to this file."""
        return self._fs.disk.find(self._path) is self._opened()

    def close(self) -> None:
        """Closes the file and ends its locks."""
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
        """Locks the byte. Returns False if another open file has it locked."""
        return self._file.try_lock(self._at, 1, exclusive=True)

    def release(self) -> None:
        """Unlocks the byte."""
        self._file.unlock(self._at, 1)

    def is_held(self) -> bool:
        """Returns True if another open file has the byte locked."""
        return self._file.is_locked(self._at, 1)


class MemoryFileSystem:
    """One process's view of a disk in memory. Paths begin with `/`.

    Args:
        clock: clock for modification times; by default one that stands still.
        image: initial content of the disk, all durable; empty by default.
        boots: how often the machine was started, which determines the boot id.

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

    def admit(self, operation: Operation) -> bool:  # noqa: ARG002 - for subclasses that record or refuse operations
        """Called before each change and sync. Return False to leave it out."""
        return True

    # ---- processes and power -------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True while this process runs. Afterwards its calls fail with EBADF."""
        return self._process.alive and self.disk.powered

    def process(self) -> Self:
        """Returns another process's view of the same files. The locks of both conflict."""
        other = copy.copy(self)
        other._begin_process()
        return other

    def kill(self) -> None:
        """Kills the process. Its open files, mappings and locks end; its writes stay."""
        with self.disk.guard:
            for file in list(self._lock_files):
                file.close()
            self._process.alive = False

    def crash(self) -> Self:
        """Simulates a power loss, which ends all processes. Returns the view of a process after the restart."""
        with self.disk.guard:
            self.disk.powered = False
            other = self.process()
            other.disk = Disk.of(self.image(durable=True), self.clock.now_ms(), self.disk.boots + 1)
            return other

    def image(self, *, durable: bool = False) -> Image:
        """Returns the content of the disk: as processes see it, or as a power loss leaves it. Cost: a copy."""
        with self.disk.guard:
            return self.disk.image(durable=durable)

    def _running(self) -> threading.RLock:
        """Returns the lock of the disk. Raises EBADF if the process has ended."""
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
        """Creates a file, which must not exist. Its name is durable only after `sync_directory`."""
        with self._running():
            return MemoryFile(self, self._create(path), path, write=True)

    def _create(self, path: str) -> FileNode:
        directory, name = self._free_place(path)
        node = FileNode(self.disk.next_number(), b"", self.clock.now_ms())
        if self.admit(Operation(CREATE, node.number, path, (NameChange(directory.number, name, node.number),))):
            directory.names[name] = node
        return node

    def _free_place(self, path: str) -> tuple[DirectoryNode, str]:
        directory, name = self.disk.locate(path)
        if name in directory.names:
            raise refused(errno.EEXIST, path)
        return directory, name

    def map(self, path: str) -> Bytes:
        """Returns a read-only view of a whole file. Cutting or changing the viewed bytes raises an error."""
        with self._running():
            node = self._file_node(path)
            return node.map(self._process) if node.data else np.empty(0, np.uint8)

    def read(self, path: str, limit: int) -> bytes | None:
        """Reads a whole small file. Returns None if it does not exist."""
        with self._running():
            if self.disk.find(path) is None:
                return None
            data = self._file_node(path).data
            if len(data) > limit:
                message = f"{path} has {len(data)} bytes, more than the limit of {limit} bytes"
                raise StorageFailedError(message, path=path)
            return bytes(data)

    # ---- names ---------------------------------------------------------------------------------------------------------------

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:  # noqa: ARG002 - sizes cost nothing here
        """Lists the entries of a directory, sorted by name."""
        with self._running():
            names = self.disk.directory(path).names
            return [self._entry(name, names[name]) for name in sorted(names)]

    def _entry(self, name: str, node: Node) -> DirectoryEntry:
        is_file, is_link = isinstance(node, FileNode), isinstance(node, LinkNode)
        leads_to = self.disk.find(node.target, follow=True) if isinstance(node, LinkNode) else node
        size = len(node.data) if isinstance(node, FileNode) else 0
        return DirectoryEntry(name, isinstance(leads_to, DirectoryNode), is_file, size, node.mtime_ms, is_link, node.number)

    def symlink(self, target: str, path: str) -> None:
        """Creates a symbolic link to an absolute path, durably."""
        with self._running():
            directory, name = self._free_place(path)
            directory.names[name] = directory.durable[name] = LinkNode(self.disk.next_number(), target)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Returns device and inode of what a path leads to; None if there is nothing."""
        node = self.disk.find(path, follow=True)
        return None if node is None else (_DEVICE, node.number)

    def link_target(self, path: str) -> str | None:
        """Returns the target of a symbolic link; None if the path is not a link."""
        node = self.disk.find(path)
        seen = 0
        target = None
        while isinstance(node, LinkNode) and seen < 40:
            target, seen = node.target, seen + 1
            node = self.disk.find(target)
        return target

    def exists(self, path: str) -> bool:
        """Returns True if the path exists."""
        return self.disk.find(path) is not None

    def make_directory(self, path: str) -> None:
        """Creates an empty directory. Its name is durable only after its parent is synced."""
        with self._running():
            directory, name = self._free_place(path)
            node = DirectoryNode(self.disk.next_number(), self.clock.now_ms())
            if self.admit(Operation(MAKE_DIRECTORY, node.number, path, (NameChange(directory.number, name, node.number),))):
                directory.names[name] = node

    def rename(self, source: str, target: str) -> None:
        """Renames atomically, replacing the target if it exists. Durable only after the directory is synced."""
        with self._running():
            (old_directory, old_name), (new_directory, new_name) = self.disk.locate(source), self.disk.locate(target)
            node = self.disk.node(source)
            if node is new_directory.names.get(new_name):
                return
            if isinstance(node, DirectoryNode) and f"{target}/".startswith(f"{source}/"):
                raise refused(errno.EINVAL, source)
            self._check_replaceable(node, new_directory.names.get(new_name), source)
            changes = NameChange(old_directory.number, old_name, None), NameChange(new_directory.number, new_name, node.number)
            if self.admit(Operation(RENAME, node.number, target, changes)):
                del old_directory.names[old_name]
                new_directory.names[new_name] = node

    @staticmethod
    def _check_replaceable(node: Node, old: Node | None, path: str) -> None:
        if isinstance(old, DirectoryNode) and isinstance(node, FileNode):
            raise refused(errno.EISDIR, path)
        if isinstance(old, DirectoryNode) and old.names:
            raise refused(errno.ENOTEMPTY, path)
        if isinstance(old, FileNode) and isinstance(node, DirectoryNode):
            raise refused(errno.ENOTDIR, path)

    def remove(self, path: str) -> None:
        """Removes the name of a file. Open files and mappings stay valid."""
        with self._running():
            if isinstance(self.disk.node(path), DirectoryNode):
                raise refused(errno.EISDIR, path)
            self._remove(path)

    def _remove(self, path: str) -> None:
        directory, name = self.disk.locate(path)
        number = directory.names[name].number
        if self.admit(Operation(REMOVE, number, path, (NameChange(directory.number, name, None),))):
            del directory.names[name]

    def remove_tree(self, path: str) -> None:
        """Removes a directory and its content, name by name."""
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
            message = f"there is no directory {path}" if node is None else f"{path} is not a directory"
            if node is None and self.disk.find(path) is not None:
                message = f"{path} is a symbolic link that does not lead to a directory"
            raise NotALogDirectoryError(message, path=path)

    # ---- the machine ---------------------------------------------------------------------------------------------------------

    def open_locks(self, path: str) -> MemoryLockFile:
        """Opens a file for locks on its bytes. Creates it if it does not exist."""
        with self._running():
            node = self.disk.find(path)
            file = MemoryLockFile(self, self._create(path) if node is None else self._file_node(path), path)
            self._lock_files.add(file)
            return file

    def lock_directory(self, path: str) -> None:
        """Returns None: this file system has no locks on directories."""

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        """Returns 0 if a range of `path` is locked (these locks have no process id), None if it is not."""
        node = self.disk.find(path)
        wanted = HeldLock(self, *span_of(start, size), exclusive=True)
        return 0 if isinstance(node, FileNode) and node.is_locked(wanted) else None

    def boot_id(self) -> bytes:
        """Returns the boot id, which changes when the machine restarts."""
        return b"boot %d" % self.disk.boots
