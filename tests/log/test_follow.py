"""Following a log: what comes is handed out as it comes, and waiting ends with a record, an error or the time."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pylog
from pylog import Durability
from pylog.clock import ManualClock
from pylog.log.reading.following import Naps
from pylog.record.format import CONTROL_ABORT, CONTROL_BIT, CONTROL_COMMIT, TRANSACTIONAL_BIT
from pylog.store import Store
from support.faults.neighbours import Neighbour, last_segment
from support.log import reading
from support.log.durable_points import slot_of
from support.log.reading import add, append, broker_batch, texts
from support.reference.records import Batch, Record

path = pytest.fixture(reading.path)
store = pytest.fixture(reading.store)
log = pytest.fixture(reading.log)
clock = pytest.fixture(reading.clock)
reader = pytest.fixture(reading.reader)


PATIENCE = 20.0  # seconds, for what takes milliseconds

SOON = 20_000  # the same in milliseconds


def marker(offset: int, kind: int, producer: int) -> bytes:
    """What ends a transaction."""
    record = Record(0, 0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    bits = TRANSACTIONAL_BIT | CONTROL_BIT
    return Batch([record], base_offset=offset, leader_epoch=0, attributes=bits, producer_id=producer, producer_epoch=0).encoded()


def in_transaction(offset: int, *sent: bytes, producer: int = 7) -> bytes:
    numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": offset}
    return broker_batch(offset, *sent, attributes=TRANSACTIONAL_BIT, **numbers)


# ---- follow ------------------------------------------------------------------------------------------------------------------


class Following(threading.Thread):
    """Follows a log in a thread of its own; `wait_for` waits until so many records have come."""

    def __init__(self, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        super().__init__()
        self._batches = batches
        self._came = threading.Condition()
        self.values: list[bytes | None] = []
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for batch in self._batches():
                with self._came:
                    self.values += batch.column("value").to_pylist()
                    self._came.notify_all()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def wait_for(self, count: int) -> list[bytes | None]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.values) >= count, PATIENCE), self.error
            return self.values


@pytest.fixture(params=["reader", "writer"])
def either(request: pytest.FixtureRequest, path: Path, log: pylog.Log) -> Iterator[pylog.Log]:
    """A log to follow: of a store that only reads, and of another one that may write."""
    with pylog.open(path, mode="r" if request.param == "reader" else "rw") as other:
        yield other.log("t")


def collected(batches: Iterable[pa.RecordBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_new_records_are_returned_as_they_come_across_rolls(log: pylog.Log, either: pylog.Log) -> None:
    following = Following(lambda: either.follow(0, timeout_ms=SOON))
    for number in range(1, 40):
        append(log, [number])
        assert following.wait_for(number + 1) == texts(range(number + 1))
    log.truncate(0)  # so that it ends
    following.join(PATIENCE)
    assert isinstance(following.error, pylog.OffsetOutOfRangeError)


def test_without_a_start_only_what_comes_after_the_call_is_returned(log: pylog.Log, reader: pylog.Log) -> None:
    batches = reader.follow(timeout_ms=1)
    append(log, range(1, 4))
    assert collected(batches) == texts(range(1, 4))


def test_from_an_offset_on_the_present_is_returned_before_what_comes(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 20))
    batches = reader.follow(7, timeout_ms=1, max_rows=5)
    assert [batch.num_rows for batch in batches] == [5, 5, 3]


def test_it_ends_when_nothing_new_has_come_for_so_long(log: pylog.Log, reader: pylog.Log, clock: ManualClock) -> None:
    batches = reader.follow(0, timeout_ms=1500)
    assert next(batches).num_rows == 1
    began = clock.monotonic()
    assert list(batches) == []
    assert 1.5 <= clock.monotonic() - began < 1.51


def test_the_timeout_starts_again_with_each_record(log: pylog.Log, reader: pylog.Log, clock: ManualClock) -> None:
    batches = reader.follow(0, timeout_ms=1000)
    for number in range(1, 4):
        assert collected([next(batches)]) == [b"%d" % (number - 1)]
        clock.advance(900)
        append(log, [number])
    assert collected(batches) == [b"3"]


def test_a_follower_of_durable_records_waits_for_the_flush(log: pylog.Log, reader: pylog.Log) -> None:
    log.append(b"1", durability=Durability.OS)
    assert collected(reader.follow(0, timeout_ms=1, durable=True)) == [b"0"]
    batches = reader.follow(1, timeout_ms=1, durable=True)
    log.flush()
    assert collected(batches) == [b"1"]


def test_columns_and_isolation_are_checked_at_once(reader: pylog.Log) -> None:
    for wrong in ({"columns": ("price",)}, {"isolation_level": "serializable"}, {"max_rows": 0}, {"start": -1}):
        with pytest.raises(pylog.PylogError):
            reader.follow(**wrong)  # type: ignore[arg-type]


def test_a_committed_follower_stops_before_an_open_transaction_and_passes_aborted_ones(
    tmp_path: Path, clock: ManualClock
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(broker_batch(0, b"0") + in_transaction(1, b"1", b"2") + broker_batch(3, b"3"))
    with pylog.open(tmp_path, mode="r", clock=clock) as reading:
        reader = reading.log("t")
        batches = reader.follow(0, isolation_level="read_committed", timeout_ms=10)
        assert collected([next(batches)]) == [b"0"]
        assert reader.stable_offset == 1
        assert collected(reader.follow(1, isolation_level="read_committed", timeout_ms=1)) == []
        add(directory, marker(4, CONTROL_COMMIT, 7))
        assert collected([next(batches)]) == [b"1", b"2", b"3"]
        add(directory, in_transaction(5, b"5", producer=8) + broker_batch(6, b"6") + marker(7, CONTROL_ABORT, 8))
        assert collected(batches) == [b"6"]
        assert reader.stable_offset == 8


def test_a_committed_follower_of_a_pylog_writer_knows_of_transactions_that_came_before_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(in_transaction(0, b"0") + marker(1, CONTROL_COMMIT, 7) + in_transaction(2, b"2"))
    with pylog.open(tmp_path) as store, pylog.open(tmp_path, mode="r", clock=clock) as reading:
        append(store.log("t"), [3])
        reader = reading.log("t")
        batches = reader.follow(0, isolation_level="read_committed", timeout_ms=10)
        append(store.log("t"), range(4, 40))
        assert collected(batches) == [b"0"]
        assert reader.stable_offset == store.log("t").stable_offset == 2


def test_a_truncation_above_what_was_returned_changes_nothing(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, range(1, 10))
    batches = reader.follow(0, timeout_ms=1)
    assert next(batches).num_rows == 10
    append(log, range(10, 30))
    log.truncate(10)
    append(log, [10])
    assert collected(batches) == [b"10"]


def test_a_truncation_below_what_was_returned_is_reported_at_once(log: pylog.Log, reader: pylog.Log, clock: ManualClock) -> None:
    append(log, range(1, 10))
    batches = reader.follow(0)  # without an end in time
    assert next(batches).num_rows == 10
    log.truncate(5)
    with pytest.raises(pylog.OffsetOutOfRangeError, match="truncated while it was read"):
        next(batches)


@pytest.mark.parametrize("count", [5, 12])
def test_a_truncation_is_noticed_when_other_records_have_the_offsets_by_then(
    log: pylog.Log, reader: pylog.Log, count: int
) -> None:
    append(log, range(1, 10))
    batches = reader.follow(0, timeout_ms=1)
    assert next(batches).num_rows == 10
    log.truncate(5)
    for _ in range(count):
        log.append(b"x")  # as long as the others: their batches lie at the same places
    with pytest.raises(pylog.OffsetOutOfRangeError):
        list(batches)


def test_a_truncation_between_two_frames_of_one_scan_is_noticed_too(path: Path, store: Store, clock: ManualClock) -> None:
    store.create_topic("long")
    log = store.log("long")
    append(log, range(10))
    with pylog.open(path, mode="r", clock=clock) as reading:
        batches = reading.log("long").follow(0, max_rows=5, timeout_ms=1)
        assert collected([next(batches)]) == texts(range(5))
        log.truncate(5)
        for _ in range(5):
            log.append(b"x")  # their batches lie where the others lay
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(batches)


def test_a_follower_that_retention_overtakes_gets_an_error(store: Store, path: Path, clock: ManualClock) -> None:
    store.create_topic("short", segment_bytes=300, retention_ms=1000)
    log = store.log("short")
    with pylog.open(path, mode="r", clock=clock) as reading:
        batches = reading.log("short").follow(0, timeout_ms=1)
        for number in range(20):
            log.append(b"%d" % number, timestamp=1000 * number)
        store.tick(now_ms=15_000)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            list(batches)


def test_a_follower_of_a_topic_that_is_deleted_ends_with_an_error(store: Store, reader: pylog.Log) -> None:
    batches = reader.follow(0)
    assert next(batches).num_rows == 1
    store.delete_topic("t")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        next(batches)


def test_a_follower_of_a_closed_store_ends_with_an_error(path: Path, log: pylog.Log) -> None:
    with pylog.open(path, mode="r") as reading:
        batches = reading.log("t").follow(0)
        assert next(batches).num_rows == 1
    assert log.append(b"1") == 1


@pytest.mark.slow
def test_a_process_follows_what_another_one_appends(path: Path, log: pylog.Log) -> None:
    with Neighbour() as other:
        other.run("reading = pylog.open(path, mode='r'); log = reading.log('t')", path=str(path))
        other.begin(
            "found = []\n"
            "for batch in log.follow(0, timeout_ms=20_000):\n"
            "    found += batch.column('value').to_pylist()\n"
            "    if len(found) == 200: break\n"
            "found"
        )
        append(log, range(1, 200))
        assert other.answer() == texts(range(200))


IDLE = """
import os
list(log.follow(timeout_ms=100))
before = os.times()
list(log.follow(timeout_ms=1000))
after = os.times()
[after.user + after.system - before.user - before.system, after.elapsed - before.elapsed]
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_an_idle_follower_takes_almost_no_time_of_the_processor(path: Path, log: pylog.Log, mode: str) -> None:
    with Neighbour() as other:
        other.run("store = pylog.open(path, mode=mode); log = store.log('t')", path=str(path), mode=mode)
        used, elapsed = other.run(IDLE)
        assert elapsed >= 1.0
        assert used < 0.1 * elapsed
        other.run("store.close()")


def test_a_waiting_reader_polls_more_seldom_the_longer_no_record_has_come_and_never_after_its_timeout() -> None:
    clock = ManualClock()
    naps = Naps(clock)
    taken: list[float] = []

    def sleeping(seconds: float) -> None:
        taken.append(seconds)
        sleep(seconds)

    sleep, clock.sleep = clock.sleep, sleeping  # type: ignore[method-assign]
    began = clock.monotonic()
    while naps.take(began + 300):
        pass
    assert clock.monotonic() == pytest.approx(began + 300)
    assert taken[0] == 0.0001
    silence = 0.0
    for nap in taken[:-1]:  # the last one ends with the time
        assert nap <= max(0.001, silence / 100)
        silence += nap
    assert max(taken) == taken[-2] == 0.025
    assert len(taken) < 12_500  # a check each 25 ms, and some hundred more in the first seconds
    naps.end()
    assert naps.take(clock.monotonic() + 1)
    assert taken[-1] == 0.0001


# ---- wait_for ----------------------------------------------------------------------------------------------------------------


def test_waiting_for_a_record_that_is_there_takes_no_time(reader: pylog.Log, clock: ManualClock) -> None:
    began = clock.monotonic()
    assert reader.wait_for(0) == 1
    assert clock.monotonic() == began


def test_waiting_ends_with_the_time(reader: pylog.Log, clock: ManualClock) -> None:
    began = clock.monotonic()
    assert reader.wait_for(1, timeout_ms=250) == 1
    assert 0.25 <= clock.monotonic() - began < 0.26


def test_waiting_ends_with_the_record(log: pylog.Log, either: pylog.Log) -> None:
    ends: list[int] = []
    thread = threading.Thread(target=lambda: ends.append(either.wait_for(3, timeout_ms=SOON)))
    thread.start()
    append(log, range(1, 4))
    thread.join(PATIENCE)
    assert ends == [4]


def test_waiting_for_a_durable_record_ends_with_the_flush(log: pylog.Log, reader: pylog.Log) -> None:
    log.append(b"1", durability=Durability.OS)
    assert reader.wait_for(1, timeout_ms=1, durable=True) == 1
    assert reader.wait_for(1, timeout_ms=1) == 2
    log.flush()
    assert reader.wait_for(1, timeout_ms=1, durable=True) == 2


def test_a_timeout_of_zero_is_one_poll(log: pylog.Log, reader: pylog.Log) -> None:
    append(log, [1])
    assert reader.wait_for(5, timeout_ms=0) == 2
    assert reader.wait_for(1, timeout_ms=0) == 2


def test_the_environment_of_these_tests_is_one_of_a_local_file_system(path: Path, log: pylog.Log) -> None:
    """Inodes tell files apart, which is what a header's word stands on."""
    assert slot_of(path).active_inode == os.stat(last_segment(path / "t-0")).st_ino


@pytest.mark.pair("scan and follow", "truncation")
def test_a_truncation_while_a_follower_begins_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end that one look gives may be out of range at the next one."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append_many([b"a", b"b"])
        monkeypatch.setattr(pylog.Log, "end_offset", property(lambda _: 3))  # as before the truncation
        assert [frame.num_rows for frame in log.follow(0, timeout_ms=0)] == [2]


@pytest.mark.pair("scan and follow", "delete_records", "truncation")
def test_following_from_outside_of_the_log_is_an_error_at_once_as_for_scan(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        for _ in range(10):
            log.append(b"x", durability=Durability.OS)
        log.delete_records(3)
        log.truncate(8)
        with pylog.open(tmp_path, "r") as reading:
            for each in (log, reading.log("t")):
                for offset in (2, 9, 100):
                    with pytest.raises(pylog.OffsetOutOfRangeError):
                        each.scan(offset)
                    with pytest.raises(pylog.OffsetOutOfRangeError):
                        each.follow(offset, timeout_ms=1)
                assert sum(batch.num_rows for batch in each.follow(3, timeout_ms=1)) == 5
                assert list(each.follow(8, timeout_ms=1)) == []
