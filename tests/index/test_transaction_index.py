"""`TransactionIndex`: the behaviours of Kafka's TransactionIndexTest (storage-format 10.10), and damaged files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.errors import InvalidArgumentError
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex

SIX = [
    AbortedTransaction(0, 0, 10, 2),
    AbortedTransaction(1, 5, 15, 16),
    AbortedTransaction(2, 18, 35, 25),
    AbortedTransaction(3, 32, 50, 40),
    AbortedTransaction(4, 51, 60, 61),
    AbortedTransaction(5, 55, 70, 71),
]


def index_of(*entries: AbortedTransaction, base: int = 0) -> TransactionIndex:
    return TransactionIndex(base, entries)


def entries_of(index: TransactionIndex) -> list[AbortedTransaction]:
    return list(index.entries)


def test_an_entry_is_34_bytes() -> None:
    data = AbortedTransaction(983_493, 137, 299, 200).encoded()
    assert data.hex() == "0000" + "00000000000f01c5" + "0000000000000089" + "000000000000012b" + "00000000000000c8"


def test_a_file_reopens_with_the_same_entries_and_takes_more() -> None:
    index, damaged = TransactionIndex.from_bytes(0, index_of(*SIX[:3]).encoded())
    assert (entries_of(index), damaged) == (SIX[:3], False)
    assert entries_of(index.extended(SIX[3:4])) == SIX[:4]


def test_an_entry_that_ends_before_the_base_is_damage() -> None:
    index, damaged = TransactionIndex.from_bytes(100, AbortedTransaction(0, 0, 10, 11).encoded())
    assert (len(index), damaged) == (0, True)


@pytest.mark.parametrize("last_offset", [15, 14, 0])
def test_last_offsets_must_increase(last_offset: int) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot follow"):
        index_of(*SIX[:2]).extended([AbortedTransaction(7, -1, last_offset, 20)])


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
