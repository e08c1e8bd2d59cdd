"""Producers are forgotten when a log is opened and when it rolls, without a tick, whatever the timestamps of records."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import pylog
from pylog import ProducerBatch
from pylog.clock import ManualClock
from pylog.fs import OsFileSystem
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.recovery import producer_snapshots
from pylog.log.recovery.producer_snapshots import encode_snapshot, read_snapshot, write_snapshot
from pylog.store import Store
from support.engines import engine_of
from support.log.derived import parse_snapshot

NOW = 1_700_000_000_000
DAY = 86_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def opened(path: Path, clock: ManualClock) -> Store:
    return pylog.open(path, clock=clock, durability=pylog.Durability.OS)


def send(store: Store, producer: int, timestamp: int | None = None) -> None:
    record = b"x" * 100 if timestamp is None else (None, b"x" * 100, (), timestamp)
    store.log("t").append_batch([record], producer=ProducerBatch(producer, 0, 0))


def snapshots(path: Path) -> dict[int, list[int]]:
    """The producers in each snapshot."""
    return {
        int(file.stem): [each.producer_id for each in parse_snapshot(file.read_bytes(), int(file.stem), "x").producers]
        for file in sorted(path.glob("t-0/*.snapshot"))
    }


def is_known(store: Store, producer: int) -> bool:
    return engine_of(store.log("t")).next_sequence(producer, 0) is not None


@pytest.mark.pair("idempotence", "close")
def test_producers_that_were_idle_for_a_day_are_forgotten_when_the_log_is_opened(tmp_path: Path, clock: ManualClock) -> None:
    for day in range(5):
        with opened(tmp_path, clock) as store:
            if not day:
                store.create_topic("t")
            for number in range(3):
                send(store, 10 * day + number)
        clock.sleep(0.75 * 86_400)
    with opened(tmp_path, clock) as store:
        assert [number for number in range(50) if is_known(store, number)] == [40, 41, 42]


@pytest.mark.pair("idempotence", "roll")
def test_producers_that_were_idle_for_a_day_are_forgotten_when_the_log_rolls(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.create_topic("t", segment_bytes=500)
        for number in range(20):
            send(store, number)
            clock.sleep(86_400 / 4)
        known = [number for number in range(20) if is_known(store, number)]
        assert min(known) >= 12
        assert max(len(ids) for ids in snapshots(tmp_path).values()) <= 8


@pytest.mark.pair("idempotence", "timestamps")
@pytest.mark.parametrize("timestamp", [-1, NOW + 100 * DAY, 2**63 - 1])
@pytest.mark.parametrize("how", ["roll", "open", "crash"])
def test_records_without_a_time_or_of_the_future_expire_a_day_after_their_append(
    tmp_path: Path, clock: ManualClock, timestamp: int, how: str
) -> None:
    store = opened(tmp_path, clock)
    bounds = {"message_timestamp_after_max_ms": 2**63 - 1}
    any_time = {name: value for name, value in bounds.items() if name in pylog.TopicConfig.__dataclass_fields__}
    store.create_topic("t", segment_bytes=300, **any_time)
    if timestamp < 0:
        _append_without_time(store)
    else:
        send(store, 7, timestamp)
    for hours in (12, 13):
        clock.sleep(hours * 3600)
        if how == "open":
            store.close()
            store = opened(tmp_path, clock)
        else:
            send(store, 100 + hours)
            send(store, 200 + hours)
        assert is_known(store, 7) == (hours == 12), hours
    store.close()


def _append_without_time(store: Store) -> None:
    log = store.log("t")
    log.append_batch([(None, b"x" * 100, (), -1)], producer=ProducerBatch(7, 0, 0))


def test_a_log_of_records_without_a_time_that_is_opened_daily_forgets_their_producer(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.create_topic("t")
        _append_without_time(store)
    _rewrite(tmp_path, [Producer(7, 0, 0, 0, 0, -1)])
    known = []
    for _ in range(4):
        with opened(tmp_path, clock) as store:
            known.append(is_known(store, 7))
        clock.sleep(0.75 * 86_400)
    assert known == [True, True, False, False]


def _rewrite(path: Path, producers: list[Producer]) -> None:
    (file,) = path.glob("t-0/*.snapshot")
    file.write_bytes(encode_snapshot(ProducerStateManager(producers, int(file.stem))))


# ---- large ones, and ones that lie -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_snapshot_of_many_expired_producers_opens_and_is_small_afterwards(tmp_path: Path, clock: ManualClock) -> None:
    with opened(tmp_path, clock) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 50_000)
    _rewrite(tmp_path, [Producer(number, 0, 0, number, 0, 1) for number in range(50_000)])
    with pylog.open(tmp_path, "r", clock=clock) as store:
        assert (store.log("t").end_offset, store.log("t").stable_offset) == (50_000, 50_000)
    with opened(tmp_path, clock) as store:
        store.log("t").append(b"y")
    assert snapshots(tmp_path)[50_001] == []


def test_no_snapshot_is_written_that_would_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_snapshots.limits, "MAX_SNAPSHOT_BYTES", 10 + 3 * 46)
    fs, directory = OsFileSystem(), str(tmp_path)
    for count, written in ((3, True), (4, False)):
        write_snapshot(fs, directory, ProducerStateManager((Producer(number, 0) for number in range(count)), count))
        found = read_snapshot(fs, directory, count)
        assert (found is not None) == written
        assert found is None or found.count == count


@pytest.mark.damaged("a snapshot lies on purpose")
@pytest.mark.parametrize(
    "lie",
    [
        Producer(-1, 0),
        Producer(7, 0, 0, 5),
        Producer(7, 0, 0, 2**63 - 1),
        Producer(7, 0, -2, 0),
        Producer(7, 0, 0, 0, 5),
        Producer(7, 0, 0, 0, -1),
        Producer(7, 0, 0, 0, 0, 0, 0, 5),
        Producer(7, 0, 0, 0, 0, 0, 0, 2**63 - 1),
        Producer(7, 0, 0, 0, 0, 0, 0, -7),
    ],
)
def test_a_snapshot_with_a_right_checksum_and_impossible_numbers_is_not_used(
    tmp_path: Path, clock: ManualClock, lie: Producer
) -> None:
    with opened(tmp_path, clock) as store:
        store.create_topic("t")
        for producer in range(5):
            send(store, producer)
    _rewrite(tmp_path, [lie])
    with pylog.open(tmp_path, "r", clock=clock) as store:
        assert store.log("t").stable_offset == 5
        assert any(".snapshot" in finding.path for finding in store.verify().findings)
    with opened(tmp_path, clock) as store:
        assert all(is_known(store, producer) for producer in range(5))
        assert [finding.kind for finding in store.recovery_report] == ["rebuilt"]
        assert store.log("t").append(b"y") == 5


def test_two_transactions_that_a_snapshot_opens_at_one_offset_are_not_believed() -> None:
    twice = [Producer(number, 0, -1, 2, 0, 0, 0, 1) for number in (7, 8)]
    state = ProducerStateManager([], 5)
    body = b"".join(struct.pack(">qhiqiqiq", *each[:-1]) for each in twice)
    counted = struct.pack(">i", 2) + body
    data = struct.pack(">hI", 1, producer_snapshots.crc32c(counted)) + counted
    with pytest.raises(pylog.CorruptionError):
        parse_snapshot(data, state.end_offset, "x")
