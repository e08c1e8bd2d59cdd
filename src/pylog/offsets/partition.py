"""One partition of `__consumer_offsets`: its log, and an image of its records that follows the appends of all processes.

Replayed records are not read again while the file that holds the last of them is the same. After any other change (another
process rolled, compacted or truncated the log) everything is replayed, because tombstones may have been deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pylog import limits
from pylog.config import Durability
from pylog.errors import CorruptionError, OffsetOutOfRangeError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.log.arguments import records_of
from pylog.log.partition_log import PartitionLog
from pylog.log.reading import reader, transaction_outcomes
from pylog.log.reading.good_batches import OffsetRange
from pylog.log.state import LogState
from pylog.offsets.image import COLUMNS, Image, Skipped
from pylog.record.few import Piece, few_rows
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.segment.segment import LogSegment

LOGGER = logging.getLogger("pylog.groups")
KeyValue = tuple[bytes, bytes | None]  # a record's key and value


class OffsetsPartition:
    """The offsets of the groups in one partition.

    Args:
        open_log: gives the partition's log; asked again once another process has deleted it.
        directory: where its files are.
        number: of the partition.

    Attributes:
        directory, number: as given.
        may_have_members: true once a commit had to read the records because a group may have had members.
    """

    def __init__(self, open_log: Callable[[], PartitionLog], directory: str, number: int) -> None:
        self.directory = directory
        self.number = number
        self._open_log = open_log
        self._guard = threading.RLock()  # taken before the log's own
        self._log = open_log()
        self._reported = 0  # skipped records below this offset were logged
        self._memberless_end = -1  # the log's end at which no group had members
        self.may_have_members = False
        self._begin()

    def _begin(self) -> None:
        self._position: int | None = None  # the offset of the next record to replay; unset first, for `has_no_members`
        self._image = Image()
        self._seen: LogState | None = None  # the state that was replayed last
        self._anchor: LogSegment | None = None  # the segment of the last record replayed

    def offsets_of(self, group: bytes) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns a group's committed offsets, from `image`. The caller must not change the result."""
        with self._guard:
            found = self._caught_up().groups.get(group)
            return {} if found is None else found.offsets()

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.end_offset

    @contextmanager
    def image(self) -> Iterator[Image]:
        """Yields the current image, which no other thread changes inside.

        Raises:
            CorruptionError: a record is damaged, so no group of this partition is known.
        """
        with self._guard:
            yield self._caught_up()

    # ---- does a group have members? A member appends its records before it is one, so it is enough to notice appends ---------

    def has_no_members(self, group: bytes) -> bool:
        """Returns whether a group certainly has no members. False means that it may have some. Cost: no system call.

        The caller holds the log's locks, in a check of an append.
        """
        end = self._log.known.end_offset
        if end == self._memberless_end:
            return True
        if end != self._position or not self._has_only_grown(self._log.known, end):
            return False  # the image lacks records of other processes
        found = self._image.groups.get(group)
        return found is None or (found.record is None and not found.membership)

    def note_no_members(self) -> None:
        """Notes that no group of the partition has members. The caller holds the log's locks."""
        self._memberless_end = self._log.known.end_offset

    def note_commit(self, offsets: range) -> None:
        """Notes that the records at some offsets are a commit of no member."""
        if self._memberless_end == offsets.start:
            self._memberless_end = offsets.stop

    def skipped(self) -> tuple[int, list[Skipped]]:
        """Returns how many records were skipped because they cannot be read, and the first of them."""
        with self.image() as image:
            return image.skipped_count, list(image.skipped)

    @contextmanager
    def exclusively(self) -> Iterator[Image]:
        """Yields the current image, while no other thread or process can append."""
        with self._guard:
            self._caught_up()  # most of the work before the lock is taken
            with self._log.exclusively():
                yield self._caught_up()

    def check_open(self) -> None:
        """Raises ClosedError when its store is closed."""
        self._log.snapshot()

    # ---- catching up ---------------------------------------------------------------------------------------------------------

    def _caught_up(self) -> Image:
        try:
            state = self._log.snapshot()
        except UnknownTopicOrPartitionError:  # another process has deleted it, and may have made it again
            self._log = self._open_log()
            self._reported, self._memberless_end = 0, -1
            self._begin()
            state = self._log.snapshot()
        if state is not self._seen:
            self._take(state)
        return self._image

    def _take(self, state: LogState) -> None:
        """Replays new records; retries from the start after a failure while other processes change the log (reliability 11e)."""
        while True:
            try:
                self._replay(state)
                self._report_skipped()
                return
            except (CorruptionError, OffsetOutOfRangeError, StorageFailedError):
                self._begin()
                now = self._log.snapshot(wait=True)
                if now.version == state.version:
                    raise
                state = now

    def _replay(self, state: LogState) -> None:
        if self._position is None or not self._has_only_grown(state, self._position):
            self._begin()
            self._position = state.start_offset
        wanted = OffsetRange(self._position, state.end_offset)
        if wanted.start < wanted.end:
            ends = list(transaction_outcomes.all_transaction_ends(state, wanted))
            frames = reader.scan(state, wanted, COLUMNS, committed=False, max_rows=limits.SCAN_ROWS, verify=True)
            self._image.replay(frames, ends)
        self._position, self._seen, self._anchor = state.end_offset, state, _segment_before(state, state.end_offset)

    def _report_skipped(self) -> None:
        """Logs each record that was skipped, once."""
        for offset, why in self._image.skipped:
            if offset >= self._reported:
                LOGGER.warning(
                    "%s: the record at offset %d is skipped, and no group is affected: %s", self.directory, offset, why
                )
                self._reported = offset + 1

    def _has_only_grown(self, state: LogState, position: int) -> bool:
        """Whether the log has only grown since it was replayed."""
        if self._seen is None or state.truncation_count != self._seen.truncation_count:
            return False
        return state.start_offset <= position <= state.end_offset and _segment_before(state, position) is self._anchor

    # ---- appending -----------------------------------------------------------------------------------------------------------

    def append(
        self,
        items: Sequence[KeyValue],
        now_ms: int | None,
        durability: Durability | None,
        *,
        atomic: bool = True,
        check: Callable[[], object] | None = None,
    ) -> range:
        """Appends records, all or none of them if `atomic`. They are part of the image when this returns.

        Their timestamp is `now_ms`, by default the time of this call. `check` is called under the partition's lock before the
        write. Nothing is appended if it raises.

        Raises:
            RecordTooLargeError: they do not fit into one batch. As `Log.append`.
        """
        clock_ms = self._log.clock.now_ms()
        stamp = clock_ms if now_ms is None else now_ms
        if len(items) <= limits.FEW_RECORDS:
            rows: list[Piece] = [few_rows([(stamp, key, value, ()) for key, value in items])]
        else:
            rows = records_of([(key, value, (), stamp) for key, value in items], clock_ms)
        offsets = self._log.append(clock_ms, rows, durability=durability, atomic=atomic, by_owner=True, check=check).offsets
        with self._guard:
            if self._position == offsets.start:  # otherwise the replay finds them
                for offset, (key, value) in zip(offsets, items, strict=True):
                    self._image.take_own(offset, key, value)
                self._position = offsets.stop
        return offsets


def _segment_before(state: LogState, offset: int) -> LogSegment | None:
    found = state.segments.floor(offset - 1)
    return None if found is None else found[1]
