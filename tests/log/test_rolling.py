"""A batch that a full segment may not take begins the next one, however cheaply the others are seen to fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import pylog
from pylog.config import TopicConfig
from pylog.index.builder import SegmentIndexBuilder
from pylog.limits import MAX_RELATIVE_OFFSET
from pylog.log.writing.active_segment import ActiveSegment
from pylog.log.writing.rolling import batches_before_roll, one_fits
from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, MAX_TIMESTAMP, SIZE

BASE = 1000
NOW = 1_700_000_000_000
CONFIG = TopicConfig(segment_bytes=1000, segment_ms=500, segment_index_bytes=48)


def active(size: int, first: int, begun: int) -> ActiveSegment:
    segment: Any = SimpleNamespace(base_offset=BASE, first_timestamp=lambda: first, appends=SimpleNamespace(begun_ms=begun))
    nothing: Any = None
    return ActiveSegment(segment, nothing, SegmentIndexBuilder(BASE, 0), nothing, size, BASE, CONFIG)


NEAR = st.sampled_from([-1, 0, NOW - 501, NOW - 500, NOW - 499, NOW, NOW + 1, NOW + 501])
SIZES = st.sampled_from([0, 1, 900, 901, 1000])
DISTANCES = st.sampled_from([0, MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET + 1])


@given(SIZES, NEAR, NEAR, NEAR, DISTANCES)
@example(900, NOW, NOW, NOW, 0)
def test_a_batch_that_surely_fits_fits_by_the_rules_for_one_batch_and_for_many(
    size: int, first: int, begun: int, stamp: int, distance: int
) -> None:
    segment = active(size, first, begun)
    column = [0] * COLUMN_COUNT
    column[SIZE], column[LAST_OFFSET], column[MAX_TIMESTAMP] = 100, BASE + distance, stamp
    assert not segment.surely_takes(column, NOW)  # nobody has looked into the indexes yet
    use = segment.use()
    fits = one_fits(use, column, CONFIG, NOW)
    assert fits == (batches_before_roll(use, np.array(column, np.int64).reshape(-1, 1), CONFIG, NOW) == 1)
    assert fits or not segment.surely_takes(column, NOW)
    if (size, first, stamp, distance) == (900, NOW, NOW, 0):
        assert segment.surely_takes(column, NOW)


def test_single_appends_roll_when_an_index_is_full(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("alone", segment_index_bytes=48, index_interval_bytes=0)
        log = store.log("alone")
        for number in range(14):
            log.append(b"x", timestamp=NOW + number)
        one_by_one = [segment.base_offset for segment in log.segments]
        store.create_topic("together", segment_index_bytes=48, index_interval_bytes=0, max_message_bytes=140)
        store.log("together").append_many([(None, bytes(30), (), NOW + number) for number in range(14)])
        together = [segment.base_offset for segment in store.log("together").segments]
    assert one_by_one == together == [0, 4, 8, 12]
