"""A table of batches, on which reading, recovery, verification, indexing and planning are built.

`scan_batches` walks the batch headers of a buffer and returns a table with one column per batch. Its rows are those named in
`record.format` (POSITION … CRC_STATE), all int64. Payloads are not read, except for their CRC if requested.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError, PylogError, StorageFailedError
from pylog.fs import reason_of
from pylog.record import kernels
from pylog.record.format import BASE_OFFSET, COLUMN_COUNT, HEADER_SIZE, LAST_OFFSET, POSITION, SIZE

Bytes = NDArray[np.uint8]
Table = NDArray[np.int64]

WHY = {
    kernels.TORN: "is cut off",
    kernels.BAD_LENGTH: "has a length that no batch can have",
    kernels.BAD_MAGIC: "has an unknown format (magic byte)",
    kernels.BAD_HEADER: "has impossible offsets or counts",
    kernels.BAD_CRC: "does not match its checksum",
    kernels.BAD_RECORD: "has records that do not parse",
}


class BatchScan(NamedTuple):
    """The result of a walk over batch headers.

    Attributes:
        table: int64[COLUMN_COUNT, n]; POSITION counts from the start of the buffer.
        position: where the walk stopped: the end of the region, or the first byte that does not begin a whole batch.
        status: kernels.OK, FULL (the table is full, more batches may follow), or the fault at `position`.
    """

    table: Table
    position: int
    status: int


def scan_batches(
    buffer: Bytes, position: int = 0, end: int | None = None, *, verify: bool = False, capacity: int = limits.SCAN_BATCHES
) -> BatchScan:
    """Walks the headers of the batches in `buffer[position:end]` (storage-format 1.12).

    Args:
        buffer: uint8[n], read-only.
        position: a batch's first byte.
        end: where to stop. Default: the buffer's end.
        verify: also compute each CRC-32C (16 GB/s). Row CRC_STATE gets the result, and a wrong CRC does not stop the walk.
        capacity: the most batches to return.

    Returns:
        A `BatchScan`. Cost: 0.1 µs a batch, plus the CRCs.

    >>> scan = scan_batches(np.frombuffer(b"", np.uint8))
    >>> scan.table.shape[1], scan.status == kernels.OK
    (0, True)
    """
    stop = buffer.size if end is None else min(end, buffer.size)
    table = np.empty((COLUMN_COUNT, max(1, min(capacity, max(0, stop - position) // 26))), np.int64)
    state = np.array([position, stop, 0], np.int64)
    status = kernels.scan_batches(buffer, state, verify, table)
    return BatchScan(np.ascontiguousarray(table[:, : state[2]]), int(state[0]), int(status))


def plain_column(table: Table, batch: int, position: int, size: int) -> Table:
    """Returns the column of a batch whose decompressed records, `size` bytes, follow `HEADER_SIZE` free bytes at `position`."""
    column = table[:, batch].copy()
    column[POSITION] = position
    column[SIZE] = HEADER_SIZE + size
    return column


def corruption(table: Table, batch: int, why: str) -> CorruptionError:
    """Returns the error for a damaged batch of a table; its position counts from the start of the table's buffer."""
    first, last = int(table[BASE_OFFSET, batch]), int(table[LAST_OFFSET, batch])
    return CorruptionError(f"the batch of offsets {first} to {last} {why}", position=int(table[POSITION, batch]), offset=first)


def refusal(error: Exception, table: Table) -> PylogError:
    """Returns the error for batches that a decoder refused with an error that is not pylog's own.

    Args:
        error: what it raised.
        table: the batches, at least one.
    """
    if isinstance(error, MemoryError):
        message = "the process does not have enough memory for its records; close other programs, or raise its limit"
        return placed(StorageFailedError(message, errno=errno.ENOMEM), table, 0)
    return placed(CorruptionError(f"its records do not decode ({reason_of(error)})"), table, 0)


def placed(error: PylogError, table: Table, batch: int) -> PylogError:
    """Returns an error of the same class with a batch's position and offsets added."""
    first, last = int(table[BASE_OFFSET, batch]), int(table[LAST_OFFSET, batch])
    error.args = (f"the batch of offsets {first} to {last}: {error}",)
    error.position, error.offset = int(table[POSITION, batch]), first
    return error
