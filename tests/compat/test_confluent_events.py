"""The callbacks of confluent-kafka's clients: errors of the store, statistics, and the program's own logger."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import pylog.compat.confluent as confluent
from pylog.compat.clusters import CLUSTERS, MEMORY
from pylog.compat.confluent.admin import AdminClient
from pylog.compat.confluent.events import Events
from pylog.testing import FaultyFileSystem, MemoryFileSystem

_NUMBERS = itertools.count()


class Disk:
    """A cluster in memory whose disk can fail."""

    def __init__(self, name: str) -> None:
        self.fs = FaultyFileSystem(MemoryFileSystem())
        CLUSTERS._memories[MEMORY + name] = self.fs  # type: ignore[assignment]
        self.server = {"bootstrap.servers": f"pylog+memory://{name}"}


@pytest.fixture
def disk() -> Iterator[Disk]:
    name = f"confluent-events-{next(_NUMBERS)}"
    made = Disk(name)
    yield made
    made.fs.heal()
    CLUSTERS.forget(MEMORY + name)


@pytest.fixture
def always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call finds that statistics are due."""
    monkeypatch.setattr("pylog.compat.confluent.events._LINGER_S", 0.0)
    original = Events.deliver

    def deliver(self: Events, collect: Any) -> int:
        self._due = 0.0
        return original(self, collect)

    monkeypatch.setattr(Events, "deliver", deliver)


def test_a_store_that_fails_is_told_to_error_cb_once_until_it_works_again(disk: Disk) -> None:
    told: list[confluent.KafkaError] = []
    reports: list[Any] = []
    options = {**disk.server, "error_cb": told.append, "on_delivery": lambda error, _: reports.append(error)}
    producer = confluent.Producer(options)

    def send(count: int) -> None:
        for _ in range(count):
            producer.produce("orders", b"tea")
            producer.flush()

    send(1)
    for rounds in (1, 2):
        disk.fs.fail("write ENOSPC", forever=True)
        send(3)
        disk.fs.heal()
        send(1)
        assert [each.name() for each in told] == ["KAFKA_STORAGE_ERROR"] * rounds
    assert [error is None for error in reports] == [True, False, False, False, True, False, False, False, True]
    producer.close()


def test_without_error_cb_the_error_is_in_the_logger_of_the_program(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    chosen = logging.getLogger("of.the.program")
    producer = confluent.Producer({**disk.server, "client.id": "shop", "socket.nagle.disable": True}, logger=chosen)
    producer.produce("orders", b"tea")
    producer.flush()
    disk.fs.fail("write ENOSPC", forever=True)
    producer.produce("orders", b"tea")
    producer.flush()
    disk.fs.heal()
    producer.close()
    found = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == chosen.name]
    assert found[0] == ("INFO", "options of the producer that have no effect without a broker: socket.nagle.disable")
    assert found[1][0] == "ERROR"
    assert found[1][1].startswith("shop#producer-")


def test_callbacks_that_are_never_called_are_named_in_the_log(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pylog.compat")
    options: dict[str, Any] = {"group.id": "g", "throttle_cb": print, "oauth_cb": print, "error_cb": print, "stats_cb": print}
    confluent.Consumer({**disk.server, **options}).close()
    assert caplog.messages[0] == "options of the consumer that have no effect without a broker: oauth_cb, throttle_cb"


def test_a_failed_commit_without_on_commit_is_an_event(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    told: list[confluent.KafkaError] = []
    producer = confluent.Producer(disk.server)
    producer.produce("orders", b"tea")
    producer.close()
    options: dict[str, Any] = {"group.id": "g", "auto.offset.reset": "earliest", "error_cb": told.append}
    consumer = confluent.Consumer({**disk.server, **options})
    consumer.assign([confluent.TopicPartition("orders", 0)])
    message = consumer.poll(10)
    disk.fs.fail("write ENOSPC", forever=True)
    consumer.commit(message)
    for _ in range(100):
        consumer.poll(0.05)
        if told:
            break
    disk.fs.heal()
    assert [each.name() for each in told] == ["KAFKA_STORAGE_ERROR"]
    assert any("a commit has failed" in each for each in caplog.messages)
    consumer.close()


def keys_of(found: dict[str, Any], real: dict[str, Any], where: str = "") -> set[str]:
    """The keys that only the first of two statistics has."""
    return {f"{where}{name}" for name in found if name not in real}


@pytest.mark.usefixtures("always_due")
def test_the_statistics_of_a_producer_count_what_was_appended(disk: Disk) -> None:
    told: list[str] = []
    options: dict[str, Any] = {"statistics.interval.ms": 1, "stats_cb": told.append, "client.id": "shop"}
    producer = confluent.Producer({**disk.server, **options})
    producer.produce("orders", b"tea", key=b"k")
    producer.flush()
    found = json.loads(told[-1])
    partition = found["topics"]["orders"]["partitions"]["0"]
    assert (found["type"], found["client_id"], found["txmsgs"], found["txmsg_bytes"], found["msg_cnt"]) == (
        "producer",
        "shop",
        1,
        4,
        0,
    )
    assert (partition["txmsgs"], partition["txbytes"], partition["leader"]) == (1, 4, 0)
    assert [each["state"] for each in found["brokers"].values()] == ["UP"]
    assert producer.poll(1.0) == 1
    producer.close()
    admin = AdminClient({**disk.server, **options})
    assert admin.poll() == 1


@pytest.mark.usefixtures("always_due")
def test_the_statistics_of_a_consumer_have_its_lag(disk: Disk) -> None:
    told: list[str] = []
    producer = confluent.Producer(disk.server)
    for _ in range(5):
        producer.produce("orders", b"tea")
    producer.close()
    options: dict[str, Any] = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent.Consumer({**disk.server, **options, "statistics.interval.ms": 1, "stats_cb": told.append})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(2, 10)) == 2
    consumer.commit(offsets=[confluent.TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.consume(1, 0)
    found = json.loads(told[-1])
    partition = found["topics"]["orders"]["partitions"]["0"]
    expected = {
        "app_offset": 2,
        "stored_offset": 2,
        "committed_offset": 1,
        "lo_offset": 0,
        "hi_offset": 5,
        "ls_offset": 5,
        "consumer_lag": 3,
        "rxmsgs": 2,
    }
    assert {name: partition[name] for name in expected} == expected
    assert (found["rxmsgs"], found["rxmsg_bytes"]) == (2, 6)
    assert (found["cgrp"]["assignment_size"], found["cgrp"]["rebalance_cnt"], found["cgrp"]["join_state"]) == (1, 1, "steady")
    consumer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("always_due")
def test_the_statistics_have_the_keys_of_the_real_ones_and_no_others(disk: Disk) -> None:
    real: list[str] = []
    ours: list[str] = []
    mock = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0}
    for module, server, told in ((confluent_kafka, mock, real), (confluent, disk.server, ours)):
        producer = module.Producer({**server, "statistics.interval.ms": 100, "stats_cb": told.append})
        producer.produce("orders", b"tea")
        producer.flush(10)
        told.clear()
        while not told:
            producer.poll(0.2)
        producer.close()
    theirs, mine = json.loads(real[-1]), json.loads(ours[-1])
    assert mine.keys() == theirs.keys()
    for each in ("brokers", "topics"):
        (found,), (expected,) = mine[each].values(), (next(iter(theirs[each].values())),)
        assert keys_of(found, expected) == set()
    (found,) = mine["topics"]["orders"]["partitions"].values()
    assert keys_of(found, next(iter(theirs["topics"]["orders"]["partitions"].values()))) == set()


def test_without_an_interval_there_are_no_statistics(disk: Disk) -> None:
    told: list[str] = []
    producer = confluent.Producer({**disk.server, "stats_cb": told.append})
    producer.produce("orders", b"tea")
    producer.flush()
    assert producer.poll(0.1) == 0
    producer.close()
    assert told == []
