"""`BatchSearch`: finds the good batches after damage, byte by byte.

Crafted bytes can look like batches everywhere, each as large as the rest of the file. So one walk of a file has one search, which
hashes a number of bytes in proportion to the file, however many damages the file has. A sound file needs a fraction of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from pylog import limits
from pylog.fs import Bytes
from pylog.record import finding, kernels
from pylog.record.format import LEGACY_HEADER_SIZE, LOG_OVERHEAD, MAGIC_AT
from pylog.record.legacy import legacy_crc_ok
from pylog.segment.log_file import LogFile

_CANDIDATE_BYTES: Final = 256  # checking such bytes takes as long as hashing some hundred
_WINDOW_BYTES: Final = 4 * limits.READ_CHUNK_BYTES
_FIRST_BLANK_BYTES: Final = 4096


class BatchSearch:
    """Finds good batches in one walk of a file.

    Args:
        file: the file.
    """

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._budget = limits.RESYNC_HASHED_BYTES + limits.RESYNC_HASHED_PER_BYTE * file.size()
        self._window, self._window_at = np.empty(0, np.uint8), 0

    def find(self, position: int, end: int, first_offset: int) -> int | None:
        """Returns the position of the first whole, good batch at or after `position` with an offset of at least `first_offset`.

        Cost: about 1 GB/s. Holes of a sparse file cost nothing.
        """
        with self._file.holes() as next_data:
            return self._found(position, end, first_offset, next_data)

    def _found(self, position: int, end: int, first_offset: int, next_data: Callable[[int], int]) -> int | None:
        size = _WINDOW_BYTES
        while (position := max(position, next_data(position) - LOG_OVERHEAD)) < end:  # up to its length, a batch may be zeros
            chunk = self._read(position, end, size)
            at = self._good_batch(chunk, first_offset)
            if at is not None:
                return position + at
            if position + len(chunk) >= end or self._budget < 0:
                return None
            if size < limits.SCAN_BYTES * 4:
                size *= 4  # a good batch may be larger than the window
            else:
                position += size // 2
        return None

    def _read(self, position: int, end: int, size: int) -> Bytes:
        """Returns about `size` bytes from a position on, at least half of them, or those up to `end`.

        A search begins in the window of the one before, so that many damages cost two reads of each byte.
        """
        first = position - self._window_at
        left = self._window[max(0, first) :] if first >= 0 else self._window[:0]
        if len(left) < min(size // 2, end - position):
            self._window_at, self._window = position, self._file.read(position, min(size, end - position))
            left = self._window
            if len(left) < min(size, end - position):  # the file is shorter
                self._window = left[:0]
        return left[: min(size, end - position)]

    def _good_batch(self, chunk: Bytes, first_offset: int) -> int | None:
        """Returns the position of the first good batch in some bytes, or None.

        Bytes that look like a message of an old format cost at least `_CANDIDATE_BYTES` of the bytes that may be hashed.
        """
        result, at = np.zeros(2, np.int64), 0
        while self._budget >= 0:
            status = finding.find_batch(chunk, at, len(chunk), first_offset, self._budget, result)
            at, self._budget = int(result[0]), int(result[1])
            if status == kernels.OK:
                return at
            if status != kernels.NOT_PLAIN:
                return None
            length = int.from_bytes(chunk[at + 8 : at + LOG_OVERHEAD].tobytes(), "big", signed=True)
            entry = chunk[at : at + LOG_OVERHEAD + length]
            if _fits(entry):
                self._budget -= len(entry)
                if legacy_crc_ok(entry):
                    return at
            self._budget -= _CANDIDATE_BYTES
            at += 1
        return None

    def is_blank(self, position: int, end: int) -> bool:
        """Returns whether all bytes of a range are zero. The zeros count like bytes that are hashed."""
        size = _FIRST_BLANK_BYTES
        with self._file.holes() as next_data:
            while (position := next_data(position)) < end:
                part = self._file.read(position, min(size, end - position))
                self._budget -= len(part)
                if part.any() or self._budget < 0:
                    return False
                position, size = position + size, min(4 * size, limits.READ_CHUNK_BYTES)
        return True


def _fits(entry: Bytes) -> bool:
    """Returns whether the lengths of key and value in a message of an old format add up to its size."""
    data = entry.data
    at = LEGACY_HEADER_SIZE[data[MAGIC_AT]] - 8
    for _ in range(2):
        if at + 4 > len(entry):
            return False
        at += 4 + max(0, int.from_bytes(data[at : at + 4], "big", signed=True))
    return at == len(entry)
