"""A program: the kernels that read files, on damaged inputs by the million, each beside a page that may not be touched.

In tests/, with pylog's sources on the path:

    python -m support.campaign.fuzz_pages run <first> <cases> <seed> <note>
        ends with SIGSEGV if a kernel leaves its arrays; the last number in the file `note` is then that of the case
    python -m support.campaign.fuzz_pages compare <cases> <seed>
        compares some of the same cases with `support.reference`

The loop over the cases is compiled too, or it would cost more than the kernels. What a case is follows from its number and
the seed alone.
"""

from __future__ import annotations

import json
import mmap
import sys
from typing import Any, Final

import numpy as np
from numba import njit

from pylog.index import entries
from pylog.record import finding, kernels, record_headers
from pylog.record.format import COLUMN_COUNT, COUNT, LAST_OFFSET, POSITION, SIZE
from support.record import cases as record_cases
from support.record.cases import ALL
from support.record.guard_pages import ROOM, Cases, Guarded
from support.reference import finding as reference_finding
from support.reference import records as reference
from support.reference.finding import Question
from support.reference.records import Rooms

LARGEST: Final = 6000  # bytes of an input
MOST_BATCHES: Final = 5
MOST_ROWS: Final = 60
NUMBERS: Final = np.array([value % (1 << 64) for value in record_cases.LIES], np.uint64)
FIELDS: Final = np.array(record_cases.FIELDS, np.int64)

SCAN, FIND_BATCH, DECODE, HEADERS = (
    kernels.scan_batches.compile(),
    finding.find_batch.compile(),
    kernels.decode_records.compile(),
    record_headers.decode_headers.compile(),
)
FIND_RECORD, FIND_BY_TIME, CHECKSUM = (
    finding.find_record.compile(),
    finding.find_by_time.compile(),
    kernels.checksum.compile(),
)
LOOKUP_OFFSET, LOOKUP_TIME, INDEX = (
    entries.lookup_offset.compile(),
    entries.lookup_timestamp.compile(),
    entries.index_batches.compile(),
)

# ---- a damaged input ---------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _next(state: Any) -> Any:
    """The next 64 random bits: splitmix64."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _draw(state: Any, count: int) -> int:
    return np.int64(_next(state) % np.uint64(max(count, 1)))


@njit(cache=True)
def _put(out: Any, at: int, width: int, value: Any) -> None:
    """A big-endian number, as far as there is room for it."""
    for byte in range(width):
        if at + byte < out.size:
            out[at + byte] = np.uint8((value >> np.uint64(8 * (width - 1 - byte))) & np.uint64(255))


@njit(cache=True)
def _put_varint(out: Any, at: int, value: Any) -> None:
    while at < out.size:
        low = value & np.uint64(127)
        value >>= np.uint64(7)
        out[at] = np.uint8(low | (np.uint64(128) if value else np.uint64(0)))
        at += 1
        if not value:
            return


@njit(cache=True)
def _size_at(data: Any, at: int) -> int:
    """What the batch at a position says that it takes; 0 when there is none."""
    if data.size - at < 61:
        return 0
    length = np.int64(0)
    for byte in range(8, 12):
        length = length << 8 | np.int64(data[at + byte])
    return length + 12 if 49 <= length <= data.size - at - 12 else 0


@njit(cache=True)
def _mutate(state: Any, data: Any) -> int:
    """One change; returns the new size."""
    kind, at = _draw(state, 8), _draw(state, data.size)
    if kind == 0:
        data[at] ^= np.uint8(1 << _draw(state, 8))
    elif kind == 1:
        data[at] = np.uint8(_draw(state, 256))
    elif kind == 2:
        _put(data, at, 8, _next(state))
    elif kind == 3:
        _put_varint(data, at, NUMBERS[_draw(state, NUMBERS.size)])
    elif kind == 4:
        return at
    elif kind == 5:
        source = _draw(state, data.size)
        for byte in range(min(_draw(state, 300), data.size - max(at, source))):
            data[at + byte] = data[source + byte]
    else:  # a field of a header
        batch = 0
        while _draw(state, 2) and _size_at(data, batch):
            batch += _size_at(data, batch)
        field = _draw(state, len(FIELDS))
        _put(data, batch + FIELDS[field, 0], FIELDS[field, 1], NUMBERS[_draw(state, NUMBERS.size)])
    return data.size


@njit(cache=True)
def _reseal(data: Any) -> None:
    """Gives each batch a checksum that fits it."""
    at = 0
    while _size_at(data, at):
        size = _size_at(data, at)
        _put(data, at + 17, 4, np.uint64(CHECKSUM(data, at + 21, at + size)))
        at += size


@njit(cache=True)
def make(state: Any, corpus: Any, ends: Any, out: Any, damaged: bool) -> Any:
    """An input in a part of `out`, true or with up to four changes."""
    which = _draw(state, ends.size)
    start = ends[which - 1] if which else 0
    data = out[: ends[which] - start]
    data[:] = corpus[start : ends[which]]
    if damaged:
        for _ in range(_draw(state, 5)):
            if data.size:
                data = data[: _mutate(state, data)]
        if _draw(state, 5) < 2:
            _reseal(data)
    return data


# ---- one call of each kernel -------------------------------------------------------------------------------------------------


# What kernels are given lies in rooms between two forbidden pages. All rooms are one tuple (numba caches no code for named ones):
CORPUS: Final = 0  # the true inputs one after the other
ENDS: Final = 1  # where each ends
SCRATCH: Final = 2  # an ordinary array, in which inputs are made
DATA: Final = 3  # what is read …
INDEX_DATA: Final = 4
SEEN: Final = 5
OUT_BYTES: Final = 6  # … and what is written, several rooms of each kind
OUT_INTS: Final = 7
OUT_LONGS: Final = 8
STATE: Final = 9
PLACES: Final = 10
TABLES: Final = 11


@njit(cache=True)
def _piece(room: Any, count: int, at_end: bool) -> Any:
    """So many items of a room, at that end of it which is beside a forbidden page."""
    count = min(max(count, 0), room.size)
    return room[room.size - count :] if at_end else room[:count]


@njit(cache=True)
def _zeros(room: Any, count: int, at_end: bool) -> Any:
    there = _piece(room, count, at_end)
    there[:] = 0
    return there


@njit(cache=True)
def _input(state: Any, arrays: Any, room: Any, damaged: bool, at_end: bool) -> Any:
    data = make(state, arrays[CORPUS], arrays[ENDS], arrays[SCRATCH], damaged)
    there = _piece(room, data.size, at_end)
    there[:] = data
    return there


@njit(cache=True)
def _end(state: Any, size: int) -> int:
    """An end that a caller may give: the true one, one before it, one far behind."""
    return size + (0, 0, 0, -1, -20, 1, 1000)[_draw(state, 7)]


@njit(cache=True)
def _scan(state: Any, arrays: Any, at_end: bool) -> int:
    data = _input(state, arrays, arrays[DATA], True, at_end)
    place = _zeros(arrays[STATE], 3, at_end)
    if _draw(state, 3) == 0:
        place[0] = _draw(state, data.size + 1)
    place[1] = _end(state, data.size)
    return SCAN(data, place, _draw(state, 2) == 1, arrays[TABLES][_draw(state, len(arrays[TABLES]))])


@njit(cache=True)
def _find_batch(state: Any, arrays: Any, at_end: bool) -> int:
    data = _input(state, arrays, arrays[DATA], True, at_end)
    budget = (1 << 40, 300)[_draw(state, 2)]
    result = _zeros(arrays[OUT_LONGS][0], 2, at_end)
    return FIND_BATCH(data, _draw(state, data.size + 1), _end(state, data.size), _draw(state, 3), budget, result)


@njit(cache=True)
def _table(state: Any, data: Any, arrays: Any) -> Any:
    """A table of the batches in some bytes, now and then with a lie; and how many it has."""
    table = arrays[TABLES][_draw(state, len(arrays[TABLES]))]
    table[:, :] = 0
    place = _zeros(arrays[STATE], 3, True)
    place[1] = data.size
    SCAN(data, place, False, table)
    count = place[2]
    if count and _draw(state, 10) == 0:
        row = (POSITION, SIZE, COUNT, LAST_OFFSET)[_draw(state, 4)]
        table[row, _draw(state, count)] = np.int64(NUMBERS[_draw(state, NUMBERS.size)])
    return table, count


@njit(cache=True)
def _decode(state: Any, arrays: Any, at_end: bool) -> int:
    """Batches as they were scanned, or with changes since then."""
    data = _input(state, arrays, arrays[DATA], _draw(state, 2) == 1, at_end)
    table, count = _table(state, data, arrays)
    if data.size and _draw(state, 4) == 0:
        for _ in range(3):
            data[_draw(state, data.size)] ^= np.uint8(1 << _draw(state, 8))
    return _decoded(state, data, table, count, arrays, at_end, _draw(state, 32))


@njit(cache=True)
def _decoded(state: Any, data: Any, table: Any, count: int, arrays: Any, at_end: bool, wanted: int) -> int:
    """Decodes the batches of a table into outputs that are as large as they must be, or smaller."""
    rows = np.int64(0)
    for batch in range(count):
        rows += min(max(table[COUNT, batch], 0), MOST_ROWS)
    rows += (0, 0, -1)[_draw(state, 3)]
    size = data.size + kernels.SLACK * count + (0, 0, -40)[_draw(state, 3)]
    place = _zeros(arrays[STATE], kernels.D_SIZE, at_end)
    place[kernels.D_END] = count
    return DECODE(
        data,
        table,
        place,
        wanted,
        _piece(arrays[OUT_LONGS][0], rows, at_end),
        _piece(arrays[OUT_LONGS][1], rows, at_end),
        _piece(arrays[OUT_INTS][0], rows + 1, at_end),
        _piece(arrays[OUT_BYTES][0], size, at_end),
        _piece(arrays[OUT_BYTES][1], (rows + 7) // 8, at_end),
        _piece(arrays[OUT_INTS][1], rows + 1, at_end),
        _piece(arrays[OUT_BYTES][2], size, at_end),
        _piece(arrays[OUT_BYTES][3], (rows + 7) // 8, at_end),
        _piece(arrays[OUT_LONGS][2], rows, at_end),
        _piece(arrays[OUT_LONGS][3], table.shape[1], at_end),
    )


@njit(cache=True)
def _headers(state: Any, arrays: Any, at_end: bool) -> int:
    """Headers at places where some stood before the damage."""
    before = _input(state, arrays, arrays[SEEN], False, True)
    table, count = _table(state, before, arrays)
    _decoded(state, before, table, count, arrays, True, ALL)
    found = arrays[STATE][arrays[STATE].size - kernels.D_SIZE + kernels.D_ROWS]
    data = _input(state, arrays, arrays[DATA], True, at_end) if _draw(state, 2) else before
    places = _piece(arrays[PLACES], min(max(found, 0), MOST_ROWS), at_end)
    seen = _piece(arrays[OUT_LONGS][2], places.size, True)
    for row in range(places.size):
        places[row] = min(max(seen[row], 0), data.size)
    place = _zeros(arrays[STATE], 6, at_end)
    place[1] = places.size
    headers = _draw(state, 20)
    return HEADERS(
        data,
        places,
        place,
        _piece(arrays[OUT_INTS][0], places.size + 1, at_end),
        _piece(arrays[OUT_INTS][1], headers + 1, at_end),
        _piece(arrays[OUT_BYTES][0], _draw(state, 300), at_end),
        _piece(arrays[OUT_INTS][2], headers + 1, at_end),
        _piece(arrays[OUT_BYTES][1], _draw(state, 2000), at_end),
        _piece(arrays[OUT_BYTES][2], (headers + 7) // 8, at_end),
    )


@njit(cache=True)
def _index_of_places(state: Any, arrays: Any, size: int, at_end: bool) -> Any:
    """An offset index of any bytes, or one that leads to any places."""
    index = _piece(arrays[INDEX_DATA], _draw(state, 41), at_end)
    for byte in range(index.size):
        index[byte] = np.uint8(_draw(state, 256))
    if _draw(state, 2):
        for entry in range(index.size // 8):
            _put(index, 8 * entry, 4, np.uint64(entry))
            _put(index, 8 * entry + 4, 4, np.uint64(_draw(state, size + 2)))
    return index


@njit(cache=True)
def _find_record(state: Any, arrays: Any, at_end: bool) -> int:
    """A record, by means of an index of any bytes, or of one that leads to any places."""
    data = _input(state, arrays, arrays[DATA], True, at_end)
    index = _index_of_places(state, arrays, data.size, at_end)
    count = (index.size // 8, 100, -1)[_draw(state, 3)]
    timestamp = (-(1 << 63), 0, 1 << 40)[_draw(state, 3)]
    result = _zeros(arrays[OUT_LONGS][0], finding.F_SIZE, at_end)
    wanted, offset, controls = _draw(state, 15), _draw(state, 15), _draw(state, 2) == 1
    return FIND_RECORD(data, index, count, 0, wanted, _end(state, data.size), offset, timestamp, controls, result)


@njit(cache=True)
def _find_by_time(state: Any, arrays: Any, at_end: bool) -> int:
    """The same, with a time index of any bytes, of true times, or without entries."""
    data = _input(state, arrays, arrays[DATA], True, at_end)
    index = _index_of_places(state, arrays, data.size, at_end)
    times = _piece(arrays[OUT_BYTES][0], _draw(state, 41), at_end)
    for byte in range(times.size):
        times[byte] = np.uint8(_draw(state, 256))
    if _draw(state, 2):
        for entry in range(times.size // 12):
            _put(times, 12 * entry, 8, np.uint64(_draw(state, 3)))
            _put(times, 12 * entry + 8, 4, np.uint64(_draw(state, 15)))
    count = (index.size // 8, 100, -1)[_draw(state, 3)]
    time_count = (times.size // 12, 100, 0)[_draw(state, 3)]
    timestamp = (-(1 << 63), 0, 1 << 40)[_draw(state, 3)]
    result = _zeros(arrays[OUT_LONGS][0], finding.F_SIZE, at_end)
    end, offset = _end(state, data.size), _draw(state, 15)
    return FIND_BY_TIME(data, index, count, times, time_count, 0, end, offset, timestamp, result)


@njit(cache=True)
def _checksum(state: Any, arrays: Any, at_end: bool) -> int:
    data = _input(state, arrays, arrays[DATA], False, at_end)
    CHECKSUM(data, np.int64(_next(state)) >> _draw(state, 64), np.int64(_next(state)) >> _draw(state, 64))
    return CHECKSUM(data, _draw(state, data.size), _end(state, data.size)) & 1


@njit(cache=True)
def _look_up(state: Any, arrays: Any, at_end: bool) -> int:
    """Searches in bytes that are taken for an index."""
    data = _input(state, arrays, arrays[DATA], True, at_end)
    count, key = _draw(state, data.size // 8 + 3) - 1, np.int64(NUMBERS[_draw(state, NUMBERS.size)])
    base = _draw(state, 1000)
    return (LOOKUP_OFFSET(data, count, base, key)[1] + LOOKUP_TIME(data, count, base, key)[1]) & 1


@njit(cache=True)
def _index(state: Any, arrays: Any, at_end: bool) -> int:
    """Index entries of a table, into small outputs."""
    table, count = _table(state, _input(state, arrays, arrays[DATA], True, at_end), arrays)
    place = _zeros(arrays[STATE], entries.STATE_SIZE, at_end)
    place[entries.BYTES_SINCE_ENTRY] = _draw(state, 300)
    offsets = _piece(arrays[OUT_BYTES][0], _draw(state, 30), at_end)
    times = _piece(arrays[OUT_BYTES][1], _draw(state, 30), at_end)
    INDEX(table, 0, count + _draw(state, 2), _draw(state, 1000), _draw(state, 3), _draw(state, 200), place, offsets, times)
    return place[entries.STATUS]


@njit(cache=True)
def _call(kernel: int, state: Any, arrays: Any, at_end: bool) -> int:
    if kernel == 0:
        return _scan(state, arrays, at_end)
    if kernel == 1:
        return _find_batch(state, arrays, at_end)
    if kernel == 2:
        return _decode(state, arrays, at_end)
    if kernel == 3:
        return _headers(state, arrays, at_end)
    if kernel == 4:
        return _find_record(state, arrays, at_end)
    if kernel == 5:
        return _checksum(state, arrays, at_end)
    if kernel == 6:
        return _look_up(state, arrays, at_end)
    if kernel == 7:
        return _find_by_time(state, arrays, at_end)
    return _index(state, arrays, at_end)


NAMES: Final = ("scan", "find_batch", "decode", "headers", "find_record", "checksum", "look_up", "find_by_time", "index")


@njit(cache=True)
def run(first: int, cases: int, seed: int, arrays: Any, note: Any, answers: Any) -> None:
    """So many cases, from a number on; `answers` counts what each kernel answered."""
    state = np.zeros(1, np.uint64)
    for case in range(first, first + cases):
        note[0] = case
        state[0] = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(case)
        kernel = case % len(NAMES)
        answers[kernel, _call(kernel, state, arrays, _draw(state, 4) != 0)] += 1


# ---- the program -------------------------------------------------------------------------------------------------------------


def corpus_of(seed: int) -> tuple[Any, Any]:
    """Inputs as they should be, and where each ends."""
    made = [data for data, _ in Cases(seed).true if 0 < len(data) <= LARGEST]
    return np.frombuffer(b"".join(made), np.uint8), np.cumsum([len(data) for data in made])


def run_cases(first: int, cases: int, seed: int, note: Any) -> dict[str, list[int]]:
    """Runs cases; returns for each kernel how often it gave each answer."""
    corpus, ends = corpus_of(seed)
    place, more = Guarded(), Guarded()

    def rooms(count: int, kind: type) -> tuple[Any, ...]:
        return tuple(place.output(ROOM // np.dtype(kind).itemsize, kind) for _ in range(count))

    arrays = (
        corpus,
        ends,
        np.empty(2 * LARGEST, np.uint8),
        *rooms(3, np.uint8),
        rooms(4, np.uint8),
        rooms(3, np.int32),
        rooms(4, np.int64),
        *rooms(2, np.int64),
        tuple(more.output((COLUMN_COUNT, batches), np.int64) for batches in range(1, MOST_BATCHES + 1)),
    )
    answers = np.zeros((len(NAMES), 10), np.int64)
    run(first, cases, seed, arrays, note, answers)
    return dict(zip(NAMES, answers.tolist(), strict=True))


def compare(cases: int, seed: int) -> None:
    """Damaged inputs of those that `run` makes, read by the kernels and by their plain meaning."""
    corpus, ends = corpus_of(seed)
    state, out = np.zeros(1, np.uint64), np.empty(2 * LARGEST, np.uint8)
    for case in range(cases):
        state[0] = seed * 1_000_003 + case
        data = make(state, corpus, ends, out, True).tobytes()
        size, verify, capacity = len(data), bool(case & 1), case % 4 + 1
        expected = reference.scan_batches(data, 0, size, verify=verify, capacity=capacity)
        assert record_cases.scan(data, 0, size, verify=verify, capacity=capacity) == expected, case
        columns, rooms = expected[0], Rooms(MOST_ROWS, 4 * size + 999, 4 * size + 999)
        decoded = reference.decode_records(data, columns, verify=verify, rooms=rooms)
        outputs = record_cases.Outputs(rooms, ALL | (kernels.VERIFY_CRC if verify else 0))
        found = outputs.decode(record_cases.HEAP.input(data), record_cases.table_of(columns), 0, len(columns))
        assert (found.stopped, found.status, found.rows_before) == (decoded.stopped, decoded.status, decoded.rows_before), case
        if found.status in (kernels.OK, kernels.FULL):
            assert found.rows == record_cases.as_wanted(decoded, ALL), case
        assert record_cases.find_batch(data, 0, size, 0, 1 << 40) == reference.find_batch(data, 0, size, 0, 1 << 40), case
        question = Question(0, case % 13, case % 13)
        assert record_cases.find_record(data, [], question, size) == reference_finding.find_record(data, [], question, size), case


def main(action: str, *arguments: str) -> None:
    if action == "compare":
        compare(*map(int, arguments))
        return
    with open(arguments[3], "r+b") as file:
        note = np.frombuffer(mmap.mmap(file.fileno(), 16), np.int64)
        sys.stdout.write(json.dumps(run_cases(int(arguments[0]), int(arguments[1]), int(arguments[2]), note)))


if __name__ == "__main__":
    main(*sys.argv[1:])
