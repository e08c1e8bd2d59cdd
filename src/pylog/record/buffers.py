"""The buffers in which appends are encoded, shared by all logs and threads of the process.

An encoder takes a buffer for the time of one append, so the memory depends on how many appends run at the same time, and not on
how many logs there are. A buffer that was put back is used again only if no array or view refers to it any more: the last batches
of an append are written after its encoder has ended.
"""

from __future__ import annotations

from collections import deque
from sys import getrefcount
from typing import Final

import numpy as np

from pylog import limits
from pylog.record.batch import Bytes, Table
from pylog.record.format import COLUMN_COUNT

_TABLE_SHAPE: Final = (COLUMN_COUNT, 256)


class AppendBuffer:
    """Memory for encoded batches, and for their table.

    Args:
        size: bytes of the batches.

    Attributes:
        data: the memory of the batches.
        table: a table for 256 batches.
        room: the bytes of `data`.
        size: the bytes of both.
    """

    __slots__ = ("data", "room", "size", "table")

    def __init__(self, size: int) -> None:
        self.data: Bytes = np.empty(size, np.uint8)
        self.table: Table = np.empty(_TABLE_SHAPE, np.int64)
        self.room = size
        self.size = size + self.table.nbytes


def _references(buffer: AppendBuffer) -> int:
    """Returns the count of an array to which only an attribute refers: it differs between Python versions."""
    return getrefcount(buffer.data)


_ONE_REFERENCE: Final = _references(AppendBuffer(0))


class Buffers:
    """Buffers that are not in use. Takes no lock, so a signal handler or a forked child may use it.

    Args:
        bound: the most bytes that are kept; the buffers that were put back first are dropped.

    >>> buffers = Buffers(1 << 20)
    >>> taken = buffers.take(5000)
    >>> buffers.put_back(taken)
    >>> view = taken.data[:10]
    >>> buffers.take(5000) is taken  # the view still refers to it
    False
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._kept: deque[AppendBuffer] = deque()  # in the order in which they were put back

    def take(self, size: int) -> AppendBuffer:
        """Returns a buffer for at least `size` bytes of batches."""
        kept = self._kept
        for _ in range(len(kept)):
            try:
                buffer = kept.popleft()  # one step: no other thread gets it
            except IndexError:
                break
            if buffer.room >= size and getrefcount(buffer.data) <= _ONE_REFERENCE and getrefcount(buffer.table) <= _ONE_REFERENCE:
                return buffer
            kept.append(buffer)
        return AppendBuffer(size)

    def clear(self) -> None:
        """Drops the buffers that are not in use: a process that does not append now needs none."""
        self._kept.clear()

    def put_back(self, buffer: AppendBuffer) -> None:
        """Keeps a buffer for the next `take`. Arrays and views may still refer to it."""
        kept = self._kept
        if buffer.size > self._bound:
            return
        kept.append(buffer)
        while len(kept) > 1 and sum(each.size for each in list(kept)) > self._bound:
            try:
                kept.popleft()
            except IndexError:
                break


APPENDS: Final = Buffers(limits.APPEND_BUFFERS_BYTES)
