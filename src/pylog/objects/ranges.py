"""The bytes of a log in an object store."""

from __future__ import annotations

from typing import Protocol


class RangeSource(Protocol):
    """Reads ranges of a log.

    Attributes:
        url: of the object with the log, for errors.
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
