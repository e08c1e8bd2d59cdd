"""A skip list from a segment's base offset to the segment: one writer, any number of readers without locks.

A reader's answer was always correct at some moment during its call, for these reasons:

1. Only one thread writes. It sets key, value and links of a node before it links the node. It links from the lowest level up and
   unlinks from the highest level down. So a node that a reader finds on any level was on level 0 too. Being in the list means
   being linked on level 0: that one assignment is the moment of an insertion or removal.
2. An assignment to an element of a list is one step under the interpreter's lock, and so is reading it.
3. A node never changes its key or value, and is never used again. The links of an unlinked node stay as they were at that moment,
   so a reader that stands on it sees the rest of the list as it was then. That moment is within the reader's call: the reader
   followed a link that it read during the call, from a node for which the same holds, and the head is always in the list.
4. So if the search ends between two nodes, they were neighbours when the link between them was read. If the first had been
   unlinked by then, they were neighbours just before it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, Generic, TypeVar, cast

from pylog.errors import InvalidArgumentError
from pylog.limits import INT64_MAX

T = TypeVar("T")

_BRANCHING_BITS: Final = 2  # one node in four is on the next level: fewer levels than with one in two, and no more comparisons
_LEVELS: Final = 12  # enough for 4 ** 12 segments


class _Node(Generic[T]):
    """An item of the list, and the next node of each level that it is on; None at the end of the list."""

    __slots__ = ("key", "links", "value")

    def __init__(self, key: int, value: T, levels: int) -> None:
        self.key = key
        self.value = value
        self.links: list[_Node[T] | None] = [None] * levels


class SkipList(Generic[T]):
    """A sorted mapping from int64 keys to values, for one writing thread and any number of reading threads.

    Args:
        items: (key, value) pairs in rising order of keys. O(n).

    Raises:
        InvalidArgumentError: the keys are not in rising order.

    >>> segments = SkipList([(0, "first"), (100, "second")])
    >>> segments.insert(250, "third")
    >>> segments.floor(249), segments.last, len(segments)
    ((100, 'second'), (250, 'third'), 3)
    """

    __slots__ = ("_head", "_insertions")

    def __init__(self, items: Iterable[tuple[int, T]] = ()) -> None:
        pairs = list(items)
        if any(left[0] >= right[0] for left, right in pairwise(pairs)):
            raise InvalidArgumentError("the items of a skip list must be given in rising order of their keys")
        self._head: _Node[T] = _Node(-INT64_MAX - 1, cast("T", None), _LEVELS)
        self._insertions = 0
        ends = [self._head] * _LEVELS
        for key, value in pairs:
            node = self._new_node(key, value)
            for level in range(len(node.links)):
                ends[level].links[level] = ends[level] = node

    def __len__(self) -> int:
        """Counts the items. O(n)."""
        return sum(1 for _ in self._nodes(0))

    # Readers: any thread.

    def floor(self, key: int) -> tuple[int, T] | None:
        """Returns the item with the largest key that is at most `key`, or None. O(log n).

        >>> SkipList([(0, "a"), (100, "b")]).floor(99)
        (0, 'a')
        """
        node = self._head
        for level in reversed(range(_LEVELS)):
            following = node.links[level]
            while following is not None and following.key <= key:
                node = following
                following = node.links[level]
        return None if node is self._head else (node.key, node.value)

    @property
    def last(self) -> tuple[int, T] | None:
        """Returns the item with the largest key, or None. O(log n)."""
        return self.floor(INT64_MAX)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        """Yields the items in order. An item that stays is yielded once; one inserted or removed meanwhile may be missed."""
        for node in self._nodes(0):
            yield node.key, node.value

    # The writer: one thread.

    def insert(self, key: int, value: T) -> None:
        """Adds an item. O(log n).

        Raises:
            InvalidArgumentError: the list already has the key.

        >>> segments = SkipList[str]()
        >>> segments.insert(5, "five")
        >>> segments.last
        (5, 'five')
        """
        path = self._path(key)
        following = path[0].links[0]
        if following is not None and following.key == key:
            raise InvalidArgumentError(f"the key {key} is in the list already", offset=key)
        node = self._new_node(key, value)
        for level in range(len(node.links)):
            node.links[level] = path[level].links[level]
            path[level].links[level] = node

    def remove(self, key: int) -> T:
        """Removes an item and returns its value. O(log n).

        Raises:
            InvalidArgumentError: the list does not have the key.

        >>> SkipList([(5, "five")]).remove(5)
        'five'
        """
        path = self._path(key)
        node = path[0].links[0]
        if node is None or node.key != key:
            raise InvalidArgumentError(f"the key {key} is not in the list", offset=key)
        for level in reversed(range(len(node.links))):
            path[level].links[level] = node.links[level]
        return node.value

    def check(self) -> None:
        """Checks the invariants: keys rise on each level, and each level is part of the one below. O(n).

        >>> SkipList([(5, "five")]).check()
        """
        below: list[_Node[T]] | None = None
        for level in range(_LEVELS):
            nodes = list(self._nodes(level))
            assert all(left.key < right.key for left, right in pairwise(nodes)), f"keys of level {level} do not rise"
            assert below is None or set(nodes) <= set(below), f"level {level} is not part of the one below"
            below = nodes

    def _path(self, key: int) -> list[_Node[T]]:
        """Returns the last node below `key` of each level. For the writer only."""
        path, node = [self._head] * _LEVELS, self._head
        for level in reversed(range(_LEVELS)):
            following = node.links[level]
            while following is not None and following.key < key:
                node = following
                following = node.links[level]
            path[level] = node
        return path

    def _nodes(self, level: int) -> Iterator[_Node[T]]:
        node = self._head.links[level]
        while node is not None:
            yield node
            node = node.links[level]

    def _new_node(self, key: int, value: T) -> _Node[T]:
        """Creates a node with one level, plus one for each two trailing zero bits of the hashed count of insertions.

        The count is hashed (splitmix64), because the plain count fails if insertions and removals follow a rhythm.
        """
        self._insertions += 1
        mixed = self._insertions * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 31) | 1 << 62  # ends the run of zeros
        levels = 1 + ((mixed & -mixed).bit_length() - 1) // _BRANCHING_BITS
        return _Node(key, value, min(levels, _LEVELS))
