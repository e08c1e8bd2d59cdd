"""A program: runs the compiled record kernels on arrays beside forbidden pages, with damaged inputs by the thousand.

python guard_pages.py <rounds> <seed>    any byte read or written outside of an array ends the process with SIGSEGV
python guard_pages.py read|write|before  does exactly that, to show that it would be noticed
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from pylog import partitioner
from pylog.record import compacting, encoding, kernels, packed
from pylog.record.format import ATTRIBUTES, CONTROL_BIT, TRANSACTIONAL_BIT
from pylog.record.kernel import kernel
from pylog.record.memory import address, load8, store8
from pylog.record.rows import read_only
from pylog.record.signatures import BYTES, INT64, OUT_BYTES
from support.record import cases
from support.record.cases import ALL, Damage, joined
from support.reference import records as reference
from support.reference.finding import Question
from support.reference.records import Batch, Column, Input, Record, Rooms

PAGE = mmap.PAGESIZE
ROOM = 16 * PAGE
REGIONS = 24  # no kernel takes more arrays

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _forbid(at: int) -> None:
    if _libc.mprotect(at, PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")


class Guarded:
    """Makes arrays that end just before, or begin just behind, a page that may not be touched."""

    def __init__(self) -> None:
        self._regions = [mmap.mmap(-1, ROOM + 2 * PAGE) for _ in range(REGIONS)]
        for region in self._regions:
            start = ctypes.addressof(ctypes.c_char.from_buffer(region))
            _forbid(start)
            _forbid(start + PAGE + ROOM)
        self.begin(at_end=True)

    def begin(self, *, at_end: bool) -> None:
        """Takes all arrays back."""
        self._used = 0
        self._at_end = at_end

    def output(self, shape: Any, kind: Any, fill: int = 0) -> Any:
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        assert size <= ROOM
        region = self._regions[self._used]
        self._used += 1
        array: Any = np.ndarray(shape, kind, region, PAGE + (ROOM - size if self._at_end else 0))
        array[...] = fill
        return array

    def input(self, data: Any) -> Any:
        given = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)
        array = self.output(given.shape, given.dtype)
        array[...] = given
        array.flags.writeable = False
        return array


# ---- inputs --------------------------------------------------------------------------------------------------------------------


class Cases:
    """Batches, true and damaged, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.true = [joined(self._batches()) for _ in range(60)]

    def _bytes(self) -> bytes | None:
        size = self.random.choice([-1, 0, 1, 2, 7, 31, 32, 33, 63, 64, 200, 255, 256, 257, 400])
        return None if size < 0 else self.random.randbytes(size)

    def record(self, delta: int) -> Record:
        headers = [
            (self.random.randbytes(self.random.choice([0, 1, 70])), self._bytes())
            for _ in range(self.random.choice([0, 0, 1, 3]))
        ]
        return Record(delta, self.random.randint(-(2**41), 2**41), self._bytes(), self._bytes(), tuple(headers))

    def _batches(self) -> list[Batch]:
        made, offset = [], 0
        for _ in range(self.random.randint(1, 4)):
            count = self.random.choice([0, 1, 1, 2, 5])
            records = [self.record(delta) for delta in range(count)]
            made.append(Batch(records, offset, 0, self.random.choice([0, 0, 8, 32]), 1000, last_offset_delta=max(count - 1, 0)))
            offset += max(count, 1)
        return made

    def damage(self) -> list[Damage]:
        draw = self.random
        return [
            (draw.choice(cases.KINDS), draw.getrandbits(20), draw.getrandbits(64), draw.getrandbits(10))
            for _ in range(draw.randint(0, 3))
        ]

    def data(self) -> bytes:
        if self.random.random() < 0.05:
            return self.random.randbytes(self.random.randint(0, 150))
        true, starts = self.random.choice(self.true)
        if self.random.random() < 0.1:
            return true + cases.overlong(100, self.random.randrange(5), self.random.choice([1, 2, 31, 60, 100, 5000]))
        return cases.damaged(true, starts, self.damage(), seal=self.random.random() < 0.3)

    def inputs(self) -> list[Input]:
        records = [self.record(0) for _ in range(self.random.randint(0, 6))]
        return [Input(self.random.randint(-1, 2**41), record.key, record.value, record.headers) for record in records]


# ---- one call of each kernel ---------------------------------------------------------------------------------------------------


def scan(given: Cases, place: Guarded) -> None:
    data, draw = given.data(), given.random
    end = len(data) + draw.choice([0, 0, -1, -20, 1, 1000])
    cases.scan(
        data, draw.randint(0, len(data)) if draw.random() < 0.3 else 0, end, verify=True, capacity=draw.randint(0, 5), place=place
    )


def find_batch(given: Cases, place: Guarded) -> None:
    data = given.data()
    position = given.random.randint(0, len(data))
    cases.find_batch(
        data, position, len(data) + given.random.choice([0, -7, 9]), 0, given.random.choice([2**40, 300]), place=place
    )


def decode_records(given: Cases, place: Guarded) -> None:
    data, draw = given.data(), given.random
    columns = [
        _lying(column, len(data), draw) for column in reference.scan_batches(data, 0, len(data), verify=False, capacity=9)[0]
    ]
    rows = sum(max(0, min(column.count, 50)) for column in columns)
    size = len(data) + kernels.SLACK * len(columns) + draw.choice([0, 0, -40])
    wanted = draw.choice(
        [
            ALL,
            ALL,
            ALL | kernels.VERIFY_CRC,
            kernels.WANT_OFFSETS,
            kernels.WANT_KEYS,
            kernels.WANT_VALUES | kernels.WANT_HEADERS,
            0,
        ]
    )
    outputs = cases.Outputs(Rooms(max(0, rows + draw.choice([0, 0, -1])), max(0, size), max(0, size)), wanted, place)
    outputs.decode(place.input(data), cases.table_of(columns, place), 0, len(columns))


def _lying(column: Column, size: int, draw: random.Random) -> Column:
    if draw.random() < 0.9:
        return column
    name = draw.choice(["position", "size", "count"])
    return column._replace(**{name: draw.choice([*cases.LIES, draw.randint(0, size + 2)])})


def decode_headers(given: Cases, place: Guarded) -> None:
    data, draw = given.data(), given.random
    columns = reference.scan_batches(data, 0, len(data), verify=False, capacity=9)[0]
    places = [row.headers_at for row in reference.decode_records(data, columns, verify=False).rows]
    if draw.random() < 0.5:  # what was found good and has changed since
        data = cases.damaged(data, [0], given.damage(), seal=False)
        places = [min(at, len(data)) for at in places] + [draw.randint(0, len(data))]
    outputs = cases.HeaderOutputs(len(places), draw.randint(0, 20), draw.randint(0, 300), draw.randint(0, 2000), place)
    outputs.decode(place.input(data), place.input(np.array(places, np.int64)), 0, len(places))


def find_record(given: Cases, place: Guarded) -> None:
    data, draw = given.data(), given.random
    index = draw.randbytes(draw.randint(0, 40))
    if draw.random() < 0.5:
        index = b"".join(relative.to_bytes(4, "big") + draw.randint(0, len(data) + 1).to_bytes(4, "big") for relative in range(4))
    end = len(data) + draw.choice([0, -3, 50])
    question = Question(0, draw.randint(0, 15), draw.randint(0, 15), draw.choice([-(2**63), 0, 2**40]), draw.random() < 0.5)
    cases.found_record(data, index, draw.choice([len(index) // 8, 100, -1]), question, end, place=place)


def find_by_time(given: Cases, place: Guarded) -> None:
    data, draw = given.data(), given.random
    index, times = draw.randbytes(draw.randint(0, 40)), draw.randbytes(draw.randint(0, 40))
    if draw.random() < 0.5:
        index = b"".join(relative.to_bytes(4, "big") + draw.randint(0, len(data) + 1).to_bytes(4, "big") for relative in range(4))
        times = b"".join(draw.choice([0, 1, 2**41]).to_bytes(8, "big") + draw.randint(0, 20).to_bytes(4, "big") for _ in range(3))
    counts = draw.choice([len(index) // 8, 100, -1]), draw.choice([len(times) // 12, 100, -1])
    question = Question(0, 0, draw.randint(0, 15), draw.choice([-(2**63), 0, 2**40]))
    cases.find_by_time(data, index, times, counts, question, len(data) + draw.choice([0, -3, 50]), place=place)


def encode_batches(given: Cases, place: Guarded) -> None:
    draw = given.random
    inputs = given.inputs()
    columns = cases.columns_of(inputs, place, lead=draw.choice([0, 3]))
    flat = (columns.timestamps, *columns.keys, *columns.values, columns.header_ends, *columns.names[:2], *columns.header_values)
    state = place.output(encoding.E_SIZE, np.int64)
    state[encoding.E_END] = len(inputs)
    out = place.output(draw.choice([0, 61, 70, 100, 500, 3000, 20_000]), np.uint8)
    table = place.output((len(Column._fields), draw.randint(0, 3)), np.int64)
    kernel = draw.choice([encoding.encode_batches, encoding.encode_batches_with_headers])
    kernel(out, state, draw.choice([0, 100, 10_000]), 0, 0, table, *flat)


def checksum(given: Cases, place: Guarded) -> None:
    data = given.random.randbytes(given.random.choice([0, 1, 7, 8, 9, 255, 256, 257, 512, 767, 768, 769, 2000]))
    ends = [given.random.choice([0, 1, 5, len(data), len(data) + 1, -1, 2**62, -(2**62)]) for _ in range(2)]
    kernels.checksum(place.input(data), *ends)


def first_bad_crc(given: Cases, place: Guarded) -> None:
    data, draw = given.data(), given.random
    columns = reference.scan_batches(data, 0, len(data), verify=False, capacity=9)[0]
    lying = [_lying(column, len(data), draw) for column in columns]
    ends = draw.choice([0, 0, 1]), len(lying) + draw.choice([0, 0, 2])
    kernels.first_bad_crc(place.input(data), cases.table_of(lying, place), *ends)


def outcomes_inside(given: Cases, place: Guarded) -> None:
    draw = given.random
    buffer, table, count = _lying_table(given, place)
    table[ATTRIBUTES] |= draw.choice([0, TRANSACTIONAL_BIT, CONTROL_BIT])
    slots, outcomes = (place.output(count + draw.choice([0, 1, 1, 5]), np.int64) for _ in range(2))
    kernels.outcomes_inside(buffer, table, slots, outcomes)


def compare_marks(given: Cases, place: Guarded) -> None:
    draw = given.random
    buffer, table, _ = _lying_table(given, place)
    positions, digests = (place.output(draw.randint(0, 6), np.int64) for _ in range(2))
    positions[:] = sorted(draw.choice([0, buffer.size, draw.randint(0, 2 * buffer.size), 2**62]) for _ in positions)
    state, differs = place.output(1, np.int64), place.output(draw.randint(0, 6), np.uint8)
    state[0] = draw.choice([0, -1, 2**32 - 1, 2**62])
    kernels.compare_marks(buffer, table, draw.choice([0, 99, -5]), positions, digests, state, differs)


def hash_keys(given: Cases, place: Guarded) -> None:
    draw = given.random
    data = draw.randbytes(draw.choice([0, 1, 3, 4, 7, 40, 500]))
    ends = place.output(draw.randint(0, 20), np.int32)
    ends[:] = sorted(draw.randint(0, len(data)) for _ in ends)
    if len(ends) and draw.random() < 0.5:
        ends[draw.randrange(len(ends))] = draw.choice([-1, len(data) + 1, 2**31 - 1, -(2**31)])
    partitioner.hash_keys(place.input(data), read_only(ends), place.output(draw.randint(0, 20), np.int32))


def _lying_table(given: Cases, place: Guarded) -> tuple[Any, Any, int]:
    """Bytes, a table of batches in them that may lie, and how many there are."""
    data = given.data()
    columns = reference.scan_batches(data, 0, len(data), verify=False, capacity=9)[0]
    lying = [_lying(column, len(data), given.random) for column in columns]
    return place.input(data), cases.table_of(lying, place), len(lying)


def index_keys(given: Cases, place: Guarded) -> None:
    draw = given.random
    buffer, table, count = _lying_table(given, place)
    state = place.output(compacting.K_SIZE, np.int64)
    state[compacting.K_END] = count
    state[compacting.K_CAPACITY] = draw.choice([0, 1, 3, 7, 8])
    state[compacting.K_FIRST] = draw.randint(0, 8)
    state[compacting.K_NUMBER] = draw.choice([0, 0, 3, -1, 2**40])
    keys, scratch = (place.output(draw.choice(sizes), np.uint64) for sizes in ([16, 16, 2, 15, 0], [4, 8, 64, 3]))
    dead = place.output(draw.choice([0, 1, 2, 30]), np.uint8)
    k0, k1 = (np.uint64(draw.getrandbits(64)) for _ in range(2))
    for enter in (True, False):
        state[compacting.K_BATCH] = 0
        compacting.index_keys(buffer, table, state, enter, draw.random() < 0.3, keys, dead, scratch, k0, k1)


def keep_records(given: Cases, place: Guarded) -> None:
    draw = given.random
    buffer, table, count = _lying_table(given, place)
    state = place.output(compacting.R_SIZE, np.int64)
    state[compacting.R_END] = count + draw.choice([0, 0, 2])
    state[compacting.R_NUMBER] = draw.choice([0, 0, 5, -1, 2**40])
    state[compacting.R_LATEST] = draw.choice([2**62, 2, 0])
    state[compacting.R_HORIZON] = draw.choice([0, 2**41, -(2**62)])
    fates = place.output(max(0, count + draw.choice([0, 0, -1])), np.int64)
    fates[:] = [draw.getrandbits(6) for _ in fates]
    dead = place.output(draw.choice([0, 1, 2, 30]), np.uint8)
    dead[:] = np.frombuffer(draw.randbytes(len(dead)), np.uint8)
    out = place.output(draw.choice([0, 61, 200, 2 * buffer.size, 3 * buffer.size + 1000]), np.uint8)
    compacting.keep_records(buffer, table, fates, state, draw.random() < 0.3, dead, out)


def join_packed(given: Cases, place: Guarded) -> None:
    draw = given.random
    values = [draw.randbytes(draw.choice([0, 1, 31, 32, 255, 256, 300])) for _ in range(draw.randint(0, 20))]
    data = bytearray(b"".join(map(msgspec.msgpack.encode, values)))
    for _ in range(draw.randint(0, 3) if data else 0):
        data[draw.randrange(len(data))] = draw.choice([0, 0xC4, 0xC5, 0xC6, 0xFF])
    data += draw.choice([b"", b"", b"\xc4", b"\xc5\0", b"\xc6\0\0\0", b"\xc6\xff\xff\xff\xff"])
    buffer = place.output(len(data), np.uint8)
    buffer[:] = np.frombuffer(data, np.uint8)
    ends = place.output(max(0, len(values) + draw.choice([0, 1, 1, 3])), np.int32)
    packed.join_packed(buffer, draw.choice([0, 0, 2, -1]), len(data) + draw.choice([0, 0, -1, 9]), ends)


CALLS: list[Callable[[Cases, Guarded], None]] = [
    scan,
    find_batch,
    decode_records,
    decode_headers,
    find_record,
    find_by_time,
    encode_batches,
    checksum,
    first_bad_crc,
    outcomes_inside,
    compare_marks,
    hash_keys,
    index_keys,
    keep_records,
    join_packed,
]


def run(rounds: int, seed: int) -> None:
    """Calls every kernel so often; every fourth time with the forbidden page in front."""
    given, place = Cases(seed), Guarded()
    for number in range(rounds):
        for call in CALLS:
            place.begin(at_end=number % 4 != 3)
            call(given, place)


# ---- deliberately wrong --------------------------------------------------------------------------------------------------------


@kernel(INT64(BYTES, INT64))
def read_at(buffer: Any, index: int) -> int:
    return load8(address(buffer) + index)


@kernel(INT64(OUT_BYTES, INT64))
def write_at(buffer: Any, index: int) -> int:
    store8(address(buffer) + index, 1)
    return 0


def die(how: str) -> None:
    """Touches the last byte that may be touched, says so, and then the next one."""
    place = Guarded()
    place.begin(at_end=how != "before")
    inside, outside = (0, -1) if how == "before" else (99, 100)
    call, array = (write_at, place.output(100, np.uint8)) if how == "write" else (read_at, place.input(bytes(100)))
    call(array, inside)
    sys.stdout.write("inside\n")
    sys.stdout.flush()
    call(array, outside)


if __name__ == "__main__":
    if sys.argv[1] in ("read", "write", "before"):
        die(sys.argv[1])
    else:
        run(int(sys.argv[1]), int(sys.argv[2]))
