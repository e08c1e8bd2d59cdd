"""The types of a kernel's arguments and result, as text: numba parses them when it compiles the kernel, and is imported then."""

from __future__ import annotations

from typing import Final


class Type(str):
    """A type in numba's words. A call gives the signature of a kernel that returns it.

    >>> INT64(BYTES, BOOLEAN)
    "int64(Array(uint8, 1, 'C', readonly=True), boolean)"
    """

    __slots__ = ()

    def __call__(self, *arguments: Type) -> str:
        return f"{self}({', '.join(arguments)})"


INT64: Final = Type("int64")
UINT64: Final = Type("uint64")
BOOLEAN: Final = Type("boolean")
VOID: Final = Type("void")
PAIR: Final = Type("UniTuple(int64, 2)")

# Bytes are always passed as read-only arrays, so that one compiled version serves all.
BYTES: Final = Type("Array(uint8, 1, 'C', readonly=True)")
READ_INTS: Final = Type("Array(int32, 1, 'C', readonly=True)")
READ_LONGS: Final = Type("Array(int64, 1, 'C', readonly=True)")
READ_COLUMNS: Final = Type("Array(int64, 2, 'A', readonly=True)")  # any layout: callers pass slices of a scan table
OUT_BYTES: Final = Type("uint8[::1]")
OUT_INTS: Final = Type("int32[::1]")
OUT_LONGS: Final = Type("int64[::1]")
OUT_WORDS: Final = Type("uint64[::1]")
OUT_TABLE: Final = Type("int64[:, ::1]")
