"""What the kernels of `pylog.record` do, in plain Python over bytes and ints: the tests hold the two against each other.

Written from the storage format, not from the kernels. Batches are built here field by field too, lies included, so that no
test needs pylog's encoder to make what pylog's decoder is given.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pylog.record.kernels import (
    BAD_CRC,
    BAD_HEADER,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_RECORD,
    FULL,
    NOT_FOUND,
    NOT_PLAIN,
    OK,
    SLACK,
    TORN,
)

LARGEST_OFFSET = 1 << 62  # pylog's own bound on offsets: sums of two never overflow
HEADER_SIZE = 61
INT32_MAX = 2**31 - 1

HeaderPair = tuple[bytes, bytes | None]


# ---- integers --------------------------------------------------------------------------------------------------------------


def wrapped(value: int) -> int:
    """A sum as 64 bits hold it, in two's complement."""
    return (value + 2**63) % 2**64 - 2**63


def zigzag(value: int) -> int:
    """0, -1, 1, -2 become 0, 1, 2, 3 (storage-format 1.4.1)."""
    return -2 * value - 1 if value < 0 else 2 * value


def varint_bytes(value: int) -> bytes:
    """A signed value as a zig-zag varint."""
    return unsigned_varint_bytes(zigzag(value))


def unsigned_varint_bytes(bits: int) -> bytes:
    """Base 128, the least significant group first, the high bit saying that more follows."""
    groups = [bits % 128]
    while bits := bits // 128:
        groups.append(bits % 128)
    return bytes([group + 128 for group in groups[:-1]] + groups[-1:])


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """(value, next position), or None: the bytes end inside it, or it has more than ten. Bits beyond 64 are dropped (1.4.2).

    One reader serves both widths: a length in more than five bytes is allowed here, and refused only for what it says.
    """
    groups = []
    for position in range(at, min(at + 10, end)):
        groups.append(data[position] % 128)
        if data[position] < 128:
            bits = sum(group << 7 * index for index, group in enumerate(groups)) % 2**64
            return (-(bits + 1) // 2 if bits % 2 else bits // 2), position + 1
    return None


# ---- CRC-32C ---------------------------------------------------------------------------------------------------------------


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_OF_BYTE = [_crc_of_byte(byte) for byte in range(256)]


def crc32c(data: Iterable[int], before: int = 0) -> int:
    """Castagnoli's CRC, reflected (storage-format 1.3.1), behind bytes whose CRC is `before`."""
    register = before ^ 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ _CRC_OF_BYTE[(register ^ byte) & 255]
    return register ^ 0xFFFFFFFF


def checksum(data: bytes, position: int, end: int) -> int:
    """Of a range, cut to the data."""
    return crc32c(data[max(position, 0) : max(end, 0)])


# ---- building --------------------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """A record of a batch of magic 2, deltas as stored (storage-format 1.5)."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...] = ()


def sized(data: bytes | None) -> bytes:
    """Bytes behind their length; null is -1."""
    return varint_bytes(-1) if data is None else varint_bytes(len(data)) + data


def record_bytes(record: Record) -> bytes:
    headers = b"".join(sized(name) + sized(value) for name, value in record.headers)
    body = b"\0" + varint_bytes(record.timestamp_delta) + varint_bytes(record.offset_delta)
    body += sized(record.key) + sized(record.value) + varint_bytes(len(record.headers)) + headers
    return varint_bytes(len(body)) + body


@dataclass
class Batch:
    """A batch of magic 2. What is None follows from the records; what is given is written, true or not (storage-format 1.1)."""

    records: list[Record] = field(default_factory=list)
    base_offset: int = 0
    leader_epoch: int = -1
    attributes: int = 0
    base_timestamp: int = -1
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int | None = None
    count: int | None = None
    payload: bytes | None = None  # instead of the records: compressed, or broken

    def encoded(self) -> bytes:
        """The batch's bytes, its length and CRC true."""
        payload = b"".join(map(record_bytes, self.records)) if self.payload is None else self.payload
        largest = max((self.base_timestamp + record.timestamp_delta for record in self.records), default=self.base_timestamp)
        covered = struct.pack(
            ">hiqqqhii",
            self.attributes,
            max((record.offset_delta for record in self.records), default=0)
            if self.last_offset_delta is None
            else self.last_offset_delta,
            self.base_timestamp,
            largest if self.max_timestamp is None else self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(self.records) if self.count is None else self.count,
        )
        covered += payload
        head = struct.pack(">qiibI", self.base_offset, 9 + len(covered), self.leader_epoch, 2, crc32c(covered))
        return head + covered


def resealed(batch: bytes) -> bytes:
    """The batch with a CRC that is true for what it holds now."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


# ---- framing ---------------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """What `scan_batches` says of one batch, its fields in the order of the table's rows."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    count: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    magic: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    crc: int
    crc_state: int


def frame(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(status, size) of what begins at `at`: classified by its first 17 bytes (storage-format 1.1.1, 1.12)."""
    if end - at < 17:
        return TORN, 0
    length, _, magic = struct.unpack_from(">iiB", data, at + 8)
    if magic > 2:
        return BAD_MAGIC, 0
    if length < [14, 22, 49][magic]:  # the smallest entry of each format without its first 12 bytes
        return BAD_LENGTH, 0
    return (OK, 12 + length) if at + 12 + length <= end else (TORN, 0)


def column(data: bytes, at: int, size: int, *, verify: bool) -> Column | None:
    """A whole batch's column, None when its offsets or counts cannot be true."""
    base_offset, _, leader_epoch, magic = struct.unpack_from(">qiib", data, at)
    if not 0 <= base_offset <= LARGEST_OFFSET:
        return None
    if magic < 2:
        (crc, _, attributes) = struct.unpack_from(">IbB", data, at + 12)
        timestamp = struct.unpack_from(">q", data, at + 18)[0] if magic else -1
        return Column(at, size, base_offset, base_offset, -1, timestamp, timestamp, attributes, magic, -1, -1, -1, -1, crc, 2)
    crc, attributes, delta, base_ts, max_ts, producer, epoch, sequence, count = struct.unpack_from(">IHiqqqhii", data, at + 17)
    if delta < 0 or not 0 <= count <= delta + 1:
        return None
    state = 2 if not verify else int(crc32c(data[at + 21 : at + size]) == crc)
    last = base_offset + delta
    return Column(
        at, size, base_offset, last, count, base_ts, max_ts, attributes, 2, leader_epoch, producer, epoch, sequence, crc, state
    )


def scan_batches(data: bytes, position: int, end: int, *, verify: bool, capacity: int) -> tuple[list[Column], int, int]:
    """(columns, where the walk stops, status). Bytes that are no whole batch are noticed before a table without room."""
    columns: list[Column] = []
    end = min(end, len(data))
    while position < end:
        status, size = frame(data, position, end)
        if status == OK and len(columns) == capacity:
            status = FULL
        found = column(data, position, size, verify=verify) if status == OK else None
        if found is None:
            return columns, position, status or BAD_HEADER
        columns.append(found)
        position += size
    return columns, position, OK


def find_batch(data: bytes, position: int, end: int, first_offset: int, budget: int) -> tuple[int, int | None]:
    """(status, position) of the first place from which on a batch of the next 2^31 offsets stands whole.

    A batch of magic 2 must have a good CRC and a known codec; of the others only the framing and attributes are looked at.
    """
    end = min(end, len(data))
    for at in range(position, end - 25):
        status, size = frame(data, at, end)
        found = column(data, at, size, verify=False) if status == OK else None
        if found is None or not first_offset <= found.base_offset < first_offset + 2**31:
            continue
        if found.magic < 2 and found.attributes < 16:
            return NOT_PLAIN, at
        if found.magic == 2 and found.attributes % 8 <= 4:
            budget -= size
            if budget < 0:
                break
            if crc32c(data[at + 21 : at + size]) == found.crc:
                return OK, at
    return NOT_FOUND, None


# ---- records ---------------------------------------------------------------------------------------------------------------


class Cursor:
    """Reads a record's fields one after the other; ValueError says that it does not parse."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def varint(self) -> int:
        found = read_varint(self.data, self.at, self.end)
        if found is None:
            raise ValueError
        value, self.at = found
        return value

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.end - self.at:
            raise ValueError
        self.at += size
        return self.data[self.at - size : self.at]

    def nullable(self) -> bytes | None:
        """Bytes behind their length; any negative length is null (storage-format 1.5.1)."""
        size = self.varint()
        return None if size < 0 else self.take(size)

    def header(self) -> HeaderPair:
        return self.take(self.varint()), self.nullable()

    def headers(self) -> tuple[HeaderPair, ...]:
        count = self.varint()
        if not 0 <= count <= self.end - self.at:
            raise ValueError
        return tuple(self.header() for _ in range(count))


class Parsed(NamedTuple):
    """A record, where its fields begin in the data, and where the next record does."""

    record: Record
    key_at: int
    value_at: int
    headers_at: int
    end: int


def record_at(data: bytes, at: int, end: int) -> Cursor:
    """A cursor in the record that begins at `at`, after its attributes; it ends where the record does."""
    outer = Cursor(data, at, end)
    size = outer.varint()
    start = outer.at
    outer.take(size)
    cursor = Cursor(data, start, outer.at)
    cursor.take(1)
    return cursor


def parse_record(data: bytes, at: int, end: int) -> Parsed:
    """The record that begins at `at`: exactly as many bytes as its length says (storage-format 1.5.2)."""
    cursor = record_at(data, at, end)
    timestamp_delta, offset_delta = cursor.varint(), cursor.varint()
    key = cursor.nullable()
    key_at = cursor.at - len(key or b"")
    value = cursor.nullable()
    value_at, headers_at = cursor.at - len(value or b""), cursor.at
    headers = cursor.headers()
    if cursor.at != cursor.end:
        raise ValueError
    return Parsed(Record(offset_delta, timestamp_delta, key, value, headers), key_at, value_at, headers_at, cursor.end)


def parse_records(data: bytes, at: int, end: int, count: int, largest_delta: int) -> list[Parsed]:
    """All records of a payload: as many as the header says, up to the last byte, their offsets rising (1.5.4, 1.5.6)."""
    found: list[Parsed] = []
    previous = -1
    for _ in range(count):
        found.append(parse_record(data, at, end))
        if not previous < found[-1].record.offset_delta <= largest_delta:
            raise ValueError
        previous, at = found[-1].record.offset_delta, found[-1].end
    if count and at != end:  # behind a count of zero nobody looks
        raise ValueError
    return found


class Row(NamedTuple):
    """A record as it is handed out."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...]
    headers_at: int


class Rooms(NamedTuple):
    """How much the outputs take: rows, and bytes of keys and values; None where they are not wanted."""

    rows: int | None = None
    key_bytes: int | None = None
    value_bytes: int | None = None


UNBOUNDED = Rooms()


class Decoded(NamedTuple):
    """Rows of the batches before `stopped`; and how many rows lie before each batch."""

    rows: list[Row]
    rows_before: list[int]
    stopped: int
    status: int


def decode_records(data: bytes, columns: Sequence[Column], *, verify: bool, rooms: Rooms = UNBOUNDED) -> Decoded:
    """The rows of batches whose payloads lie plain in the data. What cannot be right ends it before that batch.

    A batch is begun only where its count and its whole size, with a vector's slack, are sure to fit.
    """
    rows: list[Row] = []
    before: list[int] = []
    for index, batch in enumerate(columns):
        status = _decodable(data, batch, rows, verify, rooms)
        found: list[Parsed] = []
        if status == OK:
            try:
                delta = batch.last_offset - batch.base_offset
                found = parse_records(data, batch.position + HEADER_SIZE, batch.position + batch.size, batch.count, delta)
            except ValueError:
                status = BAD_RECORD
        if status != OK:
            return Decoded(rows, before, index, status)
        before.append(len(rows))
        for parsed in found:
            key, value, headers = parsed.record[2:]
            offset = batch.base_offset + parsed.record.offset_delta
            rows.append(Row(offset, timestamp_of(batch, parsed.record), key, value, headers, parsed.headers_at))
    return Decoded(rows, before, len(columns), OK)


def _decodable(data: bytes, batch: Column, rows: list[Row], verify: bool, rooms: Rooms) -> int:
    inside = batch.position >= 0 and HEADER_SIZE <= batch.size <= len(data) - batch.position
    if not inside or not 0 <= batch.count <= batch.size:
        return BAD_HEADER
    wanted = [
        (len(rows) + batch.count, rooms.rows),
        (sum(len(row.key or b"") for row in rows) + batch.size + SLACK, rooms.key_bytes),
        (sum(len(row.value or b"") for row in rows) + batch.size + SLACK, rooms.value_bytes),
    ]
    if any(room is not None and needed > room for needed, room in wanted):
        return FULL
    if verify and crc32c(data[batch.position + 21 : batch.position + batch.size]) != checksum_field(data, batch.position):
        return BAD_CRC
    return OK


def checksum_field(data: bytes, position: int) -> int:
    """The CRC that a batch of magic 2 claims."""
    return int(struct.unpack_from(">I", data, position + 17)[0])


def first_bad_crc(data: bytes, columns: Sequence[Column], first: int, end: int) -> int:
    """The first of some batches, `first` to before `end`, that is not as its checksum says; `end` when there is none."""
    for number, batch in list(enumerate(columns))[first:end]:
        whole = batch.size >= HEADER_SIZE and batch.position + batch.size <= len(data)
        if not whole or checksum(data, batch.position + 21, batch.position + batch.size) != checksum_field(data, batch.position):
            return number
    return end


def compare_marks(
    data: bytes, columns: Sequence[Column], shift: int, marks: Sequence[tuple[int, int]], digest: int | None
) -> tuple[list[bool], int | None]:
    """Which marks (position in the file, CRC of the first 21 bytes of each batch up to there) are not what the batches say, and
    the CRC behind the last batch. None is one that is not known."""
    differ = []
    left = list(columns)
    reached = shift
    for position, expected in marks:
        while left and reached < position:
            digest, reached = _with_prefix(digest, data, left[0]), shift + left[0].position + left[0].size
            del left[0]
        differ.append(digest is not None and (reached, digest) != (position, expected))
        digest = expected
    for column in left:
        digest = _with_prefix(digest, data, column)
    return differ, digest


def _with_prefix(digest: int | None, data: bytes, column: Column) -> int | None:
    return None if digest is None else crc32c(data[column.position : column.position + 21], digest)


def timestamp_of(batch: Column, record: Record) -> int:
    """A LogAppendTime batch's largest for each of its records, else the base plus the delta (storage-format 1.6.2, 1.6.3)."""
    return batch.max_timestamp if batch.attributes & 8 else wrapped(batch.base_timestamp + record.timestamp_delta)


def decode_headers(data: bytes, positions: Sequence[int]) -> list[tuple[HeaderPair, ...]]:
    """The headers at each position; ValueError where they do not parse."""
    return [Cursor(data, position, len(data)).headers() for position in positions]


# ---- writing ---------------------------------------------------------------------------------------------------------------


class Input(NamedTuple):
    """A record to be written."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...] = ()


def encode_batches(
    inputs: Sequence[Input], base_offset: int, leader_epoch: int, attributes: int, batch_bytes: int
) -> list[bytes]:
    """Batches of records in order, each of at most `batch_bytes` record bytes or of a single record."""
    batches: list[bytes] = []
    first = 0
    while first < len(inputs):
        batch = Batch([], base_offset + first, leader_epoch, attributes, base_timestamp=inputs[first].timestamp)
        used = 0
        for delta, given in enumerate(inputs[first:]):
            record = Record(delta, given.timestamp - batch.base_timestamp, given.key, given.value, given.headers)
            used += len(record_bytes(record))
            if batch.records and used > batch_bytes:
                break
            batch.records.append(record)
        batches.append(batch.encoded())
        first += len(batch.records)
    return batches


def join_packed(data: bytes, position: int, end: int, count: int) -> tuple[int, list[int], bytes]:
    """(status, offsets, bytes) of so many byte strings of MessagePack's bin family from a position on."""
    data, at, found = data[: max(end, 0)], max(position, 0), [b""]
    for _ in range(count):
        if len(data) - at < 2:
            return TORN, [], b""
        width = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(data[at])
        if width is None:
            return BAD_RECORD, [], b""
        first = at + 1 + width
        at = first + int.from_bytes(data[at + 1 : first], "big")
        if at > len(data) or first > len(data):
            return TORN, [], b""
        found.append(data[first:at])
    return OK, list(itertools.accumulate(map(len, found))), b"".join(found)
