"""Provides the time. The engine takes a `Clock`; tests pass one that stands still."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock milliseconds, as Kafka stamps records, and a monotonic clock for waiting."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary moment."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The operating system's clocks.

    >>> SystemClock().now_ms() > 1_600_000_000_000
    True
    """

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # not wrapped: an append calls it several times

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)


class ManualClock:
    """A clock for tests, which moves only by `advance` and `sleep`.

    >>> clock = ManualClock(5)
    >>> clock.advance(10)
    >>> clock.sleep(0.002)
    >>> clock.now_ms()
    17
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms: float = now_ms

    def now_ms(self) -> int:
        """Returns milliseconds since the epoch."""
        return int(self._now_ms)

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary moment."""
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Moves the clock forward."""
        self._now_ms += 1000 * seconds

    def advance(self, ms: int) -> None:
        """Moves the clock forward."""
        self._now_ms += ms


class RareCheck:
    """Tells when a check of `Store.tick` is due by the wall clock: never at first, as in Kafka, and then once in an interval.

    Args:
        interval_ms: the interval, in milliseconds.

    >>> check = RareCheck(100)
    >>> check.is_due(0), check.is_due(99), check.is_due(100)
    (False, False, True)
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._next_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Returns whether the check is due now, and then waits for the next one."""
        due = self._next_ms
        if due is not None and due - self._interval_ms <= now_ms < due:  # earlier: the clock was ahead the last time
            return False
        self._next_ms = now_ms + self._interval_ms
        return due is not None
