"""`cleaner_io_max_bytes_per_second` is the rate of all compactions of a store together."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.errors import ClosedError
from pylog.log.maintenance.throttler import Throttle

NOW = 1_700_000_000_000


@pytest.mark.slow
@pytest.mark.parametrize("how", ["tick", "clean"])
def test_many_topics_are_compacted_at_the_rate_of_one(tmp_path: Path, how: str) -> None:
    def seconds(topics: int) -> float:
        clock = ManualClock(NOW)
        path = tmp_path / str(topics)
        with pylog.open(path, clock=clock, durability=pylog.Durability.OS, cleaner_io_max_bytes_per_second=10_000.0) as store:
            for number in range(topics):
                name = f"t{number}"
                store.create_topic(name, cleanup_policy="compact", segment_bytes=2_000, min_cleanable_dirty_ratio=0.01)
                for _ in range(20):
                    store.log(name).append_many([(b"k%d" % key, b"x" * 100) for key in range(5)])
            clock.sleep(3600)  # a store that rested has saved up nothing
            begun = clock.monotonic()
            if how == "tick":
                store.tick()
            else:
                for number in range(topics):
                    store.compact(f"t{number}")
            return clock.monotonic() - begun

    one, four = seconds(1), seconds(4)
    assert one > 0.5
    assert 3.5 * one < four < 4.5 * one


def test_threads_share_the_rate() -> None:
    clock = ManualClock(NOW)
    throttle = Throttle(clock, 1000.0, lambda: False)
    threads = [threading.Thread(target=throttle.passed, args=(500,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.monotonic() >= 4.0


def test_without_a_rate_nothing_waits_and_a_closed_store_ends_the_wait() -> None:
    clock, ended = ManualClock(NOW), threading.Event()
    Throttle(clock, None, ended.is_set).passed(1 << 60)
    assert clock.monotonic() == ManualClock(NOW).monotonic()
    ended.set()
    for rate in (None, 1.0):
        with pytest.raises(ClosedError):
            Throttle(clock, rate, ended.is_set).passed(1 << 60)
