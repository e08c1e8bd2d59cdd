"""The transaction index, `.txnindex`: the aborted transactions that end in a segment (storage-format 3.9).

An entry has 34 bytes: version 0, producer id, first offset, offset of the ABORT marker, last stable offset at the abort.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Any, Final, NamedTuple

from pylog.errors import InvalidArgumentError

_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = 34
assert _ENTRY.size == ENTRY_SIZE


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: readers of committed records skip its records.

    Attributes:
        producer_id: the producer of its records.
        first_offset: offset of its first record, which may be in an earlier segment.
        last_offset: offset of the ABORT marker.
        last_stable_offset: the last stable offset when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encoded(self) -> bytes:
        """Returns the entry in file format, 34 bytes.

        >>> AbortedTransaction(1, 2, 3, 4).encoded().hex()
        '00000000000000000001000000000000000200000000000000030000000000000004'
        """
        return _ENTRY.pack(0, *self)


class TransactionIndex:
    """An immutable view of a segment's aborted transactions, in the order of their last offsets.

    Args:
        base_offset: the segment's first offset.

    Spec: storage-format 3.9.

    >>> index = TransactionIndex(0).appended(AbortedTransaction(7, 10, 20, 21))
    >>> index.collect(15, 40)
    ([AbortedTransaction(producer_id=7, first_offset=10, last_offset=20, last_stable_offset=21)], False)
    """

    __slots__ = ("_entries", "_last_offsets", "_stable_offsets", "base_offset", "count")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.count = 0
        # Three lists of equal length that views share. They only grow, and a view reads only its first `count` items.
        self._entries: list[AbortedTransaction] = []
        self._last_offsets: list[int] = []
        self._stable_offsets: list[int] = []  # the largest so far: sorted even if a file's are not

    @classmethod
    def from_bytes(cls, base_offset: int, data: Any) -> tuple[TransactionIndex, bool]:
        """Takes a file's valid leading entries. A partial entry at the end is ignored.

        Args:
            base_offset: the segment's first offset.
            data: the file, as any bytes.

        Returns:
            The index, and whether an entry is invalid and the file should be rebuilt. O(n).

        Spec: storage-format 3.9.1-3.

        >>> index, damaged = TransactionIndex.from_bytes(0, AbortedTransaction(7, 10, 20, 21).encoded() + b"torn")
        >>> len(index), damaged
        (1, False)
        """
        index = cls(base_offset)
        whole = len(data) - len(data) % ENTRY_SIZE
        for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole]):
            entry = AbortedTransaction(*fields)
            # Kafka compares only the version's first byte, so the second may hold anything (3.9.2).
            if version >> 8 or not index._accepts(entry):
                return index, True
            index._push(entry)
        return index, False

    def __len__(self) -> int:
        return self.count

    def entry(self, index: int) -> AbortedTransaction:
        """Returns the entry at an index, counted from 0. O(1).

        Raises:
            InvalidArgumentError: there is no entry at that index.
        """
        if not 0 <= index < self.count:
            raise InvalidArgumentError(f"there is no entry {index} in an index of {self.count}", offset=self.base_offset)
        return self._entries[index]

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """Returns the aborted transactions that have records in a range of offsets, as far as this segment's index shows.

        Args:
            fetch_offset: the first offset to read.
            upper_bound: the exclusive end of the range.

        Returns:
            The transactions, and whether they are complete; if not, the next segment's index must be read too.
            O(log n + m) for m entries in the range.

        Spec: storage-format 3.9.5.
        """
        stop = bisect_left(self._stable_offsets, upper_bound, 0, self.count)  # the entry that proves completeness
        start = bisect_left(self._last_offsets, fetch_offset, 0, self.count)
        entries = self._entries[start : min(stop + 1, self.count)]
        return [entry for entry in entries if entry.first_offset < upper_bound], stop < self.count

    def appended(self, entry: AbortedTransaction) -> TransactionIndex:
        """Returns the index with one more entry; this view does not change.

        Raises:
            InvalidArgumentError: the entry does not end after the last one, after its own start, and in this segment.

        O(1), or O(n) if another view has already appended.

        Spec: storage-format 3.9.1.
        """
        if not self._accepts(entry):
            raise InvalidArgumentError(f"{entry} cannot follow in the transaction index", offset=entry.last_offset)
        longer = self._view(self.count)
        if longer.count < len(longer._entries):
            longer._unshare()
        longer._push(entry)
        return longer

    def truncated(self, offset: int) -> TransactionIndex:
        """Returns the index without the transactions that end at `offset` or later. O(log n).

        Spec: storage-format 3.9.4.

        >>> len(TransactionIndex(0).appended(AbortedTransaction(7, 10, 20, 21)).truncated(20))
        0
        """
        return self._view(bisect_left(self._last_offsets, offset, 0, self.count))

    def encoded(self) -> bytes:
        """Returns the content of the file. O(n)."""
        return b"".join(entry.encoded() for entry in self._entries[: self.count])

    def _accepts(self, entry: AbortedTransaction) -> bool:
        """Returns whether an entry may follow. A marker comes after its transaction's records, so zeros are never an entry."""
        previous = self._last_offsets[self.count - 1] if self.count else self.base_offset - 1
        return entry.last_offset > previous and entry.last_offset > entry.first_offset

    def _push(self, entry: AbortedTransaction) -> None:
        stable = max(entry.last_stable_offset, self._stable_offsets[-1]) if self.count else entry.last_stable_offset
        self._stable_offsets.append(stable)
        self._last_offsets.append(entry.last_offset)
        self._entries.append(entry)
        self.count += 1

    def _view(self, count: int) -> TransactionIndex:
        view = TransactionIndex(self.base_offset)
        view.count = count
        view._entries, view._last_offsets, view._stable_offsets = self._entries, self._last_offsets, self._stable_offsets
        return view

    def _unshare(self) -> None:
        """Copies the lists, without the items of other views."""
        self._entries = self._entries[: self.count]
        self._last_offsets = self._last_offsets[: self.count]
        self._stable_offsets = self._stable_offsets[: self.count]
