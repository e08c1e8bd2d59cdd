"""Batch reads through a running Spark: the same rows as `log.scan`, whatever the options; errors that reach the user."""

from __future__ import annotations

import base64
import shutil
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException

import pylog
from support.golden.data import GoldenPartition, case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = 1_700_000_000_000
ENDS = {("orders", 0): 1500, ("orders", 1): 700, ("orders", 2): 0, ("orders-old", 0): 20, ("returns", 0): 40}
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Load = Callable[..., "DataFrame"]
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics with keys, values and headers that are there or not, all codecs, small segments."""
    path = tmp_path_factory.mktemp("read") / "the shop"
    with pylog.open(path) as store:
        for topic in sorted({topic for topic, _ in ENDS}):
            partitions = len([one for one, _ in ENDS if one == topic])
            store.create_topic(topic, partition_count=partitions, segment_bytes=8000, index_interval_bytes=0)
        for (topic, partition), end in ENDS.items():
            for number, start in enumerate(range(0, end, 20)):
                records = [record(partition, row) for row in range(start, start + 20)]
                store.log(topic, partition).append_many(records, compression=CODECS[number % 5])
    scanned(path, "returns", 0)  # compiles the kernels, where that is still to be done, before Spark's workers all do it
    return path


def record(partition: int, row: int) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]:
    key = None if row % 5 == 0 else b"" if row % 5 == 1 else b"%d/%d" % (partition, row)
    value = None if row % 7 == 0 else b"" if row % 7 == 1 else b'{"row": %d}' % row
    headers: list[tuple[str, bytes | None]] = [("h\u00e9", b"1"), ("h\u00e9", None)] if row % 3 == 0 else []
    return key, value, headers, TIME + row * 1001


@pytest.fixture
def load(spark: SparkSession, shop: Path) -> Load:
    def load(path: Path | str = shop, **options: str) -> DataFrame:
        return spark.read.format("pylog").options(path=str(path), **options).load()

    return load


def rows(frame: DataFrame) -> list[Row]:
    """All rows by topic, partition and offset; timestamps in microseconds, headers as pairs."""
    exact = frame.selectExpr(*["unix_micros(timestamp)" if name == "timestamp" else name for name in frame.columns])
    return sorted((tuple(plain(cell) for cell in row) for row in exact.collect()), key=lambda row: row[2:5])


def plain(cell: Any) -> Any:
    if isinstance(cell, bytearray):
        return bytes(cell)
    return [(name, None if value is None else bytes(value)) for name, value in cell] if isinstance(cell, list) else cell


def scanned(
    path: Path, topic: str, partition: int, start: int | None = None, end: int | None = None, **options: Any
) -> list[Row]:
    """The same from `log.scan`."""
    columns = ("key", "value", "offset", "timestamp", "timestamp_type", "headers")
    with pylog.open(path, mode="r") as store:
        found = [
            row for batch in store.log(topic, partition).scan(start, end, columns=columns, **options) for row in batch.to_pylist()
        ]
    return [
        (
            row["key"],
            row["value"],
            topic,
            partition,
            row["offset"],
            round(row["timestamp"].timestamp() * 1000) * 1000,
            row["timestamp_type"],
            [(header["key"], header["value"]) for header in row["headers"]] or None,
        )
        for row in found
    ]


def offsets(frame: DataFrame) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for topic, partition, offset in sorted(frame.select("topic", "partition", "offset").collect()):
        found.setdefault((topic, partition), []).append(offset)
    return found


# ---- the same rows -------------------------------------------------------------------------------------------------------


def test_all_columns_are_what_a_scan_gives_in_the_connectors_schema(load: Load, shop: Path):
    frame = load(subscribe="orders", includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    assert rows(frame) == [row for partition in (0, 1) for row in scanned(shop, "orders", partition)]


def test_without_headers_the_column_is_not_there(load: Load, shop: Path):
    frame = load(subscribe="returns")
    assert frame.columns == COLUMNS
    assert rows(frame) == [row[:-1] for row in scanned(shop, "returns", 0)]


def test_columns_are_the_ones_asked_for_in_their_order(load: Load):
    frame = load(subscribe="returns", columns="timestampType,headers,value")
    assert frame.columns == ["timestampType", "headers", "value"]
    values = [None if cell is None else bytes(cell) for (cell,) in frame.select("value").collect()]
    assert values == [record(0, row)[1] for row in range(40)]
    assert load(subscribe="orders,returns", columns="topic").groupBy("topic").count().collect() == [
        ("orders", 2200),
        ("returns", 40),
    ]


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({"subscribe": "returns,orders-old"}, {("orders-old", 0), ("returns", 0)}),
        ({"subscribePattern": "^orders$"}, {("orders", 0), ("orders", 1)}),
        ({"subscribePattern": "order"}, {("orders", 0), ("orders", 1), ("orders-old", 0)}),
        ({"assign": '{"orders": [1, 2], "returns": [0]}'}, {("orders", 1), ("returns", 0)}),
    ],
)
def test_topics_and_partitions_are_chosen(load: Load, options: dict[str, str], partitions: set[tuple[str, int]]):
    assert offsets(load(**options)) == {partition: list(range(ENDS[partition])) for partition in partitions}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": '{"orders":{"0":1497,"1":-2,"2":0}}', "endingOffsets": '{"orders":{"0":-1,"1":3,"2":-1}}'},
            {0: range(1497, 1500), 1: range(3)},
        ),
        (
            {"startingTimestamp": str(TIME + 698 * 1001), "startingOffsetsByTimestampStrategy": "latest"},
            {0: range(698, 1500), 1: range(698, 700)},
        ),
        ({"endingTimestamp": str(TIME + 5 * 1001 + 1)}, {0: range(6), 1: range(6)}),
        (
            {
                "startingOffsetsByTimestamp": f'{{"orders":{{"0":{TIME + 1001},"1":0,"2":0}}}}',
                "startingOffsetsByTimestampStrategy": "latest",
                "endingOffsetsByTimestamp": f'{{"orders":{{"0":{TIME + 3003},"1":{TIME + 1001},"2":0}}}}',
            },
            {0: range(1, 3), 1: range(1)},
        ),
    ],
)
def test_starts_and_ends_by_offset_and_by_time(load: Load, options: dict[str, str], expected: dict[int, range]):
    assert offsets(load(subscribe="orders", **options)) == {("orders", number): list(found) for number, found in expected.items()}


@pytest.mark.parametrize("split", [{"maxBytesPerPartition": "4000"}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "111"}])
def test_many_tasks_give_each_row_once(load: Load, split: dict[str, str]):
    frame = load(subscribe="orders", columns="topic,partition,offset", **split)
    assert frame.rdd.getNumPartitions() >= 9
    assert offsets(frame) == {("orders", partition): list(range(ENDS["orders", partition])) for partition in (0, 1)}


def test_sql_over_the_columns(load: Load, spark: SparkSession):
    load(subscribe="orders").createOrReplaceTempView("orders_view")
    found = spark.sql("""
        SELECT partition, count(key), max(CAST(get_json_object(CAST(value AS STRING), '$.row') AS INT))
        FROM orders_view GROUP BY partition ORDER BY partition
    """)
    assert found.collect() == [(0, 1200, 1497), (1, 560, 699)]


# ---- what brokers wrote --------------------------------------------------------------------------------------------------


def golden(version: str, name: str, topic: str | None = None) -> GoldenPartition:
    return next(each for each in case(version, name).partitions if topic in (None, each.topic))


def as_consumed(partition: GoldenPartition, lines: list[dict[str, Any]]) -> list[Row]:
    """What Kafka's consumer got, as rows."""

    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    types = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}
    return [
        (
            data(line["key"]),
            data(line["value"]),
            partition.topic,
            partition.partition,
            line["offset"],
            line["timestamp"] * 1000,
            types[line["timestampType"]],
            [(name, data(value)) for name, value in line["headers"]] or None,
        )
        for line in lines
    ]


@pytest.mark.parametrize(
    ("version", "name", "topic"),
    [
        ("4.3.0", "mixed-codecs", None),
        ("3.9.1", "compact-basic/after3", None),
        ("4.3.0", "logappendtime-zstd", None),
        ("4.3.0", "delete-records-mid", None),
        ("2.8.2", "v0-v1-v2", None),
        ("4.3.0", "txn", "txn"),
    ],
)
def test_a_brokers_directory_gives_what_a_consumer_got(load: Load, version: str, name: str, topic: str | None):
    partition = golden(version, name, topic)
    frame = load(
        partition.log_directory,
        assign=f'{{"{partition.topic}": [{partition.partition}]}}',
        includeHeaders="true",
        maxBytesPerPartition="5000",
    )
    assert rows(frame) == as_consumed(partition, partition.expected())


@pytest.mark.parametrize("option", ["isolationLevel", "kafka.isolation.level"])
def test_committed_reads_hide_aborted_and_open_transactions(load: Load, option: str):
    for topic in ("txn", "txn-open"):
        partition = golden("4.3.0", "txn", topic)
        assert partition.expected() != partition.expected_committed()
        frame = load(
            partition.log_directory,
            assign=f'{{"{topic}": [{partition.partition}]}}',
            includeHeaders="true",
            maxBytesPerPartition="10000",
            **{option: "read_committed"},
        )
        assert rows(frame) == as_consumed(partition, partition.expected_committed())


# ---- errors and losses ---------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_an_error_when_the_frame_is_made(load: Load):
    with pytest.raises(
        AnalysisException, match=r"unknown option 'startingoffset'; did you mean 'startingOffsets'\?.*verifyChecksums"
    ):
        load(subscribe="orders", startingOffset="earliest")


def test_a_path_that_is_not_there_is_an_error_when_the_frame_is_made(load: Load, tmp_path: Path):
    with pytest.raises(AnalysisException, match=r"NotALogDirectoryError: .*nowhere"):
        load(tmp_path / "nowhere", subscribe="orders")


def test_a_topic_that_is_not_there_is_an_error_when_the_query_is_planned(load: Load):
    with pytest.raises(AnalysisException, match="UnknownTopicOrPartitionError: no topic other"):
        load(subscribe="orders,other").collect()


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, shop: Path):
    with pytest.raises(AnalysisException, match="the option `columns` chooses"):
        spark.read.format("pylog").schema("value STRING").options(path=str(shop), subscribe="orders").load().collect()


def test_offsets_that_are_gone_are_an_error_unless_that_is_allowed(load: Load):
    partition = golden("4.3.0", "delete-records-mid")
    options = {"subscribe": partition.topic, "startingOffsets": f'{{"{partition.topic}": {{"{partition.partition}": 5}}}}'}
    with pytest.raises(AnalysisException, match=r"OffsetOutOfRangeError: starting offset 5 .*179 to 342"):
        load(partition.log_directory, **options).collect()
    found = offsets(load(partition.log_directory, failOnDataLoss="false", **options))
    assert list(found.values()) == [[line["offset"] for line in partition.expected()]]


@pytest.fixture
def own_shop(shop: Path, tmp_path: Path) -> Path:
    """A copy of the store that a test may damage."""
    return shutil.copytree(shop, tmp_path / "shop")


def segments(path: Path, directory: str = "orders-0") -> list[Path]:
    return sorted((path / directory).glob("*.log"))


def test_a_segment_that_retention_removes_while_a_job_runs_is_an_error_or_a_warning(load: Load, own_shop: Path):
    assert len(segments(own_shop)) > 3
    strict = load(own_shop, subscribe="orders")
    lenient = load(own_shop, subscribe="orders", failOnDataLoss="false")
    for frame in (strict, lenient):
        frame.rdd.getNumPartitions()  # plans the read
    for segment in segments(own_shop)[:2]:
        for file in segment.parent.glob(segment.stem + "*"):
            file.unlink()
    start = int(segments(own_shop)[0].stem)
    with pytest.raises(PythonException, match=rf"offsets 0 to {start} \(exclusive\) of orders-0 were deleted since"):
        strict.collect()
    assert offsets(lenient) == {("orders", 0): list(range(start, 1500)), ("orders", 1): list(range(700))}


def test_a_directory_that_executors_do_not_have_is_an_error_that_names_the_host(load: Load, own_shop: Path):
    frame = load(own_shop, subscribe="orders")
    frame.rdd.getNumPartitions()
    shutil.rmtree(own_shop)
    with pytest.raises(PythonException) as caught:
        frame.collect()
    assert f"{socket.gethostname()} cannot read {own_shop}" in str(caught.value)


def test_a_corrupt_batch_fails_the_query_with_path_position_and_offset(load: Load, own_shop: Path):
    segment = segments(own_shop)[1]
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    with pytest.raises(PythonException) as caught:
        load(own_shop, subscribe="orders").collect()
    message = str(caught.value)
    assert "CorruptionError" in message
    assert f"{segment} at position 0" in message
    assert f"offsets {int(segment.stem)} to {int(segment.stem) + 19}" in message
    assert "was reading orders-0" in message


# ---- SQL tables ----------------------------------------------------------------------------------------------------------


def test_a_table_reads_its_topics_and_dropping_it_leaves_them(spark: SparkSession, own_shop: Path):
    spark.sql(f"CREATE TABLE orders USING pylog OPTIONS (path '{own_shop}', subscribe 'orders', includeHeaders 'true')")
    try:
        assert spark.sql("SELECT partition, count(*) FROM orders GROUP BY partition ORDER BY 1").collect() == [
            (0, 1500),
            (1, 700),
        ]
        assert rows(spark.table("orders")) == [row for partition in (0, 1) for row in scanned(own_shop, "orders", partition)]
        late = spark.read.option("endingTimestamp", str(TIME + 1)).table("orders")
        assert offsets(late) == {("orders", 0): [0], ("orders", 1): [0]}
    finally:
        spark.sql("DROP TABLE orders")
    assert scanned(own_shop, "orders", 0)


def test_a_table_refuses_what_a_frame_refuses(spark: SparkSession, shop: Path):
    with pytest.raises(AnalysisException, match="unknown option 'subscribes'"):
        spark.sql(f"CREATE TABLE bad USING pylog OPTIONS (path '{shop}', subscribes 'orders')")


def test_a_table_with_columns_of_its_own_says_what_to_do(spark: SparkSession, shop: Path):
    spark.sql(f"CREATE TABLE narrow (value BINARY) USING pylog OPTIONS (path '{shop}', subscribe 'orders', columns 'value')")
    try:
        with pytest.raises(AnalysisException, match="leave out the columns"):
            spark.sql("SELECT * FROM narrow").collect()
    finally:
        spark.sql("DROP TABLE narrow")


def test_a_temporary_view(spark: SparkSession, shop: Path):
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW returns USING pylog OPTIONS (path '{shop}', subscribe 'returns', columns 'offset')"
    )
    found = [offset for (offset,) in spark.sql("SELECT * FROM returns ORDER BY offset").collect()]
    assert found == list(range(40))
    assert all(later - earlier == 1 for earlier, later in pairwise(found))
