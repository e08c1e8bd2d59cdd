"""`AsyncStore`: a `Store` for coroutines, with its clients; and `open`."""

from __future__ import annotations

from typing import Self, Unpack

from pylog.aio.consumer import AsyncConsumer
from pylog.aio.producer import AsyncProducer
from pylog.aio.store_calls import AsyncStoreCalls, opened_by
from pylog.arguments import check_kind
from pylog.consumer.options import ConsumerArguments
from pylog.opening import open_store
from pylog.producer.config import ProducerArguments
from pylog.record.types import K, V
from pylog.store import Store


class AsyncStore(AsyncStoreCalls):
    """A `Store` for coroutines; an asynchronous context manager, which closes it.

    Its calls are those of `Store`, with the same arguments, results and errors, those of an archive included. Each runs in one of
    four threads, so that no file is touched in the thread of the event loop. `run` makes any other call. Cancelling a call does
    not stop it.

    Args:
        store: an open store. Threads may continue to use it. `pylog.aio.open` opens one without blocking.

    >>> import asyncio, tempfile
    >>> async def count(path):
    ...     async with open(path) as store:
    ...         await store.create_topic("orders", exist_ok=True)
    ...         log = await store.log("orders")
    ...         await log.append_many([b"paid", b"shipped"])
    ...         async with await store.consumer("orders", auto_offset_reset="earliest") as consumer:
    ...             first = await consumer.getone()
    ...         return first.value, [record.value async for record in log.records(1)]
    >>> asyncio.run(count(tempfile.mkdtemp()))
    (b'paid', [b'shipped'])
    """

    def __init__(self, store: Store) -> None:
        check_kind("store", store, Store, "a Store; pylog.open returns one")
        super().__init__(store)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def producer(self, **config: Unpack[ProducerArguments[K, V]]) -> AsyncProducer[K, V]:
        """Creates a producer, with the options of `Store.producer`. Raises as `Store.producer`."""
        return AsyncProducer(await self.run(lambda store: store.producer(**config)))

    async def consumer(self, *topics: str, **options: Unpack[ConsumerArguments[K, V]]) -> AsyncConsumer[K, V]:
        """Creates a consumer, with the options of `Store.consumer`. Raises as `Store.consumer`."""
        return AsyncConsumer(await self.run(lambda store: store.consumer(*topics, **options)))


open = opened_by(open_store, AsyncStore, "pylog.aio")  # noqa: A001 - as `pylog.open`
