"""Reads the batches of a file as Kafka's `FileLogInputStream` does: one after the other, valid or not, until a length is wrong.

pylog's own reading, which tells good batches from bad ones and continues after damage, is in the module `walk`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.errors import CorruptionError
from pylog.fs import FileSystem
from pylog.record import kernels
from pylog.record.batch import Bytes, Table, scan_batches
from pylog.record.format import (
    ATTRIBUTES_AT,
    COLUMN_COUNT,
    CRC_BAD,
    CRC_GOOD,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    MIN_LENGTH,
)
from pylog.segment.log_file import LogFile
from pylog.text import counted


class RawBatches(NamedTuple):
    """Consecutive batches as they are in a file.

    Attributes:
        buffer: the bytes of the batches; valid until the next ones are requested.
        table: the batches, with POSITION relative to the buffer; checksums of magic 2 are checked.
        shift: position of the buffer in the file.
    """

    buffer: Bytes
    table: Table
    shift: int


class Frames:
    """The batches of a `.log` file.

    Attributes:
        size: number of bytes to read.
        left: number of bytes at the end that are not a batch, after iteration.

    Raises:
        StorageFailedError: the file cannot be read.
        CorruptionError: raised while iterating: the length of a batch is impossible.
    """

    def __init__(self, file: LogFile, size: int) -> None:
        self._file = file
        self.size = size
        self.left = 0

    def __iter__(self) -> Iterator[RawBatches]:
        position = 0
        while position < self.size:
            for region in self._file.regions(position, self.size, verify=True):
                position = region.end
                if region.table.shape[1]:
                    yield RawBatches(region.buffer, region.table, region.shift)
            odd = self._odd(position) if position < self.size else None
            if odd is None:
                break
            yield odd
            position += odd.buffer.size
        self.left = self.size - position

    def one(self, position: int) -> RawBatches | None:
        """Returns the batch at a position; None if it does not end within the file. Cost: one read of the batch."""
        size = self._size_at(position)
        if size is None:
            return None
        buffer = self._file.read(position, size)
        scan = scan_batches(buffer, verify=True, capacity=1)
        return RawBatches(buffer, scan.table, position) if scan.table.shape[1] else self._odd(position)

    def _size_at(self, position: int) -> int | None:
        """Returns the size that the batch at a position declares, in bytes; None past the end."""
        if position >= self.size - FRAME_SIZE:
            return None
        length = int.from_bytes(self._file.read(position + 8, 4).tobytes(), "big", signed=True)
        if length < MIN_LENGTH:
            message = f"the batch at position {position} has a length of {counted(length, 'byte')}, too few for a batch"
            raise CorruptionError(f"{self._file.path}: {message}; the rest is not shown", path=self._file.path, position=position)
        return None if position > self.size - LOG_OVERHEAD - length else LOG_OVERHEAD + length

    def _odd(self, position: int) -> RawBatches | None:
        """Returns a batch that the engine rejects: one of an unknown format, or with impossible counts."""
        size = self._size_at(position)
        if size is None:
            return None
        buffer = self._file.read(position, size)
        if size < HEADER_SIZE or buffer[MAGIC_AT] < 2:
            message = f"the batch at position {position} is too short for its format; nothing after it is shown"
            raise CorruptionError(f"{self._file.path}: {message}", path=self._file.path, position=position)
        return RawBatches(buffer, _column(buffer), position)


def _column(buffer: Bytes) -> Table:
    """Returns the table of one batch from its header, without checks."""
    base, length, epoch, magic, crc, attributes, delta, first, largest, producer, producer_epoch, sequence, count = HEADER.unpack(
        buffer[:HEADER_SIZE].tobytes()
    )
    last = (base + delta + (1 << 63)) % (1 << 64) - (1 << 63)  # a sum of 64 bits, as in Java
    good = int(kernels.checksum(buffer, ATTRIBUTES_AT, buffer.size)) == crc
    numbers = (0, LOG_OVERHEAD + length, base, last, count, first, largest, attributes, magic, epoch, producer)
    column = np.array((*numbers, producer_epoch, sequence, crc, CRC_GOOD if good else CRC_BAD), np.int64)
    assert column.size == COLUMN_COUNT
    return column.reshape(COLUMN_COUNT, 1)


def open_log(fs: FileSystem, path: str, max_bytes: int = limits.INT32_MAX) -> Frames:
    """Opens a `.log` file to read its batches, or those in its first `max_bytes` bytes.

    Raises:
        StorageFailedError: the file cannot be opened.
    """
    file = LogFile(fs, path, mapped=False)
    return Frames(file, min(file.size(), max_bytes))
