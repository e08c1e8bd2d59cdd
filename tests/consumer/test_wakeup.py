"""`Consumer.wakeup`: ends a poll from another thread or a handler of a signal, once, and loses nothing."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import pylog
from pylog.aio import AsyncConsumer

LONG_MS = 60_000
T0 = pylog.TopicPartition("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[pylog.Store]:
    with pylog.open(tmp_path / "d", durability=pylog.Durability.OS) as made:
        made.create_topic("t")
        yield made


def by_poll(consumer: pylog.Consumer) -> int:
    return sum(map(len, consumer.poll(LONG_MS).values()))


def by_poll_arrow(consumer: pylog.Consumer) -> int:
    return sum(map(len, consumer.poll_arrow(LONG_MS).values()))


def by_iteration(consumer: pylog.Consumer) -> int:
    return sum(1 for _ in consumer)


def by_next(consumer: pylog.Consumer) -> int:
    return 1 if next(consumer) else 0


READS = [by_poll, by_poll_arrow, by_iteration, by_next]


def soon(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Timer(0.1, call)
    thread.start()
    return thread


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("group", [None, "g"])
def test_a_call_that_waits_ends_at_once(store: pylog.Store, read: Callable[[pylog.Consumer], int], group: str | None) -> None:
    with store.consumer("t", group_id=group) as consumer:
        thread, begin = soon(consumer.wakeup), time.monotonic()
        with pytest.raises(pylog.WakeupError):
            read(consumer)
        assert time.monotonic() - begin < 30
        thread.join()


@pytest.mark.parametrize("read", READS)
def test_a_wakeup_before_a_poll_is_remembered_once_and_what_was_there_is_returned_by_the_next(
    store: pylog.Store, read: Callable[[pylog.Consumer], int]
) -> None:
    store.log("t").append(b"x")
    with store.consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.wakeup()
        consumer.wakeup()
        with pytest.raises(pylog.WakeupError):
            read(consumer)
        assert read(consumer) == 1


def test_records_that_an_iteration_has_in_hand_are_not_lost(store: pylog.Store) -> None:
    store.log("t").append_many([b"x"] * 100)
    read = []
    with store.consumer("t", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        for number in range(5):
            with suppress(pylog.WakeupError):
                for record in consumer:
                    read.append(record.offset)
                    if number < 4:
                        consumer.wakeup()
        consumer.wakeup()
        with pytest.raises(pylog.WakeupError):
            next(consumer)
    assert read == list(range(100))


def test_a_handler_of_a_signal_ends_the_poll_of_its_own_thread(store: pylog.Store) -> None:
    store.log("t").append(b"x")
    with store.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        assert by_poll(consumer) == 1
        before = signal.signal(signal.SIGALRM, lambda *_: consumer.wakeup())
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(pylog.WakeupError):
                consumer.poll(LONG_MS)
        finally:
            signal.signal(signal.SIGALRM, before)
        consumer.commit()
        assert store.offsets.position("g", T0) == 1


def test_commits_and_other_calls_take_no_notice_of_it(store: pylog.Store) -> None:
    store.log("t").append(b"x")
    with store.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        by_poll(consumer)
        consumer.wakeup()
        consumer.commit()
        consumer.commit_async().result(60)
        assert consumer.position(T0) == 1
        consumer.seek(T0, 0)
        with pytest.raises(pylog.WakeupError):
            consumer.poll()
        assert by_poll(consumer) == 1


def test_closing_ends_it_and_a_closed_consumer_takes_it_without_a_word(store: pylog.Store) -> None:
    consumer = store.consumer("t")
    consumer.wakeup()
    consumer.close()
    consumer.wakeup()
    with pytest.raises(pylog.ClosedError):
        consumer.poll()


def test_many_wakeups_from_many_threads_lose_no_record(store: pylog.Store) -> None:
    store.log("t").append_many([b"x"] * 2_000)
    read: list[int] = []
    is_over = threading.Event()
    with store.consumer("t", auto_offset_reset="earliest", max_poll_records=7) as consumer:

        def wake() -> None:
            while not is_over.is_set():
                consumer.wakeup()
                time.sleep(0.0005)

        threads = [threading.Thread(target=wake) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(read) < 2_000:
            with suppress(pylog.WakeupError):
                for records in consumer.poll(50).values():
                    read += [record.offset for record in records]
        is_over.set()
        for thread in threads:
            thread.join()
    assert read == list(range(2_000))


def test_an_asynchronous_consumer_is_woken_too_and_a_cancelled_poll_does_not_swallow_it(store: pylog.Store) -> None:
    async def consume() -> int:
        async with AsyncConsumer(store.consumer("t", auto_offset_reset="earliest")) as consumer:
            poll = asyncio.ensure_future(consumer.poll(LONG_MS))
            await asyncio.sleep(0.05)
            consumer.wakeup()
            with pytest.raises(pylog.WakeupError):
                await poll
            poll = asyncio.ensure_future(consumer.poll(LONG_MS))
            await asyncio.sleep(0.05)
            poll.cancel()
            consumer.wakeup()
            with suppress(asyncio.CancelledError):
                await poll
            with pytest.raises(pylog.WakeupError):
                await consumer.poll(LONG_MS)
            store.log("t").append(b"x")
            return sum(map(len, (await consumer.poll(LONG_MS)).values()))

    assert asyncio.run(consume()) == 1
