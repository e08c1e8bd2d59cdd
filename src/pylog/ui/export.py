"""Exports what a search finds, as JSON lines, CSV, Parquet or Arrow: page after page, up to the logs' ends at the beginning.

The forms are those of `pylog cat`, and `pylog produce` reads them. If a record cannot be read, the answer breaks off and does not
end as a complete file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pylog.clock import Clock
from pylog.log.partition_log import PartitionLog
from pylog.record.layouts import EXPORT_SCHEMA
from pylog.times import time_text
from pylog.ui.matching import Query
from pylog.ui.search import FoundRecord, search

ROWS: Final = 1_000  # that are held at once
_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")
MEDIA_TYPES: Final = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
_ROW_GROUP_BYTES: Final = 16 << 20


def exported(
    form: str,
    logs: Mapping[int, PartitionLog],
    query: Query,
    begin: Mapping[int, int],
    clock: Clock,
    shown: Callable[[list[FoundRecord]], list[FoundRecord]],
) -> Iterator[bytes]:
    """Yields what a search finds, as parts of a file.

    Args:
        form: a key of `MEDIA_TYPES`.
        logs, query, clock: as for `search`.
        begin: where to begin in each partition.
        shown: returns the records as they may be shown.

    Memory: one page of the search; for Parquet 16 MiB more. Raises as `search`.
    """
    file: _File = _FILES[form]()
    ends = {number: log.end_offset for number, log in logs.items()}
    cursor = dict(begin)
    while True:
        page = search(logs, query, cursor, clock, ROWS, ends)
        yield file.add(shown(page.rows))
        if page.is_done:
            yield file.end()
            return
        cursor = page.cursor


class _File(Protocol):
    """A file that grows: each method returns its next bytes."""

    def add(self, rows: list[FoundRecord]) -> bytes: ...

    def end(self) -> bytes: ...


class _Lines:
    """JSON lines."""

    def add(self, rows: list[FoundRecord]) -> bytes:
        return _json_lines(rows)

    def end(self) -> bytes:
        return b""


class _Table:
    """CSV."""

    def __init__(self) -> None:
        self._head = _csv([_COLUMNS])

    def add(self, rows: list[FoundRecord]) -> bytes:
        head, self._head = self._head, b""
        return head + _csv_lines(rows)

    def end(self) -> bytes:
        return b""


class _Sink:
    """Collects what a writer of Arrow's writes, until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Does nothing: the bytes are in memory."""

    def close(self) -> None:
        """Does nothing: the bytes are in memory."""

    def taken(self) -> bytes:
        """Returns what was written since the last call."""
        found, self._parts = b"".join(self._parts), []
        return found


class _Arrow:
    """A stream of Arrow's, as `pylog cat --format arrow` writes it."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), EXPORT_SCHEMA)

    def add(self, rows: list[FoundRecord]) -> bytes:
        if rows:
            self._writer.write_batch(_batch(rows))
        return self._sink.taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._sink.taken()


class _Parquet:
    """A Parquet file, compressed with zstd."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(pa.PythonFile(self._sink, mode="w"), EXPORT_SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []

    def add(self, rows: list[FoundRecord]) -> bytes:
        if rows:
            self._waiting.append(_batch(rows))
        if sum(each.nbytes for each in self._waiting) >= _ROW_GROUP_BYTES:
            self._write()
        return self._sink.taken()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting, EXPORT_SCHEMA))
        self._waiting.clear()

    def end(self) -> bytes:
        if self._waiting:
            self._write()
        self._writer.close()
        return self._sink.taken()


def _batch(rows: list[FoundRecord]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    headers = [[{"key": name, "value": value} for name, value in each] or None for each in columns[-1]]
    return pa.record_batch([*map(list, columns[:-1]), headers], schema=EXPORT_SCHEMA)


def _json_value(data: bytes | None) -> Any:
    """Returns bytes as text, or as `{"base64": …}` if they are not UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _headers(row: FoundRecord) -> list[dict[str, Any]]:
    return [{"key": name, "value": _json_value(value)} for name, value in row.headers]


def _json_lines(rows: Iterable[FoundRecord]) -> bytes:
    return msgspec.json.Encoder().encode_lines(map(_object, rows))


def _object(row: FoundRecord) -> dict[str, Any]:
    made = {**row._asdict(), "key": _json_value(row.key), "value": _json_value(row.value)}
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


_FILES: Final[Mapping[str, Callable[[], _File]]] = {"jsonl": _Lines, "csv": _Table, "parquet": _Parquet, "arrow": _Arrow}
