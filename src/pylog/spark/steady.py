"""Retries reads of logs whose files another process deletes at the same time: the next attempt finds the current files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pylog.errors import StorageFailedError

Result = TypeVar("Result")

ATTEMPTS = 10  # attempts while compaction or retention replaces files faster than they can be read


def steadily(act: Callable[[], Result]) -> Result:
    """Returns the result of `act`, which is called again if retention or a compaction deletes a file during the call.

    Args:
        act: reads logs, from the beginning each time.

    Raises:
        What `act` raises: another error, or the same again and again.

    >>> steadily(lambda: 7)
    7
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return act()
        except StorageFailedError as error:
            from pylog.segment.segment import vanished  # with the engine, which most plans do without

            if not vanished(error):
                raise
    return act()
