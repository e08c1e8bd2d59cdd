"""One partition of `__consumer_offsets`: the groups that have their records in it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pylog.log.partition_log import PartitionLog
from pylog.offsets.replay import ReplayedImage
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.replayed_partition import ReplayedPartition
from pylog.skipped import Skipped

LOGGER = logging.getLogger("pylog.groups")


class OffsetsPartition(ReplayedPartition[ReplayedImage]):
    """The offsets of the groups in one partition.

    Args:
        open_log: gives the partition's log; asked again once another process has deleted it.
        directory: where its files are.
        number: the partition's number.

    Attributes:
        directory, number: as given.
        may_have_members: true once a commit had to read the records because a group may have had members.
    """

    def __init__(self, open_log: Callable[[], PartitionLog], directory: str, number: int) -> None:
        super().__init__(open_log, directory, number, ReplayedImage)
        self._memberless: tuple[PartitionLog, int] | None = None  # the log and its end at which no group had members
        self.may_have_members = False

    def offsets_of(self, group: bytes) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns a group's committed offsets, from `image`. The caller must not change the result."""
        with self._guard:
            found = self._caught_up().groups.get(group)
            return {} if found is None else found.offsets()

    def skipped(self) -> tuple[int, list[Skipped]]:
        """Returns how many records were skipped because they cannot be read, and the first of them."""
        with self.image() as image:
            return image.skipped_count, list(image.skipped)

    def _report(self, offset: int, why: str) -> None:
        LOGGER.warning("%s: the record at offset %d is skipped, and no group is affected: %s", self.directory, offset, why)

    # ---- does a group have members? A member appends its records before it is one, so it is enough to notice appends ---------

    def has_no_members(self, group: bytes) -> bool:
        """Returns whether a group certainly has no members. False means that it may have some. Cost: no system call.

        The caller holds the log's locks, in a check of an append.
        """
        end = self._log.known.end_offset
        if self._memberless == (self._log, end):
            return True
        if end != self._position or not self._has_only_grown(self._log.known, end):
            return False  # the image lacks records of other processes
        found = self._image.groups.get(group)
        return found is None or (found.record is None and not found.membership)

    def note_no_members(self) -> None:
        """Notes that no group of the partition has members. The caller holds the log's locks."""
        self._memberless = self._log, self._log.known.end_offset

    def note_commit(self, offsets: range) -> None:
        """Notes that the records at some offsets are a commit of no member."""
        if self._memberless == (self._log, offsets.start):
            self._memberless = self._log, offsets.stop
