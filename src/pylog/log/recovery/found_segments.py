"""The segments found in a partition's directory. Each is opened on first use, because finding the end needs few of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from pylog.segment.segment import LogSegment


class FoundSegments(Sequence[LogSegment]):
    """A sequence of segments, opened lazily.

    Args:
        bases: base offsets, ascending.
        sizes: the size of each file, in bytes.
        make: opens the segment with an index.

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
        """Returns a sequence of segments that are already open."""
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
        return iter([self._one(index) for index in range(len(self.bases))])  # a third of the cost of `Sequence.__iter__`

    def _one(self, index: int) -> LogSegment:
        found = self._made.get(index)
        if found is None:
            found = self._made[index] = self._make(index)
        return found

    def find(self, base_offset: int) -> LogSegment | None:
        """Returns the segment with a base offset, or None."""
        index = bisect_left(self.bases, base_offset)
        return self._one(index) if self.bases[index : index + 1] == [base_offset] else None

    def up_to(self, base_offset: int) -> FoundSegments:
        """Returns the segments up to and including the one with a base offset."""
        count = bisect_left(self.bases, base_offset) + 1
        return FoundSegments(self.bases[:count], self.sizes[:count], self._one)
