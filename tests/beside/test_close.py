"""Calls next to `Store.close` and `Store.delete_topic` in other threads: their result, or the error that names the cause."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import ClosedError, Durability, Store, TopicPartition, UnknownTopicOrPartitionError
from pylog.fs import Gate, LiveSet
from pylog.log.checking import check
from pylog.log.maintenance.cleaning_round import CleaningRound
from pylog.log.writing.undecided import open_producers_now
from pylog.store import manager_of
from support.engines import engine_of, writer_of

PLACE = TopicPartition("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", durability=Durability.OS) as opened:
        opened.create_topic("t")
        opened.log("t").append_many([b"x"] * 20)
        yield opened


# ---- close ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [None, "g"])
def test_close_of_a_consumer_or_producer_of_a_closed_store_does_nothing(store: Store, group: str | None) -> None:
    busy, may_end = threading.Event(), threading.Event()
    consumer = store.consumer("t", group_id=group, auto_offset_reset="earliest", value_deserializer=_waiting(busy, may_end))
    producer = store.producer()
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(consumer.poll(5))
            consumer.close()
        except ClosedError as error:
            ended.append(error)
            consumer.close()

    thread = threading.Thread(target=work)
    thread.start()
    busy.wait(30)
    store.close()
    may_end.set()
    thread.join(30)
    producer.close()
    consumer.close()
    assert len(ended) == 1


def _waiting(busy: threading.Event, may_end: threading.Event) -> Callable[[bytes], bytes]:
    def deserializer(value: bytes) -> bytes:
        busy.set()
        may_end.wait(30)
        return value

    return deserializer


def test_a_poll_during_the_close_of_its_store_says_that_it_is_closed_and_not_that_the_consumer_is_shared(store: Store) -> None:
    told: list[BaseException] = []
    consumer = store.consumer()

    class Polling(pylog.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: object) -> None:
            """Runs inside `Store.close`: another thread polls now."""

            def work() -> None:
                for call in (consumer.poll, consumer.close):
                    try:
                        call()
                    except BaseException as error:  # noqa: BLE001 - the test says which
                        told.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join(30)

        def on_partitions_assigned(self, assigned: object) -> None:
            pass

    consumer.subscribe(["t"], listener=Polling())
    consumer.poll(5)
    store.close()
    assert [type(error) for error in told] == [ClosedError]


def test_close_does_not_wait_for_a_lock_that_calls_of_other_threads_take_again_and_again(store: Store) -> None:
    manager = manager_of(store)
    with manager._guard:  # held by a call of this thread, while another one closes the store
        thread = threading.Thread(target=store.close)
        thread.start()
        for _ in range(3000):
            if manager.gate.is_shut:
                break
            threading.Event().wait(0.01)
        with pytest.raises(ClosedError):
            store.log("t")
    thread.join(30)
    assert manager.is_closed


def test_a_producer_made_during_close_has_no_thread_afterwards(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    end = store._upkeep.end

    def making() -> None:
        made.append(store.producer())
        end()

    with monkeypatch.context() as patch:
        patch.setattr(store._upkeep, "end", making)
        store.close()
    assert not [thread for thread in threading.enumerate() if "producer" in thread.name]
    with pytest.raises(ClosedError):
        made[0].send("t", b"x")


def test_the_members_of_a_set_to_which_threads_add_are_found() -> None:
    class Member: ...

    members: LiveSet[Member] = LiveSet()
    kept = [Member() for _ in range(50)]
    for each in kept:
        members.add(each)
    ended = threading.Event()

    def add() -> None:
        while not ended.is_set():
            members.add(Member())  # which nobody keeps
            late = Member()
            members.add(late)

    threads = [threading.Thread(target=add) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(2000):
            assert {*map(id, kept)} <= {*map(id, members.members())}
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        for thread in threads:
            thread.join()
    assert sorted(map(id, members.members())) == sorted(map(id, kept))


# ---- delete_topic ------------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[pylog.Log], object]] = {
    "append": lambda log: log.append(b"x"),
    "read": lambda log: log.read(0),
    "records": lambda log: list(log.records()),
    "end_offset": lambda log: log.end_offset,
    "flush": lambda log: log.flush(),
    "delete_records": lambda log: log.delete_records(1),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(0),
    "wait_for": lambda log: log.wait_for(1 << 40, 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_log_whose_topic_this_store_deleted_says_so_and_not_that_the_store_is_closed(store: Store, name: str) -> None:
    log = store.log("t")
    store.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
        CALLS[name](log)
    store.create_topic("t")
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
        CALLS[name](log)


def test_a_gate_of_something_deleted_says_so_even_if_it_is_shut_again() -> None:
    gate = Gate("t-0", "/s/t-0")
    gate.shut("t-0 was deleted")
    gate.shut()
    with pytest.raises(UnknownTopicOrPartitionError), gate:
        pass
    with pytest.raises(UnknownTopicOrPartitionError):
        gate.explain(OSError("Bad file descriptor"))


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("deleted", [False, True])
def test_code_that_took_a_logs_writer_before_the_close_gets_its_error_and_opens_no_file_again(
    tmp_path: Path, written: bool, deleted: bool
) -> None:
    store = pylog.open(tmp_path / "s", durability=Durability.OS)
    store.create_topic("t")
    writer = writer_of(store.log("t"))
    if written:
        store.log("t").append(b"x")
    store.delete_topic("t") if deleted else store.close()
    expected = UnknownTopicOrPartitionError if deleted else ClosedError
    for block in (writer.inspecting, writer.current, writer.changing, writer.exclusively):
        with pytest.raises(expected), block():  # type: ignore[operator]
            pytest.fail("the log is closed")
    for call in (writer.ready_writer, writer.agree, lambda: open_producers_now(writer)):
        with pytest.raises(expected):
            call()
    before = writer.writer
    writer.release()
    assert writer.writer is before, "a writer was made, or closed twice"
    store.close()


@pytest.mark.slow
def test_calls_for_all_partitions_pass_over_a_topic_that_another_thread_deletes(store: Store) -> None:
    wrong: list[str] = []
    ended = threading.Event()

    def work(call: Callable[[], Any]) -> None:
        while not ended.is_set():
            try:
                report = call()
                if hasattr(report, "ok") and not report.ok:
                    wrong.append(str(report))
            except Exception as error:  # noqa: BLE001 - each is what the test looks for
                wrong.append(repr(error))

    def in_turn() -> Any:
        return next(calls)()

    calls = itertools.cycle((store.tick, store.flush, store.metrics, store.verify))
    threads = [threading.Thread(target=work, args=(in_turn,))]
    deadline = time.monotonic() + 3
    for thread in threads:
        thread.start()
    while time.monotonic() < deadline:
        store.create_topic("goes", retention_ms=1000)
        store.log("goes").append(b"x", key=b"k", timestamp=1000)
        store.delete_topic("goes")
    ended.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize("call", ["compact", "tick"])
@pytest.mark.pair("compaction", "close")
@pytest.mark.parametrize("end", ["delete_topic", "its beginning", "close"])
def test_a_compaction_passes_over_a_topic_that_is_deleted_meanwhile_and_says_that_the_store_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, end: str
) -> None:
    store = pylog.open(tmp_path / "s", durability=Durability.OS)
    store.create_topic("t", cleanup_policy="compact", segment_bytes=500, min_cleanable_dirty_ratio=0.01)
    for number in range(60):
        store.log("t").append(b"x" * 50, key=b"%d" % (number % 3))
    rewrite = CleaningRound._swap
    log = store.log("t")
    ends: dict[str, Callable[[], object]] = {
        "delete_topic": lambda: store.delete_topic("t"),
        "its beginning": lambda: engine_of(log).close(deleted=True),  # before the directory is renamed
        "close": store.close,
    }

    def ended_meanwhile(cleaning: Any, *given: Any) -> Any:
        monkeypatch.undo()
        ends[end]()
        return rewrite(cleaning, *given)

    monkeypatch.setattr(CleaningRound, "_swap", ended_meanwhile)
    with pytest.raises(ClosedError) if end == "close" else nullcontext():  # it goes on with the other partitions
        getattr(store, call)(*["t"] * (call == "compact"))
    store.close()


def test_a_check_finds_nothing_in_a_topic_that_is_deleted_and_created_again_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.log("t").delete_records(10)
    read = check.read_checkpoints

    def deleted_meanwhile(*given: Any) -> Any:
        monkeypatch.undo()
        ends = read(*given)
        store.delete_topic("t")
        store.create_topic("t")
        store.log("t").append(b"x")
        return ends

    monkeypatch.setattr(check, "read_checkpoints", deleted_meanwhile)
    report = store.check()
    assert report.ok, str(report)
