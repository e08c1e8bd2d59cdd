"""The only reader of time. The engine takes a `Clock` and asks it; tests pass one that stands still."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall-clock milliseconds, as Kafka stamps them; and a clock that never goes back, for waiting."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float:
        """Seconds from some moment on."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The system's clocks.

    >>> SystemClock().now_ms() > 1_600_000_000_000
    True
    """

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # as it is: an append asks for it several times

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to, or waited for: for tests.

    >>> clock = ManualClock(5)
    >>> clock.advance(10)
    >>> clock.sleep(0.002)
    >>> clock.now_ms()
    17
    """

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms: float = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._now_ms)

    def monotonic(self) -> float:
        """Seconds from some moment on."""
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        """Moves the clock on."""
        self._now_ms += 1000 * seconds

    def advance(self, ms: int) -> None:
        """Moves the clock on."""
        self._now_ms += ms
