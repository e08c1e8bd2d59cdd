"""Batches that were finished elsewhere become a log's: encoded, compressed and checksummed by many, appended by one.

What only the log knows is put in when its turn comes: base offset and leader epoch, which no CRC covers; and where that is
wanted, the time of the append and a producer's numbers, which it does, so that it is computed anew. Each batch's CRC is checked
before it is taken: what was damaged on its way never reaches the log.
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
from pylog.log.arguments import limit_of, limit_text
from pylog.record import kernels
from pylog.record.batch import WHY, BatchScan, Bytes, Table, scan_batches
from pylog.record.builder import Encoded
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
from pylog.record.types import ProducerBatch

_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_UNSIGNED: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhi")  # id, epoch, base sequence


@dataclass(frozen=True, slots=True)
class BatchRange:
    """Whole batches of one partition, one after the other in a file; a piece of a request to append.

    Attributes:
        file: where they are.
        position, size: bytes.
        count: records that are to be appended.
        skip: records at the beginning that are not; whole batches.
        sequence: of the first record appended, if a producer numbers them.
        append_time: what the batches are stamped with, in milliseconds; None leaves the records their times.
        keeps_times: records keep their times whatever the topic says.
        keyed: it is known that each record has a key; a compacted topic takes no other part.
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
        """At least the bytes that are appended."""
        return self.size

    def stamped(self, now_ms: int) -> BatchRange:
        """The same as a topic with LogAppendTime has it."""
        return self if self.keeps_times else replace(self, append_time=now_ms)


class FinishedBatches:
    """Makes the batches of parts ready for their log, in two buffers in turn, as a `BatchEncoder` does.

    Args:
        config: the topic's options; None bounds no batch.
    """

    def __init__(self, config: TopicConfig | None = None) -> None:
        self._config = config
        self._turn = 0
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def encode(
        self,
        part: BatchRange,
        base_offset: int,
        leader_epoch: int,
        producer: ProducerBatch | None = None,
        *,
        whole: bool = False,  # noqa: ARG002 - batches are what they are
    ) -> Iterator[Encoded]:
        """Yields the batches of a part, a few megabytes at a time, with consecutive offsets from `base_offset` on.

        Args:
            part: where they are.
            base_offset, leader_epoch: of the first batch.
            producer: whose batches they become; their sequences go on from `part.sequence`.
            whole: of no meaning here.

        Raises:
            CorruptionError: the file does not hold what it should.

        Cost: one pass for the CRCs, another one where they change: some GB/s.
        """
        skip, offset = part.skip, base_offset
        for data, table in self._regions(part):
            ends = np.cumsum(table[COUNT])
            first = int(np.searchsorted(ends, skip, side="right"))
            skip -= int(ends[first - 1]) if first else 0
            if first == table.shape[1]:
                continue
            if skip:
                raise _damaged(part, part.position, "has no batch that begins where the log's last one of them ended")
            kept = np.ascontiguousarray(table[:, first:])
            self._check_sizes(kept, part)
            sequence = part.sequence + offset - base_offset
            _number(kept, offset, leader_epoch, None if producer is None else producer._replace(sequence=sequence))
            _write_numbers(data, kept, part.append_time, numbered=producer is not None)
            offset = int(kept[LAST_OFFSET, -1]) + 1
            yield Encoded(data.data, kept)
        if offset != base_offset + part.count:
            raise _damaged(part, part.position, f"holds {offset - base_offset} records where {part.count} were promised")

    def _check_sizes(self, table: Table, part: BatchRange) -> None:
        """Raises RecordTooLargeError if a batch is larger than the topic allows by now."""
        largest = int(table[SIZE].max())
        if self._config is not None and largest > limit_of(self._config):
            raise RecordTooLargeError(
                f"{part.file.path}: a batch of {largest} bytes is more than {limit_text(self._config)}; run the job again",
                path=part.file.path,
            )

    def _regions(self, part: BatchRange) -> Iterator[tuple[Bytes, Table]]:
        """The part's batches, checked, with the buffer that they are in."""
        position, end = part.position, part.position + part.size
        while position < end:
            self._turn = 1 - self._turn  # once a region: the one before it is being written
            buffer, scan = self._scanned(part, position, end)
            torn_in_the_middle = scan.status == kernels.TORN and scan.position > 0 and position + buffer.size < end
            if scan.status not in (kernels.OK, kernels.FULL) and not torn_in_the_middle:
                raise _damaged(part, position + scan.position, WHY[scan.status])
            if np.any(scan.table[CRC_STATE] != CRC_GOOD):
                raise _damaged(part, position, WHY[kernels.BAD_CRC])
            yield buffer, scan.table
            position += scan.position

    def _scanned(self, part: BatchRange, position: int, end: int) -> tuple[Bytes, BatchScan]:
        """What lies at a position, in this turn's buffer: a chunk, or the one batch that is larger."""
        room = limits.APPEND_CHUNK_BYTES
        while True:
            buffer = self._buffer_of(min(room, end - position))
            size = part.file.read_into(buffer.data, position)
            scan = scan_batches(read_only(buffer), 0, size, verify=True)
            if scan.position or scan.status != kernels.TORN or size < room:
                return buffer[:size], scan
            room = LOG_OVERHEAD + int.from_bytes(buffer[LENGTH_AT:LOG_OVERHEAD].tobytes(), "big")

    def _buffer_of(self, size: int) -> Bytes:
        """As much of this turn's buffer."""
        if self._buffers[self._turn].size < size:
            self._buffers[self._turn] = np.empty(size, np.uint8)
        return self._buffers[self._turn][:size]


def _damaged(part: BatchRange, position: int, why: str) -> CorruptionError:
    message = f"{part.file.path} at position {position}: what was to be appended {why}; run the job again"
    return CorruptionError(message, path=part.file.path, position=position)


def _number(table: Table, offset: int, leader_epoch: int, producer: ProducerBatch | None) -> None:
    """Gives batches consecutive offsets, and a producer's numbers, in their table."""
    before = np.cumsum(table[COUNT]) - table[COUNT]
    table[BASE_OFFSET] = offset + before
    table[LAST_OFFSET] = table[BASE_OFFSET] + table[COUNT] - 1
    table[LEADER_EPOCH] = leader_epoch
    if producer is not None:
        table[PRODUCER_ID], table[PRODUCER_EPOCH] = producer.producer_id, producer.epoch
        table[BASE_SEQUENCE] = (producer.sequence + before) & limits.INT32_MAX


def _write_numbers(data: Bytes, table: Table, append_time: int | None, *, numbered: bool) -> None:
    """Writes into the batches' headers what their table says (storage-format 1.6.4, 1.7)."""
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
        if append_time is not None:
            _SHORT.pack_into(view, position + ATTRIBUTES_AT, table[ATTRIBUTES, batch])
            _LONG.pack_into(view, position + MAX_TIMESTAMP_AT, append_time)
        if numbered or append_time is not None:
            end = position + int(table[SIZE, batch])
            table[CRC, batch] = kernels.checksum(read_only(data), position + ATTRIBUTES_AT, end)
            _UNSIGNED.pack_into(view, position + CRC_AT, table[CRC, batch])
