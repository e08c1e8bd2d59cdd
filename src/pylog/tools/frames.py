"""The batches of a file as Kafka meets them: one behind the other, whatever they hold, until a length leads nowhere.

This is what Kafka's own loops see (its `FileLogInputStream`); `log.walk` is what pylog's reading sees, which tells good batches
from bad ones and goes on behind damage.
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


class RawBatches(NamedTuple):
    """Some consecutive batches.

    Attributes:
        buffer: their bytes; valid until the next stretch is asked for.
        table: the batches, POSITION counting from the buffer's start; checksums of magic 2 were looked at.
        shift: position in the file of the buffer's first byte.
    """

    buffer: Bytes
    table: Table
    shift: int


class Frames:
    """The batches of a `.log` file.

    Attributes:
        size: bytes of the file that count.
        left: bytes at its end that are no batch, when all were asked for.

    Raises:
        StorageFailedError: it cannot be read.
        CorruptionError: when batches are asked for, and one has a length that none can have.
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
        """The batch at a position; None when none ends within the file. Cost: the batch's bytes."""
        size = self._size_at(position)
        if size is None:
            return None
        buffer = self._file.read(position, size)
        scan = scan_batches(buffer, verify=True, capacity=1)
        return RawBatches(buffer, scan.table, position) if scan.table.shape[1] else self._odd(position)

    def _size_at(self, position: int) -> int | None:
        """The bytes of the batch at a position, by its own word."""
        if position >= self.size - FRAME_SIZE:
            return None
        length = int.from_bytes(self._file.read(position + 8, 4).tobytes(), "big", signed=True)
        if length < MIN_LENGTH:
            told = (
                f"the batch at position {position} says that it has {length} bytes, fewer than any has; nothing behind is shown"
            )
            raise CorruptionError(f"{self._file.path}: {told}", path=self._file.path, position=position)
        return None if position > self.size - LOG_OVERHEAD - length else LOG_OVERHEAD + length

    def _odd(self, position: int) -> RawBatches | None:
        """A batch that the engine would not take for one: of an unknown format, with impossible counts."""
        size = self._size_at(position)
        if size is None:
            return None
        buffer = self._file.read(position, size)
        if size < HEADER_SIZE or buffer[MAGIC_AT] < 2:
            told = f"the batch at position {position} is too short for its format; nothing behind is shown"
            raise CorruptionError(f"{self._file.path}: {told}", path=self._file.path, position=position)
        return RawBatches(buffer, _column(buffer), position)


def _column(buffer: Bytes) -> Table:
    """The table of one batch whose header is taken as it is."""
    base, length, epoch, magic, crc, attributes, delta, first, largest, producer, producer_epoch, sequence, count = HEADER.unpack(
        buffer[:HEADER_SIZE].tobytes()
    )
    good = int(kernels.checksum(buffer, ATTRIBUTES_AT, buffer.size)) == crc
    numbers = (0, LOG_OVERHEAD + length, base, base + delta, count, first, largest, attributes, magic, epoch, producer)
    column = np.array((*numbers, producer_epoch, sequence, crc, CRC_GOOD if good else CRC_BAD), np.int64)
    assert column.size == COLUMN_COUNT
    return column.reshape(COLUMN_COUNT, 1)


def open_log(fs: FileSystem, path: str, max_bytes: int = limits.INT32_MAX) -> Frames:
    """The batches of a `.log` file, or of its first bytes.

    Raises:
        StorageFailedError: it cannot be opened.
    """
    file = LogFile(fs, path, mapped=False)
    return Frames(file, min(file.size(), max_bytes))
