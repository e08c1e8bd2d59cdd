"""The plain forms of the kernels that scan, decode and checksum batches: `record.kernels` without a compiler.

Each function has the arguments, the outputs and the statuses of the kernel with its name, and reads no byte that the kernel would
not read. It writes its outputs and its state after the last step that can fail, so an exception in a signal handler leaves the
state as it was.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from google_crc32c import extend, value

from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_ABORT,
    CONTROL_BIT,
    CONTROL_COMMIT,
    COUNT,
    CRC_BAD,
    CRC_GOOD,
    CRC_UNCHECKED,
    HEADER,
    HEADER_SIZE,
    LARGEST_MARKER,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PREFIX_SIZE,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.record.kernel import work_of
from pylog.record.kernels import (
    ABORTED,
    BAD_CRC,
    BAD_HEADER,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_RECORD,
    COMMITTED,
    D_BATCH,
    D_END,
    D_KEY_BYTES,
    D_KEY_NULLS,
    D_ROWS,
    D_VALUE_BYTES,
    D_VALUE_NULLS,
    D_WITH_HEADERS,
    FULL,
    NOT_PLAIN,
    OK,
    SLACK,
    TORN,
    UNDECIDED,
    USUAL_MARKER,
    USUAL_MARKER_SIZE,
    VERIFY_CRC,
    WANT_HEADERS,
    WANT_KEYS,
    WANT_OFFSETS,
    WANT_VALUES,
)
from pylog.record.pure_rows import PlainRows, good_crc, parse_rows, wrapped

_FRAME: Final = Struct(">qi4xb")  # base offset, length, magic
_U32: Final = Struct(">I")
_I64: Final = Struct(">q")
_LEAST_LENGTH: Final = (14, 22, 49)  # by magic
_LAST_BASE: Final = 1 << 62


def floor(table: Any, entry: Struct, count: int, key: int) -> int:
    """Returns the last of `count` sorted entries of a table whose first field is at most `key`; -1 if there is none."""
    low, high = 0, min(count, len(table) // entry.size)
    while low < high:
        middle = (low + high) >> 1
        if entry.unpack_from(table, middle * entry.size)[0] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


# ---- framing -------------------------------------------------------------------------------------------------------------------


def frame(data: Any, at: int, end: int) -> tuple[int, int, int]:
    """Returns (status, size, magic) of the batch at a position: storage-format 1.12, with stricter limits."""
    if end - at < _FRAME.size:
        return TORN, 0, 0
    _, length, magic = _FRAME.unpack_from(data, at)
    if not 0 <= magic <= 2:
        return BAD_MAGIC, 0, magic
    if length < _LEAST_LENGTH[magic]:
        return BAD_LENGTH, 0, magic
    if length > end - at - LOG_OVERHEAD:
        return TORN, 0, magic
    return OK, length + LOG_OVERHEAD, magic


def header(data: Any, at: int) -> tuple[int, ...] | None:
    """Returns the header fields of a batch of magic 2; None if its offsets and counts are impossible."""
    fields: tuple[int, ...] = HEADER.unpack_from(data, at)
    base, delta, count = fields[0], fields[6], fields[12]
    if not 0 <= base <= _LAST_BASE or delta < 0 or not 0 <= count <= delta + 1:
        return None
    return fields


def _column(data: Any, at: int, size: int, verify: bool) -> tuple[int, ...] | None:
    """Returns the column of a batch of magic 2."""
    fields = header(data, at)
    if fields is None:
        return None
    base, _, epoch, magic, crc, attributes, delta, first, largest, *numbers, count = fields
    checked = CRC_UNCHECKED if not verify else CRC_GOOD if good_crc(data, at, at + size) else CRC_BAD
    return (at, size, base, base + delta, count, first, largest, attributes & 0xFFFF, magic, epoch, *numbers, crc, checked)


def _legacy_column(data: Any, at: int, size: int, magic: int) -> tuple[int, ...] | None:
    """Returns the column of a batch of magic 0 or 1."""
    base = _I64.unpack_from(data, at)[0]
    if not 0 <= base <= _LAST_BASE:
        return None
    stamp = _I64.unpack_from(data, at + 18)[0] if magic == 1 else -1
    crc = _U32.unpack_from(data, at + 12)[0]
    return (at, size, base, base, -1, stamp, stamp, data[at + 17], magic, -1, -1, -1, -1, crc, CRC_UNCHECKED)


def _walk_work(buffer: Any, state: Any, verify: bool, table: Any) -> int:  # noqa: ARG001 - as the kernel
    return 1 + min(int(table.shape[1]), max(0, int(state[1] - state[0])) // 512)


@work_of(_walk_work)
def scan_batches(buffer: Any, state: Any, verify: bool, table: Any) -> int:
    """See `kernels.scan_batches`. Cost: about 2 µs a batch."""
    data = memoryview(buffer)
    at, end, filled = state.tolist()
    end = min(end, buffer.size)
    status = OK
    columns: list[tuple[int, ...]] = []
    while at < end:
        status, size, magic = frame(data, at, end)
        if status != OK:
            break
        if filled + len(columns) >= table.shape[1]:
            status = FULL
            break
        column = _column(data, at, size, verify) if magic == 2 else _legacy_column(data, at, size, magic)
        if column is None:
            status = BAD_HEADER
            break
        columns.append(column)
        at += size
    if columns:
        table[:, filled : filled + len(columns)] = np.array(columns, np.int64).T
    state[:] = at, state[1], filled + len(columns)
    return status


# ---- reading -----------------------------------------------------------------------------------------------------------------


def _put(items: list[bytes | None], row: int, used: int, ends: Any, out: Any, valid: Any) -> int:
    """Writes keys or values from a row on, after `used` bytes; returns the bytes used then."""
    starts = []
    position = used
    for index, item in enumerate(items, row):
        starts.append(position)
        if item is None:
            valid[index >> 3] &= ~(1 << (index & 7)) & 255
        else:
            position += len(item)
    ends[row : row + len(items)] = starts
    if position > used:
        out[used:position] = np.frombuffer(b"".join([item for item in items if item]), np.uint8)
    return position


def _decode_work(buffer: Any, table: Any, state: Any, *_: Any) -> int:
    counts = table[COUNT, int(state[D_BATCH]) : int(state[D_END])]
    return int(np.clip(counts, 1, max(1, buffer.size)).sum())


@work_of(_decode_work)
def decode_records(
    buffer: Any,
    table: Any,
    state: Any,
    wanted: int,
    offsets: Any,
    timestamps: Any,
    key_ends: Any,
    key_bytes: Any,
    key_valid: Any,
    value_ends: Any,
    value_bytes: Any,
    value_valid: Any,
    headers_at: Any,
    rows_before: Any,
) -> int:
    """See `kernels.decode_records`. Cost: about 3 µs a record."""
    out = _Outputs(wanted, offsets, timestamps, key_ends, key_bytes, key_valid, value_ends, value_bytes, value_valid, headers_at)
    new = state.tolist()
    status = OK
    while new[D_BATCH] < min(new[D_END], table.shape[1]):
        batch = new[D_BATCH]
        column = table[:, batch].tolist()
        status, data = _batch_of(buffer, column, new, out)
        if status != OK:
            break
        rows_before[batch] = new[D_ROWS]
        try:
            rows = parse_rows(data, column[COUNT], wrapped(column[LAST_OFFSET] - column[BASE_OFFSET]))
        except (ValueError, IndexError):
            status = BAD_RECORD
            break
        out.put(column, rows, new)
        new[D_BATCH] = batch + 1
    if status in (OK, FULL):
        if wanted & WANT_KEYS and new[D_ROWS] < key_ends.size:
            key_ends[new[D_ROWS]] = new[D_KEY_BYTES]
        if wanted & WANT_VALUES and new[D_ROWS] < value_ends.size:
            value_ends[new[D_ROWS]] = new[D_VALUE_BYTES]
        state[: len(new)] = new
    else:
        state[D_BATCH] = new[D_BATCH]
    return status


def _has_room(rows: int, used: int, ends: Any, out: Any) -> bool:
    return bool(rows < ends.size and used + SLACK <= out.size)


def _batch_of(buffer: Any, column: list[int], new: list[int], out: _Outputs) -> tuple[int, bytes]:
    """Returns (status, bytes) of a batch that is decoded next."""
    position, size, count = column[POSITION], column[SIZE], column[COUNT]
    if position < 0 or size < HEADER_SIZE or size > buffer.size - position or not 0 <= count <= size:
        return BAD_HEADER, b""
    if not out.has_room(new, count, size):
        return FULL, b""
    data = buffer[position : position + size].tobytes()
    if out.wanted & VERIFY_CRC and not good_crc(data, 0, size):
        return BAD_CRC, b""
    return OK, data


class _Outputs(NamedTuple):
    """The arrays that `decode_records` fills."""

    wanted: int
    offsets: Any
    timestamps: Any
    key_ends: Any
    key_bytes: Any
    key_valid: Any
    value_ends: Any
    value_bytes: Any
    value_valid: Any
    headers_at: Any

    def has_room(self, state: list[int], count: int, size: int) -> bool:
        """Returns whether a batch with so many records and bytes fits."""
        rows = state[D_ROWS] + count
        return not (
            (self.wanted & WANT_OFFSETS and rows > self.offsets.size)
            or (self.wanted & WANT_KEYS and not _has_room(rows, state[D_KEY_BYTES] + size, self.key_ends, self.key_bytes))
            or (self.wanted & WANT_VALUES and not _has_room(rows, state[D_VALUE_BYTES] + size, self.value_ends, self.value_bytes))
            or (self.wanted & WANT_HEADERS and rows > self.headers_at.size)
        )

    def put(self, column: list[int], rows: PlainRows, state: list[int]) -> None:
        """Writes a batch's records, and counts them in the state."""
        row, end = state[D_ROWS], state[D_ROWS] + len(rows.keys)
        if self.wanted & WANT_OFFSETS:  # sums wrap, as int64 do
            self.offsets[row:end] = np.array(rows.offset_deltas, np.int64) + np.int64(column[BASE_OFFSET])
            if column[ATTRIBUTES] & LOG_APPEND_TIME_BIT:
                self.timestamps[row:end] = column[MAX_TIMESTAMP]
            else:
                self.timestamps[row:end] = np.array(rows.timestamp_deltas, np.int64) + np.int64(column[BASE_TIMESTAMP])
        if self.wanted & WANT_KEYS:
            state[D_KEY_BYTES] = _put(rows.keys, row, state[D_KEY_BYTES], self.key_ends, self.key_bytes, self.key_valid)
        if self.wanted & WANT_VALUES:
            used = state[D_VALUE_BYTES]
            state[D_VALUE_BYTES] = _put(rows.values, row, used, self.value_ends, self.value_bytes, self.value_valid)
        if self.wanted & WANT_HEADERS:
            self.headers_at[row:end] = np.array(rows.headers_at, np.int64) + column[POSITION]
        state[D_KEY_NULLS] += rows.keys.count(None)
        state[D_VALUE_NULLS] += rows.values.count(None)
        state[D_WITH_HEADERS] += rows.with_headers
        state[D_ROWS] = end


# ---- checksums ---------------------------------------------------------------------------------------------------------------


def checksum(buffer: Any, position: int, end: int) -> int:
    """See `kernels.checksum`."""
    end = min(max(end, 0), buffer.size)
    return int(value(buffer[min(max(position, 0), end) : end].tobytes()))


def _table_work(buffer: Any, table: Any, *_: Any) -> int:  # noqa: ARG001 - as the kernels
    return 1 + int(table.shape[1])


@work_of(_table_work)
def first_bad_crc(buffer: Any, table: Any, first: int, end: int) -> int:
    """See `kernels.first_bad_crc`. Cost: about 1 µs a batch."""
    data = memoryview(buffer)
    for batch in range(max(first, 0), min(end, table.shape[1])):
        position, size = int(table[POSITION, batch]), int(table[SIZE, batch])
        if position < 0 or size < HEADER_SIZE or size > buffer.size - position or not good_crc(data, position, position + size):
            return batch
    return end


@work_of(_table_work)
def compare_marks(buffer: Any, table: Any, shift: int, positions: Any, digests: Any, state: Any, differs: Any) -> int:
    """See `kernels.compare_marks`. Cost: about 1 µs a batch."""
    data = memoryview(buffer)
    digest, batch, reached = int(state[0]), 0, shift
    starts, sizes = table[POSITION].tolist(), table[SIZE].tolist()
    count = min(positions.size, digests.size, differs.size)
    for mark in range(count + 1):
        last = mark == count  # the part after the last mark
        while batch < len(starts) and (last or reached < positions[mark]):
            position = starts[batch]
            if position < 0 or buffer.size - position < PREFIX_SIZE:
                return BAD_HEADER
            if digest >= 0:
                digest = extend(digest, bytes(data[position : position + PREFIX_SIZE]))
            reached = shift + position + sizes[batch]
            batch += 1
        if not last:
            if digest >= 0 and (reached != positions[mark] or digest != digests[mark]):
                differs[mark] = 1
            digest = int(digests[mark])
    state[0] = digest
    return OK


# ---- transactions ------------------------------------------------------------------------------------------------------------

_MARKER_ROWS: Final = (POSITION, SIZE, ATTRIBUTES, MAGIC, COUNT, BASE_SEQUENCE, PRODUCER_ID)
_USUAL_START: Final = USUAL_MARKER.to_bytes(8, "big")
_OUTCOMES: Final = {CONTROL_ABORT: ABORTED, CONTROL_COMMIT: COMMITTED}


@work_of(_table_work)
def outcomes_inside(buffer: Any, table: Any, slots: Any, outcomes: Any) -> int:
    """See `kernels.outcomes_inside`. Cost: about 1 µs a batch."""
    count = int(table.shape[1])
    if slots.size <= count or outcomes.size < count:
        return FULL
    data, found, nearest = memoryview(buffer), [UNDECIDED] * count, dict[int, int]()
    for batch, column in zip(range(count - 1, -1, -1), reversed(table[_MARKER_ROWS, :].T.tolist()), strict=True):
        position, size, attributes, magic, records, sequence, producer = column
        odd = sequence < 0 or records != 1
        if attributes & CONTROL_BIT or (size <= LARGEST_MARKER and magic == 2 and odd):
            if position < 0 or size < HEADER_SIZE or size > buffer.size - position or magic != 2:
                return NOT_PLAIN
            if not good_crc(data, position, position + size):
                return BAD_CRC
        if attributes & CONTROL_BIT:
            is_usual = size == HEADER_SIZE + USUAL_MARKER_SIZE and not attributes & CODEC_MASK and records == 1
            outcome = _usual_outcome(bytes(data[position + HEADER_SIZE : position + size])) if is_usual else UNDECIDED
            if outcome == UNDECIDED:
                return NOT_PLAIN
            found[batch] = nearest[producer] = outcome
        elif attributes & TRANSACTIONAL_BIT:
            found[batch] = nearest.get(producer, UNDECIDED)
    outcomes[:count] = found
    return OK


def _usual_outcome(record: bytes) -> int:
    framed = record[:8] == _USUAL_START and record[9:12] == b"\x0c\0\0" and not record[16]
    return _OUTCOMES.get(record[8], UNDECIDED) if framed else UNDECIDED
