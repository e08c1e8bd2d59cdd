"""Output formats for records: text, JSON lines, CSV, Arrow and Parquet, one batch at a time.

`pylog produce` reads all of them except text. On a terminal, text and CSV are escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Final, Literal, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from pylog.cli.exits import CommandFailed, UsageError
from pylog.cli.output import jsonable, to_terminal, write_data
from pylog.record.layouts import EXPORT_SCHEMA
from pylog.text import json_text, lines_text, shown
from pylog.times import time_text

_YEAR_10000: Final = 253_402_300_800_000
OutputFormat = Literal["text", "jsonl", "csv", "arrow", "parquet"]


class RecordWriter(Protocol):
    """Writes batches that have the schema `EXPORT_SCHEMA`."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None:
        """Writes the end of the output."""
        ...


@contextmanager
def writer_to(form: OutputFormat) -> Iterator[RecordWriter]:
    """Opens a writer to stdout. If the context ends without an error, the writer is closed.

    Raises:
        UsageError: the format is binary and stdout is a terminal.
    """
    if form in ("arrow", "parquet") and to_terminal():
        raise UsageError(f"{form} is a binary format and stdout is a terminal; redirect the output to a file or a pipe")
    makers: dict[str, Callable[[], RecordWriter]] = {
        "text": TextWriter,
        "jsonl": JsonWriter,
        "csv": CsvWriter,
        "arrow": ArrowWriter,
        "parquet": ParquetWriter,
    }
    writer = makers[form]()
    yield writer
    writer.close()


# ---- lines -------------------------------------------------------------------------------------------------------------------


class TextWriter:
    """Writes one line per record: partition, offset, time, key, value, and `name=value` for each header. Fields are separated
    by tabs, on a terminal by two blanks.
    """

    def __init__(self) -> None:
        self._between = "  " if to_terminal() else "\t"

    def write(self, batch: pa.RecordBatch) -> None:
        sys.stdout.write("".join(map(self._line, *_columns(batch))))

    def close(self) -> None: ...

    def _line(self, partition: int, offset: int, timestamp: int, key: bytes, value: bytes, headers: list[Any] | None) -> str:
        cells = [str(partition), str(offset), time_text(timestamp) or "-", shown(key), shown(value)]
        cells += [f"{shown(header['key'])}={shown(header['value'])}" for header in headers or ()]
        return self._between.join(cells) + "\n"


class JsonWriter:
    """Writes one JSON object per line. Keys and values are text, or `{"base64": …}` if they are not UTF-8; times are in ms."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()

    def write(self, batch: pa.RecordBatch) -> None:
        rows = map(self._row, *_columns(batch))
        write_data(json_text(self._encoder.encode_lines(rows).decode()))

    def close(self) -> None: ...

    def _row(
        self, partition: int, offset: int, timestamp: int, key: Any, value: Any, headers: list[Any] | None
    ) -> dict[str, Any]:
        row = {"partition": partition, "offset": offset, "timestamp": timestamp, "key": jsonable(key), "value": jsonable(value)}
        return row | {"headers": jsonable(headers)} if headers else row


def _columns(batch: pa.RecordBatch) -> Iterator[Any]:
    """Yields the columns of `EXPORT_SCHEMA` as Python values, with times in milliseconds."""
    for name in EXPORT_SCHEMA.names:
        column = batch.column(name)
        if name == "headers" and not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
            yield repeat(None, len(column))  # most logs have no headers
        else:
            yield (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()


class CsvWriter:
    """Writes CSV with a header line. A null is an empty field, an empty key or value is `""`, and headers are JSON."""

    def __init__(self) -> None:
        self._begun = False

    def write(self, batch: pa.RecordBatch) -> None:
        columns = {name: batch.column(name) for name in EXPORT_SCHEMA.names}
        columns |= {name: _as_text(batch, name) for name in ("key", "value")}
        columns["timestamp"] = _readable(columns["timestamp"])
        headers = columns["headers"].to_pylist()
        columns["headers"] = pa.array([_json_headers(each) if each else None for each in headers], pa.string())
        sink = pa.BufferOutputStream()
        options = pa.csv.WriteOptions(include_header=not self._begun)
        pa.csv.write_csv(pa.RecordBatch.from_arrays([*columns.values()], [*columns]), sink, options)
        self._begun = True
        text = sink.getvalue().to_pybytes().decode()
        write_data(lines_text(text) if to_terminal() else text)

    def close(self) -> None:
        if not self._begun:
            self.write(pa.RecordBatch.from_pylist([], EXPORT_SCHEMA))


def _readable(times: pa.Array) -> pa.Array:
    """Returns timestamps in a form that `produce` reads: as milliseconds if a year has more than four digits."""
    numbers = times.cast(pa.int64())
    is_far = pc.greater(numbers, _YEAR_10000 - 1)
    return pc.if_else(is_far, numbers.cast(pa.string()), times.cast(pa.string())) if pc.any(is_far).as_py() else times


def _json_headers(headers: list[Any]) -> str:
    return json_text(msgspec.json.encode(jsonable(headers)).decode())


def _as_text(batch: pa.RecordBatch, name: str) -> pa.Array:
    try:
        return batch.column(name).cast(pa.string())
    except pa.ArrowInvalid as error:
        offset = _first_not_text(batch, name)
        raise CommandFailed(
            f"the {name} of the record at offset {offset} is not UTF-8, so CSV cannot hold it; use --format jsonl or parquet",
            offset=offset,
        ) from error


def _first_not_text(batch: pa.RecordBatch, name: str) -> int:
    for offset, data in zip(batch.column("offset").to_pylist(), batch.column(name).to_pylist(), strict=True):
        try:
            (data or b"").decode()
        except UnicodeDecodeError:
            return int(offset)
    raise AssertionError("Arrow and Python disagree about UTF-8")


# ---- columns -----------------------------------------------------------------------------------------------------------------


class ArrowWriter:
    """Writes Arrow's IPC stream format."""

    def __init__(self) -> None:
        self._writer = pa.ipc.new_stream(pa.PythonFile(sys.stdout.buffer, mode="w"), EXPORT_SCHEMA)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class ParquetWriter:
    """Writes a Parquet file, compressed with zstd."""

    def __init__(self) -> None:
        sink = pa.PythonFile(sys.stdout.buffer, mode="w")
        self._writer = pa.parquet.ParquetWriter(sink, EXPORT_SCHEMA, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
