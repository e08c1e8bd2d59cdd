"""The end of a segment, told by the headers of its last batches where they are as they should be.

Opening a log needs no more of most segments, and where batches are large their records would be nearly all that is read. What is
out of the ordinary gets no answer here: a walk judges it, with the bytes before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pylog.log.continuity import is_dense
from pylog.record import kernels
from pylog.record.batch import BatchScan, Bytes, Table, scan_batches
from pylog.record.format import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET, LOG_OVERHEAD, MAGIC, MAGIC_AT, POSITION
from pylog.segment.log_file import LogFile
from pylog.segment.segment import LogSegment

_CHUNK: Final = 8192  # bytes: the batches behind an index entry at Kafka's default interval, where they are small
_LARGEST: Final = 64 << 20  # bytes of a batch whose header alone is read: so much address space
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
        scan = _headers(file, position, segment.size)
        if scan is None or len(parts) == _MOST:
            return None
        scan.table[POSITION] += position
        parts.append(scan.table)
        position += scan.position
    if not parts:
        return None
    table = np.concatenate(parts, axis=1)
    return table if _goes_on(segment, table, following) else None


def _headers(file: LogFile, position: int, end: int) -> BatchScan | None:
    """The whole batches that a chunk holds, or the large one that begins it; None when there is none to be sure of."""
    chunk = file.read(position, min(_CHUNK, end - position))
    scan = scan_batches(chunk)
    if scan.table.shape[1] or scan.status != kernels.TORN or len(chunk) < HEADER_SIZE or chunk[MAGIC_AT] != 2:
        return scan if scan.table.shape[1] else None
    return _large(chunk[:HEADER_SIZE], end - position)


def _large(header: Bytes, room: int) -> BatchScan | None:
    """The scan of a batch of which only the header was read. It looks at nothing else: the rest of the buffer stays untouched."""
    size = LOG_OVERHEAD + int.from_bytes(header[8:12].tobytes(), "big", signed=True)
    if not HEADER_SIZE <= size <= min(room, _LARGEST):
        return None
    buffer = np.empty(size, np.uint8)
    buffer[:HEADER_SIZE] = header
    scan = scan_batches(buffer, capacity=1)
    return scan if scan.status == kernels.OK else None


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
