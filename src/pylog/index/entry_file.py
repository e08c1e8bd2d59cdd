"""`EntryFile`: an index file whose entries are read one by one. Needs no numpy, and no memory for what Kafka preallocates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

from pylog.fs import File, FileSystem

_NONE = (0, 0)  # an entry that Kafka has preallocated


class EntryFile:
    """The entries of an open index file. They are not checked: the caller compares those that it uses with the log.

    Args:
        file: the file.
        fields: an entry of it, of two numbers.

    Attributes:
        count: the number of entries before the preallocated ones. Cost: O(log n) small reads.
        is_damaged: whether the file ends inside an entry.
    """

    def __init__(self, file: File, fields: Struct) -> None:
        self._file = file
        self._fields = fields
        entries, rest = divmod(file.size(), fields.size)
        self.is_damaged = rest > 0
        self.count = bisect_left(range(entries), True, key=lambda index: self[index] == _NONE)

    def __getitem__(self, index: int) -> tuple[int, int]:
        size = self._fields.size
        first, second = self._fields.unpack(self._file.read(size, index * size).ljust(size, b"\0"))
        return first, second


@contextmanager
def opened(fs: FileSystem, path: str, fields: Struct) -> Iterator[EntryFile]:
    """Opens an index file, and closes it afterwards.

    Args:
        fs, path: the file.
        fields: as for `EntryFile`.

    Raises:
        StorageFailedError: it is missing or cannot be read.
    """
    file = fs.open(path)
    try:
        yield EntryFile(file, fields)
    finally:
        file.close()
