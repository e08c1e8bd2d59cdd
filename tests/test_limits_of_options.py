"""Each option works at the largest value that it takes, and no error of a task ends a background thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pylog
from pylog import Durability, Store, limits
from pylog.background import Background, Failures
from pylog.consumer.options import ConsumerOptions
from pylog.offsets.offset_manager import OffsetManager
from pylog.options import RANGES
from pylog.store import manager_of
from pylog.testing import MemoryFileSystem

PATIENCE = 20


@pytest.fixture(autouse=True)
def _threads_live() -> Iterator[None]:
    """No thread ends with an error."""
    ended: list[object] = []
    before, threading.excepthook = threading.excepthook, lambda given: ended.append(given.exc_value)
    yield
    threading.excepthook = before
    assert ended == []


def opened(**options: Any) -> Store:
    store = pylog.open("/s", fs=MemoryFileSystem(), **options)
    store.create_topic("t", cleanup_policy="compact", segment_bytes=300)
    for _ in range(9):
        store.log("t").append(b"x" * 100, key=b"k")
    return store


@pytest.mark.parametrize("name", RANGES)
def test_each_option_of_a_store_works_at_its_largest_value_and_is_refused_beyond_it(name: str) -> None:
    with opened(**{name: RANGES[name][1]}) as store:
        store.compact("t")
        store.tick()
        store.log("t").append(b"y", key=b"k")
        flushed_in_time(store)
    with pytest.raises(pylog.InvalidArgumentError, match=name):
        opened(**{name: RANGES[name][1] + 1})


def flushed_in_time(store: Store) -> None:
    """The background thread is there: what it promised comes."""
    store.create_topic("u")
    log = store.log("u")
    log.append(b"x", durability=Durability.INTERVAL(20))
    assert log.wait_for(0, PATIENCE * 1000, durable=True) == 1


def test_the_longest_interval_of_one_topic_takes_nothing_from_the_level_of_another() -> None:
    with opened() as store:
        store.log("t").append(b"x", key=b"k", durability=Durability.INTERVAL(limits.INT64_MAX))
        flushed_in_time(store)
        assert manager_of(store).failures.count == 0


def integers() -> list[str]:
    """The options of a consumer that are whole numbers."""
    return [
        name
        for name, field in ConsumerOptions.__dataclass_fields__.items()
        if isinstance(field.default, int) and field.default > 1
    ]


@pytest.mark.parametrize("name", integers())
def test_each_option_of_a_consumer_works_at_the_largest_value_that_it_takes(name: str) -> None:
    with opened() as store:
        for largest in (limits.INT64_MAX, limits.INT32_MAX):
            try:
                with store.consumer("t", group_id="g", auto_offset_reset="earliest", **{name: largest}) as consumer:
                    assert consumer.poll(1000)
                    consumer.commit()
                    consumer.poll(1)
                break
            except pylog.InvalidArgumentError as error:
                refused = str(error)
                assert str(limits.INT32_MAX) in refused


@pytest.mark.parametrize("timeout", [limits.INT64_MAX, 10**30])
def test_waiting_takes_timeouts_of_any_size(timeout: int) -> None:
    with opened() as store:
        log = store.log("t")
        assert log.wait_for(0, timeout) == 9
        assert next(log.follow(0, timeout_ms=timeout)).num_rows > 0
        with store.consumer("t", auto_offset_reset="earliest") as consumer:
            assert consumer.poll(timeout)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "of pylog": lambda: pylog.StorageFailedError("no"),
    "of a callback": lambda: ValueError("no"),
    "a number that is too large": lambda: OverflowError("no"),
    "want of memory": MemoryError,
    "an exit": lambda: SystemExit(1),
    "an interrupt": KeyboardInterrupt,
}


class _Raising(logging.Handler):
    """A handler of log messages that fails."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError(record.getMessage())


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("logged", [True, False], ids=["logged", "the handler fails"])
def test_whatever_a_task_raises_is_counted_and_the_others_go_on(
    kind: str, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failures, went_on = Failures(), threading.Event()
    background = Background(failures)
    runs: list[None] = []

    def fail() -> None:
        runs.append(None)
        error = ERRORS[kind]()
        raise error

    def other() -> None:
        if len(runs) >= 3:
            went_on.set()

    handler = _Raising()
    if not logged:
        logging.getLogger("pylog").addHandler(handler)
    try:
        background.every("fails", 1, fail)
        background.every("other", 1, other)
        assert went_on.wait(PATIENCE)
    finally:
        background.end()
        logging.getLogger("pylog").removeHandler(handler)
    assert failures.count == len(runs) >= 3
    assert not logged or "in the background" in caplog.text


def test_failures_in_the_background_are_a_metric_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(OffsetManager, "expire_if_due", failing)
    with opened(tick_interval_ms=1) as store:
        before = [sample.value for sample in store.metrics() if sample.name == "background_failures"]
        for _ in range(PATIENCE * 100):
            found = {sample.name: sample for sample in store.metrics()}["background_failures"]
            if found.value > before[0]:
                break
            threading.Event().wait(0.01)
        assert found.value > before[0]
        assert "pylog_background_failures_total{} " in pylog.metrics.exposition([found])
        flushed_in_time(store)
