"""Finds bytes after the end of a closed log, which readers do not read.

A closed log stores its end, and readers stop there. Bytes that another program appended to the file afterwards are therefore not
damage. `verify` reports them, because the next writer cuts them off, or adopts them if they are batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pylog.directory.checkpoints import CLEAN_SHUTDOWN
from pylog.directory.locks import KAFKA_LOCK
from pylog.errors import PylogError
from pylog.fs import FileSystem, join
from pylog.log.checking.report import BEHIND, ReadPartition, Report, about
from pylog.log.recovery.findings import Finding
from pylog.record.format import BASE_OFFSET, CRC_BAD, CRC_STATE, LAST_OFFSET, POSITION, SIZE
from pylog.segment.segment import LogSegment
from pylog.text import counted
from pylog.tools.partitions import PartitionDirectory

_TOLD = frozenset({"torn", "corrupt", "unreadable"})  # kinds of findings that already cover these bytes


def trailing_bytes(
    fs: FileSystem, target: PartitionDirectory, read: ReadPartition, report: Report, *, alone: bool
) -> Iterator[Finding]:
    """Yields findings on bytes after a log's end, unless a process has the log open or they were reported before.

    Args:
        fs, target, read: the partition.
        report: the findings so far.
        alone: True if only the caller has the directory open.
    """
    try:
        state = read().state
        active, reported = state.active, {finding.path for finding in report.findings if finding.kind in _TOLD}
        if active is None or active.path in reported or not (alone or _is_closed(fs, target.root)):
            return
        position, size = state.active_size, active.file().size()
        sound_end = _end_of_batches(active, position, size, state.end_offset)
    except PylogError:
        return  # reported by the verification
    if sound_end > position:
        held = f"has {counted(sound_end - position, 'byte')} of whole batches after its end at position {position}"
        yield about("foreign", active.path, f"{held}: the next writer adopts them", position=position, size=sound_end - position)
    if size > sound_end and not _is_preallocated(fs, target, active, sound_end, size):
        held = f"has {counted(size - sound_end, 'byte')} after its end at position {sound_end} that are not a batch of this log"
        yield about(BEHIND, active.path, f"{held}: the next writer cuts them off", position=sound_end, size=size - sound_end)


def _is_preallocated(fs: FileSystem, target: PartitionDirectory, active: LogSegment, position: int, end: int) -> bool:
    """Returns True for zeros that a killed process had preallocated, which a broker would cut off too."""
    return active.file().is_blank(position, end) and not fs.exists(join(target.root, CLEAN_SHUTDOWN))


def _is_closed(fs: FileSystem, root: str) -> bool:
    """Returns True if neither a broker nor a writing pylog process has the log directory open."""
    return fs.lock_owner(join(root, KAFKA_LOCK)) is None


def _end_of_batches(segment: LogSegment, position: int, end: int, offset: int) -> int:
    """Returns the end position of the consecutive good batches that start at `position`."""
    for region in segment.regions(position, end, verify=True) if position < end else ():
        table = region.table
        expected = np.append(offset, table[LAST_OFFSET] + 1)
        wrong = np.flatnonzero((table[CRC_STATE] == CRC_BAD) | (table[BASE_OFFSET] != expected[:-1]))
        good = int(wrong[0]) if wrong.size else table.shape[1]
        if good:
            position, offset = region.shift + int(table[POSITION, good - 1] + table[SIZE, good - 1]), int(expected[good])
        if wrong.size:
            break
    return position
