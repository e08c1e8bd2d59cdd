"""The result of a run of `archive`, as values."""

from __future__ import annotations

from typing import NamedTuple

from pylog.log.recovery.findings import Finding
from pylog.record.types import TopicPartition


class ArchivedPartitionReport(NamedTuple):
    """One partition after a run.

    Attributes:
        partition: topic and number.
        start_offset: the log start.
        archived_end_offset: records before it are in the archive.
        end_offset: the log end when the partition was looked at.
        segments, bytes: what this run uploaded.
        findings: damage for which a segment was not archived.
    """

    partition: TopicPartition
    start_offset: int
    archived_end_offset: int
    end_offset: int
    segments: int = 0
    bytes: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def not_archived(self) -> int:
        """The number of offsets from `archived_end_offset` to the log end."""
        return max(0, self.end_offset - self.archived_end_offset)


class ArchiveReport(NamedTuple):
    """A run of `Store.archive`.

    Attributes:
        url: the archive's URL.
        partitions: those that were archived, in order.
        seconds: how long it took.

    >>> ArchiveReport("file:///backup", (), 0.5).ok
    True
    """

    url: str
    partitions: tuple[ArchivedPartitionReport, ...]
    seconds: float

    @property
    def segments(self) -> int:
        """The number of segments that this run uploaded."""
        return sum(each.segments for each in self.partitions)

    @property
    def bytes(self) -> int:
        """The bytes of the `.log` files that this run uploaded."""
        return sum(each.bytes for each in self.partitions)

    @property
    def not_archived(self) -> int:
        """The number of offsets that are in no sealed segment yet, or after the start of an open transaction, or damaged."""
        return sum(each.not_archived for each in self.partitions)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The damage for which segments were not archived."""
        return tuple(finding for each in self.partitions for finding in each.findings)

    @property
    def ok(self) -> bool:
        """Whether no segment was left out because of damage."""
        return not self.findings
