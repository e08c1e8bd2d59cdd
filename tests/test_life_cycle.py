"""Clients and stores that are dropped without `close`: their work is finished, their threads end, and a warning names them."""

from __future__ import annotations

import gc
import os
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pylog
from support import warm
from support.engines import buffer_of, departing_of, producers_of

MANY = 50
PATIENCE = 60.0
NAMES = ("pylog-producer", "pylog-dropped", "pylog-fetcher", "pylog-commits", "pylog-background")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    with pylog.open(tmp_path / "d", durability=pylog.Durability.OS) as made:
        made.create_topic("t")
        yield made


@contextmanager
def warned_of(what: str, times: int = 1) -> Iterator[None]:
    """So many warnings name what was dropped, and no other warning comes."""
    with pytest.warns(ResourceWarning) as found:
        yield
    told = [str(each.message) for each in found]
    assert len(told) == times
    assert all(each.startswith(what) and "close" in each for each in told)


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true that other threads see to."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if each.name.startswith(NAMES))


def no_thread_more(before: list[str]) -> bool:
    """True if all threads that are there were there before; one of an earlier test may have ended meanwhile."""
    return Counter(threads()) <= Counter(before)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


# ---- producers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fifty_dropped_producers_append_what_was_sent_and_leave_no_thread_and_no_descriptor(store: pylog.Store) -> None:
    store.log("t")
    gc.collect()
    before, held = threads(), descriptors()
    with warned_of("a producer of the store", MANY):
        for number in range(MANY):
            store.producer().send("t", b"%d" % number)
    assert comes_true(lambda: no_thread_more(before) and not producers_of(store))
    assert sorted(int(record.value) for record in store.log("t").records()) == list(range(MANY))
    assert descriptors() < held + 10  # the log's own, of its first append and reading


@pytest.mark.slow
def test_a_producer_that_is_dropped_in_a_cycle_is_flushed_when_the_cycle_is_collected(store: pylog.Store) -> None:
    class Program:
        def __init__(self) -> None:
            self.producer = store.producer(value_serializer=self.encoded, partitioner=self.chosen, linger_ms=60_000)
            self.future = self.producer.send("t", "value", on_delivery=self.delivered)

        def encoded(self, value: str) -> bytes:
            return value.encode()

        def chosen(self, key: bytes | None, partitions: list[int], available: list[int]) -> int:
            return partitions[0]

        def delivered(self, error: Exception | None, metadata: pylog.RecordMetadata | None) -> None: ...

    before = threads()

    program = Program()
    future = program.future
    del program
    assert future.done() is False  # it lingers, and its callback refers to the producer
    producers_of(store)[0].buffer.flush(None)
    with warned_of("a producer of the store"):
        gc.collect()
    assert comes_true(lambda: no_thread_more(before))
    assert future.result().offset == 0


def test_a_future_outlives_the_producer_that_was_dropped(store: pylog.Store) -> None:
    with warned_of("a producer of the store"):
        future = store.producer(linger_ms=60_000).send("t", b"value")
    assert future.result(PATIENCE).offset == 0


def test_a_producer_that_its_own_thread_drops_ends(store: pylog.Store) -> None:
    before, held = threads(), [store.producer()]
    dropped = threading.Event()

    def drop(*_: object) -> None:
        held.clear()
        dropped.set()

    with warned_of("a producer of the store"):
        held[0].send("t", b"value", on_delivery=drop)
        assert dropped.wait(PATIENCE)
        assert comes_true(lambda: no_thread_more(before))


def test_dropping_a_producer_waits_for_no_lock_that_another_thread_holds(store: pylog.Store) -> None:
    producer = store.producer()
    buffer = buffer_of(producer)
    locked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with buffer._lock:
            locked.set()
            assert go_on.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(PATIENCE)
    with warned_of("a producer of the store"):
        del producer  # waits for nothing
    go_on.set()
    holder.join()
    assert comes_true(lambda: buffer.is_closed)


@pytest.mark.slow
def test_a_producer_that_is_dropped_after_its_store_was_closed_draws_no_warning(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "d") as store:
        store.create_topic("t")
        producer = store.producer()
        producer.send("t", b"value")
    del producer
    gc.collect()


def test_closing_the_store_waits_for_dropped_producers(tmp_path: Path) -> None:
    with warned_of("a producer of the store", MANY), pylog.open(tmp_path / "d", durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        for _ in range(MANY):
            store.producer().send("t", b"value")
    with pylog.open(tmp_path / "d", mode="r") as store:
        assert store.log("t").end_offset == MANY


# ---- consumers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fifty_dropped_consumers_leave_no_thread_no_member_and_no_descriptor(store: pylog.Store) -> None:
    store.log("t").append_many([b"x"] * 2_000)
    store.offsets.commit("g", {("t", 0): 0})
    gc.collect()
    before, held = threads(), descriptors()
    with warned_of("a consumer of the store", MANY):
        for _ in range(MANY):
            consumer = store.consumer("t", group_id="g", auto_offset_reset="earliest", max_poll_records=10)
            consumer.poll()
            consumer.commit_async()
            del consumer
    assert comes_true(lambda: no_thread_more(before) and not departing_of(store))
    assert store.group("g").describe().state == "Empty"
    assert descriptors() < held + 10  # the logs' own


def test_the_partitions_of_a_dropped_consumer_are_its_successors_at_once_and_nothing_is_skipped(store: pylog.Store) -> None:
    store.log("t").append_many([b"x"] * 15)
    told = []

    def handle() -> list[int]:
        """As a web handler does: it reads a little, commits, and returns."""
        consumer = store.consumer("t", group_id="g", auto_offset_reset="earliest", max_poll_records=5)
        while not (found := consumer.poll(100)):
            pass
        consumer.commit()
        consumer.poll()  # which nobody commits: it is handed out again
        (records,) = found.values()
        return [record.offset for record in records]

    with warned_of("a consumer of the store", 3):
        for _ in range(3):
            told += handle()
    assert told == list(range(15))


def test_a_dropped_consumer_carries_out_the_commits_that_it_was_asked_for_and_calls_no_code_of_the_user(
    store: pylog.Store,
) -> None:
    store.log("t").append_many([b"x"] * 10)
    called: list[object] = []

    class Listener(pylog.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[pylog.TopicPartition]) -> None:
            called.append(revoked)

    with warned_of("a consumer of the store"):
        consumer = store.consumer(group_id="g", auto_offset_reset="earliest")
        consumer.subscribe(["t"], listener=Listener())
        consumer.poll(max_records=4)
        for offset in range(1, 5):
            consumer.commit_async({("t", 0): offset}, lambda *told: called.append(told))
        del consumer
    assert comes_true(lambda: not departing_of(store))
    assert store.offsets.position("g", ("t", 0)) == 4
    assert not called


@pytest.mark.slow
def test_a_consumer_that_is_dropped_in_a_cycle_with_its_listener_leaves_when_the_cycle_is_collected(store: pylog.Store) -> None:
    store.log("t").append_many([b"x"] * 10)

    class Program(pylog.ConsumerRebalanceListener):
        def __init__(self) -> None:
            self.consumer = store.consumer(group_id="g", auto_offset_reset="earliest", value_deserializer=self.text)
            self.consumer.subscribe(["t"], listener=self)
            self.consumer.poll(max_records=3)
            self.consumer.commit_async(callback=self.committed)

        def text(self, value: bytes) -> str:
            return value.decode()

        def committed(self, *_: object) -> None:
            self.consumer.poll()

    gc.collect()
    before = threads()
    Program()
    with warned_of("a consumer of the store"):  # not before its commit is done, which another thread does
        assert comes_true(lambda: gc.collect() >= 0 and no_thread_more(before) and not departing_of(store))
    assert store.group("g").describe().state == "Empty"
    assert store.offsets.position("g", ("t", 0)) == 3


@pytest.mark.slow
def test_a_consumer_abandoned_by_an_exception_leaves_its_group(store: pylog.Store) -> None:
    store.log("t").append_many([b"x"] * 10)

    def fail() -> None:
        for _ in store.consumer("t", group_id="g", auto_offset_reset="earliest"):
            raise ValueError("of the program")

    with warned_of("a consumer of the store"):
        with pytest.raises(ValueError, match="of the program"):
            fail()
        gc.collect()
    assert comes_true(lambda: not departing_of(store))
    assert store.group("g").describe().state == "Empty"


@pytest.mark.slow
def test_closing_the_store_waits_until_dropped_consumers_have_left(tmp_path: Path) -> None:
    with warned_of("a consumer of the store", MANY), pylog.open(tmp_path / "d", durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        for number in range(MANY):
            store.consumer("t", group_id=f"g{number % 5}").poll()
    with pylog.open(tmp_path / "d") as store:
        assert {store.group(name).describe().state for name in store.groups()} <= {"Empty"}


@pytest.mark.slow
def test_a_consumer_whose_making_failed_draws_no_warning(store: pylog.Store) -> None:
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.consumer("none", group_id="g")
    gc.collect()


@pytest.mark.slow
def test_a_consumer_without_a_group_ends_its_threads_too(store: pylog.Store) -> None:
    store.log("t").append_many([b"x" * 1000] * 5_000)
    before = threads()
    with warned_of("a consumer of the store", MANY):
        for _ in range(MANY):
            store.consumer("t", auto_offset_reset="earliest").poll()
    assert comes_true(lambda: no_thread_more(before))


# ---- the end of a process ----------------------------------------------------------------------------------------------------


def in_a_program(directory: Path, text: str) -> str:
    """What a program of its own prints, on both streams."""
    done = warm.run(["-W", "default::ResourceWarning", "-c", textwrap.dedent(text), directory], timeout=PATIENCE, check=True)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_records_sent_to_a_dropped_producer_are_in_the_log_when_the_interpreter_has_ended(tmp_path: Path) -> None:
    told = in_a_program(
        tmp_path / "d",
        """
        import sys, pylog
        store = pylog.open(sys.argv[1])
        store.create_topic("t")
        for number in range(20):
            store.producer(linger_ms=60_000).send("t", b"value")
        kept = store.producer(linger_ms=60_000)
        kept.send("t", b"value")
        """,
    )
    assert "ResourceWarning: a producer of the store" in told
    with pylog.open(tmp_path / "d", mode="r") as store:
        assert store.log("t").end_offset == 21


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_that_drops_its_parents_clients_does_nothing_to_them(tmp_path: Path) -> None:
    told = in_a_program(
        tmp_path / "d",
        """
        import gc, os, sys, warnings, pylog
        store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
        store.create_topic("t")
        clients = [store.producer(linger_ms=60_000), store.consumer("t", group_id="g", auto_offset_reset="earliest")]
        clients[0].send("t", b"value")
        clients[1].poll()
        child = os.fork()
        if not child:
            warnings.simplefilter("error")
            sys.unraisablehook = lambda error: os._exit(3)
            clients.clear()
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        clients[0].flush()
        assert [len(records) for records in clients[1].poll(10_000).values()] == [1]
        clients[1].commit()
        for client in clients:
            client.close()
        store.close()
        print("right")
        """,
    )
    assert told.endswith("right\n")
