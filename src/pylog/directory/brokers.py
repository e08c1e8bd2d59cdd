"""Detects by a broker's lock and checkpoint files whether it has written to a log directory since pylog did.

If so, the log end in pylog's header is stale. Usually the leader epochs of the batches after that end show it. But a broker that
is coordinated by ZooKeeper continues with the epoch that it had before it stopped, and so does pylog.
"""

from __future__ import annotations

from pylog.directory.checkpoints import HIGH_WATERMARK
from pylog.directory.locks import KAFKA_LOCK
from pylog.fs import FileSystem, join, parent_of
from pylog.segment.names import DURABLE_POINT


def has_written_since(fs: FileSystem, directory: str) -> bool:
    """Returns whether a broker has a log directory open, or has had it open since a header in it was last written.

    Args:
        fs: the file system.
        directory: the partition's directory, which has a header.

    A broker writes its high watermarks every five seconds, and when it stops. While a pylog process has the directory open for
    writing, batches after a published end are that process's.

    Cost: one check of a lock; if it is free, two directory listings.
    """
    root = parent_of(directory)
    owner = fs.lock_owner(join(root, KAFKA_LOCK))
    if owner is not None:
        return owner > 0  # the system reports no owner for pylog's locks
    return modified(fs, root, HIGH_WATERMARK) > modified(fs, directory, DURABLE_POINT)


def modified(fs: FileSystem, directory: str, name: str) -> int:
    """Returns when a file was modified, in milliseconds since 1970; 0 if it does not exist."""
    return max((entry.mtime_ms for entry in fs.list(directory, sizes=name) if entry.name == name), default=0)
