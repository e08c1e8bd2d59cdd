"""Copies of files that are about to change, kept outside of every directory that a broker looks into."""

from __future__ import annotations

from pylog import limits
from pylog.clock import Clock
from pylog.errors import InvalidArgumentError, StorageFailedError
from pylog.fs import FileSystem, absolute, base_name, join, parent_of, resolved, write_atomically

MANIFEST = "repair.txt"


class Backup:
    """A directory of copies, made when the first file goes into it.

    Args:
        fs: where everything is.
        root: the log directory that the files are of.
        path: of the new directory; beside the log directory by default, named after the time.
        clock: tells that time.

    Attributes:
        path: of the directory.

    Raises:
        InvalidArgumentError: it would lie in the log directory, where a broker does not start with it, or is there already.
    """

    def __init__(self, fs: FileSystem, root: str, path: str | None, clock: Clock) -> None:
        self.path = absolute(path or f"{root}.repair-{clock.now_ms()}")
        self._fs = fs
        self._root = root
        if join(resolved(self.path), "").startswith(join(resolved(root), "")):
            told = f"the backup {self.path} would lie in {root}, where a broker does not start beside it; name another directory"
            raise InvalidArgumentError(told, path=self.path)
        if fs.exists(self.path):
            raise InvalidArgumentError(f"{self.path} is there already; name a new directory for the backup", path=self.path)
        self._made: set[str] = set()

    def keep(self, path: str) -> None:
        """Copies a file, if it is there; the copy is durable, its name after `settle`.

        Raises:
            StorageFailedError: there is no room for it, or it cannot be read or written.
        """
        if not self._fs.exists(path):
            return
        directory = parent_of(path)
        target = self.path if directory == self._root else join(self.path, base_name(directory))
        for made in (self.path, target):
            if made not in self._made:
                self._fs.make_directory(made)
                self._made.add(made)
        _copied(self._fs, path, join(target, base_name(path)))

    def settle(self, told: str) -> None:
        """Writes down what the copies are for, and makes everything durable."""
        if not self._made:
            self._fs.make_directory(self.path)
            self._made.add(self.path)
        write_atomically(self._fs, self.path, MANIFEST, told.encode())
        for directory in sorted(self._made, reverse=True):
            self._fs.sync_directory(directory)
        self._fs.sync_directory(parent_of(self.path))


def _copied(fs: FileSystem, source: str, target: str) -> None:
    reader, writer = fs.open(source), fs.create(target)
    try:
        buffer, position = bytearray(limits.READ_CHUNK_BYTES), 0
        while got := reader.read_into(memoryview(buffer), position):
            writer.write(memoryview(buffer)[:got], position)
            writer.write_back(position, got)
            position += got
        writer.sync()
        if position != reader.size():
            raise StorageFailedError(f"{source} changed while it was copied; stop who writes to it", path=source)
    finally:
        reader.close()
        writer.close()
