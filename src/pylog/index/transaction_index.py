"""The transaction index, `.txnindex`: the aborted transactions that end in a segment (storage-format 3.9).

An entry has 34 bytes: version 0, producer id, first offset, offset of the ABORT marker, last stable offset at the abort.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import takewhile
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
    """An immutable list of a segment's aborted transactions, in the order of their last offsets.

    Args:
        base_offset: the segment's first offset.
        entries: the transactions.

    Attributes:
        base_offset, entries: as given.

    Raises:
        InvalidArgumentError: an entry does not end after the one before it, after its own start, and in this segment.

    Spec: storage-format 3.9.

    >>> TransactionIndex(0, [AbortedTransaction(7, 10, 20, 21)]).entries
    (AbortedTransaction(producer_id=7, first_offset=10, last_offset=20, last_stable_offset=21),)
    """

    __slots__ = ("base_offset", "entries")

    def __init__(self, base_offset: int, entries: Iterable[AbortedTransaction] = ()) -> None:
        self.base_offset = base_offset
        self.entries = tuple(entries)
        valid = _valid(base_offset, self.entries)
        if valid < len(self.entries):
            wrong = self.entries[valid]
            raise InvalidArgumentError(f"{wrong} cannot follow in the transaction index", offset=wrong.last_offset)

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
        whole = len(data) - len(data) % ENTRY_SIZE
        rows = list(_ENTRY.iter_unpack(memoryview(data)[:whole]))
        # Kafka compares only the version's first byte, so the second may hold anything (3.9.2).
        known = [AbortedTransaction(*fields) for version, *fields in takewhile(lambda row: not row[0] >> 8, rows)]
        valid = _valid(base_offset, known)
        return cls(base_offset, known[:valid]), valid < len(rows)

    def __len__(self) -> int:
        """Returns how many transactions there are."""
        return len(self.entries)

    def extended(self, entries: Iterable[AbortedTransaction]) -> TransactionIndex:
        """Returns the index with more entries. Raises as the constructor. O(n)."""
        return TransactionIndex(self.base_offset, (*self.entries, *entries))

    def encoded(self) -> bytes:
        """Returns the content of the file. O(n)."""
        return b"".join(entry.encoded() for entry in self.entries)


def _valid(base_offset: int, entries: Iterable[AbortedTransaction]) -> int:
    """Returns how many leading entries are in order. A marker comes after its transaction's records, so zeros are no entry."""
    previous, count = base_offset - 1, 0
    for entry in entries:
        if not entry.last_offset > max(previous, entry.first_offset):
            break
        previous, count = entry.last_offset, count + 1
    return count
