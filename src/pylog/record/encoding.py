"""The encoding kernel: rows in Arrow's form become batches of magic 2, including header and CRC, in one pass.

The rules of `record.kernels` apply here too.
"""

from __future__ import annotations

from typing import Any, Final

from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    CRC,
    CRC_GOOD,
    CRC_STATE,
    HEADER_SIZE,
    LAST_OFFSET,
    LEADER_EPOCH,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from pylog.record.kernel import inlined, kernel
from pylog.record.kernels import FULL, OK
from pylog.record.memory import (
    address,
    be32,
    crc32c,
    i64,
    load8,
    memcpy,
    put16,
    put32,
    put64,
    put_varint,
    store8,
    u64,
    varint_width,
    zigzag,
)
from pylog.record.signatures import BYTES, INT64, OUT_BYTES, OUT_LONGS, OUT_TABLE, READ_INTS, READ_LONGS

# The state of encode_batches.
E_POSITION: Final = 0  # output position of the next batch
E_ROW: Final = 1  # next row
E_END: Final = 2  # row at which to stop
E_OFFSET: Final = 3  # offset of the next row
E_BATCHES: Final = 4  # batches written
E_NEEDED: Final = 5  # after FULL: bytes that the current record needs
E_SIZE: Final = 6


@inlined
def _is_null(bits, size, index):  # type: ignore[no-untyped-def]
    """Returns whether a validity bitmap (empty: all valid) marks a null; `bits` is its address."""
    return size > 0 and (load8(bits + (index >> 3)) >> u64(index & 7)) & u64(1) == u64(0)


_ENCODE: Final = INT64(
    OUT_BYTES,
    OUT_LONGS,
    INT64,
    INT64,
    INT64,
    OUT_TABLE,
    READ_LONGS,
    READ_INTS,
    BYTES,
    BYTES,
    READ_INTS,
    BYTES,
    BYTES,
    READ_INTS,
    READ_INTS,
    BYTES,
    READ_INTS,
    BYTES,
    BYTES,
)


def _encoder(with_headers: bool) -> Any:
    """Returns the loop as one of two kernels: without headers, as in most records, it compiles in two thirds of the time."""

    def encode(
        out: Any,
        state: Any,
        batch_bytes: int,
        epoch: int,
        attributes: int,
        table: Any,
        timestamps: Any,
        key_ends: Any,
        keys: Any,
        key_valid: Any,
        value_ends: Any,
        values: Any,
        value_valid: Any,
        header_ends: Any,
        name_ends: Any,
        names: Any,
        header_value_ends: Any,
        header_values: Any,
        header_value_valid: Any,
    ) -> int:
        """Writes rows as batches of magic 2, including header and CRC, each of about `batch_bytes` record bytes.

        Columns are in Arrow's form: n + 1 offsets and bytes, and a validity bitmap (empty: all valid). Empty `key_ends` means
        null keys, empty `value_ends` null values. Each batch also fills a column of `table`, like `scan_batches`.
        """
        start = address(out)
        stop = start + out.size
        key_at = address(keys)
        key_bits = address(key_valid)
        value_at = address(values)
        value_bits = address(value_valid)
        name_at = address(names)
        header_at = address(header_values)
        header_bits = address(header_value_valid)
        row = state[E_ROW]
        end_row = min(state[E_END], timestamps.size)
        has_keys = key_ends.size > 0
        has_values = value_ends.size > 0
        status = OK
        while row < end_row and state[E_BATCHES] < table.shape[1]:
            batch = start + state[E_POSITION]
            if stop - batch < HEADER_SIZE:
                state[E_NEEDED] = HEADER_SIZE
                status = FULL
                break
            q = batch + HEADER_SIZE
            first = row
            base_timestamp = timestamps[first]
            max_timestamp = base_timestamp
            while row < end_row:
                key_size = i64(-1)
                value_size = i64(-1)
                if has_keys and not _is_null(key_bits, key_valid.size, row):
                    key_size = i64(key_ends[row + 1]) - key_ends[row]
                if has_values and not _is_null(value_bits, value_valid.size, row):
                    value_size = i64(value_ends[row + 1]) - value_ends[row]
                body = i64(2)
                if with_headers:
                    body += varint_width(zigzag(i64(header_ends[row + 1]) - header_ends[row])) - 1
                    for h in range(header_ends[row], header_ends[row + 1]):
                        size = i64(name_ends[h + 1]) - name_ends[h]
                        body += varint_width(zigzag(size)) + size
                        size = i64(-1)
                        if not _is_null(header_bits, header_value_valid.size, h):
                            size = i64(header_value_ends[h + 1]) - header_value_ends[h]
                        body += varint_width(zigzag(size)) + max(size, 0)
                timestamp_bits = zigzag(timestamps[row] - base_timestamp)
                offset_bits = zigzag(i64(row - first))
                key_size_bits = zigzag(key_size)
                value_size_bits = zigzag(value_size)
                body += varint_width(timestamp_bits) + varint_width(offset_bits)
                body += varint_width(key_size_bits) + max(key_size, 0) + varint_width(value_size_bits) + max(value_size, 0)
                needed = body + varint_width(zigzag(body))
                if row > first and needed > batch_bytes - (q - batch - HEADER_SIZE):
                    break
                if needed > stop - q:
                    if row == first:
                        state[E_NEEDED] = needed + HEADER_SIZE
                        status = FULL
                    break
                q = put_varint(q, zigzag(body))
                store8(q, 0)
                q = put_varint(q + 1, timestamp_bits)
                q = put_varint(q, offset_bits)
                q = put_varint(q, key_size_bits)
                if key_size > 0:
                    memcpy(q, key_at + i64(key_ends[row]), key_size)
                    q += key_size
                q = put_varint(q, value_size_bits)
                if value_size > 0:
                    memcpy(q, value_at + i64(value_ends[row]), value_size)
                    q += value_size
                if with_headers:
                    q = put_varint(q, zigzag(i64(header_ends[row + 1]) - header_ends[row]))
                    for h in range(header_ends[row], header_ends[row + 1]):
                        size = i64(name_ends[h + 1]) - name_ends[h]
                        q = put_varint(q, zigzag(size))
                        memcpy(q, name_at + i64(name_ends[h]), size)
                        q += size
                        size = i64(-1)
                        if not _is_null(header_bits, header_value_valid.size, h):
                            size = i64(header_value_ends[h + 1]) - header_value_ends[h]
                        q = put_varint(q, zigzag(size))
                        if size > 0:
                            memcpy(q, header_at + i64(header_value_ends[h]), size)
                            q += size
                else:
                    store8(q, 0)
                    q += 1
                max_timestamp = max(max_timestamp, timestamps[row])
                row += 1
            if status != OK:
                break
            _seal(batch, q, state[E_OFFSET], epoch, attributes, row - first, base_timestamp, max_timestamp)
            n = state[E_BATCHES]
            table[POSITION, n] = batch - start
            table[SIZE, n] = q - batch
            table[BASE_OFFSET, n] = state[E_OFFSET]
            table[LAST_OFFSET, n] = state[E_OFFSET] + (row - first) - 1
            table[COUNT, n] = row - first
            table[BASE_TIMESTAMP, n] = base_timestamp
            table[MAX_TIMESTAMP, n] = max_timestamp
            table[ATTRIBUTES, n] = attributes
            table[MAGIC, n] = 2
            table[LEADER_EPOCH, n] = epoch
            table[PRODUCER_ID, n] = -1
            table[PRODUCER_EPOCH, n] = -1
            table[BASE_SEQUENCE, n] = -1
            table[CRC, n] = be32(batch + 17) & 0xFFFFFFFF
            table[CRC_STATE, n] = CRC_GOOD
            state[E_OFFSET] += row - first
            state[E_POSITION] = q - start
            state[E_BATCHES] += 1
            state[E_ROW] = row
        return status

    encode.__name__ = "encode_batches_with_headers" if with_headers else "encode_batches"
    return encode


encode_batches = kernel(_ENCODE, pure="pylog.record.pure_encoding:encode_batches")(_encoder(False))
encode_batches_with_headers = kernel(_ENCODE, pure="pylog.record.pure_encoding:encode_batches")(_encoder(True))


@inlined
def _seal(at, end, base, epoch, attributes, count, base_timestamp, max_timestamp):  # type: ignore[no-untyped-def]
    """Writes a batch's header over its first 61 bytes, CRC last."""
    put64(at, base)
    put32(at + 8, end - at - 12)
    put32(at + 12, epoch)
    store8(at + 16, 2)
    put16(at + 21, attributes)
    put32(at + 23, count - 1)
    put64(at + 27, base_timestamp)
    put64(at + 35, max_timestamp)
    put64(at + 43, -1)
    put16(at + 51, -1)
    put32(at + 53, -1)
    put32(at + 57, count)
    put32(at + 17, crc32c(at + 21, end))
