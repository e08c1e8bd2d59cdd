"""Batches become Arrow batches: of the columns asked for, whatever shape the batches have, up to the first damaged one."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylog import limits
from pylog.errors import CorruptionError, DecompressionLimitError, InvalidArgumentError, PylogError, UnsupportedFormatError
from pylog.record import compression
from pylog.record.batch import Table, scan_batches
from pylog.record.decoder import TYPES, RecordDecoder, schema_of
from pylog.record.format import CODEC_NAMES
from pylog.record.kernel import INTERPRETED
from support.record import cases
from support.record.cases import joined
from support.reference import records as reference
from support.reference.records import Batch, Record

EXAMPLES = settings(max_examples=15 if INTERPRETED else 80)

ALL_COLUMNS = tuple(TYPES)

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def wrapping_integers() -> Iterator[None]:
    with np.errstate(over="ignore"):
        yield


def table_of(data: bytes) -> tuple[Any, Table]:
    buffer = np.frombuffer(data, np.uint8)
    scan = scan_batches(buffer)
    assert scan.position == len(data)
    return buffer, scan.table


def frames_of(data: bytes, columns: Sequence[str] = ALL_COLUMNS, **options: Any) -> Iterator[pa.RecordBatch]:
    decoder = RecordDecoder(columns, **options)
    buffer, table = table_of(data)
    yield from decoder.feed(buffer, table)
    yield from decoder.finish()


def rows_of(frames: Any) -> Rows:
    rows: Rows = []
    for frame in frames:
        frame.validate(full=True)
        rows += frame.to_pylist()
    for row in rows:
        if "timestamp" in row:
            row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
    return rows


def expected_rows(made: Sequence[Batch]) -> Rows:
    """What batches say, field by field, from how they were built."""
    rows = []
    for batch in made:
        largest = max((batch.base_timestamp + record.timestamp_delta for record in batch.records), default=-1)
        for record in batch.records:
            appended = bool(batch.attributes & 8)
            own = batch.base_timestamp + record.timestamp_delta
            sequence = -1 if batch.base_sequence < 0 else (batch.base_sequence + record.offset_delta) % 2**31
            rows.append(
                {
                    "offset": batch.base_offset + record.offset_delta,
                    "timestamp": (largest if batch.max_timestamp is None else batch.max_timestamp) if appended else own,
                    "timestamp_type": int(appended),
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers],
                    "leader_epoch": batch.leader_epoch,
                    "producer_id": batch.producer_id,
                    "producer_epoch": batch.producer_epoch,
                    "sequence": sequence,
                }
            )
    return rows


def plain_batch(first: int, count: int = 3, **fields: Any) -> Batch:
    return Batch(
        [Record(i, i, b"k%d" % (first + i), b"v%d" % (first + i)) for i in range(count)],
        first,
        4,
        **({"base_timestamp": 1000} | fields),
    )


def compressed(batch: Batch, codec: int) -> bytes:
    payload = batch.encoded()[61:]
    largest = max((batch.base_timestamp + record.timestamp_delta for record in batch.records), default=batch.base_timestamp)
    sealed = Batch(
        payload=compression.compress(codec, payload).tobytes(),
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes | codec,
        base_timestamp=batch.base_timestamp,
        max_timestamp=largest if batch.max_timestamp is None else batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=len(batch.records),
        last_offset_delta=max((record.offset_delta for record in batch.records), default=0)
        if batch.last_offset_delta is None
        else batch.last_offset_delta,
    )
    return sealed.encoded()


# ---- fields ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [
        plain_batch(5),
        plain_batch(5, producer_id=7, producer_epoch=3, base_sequence=10),
        plain_batch(5, attributes=0x10, producer_id=2**62, producer_epoch=32767, base_sequence=0),
        plain_batch(5, attributes=0x08, max_timestamp=99),
        plain_batch(5, attributes=0x40, base_timestamp=10**12),
        Batch(
            [Record(0, -5, None, None), Record(3, -(10**6), b"", b"")], 5, -1, 0x40, base_timestamp=10**12, last_offset_delta=9
        ),
        Batch([Record(0, 0, bytes(4), bytes(6))], 9, 2, 0x30, base_timestamp=5, producer_id=1, producer_epoch=0),
        Batch([Record(0, 0, None, None, ((b"h", None), (b"h", b""), (b"", b"x")))], 0, base_timestamp=-1),
    ],
    ids=["plain", "idempotent", "transactional", "log-append-time", "delete-horizon", "compacted", "control", "headers"],
)
def test_every_field_of_a_batch_reaches_its_rows(batch: Batch) -> None:
    assert rows_of(frames_of(batch.encoded())) == expected_rows([batch])
    for codec in range(1, len(CODEC_NAMES)):
        assert rows_of(frames_of(compressed(batch, codec))) == expected_rows([batch])


def test_sequences_wrap_to_zero() -> None:
    batch = plain_batch(0, 4, producer_id=1, producer_epoch=0, base_sequence=limits.INT32_MAX - 1)
    assert [row["sequence"] for row in rows_of(frames_of(batch.encoded(), ("sequence",)))] == [
        limits.INT32_MAX - 1,
        limits.INT32_MAX,
        0,
        1,
    ]


def test_fields_of_many_batches_do_not_mix() -> None:
    made = [plain_batch(10 * i, i % 4, producer_id=i, producer_epoch=i, base_sequence=i) for i in range(9)]
    for batch, kind in zip(made, (0, 8, 0x10) * 3, strict=True):
        batch.attributes = kind
    data = b"".join(batch.encoded() if i % 3 else compressed(batch, 1 + i % 4) for i, batch in enumerate(made))
    assert rows_of(frames_of(data)) == expected_rows(made)


def test_an_empty_batch_gives_no_rows() -> None:
    empty = Batch([], 3, 293, 0, -1, 1000, 23, 5, 10, last_offset_delta=7).encoded()
    assert rows_of(frames_of(empty)) == []
    around = [plain_batch(0), plain_batch(11)]
    assert rows_of(frames_of(around[0].encoded() + empty + around[1].encoded())) == expected_rows(around)
    marked = Batch([], 3, 0, 0x04, payload=b"", count=0, last_offset_delta=7).encoded()  # says zstd; there is nothing to open
    assert rows_of(frames_of(marked)) == []


def test_negative_timestamps_are_returned_as_they_are() -> None:
    batch = Batch([Record(0, -1000, None, None), Record(1, 1, None, None)], base_timestamp=0, max_timestamp=1)
    stamps = [frame.column(0).cast(pa.int64()).to_pylist() for frame in frames_of(batch.encoded(), ("timestamp",))]
    assert stamps == [[-1000, 1]]


def test_header_names_that_are_not_utf_8_are_replaced_as_java_does() -> None:
    batch = Batch(
        [Record(0, 0, None, None, ((b"good", b"1"), (b"b\xffd", b"2"))), Record(1, 0, None, None, (("ä".encode(), None),))]
    )
    batch.base_timestamp = 0
    headers = [row["headers"] for row in rows_of(frames_of(batch.encoded(), ("headers", "offset", "timestamp")))]
    assert headers == [[{"key": "good", "value": b"1"}, {"key": "b\ufffdd", "value": b"2"}], [{"key": "ä", "value": None}]]


def test_more_headers_than_expected_are_all_there() -> None:
    many = tuple((b"name%d" % i, bytes(i % 50)) for i in range(3000))
    batch = Batch(
        [Record(0, 0, None, None, many), Record(1, 0, None, None, ()), Record(2, 0, None, None, many[:7])], base_timestamp=0
    )
    assert rows_of(frames_of(batch.encoded(), ("offset", "headers"))) == [
        {"offset": row["offset"], "headers": row["headers"]} for row in expected_rows([batch])
    ]


# ---- columns ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@EXAMPLES
@given(cases.batches(), st.permutations(ALL_COLUMNS), st.integers(1, len(ALL_COLUMNS)), st.integers(0, 4))
def test_any_columns_in_any_order(made: list[Batch], order: list[str], count: int, codec: int) -> None:
    made = [batch for batch in made if all(-(2**41) < batch.base_timestamp + r.timestamp_delta < 2**43 for r in batch.records)]
    made = [batch for batch in made if (batch.max_timestamp or 0) < 2**43]
    columns = order[:count]
    data = b"".join(compressed(batch, codec) if codec and i % 2 else batch.encoded() for i, batch in enumerate(made))
    frames = list(frames_of(data, columns))
    assert all(frame.schema == schema_of(columns) for frame in frames)
    assert rows_of(frames) == [{name: row[name] for name in columns} for row in expected_rows(made)]


@pytest.mark.parametrize("columns", [[], ["nope"], ["offset", "offset"], "offset"])
def test_columns_that_there_are_not_are_refused(columns: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="columns"):
        RecordDecoder(columns)


# ---- rows ------------------------------------------------------------------------------------------------------------------

MANY = [plain_batch(first, 5) for first in range(0, 50, 5)]


@pytest.mark.parametrize("max_rows", [1, 2, 5, 7, 49, 50, 51, 10**6])
def test_no_frame_has_more_rows_than_asked_for(max_rows: int) -> None:
    for data in (joined(MANY)[0], b"".join(compressed(batch, 3) for batch in MANY)):
        frames = list(frames_of(data, max_rows=max_rows))
        assert max(frame.num_rows for frame in frames) <= max_rows
        assert min(frame.num_rows for frame in frames) > 0
        assert rows_of(frames) == expected_rows(MANY)


@pytest.mark.parametrize("max_rows", [5, 7, 10, 25])
def test_no_frame_is_cut_in_two_where_whole_batches_fit(max_rows: int) -> None:
    for _ in range(2):  # with new buffers, and with those that were used before
        frames = list(frames_of(joined(MANY)[0], max_rows=max_rows))
        assert {frame.num_rows for frame in frames} == {max_rows // 5 * 5}
        del frames


@pytest.mark.parametrize("codec", [0, 2])
def test_offsets_outside_of_the_range_are_left_out(codec: int) -> None:
    data = b"".join(compressed(batch, codec) if codec else batch.encoded() for batch in MANY)
    expected = expected_rows(MANY)
    for start, end in [(0, 0), (0, 1), (3, 4), (4, 6), (7, 50), (49, 50), (50, 60), (10, 5)]:
        assert rows_of(frames_of(data, start=start, end=end)) == [row for row in expected if start <= row["offset"] < end]


def test_a_batch_larger_than_a_frame_may_be_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCAN_BYTES", 500)
    made = [plain_batch(0, 2), plain_batch(2, 200), plain_batch(202, 1)]
    assert rows_of(frames_of(joined(made)[0], max_rows=50)) == expected_rows(made)


def test_batches_fed_one_by_one_gather_in_one_frame() -> None:
    decoder, got = RecordDecoder(ALL_COLUMNS), []
    for batch in MANY:
        got += list(decoder.feed(*table_of(batch.encoded())))
    assert got == []
    (frame,) = decoder.finish()
    assert rows_of([frame]) == expected_rows(MANY)
    assert list(decoder.finish()) == []


@pytest.mark.slow
@EXAMPLES
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.sampled_from([1, 3, 1000]))
def test_a_frame_keeps_its_rows_whatever_is_decoded_after_it(kept: list[bool], max_rows: int) -> None:
    """Memory is used again, but never while something still refers to it."""
    decoder = RecordDecoder(("offset", "timestamp", "key", "value", "headers"), max_rows=max_rows)
    held: list[Any] = []
    for number, keep in enumerate(kept):
        batch = plain_batch(number * 10, 5)
        for frame in [*decoder.feed(*table_of(batch.encoded())), *decoder.finish()]:
            if keep:
                held.append((frame.to_pylist(), frame.column(3).slice(1), frame))
            elif number % 2:
                held.append((frame.column(0).to_pylist(), frame.column(0).to_numpy(), None))
    for expected, part, frame in held:
        if frame is None:
            assert part.tolist() == expected
        else:
            assert frame.to_pylist() == expected
            assert part.to_pylist() == [row["value"] for row in expected[1:]]


# ---- damage ----------------------------------------------------------------------------------------------------------------


def read_until_error(data: bytes, **options: Any) -> tuple[Rows, PylogError]:
    frames = []

    def read() -> None:
        for frame in frames_of(data, **options):
            frames.append(frame)  # noqa: PERF402 - those before the error are wanted too

    with pytest.raises(PylogError) as caught:
        read()
    return rows_of(frames), caught.value


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
@pytest.mark.parametrize("bad", [0, 1, 5, 9])
@pytest.mark.parametrize("max_rows", [3, 1000])
def test_everything_before_a_damaged_batch_is_returned(codec: int, bad: int, max_rows: int) -> None:
    parts = [compressed(batch, codec) if codec else batch.encoded() for batch in MANY]
    position = sum(map(len, parts[:bad]))
    data = flipped(b"".join(parts), position + 61 + 3)
    rows, error = read_until_error(data, max_rows=max_rows)
    assert rows == expected_rows(MANY[:bad])
    assert isinstance(error, CorruptionError)
    assert (error.position, error.offset) == (position, bad * 5)
    assert "checksum" in str(error)


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize(
    "payload",
    [b"", b"\x20", bytes(30), b"\xff" * 30, reference.record_bytes(Record(0, 0, b"k", b"v")) + b"\0"],
    ids=["none", "a length only", "zeros", "ones", "one too few, and a rest"],
)
def test_records_that_do_not_parse_are_corruption_even_under_a_good_checksum(payload: bytes, codec: int) -> None:
    inner = compression.compress(codec, payload).tobytes() if codec else payload
    bad = Batch(payload=inner, base_offset=5, count=2, last_offset_delta=1, attributes=codec, base_timestamp=0).encoded()
    before = plain_batch(0)
    rows, error = read_until_error(before.encoded() + bad)
    assert rows == expected_rows([before])
    assert isinstance(error, CorruptionError)
    assert (error.position, error.offset) == (len(before.encoded()), 5)


def test_offsets_that_do_not_rise_are_corruption() -> None:
    for deltas in ((0, 0), (1, 0), (0, 5), (-1, 0)):
        batch = Batch([Record(delta, 0, None, b"v") for delta in deltas], 0, base_timestamp=0, last_offset_delta=1)
        assert isinstance(read_until_error(batch.encoded())[1], CorruptionError), deltas


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named_and_not_guessed_at(codec: int) -> None:
    before = plain_batch(0)
    rows, error = read_until_error(before.encoded() + Batch(payload=b"abc", base_offset=3, count=1, attributes=codec).encoded())
    assert rows == expected_rows([before])
    assert isinstance(error, UnsupportedFormatError)
    assert error.offset == 3
    assert f"codec {codec}" in str(error)


@pytest.mark.parametrize("codec", range(1, len(CODEC_NAMES)))
def test_a_payload_that_is_not_of_its_codec_is_corruption(codec: int) -> None:
    bad = Batch(payload=b"this is no such thing", base_offset=3, count=1, attributes=codec).encoded()
    _, error = read_until_error(plain_batch(0).encoded() + bad)
    assert isinstance(error, CorruptionError)
    assert error.offset == 3


def test_a_payload_that_grows_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BATCH_DECOMPRESSED_BYTES", 1000)
    decoder = RecordDecoder()
    bomb = compressed(Batch([Record(0, 0, None, bytes(10_000))], 8, base_timestamp=0), 4)
    with pytest.raises(DecompressionLimitError, match="offsets 8 to 8") as caught:
        list(decoder.feed(*table_of(bomb)))
    assert caught.value.offset == 8


def test_without_verification_a_wrong_checksum_is_ignored() -> None:
    data = bytearray(plain_batch(0).encoded())
    data[17] ^= 1
    assert rows_of(frames_of(bytes(data), verify=False)) == expected_rows([plain_batch(0)])


@pytest.mark.slow
@EXAMPLES
@given(cases.damaged_batches(), st.booleans())
def test_decoding_any_damage_ends_in_rows_or_in_an_error_of_ours(data: bytes, verify: bool) -> None:
    buffer = np.frombuffer(data, np.uint8)
    table = scan_batches(buffer).table
    decoder = RecordDecoder(("offset", "key", "value", "headers"), verify=verify)
    found: PylogError | None = None
    try:
        for frame in [*decoder.feed(buffer, table), *decoder.finish()]:
            frame.validate(full=True)
    except PylogError as error:
        found = error
    assert found is None or None not in (found.offset, found.position)


# ---- the old formats -------------------------------------------------------------------------------------------------------


def test_old_and_new_formats_follow_each_other() -> None:
    import zlib

    def message(offset: int, value: bytes) -> bytes:
        body = struct.pack(">bbq", 1, 0, 500 + offset) + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body

    data = message(0, b"a") + message(1, b"b") + plain_batch(2).encoded() + message(5, b"c") + compressed(plain_batch(6), 1)
    rows = rows_of(frames_of(data))
    assert [row["offset"] for row in rows] == list(range(9))
    assert [row["value"] for row in rows] == [b"a", b"b", b"v2", b"v3", b"v4", b"c", b"v6", b"v7", b"v8"]
    assert [row["timestamp"] for row in rows[:2]] == [500, 501]
    assert [row["leader_epoch"] for row in rows[1:3]] == [-1, 4]
