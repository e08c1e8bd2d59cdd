"""Counts the records of a range of offsets from the headers of their batches, without reading the records."""

from __future__ import annotations

import numpy as np

from pylog import limits
from pylog.log.reading import reader
from pylog.log.reading.good_batches import OffsetRange, good_batches
from pylog.log.state import LogState
from pylog.record.batch import Table
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, CONTROL_BIT, COUNT, LAST_OFFSET, MAGIC


def record_count(state: LogState, wanted: OffsetRange) -> int:
    """Returns the number of records in a range. Markers of transactions and gaps are not counted; aborted records are.

    Args:
        state: the log.
        wanted: the range, inside the log.

    Raises:
        CorruptionError: a batch is damaged. OffsetOutOfRangeError: a segment was deleted meanwhile.

    Cost: the headers of the batches. Records are read only in a batch that is partly in the range and was compacted, and in
    batches of Kafka's old formats.
    """
    count, reached = 0, wanted.start
    for batches in good_batches(state, wanted):
        if (batches.table[MAGIC] < 2).any():  # these headers do not tell how many records there are
            return count + _counted(state, OffsetRange(reached, wanted.end))
        reached = int(batches.table[LAST_OFFSET, -1]) + 1
        table = batches.table[:, batches.table[ATTRIBUTES] & CONTROL_BIT == 0]
        count += int(table[COUNT].sum()) - sum(_outside(state, table, at, wanted) for at in _edges(table, wanted))
    return count


def _edges(table: Table, wanted: OffsetRange) -> list[int]:
    """Returns the batches that are only partly in a range."""
    found: list[int] = np.flatnonzero((table[BASE_OFFSET] < wanted.start) | (table[LAST_OFFSET] >= wanted.end)).tolist()
    return found


def _outside(state: LogState, table: Table, at: int, wanted: OffsetRange) -> int:
    """Returns how many records of a batch are outside of a range."""
    first, last, count = int(table[BASE_OFFSET, at]), int(table[LAST_OFFSET, at]), int(table[COUNT, at])
    inside = OffsetRange(max(first, wanted.start), min(last + 1, wanted.end))
    if count == last - first + 1:
        return count - max(0, inside.end - inside.start)
    return count - _counted(state, inside)


def _counted(state: LogState, wanted: OffsetRange) -> int:
    """Counts by reading the records."""
    frames = reader.scan(state, wanted, ("offset",), committed=False, max_rows=limits.SCAN_ROWS, verify=False)
    return sum(frame.num_rows for frame in frames)
