"""One partition of an internal topic: its log, and an image of its records that follows the appends of all processes.

Replayed records are not read again while the file that holds the last of them is the same. After any other change (another
process rolled, compacted or truncated the log) everything is replayed, because tombstones may have been deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeVar

import pyarrow as pa

from pylog import limits
from pylog.config import Durability
from pylog.errors import CorruptionError, OffsetOutOfRangeError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.log.arguments import records_of
from pylog.log.partition_log import PartitionLog
from pylog.log.reading import reader, transaction_outcomes
from pylog.log.reading.good_batches import OffsetRange
from pylog.log.reading.transaction_outcomes import TransactionEnd
from pylog.log.state import LogState
from pylog.record.builder import rows_from_record
from pylog.record.few import Piece, few_rows
from pylog.record.types import OpenTransaction, ProducerBatch
from pylog.segment.segment import LogSegment
from pylog.skipped import Skipped

KeyValue = tuple[bytes, bytes | None]  # a record's key and value
COLUMNS: Final = ("offset", "key", "value", "producer_id")


class PartitionImage(Protocol):
    """A fold over the records of a partition.

    Attributes:
        skipped: the first records that cannot be used, in the order of the replay.
    """

    skipped: list[Skipped]

    def replay(self, frames: Iterable[pa.RecordBatch], ends: Iterable[TransactionEnd]) -> None:
        """Takes more records, of `COLUMNS`, and the markers among them."""
        ...

    def take_own(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Takes one record that this process has just appended."""
        ...


Image = TypeVar("Image", bound=PartitionImage)


class ReplayedPartition(Generic[Image]):
    """One partition of an internal topic, with an image of its records.

    Args:
        open_log: gives the partition's log; asked again once another process has deleted it.
        directory: where its files are.
        number: the partition's number.
        new_image: makes an empty image.

    Attributes:
        directory, number: as given.
    """

    def __init__(self, open_log: Callable[[], PartitionLog], directory: str, number: int, new_image: Callable[[], Image]) -> None:
        self.directory = directory
        self.number = number
        self._open_log = open_log
        self._new_image = new_image
        self._guard = threading.RLock()  # taken before the log's own
        self._log = open_log()
        self._reported = 0  # skipped records below this offset were logged
        self._begin()

    def _begin(self) -> None:
        self._position: int | None = None  # the offset of the next record to replay; unset first, for checks without the guard
        self._image = self._new_image()
        self._seen: LogState | None = None  # the state that was replayed last
        self._anchor: LogSegment | None = None  # the segment of the last record replayed

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.end_offset

    @contextmanager
    def image(self) -> Iterator[Image]:
        """Yields the current image, which no other thread changes inside.

        Raises:
            CorruptionError: a record is damaged, so nothing of this partition is known.
        """
        with self._guard:
            yield self._caught_up()

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

    def open_transactions(self) -> tuple[OpenTransaction, ...] | None:
        """Returns the transactions that are open at the end of the image, which the caller has locked.

        Returns:
            None if records were appended since the image was read.
        """
        state = self._log.snapshot(committed=True)
        return state.open_transactions if state.end_offset == self._position else None

    # ---- catching up ---------------------------------------------------------------------------------------------------------

    def _caught_up(self) -> Image:
        try:
            state = self._log.snapshot()
        except UnknownTopicOrPartitionError:  # another process has deleted it, and may have made it again
            self._log = self._open_log()
            self._reported = 0
            self._begin()
            state = self._log.snapshot()
        if state is self._seen or self._is_same_to(state):
            self._seen = state
        else:
            self._take(state)
        return self._image

    def _is_same_to(self, state: LogState) -> bool:
        """Returns whether all records were replayed, in the same segments, as after an append of this process."""
        seen = self._seen
        if seen is None or state.end_offset != self._position or state.segments is not seen.segments:
            return False
        return state.truncation_count == seen.truncation_count and state.start_offset == seen.start_offset

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
                self._report(offset, why)
                self._reported = offset + 1

    def _report(self, offset: int, why: str) -> None:
        """Logs a record that was skipped."""
        raise NotImplementedError

    def _has_only_grown(self, state: LogState, position: int) -> bool:
        """Returns whether the log has only grown since it was replayed."""
        if self._seen is None or state.truncation_count != self._seen.truncation_count:
            return False
        return state.start_offset <= position <= state.end_offset and _segment_before(state, position) is self._anchor

    # ---- appending -----------------------------------------------------------------------------------------------------------

    def append(
        self,
        items: Sequence[KeyValue],
        now_ms: int | None,
        durability: Durability | str | None,
        *,
        atomic: bool = True,
        check: Callable[[], object] | None = None,
        producer: ProducerBatch | None = None,
    ) -> range:
        """Appends records, all or none of them if `atomic`. They are part of the image when this returns.

        Args:
            items: the keys and values.
            now_ms: their timestamp, in milliseconds; None is the time of this call.
            durability: None is the topic's.
            atomic: true to append one batch.
            check: called under the partition's lock before the write. Nothing is appended if it raises.
            producer: the numbers of the batch, if a producer appends it in a transaction. The next replay takes its records.

        Raises:
            RecordTooLargeError: they do not fit into one batch. As `Log.append`.
        """
        clock_ms = self._log.clock.now_ms()
        stamp = clock_ms if now_ms is None else now_ms
        if len(items) == 1:
            rows: list[Piece] = [rows_from_record(*items[0], None, (), stamp)]
        elif len(items) <= limits.FEW_RECORDS:
            rows = [few_rows([(stamp, key, value, ()) for key, value in items])]
        else:
            rows = records_of(items, stamp)
        done = self._log.append(
            clock_ms, rows, durability=durability, producer=producer, atomic=atomic, by_owner=True, check=check
        )
        if producer is None:
            with self._guard:
                if self._position == done.offsets.start:  # otherwise the replay finds them
                    for offset, (key, value) in zip(done.offsets, items, strict=True):
                        self._image.take_own(offset, key, value)
                    self._position = done.offsets.stop
        return done.offsets


def _segment_before(state: LogState, offset: int) -> LogSegment | None:
    found = state.segments.floor(offset - 1)
    return None if found is None else found[1]
