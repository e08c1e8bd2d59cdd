"""What the stateful models share: a recorded disk whose crashes are steps, and what a log holds in a form to compare.

A step says what it is about to ask for, does it, and says when it is acknowledged. A crash takes one of the moments of the last
step, or the one behind it, and at random a part of what was volatile then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

import pylog
from pylog import Durability
from pylog.clock import ManualClock
from pylog.log.checking.report import HARMLESS
from pylog.record.types import Header
from pylog.testing import Moment, RecordingFileSystem, restarted
from pylog.testing.models import POWER_LOSS, PROCESS_DEATH, Found
from pylog.testing.strategies import NewRecord

ROOT = "/data"
NOW = 1_700_000_000_000
LEVELS = {  # by short names, which is what Hypothesis prints; the last one is never due here
    "sync": Durability.SYNC,
    "os": Durability.OS,
    "interval": Durability.INTERVAL(10**9),
}
GAP = None  # at an offset that has no record, because a truncation cut the batch in two that it was in

Stored = tuple[bytes | None, bytes | None, tuple[Header, ...], int]
Asked = TypeVar("Asked")

levels = st.sampled_from(sorted(LEVELS))
seeds = st.integers(0, 2**32 - 1)
parts = st.floats(0, 1)


class Step(NamedTuple, Generic[Asked]):
    """What was done last: between which operations of the recording, and what had been asked for meanwhile."""

    start: int
    end: int
    asked: Asked


class WallClock(ManualClock):
    """A clock whose wall time can be set back, as an operator does; the time that waits are measured by goes on."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._back_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() - self._back_ms

    def set_back(self, ms: int) -> None:
        self._back_ms += ms


class Crashing(RuleBasedStateMachine, Generic[Asked]):
    """A disk, and stores that are opened on it again after crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = WallClock(NOW)
        self.fs = RecordingFileSystem(clock=self.clock)
        self._last: Step[Asked] | None = None

    @contextmanager
    def doing(self, asked: Asked) -> Iterator[None]:
        """A step; `asked` is what a crash in the middle of it is judged by."""
        start = len(self.fs.recording)
        yield
        self._last = Step(start, len(self.fs.recording), asked)

    def crashed(self, kind: str, part: float, seed: int) -> Asked | None:
        """Loses the power, or all processes, at a moment of the last step.

        Args:
            kind: `POWER_LOSS` or `PROCESS_DEATH`.
            part: from 0 to 1: how far that step had got.
            seed: draws what is left of what was volatile.

        Returns:
            What had been asked for and not acknowledged; None if all of it was.
        """
        recording, step = self.fs.recording, self._last
        after, asked, begun = len(recording), None, False
        if step is not None and part < 1:
            after, asked = step.start + int(part * (step.end - step.start)), step.asked
            begun = after > step.start  # else the last write is one that was acknowledged: a death does not cut it
        moment, draw = Moment.of(recording, after), random.Random(seed)
        crashes = moment.crashes(draw, subsets=6, cuts=6) if kind == POWER_LOSS else moment.deaths(draw, cuts=3 * begun)
        self.fs.kill()
        self.fs = restarted(recording, draw.choice(list(crashes)), clock=self.clock)
        self._last = None
        return asked

    def opened(self, mode: str = "rw") -> pylog.Store:
        return pylog.open(ROOT, mode, fs=self.fs, clock=self.clock)


kinds = st.sampled_from([PROCESS_DEATH, POWER_LOSS])


def bury(store: pylog.Store) -> None:
    """Closes a store whose process is dead, for its threads."""
    with suppress(pylog.PylogError):
        store.close()


def found_in(log: pylog.Log, **options: Any) -> Found:
    """All records of a log, gaps for the offsets that have none."""
    start, end = log.start_offset, log.end_offset
    records = {record.offset: as_found(record) for record in log.records(**options)}
    assert set(records) <= set(range(start, end))
    return Found(start, tuple(records.get(offset, GAP) for offset in range(start, end)))


def as_found(record: pylog.Record) -> Stored:
    return record.key, record.value, tuple(record.headers), record.timestamp


def as_stored(record: NewRecord, stamp: int | None) -> Stored:
    """A record as it will be found; `stamp` is the time of an append that gives all records its own."""
    key, value, headers, timestamp = record
    return key, value, tuple(headers), timestamp if stamp is None else stamp


def as_arrow(batch: list[NewRecord]) -> pa.Table:
    """The same as a table."""
    keys, values, headers, timestamps = zip(*batch, strict=True)
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    told = [[{"key": name, "value": value} for name, value in each] for each in headers]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(timestamps, pa.int64()),
            "headers": pa.array(told, pairs),
        }
    )


def wrong_in(store: pylog.Store, *, crashed: bool) -> list[str]:
    """What `check` finds that must not be; a crash leaves unfinished files behind, which are no harm."""
    allowed = HARMLESS | {"leftover"} if crashed else HARMLESS
    return [str(finding) for finding in store.check().findings if finding.kind not in allowed]
