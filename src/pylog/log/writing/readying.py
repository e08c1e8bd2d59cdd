"""Prepares the active segment and the shared header for a writer's first append."""

from __future__ import annotations

from msgspec.structs import replace

from pylog import trace
from pylog.config import TopicConfig
from pylog.log.durable_point import FAILED, DurablePoint, DurablePointFile, epoch_after, make_header
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.producer_snapshots import drop_snapshots
from pylog.log.recovery.torn_tail import set_aside
from pylog.log.state import LogState
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


def after_lost_files(source: Source, loaded: Loaded, state: LogState) -> LogState:
    """Returns the state to begin with: that of a log which lost all its files begins at the offset that it had reached."""
    if loaded.reached <= state.end_offset:
        return state
    trace.later(trace.BEGUN_AGAIN, source.partition, path=source.directory, start=loaded.reached)
    return replace(state, start_offset=loaded.reached, end_offset=loaded.reached)


def first_slot(
    loaded: Loaded, state: LogState, ends: dict[str, int], config: TopicConfig, leader_epoch: int, *, unsynced_bytes: int
) -> DurablePoint:
    """Returns the slot for the first append. Its epoch is new unless log and options are unchanged.

    Args:
        loaded, state: the log.
        ends: the ends of the active segment.
        config: the topic's options.
        leader_epoch: the leader epoch of new batches.
        unsynced_bytes: the largest distance of two unsynced batches.
    """
    old = loaded.found or DurablePoint()
    same = loaded.slot is not None and old.log_start_offset == state.whole_start
    return replace(
        DurablePoint(),
        counter=old.counter,
        epoch=epoch_after(old, config, same=same),
        unsynced_bytes=unsynced_bytes,
        log_start_offset=state.whole_start,
        truncation_count=old.truncation_count,
        leader_epoch=leader_epoch,
        **ends,
    )


def take_header(source: Source, loaded: Loaded, wanted: DurablePoint, now_ms: int) -> DurablePointFile:
    """Opens the header. Writes a new slot before the first append, unless the current one is exact (reliability 12)."""
    found = loaded.slot
    if found is not None and loaded.same_boot and wanted.has_same_facts_as(found):
        header = DurablePointFile(source.fs, source.directory, write=True)
        if header.refresh() == found:
            return header
        header.close()
    return make_header(source.fs, source.directory, wanted, now_ms)


def remove_snapshots(source: Source, loaded: Loaded, end: int) -> None:
    """Removes producer snapshots after the log end, which would look like a loss."""
    stale = drop_snapshots(source.fs, source.directory, loaded.snapshots, end, loaded.segments.bases)
    if stale:
        trace.later(trace.SNAPSHOTS_REMOVED, source.partition, end=end, files=stale)
