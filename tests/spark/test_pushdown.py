"""Predicates that reach the reader: what was pruned, filtered as Spark would, is what a full read and all filters give."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

import pylog
from pylog.errors import OffsetOutOfRangeError
from pylog.spark.options import ReadOptions, read_options
from pylog.spark.planner import LogSlice, plan
from pylog.spark.pushdown import MOST_RANGES, NO_PRUNING, SMALLEST_HOLE, NumberRange, pruning
from pylog.spark.reader import read_slice
from support.golden.data import case

TIME = 1_700_000_000_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Row = dict[str, Any]


def at(milliseconds: float) -> dt.datetime:
    """A time as Spark hands it over: with microseconds, in UTC."""
    return EPOCH + dt.timedelta(microseconds=round(milliseconds * 1000))


# ---- what predicates mean, said once more and simply ---------------------------------------------------------------------


def answer(each: Filter, row: Row) -> bool | None:
    """SQL's answer: True, False, or None for null."""
    if isinstance(each, Not):
        inner = answer(each.child, row)
        return None if inner is None else not inner
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(each, IsNull | IsNotNull):
        return (value is None) == isinstance(each, IsNull)
    literal = each.value  # type: ignore[attr-defined]
    if isinstance(each, EqualNullSafe):
        return value == literal
    if isinstance(each, In):
        return None if value is None else True if value in literal else None if None in literal else False
    if value is None or literal is None:
        return None
    compared = {
        EqualTo: lambda: value == literal,
        GreaterThan: lambda: value > literal,
        GreaterThanOrEqual: lambda: value >= literal,
        LessThan: lambda: value < literal,
        LessThanOrEqual: lambda: value <= literal,
        StringStartsWith: lambda: value[: len(literal)] == literal,
        StringEndsWith: lambda: value[len(value) - len(literal) :] == literal if len(literal) <= len(value) else False,
        StringContains: lambda: value.find(literal) >= 0,
    }
    return bool(compared[type(each)]())


def kept(rows: Iterable[Row], filters: Iterable[Filter]) -> list[Row]:
    return [row for row in rows if all(answer(each, row) is True for each in filters)]


def rows(options: ReadOptions) -> list[Row]:
    found = [row for part in plan(options) for batch in read_slice(part, options.scan) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def inside(parts: Iterable[LogSlice], everything: list[Row]) -> list[Row]:
    """The rows that slices have; what a slice's bounds mean is tested with the reader."""
    of = {(topic, partition, offset) for _, topic, partition, start, end in map(fields, parts) for offset in range(start, end)}
    return [row for row in everything if (row["topic"], row["partition"], row["offset"]) in of]


def fields(part: LogSlice) -> tuple[str, str, int, int, int]:
    return part.directory, part.topic, part.partition, part.start, part.end


# ---- random predicates ---------------------------------------------------------------------------------------------------


def filters(times: st.SearchStrategy[float]) -> st.SearchStrategy[list[Filter]]:
    """Predicates on columns of ours and on another one, with literals near what the logs have, and some that are null."""
    literals: dict[str, st.SearchStrategy[Any]] = {
        "offset": st.integers(-2, 70),
        "partition": st.integers(-1, 3),
        "topic": st.sampled_from(["a", "ab", "b", "bé", ""]),
        "timestamp": times.map(at),
        "key": st.sampled_from([b"", b"k"]),
    }

    def of(column: str) -> st.SearchStrategy[Filter]:
        path, literal = (column,), st.one_of(literals[column], literals[column], literals[column], st.none())
        kinds = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
        compared = st.builds(lambda kind, value: kind(path, value), st.sampled_from(kinds), literal)
        among = st.lists(literal, max_size=4).map(lambda values: In(path, values))  # type: ignore[arg-type]  # as Spark does it
        null = st.sampled_from([IsNull(path), IsNotNull(path)])
        text = [StringStartsWith, StringEndsWith, StringContains]
        like = [st.builds(lambda kind, value: kind(path, value), st.sampled_from(text), literals["topic"])]
        plain = st.one_of(compared, compared, among, null, *(like if column == "topic" else []))
        return st.one_of(plain, plain, plain.map(Not))

    return st.lists(st.sampled_from(sorted(literals)).flatmap(of), max_size=4)


def assert_same(options: ReadOptions, everything: list[Row], predicates: list[Filter]) -> None:
    """Reads what is left, filters the rest as Spark would, and compares with a full read."""
    left, residual = pruning(predicates)
    assert all(any(each is given for given in predicates) for each in residual), "Spark wants its own objects back"
    parts = plan(options, left)
    assert parts == sorted(parts, key=lambda part: (part.topic, part.partition, part.start))
    assert kept(inside(parts, everything), residual) == kept(everything, predicates)


# ---- random logs ---------------------------------------------------------------------------------------------------------

stamps = st.one_of(st.integers(0, 40), st.integers(38, 45))  # out of order as often as not, and the same ones again


@st.composite
def stores(draw: st.DrawFn) -> dict[tuple[str, int], list[list[int]]]:
    """Batches of timestamps for each partition."""
    partitions = [("a", 0), ("a", 1), ("ab", 0), ("b", 2)]
    return {each: draw(st.lists(st.lists(stamps, min_size=1, max_size=5), max_size=8)) for each in partitions}


def write(path: Path, batches: dict[tuple[str, int], list[list[int]]]) -> None:
    """Small segments, an index entry for each batch."""
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        for topic in {topic for topic, _ in batches}:
            store.create_topic(topic, partition_count=3, segment_bytes=300, index_interval_bytes=0)
        for (topic, partition), contents in batches.items():
            for number, times in enumerate(contents):
                key = None if number % 3 else b"k"
                store.log(topic, partition).append_many([(key, b"value", None, TIME + time) for time in times])


@settings(max_examples=60)
@given(
    contents=stores(),
    predicates=st.lists(
        filters(st.floats(-1, 46, width=16).map(lambda time: TIME + round(time * 4) / 4)), min_size=1, max_size=6
    ),
    limits=st.sampled_from([{}, {"startingTimestamp": str(TIME + 20), "startingOffsetsByTimestampStrategy": "latest"}]),
    split=st.sampled_from([{}, {"maxBytesPerPartition": "200"}, {"maxRecordsPerPartition": "3"}, {"minPartitions": "9"}]),
)
def test_a_pruned_and_filtered_read_is_the_same_as_a_full_read_with_all_filters(contents, predicates, limits, split):
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "store", contents)
        options = read_options({"path": f"{directory}/store", "subscribe": "a,ab,b", **limits, **split})
        everything = rows(options)
        for each in predicates:
            assert_same(options, everything, each)


BROKERS = [
    ("4.3.0", "mixed-codecs"),
    ("4.3.0", "logappendtime-zstd"),
    ("2.8.2", "v0-v1-v2"),
    ("3.9.1", "compact-basic/after3"),
    ("4.3.0", "txn"),
]


@pytest.mark.parametrize(("version", "name"), BROKERS)
def test_the_same_of_what_brokers_wrote(version: str, name: str):
    directory = case(version, name).log_directory
    options = read_options({"path": str(directory), "subscribePattern": ".*", "columns": "topic,partition,offset,timestamp,key"})
    everything = rows(options)
    times = sorted({(row["timestamp"] - EPOCH) / dt.timedelta(milliseconds=1) for row in everything})
    for time in (times[0], times[len(times) // 2], times[-1]):
        for kind in (GreaterThan, EqualTo):
            assert_same(options, everything, [kind(("timestamp",), at(time)), GreaterThan(("offset",), 7)])


# ---- what is left of a read ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Times that rise by a second with each record, in segments of some 40 records."""
    path = tmp_path_factory.mktemp("pushdown") / "shop"
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        for topic, partitions in (("orders", 3), ("returns", 1)):
            store.create_topic(topic, partition_count=partitions, segment_bytes=2000, index_interval_bytes=0)
            for partition in range(partitions):
                for start in range(0, 400, 10):
                    records = [(b"key", b"value of 20 bytes...", None, TIME + row * 1000) for row in range(start, start + 10)]
                    store.log(topic, partition).append_many(records)
    return path


def spans(path: Path | str, *predicates: Filter, **options: str) -> list[tuple[str, int, int, int]]:
    given = {"path": str(path), "subscribe": "orders,returns"} | options
    return [(part.topic, part.partition, part.start, part.end) for part in plan(read_options(given), pruning(predicates)[0])]


def test_predicates_on_places_leave_whole_partitions_and_nothing_for_spark(shop: Path):
    predicates: list[Filter] = [IsNotNull(("topic",)), EqualTo(("topic",), "orders"), GreaterThan(("partition",), 0)]
    assert spans(shop, *predicates) == [("orders", 1, 0, 400), ("orders", 2, 0, 400)]
    assert pruning(predicates)[1] == []
    assert spans(shop, StringStartsWith(("topic",), "ret")) == [("returns", 0, 0, 400)]
    assert spans(shop, Not(In(("partition",), [0, 1])), Not(IsNull(("topic",)))) == [("orders", 2, 0, 400)]  # type: ignore[arg-type]


def test_predicates_on_offsets_become_exact_ranges(shop: Path):
    predicates: list[Filter] = [GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 13), EqualTo(("topic",), "returns")]
    assert spans(shop, *predicates) == [("returns", 0, 5, 13)]
    assert pruning(predicates)[1] == []


def test_a_lower_bound_of_time_leaves_out_segments_and_what_the_index_proves_older_and_spark_filters_the_rest(shop: Path):
    predicate = GreaterThan(("timestamp",), at(TIME + 123_500))
    assert spans(shop, predicate, EqualTo(("topic",), "returns")) == [("returns", 0, 120, 400)]
    assert pruning([predicate])[1] == [predicate]


def test_an_upper_bound_of_time_leaves_out_nothing(shop: Path):
    predicate = LessThan(("timestamp",), at(TIME + 5000))
    assert spans(shop, predicate) == spans(shop)
    assert pruning([predicate])[1] == [predicate]


@pytest.mark.parametrize(
    "predicates",
    [
        [GreaterThan(("offset",), 10), LessThan(("offset",), 10)],
        [GreaterThan(("timestamp",), at(TIME + 9)), LessThan(("timestamp",), at(TIME + 9.5))],
        [EqualTo(("timestamp",), at(TIME + 0.5))],
        [IsNull(("offset",))],
        [In(("topic",), [])],
        [EqualTo(("topic",), "a"), EqualTo(("topic",), "b")],
    ],
    ids=["offsets", "times", "half a millisecond", "null", "among none", "topics"],
)
def test_predicates_that_match_nothing_open_no_partition(shop: Path, predicates: list[Filter], monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a partition was opened")

    monkeypatch.setattr(pylog.Store, "log", refuse)
    assert spans(shop, *predicates) == []


@pytest.mark.parametrize(
    "predicate",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), None),
        EqualTo(("offset",), True),
        EqualTo(("offset", "part"), 1),
        GreaterThan(("timestamp",), dt.datetime(2024, 1, 1)),  # noqa: DTZ001  # it is about what has no time zone
        GreaterThan(("timestamp",), dt.date(2024, 1, 1)),
        EqualTo(("partition",), "1"),
        In(("topic",), ["orders", None]),  # type: ignore[arg-type]
        Not(In(("offset",), [1, None])),  # type: ignore[arg-type]
        Not(EqualTo(("offset",), 5)),
        StringStartsWith(("offset",), "1"),
    ],
    ids=str,
)
def test_predicates_that_are_uncertain_or_not_worth_a_task_are_left_to_spark(predicate: Filter):
    left, residual = pruning([predicate])
    assert residual == [predicate]
    assert left == NO_PRUNING


def test_offsets_that_lie_close_are_read_together_and_those_far_apart_are_not():
    far = SMALLEST_HOLE + 10
    left, residual = pruning([In(("offset",), [3, 5, far])])  # type: ignore[arg-type]
    assert left.within(0, 2 * far) == (NumberRange(3, 6), NumberRange(far, far + 1))
    assert len(residual) == 1
    assert pruning([In(("offset",), [3, 4, far])])[1] == []  # type: ignore[arg-type]


def test_there_are_no_more_ranges_than_are_worth_planning():
    wide = [number * (number + 1) // 2 * 2 * SMALLEST_HOLE for number in range(2 * MOST_RANGES)]
    left, residual = pruning([In(("offset",), wide)])  # type: ignore[arg-type]
    assert len(residual) == 1
    found = left.within(0, wide[-1] + 1)
    assert len(found) == MOST_RANGES
    assert all(any(one.start <= offset < one.end for one in found) for offset in wide)


def test_equal_holes_are_all_closed_when_there_are_too_many():
    even = [number * 2 * SMALLEST_HOLE for number in range(2 * MOST_RANGES)]
    left, _ = pruning([In(("offset",), even)])  # type: ignore[arg-type]
    assert left.within(0, even[-1] + 1) == (NumberRange(0, even[-1] + 1),)


# ---- options and losses stay what they are -------------------------------------------------------------------------------


def test_a_start_that_is_gone_is_an_error_whatever_the_predicates_leave():
    golden = case("4.3.0", "delete-records-mid").partitions[0]
    options = {"subscribe": golden.topic, "startingOffsets": f'{{"{golden.topic}": {{"0": 5}}}}'}
    for predicate in (GreaterThan(("offset",), 200), EqualTo(("partition",), 7)):
        with pytest.raises(OffsetOutOfRangeError, match="starting offset 5"):
            spans(golden.log_directory, predicate, **options)
    assert spans(golden.log_directory, GreaterThan(("offset",), 200), failOnDataLoss="false", **options) == [
        (golden.topic, 0, 201, 342)
    ]


def test_predicates_and_options_both_hold(shop: Path):
    options = {"subscribe": "returns", "startingOffsets": '{"returns": {"0": 100}}', "endingTimestamp": str(TIME + 200_000)}
    assert spans(shop, GreaterThan(("offset",), 150), **options) == [("returns", 0, 151, 200)]
    assert spans(shop, LessThan(("offset",), 50), **options) == []


@pytest.fixture
def old_log(tmp_path: Path) -> Path:
    """A log of small segments, its times rising by a millisecond with each record."""
    path = tmp_path / "store"
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        store.create_topic("orders", segment_bytes=1000, index_interval_bytes=0)
        for row in range(60):
            store.log("orders").append_many([(None, b"value of 20 bytes...", None, TIME + row)])
    return path


def test_nothing_is_left_out_of_a_segment_whose_index_had_to_be_made_again(old_log: Path):
    predicate = GreaterThanOrEqual(("timestamp",), at(TIME + 50))
    before = spans(old_log, predicate, subscribe="orders")
    (old_log / "orders-0" / f"{0:020}.timeindex").unlink()
    segments = sorted(int(file.stem) for file in (old_log / "orders-0").glob("*.log"))
    assert before == [("orders", 0, 50, 60)]
    assert spans(old_log, predicate, subscribe="orders") == [("orders", 0, 0, segments[1]), ("orders", 0, 50, 60)]


def test_no_predicates_leave_everything():
    assert pruning([]) == (NO_PRUNING, [])
    assert NO_PRUNING.within(3, 2**62) == (NumberRange(3, 2**62),)
