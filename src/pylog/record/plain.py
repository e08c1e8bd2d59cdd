"""Opens batches: plain ones stay in place, compressed and legacy ones are unpacked into separate memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.errors import CorruptionError, PylogError
from pylog.record import kernels
from pylog.record.batch import WHY, Bytes, Table, corruption, placed, plain_column, refusal
from pylog.record.compression import Scratch
from pylog.record.few import varint
from pylog.record.format import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    COUNT,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    SIZE,
)
from pylog.record.legacy import LegacyRecord, check_between, decode_legacy, legacy_crc_ok


class Run(NamedTuple):
    """Consecutive batches of a table, `first` to `end - 1`; `plain` if their records are uncompressed in place."""

    first: int
    end: int
    plain: bool


def runs(table: Table) -> Iterator[Run]:
    """Returns the runs of a table: plain batches together, each other batch alone.

    >>> table = np.zeros((15, 3), np.int64)
    >>> table[MAGIC], table[ATTRIBUTES, 2] = 2, 1
    >>> list(runs(table))
    [Run(first=0, end=2, plain=True), Run(first=2, end=3, plain=False)]
    """
    plain = (table[MAGIC] == 2) & ((table[ATTRIBUTES] & CODEC_MASK) == 0)
    first = 0
    while first < table.shape[1]:
        if not plain[first]:
            yield Run(first, first + 1, False)
            first += 1
            continue
        others = np.flatnonzero(~plain[first:])
        end = first + int(others[0]) if others.size else table.shape[1]
        yield Run(first, end, True)
        first = end


class Opened(NamedTuple):
    """One batch with uncompressed records.

    Attributes:
        buffer: its header, or room for one, and its records.
        table: the table with its one column.
        records: the records of a batch of magic 0 or 1, else None.
    """

    buffer: Bytes
    table: Table
    records: list[LegacyRecord] | None = None


class Opener:
    """Opens batches one after the other; a result is valid until the next call. Checksums are verified."""

    def __init__(self) -> None:
        self._scratch = Scratch(reserve=HEADER_SIZE)

    def open(self, buffer: Bytes, table: Table, batch: int) -> Opened:
        """Returns a compressed or legacy batch with uncompressed records.

        Raises:
            CorruptionError: the batch is damaged; position and offset are the batch's.
            DecompressionLimitError, UnsupportedFormatError: it decompresses to too much, or has an unknown format.
        """
        position = int(table[POSITION, batch])
        entry = buffer[position : position + int(table[SIZE, batch])]
        try:
            return self._old(entry, table, batch) if table[MAGIC, batch] < 2 else self._compressed(entry, table, batch)
        except PylogError as error:
            raise placed(error, table, batch) from error
        except Exception as error:
            raise refusal(error, table[:, batch : batch + 1]) from error

    def _compressed(self, entry: Bytes, table: Table, batch: int) -> Opened:
        if kernels.checksum(entry, ATTRIBUTES_AT, entry.size) != int(table[CRC, batch]):
            raise CorruptionError(WHY[kernels.BAD_CRC])
        room = entry[:HEADER_SIZE].copy()
        if table[COUNT, batch]:  # an empty batch has no payload to decompress (storage-format 1.5.4)
            room = self._scratch.decompress(int(table[ATTRIBUTES, batch]) & CODEC_MASK, entry[HEADER_SIZE:])
            room[:HEADER_SIZE] = entry[:HEADER_SIZE]
        room.flags.writeable = False
        return Opened(room, plain_column(table, batch, 0, room.size - HEADER_SIZE).reshape(-1, 1))

    @staticmethod
    def _old(entry: Bytes, table: Table, batch: int) -> Opened:
        if not legacy_crc_ok(entry):
            raise CorruptionError(WHY[kernels.BAD_CRC])
        records = decode_legacy(entry)
        check_between(records, table.item(LAST_OFFSET, batch - 1) if batch else -1, table.item(LAST_OFFSET, batch))
        base, stamp = records[0].offset, records[0].timestamp
        data = bytes(HEADER_SIZE) + b"".join(_as_plain(record, base, stamp) for record in records)
        column = plain_column(table, batch, 0, len(data) - HEADER_SIZE)
        column[[BASE_OFFSET, LAST_OFFSET, COUNT, BASE_TIMESTAMP, ATTRIBUTES]] = base, records[-1].offset, len(records), stamp, 0
        return Opened(np.frombuffer(data, np.uint8), column.reshape(-1, 1), records)


def _as_plain(record: LegacyRecord, base_offset: int, base_timestamp: int) -> bytes:
    """Converts a legacy record to one of magic 2."""
    delta = record.timestamp - base_timestamp
    body = b"\0" + varint(delta if abs(delta) <= limits.INT64_MAX else 0) + varint(record.offset - base_offset)
    for data in (record.key, record.value):
        body += varint(-1) if data is None else varint(len(data)) + data
    return varint(len(body) + 1) + body + b"\0"


def raise_damaged(status: int, table: Table, batch: int) -> None:
    """Raises the error for a kernel's status, unless that is OK or FULL.

    Raises:
        CorruptionError: with the position and the offset of the batch.
    """
    if status not in (kernels.OK, kernels.FULL):
        raise corruption(table, batch, WHY[status])
