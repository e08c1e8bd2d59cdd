"""Decides when to roll the active segment (storage-format 6.3)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.config import TopicConfig
from pylog.errors import RecordTooLargeError
from pylog.log.recovery.loaded import Source
from pylog.record.batch import Table
from pylog.record.format import LAST_OFFSET, MAX_TIMESTAMP, SIZE
from pylog.segment.segment import LogSegment


class SegmentUse(msgspec.Struct, frozen=True, gc=False):
    """The fill level of the active segment.

    Attributes:
        base_offset: the segment's base offset.
        size: its size in bytes.
        first_timestamp: the largest timestamp of its first batch; -1 without one.
        created_ms: the wall clock when its first record was appended, or earlier.
        entries_left: the number of batches that its indexes can certainly take.
    """

    base_offset: int
    size: int
    first_timestamp: int
    created_ms: int
    entries_left: int


def batches_before_roll(use: SegmentUse, table: Table, config: TopicConfig, now_ms: int) -> int:
    """Returns how many of the next batches fit into the active segment; 0 means: roll first.

    An empty segment takes at least one batch, whatever its size, so that an append always succeeds.

    >>> table = np.zeros((15, 2), np.int64)
    >>> table[SIZE] = 100
    >>> batches_before_roll(SegmentUse(0, 0, -1, 0, 10), table, TopicConfig(segment_bytes=150), 0)
    1
    """
    fits = use.size + np.cumsum(table[SIZE]) <= config.segment_bytes
    fits &= table[LAST_OFFSET] - use.base_offset <= limits.MAX_RELATIVE_OFFSET
    fits &= np.arange(table.shape[1]) < use.entries_left
    fits &= _in_time(use, table, config, now_ms)
    count = table.shape[1] if fits.all() else int(np.argmin(fits))
    return max(count, 1) if use.size == 0 else count


def check_fits_at_all(size: int, config: TopicConfig, directory: str) -> None:
    """Raises RecordTooLargeError if a batch of `size` bytes exceeds `segment_bytes`."""
    if size > config.segment_bytes:
        raise RecordTooLargeError(
            f"a batch of {size} bytes exceeds segment_bytes={config.segment_bytes}; "
            "raise that option of the topic, or append smaller records",
            path=directory,
        )


def one_fits(use: SegmentUse, column: Sequence[int], config: TopicConfig, now_ms: int) -> bool:
    """Returns whether one batch fits into the segment. Same result as `batches_before_roll`, but faster, for small appends.

    >>> column = [0] * 15
    >>> column[SIZE] = 100
    >>> one_fits(SegmentUse(0, 50, 0, 0, 10), column, TopicConfig(segment_bytes=150), 0)
    True
    >>> one_fits(SegmentUse(0, 51, 0, 0, 10), column, TopicConfig(segment_bytes=150), 0)
    False
    """
    if use.size == 0:
        return True
    stamp, first = column[MAX_TIMESTAMP], use.first_timestamp
    elapsed = now_ms - use.created_ms
    waited = stamp - first if stamp >= 0 and first >= 0 else elapsed
    if first > now_ms:
        waited = max(waited, elapsed)
    return (
        use.size + column[SIZE] <= config.segment_bytes
        and column[LAST_OFFSET] - use.base_offset <= limits.MAX_RELATIVE_OFFSET
        and use.entries_left > 0
        and waited <= config.roll_ms
    )


def _in_time(use: SegmentUse, table: Table, config: TopicConfig, now_ms: int) -> NDArray[np.bool_]:
    """Returns whether each batch is within `roll_ms` of the first one (6.3.2).

    Their timestamps decide, or the wall clock if one of them has none. If the first one is in the future, both must agree. Kafka
    compares only timestamps, so its segment does not roll by time until that future time.
    """
    stamps = table[MAX_TIMESTAMP]
    start = use.first_timestamp if use.size else int(stamps[0])
    in_time = not use.size or now_ms - use.created_ms <= config.roll_ms
    if start < 0:
        return np.full(table.shape[1], in_time)
    fits: NDArray[np.bool_] = np.where(stamps >= 0, stamps - start <= config.roll_ms, in_time)
    return fits if start <= now_ms or in_time else np.zeros_like(fits)


def empty_segment(source: Source, base_offset: int, now_ms: int) -> LogSegment:
    """Creates the next active segment with its file."""
    segment = LogSegment(
        source.fs,
        source.directory,
        base_offset,
        size=0,
        mtime_ms=now_ms,
        open_files=source.open_files,
        sealed=False,
        mapped=True,
        if_free=source.if_free,
        interval_bytes=source.config.index_interval_bytes,
    )
    segment.appends.begun_ms = now_ms
    return segment
