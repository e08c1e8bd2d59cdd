"""Records when a segment was appended to, as far as that is known.

A record without a timestamp has the time of its append. The process that appends notes its store's clock. For a segment that was
opened, the file's modification time is used: a writer that seals or closes a segment sets it to the time of the last append.

All these times are upper bounds: a record may be older than its segment's last append, but never younger. An impossible time (0,
or one in the future) counts as the moment it was noticed, so that no record is taken for older than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class Examined(NamedTuple):
    """The result of reading a segment's timestamps.

    Attributes:
        size: bytes that were read.
        now_ms: the wall clock at that time, in milliseconds.
        untimed: a record has no timestamp, or may have none.
        newest_ms: the largest timestamp that was not in the future.
    """

    size: int
    now_ms: int
    untimed: bool
    newest_ms: int


class AppendTimesAtFirstUse:
    """Has each segment make its `AppendTimes` at their first use: opening makes many segments, and few of them are asked.

    Two threads may be first: `setdefault` gives both the same object. Later uses find the attribute itself, at no cost.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, segment: HasModificationTime, owner: type) -> AppendTimes:
        times: AppendTimes = vars(segment).setdefault(self._name, AppendTimes(segment.mtime_ms))
        return times


class HasModificationTime(Protocol):
    """A segment as it was found."""

    mtime_ms: int


class AppendTimes:
    """The times of a segment's appends, in milliseconds since 1970.

    Args:
        file_ms: modification time of the segment's file; 0 or less if unknown.

    Attributes:
        begun_ms: when the segment was begun, or earlier; None if unknown.

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
        self._recent = 0  # the last append, or its substitute, by the clock of that time: for a clock that was set back
        self._others_ms = 0  # when another process's appends were discovered
        self._modified: Callable[[], int] | None = None
        self.begun_ms: int | None = None

    @classmethod
    def of_several(cls, parts: Iterable[AppendTimes]) -> AppendTimes:
        """Returns the times of a segment that replaces several others: their last append."""
        known = [part.file_ms for part in parts]
        return cls(max(known) if all(time > 0 for time in known) else 0)

    @property
    def file_ms(self) -> int:
        """The time of the last append, to be set as the file's modification time; 0 if unknown."""
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
        """Notes that appends of another process were discovered: they happened before now.

        Args:
            now_ms: the wall clock.
            modified: returns the file's modification time; called only if the time of the append matters, or if the clock was set
                back.
        """
        self._recent = self._others_ms = now_ms
        self._modified = modified
        if now_ms < self._latest:  # the clock was set back: the next append overwrites their time in the file
            self._take_others()

    def last(self, now_ms: int) -> int:
        """Returns a time at or after that of the last append, and not after now.

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
        """Takes the time of another process's appends from the file.

        A time before that of a known append is not theirs: they count from their discovery. A time after the discovery is theirs
        if the clock was set back before it. Until the clock reaches that time, `last` returns that of the discovery.
        """
        modified = 0 if self._modified is None else self._modified()
        self._latest = modified if modified >= self._latest else max(self._latest, self._others_ms)
        self._others_ms = 0
