"""kafka-python's futures: `Future`, and `FutureRecordMetadata`, which is the answer to one `send`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, ClassVar, NamedTuple

from pylog.compat.kafka import errors
from pylog.compat.kafka.structs import TopicPartition
from pylog.compat.kafka.translation import Translating, translated
from pylog.errors import PylogError
from pylog.producer.future import FutureRecordMetadata as NativeFuture
from pylog.producer.future import RecordMetadata as NativeMetadata

LOGGER = logging.getLogger("pylog.compat")


class Future:
    """A result that comes later. Callbacks that are added late are called at once.

    Attributes:
        is_done: true once there is a value or an exception.
        value: the result; None before.
        exception: the error; None if there is none.
        error_on_callbacks: true if errors of callbacks are raised, and not only logged.
    """

    error_on_callbacks: ClassVar[bool] = False

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.exception: BaseException | None = None
        self._calls: list[tuple[bool, Callable[[Any], object]]] = []  # with whether it is for success
        self._lock = threading.Lock()

    def succeeded(self) -> bool:
        """Returns True if there is a value."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Returns True if there is an exception."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Returns True if the call failed, and may succeed later."""
        return self.is_done and isinstance(self.exception, errors.RetriableError)

    def success(self, value: Any) -> Future:
        """Sets the value, and calls the callbacks."""
        return self._settle(value, None)

    def failure(self, e: BaseException | type[BaseException]) -> Future:
        """Sets the exception, which may be a class, and calls the errbacks.

        Raises:
            TypeError: the argument is no exception.
        """
        error = e() if isinstance(e, type) else e
        if not isinstance(error, BaseException):
            raise TypeError(f"a future fails with an exception, not with {type(error).__name__}")
        return self._settle(None, error)

    def _settle(self, value: Any, error: BaseException | None) -> Future:
        with self._lock:
            self.value, self.exception, self.is_done = value, error, True
            calls, self._calls = self._calls, []
        for for_success, call in calls:
            if for_success == (error is None):
                self._call(call, value if error is None else error)
        return self

    def _call(self, call: Callable[[Any], object], argument: Any) -> None:
        try:
            call(argument)
        except Exception:
            LOGGER.exception("a callback of a future failed")
            if self.error_on_callbacks:
                raise

    def _add(self, call: Callable[[Any], object], *, for_success: bool) -> None:
        with self._lock:
            if not self.is_done:
                self._calls.append((for_success, call))
                return
        if for_success == (self.exception is None):
            self._call(call, self.value if for_success else self.exception)

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Future:
        """Calls `f(*args, value, **kwargs)` when there is a value."""
        self._add(partial(f, *args, **kwargs), for_success=True)
        return self

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Future:
        """Calls `f(*args, exception, **kwargs)` when there is an exception."""
        self._add(partial(f, *args, **kwargs), for_success=False)
        return self

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> Future:
        """Calls `f` in both cases."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Future) -> Future:
        """Gives the outcome to another future, too."""
        return self.add_callback(future.success).add_errback(future.failure)

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self.is_done:
            yield self
        if self.exception is not None:
            raise self.exception
        return self.value


class RecordMetadata(NamedTuple):
    """Where a record was appended.

    Attributes:
        topic: the record's topic.
        partition: the number of its partition.
        topic_partition: both.
        offset: its offset. It is known with any `acks`.
        timestamp: its timestamp in milliseconds.
        checksum: None.
        serialized_key_size: bytes of the key; -1 without one.
        serialized_value_size: bytes of the value; -1 without one.
        serialized_header_size: bytes of names and values of the headers; -1 without headers.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int

    @property
    def log_start_offset(self) -> int | None:
        """Part of version 2.0; None, because appends do not return it."""
        return None


class FutureProduceResult(Future):
    """The result of a whole batch. A future of kafka-python's own workings; nothing here returns it.

    Attributes:
        topic_partition: the batch's partition.
    """

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__()
        self.topic_partition = topic_partition
        self._done = threading.Event()
        self.add_both(lambda _: self._done.set())

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, at most `timeout` seconds. Returns whether it is done."""
        return self._done.wait(timeout)


class FutureRecordMetadata(Future):
    """The answer to one `send`: a view of the native future. `is_done`, `value` and `exception` are attributes.

    >>> import pylog.compat.kafka as kafka
    >>> producer = kafka.KafkaProducer(bootstrap_servers="pylog+memory://futures")
    >>> future = producer.send("orders", b"paid")
    >>> future.get(timeout=60).offset, future.is_done, future.value.topic, future.exception
    (0, True, 'orders', None)
    >>> producer.close()
    """

    __slots__ = ("_failed", "_native", "_sizes")

    _native: NativeFuture | Refused
    _sizes: tuple[int, int, int]  # of the key, the value and the headers
    _failed: Any

    def __init__(self) -> None:  # `new_future` makes them: a producer makes very many
        raise TypeError("KafkaProducer.send creates these futures")

    @property
    def is_done(self) -> bool:  # type: ignore[override]
        """True once the record was appended, or has failed."""
        return self._native.done()

    @property
    def value(self) -> RecordMetadata | None:
        """The position of the record; None until it was appended."""
        return _metadata(self._native.result(), self._sizes) if self._native.succeeded() else None

    @property
    def exception(self) -> BaseException | None:  # type: ignore[override]
        """The error; None until the record has failed."""
        if not self._native.failed():
            return None
        if self._failed is None:
            self._failed = translated(self._native.exception())
        return self._failed

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is in the log, at most `timeout` seconds.

        Raises:
            KafkaTimeoutError: the time is over. TypeError: it is no number. The record's error, if it failed.
        """
        if not isinstance(timeout, int | float | None):
            raise TypeError(f"timeout={timeout!r} is not a number of seconds")
        try:
            return _metadata(self._native.result(timeout), self._sizes)
        except PylogError as error:
            if self._native.failed():
                raise self.exception or error from error
            Translating(ValueError).reraise(error)

    def _settle(self, value: Any, error: BaseException | None) -> Future:
        raise errors.IllegalStateError("the producer settles this future")

    def _add(self, call: Callable[[Any], object], *, for_success: bool) -> None:
        def done(native: NativeFuture | Refused) -> None:
            if native.succeeded() == for_success:
                self._call(call, self.value if for_success else self.exception)

        if isinstance(self._native, Refused) or self._native.done():
            done(self._native)
        else:
            self._native.when_done(done)


def new_future(native: NativeFuture | Refused, key_size: int, value_size: int, header_size: int) -> FutureRecordMetadata:
    """Returns the view of a native future.

    Args:
        native: the native one, or `Refused`.
        key_size, value_size, header_size: bytes; -1 for none.
    """
    made = _new(FutureRecordMetadata)
    made._native = native
    made._sizes = (key_size, value_size, header_size)
    made._failed = None
    return made


_new = object.__new__


def _metadata(found: NativeMetadata, sizes: tuple[int, int, int]) -> RecordMetadata:
    partition = TopicPartition(found.topic, found.partition)
    return RecordMetadata(found.topic, found.partition, partition, found.offset, found.timestamp, None, *sizes)


class Refused:
    """Has the calls of a native future, for a record that was refused before it reached the buffer.

    Args:
        error: why it was refused.
    """

    def __init__(self, error: PylogError) -> None:
        self._error = error

    def done(self) -> bool:
        """Returns True."""
        return True

    def succeeded(self) -> bool:
        """Returns False."""
        return False

    def failed(self) -> bool:
        """Returns True."""
        return True

    def exception(self) -> PylogError:
        """Returns the error."""
        return self._error

    def result(self, timeout: float | None = None) -> NativeMetadata:
        """Raises the error."""
        raise self._error
