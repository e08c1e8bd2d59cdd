"""A lock for each name in use: threads use a transactional id one after the other, and hold up no other id."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _NamedLock:
    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0  # of the threads that have the lock, or wait for it


class NamedLocks:
    """A lock for each name in use.

    >>> locks = NamedLocks()
    >>> with locks.of("one"), locks.of("two"):
    ...     len(locks)
    2
    >>> len(locks)
    0
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, _NamedLock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Waits until no other thread is inside the context of the same name."""
        with self._guard:
            entry = self._locks.setdefault(name, _NamedLock())
            entry.count += 1
        try:
            with entry.lock:
                yield
        finally:
            with self._guard:
                entry.count -= 1
                if not entry.count:
                    self._locks.pop(name, None)
