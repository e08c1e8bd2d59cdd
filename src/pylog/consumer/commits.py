"""Committing for a consumer: at once, in the background with a future and a callback, or now and then by itself."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pylog import limits
from pylog.clock import Clock
from pylog.errors import PylogError
from pylog.offsets.store import Place
from pylog.record.types import OffsetAndMetadata

LOGGER = logging.getLogger("pylog")
Offsets = Mapping[Place, int | OffsetAndMetadata]
Callback = Callable[[Offsets, BaseException | None], object]


class _Pending(NamedTuple):
    """A commit in the background."""

    offsets: Offsets
    done: Future[None]
    callback: Callback | None


class Commits:
    """Commits of one consumer, whose thread calls every method. They are done in the order in which they were asked for.

    Args:
        write: commits offsets; from another thread too, one call at a time.
        clock: for the automatic ones.
        interval_ms: between two automatic ones; None: there are none.
    """

    def __init__(self, write: Callable[[Offsets], None], clock: Clock, interval_ms: int | None) -> None:
        self._write = write
        self._clock = clock
        self._interval = None if interval_ms is None else interval_ms / 1000
        self._pending: deque[_Pending] = deque()
        self._executor: ThreadPoolExecutor | None = None
        self._due = clock.monotonic() + (self._interval or 0)
        self._written: Offsets = {}  # by the last automatic commit
        self._written_at = 0.0

    def commit(self, offsets: Offsets) -> None:
        """Commits, after everything that was asked for before."""
        self.finish()
        if offsets:
            self._write(offsets)

    def commit_async(self, offsets: Offsets, callback: Callback | None) -> Future[None]:
        """Commits in the background."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="pylog-commits")
        done = self._executor.submit(self._write, offsets)
        self._pending.append(_Pending(offsets, done, callback))
        return done

    def run_callbacks(self) -> None:
        """Calls the callbacks of what is done, in the order in which it was asked for."""
        while self._pending and self._pending[0].done.done():
            self._call_back(self._pending.popleft())

    def finish(self) -> None:
        """Waits for what was asked for, and calls its callbacks."""
        while self._pending:
            pending = self._pending.popleft()
            pending.done.exception()
            self._call_back(pending)

    @staticmethod
    def _call_back(pending: _Pending) -> None:
        if pending.callback is not None:
            pending.callback(pending.offsets, pending.done.exception())

    # ---- automatic -----------------------------------------------------------------------------------------------------------

    @property
    def are_due(self) -> bool:
        """Whether it is time for an automatic commit."""
        return self._interval is not None and self._clock.monotonic() >= self._due

    def auto_commit(self, offsets: Offsets) -> None:
        """Commits if there are automatic commits; what fails is logged, and tried again at the next one.

        What has not moved is committed once an hour, so that it does not expire.
        """
        now = self._clock.monotonic()
        if self._interval is None:
            return
        self._due = now + self._interval
        if not offsets or (offsets == self._written and now - self._written_at < limits.COMMIT_AGAIN_SECONDS):
            return
        try:
            self.commit(offsets)
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
            if self._executor is not None:
                self._executor.shutdown()
