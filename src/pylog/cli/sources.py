"""Input formats for records: reads lines, JSON lines, CSV, Arrow and Parquet into Arrow batches for `Producer.send_arrow`.

Input is read in chunks, and from a pipe as soon as it arrives. An error names the unknown column or the malformed line.
"""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from pylog.cli.exits import CommandFailed, UsageError
from pylog.cli.streams import Closed
from pylog.limits import INT64_MAX, SCAN_ROWS
from pylog.record.layouts import HEADERS_TYPE

InputFormat = Literal["lines", "jsonl", "csv", "arrow", "parquet"]
FORMATS_BY_SUFFIX: Final[Mapping[str, InputFormat]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".parquet": "parquet",
}
_READ_BYTES: Final = 1 << 20  # per read from a pipe
_CSV_BLOCK_BYTES: Final = 8 << 20  # a row must fit into a block
_FIELDS: Final = ("key", "value", "timestamp", "headers", "partition")
_IGNORED: Final = "offset"  # `cat` writes this column; the log assigns new offsets


class RecordSource(NamedTuple):
    """An open input.

    Attributes:
        batches: batches of records, with some of the columns key, value, timestamp, headers and partition.
        unit: unit of progress: "bytes" or "records".
        total: total amount; None if it is not known.
        done: returns the amount that has been read.
    """

    batches: Iterator[pa.RecordBatch]
    unit: str
    total: float | None
    done: Callable[[], float]


class InputOptions(NamedTuple):
    """How to read records.

    Attributes:
        separator: separator between the key and the value of a line; None if lines are values.
        longest: maximal length of a line, in bytes.
        columns: for each column name, the field of a record. Other columns are refused, unless `choosy`.
        choosy: True if the user named columns; other columns are ignored then.
    """

    separator: bytes | None
    longest: int
    columns: Mapping[str, str]
    choosy: bool


def columns_named(key: str | None, value: str | None) -> tuple[dict[str, str], bool]:
    """Returns the field of a record for each column name, and whether the user named any column."""
    chosen = {name: field for name, field in ((key, "key"), (value, "value")) if name is not None}
    columns = {name: name for name in _FIELDS if name not in chosen.values()}
    return columns | chosen, bool(chosen)


def open_source(path: str | None, form: InputFormat, reading: InputOptions) -> RecordSource:
    """Opens a file, or stdin.

    Args:
        path: path of the file; None for stdin.
        form: format of the input.
        reading: how to read it.

    Raises:
        CommandFailed: the input cannot be read or has another format; also raised while batches are read.
        UsageError: the format is Parquet and the input is a pipe, or stdin is closed.
    """
    if path is None and isinstance(sys.stdin, Closed):
        raise UsageError("stdin is closed; give a file with --from")
    name = path or "stdin"
    stream: Any = sys.stdin.buffer if path is None else _opened(path)
    if form == "parquet":
        return _parquet(stream, name, reading)
    makers = {"lines": _lines, "jsonl": _json_lines, "csv": _csv, "arrow": _arrow}
    total = stream.size() if path is not None else None
    return RecordSource(
        _explained(makers[form](stream, name, reading), name), "bytes", total, stream.tell if total else lambda: 0
    )


def _opened(path: str) -> Any:
    try:  # as bytes: Arrow encodes text as UTF-8, but a file name may be any bytes
        return pa.OSFile(path.encode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CommandFailed(f"cannot read {path}: {error}", path=path) from error


def _explained(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Yields the same batches. Turns an error of Arrow into one that names the file."""
    try:
        yield from batches
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {name}: {error}", path=name) from error


# ---- lines -------------------------------------------------------------------------------------------------------------------


def _pieces(stream: Any, name: str, longest: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yields lists of whole lines without their ends (LF or CR LF), each with the number of its first line.

    A byte-order mark before the first line is removed.
    """
    number, rest = 1, b""
    while chunk := stream.read1(_READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        lines = [line.removesuffix(b"\r") for line in lines]
        if len(rest) > longest:
            raise CommandFailed(f"{name}, line {number + len(lines)} is longer than the topic's max.message.bytes, {longest}")
        if lines:
            yield number, _without_mark(number, lines)
            number += len(lines)
    if rest:
        yield number, _without_mark(number, [rest.removesuffix(b"\r")])


def _without_mark(number: int, lines: list[bytes]) -> list[bytes]:
    return [lines[0].removeprefix(BOM_UTF8), *lines[1:]] if number == 1 else lines


def _lines(stream: Any, name: str, reading: InputOptions) -> Iterator[pa.RecordBatch]:
    for number, lines in _pieces(stream, name, reading.longest):
        if reading.separator is None:
            yield pa.RecordBatch.from_pydict({"value": pa.array(lines, pa.binary())})
            continue
        parts = [line.partition(reading.separator) for line in lines]
        for at, (_, found, _) in enumerate(parts):
            if not found:
                raise CommandFailed(f"{name}, line {number + at} has no key separator {reading.separator!r}")
        keys, _, values = zip(*parts, strict=True)
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes that are not UTF-8."""

    base64: bytes


_Data = str | _Base64 | None


class _HeaderLine(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: _Data = None


_Long = Annotated[int, msgspec.Meta(ge=-INT64_MAX, le=INT64_MAX)]


class _Record(msgspec.Struct, forbid_unknown_fields=True):
    """A line of JSON."""

    key: _Data = None
    value: _Data = None
    timestamp: _Long | None = None
    headers: list[_HeaderLine] = []
    partition: _Long | None = None
    offset: int | None = None


_RECORD_DECODER: Final = msgspec.json.Decoder(_Record)
_HEADERS_DECODER: Final = msgspec.json.Decoder(list[_HeaderLine])


def _json_lines(stream: Any, name: str, reading: InputOptions) -> Iterator[pa.RecordBatch]:
    for number, lines in _pieces(stream, name, 6 * reading.longest):  # JSON may escape a byte with six: \u0000
        records = []
        for at, line in enumerate(lines):
            try:
                if line.strip():
                    records.append(_RECORD_DECODER.decode(line))
            except (msgspec.MsgspecError, ValueError) as error:
                message = "with the optional fields key, value, timestamp, headers and partition"
                raise CommandFailed(f"{name}, line {number + at} is not a JSON object {message}: {error}") from error
        if records:
            yield _from_json(records)


def _from_json(records: list[_Record]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([_data(each.key) for each in records], pa.binary()),
            "value": pa.array([_data(each.value) for each in records], pa.binary()),
            "timestamp": pa.array([each.timestamp for each in records], pa.int64()),
            "headers": pa.array([_pairs(each.headers) for each in records], HEADERS_TYPE),
            "partition": pa.array([each.partition for each in records], pa.int64()),
        }
    )


def _data(given: _Data) -> bytes | None:
    return given.encode() if isinstance(given, str) else None if given is None else given.base64


def _pairs(headers: list[_HeaderLine]) -> list[dict[str, Any]]:
    return [{"key": each.key, "value": _data(each.value)} for each in headers]


# ---- columns -----------------------------------------------------------------------------------------------------------------


def _csv(stream: Any, name: str, reading: InputOptions) -> Iterator[pa.RecordBatch]:
    kinds = {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.string(), "headers": pa.string(), "partition": pa.int64()}
    reader = pa.csv.open_csv(
        stream,
        pa.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
        pa.csv.ParseOptions(newlines_in_values=True),
        pa.csv.ConvertOptions(
            column_types={column: kinds[field] for column, field in reading.columns.items()},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    for batch in reader:
        yield _from_csv(_chosen(batch, name, reading), name)


def _from_csv(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Parses the text of the columns timestamp and headers."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "timestamp" in columns:
        columns["timestamp"] = _milliseconds(columns["timestamp"])
    if "headers" in columns:
        try:
            given = [_HEADERS_DECODER.decode(text or "[]") for text in columns["headers"].to_pylist()]
        except msgspec.MsgspecError as error:
            raise CommandFailed(f"{name}: the column headers is not JSON such as [{{'key': …, 'value': …}}]: {error}") from error
        columns["headers"] = pa.array(map(_pairs, given), HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(columns)


def _milliseconds(given: pa.Array) -> pa.Array:
    """Parses timestamps, each either a number of milliseconds or text."""
    is_number = pc.match_substring_regex(given, r"^-?[0-9]+$")
    numbers = pc.if_else(is_number, given, None).cast(pa.int64())
    times = pc.if_else(is_number, None, given).cast(pa.timestamp("ms", "UTC"))
    return pc.coalesce(numbers, times.cast(pa.int64()))


def _arrow(stream: Any, name: str, reading: InputOptions) -> Iterator[pa.RecordBatch]:
    for batch in _ipc(stream):
        yield _chosen(batch, name, reading)


def _ipc(stream: Any) -> Iterator[pa.RecordBatch]:
    """Yields the batches of Arrow's file or stream format."""
    if not stream.seekable():
        yield from pa.ipc.open_stream(stream)
        return
    is_file = stream.read(6) == b"ARROW1"
    stream.seek(0)
    if is_file:
        reader = pa.ipc.open_file(stream)
        yield from map(reader.get_batch, range(reader.num_record_batches))
    else:
        yield from pa.ipc.open_stream(stream)


def _parquet(stream: Any, name: str, reading: InputOptions) -> RecordSource:
    if not stream.seekable():
        raise UsageError("Parquet cannot be read from a pipe; give the file with --from")
    try:
        file = pa.parquet.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise CommandFailed(f"cannot read {name}: {error}", path=name) from error
    done = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal done
        for batch in file.iter_batches(SCAN_ROWS):
            yield _chosen(batch, name, reading)
            done += batch.num_rows

    return RecordSource(_explained(batches(), name), "records", file.metadata.num_rows, lambda: done)


def _chosen(batch: pa.RecordBatch, name: str, reading: InputOptions) -> pa.RecordBatch:
    """Returns the known columns, named after the fields of a record."""
    given = batch.schema.names
    if len(set(given)) < len(given):
        raise CommandFailed(f"{name} has two columns with the same name: {', '.join(given)}")
    unknown = [column for column in given if column not in reading.columns and column != _IGNORED]
    if unknown and not reading.choosy:
        raise CommandFailed(
            f"{name} has the columns {', '.join(given)}; only {', '.join(_FIELDS)} are recognised by name, "
            "give others with --key-column and --value-column"
        )
    missing = [column for column, field in reading.columns.items() if column not in given and column != field]
    if missing:
        raise CommandFailed(f"{name} has no column {missing[0]}; it has {', '.join(given)}")
    columns = {field: batch.column(column) for column, field in reading.columns.items() if column in given}
    if not columns.keys() & {"key", "value"}:
        raise CommandFailed(f"{name} has neither a column key nor a column value; it has {', '.join(given)}")
    return pa.RecordBatch.from_pydict(columns)
