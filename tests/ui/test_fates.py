"""The page of segments says when retention deletes each segment, and what compaction does with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, Store
from pylog.clock import ManualClock
from pylog.monitoring.measured import measures_of
from pylog.testing import MemoryFileSystem
from pylog.text import size_text
from pylog.ui.app import made_application
from support.ui import Browser

NOW = 1_700_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture
def store() -> Iterator[Store]:
    offsets = OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=ManualClock(NOW), offsets=offsets) as made:
        yield made


def filled(store: Store, ages: list[int], **options: Any) -> pylog.Log:
    """A topic whose records have these ages, each in a segment of its own."""
    store.create_topic("t", segment_bytes=150, **options)
    for age in ages:
        store.log("t").append(b"x" * 60, key=b"k", timestamp=NOW - age)
    return store.log("t")


def fates(store: Store, kind: str = "retention") -> list[str]:
    found = Browser(made_application(measures_of(store).watch(), token=None)).get("/topics/t/segments.json").json
    return list(found["fates"]["0"][kind].values())


def test_a_segment_waits_for_the_newer_records_of_an_earlier_one(store: Store) -> None:
    filled(store, [0, 50 * MINUTE, 0], retention_ms=HOUR)
    assert fates(store) == ["in 1 hour", "in 1 hour", "kept while it is active"]


def test_a_segment_goes_when_the_bytes_after_it_reach_the_limit(store: Store) -> None:
    log = filled(store, [0, 0, 0], retention_ms=-1, retention_bytes=10_000)
    size = log.size_between(0, 3) // 3
    assert fates(store) == [
        f"after {size_text(10_000 - 2 * size)} more",
        f"after {size_text(10_000 - size)} more",
        "kept while it is active",
    ]


def test_a_retention_group_is_named_and_without_a_limit_everything_is_kept(store: Store) -> None:
    filled(store, [0, 0], retention_ms=HOUR, retention_group="billing")
    assert fates(store) == ["in 1 hour, once billing has read it", "kept while it is active"]
    store.alter_topic("t", retention_ms=-1, retention_group=None)
    assert fates(store) == ["kept", "kept while it is active"]


def test_a_compacted_topic_keeps_its_segments_and_says_which_ones_wait(store: Store) -> None:
    filled(store, [2 * HOUR, 0, 0], cleanup_policy="compact", min_compaction_lag_ms=HOUR)
    assert fates(store) == ["kept"] * 3
    assert fates(store, "compaction") == ["dirty", "not yet cleanable", "active"]
