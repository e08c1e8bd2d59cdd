"""asyncio: the clients of a store for coroutines. A thin layer over the same objects; nothing is done twice.

Nothing here keeps the event loop waiting: what may block goes to another thread, and what other threads finish comes back by
`call_soon_threadsafe`, once for all that has come in meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from queue import SimpleQueue
from typing import Any, Final, Self, TypeVar
from weakref import WeakKeyDictionary, ref

import pyarrow as pa

from pylog.awaitables import is_awaitable, is_coroutine_function, refuse_awaitable
from pylog.consumer.commits import Offsets
from pylog.consumer.consumer import Consumer
from pylog.consumer.options import checked_timeout
from pylog.errors import ClosedError, IllegalStateError, InvalidArgumentError, WakeupError
from pylog.fs import on_fork
from pylog.producer.future import FutureRecordMetadata, RecordMetadata
from pylog.producer.producer import Producer
from pylog.producer.sender import BatchMetadata
from pylog.record.types import Record, TopicPartition

LOGGER = logging.getLogger("pylog")
T = TypeVar("T")
AsyncOnDelivery = Callable[[Exception | None, RecordMetadata | None], object]
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
        made = self._last = self._pool.submit(_without_stop_iteration, call)
        made.add_done_callback(self._forget)  # it holds what was returned, and the event loop
        return made

    def _forget(self, made: Future[Any]) -> None:
        if self._last is made:
            self._last = None

    async def call(self, call: Callable[[], T]) -> T:
        """The same, and what comes of it."""
        made = self.begin(call)
        try:
            return await _result(made)
        except asyncio.CancelledError:
            made.add_done_callback(self._unheard)
            raise

    async def end(self, call: Callable[[], object]) -> None:
        """The last call; who ends it again waits for that."""
        if self.closed:
            await self.quiet()
            return
        last = self.begin(call)
        self.closed = True
        self._pool.shutdown(wait=False)  # which does what it has
        await _result(last)


def _without_stop_iteration(call: Callable[[], T]) -> T:
    """Makes a call. No future can hold a StopIteration, so it becomes a RuntimeError, as in a generator."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("the call raised StopIteration") from error


async def _result(call: Future[T]) -> T:
    """Of a call in another thread, which is not cancelled with who waits for it."""
    return await asyncio.shield(asyncio.wrap_future(call))


class _Answers(list[tuple[asyncio.Future[Any], Any]]):
    """Answers on their way to an event loop, which holds them.

    Attributes:
        taken: whether they are being handed out, so that no more may be added.
    """

    taken = False


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
        # what each event loop was told of, and holds: nothing here keeps a loop that was closed
        self._answers: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Answers]] = WeakKeyDictionary()
        self._telling: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self, topic: str, value: Any = None, *, on_delivery: AsyncOnDelivery | None = None, **more: Any
    ) -> RecordMetadata:
        """Sends one record and waits until it is in the log.

        Args:
            topic, value, more: as `Producer.send` takes them. Several at a time: `asyncio.gather`, or tasks.
            on_delivery: called in the event loop with (None, metadata), or (error, None). It may be a coroutine function: `send`,
                `flush` and `close` wait for it. What it raises is logged.

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
        if not self._line and self._producer.has_room() and self._producer.has_seen(topic, more.get("partition")):
            self._producer.send(topic, value, **more).when_done(note)
        else:
            self._line_up(partial(_send, partial(self._producer.send, topic, value, **more), note))
        if on_delivery is None:
            return (await answer).result()
        telling = loop.create_task(_tell(on_delivery, answer))  # goes on if `send` is cancelled
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        return await asyncio.shield(telling)

    async def _told(self) -> None:
        """Waits for the callbacks of what was sent from this event loop."""
        loop = asyncio.get_running_loop()
        if mine := [task for task in self._telling if task.get_loop() is loop and task is not asyncio.current_task()]:
            await asyncio.wait(mine)

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
            known = self._answers.get(loop)
            answers = None if known is None else known()
            if answers is not None and not answers.taken:
                answers.append((answer, result))
                return
            answers = _Answers([(answer, result)])
            self._answers[loop] = ref(answers)
        with suppress(RuntimeError):  # it is closed: nobody waits there any more
            loop.call_soon_threadsafe(self._answer, answers)

    def _answer(self, answers: _Answers) -> None:
        """In the event loop: hands out the answers."""
        with self._guard:
            answers.taken = True
        for answer, result in answers:
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
        await self._told()

    async def close(self) -> None:
        """`Producer.close`, in another thread, behind all that was sent. Cancelled, it goes on; a second one waits for it."""
        await self._thread.end(self._producer.close)
        await self._told()


async def _tell(on_delivery: AsyncOnDelivery, answer: asyncio.Future[Sent]) -> RecordMetadata:
    """Waits for an answer, calls back, and gives the answer. An error of the call that took the record is none of a delivery."""
    sent = await answer
    if isinstance(sent, FutureRecordMetadata):
        error = sent.exception()
        try:
            made = on_delivery(error, None if error is not None else sent.result())
            if isawaitable(made):
                await made
        except Exception:  # of the user's code: the record is in the log all the same
            LOGGER.exception("a callback of %r failed", sent)
    return sent.result()


def _send(send: Callable[[], FutureRecordMetadata], note: Callable[[Sent], object]) -> None:
    """Sends a record in another thread. What is raised there becomes the answer."""
    try:
        send().when_done(note)
    except BaseException as error:  # noqa: BLE001 - it is raised again where the answer is awaited
        refused: Future[RecordMetadata] = Future()
        refused.set_exception(error)
        note(refused)


class _Inside:
    """A coroutine of the user that runs in the event loop while the consumer's thread waits for it inside of a call.

    What the coroutine calls of the consumer is done by that thread meanwhile: it is the one that is in the call.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._is_over = False  # set and read in the event loop only
        self._task: asyncio.Task[object] | None = None

    def run(self, loop: asyncio.AbstractEventLoop, made: Awaitable[object]) -> None:
        """In the consumer's thread: has an awaitable awaited in the event loop, and does meanwhile what it asks for.

        Raises:
            What it raises. IllegalStateError: it was cancelled, with the event loop.
        """
        loop.call_soon_threadsafe(self._begin, made)
        while (call := self._calls.get()) is not None:
            call()
        assert self._task is not None
        if self._task.cancelled():
            raise IllegalStateError("the coroutine of a listener or callback was cancelled before it was done")
        self._task.result()

    def _begin(self, made: Awaitable[object]) -> None:
        async def awaited() -> object:
            _INSIDE.set(self)  # in the context of this task alone
            return await made

        self._task = asyncio.get_running_loop().create_task(awaited())
        self._task.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self._is_over = True
        self._calls.put(None)

    @property
    def is_over(self) -> bool:
        """Whether the thread does not wait any more. A task that the coroutine has left behind may still ask."""
        return self._is_over

    async def call(self, call: Callable[[], T]) -> T:
        """In the event loop: has the thread that waits make a call."""
        result: Future[T] = Future()

        def make() -> None:
            try:
                result.set_result(_without_stop_iteration(call))
            except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
                result.set_exception(error)

        self._calls.put(make)
        return await _result(result)


_INSIDE: Final[ContextVar[_Inside | None]] = ContextVar("pylog_inside", default=None)


def _inside() -> _Inside | None:
    """What this coroutine runs inside of, if the consumer's thread waits for it."""
    found = _INSIDE.get()
    return None if found is None or found.is_over else found


def _wake_again(consumer: Consumer, unheard: Future[Any]) -> None:
    """A wakeup that a cancelled call has met is for the next one."""
    if not unheard.cancelled() and isinstance(unheard.exception(), WakeupError):
        consumer.wakeup()


class AsyncConsumer:
    """A `Consumer` for the coroutines of one event loop; an asynchronous context manager and iterator, which closes it.

    A call that was cancelled has handed out nothing: its records come again. Coroutines may share it: calls follow each other.
    When one of them closes it, those that wait in a call or iterate get a `ClosedError`.

    Args:
        consumer: what `Store.consumer` made. Listeners and callbacks run in a thread that only this consumer has. Where they are
            coroutine functions, the call that runs them awaits them in the event loop; they may await calls of this object.

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

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._turn: asyncio.Lock | None = None  # only while coroutines have it or wait: it holds their event loop
        self._in_turn = 0
        self._loop: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
        consumer.await_with(partial(_awaited, ref(self)))
        self._thread = _Thread("consumer", partial(_wake_again, consumer))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(autocommit=kind is None)

    async def run(self, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Any other method of the consumer, in its thread: `await consumer.run(Consumer.seek, partition, 7)`.

        Returns, Raises: As the method.
        """
        if is_coroutine_function(method):
            raise InvalidArgumentError(f"{method!r} is a coroutine function; await it, run() takes methods of Consumer")
        async with self._its_turn():
            return await self._in_thread(partial(method, self._consumer, *arguments, **options))

    @asynccontextmanager
    async def _its_turn(self) -> AsyncIterator[None]:
        """Calls follow each other; one of a listener's coroutine is part of the call that waits for the listener."""
        if _inside() is not None:
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
        inside = _inside()
        if inside is not None:
            return await inside.call(call)
        self._loop = ref(asyncio.get_running_loop())
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
        async with self._its_turn():
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
        async with self._its_turn():
            if _inside() is None and not self._thread.is_idle:
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

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the last call, as long as it is there."""
        return self._loop()

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
        close = partial(self._consumer.close, autocommit=autocommit)
        inside = _inside()
        if inside is not None:  # a listener that closes: its thread waits for it, and does no call after this one
            await inside.call(close)
            return
        self._loop = ref(asyncio.get_running_loop())
        await self._thread.end(close)


def _awaited(consumer: Callable[[], AsyncConsumer | None], made: object) -> None:
    """In a thread: has a coroutine that a listener or callback has returned awaited in the event loop, and waits for it."""
    if not is_awaitable(made):
        return
    assert isinstance(made, Awaitable)
    found = consumer()
    loop = None if found is None else found.event_loop
    if loop is None or loop.is_closed() or not loop.is_running() or _is_in_a_loop():
        refuse_awaitable(made)  # the store closes the consumer, say: nothing can await it
        return
    _Inside().run(loop, made)


def _is_in_a_loop() -> bool:
    """Whether this thread runs an event loop, which it must not keep waiting."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False
