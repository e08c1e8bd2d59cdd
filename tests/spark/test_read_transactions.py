"""What Spark reads of transactions, on each route: batches, streams, limits, times and snapshots. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import pylog
from pylog.clock import ManualClock
from pylog.config import TransactionsConfig
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.record.types import TopicPartition
from pylog.spark.options import read_options, stream_options
from pylog.spark.planner import plan
from pylog.spark.pushdown import NO_PRUNING
from pylog.spark.reader import read_slice
from pylog.spark.stream import PylogStreamReader
from pylog.store import Store

COMMITTED = [b"1", b"3", b"5", b"6"]
UNCOMMITTED = [b"1", b"2", b"3", b"4", b"5", b"6", b"open", b"7"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    clock = ManualClock(now_ms=500)  # markers have its time
    with pylog.open(tmp_path, transactions=TransactionsConfig(topic_num_partitions=1), clock=clock) as made:
        made.create_topic("orders", segment_bytes=300)
        log = made.log("orders")
        for number in range(1, 6):
            with made.transaction("billing") as transaction:
                transaction.append("orders", b"%d" % number, partition=0, timestamp=1000 * number)
                transaction.flush()
                if number in (2, 4):
                    transaction.abort()
        log.append(b"6", timestamp=6000)
        made.last = made.transaction("other")  # type: ignore[attr-defined]
        made.last.append("orders", b"open", partition=0, timestamp=7000)  # type: ignore[attr-defined]
        made.last.flush()  # type: ignore[attr-defined]
        log.append(b"7", timestamp=8000)
        yield made


def batch(path: Path | str, **more: str) -> list[bytes]:
    """What a batch read returns, by all its tasks."""
    options = read_options({"path": str(path), "subscribe": "orders", "columns": "value", **more})
    slices = plan(options, NO_PRUNING)
    return [value for part in slices for frame in read_slice(part, options.scan) for value in frame["value"].to_pylist()]


def stream(reader: PylogStreamReader, at: dict[str, Any], limit: int | None) -> tuple[dict[str, Any], list[list[bytes]]]:
    """What the micro-batches of a stream return, until nothing is new, and where the stream is then."""
    found = []
    while (end := reader.latestOffset(at, ReadAllAvailable() if limit is None else ReadMaxRows(limit))) != at:
        parts = reader.partitions(at, end)
        found.append([value for part in parts for frame in reader.read(part) for value in frame["value"].to_pylist()])
        at = end
    return at, found


@pytest.mark.parametrize("name", ["isolationLevel", "isolation.level", "kafka.isolation.level"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "1"},
        {"maxBytesPerPartition": "100"},
        {"startingTimestamp": "0"},
        {"endingTimestamp": "9000"},
        {"startingOffsets": '{"orders":{"0":0}}', "endingOffsets": '{"orders":{"0":-1}}'},
    ],
)
def test_a_batch_read_has_committed_records_only_up_to_the_stable_offset(store: Store, name: str, more: dict[str, str]):
    assert batch(store.path, **more) == UNCOMMITTED
    assert batch(store.path, **more, **{name: "read_uncommitted"}) == UNCOMMITTED
    assert batch(store.path, **more, **{name: "READ_COMMITTED"}) == COMMITTED


def test_an_end_after_the_stable_offset_does_not_exist_yet_for_a_committed_read(store: Store):
    end = f'{{"orders":{{"0":{store.log("orders").end_offset}}}}}'
    assert batch(store.path, endingOffsets=end) == UNCOMMITTED
    with pytest.raises(OffsetOutOfRangeError, match="does not exist yet"):
        batch(store.path, endingOffsets=end, isolationLevel="read_committed")


@pytest.mark.pair("Spark", "aborted transactions", "time search")
def test_a_committed_read_from_a_time_begins_at_the_stable_offset_if_later_records_are_younger(store: Store):
    later = {"startingTimestamp": "6500", "startingOffsetsByTimestampStrategy": "latest"}
    assert batch(store.path, **later) == [b"open", b"7"]
    assert batch(store.path, **later, isolationLevel="read_committed") == []
    assert batch(store.path, startingTimestamp="2500", isolationLevel="read_committed") == COMMITTED[1:]


@pytest.mark.pair("Spark", "aborted transactions", "scan and follow")
@pytest.mark.parametrize("limit", [None, 1, 2, 5])
def test_a_committed_stream_stops_at_an_open_transaction_and_goes_on_after_its_commit(store: Store, limit: int | None):
    given = {"path": store.path, "subscribe": "orders", "columns": "value", "startingOffsets": "earliest"}
    if limit is not None:
        given["maxOffsetsPerTrigger"] = str(limit)
    reader = PylogStreamReader(stream_options({**given, "isolation.level": "read_committed"}))
    at, batches = stream(reader, reader.initialOffset(), limit)
    assert [value for each in batches for value in each] == COMMITTED
    assert at["orders"] == {"0": store.log("orders").stable_offset}
    if limit == 1:
        assert len(batches) > len(COMMITTED)  # offsets of markers and of aborted records count
    store.last.commit()  # type: ignore[attr-defined]
    assert [value for each in stream(reader, at, limit)[1] for value in each] == [b"open", b"7"]
    reader.stop()


# ---- snapshots -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "bank", transactions=TransactionsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", partition_count=2)
        yield made


def transfer(store: Store, amount: int) -> None:
    with store.transaction("bank") as transaction:
        transaction.append("orders", b"%d" % amount, partition=0)
        transaction.append("orders", b"%d" % -amount, partition=1)


def total(rows: list[bytes]) -> int:
    return sum(int(row) for row in rows)


@pytest.mark.parametrize("more", [{}, {"minPartitions": "9"}, {"isolationLevel": "read_committed"}, {"startingTimestamp": "0"}])
def test_a_snapshot_has_whole_transactions_though_another_one_is_open_before_them_in_one_partition(
    bank: Store, more: dict[str, str]
):
    other = bank.transaction("other")
    other.append("orders", b"1000", partition=0)
    other.flush()
    transfer(bank, 7)
    assert total(batch(bank.path, isolationLevel="read_committed")) == -7  # the half in the first partition is hidden
    assert sorted(batch(bank.path, snapshot="true", **more)) == [b"-7", b"7"]
    other.commit()
    assert total(batch(bank.path, snapshot="true", **more)) == 1000


@pytest.mark.pair("Spark", "scan and follow", "retention by size")
def test_the_tasks_read_the_snapshot_that_was_planned_whatever_is_committed_afterwards(bank: Store):
    other = bank.transaction("other")
    other.append("orders", b"1000", partition=0)
    other.flush()
    transfer(bank, 7)
    options = read_options({"path": bank.path, "subscribe": "orders", "columns": "value", "snapshot": "true"})
    slices = plan(options)
    transfer(bank, 8)
    other.commit()
    found = [value for part in slices for frame in read_slice(part, options.scan) for value in frame["value"].to_pylist()]
    assert sorted(found) == [b"-7", b"7"]
    bank.log("orders", 0).delete_records(2)
    with pytest.raises(OffsetOutOfRangeError, match="were deleted since the read was planned"):
        [*read_slice(slices[0], options.scan)]


def test_a_partition_that_was_created_after_the_snapshot_is_not_read(bank: Store, monkeypatch: pytest.MonkeyPatch):
    transfer(bank, 7)
    bank.log("orders", 1).append(b"9")
    taken = bank.snapshot()
    cuts = {TopicPartition("orders", 0): taken.cuts[TopicPartition("orders", 0)]}
    monkeypatch.setattr("pylog.spark.planner._cuts", lambda *_: cuts)
    assert batch(bank.path, snapshot="true") == [b"7"]


def test_a_snapshot_is_of_one_directory_and_for_batch_reads(bank: Store):
    with pytest.raises(InvalidArgumentError, match="path names several"):
        read_options({"path": f"{bank.path},{bank.path}2", "subscribe": "orders", "snapshot": "true"})
    with pytest.raises(InvalidArgumentError, match="the option 'snapshot' is for batch reads"):
        stream_options({"path": bank.path, "subscribe": "orders", "snapshot": "true"})
