"""Writing through a running Spark, batch and streaming: what arrives, what is refused, and what is left behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

import pylog
from pylog.partitioner import murmur2
from pylog.record.format import ATTRIBUTES_AT, CODEC_MASK, CODEC_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = 1_700_000_000_000


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "the shop"
    with pylog.open(path) as store:
        store.create_topic("orders", partition_count=3)
        store.create_topic("returns")
    return path


def write(frame: DataFrame, shop: Path, mode: str = "append", **options: str) -> None:
    frame.write.format("pylog").mode(mode).options(path=str(shop), **options).save()


def rows_of(shop: Path, topic: str) -> dict[int, list[dict[str, Any]]]:
    columns = ("key", "value", "timestamp", "timestamp_type", "headers")
    with pylog.open(shop, mode="r") as store:
        return {
            number: [row for batch in store.log(topic, number).scan(columns=columns) for row in batch.to_pylist()]
            for number in store.topic(topic).partition_ids
        }


def values_of(shop: Path, topic: str = "orders") -> list[bytes | None]:
    return [row["value"] for rows in rows_of(shop, topic).values() for row in rows]


def left_in(shop: Path) -> list[str]:
    return sorted(path.name for path in shop.iterdir() if path.name.startswith("pylog-"))


def numbers(spark: SparkSession, count: int, *more: str, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("CAST(id AS STRING) AS value", *more)


# ---- what arrives --------------------------------------------------------------------------------------------------------


def test_records_arrive_with_all_that_the_columns_say(spark: SparkSession, shop: Path):
    given: list[tuple[Any, ...]] = [
        (b"k1", b"v1", "orders", 2, [("h", b"1"), ("h", None)], 1),
        (None, None, "orders", 0, None, 2),
        (b"", b"", "orders", 1, [], None),
        (b"k1", b"v4", "returns", None, None, 3),
    ]
    schema = "key binary, value binary, topic string, partition int, headers array<struct<key:string,value:binary>>, at int"
    frame = spark.createDataFrame(given, schema).withColumn("timestamp", _millis())
    write(frame, shop)
    found, returned = rows_of(shop, "orders"), rows_of(shop, "returns")
    (first,), (tombstone,), (empty,), (other,) = found[2], found[0], found[1], returned[0]
    assert (first["key"], first["value"], _ms(first)) == (b"k1", b"v1", TIME + 1)
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert (tombstone["key"], tombstone["value"], tombstone["headers"], _ms(tombstone)) == (None, None, [], TIME + 2)
    assert (empty["key"], empty["value"], empty["headers"]) == (b"", b"", [])
    assert _ms(empty) > TIME + 1000
    assert (other["value"], _ms(other), other["timestamp_type"]) == (b"v4", TIME + 3, 0)
    assert left_in(shop) == []


def _millis() -> Any:
    from pyspark.sql.functions import expr

    return expr(f"timestamp_millis({TIME} + at)")


def _ms(row: dict[str, Any]) -> int:
    return round(row["timestamp"].timestamp() * 1000)


def test_keys_go_where_kafkas_producer_sends_them_and_keep_their_order(spark: SparkSession, shop: Path):
    write(numbers(spark, 3000, "CAST(id % 7 AS STRING) AS key", tasks=1), shop, topic="orders", compression="zstd")
    found = rows_of(shop, "orders")
    assert sorted(int(row["value"]) for rows in found.values() for row in rows) == list(range(3000))
    for number, rows in found.items():
        assert {(murmur2(row["key"]) & 0x7FFFFFFF) % 3 for row in rows} <= {number}
        for key in {row["key"] for row in rows}:
            places = [int(row["value"]) for row in rows if row["key"] == key]
            assert places == sorted(places)
    codecs = {path.read_bytes()[ATTRIBUTES_AT + 1] & CODEC_MASK for path in shop.glob("orders-*/*.log") if path.stat().st_size}
    assert {CODEC_NAMES[codec] for codec in codecs} == {"zstd"}


def test_rows_without_a_key_are_spread_and_those_with_a_partition_obey(spark: SparkSession, shop: Path):
    write(numbers(spark, 30_000, "CAST(IF(id % 3 = 0, 1, NULL) AS INT) AS partition"), shop, topic="orders")
    found = rows_of(shop, "orders")
    assert sorted(int(value or b"") for value in values_of(shop)) == list(range(30_000))
    assert {int(row["value"]) for row in found[1]} >= set(range(0, 30_000, 3))


def test_the_topic_option_counts_more_than_the_column_and_other_columns_are_left_out(spark: SparkSession, shop: Path):
    frame = numbers(spark, 10, "'orders' AS topic", "id AS offset", "0 AS timestampType")
    write(frame, shop, topic="returns", timestampType="LogAppendTime", durability="os")
    assert values_of(shop) == []
    assert {row["timestamp_type"] for row in rows_of(shop, "returns")[0]} == {1}
    assert len(values_of(shop, "returns")) == 10


def test_a_missing_topic_is_made_when_that_is_asked_for(spark: SparkSession, shop: Path):
    write(numbers(spark, 100), shop, topic="new", createTopics="true", partitions="5")
    with pylog.open(shop, mode="r") as store:
        assert store.topic("new").partition_count == 5
    assert len(values_of(shop, "new")) == 100


def test_a_job_without_rows_leaves_nothing(spark: SparkSession, shop: Path):
    write(numbers(spark, 0), shop, topic="orders")
    assert values_of(shop) == []
    assert left_in(shop) == []


def test_rows_that_were_written_are_read_again(spark: SparkSession, shop: Path):
    write(numbers(spark, 1000), shop, topic="orders")
    read = spark.read.format("pylog").options(path=str(shop), subscribe="orders").load()
    assert sorted(int(bytes(value)) for (value,) in read.select("value").collect()) == list(range(1000))


# ---- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["id AS value"], {}, "column value is bigint; it must be binary or string"),
        (["'x' AS value", "id AS key"], {}, "column key is bigint"),
        (["'x' AS value", "id AS partition"], {}, "column partition is bigint; it must be integer"),
        (["'x' AS value", "id AS timestamp"], {}, "column timestamp is bigint; it must be timestamp"),
        (["'x' AS value", "map('a', 'b') AS headers"], {}, "column headers is map<string,string>; it must be array"),
        (["'x' AS values"], {}, "no column 'value'"),
        (["'x' AS value"], {"topic": "other"}, "there is no topic 'other'"),
        (["'x' AS value"], {"topics": "orders"}, "unknown option 'topics'; did you mean 'topic'"),
        (["'x' AS value"], {"subscribe": "orders"}, "the option 'subscribe' is for .*reads, not for writing"),
        (["'x' AS value"], {"partitions": "3"}, "it requires createTopics=true"),
        (["'x' AS value"], {"compression": "rar"}, "rar"),
        (["'x' AS value"], {"durability": "never"}, "durability='never'"),
        (["'x' AS value"], {"timestampType": "now"}, "not one of createtime, logappendtime"),
        (["'x' AS value"], {"path": "/nowhere/at/all"}, "there is no directory /nowhere/at/all"),
        (["'x' AS value"], {"path": "/a,/b"}, "names 2 directories"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_before_any_task_runs(
    spark: SparkSession, shop: Path, columns: list[str], options: dict[str, str], told: str
):
    given = {"path": str(shop), "topic": "orders"} | options
    with pytest.raises(AnalysisException, match=told):
        spark.range(1).selectExpr(*columns).write.format("pylog").mode("append").options(**given).save()


def test_rows_that_name_no_topic_are_refused(spark: SparkSession, shop: Path):
    with pytest.raises(AnalysisException, match="nothing says where the rows go"):
        write(numbers(spark, 1), shop)


@pytest.mark.parametrize(
    ("mode", "told"), [("overwrite", "only be appended to a log: use mode"), ("errorifexists", "Append"), ("ignore", "Append")]
)
def test_other_modes_than_append_are_refused(spark: SparkSession, shop: Path, mode: str, told: str):
    with pytest.raises(AnalysisException, match=told):
        write(numbers(spark, 1), shop, mode, topic="orders")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["IF(id = 900, NULL, 'orders') AS topic"], "a row's topic is null"),
        (["IF(id = 900, 'nowhere', 'orders') AS topic"], "there is no topic 'nowhere'"),
        (["'orders' AS topic", "CAST(id DIV 900 * 3 AS INT) AS partition"], "a row names partition 3; topic 'orders' has"),
        (["'orders' AS topic", "timestamp_seconds(-id DIV 900) AS timestamp"], "before 1970"),
        (["'orders' AS topic", "CAST(raise_error('a row fails') AS BINARY) AS key"], "a row fails"),
    ],
)
def test_a_job_that_fails_leaves_nothing(spark: SparkSession, shop: Path, columns: list[str], told: str):
    with pytest.raises(PySparkException, match=told):
        write(numbers(spark, 1000, *columns), shop)
    assert values_of(shop) == []
    assert left_in(shop) == []


# ---- streams -------------------------------------------------------------------------------------------------------------


def copied(spark: SparkSession, shop: Path, checkpoint: Path, **limits: str) -> None:
    """Copies `orders` to `returns`, as far as there are any, each time from where the checkpoint says."""
    rows = spark.readStream.format("pylog").options(path=str(shop), subscribe="orders", startingOffsets="earliest", **limits)
    sink = (
        rows.load()
        .drop("partition")
        .writeStream.format("pylog")
        .options(path=str(shop), topic="returns", checkpointLocation=str(checkpoint))
    )
    sink.queryName("copy").trigger(availableNow=True).start().awaitTermination()


def test_a_stream_copies_a_topic_and_a_micro_batch_that_comes_again_is_not_written_again(
    spark: SparkSession, shop: Path, tmp_path: Path
):
    with pylog.open(shop) as store:
        for number in range(3):
            store.log("orders", number).append_many([(b"%d" % number, b"%d %d" % (number, row)) for row in range(100)])
    checkpoint = tmp_path / "checkpoint"
    copied(spark, shop, checkpoint, maxOffsetsPerTrigger="150")
    expected = sorted(values_of(shop), key=str)
    assert sorted(values_of(shop, "returns"), key=str) == expected
    assert len(list((checkpoint / "commits").glob("[0-9]"))) == 2

    for commit in (checkpoint / "commits").glob("*1*"):  # Spark has not heard that its last micro-batch is done
        commit.unlink()
    copied(spark, shop, checkpoint, maxOffsetsPerTrigger="150")
    assert sorted(values_of(shop, "returns"), key=str) == expected

    with pylog.open(shop) as store:
        store.log("orders", 1).append(b"more")
    copied(spark, shop, checkpoint)
    assert sorted(values_of(shop, "returns"), key=str) == sorted([*expected, b"more"], key=str)
    (intent,) = left_in(shop)
    assert intent.startswith("pylog-query.")

    shutil.rmtree(checkpoint)  # another query, which knows nothing of the first one
    copied(spark, shop, checkpoint)
    assert len(values_of(shop, "returns")) == 2 * 301


@pytest.mark.pair("Spark", "aborted transactions")
def test_a_micro_batch_whose_task_fails_leaves_nothing_and_is_one_transaction_when_it_comes_again(
    spark: SparkSession, shop: Path, tmp_path: Path
):
    with pylog.open(shop) as store:
        for number in range(3):
            store.log("orders", number).append_many([b"%d %d" % (number, row) for row in range(10)])
    rows = spark.readStream.format("pylog").options(path=str(shop), subscribe="orders", startingOffsets="earliest").load()
    options = {"path": str(shop), "topic": "returns", "checkpointLocation": str(tmp_path / "checkpoint")}
    failing = "IF(CAST(value AS STRING) = '2 9', CAST(raise_error('this task fails') AS BINARY), value) AS value"
    sink = rows.selectExpr(failing).writeStream.format("pylog").options(**options)
    with pytest.raises(PySparkException, match="this task fails"):
        sink.trigger(availableNow=True).start().awaitTermination()
    assert values_of(shop, "returns") == []
    sink = rows.select("value").writeStream.format("pylog").options(**options)
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    expected = sorted(values_of(shop), key=str)
    for option in ({"isolation.level": "read_committed"}, {"snapshot": "true"}, {}):
        read = spark.read.format("pylog").options(path=str(shop), subscribe="returns", **option).load()
        assert sorted((bytes(row.value) for row in read.collect()), key=str) == expected
    with pylog.open(shop, mode="r") as store:
        assert store.transactions.describe(f"pylog-spark-{query.id}").state == "CompleteCommit"


def test_a_stream_whose_checkpoint_is_an_old_copy_stops(spark: SparkSession, shop: Path, tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    for row in range(3):
        with pylog.open(shop) as store:
            store.log("orders").append(b"%d" % row)
        copied(spark, shop, checkpoint)
        if row == 1:
            shutil.copytree(checkpoint, tmp_path / "old")
    with pylog.open(shop) as store:
        store.log("orders").append(b"3")
    copied(spark, shop, checkpoint)
    with pytest.raises(PySparkException, match="about to write micro-batch 2, and has written 3 already"):
        copied(spark, shop, tmp_path / "old")
    assert values_of(shop, "returns") == [b"0", b"1", b"2", b"3"]


def test_a_stream_whose_checkpoint_has_lost_its_last_file_stops_and_drops_no_new_rows(
    spark: SparkSession, shop: Path, tmp_path: Path
):
    checkpoint = tmp_path / "checkpoint"
    for row in range(2):
        with pylog.open(shop) as store:
            store.log("orders").append(b"%d" % row)
        copied(spark, shop, checkpoint)
    with pylog.open(shop) as store:
        store.log("orders").append(b"2")
    for lost in (*(checkpoint / "offsets").glob("*1*"), *(checkpoint / "commits").glob("*1*")):
        lost.unlink()
    for _ in range(2):
        with pytest.raises(PySparkException, match=r"comes with 2 rows, .* already with 1: 1 in returns-0 from offset 2 on"):
            copied(spark, shop, checkpoint)
        assert values_of(shop, "returns") == [b"0", b"1"]
    assert len(left_in(shop)) == 1  # the query's own file


def test_a_stream_of_wrong_rows_stops_with_the_reason_and_leaves_nothing(spark: SparkSession, shop: Path, tmp_path: Path):
    with pylog.open(shop) as store:
        store.log("orders").append(b"x")
    rows = spark.readStream.format("pylog").options(path=str(shop), subscribe="orders", startingOffsets="earliest").load()
    sink = rows.selectExpr("value", "'no such topic' AS topic").writeStream.format("pylog").options(path=str(shop))
    with pytest.raises(PySparkException, match="no such topic"):
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert left_in(shop) == []


# ---- SQL tables ----------------------------------------------------------------------------------------------------------


def test_rows_are_inserted_into_the_topic_of_a_table(spark: SparkSession, shop: Path):
    spark.sql(f"CREATE TABLE orders USING pylog OPTIONS (path '{shop}', subscribe 'orders')")
    try:
        spark.sql("INSERT INTO orders (key, value) VALUES (CAST('k' AS BINARY), CAST('new' AS BINARY))")
        spark.sql("INSERT INTO orders (key, value) SELECT key, CAST('again' AS BINARY) FROM orders")
        found = [(row["key"], row["value"]) for rows in rows_of(shop, "orders").values() for row in rows]
        assert found == [(b"k", b"new"), (b"k", b"again")]
        assert spark.table("orders").count() == 2
        with pytest.raises(AnalysisException, match="records can only be appended"):
            spark.sql("INSERT OVERWRITE orders SELECT * FROM orders")
    finally:
        spark.sql("DROP TABLE orders")


def test_rows_of_a_table_that_are_written_elsewhere_do_not_go_to_the_tables_topic(spark: SparkSession, shop: Path):
    with pylog.open(shop) as store:
        store.log("orders").append(b"sold", key=b"k")
    spark.sql(f"CREATE TABLE orders USING pylog OPTIONS (path '{shop}', subscribe 'orders')")
    try:
        write(spark.table("orders").selectExpr("key", "value", "'returns' AS topic"), shop)
        assert (values_of(shop, "orders"), values_of(shop, "returns")) == ([b"sold"], [b"sold"])
        with pytest.raises(AnalysisException, match="the rows come from a table"):
            spark.table("orders").select("key", "value").write.format("pylog").mode("append").save()
    finally:
        spark.sql("DROP TABLE orders")
    assert (values_of(shop, "orders"), values_of(shop, "returns")) == ([b"sold"], [b"sold"])


def test_rows_of_one_table_that_are_inserted_into_another_one_never_go_back_to_the_first(spark: SparkSession, shop: Path):
    """Where the columns are the same Spark says `orders`, whichever table the rows are for."""
    with pylog.open(shop) as store:
        store.log("orders").append(b"sold", key=b"k")
    for topic in ("orders", "returns"):
        spark.sql(f"CREATE TABLE {topic} USING pylog OPTIONS (path '{shop}', subscribe '{topic}')")
    try:
        whole = spark.table("orders")
        for insert in (
            lambda: spark.sql("INSERT INTO returns SELECT * FROM orders"),
            lambda: whole.writeTo("returns").append(),
            lambda: whole.write.insertInto("returns"),
            lambda: whole.write.format("pylog").mode("append").saveAsTable("returns"),
        ):
            with pytest.raises(PySparkException, match=r"INSERT INTO archive \(key, value\)"):
                insert()
            assert (values_of(shop, "orders"), values_of(shop, "returns")) == ([b"sold"], [])
        spark.sql("INSERT INTO returns (key, value, timestamp) SELECT key, value, timestamp FROM orders")
        spark.sql(f"INSERT INTO returns WITH ('path' = '{shop}', 'topic' = 'returns') SELECT * FROM orders")
    finally:
        for topic in ("orders", "returns"):
            spark.sql(f"DROP TABLE {topic}")
    assert (values_of(shop, "orders"), values_of(shop, "returns")) == ([b"sold"], [b"sold", b"sold"])
    assert left_in(shop) == []


def test_a_row_inserted_into_a_table_of_several_topics_must_name_its_own(spark: SparkSession, shop: Path):
    spark.sql(f"CREATE TABLE everything USING pylog OPTIONS (path '{shop}', subscribePattern '.*')")
    try:
        with pytest.raises(PySparkException, match="a row's topic is null"):
            spark.sql("INSERT INTO everything (value) VALUES (CAST('lost' AS BINARY))")
        spark.sql("INSERT INTO everything (topic, value) VALUES ('returns', CAST('found' AS BINARY))")
    finally:
        spark.sql("DROP TABLE everything")
    assert (values_of(shop, "orders"), values_of(shop, "returns")) == ([], [b"found"])
