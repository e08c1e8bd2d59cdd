"""What the strategies make is what pylog takes, and the models say of it what the log says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings

import pylog
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem, strategies
from pylog.testing.models import POWER_LOSS, Found, LogModel
from pylog.testing.strategies import NewRecord, Step


def stored(record: NewRecord) -> Any:
    key, value, headers, timestamp = record
    return key, value, tuple(headers), timestamp


def found_in(log: pylog.Log) -> Found:
    records = [(one.offset, (one.key, one.value, tuple(one.headers), one.timestamp)) for one in log.records()]
    assert [offset for offset, _ in records] == list(range(log.start_offset, log.end_offset))
    return Found(log.start_offset, tuple(record for _, record in records))


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(strategies.topic_configs(), strategies.batches())
def test_batches_are_taken_by_topics_of_all_configurations(config: dict[str, Any], batch: list[NewRecord]) -> None:
    clock = ManualClock(1_700_000_000_000)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock) as store:
        store.create_topic("t", **config)
        log = store.log("t")
        log.append_many(batch)
        stamped = config.get("message_timestamp_type") == "LogAppendTime"
        wanted = [(*record[:3], clock.now_ms() if stamped else record[3]) for record in batch]
        assert found_in(log).records == tuple(stored(record) for record in wanted)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(strategies.workloads())
def test_a_power_loss_after_any_workload_leaves_what_its_model_promises(workload: list[Step]) -> None:
    fs, clock, model = MemoryFileSystem(), ManualClock(1_700_000_000_000), LogModel()
    store = pylog.open("/s", fs=fs, clock=clock)
    store.create_topic("t", segment_bytes=512, index_interval_bytes=0, message_timestamp_after_max_ms=2**63 - 1)
    for step in workload:
        store = perform(step, store, model, fs, clock)
    with pylog.open("/s", fs=fs.crash(), clock=clock) as store:
        assert model.promise.problems(found_in(store.log("t")), POWER_LOSS) == []


def perform(step: Step, store: pylog.Store, model: LogModel, fs: MemoryFileSystem, clock: ManualClock) -> pylog.Store:
    """Does a step, tells the model, and returns the store that is open then."""
    log = store.log("t")
    if step.name == "reopen":
        store.close()
        model.flushed(model.end)
        return pylog.open("/s", fs=fs, clock=clock)
    if step.name == "flush":
        log.flush()
        model.flushed(model.end)
    elif step.name == "delete_records":
        before = log.start_offset + int(step.part * (model.end - log.start_offset))
        model.delete(before)
        log.delete_records(before)
        model.deleted(before)
    elif step.name.startswith("append"):
        model.append([stored(record) for record in step.records])
        for record in step.records:  # one call each: a truncation then never cuts a batch in two
            log.append_many([record], durability=pylog.Durability.SYNC if step.durable else pylog.Durability.OS)
        model.acknowledge(durable=step.durable)
    else:
        end = log.start_offset + int(step.part * (model.end - log.start_offset))
        model.truncate(end)
        log.truncate(end)
        model.truncated(end)
    return store


@pytest.mark.slow
def test_nothing_but_the_strategies_needs_hypothesis() -> None:
    told = "print('hypothesis' in sys.modules)"
    program = f"import sys, pylog.testing; {told}; pylog.testing.strategies; {told}"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]
