"""The only reader of time. The engine takes a `Clock` and asks it; tests pass one that stands still."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock milliseconds, as Kafka stamps them."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The system's wall clock, in milliseconds since the epoch.

    >>> SystemClock().now_ms() > 1_600_000_000_000
    True
    """

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to, for tests.

    >>> clock = ManualClock(5)
    >>> clock.advance(10)
    >>> clock.now_ms()
    15
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
