"""When records were appended to a segment, as far as that is known.

A record without a timestamp has the time of its append. The process that appends notes its store's clock. Of a segment that was
opened the file's modification time is known: a writer that seals or closes a segment sets it to the time of the last append.

All of these are upper bounds: a record may be older than its segment's last append, never younger. A time that cannot be right, 0
or one in the future, counts as the moment in which it was noticed, so that nothing is taken for older than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Examined(NamedTuple):
    """What reading a segment's timestamps has found.

    Attributes:
        size: bytes that were read.
        now_ms: the wall clock at that time, in milliseconds.
        untimed: a record has no timestamp, or that cannot be excluded.
        newest_ms: the largest timestamp that was not in the future.
    """

    size: int
    now_ms: int
    untimed: bool
    newest_ms: int


class AppendTimes:
    """The times of a segment's appends, in milliseconds since 1970.

    Args:
        file_ms: modification time of the segment's file; 0 or less if it is not known.

    Attributes:
        begun_ms: when the segment was begun, or before; None if that is not known.

    >>> times = AppendTimes(5000)
    >>> times.last(9000), times.last(4000)
    (5000, 4000)
    >>> times.note(6000)
    >>> times.last(9000)
    6000
    """

    __slots__ = ("_latest", "_modified", "_others_ms", "_recent", "begun_ms")

    def __init__(self, file_ms: int) -> None:
        self._latest = file_ms
        self._recent = 0  # the last append, or what stands for it, as the clock went then: for a clock that was set back
        self._others_ms = 0  # when another process's appends were taken over
        self._modified: Callable[[], int] | None = None
        self.begun_ms: int | None = None

    @classmethod
    def of_several(cls, parts: Iterable[AppendTimes]) -> AppendTimes:
        """The times of a segment that takes the place of several others: that of their last append."""
        known = [part.file_ms for part in parts]
        return cls(max(known) if all(time > 0 for time in known) else 0)

    @property
    def file_ms(self) -> int:
        """The time of the last append for the file's modification time; 0 if it is not known."""
        return self._latest

    def note(self, now_ms: int) -> None:
        """Notes an append of this process. A clock that was set back makes no earlier append younger or older."""
        if now_ms > self._latest:
            self._latest = now_ms
        elif self.begun_ms is not None and now_ms < self.begun_ms:
            self.begun_ms = now_ms
        self._recent = now_ms
        self._others_ms = 0

    def note_others(self, now_ms: int, modified: Callable[[], int]) -> None:
        """Notes that appends of another process were taken over: they came before now.

        Args:
            now_ms: the wall clock.
            modified: gives the file's modification time, which is asked for only if the time of the append matters.
        """
        self._recent = self._others_ms = now_ms
        self._modified = modified

    def last(self, now_ms: int) -> int:
        """When the last record was appended: at that time or before, and not after now.

        Args:
            now_ms: the wall clock.
        """
        if self._others_ms:
            self._take_others()
        if 0 < self._latest <= now_ms:
            return self._latest
        if not 0 < self._recent <= now_ms:
            self._recent = now_ms
        return self._recent

    def _take_others(self) -> None:
        """Has the file tell when another process appended, if its time can be right."""
        modified = 0 if self._modified is None else self._modified()
        fits = self._latest <= modified <= self._others_ms
        self._latest = modified if fits else max(self._latest, self._others_ms)
        self._others_ms = 0
