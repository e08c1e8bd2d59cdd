"""Random histories of a store and its archive, with faults of the object store, against a model of the records."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pylog
from pylog.archive.verifying import verify_archive
from pylog.clock import ManualClock
from support.objects import AFTER, BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000


class Archives(RuleBasedStateMachine):
    """One partition: its records, and those that the archive must have at least."""

    @initialize()
    def begin(self) -> None:
        self.path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.objects, self.clock, self.restores = MemoryObjects(), ManualClock(NOW), 0
        self.patches = ExitStack()
        self.patches.enter_context(every_url(self.objects))
        self.records: dict[int, bytes] = {}
        self.start = self.end = self.archived_end = 0
        self.is_copy = False  # restored, and did not archive yet: the archive then refuses other records than its own
        self.directory = self.path / "shop"
        self.store = self.opened()
        self.store.create_topic("orders", segment_bytes=400, retention_ms=-1)

    def opened(self) -> pylog.Store:
        return pylog.open(self.directory, durability=pylog.Durability.OS, clock=self.clock)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.patches.close()
            shutil.rmtree(self.path)

    @rule(count=st.integers(1, 12), at_once=st.integers(1, 4))
    def append(self, count: int, at_once: int) -> None:
        for _ in range(count):
            values = [b"%d" % (self.end + each) + b"x" * 60 for each in range(at_once)]
            assert self.store.log("orders").append_many(values)[0] == self.end
            self.records |= dict(enumerate(values, self.end))
            self.end += at_once
            self.clock.advance(1)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        before = self.start + int(share * (self.end - self.start))
        self.start = self.store.log("orders").delete_records(before)
        self.records = {offset: value for offset, value in self.records.items() if offset >= self.start}

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        end = self.start + int(share * (self.end - self.start))
        if self.is_copy:
            end = max(end, self.archived_end)
        self.store.log("orders").truncate(end)
        self.end, self.archived_end = end, min(end, self.archived_end)
        left = {record.offset for record in self.store.log("orders").records()}  # a batch is cut as a whole
        assert all(offset in left for offset in self.records if offset < end - 4)
        self.records = {offset: value for offset, value in self.records.items() if offset in left}

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.opened()

    @rule(whole=st.booleans(), at=st.integers(0, 30), kind=st.sampled_from([BEFORE, AFTER]))
    def archive(self, whole: bool, at: int, kind: str) -> None:
        numbers = iter(range(1, 10**6))
        self.objects.fault = lambda request, key: kind if next(numbers) == at else None
        try:
            report = self.store.archive("s3://any", include_active=whole)
        except pylog.ObjectStoreError:
            assert at
        else:
            (mine,) = [each for each in report.partitions if each.partition.topic == "orders"]
            assert mine.archived_end_offset == self.end or not whole
            self.archived_end, self.is_copy = mine.archived_end_offset, False
        finally:
            self.objects.fault = lambda request, key: None

    @precondition(lambda self: any(key.startswith("pylog/store/0") for key in self.objects.objects))
    @rule(goes_on=st.booleans())
    def restore(self, goes_on: bool) -> None:
        """Restores: at least what the last successful run archived, nothing that is not a record of the log's history."""
        self.restores += 1
        copy = self.path / f"copy-{self.restores}"
        pylog.restore("s3://any", copy)
        with pylog.open(copy, "r", clock=self.clock) as store:
            if "orders" not in store.topics():
                assert self.archived_end == 0
                return
            log = store.log("orders")
            found = {record.offset: record.value for record in log.records()}
            assert log.end_offset >= self.archived_end
            for offset in range(max(self.start, log.start_offset), min(self.archived_end, self.end)):
                assert found.get(offset) == self.records.get(offset)
            assert store.check().ok
        if goes_on:
            self.store.archive("s3://any", include_active=True)
            self.store.close()
            shutil.rmtree(copy)
            pylog.restore("s3://any", copy)
            self.directory, self.archived_end, self.is_copy = copy, self.end, True
            self.store = self.opened()
            assert (self.store.log("orders").start_offset, self.store.log("orders").end_offset) == (self.start, self.end)

    @invariant()
    def the_archive_is_sound(self) -> None:
        if hasattr(self, "objects") and any(key.startswith("pylog/store/0") for key in self.objects.objects):
            found = verify_archive(self.objects, deep=True)
            assert found.ok, found.findings


Archives.TestCase.settings = settings(
    max_examples=6, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_a_restored_log_has_the_records_of_the_archive_after_any_history = pytest.mark.slow(Archives.TestCase)
