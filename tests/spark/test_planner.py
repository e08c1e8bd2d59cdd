"""What a batch read will read: decided on the driver, from real stores, without Spark running."""

from __future__ import annotations

import json
import logging
import pickle
from itertools import pairwise
from pathlib import Path

import pytest

import pylog
from pylog.errors import (
    InvalidArgumentError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from pylog.log.reading.outline import PartitionExtent
from pylog.log.reading.planning import Split, cut
from pylog.log.reading.queries import Queries
from pylog.spark import planner
from pylog.spark.options import read_options
from pylog.spark.planner import LogSlice, plan, shares, with_more
from pylog.spark.reader import read_slice
from support.golden.data import case

TIME = 1_700_000_000_000
BATCH = 10  # records


def make(path: Path, **records: list[int]) -> Path:
    """A store with so many records in each partition of each topic, in batches of ten, small segments, timestamps rising by 1."""
    with pylog.open(path) as store:
        for topic, counts in records.items():
            store.create_topic(topic, partition_count=len(counts), segment_bytes=4000, index_interval_bytes=0)
            for partition, count in enumerate(counts):
                log = store.log(topic, partition)
                for start in range(0, count, BATCH):
                    rows = range(start, min(count, start + BATCH))
                    log.append_many([(b"key", b"value of 20 bytes...", None, TIME + row) for row in rows])
    return path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("planner") / "shop", orders=[1000, 500, 0], returns=[10], **{"orders-old": [10]})


def spans(path: Path | str, **options: str) -> list[tuple[str, int, int, int]]:
    strategies = {"subscribe", "subscribePattern", "assign"} & options.keys()
    given = {"path": str(path)} | ({} if strategies else {"subscribe": "orders"}) | options
    return [(part.topic, part.partition, part.start, part.end) for part in plan(read_options(given))]


# ---- which partitions ----------------------------------------------------------------------------------------------------


def test_subscribe_takes_whole_topics_in_order_and_leaves_out_empty_partitions(shop: Path):
    assert spans(shop, subscribe="returns,orders") == [("orders", 0, 0, 1000), ("orders", 1, 0, 500), ("returns", 0, 0, 10)]


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("orders", {"orders", "orders-old"}),
        ("^orders$", {"orders"}),
        ("order$", set()),
        ("orders-old|returns", {"orders-old", "returns"}),
    ],
)
def test_a_pattern_matches_anywhere_in_a_name_as_in_the_connector(shop: Path, pattern: str, topics: set[str]):
    assert {topic for topic, *_ in spans(shop, subscribePattern=pattern)} == topics


def test_a_pattern_leaves_out_a_brokers_internal_topics():
    directory = case("4.3.0", "txn").log_directory
    found = {topic for topic, *_ in spans(directory, subscribePattern=".*")}
    assert "txn" in found
    assert not [topic for topic in found if topic.startswith("__")]
    assert spans(directory, subscribePattern=".*offsets") == []
    assert spans(directory, subscribe="__transaction_state")


def test_assign_takes_the_partitions_that_it_names(shop: Path):
    assert spans(shop, assign='{"orders": [1, 2], "returns": [0]}') == [("orders", 1, 0, 500), ("returns", 0, 0, 10)]


def test_a_missing_path_is_an_error_that_names_it(shop: Path, tmp_path: Path):
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no topic a, b in .*shop"):
        spans(shop, subscribe="b,orders,a")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no partition orders-3, other-0 in"):
        spans(shop, assign='{"orders": [0, 3], "other": [0]}')
    with pytest.raises(NotALogDirectoryError, match="nowhere"):
        spans(tmp_path / "nowhere")


def test_several_directories_are_read_as_one(shop: Path, tmp_path: Path):
    more = make(tmp_path / "more", clicks=[20])
    assert spans(f"{shop}, {more}", subscribe="clicks,returns") == [("clicks", 0, 0, 20), ("returns", 0, 0, 10)]
    parts = plan(read_options({"path": f"{shop},{more}", "subscribe": "clicks"}))
    with pylog.open(more, mode="r") as store:
        assert parts == [LogSlice(str(more), "clicks", 0, 0, 20, store.topic("clicks").id)]


def test_a_partition_in_two_directories_is_an_error(shop: Path, tmp_path: Path):
    other = make(tmp_path / "other", orders=[10], clicks=[10])
    with pytest.raises(InvalidArgumentError, match=r"partition orders-0 is in .*shop and in .*other"):
        spans(f"{shop},{other}")
    with pytest.raises(InvalidArgumentError, match="twice"):
        spans(f"{shop},{shop}")
    assert spans(f"{shop},{other}", subscribe="clicks") == [("clicks", 0, 0, 10)]


# ---- from where to where -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"orders": {"0": 23, "1": -2, "2": 0}}'}, [(0, 23, 1000), (1, 0, 500)]),
        ({"endingOffsets": '{"orders": {"0": 23, "1": -1, "2": -1}}'}, [(0, 0, 23), (1, 0, 500)]),
        ({"startingTimestamp": str(TIME + 450), "startingOffsetsByTimestampStrategy": "latest"}, [(0, 450, 1000), (1, 450, 500)]),
        ({"endingTimestamp": str(TIME + 700)}, [(0, 0, 700), (1, 0, 500)]),
        ({"endingOffsetsByTimestamp": f'{{"orders": {{"0": {TIME + 1}, "1": 0, "2": 0}}}}'}, [(0, 0, 1)]),
        ({"startingOffsets": '{"orders": {"0": 700, "1": 0, "2": 0}}', "endingTimestamp": str(TIME + 700)}, [(1, 0, 500)]),
        (
            {"startingTimestamp": "0", "startingOffsets": "broken", "startingOffsetsByTimestampStrategy": "latest"},
            [(0, 0, 1000), (1, 0, 500)],
        ),
    ],
)
def test_starts_and_ends(shop: Path, options: dict[str, str], expected: list[tuple[int, int, int]]):
    assert [span[1:] for span in spans(shop, **options)] == expected


def test_a_start_by_time_that_nothing_reaches_is_an_error_or_the_end(shop: Path):
    at = {"assign": '{"orders": [0, 1]}', "startingTimestamp": str(TIME + 600)}
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-1 .*startingOffsetsByTimestampStrategy to latest"):
        spans(shop, **at)
    assert spans(shop, **at, startingOffsetsByTimestampStrategy="latest") == [("orders", 0, 600, 1000)]


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("startingOffsets", "startingOffsets"),
        ("endingOffsets", "endingOffsets"),
        ("startingOffsetsByTimestamp", "startingOffsetsByTimestamp"),
    ],
)
def test_offsets_by_partition_name_every_partition_that_is_read_and_no_other(shop: Path, option: str, name: str):
    with pytest.raises(InvalidArgumentError, match=rf"{name} must name every .*missing: orders-1, orders-2"):
        spans(shop, **{option: '{"orders": {"0": 1}}'})
    with pytest.raises(InvalidArgumentError, match=r"not read: orders-9, returns-0"):
        spans(shop, assign='{"orders": [0]}', **{option: '{"orders": {"0": 1, "9": 1}, "returns": {"0": 1}}'})


@pytest.mark.parametrize(
    ("offsets", "offset", "word", "clamped"),
    [
        ({"starting": 5}, 5, "starting offset 5 of del-mid-0 was deleted", [(179, 342)]),
        ({"starting": 343, "ending": 343}, 343, "starting offset 343 of del-mid-0 does not exist yet", []),
        ({"starting": 5, "ending": 7}, 5, "starting offset 5 of del-mid-0 was deleted", []),
        ({"ending": 343}, 343, "ending offset 343 of del-mid-0 does not exist yet", [(179, 342)]),
    ],
)
def test_offsets_that_the_log_does_not_have(
    offsets: dict[str, int], offset: int, word: str, clamped: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
):
    golden = case("4.3.0", "delete-records-mid").partitions[0]
    word = word.replace("del-mid-0", golden.tp)
    given = {"subscribe": golden.topic} | {f"{which}Offsets": trimmed_at(each) for which, each in offsets.items()}
    with pytest.raises(OffsetOutOfRangeError, match=rf"{word}: the log has offsets 179 to 342 .*failOnDataLoss") as caught:
        spans(golden.log_directory, **given)
    assert caught.value.offset == offset
    with caplog.at_level(logging.WARNING):
        assert [span[2:] for span in spans(golden.log_directory, failOnDataLoss="false", **given)] == clamped
    assert word in caplog.text


def trimmed_at(offset: int) -> str:
    golden = case("4.3.0", "delete-records-mid").partitions[0]
    return json.dumps({golden.topic: {golden.partition: offset}})


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"endingOffsets": trimmed_at(5)}, 179, 5),
        ({"startingOffsets": trimmed_at(343)}, 343, 342),
        ({"startingOffsets": trimmed_at(200), "endingTimestamp": "0"}, 200, 179),
    ],
)
def test_a_read_that_would_end_before_it_begins_is_refused(options: dict[str, str], start: int, end: int, lenient: str):
    golden = case("4.3.0", "delete-records-mid").partitions[0]
    with pytest.raises(InvalidArgumentError, match=rf"begin at offset {start} and end before that, at {end}: .*179 to 342"):
        spans(golden.log_directory, subscribe=golden.topic, failOnDataLoss=lenient, **options)


def test_latest_is_the_stable_offset_for_committed_reads():
    golden = next(each for each in case("4.3.0", "txn").partitions if each.topic == "txn-open")
    assert golden.meta["lastStableOffset"] < golden.meta["logEndOffset"]
    at = {"subscribe": "txn-open"}
    assert spans(golden.log_directory, **at)[-1][3] == golden.meta["logEndOffset"]
    assert spans(golden.log_directory, **at, isolationLevel="read_committed")[-1][3] == golden.meta["lastStableOffset"]


# ---- cut into tasks ------------------------------------------------------------------------------------------------------


def assert_tiles(parts: list[tuple[str, int, int, int]], topic: str, partition: int, start: int, end: int):
    mine = [part[2:] for part in parts if part[:2] == (topic, partition)]
    assert [mine[0][0], mine[-1][1]] == [start, end]
    assert [last for _, last in mine[:-1]] == [first for first, _ in mine[1:]]
    assert all(first < last for first, last in mine)


def test_slices_follow_bytes_and_meet_at_batch_boundaries(shop: Path):
    parts = spans(shop, maxBytesPerPartition="5000")
    for partition, end in ((0, 1000), (1, 500)):
        assert_tiles(parts, "orders", partition, 0, end)
    assert len(parts) > 8
    assert not [part for part in parts if part[2] % BATCH]


def test_min_partitions_is_reached_and_shared_out_by_size(shop: Path):
    parts = spans(shop, minPartitions="12")
    assert_tiles(parts, "orders", 0, 0, 1000)
    assert_tiles(parts, "orders", 1, 0, 500)
    counts = [len([part for part in parts if part[1] == partition]) for partition in (0, 1)]
    assert sum(counts) >= 12
    assert counts[0] > counts[1] > 1


@pytest.mark.pair("Spark", "compaction")
@pytest.mark.parametrize(("records", "wanted"), [(536, 40), (536, 600), (3, 40), (1, 2)])
def test_min_partitions_is_reached_with_small_records_whose_index_has_few_entries(tmp_path: Path, records: int, wanted: int):
    with pylog.open(tmp_path) as store:
        store.create_topic("orders", cleanup_policy="compact,delete")
        for number in range(records):
            store.log("orders").append(b"order", b"%d" % number)
    parts = spans(tmp_path, minPartitions=str(wanted))
    assert_tiles(parts, "orders", 0, 0, records)
    assert len(parts) == min(wanted, records)
    sizes = [end - start for _, _, start, end in parts]
    assert max(sizes) - min(sizes) <= 8


def test_min_partitions_is_reached_within_one_large_batch_and_every_record_is_read_once(tmp_path: Path):
    with pylog.open(tmp_path) as store:
        store.create_topic("orders", compression_type="zstd")
        store.log("orders").append_many([b"%d" % number for number in range(5000)])
    options = read_options({"path": str(tmp_path), "subscribe": "orders", "minPartitions": "7"})
    parts = plan(options)
    assert len(parts) == 7
    values = [value for part in parts for batch in read_slice(part, options.scan) for value in batch.column("value").to_pylist()]
    assert values == [b"%d" % number for number in range(5000)]


@pytest.mark.parametrize(
    ("bounds", "pieces", "expected"),
    [
        ((0, 10), 1, (0, 10)),
        ((0, 2), 9, (0, 1, 2)),
        ((5, 6, 7), 9, (5, 6, 7)),
        ((0, 10, 12), 2, (0, 10, 12)),
        ((0, 2**62, 2**63 - 1), 4, (0, 2**61, 2**62, 2**62 + (2**62 - 1) // 2, 2**63 - 1)),
    ],
)
def test_more_bounds_lie_between_those_furthest_apart(bounds: tuple[int, ...], pieces: int, expected: tuple[int, ...]):
    assert with_more(bounds, pieces) == expected


def test_max_records_is_kept_even_inside_a_batch(shop: Path):
    parts = spans(shop, maxRecordsPerPartition="7", startingOffsets='{"orders": {"0": 3, "1": 0, "2": 0}}')
    assert_tiles(parts, "orders", 0, 3, 1000)
    assert max(part[3] - part[2] for part in parts) <= 7


def test_too_many_slices_are_refused(monkeypatch: pytest.MonkeyPatch, shop: Path):
    monkeypatch.setattr("pylog.spark.planner.MAX_SLICES", 100)
    with pytest.raises(InvalidArgumentError, match="more than 100 tasks"):
        spans(shop, maxRecordsPerPartition="7")


@pytest.mark.parametrize(
    ("sizes", "pieces", "expected"),
    [([], 5, []), ([100, 900], 10, [1, 9]), ([0, 0], 4, [1, 1]), ([1, 10**15], 2, [1, 2]), ([5, 5, 5], 8, [3, 3, 3])],
)
def test_pieces_are_shared_out_by_size(sizes: list[int], pieces: int, expected: list[int]):
    assert shares(sizes, pieces) == expected


def test_planning_reads_no_records(monkeypatch: pytest.MonkeyPatch, shop: Path):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the planner read records")

    monkeypatch.setattr(Queries, "scan", refuse)
    monkeypatch.setattr(Queries, "read", refuse)
    assert spans(shop, maxBytesPerPartition="5000")


def test_a_slice_is_small_and_travels():
    part = LogSlice("/data/shop", "orders", 3, 10**12, 10**12 + 5, "Q3BOAAABTqe9kBAvQ3BOAA")
    assert pickle.loads(pickle.dumps(part)) == part
    assert len(pickle.dumps(part, protocol=5)) < 150
    assert part != LogSlice("/data/shop", "orders", 3, 10**12, 10**12 + 6, part.topic_id)
    assert len({part, pickle.loads(pickle.dumps(part))}) == 1


# ---- while other processes delete ----------------------------------------------------------------------------------------


def test_a_partition_that_is_deleted_while_it_is_planned_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = make(tmp_path / "shop", orders=[1000])
    with pylog.open(path) as store:
        store.alter_topic("orders", file_delete_delay_ms=0, retention_ms=-1)
        deleted = []

        def cut_late(outline: PartitionExtent, start: int, end: int, max_bytes: int) -> Split:
            if not deleted:
                deleted.append(store.log("orders").delete_records(500))
                store.tick()
            return cut(outline, start, end, max_bytes)

        monkeypatch.setattr(planner, "cut", cut_late)
        found = spans(path, maxBytesPerPartition="1000")
    assert (found[0][2], found[-1][3]) == (500, 1000)
    assert all(left[3] == right[2] for left, right in pairwise(found))
