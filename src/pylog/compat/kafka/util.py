"""The helpers of kafka-python that programs use: checks of topic names, and timers."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from pylog.clock import SystemClock
from pylog.compat.kafka import errors

_CLOCK: Final = SystemClock()
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def ensure_valid_topic_name(topic: Any) -> None:
    """Checks the name of a topic.

    Raises:
        TypeError: it is not text. ValueError: it breaks Kafka's rule.

    >>> ensure_valid_topic_name("orders")
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic's name is text, not {type(topic).__name__}")
    if topic in (".", "..") or not _LEGAL.fullmatch(topic):
        raise ValueError(
            f"{topic!r} is not a topic name: it has 1 to 249 of the characters a-z A-Z 0-9 . _ -, and is not . or .."
        )


class Timer:
    """Counts down from a number of milliseconds.

    Args:
        timeout_ms: milliseconds; None never ends.
        error_message: the text of the error of `maybe_raise`.
        start_at: seconds of the monotonic clock; by default now.
    """

    def __init__(self, timeout_ms: float | None, error_message: str | None = None, start_at: float | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._error_message = error_message
        self._start = start_at or _CLOCK.monotonic()
        self._end = math.inf if timeout_ms is None else self._start + timeout_ms / 1000

    @property
    def expired(self) -> bool:
        """True once the time is over."""
        return _CLOCK.monotonic() >= self._end

    @property
    def timeout_ms(self) -> float | None:
        """The milliseconds that are left; None without an end."""
        if self._timeout_ms is None or self._end == math.inf:
            return self._timeout_ms
        return max(0, int((self._end - _CLOCK.monotonic()) * 1000))

    @property
    def timeout_secs(self) -> float | None:
        """The same in seconds."""
        left = self.timeout_ms
        return None if left is None else left / 1000

    @property
    def elapsed_ms(self) -> int:
        """The milliseconds since the start."""
        return int((_CLOCK.monotonic() - self._start) * 1000)

    def maybe_raise(self) -> None:
        """Raises KafkaTimeoutError once the time is over."""
        if self.expired:
            raise errors.KafkaTimeoutError(self._error_message)

    def __str__(self) -> str:
        return f"Timer({self.timeout_ms} ms remaining)"
