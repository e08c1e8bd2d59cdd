"""One consumer, one thread at a time, one process."""

from __future__ import annotations

from _thread import RLock

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
        taken: list[bool] = []
        try:
            taken.extend(map(self.acquire, (False,)))  # one step: an interrupt finds it taken and known to be, or neither
            self._check(is_free=taken[0])
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
        if self.closed:
            raise ClosedError("the consumer is closed; make another one")
