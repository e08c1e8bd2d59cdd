"""Turns lists of byte strings into columns: msgspec writes a list as MessagePack, and a kernel removes the bytes in between.

For a thousand values of 100 bytes this takes half as long as Arrow, which passes each object through a builder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from pylog import limits
from pylog.record.kernel import kernel
from pylog.record.kernels import BAD_RECORD, FULL, OK, TORN
from pylog.record.memory import address, be16, be32, i64, load8, memmove
from pylog.record.rows import NO_BYTES, Binary, read_only
from pylog.record.signatures import INT64, OUT_BYTES, OUT_INTS

_ENCODER: Final = msgspec.msgpack.Encoder()
_BIN_8, _BIN_16, _BIN_32 = 0xC4, 0xC5, 0xC6  # a size of one, two or four bytes follows, and the string
_ARRAY_16, _ARRAY_32 = 16, 1 << 16  # from this count on, the count before the values has two or four bytes


@kernel(INT64(OUT_BYTES, INT64, INT64, OUT_INTS), nogil=False, pure="pylog.record.pure_encoding:join_packed")
def join_packed(buffer: Any, position: int, end: int, ends: Any) -> int:
    """Joins the byte strings that MessagePack has from `position` on, at the buffer's front.

    `ends` receives Arrow's offsets: one more than the expected strings. TORN: there are fewer strings. BAD_RECORD: one is not a
    byte string. FULL: they exceed 2 GiB.
    """
    start = address(buffer)
    at = start + max(position, 0)
    stop = start + min(end, buffer.size)
    target = start
    if ends.size:
        ends[0] = 0
    for index in range(1, ends.size):
        if stop - at < 2:
            return TORN
        kind = i64(load8(at))
        if kind == _BIN_8:
            size = i64(load8(at + 1))
            at += 2
        elif kind == _BIN_16:
            if stop - at < 3:
                return TORN
            size = be16(at + 1) & 0xFFFF
            at += 3
        elif kind == _BIN_32:
            if stop - at < 5:
                return TORN
            size = be32(at + 1) & 0xFFFFFFFF
            at += 5
        else:
            return BAD_RECORD
        if size > stop - at:
            return TORN
        if size > limits.INT32_MAX - (target - start):
            return FULL
        memmove(target, at, size)
        target += size
        at += size
        ends[index] = target - start
    return OK


def packed_column(values: Sequence[Any]) -> Binary | None:
    """Returns a column of byte strings; None if they exceed 2 GiB, or one of them is not bytes, or is null.

    Cost: about 15 ns a value of 100 bytes; nothing if the first one is not bytes.

    >>> packed_column([b"a", bytearray(b"bc")]).ends.tolist()
    [0, 1, 3]
    >>> packed_column([b"a", "bc"])
    """
    if values and not isinstance(values[0], bytes):
        return None
    data = bytearray()
    try:
        _ENCODER.encode_into(values, data)
    except (TypeError, ValueError, OverflowError, BufferError, RecursionError):  # values that are not byte strings
        return None
    buffer, ends = np.frombuffer(data, np.uint8), np.empty(len(values) + 1, np.int32)
    before = 1 if len(values) < _ARRAY_16 else 3 if len(values) < _ARRAY_32 else 5
    if join_packed(buffer, before, len(data), ends) != OK:
        return None
    return Binary(read_only(ends), read_only(buffer), NO_BYTES)
