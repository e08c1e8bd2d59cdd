"""Results of calls in other threads, for the clients of `pylog.aio`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from inspect import isawaitable
from typing import Any

from pylog.consumer.consumer import Consumer
from pylog.errors import TransactionAbortedError, WakeupError
from pylog.producer.future import FutureRecordMetadata, RecordMetadata

LOGGER = logging.getLogger("pylog")
Sent = FutureRecordMetadata | Future[RecordMetadata]
AsyncOnDelivery = Callable[[Exception | None, RecordMetadata | None], object]


async def deliver(on_delivery: AsyncOnDelivery, answer: asyncio.Future[Sent]) -> RecordMetadata:
    """Awaits a result, calls `on_delivery`, and returns the result. If `send` itself raised, there was no delivery to report."""
    sent = await answer
    if isinstance(sent, FutureRecordMetadata):
        error = sent.exception()
        try:
            made = on_delivery(error, None if error is not None else sent.result())
            if isawaitable(made):
                await made
        except (Exception, asyncio.CancelledError):  # raised by user code: the record is in the log anyway
            if _is_cancelled():
                raise
            LOGGER.exception("a callback of %r failed", sent)
    return sent.result()


def settle(found: asyncio.Future[RecordMetadata], answer: asyncio.Future[Sent]) -> None:
    """Gives a future the result of a record."""
    if found.done() or answer.cancelled():
        return
    error = answer.result().exception()
    if error is None:
        found.set_result(answer.result().result())
    else:
        found.set_exception(error)
        if isinstance(error, TransactionAbortedError):
            found.exception()  # the program has aborted the transaction: asyncio must not log that nobody asked


def report_buffered(send: Callable[[], FutureRecordMetadata], note: Callable[[Any], object]) -> None:
    """Sends a record in another thread, and reports its future, or the error of the call."""
    try:
        note((send(), None))
    except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
        note((None, error))


def _is_cancelled() -> bool:
    """Returns whether the current task itself is being cancelled, and not only something that it awaits."""
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


def report_sent(send: Callable[[], FutureRecordMetadata], note: Callable[[Sent], object]) -> None:
    """Sends a record in another thread. An exception becomes the result."""
    try:
        send().when_done(note)
    except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
        refused: Future[RecordMetadata] = Future()
        refused.set_exception(error)
        note(refused)


def wake_again(consumer: Consumer[Any, Any], unheard: Future[Any]) -> None:
    """Repeats a wakeup that only a cancelled call has received, for the next call."""
    if not unheard.cancelled() and isinstance(unheard.exception(), WakeupError):
        consumer.wakeup()
