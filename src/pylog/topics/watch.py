"""Decides when to list the topics again: at once after a change by the same store, otherwise after an interval."""

from __future__ import annotations

from collections.abc import Callable

from pylog import limits


class TopicsWatch:
    """Tells a client of a store when topics may have changed.

    Args:
        changes: counts the changes of topics by the client's own store.
        interval_ms: how often other processes' changes are checked; `limits.TOPICS_AGE_S` if that is shorter.
    """

    def __init__(self, changes: Callable[[], int], interval_ms: float) -> None:
        self._count = changes
        self._interval = min(interval_ms / 1000, limits.TOPICS_AGE_S)
        self._due = 0.0
        self._changes = -1

    def is_due(self, now: float) -> bool:
        """Returns whether to list the topics now, by a clock that never goes back, in seconds."""
        return now >= self._due or self._changes != self._count()

    def checked(self, now: float, changes: int) -> None:
        """Notes that the topics were listed.

        Args:
            now: as for `is_due`.
            changes: the count before they were listed, so that a later change is due.
        """
        self._due, self._changes = now + self._interval, changes

    def expire(self) -> None:
        """Makes the next listing due at once."""
        self._due = 0.0
