"""Walks over the batches of a segment by their headers: without kernels, without numpy, and without their records."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.fs import File
from pylog.record.format import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET, SIZE
from pylog.record.header import header_column

HeaderColumn = tuple[int, ...]  # a batch, as in a batch table


def batches(file: File, position: int, size: int) -> Iterator[HeaderColumn]:
    """Yields the whole batches of magic 2 from a position to the end of a file of `size` bytes; stops at anything else."""
    while position < size:
        column = header_column(memoryview(file.read(HEADER_SIZE, position)), position)
        if column is None or position + column[SIZE] > size:
            return
        yield column
        position += column[SIZE]


def fits(column: HeaderColumn, base_offset: int, indexed: int | None) -> bool:
    """Returns whether a batch is that of an index entry.

    Args:
        column: the batch.
        base_offset: its segment's base offset.
        indexed: the offset of the entry; None of an index without entries, for which the batch must be the segment's first.
    """
    if indexed is None:
        return column[BASE_OFFSET] == base_offset
    return base_offset <= column[BASE_OFFSET] and column[LAST_OFFSET] == indexed
