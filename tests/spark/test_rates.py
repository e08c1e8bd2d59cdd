"""Limits of a micro-batch, shared out over partitions as the Kafka connector does it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.record.types import TopicPartition
from pylog.spark.rates import at_most, is_too_little, prorated

PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
OFFSETS = st.integers(0, 2**62)
SPANS = st.dictionaries(st.sampled_from(PARTITIONS), st.tuples(OFFSETS, OFFSETS))


def split(spans: dict[TopicPartition, tuple[int, int]]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    return {part: span[0] for part, span in spans.items()}, {part: span[1] for part, span in spans.items()}


@pytest.mark.parametrize(
    ("limit", "sizes", "shares"),
    [
        (10, [1000, 500, 1], [6, 3, 1]),  # down, but up below one
        (1, [5, 5, 5], [1, 1, 1]),  # nobody starves, though the limit is exceeded
        (100, [100, 100, 100], [33, 33, 33]),
        (7, [7], [7]),
        (10, [3], [10]),
        (3, [1, 2], [1, 2]),
    ],
)
def test_shares_are_rounded_as_the_connector_rounds_them(limit: int, sizes: list[int], shares: list[int]):
    assert list(prorated(limit, dict(enumerate(sizes))).values()) == shares


@given(st.integers(1, 2**40), SPANS)
def test_a_micro_batch_lies_between_its_beginning_and_the_topics_ends(limit: int, spans: dict[TopicPartition, tuple[int, int]]):
    begins, ends = split(spans)
    found = at_most(limit, begins, ends)
    assert found.keys() == ends.keys()
    for part, end in found.items():
        assert begins[part] < end <= ends[part] or end == ends[part] <= begins[part]


@given(st.integers(1, 1000), st.lists(st.integers(1, 2000), min_size=1, max_size=3))
def test_the_limit_is_exceeded_by_less_than_one_offset_a_partition(limit: int, sizes: list[int]):
    begins = dict.fromkeys(PARTITIONS[: len(sizes)], 0)
    ends = dict(zip(begins, sizes, strict=True))
    assert sum(at_most(limit, begins, ends).values()) < limit + len(sizes)


@given(st.integers(1, 500), st.lists(st.integers(0, 1000), min_size=1, max_size=3))
def test_micro_batches_reach_the_end_after_as_many_as_the_limit_asks_for(limit: int, sizes: list[int]):
    at = dict.fromkeys(PARTITIONS[: len(sizes)], 0)
    ends = dict(zip(at, sizes, strict=True))
    batches = 0
    while at != ends:
        at, batches = at_most(limit, at, ends), batches + 1
    assert batches <= sum(sizes) // max(1, limit - len(sizes)) + 2 * len(sizes) + 1


@given(SPANS)
def test_an_end_before_its_beginning_stays_to_be_reported(spans: dict[TopicPartition, tuple[int, int]]):
    begins, ends = split(spans)
    found = at_most(10, begins, ends)
    assert all(found[part] == end for part, end in ends.items() if end < begins[part])


def test_too_little_is_less_than_the_minimum_in_all_partitions_together():
    begins, ends = dict.fromkeys(PARTITIONS, 10), dict.fromkeys(PARTITIONS, 20)
    assert not is_too_little(30, begins, ends)
    assert is_too_little(31, begins, ends)
