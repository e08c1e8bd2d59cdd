"""The memory that mapped files take in this process."""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections import OrderedDict

import numpy as np

from pylog import limits
from pylog.fs.protocols import Bytes
from pylog.fs.system import on_fork


class ResidentPages:
    """Holds the pages of mapped files that scans have touched to a budget, over the whole process.

    A mapped page counts as this process's memory until it is unmapped, although it is the page cache's. Scans report each
    region they are done with; beyond the budget the oldest regions are handed back. Touching them again costs a page
    fault (0.055 s a GiB), never a wrong byte.
    """

    def __init__(self, budget: int = limits.MAPPED_RESIDENT_BYTES) -> None:
        self._budget = budget
        self._resident = 0
        self._regions: OrderedDict[tuple[int, int], tuple[mmap.mmap, int]] = OrderedDict()
        self._guard = threading.Lock()
        on_fork(self)

    def forked(self) -> None:
        """In a forked child, where another thread of the parent may have had the guard."""
        self._guard = threading.Lock()

    def passed(self, view: Bytes, start: int, end: int) -> None:
        """Says that a scan is done with `view[start:end]`, a part of what `FileSystem.map` returned."""
        mapping = _mapping_of(view)
        if mapping is None:
            return
        page = mmap.PAGESIZE
        start, end = start // page * page, -(-end // page) * page
        with self._guard:
            key = (id(mapping), start)
            old = self._regions.pop(key, None)
            self._resident += end - start - (old[1] if old else 0)
            self._regions[key] = (mapping, end - start)
            while self._resident > self._budget and len(self._regions) > 1:
                (_, first), (oldest, size) = self._regions.popitem(last=False)
                self._resident -= size
                _hand_back(oldest, first, size)


def _mapping_of(view: Bytes) -> mmap.mmap | None:
    base = view.base
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _hand_back(mapping: mmap.mmap, start: int, size: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed meanwhile, or an advice this system does not take: no loss
        mapping.madvise(mmap.MADV_DONTNEED, start, min(size, len(mapping) - start))
