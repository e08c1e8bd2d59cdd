"""Facts about the batch that has a record: its header, and the outcome of its transaction."""

from __future__ import annotations

from functools import partial
from typing import Final

from pylog.log.partition_log import PartitionLog
from pylog.log.reading.good_batches import OffsetRange, good_batches
from pylog.log.state import LogState
from pylog.record.compression import codec_name
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CODEC_MASK,
    COUNT,
    CRC,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.ui.words import count

_LAST_SEQUENCE: Final = (1 << 31) - 1


def batch_facts(log: PartitionLog, offset: int) -> dict[str, str]:
    """Returns the facts about the batch of a record; none if it was deleted meanwhile.

    Args:
        log: the partition.
        offset: the record's offset. The record was read, so the batch's CRC is right.

    Raises:
        PylogError: the batch cannot be read.

    Cost: one header; of a transactional record, one read of committed records.
    """
    column = log.answer(partial(_column_of, offset=offset))
    if column is None:
        return {}
    attributes = column[ATTRIBUTES]
    facts = {
        "Batch": f"offsets {count(column[BASE_OFFSET])} to {count(column[LAST_OFFSET])}, {count(column[SIZE])} bytes",
        "Records": count(column[COUNT]) if column[COUNT] >= 0 else "unknown: a batch of an old format",
        "Format": str(column[MAGIC]),
        "Compression": codec_name(attributes & CODEC_MASK),
        "Timestamps": "of the append" if attributes & LOG_APPEND_TIME_BIT else "of the producer",
    }
    if column[MAGIC] < 2:
        return facts
    facts |= {"Leader epoch": str(column[LEADER_EPOCH]), "CRC": f"0x{column[CRC] & 0xFFFFFFFF:08x}, right"}
    if column[PRODUCER_ID] >= 0:
        facts["Producer"] = f"{column[PRODUCER_ID]}, epoch {column[PRODUCER_EPOCH]}, sequence {_sequence(column, offset)}"
    if attributes & TRANSACTIONAL_BIT:
        facts["Transaction"] = _outcome(log, offset)
    return facts


def _column_of(state: LogState, offset: int) -> list[int] | None:
    for batches in good_batches(state, OffsetRange(offset, offset + 1)):
        for column in batches.table.T.tolist():
            if column[BASE_OFFSET] <= offset <= column[LAST_OFFSET]:
                found: list[int] = column
                return found
    return None


def _sequence(column: list[int], offset: int) -> int:
    """Returns a record's own sequence number, which follows from its place in the batch, and begins again at 0."""
    return (column[BASE_SEQUENCE] + offset - column[BASE_OFFSET]) & _LAST_SEQUENCE


def _outcome(log: PartitionLog, offset: int) -> str:
    if offset >= log.snapshot(committed=True).stable_offset:
        return "open, or after an open one: readers of committed records wait before it"
    frames = log.scan(offset, offset + 1, columns=("offset",), isolation_level="read_committed")
    return "committed" if sum(len(frame) for frame in frames) else "aborted: readers of committed records do not get it"
