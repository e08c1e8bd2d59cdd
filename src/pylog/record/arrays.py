"""Arrow arrays from and to Python objects and numpy. `pa.array` and `to_numpy` would first import pandas, if that is installed,
which takes a fifth of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pylog.record.few import binary_column

_FEW: Final = 1024  # from here on `pa.array` is so much faster that the import counts less


def numbers_of(array: pa.Array, kind: type) -> Any:
    """Returns an Arrow array of numbers without nulls as a numpy array. Copies nothing."""
    data, size = array.buffers()[1], np.dtype(kind).itemsize
    return np.empty(0, kind) if data is None else np.frombuffer(data, kind, len(array), array.offset * size)


def number_array(values: Any, kind: pa.DataType) -> pa.Array:
    """Returns a numpy array of numbers as an Arrow array of a type with the same size. Copies nothing."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def binary_array(items: Sequence[bytes | None]) -> pa.Array:
    """Returns byte strings as an Arrow array.

    >>> binary_array([b"a", None, b""]).to_pylist(), binary_array([None]).null_count
    ([b'a', None, b''], 1)
    """
    if len(items) >= _FEW:
        return pa.array(items, pa.binary())
    ends, data, valid = binary_column(items)
    if not ends.size:
        return pa.nulls(len(items), pa.binary())
    bitmap = pa.py_buffer(valid) if valid.size else None
    return pa.Array.from_buffers(pa.binary(), len(items), [bitmap, pa.py_buffer(ends), pa.py_buffer(data)])
