"""Work that another thread does meanwhile: `Worker`; `one_ahead`, which makes the next item while one is used; `by_two`.

Ctrl-C may come between any two steps of Python code, so all that the two threads share is written in C: a queue each way, and a
lock that says when the other one is done. The locks inside of a `Future` or a `Condition` are taken in one step and known to be
taken in another: an interrupt between the two keeps them for ever.
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
Requests = SimpleQueue[Any]  # each something to call; None or a dead reference: nothing more is to be done
_END: Final = object()
_ASKED: Final = object()
_OWN: Final = threading.local()  # a worker's thread: its requests
_AT_WORK: Final[dict[LockType, Requests]] = {}  # of threads that may be at work, by the lock they hold as long


def one_ahead(items: Iterator[T]) -> AbstractContextManager[Iterator[T]]:
    """An iterator over the same items: while one is used the next one is made, and never more.

    Who comes back for an item is done with the one before, so the item behind it is asked for at once: a thread that is slower
    than its user goes on without waiting for the other to wake. The thread ends with the context, whatever happens in it;
    nothing outlives the call that needs it. An interrupt waits for what is being made. Where no thread can begin, at
    the interpreter's exit or because there are too many, it is the same iterator without one.

    >>> with one_ahead(iter("abc")) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    return _Ahead(items)


def by_two(tasks: Iterator[Callable[[], T]], *, at_once: int) -> AbstractContextManager[Iterator[T]]:
    """The results of tasks, in order: another thread does them, and this one does the next whenever it would wait for that one.

    So both are at work as long as there is any. (Two threads that wake each other for every item seem to need one processor,
    and Linux lets them share one: measured with two, work done by turns took as long as by one thread.)

    Args:
        tasks: each is called once. They are taken in this thread, two of them before the other one can begin them.
        at_once: the most tasks that are asked for and whose results are not taken.

    >>> with by_two((letter.upper for letter in "abc"), at_once=4) as letters:
    ...     list(letters)
    ['A', 'B', 'C']
    """
    return _ByTwo(tasks, at_once)


class _WithWorker(ABC, Generic[T]):
    """An iterator that has a worker as long as the context lasts."""

    def __init__(self) -> None:
        self._worker = Worker("pylog-ahead")

    def __enter__(self) -> Iterator[T]:
        return self._taken()

    def __exit__(self, *_: object) -> None:
        try:
            self._worker.end()
        except BaseException:  # an interrupt, which may have come before it had begun
            self._worker.end()
            raise

    @abstractmethod
    def _taken(self) -> Iterator[T]: ...


class _Ahead(_WithWorker[T]):
    def __init__(self, items: Iterator[T]) -> None:
        super().__init__()
        self._items = items

    def _taken(self) -> Iterator[T]:
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
        self._results: deque[Any] = deque()  # in order: of this thread, or _ASKED for one of the other
        self._asked = 0  # how many of the other

    def _taken(self) -> Iterator[T]:
        while True:
            self._ask()
            if not self._results:
                return
            is_there = self._results[0] is not _ASKED or self._worker.has_result
            if is_there or not self._do_next():
                yield self._take()

    def _ask(self) -> None:
        """Sees to it that the other thread has something to do, and something to go on with."""
        while self._asked < 2 and len(self._results) < self._at_once and (task := next(self._tasks, None)) is not None:
            if self._worker.ask(task):
                self._asked += 1
                self._results.append(_ASKED)
            else:
                self._results.append(_outcome(task))

    def _do_next(self) -> bool:
        """Does a task in this thread, if there may be one more."""
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
    """What came instead of a result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _outcome(work: Callable[[], Any]) -> Any:
    """The result of some work, or what it raised."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - raised where the result would have come
        return _Raised(error)


def _given(outcome: Any) -> Any:
    """The result; raises what the work raised."""
    if type(outcome) is _Raised:
        try:
            raise outcome.error
        finally:
            del outcome  # whose error has this frame in its traceback
    return outcome


class Worker:
    """A thread that does what it is asked for, one thing after the other. One thread uses it.

    It begins with the first request, and ends with `end`, at the interpreter's exit, or when nobody has the worker any more.

    Args:
        name: of the thread.

    >>> worker = Worker("adder")
    >>> worker.ask(lambda: 1 + 1)
    True
    >>> worker.result()
    2
    >>> worker.end()
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._requests: Requests = SimpleQueue()
        self._results: SimpleQueue[Any] = SimpleQueue()
        self._at_work = allocate_lock()
        self._begun = False

    def ask(self, work: Callable[[], Any]) -> bool:
        """Has something done, unless there is nobody to do it: no thread could begin, or it has ended."""
        if not self._begun:
            self._begin()
        if self._at_work not in _AT_WORK:
            return False
        self._requests.put(work)
        return True

    def _begin(self) -> None:
        """Begins the thread, if that can be. Only then is it asked for anything: a thread not known to be there does nothing.

        The reference that it has ends it also when an interrupt comes before the first step of `end`: when the worker is gone.
        """
        self._begun = True
        if sys.is_finalizing():  # a thread would begin, but never have its turn
            return
        self._at_work.acquire()
        with contextlib.suppress(RuntimeError):
            left = ref(self, self._requests.put)
            start_new_thread(_watch, (self._name, self._requests, self._results, self._at_work, left))
            _AT_WORK[self._at_work] = self._requests

    @property
    def has_result(self) -> bool:
        """Whether something that was asked for is done, and its result not taken."""
        return not self._results.empty()

    def result(self) -> Any:
        """The next result, in the order of the requests; waits for it.

        Raises:
            ClosedError: this is a forked child, and the result would be made in the parent. Else what the work raised.
        """
        if self._at_work not in _AT_WORK and self._results.empty():
            raise ClosedError("what was begun before a fork does not go on in the forked process; open the store there again")
        return _given(self._results.get())

    def end(self) -> None:
        """Ends the thread, and waits until it has done all that it was asked for. May be called twice."""
        self._requests.put(None)
        if getattr(_OWN, "requests", None) is not self._requests:  # the thread itself collects what had forgotten it
            _wait_for(self._at_work)


def _wait_for(at_work: LockType) -> None:
    """Waits for a thread to end, however often that is interrupted: who goes on may use what the thread uses."""
    interrupt = None
    while at_work in _AT_WORK and not sys.is_finalizing():  # when no other thread has its turn any more
        try:
            with at_work:
                pass
        except BaseException as error:  # noqa: BLE001 - raised when the thread has ended
            interrupt = error
    if interrupt is not None:
        raise interrupt


# ---- the other threads -------------------------------------------------------------------------------------------------------


def _watch(name: str, requests: Requests, results: SimpleQueue[Any], at_work: LockType, left: ref[Any]) -> None:
    """Has a thread do the work that debuggers and profilers see, and tells when it is gone.

    `Thread.start` must not be interrupted; here nothing does that: signals are the main thread's.
    """
    is_over = allocate_lock()
    is_over.acquire()
    try:
        try:
            worker = threading.Thread(target=_work, args=(requests, results, left, is_over), name=name, daemon=True)
            worker.start()
        except (RuntimeError, MemoryError):  # there are too many; then it is this one's work
            _work(requests, results, left, is_over)
        else:
            with is_over:
                pass
            while worker.is_alive():  # a few steps more; `join` would leave an entry for this thread in `threading.enumerate()`
                SystemClock().sleep(0)
    finally:
        _AT_WORK.pop(at_work, None)
        at_work.release()


def _work(requests: Requests, results: SimpleQueue[Any], left: ref[Any], is_over: LockType) -> None:
    _OWN.requests = requests
    try:
        while (work := requests.get()) is not None and work is not left:
            try:
                results.put(work())
            except BaseException as error:  # noqa: BLE001 - raised where the result would have come
                results.put(_Raised(error))
            del work  # nothing that was used is kept while nothing is to be done
    finally:
        is_over.release()


@atexit.register
def _end_all() -> None:
    """Ends threads that were left: what they use may be gone a moment later."""
    for at_work, requests in list(_AT_WORK.items()):
        requests.put(None)
        _wait_for(at_work)


class _InChild:
    def forked(self) -> None:
        """A forked child has none of the threads."""
        _AT_WORK.clear()


_IN_CHILD: Final = _InChild()
on_fork(_IN_CHILD)
