"""The future that `send` returns. One object holds the record until it is appended, and then its outcome.

A producer creates up to a million of them a second. So they have no lock, the garbage collector skips them, and settling takes
two assignments: the sender replaces the value with the record's index, then sets `_outcome`. A thread that sees `_outcome` sees
both.
Waiting threads wait on the buffer's condition.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from pylog.awaitables import refuse_awaitable, refuse_coroutine_function
from pylog.config import Durability
from pylog.errors import InvalidTypeError, PylogError
from pylog.producer.route import Route
from pylog.record.types import Header, TopicPartition

LOGGER = logging.getLogger("pylog")
_INSTEAD: Final = "pass a plain function, or send with pylog.aio.AsyncProducer"
Callback = Callable[["FutureRecordMetadata"], object]


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp of an appended record.

    Attributes:
        topic: the record's topic.
        partition: the number of its partition.
        offset: its offset.
        timestamp: its timestamp in the log, in milliseconds since 1970.
        durability: the level that the acknowledgement waited for.

    >>> RecordMetadata("orders", 0, 7, 1_700_000_000_000, Durability.SYNC).topic_partition
    TopicPartition(topic='orders', partition=0)
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    durability: Durability

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and the partition as one value."""
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class Outcome:
    """The outcome of a batch: appended, or failed.

    Attributes:
        topic, partition: the batch's topic and partition.
        base_offset: the offset of its first record.
        timestamp: the timestamp of records without their own, or of all records if the topic uses LogAppendTime.
        stamped: true if the topic uses LogAppendTime.
        durability: the acknowledgement's durability.
        error: why it was not acknowledged, or None.
        observed: the indexes of a failed batch's records whose outcome was checked.
    """

    topic: str = ""
    partition: int = -1
    base_offset: int = -1
    timestamp: int = -1
    stamped: bool = False
    durability: Durability = Durability.SYNC
    error: Exception | None = None
    observed: set[int] | None = None

    @classmethod
    def failed(cls, error: Exception, partition: int = -1) -> Outcome:
        """Returns the outcome of a batch that was not acknowledged."""
        return cls(partition=partition, error=error, observed=set())


class Details(msgspec.Struct, gc=False, eq=False):
    """The rare parts of a record: headers, an explicit partition or timestamp, and callbacks."""

    headers: tuple[Header, ...] | None = None
    partition: int | None = None
    timestamp: int | None = None
    callbacks: list[Callback] | None = None


PLAIN: Final = Details()


class FutureRecordMetadata(msgspec.Struct, gc=False, eq=False):
    """The future of one `send`. The producer's thread settles it.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> with store.producer() as producer:
    ...     future = producer.send("orders", b"paid", key=b"42")
    ...     future.result(timeout=60)[:3], future.done(), future.exception()
    (('orders', 0, 0), True, None)
    >>> store.close()
    """

    _route: Route
    _value: Any  # bytes or None; once the record is settled, its index in the batch of `_outcome`
    _key: bytes | None = None
    _details: Details | None = None
    _outcome: Outcome | None = None

    def __repr__(self) -> str:
        state = "waiting" if self._outcome is None else "failed" if self._outcome.error is not None else "in the log"
        return f"FutureRecordMetadata({self._route.topic!r}, {state})"

    def done(self) -> bool:
        """Returns True if the record was appended, or has failed. Does not wait."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is in the log.

        Args:
            timeout: seconds to wait; None waits indefinitely.

        Returns:
            The record's partition, offset and timestamp.

        Raises:
            PylogTimeoutError: the timeout has expired; the record may still be appended.
            PylogError: the record was not acknowledged. After a failed sync it may be in the log anyway.
        """
        outcome = self._settled(timeout)
        if outcome.error is not None:
            raise copied(outcome.error)  # a copy, because other threads may raise it too
        stamp = (self._details or PLAIN).timestamp
        if stamp is None or outcome.stamped:
            stamp = outcome.timestamp
        return RecordMetadata(outcome.topic, outcome.partition, outcome.base_offset + self._value, stamp, outcome.durability)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Returns the same as `result`; kafka-python's name."""
        return self.result(timeout)

    def succeeded(self) -> bool:
        """Returns True if the record was appended. Does not wait."""
        return self._outcome is not None and self._observed(self._outcome).error is None

    def failed(self) -> bool:
        """Returns True if the record has failed: `exception` returns the error. Does not wait."""
        return self._outcome is not None and self._observed(self._outcome).error is not None

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits as `result` does. Returns the error if the record was not acknowledged, else None.

        Raises:
            PylogTimeoutError: the timeout has expired.
        """
        error = self._settled(timeout).error
        return None if error is None else copied(error)

    def _settled(self, timeout: float | None) -> Outcome:
        if self._outcome is None:
            self._route.waiting.wait_until(self.done, timeout)
        assert self._outcome is not None
        return self._observed(self._outcome)

    def _observed(self, outcome: Outcome) -> Outcome:
        """Returns the outcome, and notes that the program has checked it, so that its error is not reported."""
        if outcome.observed is not None:
            outcome.observed.add(self._value)
        return outcome

    def add_callback(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Calls `callback(*args, metadata, **kwargs)` once the record is in the log.

        If it already is, the callback runs now, else in the producer's thread. Its exceptions are logged. It must not wait for
        the producer, which waits for it. A coroutine function is refused; a coroutine that a plain function returns is logged as
        an error.

        Args:
            callback: a plain function.
            args: arguments of the call before the `RecordMetadata`.
            kwargs: named arguments of the call.

        Returns:
            This future.
        """

        def call(done: FutureRecordMetadata) -> None:
            if done._outcome is not None and done._outcome.error is None:
                refuse_awaitable(callback(*args, done.result(), **kwargs))

        _check_callback("callback", callback)
        return self.when_done(call)

    def add_errback(self, errback: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Calls `errback(*args, error, **kwargs)` if the record fails. See `add_callback`."""

        def call(done: FutureRecordMetadata) -> None:
            if (error := done.exception()) is not None:
                refuse_awaitable(errback(*args, error, **kwargs))

        _check_callback("errback", errback)
        return self.when_done(call)

    def when_done(self, call: Callback) -> FutureRecordMetadata:
        """Calls `call(future)` when the record is settled, appended or not.

        Args:
            call: a plain function of one argument.

        Returns:
            This future.
        """
        _check_callback("call", call)
        self._route.waiting.add_callback(partial(self._add, call))
        if self._outcome is not None:
            self._call_back()
        return self

    def _add(self, call: Callback) -> None:
        if self._details is None:
            self._details = Details()
        if self._details.callbacks is None:
            self._details.callbacks = []
        self._details.callbacks.append(call)

    def _call_back(self) -> None:
        """Calls the callbacks that are due, each once. Any thread may call it."""
        callbacks = (self._details or PLAIN).callbacks
        while callbacks:
            try:
                call = callbacks.pop(0)
            except IndexError:
                return
            try:
                refuse_awaitable(call(self))
            except BaseException:  # raised by user code: other callbacks and the sender must continue
                LOGGER.exception("a callback of %r failed", self)


def _check_callback(name: str, call: object) -> None:
    if not callable(call):
        raise InvalidTypeError(f"{name}={call!r} cannot be called")
    refuse_coroutine_function(name, call, _INSTEAD)


# ---- for the producer: futures as records that wait ------------------------------------------------------------------------

value_of: Callable[[FutureRecordMetadata], Any] = attrgetter("_value")
key_of: Callable[[FutureRecordMetadata], bytes | None] = attrgetter("_key")
route_of: Callable[[FutureRecordMetadata], Route] = attrgetter("_route")


def details_of(future: FutureRecordMetadata) -> Details:
    """Returns the details of a record; the same object for all records that have none."""
    return future._details or PLAIN


def call_back(futures: Iterable[FutureRecordMetadata]) -> None:
    """Makes the calls of settled futures."""
    for future in futures:
        if future._details is not None:
            future._call_back()


def by_route(futures: Sequence[FutureRecordMetadata]) -> dict[Route, list[FutureRecordMetadata]]:
    """Returns the futures by topic, in their order."""
    routes: dict[Route, list[FutureRecordMetadata]] = {}
    for future in futures:
        routes.setdefault(future._route, []).append(future)
    return routes


def settle(futures: Sequence[FutureRecordMetadata], outcome: Outcome) -> None:
    """Settles the futures of one batch, and releases their records."""
    if not futures:
        return
    route = futures[0]._route
    if route.headed:
        for future in futures:
            if future._details is not None:
                future._details.headers = None
    if not route.keyed:
        for index, future in enumerate(futures):
            future._value = index
            future._outcome = outcome
        return
    for index, future in enumerate(futures):
        future._key = None  # in the same pass: a second one would miss the cache again
        future._value = index
        future._outcome = outcome


def copied(error: Exception) -> Exception:
    """Returns a copy of an error to raise, so that tracebacks of several threads do not accumulate in one object."""
    return copy.copy(error) if isinstance(error, PylogError) else error
