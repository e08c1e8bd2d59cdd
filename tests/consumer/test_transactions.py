"""What lies between records (markers, aborted transactions, gaps of a compaction), and what a broker's directories hold."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Consumer, TopicPartition
from pylog.clock import ManualClock
from pylog.offsets.schema import OFFSETS_TOPIC, format_offset, format_partition_key, offset_key
from pylog.record.format import CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT
from support.golden.data import GoldenPartition, partitions
from support.golden.rows import encoded
from support.reference.records import Batch, Record

T0 = TopicPartition("t", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log directory as a broker would leave it, with an empty partition."""
    (tmp_path / "t-0").mkdir()
    return tmp_path


def add(path: Path, *batches: bytes, partition: str = "t-0") -> None:
    """Appends as a broker does."""
    with (path / partition / f"{0:020d}.log").open("ab") as file:
        file.write(b"".join(batches))


def batch(offset: int, *sent: bytes | None, keys: tuple[bytes | None, ...] = (), **fields: Any) -> bytes:
    pairs = zip(keys or (None,) * len(sent), sent, strict=True)
    records = [Record(delta, 0, key, value) for delta, (key, value) in enumerate(pairs)]
    return Batch(records, base_offset=offset, **{"leader_epoch": 0, "base_timestamp": 1_700_000_000_000, **fields}).encoded()


def sent_by(producer: int, offset: int, *sent: bytes, **fields: Any) -> bytes:
    """Records of a transaction."""
    numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": offset}
    return batch(offset, *sent, attributes=TRANSACTIONAL_BIT, **numbers, **fields)


def end_of(producer: int, offset: int, kind: int) -> bytes:
    record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return Batch([record], base_offset=offset, leader_epoch=0, attributes=bits, producer_id=producer, producer_epoch=0).encoded()


def reading(path: Path, **options: Any) -> Iterator[Consumer]:
    with pylog.open(path, mode="r", clock=ManualClock()) as store:
        consumer = store.consumer(**{"auto_offset_reset": "earliest", **options})
        consumer.assign([T0])
        yield consumer
        consumer.close()


@pytest.fixture
def committed(path: Path) -> Iterator[Consumer]:
    """Reads what is committed."""
    yield from reading(path, isolation_level="read_committed")


@pytest.fixture
def uncommitted(path: Path) -> Iterator[Consumer]:
    """Reads everything."""
    yield from reading(path)


def polled(consumer: Consumer) -> list[bytes | None]:
    return [record.value for record in consumer.poll().get(T0, [])]


def test_markers_and_aborted_records_move_the_position_and_are_not_returned(
    path: Path, committed: Consumer, uncommitted: Consumer
) -> None:
    add(path, sent_by(7, 0, b"a", b"b"), end_of(7, 2, CONTROL_ABORT), batch(3, b"c"), sent_by(7, 4, b"d"))
    add(path, end_of(7, 5, CONTROL_COMMIT))
    assert (polled(committed), polled(uncommitted)) == ([b"c", b"d"], [b"a", b"b", b"c", b"d"])
    assert (committed.poll(), uncommitted.poll()) == ({}, {})
    assert (committed.position(T0), uncommitted.position(T0)) == (6, 6)


def test_a_poll_that_finds_nothing_but_aborted_records_and_markers_moves_on_too(path: Path, committed: Consumer) -> None:
    add(path, sent_by(7, 0, b"a"), end_of(7, 1, CONTROL_ABORT))
    assert polled(committed) == []
    assert committed.position(T0) == 2
    add(path, batch(2, b"b"))
    assert polled(committed) == [b"b"]


def test_committed_reading_waits_at_an_open_transaction_and_goes_on_when_it_ends(path: Path, committed: Consumer) -> None:
    add(path, batch(0, b"a"), sent_by(7, 1, b"b"), batch(2, b"c"))
    assert polled(committed) == [b"a"]
    assert committed.poll(timeout_ms=50) == {}
    assert (committed.position(T0), committed.end_offsets([T0])) == (1, {T0: 1})
    add(path, end_of(7, 3, CONTROL_COMMIT))
    assert polled(committed) == [b"b", b"c"]
    committed.seek_to_beginning()
    assert [record.offset for record in committed.poll()[T0]] == [0, 1, 2]


def test_a_position_beyond_the_stable_offset_waits_and_is_not_out_of_range(path: Path, committed: Consumer) -> None:
    add(path, sent_by(7, 0, b"a"), batch(1, b"b"))
    committed.seek(T0, 2)
    assert polled(committed) == []
    add(path, end_of(7, 2, CONTROL_ABORT), batch(3, b"c"))
    assert polled(committed) == [b"c"]


def test_the_tail_that_a_compaction_emptied_is_stepped_over(path: Path, uncommitted: Consumer) -> None:
    add(path, batch(0, b"a"), batch(5, b"b"), batch(6, last_offset_delta=3))  # 6 to 9 is an empty batch, kept by the cleaner
    assert polled(uncommitted) == [b"a", b"b"]
    assert uncommitted.poll() == {}
    assert uncommitted.position(T0) == 10
    uncommitted.seek(T0, 2)
    assert polled(uncommitted) == [b"b"]


def test_iteration_steps_over_markers_too(path: Path, committed: Consumer) -> None:
    add(path, sent_by(7, 0, b"a"), end_of(7, 1, CONTROL_COMMIT), batch(2, b"b"), sent_by(7, 3, b"c"), end_of(7, 4, CONTROL_ABORT))
    assert [next(committed).value for _ in range(2)] == [b"a", b"b"]
    assert committed.position(T0) == 3
    assert polled(committed) == []
    assert committed.position(T0) == 5


@pytest.mark.damaged("a broker's directory without its leader epoch checkpoint")
def test_a_commit_has_the_leader_epoch_of_the_last_record_returned(path: Path) -> None:
    add(path, *(batch(2 * epoch, b"x", b"y", leader_epoch=epoch) for epoch in range(5)))
    with pylog.open(path) as store:
        consumer = store.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=0)
        consumer.assign([T0])
        for record in consumer:
            consumer.commit()
            found = consumer.committed(T0, metadata=True)
            assert (found.offset, found.leader_epoch, found.metadata) == (record.offset + 1, record.offset // 2, "")
        consumer.close()


def test_offsets_that_wait_for_a_transaction_are_waited_for(path: Path) -> None:
    """Who read on from the older ones would read again what the transaction has in it."""
    add(path, batch(0, *(b"%d" % number for number in range(10))))
    (path / f"{OFFSETS_TOPIC}-0").mkdir()
    key = (offset_key(b"g", format_partition_key(T0)),)
    add(path, batch(0, format_offset(2, b"", None, 0), keys=key), partition=f"{OFFSETS_TOPIC}-0")
    with pylog.open(path, mode="r") as store:
        consumer = store.consumer(group_id="g", enable_auto_commit=False)
        consumer.assign([T0])
        assert [record.offset for record in consumer.poll(max_records=1)[T0]] == [2]
        assert consumer.committed(T0) == 2
        add(path, sent_by(7, 1, format_offset(6, b"", None, 0), keys=key), partition=f"{OFFSETS_TOPIC}-0")
        other = store.consumer(group_id="g", enable_auto_commit=False)
        other.assign([T0])
        assert (other.poll(), other.position(T0)) == ({}, None)
        add(path, end_of(7, 2, CONTROL_COMMIT), partition=f"{OFFSETS_TOPIC}-0")
        assert [record.offset for record in other.poll(max_records=1)[T0]] == [6]


def test_a_consumer_of_a_store_open_for_reading_cannot_commit(path: Path, uncommitted: Consumer) -> None:
    add(path, batch(0, b"a"))
    with pylog.open(path, mode="r") as store:
        consumer = store.consumer(group_id="g", enable_auto_commit=False, auto_offset_reset="earliest")
        consumer.assign([T0])
        assert polled(consumer) == [b"a"]
        with pytest.raises(pylog.ReadOnlyError):
            consumer.commit()
        with pytest.raises(pylog.ReadOnlyError):
            store.consumer("t", group_id="g")


# ---- golden ------------------------------------------------------------------------------------------------------------------


UNREADABLE = "u-flip-below-0"  # Kafka's consumer stopped at its damage
GOLDEN = [each for each in partitions("4.3.0") if each.tp != UNREADABLE]  # older versions: tests/log


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda partition: partition.id)
def test_a_consumer_gets_from_a_brokers_directory_what_kafkas_consumer_got(golden: GoldenPartition, isolation: str) -> None:
    expected = golden.expected_committed() if isolation == "read_committed" else golden.expected()
    with pylog.open(golden.log_directory, mode="r") as store:
        place = TopicPartition(golden.topic, golden.partition)
        consumer = store.consumer(auto_offset_reset="earliest", isolation_level=isolation, max_poll_records=10_000)
        consumer.assign([place])
        got = []
        while found := consumer.poll():
            got += found[place]
        end = golden.meta["lastStableOffset" if isolation == "read_committed" else "logEndOffset"]
        assert consumer.position(place) == end
        consumer.close()
    assert [(record.offset, record.timestamp, encoded(record.key), encoded(record.value)) for record in got] == [
        (row["offset"], row["timestamp"], row["key"], row["value"]) for row in expected
    ]
    assert [[[name, encoded(value)] for name, value in record.headers] for record in got] == [row["headers"] for row in expected]
