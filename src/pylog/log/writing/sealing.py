"""Writes the files that seal a segment, and removes them again if the next segment cannot be created."""

from __future__ import annotations

from collections.abc import Callable

from pylog.clock import Clock
from pylog.errors import NO_ROOM, StorageFailedError
from pylog.fs import FileSystem, join, remove_derived
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.loaded import Source
from pylog.log.recovery.producer_snapshots import write_snapshot
from pylog.log.writing.active_segment import ActiveSegment, new_segment
from pylog.segment.names import LOG, SNAPSHOT, file_name


def seal_files(source: Source, active: ActiveSegment, producers: ProducerStateManager, inode: int, clock: Clock) -> None:
    """Writes the seal and the derived files of a full segment, whose `.log` file has an inode."""
    active.write_seal(source.fs, source.directory, inode)
    write_derived(source, active, producers, clock)


def write_derived(source: Source, active: ActiveSegment, producers: ProducerStateManager, clock: Clock) -> None:
    """Writes the index files of a full or closing segment, its file time, and the producer snapshot after it."""
    active.write_indexes(clock.now_ms())
    producers.rest(active.next_offset, clock.now_ms(), source.config.producer_id_expiration_ms)
    write_snapshot(source.fs, source.directory, producers)


def next_segment(
    source: Source, full: ActiveSegment, producers: ProducerStateManager, inode: int, clock: Clock, fail: Callable[[str], None]
) -> ActiveSegment | StorageFailedError:
    """Writes the files that seal a full segment, and creates the next one.

    Args:
        source, full, producers: the partition, its active segment, its producers.
        inode: the inode of the full segment's `.log` file.
        clock: for the times of files.
        fail: ends all writing, for a reason.

    Returns:
        The next segment; or the error, if there was no room and nothing of the next segment is left.
    """
    try:
        seal_files(source, full, producers, inode, clock)
        return new_segment(source, full.next_offset, clock.now_ms())
    except StorageFailedError as error:
        try:
            take_back(source.fs, source.directory, full.next_offset)
        except StorageFailedError as left:
            if left.errno in NO_ROOM:  # the append cannot be undone while the segment exists
                fail(f"an incomplete new segment could not be removed ({left})")
            raise
        return error


def take_back(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Removes the files of a segment that was not started. A snapshot ahead of the log would look like a loss."""
    for suffix in (LOG, SNAPSHOT):
        path = join(directory, file_name(base_offset, suffix))
        if fs.exists(path):
            remove_derived(fs, path)
    fs.sync_directory(directory)
