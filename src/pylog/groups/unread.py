"""The unread records of groups in one partition: the age of the first one, and their number. Keeps what does not change."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pylog import limits
from pylog.errors import CorruptionError, OffsetOutOfRangeError, PylogError
from pylog.groups.health import UnreadSegment
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.counting import tally
from pylog.log.reading.good_batches import OffsetRange
from pylog.log.recovery.findings import Finding, losses_in
from pylog.log.state import LogState
from pylog.segment.segment import LogSegment
from pylog.topics.topic import Topic


class First(NamedTuple):
    """The first record at or after an offset.

    Attributes:
        timestamp: in milliseconds; None if it has none, or cannot be read.
        damage: why it cannot be read; None if it can.
        exists: false if only markers of transactions follow.
    """

    timestamp: int | None
    damage: str | None = None
    exists: bool = True


class Budget:
    """Bounds the bytes that one observation reads to count unread records.

    Attributes:
        left: bytes.
    """

    def __init__(self) -> None:
        self.left = limits.LAG_COUNT_BYTES

    def take(self, size: int) -> bool:
        """Takes bytes from the budget; False if there are not enough."""
        if size > self.left:
            return False
        self.left -= size
        return True


class UnreadRecords:
    """Reads what the groups of one partition have not read.

    Args:
        log: the partition.

    Attributes:
        log: as given.
        state: the log's state in this observation.
        losses: why records are damaged or missing, as far as loading the log and listing its files have shown.
    """

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self._needs_transactions = False  # reading them costs more, and most observers do not ask for them
        self._clear((-1, -1, -1))
        self.refresh()

    def _clear(self, version: tuple[int, int, int]) -> None:
        self._version = version
        self._firsts: dict[int, First] = {}
        self._used_firsts: dict[int, First] = {}
        self._counts: dict[int, tuple[int, int]] = {}  # offset → the end of what was counted, records
        self._used_counts: dict[int, tuple[int, int]] = {}
        self._ends: dict[int, tuple[int, int]] = {}  # time → the log's end then, and when that was asked
        self._used_ends: dict[int, tuple[int, int]] = {}

    def refresh(self) -> None:
        """Begins an observation: refreshes the state, and drops what the last observation did not use.

        Raises:
            UnknownTopicOrPartitionError: the partition was deleted. As `Log.end_offset`.
        """
        self.state = state = self._refreshed()
        self.losses = losses_in(self.log.recovery_report) or self._removed()
        version = (*state.version, state.truncation_count)
        if version != self._version:  # segments were added, deleted or replaced
            self._clear(version)
        self._firsts, self._used_firsts = self._used_firsts, {}
        self._counts, self._used_counts = self._used_counts, {}
        self._ends, self._used_ends = self._used_ends, {}

    def _refreshed(self) -> LogState:
        if self._needs_transactions:
            with suppress(CorruptionError):  # of an open transaction: `stable_offset` raises it
                return self.log.snapshot(committed=True)
        self._needs_transactions = False
        return self.log.snapshot()

    def _removed(self) -> tuple[Finding, ...]:
        """Returns a finding if the file of the first or of the active segment was removed while the log is open.

        Reads go on from open files, and no header changes, so nothing else would show it. Cost: two checks that a file exists.
        """
        if _removed_segment(self.state) is None:
            return ()
        self.state = self.log.snapshot(wait=True)  # another process may just have deleted or replaced the segment
        segment = _removed_segment(self.state)
        if segment is None:
            return losses_in(self.log.recovery_report)  # of a log that was loaded again
        end = None if segment is self.state.active else self.state.end_of(segment)
        message = f"{segment.path} was removed while the log is open: its records are missing"
        return (Finding("missing", segment.path, 0, self.state.size_of(segment), segment.base_offset, end, message),)

    def stable_offset(self) -> int:
        """Returns the last stable offset, at most the log's end.

        Raises:
            PylogError: the open transactions cannot be read.

        Cost: a refresh, the first time; later refreshes find the open transactions, too.
        """
        state = self.state if self._needs_transactions else self.log.snapshot(committed=True)
        self._needs_transactions = True
        return min(state.stable_offset, self.state.end_offset)

    def first(self, offset: int) -> First:
        """Returns the first record at or after an offset that the log has. Cost: one record, the first time."""
        found = self._used_firsts.get(offset) or self._firsts.get(offset) or self._first(offset)
        if found.exists and found.damage is None:  # later appends may change the other answers
            self._used_firsts[offset] = found
        return found

    def _first(self, offset: int) -> First:
        try:
            stamp = self.log.read(offset).timestamp
        except OffsetOutOfRangeError:
            return First(None, exists=False)
        except CorruptionError as error:
            return First(None, str(error))
        return First(stamp if stamp >= 0 else None)

    def count(self, offset: int, budget: Budget) -> int | None:
        """Returns the number of records from an offset on; None if counting them exceeds the budget, or one is damaged.

        Cost: the headers of their batches, the first time; then those of new batches.
        """
        end = self.state.end_offset
        reached, counted = self._used_counts.get(offset) or self._counts.get(offset) or (offset, 0)
        if reached > end:
            reached, counted = offset, 0
        if reached < end:
            try:
                if not budget.take(self.log.size_between(reached, end)):
                    return None
                counted += self.log.answer(partial(tally, wanted=OffsetRange(reached, end))).records
            except (CorruptionError, OffsetOutOfRangeError):
                return None
        self._used_counts[offset] = end, counted
        return counted

    def end_at(self, timestamp: int) -> int | None:
        """Returns the log's end at a time, by the records' timestamps; None if it is not known. Cost: one search of the log."""
        end = self.state.end_offset
        found, asked_at = self._used_ends.get(timestamp) or self._ends.get(timestamp) or (-1, -1)
        if found == asked_at != end:  # all records were older, and new ones may be younger
            try:
                later = self.log.offset_for_timestamp(timestamp + 1)
            except PylogError:
                return None
            found, asked_at = end if later is None else later.offset, end
        self._used_ends[timestamp] = found, asked_at
        return found


def _removed_segment(state: LogState) -> LogSegment | None:
    """Returns the first or the active segment if its file is not there. Archived segments have none."""
    first = state.segments.first
    looked = (None if first is None else first[1], state.active)
    return next((each for each in looked if each and each.vouched is None and not each.fs.exists(each.path)), None)


def unread_segment(state: LogState, offset: int, topic: Topic, group_id: str) -> UnreadSegment | None:
    """Returns the segment of the first unread record; None if retention will not delete it.

    The active segment is not returned: its newest records decide, and more may be appended.
    """
    config = topic.config
    pair = state.segments.floor(offset)
    if pair is None or "delete" not in config.cleanup_policy or config.retention_group == group_id or state.remote_offsets:
        return None
    segment = pair[1]
    if segment is state.active or (config.retention_ms < 0 and config.retention_bytes < 0):
        return None
    after = total = 0
    if config.retention_bytes >= 0:
        sizes = [(base, state.size_of(each)) for base, each in state.segments]
        after, total = sum(size for base, size in sizes if base > pair[0]), sum(size for _, size in sizes)
    return UnreadSegment(
        state.end_of(segment),
        segment.largest_timestamp(),
        config.retention_ms,
        config.retention_bytes,
        after,
        max(1.0, total / max(1, state.end_offset - state.segments.first[0] if state.segments.first else 1)),
    )
