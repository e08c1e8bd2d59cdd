"""Decodes batches to Arrow: the records of a table of batches become `pyarrow.RecordBatch`es with the requested columns.

Key and value bytes are copied once, from the file's bytes to Arrow's. Other columns are not decoded. A batch with a wrong CRC or
malformed records ends decoding with a `CorruptionError`, after all records before it were yielded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, InvalidArgumentError, PylogError
from pylog.record import kernels, legacy
from pylog.record.batch import WHY, Bytes, Table, corruption, placed, refusal
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CODEC_MASK,
    COUNT,
    CREATE_TIME,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from pylog.record.header_columns import LEAST_HEADER_BYTES, has_too_many_headers, no_headers, read_headers, too_many_headers
from pylog.record.layouts import HEADERS_TYPE
from pylog.record.unpacking import BatchGroup, Unpacker

TYPES: dict[str, pa.DataType] = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestamp_type": pa.int8(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS_TYPE,
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "sequence": pa.int32(),
}
DEFAULT_COLUMNS = ("offset", "timestamp", "key", "value")
_BATCH_FIELDS = {"leader_epoch": LEADER_EPOCH, "producer_id": PRODUCER_ID, "producer_epoch": PRODUCER_EPOCH}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Returns the Arrow schema for a choice of columns, in the given order.

    Raises:
        InvalidArgumentError: a column does not exist, or is named twice.

    >>> schema_of(["offset", "value"]).names
    ['offset', 'value']
    """
    names = columns if isinstance(columns, Sequence) and not isinstance(columns, str | bytes) else ()
    if not names or any(name not in TYPES for name in names) or len(set(names)) != len(names):
        raise InvalidArgumentError(f"columns {columns!r}: choose at least one, and each at most once, from {', '.join(TYPES)}")
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


class _Buffers:
    """Memory for one Arrow batch. It is reused once the batch is freed: touching fresh pages costs as much as decoding."""

    def __init__(self, rows: int, size: int, wanted: int) -> None:
        keys, values = bool(wanted & kernels.WANT_KEYS), bool(wanted & kernels.WANT_VALUES)
        self.offset = np.empty(rows, np.int64)
        self.timestamp = np.empty(rows, np.int64)
        self.key_ends = np.empty(rows + 1 if keys else 0, np.int32)
        self.key = np.empty(size if keys else 0, np.uint8)
        self.key_valid = np.empty(-(-rows // 8) if keys else 0, np.uint8)
        self.value_ends = np.empty(rows + 1 if values else 0, np.int32)
        self.value = np.empty(size if values else 0, np.uint8)
        self.value_valid = np.empty(-(-rows // 8) if values else 0, np.uint8)
        self.rows, self.size, self.wanted = rows, size, wanted
        self.filling = True

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arrays in the order of decode_records."""
        return (
            self.offset,
            self.timestamp,
            self.key_ends,
            self.key,
            self.key_valid,
            self.value_ends,
            self.value,
            self.value_valid,
        )

    def references(self) -> int:
        """Returns the number of references to the array that has most."""
        return max(sys.getrefcount(array) for array in self.arrays)

    def are_free(self) -> bool:
        """Returns whether no scan fills the arrays and no Arrow array refers to them: each Arrow array keeps a reference."""
        return not self.filling and self.references() <= _OWN_REFERENCES


_OWN_REFERENCES = _Buffers(0, 0, 0).references()  # by the attribute and by counting: differs between Python versions


class _SpareBuffers(threading.local):
    """The buffers that this thread's scans used last: at most three sets, none larger than one Arrow batch of usual size."""

    def __init__(self) -> None:
        self._kept: list[_Buffers] = []

    def take(self, rows: int, size: int, wanted: int) -> _Buffers:
        """Returns unused buffers if some are large enough; else new ones."""
        for buffers in self._kept:
            if buffers.wanted == wanted and buffers.rows >= rows and buffers.size >= size and buffers.are_free():
                buffers.filling = True
                return buffers
        made = _Buffers(_roomy(rows), _roomy(size), wanted)
        if made.size <= 2 * limits.SCAN_BYTES:
            self._kept = [*self._kept[-2:], made]  # one is being filled, one is in use by the caller, one is being returned
        return made


_SPARES = _SpareBuffers()


def _roomy(count: int) -> int:
    """Returns a capacity with spare room, so that a slightly larger next batch fits too."""
    return count + max(1024, count // 8)


class _DecodedOutput:
    """One Arrow batch with a fixed number of rows, while it is being filled."""

    def __init__(self, buffers: _Buffers, wanted: int, rows: int) -> None:
        self.buffers = buffers
        self.arrays = (buffers.offset[:rows], *buffers.arrays[1:])  # decode_records stops where offsets have no room
        buffers.key_valid[:] = 255
        buffers.value_valid[:] = 255
        self.headers_at = np.empty(buffers.rows if wanted & kernels.WANT_HEADERS else 0, np.int64)
        self.state = np.zeros(kernels.D_SIZE, np.int64)
        self.headers: list[pa.Array] = []  # of the rows before `headed`
        self.headed = 0
        self.batches: list[tuple[Table, NDArray[np.int64]]] = []  # the decoded batches, and the number of rows before each

    @property
    def rows(self) -> int:
        return int(self.state[kernels.D_ROWS])

    def origins(self) -> tuple[Table, NDArray[np.int64]]:
        """Returns the batches that the rows come from, and the number of rows from each."""
        table = np.concatenate([part for part, _ in self.batches], axis=1)
        return table, np.diff(np.concatenate([*(before for _, before in self.batches), [self.rows]]))

    def without_headers(self, end: int) -> None:
        """Adds empty lists for the rows up to `end` that have no headers yet."""
        if end > self.headed:
            self.headers.append(no_headers(end - self.headed))
            self.headed = end

    def binary(self, ends: Any, data: Any, valid: Any, used: int, nulls: int) -> pa.Array:
        """Returns the finished key or value column."""
        bitmap = pa.py_buffer(valid) if nulls else None
        parts = [bitmap, pa.py_buffer(ends[: self.rows + 1]), pa.py_buffer(data[:used])]
        return pa.Array.from_buffers(pa.binary(), self.rows, parts, nulls)

    def numbers(self, values: Any, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, self.rows, [None, pa.py_buffer(values[: self.rows])], 0)


class RecordDecoder:
    """Turns tables of batches into Arrow batches of chosen columns.

    Args:
        columns: names from `TYPES`, in the requested order.
        start, end: records outside offsets [start, end) are left out.
        max_rows: the most rows in one Arrow batch.
        verify: check each batch's CRC.
    """

    def __init__(
        self,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        *,
        start: int = 0,
        end: int = limits.INT64_MAX,
        max_rows: int = limits.SCAN_ROWS,
        verify: bool = True,
    ) -> None:
        self.schema = schema_of(columns)
        self._start, self._end = start, end
        self._max_rows = max_rows
        self._verify = verify
        self._wanted = (
            kernels.WANT_OFFSETS
            | (kernels.WANT_KEYS if "key" in columns else 0)
            | (kernels.WANT_VALUES if "value" in columns else 0)
            | (kernels.WANT_HEADERS if "headers" in columns else 0)
        )
        self._output: _DecodedOutput | None = None
        self.before = -1  # the last offset before the batches that are fed next: entries of old formats begin after it
        self._unpacker = Unpacker(verify=verify)

    def feed(self, buffer: Bytes, table: Table) -> Iterator[pa.RecordBatch]:
        """Decodes data batches (no control batches) and yields Arrow batches as they fill; `finish` yields the last one.

        Raises:
            CorruptionError: with `position` in the buffer and `offset` of the first damaged batch.
            UnsupportedFormatError, DecompressionLimitError: a batch has an unknown format, or decompresses to too much.
        """
        try:
            yield from self._fed(buffer, table)
        except PylogError:
            raise
        except Exception as error:
            raise refusal(error, table) from error

    def _fed(self, buffer: Bytes, table: Table) -> Iterator[pa.RecordBatch]:
        if (table[MAGIC] == 2).all() and not np.bitwise_or.reduce(table[ATTRIBUTES]) & CODEC_MASK:  # the usual case
            yield from self._plain(buffer, table, 0, table.shape[1], self._verify)
            return
        plain = (table[MAGIC] == 2) & ((table[ATTRIBUTES] & CODEC_MASK) == 0)
        changes = np.flatnonzero(np.diff(plain)) + 1
        first = 0
        for last in [*changes.tolist(), table.shape[1]]:
            if last > first and plain[first]:
                yield from self._plain(buffer, table, first, last, self._verify)
            else:
                yield from self._wrapped(buffer, table, first, last)
            first = last

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields the decoded rows that have not been yielded yet."""
        output, self._output = self._output, None
        if output is not None and output.rows:
            frame = self._finished(output)
            output.buffers.filling = False  # from here on the frame's references show whether it is used
            yield from self._cut(frame)

    def _plain(self, buffer: Bytes, table: Table, first: int, last: int, verify: bool) -> Iterator[pa.RecordBatch]:
        """Decodes batches with uncompressed records in the buffer: one kernel call for as many as the output holds."""
        wanted = self._wanted | (kernels.VERIFY_CRC if verify else 0)
        rows_before = np.empty(table.shape[1], np.int64)
        while first < last:
            output = self._output or self._new_output(table, first, last)
            output.state[kernels.D_BATCH], output.state[kernels.D_END] = first, last
            before, state = output.rows, output.state.copy()
            status = kernels.decode_records(
                buffer,
                table,
                output.state,
                wanted,
                *output.arrays,
                output.headers_at,
                rows_before,
            )
            done = int(output.state[kernels.D_BATCH])
            if status not in (kernels.OK, kernels.FULL):
                yield from self._damaged(buffer, table, first, done, status, verify)
            bad = self._with_too_many_headers(output, buffer, table, first, done, rows_before)
            if bad is not None:
                output.state[:] = state  # as before these batches
                yield from self._before(buffer, table, first, bad, verify)
                raise placed(too_many_headers(), table, bad)
            self._account(output, buffer, table, first, done, before, rows_before)
            if status == kernels.FULL:
                yield from self.finish()
            first = done

    def _damaged(self, buffer: Bytes, table: Table, first: int, bad: int, status: int, verify: bool) -> Iterator[pa.RecordBatch]:
        """Yields the rows before a damaged batch, then raises."""
        yield from self._before(buffer, table, first, bad, verify)
        raise corruption(table, bad, WHY[status])

    @staticmethod
    def _with_too_many_headers(
        output: _DecodedOutput, buffer: Bytes, table: Table, first: int, done: int, rows_before: NDArray[np.int64]
    ) -> int | None:
        """Returns the first of some decoded batches that has too many headers; None if none has."""
        if not output.state[kernels.D_WITH_HEADERS]:
            return None
        large = np.flatnonzero(table[SIZE, first:done] > LEAST_HEADER_BYTES * limits.MAX_BATCH_HEADERS)
        for batch in (first + large).tolist():
            end = int(rows_before[batch + 1]) if batch + 1 < done else output.rows
            if has_too_many_headers(buffer, output.headers_at[rows_before[batch] : end]):
                return int(batch)
        return None

    def _before(self, buffer: Bytes, table: Table, first: int, bad: int, verify: bool) -> Iterator[pa.RecordBatch]:
        """Yields the rows before a batch that cannot be decoded."""
        self._output = self._output if self._output is not None and self._output.batches else None
        if bad > first:
            yield from self._plain(buffer, table, first, bad, verify)
        yield from self.finish()

    def _new_output(self, table: Table, first: int, last: int) -> _DecodedOutput:
        """Creates an output for the rest of this run, between the first batch's size and one Arrow batch's limit."""
        rows = np.cumsum(np.minimum(table[COUNT, first:last], table[SIZE, first:last]))  # a count may be wrong
        sizes = np.cumsum(table[SIZE, first:last])
        row_room = max(int(rows[0]), min(int(rows[-1]), self._max_rows))
        byte_room = max(int(sizes[0]), min(int(sizes[-1]), limits.SCAN_BYTES))
        if int(rows[-1]) < self._max_rows // 2:  # more batches may follow a small one: leave room for them
            row_room, byte_room = (
                max(row_room, min(self._max_rows, 16 * row_room)),
                max(byte_room, min(limits.SCAN_BYTES, 16 * byte_room)),
            )
        wanted = self._wanted & (kernels.WANT_KEYS | kernels.WANT_VALUES)
        buffers = _SPARES.take(row_room + 1, byte_room + (last - first + 1) * kernels.SLACK, wanted)
        self._output = _DecodedOutput(
            buffers, self._wanted, max(int(rows[0]), self._max_rows)
        )  # more rows would be cut off again
        return self._output

    def _account(
        self,
        output: _DecodedOutput,
        buffer: Bytes,
        table: Table,
        first: int,
        done: int,
        before: int,
        rows_before: NDArray[np.int64],
    ) -> None:
        """Stores which rows came from which batch, and reads headers while their bytes are still in the buffer."""
        if done > first:
            output.batches.append((table[:, first:done], rows_before[first:done]))
            if self._wanted & kernels.WANT_HEADERS and output.rows > before:
                self._add_headers(output, buffer, before)

    def _add_headers(self, output: _DecodedOutput, buffer: Bytes, before: int) -> None:
        """Reads the headers of the rows from `before` on; most records have none."""
        if output.state[kernels.D_WITH_HEADERS]:
            output.state[kernels.D_WITH_HEADERS] = 0
            output.without_headers(before)
            output.headers.append(read_headers(buffer, output.headers_at[before : output.rows]))
            output.headed = output.rows

    def _wrapped(self, buffer: Bytes, table: Table, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Decodes batches that must be unpacked first: magic 0 or 1 one by one, compressed batches in groups."""
        try:
            while first < last:
                if table[MAGIC, first] < 2:
                    frame = self._legacy(buffer, table, first)
                    yield from self.finish()
                    yield from self._cut(frame)
                    first += 1
                else:
                    old = np.flatnonzero(table[MAGIC, first:last] < 2)
                    end = first + int(old[0]) if old.size else last
                    yield from self._compressed(buffer, table, first, end)
                    first = end
        except PylogError:
            yield from self.finish()
            raise

    def _compressed(self, buffer: Bytes, table: Table, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Decodes compressed batches, a decompressed group at a time."""
        with closing(self._unpacker.groups(buffer, table, first, last)) as groups:
            for group in groups:
                yield from self._group_frames(table, group)

    def _group_frames(self, table: Table, group: BatchGroup) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._plain(group.room, group.table, 0, group.end - group.first, False)
        except CorruptionError as error:
            batch = group.first + int(np.searchsorted(group.table[POSITION], error.position or 0))
            raise corruption(table, batch, WHY[kernels.BAD_RECORD]) from error
        except DecompressionLimitError as error:
            batch = group.first + int(np.searchsorted(group.table[POSITION], error.position or 0))
            raise placed(too_many_headers(), table, batch) from error

    def _legacy(self, buffer: Bytes, table: Table, batch: int) -> pa.RecordBatch:
        """Decodes the records of a batch of magic 0 or 1."""
        entry = _entry(buffer, table, batch)
        try:
            if self._verify and not legacy.legacy_crc_ok(entry):
                raise CorruptionError(WHY[kernels.BAD_CRC])
            records = legacy.decode_legacy(entry)
            before = table.item(LAST_OFFSET, batch - 1) if batch else self.before
            legacy.check_between(records, before, table.item(LAST_OFFSET, batch))
        except PylogError as error:
            raise placed(error, table, batch) from error
        nothing = [-1] * len(records)
        values: dict[str, Any] = {
            "offset": [record.offset for record in records],
            "timestamp": [record.timestamp for record in records],
            "timestamp_type": [record.timestamp_type for record in records],
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "headers": [[]] * len(records),
        }
        arrays = [pa.array(values.get(field.name, nothing), field.type) for field in self.schema]
        frame = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        inside = [self._start <= offset < self._end for offset in values["offset"]]
        return frame if all(inside) else frame.filter(pa.array(inside))

    def _finished(self, output: _DecodedOutput) -> pa.RecordBatch:
        """Returns the Arrow batch of an output, cut to the requested offsets."""
        arrays = [self._column(output, field.name) for field in self.schema]
        frame = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        offsets = output.buffers.offset[: output.rows]
        first, last = 0, output.rows
        if self._start > offsets[0]:
            first = int(np.searchsorted(offsets, self._start))
        if self._end <= offsets[-1]:
            last = int(np.searchsorted(offsets, self._end))
        return frame if (first, last) == (0, output.rows) else frame.slice(first, max(0, last - first))

    def _column(self, output: _DecodedOutput, name: str) -> pa.Array:
        state, buffers = output.state, output.buffers
        if name == "offset":
            return output.numbers(buffers.offset, TYPES[name])
        if name == "timestamp":
            return output.numbers(buffers.timestamp, TYPES[name])
        if name == "key":
            used, nulls = int(state[kernels.D_KEY_BYTES]), int(state[kernels.D_KEY_NULLS])
            return output.binary(buffers.key_ends, buffers.key, buffers.key_valid, used, nulls)
        if name == "value":
            used, nulls = int(state[kernels.D_VALUE_BYTES]), int(state[kernels.D_VALUE_NULLS])
            return output.binary(buffers.value_ends, buffers.value, buffers.value_valid, used, nulls)
        if name == "headers":
            output.without_headers(output.rows)
            return output.headers[0] if len(output.headers) == 1 else pa.concat_arrays(output.headers)
        kind = f"i{TYPES[name].bit_width // 8}"
        table, counts = output.origins()
        if name in _BATCH_FIELDS:
            fields = table[_BATCH_FIELDS[name]]
            if (fields == fields[0]).all():
                return output.numbers(np.full(output.rows, fields[0], kind), TYPES[name])
        return output.numbers(self._spread(name, table, counts, output).astype(kind), TYPES[name])

    def _spread(self, name: str, table: Table, counts: NDArray[np.int64], output: _DecodedOutput) -> NDArray[np.int64]:
        """Returns a field of the batches, repeated for each of their rows."""
        if name == "timestamp_type":
            appended = (table[ATTRIBUTES] & LOG_APPEND_TIME_BIT) != 0
            return np.repeat(np.where(appended, LOG_APPEND_TIME, CREATE_TIME), counts)
        if name == "sequence":
            return self._sequences(table, counts, output)
        return np.repeat(table[_BATCH_FIELDS[name]], counts)

    def _sequences(self, table: Table, counts: NDArray[np.int64], output: _DecodedOutput) -> NDArray[np.int64]:
        """Returns base sequence plus offset delta, wrapping from INT32_MAX to 0 (storage-format 1.1.3)."""
        base = np.repeat(table[BASE_SEQUENCE], counts)
        offsets = output.buffers.offset[: output.rows]
        sequence = base + offsets - np.repeat(table[BASE_OFFSET], counts)
        return np.where(base < 0, -1, sequence & limits.INT32_MAX)

    def _cut(self, frame: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields slices of at most `max_rows` rows; none if there are no rows."""
        for first in range(0, frame.num_rows, self._max_rows):
            yield frame.slice(first, self._max_rows)


def _entry(buffer: Bytes, table: Table, batch: int) -> Bytes:
    position = int(table[POSITION, batch])
    return buffer[position : position + int(table[SIZE, batch])]
