"""Columns (`Rows`) of the tables and batches of Arrow that are appended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylog.errors import InvalidRecordError
from pylog.record import layouts
from pylog.record.arrays import numbers_of
from pylog.record.layouts import HEADERS_TYPE
from pylog.record.rows import (
    ALL_NULL,
    NO_BYTES,
    NO_HEADERS,
    Binary,
    Bytes,
    Headers,
    Longs,
    Rows,
    read_only,
    repeated,
)

COLUMNS = ("key", "value", "timestamp", "headers")


def rows_from_arrow(data: Any, now_ms: int) -> Iterator[Rows]:
    """Returns the rows of a `pyarrow.Table` or `RecordBatch`, a part at a time.

    Columns: `key`, `value` (binary or string), `timestamp` (timestamp or int64 milliseconds; null means now), `headers`
    (list<struct<key: string, value: binary>>). Missing columns default to null, now and empty.

    Raises:
        InvalidRecordError: another column, another type, a negative timestamp, or a header without a name.
    """
    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise InvalidRecordError(f"append_arrow takes a pyarrow.Table or RecordBatch, not {type(data).__name__}")
    unknown = [name for name in data.schema.names if name not in COLUMNS]
    if unknown or len(set(data.schema.names)) != len(data.schema.names):
        raise InvalidRecordError(
            f"columns {data.schema.names} given; each of {', '.join(COLUMNS)} is allowed once, and no other column"
        )
    casts = _casts(data.schema)
    batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
    for batch in batches:
        if batch.num_rows:
            _check_layout(batch)
            yield _rows_from_batch(batch, casts, now_ms)


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with record columns in the layout that the encoder needs; other columns stay as they are.

    Raises:
        InvalidRecordError: a column has an unsupported type.
    """
    casts = _casts(batch.schema)
    if all(batch.schema.field(name).type == kind for name, kind in casts.items()):
        return batch
    _check_layout(batch)
    columns = [
        _cast(name, column, casts[name]) if name in casts else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _check_layout(batch: pa.RecordBatch) -> None:
    """Checks all offsets in the buffers: Arrow itself checks only the first and the last one of data from a file.

    Raises:
        InvalidRecordError: a column leads out of its buffers, or its offsets go back.

    Cost: 1 ns a value. The bytes of values are not read, except those of names of headers.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            (column.view(pa.binary()) if pa.types.is_string(column.type) else column).validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(f"column {name} is damaged: {error}; create the table again") from error


def _casts(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {name: _target(name, schema.field(name).type) for name in schema.names if name in COLUMNS}


def _target(name: str, given: pa.DataType) -> pa.DataType:
    """Returns the type that a column must be cast to, or raises an error that names the supported types."""
    types = pa.types
    if name in ("key", "value"):
        if layouts.is_bytes(given):
            return pa.binary()
        raise InvalidRecordError(f"column {name} is {given}; it must be binary or string")
    if name == "timestamp":
        kind = layouts.value_type(given)
        if types.is_timestamp(kind):
            return pa.timestamp("ms", kind.tz)
        if types.is_integer(kind) or types.is_null(kind):
            return pa.int64()
        raise InvalidRecordError(f"column timestamp is {given}; it must be a timestamp or int64 milliseconds")
    if layouts.is_headers(given):
        return HEADERS_TYPE
    raise InvalidRecordError(f"column headers is {given}; it must be list<struct<key: string, value: binary>>")


def _rows_from_batch(batch: pa.RecordBatch, casts: dict[str, pa.DataType], now_ms: int) -> Rows:
    columns = {name: _cast(name, batch.column(name), kind) for name, kind in casts.items()}
    stamps = _timestamps(columns.get("timestamp"), batch.num_rows, now_ms)
    key, value, headers = (columns.get(name) for name in ("key", "value", "headers"))
    shared = None if "timestamp" in columns else now_ms
    return Rows(stamps, binary_of(key), binary_of(value), headers_of(headers), shared)


def _cast(name: str, column: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        if column.type == target:
            return column
        if name == "headers":
            return layouts.plain_headers(column)
        plain = layouts.decoded(column)
        _check_parts_of_a_millisecond(plain)
        # Fractions of a millisecond may be lost; a time that does not fit 64 bits must not turn into another one.
        return plain.cast(options=pc.CastOptions(target, allow_time_truncate=True))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecordError(f"column {name} cannot be read as {target}: {error}") from error


def _check_parts_of_a_millisecond(column: pa.Array) -> None:
    """Refuses times in the last millisecond before 1970: the cast rounds towards zero, which would move them into 1970."""
    parts = {"us": 1000, "ns": 1_000_000}.get(column.type.unit) if pa.types.is_timestamp(column.type) else None
    if parts is None or column.null_count == len(column):
        return
    counts = column.drop_null().view(pa.int64()).to_numpy()
    if counts.min() < 0 and (before := counts[(counts < 0) & (counts % parts != 0)]).size:
        raise InvalidRecordError(
            f"timestamp {before[0]} {column.type.unit} is before 1970; Kafka's format takes milliseconds, 0 or more, or -1 for "
            "none"
        )


def _timestamps(column: pa.Array | None, count: int, now_ms: int) -> Longs:
    if column is None:
        return repeated(now_ms, count)
    values = column.view(pa.int64()) if column.type != pa.int64() else column
    stamps = numbers_of(pc.fill_null(values, now_ms) if values.null_count else values, np.int64)
    check_timestamp(int(stamps.min(initial=0)))
    return read_only(np.ascontiguousarray(stamps, np.int64))


def check_timestamp(smallest: int) -> None:
    """Refuses timestamps below -1; -1 means "no timestamp" (storage-format 1.6.1)."""
    if smallest < -1:
        raise InvalidRecordError(f"timestamp {smallest} is before 1970; Kafka's format takes 0 or more, or -1 for none")


def binary_of(column: pa.Array | None) -> Binary:
    """Returns views of an Arrow binary array's buffers; only validity bits are copied."""
    if column is None or column.null_count == len(column):
        return ALL_NULL
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32, len(column) + 1, column.offset * 4)
    values = NO_BYTES if data is None or data.size == 0 else np.frombuffer(data, np.uint8)
    return Binary(read_only(offsets), read_only(values), _validity(column))


def _validity(column: pa.Array) -> Bytes:
    if column.null_count == 0:
        return read_only(NO_BYTES)
    return read_only(np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))


def headers_of(column: pa.Array | None) -> Headers:
    if column is None or column.null_count == len(column):
        return NO_HEADERS
    if column.null_count:
        column = layouts.plain_headers(column)
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    if ends[0] == ends[-1]:
        return NO_HEADERS
    structs = column.values
    names, values = structs.field("key"), structs.field("value")  # unlike flatten(), these ignore the structs' own nulls
    used = slice(int(ends[0]), int(ends[-1]))
    if structs[used].null_count or names[used].null_count:
        raise InvalidRecordError("a header has no name; names are strings, only values may be null")
    name_column, value_column = binary_of(names.cast(pa.binary())), binary_of(values)
    if not value_column.ends.size:
        value_column = Binary(read_only(np.zeros(len(values) + 1, np.int32)), NO_BYTES, _validity(values))
    return Headers(read_only(ends), name_column, value_column)
