"""What lies behind the end of a log that nobody has open: bytes that no reader meets, and that no header speaks of.

A log that was closed knows its end, and reading stops there. So bytes that were appended to the file since are not read, and are
no damage; but somebody should hear of them before the next writer cuts them off, or takes them up because they are batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pylog.errors import PylogError
from pylog.fs import FileSystem, join
from pylog.log.checkpoints import CLEAN_SHUTDOWN
from pylog.log.recovery import Finding
from pylog.log.report import BEHIND, Look, Report, about
from pylog.log.store_locks import KAFKA_LOCK
from pylog.record.format import BASE_OFFSET, CRC_BAD, CRC_STATE, LAST_OFFSET, POSITION, SIZE
from pylog.segment.segment import LogSegment
from pylog.tools.partitions import PartitionDirectory

_TOLD = frozenset({"torn", "corrupt", "unreadable"})  # kinds of findings that speak of those bytes already


def trailing_bytes(fs: FileSystem, target: PartitionDirectory, look: Look, report: Report, *, alone: bool) -> Iterator[Finding]:
    """The bytes behind a log's end, if they are not the write of somebody who has it open, nor told of already.

    Args:
        fs, target, look: which.
        report: what was found.
        alone: it is the caller who has the directory open.
    """
    try:
        state = look().state
        active, told = state.active, {finding.path for finding in report.findings if finding.kind in _TOLD}
        if active is None or active.path in told or not (alone or _is_closed(fs, target.root)):
            return
        position, size = state.active_size, active.file().size()
        taken = _end_of_batches(active, position, size, state.end_offset)
    except PylogError:
        return  # it was told when it was verified
    if taken > position:
        held = f"has {taken - position} bytes of whole batches behind its end, position {position}"
        yield about("foreign", active.path, f"{held}: the next writer takes them up", position=position, size=taken - position)
    if size > taken and not _is_preallocated(fs, target, active, taken, size):
        held = f"has {size - taken} bytes behind its end, position {taken}, that are no batch of this log"
        yield about(BEHIND, active.path, f"{held}: the next writer cuts them off", position=taken, size=size - taken)


def _is_preallocated(fs: FileSystem, target: PartitionDirectory, active: LogSegment, position: int, end: int) -> bool:
    """Whether only zeros are there, as a process leaves them that dies, and a broker would cut them off too."""
    return active.file().is_blank(position, end) and not fs.exists(join(target.root, CLEAN_SHUTDOWN))


def _is_closed(fs: FileSystem, root: str) -> bool:
    """Whether neither a broker nor a pylog that may write has a log directory open."""
    return fs.lock_owner(join(root, KAFKA_LOCK)) is None


def _end_of_batches(segment: LogSegment, position: int, end: int, offset: int) -> int:
    """The position behind the last good batch, from `position` on, that goes on where the one before ends."""
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
