"""Copies the bytes of a torn tail before they are cut off (reliability 3.3)."""

from __future__ import annotations

import itertools

from pylog.fs import FileSystem, join
from pylog.segment.batch_walk import Damage
from pylog.segment.names import TORN, file_name
from pylog.segment.segment import LogSegment


def set_aside(fs: FileSystem, segment: LogSegment, torn: Damage) -> str:
    """Copies the torn tail of a segment into a new file in the same directory, durably. Only then may it be cut off.

    Args:
        fs: the file system.
        segment: the last segment of its log.
        torn: its torn tail.

    Returns:
        The new file's path.

    Raises:
        StorageFailedError: there is no room for it.
    """
    path = _new_path(fs, segment)
    aside = fs.create(path)
    try:
        segment.file().copy_to(aside, torn.position, torn.end)
        aside.sync()
    finally:
        aside.close()
    fs.sync_directory(segment.directory)
    return path


def _new_path(fs: FileSystem, segment: LogSegment) -> str:
    numbers = itertools.count()
    paths = (join(segment.directory, file_name(segment.base_offset, f"{TORN}.{number}")) for number in numbers)
    return next(path for path in paths if not fs.exists(path))
