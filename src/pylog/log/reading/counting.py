"""Counts the records of a range of offsets from the headers of their batches, without reading the records."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.log.reading import reader
from pylog.log.reading.good_batches import OffsetRange, good_batches
from pylog.log.state import LogState
from pylog.record.batch import Table
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT,
    DELETE_HORIZON_BIT,
    LAST_OFFSET,
    MAGIC,
)


class HeaderTally(NamedTuple):
    """Facts about a range of offsets, from the headers of its batches.

    Attributes:
        records: without markers of transactions and gaps; aborted records are counted.
        codecs: bit n is set if the records of a batch are compressed with codec n.
        first_ms: the smallest timestamp of a batch's first record; -1 if it is not known.
        horizon_ms: the first time at which compaction may remove tombstones and markers that it has kept; -1 without any.
    """

    records: int = 0
    codecs: int = 0
    first_ms: int = -1
    horizon_ms: int = -1

    def plus(self, later: HeaderTally) -> HeaderTally:
        """Returns the tally of two ranges together.

        >>> HeaderTally(1, 2, 10).plus(HeaderTally(2, 8, -1, 7))
        HeaderTally(records=3, codecs=10, first_ms=10, horizon_ms=7)
        """
        first, horizon = _earlier(self.first_ms, later.first_ms), _earlier(self.horizon_ms, later.horizon_ms)
        return HeaderTally(self.records + later.records, self.codecs | later.codecs, first, horizon)


def _earlier(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


def tally(state: LogState, wanted: OffsetRange) -> HeaderTally:
    """Returns the tally of a range.

    Args:
        state: the log.
        wanted: the range, inside the log.

    Raises:
        CorruptionError: a batch is damaged. OffsetOutOfRangeError: a segment was deleted meanwhile.

    Cost: the headers of the batches. Records are read only in a batch that is partly in the range and was compacted, and in
    batches of Kafka's old formats.
    """
    found, reached = HeaderTally(), wanted.start
    for batches in good_batches(state, wanted):
        if (batches.table[MAGIC] < 2).any():  # these headers do not tell how many records there are
            rest = OffsetRange(reached, wanted.end)
            return found.plus(_of_headers(batches.table)._replace(records=_counted(state, rest)))
        reached = int(batches.table[LAST_OFFSET, -1]) + 1
        table = batches.table[:, batches.table[ATTRIBUTES] & CONTROL_BIT == 0]
        outside = sum(_outside(state, table, at, wanted) for at in _edges(table, wanted))
        found = found.plus(_of_headers(batches.table)._replace(records=int(table[COUNT].sum()) - outside))
    return found


def _of_headers(table: Table) -> HeaderTally:
    """Returns the tally of batches without the number of their records."""
    attributes, base_ms = table[ATTRIBUTES], table[BASE_TIMESTAMP]
    codecs = int(np.bitwise_or.reduce(1 << (attributes & CODEC_MASK)))
    kept = attributes & DELETE_HORIZON_BIT != 0  # their base timestamp is the horizon
    return HeaderTally(0, codecs, _smallest(base_ms[~kept & (base_ms >= 0)]), _smallest(base_ms[kept]))


def _smallest(times: NDArray[np.int64]) -> int:
    return int(times.min()) if times.size else -1


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
