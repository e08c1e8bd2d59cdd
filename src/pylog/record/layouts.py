"""Converts Arrow's layouts of the same values: large and view types, dictionaries, runs and all kinds of lists become plain ones.

polars writes large and view types, pandas dictionaries, DuckDB and Spark plain types. A layout is not a value: the same text,
bytes or list of pairs in any layout is the same record.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Longs = NDArray[np.int64]
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# The columns in which `pylog cat` and the window export records.
EXPORT_SCHEMA: Final = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
    }
)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,
)
_LISTS: Final = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_fixed_size_list,
)


def value_type(given: pa.DataType) -> pa.DataType:
    """Returns the type of the values inside an encoding: a dictionary, runs, an extension type.

    >>> value_type(pa.dictionary(pa.int8(), pa.large_string()))
    DataType(large_string)
    """
    while True:
        if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):
            given = given.value_type
        elif isinstance(given, pa.BaseExtensionType):
            given = given.storage_type
        else:
            return given


def is_bytes(given: pa.DataType) -> bool:
    """Returns whether the values are text or bytes, or all null."""
    kind = value_type(given)
    return any(test(kind) for test in _BYTES)


def is_headers(given: pa.DataType) -> bool:
    """Returns whether the values are lists of pairs: a map, or any list of structs of a key and a value."""
    kind = value_type(given)
    if pa.types.is_null(kind):
        return True
    if pa.types.is_map(kind):
        return is_bytes(kind.key_type) and is_bytes(kind.item_type)
    if not any(test(kind) for test in _LISTS):
        return False
    pair = value_type(kind.value_type)
    fields = {field.name: field.type for field in pair} if pa.types.is_struct(pair) else {}
    return fields.keys() == {"key", "value"} and len(pair) == 2 and all(map(is_bytes, fields.values()))


def decoded(column: pa.Array) -> pa.Array:
    """Returns the values without their encoding."""
    while column.type != value_type(column.type):
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        else:
            column = pc.run_end_decode(column)
    return column


def plain_headers(column: pa.Array) -> pa.Array:
    """Returns a column of headers as `HEADERS_TYPE`, with an empty list for each null.

    Arrow's own casts are unusable here: from list views with nulls they produce lists that crash the process when read.

    Raises:
        pa.ArrowInvalid: a name is not UTF-8, or the names exceed 2 GiB.
    """
    column = decoded(column)
    if pa.types.is_null(column.type):
        column = column.cast(HEADERS_TYPE)
    starts, sizes = _ranges(column)
    total = int(sizes.sum())
    if total > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"the column has {total} headers; the limit is {np.iinfo(np.int32).max}")
    ends = np.concatenate(([0], np.cumsum(sizes)))
    pairs = _pairs(column).take(pa.array(np.repeat(starts - ends[:-1], sizes) + np.arange(total)))
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), pairs, type=HEADERS_TYPE)


def _ranges(column: Any) -> tuple[Longs, Longs]:
    """Returns where each list begins in the column's pairs, and its length: 0 for a null."""
    count, kind = len(column), column.type
    if pa.types.is_fixed_size_list(kind):
        starts, sizes = (np.arange(count) + column.offset) * kind.list_size, np.full(count, kind.list_size)
    elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        starts, sizes = np.asarray(column.offsets), np.asarray(column.sizes)
    else:
        ends = np.asarray(column.offsets)
        starts, sizes = ends[:-1], np.diff(ends)
    if column.null_count:
        sizes = sizes * column.is_valid().to_numpy(zero_copy_only=False)
    return starts.astype(np.int64), sizes.astype(np.int64)


def _pairs(column: Any) -> pa.Array:
    """Returns the pairs of all lists of a column, in the types of `HEADERS_TYPE`."""
    if pa.types.is_map(column.type):
        names, values, absent = column.keys, column.items, None
    else:
        structs = decoded(column.values)
        names, values, absent = structs.field("key"), structs.field("value"), structs.is_null()
    arrays = [decoded(names).cast(pa.string()), decoded(values).cast(pa.binary())]
    return pa.StructArray.from_arrays(arrays, fields=list(HEADERS_TYPE.value_type), mask=absent)
