"""Reads the bytes of a `.log` file, region by region: mapped if the file never changes again, otherwise in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from pylog import limits
from pylog.fs import Bytes, File, FileSystem, ResidentPages, data_ranges, extend
from pylog.record import kernels
from pylog.record.ahead import one_ahead
from pylog.record.batch import BatchScan, Table, scan_batches
from pylog.record.format import HEADER_SIZE, POSITION, SIZE
from pylog.record.header import header_column

RESIDENT = ResidentPages()


_NOTHING: Final = np.empty(0, np.uint8)
_LARGE_BATCH: Final = 16 << 10  # bytes: for a larger batch, reading the header alone is cheaper
_LARGE: Final = 2 * limits.VERIFY_CHUNK_BYTES  # bytes: for a smaller walk, starting a thread does not pay


class Region(NamedTuple):
    """Some whole batches of a file.

    Attributes:
        buffer: uint8[n], read-only; valid until the next region is requested.
        table: the batches, POSITION counting from the buffer's start.
        shift: position in the file of the buffer's first byte.
        end: position in the file after the last batch.
        status: kernels.OK, or the fault of the bytes at `end`.
    """

    buffer: Bytes
    table: Table
    shift: int
    end: int
    status: int


class LogFile:
    """One `.log` file, open for reading.

    Args:
        fs, path: the file system and the file's path.
        mapped: whether the file may be mapped: only if it is never truncated or written again.
    """

    def __init__(self, fs: FileSystem, path: str, *, mapped: bool) -> None:
        self.path = path
        self._fs = fs
        self._mapped_identity = fs.identity(path) if mapped else None
        self._file: File | None = None if mapped else fs.open(path)
        self._view: Bytes | None = fs.map(path) if mapped else None

    @property
    def mapping(self) -> Bytes | None:
        """The whole file as one array, if it is mapped; else None."""
        return self._view

    def size(self) -> int:
        """Returns the file's current size in bytes."""
        if self._view is not None:
            return self._view.size
        assert self._file is not None
        return self._file.size()

    def read(self, position: int, size: int) -> Bytes:
        """Returns at most `size` bytes from `position` on, as a new array (or a view of the mapping)."""
        if self._view is not None:
            return self._view[position : position + size]
        assert self._file is not None
        buffer = np.empty(size, np.uint8)
        view = buffer[: self._file.read_into(buffer.data, position)]
        view.flags.writeable = False
        return view

    def copy(self, position: int, end: int, target: File, at: int) -> None:
        """Copies the bytes from `position` to `end` into another file at `at`, some megabytes at a time."""
        for start in range(position, end, limits.READ_CHUNK_BYTES):
            part = self.read(start, min(limits.READ_CHUNK_BYTES, end - start))
            target.write(part.data, start - position + at)

    def copy_to(self, target: File, position: int, end: int) -> None:
        """Copies the bytes from `position` to `end` into a new file, from its start. Holes of a sparse file stay holes."""
        with self.holes() as next_data:
            for start, size in data_ranges(next_data, position, end):
                target.write(self.read(start, size).data, start - position)
        extend(target, min(end, self.size()) - position)

    def regions(self, position: int, end: int, *, verify: bool = False) -> Iterator[Region]:
        """Walks the batches from `position` to `end`; the last region's status shows how the walk ended.

        Cost: one pass over the headers; memory for some chunks, or for the largest batch. With `verify`, another thread reads the
        next chunk of a large file while this one checks a chunk, which takes as long.
        """
        if self._view is not None:
            return self._mapped_regions(position, end, verify)
        if verify and end - position >= _LARGE:
            return self._regions_read_ahead(position, end)
        return self._read_regions(position, end, verify)

    def _mapped_regions(self, position: int, end: int, verify: bool) -> Iterator[Region]:
        assert self._view is not None
        while True:
            stop = min(position + limits.SCAN_BYTES, end, self._view.size)
            scan = scan_batches(self._view, position, stop, verify=verify)
            if scan.status == kernels.TORN and stop < min(end, self._view.size):
                if scan.position == position:  # a batch larger than the window
                    scan = scan_batches(self._view, position, end, verify=verify, capacity=1)
                if scan.position > position and scan.status == kernels.TORN:
                    scan = scan._replace(status=kernels.FULL)
            yield self._region(self._view, scan, 0)
            RESIDENT.passed(self._view, position, scan.position)
            if scan.position >= min(end, self._view.size) or scan.status not in (kernels.OK, kernels.FULL):
                return
            position = scan.position

    def _read_regions(self, position: int, end: int, verify: bool) -> Iterator[Region]:
        assert self._file is not None
        file = self._file.expect(position, end)
        buffer = np.empty(max(1, min(limits.FIRST_CHUNK_BYTES, end - position)), np.uint8)
        while True:
            chunk = _read(file, buffer[: max(0, min(len(buffer), end - position))], position)
            scan = scan_batches(chunk, verify=verify)
            at_end = len(chunk) < len(buffer) or position + len(chunk) >= end
            if scan.status == kernels.TORN and not at_end:
                if scan.position == 0:
                    buffer = np.empty(self._larger(chunk, end - position), np.uint8)
                    continue
                scan = scan._replace(status=kernels.FULL)
            yield self._region(chunk, scan, position)
            position += scan.position
            if scan.status not in (kernels.OK, kernels.FULL) or (at_end and scan.status == kernels.OK):
                return
            if len(buffer) < limits.SCAN_CHUNK_BYTES:  # a long walk needs fewer chunks
                buffer = np.empty(max(1, min(4 * len(buffer), limits.SCAN_CHUNK_BYTES, end - position)), np.uint8)

    def _regions_read_ahead(self, position: int, end: int) -> Iterator[Region]:
        """Does the same with checksums and a reading thread. Falls back to `_read_regions` at a batch larger than its buffers."""
        room, tail = limits.VERIFY_CHUNK_BYTES, np.empty(0, np.uint8)
        with one_ahead(self._chunks(position, end, room)) as chunks:
            for buffer, got in chunks:
                buffer[room - tail.size : room] = tail  # a batch cut off by the last chunk continues in this one
                chunk = buffer[room - tail.size : room + got]
                chunk.flags.writeable = False
                at_end, done = got < len(buffer) - room or position + len(chunk) >= end, 0
                for scan in _scans(chunk, at_end=at_end):
                    yield self._region(chunk, scan, position)
                    done = scan.position
                    if scan.status not in (kernels.OK, kernels.FULL):
                        return
                if at_end:
                    return
                position += done
                if len(chunk) - done > room:
                    break
                tail = chunk[done:].copy()  # the next chunk but one overwrites it
        yield from self._read_regions(position, end, verify=True)

    def _chunks(self, position: int, end: int, room: int) -> Iterator[tuple[Bytes, int]]:
        """Yields a file's bytes in order: buffers with free room in front, and the bytes in each. Two buffers take turns."""
        assert self._file is not None
        file = self._file.expect(position, end)
        buffers = [np.empty(room + limits.VERIFY_CHUNK_BYTES, np.uint8) for _ in range(2)]
        for number, at in enumerate(range(position, end, limits.VERIFY_CHUNK_BYTES)):
            buffer = buffers[number % 2][: room + end - at]
            yield buffer, file.read_into(buffer[room:].data, at)

    @staticmethod
    def _larger(chunk: Bytes, room: int) -> int:
        """Returns the buffer size for a batch that begins a chunk and does not fit: by its length field, within the file."""
        size = 12 + int.from_bytes(chunk[8:12].tobytes(), "big", signed=True) if len(chunk) >= 12 else 0
        return max(1, min(max(size, 2 * len(chunk)), room))

    def _region(self, buffer: Bytes, scan: BatchScan, shift: int) -> Region:
        return Region(buffer, scan.table, shift, shift + scan.position, scan.status)

    def tables(self, position: int, end: int) -> Iterator[Region]:
        """Yields regions for callers that need no records. Reads only the headers of large batches, without a buffer.

        Cost: one pread for each large batch, or for many small ones.
        """
        columns: list[tuple[int, ...]] = []
        file = None if self._file is None else self._file.expect(position, end)
        while position < end and (column := self._large_at(file, position, end)) is not None:
            columns.append(column)
            position += column[SIZE]
            if len(columns) == limits.SCAN_BATCHES:
                yield _headers_only(columns)
                columns = []
        if columns:
            yield _headers_only(columns)
        if position < end:
            yield from self.regions(position, end)

    def _large_at(self, file: File | None, position: int, end: int) -> tuple[int, ...] | None:
        size = min(HEADER_SIZE, end - position)
        column = header_column(self.read(position, size) if file is None else file.read(size, position), position)
        return column if column is not None and _LARGE_BATCH <= column[SIZE] <= end - position else None

    def is_blank(self, position: int, end: int) -> bool:
        """Returns whether all bytes of a range are zero. Cost: one pass over the zeros that are on the disk."""
        with self.holes() as next_data:
            while (position := next_data(position)) < end:
                part = self.read(position, min(limits.READ_CHUNK_BYTES, end - position))
                if part.any():
                    return False
                position += limits.READ_CHUNK_BYTES
        return True

    @contextmanager
    def holes(self) -> Iterator[Callable[[int], int]]:
        """Yields a function that returns the first position, from a given one on, outside of the holes of a sparse file."""
        if self._file is not None:
            yield self._file.next_data
            return
        file = self._fs.open(self.path) if self._fs.exists(self.path) else None
        try:  # only if the name still leads to the file that is mapped
            is_own = file is not None and file.identity() == self._mapped_identity
            yield file.next_data if file is not None and is_own else lambda position: position
        finally:
            if file is not None:
                file.close()

    def close(self) -> None:
        """Closes the file; views of a mapping stay valid as long as they exist."""
        if self._file is not None:
            self._file.close()
        self._view = None


def _read(file: File, buffer: Bytes, position: int) -> Bytes:
    view = buffer[: file.read_into(buffer.data, position)]
    view.flags.writeable = False
    return view


def _headers_only(columns: list[tuple[int, ...]]) -> Region:
    """Returns a region without its bytes: positions count from the file's start."""
    table = np.ascontiguousarray(np.array(columns, np.int64).T)
    return Region(_NOTHING, table, 0, int(table[POSITION, -1] + table[SIZE, -1]), kernels.OK)


def _scans(chunk: Bytes, *, at_end: bool) -> Iterator[BatchScan]:
    """Yields the batches of a chunk with their checksums, one full table at a time. A cut-off batch belongs to the next chunk."""
    position = 0
    while True:
        scan = scan_batches(chunk, position, verify=True)
        if scan.status == kernels.TORN and not at_end:
            if scan.position > position:
                yield scan._replace(status=kernels.FULL)
            return
        yield scan
        if scan.status != kernels.FULL:
            return
        position = scan.position
