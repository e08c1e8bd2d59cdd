"""Outcomes of transactions inside a region, against a search forward from each batch."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.record import kernels
from pylog.record.format import CODEC_MASK, CONTROL_BIT, TRANSACTIONAL_BIT
from support.record import cases, rooms
from support.record.cases import HEAP
from support.record.forms import each_form  # noqa: F401 - a fixture
from support.record.rooms import EXAMPLES, columns_in
from support.reference import records as reference
from support.reference.records import Batch, Column, Record

pytestmark = pytest.mark.usefixtures("each_form")

wrapping_integers = pytest.fixture(autouse=True)(rooms.wrapping_integers)

PRODUCERS = [-1, 0, 5, 7, 2**40 + 5, 2**62, -(2**63)]  # several of them share a slot
OUTCOMES = {0: kernels.ABORTED, 1: kernels.COMMITTED}


def marker(kind: int, producer_id: int, epoch: int = 3, **fields: int) -> Batch:
    record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, epoch))
    return Batch([record], attributes=TRANSACTIONAL_BIT | CONTROL_BIT, producer_id=producer_id, **fields)


def data(attributes: int, producer_id: int, sequence: int = 0) -> Batch:
    return Batch([Record(0, 0, None, b"v" * 80)], attributes=attributes, producer_id=producer_id, base_sequence=sequence)


producers = st.sampled_from(PRODUCERS)
markers = st.builds(marker, st.sampled_from([0, 1]), producers, st.integers(-(2**31), 2**31 - 1))
others = st.builds(data, st.sampled_from([0, TRANSACTIONAL_BIT, TRANSACTIONAL_BIT]), producers, st.sampled_from([0, -1]))
regions = st.lists(markers | others, max_size=20)


def outcomes(encoded: bytes, columns: Sequence[Column]) -> tuple[int, list[int]]:
    """The status of the kernel, and the outcomes."""
    slots, found = HEAP.output(len(columns) + 1, np.int64), HEAP.output(len(columns), np.int64, -7)
    status = kernels.outcomes_inside(HEAP.input(encoded), cases.table_of(columns), slots, found)
    return int(status), found.tolist()


def following(encoded: bytes, columns: Sequence[Column], batch: int) -> int:
    """The outcome of a batch's transaction, by a search forward for the next marker of its producer."""
    if not columns[batch].attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
        return kernels.UNDECIDED
    for column in columns[batch:]:
        if column.attributes & CONTROL_BIT and column.producer_id == columns[batch].producer_id:
            row = reference.decode_records(encoded, [column], verify=True).rows[0]
            return OUTCOMES[struct.unpack(">hh", row.key or b"")[1]]
    return kernels.UNDECIDED


@EXAMPLES
@given(regions)
def test_the_next_marker_of_its_producer_decides_a_batch(made: list[Batch]) -> None:
    encoded, _ = cases.joined(made)
    columns = columns_in(encoded)
    assert outcomes(encoded, columns) == (kernels.OK, [following(encoded, columns, batch) for batch in range(len(columns))])


@EXAMPLES
@given(st.lists(markers | others, min_size=1, max_size=6), st.data())
def test_a_changed_bit_of_a_marker_is_never_taken_for_an_outcome(made: list[Batch], draw: st.DataObject) -> None:
    made = [*made, marker(1, 5)]
    encoded, starts = cases.joined(made)
    columns = columns_in(encoded)
    at = draw.draw(st.integers(starts[-1] + 21, len(encoded) - 1))
    damaged = bytearray(encoded)
    damaged[at] ^= 1 << draw.draw(st.integers(0, 7))
    assert outcomes(bytes(damaged), columns)[0] == kernels.BAD_CRC
    changed = columns_in(bytes(damaged))
    if len(changed) == len(columns):  # else the walk ends before it
        assert outcomes(bytes(damaged), changed)[0] in (kernels.BAD_CRC, kernels.NOT_PLAIN)


@pytest.mark.parametrize(
    "other",
    [
        marker(2, 7),
        marker(1, 7, count=2, last_offset_delta=1),
        Batch([], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 0, b"\0\1\0\1", bytes(6))], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 0, b"\0\0\0\1", b"\0\1\0\0\0\1")], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 0, b"\0\0\0\1", bytes(7))], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 0, b"\0\0\0\1?", bytes(6))], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 0, b"\0\0\1\1", bytes(6))], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 1, b"\0\0\0\1", bytes(6))], attributes=CONTROL_BIT, producer_id=7),
        Batch([Record(0, 0, b"\0\0\0\1", bytes(6))], attributes=CONTROL_BIT | (CODEC_MASK & 1), producer_id=7),
    ],
)
def test_a_control_batch_of_another_form_is_left_to_its_decoder(other: Batch) -> None:
    encoded, _ = cases.joined([data(TRANSACTIONAL_BIT, 7), other])
    assert outcomes(encoded, columns_in(encoded))[0] == kernels.NOT_PLAIN


def test_a_small_batch_whose_control_bit_may_be_damaged_must_match_its_checksum() -> None:
    encoded, starts = cases.joined([data(TRANSACTIONAL_BIT, 7), marker(1, 7)])
    damaged = bytearray(encoded)
    damaged[starts[1] + 22] ^= CONTROL_BIT
    assert outcomes(bytes(damaged), columns_in(bytes(damaged)))[0] == kernels.BAD_CRC


def test_no_outcome_is_told_of_a_place_outside_of_the_buffer_or_without_room() -> None:
    encoded, _ = cases.joined([marker(1, 7)])
    (column,) = columns_in(encoded)
    for lie in ({"position": -1}, {"position": 1}, {"size": column.size + 1}, {"size": 60}, {"position": 2**62}):
        assert outcomes(encoded, [column._replace(**lie)])[0] in (kernels.NOT_PLAIN, kernels.BAD_CRC)
    table, short = cases.table_of([column]), HEAP.output(1, np.int64)
    assert kernels.outcomes_inside(HEAP.input(encoded), table, short, HEAP.output(1, np.int64)) == kernels.FULL
    assert kernels.outcomes_inside(HEAP.input(encoded), table, HEAP.output(2, np.int64), short[:0]) == kernels.FULL
