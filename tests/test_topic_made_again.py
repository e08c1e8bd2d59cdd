"""The first call about a topic that another process deleted and created again answers for the new topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pylog
from pylog import TopicPartition
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.objects import MemoryObjects, every_url

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def store() -> Iterator[Store]:
    """A store that has used the topic before another process made it again, with two records."""
    disk = MemoryFileSystem()
    with (
        every_url(MemoryObjects()),
        pylog.open("/shop", fs=disk) as mine,
        pylog.open("/shop", fs=disk.process()) as other,
    ):
        mine.create_topic("orders")
        mine.log("orders").append(b"of the old topic")
        transaction(mine)
        mine.snapshot()
        other.delete_topic("orders")
        other.create_topic("orders", retention_bytes=0, segment_bytes=250)
        for value in (b"first", b"second"):
            other.log("orders").append(value + b"." * 100)
        other.offsets.commit("billing", {ORDERS: 1})
        yield mine


def transaction(store: Store) -> list[range]:
    with store.transaction("id") as begun:
        begun.append("orders", b"in a transaction", partition=0)
    return begun.offsets[ORDERS]


def sent(store: Store) -> int:
    with store.producer(transactional_id="sender") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        answer = producer.send("orders", b"sent")
        producer.commit_transaction()
    return answer.get(10).offset


def archived(store: Store) -> list[int]:
    report = store.archive("s3://any", include_active=True)
    return [each.archived_end_offset for each in report.partitions if each.partition == ORDERS]


def reset(store: Store) -> int:
    store.group("billing").reset("latest")
    return store.offsets.fetch("billing")[ORDERS].offset


CALLS: dict[str, tuple[Callable[[Store], Any], Any]] = {
    "start_and_end_offsets": (lambda store: store.start_and_end_offsets([ORDERS]), {ORDERS: (0, 2)}),
    "lag": (lambda store: store.group("billing").lag(), {ORDERS: 1}),
    "reset": (reset, 2),
    "snapshot": (lambda store: store.snapshot(["orders"]).end_offsets, {ORDERS: 2}),
    "snapshot of all": (lambda store: store.snapshot().end_offsets, {ORDERS: 2}),
    "transaction": (transaction, [range(2, 3)]),
    "producer's transaction": (sent, 2),
    "archive": (archived, [2]),
    "retain": (lambda store: [each.segments for each in store.retain("orders")], [2]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_first_call_answers_for_the_topic_that_another_process_created_again(store: Store, name: str) -> None:
    call, expected = CALLS[name]
    assert call(store) == expected


def test_the_administrator_sees_and_settles_the_transactions_of_the_topic_that_was_created_again() -> None:
    disk = MemoryFileSystem()
    with pylog.open("/shop", fs=disk) as mine:
        dying = disk.process()
        other = pylog.open("/shop", fs=dying)
        mine.create_topic("orders")
        transaction(mine)
        other.delete_topic("orders")
        other.create_topic("orders")
        left = other.transaction("left")
        left.append("orders", b"never committed", partition=0)
        left.flush()
        found = mine.transactions.find_open("orders")
        assert [each.start_offset for each in found] == [0]
        other.delete_topic("orders", force=True)
        other.create_topic("orders")
        again = other.transaction("again")
        again.append("orders", b"of the third topic", partition=0)
        again.flush()
        dying.kill()
        mine.transactions.settle()
        assert not mine.transactions.find_open()
