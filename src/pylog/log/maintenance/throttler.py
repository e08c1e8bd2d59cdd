"""Limits the rate of compactions, like Kafka's `Throttler`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pylog.clock import Clock
from pylog.errors import (
    ClosedError,
)


class Throttle:
    """Limits the total rate of a store's compactions, and ends them when the store closes. Thread-safe.

    Args:
        clock: for waiting.
        rate: bytes a second, read and written; None for no limit. Idle time is not made up for.
        ended: true while the store is being closed.
    """

    def __init__(self, clock: Clock, rate: float | None, ended: Callable[[], bool]) -> None:
        self._clock = clock
        self._rate = rate
        self._ended = ended
        self._guard = threading.Lock()
        self._paid = clock.monotonic()  # the time to which the bytes so far are paid for

    def passed(self, size: int) -> None:
        """Counts bytes, and waits as the rate requires.

        Raises:
            ClosedError: the store is being closed.
        """
        due = self._due(size)
        while True:
            if self._ended():
                raise ClosedError("the store was closed during compaction; unfinished segments are discarded")
            early = due - self._clock.monotonic()
            if early <= 0:
                return
            self._clock.sleep(min(early, 0.1))

    def _due(self, size: int) -> float:
        """Returns when this thread may continue, after the bytes of all earlier calls."""
        now = self._clock.monotonic()
        if self._rate is None:
            return now
        with self._guard:
            self._paid = max(self._paid, now) + size / self._rate
            return self._paid
