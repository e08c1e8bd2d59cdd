"""The background thread of a store: flushes what `Durability.INTERVAL` promises, and ticks where that is asked for.

It only calls what anybody could call; nothing depends on when it runs.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from typing import Final

from pylog import trace
from pylog.errors import PylogError
from pylog.fs import process_id

LOGGER = logging.getLogger("pylog")
_LONGEST_NAP_S: Final = 3600.0  # the system's timed waits have a bound; a task that is due later is waited for again
_AFTER_FAILURE_S: Final = 1.0  # before a thread that cannot even wait tries again


class Failures:
    """Errors of work in the background, which no caller sees. They are logged, and counted for `Store.metrics`.

    Attributes:
        count: how many there were.

    >>> failures = Failures()
    >>> failures.note(ValueError("no"))
    >>> failures.count
    1
    """

    def __init__(self) -> None:
        self._noted: list[None] = []  # appending is one step, so that threads need no lock

    @property
    def count(self) -> int:
        """How many there were."""
        return len(self._noted)

    def note(self, error: BaseException) -> None:
        """Counts and logs an error. Raises nothing, even if a handler of log messages does."""
        self._noted.append(None)
        with contextlib.suppress(BaseException):
            if isinstance(error, PylogError):
                LOGGER.warning("in the background: %s", error)
            else:
                LOGGER.error("in the background, a task failed", exc_info=error)


class Background:
    """Runs tasks again and again, each after its own interval, in one thread that begins with the first task.

    No error ends the thread: it is noted, and the other tasks go on.

    Args:
        failures: takes the errors of tasks.
    """

    def __init__(self, failures: Failures | None = None) -> None:
        self._failures = Failures() if failures is None else failures
        self._guard = threading.Lock()
        self._wake = threading.Condition(self._guard)
        self._tasks: dict[object, tuple[float, Callable[[], object]]] = {}
        self._due: dict[object, float] = {}
        self._now = 0.0  # seconds of this thread's own naps: what is late by a task's own work is late by just that
        self._thread = _Thread(self._run, "pylog-background")
        self._ended = False
        self._pid = process_id()

    def every(self, key: object, interval_ms: int, task: Callable[[], object]) -> None:
        """Runs a task at least that often from now on; the shortest interval given for a key counts."""
        known = self._tasks.get(key)
        if known is not None and known[0] <= interval_ms / 1000:
            return
        with self._guard:
            if self._ended:
                return
            self._thread.begin()  # before the task is noted: nobody would run it if there can be no thread
            due = self._now + interval_ms / 1000
            if all(due < other for other in self._due.values()):
                self._wake.notify()  # before, too: of what an interrupt keeps from being noted there is nothing to know
            self._tasks[key] = (interval_ms / 1000, task)
            self._due[key] = due

    def drop(self, key: object) -> None:
        """Forgets a task, and what it keeps alive; it may be running still."""
        with self._guard:
            self._tasks.pop(key, None)
            self._due.pop(key, None)

    def _run(self) -> None:
        while not self._ended:
            try:
                for task in self._due_tasks():
                    self._attempt(task)
            except BaseException as error:  # noqa: BLE001 - such as want of memory: the thread lives on
                self._failures.note(error)
                threading.Event().wait(_AFTER_FAILURE_S)

    def _due_tasks(self) -> list[Callable[[], object]]:
        """Waits until a task is due; none when the thread must end, or has waited for long."""
        with self._guard:
            nap = min(max(0.0, min(self._due.values()) - self._now), _LONGEST_NAP_S) if self._due else None
            if not self._ended:
                self._wake.wait(nap)
            if self._ended:
                return []
            # all of it, also when a task came that is due before: one may run too early, none too late
            self._now += nap or 0.0
            due = [(key, self._tasks[key]) for key, due in self._due.items() if due <= self._now]
            for key, (interval, _) in due:
                self._due[key] = self._now + interval
        return [task for _, (_, task) in due]

    def _attempt(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - also a callback's SystemExit: what was promised to others must go on
            self._failures.note(error)
        try:
            trace.tell()
        except BaseException as error:  # noqa: BLE001 - of a handler of log messages
            self._failures.note(error)

    def end(self) -> None:
        """Ends the thread; no task runs any more when this returns."""
        if process_id() != self._pid:
            return  # a forked child has no such thread; the parent's may have held the guard
        with self._guard:
            self._ended = True
            self._wake.notify()
        self._thread.join()


class _Thread:
    """A daemon thread, whose beginning may be interrupted and asked for again: it begins once.

    `Thread.start` waits for the new thread, and an interrupt there leaves locks that nobody holds, or an owner who does not know
    of his thread. So yet another thread calls it: interrupts are the main thread's.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._turn = allocate_lock()  # to start it

    def begin(self) -> None:
        """Returns when the thread is at work.

        Raises:
            RuntimeError, MemoryError: there can be no more threads.
        """
        if self._thread.ident is not None:
            return
        is_done, failed = allocate_lock(), list[Exception]()
        is_done.acquire()
        start_new_thread(self._start, (is_done, failed))
        is_done.acquire()
        if failed:
            raise failed[0]

    def _start(self, is_done: LockType, failed: list[Exception]) -> None:
        try:
            with self._turn:
                if self._thread.ident is None:
                    self._thread.start()
        except (RuntimeError, MemoryError) as error:
            failed.append(error)
        finally:
            is_done.release()

    def join(self) -> None:
        """Waits for its end, unless it has not begun, or is the one that asks."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
