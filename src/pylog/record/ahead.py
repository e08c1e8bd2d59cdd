"""Work in another thread: `Worker`; `one_ahead`, which prepares the next item while one is used; `by_two`, for tasks.

Ctrl-C may come between any two steps of Python code, so the two threads share only objects written in C: a queue in each
direction, and a lock that tells when the other thread has ended. The locks of a `Future` or a `Condition` are taken in one step
and recorded in another: an interrupt between the two would leave them locked forever.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from _thread import LockType, allocate_lock, start_new_thread
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast
from weakref import ref

from pylog.clock import SystemClock
from pylog.errors import ClosedError
from pylog.fs import on_fork

T = TypeVar("T")
WorkQueue = SimpleQueue[Any]  # each item is a call to make; None or a dead reference: the thread ends
_END: Final = object()
_ASKED: Final = object()
_OWN: Final = threading.local()  # in a worker's thread: its requests
_RUNNING: Final[dict[LockType, WorkQueue]] = {}  # of running threads, by the lock that each holds until it ends


def one_ahead(items: Iterator[T]) -> AbstractContextManager[Iterator[T]]:
    """Returns an iterator over the same items that prepares one item while another is used.

    The next item is requested as soon as the user asks for the one before it. So a thread that is slower than its user continues
    without waiting for the user to wake. The thread ends with the context, even if an error ends that; nothing outlives the
    call. An interrupt waits until the item in preparation is finished. If no thread can start, at the interpreter's exit or
    because there are too many, the items are prepared in this thread.

    >>> with one_ahead(iter("abc")) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    return _Ahead(items)


def by_two(tasks: Iterator[Callable[[], T]], *, at_once: int) -> AbstractContextManager[Iterator[T]]:
    """Returns the results of tasks, in order. Two threads do them: another one, and this one whenever it would have to wait.

    So both threads stay busy. (Two threads that wake each other for every item seem to need one processor, and Linux lets them
    share one: with two processors, taking turns was measured to take as long as one thread.)

    Args:
        tasks: each is called once. They are taken from the iterator in this thread, two before the other thread can start one.
        at_once: the most tasks that are started or finished while their results are not taken.

    >>> with by_two((letter.upper for letter in "abc"), at_once=4) as letters:
    ...     list(letters)
    ['A', 'B', 'C']
    """
    return _ByTwo(tasks, at_once)


class _WithWorker(ABC, Generic[T]):
    """An iterator with a worker thread for as long as the context lasts."""

    def __init__(self) -> None:
        self._worker = Worker("pylog-ahead")

    def __enter__(self) -> Iterator[T]:
        return self._results_in_order()

    def __exit__(self, *_: object) -> None:
        try:
            self._worker.end()
        except BaseException:  # an interrupt, which may have come before the thread started
            self._worker.end()
            raise

    @abstractmethod
    def _results_in_order(self) -> Iterator[T]: ...


class _Ahead(_WithWorker[T]):
    def __init__(self, items: Iterator[T]) -> None:
        super().__init__()
        self._items = items

    def _results_in_order(self) -> Iterator[T]:
        make = partial(next, self._items, _END)
        is_coming = self._worker.ask(make)
        while is_coming:
            is_coming = self._worker.ask(make)
            item = self._worker.result()
            if item is _END:
                return
            yield item
        yield from self._items


class _ByTwo(_WithWorker[T]):
    def __init__(self, tasks: Iterator[Callable[[], T]], at_once: int) -> None:
        super().__init__()
        self._tasks = tasks
        self._at_once = at_once
        self._results: deque[Any] = deque()  # in order: results of this thread, and _ASKED for each of the other
        self._asked = 0  # how many the other thread has

    def _results_in_order(self) -> Iterator[T]:
        while True:
            self._ask()
            if not self._results:
                return
            is_there = self._results[0] is not _ASKED or self._worker.has_result
            if is_there or not self._do_next():
                yield self._take()

    def _ask(self) -> None:
        """Gives the other thread a task to do and one to continue with."""
        while self._asked < 2 and len(self._results) < self._at_once and (task := next(self._tasks, None)) is not None:
            if self._worker.ask(task):
                self._asked += 1
                self._results.append(_ASKED)
            else:
                self._results.append(_outcome(task))

    def _do_next(self) -> bool:
        """Does a task in this thread, unless too many results are waiting."""
        task = next(self._tasks, None) if len(self._results) < self._at_once else None
        if task is not None:
            self._results.append(_outcome(task))
        return task is not None

    def _take(self) -> T:
        if self._results[0] is not _ASKED:
            return cast(T, _given(self._results.popleft()))
        self._results.popleft()
        self._asked -= 1
        return cast(T, self._worker.result())


class _Raised:
    """An error in place of a result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _outcome(work: Callable[[], Any]) -> Any:
    """Returns the result of some work, or the error that it raised."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - raised later, in place of the result
        return _Raised(error)


def _given(outcome: Any) -> Any:
    """Returns the result; raises the error of the work instead."""
    if type(outcome) is _Raised:
        try:
            raise outcome.error
        finally:
            del outcome  # its error's traceback refers to this frame
    return outcome


class Worker:
    """A thread that makes requested calls, one after the other. Only one thread may use it.

    It starts with the first request. It ends with `end`, at the interpreter's exit, or when the worker is garbage-collected.

    Args:
        name: the thread's name.

    >>> worker = Worker("adder")
    >>> worker.ask(lambda: 1 + 1)
    True
    >>> worker.result()
    2
    >>> worker.end()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._requests: WorkQueue = SimpleQueue()
        self._results: SimpleQueue[Any] = SimpleQueue()
        self._running = allocate_lock()
        self._begun = False

    def ask(self, work: Callable[[], Any]) -> bool:
        """Requests a call. Returns False if the thread cannot start or has ended."""
        if not self._begun:
            self._begin()
        if self._running not in _RUNNING:
            return False
        self._requests.put(work)
        return True

    def _begin(self) -> None:
        """Starts the thread if possible. Requests come only after that: the thread does nothing before it is known to exist.

        The thread has a weak reference, so it also ends if an interrupt comes before the first step of `end`: with the worker.
        """
        self._begun = True
        if sys.is_finalizing():  # a thread could start, but would never run
            return
        self._running.acquire()
        with contextlib.suppress(RuntimeError):
            left = ref(self, self._requests.put)
            start_new_thread(_watch, (self._name, self._requests, self._results, self._running, left))
            _RUNNING[self._running] = self._requests

    @property
    def has_result(self) -> bool:
        """Whether a requested call has finished and its result has not been taken."""
        return not self._results.empty()

    def result(self) -> Any:
        """Returns the next result, in the order of the requests; waits for it.

        Raises:
            ClosedError: this is a forked child, and the result would arrive in the parent. Otherwise, the error of the call.
        """
        if self._running not in _RUNNING and self._results.empty():
            raise ClosedError("an operation from before a fork cannot continue in the forked process; open the store again there")
        return _given(self._results.get())

    def end(self) -> None:
        """Ends the thread, and waits until it has finished all requested calls. May be called twice."""
        self._requests.put(None)
        if getattr(_OWN, "requests", None) is not self._requests:  # a worker may be collected in its own thread
            _wait_for(self._running)


def _wait_for(running: LockType) -> None:
    """Waits for a thread to end, even if interrupted repeatedly: the caller may reuse the objects that the thread uses."""
    interrupt = None
    while running in _RUNNING and not sys.is_finalizing():  # at the interpreter's exit other threads no longer run
        try:
            with running:
                pass
        except BaseException as error:  # noqa: BLE001 - raised after the thread has ended
            interrupt = error
    if interrupt is not None:
        raise interrupt


# ---- the other threads -------------------------------------------------------------------------------------------------------


def _watch(name: str, requests: WorkQueue, results: SimpleQueue[Any], running: LockType, left: ref[Any]) -> None:
    """Starts the thread that debuggers and profilers see, and releases the lock when it has ended.

    `Thread.start` must not be interrupted; here it is not: only the main thread receives signals.
    """
    is_over = allocate_lock()
    is_over.acquire()
    try:
        try:
            worker = threading.Thread(target=_work, args=(requests, results, left, is_over), name=name, daemon=True)
            worker.start()
        except (RuntimeError, MemoryError):  # too many threads: this one does the work
            _work(requests, results, left, is_over)
        else:
            with is_over:
                pass
            while worker.is_alive():  # a few more steps; `join` would leave an entry for this thread in `threading.enumerate()`
                SystemClock().sleep(0)
    finally:
        _RUNNING.pop(running, None)
        running.release()


def _work(requests: WorkQueue, results: SimpleQueue[Any], left: ref[Any], is_over: LockType) -> None:
    _OWN.requests = requests
    try:
        while (work := requests.get()) is not None and work is not left:
            try:
                results.put(work())
            except BaseException as error:  # noqa: BLE001 - raised later, in place of the result
                results.put(_Raised(error))
            del work  # keep no reference to the work while waiting
    finally:
        is_over.release()


@atexit.register
def _end_all() -> None:
    """Ends threads that were left running: the objects that they use may disappear a moment later."""
    for running, requests in list(_RUNNING.items()):
        requests.put(None)
        _wait_for(running)


class _InChild:
    def forked(self) -> None:
        """Forgets all threads: a forked child has none of them."""
        _RUNNING.clear()


_IN_CHILD: Final = _InChild()
on_fork(_IN_CHILD)
