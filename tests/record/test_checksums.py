"""Varints and checksums of the kernels, against Kafka's values and plain Python."""

from __future__ import annotations

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.record import kernels, memory
from pylog.record.kernel import INTERPRETED
from support.record import cases, rooms
from support.record.cases import HEAP
from support.record.forms import each_form  # noqa: F401 - a fixture
from support.record.rooms import EXAMPLES, TWO_RECORDS, columns_in
from support.reference import records as reference
from support.reference.records import Column

pytestmark = pytest.mark.usefixtures("each_form")

wrapping_integers = pytest.fixture(autouse=True)(rooms.wrapping_integers)


int64s = st.integers(-(2**63), 2**63 - 1)


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED or not platform.machine().startswith("x86"), reason="there is one way to make checksums")
@pytest.mark.parametrize("processor", LESSER_PROCESSORS)
def test_processors_that_can_do_less_make_the_same_checksums(processor: str) -> None:
    lesser = {"PYLOG_KERNELS": "compiled", "NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": LESSER_PROCESSORS[processor]}
    done = subprocess.run([sys.executable, "-c", SUMMING], env=os.environ | lesser, capture_output=True, text=True, check=True)
    data = random.Random(1).randbytes(2000)
    assert json.loads(done.stdout) == [reference.checksum(data, 3, end) for end in range(3, 2000, 61)]


@EXAMPLES
@given(st.binary(max_size=100), st.integers(-5, 110), st.integers(-5, 110))
def test_a_checksum_of_a_range_beyond_the_buffer_is_one_of_what_is_there(data: bytes, position: int, end: int) -> None:
    assert kernels.checksum(HEAP.input(data), position, end) == reference.checksum(data, position, end)


@pytest.mark.slow
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


@pytest.mark.slow
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


# ---- reading -------------------------------------------------------------------------------------------------------------------
