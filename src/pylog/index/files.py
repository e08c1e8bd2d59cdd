"""Which bytes of an index file are entries, and the search in them (`layout` has their format).

Indexes are sparse: a missing entry costs time, a wrong one hides records. So a doubtful entry does not count. This module uses
numpy and plain Python only, so that a process that only plans reads does not load numba.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any, Final

import numpy as np

_OFFSET_ENTRY: Final = np.dtype([("relative", ">i4"), ("position", ">i4")])
TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])
_INT32: Final = struct.Struct(">i")

# ---- search: O(log n) ------------------------------------------------------------------------------------------------------


def count_at_most(table: Any, stride: int, field: int, count: int, key: int) -> int:
    """Returns how many of the first `count` sorted entries of `stride` bytes have an int32 at byte `field` of at most `key`."""
    if not 0 <= field <= stride - 4:
        return 0
    entries = range(max(0, min(count, len(table) // stride)))
    return bisect_right(entries, key, key=lambda index: _INT32.unpack_from(table, index * stride + field)[0])


# ---- what of a file is entries: O(n), once a file ----------------------------------------------------------------------------


def valid_offset_entries(table: Any, count: int, log_size: int) -> int:
    """Returns how many leading entries are in order and point into a `.log` file of `log_size` bytes.

    Position 0 ends the table: Kafka never indexes a segment's first batch (4.2.2), a preallocated file has zeros after its
    entries, and a broker writes an entry's position last.
    """
    entries = _whole(table, count, _OFFSET_ENTRY)
    if not entries.size:  # as in a segment's first batches: a tenth of an opening's search otherwise
        return 0
    relative, position = entries["relative"].astype(np.int64), entries["position"].astype(np.int64)
    good = position < log_size
    good[:1] &= (relative[:1] >= 0) & (position[:1] >= 1)
    good[1:] &= (relative[1:] > relative[:-1]) & (position[1:] >= position[:-1])
    return _leading(good)


def valid_time_entries(table: Any, count: int) -> int:
    """Returns how many leading entries have rising timestamps from 0 on and offsets that do not fall; a zero entry ends them.

    Time 0 at the segment's first offset looks like the zeros of a preallocated file. It counts as an entry if another entry
    follows, or if it is the only one, because a preallocated file is longer. Time 0 at a later offset always counts.
    """
    entries = _whole(table, count, TIME_ENTRY)
    timestamp, relative = entries["timestamp"].astype(np.int64), entries["relative"].astype(np.int64)
    good = np.empty(entries.size, np.bool_)
    good[:1] = (timestamp[:1] >= 0) & (relative[:1] >= 0)
    good[1:] = (timestamp[1:] > timestamp[:-1]) & (relative[1:] >= relative[:-1])
    valid = _leading(good)
    if valid == 1 and entries.size > 1 and timestamp[0] == 0 and relative[0] == 0:
        return 0
    return valid


def _whole(table: Any, count: int, entry: Any) -> Any:
    """Returns the first `count` entries of a table, or all if it has fewer."""
    count = max(0, min(count, len(table) // entry.itemsize))
    return table[: count * entry.itemsize].view(entry)


def _leading(good: Any) -> int:
    """Returns how many values precede the first false one."""
    return good.size if good.all() else int(np.argmin(good))


def zero_filled(table: Any, start: int, end: int) -> bool:
    """Returns whether the bytes from `start` to `end - 1` are zero, as far as the table has them."""
    return not table[max(start, 0) : max(end, 0)].any()
