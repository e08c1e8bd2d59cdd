"""What the processes of a scheduled run see of the disk: views with points, on a file system that loses what was not synced.

Writes are done piece by piece, and the shared header is read slot by slot, with a point between two pieces: others see, and a
death leaves, half of a write. A loss of power keeps any selection of what was not synced (reliability 2).
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from pylog.clock import Clock
from pylog.errors import SyncFailedError
from pylog.fs import Bytes, DirectoryEntry
from pylog.log.durable_point import SLOT_SIZE
from pylog.segment.names import DURABLE_POINT
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import ROOT, DirectoryNode, Disk, FileNode, Image, refused
from pylog.testing.memory import SYNC, SYNC_DIRECTORY, TRUNCATE, WRITE, MemoryLockByte, Operation
from support.campaign.scheduler import SYNC_FAILS, Machine

# ---- the disk ----------------------------------------------------------------------------------------------------------------


class Unsynced(NamedTuple):
    """A change that no sync covers, and the call that it is a part of."""

    call: str
    operation: Operation


class LossyFileSystem(MemoryFileSystem):
    """A file system in memory of which a loss of power keeps any selection of what was not synced.

    Attributes:
        caller: who makes the call that is under way, and which it is: it holds the pieces of a write together.
    """

    def __init__(self, *, clock: Clock | None = None, image: Image | None = None, boots: int = 1) -> None:
        super().__init__(clock=clock, image=image, boots=boots)
        self.caller = ""
        self._files: dict[int, FileNode] = {}
        self._unsynced: dict[int, list[Unsynced]] = {}  # of each file and directory

    def admit(self, operation: Operation) -> bool:
        """Notes what is not synced."""
        if operation.kind in (SYNC, SYNC_DIRECTORY):
            self._unsynced.pop(operation.number, None)
            return True
        for number in {change.directory for change in operation.names} or {operation.number}:
            self._unsynced.setdefault(number, []).append(Unsynced(self.caller, operation))
        return True

    def _create(self, path: str) -> FileNode:
        node = super()._create(path)
        self._files[node.number] = node  # it may be without a name when the power fails, and with one afterwards
        return node

    def fail_sync(self, path: str, seed: str) -> None:
        """What a failed sync leaves: some of the bytes on the disk, and pages that no later sync writes (fsyncgate)."""
        node = self.disk.find(path)
        if isinstance(node, FileNode):
            written = selected(self._unsynced.pop(node.number, []), random.Random(seed))
            node.durable = node.durable if path.endswith(DURABLE_POINT) else changed(node.durable, written)
            node.forget_writes()

    def lose_power(self, seed: str) -> Self:
        """The disk after a loss of power and a restart; `seed` says what was kept."""
        rng = random.Random(seed)
        image = Image({}, {}, self.image().last_number)
        known = named_nodes(self.disk) | self._files
        waiting: list[DirectoryNode] = [self.disk.root]
        while waiting:
            directory = waiting.pop()
            image.directories[directory.number] = names = self._names_after(directory, rng)
            for number in names.values():
                node = known[number]
                if isinstance(node, DirectoryNode):
                    waiting.append(node)
                elif number not in image.files:
                    image.files[number] = self._bytes_after(node, rng)
        self.disk.powered = False
        return type(self)(clock=self.clock, image=image, boots=self.disk.boots + 1)

    def _names_after(self, directory: DirectoryNode, rng: random.Random) -> dict[str, int]:
        names = {name: node.number for name, node in directory.durable.items()}
        for operation in selected(self._unsynced.get(directory.number, []), rng):
            for change in operation.names:
                if change.directory == directory.number:
                    names.pop(change.name, None)
                    names.update({} if change.number is None else {change.name: change.number})
        return names

    def _bytes_after(self, node: FileNode, rng: random.Random) -> bytes:
        changes = self._unsynced.get(node.number, [])
        if changes and changes[0].operation.path.endswith(DURABLE_POINT):
            return torn_once(node.durable, [change.operation for change in changes], rng)
        data = changed(node.durable, selected(changes, rng))
        size_only = bool(changes) and rng.random() < 0.3
        return data.ljust(len(node.data), b"\0") if size_only else data


def named_nodes(disk: Disk) -> dict[int, FileNode | DirectoryNode]:
    """All files and directories that have a name, or had one when their directory was synced."""
    found: dict[int, FileNode | DirectoryNode] = {ROOT: disk.root}
    waiting = [disk.root]
    while waiting:
        directory = waiting.pop()
        for node in (*directory.names.values(), *directory.durable.values()):
            if node.number not in found and isinstance(node, DirectoryNode):
                waiting.append(node)
            found[node.number] = node
    return found


def changed(data: bytes, operations: Iterable[Operation]) -> bytes:
    """Bytes after some writes and cuts."""
    result = bytearray(data)
    for operation in operations:
        start = operation.position
        result += bytes(max(0, start - len(result)))
        if operation.kind == TRUNCATE:
            del result[start:]
        else:
            result[start : start + len(operation.data)] = operation.data
    return bytes(result)


def selected(changes: Sequence[Unsynced], rng: random.Random) -> list[Operation]:
    """Those that reached the disk: none, all, the first ones, those of one call, all but one, or any."""
    ways: list[Callable[[int], bool]] = [lambda number: False, lambda number: True]
    if changes:
        chosen = rng.randrange(len(changes))
        draws = [rng.random() < 0.5 for _ in changes]
        ways += [lambda number: number < chosen, lambda number: number != chosen, draws.__getitem__]
        ways += [lambda number: changes[number].call == changes[chosen].call]
    way = rng.choice(ways)
    return [change.operation for number, change in enumerate(changes) if way(number)]


def torn_once(data: bytes, operations: Sequence[Operation], rng: random.Random) -> bytes:
    """A file of one sector: the disk was writing what was there at some moment over what was there at an earlier one.

    So at most one slot of the header is torn: that the other one is whole is what two slots are for.
    """
    whole = [0, *(number for number, last in enumerate(operations, 1) if (last.position + len(last.data)) % SLOT_SIZE == 0)]
    earlier, later = sorted((rng.choice(whole), rng.choice(whole)))
    new, old = changed(data, operations[:later]), changed(data, operations[:earlier])
    torn = SLOT_SIZE * rng.randint(0, 4) // 2
    return new[:torn] + old[torn:]


# ---- views -------------------------------------------------------------------------------------------------------------------


def pieces(size: int) -> Iterator[tuple[int, int]]:
    """Where a write is cut: into halves, a long one into quarters.

    >>> list(pieces(128)), list(pieces(0))
    ([(0, 64), (64, 128)], [(0, 0)])
    """
    count = 1 if size < 2 else 2 if size <= 256 else 4
    for number in range(count):
        yield size * number // count, size * (number + 1) // count


class View:
    """A process's file system: that of the machine, with points.

    Args:
        machine: whose points they are.
        fs: this process's view of the disk.
    """

    def __init__(self, machine: Machine, fs: LossyFileSystem) -> None:
        self.machine = machine
        self.fs = fs

    def _point(self, kind: str, path: str) -> None:
        fault = self.machine.point(kind, path)
        if fault is not None:
            raise _sync_failed(path) if fault.kind == SYNC_FAILS else refused(errno.ENOSPC, path)

    def open(self, path: str, *, write: bool = False) -> ViewedFile:
        self._point("open", path)
        return ViewedFile(self, self.fs.open(path, write=write))

    def create(self, path: str) -> ViewedFile:
        self._point("create", path)
        return ViewedFile(self, self.fs.create(path))

    def map(self, path: str) -> Bytes:
        self._point("map", path)
        return self.fs.map(path)

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        self._point("list", path)
        return self.fs.list(path, sizes=sizes)

    def exists(self, path: str) -> bool:
        return self.fs.exists(path)

    def identity(self, path: str) -> tuple[int, int] | None:
        return self.fs.identity(path)

    def link_target(self, path: str) -> str | None:
        return self.fs.link_target(path)

    def read(self, path: str, limit: int) -> bytes | None:
        self._point("read", path)
        return self.fs.read(path, limit)

    def make_directory(self, path: str) -> None:
        self._point("make_directory", path)
        self.fs.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._point("rename", target)
        self.fs.rename(source, target)

    def remove(self, path: str) -> None:
        self._point("remove", path)
        self.fs.remove(path)

    def remove_tree(self, path: str) -> None:
        self._point("remove_tree", path)
        self.fs.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        self._point(SYNC_DIRECTORY, path)
        self.fs.sync_directory(path)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        self.fs.check_directory(path, write=write, follow=follow)

    def open_locks(self, path: str) -> ViewedLocks:
        self._point("open", path)
        return ViewedLocks(self.machine, self.fs.open_locks(path), path)

    def lock_directory(self, path: str) -> None:
        """As a file system without such locks."""

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        return self.fs.lock_owner(path, start, size)

    def boot_id(self) -> bytes:
        return self.fs.boot_id()


def _sync_failed(path: str) -> SyncFailedError:
    return SyncFailedError(f"cannot sync {path}: EIO", path=path, errno=errno.EIO)


class ViewedFile:
    """A file of a `View`."""

    def __init__(self, view: View, file: Any) -> None:
        self.path = file.path
        self._machine = view.machine
        self._fs = view.fs
        self._file = file

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads; the header slot by slot."""
        data = self.read(len(view), position)
        view[: len(data)] = data
        return len(data)

    def read(self, size: int, position: int) -> bytes:
        """The same."""
        step = SLOT_SIZE if self.path.endswith(DURABLE_POINT) else max(1, size)
        data = b""
        for start in range(0, size, step):
            self._machine.point("pread", self.path, position + start)
            data += self._file.read(min(step, size - start), position + start)
        return data

    def next_data(self, position: int) -> int:
        return position

    def expect(self, position: int, end: int) -> ViewedFile:
        return self

    def write(self, data: memoryview, position: int) -> None:
        """Writes piece by piece; the disk may be full before any of them."""
        caller = self._machine.caller
        for start, end in pieces(len(data)):
            if self._machine.point(WRITE, self.path, position + start, bytes(data[start:end])) is not None:
                raise refused(errno.ENOSPC, self.path, position)
            self._fs.caller = caller
            self._file.write(data[start:end], position + start)

    def size(self) -> int:
        self._machine.point("size", self.path)
        return self._file.size()

    def set_mtime(self, mtime_ms: int) -> None:
        self._file.set_mtime(mtime_ms)

    def identity(self) -> tuple[int, int]:
        return self._file.identity()

    def truncate(self, size: int) -> None:
        self._machine.point(TRUNCATE, self.path, size)
        self._fs.caller = self._machine.caller
        self._file.truncate(size)

    def write_back(self, position: int, size: int) -> None:
        self._file.write_back(position, size)

    def sync(self) -> None:
        """Syncs, or fails for good."""
        fault = self._machine.point(SYNC, self.path)
        if fault is not None:
            self._fs.fail_sync(self.path, fault.argument)
            raise _sync_failed(self.path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class ViewedLocks:
    """A lock file of a `View`."""

    def __init__(self, machine: Machine, file: Any, path: str) -> None:
        self._machine = machine
        self._file = file
        self._path = path

    def byte(self, at: int) -> MemoryLockByte:
        return MemoryLockByte(self, at)  # so that both of its steps are points

    def try_lock(self, start: int, size: int, *, exclusive: bool) -> bool:
        self._machine.point("lock", self._path, start % 1000)
        return self._file.try_lock(start, size, exclusive=exclusive)

    def unlock(self, start: int, size: int) -> None:
        self._machine.point("unlock", self._path, start % 1000)
        self._file.unlock(start, size)

    def is_locked(self, start: int, size: int) -> bool:
        return self._file.is_locked(start, size)

    def keep_room(self, size: int) -> bool:
        return self._file.keep_room(size)

    def give_room(self, size: int) -> None:
        self._file.give_room(size)

    def is_current(self) -> bool:
        return self._file.is_current()

    def close(self) -> None:
        self._file.close()
