"""Times as people write them, and as commands print them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def time_text(timestamp: int) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC; None for none (-1), and the number where the calendar ends.

    >>> time_text(1_706_716_800_000), time_text(-1), time_text(2**62)
    ('2024-01-31T16:00:00.000Z', None, '4611686018427387904')
    """
    if timestamp < 0:
        return None
    try:
        return (_EPOCH + timestamp * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(timestamp)
