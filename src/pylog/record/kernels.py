"""The hot loops: free functions over whole buffers, compiled when first called.

A kernel receives `(buffer, position, end)` in some form. It compares with the end before every read (`length > end - at`, never
`at + length > end`), returns a status, allocates nothing and never raises. `tests/support/reference` has an equivalent of each in
plain Python.
"""

from __future__ import annotations

from typing import Any, Final

from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_ABORT,
    CONTROL_BIT,
    CONTROL_COMMIT,
    COUNT,
    CRC,
    CRC_BAD,
    CRC_GOOD,
    CRC_STATE,
    CRC_UNCHECKED,
    HEADER_SIZE,
    LARGEST_MARKER,
    LAST_OFFSET,
    LEADER_EPOCH,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PREFIX_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.record.kernel import inlined, kernel
from pylog.record.memory import (
    FAR,
    LINE,
    address,
    be16,
    be32,
    be64,
    clear_bit,
    copy,
    crc32c,
    crc32c_on,
    i64,
    load8,
    prefetch,
    store32,
    store64,
    u64,
    varint,
)
from pylog.record.signatures import BOOLEAN, BYTES, INT64, OUT_BYTES, OUT_INTS, OUT_LONGS, OUT_TABLE

# Statuses that kernels return.
OK: Final = 0  # the region was used up: no fault
FULL: Final = 1  # the output has no room for the next batch or record
TORN: Final = 2  # the region ends inside a batch
BAD_LENGTH: Final = 3  # a length field that no batch can have
BAD_MAGIC: Final = 4  # a format that is not 0, 1 or 2
BAD_HEADER: Final = 5  # negative offsets or counts
BAD_CRC: Final = 6
BAD_RECORD: Final = 7  # the records inside a batch do not parse
NOT_PLAIN: Final = 8  # a compressed or legacy batch, which this kernel cannot decode
NOT_FOUND: Final = 9

SLACK: Final = 32  # bytes after a field that vector copies may touch


# ---- framing -----------------------------------------------------------------------------------------------------------------


@inlined
def frame(at, end):  # type: ignore[no-untyped-def]
    """Returns (status, size) of the batch at an address: storage-format 1.12, with stricter limits."""
    if end - at < 17:
        return TORN, 0
    length = be32(at + 8)
    magic = i64(load8(at + 16))
    if magic > 2:
        return BAD_MAGIC, 0
    if length < (49 if magic == 2 else 22 if magic == 1 else 14):
        return BAD_LENGTH, 0
    if length > end - at - 12:
        return TORN, 0
    return OK, length + 12


@inlined
def good_crc(at, end):  # type: ignore[no-untyped-def]
    return (be32(at + 17) & 0xFFFFFFFF) == crc32c(at + 21, end)


@inlined
def header_status(at):  # type: ignore[no-untyped-def]
    """Returns whether offsets and counts of a batch of magic 2 are possible."""
    base = be64(at)
    delta = be32(at + 23)
    count = be32(at + 57)
    if base < 0 or delta < 0 or count < 0 or count - 1 > delta or base > (1 << 62):
        return BAD_HEADER
    return OK


@kernel(INT64(BYTES, OUT_LONGS, BOOLEAN, OUT_TABLE), pure="pylog.record.pure:scan_batches")
def scan_batches(buffer: Any, state: Any, verify: bool, table: Any) -> int:
    """Fills one column of `table` per batch. state = [position, end, columns filled], advanced past the filled batches."""
    start = address(buffer)
    at = start + state[0]
    end = start + min(state[1], buffer.size)
    n = state[2]
    status = OK
    while at < end:
        status, size = frame(at, end)
        if status != OK:
            break
        if n >= table.shape[1]:
            status = FULL
            break
        magic = i64(load8(at + 16))
        if magic == 2:
            status = header_status(at)
            if status != OK:
                break
            table[BASE_OFFSET, n] = be64(at)
            table[LAST_OFFSET, n] = be64(at) + be32(at + 23)
            table[COUNT, n] = be32(at + 57)
            table[BASE_TIMESTAMP, n] = be64(at + 27)
            table[MAX_TIMESTAMP, n] = be64(at + 35)
            table[ATTRIBUTES, n] = be16(at + 21) & 0xFFFF
            table[LEADER_EPOCH, n] = be32(at + 12)
            table[PRODUCER_ID, n] = be64(at + 43)
            table[PRODUCER_EPOCH, n] = be16(at + 51)
            table[BASE_SEQUENCE, n] = be32(at + 53)
            table[CRC, n] = be32(at + 17) & 0xFFFFFFFF
            state_of_crc = CRC_UNCHECKED
            if verify:
                state_of_crc = CRC_GOOD if good_crc(at, at + size) else CRC_BAD
            table[CRC_STATE, n] = state_of_crc
        else:
            if be64(at) < 0 or be64(at) > (1 << 62):
                status = BAD_HEADER
                break
            table[BASE_OFFSET, n] = be64(at)
            table[LAST_OFFSET, n] = be64(at)
            table[COUNT, n] = -1
            table[BASE_TIMESTAMP, n] = be64(at + 18) if magic == 1 else -1
            table[MAX_TIMESTAMP, n] = be64(at + 18) if magic == 1 else -1
            table[ATTRIBUTES, n] = i64(load8(at + 17))
            table[LEADER_EPOCH, n] = -1
            table[PRODUCER_ID, n] = -1
            table[PRODUCER_EPOCH, n] = -1
            table[BASE_SEQUENCE, n] = -1
            table[CRC, n] = be32(at + 12) & 0xFFFFFFFF
            table[CRC_STATE, n] = CRC_UNCHECKED
        table[POSITION, n] = at - start
        table[SIZE, n] = size
        table[MAGIC, n] = magic
        n += 1
        at += size
    state[0] = at - start
    state[2] = n
    return status


# ---- reading -----------------------------------------------------------------------------------------------------------------


@inlined
def headers_end(at, end):  # type: ignore[no-untyped-def]
    """Returns the address after a record's headers, FAR if they are malformed (storage-format 1.5.1)."""
    count, at = varint(at, end)
    if at > end or count < 0 or count > end - at:
        return i64(FAR)
    for _ in range(count):
        size, at = varint(at, end)
        if at > end or size < 0 or size > end - at:
            return i64(FAR)
        size, at = varint(at + size, end)
        if at > end or size > end - at:
            return i64(FAR)
        at += max(size, 0)
    return at


# The outputs requested of decode_records: a sum of these.
WANT_OFFSETS: Final = 1  # offsets and timestamps
WANT_KEYS: Final = 2
WANT_VALUES: Final = 4
WANT_HEADERS: Final = 8  # the position of each record's headers; decode_headers reads them
VERIFY_CRC: Final = 16

# The state of decode_records.
D_BATCH: Final = 0  # next column of the table
D_END: Final = 1  # column at which to stop
D_ROWS: Final = 2
D_KEY_BYTES: Final = 3
D_VALUE_BYTES: Final = 4
D_KEY_NULLS: Final = 5
D_VALUE_NULLS: Final = 6
D_WITH_HEADERS: Final = 7  # rows that have headers
D_SIZE: Final = 8


@kernel(
    INT64(
        BYTES,
        OUT_TABLE,
        OUT_LONGS,
        INT64,
        OUT_LONGS,
        OUT_LONGS,
        OUT_INTS,
        OUT_BYTES,
        OUT_BYTES,
        OUT_INTS,
        OUT_BYTES,
        OUT_BYTES,
        OUT_LONGS,
        OUT_LONGS,
    ),
    pure="pylog.record.pure:decode_records",
)
def decode_records(
    buffer: Any,
    table: Any,
    state: Any,
    wanted: int,
    offsets: Any,
    timestamps: Any,
    key_ends: Any,
    key_bytes: Any,
    key_valid: Any,
    value_ends: Any,
    value_bytes: Any,
    value_valid: Any,
    headers_at: Any,
    rows_before: Any,
) -> int:
    """Decodes the batches of a table into Arrow's buffers, whole batches only; the payloads are uncompressed in `buffer`.

    `wanted` is a sum of WANT_*; other outputs may be empty. `rows_before[i]` becomes the number of rows before batch i.
    """
    start = address(buffer)
    limit = start + buffer.size
    out_offsets = address(offsets)
    out_timestamps = address(timestamps)
    out_key_ends = address(key_ends)
    out_keys = address(key_bytes)
    out_key_valid = address(key_valid)
    out_value_ends = address(value_ends)
    out_values = address(value_bytes)
    out_value_valid = address(value_valid)
    out_headers = address(headers_at)
    want_offsets = (wanted & WANT_OFFSETS) != 0
    want_keys = (wanted & WANT_KEYS) != 0
    want_values = (wanted & WANT_VALUES) != 0
    want_headers = (wanted & WANT_HEADERS) != 0
    verify = (wanted & VERIFY_CRC) != 0
    batch = state[D_BATCH]
    row = state[D_ROWS]
    key_end = state[D_KEY_BYTES]
    value_end = state[D_VALUE_BYTES]
    key_nulls = state[D_KEY_NULLS]
    value_nulls = state[D_VALUE_NULLS]
    with_headers = state[D_WITH_HEADERS]
    status = OK
    while batch < min(state[D_END], table.shape[1]):
        position = table[POSITION, batch]
        size = table[SIZE, batch]
        count = table[COUNT, batch]
        if position < 0 or size < HEADER_SIZE or size > buffer.size - position or count < 0 or count > size:
            status = BAD_HEADER
            break
        at = start + position
        end = at + size
        if (
            (want_offsets and row + count > offsets.size)
            or (want_keys and (row + count >= key_ends.size or key_end + size + SLACK > key_bytes.size))
            or (want_values and (row + count >= value_ends.size or value_end + size + SLACK > value_bytes.size))
            or (want_headers and row + count > headers_at.size)
        ):
            status = FULL
            break
        if verify and not good_crc(at, end):
            status = BAD_CRC
            break
        base = table[BASE_OFFSET, batch]
        delta_end = table[LAST_OFFSET, batch] - base
        base_timestamp = table[BASE_TIMESTAMP, batch]
        appended = (table[ATTRIBUTES, batch] & LOG_APPEND_TIME_BIT) != 0
        if appended:
            base_timestamp = table[MAX_TIMESTAMP, batch]
        slack = limit - end >= SLACK
        ahead = size
        rows_before[batch] = row
        previous = i64(-1)
        q = at + HEADER_SIZE
        for _ in range(count):
            size, q = varint(q, end)
            if q > end or size < 1 or size > end - q:
                status = BAD_RECORD
                break
            record_end = q + size
            prefetch(q + ahead)  # the same position in the next batch, whose checksum would otherwise wait for memory
            prefetch(q + ahead + LINE)
            timestamp_delta, q = varint(q + 1, record_end)
            offset_delta, q = varint(q, record_end)
            size, q = varint(q, record_end)
            if q > record_end or size > record_end - q or offset_delta <= previous or offset_delta > delta_end:
                status = BAD_RECORD
                break
            previous = offset_delta
            if want_keys:
                store32(out_key_ends + row * 4, key_end)
            if size > 0:
                if want_keys:
                    copy(out_keys + key_end, q, size, slack)
                    key_end += size
                q += size
            elif size < 0:
                key_nulls += 1
                if want_keys:
                    clear_bit(out_key_valid, row)
            size, q = varint(q, record_end)
            if q >= record_end or size > record_end - q:
                status = BAD_RECORD
                break
            if want_values:
                store32(out_value_ends + row * 4, value_end)
            if size > 0:
                if want_values:
                    copy(out_values + value_end, q, size, slack)
                    value_end += size
                q += size
            elif size < 0:
                value_nulls += 1
                if want_values:
                    clear_bit(out_value_valid, row)
            if want_headers:
                store64(out_headers + row * 8, q - start)
            if record_end - q != 1 or load8(q) != u64(0):
                with_headers += 1
                if headers_end(q, record_end) != record_end:
                    status = BAD_RECORD
                    break
            q = record_end
            if want_offsets:
                store64(out_offsets + row * 8, base + offset_delta)
                store64(out_timestamps + row * 8, base_timestamp if appended else base_timestamp + timestamp_delta)
            row += 1
        if status == OK and q != end and count > 0:
            status = BAD_RECORD
        if status != OK:
            break
        batch += 1
    state[D_BATCH] = batch
    if status == OK or status == FULL:
        state[D_ROWS] = row
        state[D_KEY_BYTES] = key_end
        state[D_VALUE_BYTES] = value_end
        state[D_KEY_NULLS] = key_nulls
        state[D_VALUE_NULLS] = value_nulls
        state[D_WITH_HEADERS] = with_headers
        if want_keys and row < key_ends.size:
            key_ends[row] = key_end
        if want_values and row < value_ends.size:
            value_ends[row] = value_end
    return status


# ---- checksums ---------------------------------------------------------------------------------------------------------------


@kernel(INT64(BYTES, INT64, INT64), pure="pylog.record.pure:checksum")
def checksum(buffer: Any, position: int, end: int) -> int:
    """Returns the CRC-32C of `buffer[position:end]`, clamped to the buffer."""
    start = address(buffer)
    end = min(max(end, 0), buffer.size)
    return crc32c(start + min(max(position, 0), end), start + end)


@kernel(INT64(BYTES, OUT_TABLE, INT64, INT64), pure="pylog.record.pure:first_bad_crc")
def first_bad_crc(buffer: Any, table: Any, first: int, end: int) -> int:
    """Returns the first of the batches `first` to `end - 1` of a table that does not match its checksum; `end` if all match."""
    start = address(buffer)
    for batch in range(max(first, 0), min(end, table.shape[1])):
        position = table[POSITION, batch]
        size = table[SIZE, batch]
        if position < 0 or size < HEADER_SIZE or size > buffer.size - position:
            return batch
        if not good_crc(start + position, start + position + size):
            return batch
    return end


@kernel(
    INT64(BYTES, OUT_TABLE, INT64, OUT_LONGS, OUT_LONGS, OUT_LONGS, OUT_BYTES),
    nogil=False,
    pure="pylog.record.pure:compare_marks",
)
def compare_marks(buffer: Any, table: Any, shift: int, positions: Any, digests: Any, state: Any, differs: Any) -> int:
    """Compares the CRC-32C of all batches' prefixes up to each mark with its value when the segment was sealed.

    Marks are rising positions in the file, each with the CRC up to it; `buffer` begins at position `shift`. state[0] is the CRC
    of the batches before the table, or -1 if unknown: comparing then begins at the next mark. `differs` becomes 1 for a mark
    whose CRC differs, or at which no batch ends. BAD_HEADER: a batch is outside the buffer.
    """
    start = address(buffer)
    digest = state[0]
    batch = 0
    reached = shift
    for mark in range(min(positions.size, digests.size, differs.size) + 1):
        last = mark == min(positions.size, digests.size, differs.size)  # the part after the last mark
        while batch < table.shape[1] and (last or reached < positions[mark]):
            position = table[POSITION, batch]
            if position < 0 or buffer.size - position < PREFIX_SIZE:
                return BAD_HEADER
            if digest >= 0:
                digest = crc32c_on(digest, start + position, start + position + PREFIX_SIZE)
            reached = shift + position + table[SIZE, batch]
            batch += 1
        if not last:
            if digest >= 0 and (reached != positions[mark] or digest != digests[mark]):
                differs[mark] = 1
            digest = digests[mark]
    state[0] = digest
    return OK


# ---- transactions ------------------------------------------------------------------------------------------------------------

# The outcome of a batch's transaction, as far as a region tells.
UNDECIDED: Final = 0
COMMITTED: Final = 1
ABORTED: Final = 2

USUAL_MARKER: Final = 0x20_00_00_00_08_00_00_00  # how the record of a marker begins: its size, deltas, the key with its version
USUAL_MARKER_SIZE: Final = 17  # of that record, with its size


@inlined
def usual_outcome(at):  # type: ignore[no-untyped-def]
    """Returns the outcome in the record of a marker as every version of Kafka writes it; UNDECIDED for any other bytes."""
    kind = be16(at + 7)
    framed = be64(at) == USUAL_MARKER and be16(at + 9) == 12 << 8 and load8(at + 11) == u64(0) and load8(at + 16) == u64(0)
    if not framed or (kind != CONTROL_ABORT and kind != CONTROL_COMMIT):
        return UNDECIDED
    return COMMITTED if kind == CONTROL_COMMIT else ABORTED


@kernel(INT64(BYTES, OUT_TABLE, OUT_LONGS, OUT_LONGS), pure="pylog.record.pure:outcomes_inside")
def outcomes_inside(buffer: Any, table: Any, slots: Any, outcomes: Any) -> int:
    """Tells which batches of a region are committed or aborted by a marker of their producer that follows in the region.

    `outcomes[i]` becomes the outcome of batch i, for a marker its own. `slots` is zeros, one more than batches. The status is not
    OK if a batch that is or may be a marker does not match its checksum, or is a control batch of an unusual form.
    """
    start = address(buffer)
    if slots.size <= table.shape[1] or outcomes.size < table.shape[1]:
        return FULL
    for batch in range(table.shape[1] - 1, -1, -1):
        attributes = table[ATTRIBUTES, batch]
        producer = table[PRODUCER_ID, batch]
        position = table[POSITION, batch]
        size = table[SIZE, batch]
        outcomes[batch] = UNDECIDED
        slot = producer % slots.size
        while slots[slot] != 0 and table[PRODUCER_ID, slots[slot] - 1] != producer:
            slot = (slot + 1) % slots.size
        odd = table[BASE_SEQUENCE, batch] < 0 or table[COUNT, batch] != 1
        if (attributes & CONTROL_BIT) != 0 or (size <= LARGEST_MARKER and table[MAGIC, batch] == 2 and odd):
            if position < 0 or size < HEADER_SIZE or size > buffer.size - position or table[MAGIC, batch] != 2:
                return NOT_PLAIN
            if not good_crc(start + position, start + position + size):
                return BAD_CRC
        if (attributes & CONTROL_BIT) != 0:
            if size != HEADER_SIZE + USUAL_MARKER_SIZE or (attributes & CODEC_MASK) != 0 or table[COUNT, batch] != 1:
                return NOT_PLAIN
            outcomes[batch] = usual_outcome(start + position + HEADER_SIZE)
            if outcomes[batch] == UNDECIDED:
                return NOT_PLAIN
            slots[slot] = batch + 1
        elif (attributes & TRANSACTIONAL_BIT) != 0 and slots[slot] != 0:
            outcomes[batch] = outcomes[slots[slot] - 1]
    return OK
