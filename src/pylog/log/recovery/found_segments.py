"""The segments of a partition, as found in its directory. Each is made at its first use, because reading the end needs few."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from pylog.segment.segment import LogSegment


class FoundSegments(Sequence[LogSegment]):
    """Segments in their order, made once.

    Args:
        bases: base offsets, ascending.
        sizes: bytes of each file.
        make: the segment of an index.

    >>> FoundSegments([0, 100], [1024, 10], lambda index: None).bases
    [0, 100]
    """

    def __init__(self, bases: Sequence[int], sizes: Sequence[int], make: Callable[[int], LogSegment]) -> None:
        self.bases = bases
        self.sizes = sizes
        self._make = make
        self._made: dict[int, LogSegment] = {}

    @classmethod
    def known(cls, segments: Sequence[LogSegment]) -> FoundSegments:
        """The same of segments that there are already."""
        bases, sizes = [segment.base_offset for segment in segments], [segment.size for segment in segments]
        return cls(bases, sizes, segments.__getitem__)

    def __len__(self) -> int:
        return len(self.bases)

    @overload
    def __getitem__(self, index: int) -> LogSegment: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogSegment]: ...
    def __getitem__(self, index: int | slice) -> LogSegment | list[LogSegment]:
        where = range(len(self.bases))[index]
        return self._one(where) if isinstance(where, int) else [self._one(each) for each in where]

    def __iter__(self) -> Iterator[LogSegment]:
        return iter([self._one(index) for index in range(len(self.bases))])  # a third of what `Sequence` does for the same

    def _one(self, index: int) -> LogSegment:
        found = self._made.get(index)
        if found is None:
            found = self._made[index] = self._make(index)
        return found

    def find(self, base_offset: int) -> LogSegment | None:
        """The segment with a base offset, None when there is none."""
        index = bisect_left(self.bases, base_offset)
        return self._one(index) if self.bases[index : index + 1] == [base_offset] else None

    def up_to(self, base_offset: int) -> FoundSegments:
        """Those up to the segment with a base offset, as its last one."""
        count = bisect_left(self.bases, base_offset) + 1
        return FoundSegments(self.bases[:count], self.sizes[:count], self._one)
