"""Blocks of archived logs in a directory, up to a bound, for several processes.

Segments never change and their ids are never used again, so a block never becomes stale and no process must tell another. A file
gets its name when it is complete, and ends with a checksum: one that is half written or damaged is fetched again. The blocks that
were not read for the longest time are deleted first.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from google_crc32c import extend

from pylog import limits, trace
from pylog.clock import SystemClock
from pylog.errors import PylogError, StorageFailedError
from pylog.fs import DirectoryEntry, FileSystem, join, on_fork
from pylog.objects.ranges import RangeSource
from pylog.record.checksum import crc32c

_CHECKSUM: Final = 4  # bytes at the end of a file
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{22}-(\d{8}|small)(\.[0-9a-f]{16}\.tmp)?")
_SMALL: Final = "small"
_LEFT_MS: Final = 3_600_000  # age at which a temporary file belongs to a process that died


class BlockCache:
    """A directory with blocks. Every method may be called from any thread, and by several processes. None raises for the disk.

    Args:
        fs: the file system.
        directory: where the blocks are; it is created when it is needed. Other files in it stay.
        most_bytes: bytes of all blocks. Each process checks it after an eighth of it was written.
    """

    def __init__(self, fs: FileSystem, directory: str, most_bytes: int) -> None:
        self._fs = fs
        self._directory = directory
        self._most = most_bytes
        self._reported = False
        self._unchecked = most_bytes  # bytes written since the bound was checked: the first write checks it
        self.forked()
        on_fork(self)

    def forked(self) -> None:
        """Has a child use its own lock."""
        self._guard = threading.Lock()

    def small(self, segment_id: str, size: int, fetch: Callable[[], bytes]) -> bytes:
        """Returns the small files of a segment, which are fetched if they are not here.

        Args:
            segment_id: the segment's id.
            size: the size of all of them, in bytes.
            fetch: returns them, checked.
        """
        found = self.read(f"{segment_id}-{_SMALL}", size)
        if found is None:
            found = fetch()
            self.write(f"{segment_id}-{_SMALL}", found)
        return found

    def read(self, name: str, size: int) -> bytes | None:
        """Returns the bytes of a file; None if it is not here, or not as it was written."""
        path = join(self._directory, name)
        try:
            data = self._fs.read(path, size + _CHECKSUM)
        except PylogError as error:
            self._note(path, error)
            return None
        if data is None or len(data) != size + _CHECKSUM or _checksum(name, data[:size]) != data[size:]:
            return None
        self._touch(path)
        return data[:size]

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Keeps bytes, and deletes the oldest files if there is no room. A crash leaves no file of that name, or a whole one."""
        if len(data) + _CHECKSUM > self._most:
            return
        temporary = join(self._directory, f"{name}.{secrets.token_hex(8)}.tmp")
        try:
            self._make_room(len(data) + _CHECKSUM)
            self._write(temporary, bytes(data) + _checksum(name, bytes(data)))
            self._fs.rename(temporary, join(self._directory, name))
        except PylogError as error:
            self._note(temporary, error)
            with suppress(PylogError):  # on a full disk, the beginning of it would take more room
                self._remove(temporary)

    def _write(self, path: str, data: bytes) -> None:
        file = self._fs.create(path)
        try:
            file.write(memoryview(data), 0)
        finally:
            file.close()

    def _touch(self, path: str) -> None:
        """Notes the time of a read. The bytes count without it, as in a directory that this process may only read."""
        with suppress(PylogError):
            file = self._fs.open(path, write=True)
            try:
                file.set_mtime(SystemClock().now_ms())
            finally:
                file.close()

    def _make_room(self, size: int) -> None:
        with self._guard:
            self._unchecked += size
            if self._unchecked < self._most // 8:
                return
            self._unchecked = 0
        if not self._fs.exists(self._directory):
            self._fs.make_directory(self._directory)
        found = [entry for entry in self._fs.list(self._directory) if _NAME.fullmatch(entry.name)]
        for name in surplus(found, self._most - self._most // 8, SystemClock().now_ms()):
            self._remove(join(self._directory, name))

    def _remove(self, path: str) -> None:
        try:
            self._fs.remove(path)
        except StorageFailedError:  # another process deletes it, too
            if self._fs.exists(path):
                raise

    def _note(self, path: str, error: PylogError) -> None:
        """Logs the first failure: reads go on without the cache."""
        if not self._reported:
            self._reported = True
            trace.line(trace.IGNORED, path=path, reason=f"{error}; blocks are read from the object store")


def _checksum(name: str, data: bytes) -> bytes:
    """Returns the checksum of a file's name and its content: a file that was renamed is not taken for another one."""
    return extend(crc32c(name.encode()), data).to_bytes(_CHECKSUM, "big")


def surplus(found: Sequence[DirectoryEntry], most_bytes: int, now_ms: int) -> list[str]:
    """Returns the names of the files to delete: those of processes that died, and those not read for the longest time. Pure.

    Args:
        found: the files of the cache.
        most_bytes: that may stay.
        now_ms: the wall clock, in milliseconds.

    >>> def entry(name: str, size: int, at: int) -> DirectoryEntry:
    ...     return DirectoryEntry(name, is_directory=False, is_file=True, size=size, mtime_ms=at)
    >>> surplus([entry("a", 6, 30), entry("b", 6, 10), entry("c", 6, 20)], 12, 40)
    ['b']
    """
    left = [each.name for each in found if each.name.endswith(".tmp") and each.mtime_ms < now_ms - _LEFT_MS]
    size = sum(each.size for each in found)
    for each in sorted(found, key=lambda each: each.mtime_ms):
        if size <= most_bytes:
            break
        if not each.name.endswith(".tmp"):
            left.append(each.name)
            size -= each.size
    return left


class CachedLog:
    """A log whose blocks are kept on the disk. See `RangeSource`.

    Args:
        source: reads the log from the object store.
        cache: keeps its blocks.
        segment_id: the log's segment id.
        size: the log's size, in bytes.
    """

    grain: int = 1

    def __init__(self, source: RangeSource, cache: BlockCache, segment_id: str, size: int) -> None:
        self._source = source
        self._cache = cache
        self._segment_id = segment_id
        self._size = size
        self.url = source.url

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns a range. Cost: one request for the blocks that are not on the disk."""
        if position >= end:
            return b""
        step = limits.CACHED_BLOCK_BYTES
        first = position // step
        blocks = {number: self._kept(number) for number in range(first, (end - 1) // step + 1)}
        missing = [number for number, data in blocks.items() if data is None]
        if missing:
            start = missing[0] * step
            fetched = memoryview(self._source.read(start, min((missing[-1] + 1) * step, self._size)))
            for number in range(missing[0], missing[-1] + 1):
                data = fetched[number * step - start : (number + 1) * step - start]
                if blocks[number] is None:
                    self._cache.write(self._name(number), data)
                    blocks[number] = bytes(data)
        whole = b"".join(data for data in blocks.values() if data is not None)
        return memoryview(whole)[position - first * step : end - first * step]

    def _kept(self, number: int) -> bytes | None:
        start = number * limits.CACHED_BLOCK_BYTES
        return self._cache.read(self._name(number), min(limits.CACHED_BLOCK_BYTES, self._size - start))

    def _name(self, number: int) -> str:
        return f"{self._segment_id}-{number:08d}"


def cache_of(objects: object) -> BlockCache | None:
    """Returns the cache that an object store was opened with; None if it has none."""
    found = getattr(objects, "blocks", None)
    return found if isinstance(found, BlockCache) else None
