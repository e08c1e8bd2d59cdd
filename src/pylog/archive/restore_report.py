"""The report of a `restore`."""

from __future__ import annotations

from typing import NamedTuple

from pylog.record.types import TopicPartition


class RestoredPartition(NamedTuple):
    """One restored partition.

    Attributes:
        partition: topic and number.
        start_offset, end_offset: the offsets that were restored.
        log_end_offset: the log end when the partition was last archived.
        bytes: the size of its `.log` files in the directory.
        lost: offsets that the old directory has, or that the log had when it was last archived, and the archive has not.
        remote_bytes: the size of its `.log` files that stayed in the archive, after a hollow restore.
    """

    partition: TopicPartition
    start_offset: int
    end_offset: int
    log_end_offset: int
    bytes: int
    lost: int
    remote_bytes: int = 0


class LoweredOffset(NamedTuple):
    """A committed offset that was ahead of the restored log, and was set to its end."""

    group: str
    partition: TopicPartition
    committed: int
    end_offset: int


class RestoreReport(NamedTuple):
    """A finished `restore`.

    Attributes:
        url: the archive's URL.
        path: the directory.
        archived_ms: when the restored version of the archive was committed last, in milliseconds since 1970.
        partitions: those that were restored.
        lowered: committed offsets that were ahead of the archived records.
    """

    url: str
    path: str
    archived_ms: int
    partitions: tuple[RestoredPartition, ...]
    lowered: tuple[LoweredOffset, ...]

    @property
    def lost(self) -> int:
        """The number of offsets that are known to be lost: see `RestoredPartition.lost`."""
        return sum(each.lost for each in self.partitions)
