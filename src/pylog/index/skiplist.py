"""A skip list from a segment's base offset to the segment: one writer, any number of readers without locks.

The list lives in arrays: `keys[node]`, `links[level, node]` (the next node of that level, 0 = none) and a Python list
`values[node]`. Node 0 is the head. Searches are one kernel call.

A reader's answer was always correct at some moment during its call, for these reasons:

1. Only one thread writes. It writes key, value and links of a node before it links the node. It links from the lowest level up
   and unlinks from the highest level down. So a reader that meets a node on any level meets a node that was on level 0 too.
   Being in the list means being linked on level 0: that one store is the moment of an insertion, removal or replacement.
2. Links are stored with release and loaded with acquire order (`index.atomics`). So a reader that sees a link sees everything
   written before it, also in kernels that run without the GIL on ARM. Values are Python objects, read and written under the
   GIL: after the kernel that found the node, and before the kernel that links it.
3. A node never changes its key or value, and is never reused. `replace` puts a new node in the old one's position by one
   store. The links of an unlinked node stay as they were at that moment, so a reader that stands on it sees the rest of the
   list as it was then. That moment is within the reader's call: the reader followed a link that it read during the call, from
   a node for which the same holds, and the head is always in the list.
4. So if the search ends between two nodes, they were neighbours when the link between them was read. If the first had been
   unlinked by then, they were neighbours just before it was.
5. When the nodes are used up, the writer copies the linked ones to new arrays and publishes these by assigning one reference.
   Readers that began before keep the old arrays, which never change again: the list's state at that moment.
6. The writer clears the value of an unlinked node at once, so that readers of a removed segment do not keep its files open. A
   reader that finds a cleared value searches again; the writer has made progress meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numba import types

from pylog.errors import InvalidArgumentError
from pylog.index.atomics import acquire32, release32
from pylog.limits import INT64_MAX
from pylog.record.memory import OUT_LONGS, address, i64, inlined, kernel, load64

T = TypeVar("T")

_L = types.int64
_LINKS = types.int32[:, ::1]
_BRANCHING_BITS: Final = 2  # one node in four is on the next level: fewer levels than with one in two, and no more comparisons
_FIRST_CAPACITY: Final = 16
_MAX_LEVELS: Final = 15  # 4 ** 15 nodes are more than an int32 link can name
_REMOVED: Final = object()

# ---- kernels ---------------------------------------------------------------------------------------------------------------


@inlined
def _follow(links, capacity, level, node):  # type: ignore[no-untyped-def]
    """Returns the next node of a level, 0 at the end."""
    following = acquire32(links + 4 * (level * capacity + node))
    return following if 0 < following < capacity else 0


@inlined
def _link(links, capacity, level, node, following):  # type: ignore[no-untyped-def]
    release32(links + 4 * (level * capacity + node), following)


@kernel(types.UniTuple(_L, 2)(OUT_LONGS, _LINKS, _L, _L), nogil=False)
def locate(keys, links, key, inclusive):  # type: ignore[no-untyped-def]
    """Returns the last node whose key is below `key` (or equal, if `inclusive`) and the node after it; 0 for none. O(log n)."""
    keys_at, links_at = address(keys), address(links)
    capacity = min(len(keys), links.shape[1])
    node, following = 0, 0
    for up in range(links.shape[0]):
        level = links.shape[0] - 1 - up
        following = _follow(links_at, capacity, level, node)
        while following != 0:
            found = i64(load64(keys_at + 8 * following))
            if found > key or (found == key and inclusive == 0):
                break
            node = following
            following = _follow(links_at, capacity, level, node)
    return node, following


@inlined
def _find_path(keys_at, links_at, capacity, levels, key, path):  # type: ignore[no-untyped-def]
    """Stores the last node below `key` of each level; returns the node with the key, or 0. For the writer only."""
    node, following = 0, 0
    for up in range(levels):
        level = levels - 1 - up
        following = _follow(links_at, capacity, level, node)
        while following != 0 and i64(load64(keys_at + 8 * following)) < key:
            node = following
            following = _follow(links_at, capacity, level, node)
        path[level] = node
    if following != 0 and i64(load64(keys_at + 8 * following)) == key:
        return following
    return 0


@inlined
def _unlink_above(links_at, capacity, levels, lowest, node, path):  # type: ignore[no-untyped-def]
    """Unlinks a node from the levels from the highest down to `lowest`; returns how many of those levels it was on."""
    found = 0
    for up in range(levels - lowest):
        level = levels - 1 - up
        if _follow(links_at, capacity, level, path[level]) == node:
            _link(links_at, capacity, level, path[level], _follow(links_at, capacity, level, node))
            found += 1
    return found


@inlined
def _link_levels(links_at, capacity, first, end, node, path):  # type: ignore[no-untyped-def]
    """Links a node into the levels from `first` up: on each level its own link is stored before the link to it."""
    for level in range(first, end):
        _link(links_at, capacity, level, node, _follow(links_at, capacity, level, path[level]))
        _link(links_at, capacity, level, path[level], node)


@kernel(_L(OUT_LONGS, _LINKS, _L, _L, OUT_LONGS), nogil=False)
def insert_node(keys, links, node, levels, path):  # type: ignore[no-untyped-def]
    """Links a node, whose key is written, into the lowest `levels` levels. Returns a node that already has its key, or 0."""
    links_at, capacity = address(links), min(len(keys), links.shape[1])
    if not 0 < node < capacity or len(path) < links.shape[0]:
        return -1
    old = _find_path(address(keys), links_at, capacity, links.shape[0], keys[node], path)
    if old == 0:
        _link_levels(links_at, capacity, 0, min(levels, links.shape[0]), node, path)
    return old


@kernel(_L(OUT_LONGS, _LINKS, _L, OUT_LONGS), nogil=False)
def remove_node(keys, links, key, path):  # type: ignore[no-untyped-def]
    """Unlinks the node with a key and returns it; returns 0 if there is none."""
    links_at, capacity = address(links), min(len(keys), links.shape[1])
    if len(path) < links.shape[0]:
        return -1
    old = _find_path(address(keys), links_at, capacity, links.shape[0], key, path)
    if old != 0:
        _unlink_above(links_at, capacity, links.shape[0], 0, old, path)
    return old


@kernel(_L(OUT_LONGS, _LINKS, _L, OUT_LONGS), nogil=False)
def replace_node(keys, links, node, path):  # type: ignore[no-untyped-def]
    """Links a node, whose key is written, in place of the node with the same key; returns that one, or 0 if there is none."""
    links_at, capacity = address(links), min(len(keys), links.shape[1])
    if not 0 < node < capacity or len(path) < links.shape[0]:
        return -1
    old = _find_path(address(keys), links_at, capacity, links.shape[0], keys[node], path)
    if old != 0:
        above = _unlink_above(links_at, capacity, links.shape[0], 1, old, path)
        _link(links_at, capacity, 0, node, _follow(links_at, capacity, 0, old))
        _link(links_at, capacity, 0, path[0], node)  # the one store that exchanges the two
        _link_levels(links_at, capacity, 1, 1 + above, node, path)
    return old


# ---- the list --------------------------------------------------------------------------------------------------------------


class _Arrays:
    """The nodes of a list. `used` counts the allocated nodes, including the head; only the writer reads it."""

    __slots__ = ("keys", "links", "path", "used", "values")

    def __init__(self, items: list[tuple[int, Any]]) -> None:
        """Creates nodes for items in order, linked as a perfect tree, with room for as many again."""
        capacity = max(_FIRST_CAPACITY, 2 * (len(items) + 1))
        levels = min(_MAX_LEVELS, 1 + (capacity.bit_length() - 1) // _BRANCHING_BITS)
        self.used = len(items) + 1
        self.keys = np.zeros(capacity, np.int64)
        self.keys[1 : self.used] = [key for key, _ in items]
        self.values: list[Any] = [_REMOVED, *(value for _, value in items)] + [_REMOVED] * (capacity - self.used)
        self.links = np.zeros((levels, capacity), np.int32)
        self.path = np.zeros(levels, np.int64)  # the writer's scratch
        for level in range(levels):
            nodes = np.arange(0, self.used, 1 << _BRANCHING_BITS * level)
            self.links[level, nodes[:-1]] = nodes[1:]


class SkipList(Generic[T]):
    """A sorted mapping from int64 keys to values, for one writing thread and any number of reading threads.

    Args:
        items: (key, value) pairs in rising order of keys. O(n).

    Raises:
        InvalidArgumentError: the keys are not in rising order.

    >>> segments = SkipList([(0, "first"), (100, "second")])
    >>> segments.insert(250, "third")
    >>> segments.floor(249), segments.higher(250), len(segments)
    ((100, 'second'), None, 3)
    """

    __slots__ = ("_arrays", "_insertions", "_size")

    def __init__(self, items: Iterable[tuple[int, T]] = ()) -> None:
        pairs = list(items)
        if any(left[0] >= right[0] for left, right in pairwise(pairs)):
            raise InvalidArgumentError("the items of a skip list must be given in rising order of their keys")
        self._arrays = _Arrays(pairs)
        self._size = len(pairs)
        self._insertions = 0

    def __len__(self) -> int:
        return self._size

    # Readers: any thread.

    def floor(self, key: int) -> tuple[int, T] | None:
        """Returns the item with the largest key that is at most `key`, or None. O(log n).

        >>> SkipList([(0, "a"), (100, "b")]).floor(99)
        (0, 'a')
        """
        return self._search(key, 1, 0)

    def lower(self, key: int) -> tuple[int, T] | None:
        """Returns the item with the largest key below `key`, or None. O(log n).

        >>> SkipList([(0, "a"), (100, "b")]).lower(100)
        (0, 'a')
        """
        return self._search(key, 0, 0)

    def ceiling(self, key: int) -> tuple[int, T] | None:
        """Returns the item with the smallest key that is at least `key`, or None. O(log n).

        >>> SkipList([(0, "a"), (100, "b")]).ceiling(100)
        (100, 'b')
        """
        return self._search(key, 0, 1)

    def higher(self, key: int) -> tuple[int, T] | None:
        """Returns the item with the smallest key above `key`, or None. O(log n).

        >>> SkipList([(0, "a"), (100, "b")]).higher(0)
        (100, 'b')
        """
        return self._search(key, 1, 1)

    @property
    def first(self) -> tuple[int, T] | None:
        """Returns the item with the smallest key, or None. O(log n)."""
        return self.ceiling(-INT64_MAX - 1)

    @property
    def last(self) -> tuple[int, T] | None:
        """Returns the item with the largest key, or None. O(log n)."""
        return self.floor(INT64_MAX)

    def items(self, start: int = -INT64_MAX - 1, end: int = INT64_MAX) -> Iterator[tuple[int, T]]:
        """Yields the items with keys from `start` up to, but not including, `end`, in order, each as it is when reached.

        An item that stays in the list is yielded once; an item inserted or removed meanwhile may be missed. O(log n) an item.

        >>> list(SkipList([(0, "a"), (100, "b"), (200, "c")]).items(50, 200))
        [(100, 'b')]
        """
        item = self.ceiling(start)
        while item is not None and item[0] < end:
            yield item
            item = self.higher(item[0])

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return self.items()

    def values(self) -> list[T]:
        """Returns all values in the order of their keys, as of one moment. O(n), and much faster than iterating.

        >>> SkipList([(0, "a"), (100, "b")]).values()
        ['a', 'b']
        """
        while True:
            arrays = self._arrays
            found = [arrays.values[node] for node in _level_nodes(arrays, 0)]
            if not any(value is _REMOVED for value in found):
                return found

    # The writer: one thread.

    def insert(self, key: int, value: T) -> None:
        """Adds an item. O(log n), amortised over the copying to larger arrays.

        Raises:
            InvalidArgumentError: the list already has the key.

        >>> segments = SkipList[str]()
        >>> segments.insert(5, "five")
        >>> segments.first
        (5, 'five')
        """
        arrays, node = self._new_node(key, value)
        if insert_node(arrays.keys, arrays.links, node, self._choose_levels(), arrays.path) != 0:
            arrays.values[node] = _REMOVED
            raise InvalidArgumentError(f"the key {key} is in the list already", offset=key)
        self._size += 1

    def remove(self, key: int) -> T:
        """Removes an item and returns its value. O(log n).

        Raises:
            InvalidArgumentError: the list does not have the key.

        >>> SkipList([(5, "five")]).remove(5)
        'five'
        """
        arrays = self._arrays
        old = self._released(arrays, remove_node(arrays.keys, arrays.links, key, arrays.path), key)
        self._size -= 1
        return old

    def replace(self, key: int, value: T) -> T:
        """Gives a key another value and returns the old one. Readers always find the key. O(log n), amortised.

        Raises:
            InvalidArgumentError: the list does not have the key.

        >>> segments = SkipList([(5, "five")])
        >>> segments.replace(5, "FIVE"), segments.floor(5)
        ('five', (5, 'FIVE'))
        """
        arrays, node = self._new_node(key, value)
        old = replace_node(arrays.keys, arrays.links, node, arrays.path)
        if old <= 0:
            arrays.values[node] = _REMOVED
        return self._released(arrays, old, key)

    def check(self) -> None:
        """Checks the invariants, for tests: keys rise on each level, each level is part of the one below, all values exist. O(n).

        >>> SkipList([(5, "five")]).check()
        """
        arrays = self._arrays
        below: list[int] | None = None
        for level in range(arrays.links.shape[0]):
            nodes = _level_nodes(arrays, level)
            keys = arrays.keys[nodes]
            assert bool((keys[:-1] < keys[1:]).all()), f"keys of level {level} do not rise"
            assert below is None or set(nodes) <= set(below), f"level {level} is not part of the one below"
            assert below is not None or len(nodes) == self._size, "the size is wrong"
            below = nodes
            assert all(arrays.values[node] is not _REMOVED for node in nodes), "a linked node has no value"

    def _search(self, key: int, inclusive: int, side: int) -> tuple[int, T] | None:
        while True:
            arrays = self._arrays
            node = _locate(arrays, key, inclusive)[side]
            if node == 0:
                return None
            value = arrays.values[node]
            if value is not _REMOVED:
                return arrays.keys.item(node), value

    def _new_node(self, key: int, value: T) -> tuple[_Arrays, int]:
        """Allocates an unlinked node with a key and a value."""
        if self._arrays.used == len(self._arrays.keys):
            old = self._arrays
            self._arrays = _Arrays([(int(old.keys[node]), old.values[node]) for node in _level_nodes(old, 0)])
        arrays = self._arrays
        node = arrays.used
        arrays.used += 1
        arrays.keys[node] = key
        arrays.values[node] = value
        return arrays, node

    def _released(self, arrays: _Arrays, node: int, key: int) -> T:
        """Clears and returns the value of an unlinked node."""
        if node <= 0:
            raise InvalidArgumentError(f"the key {key} is not in the list", offset=key)
        value = arrays.values[node]
        arrays.values[node] = _REMOVED
        return value

    def _choose_levels(self) -> int:
        """Chooses one level, plus one for each two trailing zero bits of the hashed count of insertions.

        The count is hashed (splitmix64), because the plain count fails if insertions and removals follow a rhythm.
        """
        self._insertions += 1
        mixed = self._insertions * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 31) | 1 << 62  # ends the run of zeros
        return 1 + ((mixed & -mixed).bit_length() - 1) // _BRANCHING_BITS


def _locate(arrays: _Arrays, key: int, inclusive: int) -> tuple[int, int]:
    """Calls `locate`, except for a list that never had more than one item: most logs of most programs have one segment."""
    if arrays.used > 2:
        below, above = locate(arrays.keys, arrays.links, key, inclusive)
        return below, above
    node = int(arrays.links[0, 0])
    found = int(arrays.keys[node])
    return (node, 0) if node and (found < key or (found == key and inclusive)) else (0, node)


def _level_nodes(arrays: _Arrays, level: int) -> list[int]:
    """Returns the nodes of a level at one moment: its links are copied under the GIL, which the writer's kernels hold."""
    nodes, links = [], arrays.links[level].tolist()
    node = links[0]
    while node:
        nodes.append(node)
        node = links[node]
    return nodes
