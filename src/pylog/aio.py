"""asyncio: the clients of a store for coroutines. A thin layer over the same objects; nothing is done twice.

Nothing here keeps the event loop waiting: what may block goes to another thread, and what other threads finish comes back by
`call_soon_threadsafe`, once for all that has come in meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any, Self

from pylog.producer.future import FutureRecordMetadata, RecordMetadata, copied
from pylog.producer.producer import Producer
from pylog.producer.sender import BatchMetadata


class AsyncProducer:
    """A `Producer` for the coroutines of one event loop; an asynchronous context manager, which closes it.

    Args:
        producer: what `Store.producer` made. Threads may go on using it.

    >>> import asyncio, pylog, tempfile
    >>> async def produce(store):
    ...     async with AsyncProducer(store.producer(linger_ms=1)) as producer:
    ...         first = await producer.send("orders", b"paid", key=b"42")
    ...         more = await asyncio.gather(*(producer.send("orders", b"sent") for _ in range(100)))
    ...         return first.offset, len(more)
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     asyncio.run(produce(store))
    (0, 100)
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._guard = threading.Lock()
        self._settled: list[tuple[asyncio.Future[RecordMetadata], FutureRecordMetadata]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, topic: str, value: Any = None, **more: Any) -> RecordMetadata:
        """Sends one record and waits until it is in the log.

        Args:
            topic, value, more: as `Producer.send` takes them. Several at a time: `asyncio.gather`, or tasks.

        Returns:
            Where the record is.

        Raises:
            As `Producer.send`, and as the `result` of its future. Who is cancelled waits no longer; the record is sent all
            the same.

        Cost: some 40 µs, most of them asyncio's; what is worth more goes through `send_arrow`, or a thread.
        """
        loop = asyncio.get_running_loop()
        if self._producer.has_room():
            sent = self._producer.send(topic, value, **more)
        else:
            sent = await loop.run_in_executor(None, partial(self._producer.send, topic, value, **more))
        answer: asyncio.Future[RecordMetadata] = loop.create_future()
        sent.when_done(partial(self._note, loop, answer))
        return await answer

    def _note(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[RecordMetadata], sent: FutureRecordMetadata) -> None:
        """In the producer's thread: has the event loop take the answer, with all others that are there by then."""
        with self._guard:
            first = not self._settled
            self._settled.append((answer, sent))
        if first and not loop.is_closed():
            loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        """In the event loop: hands out the answers."""
        with self._guard:
            settled, self._settled = self._settled, []
        for answer, sent in settled:
            error = sent.exception()
            if answer.done():  # its coroutine was cancelled
                continue
            if error is None:
                answer.set_result(sent.result())
            else:
                answer.set_exception(copied(error))

    async def send_arrow(self, topic: str, table: Any) -> list[BatchMetadata]:
        """`Producer.send_arrow`, in another thread."""
        return await asyncio.to_thread(self._producer.send_arrow, topic, table)

    async def flush(self) -> None:
        """`Producer.flush`, in another thread."""
        await asyncio.to_thread(self._producer.flush)

    async def close(self) -> None:
        """`Producer.close`, in another thread."""
        await asyncio.to_thread(self._producer.close)
