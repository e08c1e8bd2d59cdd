"""What may be compacted, when, and what becomes one segment: decisions without files (storage-format 7.2, 7.3, 7.6.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pylog.config import TopicConfig
from pylog.limits import INT32_MAX
from pylog.log.maintenance.compaction_policy import CompactableSegment, LogToClean, SegmentExtent, groups, log_to_clean
from pylog.log.writing.rolling import SegmentUse, batches_before_roll
from pylog.record.format import COLUMN_COUNT, MAX_TIMESTAMP

NOW = 1_000_000


def segments(*bases: int, size: int = 100, largest: dict[int, int] | None = None) -> list[CompactableSegment]:
    """Segments of records from the beginning of time, but for those named."""

    def facts(base: int) -> CompactableSegment:
        stamp = (largest or {}).get(base, 1)
        return CompactableSegment(base, size, lambda age_ms, now_ms: now_ms - stamp > age_ms, lambda _: stamp)

    return [facts(base) for base in bases]


def measured(found: list[CompactableSegment], checkpoint: int | None = None, **changes: Any) -> LogToClean:
    ends = {"start_offset": 0, "end_offset": 99, "stable_offset": 99, "now_ms": NOW}
    config = {name: changes.pop(name) for name in list(changes) if name not in ends}
    return log_to_clean(found, TopicConfig(cleanup_policy="compact", **config), checkpoint=checkpoint, **{**ends, **changes})


def test_a_log_that_was_never_compacted_is_dirty_from_its_start_to_its_active_segment() -> None:
    assert measured(segments(0, 10, 20)) == LogToClean(0, 20, 0, 200, overdue=False)


def test_a_section_that_was_compacted_before_is_clean() -> None:
    assert measured(segments(0, 10, 20), 10) == LogToClean(10, 20, 100, 100, overdue=False)


def test_a_segment_that_compaction_got_into_the_middle_of_counts_on_both_sides() -> None:
    assert measured(segments(0, 10, 20), 15) == LogToClean(15, 20, 200, 100, overdue=False)


@pytest.mark.parametrize("checkpoint", [3, 120], ids=["before the start", "behind the end"])
def test_a_checkpoint_outside_of_the_log_is_not_believed(checkpoint: int) -> None:
    found = measured(segments(5, 10, 20), checkpoint, start_offset=5)
    assert found[:2] == (5, 20)


def test_the_active_segment_is_never_compacted() -> None:
    assert measured(segments(0)) == LogToClean(0, 0, 0, 0, overdue=False)
    assert measured([]) == LogToClean(0, 0, 0, 0, overdue=False)


@pytest.mark.parametrize(("stable", "end"), [(20, 20), (19, 10), (10, 10), (9, 0), (0, 0)])
def test_neither_an_open_transactions_segment_nor_any_later_one_is_compacted(stable: int, end: int) -> None:
    assert measured(segments(0, 10, 20), stable_offset=stable).first_uncleanable == end


def test_a_record_younger_than_the_minimum_lag_waits_and_so_do_all_after_it() -> None:
    found = segments(0, 10, 20, 30, largest={10: NOW - 99, 20: 1})
    assert measured(found, min_compaction_lag_ms=100).first_uncleanable == 10
    assert measured(found, min_compaction_lag_ms=99).first_uncleanable == 30
    assert measured(found, 20, min_compaction_lag_ms=100).first_uncleanable == 30  # what is clean is not asked


def test_a_log_is_due_when_it_is_dirtier_than_its_ratio() -> None:
    half = measured(segments(0, 10, 20), 10)
    assert half.ratio == 0.5
    assert not half.is_due(TopicConfig(min_cleanable_dirty_ratio=0.5))
    assert half.is_due(TopicConfig(min_cleanable_dirty_ratio=0.49))


def test_an_empty_log_is_never_due() -> None:
    assert not measured(segments(0, 10, size=0)).is_due(TopicConfig(min_cleanable_dirty_ratio=0))


def test_a_log_that_is_dirty_for_too_long_is_due_however_clean_it_is() -> None:
    config = TopicConfig(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=100)
    for age, due in ((100, False), (101, True)):
        found = segments(0, 10, 20, largest={10: NOW - age})
        dirty = measured(found, 10, max_compaction_lag_ms=100)
        assert (dirty.overdue, dirty.is_due(config)) == (due, due)
    clean = measured(segments(0, 10, 20), 20, max_compaction_lag_ms=100)
    assert not clean.is_due(config)


def test_the_longest_lag_rolls_the_active_segment_which_is_never_compacted() -> None:
    compacted = TopicConfig(cleanup_policy="compact", segment_ms=1000, max_compaction_lag_ms=100)
    assert compacted.roll_ms == 100
    assert TopicConfig(segment_ms=1000, max_compaction_lag_ms=100).roll_ms == 1000
    table = batch_at(501)
    assert batches_before_roll(SegmentUse(0, 10, 400, 0, 9), table, compacted, NOW) == 0
    assert batches_before_roll(SegmentUse(0, 10, 401, 0, 9), table, compacted, NOW) == 1


def batch_at(timestamp: int) -> Any:
    table = np.zeros((COLUMN_COUNT, 1), np.int64)
    table[MAX_TIMESTAMP] = timestamp
    return table


# ---- grouping ------------------------------------------------------------------------------------------------------------------


def grouped(extents: list[SegmentExtent], end: int = 1000, **config: Any) -> list[list[int]]:
    return [list(group) for group in groups(extents, end, TopicConfig(**config))]


def test_neighbours_become_one_segment_as_long_as_they_fit() -> None:
    small = [SegmentExtent(base, 40, 8, 12) for base in range(0, 50, 10)]
    assert grouped(small, segment_bytes=100) == [[0, 1], [2, 3], [4]]
    assert grouped(small, segment_bytes=10_000) == [[0, 1, 2, 3, 4]]


def test_indexes_bound_a_segment_too() -> None:
    many = [SegmentExtent(base, 1, 40, 12) for base in (0, 10, 20)]
    assert grouped(many, segment_index_bytes=80) == [[0, 1], [2]]
    times = [SegmentExtent(base, 1, 8, 48) for base in (0, 10, 20)]
    assert grouped(times, segment_index_bytes=96) == [[0, 1], [2]]


def test_a_segment_that_is_too_large_already_is_a_group_of_its_own() -> None:
    assert grouped([SegmentExtent(0, 500, 8, 12), SegmentExtent(10, 1, 0, 0)], segment_bytes=100) == [[0], [1]]


def test_offsets_stay_within_reach_of_a_segments_base() -> None:
    far = [SegmentExtent(0, 10, 8, 12), SegmentExtent(10, 10, 8, 12)]
    assert grouped(far, INT32_MAX + 1) == [[0, 1]]
    assert grouped(far, INT32_MAX + 2) == [[0], [1]]
    assert grouped([far[0], SegmentExtent(10, 0, 0, 0)], INT32_MAX + 2) == [[0, 1]]  # it holds no offset
