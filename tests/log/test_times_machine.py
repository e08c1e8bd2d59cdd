"""Retention by time and search by time against plain Python, whatever happens to the log and to the clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pylog
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem
from support.trust.features import covers

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_700_000_000_000
RETENTION = 3 * DAY

stamps = st.one_of(
    st.none(),
    st.just(-1),
    st.sampled_from([0, 1, NOW * 1000, 2**62]),
    st.integers(NOW - 9 * DAY, NOW + 30 * DAY),
)
asked_for = st.one_of(st.sampled_from([0, NOW, NOW * 1000]), st.integers(NOW - 9 * DAY, NOW + 60 * DAY))


class Times(RuleBasedStateMachine):
    """One log, two stores that have it open, and a clock that moves, stands, and is set.

    `appended` has each record's timestamp, or None where it has none; what the clock said at its append; and how much time had
    passed in truth.
    """

    @initialize(
        segment_bytes=st.sampled_from([200, 400, 1 << 20]),
        segment_ms=st.sampled_from([DAY, 30 * DAY]),
        policy=st.sampled_from(["delete", "compact,delete"]),
    )
    def begin(self, segment_bytes: int, segment_ms: int, policy: str) -> None:
        self.clock = ManualClock(NOW)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.passed = 0
        self.appended: dict[int, tuple[int | None, int, int]] = {}
        self.compacted = policy != "delete"
        self.stores = [self._opened(), self._opened()]
        self.stores[0].create_topic(
            "t",
            segment_bytes=segment_bytes,
            segment_ms=segment_ms,
            retention_ms=RETENTION,
            cleanup_policy=policy,
            min_cleanable_dirty_ratio=0.0,
            message_timestamp_after_max_ms=2**63 - 1,
        )

    def _opened(self) -> pylog.Store:
        return pylog.open("/d", fs=self.fs, clock=self.clock, durability=pylog.Durability.OS)

    def log(self, which: int) -> pylog.Log:
        return self.stores[which].log("t")

    @rule(which=st.integers(0, 1), given=st.lists(stamps, min_size=1, max_size=4), codec=st.sampled_from(["none", "lz4"]))
    @covers(("timestamps", "second process"))
    def append(self, which: int, given: list[int | None], codec: str) -> None:
        items = [(b"%d" % (number % 2), b"x" * 20, (), stamp) for number, stamp in enumerate(given)]
        now = self.clock.now_ms()
        for offset, stamp in zip(self.log(which).append_many(items, compression=codec), given, strict=True):
            self.appended[offset] = (now if stamp is None else stamp if stamp >= 0 else None, now, self.passed)

    @rule(ms=st.sampled_from([1, HOUR, DAY, RETENTION, RETENTION + 1, 10 * DAY]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        self.passed += ms

    @rule(ms=st.sampled_from([-40 * DAY, -DAY, -1, HOUR, 40 * DAY]))
    def clock_is_set(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(which=st.integers(0, 1))
    @covers(("timestamps", "retention by time"), ("retention by time", "second process"), ("timestamps", "compaction"))
    def tick(self, which: int) -> None:
        before = self._present(which)
        self.stores[which].tick()
        gone = {offset for offset in before if offset < self.log(which).start_offset}
        young = [offset for offset in gone if not self._may_go(offset)]
        assert not young, [(offset, self.appended[offset]) for offset in young]

    def _may_go(self, offset: int) -> bool:
        """A record without a timestamp, or with one in the future, is as old as its append; what a wrong clock says may count."""
        stamp, noted, passed = self.appended[offset]
        now = self.clock.now_ms()
        if stamp is not None and stamp <= now:
            return now - stamp > RETENTION
        return (now - noted > RETENTION) if noted <= now else self.passed - passed > RETENTION

    def _present(self, which: int) -> dict[int, int]:
        return {record.offset: record.timestamp for record in self.log(which).records()}

    @rule(which=st.integers(0, 1))
    @precondition(lambda self: self.compacted)
    @covers(("time search", "compaction"), ("time search", "second process"))
    def clean(self, which: int) -> None:
        self.stores[which].compact("t")

    @rule(which=st.integers(0, 1), part=st.floats(0, 1))
    @covers(("time search", "delete_records"))
    def delete_records(self, which: int, part: float) -> None:
        log = self.log(which)
        log.delete_records(log.start_offset + int((log.end_offset - log.start_offset) * part))

    @rule(which=st.integers(0, 1), part=st.floats(0, 1))
    @covers(("time search", "truncation"), ("timestamps", "truncation"))
    def truncate(self, which: int, part: float) -> None:
        log = self.log(which)
        log.truncate(log.start_offset + int((log.end_offset - log.start_offset) * part))

    @rule(which=st.integers(0, 1))
    @covers(("retention by time", "close"))
    def reopen(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self._opened()

    @covers(("time search", "timestamps"), ("time search", "roll"))
    @rule(
        which=st.integers(0, 1),
        asked=asked_for,
    )
    def search(self, which: int, asked: int) -> None:
        there = [offset for offset, stamp in self._present(which).items() if stamp >= asked]
        found = self.log(which).offset_for_timestamp(asked)
        assert (None if found is None else found.offset) == (there[0] if there else None)

    @invariant()
    def timestamps_are_as_given(self) -> None:
        if hasattr(self, "stores"):
            assert all(
                stamp == (-1 if (known := self.appended[at][0]) is None else known) for at, stamp in self._present(0).items()
            )

    def teardown(self) -> None:
        if not hasattr(self, "stores"):
            return
        self.clock.advance(100 * DAY)
        for store in self.stores:
            store.tick()
        self.clock.advance(100 * DAY)
        left: Any = None
        for store in self.stores:
            store.tick()
            left = list(store.log("t").records())
        for store in self.stores:
            store.close()
        assert not left, "nothing holds retention up for good"


TestTimes = pytest.mark.slow(Times.TestCase)
TestTimes.settings = settings(stateful_step_count=30)
