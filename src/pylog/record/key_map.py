"""Finds the superseded records of a log: the last record of each key, in bounded memory (storage-format 7.4, 7.5)."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from pylog.record import compacting, kernels
from pylog.record.batch import Bytes, Table
from pylog.record.format import COUNT, LAST_OFFSET
from pylog.record.plain import Opener, raise_damaged, runs

_ENTRY_BYTES = 16
_FEWEST_SLOTS = 4
_MOST_NUMBERS = 1 << 31  # an entry has 32 bits for a number


class KeyMap:
    """The last record of each key from an offset on, and a mark for each superseded record.

    Records are numbered in the order of the given batches, including records of batches that do not count. So the same batches in
    the same order get the same numbers. Keys are compared by digests of 96 bits under a random key.

    Args:
        size: the most bytes of the key table. The marks take up to a quarter of that, or 2 MiB, in addition.
        records: the expected maximum of records: a smaller table is faster.
        first_offset: records from this offset on are entered.

    Attributes:
        first_offset: the argument.
        latest: the offset up to which records are entered; below `first_offset` if none is.
        number: the next record's number.
        dead: a bit for each number, set if the record is superseded or has no key.

    Cost: 16 bytes a key, with a quarter of the table free; about 0.1 µs a record.

    >>> KeyMap(1 << 20, 10, 0).capacity
    12
    """

    def __init__(self, size: int, records: int, first_offset: int) -> None:
        slots = _FEWEST_SLOTS
        while slots * 3 // 4 < records and 2 * slots * _ENTRY_BYTES <= size:
            slots *= 2
        self.capacity = slots * 3 // 4
        self.first_offset = first_offset
        self.latest = first_offset - 1
        self.number = 0
        self.dead = np.zeros(1024, np.uint8)
        self._most_marks = min(max(size // 4, 2 << 20), _MOST_NUMBERS // 8)
        self._keys = np.zeros(2 * slots, np.uint64)
        self._count = 0
        self._scratch = np.zeros(compacting.SCRATCH_WORDS, np.uint64)
        self._seed = np.frombuffer(secrets.token_bytes(16), np.uint64)
        self._opener = Opener()

    def make_room(self, end: int) -> None:
        """Makes room for the marks of all numbers below `end`."""
        if end > self.dead.size * 8:
            larger = np.zeros(max(2 * self.dead.size, -(-end // 8)), np.uint8)
            larger[: self.dead.size] = self.dead
            self.dead = larger

    def enter(self, buffer: Bytes, table: Table, counts: NDArray[np.bool_]) -> bool:
        """Enters the records of the batches that count, and numbers the records of all batches.

        Args:
            buffer, table: whole batches that follow those given before.
            counts: for each batch, whether its records count.

        Returns:
            False if the memory is used up: `latest` tells how far it got, and no more records can be entered.

        Raises:
            CorruptionError: a batch is damaged; position and offset are the batch's.
        """
        for first, end, plain in runs(table):
            if plain:
                done = self._enter_run(buffer, table, first, end, counts)
            elif counts[first] or table[COUNT, first] < 0:
                opened = self._opener.open(buffer, table, first)
                done = self._enter_run(opened.buffer, opened.table, 0, 1, counts[first:end], verify=False)
            else:
                self.number += int(table[COUNT, first])
                done = True
            if not done:
                return False
            self.latest = max(self.latest, int(table[LAST_OFFSET, end - 1]))
        return True

    def _enter_run(
        self, buffer: Bytes, table: Table, first: int, end: int, counts: NDArray[np.bool_], *, verify: bool = True
    ) -> bool:
        """Enters those of some uncompressed batches that count, in one call per run of them."""
        if self.number + int(table[COUNT, first:end].sum()) > self._most_marks * 8 and self.latest >= self.first_offset:
            return False
        turns = (np.flatnonzero(np.diff(counts[first:end])) + 1 + first).tolist()
        for start, stop in zip([first, *turns], [*turns, end], strict=True):
            if not counts[start]:
                self.number += int(table[COUNT, start:stop].sum())
                continue
            state = self._state(start, stop, self.number)
            self.make_room(self.number + int(table[COUNT, start:stop].sum()))
            status = self._call(buffer, table, state, self.dead, enter=True, verify=verify)
            self._count, self.latest = int(state[compacting.K_KEYS]), int(state[compacting.K_LATEST])
            raise_damaged(status, table, int(state[compacting.K_BATCH]))
            if status == kernels.FULL:
                return False
            self.number = int(state[compacting.K_NUMBER])
        return True

    def mark_older(self, buffer: Bytes, table: Table, first: int, end: int, dead: Bytes, number: int, *, verify: bool) -> None:
        """Marks the records before `first_offset`, in uncompressed batches, whose keys are in the table or that have no key.

        Args:
            buffer, table, first, end: the batches.
            dead: receives the marks; it has room for them.
            number: number of the first batch's first record.
            verify: check each batch's CRC.
        """
        state = self._state(first, end, number)
        status = self._call(buffer, table, state, dead, enter=False, verify=verify)
        raise_damaged(status, table, int(state[compacting.K_BATCH]))

    def _state(self, first: int, end: int, number: int) -> NDArray[np.int64]:
        return np.array([first, end, number, self._count, self.capacity, self.first_offset, self.latest], np.int64)

    def _call(self, buffer: Bytes, table: Table, state: NDArray[np.int64], dead: Bytes, *, enter: bool, verify: bool) -> int:
        return int(
            compacting.index_keys(
                buffer, table, state, enter, verify, self._keys, dead, self._scratch, self._seed[0], self._seed[1]
            )
        )
