"""Numbers, times and states as people read them. Pages have the exact value in a title."""

from __future__ import annotations

from typing import Final

from pylog import text
from pylog.groups.health import Verdict
from pylog.times import time_text

_UNITS: Final = ((31_536_000, "year"), (86_400, "day"), (3_600, "hour"), (60, "min"))
VERDICTS: Final = {
    Verdict.OK: ("ok", "ok"),
    Verdict.WARN: ("warn", "falling behind"),
    Verdict.DOOMED: ("warn", "will lose records"),
    Verdict.REWIND: ("bad", "went back"),
    Verdict.STALL: ("bad", "stands still"),
    Verdict.STOP: ("bad", "stopped"),
    Verdict.DAMAGED: ("bad", "damaged"),
    Verdict.LOST: ("bad", "lost records"),
}
TRENDS: Final = {"rising": "↗ growing", "falling": "↘ shrinking", "steady": "→ steady"}


def count(number: float) -> str:
    """Returns a number with its thousands separated.

    >>> count(4812330), count(0.42), count(12.7)
    ('4,812,330', '0.4', '13')
    """
    return f"{number:,.0f}" if number == int(number) or number >= 10 else f"{number:.1f}"


def counted(number: int, noun: str) -> str:
    """Returns a number with its thousands separated, and its noun.

    >>> counted(1, "offset"), counted(4812, "partition")
    ('1 offset', '4,812 partitions')
    """
    return text.counted(number, noun, ",")


def seconds(duration: float | None) -> str:
    """Returns a duration in the largest unit that fits.

    >>> seconds(0.42), seconds(42), seconds(840), seconds(90_000), seconds(None)
    ('0.4 s', '42 s', '14 min', '1 day', 'unknown')
    >>> seconds(3 * 365 * 86_400.0)
    '3 years'
    """
    if duration is None:
        return "unknown"
    for size, name in _UNITS:
        if duration >= size:
            whole = int(duration // size)
            return f"{whole} {name}" + ("s" if whole > 1 and name != "min" else "")
    return f"{count(round(duration, 1))} s" if duration < 10 else f"{duration:.0f} s"


def age(timestamp: int, now_ms: int) -> str:
    """Returns how long ago a time was.

    >>> age(1_000, 4_000), age(-1, 4_000), age(4_000, 4_100)
    ('3 s ago', 'none', 'now')
    """
    if timestamp < 0:
        return "none"
    passed = (now_ms - timestamp) / 1000
    return "now" if passed < 1 else f"{seconds(passed)} ago"


def exact(timestamp: int) -> str:
    """Returns a timestamp as ISO 8601 in UTC, or as a number if the calendar does not have it."""
    return "no timestamp" if timestamp < 0 else time_text(timestamp) or str(timestamp)
