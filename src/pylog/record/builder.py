"""Turns appended data into columns (`Rows`), and columns into the bytes of batches of magic 2.

This module writes nothing. It detects every error in the input before anything is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from pylog import limits
from pylog.arguments import is_int
from pylog.errors import InvalidRecordError, RecordTooLargeError
from pylog.record import compression, encoding, kernels
from pylog.record.batch import Table
from pylog.record.buffers import APPENDS, AppendBuffer
from pylog.record.checksum import crc32c
from pylog.record.few import (
    PLAIN_OVERHEAD,
    EncodedBatch,
    FewRows,
    Pairs,
    Piece,
    Plain,
    binary_column,
    encode_few,
    few_of,
    few_rows,
)
from pylog.record.format import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BASE_SEQUENCE,
    CODEC_NONE,
    CRC,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_ID_AT,
    SIZE,
)
from pylog.record.from_arrow import binary_of, check_timestamp, headers_of
from pylog.record.header_columns import LEAST_HEADER_BYTES, check_headers
from pylog.record.layouts import HEADERS_TYPE
from pylog.record.packed import packed_column
from pylog.record.rows import (
    ALL_NULL,
    MAX_RECORD_OVERHEAD,
    NO_HEADERS,
    Binary,
    Bytes,
    Headers,
    Rows,
    read_only,
    repeated,
)
from pylog.record.timestamps import TimestampBounds
from pylog.record.types import Header, ProducerBatch, attributes_of
from pylog.times import timestamp_of, timestamp_problem

_FEW = 256  # up to this many values of one call, joining is cheaper than Arrow
_PRODUCER: Final = struct.Struct(">qhi")  # id, epoch, base sequence


# ---- from Python objects -----------------------------------------------------------------------------------------------------


def rows_from_record(key: Any, value: Any, timestamp: Any, headers: Any, now_ms: int) -> Piece:
    """Returns one record as rows; a record that is not plain bytes goes through `rows_from_records`. Cost: 0.4 µs."""
    if timestamp is None and not headers and type(value) is bytes and (key is None or type(key) is bytes):  # as most are
        size = PLAIN_OVERHEAD + len(value)
        return FewRows([(now_ms, key, value, ())], size if key is None else size + len(key))
    made = _plain(key, value, timestamp, headers, now_ms)
    if made is None:
        return rows_from_records([key], [value], [timestamp], [headers] if headers else None, now_ms)
    return few_rows([made])


def rows_from_few(records: Iterable[tuple[Any, Any, Any, Any]], now_ms: int) -> Piece | None:
    """Returns a few records (key, value, timestamp, headers); None if one of them needs `rows_from_records`."""
    made = [_plain(*record, now_ms) for record in records]
    return None if None in made else few_rows(cast("list[Plain]", made))


def _plain(key: Any, value: Any, timestamp: Any, headers: Any, now_ms: int) -> Plain | None:
    """Returns a record of the simplest types, checked; None if it has other types."""
    if (key is not None and type(key) is not bytes) or (value is not None and type(value) is not bytes):
        return None
    if timestamp is None:
        timestamp = now_ms
    elif type(timestamp) is not int or not -1 <= timestamp <= limits.INT64_MAX:
        return None
    pairs = _plain_headers(headers) if headers else ()
    return None if pairs is None else (timestamp, key, value, pairs)


def _plain_headers(headers: Any) -> Pairs | None:
    if type(headers) is not list and type(headers) is not tuple:
        return None  # an iterator can be read only once
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not str or not pair[0].isascii():
            return None
        if pair[1] is not None and type(pair[1]) is not bytes:
            return None
    return tuple([(name.encode(), value) for name, value in headers])


def rows_from_records(
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    timestamps: Sequence[int | None] | None,
    headers: Sequence[Iterable[Header]] | None,
    now_ms: int,
) -> Rows:
    """Returns the same columns from Python lists of equal length.

    Raises:
        InvalidRecordError: a key or value is not bytes, a header is not (str, bytes or None), or a timestamp is invalid.
    """
    if timestamps is None:
        stamps = repeated(now_ms, len(values))
    else:
        given = [now_ms if stamp is None else _timestamp(stamp) for stamp in timestamps]
        check_timestamp(min(given, default=0))
        stamps = read_only(np.array(given, np.int64))
    key_column = ALL_NULL if keys is None else _bytes_column("key", keys)
    return Rows(stamps, key_column, _bytes_column("value", values), _header_rows(headers))


def rows_from_values(values: Sequence[Any], now_ms: int) -> Rows | None:
    """Returns the same columns from values alone; None if one of them is not bytes. Cost: about 20 ns a record."""
    column = packed_column(values)
    return None if column is None else Rows(repeated(now_ms, len(values)), ALL_NULL, column, shared_time=now_ms)


def _timestamp(given: Any) -> int:
    found = given if is_int(given) else timestamp_of(given)
    if found is None or not -limits.INT64_MAX <= found <= limits.INT64_MAX:
        raise InvalidRecordError(f"timestamp {given!r} {timestamp_problem(given)}")
    return int(found)


def _bytes_column(name: str, values: Sequence[bytes | None]) -> Binary:
    """Returns a column of byte strings. Arrow would be slower, and would first import pandas if that is installed."""
    if len(values) < _FEW and all(type(value) is bytes or value is None for value in values):
        return binary_column(values)
    column = packed_column(values)
    return binary_of(_bytes_array(name, values)) if column is None else column


def _bytes_array(name: str, values: Sequence[bytes | None]) -> pa.Array:
    try:
        array = pa.array(values, pa.binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError, UnicodeEncodeError) as error:
        raise InvalidRecordError(f"a {name} is not bytes or None (str must be encoded first)") from error
    if any(issubclass(kind, str) for kind in set(map(type, values))):  # pyarrow would encode it
        raise InvalidRecordError(f"a {name} is a str; encode it first")
    if isinstance(array, pa.ChunkedArray):
        raise InvalidRecordError(f"the {name}s of one call have more than 2 GiB; append them in parts")
    return array


def _header_rows(headers: Sequence[Iterable[Header]] | None) -> Headers:
    if headers is None:
        return NO_HEADERS
    try:
        rows = [[{"key": name, "value": value} for name, value in pairs or ()] for pairs in headers]
        if any(not isinstance(header["key"], str) or isinstance(header["value"], str) for row in rows for header in row):
            raise InvalidRecordError("a header's name is not a str, or its value is one; values are bytes or None")
        return headers_of(pa.array(rows, HEADERS_TYPE)) if any(rows) else NO_HEADERS
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, UnicodeEncodeError) as error:
        raise InvalidRecordError("headers must be pairs of (str, bytes or None)") from error


# ---- to batches --------------------------------------------------------------------------------------------------------------


class Encoded(NamedTuple):
    """Whole batches, ready to be written one after the other, with their table (POSITION counts from the first byte).

    The first batch may follow bytes that must not be written.
    """

    data: memoryview
    table: Table

    def only_batch(self) -> EncodedBatch | None:
        """Returns the batch, if there is exactly one."""
        if self.table.shape[1] != 1:
            return None
        column = self.table[:, 0].tolist()
        start, column[POSITION] = column[POSITION], 0
        return EncodedBatch(self.data[start : start + column[SIZE]], tuple(column))


def keyless(what: str) -> InvalidRecordError:
    """Returns the error for a record without a key."""
    return InvalidRecordError(
        f"{what} has no key, and the topic is compacted, which keeps the last value of each key and would lose it; give it a key"
    )


class BatchEncoder:
    """Encodes rows as batches of magic 2. Its buffers are reused, so a yielded batch is valid until the step after the next.

    Args:
        codec: one of `format.CODEC_*`.
        level: the codec's compression level; None means its default.
        log_append_time: stamp records with the time of the append (attributes bit 3).
        batch_bytes: record bytes of a batch before compression; a larger record gets its own batch.
        max_message_bytes: the largest batch allowed, including its header (storage-format 1.11.1).
        limit_text: the limit and its option, as errors name it. Default: `max_message_bytes`.
        keyed: refuse records without a key, because compaction keeps only the last record of each key (storage-format 6.2.4).
        timestamps: the check of timestamps; None accepts all.

    Attributes:
        unchecked_bytes: rows of this size or less form one batch that has no more bytes and headers than allowed.
    """

    def __init__(
        self,
        codec: int = CODEC_NONE,
        level: int | None = None,
        *,
        log_append_time: bool = False,
        batch_bytes: int = limits.APPEND_BATCH_BYTES,
        max_message_bytes: int = limits.DEFAULT_MAX_MESSAGE_BYTES,
        limit_text: str | None = None,
        keyed: bool = False,
        timestamps: TimestampBounds | None = None,
    ) -> None:
        self._codec = codec
        self._level = level
        self._attributes = LOG_APPEND_TIME_BIT if log_append_time else 0
        self._batch_bytes = min(batch_bytes, max(1, max_message_bytes - MAX_RECORD_OVERHEAD))
        self._max_message_bytes = max_message_bytes
        self._limit_text = limit_text or f"max_message_bytes={max_message_bytes}"
        self._keyed = keyed
        self._timestamps = timestamps
        self.unchecked_bytes = min(max_message_bytes, LEAST_HEADER_BYTES * limits.MAX_BATCH_HEADERS)

    def check(self, rows: Piece, now_ms: int, *, whole: bool = False) -> None:
        """Checks records before anything is written.

        Args:
            rows: the records.
            now_ms: the wall clock, in milliseconds.
            whole: whether they form one batch.

        Raises:
            RecordTooLargeError: a record could be larger than `max_message_bytes`, or has more headers than readers accept.
            InvalidTimestampError: a timestamp is too far from now.
            InvalidRecordError: a record has no key but needs one.
        """
        if self._timestamps is not None:
            self._timestamps.check(rows, now_ms)
        if self._keyed and rows.lacks_a_key():
            raise keyless("a record")
        if rows.size_bound <= self.unchecked_bytes:
            return
        check_headers(rows.header_count() if whole else rows.most_headers(), "a batch" if whole else "a record")
        largest = rows.largest_record()
        if largest > self._max_message_bytes:
            raise RecordTooLargeError(
                f"a record of up to {largest} bytes with its batch header is more than {self._limit_text}; "
                "raise that option, or send less"
            )

    def check_one_batch(self, size_bound: int, count: int, whose: str) -> None:
        """Refuses records that may need more than one batch.

        Args:
            size_bound: an upper bound of their encoded size in bytes.
            count: the number of records.
            whose: the beginning of the message.

        Raises:
            RecordTooLargeError: they may need more.
        """
        size = size_bound - count * HEADER_SIZE
        if size > self._max_message_bytes:
            raise RecordTooLargeError(
                f"{whose} batch of up to {size} bytes is more than {self._limit_text}; "
                "send fewer records at a time, or raise that option"
            )

    def encode(
        self, rows: Piece, base_offset: int, leader_epoch: int, producer: ProducerBatch | None = None, *, whole: bool = False
    ) -> Iterable[Encoded | EncodedBatch]:
        """Yields whole batches, a few megabytes at a time, with consecutive offsets from `base_offset` on.

        Args:
            rows: the records.
            base_offset, leader_epoch: offset of the first record, and leader epoch of the batches.
            producer: the producer's numbers; all rows then form one batch with these numbers.
            whole: form one batch, whatever its size.

        Cost: one kernel call a few megabytes; about 30 M records/s of 100 bytes with their CRC.
        """
        is_few = type(rows) is FewRows or len(rows) <= limits.FEW_RECORDS
        if is_few and self._codec == CODEC_NONE and rows.size_bound <= self._batch_bytes:
            few = rows if type(rows) is FewRows else few_of(rows)
            return (encode_few(few, base_offset, leader_epoch, self._attributes, producer),)
        return self._encode_columns(rows.columns(), base_offset, leader_epoch, producer, whole or producer is not None)

    def _encode_columns(
        self, rows: Rows, base_offset: int, leader_epoch: int, producer: ProducerBatch | None, whole: bool
    ) -> Iterator[Encoded]:
        """Does the same with the kernel."""
        columns = (rows.timestamps, *rows.keys, *rows.values, rows.headers.ends, *rows.headers.names[:2], *rows.headers.values)
        kernel = encoding.encode_batches_with_headers if rows.headers.ends.size else encoding.encode_batches
        state = np.array([0, 0, len(rows), base_offset, 0, 0], np.int64)
        room = rows.size_bound if whole else min(limits.APPEND_CHUNK_BYTES, rows.size_bound)
        batch_bytes = limits.MAX_SEGMENT_BYTES if whole else self._batch_bytes
        filled: AppendBuffer | None = None
        taken: AppendBuffer | None = None
        try:
            while state[encoding.E_ROW] < len(rows):
                filled, taken = taken, filled  # two buffers take turns: one is written to a file while the other is filled
                while True:
                    if taken is None or taken.room < room:
                        taken = APPENDS.take(room)
                    buffer, table = taken.data[:room], taken.table  # parts of a few megabytes stay in the processor's cache
                    state[encoding.E_POSITION] = state[encoding.E_BATCHES] = 0
                    status = kernel(buffer, state, batch_bytes, leader_epoch, self._attributes, table, *columns)
                    batches = int(state[encoding.E_BATCHES])
                    if batches or status != kernels.FULL:
                        break
                    room = int(state[encoding.E_NEEDED])
                encoded = Encoded(buffer.data[: int(state[encoding.E_POSITION])], table[:, :batches])
                if producer is not None:
                    stamp_producer(encoded, producer)
                yield encoded if self._codec == CODEC_NONE else self._compressed(encoded)
        finally:
            for each in (filled, taken):
                if each is not None:
                    APPENDS.put_back(each)

    def _compressed(self, plain: Encoded) -> Encoded:
        """Returns the same batches with compressed records: a batch is compressed as a whole (storage-format 1.10).

        Compression may enlarge a batch beyond `max_message_bytes`; such a batch stays uncompressed, as does one with more record
        bytes than readers decompress.
        """
        parts: list[memoryview] = []
        table = plain.table.copy()
        position = 0
        for batch in range(table.shape[1]):
            at, size = int(plain.table[POSITION, batch]), int(plain.table[SIZE, batch])
            sealed = self._sealed(plain.data[at + HEADER_SIZE : at + size])
            if sealed is not None:
                attributes = int(table[ATTRIBUTES, batch]) | self._codec
                _reseal(sealed, plain.data[at : at + HEADER_SIZE], attributes)
                table[ATTRIBUTES, batch] = attributes
                table[CRC, batch] = int.from_bytes(sealed[CRC_AT : CRC_AT + 4].tobytes(), "big")
            parts.append(plain.data[at : at + size] if sealed is None else sealed.data)
            table[POSITION, batch], table[SIZE, batch] = position, len(parts[-1])
            position += len(parts[-1])
        return Encoded(memoryview(b"".join(parts)), table)

    def _sealed(self, payload: memoryview) -> Bytes | None:
        """Returns compressed records after room for a header; None if they must stay as they are."""
        if len(payload) > limits.MAX_BATCH_DECOMPRESSED_BYTES:
            return None
        sealed = compression.compress(self._codec, payload, level=self._level, reserve=HEADER_SIZE)
        return sealed if len(sealed) <= self._max_message_bytes else None


def _reseal(batch: Bytes, header: memoryview, attributes: int) -> None:
    """Writes the header of a batch with a new payload after 61 free bytes: length, attributes and CRC match the payload."""
    view = batch.data
    view[:HEADER_SIZE] = header
    view[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    view[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    view[CRC_AT : CRC_AT + 4] = int(kernels.checksum(read_only(batch), ATTRIBUTES_AT, len(batch))).to_bytes(4, "big")


def stamp_producer(encoded: Encoded, producer: ProducerBatch) -> Encoded:
    """Adds a producer's numbers to a batch in place, and returns it (storage-format 1.7).

    Args:
        encoded: one batch without a producer, in writable memory.
        producer: the producer's numbers.
    """
    data, table = encoded
    attributes = table.item(ATTRIBUTES, 0) | attributes_of(producer)
    data[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = attributes.to_bytes(2, "big")
    _PRODUCER.pack_into(data, PRODUCER_ID_AT, *producer)
    if len(data) < limits.LOOKUP_CHUNK_BYTES:
        crc = crc32c(data[ATTRIBUTES_AT:])  # a copy, but no kernel
    else:
        crc = int(kernels.checksum(read_only(np.frombuffer(data, np.uint8)), ATTRIBUTES_AT, len(data)))
    data[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
    table[[ATTRIBUTES, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, CRC], 0] = (attributes, *producer, crc)
    return encoded
