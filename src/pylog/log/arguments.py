"""Checks the arguments of a log's methods, and converts them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import countOf, itemgetter
from typing import Any

import pyarrow as pa

from pylog import limits
from pylog.arguments import is_int
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.record.builder import rows_from_few, rows_from_records, rows_from_values
from pylog.record.decoder import schema_of
from pylog.record.few import Piece
from pylog.record.from_arrow import rows_from_arrow
from pylog.record.rows import Rows
from pylog.times import timestamp_of, timestamp_problem

ISOLATIONS = ("read_uncommitted", "read_committed")


def checked_items(items: Any) -> Sequence[Any]:
    """Returns a list of records; the items are not checked."""
    if isinstance(items, str | bytes | dict) or not isinstance(items, Sequence):
        raise InvalidArgumentError(f"expected a list of records, not {type(items).__name__}")
    return items


def offset_given(name: str, given: Any) -> int:
    """Returns an offset or timestamp argument as an int. Raises if it is negative or not an integer."""
    if type(given) is int and 0 <= given <= limits.INT64_MAX:
        return given
    if name == "timestamp" and not is_int(given):
        found = timestamp_of(given)
        if found is None:
            raise InvalidArgumentError(f"{name}={given!r} {timestamp_problem(given)}")
        given = found
    if not is_int(given) or not -limits.INT64_MAX <= given <= limits.INT64_MAX:
        raise InvalidArgumentError(f"{name}={given!r} is not an int")
    if given < 0:
        error = OffsetOutOfRangeError if name != "timestamp" else InvalidArgumentError
        raise error(f"{name}={given} is negative")
    return int(given)


def check_positive(name: str, given: Any) -> None:
    """Raises InvalidArgumentError unless an argument is an int of at least 1."""
    if not is_int(given) or given < 1:
        raise InvalidArgumentError(f"{name}={given!r} is not a positive int")


def is_committed(isolation_level: str) -> bool:
    """Returns whether an isolation level is `read_committed`. Raises for an unknown one."""
    if isolation_level not in ISOLATIONS:
        raise InvalidArgumentError(f"isolation_level={isolation_level!r} is not one of {', '.join(ISOLATIONS)}")
    return isolation_level == ISOLATIONS[1]


def check_scan(columns: Sequence[str], isolation_level: str, max_rows: int) -> bool:
    """Checks the arguments of a scan, without reading the log. Returns True for `read_committed`.

    Raises:
        InvalidArgumentError: an argument is invalid.
    """
    committed = is_committed(isolation_level)
    check_positive("max_rows", max_rows)
    schema_of(columns)
    return committed


def pieces_of(items: Any, now_ms: int) -> list[Piece]:
    """Returns the rows of a list of records or a table; a producer passes rows."""
    if type(items) is list:  # first: the check for Arrow takes half a microsecond
        return records_of(items, now_ms)
    if isinstance(items, Rows):
        return [items]
    return list(rows_from_arrow(items, now_ms)) if isinstance(items, (pa.Table, pa.RecordBatch)) else records_of(items, now_ms)


def records_of(items: Any, now_ms: int) -> list[Piece]:
    """Yields the rows of a list of records; none for an empty list."""
    return [rows_of(items, now_ms)] if checked_items(items) else []


def rows_of(items: Sequence[Any], now_ms: int) -> Piece:
    """Returns the rows of a list of values, pairs, triples or quadruples."""
    if len(items) <= limits.FEW_RECORDS:
        records = [_fields(item) for item in items]
        few = rows_from_few([(key, value, stamp, pairs) for key, value, pairs, stamp in records], now_ms)
        return few or _rows_of_tuples(records, now_ms)
    values = rows_from_values(items, now_ms)
    if values is not None:
        return values
    if set(map(type, items)) <= {bytes, type(None)}:
        return rows_from_records(None, items, None, None, now_ms)
    return _rows_of_tuples(items if _are_tuples(items) else [_fields(item) for item in items], now_ms)


def _rows_of_tuples(records: Sequence[tuple[Any, ...]], now_ms: int) -> Rows:
    """Returns the rows of tuples of equal length: key, value, and optionally headers and timestamp."""
    columns = [[*map(itemgetter(index), records)] for index in range(len(records[0]))]
    keys, values, headers, stamps = (*columns, [], [])[:4]
    stamped = any(stamp is not None for stamp in stamps)
    return rows_from_records(keys, values, stamps if stamped else None, headers if any(headers) else None, now_ms)


def _are_tuples(items: Sequence[Any]) -> bool:
    """Returns whether all items are tuples of one valid length."""
    return countOf(map(type, items), tuple) == len(items) and len(widths := set(map(len, items))) == 1 and widths <= {2, 3, 4}


def _fields(item: Any) -> tuple[Any, Any, Any, Any]:
    """Returns key, value, headers and timestamp of an item."""
    if item is None or isinstance(item, bytes | bytearray | memoryview):
        return None, item, (), None
    if not isinstance(item, tuple) or not 2 <= len(item) <= 4:
        raise InvalidArgumentError("a record is a value (bytes or None) or a tuple (key, value[, headers[, timestamp]])")
    key, value, pairs, stamp = (*item, None, None)[:4]
    return key, value, pairs or (), stamp
