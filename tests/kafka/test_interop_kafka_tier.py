"""pylog reads both tiers of a broker: while the broker moves segments from one to the other, and after it has stopped."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import pylog
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.tiered import TOPIC, settings

T = "t"
BATCH, ROUNDS = 1000, 6
SENT = BATCH * ROUNDS
T0 = 1_700_000_000_000
UNTIL_S = 60.0


def value(number: int) -> bytes:
    return b"%08d" % number + bytes(number % 251 for _ in range(1000))


def tier_of(root: Path) -> pylog.KafkaTier:
    (directory,) = (root / "remote").iterdir()
    return pylog.KafkaTier(str(directory), layout="local")


def read_all(root: Path) -> int:
    """Reads the log from both tiers, checks each record, and returns how many there are."""
    with pylog.open(root / "data", mode="r", archive=tier_of(root)) as store:
        found = [(record.offset, record.value) for record in store.log(T).records()]
    assert found == [(number, value(number)) for number in range(len(found))]
    return len(found)


def local_bases(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "data" / f"{T}-0").glob("*.log"))


def wait_until_most_is_remote(root: Path) -> None:
    deadline = time.monotonic() + UNTIL_S
    while len(bases := local_bases(root)) > 1 or bases[0] == 0:
        assert time.monotonic() < deadline, bases
        time.sleep(0.2)


@pytest.mark.pair("broker's directory", "time search", "retention by size")
def test_both_tiers_are_read_while_a_broker_moves_segments_and_after_it_has_stopped(
    tmp_path: Path, kafka_jars: KafkaJars
) -> None:
    with Broker(tmp_path / "data", kafka_jars.with_tier(), config=settings(tmp_path)) as broker:
        broker.create_topic(T, config=TOPIC)
        produced = 0

        def produce() -> None:
            nonlocal produced
            for first in range(0, SENT, BATCH):
                numbers = range(first, first + BATCH)
                sent = [Message(value(number), timestamp=T0 + number, partition=0) for number in numbers]
                broker.produce(T, sent, config={"batch.size": "65536"})
                produced = first + BATCH

        thread = threading.Thread(target=produce)
        thread.start()
        counts, starts = [0], set()
        while thread.is_alive() or counts[-1] < SENT:
            least = produced
            counts.append(read_all(tmp_path) if (tmp_path / "remote").exists() else 0)
            assert counts[-1] >= (least if counts[-1] else 0)
            starts.add(local_bases(tmp_path)[0])
        thread.join()
        assert counts == sorted(counts)
        assert len(starts) > 1  # segments left the disk between two reads
        wait_until_most_is_remote(tmp_path)
        served = [(record.offset, record.value) for record in broker.consume_all(T, config={"fetch.max.wait.ms": "100"})]
        assert read_all(tmp_path) == len(served) == SENT
        broker.stop()
    assert read_all(tmp_path) == SENT
    with pylog.open(tmp_path / "data", mode="r", archive=tier_of(tmp_path)) as store:
        log = store.log(T)
        assert [(record.offset, record.value) for record in log.records()] == served
        assert sum(batch.num_rows for batch in log.scan(isolation_level="read_committed")) == SENT
        for number in (0, 1234, SENT - 1):
            found = log.offset_for_timestamp(T0 + number)
            assert (found is not None and found.offset, log.read(number).value) == (number, value(number))
        assert store.verify().ok
    with pylog.open(tier_of(tmp_path), mode="r") as store:
        remote = local_bases(tmp_path)[0]
        assert [record.offset for record in store.log(T).records()] == list(range(remote))
