"""The operating system's files with their syncs counted, or left out where a log is only made to be measured afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pylog
from pylog.fs import File, OsFileSystem


class CountedFileSystem(OsFileSystem):
    """Counts the syncs of files and directories.

    Args:
        sync: whether they are carried out too.

    Attributes:
        syncs: how many there were.
    """

    def __init__(self, *, sync: bool = True) -> None:
        self.syncs = 0
        self._sync = sync

    def open(self, path: str, *, write: bool = False) -> Any:
        return _CountedFile(super().open(path, write=write), self)

    def create(self, path: str) -> Any:
        return _CountedFile(super().create(path), self)

    def sync_directory(self, path: str) -> None:
        if self.counted():
            super().sync_directory(path)

    def counted(self) -> bool:
        """Counts a sync; whether it is to be carried out."""
        self.syncs += 1
        return self._sync


class _CountedFile:
    """A file whose syncs are counted; all else is the file's own."""

    __slots__ = ("_file", "_files")

    def __init__(self, file: File, files: CountedFileSystem) -> None:
        self._file = file
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        if self._files.counted():
            self._file.sync()


@contextmanager
def prepared_store(directory: Path) -> Iterator[pylog.Store]:
    """A store that syncs nothing, for making what is measured later: thousands of files would take minutes."""
    with pylog.open(directory, durability=pylog.Durability.OS, fs=CountedFileSystem(sync=False)) as store:
        yield store
