"""A directory after `pylog graduate`: a fresh broker boots from it, serves everything, and groups go on where they were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, ProducerBatch
from pylog.clock import ManualClock
from support.cli import call
from support.kafka.harness import Broker, KafkaJars, Message, Record
from support.kafka.interop_data import NOW_MS, TOPICS, complaints, ends, read

WRITTEN = ("codec-zstd", "headers", "nulls", "segments.of_4-KiB", "untimed", "spread", "dots.and_under-scores-7")
OS = pylog.Durability.OS
NUMBERED = [(None, b"%d" % number, [], NOW_MS) for number in range(3)]
WIDE = 60  # partitions: with their options more metadata records than one batch has
ALL = (*WRITTEN, "numbered", "wide", "awaited")
OPTIONS = {"retention_group": "billing", "retention_ms": 1000, "durability": "sync", "compression_type": "none"}


@dataclass(frozen=True)
class Graduated:
    """What the command said, and what the broker that was started on the directory served and did."""

    directory: Path
    told: dict[str, Any]
    before: dict[str, list[Record]]
    consumed: dict[str, list[Record]]
    offsets: dict[str, dict[int, tuple[int, int]]]
    ends: dict[str, dict[int, tuple[int, int]]]
    committed: dict[tuple[str, int], int]
    in_group: list[Record]
    options: str
    produced: list[tuple[int, int]]
    output: str


def write(directory: Path) -> None:
    with pylog.open(directory, clock=ManualClock(NOW_MS), durability=OS, offsets=OffsetsConfig(topic_num_partitions=7)) as store:
        for name in WRITTEN:
            store.create_topic(name, TOPICS[name].partitions, retention_ms=-1, **TOPICS[name].config)
            for append in TOPICS[name].appends:
                append.to(store.log(name, append.partition))
        store.create_topic("numbered", retention_ms=-1)
        for producer_id in (0, 1, 2):  # those that a broker begins with, which it must not hand out again
            store.log("numbered").append_batch(NUMBERED, producer=ProducerBatch(producer_id, 0, 0))
        store.create_topic("wide", WIDE, retention_ms=-1)
        store.create_topic("awaited", **OPTIONS)
        store.log("awaited").append(b"kept", timestamp=NOW_MS)
        store.offsets.commit("billing", {("spread", 0): 4, ("spread", 1): 50, ("spread", 2): 80, ("spread", 3): 0})
        store.offsets.commit("other", {("headers", 0): 2})


def records(directory: Path) -> dict[str, list[Record]]:
    with pylog.open(directory, mode="r") as store:
        return {topic: read(store, topic) for topic in ALL}


@pytest.fixture(scope="module")
def graduated(tmp_path_factory: pytest.TempPathFactory, kafka_jars: KafkaJars) -> Iterator[Graduated]:
    directory = tmp_path_factory.mktemp("graduated") / "data"
    write(directory)
    before = records(directory)
    with pylog.open(directory, mode="r") as store:
        known = {topic: ends(store, topic) for topic in ALL}
    done = call("graduate", directory, "--yes", "--json")
    assert done.code == 0, done.complaints
    properties = {name: value for name, value in done.json["properties"].items() if name not in ("node.id", "log.dirs")}
    with Broker(directory, kafka_jars, config=properties) as broker:
        consumed = {topic: broker.consume_all(topic, config={"fetch.max.wait.ms": "20"}) for topic in ALL}
        offsets = {topic: broker.offsets(topic) for topic in ALL}
        committed = broker.committed("billing") | broker.committed("other")
        options = broker.run_tool("configs", "--describe", "--entity-type", "topics", "--entity-name", "awaited").check().stdout
        in_group = broker.consume_in_group("billing", "spread", 16)
        produced = broker.produce("numbered", [Message(b"from the broker", partition=0, timestamp=NOW_MS)])
        broker.stop()
        output = broker.output()
    return Graduated(directory, done.json, before, consumed, offsets, known, committed, in_group, options, produced, output)


@pytest.mark.parametrize("topic", ALL)
def test_a_consumer_of_the_broker_gets_every_record(graduated: Graduated, topic: str) -> None:
    assert graduated.consumed[topic] == graduated.before[topic]
    assert graduated.offsets[topic] == graduated.ends[topic]


def test_the_broker_has_nothing_to_say_against_the_directory(graduated: Graduated) -> None:
    assert complaints(graduated.output) == []
    assert "stray" not in graduated.output


def test_groups_go_on_where_they_were(graduated: Graduated) -> None:
    expected = {("spread", 0): 4, ("spread", 1): 50, ("spread", 2): 80, ("spread", 3): 0, ("headers", 0): 2}
    assert graduated.committed == expected
    first = {number: min(each.offset for each in graduated.in_group if each.partition == number) for number in (0, 2)}
    assert first == {0: 4, 2: 80}
    assert {each.partition for each in graduated.in_group} == {0, 2}, "partition 1 was read to its end"


def test_the_broker_has_the_topics_options_and_what_comes_closest_to_those_of_pylog_only(graduated: Graduated) -> None:
    found = dict(re.findall(r"^ +([a-z.]+)=(\S+)", graduated.options, re.MULTILINE))
    wanted = {"retention.ms": "-1", "retention.bytes": "-1", "flush.messages": "1", "compression.type": "uncompressed"}
    assert wanted.items() <= found.items()


def test_a_producer_appends_after_the_records_of_pylogs_producers(graduated: Graduated) -> None:
    assert graduated.told["next_producer_id"] == 3
    assert graduated.produced == [(0, len(NUMBERED) * 3)], "with a producer id that is taken the record would be no new one"


def test_pylog_opens_the_directory_again(graduated: Graduated) -> None:
    done = call("graduate", graduated.directory, "--undo", "--yes")
    assert (done.code, "a broker has started" in done.complaints) == (1, True)
    with pylog.open(graduated.directory) as store:
        assert store.verify().ok
        assert store.log("numbered").read(9).value == b"from the broker"
        assert store.offsets.fetch("billing")["spread", 2].offset == 90
        assert {topic: read(store, topic) for topic in WRITTEN} == {topic: graduated.before[topic] for topic in WRITTEN}
        assert store.log("numbered").append(b"and again") == 10


def test_groups_that_a_broker_asked_for_too_early_are_a_complaint_unless_it_loads_them_later() -> None:
    early = "2026-11-22 20:08:55,533 ERROR [GroupCoordinator id=1] Failed to load metadata from offsets-3 with epoch 0 due to "
    early += "Stopped loading records from offsets-3 because the partition is not online or is no longer the leader.."
    loaded = (
        "2026-11-22 20:08:56,001 INFO [GroupCoordinator id=1] Finished loading of metadata from offsets-3 with epoch 2 in 1ms"
    )
    assert complaints(f"{early}\n{loaded}") == []
    assert complaints(f"{loaded}\n{early}") == complaints(early) == [early]
    assert complaints(f"{early}\n{loaded.replace('offsets-3', 'offsets-31')}") == [early]
