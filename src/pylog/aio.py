"""A store and its clients for asyncio: a thin layer over `Store`, `Log`, `Producer` and `Consumer`.

Nothing here keeps the event loop waiting: what may block goes to another thread, and what other threads finish comes back by
`call_soon_threadsafe`, once for all that has come in meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, Unpack, cast
from weakref import WeakKeyDictionary, WeakSet, ref

import pyarrow as pa

from pylog.aio_batch import BatchBuilder
from pylog.aio_calls import AsyncConsumerCalls, AsyncProducerCalls, TransactionFuture
from pylog.aio_changes import PendingChanges
from pylog.aio_delivery import AsyncOnDelivery, Sent, deliver, report_buffered, report_sent, settle, wake_again
from pylog.aio_inside import await_in_loop, inside_call
from pylog.aio_log import AsyncLog
from pylog.aio_store import AsyncStoreCalls, opened_by
from pylog.aio_threads import AsyncIteration
from pylog.arguments import check_callable, check_kind
from pylog.awaitables import is_awaitable, is_coroutine_function
from pylog.client_thread import ClientThread
from pylog.clock import SystemClock
from pylog.consumer.commits import Offsets
from pylog.consumer.consumer import Consumer, polling_of
from pylog.consumer.options import ConsumerArguments, checked_timeout
from pylog.consumer.polling import core_of
from pylog.errors import InvalidArgumentError
from pylog.opening import open_store
from pylog.producer.config import ProducerArguments, SendArguments
from pylog.producer.future import FutureRecordMetadata, RecordMetadata
from pylog.producer.producer import Producer, send_at_once, write_sent
from pylog.record.types import BatchMetadata, K, Record, TopicPartition, V
from pylog.store import Store

__all__ = ["AsyncConsumer", "AsyncIteration", "AsyncLog", "AsyncProducer", "AsyncStore", "BatchBuilder", "open"]

T = TypeVar("T")
F = TypeVar("F", bound="asyncio.Future[Any]")
_CLOCK: Final = SystemClock()
_SLICE_MS: Final = 200  # one slice of a wait: the longest that a cancellation or `close` waits for the consumer's thread


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


open = opened_by(open_store, AsyncStore, __name__)  # noqa: A001 - as `pylog.open`
