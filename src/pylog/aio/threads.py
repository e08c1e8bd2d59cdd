"""The threads of an `AsyncStore`: its calls, and iterations that read in a thread of their own."""

from __future__ import annotations

import functools
import inspect
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar
from weakref import finalize

from pylog.client_thread import ClientThread, result_of, without_stop_iteration
from pylog.errors import ClosedError
from pylog.fs import on_fork
from pylog.threads import submitted

T = TypeVar("T")
Of = TypeVar("Of")
P = ParamSpec("P")
_THREADS: Final = 4  # a call that waits for a lock or a disk does not keep the others waiting
_ITEMS: Final = 500  # records that one step of an iteration reads


class StoreThreads:
    """Runs the calls of one store, a few at a time. Cancelling a waiter does not cancel the call."""

    def __init__(self) -> None:
        self._end: Future[Any] | None = None  # the last call
        self.forked()
        on_fork(self)

    def forked(self) -> None:
        """Starts new threads in a forked child, so that the store itself can refuse calls there."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="pylog-aio-store")

    async def call(self, call: Callable[[], T]) -> T:
        """Makes a call in one of the threads, and returns its result.

        Raises:
            ClosedError: `end` was called. Exceptions of the call.
        """
        if self._end is not None:
            raise ClosedError("the store is closed; open it again")
        return await result_of(submitted(self._pool, functools.partial(without_stop_iteration, call)))

    async def end(self, call: Callable[[], object]) -> None:
        """Makes the last call, in a new thread: the others may be busy. A second `end` waits for it."""
        if self._end is None:
            last = ThreadPoolExecutor(1, thread_name_prefix="pylog-aio-store")
            self._end = submitted(last, functools.partial(without_stop_iteration, call))
            for pool in (self._pool, last):
                pool.shutdown(wait=False)  # pending calls are still made
        await result_of(self._end)


class InThreads(Generic[Of]):
    """The coroutines of an object whose calls may block: each call runs in one of the store's threads.

    Args:
        wrapped: the object.
        threads: the store's.
    """

    def __init__(self, wrapped: Of, threads: StoreThreads) -> None:
        self._wrapped = wrapped
        self._threads = threads

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._wrapped!r})"

    async def run(self, method: Callable[Concatenate[Of, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls a method of the wrapped object, or a function that gets the object, in another thread.

        Args:
            method: such as `Store.metrics`, or `lambda store: store.group("billing").describe()`.
            arguments: more arguments of the method.
            options: the same, by name.

        Returns:
            The result of the method.

        Raises:
            ClosedError: the store is closed. Exceptions of the method.

        Cancelling the call does not stop the method.
        """
        return await self._threads.call(functools.partial(method, self._wrapped, *arguments, **options))


def in_thread(method: Callable[Concatenate[Of, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns a coroutine method with the same arguments, which calls a method of the wrapped object in a thread.

    Args:
        method: a method of the wrapped class.
    """

    async def call(self: InThreads[Of], /, *arguments: P.args, **options: P.kwargs) -> T:
        return await self.run(method, *arguments, **options)

    functools.update_wrapper(call, method, ("__name__", "__annotations__"), ())
    call.__qualname__ = f"Async{method.__qualname__}"
    first = (inspect.getdoc(method) or "").split("\n\n", 1)[0]
    call.__doc__ = f"{first}\n\nRuns in another thread, with the arguments, results and errors of `{method.__qualname__}`."
    return call


class AsyncIteration(Generic[T]):
    """An asynchronous iterator over records or Arrow batches. It reads in a thread of its own, from the first step on.

    A cancelled step loses nothing: the next one returns its item. The thread ends with the iteration, with `aclose`, or when the
    object is dropped. `async with` closes it at the end of the block.

    Args:
        begin: returns an iterator, whose items are lists of items; an empty list lets a step continue. Runs in the thread.

    >>> import asyncio
    >>> async def doubled():
    ...     async with AsyncIteration(lambda: iter([[1, 2], [], [3]])) as numbers:
    ...         return [2 * number async for number in numbers]
    >>> asyncio.run(doubled())
    [2, 4, 6]
    """

    def __init__(self, begin: Callable[[], Iterator[list[T]]]) -> None:
        self._items: deque[T] = deque()
        self._thread = ClientThread("iteration")
        self._steps = _PlainIterator(begin)
        self._step: Future[list[T] | None] | None = None  # the one that runs, or whose result was not received
        self._drop = finalize(self, self._steps.drop)
        self._drop.atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._thread.closed:
                raise StopAsyncIteration
            step = self._step = self._step or self._thread.begin(self._steps.next)
            try:
                found = await result_of(step)
            except Exception:
                if self._step is step:
                    self._step = None
                raise
            if self._step is step:  # otherwise another coroutine has received it
                self._step = None
                if found is None:
                    await self.aclose()
                else:
                    self._items.extend(found)
        return self._items.popleft()

    async def aclose(self) -> None:
        """Ends the iteration and its thread. A step that is waiting for records ends within a fraction of a second."""
        self._items.clear()
        self._drop.detach()
        await self._thread.end(self._steps.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _PlainIterator(Generic[T]):
    """The plain iterator of an `AsyncIteration`. All its calls are made in the iteration's thread, or after it."""

    def __init__(self, begin: Callable[[], Iterator[list[T]]]) -> None:
        self._begin = begin
        self._iterator: Iterator[list[T]] | None = None
        self._running = allocate_lock()

    def next(self) -> list[T] | None:
        """Returns the next items; None at the end."""
        with self._running:
            if self._iterator is None:
                self._iterator = self._begin()
            return next(self._iterator, None)

    def close(self) -> None:
        """Closes the iterator, and drops it."""
        with self._running:
            iterator, self._iterator = self._iterator, None
            if isinstance(iterator, Generator):
                with suppress(ClosedError):
                    iterator.close()

    def drop(self) -> None:
        """Closes the iterator in a new thread. The collector calls this, perhaps in a thread pool's lock: it takes no lock."""
        if self._iterator is not None:
            with suppress(RuntimeError):  # the interpreter ends
                start_new_thread(self.close, ())


def in_chunks(begin: Callable[[], Iterator[T]], size: int = _ITEMS) -> Iterator[list[T]]:
    """Yields the items of an iterator in lists. An error comes after the items before it.

    >>> list(in_chunks(lambda: iter(range(5)), 2))
    [[0, 1], [2, 3], [4]]
    """
    iterator = begin()
    while True:
        found: list[T] = []
        try:
            found.extend(islice(iterator, size))
        except Exception:
            if found:
                yield found
            raise
        if not found:
            return
        yield found
