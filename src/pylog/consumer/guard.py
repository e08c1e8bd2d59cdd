"""The locks of a consumer: one thread at a time, one process, and no call from a signal handler during another call."""

from __future__ import annotations

from _thread import RLock, get_ident
from collections.abc import Callable

from pylog.awaitables import refuse_awaitable
from pylog.directory.locks import held_by_me
from pylog.errors import ClosedError, IllegalStateError
from pylog.fs import process_id


class Guard(RLock):  # type: ignore[misc]  # it is final for type checkers only
    """Held during each call of a consumer. A nested call, from a listener for example, may hold it again.

    It is a subclass of a lock, so that it is released in one step, which no interrupt can split. An interrupt during `__enter__`
    releases it.

    Attributes:
        closed: true once the consumer is closed.
        ended_by: the thread that is closing the consumer or its store; None before that.

    Raises:
        IllegalStateError: on entering, if another thread is in a call of the consumer.
        ClosedError: on entering, if the consumer is closed or another thread is closing its store, or this is a forked child.
    """

    def __init__(self) -> None:
        self._pid = process_id()
        self.closed = False
        self.ended_by: int | None = None
        self.is_in_step = False  # inside `Steps`

    @property
    def is_mine(self) -> bool:
        """True if this thread is in a call."""
        return held_by_me(self)

    @property
    def forked(self) -> bool:
        """True in a forked child of the process that created the consumer."""
        return process_id() != self._pid

    @property
    def is_ended_elsewhere(self) -> bool:
        """True if another thread is closing the consumer or its store, or has closed it."""
        return self.ended_by is not None and self.ended_by != get_ident()

    def close(self) -> None:
        """Closes the consumer: no later call can enter."""
        self.closed = True

    def __enter__(self) -> bool:  # type: ignore[override]
        if process_id() != self._pid:
            raise ClosedError("a consumer cannot be used in a forked process; create another one there")
        is_first, taken = not held_by_me(self), list[bool]()
        try:
            taken.extend(map(self.acquire, (False,)))  # one step: an interrupt cannot come between taking and noting it
            if self.closed or not taken[0]:
                self._check(is_free=taken[0])
            self.is_in_step = self.is_in_step and not is_first  # left true by an interrupt
            return True
        except BaseException:
            if taken and taken[0]:
                self.release()
            raise

    def _check(self, *, is_free: bool) -> None:
        if not is_free:
            self.check_not_ended()
            raise IllegalStateError(
                "another thread is in a call of this consumer; only one thread may use a consumer at a time: create one for each"
            )
        self.check_open()

    def check_not_ended(self) -> None:
        """Raises ClosedError if the consumer is closed, or another thread is closing it: it may own no partition any more."""
        if self.is_ended_elsewhere:
            raise ClosedError("the consumer or its store was closed by another thread; create another consumer")
        self.check_open()

    def check_open(self) -> None:
        """Raises ClosedError if the consumer is closed."""
        if self.closed:
            raise ClosedError("the consumer is closed; create another one")


class Steps:
    """Held inside the guard by calls whose steps no other call of the same thread may interrupt. A signal handler could make one.

    Listeners and callbacks run between two steps, and may use the consumer.

    Args:
        guard: the consumer's.

    Attributes:
        settle: receives the return value of user code, which may be a coroutine.

    Raises:
        IllegalStateError: on entering, if this thread is inside other steps.
        ClosedError: on entering, if the consumer is closed.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._later: Callable[[], None] | None = None
        self.settle: Callable[[object], object] = refuse_awaitable

    @property
    def are_under_way(self) -> bool:
        """True while this thread is inside the steps."""
        return self._guard.is_in_step and self._guard.is_mine

    @property
    def has_deferred_call(self) -> bool:
        """True if a call is deferred until the steps end."""
        return self._later is not None

    def defer(self, call: Callable[[], None]) -> None:
        """Defers a call until the steps end."""
        self._later = call

    def lend(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls user code, which may use the consumer."""
        before, self._guard.is_in_step = self._guard.is_in_step, False
        try:
            self.settle(call(*arguments))
        finally:
            self._guard.is_in_step = before

    def __enter__(self) -> None:
        if self._guard.is_in_step:
            message = "this call interrupts another call of the same thread, perhaps from a signal handler"
            raise IllegalStateError(f"{message}: set a flag there and check it between the calls; only close() may be called")
        self._guard.check_open()  # a signal handler may just have closed it
        self._guard.is_in_step = True

    def __exit__(self, *_: object) -> None:
        self._guard.is_in_step = False
        later, self._later = self._later, None
        if later is not None:
            later()
