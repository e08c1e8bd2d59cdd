"""Decompressing runs of batches: some at a time, one behind the other, so that one kernel call decodes them like plain ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, PylogError
from pylog.record import compression, kernels
from pylog.record.batch import WHY, Bytes, Table, placed
from pylog.record.format import ATTRIBUTES, CODEC_MASK, COUNT, HEADER_SIZE, POSITION, SIZE

_ENTRY = [POSITION, SIZE, ATTRIBUTES, COUNT]


class Group(NamedTuple):
    """Compressed batches, `first` to before `end` of a table, whose records lie plain in `room` as `table` says."""

    room: Bytes
    table: Table
    first: int
    end: int


class Unpacker:
    """Decompresses batches in groups, into two rooms in turn: a group is good until the next but one is asked for.

    Args:
        verify: check each batch's CRC.
    """

    def __init__(self, *, verify: bool) -> None:
        self._verify = verify
        self._rooms = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def groups(self, buffer: Bytes, table: Table, first: int, last: int) -> Iterator[Group]:
        """The batches `first` to before `last` of a table, in order.

        Raises:
            CorruptionError, DecompressionLimitError, UnsupportedFormatError: about the first batch that has not been handed out.
        """
        good = first  # what lies before it may be decompressed
        while first < last:
            self._rooms.reverse()
            try:
                if first == good:
                    good = self._checked(buffer, table, first, last)
                group = self._group(buffer, table, first, good)
            except PylogError as error:
                raise placed(error, table, first) from error
            yield group
            first = group.end

    def _checked(self, buffer: Bytes, table: Table, first: int, last: int) -> int:
        """How far batches match their checksums, looking ahead about as far as the next group will reach.

        All of them in one call: each gives up the GIL, and may wait for it longer than it works.
        """
        ends = np.cumsum(table[SIZE, first:last])
        end = first + max(1, int(np.searchsorted(ends, limits.UNPACKED_GROUP_BYTES // 2)))
        if not self._verify:
            return end
        good = int(kernels.first_bad_crc(buffer, table, first, end))
        if good == first:
            raise CorruptionError(WHY[kernels.BAD_CRC])
        return good

    def _group(self, buffer: Bytes, table: Table, first: int, last: int) -> Group:
        """Some batches, one behind the other. Any error is about the batch `first`; the next group meets the others."""
        sizes: list[int] = []
        used = 0
        for position, size, attributes, count in table[_ENTRY, first:last].T.tolist():
            payload = buffer[position + HEADER_SIZE : position + size]
            try:
                unpacked = self._unpack(attributes & CODEC_MASK, payload, count, used)
            except PylogError:
                if not sizes:
                    raise
                break
            if unpacked is None:
                break
            sizes.append(HEADER_SIZE + unpacked)
            used += HEADER_SIZE + unpacked
            if used >= limits.UNPACKED_GROUP_BYTES:
                break
        plain = table[:, first : first + len(sizes)].copy()
        plain[SIZE] = sizes
        plain[POSITION] = np.cumsum(sizes) - sizes
        return Group(self._rooms[0], plain, first, first + len(sizes))

    def _unpack(self, codec: int, payload: Bytes, count: int, used: int) -> int | None:
        """Decompresses into the room, `HEADER_SIZE` bytes behind `used`: the size, or None if there is too little room left.

        The first batch of a group always finds enough: the room grows.
        """
        while True:
            out = self._rooms[0][used + HEADER_SIZE :]
            size = None
            if out.size:  # an empty batch is not looked into (storage-format 1.5.4)
                size = compression.decompress_into(codec, payload, out) if count else 0
            if size is not None or used:
                return size
            self._rooms[0] = _larger_room(self._rooms[0])


def _larger_room(room: Bytes) -> Bytes:
    """Four times the room to decompress into, up to the limit on one batch.

    Raises:
        DecompressionLimitError: it is that large already.
    """
    limit = HEADER_SIZE + limits.MAX_BATCH_DECOMPRESSED_BYTES
    if room.size >= limit:
        raise DecompressionLimitError(f"decompresses to more than {limits.MAX_BATCH_DECOMPRESSED_BYTES} bytes")
    return np.empty(min(max(4 * room.size, limits.READ_CHUNK_BYTES), limit), np.uint8)
