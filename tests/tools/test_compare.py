"""`tools.compare` agrees with a comparison record by record, whatever differs and however the records lie in batches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog.errors import UnknownTopicOrPartitionError
from pylog.testing import MemoryFileSystem
from pylog.tools.compare import Comparison, PartitionComparison, compare

NOON = 1_706_702_400_000
OS = pylog.Durability.OS
Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]

SMALL = st.sampled_from([None, b"", b"a", b"b"])
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "i"]), SMALL), max_size=2).map(tuple)
ROWS = st.lists(st.tuples(SMALL, SMALL, HEADERS, st.sampled_from([NOON, NOON + 1])), max_size=12)


def compared(left: Path, right: Path, **options: Any) -> Comparison:
    with pylog.open(left, mode="r") as one, pylog.open(right, mode="r") as other:
        return compare(one, other, **options)


def only_partition(found: Comparison) -> PartitionComparison:
    (topic,) = found.topics
    (partition,) = topic.partitions
    return partition


def expected_of(left: list[Row], right: list[Row]) -> list[tuple[int, tuple[str, ...]]]:
    """Record by record, as the columns are to find it."""
    found: list[tuple[int, tuple[str, ...]]] = []
    for offset in range(max(len(left), len(right))):
        if offset >= len(left) or offset >= len(right):
            found.append((offset, ("only left" if offset < len(left) else "only right",)))
            continue
        key, value, headers, stamp = (one == other for one, other in zip(left[offset], right[offset], strict=True))
        same = {"timestamp": stamp, "key": key, "value": value, "headers": headers}
        if not all(same.values()):
            found.append((offset, tuple(name for name, equal in same.items() if not equal)))
    return found


@pytest.mark.slow
@settings(max_examples=40)
@given(ROWS, ROWS, st.integers(1, 5), st.booleans())
def test_it_finds_what_a_comparison_of_records_finds(left: list[Row], changes: list[Row], size: int, prefix: bool) -> None:
    right = left[: len(changes)] if prefix else [*left[: len(left) // 2], *changes]
    with (
        pylog.open("/left", fs=MemoryFileSystem(), durability=OS) as one,
        pylog.open("/right", fs=MemoryFileSystem(), durability=OS) as other,
    ):
        for store, rows, step, codec in ((one, left, size, "none"), (other, right, 3, "lz4")):
            store.create_topic("t")
            for at in range(0, len(rows), step):
                store.log("t").append_many(rows[at : at + step], compression=codec)
        found = compare(one, other)
    partition = only_partition(found)
    expected = expected_of(left, right)
    assert [tuple(each) for each in partition.first] == expected
    assert found.same == (not expected)
    assert partition.equal + partition.differing == min(len(left), len(right))
    assert sum(partition.counts.values()) == sum(len(what) for _, what in expected)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "shop", durability=OS) as store:
        store.create_topic("orders", partition_count=2, retention_ms=-1, segment_bytes=4000)
        for number in range(30):
            rows = [(b"k%d" % (number % 3), b"%d" % at, [("h", b"x")], NOON + at) for at in range(20)]
            store.log("orders", number % 2).append_many(rows)
        store.create_topic("prices", cleanup_policy="compact")
    return tmp_path / "shop"


@pytest.fixture
def backup(shop: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shop, tmp_path / "backup")


def test_a_copy_of_a_directory_is_the_same_by_records_and_by_bytes(shop: Path, backup: Path) -> None:
    for by_bytes in (False, True):
        found = compared(shop, backup, by_bytes=by_bytes)
        assert found.same
        assert [topic.left for topic in found.topics] == ["orders", "prices"]
    assert sum(each.equal for each in compared(shop, backup).topics[0].partitions) == 600


def test_other_batches_are_the_same_by_records_and_not_by_bytes(tmp_path: Path, shop: Path) -> None:
    with pylog.open(shop, mode="r") as source, pylog.open(tmp_path / "other", durability=OS) as target:
        target.create_topic("orders", partition_count=2, retention_ms=-1)
        for number in range(2):
            rows = [(each.key, each.value, each.headers, each.timestamp) for each in source.log("orders", number).records()]
            target.log("orders", number).append_many(rows, compression="zstd")
    assert compared(shop, tmp_path / "other", topics=["orders"]).topics[0].partitions[0].same
    by_bytes = compared(shop, tmp_path / "other", topics=["orders"], by_bytes=True).topics[0].partitions[0]
    assert by_bytes.differing == 1
    assert by_bytes.first[0].offset < 61, "within the first header"
    assert all(what.endswith("only left") for each in by_bytes.first[1:] for what in each.what)


def test_topics_options_and_partitions_that_differ_are_reported(shop: Path, backup: Path) -> None:
    with pylog.open(backup) as store:
        store.alter_topic("orders", retention_ms=1000, segment_bytes=None)
        store.add_partitions("prices", 3)
        store.create_topic("new")
    found = compared(shop, backup)
    assert not found.same
    assert found.only == {"left": [], "right": ["new"]}
    orders, prices = found.topics
    assert [tuple(each) for each in orders.options] == [("retention.ms", -1, 1000), ("segment.bytes", 4000, None)]
    assert prices.only == {"left": [], "right": [1, 2]}
    assert compared(backup, shop).only == {"left": ["new"], "right": []}


def test_two_topics_of_one_directory_can_be_compared(shop: Path) -> None:
    with pylog.open(shop) as store:
        store.create_topic("copy", partition_count=2, retention_ms=-1, segment_bytes=4000)
        for number in range(2):
            for frame in store.log("orders", number).scan(columns=("timestamp", "key", "value", "headers")):
                store.log("copy", number).append_arrow(frame)
    assert compared(shop, shop, topics=["orders"], renamed="copy").same
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nothing'"):
        compared(shop, shop, topics=["orders"], renamed="nothing")
    with pytest.raises(UnknownTopicOrPartitionError, match=r"neither .* nor .* has a topic 'nothing'"):
        compared(shop, shop, topics=["nothing"])


def test_records_that_compaction_has_removed_are_on_one_side_only(tmp_path: Path) -> None:
    for name in ("whole", "compacted"):
        with pylog.open(tmp_path / name, durability=OS) as store:
            store.create_topic("prices", cleanup_policy="compact", segment_bytes=200)
            for number in range(20):
                store.log("prices").append(b"%d" % number, key=b"tea" if number % 3 else b"milk", timestamp=NOON)
            if name == "compacted":
                store.compact("prices")
            kept = {record.offset for record in store.log("prices").records()}
    found = only_partition(compared(tmp_path / "whole", tmp_path / "compacted"))
    assert {each.offset for each in found.first} == set(range(20)) - kept
    assert found.counts == {"only left": 20 - len(kept)}
    assert (found.equal, found.differing) == (len(kept), 0)


@pytest.mark.damaged("a batch is altered")
def test_damage_on_one_side_is_a_difference_with_its_place(shop: Path, backup: Path) -> None:
    path = next(iter(sorted(backup.glob("orders-0/*.log"))))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    found = compared(shop, backup).topics[0].partitions[0]
    assert "does not match its checksum" in found.unreadable[0]
    assert str(path) in found.unreadable[0]
    assert found.counts == {"only left": 20}
    assert found.equal == 280
    by_bytes = compared(shop, backup, by_bytes=True).topics[0].partitions[0]
    assert by_bytes.first[0] == (100, (path.name,))


def test_of_many_differences_the_first_hundred_are_kept_and_all_counted(tmp_path: Path) -> None:
    for name, value in (("a", b"x"), ("b", b"y")):
        with pylog.open(tmp_path / name, durability=OS) as store:
            store.create_topic("t")
            store.log("t").append_many([(None, value, [], NOON)] * 5000)
    found = only_partition(compared(tmp_path / "a", tmp_path / "b"))
    assert [each.offset for each in found.first] == list(range(100))
    assert (found.differing, found.counts) == (5000, {"value": 5000})
