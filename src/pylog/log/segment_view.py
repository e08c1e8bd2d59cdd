"""The segments of a log at one moment, as a reader sees them.

A roll adds a segment while readers work. They keep the view they have: it is immutable, and the next state has a view of its own.
So no reader cuts a list to its state, and none can forget to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import ge
from typing import NamedTuple, final

from pylog.errors import InvalidArgumentError
from pylog.index.skiplist import SkipList
from pylog.segment.segment import LogSegment

Item = tuple[int, LogSegment]


class SegmentInfo(NamedTuple):
    """One segment of a log, in numbers. Taken at one moment; it opens no file.

    Attributes:
        base_offset: the first offset that the segment may hold. It is also the name of the segment's files.
        end_offset: the offset after the segment's last record; the next segment's base offset, except in the last segment.
        size: bytes of the `.log` file that can be read.
        path: the `.log` file.
    """

    base_offset: int
    end_offset: int
    size: int
    path: str


@final
class SegmentView:
    """An immutable, sorted sequence of (base offset, segment).

    Views of one log share the writer's skip list, which only grows at its end. Each view keeps the items that belong to it, so
    segments added later are never part of it. A lookup is a binary search in the view: the skip list's kernel costs 2 µs.

    Args:
        items: the segments in rising order of their base offsets.

    Raises:
        InvalidArgumentError: the base offsets do not rise.

    >>> view = SegmentView([(0, "first"), (100, "second")])
    >>> grown = view.with_added(250, "third")
    >>> len(view), view.floor(300), view.higher(100), grown.floor(300)
    (2, (100, 'second'), None, (250, 'third'))
    """

    __slots__ = ("_bases", "_items", "_list", "last")

    _bases: tuple[int, ...]
    _items: tuple[Item, ...]
    _list: SkipList[LogSegment] | None
    last: Item | None  # the item with the largest base offset: of the active segment

    def __init__(self, items: Iterable[Item] = ()) -> None:
        found = tuple(items)
        bases = tuple(base for base, _ in found)
        if any(map(ge, bases, bases[1:])):
            raise InvalidArgumentError("the segments of a view must be given in rising order of their base offsets")
        self._fill(found, bases, None)

    def _fill(self, items: tuple[Item, ...], bases: tuple[int, ...], shared: SkipList[LogSegment] | None) -> None:
        put = object.__setattr__
        put(self, "_items", items)
        put(self, "_bases", bases)
        put(self, "_list", shared)
        put(self, "last", items[-1] if items else None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a view of segments is immutable; {name} cannot be set")

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def values(self) -> list[LogSegment]:
        """The segments, oldest first. Cost: O(n)."""
        return [segment for _, segment in self._items]

    @property
    def first(self) -> Item | None:
        """The item with the smallest base offset, or None."""
        return self._items[0] if self._items else None

    def floor(self, offset: int) -> Item | None:
        """The item with the largest base offset that is at most `offset`, or None. Cost: O(log n), 0.2 µs."""
        at = bisect_right(self._bases, offset)
        return self._items[at - 1] if at else None

    def higher(self, offset: int) -> Item | None:
        """The item with the smallest base offset above `offset`, or None. Cost: O(log n)."""
        at = bisect_right(self._bases, offset)
        return self._items[at] if at < len(self._items) else None

    def with_added(self, base_offset: int, segment: LogSegment) -> SegmentView:
        """A view with one more segment at its end. This view stays as it is.

        Cost: O(log n) in the skip list, and a copy of 16 bytes a segment.

        Raises:
            InvalidArgumentError: the base offset is not above all others.
        """
        item, shared = (base_offset, segment), self._shared_list()
        if shared.last != self.last or not self._items:  # of a state that was given up; a log's first segment needs no kernel
            return SegmentView([*self._items, item])
        shared.insert(base_offset, segment)
        view = object.__new__(SegmentView)
        view._fill((*self._items, item), (*self._bases, base_offset), shared)
        return view

    def check(self) -> None:
        """Checks the invariants of the skip list, and that this view is a part of it. For `Store.check` and tests. Cost: O(n)."""
        shared = self._shared_list()
        shared.check()
        assert shared.values()[: len(self)] == self.values(), "the view is not a part of the writer's list"

    def _shared_list(self) -> SkipList[LogSegment]:
        """Returns the writer's skip list. It is made when a segment is added first: most logs are opened without adding any."""
        shared = self._list
        if shared is None:
            shared = SkipList(self._items)
            object.__setattr__(self, "_list", shared)
        return shared
