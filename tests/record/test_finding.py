"""One record found by the kernels, by its offset and by its time, against plain Python."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.record import kernels
from support.record import cases, rooms
from support.record.cases import joined
from support.record.forms import each_form  # noqa: F401 - a fixture
from support.record.rooms import EXAMPLES, columns_in
from support.reference import finding as reference_finding
from support.reference import records as reference
from support.reference.finding import Question
from support.reference.records import Batch

pytestmark = pytest.mark.usefixtures("each_form")

wrapping_integers = pytest.fixture(autouse=True)(rooms.wrapping_integers)


# ---- one record ----------------------------------------------------------------------------------------------------------------


@st.composite
def indexed(draw: st.DrawFn) -> tuple[list[Batch], list[tuple[int, int]], int]:
    """Batches, some entries of a true index, and the segment's base offset."""
    base = draw(st.sampled_from([0, 5, 2**40]))
    made = draw(cases.batches(most=5, first_offset=base))
    _, starts = joined(made)
    entries = [
        (batch.base_offset + (batch.last_offset_delta or 0) - base, start)
        for batch, start in zip(made, starts, strict=True)
        if draw(st.booleans())
    ]
    return made, entries, base


Case = tuple[list[Batch], list[tuple[int, int]], int]

stamps = st.sampled_from([-(2**63), -(2**63), -1, 0, 1000, 2**41, 2**42])


@pytest.mark.slow
@EXAMPLES
@given(indexed(), st.integers(-3, 900), stamps, st.booleans())
def test_a_record_is_found_by_its_offset_and_time(case: Case, relative: int, timestamp: int, controls: bool) -> None:
    made, entries, base = case
    data, _ = joined(made)
    offset = max(0, base + relative)
    question = Question(base, offset, offset, timestamp, controls)
    expected = reference_finding.find_record(data, entries, question, len(data))
    assert cases.find_record(data, entries, question, len(data)) == expected
    batches = [c for c in columns_in(data) if (controls or not c.attributes & 32) and c.max_timestamp >= timestamp]
    rows = reference.decode_records(data, batches, verify=True).rows
    first = next((row for row in rows if row.offset >= offset and row.timestamp >= timestamp), None)
    assert (expected[0] == kernels.OK) == (first is not None)
    if first is not None:
        assert isinstance(expected[1], reference_finding.Found)
        assert (expected[1].offset, expected[1].timestamp, expected[1].headers_at) == (
            first.offset,
            first.timestamp,
            first.headers_at,
        )


@pytest.mark.slow
@EXAMPLES
@given(indexed(), cases.damage, st.booleans(), st.integers(0, 900), st.integers(0, 900), stamps, st.booleans())
def test_a_record_in_damage_is_found_as_the_reference_finds_it(
    case: Case, damage: list[cases.Damage], seal: bool, origin: int, relative: int, timestamp: int, controls: bool
) -> None:
    made, entries, base = case
    data, starts = joined(made)
    changed = cases.damaged(data, starts or [0], damage, seal=seal)
    question = Question(base, base + origin, base + relative, timestamp, controls)
    expected = reference_finding.find_record(changed, entries, question, len(changed))
    assert cases.find_record(changed, entries, question, len(changed)) == expected


def found_by_time(
    data: bytes, index: list[tuple[int, int]], times: list[tuple[int, int]], question: Question
) -> tuple[int, reference_finding.Found | int]:
    tables = b"".join(struct.pack(">ii", *entry) for entry in index), b"".join(struct.pack(">qi", *entry) for entry in times)
    return cases.find_by_time(data, *tables, (len(index), len(times)), question, len(data))


@pytest.mark.slow
@EXAMPLES
@given(indexed(), cases.damage, st.booleans(), st.data(), st.integers(0, 900), stamps)
def test_a_record_is_found_by_a_time_index_as_the_reference_finds_it(
    case: Case, damage: list[cases.Damage], seal: bool, draw: st.DataObject, relative: int, timestamp: int
) -> None:
    made, entries, base = case
    data, starts = joined(made)
    true = [(column.max_timestamp, column.last_offset - base) for column in columns_in(data)]
    times = (
        sorted(draw.draw(st.lists(st.sampled_from(true) | st.tuples(stamps, st.integers(0, 900)), max_size=4))) if true else []
    )
    changed = cases.damaged(data, starts or [0], draw.draw(st.sampled_from([damage, []])), seal=seal)
    question = Question(base, max(base, base + relative), base + relative, timestamp, controls=True)
    assert found_by_time(changed, entries, times, question) == reference_finding.find_by_time(
        changed, entries, times, question, len(changed)
    )


@pytest.mark.slow
@EXAMPLES
@given(indexed(), st.integers(0, 900), stamps)
def test_a_time_index_leads_to_the_batch_that_is_found_without_one(case: Case, relative: int, timestamp: int) -> None:
    made, entries, base = case
    data, _ = joined(made)
    times: list[tuple[int, int]] = []
    for column in columns_in(data):
        if column.max_timestamp > (times[-1][0] if times else -1):
            times.append((column.max_timestamp, column.last_offset - base))
    question = Question(base, base, base + relative, timestamp, controls=True)
    without = reference_finding.find_record(data, [], question, len(data))
    if without[0] in (kernels.OK, kernels.NOT_FOUND):
        assert found_by_time(data, entries, times, question) == without


@pytest.mark.slow
@EXAMPLES
@given(indexed(), st.binary(max_size=48), st.integers(-2, 9), st.integers(0, 400))
def test_an_index_of_any_bytes_never_leads_to_another_record(case: Case, index: bytes, count: int, relative: int) -> None:
    made, _, base = case
    data, starts = joined(made)
    question = Question(base, base + relative, base + relative)
    true = reference_finding.find_record(data, [], question, len(data))
    status, found = cases.found_record(data, index, count, question, len(data))
    assert status != kernels.OK or (status, found) == true
    for start in starts:  # an entry that leads to a batch, but not to the right one
        status, found = cases.found_record(data, struct.pack(">ii", 0, start), 1, question, len(data))
        assert status != kernels.OK or (status, found) == true


@pytest.mark.parametrize("field", range(5))
def test_a_record_that_is_larger_than_its_batch_is_not_found(field: int) -> None:
    data = cases.overlong(0, field, 5)
    assert cases.find_record(data, [], Question(0, 0, 0), len(data)) == (kernels.BAD_RECORD, 0)
