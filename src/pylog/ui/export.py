"""Exports what a search finds, as JSON lines or CSV: one page of the search after the other, up to the logs' ends at the start.

The forms are those of `pylog cat`, and `pylog produce` reads them. If a record cannot be read, the answer breaks off and does not
end as a complete file.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from pylog.clock import Clock
from pylog.log.partition_log import PartitionLog
from pylog.times import time_text
from pylog.ui.matching import Query
from pylog.ui.search import FoundRecord, search

ROWS: Final = 1_000  # that are held at once
_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")
MEDIA_TYPES: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


def exported(
    form: str, logs: Mapping[int, PartitionLog], query: Query, begin: Mapping[int, int], clock: Clock
) -> Iterator[bytes]:
    """Yields what a search finds, as parts of a file.

    Args:
        form: "jsonl" or "csv".
        logs, query, clock: as for `search`.
        begin: where to begin in each partition.

    Memory: one page of the search. Raises as `search`.
    """
    encode = {"jsonl": _json_lines, "csv": _csv_lines}[form]
    if form == "csv":
        yield _csv([_COLUMNS])
    ends = {number: log.end_offset for number, log in logs.items()}
    cursor = dict(begin)
    while True:
        page = search(logs, query, cursor, clock, ROWS, ends)
        if page.rows:
            yield encode(page.rows)
        if page.is_done:
            return
        cursor = page.cursor


def in_json(data: bytes | None) -> Any:
    """Returns bytes as text, or as `{"base64": …}` if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _headers(row: FoundRecord) -> list[dict[str, Any]]:
    return [{"key": name, "value": in_json(value)} for name, value in row.headers]


def _json_lines(rows: Iterable[FoundRecord]) -> bytes:
    return msgspec.json.Encoder().encode_lines(map(_object, rows))


def _object(row: FoundRecord) -> dict[str, Any]:
    made = {**row._asdict(), "key": in_json(row.key), "value": in_json(row.value)}
    del made["headers"]
    return made | ({"headers": _headers(row)} if row.headers else {})


def _csv_lines(rows: Iterable[FoundRecord]) -> bytes:
    return _csv(
        (row.partition, row.offset, _time(row.timestamp), *map(_text, (row.key, row.value)), _in_csv(row)) for row in rows
    )


def _time(timestamp: int) -> str:
    return time_text(timestamp) or str(timestamp)


def _in_csv(row: FoundRecord) -> str | None:
    return msgspec.json.encode(_headers(row)).decode() if row.headers else None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _csv(rows: Iterable[Iterable[int | str | None]]) -> bytes:
    return "".join(f"{','.join(map(_cell, row))}\n" for row in rows).encode("utf-8", "backslashreplace")


def _cell(value: int | str | None) -> str:
    """Returns a field: empty for a null, `""` for an empty text."""
    return "" if value is None else f'"{value.replace(chr(34), chr(34) * 2)}"' if isinstance(value, str) else str(value)
