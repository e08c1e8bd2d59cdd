"""Work that another thread does meanwhile: `Worker`, and `one_ahead`, which makes the next item while one is used.

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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar
from weakref import ref

from pylog.clock import SystemClock
from pylog.fs import on_fork

T = TypeVar("T")
Requests = SimpleQueue[Any]  # each something to call; None or a dead reference: nothing more is to be done
_END: Final = object()
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


class _Ahead(Generic[T]):
    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._worker = Worker("pylog-ahead")

    def __enter__(self) -> Iterator[T]:
        return self._taken()

    def __exit__(self, *_: object) -> None:
        try:
            self._worker.end()
        except BaseException:  # an interrupt, which may have come before it had begun
            self._worker.end()
            raise

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


class _Raised:
    """What came instead of a result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


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
        """The next result, in the order of the requests; waits for it. Raises what the work raised."""
        result = self._results.get()
        if type(result) is _Raised:
            try:
                raise result.error
            finally:
                del result  # whose error has this frame in its traceback
        return result

    def end(self) -> None:
        """Ends the thread, and waits until it has done all that it was asked for. May be called twice."""
        self._requests.put(None)
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
