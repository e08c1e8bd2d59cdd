"""Reads the durable point of a partition, as it is on the disk."""

from __future__ import annotations

from pathlib import Path

from pylog.fs import FileSystem, OsFileSystem
from pylog.log.durable_point import DurablePoint, DurablePointFile


def slot_of(path: Path, fs: FileSystem | None = None) -> DurablePoint:
    """Returns the valid slot of the header of partition 0 of topic `t`."""
    header = DurablePointFile(fs or OsFileSystem(), str(path / "t-0"))
    slot = header.refresh()
    header.close()
    assert slot is not None
    return slot
