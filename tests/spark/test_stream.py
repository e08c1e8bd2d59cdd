"""Streaming reads from real stores that change while they are read; Spark's engine is played by `stream_engine`."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

import pylog
from pylog.clock import ManualClock
from pylog.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    PylogError,
    StoreLockedError,
    UnknownTopicOrPartitionError,
)
from pylog.spark.group import GroupCommits
from pylog.spark.planner import LogSlice
from pylog.store import Store
from support.golden.data import case
from support.spark.stream_engine import Checkpoint, Engine, Place, places

TIME = 1_700_000_000_000
EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store]:
    """A store with a topic of three partitions, the last of them empty, in small segments, open for writing all the time."""
    with pylog.open(tmp_path / "shop", durability=pylog.Durability.OS) as store:
        make(store, "orders", [100, 40, 0])
        yield store


def make(store: Store, topic: str, counts: list[int]) -> None:
    store.create_topic(topic, partition_count=len(counts), segment_bytes=1000, index_interval_bytes=0)
    for partition, count in enumerate(counts):
        append(store, count, topic, partition)


def append(store: Store, count: int, topic: str = "orders", partition: int = 0) -> None:
    """So many records in batches of ten; a record's timestamp is TIME and its offset."""
    log = store.log(topic, partition)
    for _ in range(0, count, 10):
        end = log.end_offset
        log.append_many([(b"%d" % (row % 7), b"a value", None, TIME + row) for row in range(end, end + min(10, count))])


def flat(batches: list[list[Place]]) -> list[Place]:
    return sorted(chain.from_iterable(batches))


def everything(store: Store, topic: str = "orders") -> list[Place]:
    logs = [store.log(topic, number) for number in store.topic(topic).partition_ids]
    return [place for number, log in enumerate(logs) for place in places(topic, number, range(log.start_offset, log.end_offset))]


# ---- from where to where -------------------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_end_by_default_and_reads_what_comes_once(shop: Store):
    with Engine(shop.path) as query:
        assert query.trigger() == []
        assert query.trigger() is None
        append(shop, 20, partition=2)
        append(shop, 10)
        assert query.trigger() == places("orders", 0, range(100, 110)) + places("orders", 2, range(20))
        assert query.trigger() is None


def test_offsets_are_the_connectors_json(shop: Store):
    with Engine(shop.path, **EARLIEST) as query:
        query.trigger()
        assert query.checkpoint.offsets == {"orders": {"0": 100, "1": 40, "2": 0}}
        append(shop, 10)
        query.trigger()
        notes = {f"orders@{shop.topic('orders').id}": {}}
        assert json.loads(query.checkpoint.ends[-1]) == {"orders": {"0": 110, "1": 40, "2": 0}} | notes


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({"startingOffsets": "latest"}, [100, 40, 0]),
        ({"startingOffsets": "earliest"}, [0, 0, 0]),
        ({"startingOffsets": '{"orders": {"0": 7, "1": -1, "2": -2}}'}, [7, 40, 0]),
        ({"startingTimestamp": str(TIME + 70), "startingOffsetsByTimestampStrategy": "latest"}, [70, 40, 0]),
        ({"assign": '{"orders": [0, 1]}', "startingTimestamp": str(TIME + 33)}, [33, 33]),
        ({"assign": '{"orders": [0]}', "startingOffsetsByTimestamp": f'{{"orders": {{"0": {TIME + 99}}}}}'}, [99]),
    ],
)
def test_starts(shop: Store, options: dict[str, str], begins: list[int]):
    with Engine(shop.path, **options) as query:
        assert list(query.reader.initialOffset()["orders"].values()) == begins


def test_starts_that_cannot_be_are_errors(shop: Store):
    with (
        Engine(shop.path, startingTimestamp=str(TIME + 70)) as query,
        pytest.raises(OffsetOutOfRangeError, match="no record at or"),
    ):
        query.trigger()
    with (
        Engine(shop.path, startingOffsets='{"orders": {"0": 7}}') as query,
        pytest.raises(InvalidArgumentError, match="every part"),
    ):
        query.trigger()
    with Engine(shop.path, startingOffsets='{"orders":{"0":101,"1":0,"2":0}}') as query, pytest.raises(OffsetOutOfRangeError):
        query.trigger()
    with Engine(shop.path, subscribe="order") as query, pytest.raises(UnknownTopicOrPartitionError, match="no topic order in"):
        query.trigger()


def test_a_query_goes_on_from_its_checkpoint_whatever_the_start_says(shop: Store):
    with Engine(shop.path, **EARLIEST) as query:
        query.trigger()
    append(shop, 10)
    with Engine(shop.path, query.checkpoint, startingOffsets="latest") as again:
        assert again.trigger() == places("orders", 0, range(100, 110))


def test_a_micro_batch_that_was_not_done_is_done_again_with_the_same_records(shop: Store):
    with Engine(shop.path, maxOffsetsPerTrigger="50", **EARLIEST) as query:
        query.trigger()
        query.plan()
        planned = query.run()
    append(shop, 50)
    with Engine(shop.path, query.checkpoint, maxOffsetsPerTrigger="7") as again:
        assert again.trigger() == planned


def test_a_first_micro_batch_that_was_not_done_keeps_its_beginning(shop: Store):
    with Engine(shop.path, startingOffsets="latest") as query:
        query.reader.initialOffset()
        append(shop, 20)  # between the two questions that Spark asks
        query.plan()
    append(shop, 30)
    with Engine(shop.path, query.checkpoint, startingOffsets="latest") as again:
        assert again.trigger() == places("orders", 0, range(100, 120))
        assert again.trigger() == places("orders", 0, range(120, 150))
        assert again.trigger() is None


def test_a_checkpoint_of_the_connector_is_taken_over(shop: Store):
    checkpoint = Checkpoint({"orders": {"0": 90, "1": 40, "2": 0}})
    with Engine(shop.path, checkpoint) as query:
        assert query.trigger() == places("orders", 0, range(90, 100))
        assert query.trigger() is None


def test_committed_reading_ends_at_the_stable_offset():
    golden = next(each for each in case("4.3.0", "txn").partitions if each.topic == "txn-open")
    ends = {}
    for level in ("read_committed", "read_uncommitted"):
        with Engine(golden.log_directory, subscribe="txn-open", isolationLevel=level, **EARLIEST) as query:
            query.trigger()
            ends[level] = query.checkpoint.offsets["txn-open"]["0"]
    assert ends == {"read_committed": golden.meta["lastStableOffset"], "read_uncommitted": golden.meta["logEndOffset"]}


# ---- how much at a time --------------------------------------------------------------------------------------------------


def test_offsets_are_shared_out_in_proportion_to_what_each_partition_has(shop: Store):
    with Engine(shop.path, maxOffsetsPerTrigger="35", **EARLIEST) as query:
        assert query.trigger() == places("orders", 0, range(25)) + places("orders", 1, range(10))
        assert query.trigger() == places("orders", 0, range(25, 50)) + places("orders", 1, range(10, 20))
        append(shop, 1000, partition=2)
        assert query.trigger() == sorted(
            places("orders", 0, range(50, 51)) + places("orders", 1, range(20, 21)) + places("orders", 2, range(32))
        )


def test_bytes_are_kept_to_about_at_batch_boundaries(shop: Store):
    append(shop, 2000)
    size = sum(file.stat().st_size for file in Path(shop.path, "orders-0").glob("*.log"))
    with Engine(shop.path, maxBytesPerTrigger=str(size // 10), **EARLIEST) as query:
        batches = query.available_now()
    assert flat(batches) == everything(shop)
    assert 7 <= len(batches) <= 12
    assert max(map(len, batches)) <= 2 * 2140 // 10
    assert all(len([place for place in batch if place[1] == 0]) % 10 == 0 for batch in batches)


def test_the_smaller_of_two_limits_counts(shop: Store):
    with Engine(shop.path, maxBytesPerTrigger="100000000", maxOffsetsPerTrigger="14", **EARLIEST) as query:
        assert query.trigger() == places("orders", 0, range(10)) + places("orders", 1, range(4))
    with Engine(shop.path, maxBytesPerTrigger="1", maxOffsetsPerTrigger="1000", **EARLIEST) as query:
        found = query.trigger()
        assert found is not None
        assert 20 <= len(found) <= 40  # a batch of each partition at least


def test_a_micro_batch_waits_for_enough_records_but_not_indefinitely(shop: Store):
    clock = ManualClock(TIME)
    with Engine(shop.path, clock=clock, minOffsetsPerTrigger="30", maxTriggerDelay="10s", **EARLIEST) as query:
        assert len(query.trigger() or ()) == 140  # the first one does not wait
        append(shop, 20)
        clock.advance(9_999)
        assert query.trigger() is None
        append(shop, 10, partition=1)
        assert len(query.trigger() or ()) == 30
        append(shop, 10)
        clock.advance(9_999)
        assert query.trigger() is None
        clock.advance(1)
        assert len(query.trigger() or ()) == 10


def test_a_least_and_a_most_go_together(shop: Store):
    clock = ManualClock(TIME)
    limits = {"minOffsetsPerTrigger": "30", "maxOffsetsPerTrigger": "100"}
    with Engine(shop.path, clock=clock, **limits, **EARLIEST) as query:
        assert len(query.trigger() or ()) == 99
        assert len(query.trigger() or ()) == 41
        append(shop, 20)
        clock.advance(15 * 60_000 - 1)
        assert query.trigger() is None
        clock.advance(1)
        assert len(query.trigger() or ()) == 20


def test_a_trigger_that_knows_no_limits_takes_everything(shop: Store):
    with Engine(shop.path, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5", maxBytesPerTrigger="1", **EARLIEST) as query:
        assert query.trigger(once=True) == everything(shop)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "3", "maxBytesPerTrigger": "9"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "3", "maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
    ],
)
def test_a_limit_is_reported_to_spark(shop: Store, options: dict[str, str], limit: object):
    with Engine(shop.path, **options) as query:
        assert query.reader.getDefaultReadLimit() == limit


def test_available_now_ends_where_the_topics_ended(shop: Store):
    with Engine(shop.path, maxOffsetsPerTrigger="60", minOffsetsPerTrigger="50", **EARLIEST) as query:
        query.reader.prepareForTriggerAvailableNow()
        batches = [query.trigger() or []]
        append(shop, 500)
        shop.add_partitions("orders", 4)
        append(shop, 10, partition=3)
        batches += list(iter(query.trigger, None))
    assert flat(batches) == places("orders", 0, range(100)) + places("orders", 1, range(40))
    assert [len(batch) for batch in batches] == [59, 59, 22]  # the rest is read, though it is less than the least
    with Engine(shop.path, query.checkpoint) as again:
        assert flat(again.available_now()) == places("orders", 0, range(100, 600)) + places("orders", 3, range(10))


def test_available_now_takes_nothing_that_came_after_its_beginning(shop: Store):
    with Engine(shop.path, startingTimestamp=str(TIME + 100), startingOffsetsByTimestampStrategy="latest") as query:
        query.reader.prepareForTriggerAvailableNow()
        append(shop, 10)
        assert list(iter(query.trigger, None)) == [[]]
        assert query.checkpoint.offsets == {"orders": {"0": 100, "1": 40, "2": 0}}


def test_the_latest_offset_is_reported_beside_the_micro_batchs_own_end(shop: Store):
    with Engine(shop.path, maxOffsetsPerTrigger="10", **EARLIEST) as query:
        assert query.reader.reportLatestOffset() is None
        query.trigger()
        assert (query.reader.reportLatestOffset() or {})["orders"] == {"0": 100, "1": 40, "2": 0}


def test_a_micro_batch_is_cut_into_tasks_as_a_batch_read_is(shop: Store):
    with Engine(shop.path, minPartitions="5", maxRecordsPerPartition="30", **EARLIEST) as query:
        start = query.reader.initialOffset()
        parts = query.reader.partitions(start, query.reader.latestOffset(start, ReadAllAvailable()))
    assert len(parts) >= 5
    assert all(isinstance(part, LogSlice) and 0 < part.end - part.start <= 30 for part in parts)
    assert query.reader.partitions(start, start) == []


# ---- topics come and go --------------------------------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_start(shop: Store):
    with Engine(shop.path, startingOffsets="latest", maxOffsetsPerTrigger="6") as query:
        query.trigger()
        shop.add_partitions("orders", 5)
        append(shop, 10, partition=4)
        assert query.trigger() == places("orders", 4, range(6))
        assert query.trigger() == places("orders", 4, range(6, 10))


def test_new_topics_are_read_from_their_start_when_the_pattern_names_them(shop: Store):
    with Engine(shop.path, subscribePattern="or.*", startingOffsets="latest") as query:
        query.trigger()
        make(shop, "oranges", [10])
        make(shop, "returns", [10])
        assert query.trigger() == places("oranges", 0, range(10))
        assert set(query.checkpoint.offsets) == {"orders", "oranges"}


def test_a_partition_that_begins_late_is_a_loss(shop: Store):
    with Engine(shop.path, subscribePattern="or.*") as query:
        query.trigger()
        make(shop, "oranges", [50])
        shop.log("oranges").delete_records(20)
        with pytest.raises(OffsetOutOfRangeError, match=r"oranges-0 is new and begins at offset 20, not at 0"):
            query.trigger()
    with Engine(shop.path, query.checkpoint, subscribePattern="or.*", failOnDataLoss="false") as again:
        assert again.trigger() == places("oranges", 0, range(20, 50))


def test_records_that_retention_has_removed_are_a_loss_that_names_partitions_and_offsets(
    shop: Store, caplog: pytest.LogCaptureFixture
):
    with Engine(shop.path, maxOffsetsPerTrigger="14", **EARLIEST) as query:
        query.trigger()
    shop.log("orders", 0).delete_records(55)
    shop.log("orders", 1).delete_records(40)
    what = (
        r"offsets 10 to 55 \(exclusive\) of orders-0 no longer exist; offsets 4 to 40 \(exclusive\) of orders-1 no longer exist"
    )
    with Engine(shop.path, query.checkpoint) as again, pytest.raises(OffsetOutOfRangeError, match=what) as caught:
        again.trigger()
    assert (caught.value.path, caught.value.offset) == (shop.path, 10)
    with caplog.at_level(logging.WARNING), Engine(shop.path, query.checkpoint, failOnDataLoss="false") as lenient:
        assert lenient.trigger() == places("orders", 0, range(55, 100))
    assert "offsets 10 to 55 (exclusive) of orders-0 no longer exist" in caplog.text


def test_a_log_that_ends_before_the_checkpoint_is_a_loss(shop: Store):
    with Engine(shop.path, **EARLIEST) as query:
        query.trigger()
        shop.log("orders").truncate(60)
        with pytest.raises(OffsetOutOfRangeError, match="orders-0 ended at 60 when it had been read up to 100 already"):
            query.trigger()
    with Engine(shop.path, query.checkpoint, failOnDataLoss="false") as again:
        assert again.trigger() == []
        append(shop, 10)
        assert again.trigger() == places("orders", 0, range(60, 70))


def test_a_planned_micro_batch_whose_end_was_cut_off_is_a_loss(shop: Store):
    with Engine(shop.path, **EARLIEST) as query:
        query.plan()
        shop.log("orders").truncate(60)
        with pytest.raises(OffsetOutOfRangeError, match=r"offsets 60 to 100 \(exclusive\) of orders-0 no longer exist"):
            query.run()
    with Engine(shop.path, query.checkpoint, failOnDataLoss="false", **EARLIEST) as again:
        assert again.trigger() == places("orders", 0, range(60)) + places("orders", 1, range(40))


def test_a_topic_that_is_gone_is_a_loss(shop: Store):
    make(shop, "returns", [10])
    both = {"subscribe": "orders,returns"} | EARLIEST
    with Engine(shop.path, **both) as query:
        query.trigger()
        shop.delete_topic("returns")
        with pytest.raises(OffsetOutOfRangeError, match="returns-0 no longer exists"):
            query.trigger()
    with Engine(shop.path, query.checkpoint, failOnDataLoss="false", **both) as again:
        assert again.trigger() == []
        make(shop, "returns", [20])
        assert again.trigger() == places("returns", 0, range(20))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"subscribe": "orders,returns"}, {"subscribe": "orders"}),
        ({"subscribePattern": "orders|returns"}, {"subscribePattern": "orders"}),
        ({"assign": '{"orders": [0, 1, 2], "returns": [0]}'}, {"assign": '{"orders": [0, 1, 2]}'}),
    ],
    ids=["subscribe", "subscribePattern", "assign"],
)
@pytest.mark.parametrize("planned", [False, True], ids=["between micro-batches", "with a micro-batch planned"])
def test_a_topic_that_the_options_no_longer_name_is_called_so_and_not_gone(
    shop: Store, before: dict[str, str], after: dict[str, str], planned: bool
):
    make(shop, "returns", [10])
    with Engine(shop.path, **before, **EARLIEST) as query:
        query.trigger()
        append(shop, 10)
        append(shop, 20, "returns")
        if planned:
            query.plan()
    with Engine(shop.path, query.checkpoint, **after) as again, pytest.raises(OffsetOutOfRangeError) as caught:
        again.trigger()
    told = "the checkpoint has returns-0 at offset 10, and the query's options no longer ask for it, in "
    assert str(caught.value).startswith(told)
    assert "gone" not in str(caught.value)
    with Engine(shop.path, query.checkpoint, failOnDataLoss="false", **after) as lenient:
        assert lenient.trigger() == places("orders", 0, range(100, 110))
    with Engine(shop.path, query.checkpoint, **before) as both:
        assert both.trigger() == (None if planned else places("returns", 0, range(30)))  # the planned 20 are a loss that was told


@pytest.mark.parametrize("running", [True, False], ids=["while the query runs", "while it is stopped"])
@pytest.mark.parametrize("count", [50, 100, 200], ids=["shorter", "as long", "longer"])
def test_a_topic_that_was_deleted_and_made_again_is_a_loss(shop: Store, running: bool, count: int):
    query = Engine(shop.path, **EARLIEST)
    query.trigger()
    if not running:
        query.reader.stop()
    shop.delete_topic("orders")
    make(shop, "orders", [count, 40, 0])
    what = "topic orders was deleted and created again, with the records of orders-0 from offset 100 on"
    with query if running else Engine(shop.path, query.checkpoint) as again, pytest.raises(OffsetOutOfRangeError, match=what):
        again.trigger()
    with Engine(shop.path, query.checkpoint, failOnDataLoss="false") as lenient:
        assert lenient.trigger() == places("orders", 0, range(count)) + places("orders", 1, range(40))
        assert lenient.trigger() is None


def test_a_topic_that_was_made_again_after_its_micro_batch_was_planned_is_not_read_for_the_old_one(shop: Store):
    with Engine(shop.path, **EARLIEST) as query:
        query.plan()
        start, end = query.reader.initialOffset(), json.loads(query.checkpoint.ends[0])
        parts = query.reader.partitions(start, end)
        shop.delete_topic("orders")
        make(shop, "orders", [100, 40, 0])
        with pytest.raises(UnknownTopicOrPartitionError, match=r"deleted \(and perhaps created again\)"):
            list(query.reader.read(parts[0]))
        with pytest.raises(OffsetOutOfRangeError, match="orders-0 was deleted since its offsets up to 100 were planned"):
            query.run()
    with Engine(shop.path, query.checkpoint, failOnDataLoss="false", **EARLIEST) as again:
        assert again.trigger() == []
        assert again.trigger() == everything(shop)


def test_several_directories_are_read_as_one(shop: Store, tmp_path: Path):
    with pylog.open(tmp_path / "more") as more:
        make(more, "oranges", [10])
    with Engine(f"{shop.path},{tmp_path / 'more'}", subscribePattern="or.*", **EARLIEST) as query:
        assert query.trigger() == places("oranges", 0, range(10)) + everything(shop)
    shutil.move(tmp_path / "more" / "oranges-0", Path(shop.path, "oranges-0"))  # a broker moves it to another disk
    (tmp_path / "more" / "pylog.json").unlink()
    append(shop, 10, "oranges")
    with Engine(f"{shop.path},{tmp_path / 'more'}", query.checkpoint, subscribePattern="or.*") as again:
        assert again.trigger() == places("oranges", 0, range(10, 20))


# ---- while others write --------------------------------------------------------------------------------------------------


def test_every_record_is_read_once_while_producers_append_and_the_cleaner_compacts(shop: Store):
    shop.create_topic("prices", cleanup_policy="compact", segment_bytes=2000, index_interval_bytes=0)
    seen, done = [], threading.Event()

    def work() -> None:
        for _ in range(30):
            append(shop, 20, "prices")
            append(shop, 30)
            shop.compact("prices")
        done.set()

    producer = threading.Thread(target=work)
    limits = {"subscribe": "orders,prices", "maxOffsetsPerTrigger": "300", "maxBytesPerTrigger": "20000"}
    with Engine(shop.path, **limits, **EARLIEST) as query:
        producer.start()
        while (found := query.trigger()) is not None or not done.is_set():
            seen += found or []
        producer.join()
        while (found := query.trigger()) is not None:
            seen += found
    orders = [place for place in seen if place[0] == "orders"]
    assert sorted(orders) == everything(shop)
    prices = [offset for topic, _, offset in seen if topic == "prices"]
    assert prices == sorted(set(prices))
    assert {record.offset for record in shop.log("prices").records()} <= set(prices)


def test_records_that_retention_removes_under_a_running_query_are_read_or_reported(shop: Store):
    done = threading.Event()

    def work() -> None:
        log = shop.log("orders")
        for _ in range(40):
            append(shop, 50)
            log.delete_records(max(0, log.end_offset - 100))
        done.set()

    retention, seen, losses = threading.Thread(target=work), [], 0
    checkpoint = Checkpoint()
    retention.start()
    while not done.is_set() or len(checkpoint.ends) > checkpoint.done:
        with Engine(shop.path, checkpoint, assign='{"orders": [0]}', maxBytesPerTrigger="3000", **EARLIEST) as query:
            try:
                seen += query.trigger() or []
            except OffsetOutOfRangeError:
                losses += 1
                with Engine(shop.path, checkpoint, assign='{"orders": [0]}', failOnDataLoss="false", **EARLIEST) as lenient:
                    seen += lenient.trigger() or []
    retention.join()
    offsets = [offset for _, _, offset in seen]
    assert offsets == sorted(set(offsets))
    assert losses or offsets == list(range(offsets[0], offsets[-1] + 1))


# ---- the group -----------------------------------------------------------------------------------------------------------


def committed(store: Store) -> dict[int, int]:
    return {place.partition: found.offset for place, found in store.offsets.fetch("lag").items()}


def test_each_micro_batch_that_is_done_is_committed_for_the_group(shop: Store):
    with Engine(shop.path, groupId="lag", maxOffsetsPerTrigger="35", **EARLIEST) as query:
        query.trigger()
        assert committed(shop) == {}  # Spark has not said yet that it is done
        query.trigger()
        assert committed(shop) == {0: 25, 1: 10, 2: 0}
        assert query.available_now()[-1:]
    assert committed(shop) == {0: 100, 1: 40, 2: 0}


def test_positions_of_deleted_partitions_are_not_committed(shop: Store):
    make(shop, "returns", [10])
    both = {"subscribe": "orders,returns", "failOnDataLoss": "false", "groupId": "lag"} | EARLIEST
    with Engine(shop.path, **both) as query:
        query.trigger()
        shop.delete_topic("returns")
        shop.log("orders").truncate(60)
        query.trigger()
        query.trigger()
    assert committed(shop) == {0: 60, 1: 40, 2: 0}


def test_the_end_of_a_micro_batch_never_counts_for_a_topic_that_is_created_again_during_the_commit(
    shop: Store, monkeypatch: pytest.MonkeyPatch
):
    commit = GroupCommits.commit

    def late(*given: object) -> None:
        monkeypatch.setattr(GroupCommits, "commit", commit)
        shop.delete_topic("orders")
        make(shop, "orders", [100, 40, 0])
        commit(*given)  # type: ignore[arg-type]

    with Engine(shop.path, groupId="lag", maxOffsetsPerTrigger="35", failOnDataLoss="false", **EARLIEST) as query:
        query.trigger()
        monkeypatch.setattr(GroupCommits, "commit", late)
        query.trigger()
    assert committed(shop) == {}


def test_many_partitions_are_committed_in_several_records_batches(shop: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pylog.spark.group.COMMIT_PARTITIONS", 2)
    group = GroupCommits(shop.path, "lag")
    group.commit({("orders", 0): 7, ("orders", 1): 8, ("orders", 2): 0})  # type: ignore[dict-item]
    group.close()
    assert committed(shop) == {0: 7, 1: 8, 2: 0}


def test_a_group_that_cannot_be_committed_stops_the_query_before_it_begins(shop: Store, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str, **_: object) -> Store:
        raise StoreLockedError(f"{path} is open in a Kafka broker", path=path, pid=7)

    with Engine(shop.path, groupId="lag", **EARLIEST) as query:
        monkeypatch.setattr("pylog.spark.group.pylog.open", refuse)
        with pytest.raises(StoreLockedError, match=r"groupId .* group 'lag' in .*Kafka broker; to read .* leave out groupId"):
            query.trigger()
        assert query.checkpoint.ends == []


def test_a_failed_commit_says_what_it_was_for(shop: Store):
    make(shop, "returns", [10])
    group = GroupCommits(shop.path, "lag")
    with pytest.raises(PylogError, match=r"the option groupId has the query commit .* 'lag'"):
        group.commit({("returns", 7): 1})  # type: ignore[dict-item]
    group.close()
