"""Records that were refused, and whose outcome no call asked for: the log says how many, where and why, once."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import pylog
from pylog.aio import AsyncProducer
from pylog.producer import failures
from pylog.testing import FaultyFileSystem, MemoryFileSystem
from support.engines import buffer_of

LOGGER = "pylog.producer"


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem(MemoryFileSystem())


@pytest.fixture
def store(fs: FaultyFileSystem) -> Iterator[pylog.Store]:
    """A store whose disk gets full."""
    store = pylog.open("/d", fs=fs)
    store.create_topic("t", partition_count=2)
    store.create_topic("u")
    for log in (store.log("t", 0), store.log("t", 1), store.log("u")):
        log.append(b"there is room")
    fs.fail("write ENOSPC", 1, forever=True)
    yield store
    fs.heal()
    store.close()


def sent(producer: pylog.Producer) -> list[pylog.FutureRecordMetadata]:
    return [
        *(producer.send("t", b"0", partition=0) for _ in range(3)),
        *(producer.send("t", b"1", partition=1) for _ in range(2)),
        producer.send("u", b"2"),
    ]


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == LOGGER and each.levelno == logging.ERROR]


def by_flush(store: pylog.Store) -> None:
    producer = store.producer()
    sent(producer)
    producer.flush()
    producer.close()


def by_close(store: pylog.Store) -> None:
    producer = store.producer(linger_ms=60_000)
    sent(producer)
    producer.close()


def by_leaving_the_block(store: pylog.Store) -> None:
    with store.producer(linger_ms=60_000) as producer:
        sent(producer)


def by_closing_the_store(store: pylog.Store) -> None:
    producer = store.producer(linger_ms=60_000)
    sent(producer)
    with suppress(pylog.StorageFailedError):  # the disk is still full
        store.close()


def by_dropping(store: pylog.Store) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        producer = store.producer(linger_ms=60_000)
        futures = sent(producer)
        thread = buffer_of(producer).waiting.sender
        assert thread is not None
        del producer
        gc.collect()
        thread.join()
    assert all(future.done() for future in futures)


def by_closing_the_asynchronous_one(store: pylog.Store) -> None:
    async def produce() -> None:
        async with AsyncProducer(store.producer(linger_ms=60_000)) as producer:
            sent(producer._producer)

    asyncio.run(produce())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "end", [by_flush, by_close, by_leaving_the_block, by_closing_the_store, by_dropping, by_closing_the_asynchronous_one]
)
def test_whichever_way_a_producer_ends_the_log_says_once_how_many_sends_failed_where_and_why(
    store: pylog.Store, caplog: pytest.LogCaptureFixture, end: Callable[[pylog.Store], None]
) -> None:
    end(store)
    (told,) = reports(caplog)
    assert told.startswith("6 records were sent but not acknowledged")
    assert all(each in told for each in ("t-0: 3 (StorageFailedError: ", "t-1: 2 (", "u-0: 1 (", "ENOSPC"))


def test_of_failed_sends_whose_outcome_was_asked_for_nothing_is_logged(
    store: pylog.Store, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Exception | None] = []
    with store.producer() as producer:
        futures = sent(producer)
        assert isinstance(futures[0].exception(), pylog.StorageFailedError)
        with pytest.raises(pylog.StorageFailedError):
            futures[1].result()
        futures[2].add_errback(told.append)
        with pytest.raises(pylog.StorageFailedError):
            futures[3].get()
        futures[4].exception()
        assert futures[4].failed()
        futures[5].exception()
        producer.send("t", b"told", on_delivery=lambda error, _: told.append(error))
    assert len(told) == 2
    assert not reports(caplog)


def test_a_report_counts_the_sends_that_no_call_has_asked_for_only(store: pylog.Store, caplog: pytest.LogCaptureFixture) -> None:
    with store.producer(linger_ms=60_000) as producer:
        futures = sent(producer)
        futures[0].add_callback(lambda _: None)  # is not called for errors, so it takes none
        futures[1].add_errback(lambda _: None)
    (told,) = reports(caplog)
    assert told.startswith("5 records")
    assert "t-0: 2 (" in told


def test_sends_that_coroutines_wait_for_are_not_reported(store: pylog.Store, caplog: pytest.LogCaptureFixture) -> None:
    async def produce() -> list[object]:
        async with AsyncProducer(store.producer()) as producer:
            sends = [producer.send_and_wait("t", b"x") for _ in range(5)]
            return await asyncio.gather(*sends, producer.flush(), return_exceptions=True)

    *errors, _ = asyncio.run(produce())
    assert {type(error) for error in errors} == {pylog.StorageFailedError}
    assert not reports(caplog)


def test_a_producer_that_never_flushes_reports_before_it_keeps_many_failures(
    store: pylog.Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_MOST_KEPT", 20)
    with store.producer() as producer:
        for _ in range(22):
            future = producer.send("u", b"x")
            while not future.done():
                time.sleep(0.001)
        assert reports(caplog)
        assert len(buffer_of(producer).failures._kept) < 10
    assert sum(int(each.split()[0]) for each in reports(caplog)) == 22


def test_a_record_that_comes_after_the_end_is_reported_too(store: pylog.Store, caplog: pytest.LogCaptureFixture) -> None:
    producer = store.producer(linger_ms=60_000)
    future = producer.send("t", b"x")
    producer.close(timeout=0)
    assert future.done()
    (told,) = reports(caplog)
    assert told.startswith("1 record")
