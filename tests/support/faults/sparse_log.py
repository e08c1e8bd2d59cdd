"""Logs as large as one likes that take no room: real batch headers with holes where the records would be, and real indexes.

What only looks at metadata cannot tell them from others. Partitions after the first are hard links to its files: their names,
directories and opens cost what they would cost, but the file system has fewer inodes to keep than of a real log that size.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from pylog.index.builder import SegmentIndexBuilder
from pylog.record.format import COLUMN_COUNT, HEADER, LAST_OFFSET, LOG_OVERHEAD, MAX_TIMESTAMP, POSITION, SIZE

TOPIC = "events"
BATCH_BYTES = 1_000_000
BATCH_RECORDS = 1000
TIME = 1_700_000_000_000


def make_store(directory: Path, *, partitions: int, segments: int, batches: int = 100) -> None:
    """A log directory as a broker leaves it, without anything of pylog's in it.

    Args:
        directory: is made.
        partitions: of the one topic.
        segments: of each partition.
        batches: of each segment, of a million bytes and a thousand records each; their times rise by a millisecond.
    """
    first = directory / f"{TOPIC}-0"
    first.mkdir(parents=True)
    (directory / "cleaner-offset-checkpoint").write_text("0\n0\n")  # one of the names that tell a log directory
    for number in range(segments):
        _write_segment(first, number * batches * BATCH_RECORDS, batches)
    names = os.listdir(first)
    for partition in range(1, partitions):
        other = directory / f"{TOPIC}-{partition}"
        other.mkdir()
        for name in names:
            os.link(f"{first}/{name}", f"{other}/{name}")


def _write_segment(directory: Path, base_offset: int, batches: int) -> None:
    numbers = np.arange(batches)
    first_offsets = base_offset + numbers * BATCH_RECORDS
    with (directory / f"{base_offset:020}.log").open("wb") as file:
        for number, offset in zip(numbers.tolist(), first_offsets.tolist(), strict=True):
            time = TIME + offset // BATCH_RECORDS
            length, delta = BATCH_BYTES - LOG_OVERHEAD, BATCH_RECORDS - 1
            file.seek(number * BATCH_BYTES)
            file.write(HEADER.pack(offset, length, 0, 2, 0, 0, delta, time, time, -1, -1, -1, BATCH_RECORDS))
        file.truncate(batches * BATCH_BYTES)
    table = np.zeros((COLUMN_COUNT, batches), np.int64)
    table[POSITION], table[SIZE] = numbers * BATCH_BYTES, BATCH_BYTES
    table[LAST_OFFSET] = first_offsets + BATCH_RECORDS - 1
    table[MAX_TIMESTAMP] = TIME + first_offsets // BATCH_RECORDS
    builder = SegmentIndexBuilder(base_offset)
    builder.add(table, batches)
    builder.finish()
    (directory / f"{base_offset:020}.index").write_bytes(builder.offset_bytes())
    (directory / f"{base_offset:020}.timeindex").write_bytes(builder.time_bytes())
