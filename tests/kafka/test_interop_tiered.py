"""A broker with tiered storage, stopped, read and appended to by pylog, and started again: it still has every record."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import pylog
from pylog.tools.verify import verify
from support.kafka.harness import Broker, KafkaJars, Message
from support.kafka.tiered import TOPIC, settings

T = "t"
CONSUMER = {"fetch.max.wait.ms": "100"}
BATCH, ROUNDS = 1500, 3
SENT = BATCH * ROUNDS
START_S = 30.0


def value(number: int) -> bytes:
    return b"%08d" % number + bytes(number % 251 for _ in range(1000))


def local_bases(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "data" / "t-0").glob("*.log"))


def until_local_part_is_short(root: Path) -> int:
    """Waits until the broker has deleted what it has copied; returns the local log start offset."""
    deadline = time.monotonic() + START_S
    while len(bases := local_bases(root)) > 1 or bases[0] == 0:
        assert time.monotonic() < deadline, bases
        time.sleep(0.2)
    return bases[0]


def checkpoint(root: Path) -> list[str]:
    return (root / "data" / "log-start-offset-checkpoint").read_text().split("\n")


def epochs(root: Path) -> str:
    return (root / "data" / "t-0" / "leader-epoch-checkpoint").read_text()


@pytest.mark.pair("broker's directory", "time search", "truncation", "retention by size")
def test_a_tiered_broker_serves_all_records_after_pylog_has_read_and_appended(
    tmp_path: Path, kafka_jars: KafkaJars, caplog: pytest.LogCaptureFixture
) -> None:
    deleted = 700  # the log starts inside the remote tier
    with Broker(tmp_path / "data", kafka_jars.with_tier(), config=settings(tmp_path)) as broker:
        broker.create_topic(T, config=TOPIC)
        for first in range(0, SENT, BATCH):
            numbers = range(first, first + BATCH)
            sent = [Message(value(number), timestamp=1_700_000_000_000 + number, partition=0) for number in numbers]
            broker.produce(T, sent, config={"batch.size": "65536"})
        local = until_local_part_is_short(tmp_path)
        assert deleted < local < SENT
        broker.delete_records(T, 0, deleted)
        deadline = time.monotonic() + START_S
        while broker.offsets(T)[0] != (deleted, SENT):
            assert time.monotonic() < deadline
        broker.stop()
        before, leaders = checkpoint(tmp_path), epochs(tmp_path)
        assert f"t 0 {deleted}" in before

        assert verify(str(tmp_path / "data")).ok
        appended = read_and_append(tmp_path / "data", deleted, local, caplog)
        assert verify(str(tmp_path / "data")).ok
        assert set(before) <= set(checkpoint(tmp_path))
        assert epochs(tmp_path).split("\n")[2] == leaders.split("\n")[2]

        broker.start()
        until_local_part_is_short(tmp_path)
        assert broker.offsets(T) == {0: (deleted, SENT + len(appended))}
        served = broker.consume_all(T, config=CONSUMER)
        assert [record.offset for record in served] == list(range(deleted, SENT + len(appended)))
        assert [record.value for record in served] == [value(number) for number in range(deleted, SENT)] + appended


def read_and_append(path: Path, start: int, local: int, caplog: pytest.LogCaptureFixture) -> list[bytes]:
    """All that pylog does to the stopped broker's directory; returns what it appended."""
    with caplog.at_level(logging.WARNING, "pylog"), pylog.open(path) as store:
        log = store.log(T)
        assert (log.start_offset, log.end_offset, log.remote_offsets) == (local, SENT, range(start, local))
        assert f"first={start} last={local - 1} local_start={local}" in caplog.text
        assert [record.value for record in log.records(local)] == [value(number) for number in range(local, SENT)]
        for call in (
            lambda: list(log.records()),
            lambda: log.read(start),
            lambda: log.offset_for_timestamp(0),
            lambda: pylog.read_table(path, T),
            lambda: log.delete_records(start + 1),
        ):
            with pytest.raises(pylog.OffsetOutOfRangeError, match=f"remote tier.*local log starts at offset {local}"):
                call()
        with pytest.raises(pylog.PylogError, match="remote tier"):
            log.truncate(local + 1)
        appended = [b"from pylog %d" % number for number in range(3)]
        log.append_many(appended[:2])
        store.alter_topic(T, retention_bytes=1)
    with pylog.open(path) as store:
        store.tick()
        assert store.log(T).start_offset == local
        assert store.log(T).append(appended[2]) == SENT + 2
        assert store.check().ok
    return appended
