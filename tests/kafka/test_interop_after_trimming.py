"""A broker reads what pylog has truncated, trimmed, rolled and written from two processes, and both go on from there.

Once after everybody closed, once after the process that did it was killed: then the broker recovers by itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from support.faults.neighbours import Neighbour
from support.kafka.adopt import AdoptedTopic, adopt
from support.kafka.harness import Broker, KafkaJars, Message, Record
from support.kafka.interop_data import NOW_MS, complaints, ends, read

CONSUMER = {"fetch.max.wait.ms": "20"}  # how long the broker holds back an answer at a partition's end
PATIENT = {"broker.session.timeout.ms": "9000"}  # the default; no broker is killed here
MARKER = ".kafka_cleanshutdown"
SHARED = "two-processes"
BEFORE_A_GAP = "cut-within-the-last-batch"

Ends = dict[str, tuple[int, int]]


def write_and_trim(store: pylog.Store, now_ms: int) -> None:
    """One topic for each way to make a log shorter; batches of ten records, some six a segment."""

    def filled(name: str, **config: object) -> pylog.Log:
        store.create_topic(name, segment_bytes=2000, index_interval_bytes=200, **config)
        log = store.log(name)
        for first in range(0, 300, 10):
            log.append_many([(b"k", b"value %d" % number, [], now_ms + number) for number in range(first, first + 10)])
        return log

    def go_on(log: pylog.Log) -> None:
        for number in range(25):
            log.append_many([(None, b"after %d" % number, [("h", b"1")], now_ms + 1000 + number)] * 3, compression="lz4")

    filled("cut-between-batches", retention_ms=-1).truncate(290)
    filled("cut-within-the-last-batch", retention_ms=-1).truncate(295)
    for name, end in (("cut-within-a-batch", 294), ("cut-in-a-sealed-segment", 104), ("cut-to-nothing", 0)):
        log = filled(name, retention_ms=-1)
        log.truncate(end)
        go_on(log)
    at_a_base = filled("cut-at-a-segments-base", retention_ms=-1)
    at_a_base.truncate([segment.base_offset for segment in at_a_base.segments][2])
    filled("records-deleted", retention_ms=-1).delete_records(123)
    both = filled("deleted-and-cut", retention_ms=-1)
    both.delete_records(77)
    both.truncate(205)
    go_on(both)
    both.delete_records(207)
    filled("oldest-gone", retention_ms=1000)
    all_old = filled("all-gone", retention_ms=1)
    store.retain("oldest-gone", now_ms=now_ms + 1150)
    store.retain("all-gone", now_ms=now_ms + 10**6)
    go_on(all_old)
    filled("all-gone-and-empty", retention_ms=1)
    store.retain("all-gone-and-empty", now_ms=now_ms + 10**6)
    filled("two-processes", retention_ms=-1)


def adopted(directory: Path) -> list[AdoptedTopic]:
    with pylog.open(directory, mode="r") as store:
        found = store.topics().values()
        return [AdoptedTopic(each.name, each.partition_count, str(each.id), {"retention.ms": "-1"}) for each in found]


@pytest.fixture(params=["closed", "killed"])
def trimmed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory that two processes leave: this one closes, the other one closes, or is killed."""
    directory = tmp_path / "data"
    with Neighbour() as other:
        other.run(inspect.getsource(write_and_trim))
        other.run("store = pylog.open(path); write_and_trim(store, now_ms)", path=str(directory), now_ms=NOW_MS)
        with pylog.open(directory) as store:
            for number in range(30):
                store.log(SHARED).append_many([b"ours %d" % number] * 3)
                other.run("store.log(topic).append_many([b'theirs'] * 4, durability=pylog.Durability.OS)", topic=SHARED)
        other.run("store.close()") if request.param == "closed" else other.kill()
    assert (directory / MARKER).exists() == (request.param == "closed")
    return directory


@pytest.fixture
def broker(trimmed: Path, kafka_jars: KafkaJars) -> Iterator[Broker]:
    """A broker that is told of the directory's topics, not started yet."""
    adopt(trimmed, adopted(trimmed))
    made = Broker(trimmed, kafka_jars, config=PATIENT)
    yield made
    made.__exit__()


def seen_by_pylog(directory: Path) -> tuple[dict[str, list[Record]], Ends]:
    with pylog.open(directory, mode="r") as store:
        topics = store.topics()
        return {topic: read(store, topic) for topic in topics}, {topic: ends(store, topic)[0] for topic in topics}


def seen_by(running: Broker, topics: dict[str, list[Record]]) -> tuple[dict[str, list[Record]], Ends]:
    consumed = {topic: running.consume_all(topic, config=CONSUMER) for topic in topics}
    return consumed, {topic: running.offsets(topic)[0] for topic in topics}


def as_a_broker_counts(records: dict[str, list[Record]], tips: Ends) -> Ends:
    """An end behind a gap is pylog's own word: to a broker a log ends behind its last batch, as after its own truncation."""
    return tips | {BEFORE_A_GAP: (tips[BEFORE_A_GAP][0], records[BEFORE_A_GAP][-1].offset + 1)}


def objections(running: Broker) -> list[str]:
    """What the broker had to say until it stopped.

    It finds its high watermark at the batch that the log's start lies in, and wonders; so it does after its own delete-records.
    It says so, too, where it cuts off zeros that a killed process had written ahead.
    """
    running.stop()
    known = re.compile("Non-monotonic update of high watermark|Found invalid messages in log segment .* at byte offset")
    return [line for line in complaints(running.output()) if not known.search(line)]


def test_a_broker_serves_exactly_the_remaining_records_and_both_go_on(trimmed: Path, broker: Broker) -> None:
    records, tips = seen_by_pylog(trimmed)
    assert len(records[SHARED]) == 300 + 30 * 7
    assert {len(each) for each in records.values()} > {0, 177}
    assert tips["records-deleted"] == (123, 300)
    assert tips["all-gone-and-empty"] == (300, 300)
    assert tips[BEFORE_A_GAP] == (0, 295)

    broker.start()
    assert seen_by(broker, records) == (records, as_a_broker_counts(records, tips))
    for topic in records:
        broker.produce(topic, [Message(b"the broker's", timestamp=NOW_MS + 5000, partition=0)] * 3)
    served, ends_of_broker = seen_by(broker, records)
    assert all(served[topic][: len(records[topic])] == records[topic] for topic in records)
    assert all(len(served[topic]) == len(records[topic]) + 3 for topic in records)
    assert objections(broker) == []

    assert seen_by_pylog(trimmed) == (served, ends_of_broker)
    with pylog.open(trimmed) as store:
        for topic, (start, end) in ends_of_broker.items():
            log = store.log(topic)
            assert log.append(b"ours again", timestamp=NOW_MS + 6000) == end
            log.truncate(end - 1)
            assert log.append(b"and again", timestamp=NOW_MS + 7000) == end - 1
            assert log.delete_records(start + 1) == start + 1
        assert [finding for finding in store.recovery_report if finding.kind != "rebuilt"] == []
    expected = seen_by_pylog(trimmed)

    broker.start()
    assert seen_by(broker, records) == expected
    assert objections(broker) == []
