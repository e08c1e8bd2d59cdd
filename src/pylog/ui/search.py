"""Searches records of a topic in both directions: a page of rows at a time, within a budget, and with a cursor to go on.

The pages of one search together have each matching record once. A page that found nothing within its budget says how far it got.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from pylog.clock import Clock
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.log.partition_log import PartitionLog
from pylog.ui.matching import Query, matches

COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
ROWS: Final = 50  # of a page
_CHUNK: Final = 2_000  # offsets that are read at once, at first; each read that finds little is twice as long
_LARGEST_CHUNK: Final = 1 << 20
_READ_BYTES: Final = 8 << 20  # that are read at once, except for a larger batch
_SECONDS: Final = 1.0
_BYTES: Final = 1 << 30
_KEPT_BYTES: Final = 32 << 20  # of the rows of a page, except for one larger read


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
        read_bytes: bytes of the records that were read, without compression.
        left: offsets that are not searched yet.
        is_done: true if all offsets are searched.
        reached_ms: the timestamp of the last row of a full page, else of the last record that was read; or -1.
    """

    rows: list[FoundRecord]
    cursor: dict[int, int]
    searched: int
    read_bytes: int
    left: int
    is_done: bool
    reached_ms: int


class _Part:
    """The search in one partition: rows that match, and how far it got."""

    def __init__(self, number: int, log: PartitionLog, cursor: int, query: Query, end: int | None = None) -> None:
        self.number, self.log, self.query = number, log, query
        state = log.snapshot()
        self.start, self.end = state.start_offset, state.end_offset if end is None else min(end, state.end_offset)
        self.at = min(max(cursor, self.start), self.end)
        self.first = self.at
        self.rows: list[FoundRecord] = []
        self.bytes = self.kept_bytes = 0
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

    def read_on(self, chunk: int, most: int) -> None:
        """Reads the next offsets, and keeps the rows that match: in all at most `most`."""
        found: list[FoundRecord] = []
        left = most - len(self.rows)
        try:
            low, high = self._range(chunk)
            for frame in self.log.scan(low, high, columns=COLUMNS):
                self.bytes += frame.nbytes
                self.reached_ms = frame.column("timestamp").cast(pa.int64())[0 if self.query.backwards else -1].as_py()
                hits = frame.filter(matches(frame, self.query)) if self.query.text else frame
                found += _rows(self.number, hits.slice(max(0, len(hits) - left)) if self.query.backwards else hits.slice(0, left))
                found = found[-left:] if self.query.backwards else found
                if not self.query.backwards and len(found) >= left:
                    break
        except OffsetOutOfRangeError:  # deleted meanwhile: the next call reads what is left
            self.start = self.log.snapshot().start_offset
            self.at = max(self.at, self.start)
            return
        found = found[::-1] if self.query.backwards else found[:left]
        self.rows += found
        self.kept_bytes += sum(len(row.key or b"") + len(row.value or b"") for row in found)
        self.at = low if self.query.backwards else high
        if len(found) == left:  # there may be more rows before the end of what was read
            self.at = found[-1].offset if self.query.backwards else found[-1].offset + 1


def search(
    logs: Mapping[int, PartitionLog],
    query: Query,
    cursor: Mapping[int, int],
    clock: Clock,
    rows: int = ROWS,
    ends: Mapping[int, int] | None = None,
) -> SearchPage:
    """Returns the next page.

    Args:
        logs: the partitions to search, by number.
        query: what to look for.
        cursor: the cursor of the page before; for the first page, where to begin in each partition.
        clock: limits the time.
        rows: the most rows of a page.
        ends: where the search ends in each partition; None for the ends of the logs.

    Raises:
        CorruptionError: a record is damaged. As `Log.scan`.
    """
    deadline = clock.monotonic() + _SECONDS
    parts = [_Part(number, log, cursor[number], query, None if ends is None else ends[number]) for number, log in logs.items()]
    chunk = _CHUNK if query.text else max(rows, 100)
    while clock.monotonic() < deadline and sum(each.bytes for each in parts) < _BYTES:
        waiting = [each for each in parts if not each.is_done and len(each.rows) < rows]
        if not waiting or sum(each.kept_bytes for each in parts) >= _KEPT_BYTES:
            break
        for part in waiting:
            part.read_on(chunk, rows)
        chunk = min(2 * chunk, _LARGEST_CHUNK) if query.text else chunk
    return _page(parts, query, rows)


def _page(parts: list[_Part], query: Query, rows: int) -> SearchPage:
    """Merges the rows by time. Rows that do not fit are found again by the next page."""
    sign = -1 if query.backwards else 1
    merged_rows = merged([each.rows for each in parts], sign)[:rows]
    shown = {part.number: [row for row in merged_rows if row.partition == part.number] for part in parts}
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
    left = sum(cursor[part.number] - part.start if query.backwards else part.end - cursor[part.number] for part in parts)
    size = sum(part.bytes for part in parts)
    return SearchPage(merged_rows, cursor, searched, size, max(0, left), done, _reached(parts, merged_rows, rows, query))


def _reached(parts: list[_Part], shown: list[FoundRecord], most: int, query: Query) -> int:
    """Returns the time up to which a page has all: that of its last row if it is full, else of the last record that was read."""
    if len(shown) == most:
        return shown[-1].timestamp
    reached = [part.reached_ms for part in parts if part.reached_ms >= 0]
    return (min if query.backwards else max)(reached, default=-1)


def merged(runs: list[list[FoundRecord]], sign: int) -> list[FoundRecord]:
    """Merges runs by time; the order within a partition stays, also if its timestamps are not in order."""
    found: list[FoundRecord] = []
    heads = [0] * len(runs)
    while True:
        ready = [number for number, run in enumerate(runs) if heads[number] < len(run)]
        if not ready:
            return found
        best = min(ready, key=lambda number: (sign * runs[number][heads[number]].timestamp, number))
        found.append(runs[best][heads[best]])
        heads[best] += 1


def last_rows(number: int, log: PartitionLog, begin: int, end: int, query: Query, most: int) -> list[FoundRecord]:
    """Returns the newest records of a range, newest first, at most `most`. Reads fewer offsets if their batches are large."""
    part = _Part(number, log, end, query)
    part.start = max(part.start, begin)
    part.read_on(most, most)
    return part.rows


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
        raise InvalidArgumentError(f"{text[:100]!r} is not a cursor; go back to the first page")
    return {int(each[1]): int(each[2]) for each in found if each is not None}
