"""The live tail: the newest records since the last call. A call reads a bounded number, however many were appended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pylog.log.partition_log import PartitionLog
from pylog.ui.matching import Query
from pylog.ui.search import FoundRecord, last_rows, merged

ROWS: Final = 100  # of a call; a page calls twice a second


@dataclass(frozen=True)
class Tail:
    """The newest records.

    Attributes:
        rows: newest first.
        passed: offsets that were appended since the last call and are not among the rows.
        cursor: where the next call begins, by partition.
        begun_again: partitions that ended before the cursor: they were truncated, or their topic was created again. Their rows
            begin at the log start.
    """

    rows: list[FoundRecord]
    passed: int
    cursor: dict[int, int]
    begun_again: tuple[int, ...] = ()


def tail(logs: Mapping[int, PartitionLog], cursor: Mapping[int, int], *, of_another: bool = False) -> Tail:
    """Returns the newest records of partitions.

    Args:
        logs: the partitions, by number.
        cursor: the cursor of the last call. A partition without one begins a page before its end.
        of_another: true if the cursor is that of another topic, which had the name before.

    Cost: one refresh of each partition, and at most 100 records of each that has new ones.
    """
    runs, ends, appended, again = [], {}, 0, []
    for number, log in logs.items():
        state = log.snapshot()
        end = ends[number] = state.end_offset
        known = cursor.get(number)
        if known is not None and (of_another or known > end):
            again.append(number)
            known = state.start_offset
        begin = max(state.start_offset, end - ROWS if known is None else known)
        appended += 0 if known is None else end - begin
        if begin < end:
            runs.append(last_rows(number, log, max(begin, end - ROWS), end, Query(), ROWS))
    rows = merged(runs, -1)[:ROWS]
    shown = sum(1 for row in rows if cursor.get(row.partition) is not None)
    return Tail(rows, max(0, appended - shown), ends, tuple(again))
