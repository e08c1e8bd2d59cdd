"""A store that stays open reads both tiers of a broker, while the broker moves segments and deletes old ones in the tier."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import pylog
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.tiered import TOPIC, settings

T = "t"
BATCH, SENT = 1000, 9000
KEPT = {"retention.bytes": "2500000"}  # of 9 MB that are sent
UNTIL_S = 60.0


def value(number: int) -> bytes:
    return b"%08d" % number + bytes(number % 251 for _ in range(1000))


def read_all(log: pylog.Log) -> range:
    """Reads the log and checks each record. Returns the offsets, none if the log start passed the reader."""
    try:
        found = [(record.offset, record.value) for record in log.records()]
    except pylog.OffsetOutOfRangeError:
        return range(0)
    assert found == [(number, value(number)) for number in range(found[0][0], found[-1][0] + 1)]
    return range(found[0][0], found[-1][0] + 1)


def read_one(log: pylog.Log, offset: int) -> None:
    """Reads the record at an offset that the log had, or learns that it is deleted."""
    try:
        assert log.read(offset).value == value(offset)
    except pylog.OffsetOutOfRangeError:
        assert log.start_offset > offset


def wait_for_tier(root: Path) -> pylog.KafkaTier:
    deadline = time.monotonic() + UNTIL_S
    while not any((root / "remote").glob("*/*/*.log")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (directory,) = (root / "remote").iterdir()
    return pylog.KafkaTier(str(directory), layout="local")


@pytest.mark.pair("broker's directory", "retention by size")
def test_a_store_that_stays_open_follows_the_log_start_of_a_broker_that_deletes_remote_segments(
    tmp_path: Path, kafka_jars: KafkaJars
) -> None:
    with Broker(tmp_path / "data", kafka_jars.with_tier(), config=settings(tmp_path)) as broker:
        broker.create_topic(T, config={**TOPIC, **KEPT})

        def produce() -> None:
            for first in range(0, SENT, BATCH):
                sent = [Message(value(number), timestamp=number, partition=0) for number in range(first, first + BATCH)]
                broker.produce(T, sent, config={"batch.size": "65536"})

        thread = threading.Thread(target=produce)
        thread.start()
        tier = wait_for_tier(tmp_path)
        with pylog.open(tmp_path / "data", mode="r", archive=tier) as store:
            log = store.log(T)
            seen, deadline = [range(0)], time.monotonic() + UNTIL_S
            while thread.is_alive() or seen[-1].stop < SENT or len({each.start for each in seen}) < 3:
                read_one(log, seen[-1].start)
                seen.append(read_all(log))
                assert time.monotonic() < deadline or thread.is_alive(), seen
            thread.join()
            read = [each for each in seen if each]
            assert [each.start for each in read] == sorted(each.start for each in read)
            assert [each.stop for each in read] == sorted(each.stop for each in read)
            broker.stop()
            with pylog.open(tmp_path / "data", mode="r", archive=tier) as later:
                assert read_all(log) == read_all(later.log(T))
                assert (log.start_offset, store.verify().ok) == (later.log(T).start_offset, True)
