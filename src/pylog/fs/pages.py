"""The memory that mapped files take in this process."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import OrderedDict, deque

from pylog import limits
from pylog.fs.mapping import Mapping
from pylog.fs.protocols import Bytes
from pylog.fs.system import on_fork


class _Region(weakref.ref[Mapping]):
    """A part of a mapping whose pages are in memory.

    Attributes:
        key: the mapping's id, and the position of the region.
        size: in bytes.
    """

    __slots__ = ("key", "size")

    key: tuple[int, int]
    size: int


class ResidentPages:
    """Bounds the memory of mapped pages that scans have touched, over the whole process.

    A touched page counts as this process's memory until it is unmapped, although it belongs to the page cache. Scans report each
    region they have finished; beyond the limit the oldest regions are released. Touching them again costs a page fault
    (0.055 s a GiB) and is always correct. Mappings are not kept from being unmapped. An unmapped one no longer counts.
    """

    def __init__(self, budget: int = limits.MAPPED_RESIDENT_BYTES) -> None:
        self._budget = budget
        self._resident = 0
        self._regions: OrderedDict[tuple[int, int], _Region] = OrderedDict()
        self._unmapped: deque[_Region] = deque()  # takes no lock: any allocation may unmap a file, under the guard too
        self._guard = threading.Lock()
        on_fork(self)

    def forked(self) -> None:
        """Replaces the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.Lock()

    def passed(self, view: Bytes, start: int, end: int) -> None:
        """Reports that a scan has finished with `view[start:end]`, a part of an array from `FileSystem.map`."""
        mapping = _mapping_of(view)
        if mapping is None:
            return
        page = mmap.PAGESIZE
        start, end = start // page * page, -(-end // page) * page
        region = _Region(mapping, self._unmapped.append)
        region.key, region.size = (id(mapping), start), end - start
        with self._guard:
            while self._unmapped:
                self._forget_unmapped(self._unmapped.popleft())
            self._forget(region.key)
            self._regions[region.key] = region
            self._resident += region.size
            while self._resident > self._budget and len(self._regions) > 1:
                self._release(next(iter(self._regions)))

    def _forget_unmapped(self, region: _Region) -> None:
        """Forgets a region, unless a later mapping has its id already."""
        if self._regions.get(region.key) is region:
            self._forget(region.key)

    def _forget(self, key: tuple[int, int]) -> _Region | None:
        region = self._regions.pop(key, None)
        self._resident -= 0 if region is None else region.size
        return region

    def _release(self, key: tuple[int, int]) -> None:
        region = self._forget(key)
        mapping = None if region is None else region()
        if region is not None and mapping is not None:
            mapping.give_back(key[1], region.size)


def _mapping_of(view: Bytes) -> Mapping | None:
    base: object = view
    while not isinstance(base, Mapping | None):
        base = getattr(base, "base", None)  # of an array; whatever else an array may show has none
    return base if isinstance(base, Mapping) else None
