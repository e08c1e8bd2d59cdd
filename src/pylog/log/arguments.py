"""What callers give to a log, checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pylog import limits
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.few import joined_rows
from pylog.record.rows import Rows
from pylog.record.types import ProducerBatch

_ISOLATIONS = ("read_uncommitted", "read_committed")


def checked_items(items: Any) -> Sequence[Any]:
    """A list of records, whatever is in it."""
    if isinstance(items, str | bytes | dict) or not isinstance(items, Sequence):
        raise InvalidArgumentError(f"a list of records is wanted, not {type(items).__name__}")
    return items


def offset_given(name: str, given: Any) -> int:
    """An offset, or a time, under the name of its argument."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not -limits.INT64_MAX <= given <= limits.INT64_MAX:
        raise InvalidArgumentError(f"{name}={given!r} is not an int")
    if given < 0:
        error = OffsetOutOfRangeError if name != "timestamp" else InvalidArgumentError
        raise error(f"{name}={given} is negative")
    return int(given)


def is_committed(isolation: str) -> bool:
    """Whether an isolation level hides what is not committed."""
    if isolation not in _ISOLATIONS:
        raise InvalidArgumentError(f"isolation={isolation!r} is not one of {', '.join(_ISOLATIONS)}")
    return isolation == _ISOLATIONS[1]


def checked_pieces(pieces: list[Rows], encoder: BatchEncoder, producer: ProducerBatch | None) -> list[Rows]:
    """Rows that fit into batches; a producer's into one, because the sequence of a call is that of its batch.

    Raises:
        RecordTooLargeError: they do not.
    """
    if producer is not None and pieces:
        pieces = [joined_rows(pieces)]
        encoder.check_one_batch(pieces[0])
    for rows in pieces:
        encoder.check(rows)
    return pieces


def rows_of(items: Sequence[Any], now_ms: int) -> Rows:
    """Columns from a list of values, pairs, triples or quadruples."""
    if set(map(type, items)) <= {bytes, type(None)}:
        return rows_from_records(None, items, None, None, now_ms)
    keys, values, headers, timestamps = [], [], [], []
    for item in items:
        fields = (None, item) if isinstance(item, bytes) or item is None else item
        if not isinstance(fields, tuple) or not 2 <= len(fields) <= 4:
            raise InvalidArgumentError("a record is a value (bytes or None) or a tuple (key, value[, headers[, timestamp]])")
        key, value, pairs, stamp = (*fields, None, None)[:4]
        keys.append(key)
        values.append(value)
        headers.append(pairs or ())
        timestamps.append(stamp)
    return rows_from_records(keys, values, timestamps, headers if any(headers) else None, now_ms)
