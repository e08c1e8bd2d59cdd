"""A few records are encoded in plain Python: byte for byte as the kernel does, and read back as they were given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pylog
from pylog import limits
from pylog.record import encoding
from pylog.record.batch import Table
from pylog.record.builder import (
    HEADERS_TYPE,
    BatchEncoder,
    Encoded,
    rows_from_few,
    rows_from_record,
    rows_from_records,
    stamp_producer,
)
from pylog.record.few import FewRows, Piece, binary_column, encode_few, few_of, few_rows, joined_rows, varint
from pylog.record.format import COLUMN_COUNT, LOG_APPEND_TIME_BIT
from pylog.record.from_arrow import rows_from_arrow
from pylog.record.kernel import INTERPRETED
from pylog.record.rows import Rows
from pylog.record.types import ProducerBatch
from support.reference import records as reference

EXAMPLES = settings(max_examples=30 if INTERPRETED else 100)
NOW = 1_700_000_000_000

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, tuple[Header, ...], int]  # key, value, headers, timestamp

sizes = st.sampled_from([0, 1, 2, 62, 63, 64, 65, 127, 128, 8190, 8191, 8192, 8193])  # where a varint grows
blobs = st.none() | st.binary(max_size=6) | st.builds(bytes, sizes)
names = st.text(max_size=4) | st.builds(lambda size: "n" * size, sizes)
stamps = st.sampled_from([-1, 0, 1, NOW, NOW + 63, NOW + 64, limits.INT64_MAX - 1, limits.INT64_MAX]) | st.integers(-1, NOW)
rows = st.lists(
    st.tuples(blobs, blobs, st.lists(st.tuples(names, blobs), max_size=3).map(tuple), stamps),
    min_size=1,
    max_size=limits.FEW_RECORDS,
)


def columns_of(records: Sequence[Row]) -> Rows:
    keys, values, headers, timestamps = zip(*records, strict=True)
    return rows_from_records(keys, values, timestamps, headers if any(headers) else None, NOW)


def few(records: Sequence[Row]) -> FewRows:
    """The same without columns; what is not plain, such as names of more than ASCII, goes through them."""
    made = rows_from_few([(key, value, stamp, headers) for key, value, headers, stamp in records], NOW)
    return few_of(made or columns_of(records))


def by_kernel(piece: Piece, base_offset: int, leader_epoch: int, attributes: int) -> tuple[bytes, Table]:
    """One batch of all rows, as the kernel writes it."""
    records = piece.columns()
    buffer = np.zeros(records.size_bound, np.uint8)
    table = np.zeros((COLUMN_COUNT, 1), np.int64)
    state = np.array([0, 0, len(records), base_offset, 0, 0], np.int64)
    columns = records.timestamps, *records.keys, *records.values, records.headers.ends, *records.headers.names[:2]
    kernel = encoding.encode_batches_with_headers if records.headers.ends.size else encoding.encode_batches
    with np.errstate(over="ignore"):  # interpreted, it warns where times are 2^63 apart; compiled, it wraps as it should
        kernel(buffer, state, buffer.size, leader_epoch, attributes, table, *columns, *records.headers.values)
    assert state[encoding.E_ROW] == len(records)
    return buffer[: state[encoding.E_POSITION]].tobytes(), table


def decoded(data: bytes) -> list[Row]:
    """The records of a batch, read by the reference; their checksum is compared with the kernel's elsewhere."""
    (column,), _, _ = reference.scan_batches(data, 0, len(data), verify=False, capacity=1)
    result = reference.decode_records(data, [column], verify=False)
    return [
        (row.key, row.value, tuple((name.decode(), value) for name, value in row.headers), row.timestamp) for row in result.rows
    ]


# ---- one batch -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@EXAMPLES
@example([(None, None, (), stamp) for stamp in (-1, limits.INT64_MAX, 0)], 0, 0, 0)  # 2^63 apart
@given(rows, st.integers(0, 2**62), st.integers(0, limits.INT32_MAX), st.sampled_from([0, LOG_APPEND_TIME_BIT]))
def test_the_batch_and_its_column_are_the_kernels(made: list[Row], offset: int, epoch: int, attributes: int) -> None:
    found = encode_few(few(made), offset, epoch, attributes)
    expected, table = by_kernel(columns_of(made), offset, epoch, attributes)
    assert found.data == expected
    assert found.table.tolist() == table.tolist()


@pytest.mark.slow
@EXAMPLES
@given(rows, st.builds(ProducerBatch, st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, limits.INT32_MAX)))
def test_a_producers_numbers_are_those_that_a_finished_batch_is_stamped_with(made: list[Row], producer: ProducerBatch) -> None:
    found = encode_few(few(made), 7, 1, 0, producer)
    plain = encode_few(few(made), 7, 1, 0)
    stamped = stamp_producer(Encoded(memoryview(bytearray(plain.data)), plain.table), producer)
    assert found.data == stamped.data
    assert found.table.tolist() == stamped.table.tolist()


@pytest.mark.slow
@EXAMPLES
@example([(None, None, (), stamp) for stamp in (-1, limits.INT64_MAX, 0)])
@given(rows)
def test_the_records_are_read_back_as_they_were_given(made: list[Row]) -> None:
    assert decoded(bytes(encode_few(few(made), 0, 0, 0).data)) == made


@pytest.mark.slow
@EXAMPLES
@given(rows, st.data())
def test_a_slice_of_rows_is_the_records_in_it_and_so_is_a_slice_of_that(made: list[Row], data: st.DataObject) -> None:
    whole, first, end = columns_of(made), 0, len(made)
    for _ in range(2):
        start, stop = sorted(data.draw(st.tuples(st.integers(0, end - first), st.integers(0, end - first))))
        whole, first, end = whole.slice(start, stop), first + start, first + stop
    assert few_of(whole).records == few(made).records[first:end]
    if len(whole):
        assert by_kernel(whole, 0, 0, 0)[0] == by_kernel(columns_of(made[first:end]), 0, 0, 0)[0]
        assert whole.largest_record() == max(few_rows([record]).largest_record() for record in few(made).records[first:end])


@pytest.mark.slow
@EXAMPLES
@given(rows, st.data())
def test_a_slice_of_arrow_columns_is_encoded_as_the_records_in_it(made: list[Row], data: st.DataObject) -> None:
    """Its offsets do not begin at 0, and its validity bits in the middle of a byte."""
    first = data.draw(st.integers(0, len(made) - 1))
    end = data.draw(st.integers(first + 1, len(made)))
    keys, values, headers, timestamps = zip(*made, strict=True)
    pairs = [[{"key": name, "value": value} for name, value in each] for each in headers]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps, pa.int64()),
        "headers": pa.array(pairs, HEADERS_TYPE),
    }
    (sliced,) = rows_from_arrow(pa.table(columns).slice(first, end - first), NOW)
    assert encode_few(few_of(sliced), 7, 1, 0) == encode_few(few(made[first:end]), 7, 1, 0)


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 8191, -8192, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_a_varint_is_the_references(value: int) -> None:
    assert varint(value) == reference.varint_bytes(value)


# ---- who encodes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, limits.FEW_RECORDS, limits.FEW_RECORDS + 1, 3 * limits.FEW_RECORDS])
def test_the_bytes_do_not_depend_on_how_many_records_count_as_a_few(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = rows_from_records(None, [b"value %d" % number for number in range(count)], None, None, NOW)
    (plain,) = BatchEncoder().encode(records, 5, 2)
    written = bytes(plain.data)
    monkeypatch.setattr(limits, "FEW_RECORDS", 0)
    (by_loop,) = BatchEncoder().encode(records, 5, 2)
    assert written == bytes(by_loop.data)
    assert plain.table.tolist() == by_loop.table.tolist()


def test_a_few_records_that_are_too_large_for_one_batch_become_several() -> None:
    records = rows_from_records(None, [b"x" * 3000] * 4, None, None, NOW)
    parts = list(BatchEncoder(batch_bytes=7000).encode(records, 0, 0))
    assert [int(count) for part in parts for count in part.table[4]] == [2, 2]


# ---- several calls' records together -----------------------------------------------------------------------------------------


@pytest.mark.slow
@EXAMPLES
@given(st.lists(rows, min_size=1, max_size=4))
def test_the_records_of_several_calls_are_those_of_one(calls: list[list[Row]]) -> None:
    joined = joined_rows([columns_of(made) if number % 2 else few(made) for number, made in enumerate(calls)])
    together = columns_of([record for made in calls for record in made])
    assert len(joined) == len(together)
    assert by_kernel(joined, 0, 0, 0)[0] == by_kernel(together, 0, 0, 0)[0]


@pytest.mark.slow
@EXAMPLES
@given(rows)
def test_columns_and_plain_records_are_the_same_rows(made: list[Row]) -> None:
    assert decoded(by_kernel(few(made), 0, 0, 0)[0]) == made
    assert decoded(bytes(encode_few(few_of(columns_of(made)), 0, 0, 0).data)) == made


@pytest.mark.slow
@EXAMPLES
@given(rows, st.integers(-1, NOW))
def test_a_few_rows_are_stamped_and_measured_as_columns_are(made: list[Row], now_ms: int) -> None:
    plain, columns = few(made), columns_of(made)
    assert decoded(bytes(encode_few(plain.stamped(now_ms), 0, 0, 0).data)) == decoded(
        by_kernel(columns.stamped(now_ms), 0, 0, 0)[0]
    )
    size = len(encode_few(plain, 0, 0, 0).data)
    assert size <= plain.size_bound
    assert all(len(encode_few(few([record]), 0, 0, 0).data) <= plain.largest_record() for record in made)


@pytest.mark.parametrize(
    ("key", "value", "stamp", "headers"),
    [
        (None, "text", None, ()),
        (1, b"v", None, ()),
        (None, b"v", -2, ()),
        (None, b"v", True, ()),
        (None, b"v", 2**63, ()),
        (None, b"v", None, [("name", "text")]),
        (None, b"v", None, [(b"name", b"v")]),
        (None, b"v", None, [("name",)]),
        (None, b"v", None, 7),
        (None, b"v", None, [("\ud800", b"v")]),
    ],
)
def test_a_single_record_is_refused_for_what_many_are_refused_for(key: Any, value: Any, stamp: Any, headers: Any) -> None:
    with pytest.raises(pylog.InvalidRecordError):
        rows_from_record(key, value, stamp, headers, NOW)


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (bytearray(b"v"), ()),
        (memoryview(b"v"), ()),
        (b"v", iter([("h", None)])),
        (b"v", [["h", b"x"]]),
        (b"v", [("ä", bytearray(b"x"))]),
    ],
)
def test_a_single_record_may_be_made_of_whatever_many_may_be_made_of(value: Any, headers: Any) -> None:
    given = list(headers)
    (row,) = few_of(rows_from_record(None, value, None, iter(given) if headers is not given else given, NOW)).records
    assert row == (NOW, None, b"v", tuple((name.encode(), None if held is None else bytes(held)) for name, held in given))


def test_joined_columns_cannot_be_written_to() -> None:
    joined = joined_rows([columns_of([(b"k", None, (("h", None),), 1)])] * (limits.FEW_RECORDS + 1)).columns()
    arrays = [joined.timestamps, *joined.keys, *joined.values, joined.headers.ends, *joined.headers.names, *joined.headers.values]
    assert not any(array.flags.writeable for array in arrays)


def test_a_column_of_nothing_but_null_is_empty_unless_it_must_have_offsets() -> None:
    assert not binary_column([None, None]).ends.size
    assert binary_column([None, None], null_as_empty=True).ends.tolist() == [0, 0, 0]
    assert not binary_column([], null_as_empty=True).ends.size
