"""The record kernels against plain Python: on batches of all shapes, on damaged ones, and on bytes that never were batches.

The same tests run compiled and, with NUMBA_DISABLE_JIT=1, as Python with every load and store checked against its array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pylog.record import encoding, kernels
from support.record import cases, rooms
from support.record.cases import ALL, HEAP, joined
from support.record.forms import each_form  # noqa: F401 - a fixture
from support.record.rooms import EXAMPLES, TWO_RECORDS, columns_in
from support.reference import records as reference
from support.reference.records import Batch, Column, Input, Record, Rooms

pytestmark = pytest.mark.usefixtures("each_form")

wrapping_integers = pytest.fixture(autouse=True)(rooms.wrapping_integers)


# ---- vectors -------------------------------------------------------------------------------------------------------------------


COMMIT = bytes.fromhex(  # A.4
    "0000000000000000 00000042 00000000 02 bda9896c 0030 00000000 0000000000000000 0000000000000000"
    "0000000000000001 0000 ffffffff 00000001 2000000008 00000001 0c 000000000000 00"
)

EMPTY = bytes.fromhex(  # A.5
    "0000000000000003 00000031 00000125 02 0200cc3f 0000 00000007 ffffffffffffffff 00000000000003e8"
    "0000000000000017 0005 0000000a 00000000"
)

WITH_HEADERS = bytes.fromhex("1800050a0101 04 0268 01 0269 00")  # A.6


def test_the_encoder_writes_kafkas_bytes() -> None:
    inputs = [Input(283843, b"key1", b"value1"), Input(1234, b"key2", b"value2")]
    encoded, columns = cases.Encoder(1000, 4).encode(inputs, 0, -1, 0, 10_000)
    assert encoded == [TWO_RECORDS] == reference.encode_batches(inputs, 0, -1, 0, 10_000)
    assert columns[0].crc == 0xE58CF1FF == 3851219455


def test_a_record_with_headers_is_kafkas() -> None:
    assert reference.record_bytes(Record(5, -3, None, None, ((b"h", None), (b"i", b"")))) == WITH_HEADERS
    inputs = [Input(3, b"", b"")] * 5 + [Input(0, None, None, ((b"h", None), (b"i", b"")))]
    (encoded,), _ = cases.Encoder(1000, 4).encode(inputs, 0, -1, 0, 10_000)
    assert encoded.endswith(WITH_HEADERS)


def test_a_commit_marker_is_read_with_all_its_fields() -> None:
    columns, position, status = cases.scan(COMMIT, 0, len(COMMIT), verify=True, capacity=1)
    assert columns == [Column(0, 78, 0, 0, 1, 0, 0, 0x30, 2, 0, 1, 0, -1, 0xBDA9896C, 1)]
    assert (position, status) == (78, kernels.OK)
    decoded = cases.Outputs(Rooms(1, 200, 200), ALL).decode(HEAP.input(COMMIT), cases.table_of(columns), 0, 1)
    assert decoded.rows == [(0, 0, bytes.fromhex("00000001"), bytes(6), 77)]


def test_an_empty_batch_moves_the_offset_and_has_no_rows() -> None:
    columns, _, status = cases.scan(EMPTY, 0, len(EMPTY), verify=True, capacity=1)
    assert columns == [Column(0, 61, 3, 10, 0, -1, 1000, 0, 2, 293, 23, 5, 10, 0x0200CC3F, 1)]
    assert status == kernels.OK
    decoded = cases.Outputs(Rooms(0, 100, 100), ALL).decode(HEAP.input(EMPTY), cases.table_of(columns), 0, 1)
    assert (decoded.rows, decoded.rows_before, decoded.stopped) == ([], [0], 1)


def test_the_reference_builds_the_vectors() -> None:
    assert (
        Batch([Record(0, 0, b"key1", b"value1"), Record(1, -282609, b"key2", b"value2")], base_timestamp=283843).encoded()
        == TWO_RECORDS
    )
    marker = Batch([Record(0, 0, bytes.fromhex("00000001"), bytes(6))], 0, 0, 0x30, 0, None, 1, 0)
    assert marker.encoded() == COMMIT
    assert Batch([], 3, 293, 0, -1, 1000, 23, 5, 10, last_offset_delta=7).encoded() == EMPTY


# ---- framing -------------------------------------------------------------------------------------------------------------------


def check_scan(data: bytes, position: int, end: int, *, verify: bool, capacity: int) -> None:
    expected = reference.scan_batches(data, position, end, verify=verify, capacity=capacity)
    assert cases.scan(data, position, end, verify=verify, capacity=capacity) == expected


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), st.booleans(), st.integers(0, 5))
def test_scanning_batches_gives_their_headers(made: list[Batch], verify: bool, capacity: int) -> None:
    data, starts = joined(made)
    check_scan(data, 0, len(data), verify=verify, capacity=capacity)
    columns, position, status = cases.scan(data, 0, len(data), verify=True, capacity=9)
    assert [column.position for column in columns] == starts
    assert (position, status) == (len(data), kernels.OK)
    assert all(column.crc_state == 1 for column in columns)


@pytest.mark.slow
@EXAMPLES
@given(cases.damaged_batches(), st.booleans(), st.integers(0, 5), st.integers(-20, 20))
def test_scanning_damage_stops_where_the_reference_stops(data: bytes, verify: bool, capacity: int, beyond: int) -> None:
    check_scan(data, 0, len(data) + beyond, verify=verify, capacity=capacity)


@EXAMPLES
@given(st.binary(max_size=200), st.integers(0, 210), st.integers(-5, 250))
def test_scanning_any_bytes_is_safe(data: bytes, position: int, end: int) -> None:
    check_scan(data, min(position, len(data)), end, verify=True, capacity=3)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches())
def test_a_scan_goes_on_where_a_small_table_was_full(made: list[Batch]) -> None:
    data, _ = joined(made)
    columns: list[Column] = []
    position, status = 0, kernels.FULL
    while status == kernels.FULL:
        part, position, status = cases.scan(data, position, len(data), verify=False, capacity=1)
        columns += part
    assert (columns, position, status) == reference.scan_batches(data, 0, len(data), verify=False, capacity=99)


def legacy_entry(magic: int, attributes: int = 0) -> bytes:
    body = bytes([magic, attributes]) + b"\0" * (8 * magic) + b"\xff" * 8
    return (5).to_bytes(8, "big") + (4 + len(body)).to_bytes(4, "big") + b"\1\2\3\4" + body


@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_the_old_formats_are_framed(magic: int) -> None:
    data = legacy_entry(magic) * 2
    check_scan(data, 0, len(data), verify=True, capacity=4)
    columns, _, _ = cases.scan(data, 0, len(data), verify=True, capacity=4)
    assert [(column.magic, column.count, column.base_timestamp, column.crc_state) for column in columns] == [
        (magic, -1, magic - 1, 2)
    ] * 2


@pytest.mark.parametrize(
    ("length", "magic", "status"),
    [
        (13, 0, kernels.BAD_LENGTH),
        (14, 0, kernels.OK),
        (21, 1, kernels.BAD_LENGTH),
        (22, 1, kernels.OK),
        (48, 2, kernels.BAD_LENGTH),
        (49, 2, kernels.OK),
        (50, 2, kernels.TORN),
        (2**31 - 1, 2, kernels.TORN),
        (0, 2, kernels.BAD_LENGTH),
        (-1, 2, kernels.BAD_LENGTH),
        (-(2**31), 0, kernels.BAD_LENGTH),
        (49, 3, kernels.BAD_MAGIC),
        (49, 255, kernels.BAD_MAGIC),
    ],
)
def test_lengths_and_formats_that_cannot_be_are_named(length: int, magic: int, status: int) -> None:
    data = bytearray(EMPTY)
    data[8:12] = length.to_bytes(4, "big", signed=True)
    data[16] = magic
    found = cases.scan(bytes(data), 0, len(data) if status != kernels.OK else 12 + length, verify=False, capacity=1)
    assert found[2] == status
    assert found[1] == (12 + length if status == kernels.OK else 0)


@pytest.mark.slow
@EXAMPLES
@given(cases.damaged_batches(), st.integers(0, 50), st.integers(0, 20), st.sampled_from([2**40, 2**40, 200, 0]))
def test_searching_after_damage_finds_the_same_batch_as_the_reference(
    data: bytes, position: int, first: int, budget: int
) -> None:
    position = min(position, len(data))
    expected = reference.find_batch(data, position, len(data), first, budget)
    assert cases.find_batch(data, position, len(data), first, budget) == expected


@pytest.mark.slow
@EXAMPLES
@given(st.binary(max_size=90), cases.batches(most=2), st.binary(max_size=40))
def test_a_good_batch_is_found_among_rubbish(before: bytes, made: list[Batch], behind: bytes) -> None:
    data, starts = joined(made)
    expected = reference.find_batch(before + data + behind, 0, 10**6, 0, 2**40)
    assert cases.find_batch(before + data + behind, 0, 10**6, 0, 2**40) == expected
    if made and expected[0] == kernels.OK:
        assert expected[1] is not None
        assert expected[1] <= len(before) + starts[0]


# ---- reading -------------------------------------------------------------------------------------------------------------------

wanted_sets = st.sampled_from(
    [ALL, 0, kernels.WANT_OFFSETS, kernels.WANT_KEYS, kernels.WANT_VALUES, kernels.WANT_HEADERS, ALL - kernels.WANT_KEYS]
)


def rooms_for(wanted: int, rows: int, key_bytes: int, value_bytes: int) -> Rooms:
    """What bounds a call: nothing that is not asked for."""
    return Rooms(
        rows if wanted & ALL else None,
        key_bytes if wanted & kernels.WANT_KEYS else None,
        value_bytes if wanted & kernels.WANT_VALUES else None,
    )


def check_decode(data: bytes, columns: Sequence[Column], wanted: int, rooms: Rooms, *, verify: bool) -> cases.Decoded:
    expected = reference.decode_records(data, columns, verify=verify, rooms=rooms)
    outputs = cases.Outputs(rooms, wanted | (kernels.VERIFY_CRC if verify else 0))
    found = outputs.decode(HEAP.input(data), cases.table_of(columns), 0, len(columns))
    assert (found.status, found.stopped, found.rows_before) == (expected.status, expected.stopped, expected.rows_before)
    if found.status in (kernels.OK, kernels.FULL):
        assert found.rows == cases.as_wanted(expected, wanted)
        assert found.nulls == (sum(row.key is None for row in expected.rows), sum(row.value is None for row in expected.rows))
    return found


def plenty(wanted: int, data: bytes) -> Rooms:
    return rooms_for(wanted, len(data), 2 * len(data) + 999, 2 * len(data) + 999)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), wanted_sets, st.booleans())
def test_decoding_batches_gives_their_records(made: list[Batch], wanted: int, verify: bool) -> None:
    data, _ = joined(made)
    found = check_decode(data, columns_in(data), wanted, plenty(wanted, data), verify=verify)
    assert found.status == kernels.OK
    assert len(found.rows) == sum(len(batch.records) for batch in made)


@pytest.mark.slow
@EXAMPLES
@given(cases.damaged_batches(), wanted_sets, st.booleans())
def test_decoding_damage_ends_where_the_reference_ends(data: bytes, wanted: int, verify: bool) -> None:
    columns = [column for column in columns_in(data) if column.magic == 2]
    check_decode(data, columns, wanted, plenty(wanted, data), verify=verify)


@EXAMPLES
@given(st.binary(max_size=80), st.integers(-1, 12), st.sampled_from([0, 1, 2, 5, 2**31 - 1]))
def test_decoding_any_payload_is_safe(payload: bytes, count: int, last: int) -> None:
    data = Batch(payload=payload, count=max(count, 0), last_offset_delta=max(last, count)).encoded()
    check_decode(data, columns_in(data), ALL, plenty(ALL, data), verify=False)


@pytest.mark.parametrize("field", range(5))
@pytest.mark.parametrize("extra", [1, 2, 60, 2**20])
def test_a_record_that_is_larger_than_its_batch_is_refused(field: int, extra: int) -> None:
    data = cases.overlong(0, field, extra)
    found = check_decode(data, columns_in(data), ALL, plenty(ALL, data), verify=True)
    assert (found.status, found.stopped) == (kernels.BAD_RECORD, 0)
    whole = cases.overlong(0, field, 0)  # the same without the lie, but for what was left out behind it
    check_decode(whole, columns_in(whole), ALL, plenty(ALL, whole), verify=True)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(most=2), st.data())
def test_a_table_that_lies_about_places_and_counts_is_refused(made: list[Batch], draw: st.DataObject) -> None:
    data, _ = joined(made)
    lie = st.sampled_from(cases.LIES) | st.integers(-1, len(data) + 1)
    columns = [column._replace(**{name: draw.draw(lie)}) for column in columns_in(data) for name in ("position", "size", "count")]
    for column in columns:
        check_decode(data, [column], ALL, plenty(ALL, data), verify=False)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), wanted_sets, st.integers(0, 9), st.integers(0, 900), st.integers(0, 900))
def test_decoding_stops_before_an_output_is_too_small(made: list[Batch], wanted: int, rows: int, keys: int, values: int) -> None:
    data, _ = joined(made)
    check_decode(data, columns_in(data), wanted, rooms_for(wanted, rows, keys, values), verify=False)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), wanted_sets)
def test_decoding_goes_on_in_new_outputs_where_the_old_ones_were_full(made: list[Batch], wanted: int) -> None:
    data, _ = joined(made)
    columns = columns_in(data)
    buffer, table = HEAP.input(data), cases.table_of(columns)
    rows: list[Any] = []
    batch = 0
    while batch < len(columns):
        room = columns[batch].size + kernels.SLACK  # for one batch, perhaps more
        outputs = cases.Outputs(Rooms(columns[batch].count, room, room), wanted)
        found = outputs.decode(buffer, table, batch, len(columns))
        assert found.stopped > batch
        rows += found.rows
        batch = found.stopped
    assert rows == cases.as_wanted(reference.decode_records(data, columns, verify=True), wanted)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), wanted_sets)
def test_one_output_is_filled_by_many_calls(made: list[Batch], wanted: int) -> None:
    data, _ = joined(made)
    columns = columns_in(data)
    outputs = cases.Outputs(plenty(wanted, data), wanted)
    for batch in range(len(columns)):
        found = outputs.decode(HEAP.input(data), cases.table_of(columns), batch, batch + 1)
        assert (found.status, found.stopped) == (kernels.OK, batch + 1)
    assert outputs.rows() == cases.as_wanted(reference.decode_records(data, columns, verify=True), wanted)


@pytest.mark.parametrize("wanted", [0, kernels.WANT_OFFSETS, kernels.WANT_KEYS, kernels.WANT_VALUES, kernels.WANT_HEADERS, ALL])
def test_outputs_without_any_room_take_no_batch_and_no_harm(wanted: int) -> None:
    outputs = cases.Outputs(Rooms(), wanted)
    outputs.key_ends = outputs.value_ends = HEAP.output(0, np.int32)
    empty = outputs.decode(HEAP.input(b""), cases.table_of([]), 0, 0)
    assert (empty.rows, empty.status) == ([], kernels.OK)
    found = outputs.decode(HEAP.input(TWO_RECORDS), cases.table_of(columns_in(TWO_RECORDS)), 0, 1)
    assert found.status == (kernels.FULL if wanted else kernels.OK)
    assert found.stopped == (0 if wanted else 1)


@pytest.mark.parametrize("behind", [0, 31, 32, 33])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 255, 256, 257, 289])
def test_fields_are_copied_whole_with_and_without_room_after_them(size: int, behind: int) -> None:
    key, value = bytes(range(256)) * 2, bytes(range(255, -1, -1)) * 2
    batch = Batch(
        [Record(0, 0, key[:size], value[: size + 1]), Record(1, 0, value[:size], key[:size])], base_timestamp=0
    ).encoded()
    data = batch + b"\xaa" * behind
    check_decode(data, columns_in(batch), ALL, plenty(ALL, data), verify=True)


# ---- headers -------------------------------------------------------------------------------------------------------------------


def positions_in(data: bytes) -> tuple[list[int], list[tuple[reference.HeaderPair, ...]]]:
    rows = reference.decode_records(data, columns_in(data), verify=False).rows
    return [row.headers_at for row in rows], [row.headers for row in rows]


@pytest.mark.slow
@EXAMPLES
@given(cases.batches())
def test_decoding_headers_gives_names_and_values(made: list[Batch]) -> None:
    data, _ = joined(made)
    positions, expected = positions_in(data)
    outputs = cases.HeaderOutputs(len(positions), 100, len(data), len(data))
    assert outputs.decode(HEAP.input(data), HEAP.input(np.array(positions, np.int64)), 0, len(positions)) == kernels.OK
    assert outputs.rows() == expected == reference.decode_headers(data, positions)
    assert outputs.state[5] == sum(value is None for row in expected for _, value in row)


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), st.integers(0, 6), st.integers(0, 40), st.integers(0, 400))
def test_headers_go_on_in_larger_outputs_where_small_ones_were_full(
    made: list[Batch], headers: int, names: int, values: int
) -> None:
    data, _ = joined(made)
    positions, expected = positions_in(data)
    buffer, places = HEAP.input(data), HEAP.input(np.array(positions, np.int64))
    small = cases.HeaderOutputs(len(positions), headers, min(names, len(data)), min(values, len(data)))
    status = small.decode(buffer, places, 0, len(positions))
    assert small.rows() == expected[: int(small.state[0])]
    large = cases.HeaderOutputs(len(positions), 100, len(data), len(data))
    large.take(small)
    if status == kernels.FULL:
        assert large.decode(buffer, places, int(small.state[0]), len(positions)) == kernels.OK
    assert large.rows() == expected
    assert large.state[5] == sum(value is None for row in expected for _, value in row)


@pytest.mark.slow
@EXAMPLES
@given(cases.damaged_batches(), st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_headers_that_changed_after_they_were_found_good_are_refused(data: bytes, places: list[int]) -> None:
    """A file that another program overwrites meanwhile must not lead out of it."""
    positions = [place % (len(data) + 1) for place in places]
    outputs = cases.HeaderOutputs(len(positions), len(data) + 1, len(data), len(data))
    try:
        expected = reference.decode_headers(data, positions)
    except ValueError:
        expected = None
    status = outputs.decode(HEAP.input(data), HEAP.input(np.array(positions, np.int64)), 0, len(positions))
    if expected is None:
        assert status in (kernels.BAD_RECORD, kernels.FULL)
    else:
        assert status in (kernels.OK, kernels.FULL)
        assert outputs.rows() == expected[: int(outputs.state[0])]


# ---- writing -------------------------------------------------------------------------------------------------------------------


def check_columns(encoded: list[bytes], columns: list[Column]) -> None:
    """The table that an encoder fills says what a scan of its bytes says."""
    for data, column in zip(encoded, columns, strict=True):
        (scanned,), _, status = reference.scan_batches(data, 0, len(data), verify=True, capacity=1)
        assert status == kernels.OK
        assert column == scanned._replace(position=column.position)


@pytest.mark.slow
@EXAMPLES
@given(cases.inputs, st.sampled_from([0, 1, 50, 400, 10**6]), st.sampled_from([0, 3]), st.sampled_from([0, 8]), st.integers(1, 9))
def test_encoding_gives_the_batches_of_the_reference(
    inputs: list[Input], batch_bytes: int, lead: int, attributes: int, batches: int
) -> None:
    encoder = cases.Encoder(20_000, batches)
    encoded, columns = encoder.encode(inputs, 2**33, 5, attributes, batch_bytes, lead=lead)
    assert encoded == reference.encode_batches(inputs, 2**33, 5, attributes, batch_bytes)
    check_columns(encoded, columns)


@pytest.mark.slow
@EXAMPLES
@given(cases.inputs, st.integers(0, 700), st.integers(1, 3))
def test_encoding_into_small_outputs_loses_and_doubles_nothing(inputs: list[Input], room: int, batches: int) -> None:
    encoded, columns = cases.Encoder(room, batches).encode(inputs, 7, 0, 0, 10_000)
    check_columns(encoded, columns)
    rows = [row for data in encoded for row in reference.decode_records(data, columns_in(data), verify=True).rows]
    assert [row.offset for row in rows] == list(range(7, 7 + len(inputs)))
    assert [(row.timestamp, row.key, row.value, row.headers) for row in rows] == [tuple(given) for given in inputs]


@pytest.mark.slow
@EXAMPLES
@given(cases.inputs)
def test_encoded_records_decode_to_the_same(inputs: list[Input]) -> None:
    assume(inputs)
    encoded, columns = cases.Encoder(50_000, 99).encode(inputs, 0, 0, 0, 300)
    data = b"".join(encoded)
    outputs = cases.Outputs(plenty(ALL, data), ALL | kernels.VERIFY_CRC)
    found = outputs.decode(HEAP.input(data), cases.table_of(columns), 0, len(columns))
    assert [row[1:4] for row in found.rows] == [given[:3] for given in inputs]


def test_columns_that_are_not_there_are_null() -> None:
    state = np.array([0, 0, 3, 0, 0, 0], np.int64)
    out, table = HEAP.output(500, np.uint8), HEAP.output((15, 1), np.int64)
    nothing = [HEAP.input(np.empty(0, kind)) for kind in (np.int32, np.uint8, np.uint8)]
    rest = [HEAP.input(np.empty(0, np.int32)), *nothing[:2], *nothing]
    stamps = HEAP.input(np.array([5, 6, 7], np.int64))
    assert encoding.encode_batches(out, state, 1000, 0, 0, table, stamps, *nothing, *nothing, *rest) == kernels.OK
    expected = reference.encode_batches([Input(stamp, None, None) for stamp in (5, 6, 7)], 0, 0, 0, 1000)
    assert [out[: state[0]].tobytes()] == expected


def test_nothing_is_written_for_no_rows_or_no_table() -> None:
    assert cases.Encoder(0, 1).encode([], 0, 0, 0, 100) == ([], [])
    state = np.array([0, 0, 1, 0, 0, 0], np.int64)
    columns = cases.columns_of([Input(1, b"k", b"v")])
    flat = (columns.timestamps, *columns.keys, *columns.values, columns.header_ends, *columns.names[:2], *columns.header_values)
    out = HEAP.output(100, np.uint8)
    assert encoding.encode_batches(out, state, 100, 0, 0, HEAP.output((15, 0), np.int64), *flat) == kernels.OK
    assert state.tolist() == [0, 0, 1, 0, 0, 0]
    assert not out.any()
