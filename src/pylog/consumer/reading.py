"""Reads one partition from an offset on, one Arrow batch at a time, and follows the log as it grows.

Control records, aborted transactions and gaps are skipped. A log that was truncated below the reader's offset is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pylog import limits
from pylog.errors import OffsetOutOfRangeError
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.following import Ends, has_records_before, truncated
from pylog.log.reading.good_batches import crc_before
from pylog.log.state import LogState
from pylog.record.records import RECORD_COLUMNS

COLUMNS = (*RECORD_COLUMNS, "leader_epoch")


class CompletedFetch(NamedTuple):
    """Records that directly follow the previous piece.

    Attributes:
        frame: the records; None if there were only control records or gaps.
        end: the offset after them.
        size: their size in bytes.
    """

    frame: pa.RecordBatch | None
    end: int
    size: int


class _BatchBefore(NamedTuple):
    """Identifies the batch before an offset, to detect a truncation."""

    truncation_count: int
    offset: int
    crc: int | None


class PartitionReader:
    """Reads a log in pieces. Not thread-safe.

    Args:
        open_log: opens the log at the first read.
        offset: where to begin.
        isolation_level: as for `Log.scan`.
        columns: the columns to read, `COLUMNS` first.

    Attributes:
        offset: where the next piece begins.
        may_have_more: false if the last refresh found the log's end.
    """

    def __init__(
        self, open_log: Callable[[], PartitionLog], offset: int, isolation_level: str, columns: tuple[str, ...] = COLUMNS
    ) -> None:
        self.offset = offset
        self.may_have_more = True
        self._open_log = open_log
        self._log: PartitionLog | None = None
        self._isolation = isolation_level
        self._columns = columns
        self._ends = Ends(committed=isolation_level == "read_committed")
        self._frames: Iterator[pa.RecordBatch] | None = None
        self._state: LogState | None = None  # the state that `_frames` reads
        self._at_end: _BatchBefore | None = None  # at the end of `_frames`
        self._seen: _BatchBefore | None = None  # at `offset`
        self._failed_at: int | None = None

    def read(self) -> CompletedFetch | None:
        """Returns the next piece, or None if there are no new records.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log, or the log was truncated below it.
            CorruptionError: the next records are damaged; all records before them were returned.
        """
        try:
            return self._read()
        except OffsetOutOfRangeError:
            self._check(self._refreshed())
            if self._failed_at == self.offset:
                raise
            self._failed_at = self.offset  # the log has the offset, but changed during the read: the next call starts again
            return None

    def _read(self) -> CompletedFetch | None:
        frames = self._frames if self._frames is not None else self._more()
        self._frames = None  # restored below if the read succeeds
        if frames is None or self._at_end is None:
            return None
        frame = next(frames, None)
        end = self._at_end.offset if frame is None else frame.column(0)[-1].as_py() + 1
        seen = self._at_end if end == self._at_end.offset else self._witness(end)
        if seen is None:
            return self._read()  # the log was truncated, perhaps below this piece: read it again
        self.may_have_more = end < self._at_end.offset
        self._frames = frames if self.may_have_more else None
        self.offset, self._seen = end, seen
        return self._completed(frame, end)

    def _completed(self, frame: pa.RecordBatch | None, end: int) -> CompletedFetch:
        """Returns a piece, and counts its records."""
        if frame is None:
            return CompletedFetch(None, end, 0)
        size = frame.nbytes
        assert self._log is not None
        self._log.fetches.fetched(len(frame), size)
        return CompletedFetch(frame, end, size)

    def _witness(self, offset: int) -> _BatchBefore | None:
        """Identifies the batch before an offset; None if the log was truncated since, because another batch may be there now."""
        assert self._state is not None
        seen = _BatchBefore(self._state.truncation_count, offset, crc_before(self._state, offset))
        return seen if self._refreshed().truncation_count == seen.truncation_count else None

    def _refreshed(self) -> LogState:
        log = self._log = self._log or self._open_log()
        return log.snapshot(committed=self._ends.committed)

    def _more(self) -> Iterator[pa.RecordBatch] | None:
        """Returns the records appended since the last refresh."""
        state = self._state = self._refreshed()
        self._check(state)
        end = self._ends.of(state)
        self.may_have_more = end > self.offset
        if not self.may_have_more or self._log is None:
            return None
        self._at_end = _BatchBefore(state.truncation_count, end, crc_before(state, end))  # first: it may change later
        return self._log.scan(self.offset, end, columns=self._columns, isolation_level=self._isolation, max_rows=limits.SCAN_ROWS)

    def _check(self, state: LogState) -> None:
        seen = self._seen
        if seen is not None and state.truncation_count != seen.truncation_count:
            if self.offset != seen.offset or not has_records_before(state, self.offset, seen.crc, seen.truncation_count):
                raise truncated(state, self.offset)
            self._seen = seen._replace(truncation_count=state.truncation_count)
        if not state.start_offset <= self.offset <= state.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {self.offset} is not in the log, which starts at {state.start_offset} and ends before "
                f"{state.end_offset}; seek to an offset in that range, or set auto_offset_reset",
                offset=self.offset,
            )
