"""Streaming reads through a running Spark: its checkpoint, its triggers, its progress, and errors that reach the user."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import pylog
from pylog.store import Store
from support.spark.patience import ended, waited_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Place = tuple[str, int, int]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "shop", durability=pylog.Durability.OS) as store:
        store.create_topic("orders", partition_count=2, segment_bytes=5000)
        append(store, 0, 100)
        append(store, 1, 40)
        list(
            store.log("orders").scan(0)
        )  # compiles the kernels, where that is still to be done, before Spark's workers all do it
        yield store


def append(store: Store, partition: int, count: int, topic: str = "orders") -> None:
    store.log(topic, partition).append_many([(b"key", b"value %d" % row, [("h", b"1")], 1000 + row) for row in range(count)])


def load(spark: SparkSession, store: Store, **options: str) -> DataFrame:
    strategy = {} if "subscribePattern" in options else {"subscribe": "orders"}
    given = {"path": store.path, "startingOffsets": "earliest"} | strategy | options
    return spark.readStream.format("pylog").options(**given).load()


class Run:
    """A query, and the micro-batches that it has read. It is over when this is made, or has read what there is if `wait` says so.

    Args:
        frame: the stream.
        checkpoint: of the query.
        wait: what for.
        trigger: as Spark takes it.
    """

    def __init__(
        self, frame: DataFrame, checkpoint: Path, wait: Callable[[StreamingQuery], object] = ended, **trigger: Any
    ) -> None:
        self.batches: dict[int, list[Place]] = {}
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint))
        self.query = waited_for(writer.trigger(**trigger).start, wait)

    def _take(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = sorted(tuple(row) for row in frame.select("topic", "partition", "offset").collect())

    def ends(self, which: str = "endOffset") -> list[dict[str, dict[str, int]]]:
        """Offsets of each micro-batch from Spark's progress, without notes."""
        sources = [progress["sources"][0] for progress in self.query.recentProgress if progress["sources"]]
        found = [json.loads(source[which]) for source in sources]
        found = [json.loads(each) if isinstance(each, str) else each for each in found]
        return [{topic: offsets for topic, offsets in each.items() if "@" not in topic} for each in found]


def places(partition: int, offsets: range, topic: str = "orders") -> list[Place]:
    return [(topic, partition, offset) for offset in offsets]


def test_available_now_reads_in_micro_batches_and_goes_on_from_its_checkpoint(spark: SparkSession, shop: Store, tmp_path: Path):
    frame = load(spark, shop, maxOffsetsPerTrigger="70", groupId="lag")
    first = Run(frame, tmp_path / "checkpoint", availableNow=True)
    assert first.batches == {
        0: places(0, range(50)) + places(1, range(20)),
        1: places(0, range(50, 100)) + places(1, range(20, 40)),
    }
    assert first.ends() == [{"orders": {"0": 50, "1": 20}}, {"orders": {"0": 100, "1": 40}}]
    assert first.ends("latestOffset") == [{"orders": {"0": 100, "1": 40}}] * 2
    assert {place: found.offset for place, found in shop.offsets.fetch("lag").items()} == {("orders", 0): 100, ("orders", 1): 40}
    append(shop, 1, 10)
    assert Run(frame, tmp_path / "checkpoint", availableNow=True).batches == {2: places(1, range(40, 50))}


def test_a_running_query_takes_up_records_partitions_and_topics(spark: SparkSession, shop: Store, tmp_path: Path):
    frame = load(spark, shop, subscribePattern="or.*", startingOffsets="latest").drop("value")
    run = Run(frame, tmp_path / "checkpoint", lambda query: query.processAllAvailable(), processingTime="0 seconds")
    try:
        append(shop, 0, 30)
        run.query.processAllAvailable()
        shop.add_partitions("orders", 3)
        shop.create_topic("oranges")
        append(shop, 2, 10)
        append(shop, 0, 10, "oranges")
        run.query.processAllAvailable()
    finally:
        run.query.stop()
    found = sorted(place for batch in run.batches.values() for place in batch)
    assert found == places(0, range(10), "oranges") + places(0, range(100, 130)) + places(2, range(10))


def test_a_table_is_a_stream_too_with_the_rows_of_a_batch_read(spark: SparkSession, shop: Store, tmp_path: Path):
    options = f"path '{shop.path}', subscribe 'orders', startingOffsets 'earliest', includeHeaders 'true', minPartitions '5'"
    spark.sql(f"CREATE TABLE streamed USING pylog OPTIONS ({options}, maxOffsetsPerTrigger '7')")
    streamed: list[list[Any]] = []
    try:
        writer = spark.readStream.table("streamed").writeStream.foreachBatch(lambda frame, _: streamed.append(frame.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(once=True)
        waited_for(writer.start, ended)
        batch = spark.table("streamed").collect()
    finally:
        spark.sql("DROP TABLE streamed")
    assert len(batch) == 140
    (all_at_once,) = streamed  # this trigger knows no limits
    assert sorted(all_at_once, key=lambda row: row[3:5]) == sorted(batch, key=lambda row: row[3:5])


def test_a_loss_stops_the_query_with_an_error_that_names_it(spark: SparkSession, shop: Store, tmp_path: Path):
    Run(load(spark, shop), tmp_path / "checkpoint", availableNow=True)
    append(shop, 0, 50)
    shop.log("orders").delete_records(120)
    with pytest.raises(StreamingQueryException, match=r"offsets 100 to 120 \(exclusive\) of orders-0 no longer exist"):
        Run(load(spark, shop), tmp_path / "checkpoint", availableNow=True)


@pytest.mark.parametrize(
    ("options", "schema", "told"),
    [
        ({"endingOffsets": '{"orders": {"0": 7}}'}, None, "'endingOffsets' is for batch reads, not for streaming reads"),
        ({}, "x int", "schema"),
    ],
)
def test_the_last_line_of_a_stream_that_is_refused_as_it_starts_is_pylogs_error(
    spark: SparkSession, shop: Store, tmp_path: Path, options: dict[str, str], schema: str | None, told: str
):
    given = {"path": str(shop.path), "subscribe": "orders"} | options
    reader = spark.readStream.format("pylog").options(**given)
    frame = (reader if schema is None else reader.schema(schema)).load()
    with pytest.raises(StreamingQueryException) as caught:
        Run(frame, tmp_path / "checkpoint", availableNow=True)
    assert "UnboundLocalError" not in str(caught.value)
    assert "pylog.errors.InvalidArgumentError: " in str(caught.value)
    assert told in str(caught.value)


def test_wrong_options_are_refused_when_the_query_is_written(spark: SparkSession, shop: Store):
    with pytest.raises(AnalysisException, match="minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=5"):
        load(spark, shop, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5")
