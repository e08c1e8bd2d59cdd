"""Whether a broker has written in a log directory since pylog did: its lock and its own files tell.

What a header says of a partition's end is stale then. Most often the batches behind that end show it, by their leader epoch. But
a broker that ZooKeeper coordinates goes on under the epoch that it had before it was stopped, and so does pylog.
"""

from __future__ import annotations

from pylog.directory.checkpoints import HIGH_WATERMARK
from pylog.directory.locks import KAFKA_LOCK
from pylog.fs import FileSystem, join, parent_of
from pylog.segment.names import DURABLE_POINT


def has_written_since(fs: FileSystem, directory: str) -> bool:
    """Whether a broker has a log directory open, or had it open since a header in it was written last.

    Args:
        fs: the file system.
        directory: the partition's, which has a header.

    Cost: a look at a lock; when nobody holds it two listings.

    A broker notes its high watermarks every five seconds, and when it stops. What lies behind a published end while a pylog
    process has the directory open for writing is that process's.
    """
    root = parent_of(directory)
    owner = fs.lock_owner(join(root, KAFKA_LOCK))
    if owner is not None:
        return owner > 0  # pylog's locks have no owner
    return modified(fs, root, HIGH_WATERMARK) > modified(fs, directory, DURABLE_POINT)


def modified(fs: FileSystem, directory: str, name: str) -> int:
    """When a file was modified, in milliseconds; 0 when there is none."""
    return max((entry.mtime_ms for entry in fs.list(directory, sizes=name) if entry.name == name), default=0)
