"""Where threads run. Linux moves threads that wait for each other (for Python's global lock, say) onto one processor at times.

In virtual machines that is frequent: a processor that has gone to sleep passes for one that is taken. What is lost by it is the
system's part of a figure, so figures of several threads are measured both ways: as it places them, and held in place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue


def two_threads_apart() -> ThreadPoolExecutor:
    """Two threads, each held to a processor of its own, where the system can do that and has as many."""
    processors: SimpleQueue[int] = SimpleQueue()
    for processor in _processors()[:2]:
        processors.put(processor)

    def hold() -> None:
        os.sched_setaffinity(0, {processors.get()})

    return ThreadPoolExecutor(2, initializer=hold if processors.qsize() == 2 else None)


@contextmanager
def on_one_processor() -> Iterator[None]:
    """Holds this thread, and those that it begins meanwhile, to one processor, where the system can do that."""
    before = _processors()
    if before:
        os.sched_setaffinity(0, before[-1:])
    try:
        yield
    finally:
        if before:
            os.sched_setaffinity(0, before)


def _processors() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
