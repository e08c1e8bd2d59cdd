"""Reading one partition from an offset on, an Arrow batch at a time: over control records, aborted transactions and gaps, and on
when there is more. A log that was cut below what was read already is not read on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pylog import limits
from pylog.errors import OffsetOutOfRangeError
from pylog.log.log import Log
from pylog.log.reading.following import Ends, goes_on, truncated
from pylog.log.reading.reader import crc_before
from pylog.log.state import LogState
from pylog.record.decoder import RECORD_COLUMNS

COLUMNS = (*RECORD_COLUMNS, "leader_epoch")


class Piece(NamedTuple):
    """Records that follow on from the piece before.

    Attributes:
        frame: the records; None where there were only control records or gaps.
        end: the offset behind them.
        size: their bytes.
    """

    frame: pa.RecordBatch | None
    end: int
    size: int


class _Seen(NamedTuple):
    """What lay before an offset when it was reached."""

    truncation_count: int
    offset: int
    crc: int | None


class PartitionReader:
    """Reads a log piece by piece. Not thread-safe: one reads at a time.

    Args:
        open_log: gives the partition, when it is first read.
        offset: where to begin.
        isolation_level: as for `Log.scan`.

    Attributes:
        offset: where the next piece begins.
        may_have_more: false when the last look found the log's end.
    """

    def __init__(self, open_log: Callable[[], Log], offset: int, isolation_level: str) -> None:
        self.offset = offset
        self.may_have_more = True
        self._open_log = open_log
        self._log: Log | None = None
        self._isolation = isolation_level
        self._ends = Ends(committed=isolation_level == "read_committed")
        self._frames: Iterator[pa.RecordBatch] | None = None
        self._state: LogState | None = None  # that `_frames` read
        self._at_end: _Seen | None = None  # of what `_frames` gives
        self._seen: _Seen | None = None  # at the offset
        self._failed_at: int | None = None

    def read(self) -> Piece | None:
        """The next piece, None when there is nothing new.

        Raises:
            OffsetOutOfRangeError: the offset is not in the log, or what lay before it is not there any more.
            CorruptionError: of what comes next; before it everything was given.
        """
        try:
            return self._read()
        except OffsetOutOfRangeError:
            self._check(self._look())
            if self._failed_at == self.offset:
                raise
            self._failed_at = self.offset  # the log has it, but has changed while it was read: the next call begins anew
            return None

    def _read(self) -> Piece | None:
        frames = self._frames if self._frames is not None else self._more()
        self._frames = None  # unless it goes well
        if frames is None or self._at_end is None:
            return None
        frame = next(frames, None)
        end = self._at_end.offset if frame is None else frame.column(0)[-1].as_py() + 1
        seen = self._at_end if end == self._at_end.offset else self._witness(end)
        if seen is None:
            return self._read()  # the log was truncated: this may be of what is gone, so once more from where it began
        self.may_have_more = end < self._at_end.offset
        self._frames = frames if self.may_have_more else None
        self.offset, self._seen = end, seen
        return Piece(frame, end, 0 if frame is None else frame.nbytes)

    def _witness(self, offset: int) -> _Seen | None:
        """What lies before an offset; None when the log was truncated since it was read: it may be something else already."""
        assert self._state is not None
        seen = _Seen(self._state.truncation_count, offset, crc_before(self._state, offset))
        return seen if self._look().truncation_count == seen.truncation_count else None

    def _look(self) -> LogState:
        log = self._log = self._log or self._open_log()
        return log.look(committed=self._ends.committed)

    def _more(self) -> Iterator[pa.RecordBatch] | None:
        """What has come since the last look."""
        state = self._state = self._look()
        self._check(state)
        end = self._ends.of(state)
        self.may_have_more = end > self.offset
        if not self.may_have_more or self._log is None:
            return None
        self._at_end = _Seen(state.truncation_count, end, crc_before(state, end))  # before it is given: later it may be another
        return self._log.scan(self.offset, end, columns=COLUMNS, isolation_level=self._isolation, max_rows=limits.SCAN_ROWS)

    def _check(self, state: LogState) -> None:
        seen = self._seen
        if seen is not None and state.truncation_count != seen.truncation_count:
            if self.offset != seen.offset or not goes_on(state, self.offset, seen.crc):
                raise truncated(state, self.offset)
            self._seen = seen._replace(truncation_count=state.truncation_count)
        if not state.start_offset <= self.offset <= state.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {self.offset} is not in the log, which goes from {state.start_offset} to before {state.end_offset}; "
                "seek to one, or choose an auto_offset_reset",
                offset=self.offset,
            )
