"""The background thread of a store: performs the flushes of `Durability.INTERVAL`, and ticks if a tick interval is set.

It only calls functions that any caller may call, and nothing depends on when it runs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from functools import partial
from typing import Final

from pylog import trace
from pylog.errors import PylogError, StorageFailedError
from pylog.fs import on_fork, process_id
from pylog.threads import NO_THREAD, no_thread, started

LOGGER = logging.getLogger("pylog")
_LONGEST_NAP_S: Final = 3600.0  # the system's timed waits have a limit; for a later task the thread waits again
_AFTER_FAILURE_S: Final = 1.0  # pause after a failed wait


class Failures:
    """Counts and logs errors of background work, which no caller sees, for `Store.metrics`.

    Args:
        keep: is called with the number of errors and the last one, and notes them where other processes find them.

    Attributes:
        count: the number of errors.

    >>> failures = Failures()
    >>> failures.note(ValueError("no"))
    >>> failures.count
    1
    """

    def __init__(self, keep: Callable[[int, BaseException], None] | None = None) -> None:
        self.count = 0
        self._guard = threading.RLock()  # reentrant: a signal handler may note an error during another `note`
        self._keep = keep
        on_fork(self)

    def forked(self) -> None:
        """Replaces the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.RLock()

    def note(self, error: BaseException) -> None:
        """Counts and logs an error. Raises nothing, even if a log handler raises."""
        with self._guard:
            self.count += 1
        with contextlib.suppress(BaseException):
            if isinstance(error, PylogError):
                LOGGER.warning("in the background: %s", error)
            else:
                LOGGER.error("in the background, a task failed", exc_info=error)
        with contextlib.suppress(BaseException):
            if self._keep is not None:
                self._keep(self.count, error)


class Background:
    """Repeats tasks, each after its own interval, in one thread that starts with the first task.

    An error does not end the thread: it is noted, and the other tasks continue.

    Args:
        failures: collects the errors of tasks.
    """

    def __init__(self, failures: Failures | None = None) -> None:
        self._failures = Failures() if failures is None else failures
        self._guard = threading.Lock()
        self._wake: threading.Condition | None = None  # most stores need no thread
        self._tasks: dict[object, tuple[float, Callable[[], object]]] = {}
        self._due: dict[object, float] = {}
        self._now = 0.0  # sum of the thread's waits, so a task is late only by the time that tasks take
        self._thread: _Thread | None = None
        self._ended = False
        self._pid = process_id()

    def every(self, key: object, interval_ms: int, task: Callable[[], object]) -> None:
        """Runs a task repeatedly from now on. The shortest interval given for a key counts."""
        known = self._tasks.get(key)
        if known is not None and known[0] <= interval_ms / 1000:
            return
        with self._guard:
            if self._ended:
                return
            self._wake = wake = self._wake or threading.Condition(self._guard)
            self._thread = self._thread or _Thread(partial(self._run, wake), "pylog-background")
            self._thread.begin()  # before the task is stored: without a thread it would never run
            due = self._now + interval_ms / 1000
            if all(due < other for other in self._due.values()):
                wake.notify()  # also before: an interrupt in between only wakes the thread once too often
            self._tasks[key] = (interval_ms / 1000, task)
            self._due[key] = due

    def drop(self, key: object) -> None:
        """Drops a task and its references; it may still be running."""
        with self._guard:
            self._tasks.pop(key, None)
            self._due.pop(key, None)

    def _run(self, wake: threading.Condition) -> None:
        while not self._ended:
            try:
                for task in self._due_tasks(wake):
                    self._attempt(task)
            except BaseException as error:  # noqa: BLE001 - such as no memory: the thread continues
                self._failures.note(error)
                threading.Event().wait(_AFTER_FAILURE_S)

    def _due_tasks(self, wake: threading.Condition) -> list[Callable[[], object]]:
        """Waits until tasks are due. Returns none if the thread must end, or after a long wait."""
        with self._guard:
            nap = min(max(0.0, min(self._due.values()) - self._now), _LONGEST_NAP_S) if self._due else None
            if not self._ended:
                wake.wait(nap)
            if self._ended:
                return []
            # the full wait, even if an earlier task was added meanwhile: a task may run early, but not late
            self._now += nap or 0.0
            due = [(key, self._tasks[key]) for key, due in self._due.items() if due <= self._now]
            for key, (interval, _) in due:
                self._due[key] = self._now + interval
        return [task for _, (_, task) in due]

    def _attempt(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - also a callback's SystemExit: the other tasks must go on
            self._failures.note(error)
        try:
            trace.write_queued()
        except BaseException as error:  # noqa: BLE001 - raised by a log handler
            self._failures.note(error)

    def end(self) -> None:
        """Ends the thread. No task runs after this returns."""
        if process_id() != self._pid:
            return  # a forked child has no such thread; a thread of the parent may have held the lock
        with self._guard:
            self._ended = True
            if self._wake is not None:
                self._wake.notify()
        if self._thread is not None:
            self._thread.join()


class _Thread:
    """A daemon thread that starts once. Starting may be interrupted and repeated.

    `Thread.start` waits for the new thread. An interrupt there would leave locks held, or an owner without a reference to the
    thread. So a helper thread calls it: only the main thread is interrupted.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._turn = allocate_lock()  # taken to start the thread

    def begin(self) -> None:
        """Starts the thread, and returns when it runs.

        Raises:
            StorageFailedError: the system cannot start another thread.
        """
        if self._thread.ident is not None:
            return
        is_done, failed = allocate_lock(), list[Exception]()
        is_done.acquire()
        try:
            start_new_thread(self._start, (is_done, failed))
        except NO_THREAD as error:
            raise no_thread(error) from error
        is_done.acquire()
        if failed:
            raise failed[0]

    def _start(self, is_done: LockType, failed: list[Exception]) -> None:
        try:
            with self._turn:
                if self._thread.ident is None:
                    started(self._thread)
        except StorageFailedError as error:
            failed.append(error)
        finally:
            is_done.release()

    def join(self) -> None:
        """Waits until the thread ends. Returns at once if it has not started, or is the current thread."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
