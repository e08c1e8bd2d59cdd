"""Copies the records that compaction keeps: finished bytes, some megabytes at a time (storage-format 7.6.5 to 7.6.8).

A batch that loses nothing is copied unchanged, compressed or not. A batch that loses records keeps its offsets, its producer's
numbers and its codec; only its delete horizon may change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.record import compacting, compression, kernels
from pylog.record.batch import Bytes, Table
from pylog.record.format import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_OFFSET,
    CODEC_MASK,
    COUNT,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    POSITION,
    SIZE,
)
from pylog.record.key_map import KeyMap
from pylog.record.legacy import LegacyRecord, encode_legacy
from pylog.record.plain import Opened, Opener, raise_damaged, runs

_NUMBER = struct.Struct(">I")


class Judgement(NamedTuple):
    """Decisions on the batches of a table.

    Attributes:
        fates: for each batch a sum of `compacting.F_*`.
        number: number of the first batch's first record in the key map; None if its records were not entered.
    """

    fates: NDArray[np.int64]
    number: int | None


class Survivors:
    """Copies batches without the dropped records.

    Args:
        keys: tells which records are superseded.
        horizon_ms: the delete horizon for batches that need one: a tombstone stays until then.

    Attributes:
        changed: how many batches were dropped or changed.
        records, kept: how many records came in, and how many of them were kept.
    """

    def __init__(self, keys: KeyMap, horizon_ms: int) -> None:
        self._keys = keys
        self._horizon_ms = horizon_ms
        self._opener = Opener()
        self._rooms = [np.empty(0, np.uint8), np.empty(0, np.uint8)]  # one is filled while the other is written
        self._used = 0
        self._repacked = np.empty(0, np.uint8)
        self.changed = self.records = self.kept = 0

    def feed(self, buffer: Bytes, table: Table, judged: Judgement) -> Iterator[Bytes]:
        """Copies batches, yielding finished parts; each part is valid until the step after the next.

        Raises:
            CorruptionError: a batch is damaged; position and offset are the batch's.
        """
        number = judged.number
        for first, end, plain in runs(table):
            opened = Opened(buffer, table) if plain else self._opener.open(buffer, table, first)
            columns = (first, end) if plain else (0, 1)
            count = int(opened.table[COUNT, slice(*columns)].sum())
            dead, start = self._marks(opened, columns, number, count, verify=plain)
            if plain:
                yield from self._copy(buffer, table, columns, judged.fates, dead, start)
            else:
                entry = buffer[int(table[POSITION, first]) : int(table[POSITION, first] + table[SIZE, first])]
                fate = judged.fates[first:end]
                packed = (
                    self._old(opened, entry, dead, start, int(fate[0]))
                    if opened.records
                    else self._packed(opened, entry, fate, dead, start)
                )
                yield from self._append(packed)
            self.records += count
            number = None if number is None else number + count

    def finish(self) -> Iterator[Bytes]:
        """Yields the finished bytes that have not been yielded yet."""
        if self._used:
            yield self._rooms[0][: self._used]
            self._rooms.reverse()
            self._used = 0

    def _marks(
        self, opened: Opened, columns: tuple[int, int], number: int | None, count: int, *, verify: bool
    ) -> tuple[Bytes, int]:
        """Returns the bitmap for some batches, and the number of their first record in it."""
        if number is not None:
            self._keys.make_room(number + count)
        dead, start = (np.zeros(count // 8 + 1, np.uint8), 0) if number is None else (self._keys.dead, number)
        if int(opened.table[BASE_OFFSET, columns[0]]) < self._keys.first_offset:
            self._keys.mark_older(opened.buffer, opened.table, *columns, dead, start, verify=verify)
        return dead, start

    def _state(self, first: int, end: int, number: int, used: int) -> NDArray[np.int64]:
        return np.array([first, end, number, self._keys.latest, self._horizon_ms, used, 0, 0], np.int64)

    # ---- uncompressed batches ------------------------------------------------------------------------------------------------

    def _copy(
        self, buffer: Bytes, table: Table, columns: tuple[int, int], fates: NDArray[np.int64], dead: Bytes, number: int
    ) -> Iterator[Bytes]:
        state = self._state(*columns, number, self._used)
        while True:
            state[compacting.R_POSITION] = self._used
            status = int(compacting.keep_records(buffer, table, fates, state, True, dead, self._rooms[0]))
            batch, self._used = int(state[compacting.R_BATCH]), int(state[compacting.R_POSITION])
            raise_damaged(status, table, batch)
            if status == kernels.OK:
                break
            yield from self._make_room(_room_for(table, batch))
        self.kept += int(state[compacting.R_RECORDS])
        self.changed += int(state[compacting.R_CHANGED])

    def _make_room(self, needed: int) -> Iterator[Bytes]:
        """Yields the finished bytes, and switches to the other buffer, which then has at least the given room."""
        yield from self.finish()
        if self._rooms[0].size < needed:
            self._rooms[0] = np.empty(max(needed, limits.APPEND_CHUNK_BYTES), np.uint8)

    # ---- others --------------------------------------------------------------------------------------------------------------

    def _append(self, data: Bytes) -> Iterator[Bytes]:
        if data.size > self._rooms[0].size - self._used:
            yield from self._make_room(data.size)
        self._rooms[0][self._used : self._used + data.size] = data
        self._used += data.size

    def _packed(self, opened: Opened, entry: Bytes, fate: NDArray[np.int64], dead: Bytes, number: int) -> Bytes:
        """Returns what remains of a compressed batch: the batch itself if nothing was lost."""
        needed = _room_for(opened.table, 0)
        if self._repacked.size < needed:
            self._repacked = np.empty(needed + needed // 4, np.uint8)
        state = self._state(0, 1, number, 0)
        status = int(compacting.keep_records(opened.buffer, opened.table, fate, state, False, dead, self._repacked))
        raise_damaged(status, opened.table, 0)
        self.kept += int(state[compacting.R_RECORDS])
        if not state[compacting.R_CHANGED]:
            return entry
        self.changed += 1
        left = self._repacked[: int(state[compacting.R_POSITION])]
        codec = int(opened.table[ATTRIBUTES, 0]) & CODEC_MASK
        return left if left.size <= HEADER_SIZE else _compressed(left, codec)

    def _old(self, opened: Opened, entry: Bytes, dead: Bytes, number: int, fate: int) -> Bytes:
        """Returns what remains of a batch of magic 0 or 1."""
        assert opened.records is not None
        kept = [record for at, record in enumerate(opened.records, number) if self._stays(record, at, dead, fate)]
        self.kept += len(kept)
        if len(kept) == len(opened.records):
            return entry
        self.changed += 1
        return encode_legacy(entry, kept) if kept else entry[:0]

    def _stays(self, record: LegacyRecord, number: int, dead: Bytes, fate: int) -> bool:
        if record.offset > self._keys.latest:
            return True
        superseded = dead[number >> 3] >> (number & 7) & 1
        return not superseded and not (record.value is None and fate & compacting.F_TOMBSTONES_GO)


def _room_for(table: Table, batch: int) -> int:
    """Returns the room that a batch may need while its records are copied."""
    return int(2 * table[SIZE, batch] + table[COUNT, batch] * compacting.GROWTH)


def _compressed(batch: Bytes, codec: int) -> Bytes:
    """Returns a batch with its records compressed at the codec's default level, and its length and checksum updated."""
    made = compression.compress(codec, batch[HEADER_SIZE:], reserve=HEADER_SIZE)
    made[:HEADER_SIZE] = batch[:HEADER_SIZE]
    _NUMBER.pack_into(made.data, LENGTH_AT, made.size - LOG_OVERHEAD)
    crc = kernels.checksum(_read_only(made), ATTRIBUTES_AT, made.size)
    _NUMBER.pack_into(made.data, CRC_AT, crc)
    return made


def _read_only(data: Bytes) -> Bytes:
    view = data.view()
    view.flags.writeable = False
    return view
