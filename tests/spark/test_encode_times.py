"""A write task of Spark checks timestamps by its topic's options, before anything is committed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

import pylog
from pylog.clock import ManualClock
from pylog.fs import OsFileSystem
from pylog.spark.encode import TaskRows
from pylog.spark.write_options import write_options
from pylog.staging.file import StagingFile

NOW = 1_700_000_000_000
HOUR = 3_600_000
NUMBERS = itertools.count()


def encoded(root: Path, stamp: int, **options: str) -> None:
    """One row through a task; the options are those of the write."""
    staging = StagingFile(OsFileSystem(), str(root), f"staged-{next(NUMBERS)}")
    task = TaskRows(write_options({"path": str(root), "topic": "t", **options}), staging, ManualClock(NOW))
    task.add(pa.record_batch({"value": [b"x"], "timestamp": pa.array([stamp], pa.int64())}))
    task.flush()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
    return tmp_path


@pytest.mark.pair("timestamps", "Spark")
def test_a_task_refuses_a_timestamp_too_far_in_the_future(root: Path) -> None:
    with pytest.raises(pylog.InvalidTimestampError, match="message_timestamp_after_max_ms=3600000"):
        encoded(root, NOW + HOUR + 1)
    encoded(root, NOW + HOUR)
    encoded(root, -1)


@pytest.mark.pair("LogAppendTime", "Spark")
def test_a_task_takes_any_timestamp_that_the_time_of_the_append_replaces(root: Path) -> None:
    encoded(root, 2**62, timestampType="LogAppendTime")
    with pylog.open(root) as store:
        store.alter_topic("t", message_timestamp_type="LogAppendTime")
    encoded(root, 2**62)
