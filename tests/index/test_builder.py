"""`SegmentIndexBuilder`: Kafka's worked examples, fullness, re-opening, and snapshots that stay what they were."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.errors import CorruptionError
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex
from pylog.limits import INT32_MAX
from pylog.record.format import COLUMN_COUNT, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.record.kernel import INTERPRETED
from support.record.forms import each_form  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("each_form")


def equal_batches(count: int, size: int, *, base: int = 0, first_timestamp: int = -1) -> Any:
    """Batches of one record each; timestamps rise by one from `first_timestamp`, unless that is -1."""
    table = np.zeros((COLUMN_COUNT, count), np.int64)
    table[LAST_OFFSET], table[POSITION], table[SIZE] = base + np.arange(count), size * np.arange(count), size
    table[MAX_TIMESTAMP] = -1 if first_timestamp < 0 else first_timestamp + np.arange(count)
    return table


def built(table: Any, interval: int, *, base: int = 0) -> SegmentIndexBuilder:
    builder = SegmentIndexBuilder(base, interval)
    builder.add(table, table.shape[1])
    return builder


def offset_entries(builder: SegmentIndexBuilder) -> list[tuple[int, int]]:
    index = builder.offset_index()
    return [tuple(index.entry(slot)) for slot in range(len(index))]


def time_entries(builder: SegmentIndexBuilder) -> list[tuple[int, int]]:
    index = builder.time_index()
    return [tuple(index.entry(slot)) for slot in range(len(index))]


def test_batches_of_1000_bytes_are_indexed_every_fifth() -> None:
    builder = built(equal_batches(16, 1000), 4096)
    assert offset_entries(builder) == [(5, 5000), (10, 10000), (15, 15000)]
    assert built(equal_batches(6, 1000, base=100), 4096, base=100).offset_bytes() == bytes.fromhex("0000000500001388")


def test_thirty_batches_with_an_interval_under_two_give_fourteen_entries() -> None:
    assert [offset for offset, _ in offset_entries(built(equal_batches(30, 70), 139))] == list(range(2, 30, 2))


def test_ten_batches_with_an_interval_under_one_give_nine_entries() -> None:
    assert len(offset_entries(built(equal_batches(10, 70), 69))) == 9


def test_the_interval_is_strict_and_zero_indexes_all_but_the_first() -> None:
    assert offset_entries(built(equal_batches(5, 100), 400)) == []
    assert offset_entries(built(equal_batches(5, 100), 399)) == [(4, 400)]
    assert [offset for offset, _ in offset_entries(built(equal_batches(4, 100), 0))] == [1, 2, 3]


def test_a_time_entry_names_the_largest_timestamp_so_far_and_its_batch() -> None:
    table = equal_batches(6, 100)
    table[LAST_OFFSET] = [4, 9, 14, 19, 24, 29]
    table[MAX_TIMESTAMP] = [7, 9, 9, 8, 12, 3]
    builder = built(table, 0)
    assert time_entries(builder) == [(9, 9), (12, 24)]  # (7, 4) came too early; equal and smaller ones add nothing
    assert builder.max_timestamp == 12


def test_finishing_appends_the_largest_timestamp_once() -> None:
    builder = built(equal_batches(1, 100, first_timestamp=50, base=9), 0, base=9)
    assert time_entries(builder) == []
    builder.finish()
    builder.finish()
    assert time_entries(builder) == [(50, 9)]


def test_records_without_timestamps_leave_the_time_index_empty() -> None:
    builder = built(equal_batches(20, 1000), 0)
    builder.finish()
    assert builder.time_bytes() == b""
    assert builder.max_timestamp == -1


def test_the_time_index_is_full_one_entry_early() -> None:
    builder = SegmentIndexBuilder(0, 0)
    table = equal_batches(10, 100, first_timestamp=0)
    left = []
    for batch in range(10):
        left.append(builder.entries_left(48))
        builder.add(table, batch + 1, first=batch)
    # 48 bytes are six offset entries and four time entries, of which the last is kept for `finish`.
    assert left[:5] == [3, 3, 2, 1, 0]


def test_the_offset_index_is_full_at_its_last_entry() -> None:
    assert built(equal_batches(3, 100), 0).entries_left(24) > 0
    assert built(equal_batches(4, 100), 0).entries_left(24) == 0


def test_many_entries_grow_the_tables_and_keep_old_snapshots() -> None:
    builder = SegmentIndexBuilder(0, 0)
    table = equal_batches(1000, 100, first_timestamp=0)
    snapshots = []
    for first in range(0, 1000, 50):
        builder.add(table, first + 50, first=first)
        snapshots.append((first + 49, builder.offset_index(), builder.time_index()))
    builder.finish()
    for count, offset_index, time_index in snapshots:
        assert len(offset_index) == len(time_index) == count
        assert offset_index.encoded() == builder.offset_bytes()[: 8 * count]
        assert time_index.encoded() == builder.time_bytes()[: 12 * count]
    assert builder.offset_bytes(998) == builder.offset_bytes()[8 * 998 :]
    assert builder.time_bytes(998) == builder.time_bytes()[12 * 998 :]


@pytest.mark.parametrize("entries", [31, 32, 33])
def test_finishing_a_full_table_grows_it(entries: int) -> None:
    table = equal_batches(entries + 2, 100, first_timestamp=5)
    builder = SegmentIndexBuilder(0, 0)
    builder.add(table, entries + 1)
    builder.interval_bytes = 10_000  # the last batch makes no entry
    builder.add(table, entries + 2, first=entries + 1)
    builder.finish()
    assert time_entries(builder)[-1] == (5 + entries + 1, entries + 1)
    assert len(time_entries(builder)) == entries + 1


def test_a_position_in_the_file_is_added_to_the_tables_own() -> None:
    table = equal_batches(3, 100)
    builder = SegmentIndexBuilder(0, 0)
    builder.add(table, 3)
    table[LAST_OFFSET] += 3
    builder.add(table, 3, position=300)
    assert offset_entries(builder) == [(1, 100), (2, 200), (3, 300), (4, 400), (5, 500)]


def test_reopening_restarts_the_byte_count_and_takes_the_time_from_the_index() -> None:
    table = equal_batches(8, 1000, first_timestamp=40)
    closed = built(table[:, :5], 4096)
    closed.finish()
    reopened = SegmentIndexBuilder.reopened(closed.offset_index(), closed.time_index(), 4096)
    assert reopened.max_timestamp == 44
    reopened.add(table, 8, first=5)
    assert offset_entries(reopened) == []  # with the 5000 bytes before, batch 5 would have an entry
    reopened.finish()
    assert time_entries(reopened) == [(44, 4), (47, 7)]


def test_written_indexes_read_back() -> None:
    builder = built(equal_batches(500, 300, base=77, first_timestamp=1000), 4096, base=77)
    builder.finish()
    offset_index, damaged = OffsetIndex.from_bytes(77, builder.offset_bytes(), 500 * 300)
    assert (len(offset_index), damaged) == (len(builder.offset_index()), False)
    time_index, damaged = TimeIndex.from_bytes(77, builder.time_bytes())
    assert (len(time_index), damaged) == (len(builder.time_index()), False)


@pytest.mark.parametrize(
    ("last_offset", "reason"), [(1, "does not follow the batches before"), (-1, "too far from"), (INT32_MAX + 1, "too far from")]
)
def test_a_batch_that_cannot_be_indexed_is_corruption_and_those_before_it_are_taken(last_offset: int, reason: str) -> None:
    table = equal_batches(4, 100)
    table[LAST_OFFSET, 3] = last_offset
    builder = SegmentIndexBuilder(0, 0)
    with pytest.raises(CorruptionError, match=reason) as caught:
        builder.add(table, 4, position=1000)
    assert (caught.value.position, caught.value.offset) == (1300, last_offset)
    assert offset_entries(builder) == [(1, 1100), (2, 1200)]


def test_a_largest_timestamp_at_an_offset_that_goes_back_is_corruption() -> None:
    time_index, _ = TimeIndex.from_bytes(0, bytes.fromhex("000000000000000500000050"))
    builder = SegmentIndexBuilder.reopened(OffsetIndex(0, time_index.table, 0), time_index, 0)
    with pytest.raises(CorruptionError, match="does not follow"):
        builder.add(equal_batches(2, 100, first_timestamp=6), 2)


@settings(max_examples=15 if INTERPRETED else 50)
@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 600))
def test_how_batches_are_cut_into_calls_changes_nothing(cuts: list[int], interval: int) -> None:
    table = equal_batches(40, 100, first_timestamp=3)
    whole = built(table, interval)
    pieces = SegmentIndexBuilder(0, interval)
    edges = [0, *sorted(cuts), 40]
    for first, end in pairwise(edges):
        pieces.add(table, end, first=first)
    assert (pieces.offset_bytes(), pieces.time_bytes()) == (whole.offset_bytes(), whole.time_bytes())


@pytest.mark.sampled(2)
@settings(max_examples=15 if INTERPRETED else 200)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(-1, 4), st.integers(61, 300)), max_size=80), st.integers(0, 600))
def test_batches_that_are_added_one_by_one_give_the_entries_of_a_whole_table(
    batches: list[tuple[int, int, int]], interval: int
) -> None:
    """The largest timestamp often stays the same, and often comes again."""
    table = np.zeros((COLUMN_COUNT, len(batches)), np.int64)
    for at, (records, timestamp, size) in enumerate(batches):
        last, position = (table[LAST_OFFSET, at - 1], table[POSITION, at - 1] + table[SIZE, at - 1]) if at else (99, 0)
        table[[LAST_OFFSET, POSITION, SIZE, MAX_TIMESTAMP], at] = last + records, position, size, timestamp
    whole, one_by_one = built(table, interval, base=100), SegmentIndexBuilder(100, interval)
    for column in table.T.tolist():
        one_by_one.add_one(column, 0)
    for builder in (whole, one_by_one):
        builder.finish()
    assert (one_by_one.offset_bytes(), one_by_one.time_bytes()) == (whole.offset_bytes(), whole.time_bytes())
    assert one_by_one.max_timestamp == whole.max_timestamp


@pytest.mark.parametrize("last_offset", [0, -1, INT32_MAX + 1])
def test_a_batch_that_is_added_alone_and_cannot_be_indexed_is_corruption(last_offset: int) -> None:
    builder = built(equal_batches(3, 100), 0)
    with pytest.raises(CorruptionError):
        builder.add_one([{LAST_OFFSET: last_offset, POSITION: 300, SIZE: 100}.get(at, 0) for at in range(COLUMN_COUNT)], 0)


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels keep their arrays in one table for all threads")
def test_published_snapshots_never_change_under_their_readers() -> None:
    builder = SegmentIndexBuilder(0, 0)
    table = equal_batches(20_000, 100, first_timestamp=0)
    published = [(builder.offset_index(), builder.time_index())]
    wrong: list[object] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            offset_index, time_index = published[0]
            count = len(offset_index)
            middle = count // 2
            if offset_index.last != (count, 100 * count) or offset_index.lookup(middle) != (middle, 100 * middle):
                wrong.append(offset_index.last)
            if count and time_index.last != (count, count):
                wrong.append(time_index.last)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for first in range(0, 20_000, 10):
        builder.add(table, first + 10, first=first)
        published[0] = (builder.offset_index(), builder.time_index())
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
