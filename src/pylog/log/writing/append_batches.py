"""Appends finished batches, which other processes have encoded, compressed and checksummed.

The log sets base offset and leader epoch, which the CRC does not cover. On request it also sets the time of the append and a
producer's numbers, and then computes the CRC again. Each batch's CRC is checked first, so damaged batches never reach the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pylog import limits
from pylog.config import TopicConfig
from pylog.errors import CorruptionError, RecordTooLargeError
from pylog.fs import File
from pylog.log.options import limit_of, limit_text
from pylog.record import kernels
from pylog.record.batch import WHY, BatchScan, Bytes, Table, scan_batches
from pylog.record.builder import Encoded
from pylog.record.decoder import RecordDecoder
from pylog.record.format import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    BASE_SEQUENCE,
    COUNT,
    CRC,
    CRC_AT,
    CRC_GOOD,
    CRC_STATE,
    LAST_OFFSET,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    OFFSET_AT,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_ID_AT,
    SIZE,
)
from pylog.record.rows import read_only
from pylog.record.timestamps import TimestampBounds
from pylog.record.types import ProducerBatch, attributes_of
from pylog.text import counted

_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_UNSIGNED: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")  # id, epoch, base sequence


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Whole batches of one partition, contiguous in a file, as a part of an append request.

    Attributes:
        file: the file.
        position, size: the position and size of the batches in the file, in bytes.
        count: the number of records to append.
        skip: the number of records at the beginning to leave out; whole batches.
        sequence: the sequence number of the first record appended, if a producer numbers them.
        append_time: the timestamp for all records, in milliseconds; None keeps their own.
        keeps_times: true to keep the records' timestamps even with LogAppendTime.
        keyed: true if each record is known to have a key, which a compacted topic requires.
    """

    file: File
    position: int
    size: int
    count: int
    skip: int = 0
    sequence: int = 0
    append_time: int | None = None
    keeps_times: bool = False
    keyed: bool = False

    def __len__(self) -> int:
        return self.count

    @property
    def size_bound(self) -> int:
        """A lower bound of the bytes to append."""
        return self.size

    def stamped(self, now_ms: int) -> BatchRange:
        """Returns the range as a topic with LogAppendTime stores it."""
        return self if self.keeps_times else replace(self, append_time=now_ms)


class FinishedBatches:
    """Prepares finished batches for their log, in two alternating buffers, as a `BatchEncoder` does.

    Args:
        config: the topic's options; None sets no size limit.
        timestamps: the range of timestamps that the topic accepts; None accepts all.
        now_ms: the wall clock at the commit, in milliseconds.
    """

    def __init__(self, config: TopicConfig | None = None, timestamps: TimestampBounds | None = None, now_ms: int = 0) -> None:
        self._config = config
        self._timestamps = timestamps
        self._now_ms = now_ms
        self._turn = 0
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def encode(
        self,
        part: BatchRange,
        base_offset: int,
        leader_epoch: int,
        producer: ProducerBatch | None = None,
        *,
        whole: bool = False,  # noqa: ARG002 - finished batches are never split
    ) -> Iterator[Encoded]:
        """Yields the batches of a part, a few megabytes at a time, with consecutive offsets from `base_offset` on.

        Args:
            part: the batches.
            base_offset, leader_epoch: the base offset and leader epoch of the first batch.
            producer: the producer of the batches; their sequences start at `part.sequence`.
            whole: ignored.

        Raises:
            CorruptionError: the file does not have the expected batches.
            InvalidTimestampError: the topic does not accept a record's timestamp now.

        Cost: one pass to check CRCs, and a second one to change them: a few GB/s.
        """
        skip, offset = part.skip, base_offset
        for data, table in self._regions(part):
            ends = np.cumsum(table[COUNT])
            first = int(np.searchsorted(ends, skip, side="right"))
            skip -= int(ends[first - 1]) if first else 0
            if first == table.shape[1]:
                continue
            if skip:
                raise _damaged(part, part.position, "has no batch that begins where the previous appended one ended")
            kept = np.ascontiguousarray(table[:, first:])
            self._check_sizes(kept, part)
            if self._timestamps is not None and part.append_time is None:
                self._timestamps.check_range(*_time_range(data, kept, self._timestamps), self._now_ms)
            sequence = part.sequence + offset - base_offset
            _number(kept, offset, leader_epoch, None if producer is None else producer._replace(sequence=sequence))
            _write_numbers(data, kept, part.append_time, numbered=producer is not None)
            offset = int(kept[LAST_OFFSET, -1]) + 1
            yield Encoded(data.data, kept)
        if offset != base_offset + part.count:
            raise _damaged(part, part.position, f"has {counted(offset - base_offset, 'record')} instead of {part.count}")

    def _check_sizes(self, table: Table, part: BatchRange) -> None:
        """Raises RecordTooLargeError if a batch exceeds the topic's current limit."""
        largest = int(table[SIZE].max())
        if self._config is not None and largest > limit_of(self._config):
            raise RecordTooLargeError(
                f"{part.file.path}: a batch of {largest} bytes exceeds {limit_text(self._config)}; run the job again",
                path=part.file.path,
            )

    def _regions(self, part: BatchRange) -> Iterator[tuple[Bytes, Table]]:
        """Yields the batches of a range, checked, with their buffer."""
        position, end = part.position, part.position + part.size
        while position < end:
            self._turn = 1 - self._turn  # alternate: the previous region is still being written
            buffer, scan = self._scanned(part, position, end)
            torn_in_the_middle = scan.status == kernels.TORN and scan.position > 0 and position + buffer.size < end
            if scan.status not in (kernels.OK, kernels.FULL) and not torn_in_the_middle:
                raise _damaged(part, position + scan.position, WHY[scan.status])
            if np.any(scan.table[CRC_STATE] != CRC_GOOD):
                raise _damaged(part, position, WHY[kernels.BAD_CRC])
            yield buffer, scan.table
            position += scan.position

    def _scanned(self, part: BatchRange, position: int, end: int) -> tuple[Bytes, BatchScan]:
        """Reads a chunk, or one larger batch, at a position into this turn's buffer."""
        room = limits.APPEND_CHUNK_BYTES
        while True:
            buffer = self._buffer_of(min(room, end - position))
            size = part.file.read_into(buffer.data, position)
            scan = scan_batches(read_only(buffer), 0, size, verify=True)
            if scan.position or scan.status != kernels.TORN or size < room:
                return buffer[:size], scan
            room = LOG_OVERHEAD + int.from_bytes(buffer[LENGTH_AT:LOG_OVERHEAD].tobytes(), "big")

    def _buffer_of(self, size: int) -> Bytes:
        """Returns the first bytes of this turn's buffer."""
        if self._buffers[self._turn].size < size:
            self._buffers[self._turn] = np.empty(size, np.uint8)
        return self._buffers[self._turn][:size]


def _time_range(data: Bytes, table: Table, bounds: TimestampBounds) -> tuple[int, int]:
    """Returns the smallest and the largest timestamp of the records in some batches that have one; -1 without one.

    The headers have the largest of each batch. The smallest is read from the records, if it matters.
    """
    largest = table[MAX_TIMESTAMP]
    if not bounds.limits_the_past:
        return int(largest.max()), int(largest.max())
    decoder = RecordDecoder(("timestamp",), verify=False)
    frames = [frame for frames in (decoder.feed(data, table), decoder.finish()) for frame in frames]
    stamps = np.concatenate([frame.column(0).view("int64").to_numpy() for frame in frames])
    known = stamps[stamps >= 0]
    return (int(known.min()), int(known.max())) if known.size else (-1, -1)


def _damaged(part: BatchRange, position: int, why: str) -> CorruptionError:
    message = f"{part.file.path} at position {position}: the batches to append cannot be used: the file {why}; run the job again"
    return CorruptionError(message, path=part.file.path, position=position)


def _number(table: Table, offset: int, leader_epoch: int, producer: ProducerBatch | None) -> None:
    """Assigns consecutive offsets, and a producer's numbers, in a batch table."""
    before = np.cumsum(table[COUNT]) - table[COUNT]
    table[BASE_OFFSET] = offset + before
    table[LAST_OFFSET] = table[BASE_OFFSET] + table[COUNT] - 1
    table[LEADER_EPOCH] = leader_epoch
    if producer is not None:
        table[PRODUCER_ID], table[PRODUCER_EPOCH] = producer.producer_id, producer.epoch
        table[BASE_SEQUENCE] = (producer.sequence + before) & limits.INT32_MAX
        table[ATTRIBUTES] |= attributes_of(producer)


def _write_numbers(data: Bytes, table: Table, append_time: int | None, *, numbered: bool) -> None:
    """Writes the fields of a batch table into the batches' headers (storage-format 1.6.4, 1.7)."""
    if append_time is not None:
        table[ATTRIBUTES] |= LOG_APPEND_TIME_BIT
        table[MAX_TIMESTAMP] = append_time
    view = data.data
    for batch, position in enumerate(table[POSITION].tolist()):
        _LONG.pack_into(view, position + OFFSET_AT, table[BASE_OFFSET, batch])
        _INT.pack_into(view, position + LEADER_EPOCH_AT, table[LEADER_EPOCH, batch])
        if numbered:
            numbers = table[[PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE], batch].tolist()
            _PRODUCER.pack_into(view, position + PRODUCER_ID_AT, *numbers)
        if numbered or append_time is not None:
            _SHORT.pack_into(view, position + ATTRIBUTES_AT, table[ATTRIBUTES, batch])
        if append_time is not None:
            _LONG.pack_into(view, position + MAX_TIMESTAMP_AT, append_time)
        if numbered or append_time is not None:
            end = position + int(table[SIZE, batch])
            table[CRC, batch] = kernels.checksum(read_only(data), position + ATTRIBUTES_AT, end)
            _UNSIGNED.pack_into(view, position + CRC_AT, table[CRC, batch])
