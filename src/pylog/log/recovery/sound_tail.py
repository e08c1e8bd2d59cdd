"""Finds the end of a segment from the headers of its last batches, if they are as expected.

Opening a log needs no more for most segments, and avoids reading large batches. In all other cases there is no result, and a walk
over the batches decides.

Measured with 200 logs in memory: an opening takes 565 µs with it and 606 µs without; 564 and 618 µs if the last batch has 1 MB.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pylog.record import kernels
from pylog.record.batch import Table, scan_batches
from pylog.record.format import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET, MAGIC, POSITION, SIZE
from pylog.record.header import header_column
from pylog.segment.continuity import is_dense
from pylog.segment.log_file import LogFile
from pylog.segment.segment import LogSegment

_CHUNK: Final = 8192  # bytes: small batches after an index entry at Kafka's default interval
_MOST: Final = 64  # batches, or chunks of small ones: for a segment without index entries a walk is better


def sound_tail(segment: LogSegment, position: int, following: int | None) -> Table | None:
    """Returns the batches from a position to the segment's end, if all of them are as expected.

    Args:
        segment: the segment.
        position: a batch's first byte: 0, or from the index.
        following: the offset after the last batch, if known.

    Returns:
        The batch table, POSITION counting from the file's start. None unless all batches have magic 2 and the same leader epoch,
        follow each other without gaps, and end with the segment.

    Cost: a read of a few kilobytes for each large batch, or for a few dozen small ones.
    """
    if segment.index_is_of_headers:  # an index rebuilt from headers cannot confirm them
        return None
    file = segment.file()
    parts: list[Table] = []
    while position < segment.size:
        table = _headers(file, position, segment.size)
        if table is None or len(parts) == _MOST:
            return None
        parts.append(table)
        position = int(table[POSITION, -1] + table[SIZE, -1])
    if not parts:
        return None
    table = np.concatenate(parts, axis=1)
    return table if _has_no_gap(segment, table, following) else None


def _headers(file: LogFile, position: int, end: int) -> Table | None:
    """Returns the whole batches in a chunk, or the large one at its start; None if there is none."""
    chunk = file.read(position, min(_CHUNK, end - position))
    scan = scan_batches(chunk)
    if scan.table.shape[1]:
        scan.table[POSITION] += position
        return scan.table
    column = header_column(chunk[:HEADER_SIZE], position) if scan.status == kernels.TORN else None
    return None if column is None or column[SIZE] > end - position else np.array(column, np.int64).reshape(-1, 1)


def _has_no_gap(segment: LogSegment, table: Table, following: int | None) -> bool:
    """Returns whether the batches have no gap between or before them, and nothing else that requires a walk."""
    position, first, last = table[[POSITION, BASE_OFFSET, LAST_OFFSET], 0].tolist()
    vouched = position and segment.offset_index().lookup(last) == (last, position)
    floor = first if vouched else segment.base_offset
    return bool(
        is_dense(table, floor, None, None)
        and (following is None or following == table[LAST_OFFSET, -1] + 1)
        and (table[MAGIC] == 2).all()
    )
