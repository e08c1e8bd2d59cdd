"""The index kernels against plain Python, on tables that are sorted, damaged, cut short and random."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.index import entries as kernels
from pylog.index import files
from pylog.index.table import read_only
from pylog.limits import INT32_MAX, INT64_MAX
from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.record.kernel import INTERPRETED
from support.record.forms import each_form  # noqa: F401 - a fixture
from support.reference import index as reference

pytestmark = pytest.mark.usefixtures("each_form")

EXAMPLES = settings(max_examples=25 if INTERPRETED else 125)

int32s = st.integers(-(2**31), INT32_MAX)
int64s = st.integers(-(2**63), INT64_MAX)
small = st.integers(0, 40)


def packed(form: str, entries: Entries) -> Any:
    return read_only(b"".join(struct.pack(form, *entry) for entry in entries))


def scan_table(batches: list[reference.Batch]) -> Any:
    table = np.zeros((COLUMN_COUNT, len(batches)), np.int64)
    for column, batch in enumerate(batches):
        table[[POSITION, SIZE, LAST_OFFSET, MAX_TIMESTAMP], column] = batch
    return table


Entries = list[tuple[int, int]]

sorted_entries = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 1000)), unique_by=lambda entry: entry[0]).map(sorted)


@pytest.mark.slow
@EXAMPLES
@given(sorted_entries, st.integers(-10, 210), st.sampled_from([0, 7, 2**40]))
def test_an_offset_lookup_finds_the_last_entry_at_or_before_the_offset(entries: Entries, target: int, base: int) -> None:
    relative = reference.floor(entries, target, (0, 0))
    found = kernels.lookup_offset(packed(">ii", entries), len(entries), base, base + target)
    assert found == (base + relative[0], relative[1])


@pytest.mark.slow
@EXAMPLES
@given(sorted_entries, st.integers(-10, 210), st.sampled_from([0, 7, 2**40]))
def test_a_time_lookup_finds_the_last_entry_at_or_before_the_timestamp(entries: Entries, target: int, base: int) -> None:
    timestamp, relative = reference.floor(entries, target, (-1, 0))
    assert kernels.lookup_timestamp(packed(">qi", entries), len(entries), base, target) == (timestamp, base + relative)


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.tuples(int32s, int32s)).map(sorted), int32s, st.sampled_from([0, 4]))
def test_counting_entries_up_to_a_key_compares_the_given_field(entries: Entries, key: int, field: int) -> None:
    entries = [(value, value) for value, _ in entries]
    expected = sum(value <= key for value, _ in entries)
    assert files.count_at_most(packed(">ii", entries), 8, field, len(entries), key) == expected


@pytest.mark.slow
@EXAMPLES
@given(st.binary(max_size=100), st.integers(-3, 30), int64s)
def test_searches_of_any_bytes_end_and_stay_inside(data: bytes, count: int, key: int) -> None:
    table = read_only(data)
    kernels.lookup_offset(table, count, 0, key)
    kernels.lookup_timestamp(table, count, 0, key)
    for field in (-1, 0, 4, 5):
        assert 0 <= files.count_at_most(table, 8, field, count, key) <= len(data) // 8
    assert 0 <= files.valid_offset_entries(table, count, 1000) <= len(data) // 8
    assert 0 <= files.valid_time_entries(table, count) <= len(data) // 12


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.tuples(st.integers(-2, 20), st.integers(-2, 20)), max_size=6) | sorted_entries, st.integers(0, 1100))
def test_valid_offset_entries_rise_and_point_into_the_log(entries: Entries, log_size: int) -> None:
    expected = reference.valid_offset_entries(entries, log_size)
    assert files.valid_offset_entries(packed(">ii", entries), len(entries), log_size) == expected


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.tuples(st.integers(-2, 5), st.integers(-2, 5)), max_size=4) | sorted_entries)
def test_valid_time_entries_rise(entries: Entries) -> None:
    assert files.valid_time_entries(packed(">qi", entries), len(entries)) == reference.valid_time_entries(entries)


@pytest.mark.parametrize(
    ("entries", "valid"),
    [
        ([(0, 0)], 1),  # the whole file: time 0 at the first offset
        ([(0, 0), (0, 0), (0, 0)], 0),  # preallocated, nothing written
        ([(0, 0), (5, 2), (0, 0)], 2),  # time 0 first, then more, then zeros
        ([(0, 3), (0, 0), (0, 0)], 1),  # time 0 at a later offset
        ([(9, 0), (0, 0)], 1),
        ([(9, 4), (9, 5)], 1),
        ([(9, 4), (10, 3)], 1),
        ([(-1, 0)], 0),
    ],
)
def test_zeros_end_a_time_index_unless_they_are_time_zero(entries: Entries, valid: int) -> None:
    assert files.valid_time_entries(packed(">qi", entries), len(entries)) == valid


@pytest.mark.slow
@EXAMPLES
@given(st.binary(max_size=40).map(lambda data: bytes(byte & 1 for byte in data)), st.integers(-2, 45), st.integers(-2, 45))
def test_zero_filled_checks_the_range_only(data: bytes, start: int, end: int) -> None:
    assert files.zero_filled(read_only(data), start, end) == int(not any(data[max(start, 0) : max(end, 0)]))


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, list[reference.Batch]]:
    base = draw(st.sampled_from([0, 100, 2**40]))
    batches = []
    position, offset = 0, base
    for size, records, timestamp in draw(st.lists(st.tuples(st.integers(61, 200), st.integers(1, 5), st.integers(-1, 30)))):
        offset += records
        batches.append(reference.Batch(position, size, offset - 1, timestamp))
        position += size
    return base, batches


def appended(base: int, interval: int, batches: list[reference.Batch], rooms: list[int]) -> tuple[Any, bytes, bytes]:
    """Runs the kernel as often as tables that grow by one entry at a time make it stop."""
    state = kernels.new_state(base)
    offsets, times = np.zeros(0, np.uint8), np.zeros(0, np.uint8)
    table, first, stops = scan_table(batches), 0, 0
    while True:
        first = kernels.index_batches(table, first, len(batches), 0, base, interval, state, offsets, times)
        if state[kernels.STATUS] != kernels.FULL:
            break
        stops += 1
        offsets = np.concatenate([offsets, np.zeros(8 * rooms[stops % len(rooms)], np.uint8)])
        times = np.concatenate([times, np.zeros(12 * rooms[stops % len(rooms)], np.uint8)])
    assert first == len(batches)
    assert state[kernels.STATUS] == kernels.DONE
    if kernels.index_last_timestamp(base, state, times) == kernels.FULL:
        times = np.concatenate([times, np.zeros(12, np.uint8)])
        assert kernels.index_last_timestamp(base, state, times) == kernels.DONE
    sizes = 8 * state[kernels.OFFSET_COUNT], 12 * state[kernels.TIME_COUNT]
    return state, offsets[: sizes[0]].tobytes(), times[: sizes[1]].tobytes()


@pytest.mark.slow
@EXAMPLES
@given(segments(), st.integers(0, 500), st.lists(st.integers(0, 3), min_size=1).filter(any))
def test_indexing_batches_gives_kafkas_entries_however_often_a_table_is_full(
    segment: tuple[int, list[reference.Batch]], interval: int, rooms: list[int]
) -> None:
    base, batches = segment
    offsets, times = reference.index_batches(base, interval, batches, closed=True)
    _, offset_bytes, time_bytes = appended(base, interval, batches, rooms)
    assert offset_bytes == b"".join(struct.pack(">ii", offset - base, position) for offset, position in offsets)
    assert time_bytes == b"".join(struct.pack(">qi", timestamp, offset - base) for timestamp, offset in times)


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.tuples(int64s, int64s, int64s, st.integers(0, 2**31)), max_size=8), st.integers(0, INT64_MAX))
def test_batches_of_any_numbers_never_make_entries_that_do_not_fit(numbers: list[tuple[int, int, int, int]], base: int) -> None:
    table = scan_table([reference.Batch(position % 2**40, size, last, timestamp) for last, timestamp, position, size in numbers])
    state, offsets, times = kernels.new_state(base), np.zeros(80, np.uint8), np.zeros(120, np.uint8)
    taken = kernels.index_batches(table, 0, len(numbers), 0, base, 0, state, offsets, times)
    assert all(base <= last <= base + INT32_MAX and position % 2**40 <= INT32_MAX for last, _, position, _ in numbers[:taken])
    relative = np.frombuffer(offsets.tobytes(), ">i4")[: 2 * state[kernels.OFFSET_COUNT] : 2]
    assert (np.diff(relative) > 0).all()
    assert (relative >= 0).all()


@pytest.mark.parametrize(
    ("batch", "status"),
    [
        ((0, 100, 99, 0), kernels.OUT_OF_RANGE),  # before the base
        ((0, 100, 100 + INT32_MAX, 0), kernels.DONE),
        ((0, 100, 101 + INT32_MAX, 0), kernels.OUT_OF_RANGE),
        ((0, 100, -(2**63), 0), kernels.OUT_OF_RANGE),  # the difference would wrap
        ((INT32_MAX + 1, 100, 100, 0), kernels.OUT_OF_RANGE),
    ],
)
def test_a_batch_out_of_range_is_refused(batch: tuple[int, int, int, int], status: int) -> None:
    state = kernels.new_state(100)
    taken = kernels.index_batches(
        scan_table([reference.Batch(*batch)]), 0, 1, 0, 100, 0, state, np.zeros(8, np.uint8), np.zeros(12, np.uint8)
    )
    assert (taken, state[kernels.STATUS]) == (int(status == kernels.DONE), status)


def test_a_table_or_state_that_is_too_small_takes_nothing() -> None:
    batches = scan_table([reference.Batch(0, 100, 0, 0)])
    small_state, state = np.zeros(3, np.int64), kernels.new_state(0)
    out = np.zeros(0, np.uint8)
    assert kernels.index_batches(batches, 0, 9, 0, 0, 0, small_state, out, out) == 0
    assert kernels.index_batches(batches[:2], 0, 1, 0, 0, 0, state, out, out) == 0
    assert kernels.index_last_timestamp(0, small_state, np.zeros(12, np.uint8)) == kernels.FULL
    assert kernels.index_batches(batches, 0, 9, 0, 0, 0, state, out, out) == 1  # the count is held to the table's columns
