"""A disk in memory: files, directories and locks, with the cached and the durable content of files and directories.

As on a real disk, syncing a file makes its bytes durable, but not its name. Numbers of files (inodes) are never reused, so that a
file that replaced another one can be recognised.
"""

from __future__ import annotations

import errno
import gc
import threading
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from pylog.errors import StorageFailedError
from pylog.fs import Bytes

ROOT: Final = 1
_EVERYTHING: Final = 1 << 63
_MOST_LINKS: Final = 40

Span = tuple[int, int]


class MappedFileError(AssertionError):
    """A mapped file was cut or changed while a view of it exists. On a real system, this is a SIGBUS or unchecked bytes."""


class Image(NamedTuple):
    """The content of a disk as immutable values.

    Attributes:
        files: the bytes of each file, by number.
        directories: the names of each directory with their file numbers, by number; `ROOT` is the root directory.
        last_number: the largest file number used so far.
        links: the target of each symbolic link, by number.
    """

    files: dict[int, bytes]
    directories: dict[int, dict[str, int]]
    last_number: int
    links: Mapping[int, str] = MappingProxyType({})


class Process:
    """A simulated process, whose open files, mappings and locks end together."""

    def __init__(self) -> None:
        self.alive = True


class HeldLock(NamedTuple):
    """A locked range of a file. `owner` is the open file that has the lock (reliability 10)."""

    owner: object
    start: int
    end: int
    exclusive: bool

    def conflicts_with(self, other: HeldLock) -> bool:
        overlap = self.start < other.end and other.start < self.end
        return overlap and self.owner is not other.owner and (self.exclusive or other.exclusive)


class FileNode:
    """A file without its names.

    Attributes:
        number: unique number of the file.
        mtime_ms: time of the last change.
        durable: bytes that survive a power loss.
        locks: locked ranges.
    """

    def __init__(self, number: int, data: bytes, mtime_ms: int) -> None:
        self.number = number
        self.mtime_ms = mtime_ms
        self.durable = data
        self.locks: list[HeldLock] = []
        self._cached: bytes | bytearray = data  # copied on the first change: most files never change
        self._unsynced: list[Span] = []
        self._views: list[tuple[Process, weakref.ref[Bytes]]] = []

    # ---- bytes ---------------------------------------------------------------------------------------------------------------

    @property
    def data(self) -> bytes | bytearray:
        """The bytes that reads return."""
        return self._cached

    def write(self, data: bytes, position: int) -> None:
        """Writes bytes into the cache. A gap before them is filled with zeros."""
        self._check_views(position, data)
        cached = self._own()
        start, end = min(position, len(cached)), position + len(data)
        cached += bytes(max(0, position - len(cached)))
        cached[position:end] = data
        self._unsynced.append((start, end))

    def truncate(self, size: int) -> None:
        """Cuts the cached file, or extends it with zeros."""
        for view in self._live_views():
            if size < view.size:
                raise MappedFileError(f"a file is cut to {size} bytes while {view.size} of its bytes are mapped")
        cached = self._own()
        old = len(cached)
        del cached[size:]
        cached += bytes(size - len(cached))
        self._unsynced.append((min(old, size), size))

    def sync(self) -> None:
        """Makes the writes since the last sync durable."""
        durable, size = bytearray(self.durable), len(self._cached)
        for start, end in self._unsynced:
            durable += bytes(max(0, start - len(durable)))
            durable[start:end] = self._cached[start:end]
        del durable[size:]
        durable += bytes(size - len(durable))
        self.durable = bytes(durable)
        self._unsynced.clear()

    def forget_writes(self) -> None:
        """Simulates a failed sync: the cache stays, but later syncs do not write it (fsyncgate)."""
        self._unsynced.clear()

    def _own(self) -> bytearray:
        if isinstance(self._cached, bytes):
            self._cached = bytearray(self._cached)
        return self._cached

    # ---- mappings ------------------------------------------------------------------------------------------------------------

    def map(self, process: Process) -> Bytes:
        """Returns a read-only view of the current content. Later changes are checked against it as long as it exists."""
        view = np.frombuffer(bytes(self._cached), np.uint8)
        self._views.append((process, weakref.ref(view)))
        return view

    def _check_views(self, position: int, data: bytes) -> None:
        for view in self._live_views():
            mapped = view[position : position + len(data)].tobytes()
            if mapped != data[: len(mapped)]:
                raise MappedFileError(f"bytes at position {position} are changed while {view.size} bytes of the file are mapped")

    def _live_views(self) -> list[Bytes]:
        if not self._views:
            return []
        gc.collect()  # a view in a garbage cycle cannot be read any more
        self._views = [(process, view) for process, view in self._views if process.alive and view() is not None]
        return [found for _, view in self._views if (found := view()) is not None]

    # ---- locks ---------------------------------------------------------------------------------------------------------------

    def try_lock(self, wanted: HeldLock) -> bool:
        """Locks a range for an open file, or changes its kind of lock. Returns False if another lock conflicts."""
        if self.is_locked(wanted):
            return False
        self.unlock(wanted.owner, wanted.start, wanted.end)
        self.locks.append(wanted)
        return True

    def is_locked(self, wanted: HeldLock) -> bool:
        """Returns True if another lock conflicts with a lock."""
        return any(held.conflicts_with(wanted) for held in self.locks)

    def unlock(self, owner: object, start: int, end: int) -> None:
        """Unlocks a range for an open file, which may hold only parts of it."""
        left = []
        for lock in self.locks:
            if lock.owner is not owner or lock.end <= start or lock.start >= end:
                left.append(lock)
                continue
            left += [lock._replace(end=start)] if lock.start < start else []
            left += [lock._replace(start=end)] if lock.end > end else []
        self.locks = left


class DirectoryNode:
    """A directory.

    Attributes:
        number: unique number of the directory.
        mtime_ms: time of creation.
        names: current entries.
        durable: entries that survive a power loss.
    """

    def __init__(self, number: int, mtime_ms: int) -> None:
        self.number = number
        self.mtime_ms = mtime_ms
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}

    def sync(self) -> None:
        """Makes the names durable, but not the content of the files."""
        self.durable = dict(self.names)


class LinkNode:
    """A symbolic link. Its name is durable at once.

    Attributes:
        number: unique number of the link.
        target: absolute path of the target.
        mtime_ms: always 0.
    """

    mtime_ms = 0

    def __init__(self, number: int, target: str) -> None:
        self.number = number
        self.target = target


Node = FileNode | DirectoryNode | LinkNode


class Disk:
    """The files and directories that the processes of one machine share.

    Attributes:
        guard: lock that is held during changes.
        boots: how often the machine was started.
        powered: True while the machine runs.
        root: the root directory.
    """

    def __init__(self, boots: int) -> None:
        self.guard = threading.RLock()
        self.boots = boots
        self.powered = True
        self.root = DirectoryNode(ROOT, 0)
        self._last_number = ROOT

    @classmethod
    def of(cls, image: Image, mtime_ms: int, boots: int) -> Disk:
        """Returns a disk with the content of an image, all durable."""
        disk = cls(boots)
        disk._last_number = image.last_number
        directories = {number: DirectoryNode(number, mtime_ms) for number in image.directories} | {ROOT: disk.root}
        files = {number: FileNode(number, data, mtime_ms) for number, data in image.files.items()}
        links = {number: LinkNode(number, target) for number, target in image.links.items()}
        nodes: dict[int, Node] = {**directories, **files, **links}
        for number, names in image.directories.items():
            directories[number].names = {name: nodes[child] for name, child in names.items()}
            directories[number].sync()
        return disk

    def image(self, *, durable: bool = False) -> Image:
        """Returns the cached content, or only the durable content."""
        links: dict[int, str] = {}
        image = Image({}, {}, self._last_number, links)
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            names = directory.durable if durable else directory.names
            image.directories[directory.number] = {name: node.number for name, node in names.items()}
            for node in names.values():
                if isinstance(node, DirectoryNode):
                    waiting.append(node)
                elif isinstance(node, LinkNode):
                    links[node.number] = node.target
                else:
                    image.files[node.number] = node.durable if durable else bytes(node.data)
        return image

    def next_number(self) -> int:
        """Returns an unused file number."""
        self._last_number += 1
        return self._last_number

    def find(self, path: str, *, follow: bool = False, links: int = _MOST_LINKS) -> Node | None:
        """Returns the node at a path; None if there is none.

        Args:
            path: the path. Links in its directories are followed.
            follow: follow a link in the last name, too.
            links: number of links to follow before a loop is assumed.
        """
        node: Node | None = self.root
        names = path.split("/")
        for at, name in enumerate(names):
            if not name:
                continue
            if not isinstance(node, DirectoryNode):
                return None
            node = node.names.get(name)
            if isinstance(node, LinkNode) and (follow or any(names[at + 1 :])):
                rest = "/".join([node.target, *names[at + 1 :]])
                return self.find(rest, follow=follow, links=links - 1) if links else None
        return node

    def node(self, path: str, *, follow: bool = False) -> Node:
        """Returns the node at a path, like `find`.

        Raises:
            StorageFailedError: ENOENT.
        """
        found = self.find(path, follow=follow)
        if found is None:
            raise refused(errno.ENOENT, path)
        return found

    def directory(self, path: str) -> DirectoryNode:
        """Returns the directory at a path.

        Raises:
            StorageFailedError: ENOENT, ENOTDIR.
        """
        found = self.node(path, follow=True)
        if not isinstance(found, DirectoryNode):
            raise refused(errno.ENOTDIR, path)
        return found

    def locate(self, path: str) -> tuple[DirectoryNode, str]:
        """Returns the parent directory of a path, and the last name of the path, which may not exist."""
        parent, _, name = path.rstrip("/").rpartition("/")
        return self.directory(parent), name


def span_of(start: int, size: int) -> Span:
    """Returns the range of a lock call. A size of 0 means an unlimited range."""
    return start, start + size if size else _EVERYTHING


def refused(number: int, path: str, position: int | None = None) -> StorageFailedError:
    """Returns the error that files of the operating system raise for this error number."""
    where = path if position is None else f"{path} at position {position}"
    return StorageFailedError(f"cannot use {where}: {errno.errorcode[number]}", path=path, position=position, errno=number)
