"""`TransactionIndex`: the behaviours of Kafka's TransactionIndexTest (storage-format 10.10), and damaged files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import InvalidArgumentError
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex
from support.reference import index as reference

SIX = [
    AbortedTransaction(0, 0, 10, 2),
    AbortedTransaction(1, 5, 15, 16),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
    AbortedTransaction(4, 51, 60, 61),
    AbortedTransaction(5, 55, 70, 71),
]


Entries = list[AbortedTransaction]


def index_of(*entries: AbortedTransaction, base: int = 0) -> TransactionIndex:
    index = TransactionIndex(base)
    for entry in entries:
        index = index.appended(entry)
    return index


def entries_of(index: TransactionIndex) -> list[AbortedTransaction]:
    return [index.entry(slot) for slot in range(len(index))]


def test_an_entry_is_34_bytes() -> None:
    data = AbortedTransaction(983_493, 137, 299, 200).encoded()
    assert data.hex() == "0000" + "00000000000f01c5" + "0000000000000089" + "000000000000012b" + "00000000000000c8"


def test_a_file_reopens_with_the_same_entries_and_takes_more() -> None:
    index, damaged = TransactionIndex.from_bytes(0, index_of(*SIX[:3]).encoded())
    assert (entries_of(index), damaged) == (SIX[:3], False)
    assert entries_of(index.appended(SIX[3])) == SIX[:4]


def test_an_entry_that_ends_before_the_base_is_damage() -> None:
    index, damaged = TransactionIndex.from_bytes(100, AbortedTransaction(0, 0, 10, 11).encoded())
    assert (len(index), damaged) == (0, True)


@pytest.mark.parametrize("last_offset", [15, 14, 0])
def test_last_offsets_must_increase(last_offset: int) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot follow"):
        index_of(*SIX[:2]).appended(AbortedTransaction(7, -1, last_offset, 20))


@pytest.mark.parametrize("slot", [-1, 6])
def test_an_entry_that_is_not_there_is_an_error(slot: int) -> None:
    with pytest.raises(InvalidArgumentError, match="no entry"):
        index_of(*SIX).entry(slot)


def test_aborted_transactions_are_collected_by_range() -> None:
    index = index_of(*SIX)
    assert index.collect(0, 100) == (SIX, False)
    assert index.collect(0, 32) == (SIX[:3], True)
    assert index.collect(0, 35) == (SIX[:4], True)
    assert index.collect(10, 35) == (SIX[:4], True)
    assert index.collect(11, 35) == (SIX[1:4], True)
    assert index.collect(20, 41) == (SIX[2:4], True)
    assert TransactionIndex(0).collect(0, 100) == ([], False)


@st.composite
def transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    lasts = sorted(draw(st.sets(st.integers(1, 60), max_size=12)))
    return [
        AbortedTransaction(slot, draw(st.integers(0, last - 1)), last, draw(st.integers(0, 70)))
        for slot, last in enumerate(lasts)
    ]


@pytest.mark.slow
@given(transactions(), st.integers(0, 70), st.integers(0, 80))
def test_collecting_agrees_with_reading_entry_by_entry(entries: Entries, fetch_offset: int, upper_bound: int) -> None:
    found, complete = index_of(*entries).collect(fetch_offset, upper_bound)
    assert ([entry[:2] for entry in found], complete) == reference.collect(entries, fetch_offset, upper_bound)


@given(transactions(), st.integers(0, 70))
def test_truncation_cuts_from_the_first_transaction_that_ends_at_the_offset(entries: Entries, offset: int) -> None:
    index = index_of(*entries)
    assert entries_of(index.truncated(offset)) == [entry for entry in entries if entry.last_offset < offset]
    assert entries_of(index) == entries


def test_views_of_the_same_entries_grow_apart() -> None:
    index = index_of(*SIX[:2])
    left, right = index.appended(SIX[2]), index.appended(SIX[3])
    shorter = left.truncated(15).appended(SIX[4])
    assert entries_of(index) == SIX[:2]
    assert entries_of(left.appended(SIX[5])) == [*SIX[:3], SIX[5]]
    assert entries_of(right) == [*SIX[:2], SIX[3]]
    assert entries_of(shorter) == [SIX[0], SIX[4]]
    assert shorter.collect(0, 61) == ([SIX[0], SIX[4]], True)


GOOD = index_of(*SIX).encoded()


@pytest.mark.parametrize(
    ("data", "count", "damaged"),
    [
        (b"", 0, False),
        (GOOD + GOOD[:33], 6, False),  # a partial entry is ignored
        (GOOD[:34] + b"\x00\x07" + GOOD[36:], 6, False),  # only the version's first byte counts (3.9.2)
        (GOOD[:34] + b"\x01\x00" + GOOD[36:], 1, True),
        (GOOD + bytes(34), 6, True),
        (bytes(340), 0, True),  # zeros are no entry: a marker lies behind its transaction
        (GOOD + GOOD, 6, True),
    ],
)
def test_entries_that_are_used_of_a_file(data: bytes, count: int, damaged: bool) -> None:
    index, found = TransactionIndex.from_bytes(0, data)
    assert (len(index), found) == (count, damaged)


@given(st.binary(max_size=150))
def test_any_bytes_give_an_index_in_order(data: bytes) -> None:
    index, _ = TransactionIndex.from_bytes(0, data)
    lasts = [entry.last_offset for entry in entries_of(index)]
    assert lasts == sorted(set(lasts))
