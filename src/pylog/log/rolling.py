"""When a segment is full: a pure function (storage-format 6.3)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.config import TopicConfig
from pylog.record.batch import Table
from pylog.record.format import LAST_OFFSET, MAX_TIMESTAMP, SIZE


class SegmentUse(NamedTuple):
    """How full the active segment is.

    Attributes:
        base_offset: of the segment.
        size: bytes in it.
        first_timestamp: largest timestamp of its first batch, -1 without one.
        created_ms: wall clock when it was made or opened.
        entries_left: batches that its indexes are sure to have room for.
    """

    base_offset: int
    size: int
    first_timestamp: int
    created_ms: int
    entries_left: int


def batches_before_roll(use: SegmentUse, table: Table, config: TopicConfig, now_ms: int) -> int:
    """How many of the batches about to be appended still belong into the active segment; 0 means: roll first.

    An empty segment takes at least one batch, whatever its size, so that appending always goes on.

    >>> table = np.zeros((15, 2), np.int64)
    >>> table[SIZE] = 100
    >>> batches_before_roll(SegmentUse(0, 0, -1, 0, 10), table, TopicConfig(segment_bytes=150), 0)
    1
    """
    if table.shape[1] == 1:
        return 1 if _fits(use, table, config, now_ms) or use.size == 0 else 0
    fits = use.size + np.cumsum(table[SIZE]) <= config.segment_bytes
    fits &= table[LAST_OFFSET] - use.base_offset <= limits.MAX_RELATIVE_OFFSET
    fits &= np.arange(table.shape[1]) < use.entries_left
    fits &= _in_time(use, table, config, now_ms)
    count = table.shape[1] if fits.all() else int(np.argmin(fits))
    return max(count, 1) if use.size == 0 else count


def _fits(use: SegmentUse, table: Table, config: TopicConfig, now_ms: int) -> bool:
    """The same for a single batch, in a fraction of the time: the usual case of a small append."""
    stamp = table.item(MAX_TIMESTAMP, 0)
    start = use.first_timestamp if use.size else stamp
    waited = now_ms - use.created_ms if start < 0 else stamp - start
    return (
        use.size + table.item(SIZE, 0) <= config.segment_bytes
        and table.item(LAST_OFFSET, 0) - use.base_offset <= limits.MAX_RELATIVE_OFFSET
        and use.entries_left > 0
        and (waited <= config.roll_ms or use.size == 0)
    )


def _in_time(use: SegmentUse, table: Table, config: TopicConfig, now_ms: int) -> NDArray[np.bool_]:
    """Whether each batch comes within `roll_ms` of the first one: by record time, or without one by the wall clock (6.3.2)."""
    start = use.first_timestamp if use.size else int(table[MAX_TIMESTAMP, 0])
    if start < 0:
        waited = now_ms - use.created_ms if use.size else 0
        return np.full(table.shape[1], waited <= config.roll_ms)
    fits: NDArray[np.bool_] = table[MAX_TIMESTAMP] - start <= config.roll_ms
    return fits
