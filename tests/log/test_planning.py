"""Where a range is cut: parts of one size, wherever segments begin."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import pylog
from pylog import Durability

VALUE = bytes(100)
SEGMENT_BYTES = 100_000
ABOUT = 2000  # twice the distance of two entries of the index, with a batch between them


@pytest.fixture
def log(tmp_path: Path) -> pylog.Log:
    store = pylog.open(tmp_path, durability=Durability.OS)
    store.create_topic("t", segment_bytes=SEGMENT_BYTES, index_interval_bytes=400)
    for _ in range(1500):
        store.log("t").append(VALUE)
    return store.log("t")


@pytest.mark.parametrize("part", [0.13, 0.3, 0.55, 0.6, 0.95])
def test_parts_smaller_than_a_segment_are_of_one_size_across_segments(log: pylog.Log, part: float) -> None:
    max_bytes = int(part * SEGMENT_BYTES)
    cuts = log.split_offsets(0, log.end_offset, max_bytes)
    sizes = [log.size_between(*part) for part in pairwise([0, *cuts, log.end_offset])]
    assert len(log.segments) == 3
    assert all(abs(size - max_bytes) < ABOUT for size in sizes[:-2]), sizes
    assert max(sizes[-2:]) < max_bytes + ABOUT  # a last segment that is no larger than a part is not looked into


@pytest.mark.parametrize("part", [1.1, 2.5])
def test_parts_larger_than_a_segment_are_whole_segments(log: pylog.Log, part: float) -> None:
    cuts = log.split_offsets(0, log.end_offset, int(part * SEGMENT_BYTES))
    assert cuts == [segment.base_offset for segment in log.segments][int(part) :: int(part)]


def test_a_range_that_begins_in_a_segment_is_cut_from_there(log: pylog.Log) -> None:
    start = log.segments[1].base_offset - 100
    (first, *_) = log.split_offsets(start, log.end_offset, SEGMENT_BYTES // 2)
    assert abs(log.size_between(start, first) - SEGMENT_BYTES // 2) < ABOUT
    assert first > log.segments[1].base_offset
