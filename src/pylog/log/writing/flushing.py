"""Makes the published records of a partition durable, at once or in a background thread while appends continue."""

from __future__ import annotations

from pylog.errors import StorageFailedError
from pylog.log.writing.partition_writer import PartitionWriter


def flush(partition: PartitionWriter) -> None:
    """Makes all published records durable, including those of other processes. Rewrites those hidden by a failed sync."""
    with partition.locked():
        partition.check_names()
        partition.take_changes()
        if partition.loaded.corrupt is None and partition.has_unsynced_records:
            partition.ready_writer().flush()


def flush_in_background(partition: PartitionWriter) -> None:
    """Flushes in a background thread. The sync itself runs without the locks, so appends continue.

    Raises:
        StorageFailedError: the sync failed; the log accepts no more writes.
    """
    with partition.lock:
        if partition.is_deleted or (partition.writer is not None and partition.writer.failure is not None):
            return
        partition.check_names()
        partition.take_changes_of_others()  # includes records of a process that has died
        writer = partition.writer
        if writer is None:
            flush(partition)
            return
        if writer.state.durable_offset >= writer.state.end_offset:
            return
        point = writer.published.sync_point(writer.active)
    try:
        point.file.sync()
    except StorageFailedError as error:
        with partition.locked():
            if partition.writer is not writer:
                return  # the writer was closed in between, and the log loaded again
            writer.stop.fail(f"a sync failed ({error}), so the state of the disk is unknown")
            writer.stop.unreported = error
        raise
    with partition.locked():
        if partition.writer is writer and writer.failure is None and (writer.is_current() or writer.catch_up()):
            writer.published.note_durable(point)  # otherwise another writer has taken over
