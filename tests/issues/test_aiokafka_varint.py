"""aiokafka's decoder: checks of one byte before varints of up to ten, so that a record read on behind the end of its buffer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.record import kernels
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import Image
from support.record import cases as record_cases
from support.reference.records import Batch, Record, Rooms, record_bytes, varint_bytes

TESTS = Path(__file__).parent.parent

NAME = f"{0:020d}.log"
GOOD = Batch([Record(0, 0, b"key", b"good", ((b"name", b"header"),))], 0, 0).encoded()
WHOLE = record_bytes(Record(0, 0, b"key", b"value", ((b"name", b"header"),)))


def a_store(data: bytes) -> MemoryFileSystem:
    return MemoryFileSystem(image=Image({4: data}, {1: {"data": 2}, 2: {"t-0": 3}, 3: {NAME: 4}}, 4))


def batch_of(payload: bytes) -> bytes:
    """A batch whose checksum is true for a payload that is not."""
    return Batch(base_offset=1, leader_epoch=0, payload=payload, count=1, last_offset_delta=0, max_timestamp=-1).encoded()


FIELDS = [
    varint_bytes(len(WHOLE) - 1),
    b"\0",
    varint_bytes(0),
    varint_bytes(0),
    varint_bytes(3),
    b"key",
    varint_bytes(5),
    b"value",
    varint_bytes(1),
    varint_bytes(4),
    b"name",
    varint_bytes(6),
    b"header",
]
assert b"".join(FIELDS) == WHOLE


def lying(field: int, varint: bytes) -> bytes:
    """A record with one of its varints in bytes of our own: its length, deltas, key's, value's, header's lengths, a count."""
    return b"".join([*FIELDS[:field], varint, *FIELDS[field + 1 :]])


def ending_in(field: int, varint: bytes) -> bytes:
    """A record that ends with that varint, and whose length is true."""
    body = b"".join([*FIELDS[1:field], varint])
    return varint_bytes(len(body)) + body if field else varint


VARINTS = [0, 2, 3, 4, 6, 8, 9, 11]
UNENDING = [b"\xff" * count for count in range(1, 12)]
NEGATIVE = [varint_bytes(value) for value in (-2, -(2**31), -(2**63))]
TOO_LARGE = [varint_bytes(value) for value in (7, 100, 2**31 - 1, 2**31, 2**40)] + NEGATIVE


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_record_that_is_cut_anywhere_is_damage_and_nothing_after_it_is_read(size: int, mode: str) -> None:
    """The bytes behind the cut are those of a good batch, which a reader that goes too far would take for the record's."""
    behind = Batch([Record(0, 0, None, b"behind")], 2, 0).encoded()
    assert read(GOOD + batch_of(WHOLE[:size]) + behind, mode) == ([b"good"], [b"behind"])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("field", VARINTS)
@pytest.mark.parametrize("varint", UNENDING + TOO_LARGE, ids=bytes.hex)
def test_a_varint_that_does_not_end_or_says_too_much_is_damage(field: int, varint: bytes) -> None:
    """The record is the last thing in its file, so that one byte too many is a byte outside of it."""
    null = field == 11 and varint in NEGATIVE  # a header's value of any negative length is null: that record is whole
    assert read(GOOD + batch_of(ending_in(field, varint)), "r")[0] == [b"good", b"value"][: 1 + null]
    told, _ = read(GOOD + batch_of(lying(field, varint)), "r")
    assert told[:1] == [b"good"]
    if len(told) > 1:  # only a delta may be any number
        assert field in (2, 3)
        assert told == [b"good", b"value"]


@pytest.mark.slow
def test_no_byte_after_the_batch_is_read() -> None:
    """All of these once more, the page behind the batch forbidden: one byte too many is the end of the process."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    environment.pop("NUMBA_DISABLE_JIT", None)
    environment["PYLOG_KERNELS"] = "compiled"
    program = "from issues.test_aiokafka_varint import decode_beside_a_forbidden_page as run; print(run())"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == len(WHOLE) + 2 * len(VARINTS) * len(UNENDING + TOO_LARGE)


def decode_beside_a_forbidden_page() -> int:
    """Decodes each of the payloads; returns how many there were."""
    from support.record.guard_pages import Guarded

    place = Guarded()
    payloads = [WHOLE[:size] for size in range(len(WHOLE))]
    payloads += [make(field, varint) for make in (lying, ending_in) for field in VARINTS for varint in UNENDING + TOO_LARGE]
    for payload in payloads:
        place.begin(at_end=True)
        batch = batch_of(payload)
        columns, _, _ = record_cases.scan(batch, 0, len(batch), verify=False, capacity=1)
        outputs = record_cases.Outputs(Rooms(1, len(batch) + kernels.SLACK, len(batch) + kernels.SLACK), record_cases.ALL, place)
        outputs.decode(place.input(batch), record_cases.table_of(columns, place), 0, len(columns))
    return len(payloads)


def read(data: bytes, mode: str) -> tuple[list[bytes | None], list[bytes | None]]:
    """The values before the damage, and those behind it."""
    fs = a_store(data)
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        before: list[bytes | None] = []
        try:
            before.extend(record.value for record in log.records())
        except pylog.CorruptionError as error:
            assert [record.value for record in log.records(0, 1)] == [b"good"]
            with pytest.raises(pylog.CorruptionError):
                log.read(1)
            following = error.next_offset
            return [b"good"], [] if following is None else [record.value for record in log.records(following)]
        return before, []
