"""A tiered log against a list: after any failure or death, each record is in the log once, and no deleted one comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pylog
from pylog.clock import ManualClock
from pylog.errors import ObjectStoreError, PylogError
from pylog.testing import MemoryFileSystem
from support.objects import AFTER, BEFORE, SHORT, MemoryObjects

DAY_MS = 86_400_000
KILL_BEFORE, KILL_AFTER = "killed before", "killed after"
FAULTS = st.one_of(
    st.none(), st.tuples(st.integers(0, 12), st.sampled_from([BEFORE, AFTER, SHORT, KILL_BEFORE, KILL_AFTER])), st.none()
)


class KilledError(BaseException):
    """The process dies in a request."""


class Cloud(MemoryObjects):
    """The archive, as one process reaches it."""

    def plan(self, fault: tuple[int, str] | None) -> None:
        self.left, self.kind = (-1, "") if fault is None else fault

    def _begin(self, request: str, key: str) -> str | None:
        self.left = getattr(self, "left", -1) - 1
        if self.left == -1 and self.kind == KILL_BEFORE:
            raise KilledError
        self.fault = lambda request, key: self.kind if self.left == -1 and self.kind in (BEFORE, AFTER, SHORT) else None
        return super()._begin(request, key)

    def _end(self, fault: str | None, request: str, key: str) -> None:
        if self.left == -1 and getattr(self, "kind", "") == KILL_AFTER:
            raise KilledError
        super()._end(fault, request, key)


class Process:
    """One of the processes: its view of the disk and of the archive, and its store."""

    def __init__(self, fs: MemoryFileSystem, cloud: Cloud, clock: ManualClock) -> None:
        self.fs, self.cloud, self.clock = fs, cloud, clock
        self.open()

    def open(self) -> None:
        self.cloud.plan(None)
        self.store = pylog.open("/shop", archive=self.cloud, fs=self.fs, clock=self.clock)

    @property
    def log(self) -> pylog.Log:
        return self.store.log("t")

    @contextlib.contextmanager
    def facing(self, fault: tuple[int, str] | None) -> Iterator[None]:
        """Runs with one fault. The process is opened again if it dies."""
        self.cloud.plan(fault)
        try:
            with contextlib.suppress(ObjectStoreError):
                yield
        except KilledError:
            self.fs.kill()
            self.fs = self.fs.process()
            self.open()
        finally:
            self.cloud.plan(None)


class TieredLog(RuleBasedStateMachine):
    """Two processes append, tick, delete, truncate and die, with a small `segment_bytes` and a failing archive."""

    @initialize()
    def begin(self) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.disk = MemoryFileSystem(clock=self.clock)
        self.cloud = Cloud()
        self.processes = [self._process(self.disk), self._process(self.disk.process())]
        self.processes[0].store.create_topic(
            "t",
            remote_storage_enable=True,
            retention_ms=-1,
            local_retention_bytes=0,
            segment_bytes=300,
            remote_delete_delay_ms=DAY_MS,
        )
        self.values: list[bytes | None] = []  # by offset
        self.start = 0
        self.retention_bytes = -1

    def _process(self, fs: MemoryFileSystem) -> Process:
        return Process(fs, Cloud(objects=self.cloud.objects, times=self.cloud.times), self.clock)

    def _adopt_start(self, allowed: Callable[[int], bool]) -> None:
        """Takes the log start after a step that may have raised it, or not."""
        found = self.processes[0].log.start_offset
        assert found == self.start or (found > self.start and allowed(found)), (self.start, found)
        self.start = found

    # ---- steps ---------------------------------------------------------------------------------------------------------------

    @rule(who=st.integers(0, 1), count=st.integers(1, 6), size=st.integers(0, 150))
    def append(self, who: int, count: int, size: int) -> None:
        values = [b"%d" % (len(self.values) + each) + b"x" * size for each in range(count)]
        offsets = self.processes[who].log.append_many(values)
        assert offsets[0] == len(self.values)
        self.values += values

    @rule(who=st.integers(0, 1), fault=FAULTS)
    def tick(self, who: int, fault: tuple[int, str] | None) -> None:
        start_before = self.start
        with self.processes[who].facing(fault):
            self.processes[who].store.tick()
        self._adopt_start(lambda start: self.retention_bytes >= 0)
        if self.retention_bytes < 0:
            return
        kept = sum(segment.size for segment in self.processes[0].log.segments)
        assert kept >= self.retention_bytes or self.start == start_before  # whole segments below the start go without a reason

    @rule(who=st.integers(0, 1), part=st.integers(0, 100), fault=FAULTS)
    def delete_records(self, who: int, part: int, fault: tuple[int, str] | None) -> None:
        before = self.start + (len(self.values) - self.start) * part // 100
        with self.processes[who].facing(fault):
            assert self.processes[who].log.delete_records(before) == before
        self._adopt_start(before.__eq__)

    @rule(who=st.integers(0, 1), part=st.integers(0, 100), fault=FAULTS)
    def truncate(self, who: int, part: int, fault: tuple[int, str] | None) -> None:
        log = self.processes[who].log
        first = log.local_start_offset
        end = first + (len(self.values) - first) * part // 100
        with self.processes[who].facing(fault):
            log.truncate(end)
        found = self.processes[who].log.end_offset
        assert found in (end, len(self.values))
        if found == end < len(self.values):  # a batch may be cut as a whole, which leaves a gap
            left = {record.offset for record in self.processes[who].log.records()}
            self.values = [
                value if offset in left or offset < self.start else None for offset, value in enumerate(self.values[:end])
            ]

    @rule(size=st.sampled_from([-1, 0, 400, 2000]), who=st.integers(0, 1))
    def set_local_retention(self, size: int, who: int) -> None:
        with contextlib.suppress(PylogError):  # refused if it is more than retention_bytes
            self.processes[who].store.alter_topic("t", local_retention_bytes=size)

    @rule(size=st.sampled_from([-1, -1, 3000]), who=st.integers(0, 1))
    def set_retention(self, size: int, who: int) -> None:
        self.processes[who].store.alter_topic("t", local_retention_bytes=0, retention_bytes=size)
        self.retention_bytes = size

    @rule(hours=st.sampled_from([1, 30]))
    def wait(self, hours: int) -> None:
        self.clock.advance(hours * 3_600_000)

    @rule(who=st.integers(0, 1))
    def reopen(self, who: int) -> None:
        self.processes[who].store.close()
        self.processes[who].open()

    @rule(who=st.integers(0, 1))
    def die(self, who: int) -> None:
        process = self.processes[who]
        process.fs.kill()
        process.fs = process.fs.process()
        process.open()

    @rule()
    def lose_power(self) -> None:
        disk = self.processes[0].fs.crash()
        self.processes[0].fs, self.processes[1].fs = disk, disk.process()
        for process in self.processes:
            process.open()

    # ---- what always holds ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "values"))
    @invariant()
    def each_record_is_there_once(self) -> None:
        wanted = [(offset, value) for offset, value in enumerate(self.values) if offset >= self.start and value is not None]
        for process in self.processes:
            log = process.log
            assert (log.start_offset, log.end_offset) == (self.start, len(self.values))
            assert [(record.offset, record.value) for record in log.records()] == wanted
            if wanted:
                assert log.read(wanted[0][0]).value == wanted[0][1]
        with pylog.open("/shop", "r", archive=self.cloud, fs=self.processes[0].fs, clock=self.clock) as reader:
            assert [record.offset for record in reader.log("t").records()] == [offset for offset, _ in wanted]

    def teardown(self) -> None:
        if not hasattr(self, "values"):
            return
        for _ in range(2):
            self.processes[0].store.tick()
            self.clock.advance(25 * 3_600_000)
        self.processes[0].store.tick()
        assert self.processes[0].store.check().ok
        report = self.processes[0].store.verify()
        assert report.ok, report.findings
        for process in self.processes:
            process.store.close()


TestTieredLog = TieredLog.TestCase
TestTieredLog.settings = settings(max_examples=5, stateful_step_count=20, deadline=None)


@pytest.mark.slow
class TestTieredLogForLong(TieredLog.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
