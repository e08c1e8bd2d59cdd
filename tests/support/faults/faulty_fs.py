"""A file system that fails the calls it is told to, over the real one."""

from __future__ import annotations

import errno
from typing import Any

from pylog.errors import StorageFailedError, SyncFailedError
from pylog.fs import OsFileSystem


class Faults:
    """Which calls fail: `plan` maps a call's name to the numbers (from 1) of the calls that do. `short` bytes come first."""

    def __init__(self, plan: dict[str, set[int]] | None = None, *, short: int = 0) -> None:
        self.plan = plan or {}
        self.short = short
        self.counts: dict[str, int] = {}

    def hits(self, call: str) -> bool:
        self.counts[call] = self.counts.get(call, 0) + 1
        return self.counts[call] in self.plan.get(call, set())


def failure(call: str, path: str) -> StorageFailedError:
    error = SyncFailedError if call.startswith("sync") else StorageFailedError
    return error(f"cannot {call} {path}: no room, for a test", path=path, errno=errno.ENOSPC)


class FaultyFile:
    """A file of the real file system whose writes, syncs and cuts may fail."""

    def __init__(self, file: Any, fs: FaultyFileSystem) -> None:
        self._file = file
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: memoryview, position: int) -> None:
        if self._fs.faults.hits("write"):
            self._file.write(data[: self._fs.faults.short], position)
            raise failure("write", self._file.path)
        self._file.write(data, position)

    def sync(self) -> None:
        if self._fs.faults.hits("sync"):
            raise failure("sync", self._file.path)
        self._file.sync()

    def truncate(self, size: int) -> None:
        if self._fs.faults.hits("truncate"):
            raise failure("truncate", self._file.path)
        self._file.truncate(size)


class FaultyFileSystem(OsFileSystem):
    """The real file system, with faults."""

    def __init__(self) -> None:
        self.faults = Faults()

    def open(self, path: str, *, write: bool = False) -> Any:
        file = super().open(path, write=write)
        return FaultyFile(file, self) if write else file

    def create(self, path: str) -> Any:
        if self.faults.hits("create"):
            raise failure("create", path)
        return FaultyFile(super().create(path), self)

    def rename(self, source: str, target: str) -> None:
        if self.faults.hits("rename"):
            raise failure("rename", source)
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        if self.faults.hits("sync_directory"):
            raise failure("sync directory", path)
        super().sync_directory(path)
