"""The base of offset index and time index: an immutable view of sorted entries in a read-only byte array.

The array is a mapped file or memory. Entries below a view's count never change, so any thread may search a view while a
writer appends beyond that count.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from pylog.errors import InvalidArgumentError
from pylog.index.files import count_at_most, zero_filled

TAIL_CHECK_BYTES: Final = 4096  # how far after the last entry to search for damage: reading all of a sparse 10 MiB costs 1 ms


def read_only(data: Any) -> Any:
    """Views bytes of any kind as the read-only uint8 array that kernels take.

    Args:
        data: bytes, a memoryview, a map or a contiguous array.

    Returns:
        A view, no copy. O(1).

    >>> read_only(b"ab").tolist()
    [97, 98]
    """
    view = np.frombuffer(data, np.uint8)
    view.flags.writeable = False
    return view


class EntryTable:
    """Entries of one size, sorted, in a read-only byte array.

    Attributes:
        base_offset: the segment's first offset, to which entries are relative.
        count: how many entries there are.
        table: read-only uint8 array; its first `count` entries belong to the view.
    """

    ENTRY_SIZE: ClassVar[int]
    OFFSET_AT: ClassVar[int]  # position of the int32 relative offset in an entry

    __slots__ = ("base_offset", "count", "table")

    def __init__(self, base_offset: int, table: Any, count: int) -> None:
        if not 0 <= count <= len(table) // self.ENTRY_SIZE:
            raise InvalidArgumentError(f"an index of {len(table)} bytes cannot hold {count} entries", offset=base_offset)
        self.base_offset = base_offset
        self.count = count
        self.table = table

    def __len__(self) -> int:
        return self.count

    def encoded(self, first: int = 0) -> bytes:
        """Returns the entries from index `first` on, in file format. O(n), a copy."""
        return bytes(self.table[first * self.ENTRY_SIZE : self.count * self.ENTRY_SIZE])

    def _position_of(self, index: int) -> int:
        """Returns the position of an entry in the table."""
        if not 0 <= index < self.count:
            raise InvalidArgumentError(f"there is no entry {index} in an index of {self.count}", offset=self.base_offset)
        return index * self.ENTRY_SIZE

    def _count_before(self, offset: int) -> int:
        """Returns how many entries have an offset below `offset`. O(log n)."""
        return count_at_most(self.table, self.ENTRY_SIZE, self.OFFSET_AT, self.count, offset - self.base_offset - 1)


def is_damaged(table: Any, entry_size: int, count: int) -> bool:
    """Returns whether a file has anything but zeros after its valid entries, or a partial entry at its end (4.7.1).

    The last four bytes of an entry are written last, so an entry that lacks only these is being written, not damaged.

    Args:
        table: read-only uint8 array, the whole file.
        entry_size: bytes.
        count: the number of valid leading entries.

    Returns:
        Whether the file should be rebuilt. O(1): reads `TAIL_CHECK_BYTES` at most.

    >>> is_damaged(read_only(bytes(80)), 8, 0), is_damaged(read_only(bytes(81)), 8, 0)
    (False, True)
    """
    if len(table) % entry_size:
        return True
    tail = (count + 1) * entry_size - 4
    return not zero_filled(table, tail, tail + TAIL_CHECK_BYTES)
