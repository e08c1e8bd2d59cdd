"""Detects logs whose first records are in a Kafka broker's remote storage, and their offsets.

With tiered storage, a broker deletes local segments that it has copied to remote storage. Its checkpoint keeps the log start
offset, and the leader epochs still begin there, below the first segment. A broker that runs writes that checkpoint once a minute:
until then its records of remote segments tell the offset. pylog reads the local log, from the local log start offset on. It keeps
the files that lead the broker to the remote records, and raises an error instead of starting later than requested.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from typing import Final

from pylog.directory.leader_epoch_cache import EpochEntry, read_epochs, tiered_log_start
from pylog.directory.partition_metadata import read_topic_id
from pylog.errors import CorruptionError, OffsetOutOfRangeError, StorageFailedError
from pylog.fs import FileSystem, base_name, join, parent_of
from pylog.segment.names import ARCHIVED, LOG, parse

_METADATA: Final = "__remote_log_metadata-"  # partitions of the topic with the brokers' remote segments
_CACHE: Final = "remote-log-index-cache"  # a directory that a broker with remote storage creates
_BROKERS: Final = "meta.properties"


def remote_start(
    fs: FileSystem, directory: str, log_start: int | None, epochs: Sequence[EpochEntry] | None, first_base: int
) -> int | None:
    """Returns the log start offset of a log whose first records are remote; None if the log is complete.

    Args:
        fs, directory: the partition.
        log_start: its entry in the log start checkpoint, or None.
        epochs: its leader epochs.
        first_base: base offset of its first segment.

    One sign is not sufficient: the checkpoint may be stale after a crash, and leader epochs alone mean missing segments.
    """
    if not epochs or epochs[0].start_offset >= first_base:
        return None
    if log_start is None:
        return _recorded_start(fs, directory, epochs[0].start_offset, first_base)
    start = tiered_log_start(log_start, epochs)
    return start if start is not None and start < first_base and is_brokers(fs, parent_of(directory)) else None


def _recorded_start(fs: FileSystem, directory: str, start: int, first_base: int) -> int | None:
    """Returns the log start offset by the broker's records of its remote segments; None if they have none of the partition."""
    root = parent_of(directory)
    if not has_tier(fs, root):
        return None
    from pylog.objects.tier_metadata import recorded_bases  # few logs have a tier

    bases = [base for base in recorded_bases(fs, root, base_name(directory), read_topic_id(fs, directory)) if base < first_base]
    return max(start, min(bases)) if bases else None


def begins_in_tier(fs: FileSystem, directory: str, log_start: int | None, first_base: int | None = None) -> bool:
    """Returns whether the first records of a partition that is not open are in remote storage.

    Args:
        fs, directory: the partition.
        log_start: its entry in the log start checkpoint, or None.
        first_base: base offset of its first segment; None to list it.

    Cost: none if the first segment begins at offset 0, else a small file.
    """
    if first_base is None:
        first_base = _first_base(fs, directory)
    with contextlib.suppress(CorruptionError):
        return first_base > 0 and remote_start(fs, directory, log_start, read_epochs(fs, directory), first_base) is not None
    return False


def _first_base(fs: FileSystem, directory: str) -> int:
    """Returns the base offset of a partition's first segment; 0 if it has none, is not created yet, or is being deleted."""
    try:
        entries = fs.list(directory)
    except StorageFailedError as error:
        if error.errno != errno.ENOENT:
            raise
        return 0
    return min((name.offset for entry in entries if (name := parse(entry.name)) and name[1:] == (LOG, "")), default=0)


def may_begin_in_tier(fs: FileSystem, directory: str, log_start: int | None, first_base: int) -> bool:
    """Returns whether a partition must be opened to know its first offset, because its first records may be in remote storage.

    Args:
        fs, directory, log_start, first_base: as `begins_in_tier`.
    """
    return begins_in_tier(fs, directory, None, first_base) if log_start is None else log_start < first_base


def may_have_lost_start(fs: FileSystem, directory: str, log_start: int, first_base: int) -> bool:
    """Returns whether a partition must be opened to know whether its first segments are in an archive, or were removed.

    Args:
        fs, directory, first_base: as `begins_in_tier`.
        log_start: the log start offset by header and checkpoint; 0 if they have none.
    """
    if log_start >= first_base:
        return False
    if fs.exists(join(directory, ARCHIVED)):
        return True
    try:
        epochs = read_epochs(fs, directory)
    except CorruptionError:
        return True
    return epochs is not None and any(each.start_offset < first_base for each in epochs[:1])


def is_brokers(fs: FileSystem, root: str) -> bool:
    """Returns whether a log directory is a broker's: pylog has no remote storage."""
    return any(entry.name == _BROKERS for entry in fs.list(root)) or has_tier(fs, root)


def has_tier(fs: FileSystem, root: str) -> bool:
    """Returns whether a log directory has files of a broker with remote storage."""
    return any(entry.name == _CACHE or entry.name.startswith(_METADATA) for entry in fs.list(root))


def in_tier(name: str, remote: range, offset: int) -> OffsetOutOfRangeError:
    """Returns the error for an offset that is only in remote storage.

    Args:
        name: the partition's name.
        remote: the offsets in remote storage.
        offset: the requested offset.
    """
    offsets = f"{remote.start} to {remote.stop - 1}"
    where = f"is in a broker's remote tier, which has the offsets {offsets} and was not given as a KafkaTier"
    message = f"offset {offset} of {name} {where}"
    advice = f"the local log starts at offset {remote.stop}: start there to read it alone"
    return OffsetOutOfRangeError(f"{message}; {advice}", offset=offset)
