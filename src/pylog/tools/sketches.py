"""Summaries with bounded memory that can be added: histograms of sizes, amounts over time, distinct keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pylog.partitioner import hashes

Ints = NDArray[np.int64]

_POWERS: Final = 64
_MOST_SPANS: Final = 512
_REGISTER_BITS: Final = 14
_RANK_BITS: Final = 31 - _REGISTER_BITS  # hashes are positive, with 31 bits


class Bar(NamedTuple):
    """The number of batches with a size from `low` to `high`, both inclusive."""

    low: int
    high: int
    batches: int


class Powers:
    """A histogram with a bar for each power of two.

    >>> powers = Powers()
    >>> powers.add(np.array([1, 3, 2, 5]))
    >>> [tuple(bar) for bar in powers.bars()]
    [(1, 1, 1), (2, 3, 2), (4, 7, 1)]
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_POWERS, np.int64)
        self.total = 0
        self.largest = 0

    def add(self, values: Ints) -> None:
        """Adds values. Values below 1 count as 1."""
        if values.size:
            powers = np.frexp(np.maximum(values, 1).astype(np.float64))[1] - 1
            self._counts += np.bincount(powers, minlength=_POWERS)
            self.total += int(values.sum())
            self.largest = max(self.largest, int(values.max()))

    def __iadd__(self, other: Powers) -> Self:
        self._counts += other._counts
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        return self

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self._counts.sum())

    @property
    def mean(self) -> float:
        """The mean of all values; 0 without values."""
        return self.total / self.count if self.count else 0.0

    def bars(self) -> Iterator[Bar]:
        """Yields the bars from the smallest value to the largest."""
        used = np.flatnonzero(self._counts)
        for power in range(int(used[0]), int(used[-1]) + 1) if used.size else ():
            yield Bar(1 << power, (2 << power) - 1, int(self._counts[power]))


class ValueSpan(NamedTuple):
    """Records and bytes from `start` (inclusive) to `end` (exclusive), in milliseconds since 1970."""

    start: int
    end: int
    records: int
    bytes: int


class Timeline:
    """Records and bytes over event time, in at most 512 spans of equal length, a power of two of milliseconds.

    Spans grow if there would be more of them.

    >>> line = Timeline()
    >>> line.add(np.array([5, 6, 5]), np.array([1, 1, 1]), np.array([10, 10, 10]))
    >>> list(line.spans())
    [ValueSpan(start=5, end=6, records=2, bytes=20), ValueSpan(start=6, end=7, records=1, bytes=10)]
    """

    def __init__(self) -> None:
        self._shift = 0
        self._spans: dict[int, tuple[int, int]] = {}
        self.first: int | None = None
        self.last: int | None = None

    def add(self, stamps: Ints, records: Ints, sizes: Ints) -> None:
        """Adds batches: columns of the same length. Batches without a timestamp (-1) are ignored."""
        timed = stamps >= 0
        if not timed.any():
            return
        stamps = stamps[timed]
        self._reach(int(stamps.min()), int(stamps.max()))
        spans, slot = np.unique(stamps >> self._shift, return_inverse=True)
        added = (np.bincount(slot, each[timed]).astype(np.int64).tolist() for each in (records, sizes))
        for span, count, size in zip(spans.tolist(), *added, strict=True):
            self._put(span, count, size)
        self._narrow()

    def reach(self, stamps: Ints) -> None:
        """Extends the timeline to some timestamps without adding records. -1 is ignored."""
        timed = stamps[stamps >= 0]
        if timed.size:
            self._reach(int(timed.min()), int(timed.max()))

    def _reach(self, first: int, last: int) -> None:
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)

    def _put(self, span: int, records: int, size: int) -> None:
        before = self._spans.get(span, (0, 0))
        self._spans[span] = before[0] + records, before[1] + size

    def _narrow(self) -> None:
        while len(self._spans) > _MOST_SPANS:
            self._widen()

    def _widen(self) -> None:
        spans, self._spans, self._shift = self._spans, {}, self._shift + 1
        for span, (records, size) in spans.items():
            self._put(span >> 1, records, size)

    def __iadd__(self, other: Timeline) -> Self:
        if other.first is None or other.last is None:
            return self
        self._reach(other.first, other.last)
        while self._shift < other._shift:
            self._widen()
        for span, (records, size) in other._spans.items():
            self._put(span >> (self._shift - other._shift), records, size)
        self._narrow()
        return self

    @property
    def seconds(self) -> float:
        """The time from the first to the last timestamp."""
        return 0.0 if self.first is None or self.last is None else (self.last - self.first) / 1000

    def spans(self) -> Iterator[ValueSpan]:
        """Yields the spans with records, in order."""
        width = 1 << self._shift
        for span in sorted(self._spans):
            yield ValueSpan(span * width, (span + 1) * width, *self._spans[span])

    def columns(self, count: int) -> list[ValueSpan]:
        """Returns spans of equal length from the first to the last timestamp, including empty ones.

        Args:
            count: maximal number of spans.
        """
        if self.first is None or self.last is None:
            return []
        low, high = self.first >> self._shift, self.last >> self._shift
        each = -(-(high - low + 1) // count)
        width = each << self._shift
        start = low << self._shift
        sums = np.zeros(((high - low) // each + 1, 2), np.int64)
        for span, amounts in self._spans.items():
            sums[(span - low) // each] += amounts
        return [ValueSpan(start + at * width, start + (at + 1) * width, *pair) for at, pair in enumerate(sums.tolist())]


class Distinct:
    """Estimates the number of distinct keys with an error of about 2 %: a HyperLogLog over Kafka's hash of keys.

    Attributes:
        keys: number of keys, including repetitions.
        nulls: number of records without a key.
        size: total size of all keys in bytes.

    >>> distinct = Distinct()
    >>> distinct.add(pa.array([b"a", b"b", b"a", None], pa.binary()))
    >>> distinct.estimate(), distinct.keys, distinct.nulls, distinct.size
    (2, 3, 1, 3)
    """

    def __init__(self) -> None:
        self._ranks = np.zeros(1 << _REGISTER_BITS, np.uint8)  # per register: the largest number of leading zeros, plus one
        self.keys = 0
        self.nulls = 0
        self.size = 0

    def add(self, keys: pa.BinaryArray) -> None:
        """Adds a column of keys. Cost: about 20 ns per key."""
        self.nulls += keys.null_count
        present = keys.drop_null() if keys.null_count else keys
        self.keys += len(present)
        self.size += pc.sum(pc.binary_length(present)).as_py() or 0
        found = hashes(present)
        zeros = _RANK_BITS - np.frexp((found >> _REGISTER_BITS).astype(np.float64))[1]
        np.maximum.at(self._ranks, found & ((1 << _REGISTER_BITS) - 1), (zeros + 1).astype(np.uint8))

    def __iadd__(self, other: Distinct) -> Self:
        np.maximum(self._ranks, other._ranks, out=self._ranks)
        self.keys += other.keys
        self.nulls += other.nulls
        self.size += other.size
        return self

    def estimate(self) -> int:
        """Returns the estimated number of distinct keys. Records without a key are ignored."""
        registers, empty = self._ranks.size, int((self._ranks == 0).sum())
        found = 0.7213 / (1 + 1.079 / registers) * registers**2 / float(np.exp2(-self._ranks.astype(np.float64)).sum())
        if found <= 2.5 * registers and empty:
            return round(registers * math.log(registers / empty))
        hash_count = 1 << (_REGISTER_BITS + _RANK_BITS)  # corrects for keys with equal hashes
        return round(-hash_count * math.log1p(-min(found / hash_count, 0.999)))
