"""`OffsetIndex`: the behaviours of Kafka's OffsetIndexTest (storage-format 10.8), and what is taken of damaged files."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedDict

from pylog.errors import InvalidArgumentError
from pylog.index.offset_index import OffsetIndex, OffsetPosition
from pylog.record.kernel import INTERPRETED

BASE = 45
LOG_SIZE = 1 << 20
EXAMPLES = settings(max_examples=25 if INTERPRETED else 250)


def index_of(*entries: tuple[int, int], base: int = BASE) -> OffsetIndex:
    index, damaged = OffsetIndex.from_bytes(base, encoded(entries, base), LOG_SIZE)
    assert not damaged
    assert len(index) == len(entries)
    return index


def encoded(entries: tuple[tuple[int, int], ...], base: int = BASE) -> bytes:
    return b"".join(struct.pack(">ii", offset - base, position) for offset, position in entries)


@pytest.mark.slow
@EXAMPLES
@given(st.dictionaries(st.integers(BASE, BASE + 300), st.integers(1, 50), min_size=1), st.data())
def test_random_lookups_agree_with_a_sorted_map(gaps: dict[int, int], data: st.DataObject) -> None:
    position, known = 0, SortedDict()
    for offset in sorted(gaps):
        position += gaps[offset]
        known[offset] = position
    index = index_of(*known.items())
    target = data.draw(st.integers(BASE - 5, BASE + 310))
    before = known.bisect_right(target)
    assert index.lookup(target) == (known.peekitem(before - 1) if before else (BASE, 0))
    behind = known.bisect_left(target)
    assert index.upper(target) == (known.peekitem(behind) if behind < len(known) else None)
    assert [index.entry(slot) for slot in range(len(index))] == list(known.items())
    assert index.last == known.peekitem(-1)
    assert index.encoded() == encoded(tuple(known.items()))
    assert index.encoded(1) == encoded(tuple(known.items())[1:])
    bound = next((offset for offset, place in known.items() if place >= target), None)
    assert index.upper_bound_offset(target) == bound


def test_an_empty_index_leads_to_the_start() -> None:
    index = index_of()
    assert index.lookup(BASE) == index.lookup(BASE + 99) == index.lookup(-1) == (BASE, 0)
    assert index.last == OffsetPosition(BASE, 0)
    assert index.upper(0) is None
    assert index.upper_bound_offset(0) is None


def test_an_offset_before_the_first_entry_leads_to_the_start() -> None:
    assert index_of((BASE + 1, 7)).lookup(BASE) == (BASE, 0)


@pytest.mark.parametrize("slot", [-1, 2, 3])
def test_an_entry_that_is_not_there_is_an_error(slot: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"no entry {slot} in an index of 2") as caught:
        index_of((51, 1), (52, 2)).entry(slot)
    assert caught.value.offset == BASE


def test_fetch_upper_bound() -> None:
    first, second, third, fourth = (BASE + 0, 10), (BASE + 1, 20), (BASE + 2, 33), (BASE + 3, 45)
    index = index_of(first, second, third, fourth)
    assert index.upper_bound_offset(10 + 5) == second[0]
    assert index.upper_bound_offset(10 + 10) == second[0]
    assert index.upper_bound_offset(10 + 23) == third[0]
    assert index.upper_bound_offset(10 + 22) == third[0]
    assert index.upper_bound_offset(20 + 24) == fourth[0]
    assert index.upper_bound_offset(45 + 1) is None
    assert index.upper_bound_offset(2**40) is None


@pytest.mark.slow
def test_an_entry_at_the_base_offset_is_sane() -> None:
    assert index_of((BASE, 61)).lookup(BASE) == (BASE, 61)


def test_a_view_is_read_only_and_copies_nothing() -> None:
    data = bytearray(encoded(((51, 1), (52, 2))))
    index, _ = OffsetIndex.from_bytes(BASE, data, LOG_SIZE)
    with pytest.raises(ValueError, match="read-only"):
        index.table[0] = 1
    data[7] = 9
    assert index.entry(0).position == 9


def test_a_count_that_the_table_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="16 bytes cannot hold 3 entries"):
        OffsetIndex(BASE, index_of((51, 1), (52, 2)).table, 3)


GOOD = encoded(((51, 100), (60, 200)))


@pytest.mark.parametrize(
    ("data", "count", "damaged"),
    [
        (b"", 0, False),
        (GOOD, 2, False),
        (GOOD + bytes(800), 2, False),  # preallocated: zeros behind the entries
        (bytes(10_485_760), 0, False),  # a new one beside a running broker
        (GOOD + struct.pack(">ii", 20, 0) + bytes(80), 2, False),  # an entry that is being written: its position is missing
        (GOOD + b"\x00", 2, True),  # no whole number of entries (4.7.1)
        (GOOD + encoded(((59, 300),)), 2, True),  # the offset goes back
        (GOOD + encoded(((61, 199),)), 2, True),  # the position goes back
        (GOOD + encoded(((61, LOG_SIZE),)), 2, True),  # behind the end of the log
        (encoded(((44, 100),)), 0, True),  # before the base
        (GOOD + bytes(80) + b"\x01" + bytes(7), 2, True),  # something behind the zeros
        (b"\xff" * 80, 0, True),
    ],
)
def test_entries_that_are_used_of_a_file(data: bytes, count: int, damaged: bool) -> None:
    index, found = OffsetIndex.from_bytes(BASE, data, LOG_SIZE)
    assert (len(index), found) == (count, damaged)


@pytest.mark.slow
@EXAMPLES
@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_any_bytes_give_an_index_in_order(data: bytes, log_size: int) -> None:
    index, _ = OffsetIndex.from_bytes(0, data, log_size)
    entries = [index.entry(slot) for slot in range(len(index))]
    assert entries == sorted(set(entries))
    assert all(0 < entry.position < log_size for entry in entries)
