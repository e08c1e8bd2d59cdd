"""The thread in which a client of `pylog.aio` makes the calls that may block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pylog.errors import ClosedError
from pylog.fs import on_fork
from pylog.threads import submitted

T = TypeVar("T")


class ClientThread:
    """The thread of one client. Its calls run one after the other. Cancelling a waiter does not cancel the call.

    Args:
        client: the kind of client, for messages.
        unheard: called with the result of a call whose waiter was cancelled.

    Attributes:
        closed: true once the last call was made.
    """

    def __init__(self, client: str, unheard: Callable[[Future[Any]], object] = lambda _: None) -> None:
        self.closed = False
        self._client = client
        self._unheard = unheard
        self.forked()
        on_fork(self)

    def forked(self) -> None:
        """Starts a new thread in a forked child, so that the client itself can refuse calls there."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"pylog-aio-{self._client}")
        self._last: Future[Any] | None = None  # the last call; None once it is known to be done

    @property
    def is_idle(self) -> bool:
        """True if all calls are done."""
        return self._last is None or self._last.done()

    async def quiet(self) -> None:
        """Waits until all calls are done, including those whose waiters were cancelled."""
        if self._last is not None and not self._last.done():
            with suppress(Exception):  # its own waiter raises it
                await result_of(self._last)

    def check_open(self) -> None:
        """Raises ClosedError if the client is closed."""
        if self.closed:
            raise ClosedError(f"the {self._client} is closed; create another one")

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Queues a call after the earlier ones."""
        self.check_open()
        made = self._last = submitted(self._pool, partial(without_stop_iteration, call))
        made.add_done_callback(self._forget)  # the future refers to the result and the event loop
        return made

    def _forget(self, made: Future[Any]) -> None:
        if self._last is made:
            self._last = None

    async def call(self, call: Callable[[], T]) -> T:
        """Queues a call and returns its result."""
        made = self.begin(call)
        try:
            return await result_of(made)
        except asyncio.CancelledError:
            made.add_done_callback(self._unheard)
            raise

    def abandon(self) -> None:
        """Ends the thread after the calls that are queued, without waiting for it. No later call is made."""
        self.closed = True
        self._pool.shutdown(wait=False)

    async def end(self, call: Callable[[], object]) -> None:
        """Makes the last call. A second `end` waits for it."""
        if self.closed:
            await self.quiet()
            return
        last = self.begin(call)
        self.closed = True
        self._pool.shutdown(wait=False)  # pending calls are still made
        await result_of(last)


def without_stop_iteration(call: Callable[[], T]) -> T:
    """Makes a call. No future can hold a StopIteration, so it becomes a RuntimeError, as in a generator."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("the call raised StopIteration") from error


async def result_of(call: Future[T]) -> T:
    """Awaits a call in another thread. Cancelling the waiter does not cancel the call.

    A later error of the call counts as retrieved then, so that asyncio does not log it as forgotten.
    """
    answer = asyncio.wrap_future(call)
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(_take)
        raise


def _take(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
