"""Committing for a consumer: at once, in the background with a future and a callback, or now and then by itself."""

from __future__ import annotations

import logging
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Protocol

from pylog import limits
from pylog.clock import Clock
from pylog.errors import PylogError
from pylog.offsets.store import Place
from pylog.record.ahead import Worker
from pylog.record.types import OffsetAndMetadata

LOGGER = logging.getLogger("pylog")
Offsets = Mapping[Place, int | OffsetAndMetadata]
Callback = Callable[[Offsets, BaseException | None], object]


class _Pending:
    """A commit in the background. The future is its caller's: nothing here waits for its lock, which an interrupt can keep."""

    def __init__(self, write: Callable[[Offsets], Offsets], offsets: Offsets, callback: Callback | None) -> None:
        self._write = write
        self._offsets = offsets
        self._callback = callback
        self._error: BaseException | None = None
        self._signal = allocate_lock()  # held until it is done
        self._signal.acquire()
        self.future: Future[None] = Future()
        self.is_done = False

    def carry_out(self) -> None:
        """Commits, in the other thread."""
        try:
            self._resolve()
        finally:
            self.is_done = True
            self._signal.release()

    def _resolve(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            self._error = CancelledError()
            return
        try:
            self._offsets = self._write(self._offsets)
        except BaseException as error:  # noqa: BLE001 - the future raises it
            self._error = error
            self.future.set_exception(error)
        else:
            self.future.set_result(None)

    def wait(self) -> None:
        """Waits until it is done; once only, or again after an interrupt."""
        if not self.is_done:
            self._signal.acquire()

    def call_back(self) -> None:
        """Tells the callback."""
        if self._callback is not None:
            self._callback(self._offsets, self._error)


class Write(Protocol):
    """What writes a commit; see `Assignment.commit`."""

    def __call__(self, offsets: Offsets, *, chosen: bool) -> Offsets: ...


class Commits:
    """Commits of one consumer, whose thread calls every method. They are done in the order in which they were asked for.

    Args:
        write: commits offsets; from another thread too, one call at a time.
        clock: for the automatic ones.
        interval_ms: between two automatic ones; None: there are none.
        retention_minutes: how long offsets are kept.
    """

    def __init__(self, write: Write, clock: Clock, interval_ms: int | None, retention_minutes: int) -> None:
        self._write = write
        self._clock = clock
        self._interval = None if interval_ms is None else interval_ms / 1000
        self._again = min(limits.COMMIT_AGAIN_SECONDS, retention_minutes * 60 / 4)
        self._pending: deque[_Pending] = deque()
        self._worker = Worker("pylog-commits")
        self._due = clock.monotonic() + (self._interval or 0)
        self._written: Offsets = {}  # by the last automatic commit
        self._written_at = 0.0

    def commit(self, offsets: Offsets, *, chosen: bool) -> None:
        """Commits, after everything that was asked for before."""
        self.finish()
        if offsets:
            self._write(offsets, chosen=chosen)

    def commit_async(self, offsets: Offsets, callback: Callback | None, *, chosen: bool) -> Future[None]:
        """Commits in the background."""
        pending = _Pending(partial(self._write, chosen=chosen), offsets, callback)
        if not self._worker.ask(pending.carry_out):  # there can be no more threads
            self.finish()
            pending.carry_out()
        self._pending.append(pending)
        return pending.future

    def run_callbacks(self) -> None:
        """Calls the callbacks of what is done, in the order in which it was asked for."""
        while self._pending and self._pending[0].is_done:
            self._pending.popleft().call_back()

    def finish(self) -> None:
        """Waits for what was asked for, and calls its callbacks."""
        while self._pending:
            self._pending[0].wait()
            self._pending.popleft().call_back()

    # ---- automatic -----------------------------------------------------------------------------------------------------------

    @property
    def are_due(self) -> bool:
        """Whether it is time for an automatic commit."""
        return self._interval is not None and self._clock.monotonic() >= self._due

    def auto_commit(self, offsets: Offsets) -> None:
        """Commits if there are automatic commits; what fails is logged, and tried again at the next one.

        What has not moved is committed now and then, so that it does not expire.
        """
        now = self._clock.monotonic()
        if self._interval is None:
            return
        self._due = now + self._interval
        if not offsets or (offsets == self._written and now - self._written_at < self._again):
            return
        try:
            self.commit(offsets, chosen=False)
        except PylogError as error:
            LOGGER.warning("an automatic commit failed: %s", error)
        else:
            self._written, self._written_at = offsets, now

    def stop(self) -> None:
        """Commits nothing by itself any more."""
        self._interval = None

    def close(self) -> None:
        """Waits for what was asked for, and ends the thread."""
        try:
            self.finish()
        finally:
            self._worker.end()
