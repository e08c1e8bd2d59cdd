"""One consumer, one thread at a time, one process."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable

from pylog.awaitables import refuse_awaitable
from pylog.directory.locks import is_owned
from pylog.errors import ClosedError, IllegalStateError
from pylog.fs import process_id


class Guard(RLock):  # type: ignore[misc]  # it is final for type checkers only
    """Held during each call of a consumer; a call from inside (by a listener, say) may hold it again.

    It is a lock itself, so that leaving is one step that no interrupt can come before; entering lets go when one comes.

    Raises:
        IllegalStateError: on entering: another thread is in a call.
        ClosedError: on entering: the consumer is closed, or this is a forked child.
    """

    def __init__(self) -> None:
        self._pid = process_id()
        self.closed = False
        self.is_amid = False  # steps: see `Steps`

    @property
    def is_mine(self) -> bool:
        """Whether this thread is in a call."""
        return is_owned(self)

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the consumer."""
        return process_id() != self._pid

    def close(self) -> None:
        """Ends the consumer: nobody holds it any more."""
        self.closed = True

    def __enter__(self) -> bool:  # type: ignore[override]
        if self.forked:
            raise ClosedError("a consumer does not live on in a forked process; make one there")
        is_first, taken = not self.is_mine, list[bool]()
        try:
            taken.extend(map(self.acquire, (False,)))  # one step: an interrupt finds it taken and known to be, or neither
            self._check(is_free=taken[0])
            self.is_amid = self.is_amid and not is_first  # left by an interrupt
            return True
        except BaseException:
            if taken and taken[0]:
                self.release()
            raise

    def _check(self, *, is_free: bool) -> None:
        if not is_free:
            raise IllegalStateError(
                "another thread is in a call of this consumer; one thread uses it at a time: make one for each"
            )
        self.check_open()

    def check_open(self) -> None:
        """Raises ClosedError when the consumer is closed."""
        if self.closed:
            raise ClosedError("the consumer is closed; make another one")


class Steps:
    """Held inside of the guard by calls between whose steps no other call of the same thread may come: one from a handler of a
    signal, which may run anywhere.

    Code of the user that these calls run (listeners, callbacks) is lent the consumer: it comes between two steps.

    Args:
        guard: the consumer's.

    Attributes:
        settle: is given what code of the user returns, which may be a coroutine.

    Raises:
        IllegalStateError: on entering, amid steps. ClosedError: on entering, the consumer is closed.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._later: Callable[[], None] | None = None
        self.settle: Callable[[object], object] = refuse_awaitable

    @property
    def are_under_way(self) -> bool:
        """Whether this thread is amid them."""
        return self._guard.is_amid and self._guard.is_mine

    @property
    def are_to_end(self) -> bool:
        """Whether something is to be done behind them."""
        return self._later is not None

    def put_off(self, call: Callable[[], None]) -> None:
        """Has something done as soon as they are done."""
        self._later = call

    def lend(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls code of the user, which may use the consumer."""
        before, self._guard.is_amid = self._guard.is_amid, False
        try:
            self.settle(call(*arguments))
        finally:
            self._guard.is_amid = before

    def __enter__(self) -> None:
        if self._guard.is_amid:
            told = "this call comes amid another one of the same thread, from a handler of a signal perhaps"
            raise IllegalStateError(f"{told}: set a flag there, and look at it between the calls; only close() may be called")
        self._guard.check_open()  # such a handler may have closed it a moment ago
        self._guard.is_amid = True

    def __exit__(self, *_: object) -> None:
        self._guard.is_amid = False
        later, self._later = self._later, None
        if later is not None:
            later()
