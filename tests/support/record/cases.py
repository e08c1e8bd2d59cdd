"""Inputs for the record kernels, true and damaged, and one way to call each kernel that turns its outputs into plain values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from hypothesis import strategies as st

from pylog.record import encoding, finding, kernels, record_headers
from pylog.record.format import COLUMN_COUNT
from support.reference import finding as reference_finding
from support.reference import records as reference
from support.reference.finding import Question
from support.reference.records import Batch, Column, HeaderPair, Input, Record, Rooms

# ---- where arrays lie ----------------------------------------------------------------------------------------------------------


class Place(Protocol):
    """Makes the arrays that a kernel is given."""

    def input(self, data: Any) -> Any: ...

    def output(self, shape: Any, kind: Any, fill: int = 0) -> Any: ...


class Heap:
    """Ordinary arrays."""

    def input(self, data: Any) -> Any:
        array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.array(data)
        array.flags.writeable = False
        return array

    def output(self, shape: Any, kind: Any, fill: int = 0) -> Any:
        return np.full(shape, fill, kind)


HEAP = Heap()

# ---- calling the kernels -------------------------------------------------------------------------------------------------------


def scan(
    data: bytes, position: int, end: int, *, verify: bool, capacity: int, place: Place = HEAP
) -> tuple[list[Column], int, int]:
    """(columns, where it stopped, status) of `scan_batches`."""
    table = place.output((COLUMN_COUNT, capacity), np.int64, -7)
    state = place.output(3, np.int64)
    state[:] = position, end, 0
    status = kernels.scan_batches(place.input(data), state, verify, table)
    return [Column(*column) for column in table[:, : state[2]].T.tolist()], int(state[0]), int(status)


def find_batch(
    data: bytes, position: int, end: int, first_offset: int, budget: int, *, place: Place = HEAP
) -> tuple[int, int | None]:
    """(status, position) of `find_batch`."""
    result = place.output(2, np.int64, -7)
    status = int(finding.find_batch(place.input(data), position, end, first_offset, budget, result))
    assert result[1] <= budget
    return status, None if status == kernels.NOT_FOUND else int(result[0])


class Decoded(NamedTuple):
    """What `decode_records` put out, as far as it vouches for it."""

    rows: list[tuple[Any, ...]]  # (offset, timestamp, key, value, headers_at), None where not wanted
    rows_before: list[int]
    stopped: int
    status: int
    nulls: tuple[int, int]


ALL = kernels.WANT_OFFSETS | kernels.WANT_KEYS | kernels.WANT_VALUES | kernels.WANT_HEADERS


def table_of(columns: Sequence[Column], place: Place = HEAP) -> Any:
    table = place.output((COLUMN_COUNT, len(columns)), np.int64)
    table[:] = np.array(columns, np.int64).reshape(len(columns), COLUMN_COUNT).T
    return table


class Outputs:
    """The outputs of `decode_records`, exactly as large as the rooms say; the state can be carried on."""

    def __init__(self, rooms: Rooms, wanted: int, place: Place = HEAP) -> None:
        rows = rooms.rows or 0
        keys, values = rooms.key_bytes or 0, rooms.value_bytes or 0
        self.wanted, self.place = wanted, place
        self.offsets = place.output(rows if wanted & kernels.WANT_OFFSETS else 0, np.int64)
        self.timestamps = place.output(rows if wanted & kernels.WANT_OFFSETS else 0, np.int64)
        self.key_ends = place.output(rows + 1 if wanted & kernels.WANT_KEYS else 0, np.int32)
        self.key_bytes = place.output(keys if wanted & kernels.WANT_KEYS else 0, np.uint8)
        self.key_valid = place.output(-(-rows // 8) if wanted & kernels.WANT_KEYS else 0, np.uint8, 255)
        self.value_ends = place.output(rows + 1 if wanted & kernels.WANT_VALUES else 0, np.int32)
        self.value_bytes = place.output(values if wanted & kernels.WANT_VALUES else 0, np.uint8)
        self.value_valid = place.output(-(-rows // 8) if wanted & kernels.WANT_VALUES else 0, np.uint8, 255)
        self.headers_at = place.output(rows if wanted & kernels.WANT_HEADERS else 0, np.int64)
        self.state = place.output(kernels.D_SIZE, np.int64)

    def decode(self, buffer: Any, table: Any, first: int, end: int) -> Decoded:
        before = self.place.output(table.shape[1], np.int64, -7)
        self.state[kernels.D_BATCH], self.state[kernels.D_END] = first, end
        status = kernels.decode_records(
            buffer,
            table,
            self.state,
            self.wanted,
            self.offsets,
            self.timestamps,
            self.key_ends,
            self.key_bytes,
            self.key_valid,
            self.value_ends,
            self.value_bytes,
            self.value_valid,
            self.headers_at,
            before,
        )
        stopped = int(self.state[kernels.D_BATCH])
        if status not in (kernels.OK, kernels.FULL):  # the rows before the damage are decoded again, up to there
            return Decoded([], before[first:stopped].tolist(), stopped, int(status), (0, 0))
        nulls = int(self.state[kernels.D_KEY_NULLS]), int(self.state[kernels.D_VALUE_NULLS])
        return Decoded(self.rows(), before[first:stopped].tolist(), stopped, int(status), nulls)

    def rows(self) -> list[tuple[Any, ...]]:
        count = int(self.state[kernels.D_ROWS])
        columns = [
            self.offsets[:count].tolist() or [None] * count,
            self.timestamps[:count].tolist() or [None] * count,
            binary(self.key_ends, self.key_bytes, self.key_valid, count) or [None] * count,
            binary(self.value_ends, self.value_bytes, self.value_valid, count) or [None] * count,
            self.headers_at[:count].tolist() or [None] * count,
        ]
        return list(zip(*columns, strict=True))


def binary(ends: Any, data: Any, valid: Any, count: int) -> list[bytes | None]:
    """The first values of a column in Arrow's form."""
    if not ends.size:
        return []
    bits = np.unpackbits(valid, bitorder="little")[:count]
    return [data[ends[i] : ends[i + 1]].tobytes() if bits[i] else None for i in range(count)]


def as_wanted(decoded: reference.Decoded, wanted: int) -> list[tuple[Any, ...]]:
    """The reference's rows with what was not asked for left out."""
    flags = [kernels.WANT_OFFSETS, kernels.WANT_OFFSETS, kernels.WANT_KEYS, kernels.WANT_VALUES, kernels.WANT_HEADERS]
    rows = [(row.offset, row.timestamp, row.key, row.value, row.headers_at) for row in decoded.rows]
    return [tuple(value if wanted & flag else None for value, flag in zip(row, flags, strict=True)) for row in rows]


class HeaderOutputs:
    """The outputs of `decode_headers`; the state can be carried on into larger ones."""

    def __init__(self, rows: int, headers: int, name_bytes: int, value_bytes: int, place: Place = HEAP) -> None:
        self.list_ends = place.output(rows + 1, np.int32)
        self.name_ends = place.output(headers + 1, np.int32)
        self.names = place.output(name_bytes, np.uint8)
        self.value_ends = place.output(headers + 1, np.int32)
        self.values = place.output(value_bytes, np.uint8)
        self.valid = place.output(-(-headers // 8), np.uint8, 255)
        self.state = place.output(6, np.int64)

    def decode(self, buffer: Any, positions: Any, first: int, end: int) -> int:
        self.state[:2] = first, end
        arrays = self.list_ends, self.name_ends, self.names, self.value_ends, self.values, self.valid
        return int(record_headers.decode_headers(buffer, positions, self.state, *arrays))

    def take(self, other: HeaderOutputs) -> None:
        """Goes on where smaller outputs were full."""
        self.state[:] = other.state
        for name in ("list_ends", "name_ends", "names", "value_ends", "values", "valid"):
            mine, old = getattr(self, name), getattr(other, name)
            mine[: old.size] = old

    def rows(self) -> list[tuple[HeaderPair, ...]]:
        done, count = int(self.state[0]), int(self.state[2])
        names = binary(self.name_ends, self.names, np.full(-(-count // 8), 255, np.uint8), count)
        values = binary(self.value_ends, self.values, self.valid, count)
        pairs: Any = list(zip(names, values, strict=True))
        return [tuple(pairs[self.list_ends[row] : self.list_ends[row + 1]]) for row in range(done)]


def find_record(
    data: bytes, index: Sequence[tuple[int, int]], question: Question, end: int, *, place: Place = HEAP
) -> tuple[int, reference_finding.Found | int]:
    """(status, record or where the search ended) of `find_record`."""
    return found_record(data, b"".join(struct.pack(">ii", *entry) for entry in index), len(index), question, end, place=place)


def found_record(
    data: bytes, index: bytes, count: int, question: Question, end: int, *, place: Place = HEAP
) -> tuple[int, reference_finding.Found | int]:
    """The same with an index of any bytes."""
    result = place.output(finding.F_SIZE, np.int64, -7)
    base, from_offset, offset, timestamp, controls = question
    arrays = place.input(data), place.input(index)
    return _found(int(finding.find_record(*arrays, count, base, from_offset, end, offset, timestamp, controls, result)), result)


def find_by_time(
    data: bytes, index: bytes, times: bytes, counts: tuple[int, int], question: Question, end: int, *, place: Place = HEAP
) -> tuple[int, reference_finding.Found | int]:
    """(status, record or where the search ended) of `find_by_time`, with indexes of any bytes."""
    result = place.output(finding.F_SIZE, np.int64, -7)
    base, _, offset, timestamp, _ = question
    arrays = place.input(data), place.input(index), counts[0], place.input(times), counts[1]
    return _found(int(finding.find_by_time(*arrays, base, end, offset, timestamp, result)), result)


def _found(status: int, result: Any) -> tuple[int, reference_finding.Found | int]:
    if status == kernels.OK:
        found = reference_finding.Found(*result.tolist())
        return status, found._replace(key_size=max(found.key_size, -1), value_size=max(found.value_size, -1))
    return status, int(result[finding.F_BATCH_AT])


class Columns(NamedTuple):
    """Records as the encoder takes them: timestamps, and two or four columns in Arrow's form."""

    timestamps: Any
    keys: tuple[Any, Any, Any]
    values: tuple[Any, Any, Any]
    header_ends: Any
    names: tuple[Any, Any, Any]
    header_values: tuple[Any, Any, Any]


def arrow_form(values: Sequence[bytes | None], place: Place = HEAP, *, lead: int = 0) -> tuple[Any, Any, Any]:
    """(ends, bytes, validity) of byte strings. With `lead`, the bytes begin with some that belong to nobody, as in a slice."""
    sizes = [len(value or b"") for value in values]
    ends = place.input(np.cumsum([lead, *sizes], dtype=np.int32))
    valid = np.packbits([value is not None for value in values], bitorder="little") if None in values else np.empty(0, np.uint8)
    return ends, place.input(b"\xee" * lead + b"".join(value or b"" for value in values)), place.input(valid)


def columns_of(inputs: Sequence[Input], place: Place = HEAP, *, lead: int = 0) -> Columns:
    pairs = [pair for given in inputs for pair in given.headers]
    return Columns(
        place.input(np.array([given.timestamp for given in inputs], np.int64)),
        arrow_form([given.key for given in inputs], place, lead=lead),
        arrow_form([given.value for given in inputs], place, lead=lead),
        place.input(np.cumsum([0, *(len(given.headers) for given in inputs)], dtype=np.int32)),
        arrow_form([name for name, _ in pairs], place, lead=lead),
        arrow_form([value for _, value in pairs], place, lead=lead),
    )


class Encoder:
    """Calls an encoder until every row is written, with outputs of the sizes given and larger ones where it asks for them."""

    def __init__(self, room: int, batches: int, place: Place = HEAP) -> None:
        self.room, self.batches, self.place = room, batches, place

    def encode(
        self, inputs: Sequence[Input], base_offset: int, epoch: int, attributes: int, batch_bytes: int, *, lead: int = 0
    ) -> tuple[list[bytes], list[Column]]:
        place, columns = self.place, columns_of(inputs, self.place, lead=lead)
        kernel = encoding.encode_batches_with_headers if any(given.headers for given in inputs) else encoding.encode_batches
        flat = (
            columns.timestamps,
            *columns.keys,
            *columns.values,
            columns.header_ends,
            *columns.names[:2],
            *columns.header_values,
        )
        state = place.output(encoding.E_SIZE, np.int64)
        state[encoding.E_END], state[encoding.E_OFFSET] = len(inputs), base_offset
        batches: list[bytes] = []
        found: list[Column] = []
        out = place.output(self.room, np.uint8)
        while state[encoding.E_ROW] < len(inputs):
            state[encoding.E_POSITION] = state[encoding.E_BATCHES] = 0
            table = place.output((COLUMN_COUNT, self.batches), np.int64, -7)
            status = kernel(out, state, batch_bytes, epoch, attributes, table, *flat)
            assert status in (kernels.OK, kernels.FULL)
            made = [Column(*column) for column in table[:, : state[encoding.E_BATCHES]].T.tolist()]
            found += made
            batches += [out[column.position : column.position + column.size].tobytes() for column in made]
            if not made:
                assert status == kernels.FULL
                assert state[encoding.E_NEEDED] > out.size
                out = place.output(int(state[encoding.E_NEEDED]), np.uint8)
        return batches, found


# ---- damage --------------------------------------------------------------------------------------------------------------------

LIES = (0, 1, -1, 2, -2, 7, 13, 14, 48, 49, 50, 61, 127, 128, 255, 2**15, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))
FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
KINDS = ("bit", "byte", "bytes", "cut", "field", "nudge", "varint", "insert", "drop")

Damage = tuple[str, int, int, int]  # a kind and three numbers, whatever they mean for it


def damaged(data: bytes, starts: Sequence[int], damage: Sequence[Damage], *, seal: bool) -> bytes:
    """Batches after some mutations. With `seal` every batch that still has its place gets a CRC that fits it."""
    changed = bytearray(data)
    for kind, a, b, c in damage:
        if changed:
            _damage(changed, starts, kind, a, b, c)
    if seal:
        for start in starts:
            size = 12 + int.from_bytes(changed[start + 8 : start + 12], "big", signed=True)
            if 61 <= size <= len(changed) - start:
                changed[start : start + size] = reference.resealed(bytes(changed[start : start + size]))
    return bytes(changed)


def _damage(data: bytearray, starts: Sequence[int], kind: str, a: int, b: int, c: int) -> None:
    at = a % len(data)
    match kind:
        case "bit":
            data[at] ^= 1 << b % 8
        case "byte":
            data[at] = b % 256
        case "bytes":
            data[at : at + 8] = b.to_bytes(16, "big")[8:][: len(data) - at]
        case "cut":
            del data[at:]
        case "insert":
            data[at:at] = b.to_bytes(16, "big")[: c % 16]
        case "drop":
            del data[at : at + c % 16]
        case "varint":  # somewhere a length, a delta or a count tells a lie
            lie = reference.varint_bytes(LIES[b % len(LIES)])
            data[at : at + len(lie)] = lie[: len(data) - at]
        case "field" | "nudge":
            field, width = FIELDS[b % len(FIELDS)]
            place = slice(starts[a % len(starts)] + field, starts[a % len(starts)] + field + width)
            if place.stop <= len(data):
                old = int.from_bytes(data[place], "big")
                value = LIES[c % len(LIES)] if kind == "field" else old + c % 5 - 2
                data[place] = (value % 2 ** (8 * width)).to_bytes(width, "big")


def overlong(base_offset: int, field: int, extra: int) -> bytes:
    """A batch whose only record agrees with itself, but has a field that reaches `extra` bytes beyond the batch's end."""
    lengths = [1 if place == field else 0 for place in range(5)]
    key, value, name, header = (reference.varint_bytes(3 + extra * lengths[place]) + b"abc" for place in range(4))
    body = b"\0\0\0" + key + value + reference.varint_bytes(1 + extra * lengths[4]) + name + header
    cut = [len(b"\0\0\0" + key), len(b"\0\0\0" + key + value), len(body) - len(header), len(body), len(body)][field]
    payload = reference.varint_bytes(cut + extra) + body[:cut]
    return Batch(payload=payload, base_offset=base_offset, count=1, last_offset_delta=0, base_timestamp=0).encoded()


# ---- strategies ----------------------------------------------------------------------------------------------------------------

PATTERN = bytes(range(1, 256)) * 2
SIZES = (0, 1, 2, 3, 5, 8, 31, 32, 33, 63, 64, 65, 255, 256, 257, 300)  # around the widths of varints and of vectors

# Chosen from few and not made byte by byte: what is drawn is what Hypothesis' time goes into.
payloads = st.sampled_from([None, *(PATTERN[size : 2 * size] for size in SIZES)])
header_pairs = st.sampled_from([(), (), (), ((b"", b""),), ((b"a", None),)]) | st.lists(
    st.tuples(st.sampled_from([b"", b"h", b"name", b"\xff" * 70]), payloads), max_size=3
).map(tuple)
timestamps = st.sampled_from([-1, 0, 1, 1000, 2**41, 2**62]) | st.integers(-1, 2**41)
attributes = st.sampled_from([0, 8, 16, 32, 48, 64, 72])
records = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 2, 70]), st.integers(-(2**42), 2**42), payloads, payloads, header_pairs), max_size=6
)


@st.composite
def batches(draw: st.DrawFn, most: int = 4, first_offset: int = 0) -> list[Batch]:
    """Batches in order, with gaps in and between them as compaction leaves them, empty ones among them."""
    made: list[Batch] = []
    offset = first_offset
    for _ in range(draw(st.integers(0, most))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 300]))
        made.append(draw(_batch(offset)))
        offset += (made[-1].last_offset_delta or 0) + 1
    return made


@st.composite
def _batch(draw: st.DrawFn, offset: int) -> Batch:
    delta = -draw(st.integers(0, 1))
    made: list[Record] = []
    for gap, stamp, key, value, headers in draw(records):
        delta = max(0, delta + gap)
        if not made or delta > made[-1].offset_delta:
            made.append(Record(delta, stamp, key, value, headers))
    last = max((record.offset_delta for record in made), default=0) + draw(st.sampled_from([0, 0, 5]))
    producer = draw(st.sampled_from([(-1, -1, -1), (7, 0, 0), (2**62, 32767, 2**31 - 2)]))
    return Batch(
        made,
        offset,
        draw(st.sampled_from([-1, 0, 5])),
        draw(attributes),
        draw(timestamps),
        draw(st.none() | timestamps),
        *producer,
        last_offset_delta=last,
    )


damage = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2**20), st.integers(0, 2**64), st.integers(0, 2**10)), min_size=1, max_size=4
)
inputs = st.lists(st.builds(Input, timestamps, payloads, payloads, header_pairs), max_size=12)


def joined(made: Sequence[Batch]) -> tuple[bytes, list[int]]:
    """The bytes of batches and where each begins."""
    encoded = [batch.encoded() for batch in made]
    starts = np.cumsum([0, *(len(part) for part in encoded)]).tolist()
    return b"".join(encoded), starts[:-1]


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    data, starts = joined(draw(batches()))
    return damaged(data, starts or [0], draw(damage), seal=draw(st.booleans()))
