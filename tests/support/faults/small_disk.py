"""`SmallDisk`: a recorded file system in memory with few blocks. Its lock files hold a reserve, as on real disks."""

from __future__ import annotations

import errno
from typing import Any, Final

from pylog.clock import Clock
from pylog.testing import Crash, Moment, RecordingFileSystem
from pylog.testing.disk import DirectoryNode, FileNode, Image, refused
from pylog.testing.memory import MAKE_DIRECTORY, TRUNCATE, WRITE, MemoryLockFile, Operation

BLOCK: Final = 4096


def in_blocks(size: int) -> int:
    """Returns the blocks of a file."""
    return -(-size // BLOCK)


class SmallDisk(RecordingFileSystem):
    """A disk of some blocks. Each directory takes one; a file takes as many as its bytes.

    Args:
        blocks: the number of blocks.
        clock, image, boots: as for `RecordingFileSystem`.
    """

    def __init__(self, blocks: int, *, clock: Clock | None = None, image: Image | None = None, boots: int = 1) -> None:
        self.blocks = [blocks]  # shared by all processes
        super().__init__(clock=clock, image=image, boots=boots)

    def sizes(self) -> dict[int, int]:
        """Returns the blocks of each file and directory, by number."""
        found, waiting = {}, [self.disk.root]
        while waiting:
            directory = waiting.pop()
            found[directory.number] = 1
            for node in directory.names.values():
                if isinstance(node, DirectoryNode):
                    waiting.append(node)
                elif isinstance(node, FileNode):
                    found[node.number] = in_blocks(len(node.data))
        return found

    def used(self) -> int:
        """Returns the blocks in use."""
        return sum(self.sizes().values())

    def free(self) -> int:
        """Returns the free blocks."""
        return self.blocks[0] - self.used()

    def fill(self) -> None:
        """Has another program take all free blocks."""
        self.blocks[0] = self.used()

    def size_of(self, path: str) -> int:
        """Returns the bytes of a file; 0 if there is none."""
        node = self.disk.find(path)
        return len(node.data) if isinstance(node, FileNode) else 0

    def sync_file(self, path: str) -> None:
        """Syncs a file, as the operating system does after some time."""
        file = self.open(path)
        file.sync()
        file.close()

    def admit(self, operation: Operation) -> bool:
        sizes = self.sizes()
        wanted = int(operation.kind == MAKE_DIRECTORY)
        if operation.kind in (WRITE, TRUNCATE) and operation.number in sizes:
            wanted = in_blocks(operation.position + len(operation.data)) - sizes[operation.number]
        if wanted > max(0, self.blocks[0] - sum(sizes.values())):
            raise refused(errno.ENOSPC, operation.path)
        return super().admit(operation)

    def open_locks(self, path: str) -> MemoryLockFile:
        found = super().open_locks(path)
        found.__class__ = _Reserve
        return found

    def after(self, moment: Moment, crash: Crash, *, taken: bool) -> SmallDisk:
        """Returns the disk as the next process finds it after a crash.

        Args:
            moment: the moment of the crash, in this disk's recording.
            crash: the crash.
            taken: true if another program has taken all free blocks meanwhile.
        """
        _, image = moment.state(crash)
        again = SmallDisk(self.blocks[0], clock=self.clock, image=image, boots=self.recording.boots + crash.power)
        if taken:
            again.fill()
        return again


class _Reserve(MemoryLockFile):
    """A lock file that can hold blocks."""

    _fs: Any

    def keep_room(self, size: int) -> bool:
        with self._fs.disk.guard:
            node = self._opened()
            there, wanted = len(node.data), size
            size = min(size, (in_blocks(there) + max(0, self._fs.free())) * BLOCK)
            if there < size:
                data = bytes(size - there)
                self._fs.admit(Operation(WRITE, node.number, self._path, position=there, data=data))
                node.write(data, there)
            return size == wanted

    def give_room(self, size: int) -> None:
        with self._fs.disk.guard:
            node = self._opened()
            if len(node.data) > size:
                self._fs.admit(Operation(TRUNCATE, node.number, self._path, position=size))
                node.truncate(size)
