"""Waiting for what comes, and handing it out: reading a log for ever while any process appends to it (reliability 11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from pylog import limits
from pylog.clock import Clock
from pylog.errors import CorruptionError, OffsetOutOfRangeError, PylogError
from pylog.log.reading import reader
from pylog.log.state import LogState
from pylog.record.batch import Table
from pylog.record.format import CRC, LAST_OFFSET


class Ends(NamedTuple):
    """Which end of a log counts: only what is durable, only what is committed."""

    durable: bool = False
    committed: bool = False

    def of(self, state: LogState) -> int:
        """The offset that counts as the end."""
        end = state.durable_offset if self.durable else state.end_offset
        return min(end, state.stable_offset) if self.committed else end


def wait(
    refresh: Callable[[], LogState],
    clock: Clock,
    offset: int,
    ends: Ends,
    timeout_ms: int | None,
    *,
    since: LogState | None = None,
) -> LogState:
    """Waits until the end is above `offset`, the log was truncated (since a known state), or the time is over.

    Cost: a refresh each 0.1 ms at first, a millisecond later on, and ten of them after a hundred seconds.
    """
    deadline = math.inf if timeout_ms is None else clock.monotonic() + timeout_ms / 1000
    state = refresh()
    first = since or state
    naps = Naps(clock)
    while ends.of(state) <= offset and state.truncation_count == first.truncation_count:
        if not naps.take(deadline):
            break
        state = refresh()
    return state


class Naps:
    """Waiting for what others append: shortly at first, and longer the longer nothing has come.

    Who waits for a stream of records sees each within a millisecond; whose log is silent for minutes takes hardly any time of a
    processor, and is late by a ten-thousandth of the silence.

    Args:
        clock: to wait with.

    >>> from pylog.clock import ManualClock
    >>> clock = ManualClock()
    >>> naps = Naps(clock)
    >>> all(naps.take(clock.monotonic() + 1) for _ in range(1000)), naps.take(clock.monotonic())
    (True, False)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._slept = 0.0  # seconds

    def take(self, deadline: float) -> bool:
        """Waits a little, up to a moment of the clock at most; false if that is over."""
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
        """Something has come."""
        self._count, self._slept = 0, 0.0


def refreshed_after(refresh: Callable[[], LogState], state: LogState, error: PylogError) -> LogState:
    """The log as it is now, for reading that met an error: segments may have been replaced meanwhile (reliability 11e, 11f).

    Raises:
        The error: nothing has changed, so it is what it says.
        OffsetOutOfRangeError: the log was truncated.
    """
    if not isinstance(error, CorruptionError | OffsetOutOfRangeError):
        raise error
    now = refresh()
    if now.version == state.version:
        raise error
    if now.truncation_count != state.truncation_count:
        told = "the log was changed while it was read; read on from what there is now"
        raise OffsetOutOfRangeError(told, path=error.path, offset=error.offset) from error
    return now


class Continuity:
    """Whether a log that is being read still holds what was read: a truncation may have replaced it meanwhile.

    Args:
        current: gives the state now.
        state: the state that is read.
    """

    def __init__(self, current: Callable[[], LogState], state: LogState) -> None:
        self._current = current
        self._count = state.truncation_count
        self._before: tuple[int, int] | None = None  # the offset after the last batch of the tables before, and its CRC

    def check(self, table: Table) -> None:
        """Raises OffsetOutOfRangeError if the last of these batches, or of those before, is not in the log any more.

        Args:
            table: batches in the order of their offsets, all read before this call.

        Cost: one pread; after a truncation the search for two batches.
        """
        state = self._current()
        last = (int(table[LAST_OFFSET, -1]) + 1, int(table[CRC, -1])) if table.shape[1] else None
        if state.truncation_count != self._count:
            for end, crc in filter(None, (self._before, last)):
                if end > state.start_offset and not goes_on(state, end, crc):
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
    """Arrow batches from `offset` on, until nothing new has come for `timeout_ms`.

    Args:
        refresh: gives the state now.
        scan: reads from an offset to before another one.
        clock, offset, ends, timeout_ms: as for `wait`.

    Raises:
        OffsetOutOfRangeError: the log was truncated below what was handed out, or retention was faster.
    """
    before = refresh()
    seen = reader.crc_before(before, offset)
    while True:
        state = wait(refresh, clock, offset, ends, timeout_ms, since=before)
        if state.truncation_count != before.truncation_count and not goes_on(state, offset, seen):
            raise truncated(state, offset)
        end = ends.of(state)
        if end > offset:
            following = reader.crc_before(state, end)  # before it is handed out: what lies there later may be another record
            yield from scan(offset, end)
            offset, seen = end, following
        elif state.truncation_count == before.truncation_count:
            return
        before = state


def goes_on(state: LogState, offset: int, seen: int | None) -> bool:
    """Whether the record before `offset` is in a log that was truncated still the one that was handed out."""
    return offset <= state.end_offset and reader.crc_before(state, offset) == seen


def truncated(state: LogState, offset: int) -> OffsetOutOfRangeError:
    """The error of a reader whose log was truncated below what it has handed out."""
    return OffsetOutOfRangeError(
        f"the log was truncated while it was read: it ends at offset {state.end_offset} now, and what lay before offset {offset} "
        "is not what was handed out; seek to where reading should go on",
        offset=offset,
    )
