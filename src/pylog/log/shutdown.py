"""How partitions stand when the last process leaves a log directory: from their headers, without opening them (reliability 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pylog.fs import FileSystem
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


class Outcome(NamedTuple):
    """What the last process to leave a directory writes down.

    Attributes:
        recovery_points, log_starts: for the checkpoints.
        clean: no partition needs a recovery, so the clean-shutdown marker may be written.
    """

    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    clean: bool


def outcome(fs: FileSystem, directories: Mapping[TopicPartition, str], harmless: Callable[[TopicPartition], bool]) -> Outcome:
    """How a directory is left (reliability 4).

    Args:
        fs, directories: the partitions, by name.
        harmless: whether a partition without a settled header needs no recovery, if pylog has not written it since the system
            started.
    """
    found = endings(fs, directories)
    settled = {partition: ending for partition, ending in found.items() if ending.settled}
    starts = {key: ending.start_offset for key, ending in settled.items() if ending.start_offset > ending.first_base_offset}
    written = {partition for partition, ending in found.items() if ending.same_boot}
    clean = all(key not in written and harmless(key) for key in set(directories) - set(settled))
    return Outcome({partition: ending.durable_offset for partition, ending in settled.items()}, starts, clean)


def is_empty(fs: FileSystem, directory: str) -> bool:
    """Whether a partition has no bytes: then nothing of it can have been left under way."""
    return not any(entry.name.endswith(LOG) and entry.size for entry in fs.list(directory))
