"""Searches records of a topic in both directions: a page of rows at a time, within a budget, and with a cursor to go on.

The pages of one search together have each matching record once. A page that found nothing within its budget says how far it got.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pylog.clock import Clock
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.log.partition_log import PartitionLog

COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
ROWS: Final = 50  # of a page
_CHUNK: Final = 2_000  # offsets that are read at once
_READ_BYTES: Final = 8 << 20  # that are read at once, except for a larger batch
_SECONDS: Final = 1.0
_BYTES: Final = 256 << 20
HOW: Final = ("contains", "equals", "regex")


@dataclass(frozen=True)
class Query:
    """What to look for.

    Attributes:
        text: in the key, the value, or a header; "" for all records.
        how: "contains", "equals" or "regex" (RE2).
        backwards: true for the newest records first.
    """

    text: str = ""
    how: str = "contains"
    backwards: bool = True

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise InvalidArgumentError(f"how={self.how!r} is not one of {', '.join(map(repr, HOW))}")
        if self.how == "regex":
            try:
                pc.match_substring_regex(pa.array([b""], pa.binary()), self.text)
            except pa.ArrowInvalid as error:
                raise InvalidArgumentError(f"{self.text!r} is no regular expression of RE2: {error}") from error


class FoundRecord(NamedTuple):
    """A record that was found."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class SearchPage:
    """A page.

    Attributes:
        rows: in the direction of the search.
        cursor: where the next page begins: by partition, the next offset, or the offset after it backwards.
        searched: offsets that were read or passed over.
        is_done: true if all offsets are searched.
        reached_ms: the timestamp of the last record that was read, or -1.
    """

    rows: list[FoundRecord]
    cursor: dict[int, int]
    searched: int
    is_done: bool
    reached_ms: int


class _Part:
    """The search in one partition: rows that match, and how far it got."""

    def __init__(self, number: int, log: PartitionLog, cursor: int, query: Query) -> None:
        self.number, self.log, self.query = number, log, query
        state = log.snapshot()
        self.start, self.end = state.start_offset, state.end_offset
        self.at = min(max(cursor, self.start), self.end)
        self.first = self.at
        self.rows: list[FoundRecord] = []
        self.bytes = 0
        self.reached_ms = -1

    @property
    def is_done(self) -> bool:
        return self.at <= self.start if self.query.backwards else self.at >= self.end

    def _range(self, chunk: int) -> tuple[int, int]:
        """Returns the next offsets, at most `chunk`, and fewer if their batches are large."""
        while True:
            low = max(self.start, self.at - chunk) if self.query.backwards else self.at
            high = self.at if self.query.backwards else min(self.end, self.at + chunk)
            if high - low <= 1 or self.log.size_between(low, high) <= _READ_BYTES:
                return low, high
            chunk = max(1, (high - low) // 4)

    def read_on(self, chunk: int) -> None:
        """Reads the next offsets, and keeps the rows that match."""
        found: list[FoundRecord] = []
        try:
            low, high = self._range(chunk)
            for frame in self.log.scan(low, high, columns=COLUMNS):
                self.bytes += frame.nbytes
                self.reached_ms = frame.column("timestamp").cast(pa.int64())[0 if self.query.backwards else -1].as_py()
                found += _rows(self.number, frame.filter(_matches(frame, self.query)) if self.query.text else frame)
        except OffsetOutOfRangeError:  # deleted meanwhile: the next call reads what is left
            self.start = self.log.snapshot().start_offset
            self.at = max(self.at, self.start)
            return
        self.rows += reversed(found) if self.query.backwards else found
        self.at = low if self.query.backwards else high


def search(
    logs: Mapping[int, PartitionLog], query: Query, cursor: Mapping[int, int], clock: Clock, rows: int = ROWS
) -> SearchPage:
    """Returns the next page.

    Args:
        logs: the partitions to search, by number.
        query: what to look for.
        cursor: of the page before; for the first page, where to begin in each partition.
        clock: limits the time.
        rows: of a page, at most.

    Raises:
        CorruptionError: a record is damaged. As `Log.scan`.
    """
    deadline = clock.monotonic() + _SECONDS
    parts = [_Part(number, log, cursor[number], query) for number, log in logs.items()]
    chunk = _CHUNK if query.text else max(rows, 100)
    while clock.monotonic() < deadline and sum(each.bytes for each in parts) < _BYTES:
        waiting = [each for each in parts if not each.is_done and len(each.rows) < rows]
        if not waiting:
            break
        for part in waiting:
            part.read_on(chunk)
    return _page(parts, query, rows)


def _page(parts: list[_Part], query: Query, rows: int) -> SearchPage:
    """Merges the rows by time. Rows that do not fit are found again by the next page."""
    sign = -1 if query.backwards else 1
    merged = _merged([each.rows for each in parts], sign)[:rows]
    shown = {part.number: [row for row in merged if row.partition == part.number] for part in parts}
    cursor = {}
    for part in parts:
        kept = shown[part.number]
        if len(kept) == len(part.rows):
            cursor[part.number] = part.at
        elif kept:
            cursor[part.number] = kept[-1].offset if query.backwards else kept[-1].offset + 1
        else:
            first = part.rows[0].offset
            cursor[part.number] = first + 1 if query.backwards else first
    done = all(part.is_done and len(shown[part.number]) == len(part.rows) for part in parts)
    searched = sum(abs(cursor[part.number] - part.first) for part in parts)
    reached = [part.reached_ms for part in parts if part.reached_ms >= 0]
    return SearchPage(merged, cursor, searched, done, (min if query.backwards else max)(reached, default=-1))


def _merged(runs: list[list[FoundRecord]], sign: int) -> list[FoundRecord]:
    """Merges runs by time; the order within a partition stays, also if its timestamps are not in order."""
    merged: list[FoundRecord] = []
    heads = [0] * len(runs)
    while True:
        ready = [number for number, run in enumerate(runs) if heads[number] < len(run)]
        if not ready:
            return merged
        best = min(ready, key=lambda number: (sign * runs[number][heads[number]].timestamp, number))
        merged.append(runs[best][heads[best]])
        heads[best] += 1


def _matches(frame: pa.RecordBatch, query: Query) -> pa.BooleanArray:
    test = _test(query)
    found = pc.or_(pc.fill_null(test(frame.column("key")), False), pc.fill_null(test(frame.column("value")), False))
    headers = frame.column("headers")
    flat = headers.flatten()
    if not len(flat):
        return found
    names = flat.field("key").cast(pa.binary())
    hits = pc.or_(pc.fill_null(test(names), False), pc.fill_null(test(flat.field("value")), False))
    rows = pc.unique(pc.list_parent_indices(headers).filter(hits))
    return pc.or_(found, pc.is_in(pa.array(range(len(frame)), rows.type), rows))


def _test(query: Query) -> Callable[[Any], Any]:
    if query.how == "regex":
        return lambda column: pc.match_substring_regex(column, query.text)
    if query.how == "equals":
        return lambda column: pc.equal(column, pa.scalar(query.text.encode(errors="surrogateescape"), column.type))
    return lambda column: pc.match_substring(column, query.text)


def _rows(partition: int, frame: pa.RecordBatch) -> Iterator[FoundRecord]:
    at = frame.schema.get_field_index("timestamp")
    for each in frame.set_column(at, "timestamp", frame.column(at).cast(pa.int64())).to_pylist():
        headers = [(header["key"], header["value"]) for header in each["headers"] or ()]
        yield FoundRecord(partition, each["offset"], each["timestamp"], each["key"], each["value"], headers)


_CURSOR: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


def cursor_text(cursor: Mapping[int, int]) -> str:
    """Returns a cursor as text, such as `0-17.1-4`."""
    return ".".join(f"{number}-{offset}" for number, offset in sorted(cursor.items()))


def parsed_cursor(text: str) -> dict[int, int]:
    """Returns the cursor of a text.

    Raises:
        InvalidArgumentError: the text is no cursor.

    >>> parsed_cursor(cursor_text({0: 17, 1: 4}))
    {0: 17, 1: 4}
    """
    found = [_CURSOR.fullmatch(part) for part in text.split(".")]
    if len(text) > 100_000 or not all(found):
        raise InvalidArgumentError(f"{text[:100]!r} is no cursor; go back to the first page")
    return {int(each[1]): int(each[2]) for each in found if each is not None}
