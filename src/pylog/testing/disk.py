"""A disk in memory: files, directories and locks; of files and directories what is cached and what is durable.

A file's bytes and a directory's names are two things, as on a disk: syncing a file makes its bytes durable, not its name.
Numbers of files (inodes) are never given out twice, so a file that replaced another is told from it.
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
    """A mapped file was cut or changed under a view of it: in the real world a SIGBUS, or bytes that nobody checked."""


class Image(NamedTuple):
    """All that a disk holds, as values that nothing changes any more.

    Attributes:
        files: the bytes of each file, by its number.
        directories: the names of each directory and the numbers behind them, by its number; `ROOT` is where paths begin.
        last_number: the largest number ever given out.
        links: the path that each symbolic link stands for, by its number.
    """

    files: dict[int, bytes]
    directories: dict[int, dict[str, int]]
    last_number: int
    links: Mapping[int, str] = MappingProxyType({})


class Process:
    """Whose open files, mappings and locks end together."""

    def __init__(self) -> None:
        self.alive = True


class HeldLock(NamedTuple):
    """A locked range of a file. `owner` is an open file: what a lock belongs to (reliability 10)."""

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
        number: what tells it from every other file.
        mtime_ms: when it was changed last.
        durable: the bytes that outlive a power loss.
        locks: the ranges of it that are locked.
    """

    def __init__(self, number: int, data: bytes, mtime_ms: int) -> None:
        self.number = number
        self.mtime_ms = mtime_ms
        self.durable = data
        self.locks: list[HeldLock] = []
        self._cached: bytes | bytearray = data  # copied at the first change: most files of an image never change
        self._unsynced: list[Span] = []
        self._views: list[tuple[Process, weakref.ref[Bytes]]] = []

    # ---- bytes ---------------------------------------------------------------------------------------------------------------

    @property
    def data(self) -> bytes | bytearray:
        """What reading sees."""
        return self._cached

    def write(self, data: bytes, position: int) -> None:
        """Changes bytes, in the cache only; a gap before them is zeros."""
        self._check_views(position, data)
        cached = self._own()
        start, end = min(position, len(cached)), position + len(data)
        cached += bytes(max(0, position - len(cached)))
        cached[position:end] = data
        self._unsynced.append((start, end))

    def truncate(self, size: int) -> None:
        """Cuts, or lengthens with zeros, in the cache only."""
        for view in self._live_views():
            if size < view.size:
                raise MappedFileError(f"a file is cut to {size} bytes while {view.size} of it are mapped")
        cached = self._own()
        old = len(cached)
        del cached[size:]
        cached += bytes(size - len(cached))
        self._unsynced.append((min(old, size), size))

    def sync(self) -> None:
        """Makes durable what was written since the last sync."""
        durable, size = bytearray(self.durable), len(self._cached)
        for start, end in self._unsynced:
            durable += bytes(max(0, start - len(durable)))
            durable[start:end] = self._cached[start:end]
        del durable[size:]
        durable += bytes(size - len(durable))
        self.durable = bytes(durable)
        self._unsynced.clear()

    def forget_writes(self) -> None:
        """What a failed sync leaves: the cache as it is, and nothing in it that a later sync would write (fsyncgate)."""
        self._unsynced.clear()

    def _own(self) -> bytearray:
        if isinstance(self._cached, bytes):
            self._cached = bytearray(self._cached)
        return self._cached

    # ---- mappings ------------------------------------------------------------------------------------------------------------

    def map(self, process: Process) -> Bytes:
        """A read-only view of the file as it is now; it is watched for as long as it, or any view of it, lives."""
        view = np.frombuffer(bytes(self._cached), np.uint8)
        self._views.append((process, weakref.ref(view)))
        return view

    def _check_views(self, position: int, data: bytes) -> None:
        for view in self._live_views():
            mapped = view[position : position + len(data)].tobytes()
            if mapped != data[: len(mapped)]:
                raise MappedFileError(f"bytes from position {position} on are changed while {view.size} of the file are mapped")

    def _live_views(self) -> list[Bytes]:
        if not self._views:
            return []
        gc.collect()  # a view that only a cycle of garbage keeps is not one that will be looked at
        self._views = [(process, view) for process, view in self._views if process.alive and view() is not None]
        return [found for _, view in self._views if (found := view()) is not None]

    # ---- locks ---------------------------------------------------------------------------------------------------------------

    def try_lock(self, wanted: HeldLock) -> bool:
        """Takes a range for an open file, or changes how it holds it; False when another's lock is in the way."""
        if self.is_locked(wanted):
            return False
        self.unlock(wanted.owner, wanted.start, wanted.end)
        self.locks.append(wanted)
        return True

    def is_locked(self, wanted: HeldLock) -> bool:
        """Whether another's lock is in the way of one."""
        return any(held.conflicts_with(wanted) for held in self.locks)

    def unlock(self, owner: object, start: int, end: int) -> None:
        """Lets go of a range, whatever parts of it the open file holds."""
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
        number: what tells it from every other file.
        mtime_ms: when it was made.
        names: what is in it.
        durable: what will be in it after a power loss.
    """

    def __init__(self, number: int, mtime_ms: int) -> None:
        self.number = number
        self.mtime_ms = mtime_ms
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}

    def sync(self) -> None:
        """Makes the names durable, not the bytes of what they stand for."""
        self.durable = dict(self.names)


class LinkNode:
    """A symbolic link. Its name is durable at once.

    Attributes:
        number: what tells it from every other file.
        target: the absolute path that it stands for.
        mtime_ms: 0, of every link.
    """

    mtime_ms = 0

    def __init__(self, number: int, target: str) -> None:
        self.number = number
        self.target = target


Node = FileNode | DirectoryNode | LinkNode


class Disk:
    """The files and directories that the processes of one machine share.

    Attributes:
        guard: held by whoever changes something.
        boots: how often the machine was started.
        powered: whether it runs.
        root: the directory where paths begin.
    """

    def __init__(self, boots: int) -> None:
        self.guard = threading.RLock()
        self.boots = boots
        self.powered = True
        self.root = DirectoryNode(ROOT, 0)
        self._last_number = ROOT

    @classmethod
    def of(cls, image: Image, mtime_ms: int, boots: int) -> Disk:
        """A disk that holds an image, all of it durable."""
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
        """What is there: in the cache, or durable only."""
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
        """A number that no file has had."""
        self._last_number += 1
        return self._last_number

    def find(self, path: str, *, follow: bool = False, links: int = _MOST_LINKS) -> Node | None:
        """What a path leads to, or None.

        Args:
            path: links in its directories are followed.
            follow: if its last name is a link, follow that too.
            links: how many are followed before it counts as a loop.
        """
        node: Node | None = self.root
        names = [name for name in path.split("/") if name]
        for at, name in enumerate(names):
            node = node.names.get(name) if isinstance(node, DirectoryNode) else None
            if isinstance(node, LinkNode) and (follow or at + 1 < len(names)):
                rest = "/".join([node.target, *names[at + 1 :]])
                return self.find(rest, follow=follow, links=links - 1) if links else None
        return node

    def node(self, path: str, *, follow: bool = False) -> Node:
        """What a path leads to, as `find`.

        Raises:
            StorageFailedError: ENOENT.
        """
        found = self.find(path, follow=follow)
        if found is None:
            raise refused(errno.ENOENT, path)
        return found

    def directory(self, path: str) -> DirectoryNode:
        """The directory that a path leads to.

        Raises:
            StorageFailedError: ENOENT, ENOTDIR.
        """
        found = self.node(path, follow=True)
        if not isinstance(found, DirectoryNode):
            raise refused(errno.ENOTDIR, path)
        return found

    def place(self, path: str) -> tuple[DirectoryNode, str]:
        """The directory that a path's last name is in, or would be; and that name."""
        parent, _, name = path.rstrip("/").rpartition("/")
        return self.directory(parent), name


def span_of(start: int, size: int) -> Span:
    """The range that a lock call names; a size of 0 reaches to the end of everything."""
    return start, start + size if size else _EVERYTHING


def refused(number: int, path: str, position: int | None = None) -> StorageFailedError:
    """The error that the system's own files raise for the same reason."""
    where = path if position is None else f"{path} at position {position}"
    return StorageFailedError(f"cannot use {where}: {errno.errorcode[number]}", path=path, position=position, errno=number)
