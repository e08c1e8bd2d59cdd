"""Offsets of a topic that was deleted never count for the next topic of its name, by whichever route they are committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pylog
import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog import Consumer, ConsumerRebalanceListener, Durability, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.compat.clusters import CLUSTERS
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin import OffsetSpec
from pylog.testing import MemoryFileSystem

pytest_plugins = ["compat.conftest"]
PLACE = TopicPartition("t", 0)
Stores = tuple[pylog.Store, pylog.Store]


@pytest.fixture
def stores() -> Iterator[Stores]:
    """Two processes' stores of one directory; the topic has ten records."""
    clock, fs = ManualClock(1_700_000_000_000), MemoryFileSystem()
    some: dict[str, Any] = {
        "clock": clock,
        "durability": Durability.OS,
        "offsets": OffsetsConfig(topic_num_partitions=1),
    }
    with pylog.open("/s", fs=fs, **some) as one, pylog.open("/s", fs=fs.process(), **some) as two:
        one.create_topic("t")
        one.log("t").append_many([b"old"] * 10)
        yield one, two


def created_again(store: pylog.Store) -> None:
    store.delete_topic("t")
    store.create_topic("t")
    store.log("t").append_many([b"new"] * 10)


def reading(store: pylog.Store, *, subscribed: bool, listener: ConsumerRebalanceListener | None = None) -> Consumer:
    """A consumer that was given seven records."""
    consumer = store.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=0)
    if subscribed:
        consumer.subscribe(["t"], listener=listener)
    else:
        consumer.assign([PLACE])
    assert sum(map(len, consumer.poll(max_records=7).values())) == 7
    return consumer


ROUTES: dict[str, Callable[[Consumer], BaseException | None]] = {
    "sync": lambda consumer: consumer.commit({PLACE: 7}),
    "async": lambda consumer: consumer.commit_async({PLACE: 7}).exception(60),
}


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("by", [0, 1], ids=["by the same store", "by another process"])
@pytest.mark.parametrize("subscribed", [True, False], ids=["subscribed", "assigned"])
@pytest.mark.parametrize("seen", [True, False], ids=["after a commit has seen it", "before anything has seen it"])
def test_offsets_that_a_program_counted_itself_are_for_the_topic_whose_records_it_was_given(
    stores: Stores, subscribed: bool, by: int, route: str, seen: bool
) -> None:
    with reading(stores[0], subscribed=subscribed) as consumer:
        created_again(stores[by])
        if seen:
            consumer.commit()
        try:
            refused = ROUTES[route](consumer)
        except pylog.PylogError as error:
            refused = error
        assert isinstance(refused, pylog.UnknownTopicOrPartitionError)
        assert stores[1].offsets.position("g", PLACE) is None
        told = 0
        for _ in range(3):
            try:
                records = [record for part in consumer.poll().values() for record in part]
            except pylog.UnknownTopicOrPartitionError:
                told += 1
                continue
            assert [record.value for record in records] in ([], [b"new"] * 10, [b"old"] * 3 if route == "async" else [])
        assert told == (0 if subscribed else 1)
        consumer.commit({PLACE: 7})  # now it is for the new topic
        assert stores[1].offsets.position("g", PLACE) == 7


@pytest.mark.parametrize("by", [0, 1], ids=["by the same store", "by another process"])
def test_a_listener_that_gives_up_partitions_commits_nothing_for_a_topic_created_again(stores: Stores, by: int) -> None:
    class Committing(ConsumerRebalanceListener):
        refused: BaseException | None = None

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            try:
                consumer.commit(dict.fromkeys(revoked, 7))
            except pylog.PylogError as error:
                self.refused = error

    listener = Committing()
    consumer = reading(stores[0], subscribed=True, listener=listener)
    created_again(stores[by])
    consumer.close()
    assert isinstance(listener.refused, pylog.UnknownTopicOrPartitionError)
    assert stores[1].offsets.position("g", PLACE) is None


@pytest.mark.pair("groups", "second process")
def test_a_member_commits_for_the_new_topic_even_if_its_store_still_has_the_log_of_the_old_one(stores: Stores) -> None:
    stores[0].log("t").read(0)
    created_again(stores[1])
    with reading(stores[0], subscribed=True) as consumer:
        consumer.commit({PLACE: 7})
        assert stores[1].offsets.position("g", PLACE) == 7


@pytest.mark.parametrize("route", ["commit", "commit_async", "automatic"])
def test_kafka_pythons_consumer_commits_nothing_for_a_topic_created_again(memory: Servers, route: str) -> None:
    with kafka.KafkaProducer(**memory) as producer, kafka.KafkaAdminClient(**memory) as admin:
        for _ in range(10):
            producer.send("t", b"old")
        producer.flush()
        options = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": route == "automatic"} | memory
        consumer = kafka.KafkaConsumer("t", **options)
        place = kafka.TopicPartition("t", 0)
        while not consumer.poll(timeout_ms=100, max_records=7):
            pass
        admin.delete_topics(["t"])
        admin.create_topics(["t"])
        for _ in range(10):
            producer.send("t", b"new")
        producer.flush()
        offsets = {place: kafka.OffsetAndMetadata(7, "", -1)}
        if route == "commit":
            with pytest.raises(errors.UnknownTopicOrPartitionError):
                consumer.commit(offsets)
        elif route == "commit_async":
            answer = consumer.commit_async(offsets)
            while not answer.is_done:
                time.sleep(0.001)
            assert isinstance(answer.exception, errors.UnknownTopicOrPartitionError)
        consumer.close()
        assert admin.list_group_offsets("g").get(place) is None


def test_an_administrators_reset_to_the_end_of_a_topic_never_counts_for_the_next_one(
    memory: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kafka.KafkaProducer(**memory) as producer, kafka.KafkaAdminClient(**memory) as admin:
        for _ in range(10):
            producer.send("t", b"old")
        producer.flush()
        store = CLUSTERS.of(memory["bootstrap_servers"]).store
        place, target = kafka.TopicPartition("t", 0), kafka.KafkaAdminClient._target

        def planned(self: Any, *given: Any) -> int:
            offset = target(self, *given)
            created_again(store)
            return offset

        monkeypatch.setattr(kafka.KafkaAdminClient, "_target", planned)
        answer = admin.reset_group_offsets("g", {place: OffsetSpec.LATEST})
        assert answer == {place: {"error": errors.UnknownTopicOrPartitionError, "offset": 10}}
        assert store.offsets.position("g", place) is None
