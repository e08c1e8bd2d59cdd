"""Copies of files that keep the holes of sparse files, at a cost in proportion to the bytes that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pylog import limits
from pylog.errors import StorageFailedError
from pylog.fs.protocols import File


def data_ranges(next_data: Callable[[int], int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields pieces of a file that have data, as position and size; holes lie between them, except short ones.

    After a hole a piece is small, so a page of data costs at most `limits.EXTENT_BYTES`. Where the data goes on, pieces grow.

    Args:
        next_data: `File.next_data`.
        start, end: the range.

    >>> list(data_ranges(lambda position: position, 0, 300_000))
    [(0, 65536), (65536, 131072), (196608, 103392)]
    >>> list(data_ranges(lambda position: max(position, 1 << 30), 0, (1 << 30) + 5))
    [(1073741824, 5)]
    """
    most = limits.EXTENT_BYTES
    position = start
    while (found := next_data(position)) < end:
        most = most if found == position else limits.EXTENT_BYTES
        size = min(most, end - found)
        yield found, size
        position, most = found + size, min(2 * most, limits.READ_CHUNK_BYTES)


def copy_range(source: File, start: int, end: int, target: File, at: int) -> int:
    """Copies the bytes from `start` to `end` of one file into another one at `at`, where the other has no data yet.

    Holes stay holes. The other file has the whole length afterwards.

    Returns:
        The position in the source at which the copy ended: less than `end` if the source is shorter.

    Raises:
        StorageFailedError: the disk is full, or one of the files cannot be read or written.
    """
    buffer = memoryview(bytearray(min(limits.READ_CHUNK_BYTES, max(0, end - start))))
    for position, size in data_ranges(source.next_data, start, end):
        got = source.read_into(buffer[:size], position)
        target.write(buffer[:got], at + position - start)
        target.write_back(at + position - start, got)
        if got < size:
            return position + got
    done = min(end, max(start, source.size()))
    extend(target, at + done - start)
    return done


def extend(target: File, size: int) -> None:
    """Makes a copied file as long as its source, which ends with a hole."""
    if target.size() < size:
        target.truncate(size)


def copy_file(source: File, target: File) -> None:
    """Copies a whole file into an empty one, and syncs that.

    Raises:
        StorageFailedError: as `copy_range`, or the source changed meanwhile.
    """
    size = source.size()
    done = copy_range(source, 0, size, target, 0)
    target.sync()
    if done != size or source.size() != size:
        message = f"{source.path} changed while it was copied; stop the process that writes to it"
        raise StorageFailedError(message, path=source.path)
