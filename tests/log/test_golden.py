"""Every partition that a real broker wrote reads to what Kafka's own client read: records, ends, searches by time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import pylog
from support.golden.data import GoldenPartition, partitions
from support.golden.rows import COLUMNS, encoded, rows


@pytest.fixture(params=partitions(), ids=lambda partition: partition.id)
def golden(request: pytest.FixtureRequest) -> GoldenPartition:
    partition: GoldenPartition = request.param
    return partition


def read_up_to_damage(frames: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    got = []
    try:
        for frame in frames:
            got += list(rows(iter([frame])))
    except pylog.CorruptionError:
        return got
    pytest.fail("the damage went unnoticed")


@pytest.mark.sampled(3)
def test_every_record_reads_as_kafkas_consumer_read_it(golden: GoldenPartition) -> None:
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        frames = log.scan(columns=COLUMNS)
        damaged = "readError" in golden.meta  # Kafka's consumer came no further than the damage; neither may pylog
        assert (read_up_to_damage(frames) if damaged else list(rows(frames))) == golden.expected()


@pytest.mark.sampled(3)
def test_committed_reading_hides_what_kafkas_consumer_did_not_see(golden: GoldenPartition) -> None:
    if "readError" in golden.meta:
        return
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        assert list(rows(log.scan(columns=COLUMNS, isolation_level="read_committed"))) == golden.expected_committed()


def test_log_start_end_and_stable_offset_are_the_brokers(golden: GoldenPartition) -> None:
    meta = golden.meta
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        assert (log.start_offset, log.end_offset) == (meta["logStartOffset"], meta["logEndOffset"])
        assert log.stable_offset == meta["lastStableOffset"]


@pytest.mark.sampled(5)
def test_a_search_by_time_answers_as_the_broker_did(golden: GoldenPartition) -> None:
    """The exception is a search that Kafka ends too early: the true first record is the answer then."""
    meta = golden.meta
    if "readError" in meta:
        return
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        for isolation, answers in (("read_uncommitted", "offsetsForTimes"), ("read_committed", "offsetsForTimesCommitted")):
            for query in meta.get(answers, meta["offsetsForTimes"]):
                if "error" in query:
                    continue
                found = log.offset_for_timestamp(query["timestamp"], isolation_level=isolation)
                got = (
                    None
                    if found is None
                    else {"offset": found.offset, "timestamp": found.timestamp, "leaderEpoch": found.leader_epoch}
                )
                if query["result"] is None and got is not None:
                    assert got["offset"] == first_at_or_after(log, query["timestamp"]), (query, got)
                else:
                    assert got == query["result"], query


def first_at_or_after(log: pylog.Log, timestamp: int) -> int | None:
    return next((record.offset for record in log.records() if record.timestamp >= timestamp), None)


@pytest.mark.sampled(5)
def test_every_offset_can_be_read_alone(golden: GoldenPartition) -> None:
    if "readError" in golden.meta:
        return
    expected = {row["offset"]: row for row in golden.expected()}
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        for offset in sorted(expected)[:: max(1, len(expected) // 40)]:
            record = log.read(offset)
            want = expected[offset]
            assert (record.offset, record.timestamp, encoded(record.key), encoded(record.value)) == (
                offset,
                want["timestamp"],
                want["key"],
                want["value"],
            )
            assert [[name, encoded(value)] for name, value in record.headers] == want["headers"]
