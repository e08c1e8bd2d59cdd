"""`TimeIndex`: the behaviours of Kafka's TimeIndexTest (storage-format 10.9), and what is taken of damaged files."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.errors import InvalidArgumentError
from pylog.index.time_index import TimeIndex, TimestampOffset
from pylog.record.kernel import INTERPRETED

BASE = 45
EXAMPLES = settings(max_examples=25 if INTERPRETED else 250)


def encoded(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", timestamp, offset - BASE) for timestamp, offset in entries)


def index_of(*entries: tuple[int, int]) -> TimeIndex:
    index, damaged = TimeIndex.from_bytes(BASE, encoded(*entries))
    assert not damaged
    assert len(index) == len(entries)
    return index


TENS = tuple((slot * 10, slot * 10 + BASE) for slot in range(1, 26))


def test_lookups() -> None:
    assert index_of().lookup(100) == (-1, BASE)
    index = index_of(*TENS)
    assert index.lookup(9) == (-1, BASE)
    for timestamp in (10, 13, 19):
        assert index.lookup(timestamp) == (10, BASE + 10)
    assert index.lookup(251) == index.lookup(2**62) == (250, BASE + 250)


def test_entries_and_the_last_one() -> None:
    index = index_of(*TENS)
    assert index.entry(0) == (10, BASE + 10)
    assert index.last == index.entry(24) == TimestampOffset(250, BASE + 250)
    assert index_of().last == TimestampOffset(-1, BASE)
    assert index.encoded() == encoded(*TENS)


@pytest.mark.parametrize("slot", [-1, 25])
def test_an_entry_that_is_not_there_is_an_error(slot: int) -> None:
    with pytest.raises(InvalidArgumentError, match="no entry"):
        index_of(*TENS).entry(slot)


@pytest.mark.parametrize(
    ("data", "count", "damaged"),
    [
        (b"", 0, False),
        (encoded(*TENS) + bytes(120), 25, False),
        (bytes(10_485_756), 0, False),  # preallocated, four bytes shorter than an offset index
        (bytes(12), 1, False),  # time 0 at the first offset
        (encoded((0, BASE + 3)) + bytes(24), 1, False),  # time 0 at a later one
        (encoded((0, BASE), (7, BASE)), 2, False),
        (encoded(*TENS) + b"\x00", 25, True),
        (encoded(*TENS, (250, BASE + 300)), 25, True),  # the timestamp does not rise
        (encoded(*TENS, (260, BASE + 249)), 25, True),  # the offset goes back
        (encoded((-1, BASE + 3)), 0, True),
        (encoded((10, BASE - 1)), 0, True),
        (bytes(24) + encoded((5, BASE)), 0, True),  # something behind the zeros
    ],
)
def test_entries_that_are_used_of_a_file(data: bytes, count: int, damaged: bool) -> None:
    index, found = TimeIndex.from_bytes(BASE, data)
    assert (len(index), found) == (count, damaged)


@EXAMPLES
@given(st.binary(max_size=200))
def test_any_bytes_give_an_index_in_order(data: bytes) -> None:
    index, _ = TimeIndex.from_bytes(0, data)
    entries = [index.entry(slot) for slot in range(len(index))]
    assert [entry.timestamp for entry in entries] == sorted({entry.timestamp for entry in entries})
    assert [entry.offset for entry in entries] == sorted(entry.offset for entry in entries)
