"""Where a read of a partition starts and ends: what the options' offsets and times mean there."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.record.types import TopicPartition
from pylog.spark.options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Limit,
    SourceOptions,
)
from pylog.spark.values import named

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog

_logger = logging.getLogger("pylog.spark")


def is_by_time(limit: Limit) -> bool:
    """Returns whether finding an offset for this requires an open log.

    Args:
        limit: a start or an end.
    """
    return isinstance(limit, AtTimestamp | AtTimestamps)


def end_of(log: PartitionLog, isolation: str) -> int:
    """Returns where reading with this isolation ends: the connector's latest offset.

    Args:
        log: a partition.
        isolation: `read_uncommitted` or `read_committed`.
    """
    return log.snapshot(committed=True).stable_offset if isolation == "read_committed" else log.end_offset


@dataclass(frozen=True)
class PartitionBounds:
    """A partition's bounds, what starts and ends mean there, and what to do about offsets beyond them."""

    log_dir: str
    partition: TopicPartition
    earliest: int
    latest: int
    options: SourceOptions
    remote: range = range(0)  # what only a broker's remote tier has

    def within(self, offset: int, which: str) -> int:
        """Returns the offset if the log has it. Else raises, or with `failOnDataLoss=false` warns and returns the nearest one.

        An end before the log's start is kept: nothing is read, and the start shows whether records were lost.
        """
        if self.earliest <= offset <= self.latest or (which == "ending" and offset < self.earliest):
            return offset
        fate = "was deleted" if offset < self.earliest else "does not exist yet"
        if offset in self.remote:
            fate = "is in a broker's remote tier, which the option `tier` reads"
        report_data_loss(
            f"{which} offset {offset} of {named(self.partition)} {fate}: "
            f"the log has offsets {self.earliest} to {self.latest} (exclusive)",
            path=self.log_dir,
            offset=offset,
            fail=self.options.scan.fail_on_data_loss,
        )
        return min(max(offset, self.earliest), self.latest)

    def span(self, start: Limit, end: Limit, log: PartitionLog | None) -> tuple[int, int]:
        """Returns the range to read. Refuses an end before the start, which must be a mistake."""
        first, last = self.resolve(start, log, "starting"), self.resolve(end, log, "ending")
        if last < first:
            raise InvalidArgumentError(
                f"the read of {named(self.partition)} would begin at offset {first} and end before that, at {last}: "
                f"the log in {self.log_dir} has offsets {self.earliest} to {self.latest} (exclusive)",
                path=self.log_dir,
                offset=first,
            )
        return self.within(first, "starting"), self.within(last, "ending")

    def resolve(self, limit: Limit, log: PartitionLog | None, which: str) -> int:
        """Returns the offset that a start or an end means; `which` is "starting" or "ending", and a time needs the log open."""
        match limit:
            case Everywhere(offset):
                return self._absolute(offset)
            case AtOffsets(offsets):
                return self._absolute(offsets[self.partition])
            case AtTimestamp(timestamp):
                return self._at_time(timestamp, log, which)
            case AtTimestamps(timestamps):
                return self._at_time(timestamps[self.partition], log, which)

    def _absolute(self, offset: int) -> int:
        earliest = self.remote.start if self.remote else self.earliest
        return {EARLIEST: earliest, LATEST: self.latest}.get(offset, offset)

    def _at_time(self, timestamp: int, log: PartitionLog | None, which: str) -> int:
        assert log is not None
        found = log.offset_for_timestamp(timestamp, isolation_level=self.options.scan.isolation_level)
        if found is not None and found.offset < self.latest:
            return found.offset
        if which == "starting" and not self.options.latest_if_none_younger:
            raise OffsetOutOfRangeError(
                f"{named(self.partition)} in {self.log_dir} has no record at or after the starting timestamp {timestamp}; "
                "to begin at its end, set startingOffsetsByTimestampStrategy to latest",
                path=self.log_dir,
            )
        return self.latest


def report_data_loss(message: str, *, path: str, offset: int, fail: bool) -> None:
    """Fails, or warns, because requested records are missing.

    Args:
        message: describes the loss.
        path: in which log directory.
        offset: the first offset concerned.
        fail: the option `failOnDataLoss`.

    Raises:
        OffsetOutOfRangeError: if `failOnDataLoss` is true.
    """
    if fail:
        raise OffsetOutOfRangeError(
            f"{message}, in {path}; to read what there is, set failOnDataLoss to false", path=path, offset=offset
        )
    _logger.warning("%s, in %s; reading what there is, as failOnDataLoss is false", message, path)
