"""Records as columns in Arrow's form, the encoder's input."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from pylog.record.format import HEADER_SIZE

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]

NO_INTS: Ints = np.empty(0, np.int32)
NO_BYTES: Bytes = np.empty(0, np.uint8)
NO_INTS.flags.writeable = False
NO_BYTES.flags.writeable = False
MAX_RECORD_OVERHEAD = 21 + HEADER_SIZE  # storage-format 1.5.5, and the batch around it
_CHUNK_ROWS = 16_384  # rows examined together: temporaries stay in the cache


class Binary(NamedTuple):
    """A column of byte strings in Arrow's form: n + 1 offsets (empty: all null), bytes, validity bits (empty: all valid)."""

    ends: Ints
    data: Bytes
    valid: Bytes

    def slice(self, first: int, end: int) -> Binary:
        """Returns the byte strings `first` to `end - 1`; copies only validity bits."""
        if not self.ends.size:
            return self
        valid = self.valid
        if valid.size:
            bits = np.unpackbits(valid[first >> 3 : (end + 7) >> 3], bitorder="little")
            valid = read_only(np.packbits(bits[first & 7 :][: end - first], bitorder="little"))
        return Binary(self.ends[first : end + 1], self.data, valid)


ALL_NULL = Binary(NO_INTS, NO_BYTES, NO_BYTES)


class Headers(NamedTuple):
    """A column of header lists: n + 1 offsets into names and values (empty: no record has any)."""

    ends: Ints
    names: Binary
    values: Binary

    def slice(self, first: int, end: int) -> Headers:
        """Returns the lists `first` to `end - 1`; copies nothing."""
        return self._replace(ends=self.ends[first : end + 1]) if self.ends.size else self


NO_HEADERS = Headers(NO_INTS, ALL_NULL, ALL_NULL)


class Rows(msgspec.Struct, frozen=True, eq=False):  # a dataclass takes a microsecond to create
    """Records as columns, ready for the encoder. Timestamps in milliseconds.

    Attributes:
        shared_time: the timestamp of all records, where it is known that they have the same; else None.
    """

    timestamps: Longs
    keys: Binary
    values: Binary
    headers: Headers = NO_HEADERS
    shared_time: int | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def slice(self, first: int, end: int) -> Rows:
        """Returns the records `first` to `end - 1`; copies only validity bits."""
        return Rows(
            self.timestamps[first:end], self.keys.slice(first, end), self.values.slice(first, end), self.headers.slice(first, end)
        )

    def stamped(self, now_ms: int) -> Rows:
        """Returns the same records with the time of the append as timestamp (LogAppendTime)."""
        return replace(self, timestamps=repeated(now_ms, len(self)), shared_time=now_ms)

    @property
    def size_bound(self) -> int:
        """An upper bound on their encoded bytes."""
        size = len(self) * MAX_RECORD_OVERHEAD + HEADER_SIZE
        for column in (self.keys, self.values):
            if column.ends.size:
                size += column.ends.item(-1) - column.ends.item(0)
        if self.headers.ends.size:
            first, end = int(self.headers.ends[0]), int(self.headers.ends[-1])  # of a slice: only a part of its columns' bytes
            size += 10 * (end - first + 1)
            for column in (self.headers.names, self.headers.values):
                size += int(column.ends[end] - column.ends[first])
        return size

    def columns(self) -> Rows:
        """Returns itself, because these are columns already."""
        return self

    def largest_record(self) -> int:
        """Returns an upper bound, in bytes, of the largest record with its batch header. Cost: one pass over the sizes."""
        headers = self.header_sizes()
        columns = [column.ends for column in (self.keys, self.values) if column.ends.size]
        largest = 0
        for first in range(0, len(self), _CHUNK_ROWS):  # small parts: fresh memory would cost more than the sums
            end = min(first + _CHUNK_ROWS, len(self))
            sizes = [np.diff(ends[first : end + 1]) for ends in columns]
            if headers is not None:
                sizes.append(headers[first:end])
            if sizes:
                total = sizes[0] if len(sizes) == 1 else reduce(partial(np.add, dtype=np.int64), sizes)
                largest = max(largest, int(total.max()))
        return largest + MAX_RECORD_OVERHEAD

    def header_count(self) -> int:
        """Returns the number of headers of all records."""
        ends = self.headers.ends
        return int(ends[-1] - ends[0]) if ends.size else 0

    def most_headers(self) -> int:
        """Returns the largest number of headers of a record."""
        return int(np.diff(self.headers.ends).max(initial=0))

    def lacks_a_key(self) -> bool:
        """Returns whether any record has no key."""
        if not self.keys.ends.size:
            return len(self) > 0
        return bool(self.keys.valid.size) and not np.unpackbits(self.keys.valid, count=len(self), bitorder="little").all()

    def time_range(self) -> tuple[int, int]:
        """Returns the smallest and the largest timestamp; (-1, -1) without rows. Cost: two passes over the timestamps."""
        stamps = self.timestamps
        if not len(stamps):
            return -1, -1
        if self.shared_time is not None:
            return self.shared_time, self.shared_time
        return int(np.minimum.reduce(stamps)), int(np.maximum.reduce(stamps))  # the arrays' methods take twice as long

    def smallest_timestamp(self) -> int:
        """Returns the smallest timestamp of the records that have one; -1 if none has."""
        stamps = self.timestamps[self.timestamps >= 0]
        return int(stamps.min()) if stamps.size else -1

    def header_sizes(self) -> Longs | None:
        """Returns an upper bound on the bytes of each record's headers; None if no record has any."""
        if not self.headers.ends.size:
            return None
        names, values = self.headers.names.ends, self.headers.values.ends
        totals = np.append(0, np.cumsum(np.diff(names).astype(np.int64) + np.diff(values) + 10))
        return np.diff(totals[self.headers.ends])


def read_only(array: Any) -> Any:
    """Returns the array, or a view of it, as read-only, as kernels require."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def repeated(number: int, count: int) -> Longs:
    """Returns an array that repeats a number, for kernels. Cost: less than `np.full`, which is Python."""
    array: Longs = np.empty(count, np.int64)
    array.fill(number)
    array.flags.writeable = False
    return array
