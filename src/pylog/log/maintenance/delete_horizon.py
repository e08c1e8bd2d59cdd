"""The delete horizon: how long compaction keeps tombstones and markers of finished transactions (storage-format 7.6.4, 7.6.5).

The first compaction that keeps one writes the horizon into its batch, `delete.retention.ms` from then. A compaction after the
horizon removes it. Batches of the formats 0 and 1 have no field for it: there the age of the segment decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.record.batch import Table
from pylog.record.format import ATTRIBUTES, BASE_TIMESTAMP, DELETE_HORIZON_BIT, MAGIC
from pylog.segment.segment import LogSegment


def new_horizon(now_ms: int, delete_retention_ms: int) -> int:
    """Returns the horizon that a compaction writes, in milliseconds since 1970.

    >>> new_horizon(1_000, 500)
    1500
    """
    return min(now_ms + delete_retention_ms, limits.INT64_MAX)


def with_horizon(table: Table) -> NDArray[np.bool_]:
    """Marks the batches that have a delete horizon. Their base timestamp is the horizon."""
    return ((table[ATTRIBUTES] & DELETE_HORIZON_BIT) != 0) & (table[MAGIC] == 2)


def past_horizon(table: Table, now_ms: int) -> NDArray[np.bool_]:
    """Marks the batches whose delete horizon has passed."""
    return with_horizon(table) & (table[BASE_TIMESTAMP] <= now_ms)


def old_formats_past_horizon(segment: LogSegment, last_clean: LogSegment | None, delete_retention_ms: int, now_ms: int) -> bool:
    """Returns whether the tombstones of formats 0 and 1 in a segment have expired, by the time of its last append.

    Args:
        segment: the segment.
        last_clean: the last segment of the clean section, or None if there is none.
        delete_retention_ms: the topic's option.
        now_ms: the wall clock, in milliseconds.
    """
    return last_clean is not None and segment.appends.last(now_ms) <= last_clean.appends.last(now_ms) - delete_retention_ms
