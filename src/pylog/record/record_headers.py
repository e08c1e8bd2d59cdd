"""The kernel that decodes the headers of records."""

from __future__ import annotations

from typing import Any

from pylog.record.kernel import kernel
from pylog.record.kernels import BAD_RECORD, FULL, OK
from pylog.record.memory import address, clear_bit, memcpy, varint
from pylog.record.signatures import BYTES, INT64, OUT_BYTES, OUT_INTS, OUT_LONGS, READ_LONGS


@kernel(
    INT64(BYTES, READ_LONGS, OUT_LONGS, OUT_INTS, OUT_INTS, OUT_BYTES, OUT_INTS, OUT_BYTES, OUT_BYTES),
    pure="pylog.record.pure_finding:decode_headers",
)
def decode_headers(
    buffer: Any,
    headers_at: Any,
    state: Any,
    list_ends: Any,
    name_ends: Any,
    name_bytes: Any,
    value_ends: Any,
    value_bytes: Any,
    value_valid: Any,
) -> int:
    """Decodes the headers of rows state[0] to state[1] - 1, at positions checked by decode_records, into Arrow's buffers.

    state = [row, end row, headers, name bytes, value bytes, value nulls]. FULL if an output is full.
    """
    start = address(buffer)
    end = start + buffer.size
    names = address(name_bytes)
    values = address(value_bytes)
    valid = address(value_valid)
    n = state[2]
    name_end = state[3]
    value_end = state[4]
    nulls = state[5]
    for row in range(state[0], state[1]):
        count, q = varint(start + headers_at[row], end)
        if q > end or count < 0 or count > end - q:
            return BAD_RECORD
        if n + count >= name_ends.size or n + count >= value_ends.size or n + count > value_valid.size * 8:
            return FULL
        list_ends[row] = n
        for _ in range(count):
            size, q = varint(q, end)
            if q > end or size < 0 or size > end - q:
                return BAD_RECORD
            if size > name_bytes.size - name_end:
                return FULL
            name_ends[n] = name_end
            memcpy(names + name_end, q, size)
            name_end += size
            size, q = varint(q + size, end)
            if q > end or size > end - q:
                return BAD_RECORD
            value_ends[n] = value_end
            if size < 0:
                clear_bit(valid, n)
                nulls += 1
            elif size > value_bytes.size - value_end:
                return FULL
            else:
                memcpy(values + value_end, q, size)
                value_end += size
                q += size
            n += 1
        list_ends[row + 1] = n
        name_ends[n] = name_end
        value_ends[n] = value_end
        state[0] = row + 1
        state[2] = n
        state[3] = name_end
        state[4] = value_end
        state[5] = nulls
    return OK
