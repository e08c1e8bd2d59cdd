"""What `send` returns: the record until it is in the log, and the answer from then on, in one object.

A million of them a second are made, so they have no lock, the garbage collector does not visit them, and settling one is two
stores: only the sender puts the index into the place of the value, and then sets `outcome`; whoever sees `outcome` sees both.
Threads that wait do so at the buffer.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from pylog.awaitables import refuse_awaitable, refuse_coroutine_function
from pylog.config import Durability
from pylog.errors import InvalidArgumentError, PylogError
from pylog.producer.route import Route
from pylog.record.types import Header

LOGGER = logging.getLogger("pylog")
_INSTEAD: Final = "give a plain function, or send with pylog.aio.AsyncProducer"
Callback = Callable[["FutureRecordMetadata"], object]


class RecordMetadata(NamedTuple):
    """Where a record that was sent is.

    Attributes:
        topic, partition, offset: of the record.
        timestamp: that it has in the log, in milliseconds.
        durability: the level that the acknowledgement waited for.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    durability: Durability


@dataclass(slots=True)
class Outcome:
    """What became of a batch.

    Attributes:
        topic, partition: of the batch.
        base_offset: of its first record.
        timestamp: of records that brought none along; of all, if the topic stamps them.
        stamped: whether it does.
        durability: of the acknowledgement.
        error: why it is not acknowledged, or None.
        observed: of a batch with an error, the indexes of the records whose outcome was asked for.
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
        """Of a batch that is not acknowledged."""
        return cls(partition=partition, error=error, observed=set())


class Details(msgspec.Struct, gc=False, eq=False):
    """What few records have: headers, a partition that they name, a timestamp of their own, calls to make when settled."""

    headers: tuple[Header, ...] | None = None
    partition: int | None = None
    timestamp: int | None = None
    callbacks: list[Callback] | None = None


PLAIN: Final = Details()


class FutureRecordMetadata(msgspec.Struct, gc=False, eq=False):
    """The answer to one `send`: made by it, settled by the producer's thread.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> with store.producer() as producer:
    ...     future = producer.send("orders", b"paid", key=b"42")
    ...     future.result(timeout=60)[:3], future.done(), future.exception()
    (('orders', 0, 0), True, None)
    >>> store.close()
    """

    route: Route
    value: Any  # bytes or None, until the record is settled; then its index in the batch of `outcome`
    key: bytes | None = None
    details: Details | None = None
    outcome: Outcome | None = None

    def __repr__(self) -> str:
        state = "waiting" if self.outcome is None else "failed" if self.outcome.error is not None else "in the log"
        return f"FutureRecordMetadata({self.route.topic!r}, {state})"

    def done(self) -> bool:
        """Whether the record is in the log, or will not be."""
        return self.outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the record to be in the log.

        Args:
            timeout: seconds at most; None is for ever.

        Returns:
            Where it is.

        Raises:
            PylogTimeoutError: it took longer; the record may still get there.
            PylogError: why the record is not acknowledged. One that could not be synced may be in the log all the same.
        """
        outcome = self._settled(timeout)
        if outcome.error is not None:
            raise copied(outcome.error)  # a copy: other threads raise it too
        stamp = (self.details or PLAIN).timestamp
        if stamp is None or outcome.stamped:
            stamp = outcome.timestamp
        return RecordMetadata(outcome.topic, outcome.partition, outcome.base_offset + self.value, stamp, outcome.durability)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """`result` under kafka-python's name."""
        return self.result(timeout)

    def succeeded(self) -> bool:
        """Whether the record is in the log. Waits for nothing."""
        return self.outcome is not None and self._observed(self.outcome).error is None

    def failed(self) -> bool:
        """Whether the record will not be acknowledged: `exception` says why. Waits for nothing."""
        return self.outcome is not None and self._observed(self.outcome).error is not None

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits as `result` does, and returns why the record is not acknowledged; None when it is.

        Raises:
            PylogTimeoutError: it took longer.
        """
        error = self._settled(timeout).error
        return None if error is None else copied(error)

    def _settled(self, timeout: float | None) -> Outcome:
        if self.outcome is None:
            self.route.waiting.wait_until(self.done, timeout)
        assert self.outcome is not None
        return self._observed(self.outcome)

    def _observed(self, outcome: Outcome) -> Outcome:
        """The outcome, which is now known to the program: if it is an error, no report has to tell of it."""
        if outcome.observed is not None:
            outcome.observed.add(self.value)
        return outcome

    def add_callback(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Calls `callback(*args, metadata, **kwargs)` once the record is in the log: now if it is, else in the producer's thread.

        What it raises is logged. It must not wait for the producer, which waits for it. A coroutine function is refused; a
        coroutine that a plain function returns is an error, which is logged.

        Returns:
            This future.
        """

        def call(done: FutureRecordMetadata) -> None:
            if done.outcome is not None and done.outcome.error is None:
                refuse_awaitable(callback(*args, done.result(), **kwargs))

        refuse_coroutine_function("callback", callback, _INSTEAD)
        return self.when_done(call)

    def add_errback(self, errback: Callable[..., object], *args: Any, **kwargs: Any) -> FutureRecordMetadata:
        """Calls `errback(*args, error, **kwargs)` if the record is not acknowledged, as `add_callback` does."""

        def call(done: FutureRecordMetadata) -> None:
            if (error := done.exception()) is not None:
                refuse_awaitable(errback(*args, error, **kwargs))

        refuse_coroutine_function("errback", errback, _INSTEAD)
        return self.when_done(call)

    def when_done(self, call: Callback) -> FutureRecordMetadata:
        """Calls `call(future)` in either case."""
        if not callable(call):
            raise InvalidArgumentError(f"{call!r} cannot be called")
        refuse_coroutine_function("call", call, _INSTEAD)
        self.route.waiting.add_callback(partial(self._add, call))
        if self.outcome is not None:
            self.call_back()
        return self

    def _add(self, call: Callback) -> None:
        if self.details is None:
            self.details = Details()
        if self.details.callbacks is None:
            self.details.callbacks = []
        self.details.callbacks.append(call)

    def call_back(self) -> None:
        """Makes the calls that are due, each once, whichever thread comes first."""
        callbacks = (self.details or PLAIN).callbacks
        while callbacks:
            try:
                call = callbacks.pop(0)
            except IndexError:
                return
            try:
                refuse_awaitable(call(self))
            except BaseException:  # of the user's code: other records' calls, and the sender, must go on
                LOGGER.exception("a callback of %r failed", self)


def by_route(futures: Sequence[FutureRecordMetadata]) -> dict[Route, list[FutureRecordMetadata]]:
    """The futures of each topic, in their order."""
    routes: dict[Route, list[FutureRecordMetadata]] = {}
    for future in futures:
        routes.setdefault(future.route, []).append(future)
    return routes


def settle(futures: Sequence[FutureRecordMetadata], outcome: Outcome) -> None:
    """Answers the futures of one batch, and lets go of their records."""
    if not futures:
        return
    route = futures[0].route
    if route.headed:
        for future in futures:
            if future.details is not None:
                future.details.headers = None
    if not route.keyed:
        for index, future in enumerate(futures):
            future.value = index
            future.outcome = outcome
        return
    for index, future in enumerate(futures):
        future.key = None  # in the same pass: of futures that are sorted by partition each one is fetched from far
        future.value = index
        future.outcome = outcome


def copied(error: Exception) -> Exception:
    """An error to raise: what many threads raise must not collect their tracebacks."""
    return copy.copy(error) if isinstance(error, PylogError) else error
