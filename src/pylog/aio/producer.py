"""`AsyncProducer`: a `Producer` for the coroutines of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary, WeakSet, ref

from pylog.aio.calls import AsyncProducerCalls, TransactionFuture
from pylog.aio.delivery import AsyncOnDelivery, Sent, deliver, report_buffered, report_sent, settle
from pylog.arguments import check_callable, check_kind
from pylog.client_thread import ClientThread
from pylog.producer.config import SendArguments
from pylog.producer.future import FutureRecordMetadata, RecordMetadata
from pylog.producer.producer import Producer, send_at_once, write_sent
from pylog.record.types import BatchMetadata, K, V

T = TypeVar("T")
F = TypeVar("F", bound="asyncio.Future[Any]")


class _Answers(list[tuple[asyncio.Future[Any], Any]]):
    """Results on their way to an event loop, which refers to them.

    Attributes:
        delivering: true once they are being delivered, so that no more may be added.
    """

    delivering = False


class AsyncProducer(AsyncProducerCalls[K, V], Generic[K, V]):
    """A `Producer` for the coroutines of one event loop at a time; an asynchronous context manager, which closes it.

    Records are sent in the order of the calls of `send`, even while the buffer is full.

    Args:
        producer: created by `Store.producer`. Threads may continue to use it.

    >>> import asyncio, pylog, tempfile
    >>> async def produce(store):
    ...     async with AsyncProducer(store.producer(linger_ms=1)) as producer:
    ...         first = await producer.send_and_wait("orders", b"paid", key=b"42")
    ...         more = [await producer.send("orders", b"sent") for _ in range(100)]
    ...         return first.offset, (await more[-1]).offset
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     asyncio.run(produce(store))
    (0, 100)
    """

    def __init__(self, producer: Producer[K, V]) -> None:
        check_kind("producer", producer, Producer, "a Producer; Store.producer returns one")
        self._producer = producer
        self._thread = ClientThread("producer")
        self._line: deque[Callable[[], object]] = deque()  # sends that wait for room, and later calls
        self._guard = threading.Lock()
        # the results that each event loop has scheduled; weak, so that closed loops can be collected
        self._answers: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Answers]] = WeakKeyDictionary()
        # the results that `flush` and `close` wait for; weak, because those of a closed loop are never settled
        self._unsettled: WeakSet[asyncio.Future[Any]] = WeakSet()
        self._has_transactions = producer.config.transactional_id is not None
        self._is_awaited = False  # a coroutine waits for a record of a transaction, which the thread then writes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self, topic: str, value: V | None = None, *, on_delivery: AsyncOnDelivery | None = None, **more: Unpack[SendArguments[K]]
    ) -> asyncio.Future[RecordMetadata]:
        """Sends one record: `await` it for a place in the buffer, and the future that it returns for the record's metadata.

        Args:
            topic: as for `Producer.send`.
            value: as for `Producer.send`.
            more: as for `Producer.send`.
            on_delivery: as for `send_and_wait`.

        Returns:
            A future of the record's partition, offset and timestamp, or of the error. Cancelling it does not stop the record. If
            the future of a failed record is never awaited, asyncio logs the error.

        Raises:
            PylogError: as `Producer.send`. While the buffer is full, each record in turn waits `max_block_ms` for room.

        Cost: about 40 µs.
        """
        check_callable("on_delivery", on_delivery)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sent] = loop.create_future()
        sent = None if self._line else send_at_once(self._producer, topic, value, **more)
        if sent is None:
            sent = await self._buffered(partial(self._producer.send, topic, value, **more))
        sent.when_done(partial(self._note, loop, answer))
        if on_delivery is not None:
            self._write_soon()
            return asyncio.shield(self._settles(loop.create_task(deliver(on_delivery, answer))))
        found = TransactionFuture(loop=loop) if self._has_transactions else loop.create_future()
        answer.add_done_callback(partial(settle, found))
        self._settles(found)
        if isinstance(found, TransactionFuture):
            found.write = self._write_soon
        return found

    async def _buffered(self, send: Callable[[], FutureRecordMetadata]) -> FutureRecordMetadata:
        """Sends a record in the producer's thread, in its turn, and returns when it has room in the buffer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[FutureRecordMetadata | None, BaseException | None]] = loop.create_future()
        self._line_up(partial(report_buffered, send, partial(self._note, loop, answer)))
        sent, error = await answer
        if sent is None:
            assert error is not None
            raise error
        return sent

    async def send_and_wait(
        self, topic: str, value: V | None = None, *, on_delivery: AsyncOnDelivery | None = None, **more: Unpack[SendArguments[K]]
    ) -> RecordMetadata:
        """Sends one record and waits until it is in the log.

        Args:
            topic: as for `Producer.send`.
            value: as for `Producer.send`.
            more: as for `Producer.send`. To send several records at a time, use `asyncio.gather` or tasks.
            on_delivery: called in the event loop with (None, metadata) or (error, None). It may be a coroutine function: the
                call, `flush` and `close` wait for it. Its exceptions are logged, `CancelledError` too.

        Returns:
            The record's partition, offset and timestamp.

        Raises:
            PylogError: as `Producer.send`, and as the `result` of its future. While the buffer is full, each record in turn waits
                `max_block_ms` for room. A cancelled call ends at once; the record is sent anyway, unless its task was
                cancelled before it ran.

        Serializers and a callable partitioner run in the producer's thread.

        Cost: about 40 µs, most of it asyncio's. Use `send_arrow` or a thread for high rates.
        """
        check_callable("on_delivery", on_delivery)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sent] = loop.create_future()
        note = partial(self._note, loop, answer)
        sent = None if self._line else send_at_once(self._producer, topic, value, **more)
        if sent is not None:
            sent.when_done(note)
        else:
            self._line_up(partial(report_sent, partial(self._producer.send, topic, value, **more), note))
            self._write_soon()
        if on_delivery is None:
            return (await answer).result()
        return await asyncio.shield(self._settles(loop.create_task(deliver(on_delivery, answer))))  # continues if cancelled

    def _settles(self, result: F) -> F:
        """Lets `flush` and `close` wait for a result. Returns it."""
        self._unsettled.add(result)
        result.add_done_callback(self._unsettled.discard)
        return result

    async def _settled(self) -> None:
        """Waits for the results and callbacks of records sent from this event loop."""
        loop = asyncio.get_running_loop()
        if mine := [each for each in self._unsettled if each.get_loop() is loop and each is not asyncio.current_task()]:
            await asyncio.wait(mine)

    def _line_up(self, call: Callable[[], object]) -> None:
        """Queues a call for the thread, after those that are waiting. The call must not raise."""
        self._thread.check_open()
        self._line.append(call)
        if len(self._line) == 1:  # otherwise the thread is busy, and checks the queue after each call
            try:
                self._thread.begin(self._work_off)
            except BaseException:  # no thread can be started: the next send tries again
                self._line.pop()
                raise

    def _work_off(self) -> None:
        """Makes the queued calls, in the thread. Each stays in the queue until it is done, so that no later one overtakes it."""
        while self._line:
            self._line[0]()
            self._line.popleft()
        if self._is_awaited:
            self._is_awaited = False
            write_sent(self._producer)

    def _write_soon(self) -> None:
        """Writes what was sent in a transaction, once all records in the queue are sent: a coroutine waits for one of them."""
        if self._has_transactions and not self._thread.closed:
            self._is_awaited = True
            self._line_up(lambda: None)

    async def _worked_off(self) -> None:
        """Waits until the queued records have been sent."""
        if self._line:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[None] = loop.create_future()
            self._line_up(partial(self._note, loop, answer, None))
            await answer

    def _note(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], result: T) -> None:
        """Schedules the delivery of a result in the event loop, with all others that wait. Runs in another thread."""
        if isinstance(result, FutureRecordMetadata) and not answer.cancelled():
            result.failed()  # a coroutine gets the error, so it must not be reported as unchecked
        with self._guard:
            known = self._answers.get(loop)
            answers = None if known is None else known()
            if answers is not None and not answers.delivering:
                answers.append((answer, result))
                return
            answers = _Answers([(answer, result)])
            self._answers[loop] = ref(answers)
        with suppress(RuntimeError):  # the event loop is closed: no coroutine waits there
            loop.call_soon_threadsafe(self._answer, answers)

    def _answer(self, answers: _Answers) -> None:
        """Delivers the results, in the event loop."""
        with self._guard:
            answers.delivering = True
        for answer, result in answers:
            if not answer.done():  # the coroutine was not cancelled
                answer.set_result(result)

    async def send_arrow(self, topic: str, table: Any) -> list[BatchMetadata]:
        """Appends the rows of a table after the records sent before, with the result and errors of `Producer.send_arrow`."""
        await self._worked_off()
        return await asyncio.to_thread(self._producer.send_arrow, topic, table)

    async def flush(self) -> None:
        """Waits in another thread until all records are in the log or refused. Raises as `Producer.flush`."""
        await self._worked_off()
        await asyncio.to_thread(self._producer.flush)
        await self._settled()

    async def close(self) -> None:
        """Closes the producer after all sent records. Continues if cancelled; a second call waits. As `Producer.close`."""
        await self._thread.end(self._producer.close)
        await self._settled()
