"""The offset index, `.index`: from an offset to a position before which there is no record of that offset or a later one.

Entries are (last offset of a batch, position of that batch), sparse, strictly increasing (storage-format 4).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from pylog.index.entries import lookup_offset
from pylog.index.files import count_at_most, valid_offset_entries
from pylog.index.layout import OFFSET_ENTRY_SIZE, OFFSET_FIELDS, POSITION_AT
from pylog.index.table import EntryTable, is_damaged, read_only


class OffsetPosition(NamedTuple):
    """The last offset of a batch and the position, in bytes, of that batch in its `.log` file."""

    offset: int
    position: int


class OffsetIndex(EntryTable):
    """An immutable view of a segment's offset index.

    Args:
        base_offset: the segment's first offset.
        table: read-only uint8 array of 8-byte entries, memory or a mapped file.
        count: how many of them belong to the view.

    Raises:
        InvalidArgumentError: the table is too small for `count` entries.

    Spec: storage-format 4.

    >>> index, damaged = OffsetIndex.from_bytes(100, bytes.fromhex("0000000500001388"), log_size=6000)
    >>> index.lookup(107), index.lookup(104), damaged
    (OffsetPosition(offset=105, position=5000), OffsetPosition(offset=100, position=0), False)
    """

    ENTRY_SIZE: ClassVar[int] = OFFSET_ENTRY_SIZE
    OFFSET_AT: ClassVar[int] = 0

    __slots__ = ()

    @classmethod
    def from_bytes(cls, base_offset: int, data: Any, log_size: int) -> tuple[OffsetIndex, bool]:
        """Takes a file's valid leading entries. Zeros after them, as in a preallocated file, are allowed.

        Args:
            base_offset: the segment's first offset.
            data: the file, as any bytes. It is not copied.
            log_size: bytes of the `.log` file. If a broker may be running, determine it after the index was read.

        Returns:
            The index, and whether the file contains anything else and should be rebuilt. O(n).

        Spec: storage-format 4.5.2, 4.7.

        >>> OffsetIndex.from_bytes(0, bytes(80), log_size=10)[1]
        False
        """
        table = read_only(data)
        count = valid_offset_entries(table, len(table) // OFFSET_ENTRY_SIZE, log_size)
        return cls(base_offset, table, count), is_damaged(table, OFFSET_ENTRY_SIZE, count)

    def lookup(self, offset: int) -> OffsetPosition:
        """Returns the last entry whose offset is at most `offset`: a scan for that offset starts there.

        Returns:
            The entry, or (base offset, 0) if there is none. O(log n).

        Spec: storage-format 4.4.1.

        >>> OffsetIndex(7, read_only(b""), 0).lookup(99)
        OffsetPosition(offset=7, position=0)
        """
        return OffsetPosition(*lookup_offset(self.table, self.count, self.base_offset, offset))

    def upper(self, offset: int) -> OffsetPosition | None:
        """Returns the first entry whose offset is at least `offset`.

        Returns:
            The entry, or None. O(log n).

        >>> index = OffsetIndex(0, read_only(bytes.fromhex("0000000500001388")), 1)
        >>> index.upper(5), index.upper(6)
        (OffsetPosition(offset=5, position=5000), None)
        """
        return self._at(self._count_before(offset))

    def lower(self, offset: int) -> OffsetPosition:
        """Returns the last entry whose offset is below `offset`.

        Returns:
            The entry, or (base offset, 0) if there is none. O(log n).

        >>> index = OffsetIndex(0, read_only(bytes.fromhex("0000000500001388")), 1)
        >>> index.lower(6), index.lower(5)
        (OffsetPosition(offset=5, position=5000), OffsetPosition(offset=0, position=0))
        """
        count = self._count_before(offset)
        return self.entry(count - 1) if count else OffsetPosition(self.base_offset, 0)

    def upper_bound_offset(self, position: int) -> int | None:
        """Returns the offset of the first entry whose position is at least `position`: the most that such a fetch can reach.

        Args:
            position: in bytes: the fetch's start plus its size.

        Returns:
            An offset, or None if the fetch may reach the segment's end. O(log n).

        Spec: storage-format 4.4.4.

        >>> index = OffsetIndex(0, read_only(bytes.fromhex("0000000500001388")), 1)
        >>> index.upper_bound_offset(5000), index.upper_bound_offset(5001)
        (5, None)
        """
        entry = self._at(count_at_most(self.table, OFFSET_ENTRY_SIZE, POSITION_AT, self.count, position - 1))
        return None if entry is None else entry.offset

    def entry(self, index: int) -> OffsetPosition:
        """Returns the entry at an index, counted from 0. O(1).

        Raises:
            InvalidArgumentError: there is no entry at that index.

        >>> OffsetIndex(10, read_only(bytes.fromhex("0000000500001388")), 1).entry(0)
        OffsetPosition(offset=15, position=5000)
        """
        relative, position = OFFSET_FIELDS.unpack_from(self.table, self._position_of(index))
        return OffsetPosition(self.base_offset + relative, position)

    @property
    def last(self) -> OffsetPosition:
        """The last entry, or (base offset, 0) of an empty index (4.5.7). O(1)."""
        return self.entry(self.count - 1) if self.count else OffsetPosition(self.base_offset, 0)

    def _at(self, index: int) -> OffsetPosition | None:
        return self.entry(index) if index < self.count else None
