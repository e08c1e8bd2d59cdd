"""`SplitSegment`: the offset index of a segment of a partition that is not open, for a plan that splits the segment."""

from __future__ import annotations

import functools
from typing import Final

from pylog import limits
from pylog.fs import FileSystem, join
from pylog.index import kinds
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.offset_index import OffsetIndex
from pylog.index.table import read_only
from pylog.index.time_index import TimeIndex
from pylog.log.reading.header_walk import batches, fits
from pylog.record.format import LAST_OFFSET
from pylog.segment.log_file import LogFile
from pylog.segment.names import INDEX, LOG, file_name

_MOST_BEHIND: Final = 2 * limits.DEFAULT_INDEX_INTERVAL_BYTES  # bytes after the last entry of an index that is complete


class SplitSegment:
    """A segment to split: uses its index file if that is sound, else the headers of its batches.

    The index file of a segment that is being written has only the entries of its last closing: the rest is found in its headers.

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
        """Returns the index. Cost: the first call reads the file, and the headers after its last entry."""
        return self._index

    @functools.cached_property
    def _index(self) -> OffsetIndex:
        index = self._sound_index()
        if index is None or not self._is_of_this(index):
            return self._extended(OffsetIndex(self._base, read_only(b""), 0))
        return self._extended(index) if self._size - index.last.position > _MOST_BEHIND else index

    def _sound_index(self) -> OffsetIndex | None:
        """Returns the index of the file; None if it is missing or damaged."""
        path = join(self._directory, file_name(self._base, INDEX))
        data = kinds.OFFSETS.fetch_derived(self._fs, path, self._size).data
        index, damaged = kinds.OFFSETS.parsed(data or b"", path, self._base, self._size)
        return None if data is None or damaged else index

    def _extended(self, index: OffsetIndex) -> OffsetIndex:
        """Returns the index with an entry for each batch after its last one."""
        times = TimeIndex(self._base, read_only(b""), 0)
        builder, indexed = SegmentIndexBuilder.reopened(index, times, interval_bytes=0), index.last
        file = LogFile(self._fs, join(self._directory, file_name(self._base, LOG)), mapped=False)
        for region in file.regions(indexed.position, self._size):
            first = int((region.table[LAST_OFFSET] <= indexed.offset).sum()) if len(index) else 0
            builder.add(region.table, region.table.shape[1], first=first, position=region.shift)
        builder.finish()
        return builder.offset_index()

    def _is_of_this(self, index: OffsetIndex) -> bool:
        file = self._fs.open(join(self._directory, file_name(self._base, LOG)))
        try:
            first = next(batches(file, index.last.position, self._size), None)
            return first is not None and fits(first, index.base_offset, index.last.offset if len(index) else None)
        finally:
            file.close()
