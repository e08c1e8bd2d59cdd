"""`pylog.open`: a `Store` from a path."""

from __future__ import annotations

import os

from pylog import limits
from pylog.clock import Clock, SystemClock
from pylog.config import Durability, OffsetsConfig
from pylog.errors import InvalidArgumentError
from pylog.fs import FileSystem, OsFileSystem, is_path, rooted
from pylog.options import Committed, StoreOptions
from pylog.store import Store


def open_store(
    path: str | os.PathLike[str],
    mode: str = "rw",
    *,
    durability: Durability = Durability.SYNC,
    exclusive: bool = False,
    lock_timeout_ms: int = 30_000,
    tick_interval_ms: int | None = None,
    committed: Committed | None = None,
    offsets: OffsetsConfig | None = None,
    cleaner_dedupe_buffer_size: int = limits.DEFAULT_DEDUPE_BUFFER_BYTES,
    cleaner_io_max_bytes_per_second: float | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Store:
    """Opens a directory of topics: one of pylog's, or a Kafka broker's log directory.

    Args:
        path: the directory. With mode "rw" it is made when it does not exist.
        mode: "rw", or "r": take no lock and write nothing, also beside a running broker or on read-only media.
        durability: what an acknowledgement promises where neither call nor topic say.
        exclusive: keep every other writing process out, and need not look after them: appends cost a few microseconds less.
        lock_timeout_ms: how long a call waits while another process changes the same partition.
        tick_interval_ms: call `tick` that often in the background; by default nobody does.
        committed: gives the next offset that a group will read of a partition, None when it has committed none: for topics
            whose `retention_group` names one. By default what it has committed in `offsets` counts.
        offsets: how committed offsets are kept.
        cleaner_dedupe_buffer_size: bytes of memory for the keys of a compaction; where they do not hold all it takes more rounds.
        cleaner_io_max_bytes_per_second: how fast compaction may read and write; None is as fast as it goes.
        fs, clock: another file system or clock, for tests.

    Returns:
        A `Store`, to be closed; it is a context manager.

    Raises:
        NotALogDirectoryError: missing, not a directory, or no permission.
        StoreLockedError: a Kafka broker has it open, or a pylog process with `exclusive=True`, or (with `exclusive=True`) any.
        InvalidArgumentError: an argument is not one of those named above.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     store.topics()
    {}
    """
    options = StoreOptions(
        mode=mode,
        durability=durability,
        exclusive=exclusive,
        lock_timeout_ms=lock_timeout_ms,
        tick_interval_ms=tick_interval_ms,
        committed=committed,
        offsets=offsets or OffsetsConfig(),
        cleaner_dedupe_buffer_size=cleaner_dedupe_buffer_size,
        cleaner_io_max_bytes_per_second=cleaner_io_max_bytes_per_second,
    )
    given = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(given, str) or not is_path(given):
        raise InvalidArgumentError(f"path={path!r} is not a path")
    return Store(given if fs is not None else rooted(given), options, fs or OsFileSystem(), clock or SystemClock())
