"""The digest of a segment's batch headers, which covers the bytes that Kafka's checksums do not.

A batch's CRC covers neither its offset, its length nor its leader epoch. The digest is a running CRC-32C over the first 21
bytes of each batch, including its CRC, so digest and CRCs together cover every byte (reliability 6.3). Its marks, the digest so
far once per index interval, show where damage is.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import Any

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError
from pylog.fs import Bytes
from pylog.index.builder import SegmentIndexBuilder
from pylog.record.batch import Table
from pylog.record.format import CRC_AT, LEGACY_CRC_AT, MAGIC_AT, POSITION, PREFIX_SIZE, SIZE
from pylog.segment.segment import LogSegment

_MARK = struct.Struct("<II")  # position after a batch, digest up to there

Numbers = NDArray[np.uint32]


class HeaderDigest:
    """The digest of a segment's batches, updated as they are appended or read.

    Args:
        interval_bytes: a mark is set once more than this many bytes of batches follow the last mark.

    Attributes:
        value: CRC-32C of the prefixes so far.
        batches: number of batches.
        position: position in the file after the last batch, in bytes.
        last_crc: the last batch's own checksum; 0 if there is none.

    Spec: reliability 6.3. Not thread-safe.

    >>> HeaderDigest().value
    0
    """

    __slots__ = ("_interval_bytes", "_last_prefix", "_marked", "_marks", "batches", "position", "value")

    def __init__(self, interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES) -> None:
        self._interval_bytes = interval_bytes
        self.value = 0
        self.batches = 0
        self.position = 0
        self._marked = 0  # position of the last mark
        self._marks = bytearray()
        self._last_prefix = b""

    @property
    def last_crc(self) -> int:
        if not self._last_prefix:
            return 0
        at = CRC_AT if self._last_prefix[MAGIC_AT] == 2 else LEGACY_CRC_AT
        return int.from_bytes(self._last_prefix[at : at + 4], "big")

    @property
    def marks(self) -> tuple[Numbers, Numbers]:
        """Returns the marks so far: positions after batches, and the digests up to there. Copies, O(n)."""
        positions, digests = np.frombuffer(bytes(self._marks), "<u4").reshape(-1, 2).T
        return np.ascontiguousarray(positions), np.ascontiguousarray(digests)

    def add(self, data: memoryview | Bytes, table: Table, first: int, end: int, shift: int) -> None:
        """Adds batches that follow those added before.

        Args:
            data: the bytes that the table's positions count from.
            table: a table from `scan_batches`.
            first, end: the columns to add.
            shift: position in the file of the first byte of `data`.

        Cost: 1 µs for one batch; for many about 20 ns each, and 0.4 µs a mark.
        """
        if end - first == 1:
            start = table.item(POSITION, first)
            self.add_one(data[start : start + PREFIX_SIZE], shift + start + table.item(SIZE, first))
        elif end > first:
            columns = table[:, first:end]
            self._add_many(prefixes(data, columns), (columns[POSITION] + columns[SIZE] + shift).tolist())

    def add_one(self, data: memoryview | Bytes, position: int) -> None:
        """Adds the batch at the start of `data`, which ends at the given position of the file."""
        prefix = bytes(data[:PREFIX_SIZE])
        assert position > self.position, "batches are added in order"
        self.value, self.position, self._last_prefix = extend(self.value, prefix), position, prefix
        self.batches += 1
        if position - self._marked > self._interval_bytes:
            self._marks += _MARK.pack(position, self.value)
            self._marked = position

    def _add_many(self, joined: bytes, ends: list[int]) -> None:
        """Adds batches mark by mark."""
        value, marked, first = self.value, self._marked, 0
        while (last := bisect_right(ends, marked + self._interval_bytes, first)) < len(ends):
            value, marked = extend(value, joined[first * PREFIX_SIZE : (last + 1) * PREFIX_SIZE]), ends[last]
            self._marks += _MARK.pack(marked, value)
            first = last + 1
        self._marked = marked
        assert ends[-1] > self.position, "batches are added in order"
        self.value, self.position = extend(value, joined[first * PREFIX_SIZE :]), ends[-1]
        self._last_prefix = joined[-PREFIX_SIZE:]
        self.batches += len(ends)

    def copy(self) -> HeaderDigest:
        """Returns an independent copy. Cost: O(marks), 8 bytes each."""
        copied = HeaderDigest(self._interval_bytes)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        copied._marks = self._marks[:]
        return copied


def prefixes(data: memoryview | Bytes, table: Table) -> bytes:
    """Returns the first 21 bytes of each batch of a table, joined. Cost: 10 ns a batch."""
    count = max(0, len(data) - PREFIX_SIZE + 1)
    every: NDArray[Any] = np.ndarray((count,), f"V{PREFIX_SIZE}", data, strides=(1,))  # one element begins at each byte
    return bytes(every[table[POSITION]].tobytes())


def digest_of(segment: LogSegment, end: int, interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES) -> HeaderDigest:
    """Returns the digest of a segment's batches below a position, read from its file.

    Args:
        segment: a sealed or active segment.
        end: the position in bytes; a batch must end there.
        interval_bytes: the interval of the marks.

    Raises:
        CorruptionError: no batch ends at `end`.

    Cost: one pass over the headers.
    """
    digest = HeaderDigest(interval_bytes)
    for region in segment.regions(0, end):
        digest.add(region.buffer, region.table, 0, region.table.shape[1], region.shift)
    _check_end(segment, digest, end)
    return digest


def digest_and_indexes_of(segment: LogSegment, end: int, interval_bytes: int) -> tuple[HeaderDigest, SegmentIndexBuilder]:
    """Returns the digest of a segment's batches below a position, and their indexes, built in memory.

    Args:
        segment: the active one.
        end: in bytes, after a batch.
        interval_bytes: the distance of the marks, and of index entries, in bytes.

    Raises:
        CorruptionError: there are no whole batches up to `end`.

    Cost: one pass over the file, for both.
    """
    digest, builder = HeaderDigest(interval_bytes), SegmentIndexBuilder(segment.base_offset, interval_bytes)
    for region in segment.regions(0, end):
        count = region.table.shape[1]
        digest.add(region.buffer, region.table, 0, count, region.shift)
        builder.add(region.table, count, position=region.shift)
    _check_end(segment, digest, end)
    return digest, builder


def _check_end(segment: LogSegment, digest: HeaderDigest, end: int) -> None:
    if digest.position != end:
        message = f"{segment.path}: no batch ends at position {end}; whole batches end at {digest.position}"
        raise CorruptionError(message, path=segment.path, position=digest.position)
