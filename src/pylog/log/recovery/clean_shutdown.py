"""Writes the checkpoints of a clean shutdown from the partitions' headers, without opening them (reliability 4)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from pylog.directory.checkpoints import NEW_MARKER, Checkpoint
from pylog.errors import StorageFailedError
from pylog.fs import FileSystem, join
from pylog.log.durable_point import open_header
from pylog.record.types import TopicPartition
from pylog.segment.log_file import LogFile
from pylog.segment.names import LOG, file_name, parse


class LogEnds(NamedTuple):
    """The state of a partition, from its header.

    Attributes:
        durable_offset: records below it are synced: Kafka's recovery point.
        start_offset: the log start offset.
        first_base_offset: the base offset of its first segment.
        settled: true if no operation was unfinished, and the last file has the published size.
        same_boot: true if the header was written under this boot.
        preallocated: true if zeros follow the published end, on which a broker that trusts the marker fails.
    """

    durable_offset: int
    start_offset: int
    first_base_offset: int
    settled: bool
    same_boot: bool
    preallocated: bool


def log_ends(fs: FileSystem, directories: Mapping[TopicPartition, str]) -> dict[TopicPartition, LogEnds]:
    """Returns the partitions with a header, by name."""
    found = {partition: _log_ends(fs, directory) for partition, directory in directories.items()}
    return {partition: ends for partition, ends in found.items() if ends is not None}


def _log_ends(fs: FileSystem, directory: str) -> LogEnds | None:
    try:
        header = open_header(fs, directory)
    except StorageFailedError:  # a partition that cannot be opened is not settled
        return None
    if header is None:
        return None
    slot, same_boot = header.refresh(), header.same_boot
    header.close()
    if slot is None:
        return None
    logs = {found.offset: entry.size for entry in fs.list(directory) if (found := parse(entry.name)) and found[1:] == (LOG, "")}
    last = max(logs, default=slot.active_base)
    size = logs.get(last, -1) if last == slot.active_base else -1
    settled = slot.idle and size == slot.published_position
    blank = size > slot.published_position and _is_blank(fs, join(directory, file_name(last, LOG)), slot.published_position, size)
    return LogEnds(slot.durable_offset, slot.log_start_offset, min(logs, default=0), settled, same_boot, blank)


def _is_blank(fs: FileSystem, path: str, position: int, end: int) -> bool:
    file = LogFile(fs, path, mapped=False)
    try:
        return file.is_blank(position, end)
    finally:
        file.close()


def is_empty(fs: FileSystem, directory: str) -> bool:
    """Returns whether a partition has no bytes, so that no operation can be unfinished."""
    try:
        return not any(entry.name.endswith(LOG) and entry.size for entry in fs.list(directory))
    except StorageFailedError:  # a broken link, for example
        return False


def write_shutdown_checkpoints(
    fs: FileSystem,
    names: Mapping[TopicPartition, str],
    opened: Container[TopicPartition],
    marker: bytes | None,
    recovery_points: Checkpoint,
    log_starts: Checkpoint,
) -> bool:
    """Writes the checkpoints of a log directory that no other process has open. Returns whether the shutdown is clean.

    If a broker was the last writer, its checkpoint may have a higher start than a header, because the broker deleted records.
    Without a marker the checkpoint is kept: a marker of pylog's would give the headers precedence.

    No entry is removed, or raised to the first segment: a lower start shows a broker that remote storage has the other records.

    Args:
        fs: the file system.
        names: the directories of all partitions.
        opened: those that were opened in this session. Without a marker only they are known to need no recovery.
        marker: the content of the clean-shutdown marker when the directory was opened; None without one.
        recovery_points, log_starts: Kafka's checkpoints.
    """
    found = log_ends(fs, names)
    settled = {partition: ends for partition, ends in found.items() if ends.settled}
    listed, ours = log_starts.offsets(), marker == NEW_MARKER
    starts = {key: ends.start_offset if ours else max(ends.start_offset, listed.get(key, 0)) for key, ends in settled.items()}
    raised = {key: start for key, start in starts.items() if start > settled[key].first_base_offset}
    lags = any(start > settled[key].start_offset for key, start in raised.items())
    lowered = {key: start for key, start in starts.items() if listed.get(key, 0) > start}  # a header of pylog takes precedence
    noted = recovery_points.note({partition: ends.durable_offset for partition, ends in settled.items()})
    noted &= log_starts.note(raised | lowered)
    known = names if marker is not None else opened
    written = {partition for partition, ends in found.items() if ends.same_boot or ends.preallocated}
    unknown = set(names) - set(settled)
    sound = all((key in known or is_empty(fs, names[key])) and key not in written for key in unknown)
    return noted and sound and (marker is not None or not lags)
