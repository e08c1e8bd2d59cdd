"""asyncio: the clients of a store for coroutines. A thin layer over the same objects; nothing is done twice.

Nothing here keeps the event loop waiting: what may block goes to another thread, and what other threads finish comes back by
`call_soon_threadsafe`, once for all that has come in meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from pylog.consumer.commits import Offsets
from pylog.consumer.consumer import Consumer
from pylog.consumer.options import checked_timeout
from pylog.errors import ClosedError, WakeupError
from pylog.fs import on_fork
from pylog.producer.future import FutureRecordMetadata, RecordMetadata
from pylog.producer.producer import Producer
from pylog.producer.sender import BatchMetadata
from pylog.record.types import Record, TopicPartition

T = TypeVar("T")
Sent = FutureRecordMetadata | Future[RecordMetadata]
_SLICE_MS: Final = 200  # of a wait: who cancels one, or closes, waits no longer than that for the consumer's thread


class _Thread:
    """A thread that one client alone has: its calls follow each other, and go on when who waits for one is cancelled.

    Args:
        client: whose it is, for messages.
        unheard: is called with what came of a call whose waiter was cancelled.

    Attributes:
        closed: whether the last call has been made.
    """

    def __init__(self, client: str, unheard: Callable[[Future[Any]], object] = lambda _: None) -> None:
        self.closed = False
        self._client = client
        self._unheard = unheard
        self.forked()
        on_fork(self)

    def forked(self) -> None:
        """A child has none of its parent's threads: in a new one, the client says itself that it does not live on there."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"pylog-aio-{self._client}")
        self._last: Future[Any] | None = None  # call that was made; None once it is known to be done

    @property
    def is_idle(self) -> bool:
        """Whether all calls are done."""
        return self._last is None or self._last.done()

    async def quiet(self) -> None:
        """Waits until all calls are done: those, too, that nobody waits for any more."""
        if self._last is not None and not self._last.done():
            with suppress(Exception):  # it is for who made the call
                await _result(self._last)

    def check_open(self) -> None:
        """Raises ClosedError when no call is taken any more."""
        if self.closed:
            raise ClosedError(f"the {self._client} is closed; make another one")

    def begin(self, call: Callable[[], T]) -> Future[T]:
        """Makes a call behind those that were made."""
        self.check_open()
        made = self._last = self._pool.submit(call)
        return made

    async def call(self, call: Callable[[], T]) -> T:
        """The same, and what comes of it."""
        made = self.begin(call)
        try:
            return await _result(made)
        except asyncio.CancelledError:
            made.add_done_callback(self._unheard)
            raise
        finally:
            if self._last is made and made.done():
                self._last = None  # it holds what was returned

    async def end(self, call: Callable[[], object]) -> None:
        """The last call; who ends it again waits for that."""
        if self.closed:
            await self.quiet()
            return
        last = self.begin(call)
        self.closed = True
        self._pool.shutdown(wait=False)  # which does what it has
        await _result(last)


async def _result(call: Future[T]) -> T:
    """Of a call in another thread, which is not cancelled with who waits for it."""
    return await asyncio.shield(asyncio.wrap_future(call))


class AsyncProducer:
    """A `Producer` for the coroutines of one event loop at a time; an asynchronous context manager, which closes it.

    Records are sent in the order in which `send` is called, also while the buffer is full.

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
        self._thread = _Thread("producer")
        self._line: deque[Callable[[], object]] = deque()  # sends that wait for room, and what comes behind them
        self._guard = threading.Lock()
        self._answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}  # which it was told of

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
            As `Producer.send`, and as the `result` of its future; one after the other waits `max_block_ms` for room. Who is
            cancelled waits no longer; the record is sent all the same.

        Cost: some 40 µs, most of them asyncio's; what is worth more goes through `send_arrow`, or a thread.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sent] = loop.create_future()
        note = partial(self._note, loop, answer)
        if not self._line and self._producer.has_room():
            self._producer.send(topic, value, **more).when_done(note)
        else:
            self._line_up(partial(_send, partial(self._producer.send, topic, value, **more), note))
        return (await answer).result()

    def _line_up(self, call: Callable[[], object]) -> None:
        """Has a call made in the thread, behind those that wait there already. It raises nothing."""
        self._thread.check_open()
        self._line.append(call)
        if len(self._line) == 1:  # else one before it is under way, and the thread looks again behind each
            try:
                self._thread.begin(self._work_off)
            except BaseException:  # there can be no more threads: who comes next asks again
                self._line.pop()
                raise

    def _work_off(self) -> None:
        """In the thread: makes the calls. Each is in line until it is done, so that nobody overtakes it."""
        while self._line:
            self._line[0]()
            self._line.popleft()

    async def _worked_off(self) -> None:
        """Waits until what is in line now has been sent."""
        if self._line:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[None] = loop.create_future()
            self._line_up(partial(self._note, loop, answer, None))
            await answer

    def _note(self, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T], result: T) -> None:
        """In another thread: has the event loop take an answer, with all others that are there by then."""
        if isinstance(result, FutureRecordMetadata) and not answer.cancelled():
            result.failed()  # a coroutine gets the error: no report has to tell of it
        with self._guard:
            answers = self._answers.setdefault(loop, [])
            answers.append((answer, result))
            first = len(answers) == 1
        if first:
            try:
                loop.call_soon_threadsafe(self._answer, loop)
            except RuntimeError:  # it is closed: nobody waits there any more
                self._taken(loop)

    def _taken(self, loop: asyncio.AbstractEventLoop) -> list[tuple[asyncio.Future[Any], Any]]:
        with self._guard:
            return self._answers.pop(loop)

    def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the event loop: hands out the answers."""
        for answer, result in self._taken(loop):
            if not answer.done():  # its coroutine was not cancelled
                answer.set_result(result)

    async def send_arrow(self, topic: str, table: Any) -> list[BatchMetadata]:
        """`Producer.send_arrow`, in another thread."""
        await self._worked_off()
        return await asyncio.to_thread(self._producer.send_arrow, topic, table)

    async def flush(self) -> None:
        """`Producer.flush`, in another thread."""
        await self._worked_off()
        await asyncio.to_thread(self._producer.flush)

    async def close(self) -> None:
        """`Producer.close`, in another thread, behind all that was sent. Cancelled, it goes on; a second one waits for it."""
        await self._thread.end(self._producer.close)


def _send(send: Callable[[], FutureRecordMetadata], note: Callable[[Sent], object]) -> None:
    """Sends a record in another thread. What is raised there becomes the answer."""
    try:
        send().when_done(note)
    except BaseException as error:  # noqa: BLE001 - it is raised again where the answer is awaited
        refused: Future[RecordMetadata] = Future()
        refused.set_exception(error)
        note(refused)


def _wake_again(consumer: Consumer, unheard: Future[Any]) -> None:
    """A wakeup that a cancelled call has met is for the next one."""
    if not unheard.cancelled() and isinstance(unheard.exception(), WakeupError):
        consumer.wakeup()


class AsyncConsumer:
    """A `Consumer` for the coroutines of one event loop; an asynchronous context manager and iterator, which closes it.

    A call that was cancelled has handed out nothing: its records come again. Coroutines may share it: calls follow each other.
    When one of them closes it, those that wait in a call or iterate get a `ClosedError`.

    Args:
        consumer: what `Store.consumer` made. Listeners and callbacks run in a thread that only this consumer has.

    >>> import asyncio, pylog, tempfile
    >>> async def consume(store):
    ...     async with AsyncConsumer(store.consumer("orders", group="billing", auto_offset_reset="earliest")) as consumer:
    ...         async for record in consumer:
    ...             await consumer.commit()
    ...             return record.value, await consumer.run(Consumer.committed, ("orders", 0))
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append_many([b"paid", b"shipped"])
    ...     asyncio.run(consume(store))
    (b'paid', 1)
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._turn = asyncio.Lock()
        self._thread = _Thread("consumer", partial(_wake_again, consumer))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(autocommit=kind is None)

    async def run(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Any other method of the consumer, in its thread: `await consumer.run(Consumer.seek, partition, 7)`.

        Returns, Raises: As the method.
        """
        async with self._turn:
            return await self._in_thread(partial(method, self._consumer, *arguments, **options))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        await self._thread.quiet()  # so that no more than one of those that were cancelled is under way
        return await self._thread.call(call)

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """`Consumer.poll`."""
        return await self._poll(timeout_ms, max_records, arrow=False)

    async def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, pa.RecordBatch]:
        """`Consumer.poll_arrow`."""
        return await self._poll(timeout_ms, max_records, arrow=True)

    async def _poll(self, timeout_ms: float, max_records: int | None, *, arrow: bool) -> dict[TopicPartition, Any]:
        timeout = checked_timeout("timeout_ms", timeout_ms)
        async with self._turn:
            found = await self._waited(timeout, Consumer.collect, max_records=max_records, arrow=arrow)
            return self._consumer.handed_out(found) if found else {}  # not where a cancellation could come in between

    async def _waited(self, timeout_ms: float, method: Callable[..., T], **options: Any) -> T:
        """What a method that waits finds, asked again and again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            left_ms = 1000 * (deadline - loop.time())
            slice_ms = min(_SLICE_MS, max(0.0, left_ms))
            found = await self._in_thread(partial(method, self._consumer, timeout_ms=slice_ms, **options))
            self._thread.check_open()  # else the consumer is in its thread's hands, to be closed
            if found or left_ms <= _SLICE_MS or not self._consumer.reads:  # any more: a listener or a callback said so
                return found

    def __aiter__(self) -> Self:
        """`Consumer.__iter__`: the position moves with each record."""
        return self

    async def __anext__(self) -> Record:
        async with self._turn:
            if not self._thread.is_idle:  # a cancelled one takes in hand what it had asked for, or the consumer closes
                await self._thread.quiet()
            if self._consumer.is_look_due:
                await self._in_thread(self._consumer.look_after)
            record = self._consumer.next_in_hand()
            while record is None:
                timeout = self._consumer.timeout_ms
                if not await self._waited(math.inf if timeout is None else timeout, Consumer.take_in_hand):
                    raise StopAsyncIteration
                record = self._consumer.next_in_hand()
            return record

    def wakeup(self) -> None:
        """`Consumer.wakeup`: `poll`, `poll_arrow` or iteration raises `WakeupError`. From any thread, and not to be awaited."""
        self._consumer.wakeup()

    async def commit(self, offsets: Offsets | None = None) -> None:
        """`Consumer.commit`."""
        await self.run(Consumer.commit, offsets)

    async def close(self, *, autocommit: bool = True) -> None:
        """`Consumer.close`, when what is under way in the consumer's thread is done: at the next look of a call that waits.

        It goes on if it is cancelled; a second one waits for it.
        """
        await self._thread.end(partial(self._consumer.close, autocommit=autocommit))
