"""The calls of `AsyncStore`, except those that create clients."""

from __future__ import annotations

import functools
import inspect
from asyncio import CancelledError
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

from pylog.aio.log import AsyncLog
from pylog.aio.threads import InThreads, StoreThreads, in_thread
from pylog.client_thread import result_of, without_stop_iteration
from pylog.store import Store
from pylog.threads import submitted

P = ParamSpec("P")


class AsyncStoreCalls(InThreads[Store]):
    """The calls of `AsyncStore`: those of `Store` as coroutines, with the same arguments, results and errors."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, StoreThreads())

    topics = in_thread(Store.topics)
    topic = in_thread(Store.topic)
    create_topic = in_thread(Store.create_topic)
    add_partitions = in_thread(Store.add_partitions)
    alter_topic = in_thread(Store.alter_topic)
    delete_topic = in_thread(Store.delete_topic)
    start_and_end_offsets = in_thread(Store.start_and_end_offsets)
    groups = in_thread(Store.groups)
    flush = in_thread(Store.flush)
    tick = in_thread(Store.tick)
    retain = in_thread(Store.retain)
    compact = in_thread(Store.compact)
    check = in_thread(Store.check)
    verify = in_thread(Store.verify)
    metrics = in_thread(Store.metrics)

    async def log(self, topic: str, partition: int = 0) -> AsyncLog:
        """Returns a partition. Raises as `Store.log`."""
        return AsyncLog(await self.run(Store.log, topic, partition), self._threads)

    async def close(self) -> None:
        """Closes the store in another thread. Continues if cancelled; a second call waits for it. Raises as `Store.close`."""
        await self._threads.end(self._wrapped.close)


class Closable(Protocol):
    """What `Opening` opens."""

    async def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


class Opening(Generic[S]):
    """A store that is being opened in another thread: `await` it, or use it in `async with`, which closes it at the end.

    Args:
        opened: opens the plain store.
        wrap: returns the asynchronous store.
    """

    def __init__(self, opened: Callable[[], Store], wrap: Callable[[Store], S]) -> None:
        self._opened = opened
        self._wrap = wrap
        self._store: S | None = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._open().__await__()

    async def __aenter__(self) -> S:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *_: object) -> None:
        assert self._store is not None
        await self._store.close()

    async def _open(self) -> S:
        pool = ThreadPoolExecutor(1, thread_name_prefix="pylog-aio-store")
        opened = submitted(pool, functools.partial(without_stop_iteration, self._opened))
        pool.shutdown(wait=False)
        try:
            return self._wrap(await result_of(opened))
        except CancelledError:
            opened.add_done_callback(_close)  # nobody gets it
            raise


def _close(opened: Future[Store]) -> None:
    with suppress(Exception):
        opened.result().close()


_DOCSTRING: Final = """Opens a store in another thread: `async with aio.open(path) as store`, or `store = await aio.open(path)`.

Args:
    path: as for `pylog.open`, like all other arguments.

Returns:
    An object to await, or for `async with`, which closes the store at the end. Each gives an `AsyncStore`.

Raises:
    PylogError: as `pylog.open`.
"""


def opened_by(function: Callable[P, Store], wrap: Callable[[Store], S], module: str) -> Callable[P, Opening[S]]:
    """Returns a function `open` with the arguments of another one, which opens the store in another thread.

    Args:
        function: opens a plain store.
        wrap: returns the asynchronous store.
        module: the name of the module that the function belongs to.
    """

    def open(*arguments: P.args, **options: P.kwargs) -> Opening[S]:  # noqa: A001 - as `pylog.open`
        return Opening(functools.partial(function, *arguments, **options), wrap)

    signature = inspect.signature(function).replace(return_annotation="Opening[AsyncStore]")
    open.__signature__ = signature  # type: ignore[attr-defined] # read by `inspect`
    open.__module__, open.__qualname__, open.__doc__ = module, "open", _DOCSTRING
    return open
