"""Compaction's two loops over records: find those that a later record with the same key supersedes, and copy the others.

Both work on batches whose records are uncompressed in a buffer. Records are numbered in the order of the log, and a bitmap
has one bit per number, set for superseded records. Keys are compared by their digests alone: SipHash-1-3 with 128 bits and a
random key, so that an attacker cannot construct two keys that collide. 96 of the bits are kept.

An entry of the key table has 16 bytes: 64 bits of the digest, then 32 more above the number of the key's last record, plus one.
It is in the first free slot from the digest's slot on. A table has a power of two of entries and is never full.
"""

from __future__ import annotations

from typing import Any, Final

from pylog.record.format import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    COUNT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)
from pylog.record.kernel import inlined, kernel
from pylog.record.kernels import BAD_CRC, BAD_HEADER, BAD_RECORD, FULL, OK, SLACK, good_crc
from pylog.record.memory import (
    address,
    be16,
    copy,
    crc32c,
    i64,
    load8,
    load64,
    memcpy,
    prefetch,
    put16,
    put32,
    put64,
    put_varint,
    store8,
    store64,
    u64,
    varint,
    varint_width,
    zigzag,
)
from pylog.record.signatures import BOOLEAN, BYTES, INT64, OUT_BYTES, OUT_LONGS, OUT_TABLE, OUT_WORDS, UINT64

# ---- digests -----------------------------------------------------------------------------------------------------------------


@inlined
def _rotated(x, bits):  # type: ignore[no-untyped-def]
    return (x << u64(bits)) | (x >> u64(64 - bits))


@inlined
def _round(a, b, c, d):  # type: ignore[no-untyped-def]
    a += b
    c += d
    b = _rotated(b, 13) ^ a
    d = _rotated(d, 16) ^ c
    a = _rotated(a, 32) + d
    c += b
    d = _rotated(d, 21) ^ a
    b = _rotated(b, 17) ^ c
    return a, b, _rotated(c, 32), d


@inlined
def digest(at, size, k0, k1):  # type: ignore[no-untyped-def]
    """Returns SipHash-1-3 of `size` bytes: 128 bits as two words."""
    a = k0 ^ u64(0x736F6D6570736575)
    b = k1 ^ u64(0x646F72616E646F6D) ^ u64(0xEE)
    c = k0 ^ u64(0x6C7967656E657261)
    d = k1 ^ u64(0x7465646279746573)
    end = at + (size & ~7)
    while at < end:
        word = load64(at)
        a, b, c, d = _round(a, b, c, d ^ word)
        a ^= word
        at += 8
    word = u64(size) << u64(56)
    for i in range(size & 7):
        word |= load8(at + i) << u64(8 * i)
    a, b, c, d = _round(a, b, c, d ^ word)
    a, b, c, d = _round(a ^ word, b, c ^ u64(0xEE), d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    high = a ^ b ^ c ^ d
    a, b, c, d = _round(a, b ^ u64(0xDD), c, d)
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    return high, a ^ b ^ c ^ d


# ---- which records are superseded ----------------------------------------------------------------------------------------------

SCRATCH_RECORDS: Final = 2048  # records hashed before any is looked up: their slots are prefetched meanwhile
SCRATCH_WORDS: Final = 4 * SCRATCH_RECORDS  # digest, digest and kind, offset, number

_LOW: Final = u64(0xFFFFFFFF)
_NULL: Final = u64(1)  # in place of a digest: digests have all of their lower 32 bits set there

# The state of index_keys.
K_BATCH: Final = 0  # next column of the table
K_END: Final = 1  # column at which to stop
K_NUMBER: Final = 2  # number of the batch's first record
K_KEYS: Final = 3  # keys in the key table
K_CAPACITY: Final = 4  # the most keys that it may hold
K_FIRST: Final = 5  # offset: records from it on are entered, records before it are looked up
K_LATEST: Final = 6  # offset of the record entered last
K_SIZE: Final = 7


@inlined
def _is_inside(position, size, limit):  # type: ignore[no-untyped-def]
    """Returns whether a batch of this size is inside the buffer."""
    return position >= 0 and HEADER_SIZE <= size <= limit - position


@inlined
def _is_numbered(count, size, number, limit):  # type: ignore[no-untyped-def]
    """Returns whether the batch may have so many records, and the bitmap has a bit for each of them."""
    return 0 <= count <= size and 0 <= number and count <= limit - number


@inlined
def _set_bit(bits, index):  # type: ignore[no-untyped-def]
    store8(bits + (index >> 3), i64(load8(bits + (index >> 3)) | (u64(1) << u64(index & 7))))


@kernel(INT64(BYTES, OUT_TABLE, OUT_LONGS, BOOLEAN, BOOLEAN, OUT_WORDS, OUT_BYTES, OUT_WORDS, UINT64, UINT64))
def index_keys(
    buffer: Any, table: Any, state: Any, enter: bool, verify: bool, keys: Any, dead: Any, scratch: Any, k0: int, k1: int
) -> int:
    """Enters the keys of records into a key table, or looks them up there, and sets the bits of superseded records in `dead`.

    With `enter`, the records from K_FIRST on are entered. Each replaces the key's previous record, which is marked. FULL if the
    table has no room for another key; K_LATEST then tells how far it got. Without `enter`, the records before K_FIRST are looked
    up: a record whose key is found is marked. Records without a key are marked.
    """
    start = address(buffer)
    slots = address(keys)
    bits = address(dead)
    heap = address(scratch)
    mask = u64(keys.size // 2 - 1)
    chunk = scratch.size // 4
    if keys.size < 4 or (keys.size & (keys.size - 1)) != 0 or chunk < 1 or state[K_CAPACITY] >= keys.size // 2:
        return BAD_HEADER
    batch = state[K_BATCH]
    number = state[K_NUMBER]
    while batch < min(state[K_END], table.shape[1]):
        position = table[POSITION, batch]
        size = table[SIZE, batch]
        count = table[COUNT, batch]
        if not _is_inside(position, size, buffer.size) or not _is_numbered(count, size, number, dead.size * 8):
            return BAD_HEADER
        q = start + position
        end = q + size
        if verify and not good_crc(q, end):
            return BAD_CRC
        base = table[BASE_OFFSET, batch]
        delta_end = table[LAST_OFFSET, batch] - base
        previous = i64(-1)
        done = i64(0)
        q += HEADER_SIZE
        while done < count:
            found = i64(0)
            while done < count and found < chunk:
                size, q = varint(q, end)
                if q > end or size < 1 or size > end - q:
                    return BAD_RECORD
                record_end = q + size
                _, q = varint(q + 1, record_end)
                delta, q = varint(q, record_end)
                size, q = varint(q, record_end)
                if q > record_end or size > record_end - q or delta <= previous or delta > delta_end:
                    return BAD_RECORD
                previous = delta
                if (base + delta >= state[K_FIRST]) == enter:
                    to = heap + found * 32
                    kind = _NULL
                    if size >= 0:
                        high, low = digest(q, size, k0, k1)
                        kind = low | _LOW
                        store64(to, i64(high))
                        prefetch(slots + i64(high & mask) * 16)
                    store64(to + 8, i64(kind))
                    store64(to + 16, base + delta)
                    store64(to + 24, number + done)
                    found += 1
                q = record_end
                done += 1
            for i in range(found):
                at = heap + i * 32
                kind = load64(at + 8)
                mine = i64(load64(at + 24))
                if kind == _NULL:
                    _set_bit(bits, mine)
                else:
                    high = load64(at)
                    slot = high & mask
                    entry = slots + i64(slot) * 16
                    held = load64(entry + 8)
                    while held != u64(0) and (load64(entry) != high or (held | _LOW) != kind):
                        slot = (slot + u64(1)) & mask
                        entry = slots + i64(slot) * 16
                        held = load64(entry + 8)
                    if not enter:
                        if held != u64(0):
                            _set_bit(bits, mine)
                        continue
                    if held == u64(0):
                        if state[K_KEYS] >= state[K_CAPACITY]:
                            return FULL
                        state[K_KEYS] += 1
                        store64(entry, i64(high))
                    else:
                        _set_bit(bits, i64(held & _LOW) - 1)
                    store64(entry + 8, i64((kind ^ _LOW) | u64(mine + 1)))
                if enter:
                    state[K_LATEST] = i64(load64(at + 16))
        if q != end and count > 0:
            return BAD_RECORD
        number += count
        batch += 1
        state[K_BATCH] = batch
        state[K_NUMBER] = number
    return OK


# ---- what stays --------------------------------------------------------------------------------------------------------------

# The fate of a batch: a sum of these (storage-format 7.6.4 to 7.6.7).
F_DISCARD: Final = 1  # drop all of its records
F_RETAIN: Final = 2  # keep it as an empty batch if no record stays
F_TOMBSTONES_GO: Final = 4  # its delete horizon has passed: drop its tombstones
F_NO_HORIZON: Final = 8  # it has no delete horizon yet: a tombstone that stays sets one
F_CONTROL: Final = 16  # its records are markers, and stay
F_STAMP: Final = 32  # set a delete horizon whatever it contains

# The state of keep_records.
R_BATCH: Final = 0  # next column of the table
R_END: Final = 1  # column at which to stop
R_NUMBER: Final = 2  # number of the batch's first record
R_LATEST: Final = 3  # offset: later records stay
R_HORIZON: Final = 4  # delete horizon for batches that need one, milliseconds
R_POSITION: Final = 5  # in the output
R_RECORDS: Final = 6  # records that stayed
R_CHANGED: Final = 7  # batches that were changed or dropped
R_SIZE: Final = 8

GROWTH: Final = 16  # bytes that a record may gain with another base timestamp: nine for its delta, and some for its length


@kernel(INT64(BYTES, OUT_TABLE, OUT_LONGS, OUT_LONGS, BOOLEAN, OUT_BYTES, OUT_BYTES))
def keep_records(buffer: Any, table: Any, fates: Any, state: Any, verify: bool, dead: Any, out: Any) -> int:
    """Copies batches without the dropped records; a batch that loses none is copied unchanged, in one piece.

    Offsets stay, and a batch always keeps its first and last offset. The bytes of a record change only if its batch gets a delete
    horizon. FULL if the output may have no room for the next batch.
    """
    start = address(buffer)
    bits = address(dead)
    w = address(out)
    batch = state[R_BATCH]
    while batch < min(state[R_END], table.shape[1], fates.size):
        position = table[POSITION, batch]
        size = table[SIZE, batch]
        count = table[COUNT, batch]
        fate = fates[batch]
        number = state[R_NUMBER]
        if not _is_inside(position, size, buffer.size) or not _is_numbered(count, size, number, dead.size * 8):
            return BAD_HEADER
        if 2 * size + count * GROWTH > out.size - state[R_POSITION]:
            return FULL
        at = start + position
        end = at + size
        to = w + state[R_POSITION]
        if verify and not good_crc(at, end):
            return BAD_CRC
        base = table[BASE_OFFSET, batch]
        delta_end = table[LAST_OFFSET, batch] - base
        base_timestamp = table[BASE_TIMESTAMP, batch]
        slack = start + buffer.size - end >= SLACK
        largest = i64(-1)
        kept = i64(0)
        tombstones = i64(0)
        put = to + HEADER_SIZE
        if (fate & F_DISCARD) == 0:
            previous = i64(-1)
            q = at + HEADER_SIZE
            run = q
            for i in range(count):
                first = q
                length, q = varint(q, end)
                if q > end or length < 1 or length > end - q:
                    return BAD_RECORD
                record_end = q + length
                timestamp_delta, q = varint(q + 1, record_end)
                delta, q = varint(q, record_end)
                length, q = varint(q, record_end)
                if q > record_end or length > record_end - q or delta <= previous or delta > delta_end:
                    return BAD_RECORD
                previous = delta
                length, q = varint(q + max(length, 0), record_end)
                if q >= record_end or length > record_end - q:
                    return BAD_RECORD
                stays = (fate & F_CONTROL) != 0 or base + delta > state[R_LATEST]
                if not stays:
                    index = number + i
                    superseded = (load8(bits + (index >> 3)) >> u64(index & 7)) & u64(1)
                    stays = superseded == u64(0) and not (length < 0 and (fate & F_TOMBSTONES_GO) != 0)
                if stays:
                    kept += 1
                    largest = max(largest, base_timestamp + timestamp_delta)
                    if length < 0 and (fate & F_CONTROL) == 0:
                        tombstones += 1
                else:
                    if first > run:
                        copy(put, run, first - run, slack)
                        put += first - run
                    run = record_end
                q = record_end
            if count > 0 and q != end:
                return BAD_RECORD
            if kept < count and end > run:
                copy(put, run, end - run, slack)
                put += end - run
        stamp = kept > 0 and ((fate & F_STAMP) != 0 or (tombstones > 0 and (fate & F_NO_HORIZON) != 0))
        if kept == 0 and (fate & F_RETAIN) == 0:
            put = to
        elif kept == 0:
            _write_empty(to, at, table[MAX_TIMESTAMP, batch])
            put = to + HEADER_SIZE
        elif kept == count and not stamp:
            memcpy(to, at, size)
            put = to + size
        else:
            if (be16(at + 21) & LOG_APPEND_TIME_BIT) != 0:
                largest = table[MAX_TIMESTAMP, batch]
            memcpy(to, at, HEADER_SIZE)
            if stamp:
                source = at + HEADER_SIZE
                size = end - source
                if kept < count:  # the kept records follow the header already: they are moved to the output's end first
                    size = put - to - HEADER_SIZE
                    source = w + out.size - size
                    memcpy(source, to + HEADER_SIZE, size)
                put = _rebased(to + HEADER_SIZE, source, source + size, base_timestamp, state[R_HORIZON])
                put64(to + 27, state[R_HORIZON])
                put16(to + 21, be16(at + 21) | DELETE_HORIZON_BIT)
            _seal(to, put, kept, largest)
        if kept != count or stamp:
            state[R_CHANGED] += 1
        state[R_RECORDS] += kept
        state[R_NUMBER] = number + count
        state[R_POSITION] = put - w
        batch += 1
        state[R_BATCH] = batch
    return OK


@inlined
def _seal(at, end, count, largest):  # type: ignore[no-untyped-def]
    """Writes the fields of a batch's header that depend on its records, and the checksum."""
    put32(at + 8, end - at - 12)
    put64(at + 35, largest)
    put32(at + 57, count)
    put32(at + 17, crc32c(at + 21, end))


@inlined
def _write_empty(to, at, largest):  # type: ignore[no-untyped-def]
    """Writes the header of a batch without records (storage-format 1.9.1): it keeps offsets, producer numbers and times."""
    memcpy(to, at, HEADER_SIZE)
    put16(to + 21, be16(at + 21) & ~(CODEC_MASK | DELETE_HORIZON_BIT))
    put64(to + 27, -1)
    _seal(to, to + HEADER_SIZE, 0, largest)


@inlined
def _rebased(to, at, end, base_timestamp, new_base_timestamp):  # type: ignore[no-untyped-def]
    """Copies records, whose bounds were checked, with timestamps relative to another base; returns the end."""
    while at < end:
        size, q = varint(at, end)
        at = q + size
        delta, q = varint(q + 1, at)
        bits = zigzag(base_timestamp + delta - new_base_timestamp)
        to = put_varint(to, zigzag(1 + varint_width(bits) + (at - q)))
        store8(to, 0)
        to = put_varint(to + 1, bits)
        memcpy(to, q, at - q)
        to += at - q
    return to
