"""Records come in whatever layout of Arrow: each way of appending takes them all, and loses nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import Durability
from pylog.clock import ManualClock
from pylog.errors import InvalidRecordError
from pylog.testing import MemoryFileSystem

NOW = 1_700_000_000_000
TEXTS = ["a", None, "", "caf\u00e9", "a"]
EXPECTED = [None if text is None else text.encode() for text in TEXTS]
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
TURNED = pa.struct([("value", pa.large_binary()), ("key", pa.string_view())])
PAIRS = [
    [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    [],
    [{"key": "i", "value": b""}],
    None,
    [{"key": "j", "value": b"2"}],
]
EXPECTED_HEADERS = [tuple((pair["key"], pair["value"]) for pair in pairs or ()) for pairs in PAIRS]

BYTES = {
    "binary": pa.array(EXPECTED, pa.binary()),
    "large_binary": pa.array(EXPECTED, pa.large_binary()),
    "binary_view": pa.array(EXPECTED, pa.binary_view()),
    "string": pa.array(TEXTS, pa.string()),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary of large strings": pa.array(TEXTS, pa.large_string()).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 5], pa.array(TEXTS)),
    "an extension": pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "text", "here"), pa.array(TEXTS)),
}
HEADERS = {
    "list": pa.array(PAIRS, pa.list_(PAIR)),
    "large_list": pa.array(PAIRS, pa.large_list(PAIR)),
    "list_view": pa.array(PAIRS, pa.list_view(PAIR)),
    "large_list_view": pa.array(PAIRS, pa.large_list_view(PAIR)),
    "fixed_size_list": pa.array([[each[0]] if each else None for each in PAIRS], pa.list_(PAIR, 1)),
    "fields the other way round": pa.array(PAIRS, pa.large_list(TURNED)),
    "map": pa.array([[(p["key"], p["value"]) for p in pairs or ()] for pairs in PAIRS], pa.map_(pa.string(), pa.binary())),
    "map of views": pa.array(
        [[(p["key"], p["value"]) for p in pairs or ()] for pairs in PAIRS], pa.map_(pa.large_string(), pa.binary_view())
    ),
}
TIMES = {
    "int64": pa.array([NOW] * 5, pa.int64()),
    "uint64": pa.array([NOW] * 5, pa.uint64()),
    "seconds": pa.array([NOW // 1000] * 5, pa.timestamp("s")),
    "nanoseconds": pa.array([NOW * 1_000_000] * 5, pa.timestamp("ns")),
    "a zone": pa.array([NOW * 1000] * 5, pa.timestamp("us", "Europe/Berlin")),
    "dictionary": pa.array([NOW] * 5, pa.int64()).dictionary_encode(),
}
Way = Callable[[pylog.Store, pa.Table], Any]


def sent(store: pylog.Store, table: pa.Table) -> None:
    with store.producer() as producer:
        producer.send_arrow("t", table)


WAYS: dict[str, Way] = {
    "append_arrow": lambda store, table: store.log("t").append_arrow(table),
    "append_arrow of a batch": lambda store, table: [store.log("t").append_arrow(batch) for batch in table.to_batches()],
    "append_batch": lambda store, table: store.log("t").append_batch(table),
    "atomically": lambda store, table: store.log("t").append_batch(table, atomic=True),
    "send_arrow": sent,
}


@pytest.fixture
def store() -> Any:
    with pylog.open("/s", fs=MemoryFileSystem(), clock=ManualClock(NOW), durability=Durability.OS) as opened:
        opened.create_topic("t")
        opened.create_topic("two", partition_count=2)
        yield opened


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", BYTES)
def test_keys_and_values_are_taken_in_every_layout_of_text_and_bytes(store: pylog.Store, way: str, layout: str) -> None:
    column = BYTES[layout]
    if isinstance(column.type, pa.BaseExtensionType) and way == "atomically":
        column = column.storage  # pyarrow 22 cannot join these
    WAYS[way](store, pa.table({"key": column, "value": column}))
    assert [(record.key, record.value) for record in store.log("t").records()] == [(each, each) for each in EXPECTED]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", HEADERS)
def test_headers_are_taken_in_every_layout_of_lists_of_pairs(store: pylog.Store, way: str, layout: str) -> None:
    table = pa.table({"value": EXPECTED, "headers": HEADERS[layout]})
    WAYS[way](store, table)
    WAYS[way](store, table.slice(1, 3))  # a slice has offsets of its own
    expected = [each[:1] for each in EXPECTED_HEADERS] if layout == "fixed_size_list" else EXPECTED_HEADERS
    assert [record.headers for record in store.log("t").records()] == expected + expected[1:4]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", TIMES)
def test_timestamps_are_taken_in_every_unit_and_zone(store: pylog.Store, way: str, layout: str) -> None:
    WAYS[way](store, pa.table({"value": EXPECTED, "timestamp": TIMES[layout]}))
    expected = NOW // 1000 * 1000 if layout == "seconds" else NOW
    assert {record.timestamp for record in store.log("t").records()} == {expected}


@pytest.mark.parametrize("layout", BYTES)
def test_a_producer_finds_the_same_partition_for_a_key_in_every_layout(store: pylog.Store, layout: str) -> None:
    with store.producer() as producer:
        producer.send_arrow("two", pa.table({"key": BYTES[layout], "value": BYTES["binary"]}))
        producer.send_arrow("two", pa.table({"key": BYTES["binary"], "value": BYTES["binary"]}))
    for number in (0, 1):
        keys = [record.key for record in store.log("two", number).records() if record.key is not None]
        assert keys[: len(keys) // 2] == keys[len(keys) // 2 :]


def test_partitions_are_taken_from_a_dictionary(store: pylog.Store) -> None:
    with store.producer() as producer:
        producer.send_arrow("two", pa.table({"value": EXPECTED, "partition": pa.array([1, 1, 0, None, 1]).dictionary_encode()}))
    assert store.log("two", 1).end_offset >= 3


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"value": pa.array([1])}, "column value is int64; it must be binary or string"),
        ({"value": pa.array([["a"]])}, "column value is list"),
        ({"value": pa.array([1]).dictionary_encode()}, "column value is dictionary"),
        ({"timestamp": pa.array([1.5])}, "column timestamp is double"),
        ({"timestamp": pa.array([dt.date(2024, 1, 1)])}, "column timestamp is date32"),
        ({"timestamp": pa.array([2**63], pa.uint64())}, "column timestamp cannot be read as int64"),
        ({"headers": pa.array([[{"key": "a", "value": b"1", "more": 1}]])}, "column headers is list"),
        ({"headers": pa.array([[{"key": "a"}]])}, "column headers is list"),
        ({"headers": pa.array([[{"key": b"\xff", "value": b""}]])}, "column headers cannot be read as list"),
        ({"headers": pa.array([[None]], pa.large_list(PAIR))}, "a header has no name"),
        ({"headers": pa.array([[{"key": None, "value": b""}]], pa.large_list(PAIR))}, "a header has no name"),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_values_that_cannot_be_read_without_loss_are_refused_in_words(
    store: pylog.Store, way: str, columns: Any, told: str
) -> None:
    with pytest.raises(InvalidRecordError, match=told):
        WAYS[way](store, pa.table(columns))
    assert store.log("t").end_offset == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("unit", "count"), [("us", -1), ("us", -999), ("us", -1001), ("ns", -1), ("ns", -999_999), ("us", -5000)]
)
def test_no_time_before_1970_becomes_one_in_1970(store: pylog.Store, way: str, unit: str, count: int) -> None:
    stamps = pa.array([NOW * 1000, count, None] if unit == "us" else [count], pa.timestamp(unit, "UTC"))
    with pytest.raises(InvalidRecordError, match="is before 1970"):
        WAYS[way](store, pa.table({"timestamp": stamps}))
    assert store.log("t").end_offset == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("column", ["key", "value", "timestamp", "headers", "partition"])
def test_a_column_that_is_there_twice_is_refused_in_words(store: pylog.Store, way: str, column: str) -> None:
    table = pa.Table.from_arrays([pa.array([b"a"])] * 3, names=["value", column, column])
    with pytest.raises(pylog.PylogError, match=column):
        WAYS[way](store, table)
