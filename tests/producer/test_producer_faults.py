"""What a producer answers stands, whatever fails: disks, memory, processes, other processes in the way."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pylog
from pylog import Durability
from pylog.errors import ClosedError, PylogTimeoutError, RecordTooLargeError, StorageFailedError, StoreLockedError
from pylog.log.partition_log import PartitionLog
from pylog.producer import buffer as buffers
from pylog.producer.producer import send_at_once
from pylog.producer.sender import Sender
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem
from support.engines import buffer_of
from support.faults.neighbours import HookedFileSystem, Neighbour
from support.producer import PATIENCE, Gate

LOG = ".log"


def values(log: pylog.Log) -> list[bytes | None]:
    return [record.value for record in log.records()]


# ---- back-pressure ---------------------------------------------------------------------------------------------------------


def test_a_full_buffer_makes_send_wait_and_then_refuse_and_goes_on_when_there_is_room(store: Store, fs: HookedFileSystem) -> None:
    gate = Gate()
    fs.before("write", LOG, gate)
    with store.producer(buffer_memory=10 * 1024, max_block_ms=20) as producer:
        futures = [producer.send("t", b"0")]
        assert gate.reached.wait(PATIENCE)
        futures += [producer.send("t", b"%d" % number) for number in range(1, 10)]
        for record in (b"small", b"x" * 5000):
            with pytest.raises(PylogTimeoutError, match="buffer of 10240 bytes has been full for max_block_ms=20"):
                producer.send("t", record)
        assert send_at_once(producer, "t", None) is None
        gate.open()
        futures[-1].result(PATIENCE)  # a busy machine takes longer than max_block_ms to write them
        futures.append(producer.send("t", b"10"))
    assert [future.result().offset for future in futures] == list(range(1, 12))
    assert values(store.log("t"))[1:] == [b"%d" % number for number in range(11)]


def test_small_records_wait_for_a_larger_one_that_came_first(store: Store, fs: HookedFileSystem) -> None:
    gate = Gate()
    fs.before("write", LOG, gate)
    with store.producer(buffer_memory=10 * 1024) as producer:
        producer.send("t", b"0")
        assert gate.reached.wait(PATIENCE)
        for number in range(1, 10):
            producer.send("t", b"%d" % number)
        blocked = []
        for value in (b"x" * 5000, b"small", b"y" * 6000, b"last"):
            blocked.append(threading.Thread(target=partial(producer.send, "t", value)))
            blocked[-1].start()
            while buffer_of(producer)._blocked < len(blocked):
                pass
        assert send_at_once(producer, "t", None) is None
        gate.open()
        for thread in blocked:
            thread.join(PATIENCE)
    found = values(store.log("t"))[11:]
    places = [found.index(value) for value in (b"x" * 5000, b"y" * 6000, b"small", b"last")]
    assert sorted(places) == [0, 1, 2, 3]
    assert places[0] < places[1] < places[3]
    assert places[0] < places[2]


def test_a_larger_record_that_is_refused_keeps_small_ones_from_nothing(store: Store, fs: HookedFileSystem) -> None:
    gate = Gate()
    fs.before("write", LOG, gate)
    with store.producer(buffer_memory=10 * 1024, max_block_ms=20) as producer:
        producer.send("t", b"0")
        assert gate.reached.wait(PATIENCE)
        producer.send("t", b"1")
        with pytest.raises(PylogTimeoutError):
            producer.send("t", b"x" * 9000)
        later = [producer.send("t", b"%d" % number) for number in range(2, 5)]
        gate.open()
        assert [future.result(PATIENCE).offset for future in later] == [3, 4, 5]


def test_a_blocked_send_goes_on_as_soon_as_there_is_room(store: Store, fs: HookedFileSystem) -> None:
    gate = Gate()
    fs.before("write", LOG, gate)
    with store.producer(buffer_memory=2048) as producer:
        producer.send("t", b"0")
        assert gate.reached.wait(PATIENCE)
        blocked = threading.Thread(target=lambda: [producer.send("t", b"%d" % number) for number in range(1, 50)])
        blocked.start()
        gate.open()
        blocked.join(PATIENCE)
    assert values(store.log("t"))[1:] == [b"%d" % number for number in range(50)]


def test_a_send_that_waits_for_buffer_space_ends_lingering(store: Store) -> None:
    with store.producer(buffer_memory=4096, linger_ms=10**9) as producer:
        for number in range(100):
            producer.send("t", b"%d" % number)
    assert store.log("t").end_offset == 101


def test_large_records_take_their_own_room_and_give_it_back(store: Store) -> None:
    with store.producer(buffer_memory=100_000, max_block_ms=int(PATIENCE * 1000)) as producer:
        for number in range(30):
            producer.send("t", b"%02d" % number * 20_000, b"k" * number)
            producer.send("t", b"small")
        producer.flush(PATIENCE)
        assert buffer_of(producer).room == 100_000 // buffers.RECORD_CHARGE
    assert store.log("t").end_offset == 61


def test_a_record_that_no_buffer_of_this_size_could_take_is_refused_at_once(store: Store) -> None:
    with store.producer(buffer_memory=10_000) as producer, pytest.raises(RecordTooLargeError, match="buffer_memory"):
        producer.send("t", b"x" * 10_000)


def test_closing_refuses_a_send_that_waits_for_buffer_space(store: Store, fs: HookedFileSystem) -> None:
    gate, errors = Gate(), []
    fs.before("write", LOG, gate)
    producer = store.producer(buffer_memory=1024)
    producer.send("t", b"v")
    assert gate.reached.wait(PATIENCE)

    def send() -> None:
        try:
            producer.send("t", b"late")
        except ClosedError as error:
            errors.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    while not buffer_of(producer)._blocked:
        pass
    closing = threading.Thread(target=producer.close)
    closing.start()
    sending.join(PATIENCE)
    gate.open()
    closing.join(PATIENCE)
    assert len(errors) == 1
    assert values(store.log("t")) == [b"first", b"v"]


def test_records_that_close_has_no_time_for_are_refused(
    store: Store, fs: HookedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    fs.before("write", LOG, gate)
    producer = store.producer()
    first = producer.send("t", b"0")
    assert gate.reached.wait(PATIENCE)
    rest = [producer.send("t", b"%d" % number) for number in range(1, 5)]
    closing = threading.Thread(target=producer.close, args=(0.001,))
    closing.start()
    while not buffer_of(producer).abandoned:
        pass
    gate.open()
    closing.join(PATIENCE)
    assert first.result(PATIENCE).offset == 1
    assert {type(future.exception(PATIENCE)) for future in rest} == {ClosedError}
    assert values(store.log("t")) == [b"first", b"0"]


# ---- disks -----------------------------------------------------------------------------------------------------------------


def test_a_full_disk_fails_its_records_in_order_and_later_ones_are_appended_once_there_is_room() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    with pylog.open("/s", fs=fs) as store:
        store.create_topic("t")
        failed = []
        with store.producer() as producer:
            before = producer.send("t", b"before").result(PATIENCE)
            fs.fail("short write ENOSPC", forever=True, of=LOG)
            for number in range(5):
                future = producer.send("t", b"%d" % number, on_delivery=lambda error, _: failed.append(error))
                with pytest.raises(StorageFailedError, match="ENOSPC"):
                    future.result(PATIENCE)
            fs.heal()
            after = [producer.send("t", b"after %d" % number).result(PATIENCE).offset for number in range(3)]
        assert len(failed) == 5
        assert (before.offset, after) == (0, [1, 2, 3])
        assert values(store.log("t")) == [b"before", b"after 0", b"after 1", b"after 2"]
        (frame,) = store.log("t").scan(columns=("producer_epoch", "sequence"))
        assert frame.to_pylist()[1:] == [{"producer_epoch": 5, "sequence": number} for number in range(3)]


def test_after_a_failed_sync_every_record_fails_and_none_is_acknowledged() -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    store = pylog.open("/s", fs=fs)
    store.create_topic("t")
    with store.producer() as producer:
        assert producer.send("t", b"safe").result(PATIENCE).durability == Durability.SYNC
        fs.fail("sync EIO", of=LOG)
        errors = [producer.send("t", b"%d" % number).exception(PATIENCE) for number in range(3)]
    fs.heal()
    assert [type(error) for error in errors] == [pylog.SyncFailedError, ClosedError, ClosedError]
    assert "open it again" in str(errors[1])
    store.close()
    with pylog.open("/s", fs=fs) as again, again.producer() as producer:
        offset = producer.send("t", b"goes on").result(PATIENCE).offset
        assert again.log("t").read(0).value == b"safe"
        assert again.log("t").read(offset).value == b"goes on"


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.sampled_from(["send", "send", "fail", "heal", "flush"]), max_size=30), st.integers(1, 3))
def test_acknowledged_records_are_there_once_and_failed_ones_are_not_whatever_writes_fail(steps: list[str], fault: int) -> None:
    fs = FaultyFileSystem(MemoryFileSystem())
    with pylog.open("/s", fs=fs, durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=400)
        with store.producer(batch_size=200) as producer:
            futures = []
            for number, step in enumerate(steps):
                if step == "send":
                    futures.append((b"%d" % number, producer.send("t", b"%d" % number)))
                elif step == "fail":
                    fs.fail("write ENOSPC", fault, of=LOG)
                elif step == "heal":
                    fs.heal()
                else:
                    producer.flush(PATIENCE)
        acknowledged = [(future.result().offset, value) for value, future in futures if future.exception(PATIENCE) is None]
        fs.heal()
        assert [(record.offset, record.value) for record in store.log("t").records()] == acknowledged


# ---- retries ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_batch_is_sent_again_when_another_thread_was_interrupted_with_it_and_is_there_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    append, failures = PartitionLog.append, [StorageFailedError("the thread that wrote it was interrupted", errno=errno.EINTR)]

    def interrupted(log: PartitionLog, *given: object, **named: object) -> object:
        if when == "behind":
            done = append(log, *given, **named)  # type: ignore[arg-type]
        if failures:
            raise failures.pop()
        return done if when == "behind" else append(log, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionLog, "append", interrupted)
    with store.producer(retry_backoff_ms=0) as producer:
        assert producer.send("t", b"v").result(PATIENCE).offset == 1
        assert producer.send("t", b"w").result(PATIENCE).offset == 2
    assert values(store.log("t")) == [b"first", b"v", b"w"]


def test_a_batch_given_up_that_is_in_the_log_after_all_does_not_swallow_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, failures = PartitionLog.append, [StorageFailedError("nobody knows", errno=5)]

    def unknown(log: PartitionLog, *given: object, **named: object) -> object:
        done = append(log, *given, **named)  # type: ignore[arg-type]
        if failures:
            raise failures.pop()
        return done

    monkeypatch.setattr(PartitionLog, "append", unknown)
    with store.producer() as producer:
        with pytest.raises(StorageFailedError, match="nobody knows"):
            producer.send("t", b"v").result(PATIENCE)
        assert producer.send("t", b"w").result(PATIENCE).offset == 2
    assert values(store.log("t")) == [b"first", b"v", b"w"]


@pytest.mark.slow
def test_a_log_that_another_process_keeps_is_tried_again_until_the_time_is_over(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", lock_timeout_ms=1) as store, Neighbour() as other:
        store.create_topic("t")
        hold = "fs.before('write', '.log', lambda: os.kill(os.getpid(), signal.SIGSTOP)); log.append(b'theirs')"
        other.run("import os; fs = HookedFileSystem(); store = pylog.open(path, fs=fs); log = store.log('t')", path=store.path)
        other.begin(hold)
        other.wait_until_stopped()
        with store.producer(retry_backoff_ms=1, delivery_timeout_ms=10) as producer, pytest.raises(StoreLockedError):
            producer.send("t", b"given up").result(PATIENCE)
        with store.producer(retry_backoff_ms=1) as producer:
            future = producer.send("t", b"ours")
            with pytest.raises(PylogTimeoutError):
                future.result(0.05)
            other.go_on()
            assert future.result(PATIENCE).offset == 1
        assert other.answer() == 0
        other.run("store.close()")
        assert values(store.log("t")) == [b"theirs", b"ours"]


def test_whatever_goes_wrong_in_the_producers_thread_no_caller_waits_forever(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deliver, failures = Sender._deliver, [MemoryError("none left"), KeyboardInterrupt()]

    def fail(*given: object) -> None:
        if failures:
            raise failures.pop()
        deliver(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Sender, "_deliver", fail)
    with store.producer() as producer:
        assert "KeyboardInterrupt" in str(producer.send("t", b"v").exception(PATIENCE))
        assert isinstance(producer.send("t", b"v").exception(PATIENCE), MemoryError)
        assert producer.send("t", b"v").result(PATIENCE).offset == 1


# ---- threads ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=40), min_size=1, max_size=4),
    st.sampled_from([0, 1]),
    st.sampled_from([1, 60, 1 << 19]),
    st.sampled_from([1024, 8192, 1 << 20]),
)
def test_any_interleaving_of_threads_loses_nothing_doubles_nothing_and_keeps_each_threads_order(
    scripts: list[list[int]], linger_ms: int, batch_size: int, buffer_memory: int
) -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS) as store:
        store.create_topic("t", partition_count=3, segment_bytes=2000)
        sent: dict[bytes, pylog.RecordMetadata] = {}
        with store.producer(linger_ms=linger_ms, batch_size=batch_size, buffer_memory=buffer_memory) as producer:

            def send(thread: int, script: list[int]) -> None:
                futures = {}
                for number, kind in enumerate(script):
                    value = b"%d %d" % (thread, number)
                    if kind == 4:
                        producer.flush(PATIENCE)
                    futures[value] = producer.send(
                        "t", value, key=b"k" if kind == 3 else None, partition=kind if kind < 3 else None
                    )
                sent.update({value: future.result(PATIENCE) for value, future in futures.items()})

            threads = [threading.Thread(target=send, args=each) for each in enumerate(scripts)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(sent) == sum(map(len, scripts))
        found = [record for number in range(3) for record in store.log("t", number).records()]
        assert {(each.partition, each.offset): each.value for each in sent_places(sent)} == {
            (record.partition, record.offset): record.value for record in found
        }
        for thread in range(len(scripts)):
            for number in range(3):
                mine = [record.value.split() for record in found if record.partition == number]  # type: ignore[union-attr]
                order = [int(position) for who, position in mine if int(who) == thread]
                assert order == sorted(order)


def sent_places(sent: dict[bytes, pylog.RecordMetadata]) -> Iterator[pylog.Record]:
    for value, place in sent.items():
        yield pylog.Record(place.topic, place.partition, place.offset, place.timestamp, None, value)


# ---- processes -------------------------------------------------------------------------------------------------------------


@pytest.mark.damaged("a link stands in the place of a file")
def test_a_fault_that_will_not_pass_is_reported_at_once(tmp_path: Path) -> None:
    """A link in the place of a file: no call of the system has failed, and no time heals it."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    file = tmp_path / "t-0" / f"{0:020d}.log"
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    with pylog.open(tmp_path) as store, store.producer() as producer:
        assert isinstance(producer.send("t", b"y").exception(20), StorageFailedError)
    file.unlink()
    (tmp_path / "moved").rename(file)
