"""What is appended becomes batches: from every shape that Arrow data comes in, and refused before anything is written."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog import limits
from pylog.errors import InvalidRecordError, RecordTooLargeError
from pylog.record import compression
from pylog.record.builder import HEADERS_TYPE, BatchEncoder, rows_from_records
from pylog.record.format import CODEC_NAMES
from pylog.record.from_arrow import rows_from_arrow
from pylog.record.kernel import INTERPRETED
from pylog.record.rows import Rows
from support.record.steps import check_steps_stay
from support.reference import records as reference

EXAMPLES = settings(max_examples=20 if INTERPRETED else 100)

NOW = 1_700_000_000_000

Made = tuple[int, bytes | None, bytes | None, tuple[reference.HeaderPair, ...]]  # timestamp, key, value, headers


def encoded(pieces: list[Rows], **options: Any) -> list[bytes]:
    """The batches of some rows, one after the other, as they would be written."""
    encoder, offset, written = BatchEncoder(**options), 0, []
    for rows in pieces:
        for piece in encoder.encode(rows, offset, 0):
            data, table = piece.data, piece.table
            columns = [reference.Column(*column) for column in table.T.tolist()]
            written += [bytes(data[column.position : column.position + column.size]) for column in columns]
            assert reference.scan_batches(bytes(data), 0, len(data), verify=True, capacity=10**6)[0] == columns
        offset += len(rows)
    return written


def decoded(batches: list[bytes]) -> list[Made]:
    """The records in them, read by the reference."""
    made: list[Made] = []
    for batch in batches:
        (column,), _, _ = reference.scan_batches(batch, 0, len(batch), verify=True, capacity=1)
        assert column.crc_state == 1
        codec = column.attributes & 7
        plain = bytes(61) + compression.Scratch().decompress(codec, batch[61:]).tobytes() if codec else batch
        result = reference.decode_records(plain, [column._replace(size=len(plain))], verify=False)
        assert result.stopped == 1
        assert [row.offset for row in result.rows] == list(range(len(made), len(made) + column.count))
        made += [(row.timestamp, row.key, row.value, row.headers) for row in result.rows]
    return made


def from_arrow(data: Any) -> list[Made]:
    return decoded(encoded(list(rows_from_arrow(data, NOW))))


def values_of(column: Any) -> list[bytes | None]:
    return [value for _, _, value, _ in from_arrow(pa.table({"value": column}))]


def stamps_of(column: Any) -> list[int]:
    return [stamp for stamp, *_ in from_arrow(pa.table({"timestamp": column}))]


def headers_of(column: Any) -> list[tuple[reference.HeaderPair, ...]]:
    return [headers for *_, headers in from_arrow(pa.table({"headers": column}))]


# ---- keys and values -------------------------------------------------------------------------------------------------------

THREE = [b"one", None, b""]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_binary_and_string_columns_are_taken(kind: pa.DataType) -> None:
    assert values_of(pa.array(THREE, pa.binary()).cast(kind)) == THREE


def test_fixed_size_columns_are_taken() -> None:
    assert values_of(pa.array([b"abcd", None, b"efgh"], pa.binary(4))) == [b"abcd", None, b"efgh"]


def test_a_column_of_type_null_is_null() -> None:
    assert values_of(pa.nulls(2)) == [None, None]


def test_columns_that_are_missing_are_null_now_and_empty() -> None:
    assert from_arrow(pa.table({"key": pa.array([b"k"])})) == [(NOW, b"k", None, ())]


def test_the_order_of_the_columns_is_of_no_account() -> None:
    table = pa.table({"headers": pa.array([[]], HEADERS_TYPE), "timestamp": [5], "value": [b"v"], "key": [b"k"]})
    assert from_arrow(table) == from_arrow(table.select(["key", "value", "timestamp", "headers"])) == [(5, b"k", b"v", ())]


@pytest.mark.parametrize("first", [0, 1, 7, 8, 9, 63])
def test_a_slice_is_what_it_shows(first: int) -> None:
    values = [None if i % 3 == 0 else b"%d" % i for i in range(100)]
    headers = [None if i % 5 == 0 else [(f"n{i}", None if i % 2 else b"%d" % i)] * (i % 4) for i in range(100)]
    stamps = [None if i % 7 == 0 else i for i in range(100)]
    table = pa.table(
        {
            "key": pa.array(values, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(stamps, pa.int64()),
            "headers": pa.array(
                [None if row is None else [{"key": k, "value": v} for k, v in row] for row in headers], HEADERS_TYPE
            ),
        }
    )
    expected = [
        (NOW if stamp is None else stamp, value, value, tuple((name.encode(), data) for name, data in row or []))
        for stamp, value, row in zip(stamps, values, headers, strict=True)
    ]
    for size in (0, 1, 8, 30):
        assert from_arrow(table.slice(first, size)) == expected[first : first + size]
        assert from_arrow(table.to_batches()[0].slice(first, size)) == expected[first : first + size]


def test_chunks_are_taken_one_after_the_other() -> None:
    chunks = [pa.array([b"a", None]), pa.array([], pa.binary()), pa.array([b"b"]), pa.array([None], pa.binary())]
    other = pa.chunked_array([pa.array([1]), pa.array([2, 3, 4])])
    table = pa.table({"value": pa.chunked_array(chunks), "timestamp": other})
    assert [(stamp, value) for stamp, _, value, _ in from_arrow(table)] == [(1, b"a"), (2, None), (3, b"b"), (4, None)]


def test_values_hidden_under_nulls_stay_hidden() -> None:
    bits, ends, data = pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 3, 6, 9], np.int32)), pa.py_buffer(b"abcdefghi")
    assert values_of(pa.Array.from_buffers(pa.binary(), 3, [bits, ends, data])) == [b"abc", None, b"ghi"]


@pytest.mark.parametrize("columns", [[], ["key"], ["key", "value", "timestamp", "headers"]])
def test_an_empty_table_has_no_rows(columns: list[str]) -> None:
    kinds = {"key": pa.binary(), "value": pa.string(), "timestamp": pa.timestamp("us"), "headers": HEADERS_TYPE}
    schema = pa.schema([(name, kinds[name]) for name in columns])
    assert list(rows_from_arrow(schema.empty_table(), NOW)) == []
    assert list(rows_from_arrow(pa.RecordBatch.from_pylist([], schema), NOW)) == []


def test_a_table_of_rows_without_columns_has_them_null() -> None:
    table = pa.table({"key": [b"k", b"l"]}).select([])
    assert table.num_rows == 2
    assert from_arrow(table) in ([], [(NOW, None, None, ())] * 2)  # to_batches() of such a table may lose its rows


# ---- timestamps ------------------------------------------------------------------------------------------------------------

MOMENT = dt.datetime(2024, 2, 29, 12, 30, 45, 678_000, tzinfo=dt.UTC)
MOMENT_MS = 1_709_209_845_678


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1 / 1000), ("ms", 1), ("us", 1000), ("ns", 1_000_000)])
def test_timestamps_of_all_units_become_milliseconds(unit: str, factor: float, zone: str | None) -> None:
    column = pa.array([int(MOMENT_MS * factor), None], pa.int64()).cast(pa.timestamp(unit, zone))
    assert stamps_of(column) == [MOMENT_MS // 1000 * 1000 if unit == "s" else MOMENT_MS, NOW]


def test_parts_of_a_millisecond_are_cut_off() -> None:
    assert stamps_of(pa.array([1_999], pa.timestamp("us"))) == [1]
    assert stamps_of(pa.array([1_999_999], pa.timestamp("ns"))) == [1]


def test_integers_are_milliseconds_and_minus_one_is_none() -> None:
    assert stamps_of(pa.array([0, -1, 2**62, None])) == [0, -1, 2**62, NOW]
    assert stamps_of(pa.nulls(2)) == [NOW, NOW]
    assert stamps_of(pa.array([-1], pa.timestamp("ms"))) == [-1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5, -2]),
        pa.array([-(2**63)]),
        pa.array([-2], pa.timestamp("ms", "UTC")),
        pa.array([-1], pa.timestamp("s")),
        pa.array([-2_000], pa.timestamp("us")),
    ],
)
def test_timestamps_before_1970_are_refused(column: Any) -> None:
    with pytest.raises(InvalidRecordError, match="before 1970"):
        stamps_of(column)


def test_a_time_that_does_not_fit_is_refused_and_not_made_another() -> None:
    with pytest.raises(InvalidRecordError, match="timestamp"):
        stamps_of(pa.array([2**62], pa.timestamp("s")))


# ---- headers ---------------------------------------------------------------------------------------------------------------

PAIRS = [[("a", b"1"), ("a", None), ("", b"")], [], None, [("ä", b"\xff")]]
PAIRS_READ = [((b"a", b"1"), (b"a", None), (b"", b"")), (), (), (("ä".encode(), b"\xff"),)]


def header_column(rows: list[Any], kind: pa.DataType = HEADERS_TYPE) -> pa.Array:
    return pa.array([None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows], kind)


def test_headers_keep_their_order_and_their_doubles() -> None:
    assert headers_of(header_column(PAIRS)) == PAIRS_READ


def test_maps_are_headers() -> None:
    column = pa.array(PAIRS, pa.map_(pa.string(), pa.binary()))
    assert headers_of(column) == PAIRS_READ
    assert headers_of(column.slice(1, 3)) == PAIRS_READ[1:]
    assert headers_of(pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))) == [((b"a", b"b"),)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])),
    ],
)
def test_headers_of_related_types_are_taken(kind: pa.DataType) -> None:
    assert headers_of(header_column([[("a", b"1" if pa.types.is_binary(kind.value_type[1].type) else "1")]], kind)) == [
        ((b"a", b"1"),)
    ]


def test_a_header_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="no name"):
        headers_of(header_column([[(None, b"1")]]))
    with pytest.raises(InvalidRecordError, match="no name"):
        headers_of(pa.array([[None]], HEADERS_TYPE))


def test_nameless_headers_outside_of_a_slice_are_of_no_account() -> None:
    column = header_column([[(None, b"1")], [("a", b"2")], [("b", None)]])
    assert headers_of(column.slice(1)) == [((b"a", b"2"),), ((b"b", None),)]


def test_header_values_may_all_be_null() -> None:
    assert headers_of(header_column([[("a", None)], [("b", None)]])) == [((b"a", None),), ((b"b", None),)]
    assert headers_of(pa.nulls(2)) == [(), ()]


def test_header_names_that_are_not_utf_8_are_refused() -> None:
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    with pytest.raises(InvalidRecordError, match="headers"):
        headers_of(header_column([[(b"\xff", b"1")]], kind))


# ---- refusals --------------------------------------------------------------------------------------------------------------

WRONG = {
    "not a table": [b"value"],
    "not a table but a column": pa.array([b"value"]),
    "an unknown column": pa.table({"value": [b"v"], "offset": [1]}),
    "a column twice": pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], ["value", "value"]),
    "a value of ints": pa.table({"value": [1]}),
    "a key of lists": pa.table({"key": [[b"k"]]}),
    "a key of a dictionary of ints": pa.table({"key": pa.array([1]).dictionary_encode()}),
    "a value of bools": pa.table({"value": [True]}),
    "a timestamp of floats": pa.table({"timestamp": [1.5]}),
    "a timestamp of strings": pa.table({"timestamp": ["2024-01-01"]}),
    "a timestamp of dates": pa.table({"timestamp": [dt.date(2024, 1, 1)]}),
    "headers of strings": pa.table({"headers": ["a=b"]}),
    "headers of lists of strings": pa.table({"headers": [["a"]]}),
    "headers of other structs": pa.table({"headers": [[{"name": "a", "value": b"b"}]]}),
    "header values of ints": pa.table({"headers": [[{"key": "a", "value": 1}]]}),
    "a map of ints": pa.table({"headers": pa.array([[(1, b"a")]], pa.map_(pa.int64(), pa.binary()))}),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_wrong_columns_and_types_are_refused(data: Any) -> None:
    with pytest.raises(InvalidRecordError):
        list(rows_from_arrow(data, NOW))


@pytest.mark.parametrize(
    ("keys", "values", "timestamps", "headers"),
    [
        ([None], ["text"], None, None),
        (["text"], [b"v"], None, None),
        ([1], [b"v"], None, None),
        ([None], [object()], None, None),
        ([None], [[b"v"]], None, None),
        ([None], [b"v"], [1.5], None),
        ([None], [b"v"], ["1"], None),
        ([None], [b"v"], [True], None),
        ([None], [b"v"], [-2], None),
        ([None], [b"v"], [2**63], None),
        ([None], [b"v"], None, [[("a",)]]),
        ([None], [b"v"], None, [[("a", b"b", b"c")]]),
        ([None], [b"v"], None, [[(b"a", b"b")]]),
        ([None], [b"v"], None, [[("a", "b")]]),
        ([None], [b"v"], None, [[("a", 1)]]),
        ([None], [b"v"], None, [[(None, b"b")]]),
        ([None], [b"v"], None, [{"ab": b"c"}]),
        ([None], [b"v"], None, [5]),
        ([None], [b"v"], None, [[("\ud800", b"b")]]),
    ],
)
def test_python_values_of_wrong_types_are_refused(keys: Any, values: Any, timestamps: Any, headers: Any) -> None:
    with pytest.raises(InvalidRecordError):
        rows_from_records(keys, values, timestamps, headers, NOW)


def test_python_values_become_the_same_columns() -> None:
    rows = rows_from_records([b"k", None], [None, b"v"], [None, 7], [iter([("h", None)]), ()], NOW)
    assert decoded(encoded([rows])) == [(NOW, b"k", None, ((b"h", None),)), (7, None, b"v", ())]


# ---- limits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["key", "value", "header", "name"])
def test_a_record_that_could_be_too_large_is_refused(where: str) -> None:
    big = bytes(1000)
    headers = {"header": [("h", big)], "name": [("h" * 1000, b"")]}.get(where)
    rows = rows_from_records(
        [big if where == "key" else None, None],
        [big if where == "value" else None, b""],
        None,
        [headers, []] if headers else None,
        NOW,
    )
    BatchEncoder(max_message_bytes=2000).check(rows, NOW)
    with pytest.raises(RecordTooLargeError, match="max_message_bytes=1000"):
        BatchEncoder(max_message_bytes=1000).check(rows, NOW)


def test_the_bound_on_a_record_is_never_below_its_batch() -> None:
    for size in (0, 1, 60, 63, 64, 8191, 8192, 70_000):
        rows = rows_from_records([bytes(size)], [bytes(size)], [2**62], [[("n" * (size % 300), bytes(size))]], NOW)
        (batch,) = encoded([rows], batch_bytes=1)
        assert len(batch) <= rows.largest_record() <= len(batch) + 40


@pytest.mark.slow
@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
@pytest.mark.parametrize("limit", [200, 1000, 10_000])
def test_no_batch_is_larger_than_the_limit(codec: int, limit: int) -> None:
    random = np.random.default_rng(1)
    rows = rows_from_records(None, [random.bytes(int(size)) for size in random.integers(0, limit - 90, 300)], None, None, NOW)
    encoder = BatchEncoder(codec, max_message_bytes=limit)
    encoder.check(rows, NOW)
    batches = encoded([rows], codec=codec, max_message_bytes=limit)
    assert len(decoded(batches)) == 300
    assert max(map(len, batches)) <= limit, codec


def test_log_append_time_is_in_every_batch() -> None:
    rows = rows_from_records(None, [b"a", b"b"], [5, 6], None, NOW).stamped(77)
    (batch,) = encoded([rows], log_append_time=True)
    assert batch[22] == 8
    assert [stamp for stamp, *_ in decoded([batch])] == [77, 77]


@pytest.mark.parametrize("codec", [0, 4])
def test_rows_larger_than_the_buffer_are_encoded_in_several_steps(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPEND_CHUNK_BYTES", 4000)
    values = [*(bytes([i]) * 700 for i in range(10)), bytes(5000), b""]
    rows = rows_from_records(None, values, None, None, NOW)
    steps = list(BatchEncoder(codec, batch_bytes=1500).encode(rows, 0, 0))
    assert len(steps) > 2
    batches = encoded([rows], codec=codec, batch_bytes=1500)
    assert [value for _, _, value, _ in decoded(batches)] == values


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.lists(st.sampled_from([300, 3000, 5000, 9000]), min_size=1, max_size=6), max_size=4))
def test_a_step_stays_as_it_is_while_the_next_one_is_made(calls: list[list[int]]) -> None:
    """It is being written then: records larger than a buffer, and buffers that grew before, do not change that."""
    encoder = BatchEncoder(batch_bytes=1)
    for sizes in calls:
        rows = rows_from_records(None, [bytes([number]) * size for number, size in enumerate(sizes)], None, None, NOW)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(limits, "APPEND_CHUNK_BYTES", 4000)
            check_steps_stay(encoder.encode(rows, 0, 0))


@pytest.mark.slow
@EXAMPLES
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-1, 2**62),
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=9),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
        ),
        max_size=12,
    ),
    st.integers(0, len(CODEC_NAMES) - 1),
    st.integers(1, 200),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_any_rows_in_any_codec_and_pieces_come_back(rows: list[Any], codec: int, batch_bytes: int, cuts: list[int]) -> None:
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    pieces = [rows[first:last] for first, last in itertools.pairwise(edges)]
    columns = [rows_from_records(*map(list, zip(*((k, v, t, h) for t, k, v, h in piece), strict=True)), NOW) for piece in pieces]
    expected = [
        (NOW if stamp is None else stamp, key, value, tuple((name.encode(), data) for name, data in headers))
        for stamp, key, value, headers in rows
    ]
    assert decoded(encoded(columns, codec=codec, batch_bytes=batch_bytes)) == expected
    kind = pa.struct([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS_TYPE)])
    dicts = [
        {"timestamp": t, "key": k, "value": v, "headers": [{"key": name, "value": value} for name, value in h]}
        for t, k, v, h in rows
    ]
    table = pa.Table.from_struct_array(pa.array(dicts, kind))
    sliced = pa.concat_tables([table.slice(first, last - first) for first, last in itertools.pairwise(edges)] or [table])
    assert decoded(encoded(list(rows_from_arrow(sliced, NOW)), codec=codec, batch_bytes=batch_bytes)) == expected
