"""What a stream sees of partitions at rest, which it only glances at, and of what becomes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.record.types import TopicPartition
from pylog.spark.options import stream_options
from pylog.spark.roots import Root
from pylog.spark.watch import PartitionsSeen, PartitionTracker

ORDERS = [TopicPartition("orders", number) for number in (0, 1)]


def append(root: Path, *counts: int) -> None:
    """So many records to each partition, by a process that comes and goes."""
    with pylog.open(root) as store:
        for number, count in enumerate(counts):
            store.log("orders", number).append_many([b"a value"] * count)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", partition_count=2)
    append(tmp_path / "shop", 100, 40)
    return tmp_path / "shop"


def watch_of(root: Path, **options: str) -> PartitionTracker:
    return PartitionTracker(stream_options({"path": str(root), "subscribe": "orders"} | options))


def ends(sight: PartitionsSeen) -> list[int]:
    return [sight.ends[part] for part in ORDERS if part in sight.ends]


def opened(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Which logs have been opened."""
    found: list[TopicPartition] = []
    real = Root.log

    def log(self: Root, partition: TopicPartition) -> object:
        found.append(partition)
        return real(self, partition)

    monkeypatch.setattr(Root, "log", log)
    return found


@pytest.mark.parametrize("broker", [False, True])
def test_only_what_changes_is_opened(shop: Path, monkeypatch: pytest.MonkeyPatch, broker: bool):
    if broker:
        for file in shop.glob("*/durable-point"):
            file.unlink()
    logs, watch = opened(monkeypatch), watch_of(shop)
    assert [ends(watch.refresh()) for _ in range(3)] == [[100, 40]] * 3
    assert watch.outline(ORDERS[1]).end_offset == 40
    assert not logs
    append(shop, 0, 5)
    assert ends(watch.refresh()) == [100, 45]
    assert watch.outline(ORDERS[1]).end_offset == 45
    append(shop, 0, 5)
    assert ends(watch.refresh()) == [100, 50]
    assert set(logs) == {ORDERS[1]}
    watch.close()


def test_open_transactions_are_not_seen_at_a_glance(shop: Path, monkeypatch: pytest.MonkeyPatch):
    logs, watch = opened(monkeypatch), watch_of(shop, isolationLevel="read_committed")
    assert ends(watch.refresh()) == [100, 40]
    assert logs == ORDERS
    watch.close()


def test_a_topic_that_is_deleted_or_made_again_is_noticed(shop: Path):
    watch = watch_of(shop)
    before = watch.refresh()
    with pylog.open(shop) as store:
        store.delete_topic("orders")
        assert watch.size(ORDERS[0], 0, 100) >= 0  # what it was, or nothing: the next look tells
        assert ends(watch.refresh()) == []
        store.create_topic("orders", partition_count=1)
    append(shop, 7)
    after = watch.refresh()
    assert ends(after) == [7]
    assert after.ids != before.ids
    watch.close()


def test_records_that_are_deleted_are_noticed(shop: Path):
    watch = watch_of(shop)
    assert watch.refresh().starts[ORDERS[0]] == 0
    with pylog.open(shop) as store:
        store.log("orders").delete_records(30)
    assert watch.refresh().starts[ORDERS[0]] == 30
    watch.close()


def test_planning_a_closed_store_imports_no_kernels(shop: Path):
    plan = f"""
import sys
from pylog.spark import PylogDataSource
from pylog.spark.schema import spark_schema
source = PylogDataSource({{"path": {str(shop)!r}, "subscribe": "orders", "columns": "value", "startingOffsets": "earliest"}})
schema = spark_schema(("value",))
stream = source.streamReader(schema)
stream.prepareForTriggerAvailableNow()
start = stream.initialOffset()
assert len(stream.partitions(start, stream.latestOffset(start, stream.getDefaultReadLimit()))) == 2
assert len(source.reader(schema).partitions()) == 2
print("numba" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", plan], check=True, capture_output=True, text=True).stdout == "False\n"
