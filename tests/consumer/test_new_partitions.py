"""A partition or topic that is created while a consumer with `latest` is running is read from its first record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import pylog
from pylog import Durability, Store
from pylog.consumer.consumer import Consumer
from pylog.testing import MemoryFileSystem
from support.engines import assignment_of

PATIENCE = 10.0  # seconds
OPENED = [b"1", b"2", b"3"]


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with pylog.open("/d", fs=fs, durability=Durability.OS) as store:
        store.create_topic("t")
        store.log("t").append(b"old")
        yield store


@pytest.fixture
def other(store: Store, fs: MemoryFileSystem) -> Iterator[Store]:
    with pylog.open("/d", fs=fs, durability=Durability.OS) as other:
        yield other


def read(*consumers: Consumer, seconds: float = 1.5, enough: int | None = None) -> list[bytes]:
    """The values that consumers hand out for some time, or until there are enough."""
    found: list[bytes] = []
    end = time.monotonic() + (PATIENCE if enough else seconds)
    while time.monotonic() < end and (enough is None or len(found) < enough):
        for consumer in consumers:
            found += [record.value for records in consumer.poll(10).values() for record in records]
    return found


GROWTHS: dict[str, Callable[[Store], tuple[str, int]]] = {
    "a partition": lambda store: ("t", store.add_partitions("t", 2).partition_count - 1),
    "a topic": lambda store: (store.create_topic("t2").name, 0),
}


@pytest.mark.parametrize("growth", GROWTHS.values(), ids=GROWTHS.keys())
@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("maker", ["the same store", "another one"])
@pytest.mark.pair("groups", "option change", "second process")
def test_records_sent_to_a_new_partition_are_read_from_the_first_one(
    store: Store, other: Store, growth: Callable[[Store], tuple[str, int]], group: str | None, maker: str
) -> None:
    with store.consumer(group_id=group) as consumer:
        consumer.subscribe(pattern="t.*")
        assert read(consumer, seconds=0.1) == []  # it is running
        made = store if maker == "the same store" else other
        made.log(*growth(made)).append_many(OPENED)
        assert read(consumer, enough=3) == OPENED


def test_the_partitions_of_the_same_store_are_seen_by_the_very_next_poll(store: Store) -> None:
    with store.consumer("t") as alone, store.consumer("t", group_id="g") as member:
        for consumer in (alone, member):
            consumer.poll()
        store.add_partitions("t", 3)
        for consumer in (alone, member):
            consumer.poll()
            assert len(consumer.assignment()) == 3


def test_the_partitions_of_another_store_are_seen_within_a_second(store: Store, other: Store) -> None:
    with store.consumer("t") as alone, store.consumer("t", group_id="g") as member:
        for consumer in (alone, member):
            consumer.poll()
        other.add_partitions("t", 3)
        began = time.monotonic()
        while min(len(consumer.assignment()) for consumer in (alone, member)) < 3 and time.monotonic() < began + PATIENCE:
            for consumer in (alone, member):
                consumer.poll(10)
        assert time.monotonic() - began < 1


def test_a_member_that_joins_before_anyone_has_seen_the_new_partition_reads_it_from_its_first_record(
    store: Store, other: Store
) -> None:
    first = store.consumer("t", group_id="g")
    first.poll()
    other.add_partitions("t", 2)
    other.log("t", 1).append_many(OPENED)
    second = other.consumer("t", group_id="g")
    assert sorted(read(second, first, enough=3)) == OPENED
    first.close()
    second.close()


def test_whichever_member_gets_a_new_partition_reads_it_from_its_first_record(store: Store, other: Store) -> None:
    first = store.consumer("t", group_id="g", enable_auto_commit=False)
    first.poll()
    store.add_partitions("t", 3)
    for number in (1, 2):
        store.log("t", number).append(b"%d" % number)
    assignment_of(first).keep_up()  # it has seen them, and read nothing
    first.close()
    others = [other.consumer("t", group_id="g") for _ in range(3)]
    assert sorted(read(*others, enough=2)) == [b"1", b"2"]
    for each in others:
        each.close()


@pytest.mark.parametrize("group", [None, "g"])
def test_partitions_from_before_the_consumer_are_still_read_from_the_end(store: Store, group: str | None) -> None:
    store.create_topic("u", partition_count=2)
    store.log("u", 1).append(b"old")
    with store.consumer("t", group_id=group, enable_auto_commit=False if group else None) as consumer:
        consumer.poll()
        consumer.subscribe(["t", "u"])
        assert read(consumer, seconds=0.3) == []
        store.log("t").append(b"new")
        store.log("u").append(b"new")
        assert read(consumer, enough=2) == [b"new"] * 2
    store.log("t").append(b"while nobody reads")
    with store.consumer("t", "u", group_id=group) as again:
        assert read(again, seconds=0.3) == []


@pytest.mark.parametrize("group", [None, "g"])
def test_a_topic_that_is_deleted_and_created_again_is_read_from_its_first_record(store: Store, group: str | None) -> None:
    with store.consumer(group_id=group) as consumer:
        consumer.subscribe(["t"])
        consumer.poll()
        store.delete_topic("t")
        consumer.poll()
        store.create_topic("t")
        store.log("t").append_many(OPENED)
        assert read(consumer, enough=3) == OPENED


def test_other_policies_decide_on_new_partitions_too(store: Store) -> None:
    with store.consumer("t", group_id="g", auto_offset_reset="none") as consumer:
        store.offsets.commit("g", {("t", 0): 1})
        consumer.poll()
        store.add_partitions("t", 2)
        with pytest.raises(pylog.NoOffsetForPartitionError):
            consumer.poll()
    assert store.offsets.position("g", ("t", 1)) is None
