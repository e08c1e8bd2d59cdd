"""Keeps small objects in memory, up to a bound for the whole process. Objects never change, so nothing in it becomes stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from pylog import limits
from pylog.fs import on_fork


class SmallObjects:
    """The last small objects that were read, by URL.

    Args:
        most_bytes: the most bytes that all of them take.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._size = 0
        self._kept: OrderedDict[str, bytes | None] = OrderedDict()
        self._guard = threading.Lock()
        on_fork(self)

    def forked(self) -> None:
        """Starts empty in a child: another thread may have held the lock."""
        self._size, self._kept, self._guard = 0, OrderedDict(), threading.Lock()

    def get(self, url: str, fetch: Callable[[], bytes | None]) -> bytes | None:
        """Returns an object, which is fetched if it is not kept. Two threads may both fetch it."""
        with self._guard:
            if url in self._kept:
                self._kept.move_to_end(url)
                return self._kept[url]
        found = fetch()
        with self._guard:
            self._forget(url)
            if len(found or b"") <= self._most:
                self._kept[url] = found
                self._size += _cost(url, found)
            while self._size > self._most:
                self._forget(next(iter(self._kept)))
        return found

    def _forget(self, url: str) -> None:
        if url in self._kept:
            self._size -= _cost(url, self._kept.pop(url))


def _cost(url: str, data: bytes | None) -> int:
    return len(url) + len(data or b"") + 200


SMALL_OBJECTS: Final = SmallObjects(limits.REMOTE_CACHE_BYTES)
