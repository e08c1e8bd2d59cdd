"""Options of the Spark source, without Spark: what each means, and that every mistake has an error that says what is right."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition
from pylog.spark.options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    ListedPartitions,
    ListedTopics,
    RateLimits,
    ReadOptions,
    StreamOptions,
    TopicPattern,
    any_options,
    read_options,
    stream_options,
)
from pylog.spark.schema import spark_schema
from pylog.spark.source import PylogDataSource

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def read(**options: str) -> ReadOptions:
    """The options with a path and a topic where the test gives none."""
    strategies = {"subscribe", "subscribepattern", "assign"} & {name.lower() for name in options}
    return read_options({"path": "/data"} | ({} if strategies else {"subscribe": "orders"}) | options)


def refused(**options: str) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read(**options)
    return str(caught.value)


def test_the_defaults_are_the_connectors():
    options = read()
    assert (options.paths, options.subscription) == (("/data",), ListedTopics(("orders",)))
    assert (options.start, options.end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert (options.min_partitions, options.max_bytes_per_partition, options.max_records_per_partition) == (None, 128 << 20, None)
    assert not options.latest_if_none_younger
    assert options.scan.columns == COLUMNS
    assert options.scan.isolation_level == "read_uncommitted"
    assert options.scan.verify_checksums
    assert options.scan.fail_on_data_loss


@pytest.mark.parametrize(
    ("option", "value", "attribute", "expected"),
    [
        ("SUBSCRIBE", "b, a,,b ", "subscription", ListedTopics(("b", "a"))),
        ("subscribePattern", " ord.*|x ", "subscription", TopicPattern("ord.*|x")),
        ("assign", '{"orders":[1,0,1]}', "subscription", ListedPartitions(frozenset({ORDERS_0, ORDERS_1}))),
        ("startingOffsets", " Earliest ", "start", Everywhere(EARLIEST)),
        ("startingoffsets", '{"orders": {"0": 23, "1": -2}}', "start", AtOffsets({ORDERS_0: 23, ORDERS_1: -2})),
        ("startingTimestamp", " 1000 ", "start", AtTimestamp(1000)),
        ("startingOffsetsByTimestamp", '{"orders": {"0": 5, "1": 0}}', "start", AtTimestamps({ORDERS_0: 5, ORDERS_1: 0})),
        ("endingOffsets", "latest", "end", Everywhere(LATEST)),
        ("endingOffsets", '{"orders": {"0": 50, "1": -1}}', "end", AtOffsets({ORDERS_0: 50, ORDERS_1: -1})),
        ("endingTimestamp", "9223372036854775807", "end", AtTimestamp(2**63 - 1)),
        ("endingOffsetsByTimestamp", '{"orders": {"0": 7}}', "end", AtTimestamps({ORDERS_0: 7})),
        ("startingOffsetsByTimestampStrategy", "LATEST", "latest_if_none_younger", True),
        ("startingOffsetsByTimestampStrategy", "error", "latest_if_none_younger", False),
        ("minPartitions", "7", "min_partitions", 7),
        ("maxBytesPerPartition", "1048576", "max_bytes_per_partition", 1 << 20),
        ("maxRecordsPerPartition", "10", "max_records_per_partition", 10),
        ("path", "/a, file:/b c,file:///d%20e,file://localhost/f", "paths", ("/a", "/b c", "/d%20e", "/f")),
        ("path", "shop", "paths", (str(Path("shop").absolute()),)),
    ],
)
def test_a_value_is_understood(option: str, value: str, attribute: str, expected: object):
    assert getattr(read(**{option: value}), attribute) == expected


@pytest.mark.parametrize(
    ("option", "value", "attribute", "expected"),
    [
        ("includeHeaders", "TRUE", "columns", (*COLUMNS, "headers")),
        ("columns", "VALUE, timestamptype", "columns", ("value", "timestampType")),
        ("columns", "headers,key", "columns", ("headers", "key")),
        ("isolationLevel", "READ_COMMITTED", "isolation_level", "read_committed"),
        ("kafka.isolation.level", "read_committed", "isolation_level", "read_committed"),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("verifyChecksums", "false", "verify_checksums", False),
    ],
)
def test_a_value_for_the_tasks_is_understood(option: str, value: str, attribute: str, expected: object):
    assert getattr(read(**{option: value}).scan, attribute) == expected


@pytest.mark.parametrize("which", ["starting", "ending"])
def test_a_timestamp_for_all_goes_before_timestamps_by_partition_and_those_before_offsets(which: str):
    attribute = "start" if which == "starting" else "end"
    offsets = {f"{which}Offsets": '{"orders": {"0": 1}}'}
    by_partition = {f"{which}OffsetsByTimestamp": '{"orders": {"0": 2}}'}
    assert getattr(read(**offsets), attribute) == AtOffsets({ORDERS_0: 1})
    assert getattr(read(**offsets, **by_partition), attribute) == AtTimestamps({ORDERS_0: 2})
    assert getattr(read(**offsets, **by_partition, **{f"{which}Timestamp": "3"}), attribute) == AtTimestamp(3)


def test_columns_say_more_than_include_headers():
    assert read(includeHeaders="true", columns="value").scan.columns == ("value",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, ["'startingoffset'", "did you mean 'startingOffsets'?", "kafka.isolation.level"]),
        ({"kafka.bootstrap.servers": "localhost:9092"}, ["no broker", "maxBytesPerPartition"]),
        ({"utterly": "1"}, ["unknown option 'utterly'; the options"]),
        ({"maxBytesPerTrigger": "1"}, ["'maxBytesPerTrigger' is for streaming"]),
        ({"groupid": "g"}, ["'groupId' is for streaming"]),
        ({"topic": "t"}, ["'topic' is for writing"]),
        ({"COMPRESSION": "zstd"}, ["'compression' is for writing"]),
        ({"timestampType": "CreateTime"}, ["is for writing"]),
        ({"assign": '{"orders":[0]}', "subscribe": "orders"}, ["exactly one", "subscribe and assign were given"]),
        ({"subscribe": " , "}, ["names nothing"]),
        ({"subscribePattern": "  "}, ["empty"]),
        ({"subscribePattern": "a("}, ["not a regular expression"]),
        ({"assign": "orders"}, ["not JSON like"]),
        ({"assign": "[]"}, ["not a JSON object of topics"]),
        ({"assign": '{"orders": 0}'}, ["'orders' has no list"]),
        ({"assign": '{"orders": []}'}, ["names no partition"]),
        ({"assign": '{"orders": [0.0]}'}, ["0.0 is not an integer"]),
        ({"assign": '{"orders": [true]}'}, ["True is not an integer"]),
        ({"assign": '{"orders": ["0"]}'}, ["'0' is not an integer"]),
        ({"assign": '{"orders": [-1]}'}, ["-1 is not an integer from 0"]),
        ({"assign": '{"orders": [2147483648]}'}, ["is not an integer from 0 to 2147483647"]),
        ({"assign": '{"orders": [0], "orders": [1]}'}, ["'orders' appears twice"]),
        ({"assign": "[" * 100_000}, ["not JSON like"]),
        ({"startingOffsets": "latest"}, ["streaming"]),
        ({"startingOffsets": "first"}, ["neither a word nor JSON"]),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, ["startingOffsets of orders-0", "latest"]),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, ["-3 is not an integer from -2"]),
        ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, ["is not an integer"]),
        ({"startingOffsets": '{"orders": {"0": "1"}}'}, ["'1' is not an integer"]),
        ({"startingOffsets": '{"orders": {"0": 1e3}}'}, ["1000.0 is not an integer"]),
        ({"startingOffsets": '{"orders": {"0": NaN}}'}, ["nan is not an integer"]),
        ({"startingOffsets": '{"orders": {"01": 1}}'}, ["'01' is not a partition"]),
        ({"startingOffsets": '{"orders": {"-1": 1}}'}, ["'-1' is not a partition"]),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, ["'0' appears twice"]),
        ({"startingOffsets": '{"orders": [1]}'}, ["'orders' has no object"]),
        ({"endingOffsets": "earliest"}, ["-2 (earliest)"]),
        ({"endingOffsets": '{"orders": {"0": 1, "1": -2}}'}, ["endingOffsets of orders-1"]),
        ({"startingTimestamp": "yesterday"}, ["'yesterday' is not an integer"]),
        ({"startingTimestamp": "-1"}, ["at least 0"]),
        ({"endingTimestamp": "1.5"}, ["not an integer"]),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, ["-1 is not an integer from 0"]),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, ["error, latest"]),
        ({"isolationLevel": "serializable"}, ["read_uncommitted, read_committed"]),
        ({"isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"}, ["two values"]),
        ({"failOnDataLoss": "yes"}, ["true, false"]),
        ({"minPartitions": "0"}, ["at least 1"]),
        ({"maxBytesPerPartition": "128m"}, ["not an integer"]),
        ({"maxRecordsPerPartition": "-5"}, ["at least 1"]),
        ({"columns": ""}, ["names nothing"]),
        ({"columns": "value,valeu"}, ["key, value, topic"]),
        ({"columns": "value,VALUE"}, ["different names of"]),
        ({"path": " "}, ["names nothing"]),
        ({"path": "ftp://bucket/shop"}, ["file system"]),
        ({"path": "hdfs:/shop"}, ["file system"]),
        ({"path": "file://server/shop"}, ["file system"]),
    ],
    ids=lambda value: "-".join(f"{k}={v[:40]}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_a_mistake_is_refused(options: dict[str, str], words: list[str]):
    message = refused(**options)
    assert not [word for word in words if word not in message], message


def test_path_and_a_strategy_are_required():
    with pytest.raises(InvalidArgumentError, match=r"'path' is required$"):
        read_options({"subscribe": "orders"})
    with pytest.raises(InvalidArgumentError, match="subscribe, subscribePattern, assign says what to read; none was given"):
        read_options({"path": "/data"})


@pytest.mark.parametrize("suffix", ["Offsets", "OffsetsByTimestamp"])
def test_a_start_and_an_end_given_alike_are_about_the_same_partitions_and_in_order(suffix: str):
    def both(start: str, end: str) -> dict[str, str]:
        return {f"starting{suffix}": start, f"ending{suffix}": end}

    assert "same partitions" in refused(**both('{"orders": {"0": 1}}', '{"orders": {"1": 1}}'))
    message = refused(**both('{"orders": {"0": 1, "1": 8}}', '{"orders": {"0": 1, "1": 7}}'))
    assert "8 of orders-1 is greater than" in message
    assert read(**both('{"orders": {"0": 7}}', '{"orders": {"0": 7}}'))


def test_latest_as_an_end_is_after_every_start():
    assert read(startingOffsets='{"orders": {"0": 7}}', endingOffsets='{"orders": {"0": -1}}')


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_options_that_the_connector_ignores_with_a_warning_are_ignored_with_a_warning(
    option: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        assert read(**{option: "1"}) == read()
    assert option in caplog.text


def test_options_travel():
    options = read(startingOffsets='{"orders": {"0": 1}}')
    assert pickle.loads(pickle.dumps(options)) == options


# ---- streaming reads -----------------------------------------------------------------------------------------------------


def stream(**options: str) -> StreamOptions:
    return stream_options({"path": "/data", "subscribe": "orders"} | options)


def test_the_defaults_of_a_stream_are_the_connectors():
    options = stream()
    assert options.start == Everywhere(LATEST)
    assert options.limits == RateLimits(max_offsets=None, min_offsets=None, max_delay_ms=900_000, max_bytes=None)
    assert options.group is None
    assert options.scan == read().scan


@pytest.mark.parametrize(
    ("option", "value", "limits"),
    [
        ("maxOffsetsPerTrigger", "1000", RateLimits(max_offsets=1000)),
        ("MINOFFSETSPERTRIGGER", " 10 ", RateLimits(min_offsets=10)),
        ("maxBytesPerTrigger", "1048576", RateLimits(max_bytes=1 << 20)),
        ("maxTriggerDelay", "90s", RateLimits(max_delay_ms=90_000)),
        ("maxTriggerDelay", "250", RateLimits(max_delay_ms=250)),
        ("maxTriggerDelay", "2h", RateLimits(max_delay_ms=7_200_000)),
        ("maxTriggerDelay", "1MIN", RateLimits(max_delay_ms=60_000)),
    ],
)
def test_a_limit_is_understood(option: str, value: str, limits: RateLimits):
    assert stream(**{option: value}).limits == limits


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "not an integer of at least 1"),
        ({"minOffsetsPerTrigger": "-5"}, "not an integer of at least 1"),
        ({"maxBytesPerTrigger": "1MB"}, "not an integer of at least 1"),
        ({"maxTriggerDelay": "soon"}, "not a time like 30s, 15m or 1h"),
        ({"maxTriggerDelay": "-1s"}, "not a time like 30s"),
        ({"maxTriggerDelay": "1.5h"}, "not a time like 30s"),
        ({"groupId": " "}, "groupId is empty"),
        ({"groupId": "lag", "path": "/a,/b"}, "groupId requires one directory"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=5",
        ),
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch reads, not for streaming reads"),
        ({"createTopics": "true"}, "'createTopics' is for writing, not for streaming reads"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
    ],
)
def test_options_that_a_stream_does_not_have_are_refused(options: dict[str, str], message: str):
    with pytest.raises(InvalidArgumentError, match=message):
        stream(**options)


@pytest.mark.parametrize(
    ("options", "batch", "streaming"),
    [
        ({}, True, True),
        ({"startingOffsets": "latest"}, False, True),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, False, True),
        ({"endingOffsets": '{"orders": {"0": 7}}'}, True, False),
        ({"groupId": "lag"}, False, True),
        ({"maxBytesPerTrigger": "7"}, False, True),
        ({"maxOffsetsPerTrigger": "7"}, True, True),  # a batch read warns, as the connector does
    ],
)
def test_the_schema_does_not_know_the_kind_of_read_but_its_reader_does(
    tmp_path: Path, options: dict[str, str], batch: bool, streaming: bool
):
    source = PylogDataSource({"path": str(tmp_path), "subscribe": "orders", "columns": "value"} | options)
    assert source.schema() == spark_schema(["value"])
    if batch:
        assert source.reader(schema=spark_schema(["value"]))
    else:
        with pytest.raises(InvalidArgumentError):
            source.reader(schema=spark_schema(["value"]))
    reader = source.streamReader(schema=spark_schema(["value"]))
    if streaming:
        assert reader.getDefaultReadLimit()  # type: ignore[attr-defined]
    else:
        with pytest.raises(InvalidArgumentError):
            reader.getDefaultReadLimit()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.initialOffset(),
        lambda reader: reader.getDefaultReadLimit(),
        lambda reader: reader.latestOffset({}, None),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.partitions({}, {}),
    ],
    ids=["initialOffset", "getDefaultReadLimit", "latestOffset", "prepareForTriggerAvailableNow", "partitions"],
)
@pytest.mark.parametrize(
    ("options", "schema", "told"),
    [
        ({"endingOffsets": '{"orders": {"0": 7}}'}, spark_schema(["value"]), "'endingOffsets' is for batch reads"),
        ({"maxOffsetsPerTrigger": "0"}, spark_schema(["value"]), "not an integer of at least 1"),
        ({}, StructType([StructField("x", IntegerType())]), "schema"),
    ],
)
def test_whatever_spark_asks_first_of_a_stream_that_is_refused_the_answer_is_pylogs_error(
    options: dict[str, str], schema: StructType, told: str, ask: Callable[[Any], object]
):
    reader = PylogDataSource({"path": "/data", "subscribe": "orders", "columns": "value"} | options).streamReader(schema)
    with pytest.raises(InvalidArgumentError, match=told):
        ask(reader)
    reader.stop()


def test_a_pyspark_that_is_too_old_for_streams_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "pylog.spark.stream", raising=False)
    with pytest.raises(InvalidArgumentError, match=r"need PySpark 4\.2 or newer, and this is \d"):
        PylogDataSource({"path": "/data", "subscribe": "orders"}).streamReader(spark_schema(["value"]))


@pytest.mark.parametrize("options", [{"endingOffsets": "earliest"}, {"groupId": "x", "endingOffsets": "x"}, {"topic": "orders"}])
def test_options_that_no_read_has_are_refused_at_once(options: dict[str, str]):
    with pytest.raises(InvalidArgumentError):
        any_options({"path": "/data", "subscribe": "orders"} | options)
