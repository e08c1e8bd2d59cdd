"""How partitions stand when the last process leaves a log directory: from their headers, without opening them (reliability 4)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from pylog.fs import FileSystem
from pylog.log.checkpoints import Checkpoint
from pylog.log.durable_point import open_header
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG, parse


class Ending(NamedTuple):
    """How a partition stands, as its header says.

    Attributes:
        durable_offset: everything below is synced: Kafka's recovery point.
        start_offset: of the log.
        first_base_offset: of its first segment.
        settled: nothing was under way, and the last file has the published size.
        same_boot: the header was written since the system started.
    """

    durable_offset: int
    start_offset: int
    first_base_offset: int
    settled: bool
    same_boot: bool


def endings(fs: FileSystem, directories: Mapping[TopicPartition, str]) -> dict[TopicPartition, Ending]:
    """The partitions that have a header, by name."""
    found = {partition: _ending(fs, directory) for partition, directory in directories.items()}
    return {partition: ending for partition, ending in found.items() if ending is not None}


def _ending(fs: FileSystem, directory: str) -> Ending | None:
    header = open_header(fs, directory)
    if header is None:
        return None
    slot, same_boot = header.look(), header.same_boot
    header.close()
    if slot is None:
        return None
    logs = {found.offset: entry.size for entry in fs.list(directory) if (found := parse(entry.name)) and found[1:] == (LOG, "")}
    last = max(logs, default=slot.active_base)
    settled = slot.idle and last == slot.active_base and logs.get(last) == slot.published_position
    return Ending(slot.durable_offset, slot.log_start_offset, min(logs, default=0), settled, same_boot)


def is_empty(fs: FileSystem, directory: str) -> bool:
    """Whether a partition has no bytes: then nothing of it can have been left under way."""
    return not any(entry.name.endswith(LOG) and entry.size for entry in fs.list(directory))


def note_ends(
    fs: FileSystem,
    names: Mapping[TopicPartition, str],
    known: Container[TopicPartition],
    recovery_points: Checkpoint,
    log_starts: Checkpoint,
) -> bool:
    """Writes the checkpoints of a log directory that nobody else has open; whether all of it is as after a clean shutdown.

    Args:
        fs: the file system.
        names: the directories of all partitions.
        known: those that need no recovery, unless pylog has written them since the system started.
        recovery_points, log_starts: Kafka's checkpoints.
    """
    found = endings(fs, names)
    settled = {partition: ending for partition, ending in found.items() if ending.settled}
    starts = {key: ending.start_offset for key, ending in settled.items() if ending.start_offset > ending.first_base_offset}
    recovery_points.update({partition: ending.durable_offset for partition, ending in settled.items()})
    log_starts.update(starts)
    written = {partition for partition, ending in found.items() if ending.same_boot}
    unknown = set(names) - set(settled)
    return all((key in known or is_empty(fs, names[key])) and key not in written for key in unknown)
