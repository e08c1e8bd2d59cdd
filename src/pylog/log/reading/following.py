"""Follows a log: waits for appends of any process, and yields their records (reliability 11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from numbers import Real
from typing import NamedTuple

import pyarrow as pa

from pylog import limits
from pylog.clock import Clock
from pylog.errors import CorruptionError, InvalidTypeError, ObjectNotFoundError, OffsetOutOfRangeError, PylogError
from pylog.log.reading import good_batches
from pylog.log.state import LogState
from pylog.record.batch import Table
from pylog.record.format import CRC, LAST_OFFSET


class Ends(NamedTuple):
    """Selects the end of a log for a reader: only durable records, only committed ones."""

    durable: bool = False
    committed: bool = False

    def of(self, state: LogState) -> int:
        """Returns the end offset for the reader."""
        end = state.durable_offset if self.durable else state.end_offset
        return min(end, state.stable_offset) if self.committed else end


def wait(
    refresh: Callable[[], LogState],
    clock: Clock,
    offset: int,
    ends: Ends,
    timeout_ms: float | None,
    *,
    since: LogState | None = None,
    naps: Naps | None = None,
) -> LogState:
    """Waits until the end is above `offset`, the log was truncated (since a known state), or the timeout expires.

    Args:
        naps: the pauses of the waits before this one, if no record has arrived since.

    Cost: a refresh every 0.1 ms at first, later every millisecond, after 2.5 s every 25 ms.
    """
    if timeout_ms is not None and not isinstance(timeout_ms, Real):
        raise InvalidTypeError(f"timeout_ms={timeout_ms!r} is not a number of milliseconds")
    deadline = math.inf if timeout_ms is None else clock.monotonic() + timeout_ms / 1000
    state = refresh()
    first = since or state
    naps = naps or Naps(clock)
    while ends.of(state) <= offset and state.truncation_count == first.truncation_count:
        if not naps.take(deadline):
            break
        state = refresh()
    return state


class Naps:
    """Pauses between two checks for new records, which grow with the time since the last record.

    In a steady stream each record is noticed within a millisecond. After a second of silence the checks cost little processor
    time; the delay is a hundredth of the silence, and 25 ms at most.

    Args:
        clock: for waiting.

    >>> from pylog.clock import ManualClock
    >>> clock = ManualClock()
    >>> naps = Naps(clock)
    >>> all(naps.take(clock.monotonic() + 1) for _ in range(1000)), naps.take(clock.monotonic())
    (True, False)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._slept = 0.0  # in seconds

    def take(self, deadline: float) -> bool:
        """Waits a little, at most until a deadline. Returns False if the deadline has passed."""
        left = deadline - self._clock.monotonic()
        if left <= 0:
            return False
        short = min(limits.LONG_NAP, limits.SHORTEST_NAP * (1 + self._count / 16))
        nap = min(max(short, self._slept / limits.NAPS_OF_SILENCE), limits.LONGEST_NAP, left)
        self._clock.sleep(nap)
        self._count += 1
        self._slept += nap
        return True

    def end(self) -> None:
        """Resets the pauses, after a new record."""
        self._count, self._slept = 0, 0.0


def refreshed_after(refresh: Callable[[], LogState], state: LogState, error: PylogError, end: int) -> LogState:
    """Returns the current state after a read error, because segments may have been replaced (reliability 11e, 11f).

    Args:
        refresh: returns the current state.
        state, error: the state being read, and the error.
        end: the offset before which records are read.

    Raises:
        The error, if nothing has changed.
        OffsetOutOfRangeError: the log was truncated below `end`.
    """
    if not isinstance(error, CorruptionError | OffsetOutOfRangeError | ObjectNotFoundError):
        raise error
    now = refresh()
    if now.version == state.version:
        raise error
    if now.truncated_to(state.truncation_count) < end:
        message = "the log was changed while it was read; read again from the current state"
        raise OffsetOutOfRangeError(message, path=error.path, offset=error.offset) from error
    return now


class Continuity:
    """Checks that a log still has the batches that were read: a truncation may have replaced them.

    Args:
        current: returns the current state.
        state: the state being read.
    """

    def __init__(self, current: Callable[[], LogState], state: LogState) -> None:
        self._current = current
        self._count = state.truncation_count
        self._before: tuple[int, int] | None = None  # the offset after the last batch of the previous tables, and its CRC

    def check(self, table: Table) -> None:
        """Raises OffsetOutOfRangeError if the last of these batches, or of the previous ones, is no longer in the log.

        Args:
            table: batches in offset order, all read before this call.

        Cost: one read; after a truncation, a search for two batches.
        """
        state = self._current()
        last = (int(table[LAST_OFFSET, -1]) + 1, int(table[CRC, -1])) if table.shape[1] else None
        if state.truncation_count != self._count:
            for end, crc in filter(None, (self._before, last)):
                if end > state.start_offset and not has_records_before(state, end, crc, self._count):
                    raise truncated(state, end)
            self._count = state.truncation_count
        self._before = last or self._before


def follow(
    refresh: Callable[[], LogState],
    scan: Callable[[int, int], Iterator[pa.RecordBatch]],
    clock: Clock,
    offset: int,
    ends: Ends,
    timeout_ms: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yields Arrow batches from `offset` on, until no record has arrived for `timeout_ms`.

    Args:
        refresh, scan, clock, offset, ends: as for `follow_in_slices`.
        timeout_ms: as for `wait`.

    Raises:
        OffsetOutOfRangeError: as `follow_in_slices`.
    """
    for batch in follow_in_slices(refresh, scan, clock, offset, ends, timeout_ms):
        if batch is None:
            return
        yield batch


def follow_in_slices(
    refresh: Callable[[], LogState],
    scan: Callable[[int, int], Iterator[pa.RecordBatch]],
    clock: Clock,
    offset: int,
    ends: Ends,
    slice_ms: float | None,
) -> Iterator[pa.RecordBatch | None]:
    """Yields Arrow batches from `offset` on, without end, and None whenever no record has arrived for `slice_ms`.

    Args:
        refresh: returns the current state.
        scan: reads from one offset up to, but not including, another one.
        clock, offset, ends: as for `wait`.
        slice_ms: the longest wait, in milliseconds; None waits indefinitely.

    Raises:
        OffsetOutOfRangeError: the log was truncated below the returned records, or retention has overtaken the reader.
    """
    before = refresh()
    seen = good_batches.crc_before(before, offset)
    naps = Naps(clock)
    while True:
        state = wait(refresh, clock, offset, ends, slice_ms, since=before, naps=naps)
        if not has_records_before(state, offset, seen, before.truncation_count):
            raise truncated(state, offset)
        end = ends.of(state)
        if end > offset:
            following = good_batches.crc_before(state, end)  # before it is returned: later another record may be there
            yield from scan(offset, end)
            offset, seen = end, following
            naps.end()
        elif state.truncation_count == before.truncation_count:
            yield None
        before = state


def has_records_before(state: LogState, offset: int, seen: int | None, since: int) -> bool:
    """Returns whether a log still has the returned records before `offset`.

    Args:
        state: the current state.
        offset: the end of the returned records.
        seen: the CRC of the batch before `offset`, when it was returned. A compaction may have replaced or deleted the batch.
        since: the truncation count at that time.

    Cost: none without a truncation below `offset`; otherwise a search for a batch.
    """
    if state.truncated_to(since) >= offset:
        return True
    return offset <= state.end_offset and good_batches.crc_before(state, offset) == seen


def truncated(state: LogState, offset: int) -> OffsetOutOfRangeError:
    """Returns the error for a reader whose log was truncated below the returned records."""
    return OffsetOutOfRangeError(
        f"the log was truncated while it was read: it now ends at offset {state.end_offset}, and records before offset {offset} "
        "are no longer those that were read; seek to where reading should continue",
        offset=offset,
    )
