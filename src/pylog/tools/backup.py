"""Backup copies of files before a repair changes them, outside of the directories that a broker reads."""

from __future__ import annotations

from pylog.clock import Clock
from pylog.errors import InvalidArgumentError
from pylog.fs import FileSystem, absolute, base_name, copy_file, join, parent_of, resolved, write_atomically

MANIFEST = "repair.txt"


class Backup:
    """A directory of backup copies. It is created with the first copy.

    Args:
        fs: the file system.
        root: the log directory of the files.
        path: path of the new directory; by default next to the log directory, with the time in its name.
        clock: the current time.

    Attributes:
        path: path of the directory.

    Raises:
        InvalidArgumentError: the directory exists already, or is inside the log directory, where it would stop a broker from
            starting.
    """

    def __init__(self, fs: FileSystem, root: str, path: str | None, clock: Clock) -> None:
        self.path = absolute(path or f"{root}.repair-{clock.now_ms()}")
        self._fs = fs
        self._root = root
        if join(resolved(self.path), "").startswith(join(resolved(root), "")):
            message = (
                f"the backup {self.path} is inside {root}, and no broker starts with it there; give a directory outside of {root}"
            )
            raise InvalidArgumentError(message, path=self.path)
        if fs.exists(self.path):
            raise InvalidArgumentError(
                f"the backup directory {self.path} already exists; give one that does not exist", path=self.path
            )
        self._made: set[str] = set()

    def keep(self, path: str) -> None:
        """Copies a file, if it exists. The content is durable on return, the name after `settle`.

        Raises:
            StorageFailedError: the disk is full, or the file cannot be read or written.
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

    def settle(self, manifest: str) -> None:
        """Writes a file that describes the repair, and makes all names durable."""
        if not self._made:
            self._fs.make_directory(self.path)
            self._made.add(self.path)
        write_atomically(self._fs, self.path, MANIFEST, manifest.encode())
        for directory in sorted(self._made, reverse=True):
            self._fs.sync_directory(directory)
        self._fs.sync_directory(parent_of(self.path))


def _copied(fs: FileSystem, source: str, target: str) -> None:
    reader, writer = fs.open(source), fs.create(target)
    try:
        copy_file(reader, writer)
    finally:
        reader.close()
        writer.close()
