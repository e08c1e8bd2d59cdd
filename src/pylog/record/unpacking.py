"""Decompresses runs of batches: several at a time into one buffer, so that one kernel call decodes them like plain ones.

Two threads share the work: this one decodes decompressed batches, and decompresses too whenever it would have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, PylogError
from pylog.record import compression, kernels
from pylog.record.ahead import by_two
from pylog.record.batch import WHY, Bytes, Table, placed
from pylog.record.format import ATTRIBUTES, CODEC_MASK, COUNT, HEADER_SIZE, POSITION, SIZE

_ENTRY = [POSITION, SIZE, ATTRIBUTES, COUNT]
_WORTH_A_THREAD = 32  # compressed batches of one region: fewer are decompressed before a thread has started
_AT_ONCE = 4  # groups that are being decompressed, or wait to be decoded


class BatchGroup(NamedTuple):
    """Compressed batches, `first` to `end - 1` of a table, with decompressed records in `room` as `table` describes."""

    room: Bytes
    table: Table
    first: int
    end: int


class Unpacker:
    """Decompresses batches in groups.

    Args:
        verify: check each batch's CRC.
    """

    def __init__(self, *, verify: bool) -> None:
        self._verify = verify
        self._rooms: list[Bytes] = []  # that no group uses
        self._large_room: Bytes = np.empty(0, np.uint8)  # for batches that do not fit one of these
        self._expansion = 4.0  # compressed size times this estimates the decompressed size of the next group

    def groups(self, buffer: Bytes, table: Table, first: int, last: int) -> Generator[BatchGroup]:
        """Yields the batches `first` to `last - 1` of a table, in order. A group is valid until the next one is requested.

        Raises:
            CorruptionError, DecompressionLimitError, UnsupportedFormatError: for the first batch that has not been yielded.
        """
        tasks = self._tasks(buffer, table, first, last)
        if last - first < _WORTH_A_THREAD:
            for task in tasks:
                yield from self._completed(buffer, table, *task())
        else:
            with by_two(tasks, at_once=_AT_ONCE) as results:
                for group, end in results:
                    yield from self._completed(buffer, table, group, end)

    def _tasks(self, buffer: Bytes, table: Table, first: int, last: int) -> Iterator[Callable[[], tuple[BatchGroup, int]]]:
        """Yields tasks, each of which returns a group and the batch before which it was planned to end."""
        sizes_up_to = np.cumsum(table[SIZE, first:last])
        at = first
        while at < last:
            size = int(limits.UNPACKED_GROUP_BYTES / self._expansion)
            wanted = size + (int(sizes_up_to[at - first - 1]) if at > first else 0)
            end = max(at + 1, first + int(np.searchsorted(sizes_up_to, wanted)))
            room = self._rooms.pop() if self._rooms else np.empty(min(limits.UNPACKED_ROOM_BYTES, _largest_room()), np.uint8)
            yield partial(self._unpacked, room, buffer, table, at, end)
            at = end

    def _unpacked(self, room: Bytes, buffer: Bytes, table: Table, first: int, end: int) -> tuple[BatchGroup, int]:
        return self._group(room, buffer, table, first, self._checked(buffer, table, first, end)), end

    def _completed(self, buffer: Bytes, table: Table, group: BatchGroup, end: int) -> Iterator[BatchGroup]:
        """Yields a group, and then the batches planned for it that did not fit, or raises the error of the first faulty one."""
        self._note_expansion(table, group)
        room = group.room
        while True:
            if group.end > group.first:
                yield group
            if group.end == end:
                break
            group = self._large(buffer, table, group.end, end)
        self._rooms.append(room)

    def _note_expansion(self, table: Table, group: BatchGroup) -> None:
        packed = int(table[SIZE, group.first : group.end].sum())
        if packed:
            self._expansion = max(1.0, int(group.table[SIZE].sum()) / packed)

    def _checked(self, buffer: Bytes, table: Table, first: int, end: int) -> int:
        """Returns how far batches match their checksums.

        One call checks all of them: each call releases the GIL, and may wait longer for it than it works.
        """
        if not self._verify:
            return end
        good = int(kernels.first_bad_crc(buffer, table, first, end))
        if good == first:
            raise placed(CorruptionError(WHY[kernels.BAD_CRC]), table, first)
        return good

    def _large(self, buffer: Bytes, table: Table, first: int, end: int) -> BatchGroup:
        """Returns the next group in the large buffer, which grows until one batch fits."""
        good = self._checked(buffer, table, first, end)
        while True:
            group = self._group(self._large_room, buffer, table, first, good)
            if group.end > first:
                return group
            try:
                self._large_room = _larger_room(self._large_room)
            except DecompressionLimitError as error:
                raise placed(error, table, first) from error

    def _group(self, room: Bytes, buffer: Bytes, table: Table, first: int, last: int) -> BatchGroup:
        """Returns as many batches as fit a buffer. An error is about the batch `first`; later groups report the others."""
        sizes: list[int] = []
        used = 0
        for position, size, attributes, count in table[_ENTRY, first:last].T.tolist():
            payload = buffer[position + HEADER_SIZE : position + size]
            try:
                unpacked = _unpack(attributes & CODEC_MASK, payload, count, room[used + HEADER_SIZE :])
            except PylogError as error:
                if not sizes:
                    raise placed(error, table, first) from error
                break
            if unpacked is None:
                break
            sizes.append(HEADER_SIZE + unpacked)
            used += HEADER_SIZE + unpacked
        plain = table[:, first : first + len(sizes)].copy()
        plain[SIZE] = sizes
        plain[POSITION] = np.cumsum(sizes) - sizes
        return BatchGroup(room, plain, first, first + len(sizes))


def _unpack(codec: int, payload: Bytes, count: int, out: Bytes) -> int | None:
    """Decompresses a batch into a buffer. Returns the size, or None if the buffer is too small."""
    if not out.size:
        return None
    return compression.decompress_into(codec, payload, out) if count else 0  # an empty batch: storage-format 1.5.4


def _larger_room(room: Bytes) -> Bytes:
    """Returns four times the room to decompress into, up to the limit for one batch.

    Raises:
        DecompressionLimitError: the room has reached the limit.
    """
    if room.size >= _largest_room():
        raise DecompressionLimitError(f"decompresses to more than {limits.MAX_BATCH_DECOMPRESSED_BYTES} bytes")
    return np.empty(min(max(4 * room.size, limits.UNPACKED_ROOM_BYTES), _largest_room()), np.uint8)


def _largest_room() -> int:
    return HEADER_SIZE + limits.MAX_BATCH_DECOMPRESSED_BYTES
