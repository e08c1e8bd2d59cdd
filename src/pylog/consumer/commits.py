"""Committing for a consumer: at once, in the background with a future and a callback, or now and then by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Protocol

from pylog import limits
from pylog.clock import Clock
from pylog.errors import PylogError, without_frames
from pylog.offsets.store import Place
from pylog.record.ahead import Worker
from pylog.record.types import OffsetAndMetadata

LOGGER = logging.getLogger("pylog")
Offsets = Mapping[Place, int | OffsetAndMetadata]
Callback = Callable[[Offsets, BaseException | None], object]


class _Pending:
    """A commit in the background.

    Once it is done it lies where its thread holds it, until the consumer takes it from there. By then nothing of it holds the
    consumer, so that one that nobody has any more is collected: what writes is let go, callbacks are not kept here, and an error
    has no frames.
    """

    def __init__(self, write: Callable[[Offsets], Offsets], offsets: Offsets, future: Future[None]) -> None:
        self._job: tuple[Callable[[Offsets], Offsets], Future[None]] | None = (write, future)
        self._offsets = offsets
        self._error: BaseException | None = None

    def carry_out(self) -> _Pending:
        """Commits, in the other thread, unless the future was cancelled; what comes back is to call back."""
        assert self._job is not None
        (write, future), self._job = self._job, None
        if not future.set_running_or_notify_cancel():
            self._error = CancelledError()
            return self
        try:
            self._offsets = write(self._offsets)
        except BaseException as error:  # noqa: BLE001 - the future raises it
            without_frames(error)
            self._error = error
            future.set_exception(error)
        else:
            future.set_result(None)
        return self

    def call_back(self, callbacks: dict[_Pending, Callback]) -> None:
        """Tells the callback, if there is one."""
        if callback := callbacks.pop(self, None):
            callback(self._offsets, self._error)


class _Mark:
    """Comes back behind all commits that were asked for before it."""

    is_back = False

    def carry_out(self) -> _Mark:
        return self

    def call_back(self, _: object) -> None:
        self.is_back = True


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
        self._worker = Worker("pylog-commits")
        self._callbacks: dict[_Pending, Callback] = {}
        self._asked = False  # it may be at something
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
        future: Future[None] = Future()
        pending = _Pending(partial(self._write, chosen=chosen), offsets, future)
        if callback is not None:
            self._callbacks[pending] = callback
        self._asked = True  # before it is: an interrupt may come behind that
        if not self._worker.ask(pending.carry_out):  # there can be no more threads
            self.finish()
            pending.carry_out().call_back(self._callbacks)
        return future

    def run_callbacks(self) -> None:
        """Calls the callbacks of what is done, in the order in which it was asked for."""
        while self._worker.has_result:
            self._worker.result().call_back(self._callbacks)

    def finish(self) -> None:
        """Waits for what was asked for, and calls its callbacks: all of them, also if some raise. The first error is raised."""
        mark, errors = _Mark(), list[Exception]()
        if self._asked and self._worker.ask(mark.carry_out):
            while not mark.is_back:  # a callback that finishes too may have met it
                try:
                    self._worker.result().call_back(self._callbacks)
                except Exception as error:  # noqa: BLE001 - raised when all were called
                    errors.append(error)
            self._asked = False
        if errors:
            raise errors[0]
        self.run_callbacks()

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
