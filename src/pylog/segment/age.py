"""Determines how old a segment is, by its records' timestamps and by the time of their append.

Kafka's rule applies if every record has a timestamp that is not in the future: the largest timestamp decides (storage-format
6.11.4). Kafka uses the file's modification time only if no record has a timestamp. So it deletes a record without a timestamp
right after its append if the segment's other timestamps are old, and keeps a segment with a future timestamp until that time.
pylog does neither: a record without a timestamp, or with one in the future, is as old as its append.
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
        segment, size: the segment, and how many of its bytes count.
        age_ms: milliseconds.
        now_ms: the wall clock, in milliseconds.

    Cost: O(1), except that all timestamps are read once in two cases: the largest timestamp is old but the last append is recent,
    as after an import; or the last append is old and a timestamp is in the future. The records of an archived segment are not
    read: it is as old as its last append or its newest timestamp, whichever is later.
    """
    largest, appended = segment.largest_timestamp(), segment.appends.last(now_ms)
    if segment.vouched is not None:
        return now_ms - max(largest if largest <= now_ms else appended, appended) > age_ms
    newest = largest if 0 <= largest <= now_ms else appended
    if now_ms - newest <= age_ms:
        return False
    if largest <= now_ms and (largest < 0 or now_ms - appended > age_ms):
        return True
    found = segment.examined
    if found is not None and now_ms - found.newest_ms <= age_ms and found.now_ms <= now_ms:
        return False
    found = segment.examined = _examined(segment, size, now_ms)
    young = found.untimed and now_ms - appended <= age_ms
    return not young and now_ms - found.newest_ms > age_ms


def examine(segment: LogSegment, size: int, age_ms: int, now_ms: int) -> bool:
    """Reads a segment's timestamps if `is_older` will need them, so that it need not read them under a lock.

    Args:
        segment, size, age_ms, now_ms: as for `is_older`.

    Returns:
        Whether all known timestamps are older than the age: the next segment may be asked for too.
    """
    largest, appended = segment.largest_timestamp(), segment.appends.file_ms  # `last` may change what an append notes now
    if 0 <= largest <= now_ms and now_ms - largest <= age_ms:
        return False
    if largest > now_ms or (largest >= 0 and not 0 < appended <= now_ms - age_ms):
        segment.examined = _examined(segment, size, now_ms)
    return True


def begun(segment: LogSegment, before: LogSegment | None, now_ms: int) -> int:
    """Returns a time, in milliseconds, at or before which a segment got its first record.

    Args:
        segment: a segment that is not empty.
        before: the segment before it; None if it is the log's first.
        now_ms: the wall clock, in milliseconds.
    """
    first = segment.first_timestamp()
    return first if 0 <= first <= now_ms else _begun_by_append(segment, before, now_ms)


def note_begun(last: Sequence[LogSegment], now_ms: int) -> None:
    """Stores when the active segment was begun, for rolling by time, unless this is known.

    Args:
        last: the log's last two segments, or its only one.
        now_ms: the wall clock, in milliseconds.
    """
    last[-1].appends.begun_ms = _begun_by_append(last[-1], last[0] if len(last) > 1 else None, now_ms)


def _begun_by_append(segment: LogSegment, before: LogSegment | None, now_ms: int) -> int:
    """Returns the same by the time of the append, whatever the first record's timestamp.

    A segment that another process began was begun at or after the last append to the segment before it.
    """
    known = segment.appends.begun_ms
    if known is not None and known <= now_ms:
        return known
    return (segment if before is None else before).appends.last(now_ms)


def _examined(segment: LogSegment, size: int, now_ms: int) -> Examined:
    """Reads the timestamps that were not read before. An unreadable record counts as a record without a timestamp."""
    known = segment.examined
    if known is None or known.size > size or (known.now_ms != now_ms and segment.largest_timestamp() > min(known.now_ms, now_ms)):
        known = Examined(0, now_ms, False, -1)  # a timestamp of the future may be in the past now
    start, untimed, newest = known.size, known.untimed, known.newest_ms
    for region in segment.regions(start, size) if start < size else ():
        try:
            missing, largest = _times(region.buffer, region.table, now_ms)
        except (CorruptionError, DecompressionLimitError, UnsupportedFormatError):
            missing, largest = True, -1
        untimed, newest = untimed or missing, max(newest, largest)
        untimed = untimed or region.status not in (kernels.OK, kernels.FULL)
    return Examined(size, now_ms, untimed, newest)


def _times(buffer: Bytes, table: Table, now_ms: int) -> tuple[bool, int]:
    """Returns whether a record of some batches has no timestamp, and the largest timestamp that is not in the future."""
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
