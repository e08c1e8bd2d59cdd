"""Byte strings become the columns that Arrow makes of them, and nothing that only looks like them becomes one."""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from collections import UserList
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog.limits import INT32_MAX
from pylog.record import kernels
from pylog.record.kernel import INTERPRETED
from pylog.record.packed import join_packed, packed_column
from support.record.cases import HEAP
from support.record.forms import each_form  # noqa: F401 - a fixture
from support.reference import records as reference

pytestmark = pytest.mark.usefixtures("each_form")

EXAMPLES = settings(max_examples=30 if INTERPRETED else 50)
SIZES = [0, 1, 2, 31, 32, 33, 254, 255, 256, 257, 1000]
LARGE = [65_534, 65_535, 65_536, 65_537, 200_000]

sized = st.builds(lambda size, byte: bytes([byte]) * size, st.sampled_from(SIZES), st.integers(0, 255))
values = st.lists(st.one_of(st.binary(max_size=40), sized), max_size=70)


def arrow_says(given: Any) -> tuple[list[int], bytes]:
    """Offsets and bytes of Arrow's column."""
    _, ends, data = pa.array(given, pa.binary()).buffers()
    return np.frombuffer(ends, np.int32)[: len(given) + 1].tolist() or [0], b"" if data is None else data.to_pybytes()


def column_says(given: Any) -> tuple[list[int], bytes]:
    """The same of the column made here."""
    column = packed_column(given)
    assert column is not None
    ends = column.ends.tolist()
    return ends, column.data[: ends[-1]].tobytes()


@pytest.mark.slow
@EXAMPLES
@given(values)
def test_the_column_is_the_one_that_arrow_makes(given: list[bytes]) -> None:
    assert column_says(given) == arrow_says(given)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 255, 65_535, 65_536])
def test_it_is_whatever_the_number_of_values(count: int) -> None:
    given = [b"%d" % number for number in range(count)]
    assert column_says(given) == arrow_says(given)


@pytest.mark.parametrize("size", LARGE)
def test_it_is_whatever_the_size_of_a_value(size: int) -> None:
    given = [b"before", bytes([7]) * size, b"", bytes([9]) * size, b"behind"]
    assert column_says(given) == arrow_says(given)


def test_whatever_has_bytes_counts_as_them() -> None:
    given = [b"a", bytearray(b"bc"), memoryview(b"def"), b""]
    assert column_says(given) == ([0, 1, 3, 6, 6], b"abcdef")


def test_the_buffers_that_kernels_are_given_cannot_be_written() -> None:
    column = packed_column([b"a"])
    assert column is not None
    assert not any(array.flags.writeable for array in column)


class Text(bytes):
    """Another kind of bytes."""


@dataclasses.dataclass
class Thing:
    value: bytes = b"v"


def nested() -> list[Any]:
    """A list that is in itself."""
    found: list[Any] = []
    found.append(found)
    return found


WRONG = [
    None,
    "text",
    "\ud800",
    5,
    -1,
    2**70,
    1.5,
    True,
    (b"k", b"v"),
    [b"v"],
    [],
    {},
    {b"a": b"b"},
    Text(b"v"),
    Thing(),
    uuid.UUID(int=5),
    dt.datetime(2026, 1, 1),  # noqa: DTZ001 - any will do
    object(),
    msgspec.msgpack.Ext(5, b"v"),
    memoryview(b"abcd")[::2],
    nested(),
]


@pytest.mark.parametrize("place", [0, 3, 19])
def test_values_that_are_not_bytes_make_no_column(place: int) -> None:
    for wrong in WRONG:
        given: list[Any] = [b"v" * number for number in range(20)]
        given[place] = wrong
        assert packed_column(given) is None, wrong


def test_values_that_are_no_list_make_no_packed_column() -> None:
    assert packed_column(UserList([b"a"])) is None


# ---- the kernel ----------------------------------------------------------------------------------------------------------------


def joined(data: bytes, position: int, end: int, count: int) -> tuple[int, list[int], bytes]:
    """What `reference.join_packed` says, by the kernel."""
    buffer, ends = HEAP.output(len(data), np.uint8), HEAP.output(count + 1, np.int32)
    buffer[:] = np.frombuffer(data, np.uint8)
    status = join_packed(buffer, position, end, ends)
    if status != kernels.OK:
        return status, [], b""
    return status, ends.tolist(), buffer[: ends[-1]].tobytes()


@pytest.mark.slow
@EXAMPLES
@given(values, st.data())
def test_damaged_bytes_are_judged_as_the_reference_judges_them(given: list[bytes], data: st.DataObject) -> None:
    packed = bytearray(b"".join(msgspec.msgpack.encode(value) for value in given))
    for _ in range(data.draw(st.integers(0, 3)) if packed else 0):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.sampled_from([0, 1, 0xC0, 0xC4, 0xC5, 0xC6, 0xFF]))
    position = data.draw(st.sampled_from([0, 0, 1, -1, len(packed), len(packed) + 5]))
    end = len(packed) - data.draw(st.sampled_from([0, 0, 1, 3, 10**6, -1, -(10**6)]))
    count = max(len(given) + data.draw(st.sampled_from([0, 0, -1, 1])), 0)
    assert joined(bytes(packed), position, end, count) == reference.join_packed(bytes(packed), position, end, count)


@pytest.mark.parametrize(("size", "status"), [(INT32_MAX + 1, kernels.FULL), (2**32 - 1, kernels.TORN)])
def test_more_than_a_column_can_hold_is_refused_before_a_byte_is_moved(size: int, status: int) -> None:
    buffer = np.zeros(INT32_MAX + 100, np.uint8)  # no memory is taken for what nobody touches
    buffer[:5] = np.frombuffer(b"\xc6" + size.to_bytes(4, "big"), np.uint8)
    assert join_packed(buffer, 0, buffer.size, np.empty(2, np.int32)) == status
    assert buffer[0] == 0xC6


def test_without_a_place_for_offsets_nothing_is_done() -> None:
    assert join_packed(np.zeros(4, np.uint8), 0, 4, np.empty(0, np.int32)) == kernels.OK
