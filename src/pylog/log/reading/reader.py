"""Scans a log forward from an offset. Works on a published `LogState`; takes no lock and writes nothing.

Every batch that is returned has a good CRC and fits between its neighbours. Damage raises a `CorruptionError` with the offset
where reading can continue, after all records before it were returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import OffsetOutOfRangeError, PylogError
from pylog.log.reading.good_batches import OffsetRange, good_batches, placed
from pylog.log.reading.transaction_outcomes import IsLeftOut, TransactionOutcomes
from pylog.log.state import LogState
from pylog.record.batch import Bytes, Table
from pylog.record.decoder import RecordDecoder
from pylog.record.format import (
    ATTRIBUTES,
    CONTROL_BIT,
    LAST_OFFSET,
)
from pylog.segment.batch_search import BatchSearch
from pylog.segment.batch_walk import crc_is_good, first_bad_crc, next_good_batch, offset_at
from pylog.segment.segment import LogSegment

Renew = Callable[[LogState, PylogError, int], LogState]
Check = Callable[[Table], None]
Pick = Callable[[Table], Table]


def visible(buffer: Bytes, table: Table, aborted: NDArray[np.bool_] | None) -> Table:
    """Selects the batches that a reader sees: no control batches and, with `read_committed`, none of aborted transactions.

    A batch is hidden only if its CRC is good; the decoder raises for the others.
    """
    if aborted is None and not np.bitwise_or.reduce(table[ATTRIBUTES]) & CONTROL_BIT:
        return table
    keep = (table[ATTRIBUTES] & CONTROL_BIT) == 0
    if aborted is not None:
        keep &= ~aborted
    hidden = np.flatnonzero(~keep)
    if first_bad_crc(buffer, table, hidden) is not None:
        keep[hidden] = [not crc_is_good(buffer, table, batch) for batch in hidden.tolist()]
    return table if keep.all() else np.ascontiguousarray(table[:, keep])


def scan(
    state: LogState,
    wanted: OffsetRange,
    columns: Sequence[str],
    *,
    committed: bool,
    max_rows: int,
    verify: bool,
    renew: Renew | None = None,
    check: Check | None = None,
    is_left_out: IsLeftOut | None = None,
    pick: Pick | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches of the wanted records, of at most `max_rows` rows each. Memory does not grow with the range.

    Args:
        state, wanted, columns: the log, the offsets and the columns to read.
        committed: true to leave out aborted records.
        max_rows: the largest number of rows in one Arrow batch.
        verify: true to check each batch's CRC.
        renew: receives the state, an error and the end of the range; returns the current state to continue with, or raises.
        check: called with the batches of each region after they were read; raises to refuse their records.
        is_left_out: as for `TransactionOutcomes`.
        pick: selects the batches of a region that are decoded; by default all.

    Raises:
        InvalidArgumentError: at once, for unknown columns.
    """
    rows = min(max_rows, limits.INT32_MAX)
    decoder = RecordDecoder(columns, start=wanted.start, end=wanted.end, max_rows=rows, verify=verify)
    reading = _Reading(wanted, decoder, committed, check, is_left_out, pick)
    return reading.frames(state) if renew is None else reading.frames_of_a_changing_log(state, renew)


class _Reading:
    """A scan of a range, with its progress, so that it can continue in a newer state of the log."""

    def __init__(
        self,
        wanted: OffsetRange,
        decoder: RecordDecoder,
        committed: bool,
        check: Check | None,
        is_left_out: IsLeftOut | None,
        pick: Pick | None,
    ) -> None:
        self._wanted = wanted  # the remaining range
        self._decoder = decoder
        self._committed = committed
        self._check = check
        self._is_left_out = is_left_out
        self._pick = pick

    def frames_of_a_changing_log(self, state: LogState, renew: Renew) -> Iterator[pa.RecordBatch]:
        """Yields the frames. If segments were replaced during the scan, it continues in the new ones."""
        while True:
            try:
                yield from self.frames(state)
            except PylogError as error:
                state = renew(state, error, self._wanted.end)
                if self._wanted.start < state.start_offset:
                    if isinstance(error, OffsetOutOfRangeError):
                        raise
                    raise _overtaken(error, self._wanted.start, state.start_offset) from error
            else:
                return

    def frames(self, state: LogState) -> Iterator[pa.RecordBatch]:
        """Yields the frames of the remaining range."""
        outcomes = TransactionOutcomes(state, self._wanted, self._is_left_out) if self._committed else None
        try:
            for batches in good_batches(state, self._wanted):
                segment, buffer, table, shift = batches
                if self._check is not None:
                    self._check(table)
                aborted, unknown = (None, None) if outcomes is None else outcomes.known(batches)
                known = table if unknown is None or aborted is None else np.ascontiguousarray(table[:, : aborted.size])
                try:
                    shown = visible(buffer, known, aborted)
                    yield from self._decoder.feed(buffer, shown if self._pick is None else self._pick(shown))
                except PylogError as error:
                    self._has_reached(error.offset or 0)  # the records before it were returned
                    error.position = (error.position or 0) + shift
                    raise _with_way_on(state, segment, error, self._wanted.start) from error
                if unknown is not None:
                    self._has_reached(unknown.offset or 0)
                    raise unknown
                self._has_reached(int(table[LAST_OFFSET, -1]) + 1)
        except PylogError:
            yield from self._decoder.finish()
            raise
        yield from self._decoder.finish()

    def _has_reached(self, offset: int) -> None:
        self._wanted = OffsetRange(max(self._wanted.start, offset), self._wanted.end)
        self._decoder.before = offset - 1


def _overtaken(error: PylogError, offset: int, start: int) -> OffsetOutOfRangeError:
    """Returns the error for a reader whose next records were deleted."""
    message = f"offset {offset} was deleted while the log was read; read on from its start, offset {start}"
    return OffsetOutOfRangeError(message, path=error.path, offset=offset)


def _with_way_on(state: LogState, segment: LogSegment, error: PylogError, start: int) -> PylogError:
    """Adds to a decoder's error the offset where reading can continue, after the start of this read, so that it ends."""
    search = BatchSearch(segment.file())
    found = next_good_batch(segment, search, error.position or 0, state.size_of(segment), max(error.offset or 0, start) + 1)
    if found is not None:
        return placed(error, segment, offset_at(segment, found))
    following = state.segments.higher(segment.base_offset)
    return placed(error, segment, None if following is None else following[0])
