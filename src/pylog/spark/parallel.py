"""Planning a store of thousands of partitions in several processes: Python's threads would take turns.

Each process imports pylog and opens the store itself. It shares nothing with the planning process, and inherits none of its
sockets and threads.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

ITEMS_OF_A_PROCESS = 1000  # fewer are done before another process has started
_PARTS = 4  # of a process: partitions differ, and a faster process takes more parts


def in_processes(work: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> Iterable[R]:
    """Returns the results of work on all items, in order; runs in this process unless there are many items.

    Args:
        work: computes the results of some items; it and they must be picklable.
        items: all of them.

    Raises:
        What `work` raises, for the first items that it raises it for.

    >>> in_processes(sorted, [1, 2, 3])
    [1, 2, 3]
    """
    count = min(multiprocessing.cpu_count(), len(items) // ITEMS_OF_A_PROCESS)
    if count < 2:
        return work(items)
    size = -(-len(items) // (count * _PARTS))
    parts = [items[first : first + size] for first in range(0, len(items), size)]
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(itertools.chain.from_iterable(pool.map(work, parts)))
