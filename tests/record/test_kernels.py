"""The record kernels against plain Python: on batches of all shapes, on damaged ones, and on bytes that never were batches.

The same tests run compiled and, with NUMBA_DISABLE_JIT=1, as Python with every load and store checked against its array.
"""

from __future__ import annotations

import json
import os
import platform
import random
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pylog.record import encoding, kernels, memory
from pylog.record.memory import INTERPRETED
from support.record import cases
from support.record.cases import ALL, HEAP, joined
from support.reference import records as reference
from support.reference.records import Batch, Column, Input, Question, Record, Rooms

EXAMPLES = settings(max_examples=25 if INTERPRETED else 80)

int64s = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(autouse=True)
def wrapping_integers() -> Iterator[None]:
    """Interpreted, sums wrap as the compiled ones do, but numpy would warn of it."""
    with np.errstate(over="ignore"):
        yield


def address_of(array: Any) -> int:
    return int(memory.address(array)) if INTERPRETED else int(array.ctypes.data)


@pytest.mark.skipif(not INTERPRETED, reason="compiled kernels are not checked: guard pages stand behind their arrays instead")
def test_interpreted_kernels_may_touch_their_arrays_only() -> None:
    array = HEAP.input(b"12345678")
    at = address_of(array)
    assert memory.load8(at + 7) == ord("8")
    for touch in (
        lambda: memory.load8(at + 8),
        lambda: memory.be64(at + 1),
        lambda: memory.load8(at - 1),
        lambda: memory.store8(at + 8, 0),
    ):
        with pytest.raises(IndexError, match="outside its arrays"):
            touch()


# ---- varints -------------------------------------------------------------------------------------------------------------------

VECTORS = [  # storage-format 1.4.3
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (8192, "808001"),
    (1048575, "feff7f"),
    (134217728, "8080808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


def read(data: bytes, end: int | None = None) -> tuple[int, int] | None:
    array = HEAP.input(data)
    at = address_of(array)
    value, following = memory.varint(at, at + (len(data) if end is None else end))
    return None if following == memory.FAR else (int(value), int(following) - at)


def written(value: int) -> bytes:
    out = HEAP.output(16, np.uint8)
    at = address_of(out)
    bits = np.uint64(memory.zigzag(np.int64(value)))
    end = memory.put_varint(at, bits)
    assert bits == reference.zigzag(value)
    assert end - at == memory.varint_width(bits)
    return out[: int(end) - at].tobytes()


@pytest.mark.parametrize(("value", "encoded"), VECTORS)
def test_varints_are_kafkas(value: int, encoded: str) -> None:
    assert written(value) == reference.varint_bytes(value) == bytes.fromhex(encoded)
    assert read(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@EXAMPLES
@given(int64s)
def test_any_number_survives_as_a_varint(value: int) -> None:
    assert written(value) == reference.varint_bytes(value)
    assert read(written(value)) == (value, len(written(value)))


@EXAMPLES
@given(st.binary(max_size=12) | st.lists(st.integers(120, 255), max_size=12).map(bytes), st.integers(0, 12))
def test_any_bytes_read_as_a_varint_or_are_refused(data: bytes, end: int) -> None:
    assert read(data, min(end, len(data))) == reference.read_varint(data, 0, min(end, len(data)))


@pytest.mark.skipif(INTERPRETED, reason="65,536 calls")
def test_all_varints_of_two_bytes() -> None:
    for first in range(256):
        for second in range(256):
            data = bytes([first, second])
            assert read(data) == reference.read_varint(data, 0, 2)


@pytest.mark.parametrize("size", range(1, 10))
def test_a_varint_that_ends_too_early_is_refused(size: int) -> None:
    assert read(b"\xff" * size) is None
    assert read(b"\xff" * 9 + b"\x01", size) is None


def test_a_varint_of_eleven_bytes_is_refused() -> None:
    assert read(b"\x80" * 9 + b"\x00") == (0, 10)
    assert read(b"\x80" * 10 + b"\x00") is None


# ---- checksums -----------------------------------------------------------------------------------------------------------------

SIZES = [*range(20), *range(250, 262), *range(505, 520), *range(760, 785), *range(1530, 1545), 4095, 4096, 5000]


def test_the_checksum_is_castagnolis() -> None:
    assert kernels.checksum(HEAP.input(b"123456789"), 0, 9) == 0xE3069283 == reference.crc32c(b"123456789")


@pytest.mark.parametrize("start", [0, 1, 7])
def test_checksums_of_all_sizes_around_the_steps_agree(start: int) -> None:
    data = random.Random(start).randbytes(5100)
    buffer = HEAP.input(data)
    for size in SIZES[:: 8 if INTERPRETED else 1]:
        assert kernels.checksum(buffer, start, start + size) == reference.checksum(data, start, start + size)


LESSER_PROCESSORS = {"nehalem": "+sse4.2", "x86-64": "+sse2"}  # the CRC instruction but no wide products; neither
SUMMING = """
import random
from pylog.record import kernels
from pylog.record.memory import np
data = random.Random(1).randbytes(2000)
print([kernels.checksum(np.frombuffer(data, np.uint8), 3, end) for end in range(3, 2000, 61)])
"""


@pytest.mark.skipif(INTERPRETED or not platform.machine().startswith("x86"), reason="there is one way to make checksums")
@pytest.mark.parametrize("processor", LESSER_PROCESSORS)
def test_processors_that_can_do_less_make_the_same_checksums(processor: str) -> None:
    lesser = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": LESSER_PROCESSORS[processor]}
    done = subprocess.run([sys.executable, "-c", SUMMING], env=os.environ | lesser, capture_output=True, text=True, check=True)
    data = random.Random(1).randbytes(2000)
    assert json.loads(done.stdout) == [reference.checksum(data, 3, end) for end in range(3, 2000, 61)]


@EXAMPLES
@given(st.binary(max_size=100), st.integers(-5, 110), st.integers(-5, 110))
def test_a_checksum_of_a_range_beyond_the_buffer_is_one_of_what_is_there(data: bytes, position: int, end: int) -> None:
    assert kernels.checksum(HEAP.input(data), position, end) == reference.checksum(data, position, end)


@EXAMPLES
@given(cases.damaged_batches(), st.integers(0, 2), st.integers(0, 6))
def test_the_first_batch_that_does_not_match_its_checksum_is_found(data: bytes, first: int, end: int) -> None:
    columns = columns_in(data)
    expected = reference.first_bad_crc(data, columns, first, end)
    assert kernels.first_bad_crc(HEAP.input(data), cases.table_of(columns), first, end) == expected


def test_a_batch_that_is_said_to_lie_outside_of_the_buffer_has_no_good_checksum() -> None:
    (batch,) = columns_in(TWO_RECORDS)
    for lie in ({"position": -1}, {"position": 1}, {"size": batch.size + 1}, {"size": 60}, {"position": 2**62}):
        table = cases.table_of([batch, batch._replace(**lie)])
        assert kernels.first_bad_crc(HEAP.input(TWO_RECORDS), table, 0, 2) == 1


@EXAMPLES
@given(cases.damaged_batches(), st.sampled_from([0, 5000]), st.booleans(), st.data())
def test_a_mark_differs_where_the_prefixes_before_it_are_others_or_no_batch_ends(
    data: bytes, shift: int, known: bool, draw: st.DataObject
) -> None:
    columns = columns_in(data)
    digests, digest = {}, 0
    for column in columns:
        digest = reference.crc32c(data[column.position : column.position + 21], digest)
        digests[shift + column.position + column.size] = digest
    places = sorted(draw.draw(st.sets(st.sampled_from([*digests, *(end - 1 for end in digests)])))) if columns else []
    marks = [(place, draw.draw(st.sampled_from([digests.get(place, 7), 7]))) for place in places]
    before = 0 if known else None
    assert marks_compared(data, columns, shift, marks, before) == reference.compare_marks(data, columns, shift, marks, before)


def marks_compared(
    data: bytes, columns: Sequence[Column], shift: int, marks: Sequence[tuple[int, int]], before: int | None
) -> tuple[list[bool], int | None]:
    """What `reference.compare_marks` says, by the kernel."""
    positions, digests = (np.array([mark[part] for mark in marks], np.int64) for part in range(2))
    state, differs = np.array([-1 if before is None else before]), np.zeros(len(marks), np.uint8)
    status = kernels.compare_marks(HEAP.input(data), cases.table_of(columns), shift, positions, digests, state, differs)
    assert status == kernels.OK
    return differs.astype(bool).tolist(), None if state[0] < 0 else int(state[0])


def test_a_batch_that_is_said_to_lie_outside_of_the_buffer_is_compared_with_no_mark() -> None:
    (batch,) = columns_in(TWO_RECORDS)
    for position in (-1, len(TWO_RECORDS) - 20, 2**62):
        table, marks, state = cases.table_of([batch._replace(position=position)]), np.zeros(0, np.int64), np.zeros(1, np.int64)
        given = (HEAP.input(TWO_RECORDS), table, 0, marks, marks, state, np.zeros(0, np.uint8))
        assert kernels.compare_marks(*given) == kernels.BAD_HEADER


# ---- vectors -------------------------------------------------------------------------------------------------------------------

TWO_RECORDS = bytes.fromhex(  # storage-format A.2
    "0000000000000000 00000055 ffffffff 02 e58cf1ff 0000 00000001 00000000000454c3 00000000000454c3"
    "ffffffffffffffff ffff ffffffff 00000002 2000000008 6b657931 0c 76616c756531 00 2400e1bf220208 6b657932 0c 76616c756532 00"
)
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


@EXAMPLES
@given(cases.batches(), st.booleans(), st.integers(0, 5))
def test_scanning_batches_gives_their_headers(made: list[Batch], verify: bool, capacity: int) -> None:
    data, starts = joined(made)
    check_scan(data, 0, len(data), verify=verify, capacity=capacity)
    columns, position, status = cases.scan(data, 0, len(data), verify=True, capacity=9)
    assert [column.position for column in columns] == starts
    assert (position, status) == (len(data), kernels.OK)
    assert all(column.crc_state == 1 for column in columns)


@EXAMPLES
@given(cases.damaged_batches(), st.booleans(), st.integers(0, 5), st.integers(-20, 20))
def test_scanning_damage_stops_where_the_reference_stops(data: bytes, verify: bool, capacity: int, beyond: int) -> None:
    check_scan(data, 0, len(data) + beyond, verify=verify, capacity=capacity)


@EXAMPLES
@given(st.binary(max_size=200), st.integers(0, 210), st.integers(-5, 250))
def test_scanning_any_bytes_is_safe(data: bytes, position: int, end: int) -> None:
    check_scan(data, min(position, len(data)), end, verify=True, capacity=3)


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


@EXAMPLES
@given(cases.damaged_batches(), st.integers(0, 50), st.integers(0, 20), st.sampled_from([2**40, 2**40, 200, 0]))
def test_searching_behind_damage_finds_what_the_reference_finds(data: bytes, position: int, first: int, budget: int) -> None:
    position = min(position, len(data))
    expected = reference.find_batch(data, position, len(data), first, budget)
    assert cases.find_batch(data, position, len(data), first, budget) == expected


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


def columns_in(data: bytes) -> list[Column]:
    return reference.scan_batches(data, 0, len(data), verify=False, capacity=99)[0]


def plenty(wanted: int, data: bytes) -> Rooms:
    return rooms_for(wanted, len(data), 2 * len(data) + 999, 2 * len(data) + 999)


@EXAMPLES
@given(cases.batches(), wanted_sets, st.booleans())
def test_decoding_batches_gives_their_records(made: list[Batch], wanted: int, verify: bool) -> None:
    data, _ = joined(made)
    found = check_decode(data, columns_in(data), wanted, plenty(wanted, data), verify=verify)
    assert found.status == kernels.OK
    assert len(found.rows) == sum(len(batch.records) for batch in made)


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


@EXAMPLES
@given(cases.batches(most=2), st.data())
def test_a_table_that_lies_about_places_and_counts_is_refused(made: list[Batch], draw: st.DataObject) -> None:
    data, _ = joined(made)
    lie = st.sampled_from(cases.LIES) | st.integers(-1, len(data) + 1)
    columns = [column._replace(**{name: draw.draw(lie)}) for column in columns_in(data) for name in ("position", "size", "count")]
    for column in columns:
        check_decode(data, [column], ALL, plenty(ALL, data), verify=False)


@EXAMPLES
@given(cases.batches(), wanted_sets, st.integers(0, 9), st.integers(0, 900), st.integers(0, 900))
def test_decoding_stops_before_an_output_is_too_small(made: list[Batch], wanted: int, rows: int, keys: int, values: int) -> None:
    data, _ = joined(made)
    check_decode(data, columns_in(data), wanted, rooms_for(wanted, rows, keys, values), verify=False)


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
def test_fields_are_copied_whole_with_and_without_room_behind_them(size: int, behind: int) -> None:
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


@EXAMPLES
@given(cases.batches())
def test_decoding_headers_gives_names_and_values(made: list[Batch]) -> None:
    data, _ = joined(made)
    positions, expected = positions_in(data)
    outputs = cases.HeaderOutputs(len(positions), 100, len(data), len(data))
    assert outputs.decode(HEAP.input(data), HEAP.input(np.array(positions, np.int64)), 0, len(positions)) == kernels.OK
    assert outputs.rows() == expected == reference.decode_headers(data, positions)
    assert outputs.state[5] == sum(value is None for row in expected for _, value in row)


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


@EXAMPLES
@given(indexed(), st.integers(-3, 900), stamps, st.booleans())
def test_a_record_is_found_by_its_offset_and_time(case: Case, relative: int, timestamp: int, controls: bool) -> None:
    made, entries, base = case
    data, _ = joined(made)
    offset = max(0, base + relative)
    question = Question(base, offset, offset, timestamp, controls)
    expected = reference.find_record(data, entries, question, len(data))
    assert cases.find_record(data, entries, question, len(data)) == expected
    batches = [c for c in columns_in(data) if (controls or not c.attributes & 32) and c.max_timestamp >= timestamp]
    rows = reference.decode_records(data, batches, verify=True).rows
    first = next((row for row in rows if row.offset >= offset and row.timestamp >= timestamp), None)
    assert (expected[0] == kernels.OK) == (first is not None)
    if first is not None:
        assert isinstance(expected[1], reference.Found)
        assert (expected[1].offset, expected[1].timestamp, expected[1].headers_at) == (
            first.offset,
            first.timestamp,
            first.headers_at,
        )


@EXAMPLES
@given(indexed(), cases.damage, st.booleans(), st.integers(0, 900), st.integers(0, 900), stamps, st.booleans())
def test_a_record_in_damage_is_found_as_the_reference_finds_it(
    case: Case, damage: list[cases.Damage], seal: bool, origin: int, relative: int, timestamp: int, controls: bool
) -> None:
    made, entries, base = case
    data, starts = joined(made)
    changed = cases.damaged(data, starts or [0], damage, seal=seal)
    question = Question(base, base + origin, base + relative, timestamp, controls)
    expected = reference.find_record(changed, entries, question, len(changed))
    assert cases.find_record(changed, entries, question, len(changed)) == expected


def found_by_time(
    data: bytes, index: list[tuple[int, int]], times: list[tuple[int, int]], question: Question
) -> tuple[int, reference.Found | int]:
    tables = b"".join(struct.pack(">ii", *entry) for entry in index), b"".join(struct.pack(">qi", *entry) for entry in times)
    return cases.find_by_time(data, *tables, (len(index), len(times)), question, len(data))


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
    assert found_by_time(changed, entries, times, question) == reference.find_by_time(
        changed, entries, times, question, len(changed)
    )


@EXAMPLES
@given(indexed(), st.integers(0, 900), stamps)
def test_a_true_time_index_leads_to_what_is_found_without_one(case: Case, relative: int, timestamp: int) -> None:
    made, entries, base = case
    data, _ = joined(made)
    times: list[tuple[int, int]] = []
    for column in columns_in(data):
        if column.max_timestamp > (times[-1][0] if times else -1):
            times.append((column.max_timestamp, column.last_offset - base))
    question = Question(base, base, base + relative, timestamp, controls=True)
    without = reference.find_record(data, [], question, len(data))
    if without[0] in (kernels.OK, kernels.NOT_FOUND):
        assert found_by_time(data, entries, times, question) == without


@EXAMPLES
@given(indexed(), st.binary(max_size=48), st.integers(-2, 9), st.integers(0, 400))
def test_an_index_of_any_bytes_never_leads_to_another_record(case: Case, index: bytes, count: int, relative: int) -> None:
    made, _, base = case
    data, starts = joined(made)
    question = Question(base, base + relative, base + relative)
    true = reference.find_record(data, [], question, len(data))
    status, found = cases.found_record(data, index, count, question, len(data))
    assert status != kernels.OK or (status, found) == true
    for start in starts:  # an entry that leads to a batch, but not to the right one
        status, found = cases.found_record(data, struct.pack(">ii", 0, start), 1, question, len(data))
        assert status != kernels.OK or (status, found) == true


@pytest.mark.parametrize("field", range(5))
def test_a_record_that_is_larger_than_its_batch_is_not_found(field: int) -> None:
    data = cases.overlong(0, field, 5)
    assert cases.find_record(data, [], Question(0, 0, 0), len(data)) == (kernels.BAD_RECORD, 0)


# ---- writing -------------------------------------------------------------------------------------------------------------------


def check_columns(encoded: list[bytes], columns: list[Column]) -> None:
    """The table that an encoder fills says what a scan of its bytes says."""
    for data, column in zip(encoded, columns, strict=True):
        (scanned,), _, status = reference.scan_batches(data, 0, len(data), verify=True, capacity=1)
        assert status == kernels.OK
        assert column == scanned._replace(position=column.position)


@EXAMPLES
@given(cases.inputs, st.sampled_from([0, 1, 50, 400, 10**6]), st.sampled_from([0, 3]), st.sampled_from([0, 8]), st.integers(1, 9))
def test_encoding_gives_the_batches_of_the_reference(
    inputs: list[Input], batch_bytes: int, lead: int, attributes: int, batches: int
) -> None:
    encoder = cases.Encoder(20_000, batches)
    encoded, columns = encoder.encode(inputs, 2**33, 5, attributes, batch_bytes, lead=lead)
    assert encoded == reference.encode_batches(inputs, 2**33, 5, attributes, batch_bytes)
    check_columns(encoded, columns)


@EXAMPLES
@given(cases.inputs, st.integers(0, 700), st.integers(1, 3))
def test_encoding_into_small_outputs_loses_and_doubles_nothing(inputs: list[Input], room: int, batches: int) -> None:
    encoded, columns = cases.Encoder(room, batches).encode(inputs, 7, 0, 0, 10_000)
    check_columns(encoded, columns)
    rows = [row for data in encoded for row in reference.decode_records(data, columns_in(data), verify=True).rows]
    assert [row.offset for row in rows] == list(range(7, 7 + len(inputs)))
    assert [(row.timestamp, row.key, row.value, row.headers) for row in rows] == [tuple(given) for given in inputs]


@EXAMPLES
@given(cases.inputs)
def test_what_is_encoded_decodes_to_the_same(inputs: list[Input]) -> None:
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
