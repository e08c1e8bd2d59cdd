"""The bytes of a log in an object store."""

from __future__ import annotations

from typing import Final, Protocol

from pylog.errors import CorruptionError


class RangeSource(Protocol):
    """Reads ranges of a log.

    Attributes:
        url: the URL of the object with the log, for errors.
        grain: reads that begin at multiples of it, in bytes, waste nothing.
    """

    @property
    def url(self) -> str: ...

    @property
    def grain(self) -> int: ...

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns the bytes of the log from `position` to before `end`, all of them.

        Raises:
            CorruptionError: the object is damaged. ObjectStoreError: it cannot be read.
        """
        ...


class MissingLog:
    """Stands for a segment that should be there. Reading it raises, so that no reader passes over its offsets.

    Args:
        url: the log's URL, for errors.
        partition: its name.
        first, end: the offsets that are missing.
        where: the predicate of the message, as in "are in no segment of the archive".
    """

    grain: int = 1
    size: Final = 64  # bytes; none of them can be read

    def __init__(self, url: str, partition: str, first: int, end: int, where: str) -> None:
        self.url = url
        self._first, self._end = first, end
        self._message = f"the offsets {first} to {end - 1} of {partition} {where}"

    def read(self, position: int, end: int) -> memoryview | bytes:  # noqa: ARG002 - as `RangeSource` has it
        """Raises CorruptionError."""
        advice = f"restore its objects, or continue at offset {self._end}"
        message = f"{self._message}; {advice}"
        raise CorruptionError(message, path=self.url, position=0, offset=self._first, next_offset=self._end)
