"""Coroutines of listeners and callbacks: they run in the event loop while the consumer's thread waits for them inside a call."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from pylog.awaitables import refuse_awaitable
from pylog.client_thread import result_of, without_stop_iteration
from pylog.errors import IllegalStateError

T = TypeVar("T")
_CHECK_SECONDS: Final = 0.2  # how often the waiting thread checks that the event loop still exists


class _Inside:
    """A user's coroutine that runs in the event loop while the consumer's thread waits for it inside a call.

    When the coroutine calls the consumer, the waiting thread makes that call, because it is the thread that holds the consumer.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._is_over = False  # set and read in the event loop only
        self._task: asyncio.Task[object] | None = None

    def run(self, loop: asyncio.AbstractEventLoop, made: Awaitable[object]) -> None:
        """Awaits an awaitable in the event loop, and makes the calls that it requests. Runs in the consumer's thread.

        Raises:
            Exceptions of the awaitable.
            IllegalStateError: it was cancelled, with the event loop, or the event loop was closed.
            InvalidArgumentError: the event loop was closed before it began.
        """
        try:
            loop.call_soon_threadsafe(self._begin, made)
        except RuntimeError:  # closed since the caller's check
            refuse_awaitable(made)
            return
        while (call := self._next_call(loop)) is not None:
            call()
        if self._task is None:
            refuse_awaitable(made)
        elif not self._task.done() or self._task.cancelled():
            raise IllegalStateError("the coroutine of a listener or callback was cancelled before it had finished")
        else:
            self._task.result()

    def _next_call(self, loop: asyncio.AbstractEventLoop) -> Callable[[], object] | None:
        """Returns the next call of the coroutine; None when it has ended, or can never end.

        A loop that has stopped may run again. One that is closed does not, and none does when the interpreter ends.
        """
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=_CHECK_SECONDS)
            if loop.is_closed() or (not loop.is_running() and _is_interpreter_ending()):
                return None

    def _begin(self, made: Awaitable[object]) -> None:
        async def awaited() -> object:
            _INSIDE.set(self)  # in the context of this task only
            return await made

        self._task = asyncio.get_running_loop().create_task(awaited())
        self._task.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self._is_over = True
        self._calls.put(None)

    @property
    def is_over(self) -> bool:
        """True once the thread no longer waits. A task that the coroutine started may still call."""
        return self._is_over

    async def call(self, call: Callable[[], T]) -> T:
        """Lets the waiting thread make a call. Runs in the event loop."""
        result: Future[T] = Future()

        def make() -> None:
            try:
                result.set_result(without_stop_iteration(call))
            except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
                result.set_exception(error)

        self._calls.put(make)
        return await result_of(result)


_INSIDE: Final[ContextVar[_Inside | None]] = ContextVar("pylog_inside", default=None)


def inside_call() -> _Inside | None:
    """Returns the call that this coroutine runs inside of, if a consumer's thread waits for it."""
    found = _INSIDE.get()
    return None if found is None or found.is_over else found


def await_in_loop(loop: asyncio.AbstractEventLoop | None, made: object) -> None:
    """Awaits what a listener or callback has returned, in an event loop. Runs in another thread, which waits for it.

    Raises:
        InvalidArgumentError: there is no such loop that runs, or this thread runs it.
        Exception: that of the awaitable.
    """
    assert isinstance(made, Awaitable)
    if loop is None or loop.is_closed() or not loop.is_running() or _is_in_a_loop():
        refuse_awaitable(made)  # while the store closes the consumer, for example: nothing can await it
        return
    _Inside().run(loop, made)


def _is_in_a_loop() -> bool:
    """Returns whether this thread runs an event loop, which must not block."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def _is_interpreter_ending() -> bool:
    """Returns True once the interpreter waits for the threads of executors, such as this one."""
    return bool(getattr(concurrent.futures.thread, "_shutdown", False))
