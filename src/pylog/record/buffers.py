"""The buffers in which appends are encoded, shared by all logs and threads of the process.

An encoder takes a buffer for the time of one append, so the memory depends on how many appends run at the same time, and not on
how many logs there are. A buffer that was put back is used again only if no array or view refers to it any more: the last batches
of an append are written after its encoder has ended.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

from pylog import limits
from pylog.record.batch import Bytes


class Buffers:
    """Buffers that are not in use. Takes no lock, so a signal handler or a forked child may use it.

    Args:
        bound: the most bytes that are kept; the buffers that were put back first are dropped.

    >>> buffers = Buffers(1 << 20)
    >>> taken = buffers.take(5000)
    >>> buffers.put_back(taken)
    >>> view = taken[:10]
    >>> buffers.take(5000) is taken  # the view still refers to it
    False
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._kept: dict[int, Bytes] = {}  # by id, in the order in which they were put back

    def take(self, size: int) -> Bytes:
        """Returns a buffer of at least `size` bytes."""
        for key in list(self._kept):
            buffer = self._kept.pop(key, None)  # one step: no other thread gets it
            if buffer is None:
                continue
            if buffer.size >= size and sys.getrefcount(buffer) <= _ONE_REFERENCE:
                return buffer
            self._kept[key] = buffer
        return np.empty(size, np.uint8)

    def put_back(self, buffer: Bytes) -> None:
        """Keeps a buffer for the next `take`. Arrays and views may still refer to it."""
        if buffer.size > self._bound:
            return
        self._kept[id(buffer)] = buffer
        while sum(kept.size for kept in list(self._kept.values())) > self._bound:
            self._kept.pop(next(iter(list(self._kept)), 0), None)


def _references() -> int:
    """Returns the count of a buffer with one reference, a variable: it differs between Python versions."""
    buffer = np.empty(0, np.uint8)
    return sys.getrefcount(buffer)


_ONE_REFERENCE: Final = _references()
APPENDS: Final = Buffers(limits.APPEND_BUFFERS_BYTES)
