"""The end of a segment, told by the headers of its last batches where they are as they should be.

Opening a log needs no more of most segments, and where batches are large their records would be nearly all that is read. What is
out of the ordinary gets no answer here: a walk judges it, with the bytes before it.
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

_CHUNK: Final = 8192  # bytes: the batches behind an index entry at Kafka's default interval, where they are small
_MOST: Final = 64  # batches, or chunks of small ones: a segment without index entries is better walked


def sound_tail(segment: LogSegment, position: int, following: int | None) -> Table | None:
    """The batches from a position to the segment's end, if nothing about them is to be judged.

    Args:
        segment: the segment.
        position: a batch's first byte, 0 or as its index gave it.
        following: the offset behind the last batch, where something tells it.

    Returns:
        The batch table, POSITION counting from the file's start; None unless every batch is of magic 2, each goes on where the
        one before ends, with the same leader epoch, and the last one ends where the segment does.

    Cost: a pread of some kilobytes for each large batch, or for some dozens of small ones.
    """
    if segment.index_is_of_headers:  # it cannot vouch for what it was made from
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
    return table if _goes_on(segment, table, following) else None


def _headers(file: LogFile, position: int, end: int) -> Table | None:
    """The whole batches that a chunk holds, or the large one that begins it; None when there is none to be sure of."""
    chunk = file.read(position, min(_CHUNK, end - position))
    scan = scan_batches(chunk)
    if scan.table.shape[1]:
        scan.table[POSITION] += position
        return scan.table
    column = header_column(chunk[:HEADER_SIZE], position) if scan.status == kernels.TORN else None
    return None if column is None or column[SIZE] > end - position else np.array(column, np.int64).reshape(-1, 1)


def _goes_on(segment: LogSegment, table: Table, following: int | None) -> bool:
    """Whether the batches have no gap between them, nor before the first one, and nothing else that a walk would look into."""
    position, first, last = table[[POSITION, BASE_OFFSET, LAST_OFFSET], 0].tolist()
    vouched = position and segment.offset_index().lookup(last) == (last, position)
    floor = first if vouched else segment.base_offset
    return bool(
        is_dense(table, floor, None, None)
        and (following is None or following == table[LAST_OFFSET, -1] + 1)
        and (table[MAGIC] == 2).all()
    )
