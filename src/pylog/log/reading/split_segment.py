"""`SplitSegment`: the offset index of a segment of a partition that is not open, for a plan that splits the segment."""

from __future__ import annotations

import functools

from pylog.fs import FILES, FileSystem, join
from pylog.index import kinds
from pylog.index.offset_index import OffsetIndex
from pylog.log.reading.header_walk import batches, fits
from pylog.segment.names import INDEX, LOG, file_name


class SplitSegment:
    """A segment to split: uses its index file if that is sound, else one rebuilt by the engine.

    Args:
        fs, directory: the partition.
        base, size: the segment's base offset, and the bytes of its `.log` file.
    """

    def __init__(self, fs: FileSystem, directory: str, base: int, size: int) -> None:
        self._fs = fs
        self._directory = directory
        self._base = base
        self._size = size

    def offset_index(self) -> OffsetIndex:
        """Returns the index. Cost: the first call reads the file."""
        return self._index

    @functools.cached_property
    def _index(self) -> OffsetIndex:
        index = self._sound_index()
        if index is not None and self._is_of_this(index):
            return index
        from pylog.segment.segment import LogSegment

        segment = LogSegment(self._fs, self._directory, self._base, size=self._size, mtime_ms=0, open_files=FILES)
        return segment.offset_index()

    def _sound_index(self) -> OffsetIndex | None:
        """Returns the index of the file; None if it is missing or damaged."""
        path = join(self._directory, file_name(self._base, INDEX))
        data = kinds.OFFSETS.fetch_derived(self._fs, path, self._size).data
        index, damaged = kinds.OFFSETS.parsed(data or b"", path, self._base, self._size)
        return None if data is None or damaged else index

    def _is_of_this(self, index: OffsetIndex) -> bool:
        file = self._fs.open(join(self._directory, file_name(self._base, LOG)))
        try:
            first = next(batches(file, index.last.position, self._size), None)
            return first is not None and fits(first, index.base_offset, index.last.offset if len(index) else None)
        finally:
            file.close()
