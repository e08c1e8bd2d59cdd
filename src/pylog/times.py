"""Timestamps and durations as text: the forms of ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from pylog.errors import InvalidArgumentError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DURATION: Final = re.compile(  # the grammar of Java's `Duration.parse`, which accepts at most 19 digits too
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d{1,19})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d{1,19})H)?(?:(?P<minutes>[-+]?\d{1,19})M)?"
    r"(?:(?P<seconds>[-+]?\d{1,19})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def timestamp_of(given: object) -> int | None:
    """Returns the timestamp (milliseconds since 1970) of a datetime with a time zone; None for any other object.

    >>> timestamp_of(datetime(2024, 1, 31, 16, tzinfo=UTC)), timestamp_of(datetime(2024, 1, 31, 16)), timestamp_of(5.0)
    (1706716800000, None, None)
    """
    if not isinstance(given, datetime) or given.utcoffset() is None:
        return None
    return (given - _EPOCH) // _MILLISECOND


def timestamp_problem(given: object) -> str:
    """Returns why an object is not a timestamp, for the end of a message, and how it would be one."""
    if isinstance(given, datetime):
        return "has no time zone; give it one, as in datetime.now(UTC)"
    if isinstance(given, float):
        return "is not an int; give milliseconds since 1970: int(seconds * 1000)"
    return "is not an int; give milliseconds since 1970, or a datetime with a time zone"


def time_text(timestamp: int) -> str | None:
    """Returns a timestamp (milliseconds since 1970) as ISO 8601 text in UTC.

    Returns:
        The text; None for a negative timestamp (-1 means that there is none); the number itself after the year 9999.

    >>> time_text(1_706_716_800_000), time_text(-1), time_text(2**62)
    ('2024-01-31T16:00:00.000Z', None, '4611686018427387904')
    """
    if timestamp < 0:
        return None
    try:
        return (_EPOCH + timestamp * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(timestamp)


def duration_text(milliseconds: int) -> str:
    """Returns a duration in the largest unit that divides it.

    >>> duration_text(604_800_000), duration_text(90_000), duration_text(60_000), duration_text(1)
    ('7 days', '90 seconds', '1 minute', '1 millisecond')
    """
    unit, size = next(
        ((unit, size) for unit, size in _UNITS_MS.items() if milliseconds and milliseconds % size == 0), ("milliseconds", 1)
    )
    count = milliseconds // size
    return f"{count} {unit.removesuffix('s') if count == 1 else unit}"


def rounded_duration_text(milliseconds: int) -> str:
    """Returns a duration in the largest unit that it reaches, rounded down.

    >>> rounded_duration_text(7_261_000), rounded_duration_text(59_999), rounded_duration_text(1)
    ('2 hours', '59 seconds', '1 millisecond')
    """
    size = next((size for size in _UNITS_MS.values() if milliseconds >= size), 1)
    return duration_text(milliseconds // size * size)


def milliseconds_of(duration: object) -> int:
    """Returns the length of a duration in milliseconds, rounded towards zero.

    Args:
        duration: a `timedelta`, or text that Java's `Duration.parse` accepts: days, hours, minutes and seconds.

    Raises:
        InvalidArgumentError: `duration` is neither.

    >>> milliseconds_of("PT1H30M"), milliseconds_of("-P1DT0.5S")
    (5400000, -86400500)
    """
    if isinstance(duration, timedelta):
        return duration // _MILLISECOND
    found = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if found is None or not any(found[unit] for unit in _UNITS_MS) or (found["time"] or "").upper() == "T":
        raise InvalidArgumentError(f"{duration!r} is not a timedelta, or text such as P2DT3H4M or PT0.5S")
    milliseconds = sum(int(found[unit] or 0) * scale for unit, scale in _UNITS_MS.items())
    fraction = int((found["fraction"] or "").ljust(3, "0")[:3])
    signed = milliseconds + (-fraction if (found["seconds"] or "").startswith("-") else fraction)
    return -signed if found["sign"] == "-" else signed
