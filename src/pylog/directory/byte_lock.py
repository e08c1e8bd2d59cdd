"""`ByteLock`: one byte of `pylog.lock` and its mutex, taken in turns by processes. `locks` has all locks of a store."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Final, Self

from pylog.clock import Clock
from pylog.errors import ClosedError, StorageFailedError, StoreLockedError
from pylog.fs import LockByte

_SESSIONS: Final = itertools.count(1)  # one for each time that a lock is entered
_NAPS: Final = (0.00002, 0.00005, *[0.00003] * 150, 0.0002, 0.0005, 0.001)  # short ones first: most appends take 0.03 ms
_ASK_S: Final = 0.00015  # between two checks for a waiting process: more often would slow down each append
_GIVE_WAY_S: Final = 0.002  # longer than a nap of a process that waits
_STOPPED_S: Final = 0.2  # until the next check, if the waiting process did not take its turn: it may be stopped
LONGEST_NAP_S: Final = _NAPS[-1]


class ByteLock:
    """One byte of `pylog.lock` and its mutex; a reentrant context manager.

    The system gives a free byte to the process that asks first, so a process that appends in a loop would keep it from all
    others. So a process that waits holds a second byte, its queue. A process that enters checks this byte from time to time, and
    lets the waiting process take its turn. A waiting process that is stopped delays the others by one part in a hundred.

    Args:
        byte: the byte; None if an exclusive store holds all of them.
        what: the name of what it protects, for messages.
        clock: for waiting.
        timeout: seconds to wait.
        queue: the byte that the next waiting process holds; None if they do not take turns.

    Raises:
        StoreLockedError: on entering, if another process or thread holds the lock for longer than the timeout.
    """

    def __init__(self, byte: LockByte | None, what: str, clock: Clock, timeout: float, queue: LockByte | None = None) -> None:
        self._byte = byte
        self._queue = queue
        self._ask_at = 0.0 if queue is not None else math.inf  # when to check the queue next
        self._what = what
        self._clock = clock
        self._monotonic = clock.monotonic
        self._timeout = timeout
        self._mutex = threading.RLock()
        self._is_inside: Callable[[], bool] = self._mutex._is_owned  # type: ignore[attr-defined]
        self._depth = 0
        self.session = 0

    @property
    def depth(self) -> int:
        """The number of times this thread has entered."""
        return self._depth if self._is_inside() else 0

    def __enter__(self) -> Self:
        if not self.enter():
            raise self.refused()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave()

    def enter(self, began: float = 0.0) -> bool:
        """Enters. Returns False if the lock was not free before the timeout.

        Args:
            began: the clock's seconds when the caller began to wait, if it has waited for something else before; 0 for now.
        """
        if self._is_inside() and self._depth:
            self._depth += 1
        elif self._begin(True, began):
            self._depth = 1
        else:
            return False
        return True

    def leave(self) -> None:
        """Leaves, after each `enter`."""
        self._depth -= 1
        if not self._depth:
            self._leave()

    def is_late(self, began: float) -> bool:
        """Returns whether a caller has waited for the whole timeout."""
        return self._monotonic() - began >= self._timeout

    def try_enter(self) -> bool:
        """Enters if the lock is free or held by this thread; does not wait."""
        if not self.depth and not self._begin(False):
            return False
        self._depth += 1
        return True

    def _begin(self, wait: bool, began: float = 0.0) -> bool:
        """Takes the mutex and the byte. Returns False, with neither taken, if one is held. An interrupt also leaves neither."""
        taken = False
        try:
            held = self._mutex.acquire(False)
            if not held and wait:
                began = began or self._monotonic()
                held = self._mutex.acquire(timeout=max(began + self._timeout - self._monotonic(), 0))
            if held:
                self._depth = 0
                byte = self._byte
                now = self._monotonic()
                if now >= self._ask_at:
                    self._take_turns(wait, now)
                taken = byte is None or byte.try_take() or (wait and self._wait_for(byte, began))
            if taken:
                self.session = next(_SESSIONS)
            return taken
        finally:
            if not taken:
                self.restore(0)

    def _wait_for(self, byte: LockByte, began: float) -> bool:
        """Waits in short naps for a byte that another process holds, for the rest of the timeout."""
        deadline = (began or self._monotonic()) + self._timeout
        queue, naps, nap = self._queue, iter(_NAPS), 0.0
        is_next = queue is None
        try:
            while self._monotonic() < deadline:
                if queue is not None and not is_next:
                    is_next = queue.try_take()
                nap = next(naps, nap)
                self._clock.sleep(nap)
                if byte.try_take():
                    return True
            return False
        finally:
            if queue is not None:
                queue.release()  # also after an interrupt that came as it was taken

    def _take_turns(self, wait: bool, now: float) -> None:
        """Lets another process that waits take the byte first. `wait` is false for a caller that must not wait."""
        queue = self._queue
        self._ask_at = now + _ASK_S
        if queue is None or not queue.is_held():
            return
        until, nap = now + _GIVE_WAY_S, _NAPS[0]
        while wait and queue.is_held():
            if self._monotonic() >= until:
                self._ask_at = until + _STOPPED_S
                return
            self._clock.sleep(nap)

    def refused(self) -> StoreLockedError:
        """Returns the error for a caller that has waited for the whole timeout."""
        return StoreLockedError(
            f"another process or thread has been changing {self._what} for {self._timeout:g} s; try again, or raise "
            "lock_timeout_ms",
            path=self._what,
        )

    def restore(self, depth: int) -> None:
        """Leaves until this thread has entered `depth` times. An interrupt may come as `__exit__` begins: the code that catches
        it must call this, or other threads would wait for a thread that has left.
        """
        if self._is_inside():
            self._depth = depth
            if not depth:
                self._leave()

    def _leave(self) -> None:
        self.session = 0
        try:
            if self._byte is not None:
                self._byte.release()
        except (ClosedError, StorageFailedError):
            pass  # by a fork, or by `Store.close` after its longest wait: this process no longer holds the lock
        self._mutex.release()

    @contextlib.contextmanager
    def if_free(self) -> Iterator[bool]:
        """Yields whether the lock is free, also of this thread. If so, it stays held until the context ends."""
        inside = self.depth > 0
        with self.entered_if_free() as free:
            yield free and not inside

    @contextlib.contextmanager
    def entered(self, began: float = 0.0) -> Iterator[None]:
        """Enters, and leaves even if an interrupt comes as `leave` begins. For callers that do not call `restore`.

        Args:
            began: as for `enter`.
        """
        with self._restored():
            if not self.enter(began):
                raise self.refused()
            try:
                yield
            finally:
                self.leave()

    @contextlib.contextmanager
    def entered_if_free(self) -> Iterator[bool]:
        """Enters if the lock is free, without waiting. Yields whether it did."""
        with self._restored():
            yield self.try_enter()

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        before = self.depth
        try:
            yield
        finally:
            try:
                self.restore(before)
            except BaseException:  # an interrupt as `__exit__` began
                self.restore(before)
                raise
