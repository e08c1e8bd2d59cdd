"""Prepares the active segment for a writer's first append."""

from __future__ import annotations

from pylog import trace
from pylog.log.durable_point import FAILED
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.torn_tail import set_aside
from pylog.log.writing.active_file import ActiveFile
from pylog.segment.segment import LogSegment


def cut_tail(source: Source, loaded: Loaded, active: LogSegment, file: ActiveFile, end: int) -> None:
    """Cuts off everything after the log's end: a torn tail, whose bytes are kept in another file, or preallocated zeros."""
    torn = loaded.torn
    if torn is None:
        file.trim(end)  # another process that writes into the zeros sees that they were removed
        return
    path = set_aside(source.fs, active, torn)
    file.cut(torn.position)
    facts = {"path": active.path, "position": torn.position, "bytes": torn.end - torn.position, "offset": torn.offset}
    trace.later(trace.TORN_KEPT, source.partition, **facts, kept=path)


def make_durable(source: Source, loaded: Loaded, active: LogSegment, file: ActiveFile, end: int) -> None:
    """Syncs what loading kept, which may be in memory only. After a failed sync its pages look clean: they are written again."""
    slot = loaded.slot
    if slot is not None and loaded.same_boot and slot.active_base == active.base_offset:
        start = slot.durable_position if slot.flags & FAILED else slot.published_position
        active.file().copy(start, end, file.raw, start)
    file.raw.sync()
    source.fs.sync_directory(source.directory)
