"""The memory that mapped files take in this process."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import OrderedDict

from pylog import limits
from pylog.fs.mapping import Mapping
from pylog.fs.protocols import Bytes
from pylog.fs.system import on_fork


class ResidentPages:
    """Bounds the memory of mapped pages that scans have touched, over the whole process.

    A touched page counts as this process's memory until it is unmapped, although it belongs to the page cache. Scans report each
    region they have finished; beyond the limit the oldest regions are released. Touching them again costs a page fault
    (0.055 s a GiB) and is always correct. Mappings are not kept from being unmapped.
    """

    def __init__(self, budget: int = limits.MAPPED_RESIDENT_BYTES) -> None:
        self._budget = budget
        self._resident = 0
        self._regions: OrderedDict[tuple[int, int], tuple[weakref.ref[Mapping], int]] = OrderedDict()
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
        with self._guard:
            key = (id(mapping), start)
            old = self._regions.pop(key, None)
            self._resident += end - start - (old[1] if old else 0)
            self._regions[key] = (weakref.ref(mapping), end - start)
            while self._resident > self._budget and len(self._regions) > 1:
                (_, first), (kept, size) = self._regions.popitem(last=False)
                self._resident -= size
                oldest = kept()  # a file that was unmapped has given back its pages
                if oldest is not None:
                    oldest.give_back(first, size)


def _mapping_of(view: Bytes) -> Mapping | None:
    base: object = view
    while not isinstance(base, Mapping | None):
        base = getattr(base, "base", None)  # of an array; whatever else an array may show has none
    return base if isinstance(base, Mapping) else None
