"""The headers of records as an Arrow column, and the bound on how many of them a batch may have."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import DecompressionLimitError, RecordTooLargeError
from pylog.record import kernels, record_headers
from pylog.record.batch import Bytes
from pylog.record.layouts import HEADERS_TYPE

LEAST_HEADER_BYTES: Final = 2  # an empty name and no value
_ZEROS = np.zeros(limits.SCAN_ROWS + 1, np.int32)  # the ends of as many empty lists, shared by all frames
_ZEROS.flags.writeable = False
_NO_PAIRS = pa.nulls(0, HEADERS_TYPE.value_type)


def too_many_headers() -> DecompressionLimitError:
    """Returns the error for a batch whose headers would take too much memory as objects."""
    most = limits.MAX_BATCH_HEADERS
    return DecompressionLimitError(
        f"it has more than {most} headers; scan it without the column 'headers', which pylog cannot hold"
    )


def check_headers(count: int, whose: str) -> None:
    """Raises RecordTooLargeError for more headers in a batch than pylog reads.

    >>> check_headers(3, "a record")
    """
    if count > limits.MAX_BATCH_HEADERS:
        message = f"{whose} with {count} headers has more than the {limits.MAX_BATCH_HEADERS} that pylog reads in a batch"
        raise RecordTooLargeError(f"{message}; use fewer headers, or move their content to the value")


def has_too_many_headers(buffer: Bytes, headers_at: NDArray[np.int64]) -> bool:
    """Returns whether the records of a batch, whose positions decode_records has checked, have too many headers together."""
    return sum(_count(buffer, at) for at in headers_at.tolist()) > limits.MAX_BATCH_HEADERS


def _count(buffer: Bytes, at: int) -> int:
    """Returns a count that decode_records has checked."""
    value = shift = 0
    while True:
        byte = int(buffer[at])
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1
        at, shift = at + 1, shift + 7


def no_headers(rows: int) -> pa.Array:
    """Returns a headers column of empty lists."""
    ends = _ZEROS if rows < _ZEROS.size else np.zeros(rows + 1, np.int32)
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(ends)], 0, children=[_NO_PAIRS])


def read_headers(buffer: Bytes, headers_at: NDArray[np.int64]) -> pa.Array:
    """Returns the headers column of some rows, whose positions decode_records has checked."""
    rows = len(headers_at)
    room = np.array([rows * 2 + 16, 4096, 4096], np.int64)
    headers_at.flags.writeable = False
    while True:
        list_ends = np.zeros(rows + 1, np.int32)
        name_ends, value_ends = np.zeros(room[0] + 1, np.int32), np.zeros(room[0] + 1, np.int32)
        names, values = np.empty(room[1], np.uint8), np.empty(room[2], np.uint8)
        valid = np.full(-(-int(room[0]) // 8) + 1, 255, np.uint8)
        state = np.array([0, rows, 0, 0, 0, 0], np.int64)
        status = record_headers.decode_headers(buffer, headers_at, state, list_ends, name_ends, names, value_ends, values, valid)
        if status != kernels.FULL:
            break
        room = np.minimum(room * 4, 2 * buffer.size + rows + 64)
    count = int(state[2])
    key_column = _names(count, name_ends, names[: state[3]])
    buffers = [pa.py_buffer(valid) if state[5] else None, pa.py_buffer(value_ends), pa.py_buffer(values[: state[4]])]
    value_column = pa.Array.from_buffers(pa.binary(), count, buffers)
    pairs = pa.StructArray.from_arrays([key_column, value_column], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(list_ends), pairs).cast(HEADERS_TYPE)


def _names(count: int, ends: NDArray[np.int32], data: Bytes) -> pa.Array:
    """Returns header names as strings. Invalid UTF-8 is replaced, as in Java's reader."""
    column = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    try:
        column.validate(full=True)
        return column
    except pa.ArrowInvalid:
        return pa.array([bytes(data[ends[i] : ends[i + 1]]).decode("utf-8", "replace") for i in range(count)], pa.string())
