"""How old a segment is: by the timestamps of its records, and of those that have none by the time of their append.

Kafka's rule holds where every record has a timestamp that is not in the future: the largest one decides (storage-format 6.11.4).
Kafka takes the file's time only if no record has a timestamp, so next to a record with an old timestamp it deletes one without a
timestamp that was appended a moment ago; and a timestamp in the future keeps a segment until that time comes. Here neither
happens: a record without a timestamp, or with one in the future, is as old as its append.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pylog.errors import CorruptionError, DecompressionLimitError, UnsupportedFormatError
from pylog.record import kernels
from pylog.record.batch import Bytes, Table
from pylog.record.decoder import RecordDecoder
from pylog.record.format import ATTRIBUTES, CONTROL_BIT, COUNT, LOG_APPEND_TIME_BIT, MAGIC, MAX_TIMESTAMP
from pylog.segment.segment import LogSegment
from pylog.segment.times import Examined


def is_older(segment: LogSegment, size: int, age_ms: int, now_ms: int) -> bool:
    """Returns whether every record of a segment is older than an age.

    Args:
        segment, size: the segment, and how many bytes of it count.
        age_ms: milliseconds.
        now_ms: the wall clock, in milliseconds.

    Cost: O(1). All timestamps are read, once, in two cases: the timestamps are that old and the last append is not, as after an
    import; or the last append is that old, and a timestamp is in the future.
    """
    largest, appended = segment.largest_timestamp(), segment.appends.last(now_ms)
    newest = largest if 0 <= largest <= now_ms else appended
    if now_ms - newest <= age_ms:
        return False
    if largest <= now_ms and (largest < 0 or now_ms - appended > age_ms):
        return True
    found = segment.examined
    if found is not None and now_ms - found.newest_ms <= age_ms and found.now_ms <= now_ms:
        return False
    if found is None or found.size != size or (largest > now_ms and found.now_ms != now_ms):
        found = segment.examined = _examined(segment, size, now_ms)
    young = found.untimed and now_ms - appended <= age_ms
    return not young and now_ms - found.newest_ms > age_ms


def begun(segment: LogSegment, before: LogSegment | None, now_ms: int) -> int:
    """Returns since when a segment has had records: the time of its first one, or an earlier one.

    Args:
        segment: not empty.
        before: the segment before it, None for the log's first one.
        now_ms: the wall clock, in milliseconds.
    """
    first = segment.first_timestamp()
    return first if 0 <= first <= now_ms else _begun_by_append(segment, before, now_ms)


def note_begun(last: Sequence[LogSegment], now_ms: int) -> None:
    """Notes when the active segment of a log was begun, for rolling by time, unless that is known.

    Args:
        last: the log's last two segments, or its only one.
        now_ms: the wall clock, in milliseconds.
    """
    last[-1].appends.begun_ms = _begun_by_append(last[-1], last[0] if len(last) > 1 else None, now_ms)


def _begun_by_append(segment: LogSegment, before: LogSegment | None, now_ms: int) -> int:
    """The same by the time of the append, whatever timestamp the first record has.

    A segment that another process began was begun when the one before it had its last append, or after that.
    """
    known = segment.appends.begun_ms
    if known is not None and known <= now_ms:
        return known
    return (segment if before is None else before).appends.last(now_ms)


def _examined(segment: LogSegment, size: int, now_ms: int) -> Examined:
    """Reads all timestamps. What cannot be read counts as a record without one."""
    untimed, newest = False, -1
    for region in segment.regions(0, size):
        try:
            missing, largest = _times(region.buffer, region.table, now_ms)
        except (CorruptionError, DecompressionLimitError, UnsupportedFormatError):
            missing, largest = True, -1
        untimed, newest = untimed or missing, max(newest, largest)
        untimed = untimed or region.status not in (kernels.OK, kernels.FULL)
    return Examined(size, now_ms, untimed, newest)


def _times(buffer: Bytes, table: Table, now_ms: int) -> tuple[bool, int]:
    """Whether a record of some batches has no timestamp, and the largest timestamp that is not in the future."""
    largest = table[MAX_TIMESTAMP]
    missing = bool(((largest < 0) & (table[COUNT] != 0)).any())
    newest = int(largest[largest <= now_ms].max(initial=-1))
    same = (table[MAGIC] == 2) & ((table[ATTRIBUTES] & (LOG_APPEND_TIME_BIT | CONTROL_BIT) != 0) | (table[COUNT] <= 1))
    mixed = np.ascontiguousarray(table[:, ~same & (largest >= 0)])
    decoder = RecordDecoder(("timestamp",), verify=False)
    for frames in (decoder.feed(buffer, mixed), decoder.finish()) if mixed.shape[1] else ():
        for frame in frames:
            stamps = frame.column(0).view("int64").to_numpy()
            missing = missing or bool((stamps < 0).any())
            newest = max(newest, int(stamps[stamps <= now_ms].max(initial=-1)))
    return missing, newest
