"""The time index, `.timeindex`: from a timestamp to an offset; all records with a larger timestamp come after that offset.

Entries are (largest timestamp so far, last offset of the batch that holds it), strictly increasing (storage-format 5).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from pylog.index.entries import lookup_timestamp
from pylog.index.files import valid_time_entries
from pylog.index.layout import TIME_ENTRY_SIZE, TIME_FIELDS, TIME_OFFSET_AT
from pylog.index.table import EntryTable, is_damaged, read_only


class TimestampOffset(NamedTuple):
    """A timestamp in milliseconds and the last offset of the batch that holds it."""

    timestamp: int
    offset: int


class TimeIndex(EntryTable):
    """An immutable view of a segment's time index.

    Args:
        base_offset: the segment's first offset.
        table: read-only uint8 array of 12-byte entries, memory or a mapped file.
        count: how many of them belong to the view.

    Raises:
        InvalidArgumentError: the table is too small for `count` entries.

    Spec: storage-format 5.

    >>> index, damaged = TimeIndex.from_bytes(100, bytes.fromhex("00000000000454c300000005"))
    >>> index.lookup(283_843), index.lookup(283_842), damaged
    (TimestampOffset(timestamp=283843, offset=105), TimestampOffset(timestamp=-1, offset=100), False)
    """

    ENTRY_SIZE: ClassVar[int] = TIME_ENTRY_SIZE
    OFFSET_AT: ClassVar[int] = TIME_OFFSET_AT

    __slots__ = ()

    @classmethod
    def from_bytes(cls, base_offset: int, data: Any) -> tuple[TimeIndex, bool]:
        """Takes a file's valid leading entries. Zeros after them, as in a preallocated file, are allowed.

        Args:
            base_offset: the segment's first offset.
            data: the file, as any bytes. It is not copied.

        Returns:
            The index, and whether the file contains anything else and should be rebuilt. O(n).

        Spec: storage-format 5.4, 5.7.

        >>> len(TimeIndex.from_bytes(0, bytes(120))[0])
        0
        """
        table = read_only(data)
        count = valid_time_entries(table, len(table) // TIME_ENTRY_SIZE)
        return cls(base_offset, table, count), is_damaged(table, TIME_ENTRY_SIZE, count)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry whose timestamp is at most `timestamp`; records with a larger one come after its offset.

        Args:
            timestamp: milliseconds.

        Returns:
            The entry, or (-1, base offset) if there is none. O(log n).

        Spec: storage-format 5.5.

        >>> TimeIndex(7, read_only(b""), 0).lookup(99)
        TimestampOffset(timestamp=-1, offset=7)
        """
        return TimestampOffset(*lookup_timestamp(self.table, self.count, self.base_offset, timestamp))

    def entry(self, index: int) -> TimestampOffset:
        """Returns the entry at an index, counted from 0. O(1).

        Raises:
            InvalidArgumentError: there is no entry at that index.

        >>> TimeIndex(10, read_only(bytes.fromhex("00000000000454c300000005")), 1).entry(0)
        TimestampOffset(timestamp=283843, offset=15)
        """
        timestamp, relative = TIME_FIELDS.unpack_from(self.table, self._position_of(index))
        return TimestampOffset(timestamp, self.base_offset + relative)

    @property
    def last(self) -> TimestampOffset:
        """The last entry, which has the largest timestamp; (-1, base offset) for an empty index (5.3 rule 4). O(1)."""
        return self.entry(self.count - 1) if self.count else TimestampOffset(-1, self.base_offset)
