"""Readers that a state machine keeps open over everything that is done to a log, and the records that they may give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import pyarrow as pa

import pylog
from pylog.record.types import Header
from support.campaign.crashing import Stored, as_found

Place = tuple[int, int]  # the number of a topic among all that were created, and a partition
Frames = Iterator[list[tuple[int, Stored]]]
COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


def _scan(log: pylog.Log) -> Frames:
    return map(_rows, log.scan(columns=COLUMNS, max_rows=2))


def _follow(log: pylog.Log) -> Frames:
    return map(_rows, log.follow(log.start_offset, columns=COLUMNS, max_rows=2, timeout_ms=0))


def _records(log: pylog.Log) -> Frames:
    return ([(record.offset, as_found(record))] for record in log.records())


def _rows(frame: pa.RecordBatch) -> list[tuple[int, Stored]]:
    columns = [frame[name] for name in COLUMNS]
    columns[1] = columns[1].view(pa.int64())
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [(offset, (key, value, _headers(pairs), -1 if time is None else time)) for offset, time, key, value, pairs in rows]


def _headers(pairs: list[dict[str, Any]]) -> tuple[Header, ...]:
    return tuple((pair["key"], pair["value"]) for pair in pairs)


READERS: Final[dict[str, Callable[[pylog.Log], Frames]]] = {"scan": _scan, "follow": _follow, "records": _records}


class Kept:
    """An open reader.

    Args:
        how: one of `READERS`.
        who: the process that it is in.
        place: the partition that it reads.
        log: the same.
        there: what the log holds now.
        history: all records that were ever at an offset; may grow.

    Attributes:
        how, who, place: as given.
        is_whole: nothing was done yet that may take records from it.
    """

    def __init__(
        self, how: str, who: int, place: Place, log: pylog.Log, there: dict[int, Stored], history: dict[int, set[Stored]]
    ) -> None:
        self.how, self.who, self.place = how, who, place
        self.is_whole = True
        self._frames = READERS[how](log)
        self._there = there
        self._history = history
        self._given: dict[int, Stored] = {}

    def read(self, count: int) -> bool:
        """Reads some frames; returns False when the reader has ended."""
        taken = 0
        try:
            for frame in islice(self._frames, count):
                taken += 1
                for offset, record in frame:
                    self._judge(offset, record)
        except pylog.PylogError:
            if self.is_whole:
                raise
            return False
        if taken < count and self.is_whole and self.how != "follow":
            assert self._given == self._there
        return taken == count

    def _judge(self, offset: int, record: Stored) -> None:
        allowed = self._history.get(offset, set()) if self.how == "follow" else {self._there.get(offset)}
        assert record in allowed, f"{self.how} gave {record} at offset {offset}, where there was {allowed}"
        assert self.how == "follow" or not self._given or offset > max(self._given), f"{self.how} went back to {offset}"
        self._given[offset] = record

    def refuses(self, *, is_deleted: bool) -> None:
        """The store is closed: a reader gives no more than the records that it has decoded already.

        Args:
            is_deleted: the topic was deleted before, and the error may say so.
        """
        told = (pylog.ClosedError, pylog.UnknownTopicOrPartitionError) if is_deleted else (pylog.ClosedError,)
        with suppress(*told):
            for frame in self._frames:
                assert self.how == "records", f"{self.how} gave {frame} after its store was closed"
                for offset, record in frame:
                    self._judge(offset, record)
