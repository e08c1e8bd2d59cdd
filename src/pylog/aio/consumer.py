"""`AsyncConsumer`: a `Consumer` for the coroutines of an event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, cast
from weakref import ref

import pyarrow as pa

from pylog.aio.calls import AsyncConsumerCalls
from pylog.aio.changes import PendingChanges
from pylog.aio.delivery import wake_again
from pylog.aio.inside import await_in_loop, inside_call
from pylog.arguments import check_kind
from pylog.awaitables import is_awaitable, is_coroutine_function
from pylog.client_thread import ClientThread
from pylog.clock import SystemClock
from pylog.consumer.commits import Offsets
from pylog.consumer.consumer import Consumer, polling_of
from pylog.consumer.options import checked_timeout
from pylog.consumer.polling import core_of
from pylog.errors import InvalidArgumentError
from pylog.record.types import K, Record, TopicPartition, V

T = TypeVar("T")
_CLOCK: Final = SystemClock()
_SLICE_MS: Final = 200  # one slice of a wait: the longest that a cancellation or `close` waits for the consumer's thread


class AsyncConsumer(AsyncConsumerCalls[K, V], Generic[K, V]):
    """A `Consumer` for the coroutines of one event loop; an asynchronous context manager and iterator, which closes it.

    A cancelled call returns no records, and the next call reads them again. Coroutines may share a consumer: their calls run one
    after the other. If one of them closes it, calls and iterations of the others raise `ClosedError`.

    Args:
        consumer: created by `Store.consumer`. Listeners and callbacks run in a thread of this consumer. If they are coroutine
            functions, they run in the event loop, and may await calls of this object.

    >>> import asyncio, pylog, tempfile
    >>> async def consume(store):
    ...     async with AsyncConsumer(store.consumer("orders", group_id="billing", auto_offset_reset="earliest")) as consumer:
    ...         async for record in consumer:
    ...             await consumer.commit()
    ...             return record.value, await consumer.run(Consumer.committed, ("orders", 0))
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append_many([b"paid", b"shipped"])
    ...     asyncio.run(consume(store))
    (b'paid', 1)
    """

    def __init__(self, consumer: Consumer[K, V]) -> None:
        check_kind("consumer", consumer, Consumer, "a Consumer; Store.consumer returns one")
        self._consumer = consumer
        self._polling = polling_of(consumer)
        self._changes = PendingChanges()
        self._partitions_of: dict[str, tuple[int, ...]] = {}
        self._polled_ms: int | None = None
        self._turn: asyncio.Lock | None = None  # exists only while coroutines use it, because it refers to their event loop
        self._in_turn = 0
        self._loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
        self._polling.await_with(partial(_awaited, ref(self)))
        self._thread = ClientThread("consumer", partial(wake_again, consumer))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(autocommit=kind is None)

    async def run(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Calls any other method of the consumer in its thread: `await consumer.run(Consumer.seek, partition, 7)`.

        If the call is cancelled, its result is lost, so a function of your own that polls must not be cancelled. `Consumer.poll`,
        `Consumer.poll_arrow` and `next` lose nothing: they are the calls of this object.

        Returns, Raises: As the method.
        """
        if (own := self._own(method)) is not None:
            return cast(T, await own(*arguments, **options))
        if is_coroutine_function(method):
            raise InvalidArgumentError(f"{method!r} is a coroutine function; await it directly. run() takes methods of Consumer")
        async with self._its_turn():
            return await self._in_thread(partial(method, self._consumer, *arguments, **options))

    def _own(self, method: Callable[..., object]) -> Callable[..., Awaitable[object]] | None:
        """Returns the coroutine function in place of a method of `Consumer` that returns records or closes."""
        for name in ("poll", "poll_arrow", "close"):
            if method is vars(Consumer)[name]:
                return cast("Callable[..., Awaitable[object]]", getattr(self, name))
        return self._next if method is Consumer.__next__ else None

    async def _next(self) -> Record[K, V]:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise RuntimeError("the call raised StopIteration") from None  # no coroutine can raise that

    @asynccontextmanager
    async def _its_turn(self) -> AsyncIterator[None]:
        """Serialises calls. A call from a listener's coroutine is part of the call that waits for the listener."""
        if inside_call() is not None:
            yield
            return
        turn = self._turn = self._turn or asyncio.Lock()
        self._in_turn += 1
        try:
            async with turn:
                yield
        finally:
            self._in_turn -= 1
            if not self._in_turn:
                self._turn = None

    async def _in_thread(self, call: Callable[[], T]) -> T:
        call = partial(self._after_changes, call) if self._changes else call
        inside = inside_call()
        if inside is not None:
            return await inside.call(call)
        self._loop = ref(asyncio.get_running_loop())
        await self._thread.quiet()  # so that at most one cancelled call is still running
        return await self._thread.call(call)

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record[K, V]]]:
        """Returns records by partition, with the arguments of `Consumer.poll`. Raises as `Consumer.poll`."""
        return await self._poll(timeout_ms, max_records, arrow=False)

    async def _poll_some(
        self, timeout_ms: float, max_records: int | None, only: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[Record[K, V]]]:
        return await self._poll(timeout_ms, max_records, arrow=False, only=only)

    def _check_open(self) -> None:
        self._thread.check_open()
        core_of(self._polling).guard.check_not_ended()

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, pa.RecordBatch]:
        """Returns Arrow batches by partition, with the arguments of `Consumer.poll_arrow`. Raises as `Consumer.poll_arrow`."""
        return await self._poll(timeout_ms, max_records, arrow=True)

    async def _poll(
        self, timeout_ms: float, max_records: int | None, *, arrow: bool, only: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, Any]:
        timeout = checked_timeout("timeout_ms", timeout_ms)
        async with self._its_turn():
            found = await self._waited(timeout, partial(self._polling.collect, max_records=max_records, arrow=arrow, only=only))
            return self._polling.return_records(found) if found else {}  # with no `await` in between, which could be cancelled

    async def _waited(self, timeout_ms: float, find: Callable[[float], T]) -> T:
        """Calls `find`, which waits for some milliseconds at most, until it returns something or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            left_ms = 1000 * (deadline - loop.time())
            slice_ms = min(_SLICE_MS, max(0.0, left_ms))
            found = await self._in_thread(partial(find, slice_ms))
            self._polled_ms = _CLOCK.now_ms()
            self._thread.check_open()  # raises if another coroutine closes the consumer
            if found or left_ms <= _SLICE_MS or not self._polling.reads:  # a listener or a callback has ended it
                return found

    def __aiter__(self) -> Self:
        """Iterates as `Consumer.__iter__`: the position moves with each record."""
        return self

    async def __anext__(self) -> Record[K, V]:
        async with self._its_turn():
            if inside_call() is None and not self._thread.is_idle:
                await self._thread.quiet()
            if self._changes or self._polling.is_check_due:
                await self._in_thread(self._polling.check)
            record = self._polling.next_in_hand()
            while record is None:
                timeout = self._polling.timeout_ms
                if not await self._waited(math.inf if timeout is None else timeout, self._polling.fetch_for_iteration):
                    raise StopAsyncIteration
                record = self._polling.next_in_hand()
            return record

    def wakeup(self) -> None:
        """Makes `poll`, `poll_arrow` or iteration raise `WakeupError`. Not a coroutine; any thread may call it."""
        self._consumer.wakeup()

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets for the group, with the arguments of `Consumer.commit`. Raises as `Consumer.commit`."""
        await self.run(Consumer.commit, offsets)

    async def close(self, *, autocommit: bool = True) -> None:
        """Closes the consumer after the running call. Continues if cancelled; a second call waits. As `Consumer.close`."""
        self._changes.clear()
        close = partial(self._consumer.close, autocommit=autocommit)
        inside = inside_call()
        if inside is not None:  # called by a listener, whose thread waits for it and makes no call after this one
            await inside.call(close)
            return
        self._loop = ref(asyncio.get_running_loop())
        await self._thread.end(close)


def _awaited(consumer: Callable[[], AsyncConsumer[Any, Any] | None], made: object) -> None:
    """Awaits a coroutine that a listener or callback has returned, in the event loop. Runs in a thread, which waits for it."""
    found = consumer()
    if is_awaitable(made):
        await_in_loop(None if found is None else found._loop(), made)
    if found is not None:
        found._after_changes(lambda: None)  # those that the listener has made
