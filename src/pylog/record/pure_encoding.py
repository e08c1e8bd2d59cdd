"""The plain forms of the kernels that encode records and join byte strings (`record.encoding`, `record.packed`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from pylog.limits import INT32_MAX
from pylog.record.checksum import crc32c
from pylog.record.encoding import E_BATCHES, E_END, E_NEEDED, E_OFFSET, E_POSITION, E_ROW
from pylog.record.few import Plain, encoded_record, few_of
from pylog.record.format import CRC_GOOD, HEADER_CHECKED, HEADER_FRONT, HEADER_SIZE, LOG_OVERHEAD
from pylog.record.kernel import work_of
from pylog.record.kernels import BAD_RECORD, FULL, OK, TORN
from pylog.record.rows import Binary, Headers, Rows

_WINDOW: Final = 1024  # rows that are Python objects at the same time
_SIZE_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}  # MessagePack's kinds of byte strings


def _encode_work(out: Any, state: Any, *_: Any) -> int:  # noqa: ARG001 - as the kernel
    return 1 + int(state[E_END] - state[E_ROW])


@work_of(_encode_work)
def encode_batches(
    out: Any,
    state: Any,
    batch_bytes: int,
    epoch: int,
    attributes: int,
    table: Any,
    timestamps: Any,
    key_ends: Any,
    keys: Any,
    key_valid: Any,
    value_ends: Any,
    values: Any,
    value_valid: Any,
    header_ends: Any,
    name_ends: Any,
    names: Any,
    header_value_ends: Any,
    header_values: Any,
    header_value_valid: Any,
) -> int:
    """See `encoding.encode_batches` and `encode_batches_with_headers`. Cost: about 2 µs a record."""
    headers = Headers(
        header_ends, Binary(name_ends, names, values[:0]), Binary(header_value_ends, header_values, header_value_valid)
    )
    rows = Rows(timestamps, Binary(key_ends, keys, key_valid), Binary(value_ends, values, value_valid), headers)
    new = state.tolist()
    records = _records(rows, new[E_ROW], min(new[E_END], len(rows)), out.size)
    record = next(records, None)
    status = OK
    while status == OK and record is not None and new[E_BATCHES] < table.shape[1]:
        room = out.size - new[E_POSITION] - HEADER_SIZE
        parts: list[bytes] = []
        used, base = 0, record[0]
        largest = base
        while record is not None:
            encoded = encoded_record(len(parts), base, record)
            if parts and len(encoded) > batch_bytes - used:
                break
            if len(encoded) > room - used:
                if not parts:
                    status, new[E_NEEDED] = FULL, HEADER_SIZE + (len(encoded) if room >= 0 else 0)
                break
            parts.append(encoded)
            used += len(encoded)
            largest = max(largest, record[0])
            record = next(records, None)
        if parts:
            _put_batch(out, new, table, parts, (epoch, attributes, base, largest))
    state[:] = new
    return status


def _records(rows: Rows, first: int, end: int, room: int) -> Iterator[Plain]:
    """Yields records as Python objects, of which about `room` bytes exist at the same time."""
    while first < end:
        stop = _window_end(rows, first, min(first + _WINDOW, end), room)
        yield from few_of(rows.slice(first, stop)).records
        first = stop


def _window_end(rows: Rows, first: int, end: int, room: int) -> int:
    """Returns the end of the records from `first` on, at least one, of which no column has more than `room` bytes."""
    columns = [column.ends[first : end + 1] for column in (rows.keys, rows.values) if column.ends.size]
    if rows.headers.ends.size:
        lists = rows.headers.ends[first : end + 1]
        columns += [rows.headers.names.ends[lists], rows.headers.values.ends[lists]]
    for ends in columns:
        fitting = int(np.searchsorted(ends, int(ends[0]) + room, "right")) - 1
        end = min(end, first + max(1, fitting))
    return end


def _put_batch(out: Any, new: list[int], table: Any, parts: list[bytes], stamps: tuple[int, int, int, int]) -> None:
    """Writes a batch and its column, and advances the state."""
    epoch, attributes, base, largest = stamps
    count, position, offset = len(parts), new[E_POSITION], new[E_OFFSET]
    checked = b"".join([HEADER_CHECKED.pack(_signed(attributes), count - 1, base, largest, -1, -1, -1, count), *parts])
    crc = crc32c(checked)
    size = HEADER_FRONT.size + len(checked)
    front = HEADER_FRONT.pack(offset, size - LOG_OVERHEAD, epoch, 2, crc)
    out[position : position + size] = np.frombuffer(front + checked, np.uint8)
    column = (position, size, offset, offset + count - 1, count, base, largest, attributes, 2, epoch, -1, -1, -1, crc, CRC_GOOD)
    table[: len(column), new[E_BATCHES]] = column
    new[E_OFFSET] += count
    new[E_POSITION] += size
    new[E_BATCHES] += 1
    new[E_ROW] += count


def _signed(attributes: int) -> int:
    """Returns the low 16 bits as a signed number."""
    return ((attributes + 0x8000) & 0xFFFF) - 0x8000


def _joined_work(buffer: Any, position: int, end: int, ends: Any) -> int:  # noqa: ARG001 - as the kernel
    return 1 + int(ends.size) // 4


@work_of(_joined_work)
def join_packed(buffer: Any, position: int, end: int, ends: Any) -> int:
    """See `packed.join_packed`. Cost: about 0.4 µs a string."""
    at, stop = max(position, 0), min(end, buffer.size)
    data = memoryview(buffer)
    parts: list[memoryview] = []  # nothing is copied before all sizes are known
    edges = [0]
    for _ in range(1, ends.size):
        if stop - at < 2:
            return TORN
        width = _SIZE_BYTES.get(data[at])
        if width is None:
            return BAD_RECORD
        if stop - at < 1 + width:
            return TORN
        size = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        at += 1 + width
        if size > stop - at:
            return TORN
        if size > INT32_MAX - edges[-1]:
            return FULL
        parts.append(data[at : at + size])
        edges.append(edges[-1] + size)
        at += size
    buffer[: edges[-1]] = np.frombuffer(b"".join(parts), np.uint8)
    ends[: len(edges)] = edges[: ends.size]
    return OK
