"""Committing for a consumer: at once, in the background with a future and a callback, or now and then by itself."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import takewhile
from typing import NamedTuple, Protocol

from pylog import limits
from pylog.clock import Clock
from pylog.errors import PylogError, without_frames
from pylog.groups.member import GroupMember
from pylog.offsets.store import PartitionLike
from pylog.record.ahead import Worker
from pylog.record.types import OffsetAndMetadata

LOGGER = logging.getLogger("pylog")
Offsets = Mapping[PartitionLike, int | OffsetAndMetadata]
Callback = Callable[[Offsets, BaseException | None], object]


class Standing(NamedTuple):
    """A consumer's membership at some moment. A commit belongs to the membership in which it was asked for.

    Attributes:
        member: of a group; None where partitions were chosen.
        member_id: its id at that moment; joining again gives another one.
    """

    member: GroupMember | None
    member_id: str


class _Pending:
    """A commit in the background.

    Once it is done its thread's results hold it, until the consumer takes it from there. By then nothing of it holds the
    consumer, so that one that nobody has any more is collected: callbacks are not kept here, and an error has no frames.

    Attributes:
        offsets: asked for; once it is done, those that were committed.
        chosen: as for `Assignment.commit`.
        standing: the membership in which it was asked for.
    """

    def __init__(self, offsets: Offsets, future: Future[None], *, chosen: bool, standing: Standing) -> None:
        self.offsets = offsets
        self.chosen = chosen
        self.standing: Standing | None = standing
        self._future: Future[None] | None = future
        self._error: BaseException | None = None

    def goes_with(self, other: _Pending) -> bool:
        """Whether one append may do for both."""
        return (self.chosen, self.standing) == (other.chosen, other.standing)

    def begin(self) -> bool:
        """Whether it is still wanted: its future may have been cancelled."""
        assert self._future is not None
        if self._future.set_running_or_notify_cancel():
            return True
        self._error = CancelledError()
        self._future = self.standing = None
        return False

    def end(self, committed: Offsets, error: BaseException | None = None) -> None:
        """Says what became of it."""
        future, self._future, self.standing = self._future, None, None
        assert future is not None
        self._error = error
        if error is not None:
            future.set_exception(error)
            return
        self.offsets = {place: offset for place, offset in self.offsets.items() if place in committed}
        future.set_result(None)

    def call_back(self, callbacks: dict[_Pending, Callback]) -> None:
        """Tells the callback, if there is one."""
        if callback := callbacks.pop(self, None):
            callback(self.offsets, self._error)


class _Mark:
    """Comes back after all commits that were asked for before it."""

    is_back = False


class Write(Protocol):
    """What writes a commit; see `Assignment.commit`."""

    def __call__(self, offsets: Offsets, *, chosen: bool, standing: Standing | None = None) -> Offsets: ...


class _Queue:
    """Commits that wait for the thread. Those that wait together are written as one: of each partition the newest offset.

    Args:
        write: commits offsets.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: deque[_Pending] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, pending: _Pending) -> None:
        """Has it wait."""
        self._waiting.append(pending)

    def carry_out(self, mark: _Mark | None = None) -> tuple[list[_Pending], _Mark | None]:
        """Commits what waits, in the other thread; what comes back is to call back, then the mark."""
        done = []
        while self._waiting:
            done.append(self._waiting.popleft())
        wanted = [each for each in done if each.begin()]
        while wanted:
            together = list(takewhile(wanted[0].goes_with, wanted))
            self._commit(together)
            del wanted[: len(together)]
        return done, mark

    def _commit(self, together: list[_Pending]) -> None:
        offsets: dict[PartitionLike, int | OffsetAndMetadata] = {}
        for each in together:
            offsets |= each.offsets
        try:
            committed = self._write(offsets, chosen=together[0].chosen, standing=together[0].standing)
        except BaseException as error:  # noqa: BLE001 - the futures raise it
            if len(together) > 1:  # one of them may be to blame, and the others are not
                for each in together:
                    self._commit([each])
                return
            without_frames(error)
            together[0].end({}, error)
        else:
            for each in together:
                each.end(committed)


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
        self._queue = _Queue(write)
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

    def commit_async(self, offsets: Offsets, callback: Callback | None, *, chosen: bool, standing: Standing) -> Future[None]:
        """Commits in the background, as the member that the consumer is now. Waits while too many others wait."""
        while len(self._queue) >= limits.COMMITS_WAITING:
            self._clock.sleep(limits.LONG_NAP)
        future: Future[None] = Future()
        pending = _Pending(offsets, future, chosen=chosen, standing=standing)
        if callback is not None:
            self._callbacks[pending] = callback
        self._asked = True  # before it is: an interrupt may come behind that
        self._queue.add(pending)
        if not self._worker.ask(self._queue.carry_out):  # there can be no more threads
            self.finish()
        return future

    def run_callbacks(self) -> None:
        """Calls the callbacks of what is done, in the order in which it was asked for."""
        while self._worker.has_result:
            self._take_in(self._worker.result()[0])

    def _take_in(self, done: list[_Pending]) -> None:
        """Calls the callbacks of what is done: all of them, also if some raise. The first error is raised."""
        errors = list[Exception]()
        for pending in done:
            try:
                pending.call_back(self._callbacks)
            except Exception as error:  # noqa: BLE001 - raised when all were called
                errors.append(error)
        if errors:
            raise errors[0]

    def finish(self) -> None:
        """Waits for what was asked for, and calls its callbacks: all of them, also if some raise. The first error is raised."""
        sought, errors = _Mark(), list[Exception]()
        if self._asked and self._worker.ask(partial(self._queue.carry_out, sought)):
            while not sought.is_back:  # a callback that finishes too may have met it
                done, mark = self._worker.result()
                if mark is not None:
                    mark.is_back = True
                try:
                    self._take_in(done)
                except Exception as error:  # noqa: BLE001 - raised when all were called
                    errors.append(error)
            self._asked = False
        elif self._asked:  # there is no thread
            self.run_callbacks()
            self._take_in(self._queue.carry_out()[0])
        if errors:
            raise errors[0]
        self.run_callbacks()

    def abandon(self) -> None:
        """Waits for what was asked for, calls no callback, and ends the thread.

        The garbage collector clears weak references before it calls finalizers, so the thread may have ended by itself already.
        """
        self._callbacks.clear()
        self._worker.end()
        self._queue.carry_out()

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
